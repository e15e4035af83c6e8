//! `POST /api/cron/fire`: the managed scheduler runs a job.
//!
//! The token in the request is the only gate, and it is checked before the body is awaited. A response of 2xx means that
//! the scheduler is done with this fire; anything else makes it try again. The work that a stranger can cause is bounded: a
//! rate limit of their own, one look at a token, and next to no fetches of keys ([`crate::cron::jwks`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::clients::ClientPlace;
use super::endpoint::{BodyError, RateGate, bearer, read_body, reply, retry_after, too_busy};
use crate::cron::fire::{AdmitFire, FireAdmission, FireRequest};
use crate::cron::fire_token::TokenRefusal;
use crate::cron::fire_verifier::FireVerifier;

/// The path below `cron.chronos.callback_url`.
pub const FIRE_PATH: &str = "/api/cron/fire";
/// Requests that may come together.
const MAX_BURST: u16 = 200;
/// Largest body that is read.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Longest job id that can exist, in bytes.
const MAX_JOB_ID_BYTES: usize = 128;
/// Longest occurrence that is looked at, in bytes.
const MAX_FIRE_AT_BYTES: usize = 64;
/// Timeout for the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for verifying, the fetch of keys included. The scheduler gives up after 30 seconds in all.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(12);
/// Timeout for the claim.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(8);
/// Retry times that a response asks for.
const RETRY_DRAINING: Duration = Duration::from_secs(10);
const RETRY_FAILED: Duration = Duration::from_secs(30);

/// How many fires ended how.
#[derive(Debug, Default)]
pub struct FireCounts {
    /// Jobs that were claimed (202).
    pub accepted: AtomicU64,
    /// Occurrences that had run already (200).
    pub duplicate: AtomicU64,
    /// Jobs that do not exist any more (200).
    pub gone: AtomicU64,
    /// Invalid tokens (401).
    pub refused: AtomicU64,
    /// Invalid bodies (400, 413).
    pub invalid: AtomicU64,
    /// Fires to be tried again (503).
    pub deferred: AtomicU64,
    /// Requests above the rate limit (429).
    pub limited: AtomicU64,
}

impl FireCounts {
    /// The counts with their names.
    pub(super) fn by_outcome(&self) -> [(&'static str, u64); 7] {
        [
            ("accepted", &self.accepted),
            ("duplicate", &self.duplicate),
            ("gone", &self.gone),
            ("refused", &self.refused),
            ("invalid", &self.invalid),
            ("deferred", &self.deferred),
            ("limited", &self.limited),
        ]
        .map(|(outcome, count)| (outcome, count.load(Ordering::Relaxed)))
    }
}

/// Verifies fires and passes them on.
#[derive(Debug)]
pub struct FireEndpoint {
    /// None where the managed scheduler is not set up: then no token is accepted.
    verifier: Option<FireVerifier>,
    admission: Box<dyn AdmitFire>,
    gate: RateGate,
    counts: FireCounts,
}

impl FireEndpoint {
    /// An endpoint for fires with tokens that `verifier` accepts; without one it refuses all.
    pub fn new(verifier: Option<FireVerifier>, admission: Box<dyn AdmitFire>) -> Self {
        Self {
            verifier,
            admission,
            gate: RateGate::new(MAX_BURST, Instant::now()),
            counts: FireCounts::default(),
        }
    }

    /// How many fires ended how.
    pub fn counts(&self) -> &FireCounts {
        &self.counts
    }

    /// How often the scheduler's keys were fetched.
    pub fn key_fetches(&self) -> u64 {
        self.verifier.as_ref().map_or(0, FireVerifier::fetches)
    }

    pub(super) async fn respond<B: Body + Unpin>(
        &self,
        request: Request<B>,
        place: &ClientPlace,
    ) -> Response<String> {
        let response = self.answer(request, place).await;
        let count = match response.status() {
            StatusCode::ACCEPTED => &self.counts.accepted,
            StatusCode::OK if response.body().contains("\"gone\"") => &self.counts.gone,
            StatusCode::OK => &self.counts.duplicate,
            StatusCode::UNAUTHORIZED => &self.counts.refused,
            StatusCode::TOO_MANY_REQUESTS => &self.counts.limited,
            StatusCode::SERVICE_UNAVAILABLE => &self.counts.deferred,
            _ => &self.counts.invalid,
        };
        count.fetch_add(1, Ordering::Relaxed);
        response
    }

    async fn answer<B: Body + Unpin>(&self, request: Request<B>, place: &ClientPlace) -> Response<String> {
        if request.method() != Method::POST {
            return reply(
                StatusCode::NOT_FOUND,
                &json!({"error": "not found; fires are POST requests"}),
            );
        }
        if place.work().is_err() {
            return too_busy();
        }
        let (head, body) = request.into_parts();
        let verdict = self.verify(&head.headers).await;
        let admitted = match &verdict {
            Ok(()) => self.gate.admit_known(Instant::now()),
            Err(_) => self.gate.admit_stranger(Instant::now()),
        };
        if let Err(wait) = admitted {
            let error = json!({"error": "too many requests"});
            return retry_after(reply(StatusCode::TOO_MANY_REQUESTS, &error), wait);
        }
        if let Err(why) = verdict {
            tracing::warn!(%why, "refused a fire of the managed scheduler");
            let mut response = reply(StatusCode::UNAUTHORIZED, &json!({"error": "invalid fire token"}));
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return response;
        }
        place.wait();
        let body = match read_body(body, MAX_BODY_BYTES, BODY_TIMEOUT).await {
            Ok(body) => body,
            Err(BodyError::TooLarge) => {
                let error = json!({"error": "the body is too large"});
                return reply(StatusCode::PAYLOAD_TOO_LARGE, &error);
            }
            Err(BodyError::Broken) => Vec::new(),
        };
        if place.work().is_err() {
            return too_busy();
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match job_of(&body) {
            JobField::Missing => reply(StatusCode::BAD_REQUEST, &json!({"error": "missing job_id"})),
            JobField::Impossible(job_id) => gone(&job_id),
            JobField::Named(job_id) => self.admit(job_id, &body["fire_at"]).await,
        }
    }

    async fn verify(&self, headers: &HeaderMap) -> Result<(), TokenRefusal> {
        let token = bearer(headers).ok_or(TokenRefusal::Missing)?;
        let verifier = self.verifier.as_ref().ok_or(TokenRefusal::NotSetUp)?;
        let verdict = timeout(VERIFY_TIMEOUT, verifier.verify(token)).await;
        verdict.unwrap_or(Err(TokenRefusal::NoKeys))
    }

    async fn admit(&self, job_id: String, fire_at: &Value) -> Response<String> {
        let fire_at = fire_at.as_str().filter(|text| text.len() <= MAX_FIRE_AT_BYTES);
        let fire = FireRequest {
            job_id: job_id.clone(),
            fire_at: fire_at.map(str::to_owned),
        };
        let admission = timeout(ADMIT_TIMEOUT, self.admission.admit(fire)).await;
        let refused = |error: &str, wait| {
            let body = json!({"error": error, "job_id": job_id});
            retry_after(reply(StatusCode::SERVICE_UNAVAILABLE, &body), wait)
        };
        match admission.unwrap_or(FireAdmission::Failed) {
            FireAdmission::Accepted => reply(
                StatusCode::ACCEPTED,
                &json!({"status": "accepted", "job_id": job_id}),
            ),
            FireAdmission::Duplicate => {
                reply(StatusCode::OK, &json!({"status": "duplicate", "job_id": job_id}))
            }
            FireAdmission::Gone => gone(&job_id.into()),
            FireAdmission::Early { retry_after } => refused("too early", retry_after),
            FireAdmission::Draining => refused("shutting down", RETRY_DRAINING),
            FireAdmission::Failed => refused("cron fire admission failed", RETRY_FAILED),
        }
    }
}

/// A job id in a body.
enum JobField {
    /// Absent, empty, or of a type that is no id.
    Missing,
    /// An id that no job has.
    Impossible(Value),
    Named(String),
}

fn job_of(body: &Value) -> JobField {
    match &body["job_id"] {
        Value::String(id) if id.is_empty() => JobField::Missing,
        Value::String(id) if id.len() <= MAX_JOB_ID_BYTES => JobField::Named(id.clone()),
        Value::String(id) => JobField::Impossible(crate::text::truncate(id, MAX_JOB_ID_BYTES).into()),
        number @ Value::Number(_) => JobField::Impossible(number.clone()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => JobField::Missing,
    }
}

fn gone(job_id: &Value) -> Response<String> {
    reply(StatusCode::OK, &json!({"status": "gone", "job_id": job_id}))
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::net::Ipv4Addr;
    use std::pin::Pin;

    use super::super::clients::Clients;
    use super::super::endpoint::tests::Announced;
    use super::*;

    #[derive(Debug)]
    struct Nobody;

    impl AdmitFire for Nobody {
        fn admit(&self, _: FireRequest) -> Pin<Box<dyn Future<Output = FireAdmission> + Send + '_>> {
            Box::pin(ready(FireAdmission::Failed))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_body_is_awaited_without_a_valid_token() {
        let endpoint = FireEndpoint::new(None, Box::new(Nobody));
        let place = Clients::new(1).admit(Ipv4Addr::LOCALHOST.into());
        let mut request = Request::new(Announced(Some(100)));
        *request.method_mut() = Method::POST;
        let start = tokio::time::Instant::now();
        let response = endpoint.respond(request, &place).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
