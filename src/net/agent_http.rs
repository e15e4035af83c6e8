//! The HTTP client of agents behind an address: requests whose answers may be streams of events.
//!
//! One client per agent, bound to the agent's own address and key. It never follows a redirect, never retries, never
//! sends the key or a conversation unencrypted to another machine unless told to, and never waits without a limit.
//! There is no limit on how long an answer may take as a whole, only on how long it may be silent: dropping a
//! [`Reply`] closes its connection, which is how an answer is aborted. Connections are not kept for later requests, so
//! that none fails because the server closed it meanwhile.

use std::fmt;
use std::time::{Duration, SystemTime};

use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::http::{excerpt, innermost, redirect_target, sensitive};
use super::proxy::{ProxyRules, is_loopback};
use super::tls::{self, Tls};
use crate::wire::{SseError, SseEvent, SseParser};

/// Longest wait for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of an answer that is read whole; a longer one is an error.
pub const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Why a request got no answer, or an answer no end.
#[derive(Debug, thiserror::Error)]
pub enum AgentHttpError {
    /// The client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
    /// The agent's address cannot be used.
    #[error("{0}; write it like http://127.0.0.1:11434/v1")]
    Address(&'static str),
    /// The conversation would cross the network unencrypted.
    #[error(
        "refusing to talk to {host} unencrypted; use https, or set allow_plaintext if the network is yours"
    )]
    Plaintext {
        /// The host in question.
        host: String,
    },
    /// A header's value contains characters that no header can carry.
    #[error("the value of the header {0} contains characters that cannot travel in a header")]
    Header(String),
    /// No connection was made: the server has certainly seen nothing.
    #[error("no connection to {host}: {reason}")]
    Connect {
        /// Where to.
        host: String,
        /// What the system said.
        reason: String,
    },
    /// The answer was a redirect; it is not followed.
    #[error("it redirected to {target}; configure that address if it is right")]
    Redirect {
        /// Origin the redirect pointed at.
        target: String,
    },
    /// Nothing came for too long.
    #[error("nothing came for {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// An answer that is read whole is over the limit.
    #[error("the answer is longer than {MAX_ANSWER} bytes")]
    TooLarge,
    /// The stream of events cannot be read on.
    #[error(transparent)]
    Events(#[from] SseError),
}

/// How requests leave this machine; the same for all agents.
#[derive(Debug, Clone)]
pub struct Egress {
    /// The trust.
    pub tls: Tls,
    /// The proxies.
    pub proxies: ProxyRules,
    /// How we name ourselves.
    pub user_agent: String,
}

/// Where an agent is, and what it is shown.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its address; paths are appended to it.
    pub base_url: String,
    /// The key of the `Authorization` header.
    pub key: Option<SecretString>,
    /// Whether the conversation and the key may cross the network unencrypted.
    pub allow_plaintext: bool,
}

/// One request.
#[derive(Debug, Clone, Default)]
pub struct AgentRequest<'a> {
    /// The path below the base address, with its leading slash.
    pub path: &'a str,
    /// Method and body.
    pub verb: Verb,
    /// Further headers; no secrets.
    pub headers: Vec<(&'a str, &'a str)>,
    /// Whether the key is left out.
    pub anonymous: bool,
}

/// Method and body of a request.
#[derive(Clone, Default)]
pub enum Verb {
    /// `GET`.
    #[default]
    Get,
    /// `POST` of this JSON text.
    Post(Vec<u8>),
    /// `DELETE`.
    Delete,
}

impl fmt::Debug for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "Get",
            Self::Post(_) => "Post(..)",
            Self::Delete => "Delete",
        })
    }
}

/// Sends requests to one agent.
#[derive(Debug, Clone)]
pub struct AgentHttp {
    client: reqwest::Client,
    base: Url,
    key: Option<SecretString>,
}

impl AgentHttp {
    /// A client for the agent at `endpoint`. Dials nothing yet.
    pub fn new(endpoint: Endpoint, egress: &Egress) -> Result<Self, AgentHttpError> {
        let base = vetted(&endpoint.base_url, endpoint.allow_plaintext)?;
        if let Some(key) = &endpoint.key {
            bearer(key)?;
        }
        let plain = base.scheme() == "http" && egress.proxies.proxy_for(&base).is_none();
        let config = if plain {
            tls::trusting_nobody()
        } else {
            egress.tls.config()
        };
        let config = config.map_err(|error| AgentHttpError::Setup(error.to_string()))?;
        let proxies = egress.proxies.clone();
        let proxy = reqwest::Proxy::custom(move |url| proxies.proxy_for(url)?.url_with_credentials());
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(&config))
            .no_proxy()
            .proxy(proxy)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(0)
            .user_agent(&egress.user_agent)
            .build()
            .map_err(|error| AgentHttpError::Setup(innermost(&error)))?;
        Ok(Self {
            client,
            base,
            key: endpoint.key,
        })
    }

    /// The agent's host and port, for people.
    pub fn host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Takes the key out of a text that came from outside.
    pub fn redact(&self, text: &str) -> String {
        match &self.key {
            Some(key) if !key.expose_secret().is_empty() => text.replace(key.expose_secret(), "[key]"),
            _ => text.to_owned(),
        }
    }

    /// Sends `request` and waits up to `patience` for the beginning of the answer, whatever its status.
    pub async fn send(&self, request: AgentRequest<'_>, patience: Duration) -> Result<Reply, AgentHttpError> {
        let url = format!("{}{}", self.base.as_str().trim_end_matches('/'), request.path);
        let url = Url::parse(&url).map_err(|_| AgentHttpError::Address("the address does not parse"))?;
        let (method, body) = match request.verb {
            Verb::Get => (Method::GET, None),
            Verb::Post(body) => (Method::POST, Some(body)),
            Verb::Delete => (Method::DELETE, None),
        };
        let mut builder = self
            .client
            .request(method, url.clone())
            .header(ACCEPT, "text/event-stream, application/json;q=0.9");
        if let Some(body) = body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        if let Some(key) = self.key.as_ref().filter(|_| !request.anonymous) {
            builder = builder.header(AUTHORIZATION, bearer(key)?);
        }
        for (name, value) in request.headers {
            let unfit = || AgentHttpError::Header(excerpt(name));
            let header = HeaderName::try_from(name).map_err(|_| unfit())?;
            builder = builder.header(header, HeaderValue::from_str(value).map_err(|_| unfit())?);
        }
        let sent = tokio::time::timeout(patience, builder.send()).await;
        let response = sent
            .map_err(|_| AgentHttpError::Silent(patience))?
            .map_err(|error| self.lost(error))?;
        let headers = response.headers();
        if let Some(location) = headers
            .get(LOCATION)
            .filter(|_| response.status().is_redirection())
        {
            let target = redirect_target(&url, location);
            return Err(AgentHttpError::Redirect { target });
        }
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Ok(Reply {
            status: response.status().as_u16(),
            content_type: header(CONTENT_TYPE).map(essence).unwrap_or_default(),
            retry_after: header(RETRY_AFTER).and_then(|text| wait_of(text, SystemTime::now())),
            parser: SseParser::default(),
            response: Some(response),
        })
    }

    fn lost(&self, error: reqwest::Error) -> AgentHttpError {
        if error.is_connect() {
            let timed_out = error.is_timeout();
            let reason = if timed_out {
                format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs())
            } else {
                innermost(&error.without_url())
            };
            return AgentHttpError::Connect {
                host: self.host(),
                reason,
            };
        }
        AgentHttpError::Broken(innermost(&error.without_url()))
    }
}

/// The beginning of an answer; the rest is read from it. Dropping it closes the connection.
pub struct Reply {
    /// HTTP status, never a redirect with a target.
    pub status: u16,
    /// The kind of content that it says it is, in lower case, without parameters; empty when it does not say.
    pub content_type: String,
    /// How long the server asks to wait before the next try.
    pub retry_after: Option<Duration>,
    parser: SseParser,
    response: Option<reqwest::Response>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it says that it is JSON.
    pub fn is_json(&self) -> bool {
        self.content_type == "application/json" || self.content_type.ends_with("+json")
    }

    /// The next event, `None` at the end; an error when nothing at all, not even a comment, comes for `patience`.
    /// Dropping the future loses nothing.
    pub async fn next_event(&mut self, patience: Duration) -> Result<Option<SseEvent>, AgentHttpError> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event?));
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            let read = tokio::time::timeout(patience, response.chunk()).await;
            match read.map_err(|_| AgentHttpError::Silent(patience))? {
                Ok(Some(chunk)) => self.parser.feed(&chunk),
                Ok(None) => {
                    self.response = None;
                    self.parser.finish();
                }
                Err(error) => {
                    // What came whole before the break still counts.
                    self.response = None;
                    return Err(AgentHttpError::Broken(innermost(&error.without_url())));
                }
            }
        }
    }

    /// The whole body, which may be silent for `patience` at a time.
    pub async fn body(mut self, patience: Duration) -> Result<Vec<u8>, AgentHttpError> {
        let mut body = Vec::new();
        while let Some(response) = &mut self.response {
            let read = tokio::time::timeout(patience, response.chunk()).await;
            match read.map_err(|_| AgentHttpError::Silent(patience))? {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    return Err(AgentHttpError::TooLarge);
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(AgentHttpError::Broken(innermost(&error.without_url()))),
            }
        }
        Ok(body)
    }
}

fn vetted(base: &str, allow_plaintext: bool) -> Result<Url, AgentHttpError> {
    let url = Url::parse(base).map_err(|_| AgentHttpError::Address("the address does not parse"))?;
    if !url.username().is_empty() || url.password().is_some() {
        let wrong = "the address contains a user name or password; keys have settings of their own";
        return Err(AgentHttpError::Address(wrong));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(AgentHttpError::Address("the address contains a `?` or `#`"));
    }
    let host = url
        .host()
        .ok_or(AgentHttpError::Address("the address names no host"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_plaintext || is_loopback(&host) => Ok(url),
        "http" => Err(AgentHttpError::Plaintext {
            host: host.to_string(),
        }),
        _ => Err(AgentHttpError::Address(
            "the address starts with neither https nor http",
        )),
    }
}

fn bearer(key: &SecretString) -> Result<HeaderValue, AgentHttpError> {
    sensitive(&format!("Bearer {}", key.expose_secret()))
        .map_err(|_| AgentHttpError::Header("authorization".to_owned()))
}

fn essence(content_type: &str) -> String {
    let kind = content_type.split(';').next().unwrap_or_default();
    excerpt(kind).to_ascii_lowercase()
}

/// `Retry-After` as a wait: seconds, or a date.
fn wait_of(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(secs) = text.parse::<u64>() {
        return Some(Duration::from_secs(secs).min(LONGEST_WAIT));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default().min(LONGEST_WAIT))
}

/// The longest wait that a server may ask for; whoever retries waits far less.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_vetted() {
        let says = |base: &str| vetted(base, false).map_err(|error| error.to_string());
        assert!(says("https://api.example/v1").is_ok());
        assert!(says("http://localhost:11434/v1").is_ok());
        assert!(says("http://[::1]:8080").is_ok());
        assert!(vetted("http://ollama:11434", true).is_ok());
        for (base, wrong) in [
            ("http://ollama:11434", "allow_plaintext"),
            ("https://me:pw@api.example", "user name"),
            ("https://api.example/?key=1", "`?`"),
            ("ftp://api.example", "neither"),
            ("api.example", "does not parse"),
        ] {
            let error = says(base).expect_err(base);
            assert!(error.contains(wrong), "{base}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        assert_eq!(wait_of(" 7 ", now), Some(Duration::from_secs(7)));
        let later = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait_of(later, now), Some(Duration::from_secs(37)));
        assert_eq!(
            wait_of("Sun, 06 Nov 1994 08:00:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(wait_of("soon", now), None);
        assert_eq!(wait_of("-1", now), None);
    }
}
