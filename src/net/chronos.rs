//! The managed scheduler's HTTP routes: arm a job, cancel it, list what is armed.
//!
//! It never retries and decides nothing. An error names the request and quotes a little of the response, never the token.

use std::fmt;

use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::http::{Body, HttpClient, HttpEgress, HttpError, HttpPolicy, HttpResponse, Request, excerpt};

/// Largest list that is read.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// A job that the scheduler will fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmedJob {
    /// The id of the job.
    pub job_id: String,
    /// When the job fires, as the scheduler writes it; empty where it does not say.
    pub fire_at: String,
}

/// Why a request to the scheduler failed.
#[derive(Debug, thiserror::Error)]
pub enum PortalCallError {
    /// No usable response.
    #[error("{call}: {reason}")]
    Unreachable {
        /// The call that failed.
        call: PortalRoute,
        /// The error of the HTTP client.
        reason: HttpError,
    },
    /// Any status that is not a success.
    #[error("{call}: HTTP {status}{}", if body.is_empty() { String::new() } else { format!(": {body}") })]
    Status {
        /// The call that failed.
        call: PortalRoute,
        /// The HTTP status.
        status: u16,
        /// The code in the response's `error`.
        code: Option<String>,
        /// At most 200 characters of the response.
        body: String,
    },
}

impl PortalCallError {
    /// Whether the scheduler does not know this login, for good.
    pub fn is_identity_rejected(&self) -> bool {
        matches!(self, Self::Status { status: 403, code: Some(code), .. } if code == "invalid_client")
    }

    /// Whether the token was not accepted.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status { status: 401, .. })
    }
}

/// A route of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortalRoute {
    /// Arms a job.
    Provision,
    /// Cancels a job.
    Cancel,
    /// Lists the armed jobs.
    List,
}

impl PortalRoute {
    fn path(self) -> &'static str {
        match self {
            Self::Provision => "/api/agent-cron/provision",
            Self::Cancel => "/api/agent-cron/cancel",
            Self::List => "/api/agent-cron/list",
        }
    }
}

impl fmt::Display for PortalRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self {
            Self::Provision | Self::Cancel => "POST",
            Self::List => "GET",
        };
        write!(f, "{method} {}", self.path())
    }
}

/// The scheduler, as one agent uses it.
#[derive(Clone, Debug)]
pub struct ChronosClient {
    http: HttpClient,
    portal: String,
    callback: String,
}

impl ChronosClient {
    /// A client of the scheduler at `portal_url`, which fires jobs at `callback_url`. Connects to nothing.
    pub fn new(egress: &HttpEgress, portal_url: &str, callback_url: &str) -> Result<Self, HttpError> {
        let policy = HttpPolicy {
            max_body: MAX_LIST_BYTES,
            ..HttpPolicy::default()
        };
        Ok(Self {
            http: HttpClient::new(egress, policy)?,
            portal: portal_url.trim().trim_end_matches('/').to_owned(),
            callback: callback_url.trim().trim_end_matches('/').to_owned(),
        })
    }

    /// The client that its requests go through.
    pub fn http(&self) -> &HttpClient {
        &self.http
    }

    /// Arms `job_id` for `fire_at`; an earlier time of the same job is replaced.
    pub async fn provision(
        &self,
        token: &SecretString,
        job_id: &str,
        fire_at: &str,
    ) -> Result<(), PortalCallError> {
        let body = json!({
            "job_id": job_id,
            "fire_at": fire_at,
            "agent_callback_url": self.callback,
            "dedup_key": format!("{job_id}:{fire_at}"),
        });
        self.send(PortalRoute::Provision, token, Some(&body))
            .await
            .map(drop)
    }

    /// Cancels `job_id`; one that is not armed is no error.
    pub async fn cancel(&self, token: &SecretString, job_id: &str) -> Result<(), PortalCallError> {
        let body = json!({"job_id": job_id});
        self.send(PortalRoute::Cancel, token, Some(&body)).await.map(drop)
    }

    /// The armed jobs. Items that name no job are skipped.
    pub async fn list(&self, token: &SecretString) -> Result<Vec<ArmedJob>, PortalCallError> {
        let response = self.send(PortalRoute::List, token, None).await?;
        let armed = response
            .object()
            .as_mut()
            .and_then(|object| object.remove("armed"));
        let Some(Value::Array(items)) = armed else {
            return Ok(Vec::new());
        };
        let job = |item: &Value| {
            let text = |key| item.get(key).and_then(Value::as_str).map(str::to_owned);
            Some(ArmedJob {
                job_id: text("job_id").filter(|id| !id.is_empty())?,
                fire_at: text("fire_at").unwrap_or_default(),
            })
        };
        Ok(items.iter().filter_map(job).collect())
    }

    async fn send(
        &self,
        call: PortalRoute,
        token: &SecretString,
        body: Option<&Value>,
    ) -> Result<HttpResponse, PortalCallError> {
        let url = format!("{}{}", self.portal, call.path());
        let body = body.map_or(Body::Get, |body| Body::Json(body.to_string().into_bytes()));
        let request = Request::new(&url, body)
            .accept("application/json")
            .bearer(Some(token));
        let response = self.http.send(request).await;
        let response = response.map_err(|reason| PortalCallError::Unreachable { call, reason })?;
        if response.is_success() {
            return Ok(response);
        }
        let code = response.object().as_ref().and_then(error_code);
        Err(PortalCallError::Status {
            call,
            status: response.status,
            code,
            body: excerpt(&String::from_utf8_lossy(&response.body)),
        })
    }
}

/// `{"error": "code"}` or `{"error": {"code": "code"}}`.
fn error_code(object: &Map<String, Value>) -> Option<String> {
    let error = object.get("error")?;
    let code = error.as_str().or_else(|| error.get("code")?.as_str())?;
    Some(excerpt(code))
}
