//! Selects the proxy for a target.
//!
//! The rules are curl's: `HTTPS_PROXY`, `HTTP_PROXY` and `ALL_PROXY` name proxies, `NO_PROXY` lists
//! names, addresses and networks that are dialled directly; the lower-case spelling wins. A loopback
//! target is never proxied. Nothing here connects, and a password is never printed.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

/// The proxy settings of the environment, as rules that answer for one target at a time.
#[derive(Debug, Clone, Default)]
pub struct ProxyRules {
    matcher: Option<Arc<Matcher>>,
    ignored: Vec<&'static str>,
}

/// A proxy to go through, with the credentials that it alone is shown.
#[derive(Debug, Clone)]
pub struct ProxyTarget {
    /// How to talk to the proxy.
    pub scheme: ProxyScheme,
    /// The proxy's host name or address; an IPv6 address is without brackets.
    pub host: String,
    /// The proxy's port.
    pub port: u16,
    /// User and password, percent-decoded.
    pub credentials: Option<ProxyCredentials>,
}

/// The protocol that a proxy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyScheme {
    /// HTTP `CONNECT` over plain TCP.
    Http,
    /// HTTP `CONNECT` over TLS.
    Https,
    /// SOCKS 4, the name resolved here.
    Socks4,
    /// SOCKS 4a, the name resolved by the proxy.
    Socks4a,
    /// SOCKS 5, the name resolved here.
    Socks5,
    /// SOCKS 5, the name resolved by the proxy.
    Socks5h,
}

/// Credentials of a proxy.
#[derive(Clone)]
pub struct ProxyCredentials {
    /// The user name in the proxy URL.
    pub user: String,
    /// The password; empty when the proxy URL had none.
    pub password: SecretString,
}

impl ProxyRules {
    /// Reads the proxy variables through `env`. A value that is no proxy URL is left out and named by
    /// [`ProxyRules::ignored`].
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut ignored = Vec::new();
        let mut proxy = |names: [&'static str; 2]| {
            let (name, value) = first_set(env, names)?;
            if is_usable(&value) {
                return Some(value);
            }
            ignored.push(name);
            None
        };
        let all = proxy(["all_proxy", "ALL_PROXY"]);
        let https = proxy(["https_proxy", "HTTPS_PROXY"]);
        let http = proxy(["http_proxy", "HTTP_PROXY"]);
        let no = first_set(env, ["no_proxy", "NO_PROXY"]).map(|(_, value)| value);
        let any = all.is_some() || https.is_some() || http.is_some();
        let matcher = any.then(|| {
            let rules = Matcher::builder()
                .all(all.unwrap_or_default())
                .https(https.unwrap_or_default())
                .http(http.unwrap_or_default())
                .no(no.unwrap_or_default());
            Arc::new(rules.build())
        });
        Self { matcher, ignored }
    }

    /// Rules that never name a proxy.
    pub fn none() -> Self {
        Self::default()
    }

    /// The variables that are set to something that is no proxy URL, and so count for nothing.
    pub fn ignored(&self) -> &[&'static str] {
        &self.ignored
    }

    /// The proxy for `target`, whose scheme is `https`, `http`, `wss` (treated as `https`) or `ws` (as
    /// `http`); `None` means a direct connection.
    pub(crate) fn proxy_for(&self, target: &Url) -> Option<ProxyTarget> {
        let matcher = self.matcher.as_deref()?;
        if is_loopback(&target.host()?) {
            return None;
        }
        let scheme = match target.scheme() {
            "https" | "wss" => "https",
            "http" | "ws" => "http",
            _ => return None,
        };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(target.host_str()?.trim_end_matches('.'))
            .path_and_query("/")
            .build()
            .ok()?;
        ProxyTarget::from_intercept(&matcher.intercept(&uri)?)
    }
}

impl ProxyTarget {
    /// `host:port`, which is what may be shown to a person.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The proxy's URL with its credentials in it, for an HTTP client that takes one. Never print it.
    pub fn url_with_credentials(&self) -> Option<Url> {
        let bare = format!("{}://{}", self.scheme.as_str(), self.address());
        let mut url = Url::parse(&bare).ok()?;
        if let Some(credentials) = &self.credentials {
            url.set_username(&credentials.user).ok()?;
            let password = credentials.password.expose_secret();
            if !password.is_empty() {
                url.set_password(Some(password)).ok()?;
            }
        }
        Some(url)
    }

    fn from_intercept(found: &Intercept) -> Option<Self> {
        let uri = found.uri();
        let scheme = ProxyScheme::parse(uri.scheme_str()?)?;
        let credentials = match (found.basic_auth(), found.raw_auth()) {
            (Some(basic), _) => Some(ProxyCredentials::from_basic(basic.as_bytes())?),
            (None, Some((user, password))) => Some(ProxyCredentials {
                user: user.to_owned(),
                password: password.to_owned().into(),
            }),
            (None, None) => None,
        };
        Some(Self {
            scheme,
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(scheme.default_port()),
            credentials,
        })
    }
}

impl ProxyScheme {
    /// The scheme as it is written in a proxy URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks4 => "socks4",
            Self::Socks4a => "socks4a",
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [
            Self::Http,
            Self::Https,
            Self::Socks4,
            Self::Socks4a,
            Self::Socks5,
            Self::Socks5h,
        ]
        .into_iter()
        .find(|scheme| scheme.as_str() == text)
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Socks4 | Self::Socks4a | Self::Socks5 | Self::Socks5h => 1080,
        }
    }
}

impl ProxyCredentials {
    /// The value of a `Proxy-Authorization` header, as a secret.
    pub fn basic(&self) -> SecretString {
        let pair = format!("{}:{}", self.user, self.password.expose_secret());
        format!("Basic {}", STANDARD.encode(pair)).into()
    }

    fn from_basic(header: &[u8]) -> Option<Self> {
        let decoded = STANDARD.decode(header.strip_prefix(b"Basic ")?).ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        let (user, password) = pair.split_once(':')?;
        Some(Self {
            user: user.to_owned(),
            password: password.to_owned().into(),
        })
    }
}

impl fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Whether a host is this machine itself: `localhost`, `127.0.0.0/8` or `::1`.
pub fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => name.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// The first of `names` that is set to something; an empty value counts as not set.
fn first_set(
    env: &dyn Fn(&str) -> Option<String>,
    names: [&'static str; 2],
) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| {
        let value = env(name)?.trim().to_owned();
        (!value.is_empty()).then_some((name, value))
    })
}

fn is_usable(proxy: &str) -> bool {
    let probe = Matcher::builder().all(proxy.to_owned()).build();
    probe
        .intercept(&Uri::from_static("http://probe.invalid/"))
        .and_then(|found| ProxyTarget::from_intercept(&found))
        .is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(set: &'static [(&'static str, &'static str)]) -> ProxyRules {
        ProxyRules::from_env(&|name| {
            set.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn via(rules: &ProxyRules, target: &str) -> Option<String> {
        let target = Url::parse(target).expect("a target URL");
        rules.proxy_for(&target).map(|proxy| proxy.address())
    }

    #[test]
    fn nothing_set_means_a_direct_connection() {
        assert_eq!(via(&rules(&[]), "wss://connector.example/relay"), None);
        assert_eq!(via(&ProxyRules::none(), "wss://connector.example"), None);
    }

    #[test]
    fn websocket_schemes_follow_their_http_twins() {
        let rules = rules(&[
            ("HTTPS_PROXY", "http://secure.proxy:3128"),
            ("HTTP_PROXY", "http://plain.proxy:8080"),
        ]);
        for (target, proxy) in [
            ("wss://c.example/relay", "secure.proxy:3128"),
            ("https://c.example/relay", "secure.proxy:3128"),
            ("ws://c.example/relay", "plain.proxy:8080"),
            ("http://c.example/relay", "plain.proxy:8080"),
        ] {
            assert_eq!(via(&rules, target).as_deref(), Some(proxy), "{target}");
        }
        assert_eq!(via(&rules, "ftp://c.example/"), None);
    }

    #[test]
    fn all_proxy_fills_in_and_lower_case_wins() {
        let all = rules(&[("ALL_PROXY", "socks5h://s.proxy")]);
        assert_eq!(via(&all, "wss://c.example").as_deref(), Some("s.proxy:1080"));
        let both = rules(&[
            ("https_proxy", "lower.proxy:1"),
            ("HTTPS_PROXY", "upper.proxy:2"),
            ("ALL_PROXY", "all.proxy:3"),
        ]);
        assert_eq!(via(&both, "wss://c.example").as_deref(), Some("lower.proxy:1"));
        assert_eq!(via(&both, "ws://c.example").as_deref(), Some("all.proxy:3"));
        let empty = rules(&[("https_proxy", ""), ("HTTPS_PROXY", "upper.proxy:2")]);
        assert_eq!(via(&empty, "wss://c.example").as_deref(), Some("upper.proxy:2"));
    }

    #[test]
    fn no_proxy_lists_names_addresses_and_networks() {
        let rules = rules(&[
            ("ALL_PROXY", "http://p:1"),
            (
                "NO_PROXY",
                "direct.example, .dotted.example,10.0.0.0/8,192.0.2.7,2001:db8::/32",
            ),
        ]);
        for direct in [
            "wss://direct.example",
            "wss://DIRECT.example.",
            "wss://a.direct.example",
            "wss://a.dotted.example",
            "wss://10.200.3.4:8443",
            "wss://192.0.2.7",
            "wss://[2001:db8::5]:9",
        ] {
            assert_eq!(via(&rules, direct), None, "{direct}");
        }
        for proxied in ["wss://indirect.example", "wss://11.0.0.1", "wss://[2001:db9::5]"] {
            assert_eq!(via(&rules, proxied).as_deref(), Some("p:1"), "{proxied}");
        }
        let star = self::rules(&[("ALL_PROXY", "http://p:1"), ("no_proxy", "*")]);
        assert_eq!(via(&star, "wss://anything.example"), None);
    }

    #[test]
    fn loopback_is_never_proxied() {
        let rules = rules(&[("ALL_PROXY", "http://p:1")]);
        for target in [
            "ws://localhost:1",
            "ws://LOCALHOST.:1",
            "ws://127.9.9.9",
            "wss://[::1]:2",
        ] {
            assert_eq!(via(&rules, target), None, "{target}");
        }
        assert!(via(&rules, "wss://localhost.example").is_some());
    }

    #[test]
    fn credentials_are_decoded_and_redacted() {
        let rules = rules(&[("HTTPS_PROXY", "http://us%40er:p%3Ass%20word@[2001:db8::1]:3128")]);
        let target = Url::parse("wss://c.example").expect("a target URL");
        let proxy = rules.proxy_for(&target).expect("a proxy");
        assert_eq!(proxy.address(), "[2001:db8::1]:3128");
        let credentials = proxy.credentials.clone().expect("credentials");
        assert_eq!(credentials.user, "us@er");
        assert_eq!(credentials.password.expose_secret(), "p:ss word");
        assert_eq!(credentials.basic().expose_secret(), "Basic dXNAZXI6cDpzcyB3b3Jk");
        assert_eq!(
            proxy.url_with_credentials().expect("a URL").as_str(),
            "http://us%40er:p%3Ass%20word@[2001:db8::1]:3128/"
        );
        let shown = format!("{proxy:?} {rules:?}");
        assert!(!shown.contains("ss word") && !shown.contains("p%3Ass"), "{shown}");
        assert!(shown.contains("redacted"), "{shown}");
    }

    #[test]
    fn socks_credentials_are_decoded_too() {
        let rules = rules(&[("ALL_PROXY", "socks5://u:p%40ss@s.proxy:9050")]);
        let target = Url::parse("wss://c.example").expect("a target URL");
        let proxy = rules.proxy_for(&target).expect("a proxy");
        assert_eq!(proxy.scheme, ProxyScheme::Socks5);
        let credentials = proxy.credentials.clone().expect("credentials");
        assert_eq!(credentials.password.expose_secret(), "p@ss");
        assert_eq!(
            proxy.url_with_credentials().expect("a URL").as_str(),
            "socks5://u:p%40ss@s.proxy:9050"
        );
    }

    #[test]
    fn a_value_that_is_no_proxy_is_named() {
        let rules = rules(&[("HTTPS_PROXY", "gopher://old"), ("ALL_PROXY", "http://p:1")]);
        assert_eq!(rules.ignored(), ["HTTPS_PROXY"]);
        assert_eq!(via(&rules, "wss://c.example").as_deref(), Some("p:1"));
    }
}
