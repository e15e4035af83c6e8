//! The HTTP client of every route but the socket: one TLS configuration, one proxy rule, small answers.
//!
//! It never follows a redirect, never reads the environment, never sends a credential in the clear to
//! another machine, and never holds more than [`MAX_BODY`] bytes of an answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::proxy::{ProxyRules, is_loopback};

/// Longest a request may take, from the first byte sent to the last byte read.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// Most bytes of an answer's body that are kept; a longer answer is an error.
pub const MAX_BODY: usize = 64 * 1024;
/// Longest text quoted from an answer in an error.
const MAX_EXCERPT: usize = 200;

/// Why a request got no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The address is not an absolute http(s) URL, or carries a user name or password.
    #[error("not a usable http(s) address: {0}")]
    Address(&'static str),
    /// The request would cross the network unencrypted.
    #[error("refusing to talk to {host} unencrypted; use https")]
    Plaintext {
        /// The host the request was meant for.
        host: String,
    },
    /// A credential contains bytes that no header can carry.
    #[error("the credential contains characters that cannot travel in a header")]
    Credential,
    /// The answer was a redirect; it is not followed.
    #[error(
        "it redirected to {target}; redirects are not followed, so configure that address if it is right"
    )]
    Redirect {
        /// Origin the redirect pointed at.
        target: String,
    },
    /// The answer's body was longer than [`MAX_BODY`].
    #[error("the answer was longer than {MAX_BODY} bytes")]
    TooLarge,
    /// Nothing came back within [`TIMEOUT`].
    #[error("no answer within {} seconds", TIMEOUT.as_secs())]
    TimedOut,
    /// The connection could not be made or broke.
    #[error("{0}")]
    Unreachable(String),
}

/// One request. `bearer` and `secret_header` are marked sensitive and shown nowhere.
#[derive(Debug)]
pub struct Request<'a> {
    /// Absolute address.
    pub url: &'a str,
    /// Value of `Accept`.
    pub accept: &'static str,
    /// Token of the `Authorization` header.
    pub bearer: Option<&'a SecretString>,
    /// One further header whose value is a secret.
    pub secret_header: Option<(&'static str, &'a SecretString)>,
    /// Method and body.
    pub body: Body,
}

/// Method and body of a request.
pub enum Body {
    /// `GET` without a body.
    Get,
    /// `POST` of this JSON text.
    Json(Vec<u8>),
    /// `POST` of this form, already URL-encoded.
    Form(SecretString),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Get => "Get",
            Self::Json(_) => "Json(..)",
            Self::Form(_) => "Form(..)",
        })
    }
}

/// What came back, whatever its status.
pub struct Answer {
    /// HTTP status, never a redirect with a target.
    pub status: u16,
    /// The whole body, at most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
    /// The server's clock when it answered, from its `Date` header.
    pub date: Option<SystemTime>,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .field("date", &self.date)
            .finish()
    }
}

impl Answer {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as a JSON object; `None` when it is anything else.
    pub fn object(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        serde_json::from_slice(&self.body).ok()
    }

    /// What the body's `error` text says, shortened and without control characters.
    pub fn error_text(&self) -> Option<String> {
        let object = self.object()?;
        let text = excerpt(object.get("error")?.as_str()?);
        (!text.is_empty()).then_some(text)
    }

    /// How far the server's clock is ahead of `now`, in seconds; negative when it is behind.
    pub fn clock_skew_secs(&self, now: SystemTime) -> Option<i64> {
        self.date.map(|date| unix_secs(date) - unix_secs(now))
    }
}

/// Sends requests; cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    allow_plaintext: bool,
    timeout: Duration,
    /// Sent with every request; marked sensitive.
    headers: HeaderMap,
}

impl HttpClient {
    /// Builds a client on `tls` that reaches each address through what `proxies` says.
    pub fn new(
        tls: &Arc<rustls::ClientConfig>,
        proxies: ProxyRules,
        user_agent: &str,
    ) -> Result<Self, HttpError> {
        let proxy = reqwest::Proxy::custom(move |url| proxies.proxy_for(url)?.url_with_credentials());
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(tls))
            .no_proxy()
            .proxy(proxy)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .timeout(TIMEOUT)
            .user_agent(user_agent)
            .build()
            .map_err(|e| HttpError::Setup(innermost(&e)))?;
        Ok(Self {
            client,
            allow_plaintext: false,
            timeout: TIMEOUT,
            headers: HeaderMap::new(),
        })
    }

    /// Lets credentials cross the network unencrypted, for those who asked for it by name.
    #[must_use]
    pub fn with_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// Gives every request this long instead of [`TIMEOUT`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends these with every request. Their values are to be marked sensitive.
    #[cfg(feature = "otlp")]
    #[must_use]
    pub(super) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }

    /// Sends `request` once and reads its whole answer.
    pub async fn send(&self, request: Request<'_>) -> Result<Answer, HttpError> {
        let url = self.vet(&request)?;
        let mut builder = match request.body {
            Body::Get => self.client.get(url.clone()),
            Body::Json(json) => self
                .client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(json),
            Body::Form(form) => self
                .client
                .post(url.clone())
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.expose_secret().to_owned()),
        }
        .header(ACCEPT, request.accept)
        .headers(self.headers.clone())
        .timeout(self.timeout);
        if let Some(bearer) = request.bearer {
            let value = format!("Bearer {}", bearer.expose_secret());
            builder = builder.header(AUTHORIZATION, sensitive(&value)?);
        }
        if let Some((name, secret)) = request.secret_header {
            builder = builder.header(HeaderName::from_static(name), sensitive(secret.expose_secret())?);
        }
        let mut response = builder.send().await.map_err(lost)?;

        let status = response.status();
        let headers = response.headers();
        if let Some(location) = headers.get(LOCATION).filter(|_| status.is_redirection()) {
            return Err(HttpError::Redirect {
                target: redirect_target(&url, location),
            });
        }
        let date = headers
            .get(DATE)
            .and_then(|d| d.to_str().ok())
            .and_then(|d| httpdate::parse_http_date(d).ok());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(HttpError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer {
            status: status.as_u16(),
            body,
            date,
        })
    }

    pub(super) fn vet(&self, request: &Request<'_>) -> Result<Url, HttpError> {
        let url = Url::parse(request.url).map_err(|_| HttpError::Address("it does not parse"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(HttpError::Address("it contains a user name or password"));
        }
        match url.scheme() {
            "https" => return Ok(url),
            "http" => {}
            _ => return Err(HttpError::Address("its scheme is neither https nor http")),
        }
        let host = url.host().ok_or(HttpError::Address("it names no host"))?;
        let carries_credential =
            request.bearer.is_some() || request.secret_header.is_some() || !matches!(request.body, Body::Get);
        // Instance metadata services speak plain http on a link-local address and are told no secret.
        let acceptable =
            self.allow_plaintext || is_loopback(&host) || (!carries_credential && is_link_local(&host));
        if acceptable {
            Ok(url)
        } else {
            Err(HttpError::Plaintext {
                host: host.to_string(),
            })
        }
    }
}

/// Shortens text from outside for a person's eyes: no control characters, at most 200 characters.
pub fn excerpt(text: &str) -> String {
    let clean = text.chars().map(|c| if is_unprintable(c) { ' ' } else { c });
    let mut out: String = clean.take(MAX_EXCERPT).collect();
    if text.chars().nth(MAX_EXCERPT).is_some() {
        out.push('…');
    }
    out.trim().to_owned()
}

/// Control characters, and the invisible ones that reorder or hide what surrounds them.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

/// Whole seconds since 1970, negative before.
pub(crate) fn unix_secs(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |secs| -secs),
    }
}

fn is_link_local(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(_) => false,
        Host::Ipv4(ip) => ip.is_link_local(),
        Host::Ipv6(ip) => ip.is_unicast_link_local(),
    }
}

/// A header value that is shown nowhere.
pub(super) fn sensitive(text: &str) -> Result<HeaderValue, HttpError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| HttpError::Credential)?;
    value.set_sensitive(true);
    Ok(value)
}

pub(super) fn redirect_target(from: &Url, location: &HeaderValue) -> String {
    let target = location
        .to_str()
        .ok()
        .and_then(|location| from.join(location).ok());
    let origin = target.map(|url| url.origin()).filter(url::Origin::is_tuple);
    origin.map_or_else(
        || "an address that cannot be read".to_owned(),
        |origin| excerpt(&origin.ascii_serialization()),
    )
}

fn lost(error: reqwest::Error) -> HttpError {
    if error.is_timeout() {
        return HttpError::TimedOut;
    }
    HttpError::Unreachable(innermost(&error.without_url()))
}

/// The root cause's own words: the outer layers only say that sending failed.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    excerpt(&cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
        let long = excerpt(&"é".repeat(5000));
        assert_eq!(long.chars().count(), MAX_EXCERPT + 1);
    }

    #[test]
    fn redirects_name_the_host_and_nothing_else() {
        let from = Url::parse("https://a.example/relay/enroll").unwrap();
        let to = |s| redirect_target(&from, &HeaderValue::from_static(s));
        assert_eq!(to("https://evil.example/x?token=1"), "https://evil.example");
        assert_eq!(to("/elsewhere"), "https://a.example");
        assert_eq!(to("http://["), "an address that cannot be read");
    }

    #[test]
    fn seconds_before_1970_are_negative() {
        assert_eq!(unix_secs(SystemTime::UNIX_EPOCH + Duration::from_secs(5)), 5);
        assert_eq!(unix_secs(SystemTime::UNIX_EPOCH - Duration::from_secs(5)), -5);
    }
}
