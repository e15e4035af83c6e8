//! HTTP for backends behind an address: the endpoint they are bound to, and failed requests as turn failures.
//!
//! An [`AgentHttp`] sends its key to its own address only. Chats get what failed and what to do next; what the server
//! reported goes to the log, shortened and without the key.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::completion::{Ended, error_text};
use super::{Failure, FailureClass, PreferenceOption, TELL_OPERATOR, Truncation, TurnEnd};
use crate::net::http::{
    Body, HttpClient, HttpEgress, HttpError, HttpPolicy, Request, ResponseStream, bearer, excerpt,
    without_key,
};
use crate::net::proxy::is_loopback;

/// Limits of requests to agents: any duration, since an answer may stream for hours, but no idle connections, which a
/// server may have closed by the next request.
const POLICY: HttpPolicy = HttpPolicy {
    connect_timeout: Some(Duration::from_secs(10)),
    read_timeout: None,
    timeout: None,
    max_body: 4 * 1024 * 1024,
    reuse_connections: false,
    allow_plaintext: false,
};

/// Where an agent is, and the key for it.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Its address; paths are appended to it.
    pub(super) base_url: String,
    /// The key of the `Authorization` header.
    pub(super) key: Option<SecretString>,
    /// Whether the conversation and the key may cross the network unencrypted.
    pub(super) allow_plaintext: bool,
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address cannot be used.
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
    /// The key or the client cannot be used.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// One request to an agent.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentRequest<'a> {
    /// The path below the base address, with its leading slash.
    pub(super) path: &'a str,
    /// Method and body.
    pub(super) body: Body,
    /// Further headers; no secrets.
    pub(super) headers: Vec<(&'a str, &'a str)>,
    /// Whether the key is left out.
    pub(super) anonymous: bool,
}

/// Sends requests to one agent.
#[derive(Debug, Clone)]
pub(super) struct AgentHttp {
    client: HttpClient,
    base: Url,
    key: Option<SecretString>,
}

impl AgentHttp {
    /// A client for the agent at `endpoint`. Connects to nothing.
    pub(super) fn new(endpoint: Endpoint, egress: &HttpEgress) -> Result<Self, EndpointError> {
        let base = base_url(&endpoint.base_url, endpoint.allow_plaintext)?;
        endpoint.key.as_ref().map(bearer).transpose()?;
        let policy = HttpPolicy {
            allow_plaintext: endpoint.allow_plaintext,
            ..POLICY
        };
        Ok(Self {
            client: HttpClient::for_url(egress, policy, &base)?,
            base,
            key: endpoint.key,
        })
    }

    /// Removes the key from text that came from outside.
    pub(super) fn redact(&self, text: &str) -> String {
        without_key(text, self.key.as_ref())
    }

    /// Sends `request` and waits up to `timeout` for the head of the response, whatever its status.
    pub(super) async fn send(
        &self,
        request: AgentRequest<'_>,
        timeout: Duration,
    ) -> Result<ResponseStream, HttpError> {
        let url = format!("{}{}", self.base.as_str().trim_end_matches('/'), request.path);
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers {
            let invalid = || HttpError::Header(excerpt(name));
            let header = HeaderName::try_from(name).map_err(|_| invalid())?;
            headers.insert(header, HeaderValue::from_str(value).map_err(|_| invalid())?);
        }
        let mut sent = Request::new(&url, request.body)
            .accept("text/event-stream, application/json;q=0.9")
            .bearer(self.key.as_ref().filter(|_| !request.anonymous));
        sent.headers = headers;
        self.client.stream(sent, timeout).await
    }
}

/// The models that a server lists; none when it lists none.
pub(super) fn listed_models(body: &[u8]) -> Vec<PreferenceOption> {
    let listed: Value = serde_json::from_slice(body).unwrap_or_default();
    let models = listed["data"].as_array().map_or(&[][..], Vec::as_slice);
    let ids = models.iter().filter_map(|model| model["id"].as_str());
    ids.filter_map(|id| PreferenceOption::new(id, None)).collect()
}

/// Checks the address of an agent as its settings have it.
pub fn check_base_url(text: &str, allow_plaintext: bool) -> Result<(), EndpointError> {
    base_url(text, allow_plaintext).map(drop)
}

fn base_url(text: &str, allow_plaintext: bool) -> Result<Url, EndpointError> {
    let url = Url::parse(text).map_err(|_| EndpointError::Address("the address does not parse"))?;
    if !url.username().is_empty() || url.password().is_some() {
        let wrong = "the address contains a user name or password; keys have settings of their own";
        return Err(EndpointError::Address(wrong));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(EndpointError::Address("the address contains a `?` or `#`"));
    }
    let host = url
        .host()
        .ok_or(EndpointError::Address("the address names no host"))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if allow_plaintext || is_loopback(&host) => Ok(url),
        "http" => Err(EndpointError::Plaintext {
            host: host.to_string(),
        }),
        _ => Err(EndpointError::Address(
            "the address starts with neither https nor http",
        )),
    }
}

/// Timeout for the body of an error response.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A backend's name, for the chat, and remedies, for the log.
#[derive(Debug)]
pub(super) struct FailureTexts {
    /// Its name at the start of a sentence.
    pub(super) who: &'static str,
    /// What to do when it cannot be reached.
    pub(super) unreachable: &'static str,
    /// What to do when it rejects the key.
    pub(super) credentials: &'static str,
    /// What to do on a 404.
    pub(super) missing: &'static str,
}

impl FailureTexts {
    /// The end of a turn whose stream ended.
    pub(super) fn end(&self, ended: Ended, http: &AgentHttp) -> TurnEnd {
        let who = self.who;
        let (class, public, detail) = match ended {
            Ended::Complete | Ended::ToolCall => return TurnEnd::Completed,
            Ended::Length => return TurnEnd::Truncated(Truncation::Tokens),
            Ended::Filtered => return TurnEnd::Truncated(Truncation::Filter),
            Ended::Transport(error) => return TurnEnd::Failed(self.transport(&error)),
            Ended::Reported(error) => (
                FailureClass::Reported,
                format!("{who} failed while it answered. Please try again."),
                http.redact(&error),
            ),
            Ended::Interrupted => (
                FailureClass::Crashed,
                format!("{who} closed the connection early. Please try again."),
                "the stream ended without finish_reason and without [DONE]".to_owned(),
            ),
            Ended::Invalid(why) => (
                FailureClass::Protocol,
                format!("{who} sent an unexpected response. {TELL_OPERATOR}"),
                format!("{why}; check base_url"),
            ),
        };
        TurnEnd::Failed(Failure::new(class, public, detail))
    }

    /// The failure after a transport error.
    pub(super) fn transport(&self, error: &HttpError) -> Failure {
        let who = self.who;
        let detail = error.to_string();
        match error {
            HttpError::NotActive | HttpError::Connect { .. } => {
                let public = format!("{who} cannot be reached right now. Please try again later.");
                let detail = format!("{detail}; {}", self.unreachable);
                Failure::new(FailureClass::Unavailable, public, detail)
                    .without_side_effects()
                    .retryable()
            }
            HttpError::TimedOut(_) => {
                let public = format!("{who} did not respond in time. Please try again.");
                Failure::new(FailureClass::Timeout, public, detail)
            }
            HttpError::Broken(_) => {
                let public = format!("{who} closed the connection early. Please try again.");
                Failure::new(FailureClass::Crashed, public, detail)
            }
            HttpError::Setup(_)
            | HttpError::Address(_)
            | HttpError::Plaintext { .. }
            | HttpError::Credential
            | HttpError::Header(_) => {
                let public = format!("{who} is not set up correctly. {TELL_OPERATOR}");
                Failure::new(FailureClass::Internal, public, detail).without_side_effects()
            }
            HttpError::Redirect { .. } | HttpError::TooLarge(_) | HttpError::Events(_) => {
                let public = format!("{who} sent an unexpected response. {TELL_OPERATOR}");
                Failure::new(FailureClass::Protocol, public, detail)
            }
        }
    }

    /// The failure after an error status. The error text of the body goes to the log.
    pub(super) async fn status(&self, http: &AgentHttp, reply: ResponseStream) -> Failure {
        let (status, retry_after) = (reply.status, reply.retry_after);
        let body = match reply.short_body(BODY_TIMEOUT).await {
            Ok(body) => http.redact(&error_text(&body)),
            Err(error) => error.to_string(),
        };
        self.status_with(status, retry_after, &body)
    }

    /// As [`FailureTexts::status`], with the error text at hand.
    pub(super) fn status_with(&self, status: u16, retry_after: Option<Duration>, body: &str) -> Failure {
        let who = self.who;
        let remedy = match status {
            401 | 403 => format!("; {}", self.credentials),
            404 => format!("; {}", self.missing),
            _ => String::new(),
        };
        let detail = format!("HTTP {status}: {body}{remedy}");
        let (class, public) = match status {
            401 | 403 => (
                FailureClass::Credentials,
                format!("{who} is not set up correctly. {TELL_OPERATOR}"),
            ),
            404 => (
                FailureClass::Reported,
                format!("{who} is not set up correctly. {TELL_OPERATOR}"),
            ),
            408 | 504 => (
                FailureClass::Timeout,
                format!("{who} timed out. Please try again."),
            ),
            413 => (
                FailureClass::Reported,
                "The conversation is too long. Start a new one, or send less.".to_owned(),
            ),
            429 => (
                FailureClass::Unavailable,
                format!("{who} is busy. {}", try_again(retry_after)),
            ),
            500..=599 => (
                FailureClass::Unavailable,
                format!("{who} has an internal problem. {}", try_again(retry_after)),
            ),
            _ => (
                FailureClass::Reported,
                format!("{who} refused the request. {TELL_OPERATOR}"),
            ),
        };
        let failure = Failure::new(class, public, detail).without_side_effects();
        if is_transient(status) {
            failure.retryable()
        } else {
            failure
        }
    }
}

/// Whether the same request may succeed later.
pub(super) fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

fn try_again(retry_after: Option<Duration>) -> String {
    match retry_after.map(|wait| wait.as_secs()) {
        None | Some(0) => "Please try again in a moment.".to_owned(),
        Some(secs @ 1..=90) => format!("Please try again in {secs} seconds."),
        Some(secs) => format!("Please try again in {} minutes.", secs.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_checked() {
        let check = |base: &str| base_url(base, false).map_err(|error| error.to_string());
        assert!(check("https://api.example/v1").is_ok());
        assert!(check("http://localhost:11434/v1").is_ok());
        assert!(check("http://[::1]:8080").is_ok());
        assert!(base_url("http://ollama:11434", true).is_ok());
        for (base, wrong) in [
            ("http://ollama:11434", "allow_plaintext"),
            ("https://me:pw@api.example", "user name"),
            ("https://api.example/?key=1", "`?`"),
            ("ftp://api.example", "neither"),
            ("api.example", "does not parse"),
        ] {
            let error = check(base).expect_err(base);
            assert!(error.contains(wrong), "{base}: {error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn retry_after_is_formatted() {
        assert_eq!(try_again(None), "Please try again in a moment.");
        assert_eq!(
            try_again(Some(Duration::from_secs(7))),
            "Please try again in 7 seconds."
        );
        assert_eq!(
            try_again(Some(Duration::from_secs(3601))),
            "Please try again in 61 minutes."
        );
    }
}
