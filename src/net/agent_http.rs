//! The HTTP client of agents behind an address: requests whose answers may be streams of events.
//!
//! One client per agent, bound to the agent's own address and key. It never follows a redirect, never retries, never
//! sends the key or a conversation unencrypted to another machine unless told to, and never waits without a limit.
//! There is no limit on how long an answer may take as a whole, only on how long it may be silent: dropping a
//! [`Reply`] closes its connection, which is how an answer is aborted. Connections are not kept for later requests, so
//! that none fails because the server closed it meanwhile.

mod error;
mod reply;

use std::fmt;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

pub use self::error::AgentHttpError;
pub use self::reply::{MAX_ANSWER, Reply};

use super::http::{excerpt, innermost, redirect_target, sensitive};
use super::proxy::{ProxyRules, is_loopback};
use super::tls::{self, Tls};

/// Longest wait for a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How requests leave this machine; the same for all agents.
#[derive(Debug, Clone)]
pub struct HttpEgress {
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
    pub fn new(endpoint: Endpoint, egress: &HttpEgress) -> Result<Self, AgentHttpError> {
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
        let location = response.headers().get(LOCATION);
        if let Some(location) = location.filter(|_| response.status().is_redirection()) {
            let target = redirect_target(&url, location);
            return Err(AgentHttpError::Redirect { target });
        }
        Ok(Reply::of(response))
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
}
