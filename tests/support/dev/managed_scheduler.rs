//! The embedded managed scheduler, with what goes wrong in front of it.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hermes_relay::dev::{self, SchedulerSettings, SchedulerShared, SigningKeys};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::server::{Server, bind};

const MAX_BODY_BYTES: usize = 1024 * 1024;

/// What can be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchedulerFault {
    /// Every request gets 503.
    Outage,
    /// Every request gets 403 `invalid_client`.
    IdentityRejected,
    /// The next request gets 401, whatever its token.
    UnauthorizedOnce,
    /// The next arm is acknowledged and forgotten.
    LoseArm,
    /// Lists write times with `Z`.
    ZuluList,
    /// The key set gets 503.
    KeyOutage,
}

/// One request to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerRequest {
    pub(crate) path: String,
    pub(crate) json: Value,
    /// The answer's status.
    pub(crate) answered: u16,
}

#[derive(Default)]
struct SchedulerScript {
    faults: Vec<SchedulerFault>,
    requests: Vec<SchedulerRequest>,
    key_fetches: u64,
    refreshes: u64,
}

impl SchedulerScript {
    fn has(&self, fault: SchedulerFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether a fault is there that happens once; then it is over.
    fn take(&mut self, fault: SchedulerFault) -> bool {
        let before = self.faults.len();
        self.faults.retain(|other| *other != fault);
        self.faults.len() < before
    }
}

#[derive(Clone)]
struct Front {
    shared: Arc<SchedulerShared>,
    script: Arc<Mutex<SchedulerScript>>,
}

impl Front {
    fn lock(&self) -> MutexGuard<'_, SchedulerScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A managed scheduler on 127.0.0.1.
pub(crate) struct EmbeddedScheduler {
    inner: dev::EmbeddedScheduler,
    front: Front,
    _server: Server,
    _stop: DropGuard,
}

impl Deref for EmbeddedScheduler {
    type Target = dev::EmbeddedScheduler;

    fn deref(&self) -> &dev::EmbeddedScheduler {
        &self.inner
    }
}

impl EmbeddedScheduler {
    pub(crate) async fn start(settings: SchedulerSettings) -> io::Result<Self> {
        let (listener, addr) = bind(settings.port).await?;
        let inner = dev::EmbeddedScheduler::new(settings, addr)?;
        let front = Front {
            shared: Arc::clone(&inner.shared),
            script: Arc::default(),
        };
        let stop = CancellationToken::new();
        let router = inner.router().layer(from_fn_with_state(front.clone(), handle));
        let server = Server::start(listener, addr, router, stop.clone());
        Ok(Self {
            inner,
            front,
            _server: server,
            _stop: stop.drop_guard(),
        })
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<SchedulerRequest> {
        self.front.lock().requests.clone()
    }

    /// How often its keys were fetched.
    pub(crate) fn key_fetches(&self) -> u64 {
        self.front.lock().key_fetches
    }

    /// How often its login was refreshed.
    pub(crate) fn refreshes(&self) -> u64 {
        self.front.lock().refreshes
    }

    /// Makes something go wrong.
    pub(crate) fn fault(&self, fault: SchedulerFault) {
        self.front.lock().faults.push(fault);
    }

    /// Takes [`fault`](Self::fault) back.
    pub(crate) fn mend(&self, fault: SchedulerFault) {
        self.front.lock().take(fault);
    }

    /// Signs with a new key from now on; the old one is gone from the key set.
    pub(crate) fn rotate_keys(&self) -> io::Result<()> {
        self.shared.lock().keys = SigningKeys::new().map_err(io::Error::other)?;
        Ok(())
    }

    /// Forgets every arm, as a scheduler that lost its data.
    pub(crate) fn forget_arms(&self) {
        self.shared.lock().arms.clear();
    }

    /// A fire token, good for a minute and a half.
    pub(crate) fn fire_token(&self) -> Option<String> {
        self.shared.token()
    }
}

async fn handle(State(front): State<Front>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if path == "/.well-known/jwks.json" {
        let is_out = {
            let mut script = front.lock();
            script.key_fetches += 1;
            script.has(SchedulerFault::KeyOutage)
        };
        return if is_out {
            refuse(StatusCode::SERVICE_UNAVAILABLE, "down")
        } else {
            next.run(request).await
        };
    }
    if path == "/api/oauth/token" {
        let response = next.run(request).await;
        front.lock().refreshes += u64::from(response.status().is_success());
        return response;
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, MAX_BODY_BYTES).await.unwrap_or_default();
    let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let bearer = parts.headers.get(header::AUTHORIZATION);
    let bearer = bearer
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let refusal = refusal(&front, &bearer);
    let response = if let Some(refusal) = refusal {
        refusal
    } else {
        let request = Request::from_parts(parts, Body::from(bytes));
        bend(&front, &path, &json, next.run(request).await)
    };
    front.lock().requests.push(SchedulerRequest {
        path,
        json,
        answered: response.status().as_u16(),
    });
    response
}

fn refusal(front: &Front, bearer: &str) -> Option<Response> {
    let mut script = front.lock();
    if script.has(SchedulerFault::Outage) {
        return Some(refuse(StatusCode::SERVICE_UNAVAILABLE, "down for maintenance"));
    }
    if script.take(SchedulerFault::UnauthorizedOnce) {
        return Some(refuse(StatusCode::UNAUTHORIZED, "invalid_token"));
    }
    // Only who is known can be rejected.
    let is_known = bearer == format!("Bearer {}", front.shared.lock().access_token);
    (is_known && script.has(SchedulerFault::IdentityRejected))
        .then(|| refuse(StatusCode::FORBIDDEN, "invalid_client"))
}

/// Changes what a request did, or the answer to it.
fn bend(front: &Front, path: &str, json: &Value, response: Response) -> Response {
    if !response.status().is_success() {
        return response;
    }
    if path.ends_with("/provision") && front.lock().take(SchedulerFault::LoseArm) {
        let job_id = json["job_id"].as_str().unwrap_or_default();
        front.shared.lock().arms.remove(job_id);
    }
    if path.ends_with("/list") && front.lock().has(SchedulerFault::ZuluList) {
        let state = front.shared.lock();
        let armed = state.arms.iter().map(|(id, alarm)| {
            let fire_at = jiff::Timestamp::from_second(alarm.at).unwrap().to_string();
            json!({ "job_id": id, "fire_at": fire_at })
        });
        return reply(StatusCode::OK, &json!({ "armed": armed.collect::<Vec<_>>() }));
    }
    response
}

fn refuse(status: StatusCode, error: &str) -> Response {
    reply(status, &json!({ "error": error }))
}

fn reply(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
