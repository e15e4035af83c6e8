//! Agents behind URLs: each notice is a `POST` of the payload, signed and authorised, and sent again as the same bytes.
//!
//! The signature covers the exact bytes of the body. Network faults, timeouts, 429 and 5xx are tried again within seconds; the
//! `dispatch_id` lets the receiver drop what it has already. Redirects are not followed, so credentials reach the configured
//! addresses and nobody else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use http::header::{AUTHORIZATION, HeaderMap};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use url::Url;
use zeroize::Zeroizing;

use super::contract::{
    AgentActivity, AgentAddress, AgentDescriptor, CauseKind, DeliveryFailure, DeliveryPayload,
    DeliveryReceipt, StaticCapabilities, WakeOpts, WakeReceipt,
};
use super::degraded::deliver_instead;
use super::receipt::Answer;
use super::target::{SecretSources, TargetContext, TargetFault, TargetKind, wrong_ids};
use super::{AgentConnector, Delivering, TargetSetupError, bundled, descriptor, now_ms};
use crate::net::http::{Body, HttpClient, HttpEgress, HttpError, HttpPolicy, Request, excerpt, sensitive};
use crate::net::proxy::{ProxyRules, is_loopback};
use crate::net::tls::{Tls, TlsSettings};
use crate::wire::sign;

/// Default timeout of an attempt: connect, send and receive together.
const DEFAULT_TIMEOUT_MS: u64 = 5_000;
/// Maximum timeout of an attempt.
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Maximum size of an answer; of a longer one only the status is used.
const MAX_ANSWER: usize = 64 * 1024;
/// Delays before the second, third and fourth attempt.
const RETRY_DELAYS_MS: [u64; 3] = [250, 500, 1_000];
/// Longest wait that a receiver may ask for with `Retry-After`.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3);

/// `{kind: webhook, agents: {ID: {url, wake_url, status_url}}, auth | auth_env, hmac_secret_file, timeout_ms}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookTarget {
    /// The agents and their addresses.
    pub agents: BTreeMap<String, WebhookAgent>,
    /// The value of `Authorization`, sent as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthValue>,
    /// The variable that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_env: Option<String>,
    /// The file with the key of the signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmac_secret_file: Option<PathBuf>,
    /// Timeout of an attempt.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// The addresses of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookAgent {
    /// Where notices are posted.
    pub url: String,
    /// Where wakes are posted; without it a wake is a notice like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_url: Option<String>,
    /// What a health check gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_url: Option<String>,
}

/// What requests are authorised with.
#[derive(Debug, Clone, Default)]
pub struct WebhookCredentials {
    /// The value of `Authorization`, sent as it is.
    pub auth: Option<SecretString>,
    /// The key of the signature.
    pub hmac_secret: Option<SecretString>,
}

fn default_timeout_ms() -> u64 {
    DEFAULT_TIMEOUT_MS
}

/// A literal value of `Authorization`, hidden wherever it is shown.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "String")]
pub struct AuthValue(pub SecretString);

impl From<String> for AuthValue {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Serialize for AuthValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("<hidden>")
    }
}

impl PartialEq for AuthValue {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl WebhookTarget {
    fn auth(&self, from: SecretSources<'_>) -> Result<Option<SecretString>, TargetSetupError> {
        let Some(name) = &self.auth_env else {
            return Ok(self.auth.as_ref().map(|auth| auth.0.clone()));
        };
        let value = (from.env)(name).map(Zeroizing::new);
        match value.as_deref().map(|value| value.trim()) {
            None | Some("") => Err(TargetSetupError(format!(
                "the variable {name} is not set; set it to the value of `Authorization`"
            ))),
            Some(value) => Ok(Some(SecretString::from(value))),
        }
    }

    fn key(&self, from: SecretSources<'_>) -> Result<Option<SecretString>, TargetSetupError> {
        let key = self.hmac_secret_file.as_deref().map(from.file).transpose();
        key.map_err(TargetSetupError)
    }
}

impl TargetKind for WebhookTarget {
    fn capabilities(&self) -> StaticCapabilities {
        WebhookConnector::CAPABILITIES
    }

    fn agents(&self, _own: &[String]) -> Vec<String> {
        self.agents.keys().cloned().collect()
    }

    fn violation(&self) -> Option<String> {
        if let Some(wrong) = wrong_ids(self.agents.keys()) {
            return Some(wrong);
        }
        for (id, agent) in &self.agents {
            let addresses = [
                ("url", Some(&agent.url)),
                ("wake_url", agent.wake_url.as_ref()),
                ("status_url", agent.status_url.as_ref()),
            ];
            for (key, address) in addresses {
                if let Some(wrong) = address.and_then(|address| wrong_address(address)) {
                    return Some(format!("`agents.{id}.{key}` {wrong}"));
                }
            }
        }
        if self.auth.is_some() && self.auth_env.is_some() {
            return Some("`auth` and `auth_env` exclude each other; keep one".to_owned());
        }
        if let Some(AuthValue(auth)) = &self.auth
            && (auth.expose_secret().trim().is_empty() || sensitive(auth.expose_secret()).is_err())
        {
            return Some("`auth` is empty or has characters that cannot travel in a header".to_owned());
        }
        if self
            .auth_env
            .as_deref()
            .is_some_and(|name| name.trim().is_empty())
        {
            return Some("`auth_env` is empty; name a variable".to_owned());
        }
        if self
            .hmac_secret_file
            .as_ref()
            .is_some_and(|file| file.as_os_str().is_empty())
        {
            return Some("`hmac_secret_file` is empty; name a file".to_owned());
        }
        if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Some(format!("`timeout_ms` must be between 1 and {MAX_TIMEOUT_MS}"));
        }
        None
    }

    fn connect(&self, with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        let credentials = WebhookCredentials {
            auth: self.auth(with.secrets)?,
            hmac_secret: self.key(with.secrets)?,
        };
        let connector = WebhookConnector::through(self.clone(), credentials, with.egress)?;
        Ok(Box::new(connector))
    }

    fn health(&self) -> &'static str {
        if self.agents.values().all(|agent| agent.status_url.is_none()) {
            "its settings can be used; no agent has a `status_url` to ask"
        } else {
            "it works"
        }
    }

    fn fault(&self) -> TargetFault {
        TargetFault {
            what: "a `status_url` did not answer with a 2xx status",
            remedy: "check that the receiver runs, its `status_url`, and `auth` or `auth_env`".to_owned(),
        }
    }

    fn path_mut(&mut self) -> Option<&mut PathBuf> {
        self.hmac_secret_file.as_mut()
    }

    fn auth_variable(&self) -> Option<&str> {
        self.auth_env.as_deref()
    }

    fn secrets(&self, from: SecretSources<'_>) -> Vec<(&'static str, SecretString)> {
        let (auth, key) = (self.auth(from).ok().flatten(), self.key(from).ok().flatten());
        let auth = auth.map(|auth| ("its auth", auth));
        auth.into_iter().chain(key.map(|key| ("its key", key))).collect()
    }
}

/// Why an address cannot be used. It is not quoted: it may contain a secret.
fn wrong_address(text: &str) -> Option<&'static str> {
    let Ok(url) = Url::parse(text) else {
        return Some("must be an https URL");
    };
    let is_local = url.host().is_some_and(|host| is_loopback(&host));
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        "http" => return Some("must be an https URL; http is allowed for loopback addresses only"),
        _ => return Some("must be an https URL"),
    }
    let has_login = !url.username().is_empty() || url.password().is_some();
    has_login.then_some("must not contain a user name or password; use `auth_env`")
}

/// Posts to URLs.
#[derive(Debug)]
pub struct WebhookConnector {
    agents: BTreeMap<String, WebhookAgent>,
    credentials: WebhookCredentials,
    timeout: Duration,
    client: HttpClient,
}

/// An attempt that failed.
struct FailedAttempt {
    failure: DeliveryFailure,
    /// Whether another one may succeed.
    is_temporary: bool,
    /// How long the receiver asks to wait.
    wait: Duration,
}

impl WebhookConnector {
    /// What it can do.
    pub const CAPABILITIES: StaticCapabilities = bundled("webhook", true, true);

    /// A connector for these agents, with the platform's certificates and no proxy. The target's own sources of credentials
    /// are not read.
    pub fn new(settings: WebhookTarget, credentials: WebhookCredentials) -> Result<Self, TargetSetupError> {
        let egress = HttpEgress {
            tls: Tls::new(TlsSettings::default()),
            proxies: ProxyRules::none(),
            user_agent: concat!("hermes-relay/", env!("CARGO_PKG_VERSION")).to_owned(),
            lease: None,
        };
        Self::through(settings, credentials, &egress)
    }

    /// The same with certificates and proxies of the caller's.
    pub(crate) fn through(
        settings: WebhookTarget,
        credentials: WebhookCredentials,
        egress: &HttpEgress,
    ) -> Result<Self, TargetSetupError> {
        if let Some(wrong) = settings.violation() {
            return Err(TargetSetupError(wrong));
        }
        let timeout = Duration::from_millis(settings.timeout_ms);
        let policy = HttpPolicy {
            timeout: Some(timeout),
            max_body: MAX_ANSWER,
            ..HttpPolicy::default()
        };
        let addresses = settings.agents.values().flat_map(|agent| {
            let others = agent.wake_url.iter().chain(&agent.status_url);
            std::iter::once(&agent.url).chain(others)
        });
        let addresses: Vec<Url> = addresses.filter_map(|address| Url::parse(address).ok()).collect();
        // Certificates are loaded only if an address needs them.
        let needs_tls = addresses.iter().find(|address| address.scheme() == "https");
        let client = match needs_tls.or(addresses.first()) {
            Some(address) => HttpClient::for_url(egress, policy, address),
            None => HttpClient::new(egress, policy),
        };
        let connector = Self {
            client: client.map_err(|error| TargetSetupError(error.to_string()))?,
            agents: settings.agents,
            credentials,
            timeout,
        };
        match connector.headers("") {
            Ok(_) => Ok(connector),
            Err(error) => Err(TargetSetupError(error.to_string())),
        }
    }

    fn agent(&self, agent_id: &str) -> Result<&WebhookAgent, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id);
        let agent = self.agents.get(&address.agent);
        agent.ok_or_else(|| DeliveryFailure::unknown_agent(agent_id))
    }

    /// The headers that authorise these bytes.
    fn headers(&self, body: &str) -> Result<HeaderMap, HttpError> {
        let mut headers = HeaderMap::new();
        if let Some(auth) = &self.credentials.auth {
            headers.insert(AUTHORIZATION, sensitive(auth.expose_secret())?);
        }
        if let Some(secret) = &self.credentials.hmac_secret {
            let signature = format!("sha256={}", sign(body, secret.expose_secret()));
            headers.insert("x-signature", sensitive(&signature)?);
        }
        Ok(headers)
    }

    /// Posts the body, again as the same bytes after a fault that may pass.
    async fn post(&self, agent_id: &str, url: &str, body: &Value) -> Result<Answer, DeliveryFailure> {
        let body = body.to_string();
        let mut delays = RETRY_DELAYS_MS.into_iter().map(Duration::from_millis);
        loop {
            let mut failed = match self.attempt(agent_id, url, &body).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if !failed.is_temporary {
                return Err(failed.failure);
            }
            let Some(delay) = delays.next() else {
                let attempts = RETRY_DELAYS_MS.len() + 1;
                failed.failure.message = format!("{} ({attempts} attempts)", failed.failure.message);
                return Err(failed.failure);
            };
            tokio::time::sleep(delay.max(failed.wait.min(MAX_RETRY_AFTER))).await;
        }
    }

    async fn attempt(&self, agent_id: &str, url: &str, body: &str) -> Result<Answer, FailedAttempt> {
        let failed = |error: &HttpError| self.fault(agent_id, error);
        let headers = self.headers(body).map_err(|error| failed(&error))?;
        let mut request = Request::new(url, Body::Json(body.as_bytes().to_vec())).accept("application/json");
        request.headers = headers;
        // The client's own timeout covers the answer, too.
        let answer = self.client.stream(request, self.timeout).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let (status, wait) = (answer.status, answer.retry_after.unwrap_or_default());
        let read = answer.body(self.timeout).await;
        if status < 400 {
            return match read {
                Ok(body) => Ok(Answer::read(&body)),
                Err(HttpError::TooLarge(limit)) => Ok(Answer::unread(format!(
                    "the answer was longer than {limit} bytes and was not read"
                ))),
                Err(error) => Err(failed(&error)),
            };
        }
        let why = read.ok().and_then(|body| error_text(&body));
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let what = format!("the receiver answered {status}{why}");
        let mut failure = DeliveryFailure::new(CauseKind::HttpStatus, agent_id, what);
        failure.http_status = Some(status);
        Err(FailedAttempt {
            failure,
            is_temporary: status == 429 || status >= 500,
            wait,
        })
    }

    fn fault(&self, agent_id: &str, error: &HttpError) -> FailedAttempt {
        let (cause, status, is_temporary) = match error {
            HttpError::NotActive | HttpError::Connect { .. } | HttpError::Broken(_) => {
                (CauseKind::Network, None, true)
            }
            HttpError::TimedOut(_) => (CauseKind::Timeout, None, true),
            HttpError::Redirect { status, .. } => (CauseKind::HttpStatus, Some(*status), false),
            HttpError::Setup(_)
            | HttpError::Address(_)
            | HttpError::Plaintext { .. }
            | HttpError::Credential
            | HttpError::Header(_) => (CauseKind::ClientValidation, None, false),
            HttpError::TooLarge(_) | HttpError::Events(_) => (CauseKind::MalformedResponse, None, false),
        };
        let what = match error {
            HttpError::TimedOut(_) => format!("no answer within {} ms", self.timeout.as_millis()),
            error => error.to_string(),
        };
        let mut failure = DeliveryFailure::new(cause, agent_id, what);
        failure.http_status = status;
        FailedAttempt {
            failure,
            is_temporary,
            wait: Duration::ZERO,
        }
    }

    async fn put(
        &self,
        agent_id: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, DeliveryFailure> {
        let agent = self.agent(agent_id)?;
        let answer = self
            .post(agent_id, &agent.url, &payload.to_body(agent_id))
            .await?;
        Ok(answer.delivered(now_ms()))
    }

    async fn ring(&self, agent_id: &str, opts: &WakeOpts) -> Result<WakeReceipt, DeliveryFailure> {
        let Some(wake_url) = &self.agent(agent_id)?.wake_url else {
            return deliver_instead(self, agent_id, opts).await;
        };
        let address = AgentAddress::parse(agent_id).with_session(opts.session_id.as_deref());
        let mut body = Map::new();
        body.insert("agent_id".to_owned(), address.agent.as_str().into());
        let optional = [
            ("session_id", address.session.as_deref().map(Value::from)),
            ("context", opts.context.as_deref().map(Value::from)),
            ("when", opts.when.map(Value::from)),
        ];
        let optional = optional.into_iter();
        body.extend(optional.filter_map(|(key, value)| Some((key.to_owned(), value?))));
        let answer = self.post(agent_id, wake_url, &Value::Object(body)).await?;
        Ok(answer.woken(address, now_ms()))
    }

    /// Gets a status address: the body of a 2xx answer.
    async fn status(&self, url: &str) -> Option<Vec<u8>> {
        let mut request = Request::new(url, Body::Get).accept("application/json");
        request.headers = self.headers("").ok()?;
        let answer = self.client.send(request).await.ok()?;
        answer.is_success().then_some(answer.body)
    }
}

/// The text of an error that a receiver gives as `error`, or as `error.message`.
fn error_text(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error")?;
    let text = error.as_str().or_else(|| error.get("message")?.as_str())?;
    Some(excerpt(text)).filter(|text| !text.is_empty())
}

impl AgentConnector for WebhookConnector {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        let agents = self.agents.iter();
        agents
            .map(|(id, agent)| descriptor(id, agent.wake_url.is_some()))
            .collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(self.put(agent_id, payload))
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(self.ring(agent_id, opts))
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move {
            let addresses = self
                .agents
                .values()
                .filter_map(|agent| agent.status_url.as_deref());
            let answers = join_all(addresses.map(|url| self.status(url))).await;
            answers.iter().all(Option::is_some)
        })
    }

    fn agent_status<'c>(
        &'c self,
        agent_id: &'c str,
    ) -> Pin<Box<dyn Future<Output = AgentActivity> + Send + 'c>> {
        Box::pin(async move {
            let agent = self.agent(agent_id).ok();
            let Some(url) = agent.and_then(|agent| agent.status_url.as_deref()) else {
                return AgentActivity::Unknown;
            };
            let body = self.status(url).await.unwrap_or_default();
            let mut answer: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
            let status = answer.remove("status").unwrap_or_default();
            serde_json::from_value(status).unwrap_or(AgentActivity::Unknown)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_encrypted_or_local() {
        for address in [
            "https://hooks.example/cc?token=1",
            "http://127.0.0.1:3200/cc",
            "http://localhost/x",
            "http://[::1]:80/",
        ] {
            assert_eq!(wrong_address(address), None, "{address}");
        }
        for address in [
            "",
            "hooks.example",
            "ftp://hooks.example/",
            "http://hooks.example/",
            "http://127.0.0.1.example/",
            "https://user:pass@hooks.example/",
        ] {
            assert!(wrong_address(address).is_some(), "{address}");
        }
    }
}
