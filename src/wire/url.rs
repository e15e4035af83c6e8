//! The connector's address: one configured URL, and every address derived from it.
//!
//! Scheme and path are normalised (`https` dials as `wss`, `/relay` is appended once). A query, a fragment or a missing
//! scheme is an error.

use std::fmt;

/// Why a configured connector URL cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing but whitespace was configured.
    #[error("the connector URL is empty")]
    Empty,
    /// There is no `scheme://` in front.
    #[error("the connector URL has no scheme; write it as https://host or wss://host/relay")]
    MissingScheme,
    /// A scheme other than http, https, ws and wss.
    #[error("the connector URL has scheme `{0}`; use https, wss, http or ws")]
    UnsupportedScheme(String),
    /// `?` or `#` and what follows.
    #[error("the connector URL has a query or fragment, which the relay path cannot carry; remove it")]
    QueryOrFragment,
    /// Spaces, tabs or control characters inside.
    #[error("the connector URL contains whitespace or control characters; remove them")]
    Whitespace,
    /// The host or port part does not parse.
    #[error("the connector URL is not valid: {0}")]
    Invalid(String),
}

/// A connector's address in normal form.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectorUrl {
    dial: String,
    http_base: String,
    host: String,
    port: u16,
    secure: bool,
}

impl ConnectorUrl {
    /// Normalises what a person configured; surrounding whitespace and trailing slashes do not count.
    pub fn parse(configured: &str) -> Result<Self, UrlError> {
        let configured = configured.trim();
        if configured.is_empty() {
            return Err(UrlError::Empty);
        }
        if configured.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlError::Whitespace);
        }
        let (scheme, rest) = configured.split_once("://").ok_or(UrlError::MissingScheme)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" | "wss" => true,
            "http" | "ws" => false,
            other => return Err(UrlError::UnsupportedScheme(other.to_owned())),
        };
        if rest.contains(['?', '#']) {
            return Err(UrlError::QueryOrFragment);
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let path = path.trim_end_matches('/');
        let base_path = path.strip_suffix("/relay").unwrap_or(path);
        let (ws, http) = if secure { ("wss", "https") } else { ("ws", "http") };
        let http_base = format!("{http}://{authority}{base_path}");
        let parsed = url::Url::parse(&http_base).map_err(|e| UrlError::Invalid(e.to_string()))?;
        let host = parsed
            .host_str()
            .filter(|h| !h.is_empty())
            .ok_or_else(no_host)?
            .to_owned();
        let port = parsed.port_or_known_default().ok_or_else(no_host)?;
        let dial = format!("{ws}://{authority}{base_path}/relay");
        Ok(Self {
            dial,
            http_base,
            host,
            port,
            secure,
        })
    }

    /// The WebSocket address: `ws(s)://…/relay`.
    pub fn dial_url(&self) -> &str {
        &self.dial
    }

    /// Base URL of the connector's HTTP routes; never ends in a slash.
    pub fn http_base(&self) -> &str {
        &self.http_base
    }

    /// `POST` here to provision this gateway.
    pub fn provision_url(&self) -> String {
        self.route("/relay/provision")
    }

    /// `POST` here to declare the relevance policy.
    pub fn policy_url(&self) -> String {
        self.route("/relay/policy")
    }

    /// `POST` here to enrol with a one-time token.
    pub fn enroll_url(&self) -> String {
        self.route("/relay/enroll")
    }

    /// Host as written in the URL, IPv6 in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port, filled in from the scheme when none is written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the traffic would travel unencrypted.
    pub fn is_plaintext(&self) -> bool {
        !self.secure
    }

    /// Whether the host is this machine by name or address; no name is looked up.
    pub fn is_loopback(&self) -> bool {
        is_loopback_host(&self.host)
    }

    fn route(&self, route: &str) -> String {
        format!("{}{route}", self.http_base)
    }
}

/// Whether a URL's host part names this machine: `localhost`, `127.0.0.0/8` or `::1`.
pub fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn no_host() -> UrlError {
    UrlError::Invalid("it names no host".to_owned())
}

/// Shows the address without any user name or password in it.
impl fmt::Display for ConnectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.dial.split_once("://").unwrap_or(("", &self.dial));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let public = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        write!(f, "{scheme}://{public}/{path}")
    }
}

impl fmt::Debug for ConnectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectorUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_mangled_is_refused_with_its_reason() {
        let reason = |configured| ConnectorUrl::parse(configured).unwrap_err();
        assert_eq!(reason("https://h/relay?x=1"), UrlError::QueryOrFragment);
        assert_eq!(reason("https://h/#a"), UrlError::QueryOrFragment);
        assert_eq!(reason("connector.example"), UrlError::MissingScheme);
        assert_eq!(reason("/relay"), UrlError::MissingScheme);
        assert_eq!(reason("ftp://h"), UrlError::UnsupportedScheme("ftp".into()));
        assert_eq!(reason("  "), UrlError::Empty);
        assert_eq!(reason("https://a b"), UrlError::Whitespace);
        assert!(matches!(reason("https://"), UrlError::Invalid(_)));
        assert!(matches!(reason("https://h:99999"), UrlError::Invalid(_)));
    }

    #[test]
    fn the_suffix_is_a_path_segment_not_a_spelling() {
        let dial = |configured: &str| ConnectorUrl::parse(configured).unwrap().dial_url().to_owned();
        assert_eq!(dial("https://h/myrelay"), "wss://h/myrelay/relay");
        assert_eq!(dial("https://h/relay/relay"), "wss://h/relay/relay");
        assert_eq!(dial("https://relay"), "wss://relay/relay");
        assert_eq!(dial("HTTPS://h//"), "wss://h/relay");
    }

    #[test]
    fn user_and_password_are_kept_for_the_dial_and_hidden_from_people() {
        let url = ConnectorUrl::parse("https://user:pw@h:8443/a/relay").unwrap();
        assert_eq!(url.dial_url(), "wss://user:pw@h:8443/a/relay");
        assert_eq!(url.to_string(), "wss://h:8443/a/relay");
        assert!(!format!("{url:?}").contains("pw"));
    }

    #[test]
    fn loopback_is_recognised_without_a_lookup() {
        let is = |configured: &str| ConnectorUrl::parse(configured).unwrap().is_loopback();
        assert!(is("ws://127.0.0.1:1") && is("ws://[::1]:1") && is("http://LOCALHOST"));
        assert!(!is("ws://127.0.0.1.example.com") && !is("ws://10.0.0.1"));
    }
}
