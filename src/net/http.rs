//! The HTTP client: every request but the WebSocket upgrade goes through it.
//!
//! Redirects are never followed, so a credential reaches the origin of its own request and nobody else. Nothing is read
//! from the environment, no credential crosses a network unencrypted unless the policy says so, and everything has a
//! timeout. A response is read whole ([`HttpClient::send`]) or as a stream ([`HttpClient::stream`]); dropping a stream
//! closes its connection.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::Method;
use reqwest::dns::Resolve;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::proxy::{ProxyRules, is_loopback};
use super::send_lease::SendLease;
use super::tls::{self, Tls};
use crate::text::is_unprintable;
use crate::wire::{SseError, SseEvent, SseParser};

/// Default timeout of a whole exchange.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// Default maximum size of a body that is read whole.
pub const MAX_BODY: usize = 64 * 1024;
/// Maximum wait that a server may ask for with `Retry-After`.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum length of text quoted from outside.
const MAX_EXCERPT: usize = 200;

/// How requests leave this machine.
#[derive(Debug, Clone)]
pub struct HttpEgress {
    /// Trusted certificates.
    pub tls: Tls,
    /// The proxies by target.
    pub proxies: ProxyRules,
    /// `User-Agent` of every request.
    pub user_agent: String,
    /// In a cluster: nothing leaves once it has ended.
    pub lease: Option<SendLease>,
}

/// Limits of a client.
#[derive(Debug, Clone, Copy)]
pub struct HttpPolicy {
    /// Timeout for connecting; `timeout` alone when not set.
    pub connect_timeout: Option<Duration>,
    /// Timeout for a read that returns nothing.
    pub read_timeout: Option<Duration>,
    /// Timeout for a whole exchange, body included; none for streams, whose reads have their own.
    pub timeout: Option<Duration>,
    /// Maximum size of a body that is read whole.
    pub max_body: usize,
    /// Whether connections are reused.
    pub reuse_connections: bool,
    /// Whether credentials and bodies may cross the network unencrypted.
    pub allow_plaintext: bool,
}

impl Default for HttpPolicy {
    fn default() -> Self {
        Self {
            connect_timeout: None,
            read_timeout: None,
            timeout: Some(TIMEOUT),
            max_body: MAX_BODY,
            reuse_connections: true,
            allow_plaintext: false,
        }
    }
}

/// Why a request got no usable response.
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
        /// The host in question.
        host: String,
    },
    /// A credential contains characters that a header cannot carry.
    #[error("the credential contains characters that cannot travel in a header")]
    Credential,
    /// A header contains characters that a header cannot carry.
    #[error("the header {0} contains characters that cannot travel in a header")]
    Header(String),
    /// Another relay of the cluster may be active.
    #[error("this relay is not the active member of its cluster any more")]
    NotActive,
    /// No connection was made: the server has seen nothing.
    #[error("no connection to {host}: {reason}")]
    Connect {
        /// The host of the server.
        host: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The response is a redirect, which is not followed.
    #[error("it redirected to {target}, which is not followed; configure that address if it is right")]
    Redirect {
        /// HTTP status.
        status: u16,
        /// Origin of the redirect's target.
        target: String,
    },
    /// No response came in time.
    #[error("timed out after {} seconds", .0.as_secs())]
    TimedOut(Duration),
    /// The connection broke before the response was complete.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The body is longer than the policy allows.
    #[error("the response is longer than {0} bytes")]
    TooLarge(usize),
    /// The event stream is malformed.
    #[error(transparent)]
    Events(#[from] SseError),
}

/// One request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Absolute address.
    pub url: &'a str,
    /// Value of `Accept`.
    pub accept: &'static str,
    /// Token of the `Authorization` header.
    pub bearer: Option<&'a SecretString>,
    /// Further headers; secret ones are marked sensitive.
    pub headers: HeaderMap,
    /// Method and body.
    pub body: Body,
}

/// Method and body of a request.
#[derive(Clone, Default)]
pub enum Body {
    /// `GET`.
    #[default]
    Get,
    /// `DELETE`.
    Delete,
    /// `POST` of this JSON text.
    Json(Vec<u8>),
    /// `POST` of this form, already URL-encoded.
    Form(SecretString),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "Get",
            Self::Delete => "Delete",
            Self::Json(_) => "Json(..)",
            Self::Form(_) => "Form(..)",
        })
    }
}

impl<'a> Request<'a> {
    /// A request without credentials that accepts any response.
    pub fn new(url: &'a str, body: Body) -> Self {
        Self {
            url,
            accept: "*/*",
            bearer: None,
            headers: HeaderMap::new(),
            body,
        }
    }

    /// Sets `Accept`.
    #[must_use]
    pub fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }

    /// Sets the token of the `Authorization` header.
    #[must_use]
    pub fn bearer(self, bearer: Option<&'a SecretString>) -> Self {
        Self { bearer, ..self }
    }

    fn has_credential(&self) -> bool {
        self.bearer.is_some()
            || self.headers.values().any(HeaderValue::is_sensitive)
            || matches!(self.body, Body::Json(_) | Body::Form(_))
    }
}

/// A response that was read whole, whatever its status.
pub struct HttpResponse {
    /// HTTP status, never a redirect with a target.
    pub status: u16,
    /// The complete body.
    pub body: Vec<u8>,
    /// The server's clock, from the `Date` header.
    pub date: Option<SystemTime>,
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpResponse")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .field("date", &self.date)
            .finish()
    }
}

impl HttpResponse {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as a JSON object; `None` when it is anything else.
    pub fn object(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body's `error` text, shortened and without control characters.
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
    policy: HttpPolicy,
    lease: Option<SendLease>,
}

impl HttpClient {
    /// Builds a client. Connects to nothing.
    pub fn new(egress: &HttpEgress, policy: HttpPolicy) -> Result<Self, HttpError> {
        let tls = egress.tls.config();
        Self::build(egress, policy, tls, None)
    }

    /// Builds a client for one origin. Certificates are not loaded when none is needed.
    pub fn for_url(egress: &HttpEgress, policy: HttpPolicy, url: &Url) -> Result<Self, HttpError> {
        let plain = url.scheme() == "http" && egress.proxies.proxy_for(url).is_none();
        let tls = if plain {
            tls::trusting_nobody()
        } else {
            egress.tls.config()
        };
        Self::build(egress, policy, tls, None)
    }

    /// Builds a client that resolves names with `resolver`.
    pub(super) fn with_resolver(
        egress: &HttpEgress,
        policy: HttpPolicy,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, HttpError> {
        Self::build(egress, policy, egress.tls.config(), Some(resolver))
    }

    fn build(
        egress: &HttpEgress,
        policy: HttpPolicy,
        tls: Result<Arc<rustls::ClientConfig>, tls::TlsError>,
        resolver: Option<Arc<dyn Resolve>>,
    ) -> Result<Self, HttpError> {
        let tls = tls.map_err(|error| HttpError::Setup(error.to_string()))?;
        let proxies = egress.proxies.clone();
        let proxy = reqwest::Proxy::custom(move |url| proxies.proxy_for(url)?.url_with_credentials());
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(&tls))
            .no_proxy()
            .proxy(proxy)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .user_agent(&egress.user_agent);
        if let Some(timeout) = policy.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(timeout) = policy.read_timeout {
            builder = builder.read_timeout(timeout);
        }
        if !policy.reuse_connections {
            builder = builder.pool_max_idle_per_host(0);
        }
        if let Some(resolver) = resolver {
            builder = builder.dns_resolver(resolver);
        }
        let client = builder
            .build()
            .map_err(|error| HttpError::Setup(innermost(&error)))?;
        Ok(Self {
            client,
            policy,
            lease: egress.lease.clone(),
        })
    }

    /// The same client with another timeout for a whole exchange.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.policy.timeout = Some(timeout);
        self
    }

    /// Sends `request` once and reads the whole response.
    pub async fn send(&self, request: Request<'_>) -> Result<HttpResponse, HttpError> {
        let stream = ResponseStream::new(self.open(request).await?, self.policy);
        let (status, date) = (stream.status, stream.date);
        // The client's own timeout covers the body too.
        let body = stream.body(Duration::MAX).await?;
        Ok(HttpResponse { status, body, date })
    }

    /// Sends `request` and waits up to `timeout` for the head of the response, whatever its status.
    pub async fn stream(&self, request: Request<'_>, timeout: Duration) -> Result<ResponseStream, HttpError> {
        let opened = tokio::time::timeout(timeout, self.open(request)).await;
        let response = opened.map_err(|_| HttpError::TimedOut(timeout))??;
        Ok(ResponseStream::new(response, self.policy))
    }

    async fn open(&self, request: Request<'_>) -> Result<reqwest::Response, HttpError> {
        let url = self.check(&request)?;
        let mut builder = match request.body {
            Body::Get => self.request(Method::GET, &url),
            Body::Delete => self.request(Method::DELETE, &url),
            Body::Json(json) => self
                .request(Method::POST, &url)
                .header(CONTENT_TYPE, "application/json")
                .body(json),
            Body::Form(form) => self
                .request(Method::POST, &url)
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.expose_secret().to_owned()),
        }
        .header(ACCEPT, request.accept)
        .headers(request.headers);
        if let Some(token) = request.bearer {
            builder = builder.header(AUTHORIZATION, bearer(token)?);
        }
        let response = self.execute(builder, &url).await?;
        let location = response.headers().get(LOCATION);
        if let Some(location) = location.filter(|_| response.status().is_redirection()) {
            return Err(HttpError::Redirect {
                status: response.status().as_u16(),
                target: redirect_target(&url, location),
            });
        }
        Ok(response)
    }

    /// Starts a request whose address the caller has checked.
    pub(super) fn request(&self, method: Method, url: &Url) -> reqwest::RequestBuilder {
        let builder = self.client.request(method, url.clone());
        match self.policy.timeout {
            Some(timeout) => builder.timeout(timeout),
            None => builder,
        }
    }

    /// Sends a request and waits for the head of the response; redirects are returned as they are.
    pub(super) async fn execute(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
    ) -> Result<reqwest::Response, HttpError> {
        if self.lease.as_ref().is_some_and(|lease| !lease.holds()) {
            return Err(HttpError::NotActive);
        }
        request.send().await.map_err(|error| {
            if !error.is_connect() {
                return failed(error, self.policy);
            }
            let reason = match self.policy.connect_timeout {
                Some(timeout) if error.is_timeout() => {
                    format!("no answer within {} seconds", timeout.as_secs())
                }
                _ => innermost(&error.without_url()),
            };
            HttpError::Connect {
                host: authority(url),
                reason,
            }
        })
    }

    pub(super) fn check(&self, request: &Request<'_>) -> Result<Url, HttpError> {
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
        // Instance metadata services use plain http on a link-local address and get no secret.
        let acceptable = self.policy.allow_plaintext
            || is_loopback(&host)
            || (!request.has_credential() && is_link_local(&host));
        if acceptable {
            Ok(url)
        } else {
            Err(HttpError::Plaintext {
                host: host.to_string(),
            })
        }
    }
}

/// The head of a response; its body is read from here. Dropping it closes the connection.
pub struct ResponseStream {
    /// HTTP status, never a redirect with a target.
    pub status: u16,
    /// The content type in lower case, without parameters; empty when there is none.
    pub content_type: String,
    /// How long the server asks to wait before the next request.
    pub retry_after: Option<Duration>,
    /// The server's clock, from the `Date` header.
    pub date: Option<SystemTime>,
    parser: SseParser,
    policy: HttpPolicy,
    response: Option<reqwest::Response>,
}

impl fmt::Debug for ResponseStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseStream")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl ResponseStream {
    pub(super) fn new(response: reqwest::Response, policy: HttpPolicy) -> Self {
        let headers = response.headers();
        let content_type = header_text(headers, &CONTENT_TYPE).unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default();
        Self {
            status: response.status().as_u16(),
            content_type: excerpt(essence).to_ascii_lowercase(),
            retry_after: retry_after(headers),
            date: server_date(headers),
            parser: SseParser::default(),
            policy,
            response: Some(response),
        }
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the content type is JSON.
    pub fn is_json(&self) -> bool {
        self.content_type == "application/json" || self.content_type.ends_with("+json")
    }

    /// The next event, `None` at the end. Times out when nothing, not even a comment, comes for `idle`. Cancel-safe.
    pub async fn next_event(&mut self, idle: Duration) -> Result<Option<SseEvent>, HttpError> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event?));
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            let read = tokio::time::timeout(idle, response.chunk()).await;
            match read.map_err(|_| HttpError::TimedOut(idle))? {
                Ok(Some(chunk)) => self.parser.feed(&chunk),
                Ok(None) => {
                    self.response = None;
                    self.parser.finish();
                }
                Err(error) => {
                    // Events that arrived whole were returned before.
                    self.response = None;
                    return Err(failed(error, self.policy));
                }
            }
        }
    }

    /// The whole body. Times out when nothing comes for `idle`.
    pub async fn body(mut self, idle: Duration) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(response) = &mut self.response {
            let read = tokio::time::timeout(idle, response.chunk()).await;
            match read.map_err(|_| HttpError::TimedOut(idle))? {
                Ok(Some(chunk)) if body.len() + chunk.len() > self.policy.max_body => {
                    return Err(HttpError::TooLarge(self.policy.max_body));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(failed(error, self.policy)),
            }
        }
        Ok(body)
    }

    /// The whole body within `timeout`, however slowly it trickles.
    pub async fn short_body(self, timeout: Duration) -> Result<Vec<u8>, HttpError> {
        let read = tokio::time::timeout(timeout, self.body(timeout)).await;
        read.unwrap_or(Err(HttpError::TimedOut(timeout)))
    }
}

/// `host:port` of an address, for people.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// The server's clock, from its `Date` header.
pub(crate) fn server_date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(header_text(headers, &DATE)?).ok()
}

/// `Retry-After` as a duration. A date is compared with the server's own clock where the response has it, so that a
/// wrong clock here does not lengthen the wait.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = header_text(headers, &RETRY_AFTER)?;
    let wait = if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() {
        value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(value).ok()?;
        let now = server_date(headers).unwrap_or_else(SystemTime::now);
        until.duration_since(now).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

/// Shortens text from outside for display: no control characters, at most 200 characters.
pub fn excerpt(text: &str) -> String {
    let clean = text.chars().map(|c| if is_unprintable(c) { ' ' } else { c });
    let mut out: String = clean.take(MAX_EXCERPT).collect();
    if text.chars().nth(MAX_EXCERPT).is_some() {
        out.push('…');
    }
    out.trim().to_owned()
}

/// Removes a key from text that came from outside, also where an [`excerpt`] ends within the key.
pub fn without_key(text: &str, key: Option<&SecretString>) -> String {
    const SHOWN: &str = "[key]";
    let Some(key) = key.map(ExposeSecret::expose_secret).filter(|key| !key.is_empty()) else {
        return text.to_owned();
    };
    let text = text.replace(key, SHOWN);
    let Some(start) = text.strip_suffix('…') else {
        return text;
    };
    let cut = (1..key.len())
        .rev()
        .find_map(|end| start.strip_suffix(key.get(..end)?));
    cut.map_or_else(|| text.clone(), |before| format!("{before}{SHOWN}…"))
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

/// The value of an `Authorization` header.
pub(crate) fn bearer(token: &SecretString) -> Result<HeaderValue, HttpError> {
    sensitive(&format!("Bearer {}", token.expose_secret()))
}

/// A header value that is never logged or printed.
pub(crate) fn sensitive(text: &str) -> Result<HeaderValue, HttpError> {
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

/// Maps a failure after the connection was made.
fn failed(error: reqwest::Error, policy: HttpPolicy) -> HttpError {
    if error.is_timeout() {
        return HttpError::TimedOut(policy.timeout.or(policy.read_timeout).unwrap_or(TIMEOUT));
    }
    HttpError::Broken(innermost(&error.without_url()))
}

/// The message of the root cause: the outer errors only say that sending failed.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let tls = cause
        .downcast_ref::<std::io::Error>()
        .and_then(super::socket::tls_cause);
    if let Some(error) = tls.or_else(|| cause.downcast_ref()) {
        return excerpt(&super::self_signed::describe(error));
    }
    excerpt(&cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_leaves_once_the_lease_has_ended() {
        use crate::net::tls::TlsSettings;
        let lease = SendLease::default();
        let egress = HttpEgress {
            tls: Tls::new(TlsSettings::default()),
            proxies: ProxyRules::none(),
            user_agent: "test".to_owned(),
            lease: Some(lease.clone()),
        };
        let client = HttpClient::new(&egress, HttpPolicy::default()).unwrap();
        // Nobody listens at this port.
        let ask = async || {
            let request = Request::new("http://127.0.0.1:1/", Body::Get);
            client.send(request).await.map(drop).unwrap_err()
        };
        assert!(matches!(ask().await, HttpError::NotActive));
        lease.extend(super::super::send_lease::now() + Duration::from_secs(60));
        assert!(matches!(ask().await, HttpError::Connect { .. }));
    }

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
        let long = excerpt(&"é".repeat(5000));
        assert_eq!(long.chars().count(), MAX_EXCERPT + 1);
    }

    #[test]
    fn a_key_is_removed_from_what_a_server_reports_also_where_the_excerpt_cuts_it() {
        let key = SecretString::from("sk-0123456789");
        let without = |text: &str| without_key(&excerpt(text), Some(&key));
        assert_eq!(without("bad sk-0123456789, bad"), "bad [key], bad");
        for shown in 1..13 {
            let before = "x".repeat(MAX_EXCERPT - shown);
            let expected = format!("{before}[key]…");
            assert_eq!(without(&format!("{before}sk-0123456789 is wrong")), expected);
        }
        assert_eq!(without("ends with s"), "ends with s");
        assert_eq!(without_key("sk-0123456789", None), "sk-0123456789");
        let empty = SecretString::from("");
        assert_eq!(without_key("text", Some(&empty)), "text");
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

    const NOON: &str = "Tue, 15 Nov 1994 12:00:00 GMT";
    const ONE_PAST: &str = "Tue, 15 Nov 1994 12:01:00 GMT";

    fn asked(fields: &[(HeaderName, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(name, value.parse().expect("a header value"));
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_are_read_and_bounded() {
        let seconds = |value| asked(&[(RETRY_AFTER, value)]);
        assert_eq!(seconds("7"), Some(Duration::from_secs(7)));
        assert_eq!(seconds(" 0 "), Some(Duration::ZERO));
        assert_eq!(seconds("99999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(seconds("99999999999999999999999999"), Some(MAX_RETRY_AFTER));
        for nonsense in ["", "-1", "soon", "1.5", "+3"] {
            assert_eq!(seconds(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_date_is_read_by_the_servers_own_clock() {
        assert_eq!(
            asked(&[(RETRY_AFTER, ONE_PAST), (DATE, NOON)]),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            asked(&[(RETRY_AFTER, NOON), (DATE, ONE_PAST)]),
            Some(Duration::ZERO)
        );
        assert_eq!(asked(&[(RETRY_AFTER, NOON)]), Some(Duration::ZERO));
    }
}
