//! `POST /api/cron/fire`: the managed scheduler runs a job.
//!
//! The token in the request is the only gate, and it is checked before anything in the body. A response of 2xx means that
//! the scheduler is done with this fire; anything else makes it try again. The work that a stranger can cause is bounded: a
//! rate limit, a small body, one look at a token, and next to no fetches of keys ([`crate::cron::jwks`]).

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body, Buf as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cron::fire::{AdmitFire, FireAdmission, FireRequest};
use crate::cron::fire_token::TokenRefusal;
use crate::cron::fire_verifier::FireVerifier;

/// The path below `cron.chronos.callback_url`.
pub const FIRE_PATH: &str = "/api/cron/fire";
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
const MAX_RETRY: Duration = Duration::from_secs(60 * 60);

/// Requests per second, and how many may come together. A fire is refused for later above this.
const RATE_PER_SEC: f64 = 100.0;
const BURST: f64 = 200.0;

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
    verifier: FireVerifier,
    admission: Box<dyn AdmitFire>,
    gate: Mutex<RateGate>,
    counts: FireCounts,
}

impl FireEndpoint {
    /// An endpoint for fires with tokens that `verifier` accepts.
    pub fn new(verifier: FireVerifier, admission: Box<dyn AdmitFire>) -> Self {
        Self {
            verifier,
            admission,
            gate: Mutex::new(RateGate::new(Instant::now())),
            counts: FireCounts::default(),
        }
    }

    /// How many fires ended how.
    pub fn counts(&self) -> &FireCounts {
        &self.counts
    }

    /// How often the scheduler's keys were fetched.
    pub fn key_fetches(&self) -> u64 {
        self.verifier.fetches()
    }

    pub(super) async fn respond<B: Body + Unpin>(&self, request: Request<B>) -> Response<String> {
        let response = self.answer(request).await;
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

    async fn answer<B: Body + Unpin>(&self, request: Request<B>) -> Response<String> {
        if request.method() != Method::POST {
            return reply(
                StatusCode::NOT_FOUND,
                &json!({"error": "not found; fires are POST requests"}),
            );
        }
        let admitted = self
            .gate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(Instant::now());
        if let Err(wait) = admitted {
            let error = json!({"error": "too many requests"});
            return retry_after(reply(StatusCode::TOO_MANY_REQUESTS, &error), wait);
        }
        let (head, body) = request.into_parts();
        // Read in any case: a connection that closes on unread bytes can lose the response.
        let body = read(body).await;
        if let Err(why) = self.verify(&head.headers).await {
            tracing::warn!(%why, "refused a fire of the managed scheduler");
            let mut response = reply(StatusCode::UNAUTHORIZED, &json!({"error": "invalid fire token"}));
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return response;
        }
        let body = match body {
            Ok(body) => body,
            Err(BodyError::TooLarge) => {
                let error = json!({"error": "the body is too large"});
                return reply(StatusCode::PAYLOAD_TOO_LARGE, &error);
            }
            Err(BodyError::Broken) => Vec::new(),
        };
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        match job_of(&body) {
            JobField::Missing => reply(StatusCode::BAD_REQUEST, &json!({"error": "missing job_id"})),
            JobField::Impossible(job_id) => gone(&job_id),
            JobField::Named(job_id) => self.admit(job_id, &body["fire_at"]).await,
        }
    }

    async fn verify(&self, headers: &HeaderMap) -> Result<(), TokenRefusal> {
        let token = bearer(headers).ok_or(TokenRefusal::Missing)?;
        let verified = timeout(VERIFY_TIMEOUT, self.verifier.verify(token)).await;
        verified.unwrap_or(Err(TokenRefusal::NoKeys))
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

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let only = values.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
    only.then(|| token.trim())
}

enum BodyError {
    TooLarge,
    Broken,
}

/// The body, if it is small and comes in time. What is too large is read to a bound, so that the sender reads the response.
async fn read<B: Body + Unpin>(mut body: B) -> Result<Vec<u8>, BodyError> {
    let reading = async {
        let (mut bytes, mut total) = (Vec::new(), 0);
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Err(BodyError::Broken);
            };
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            while data.has_remaining() {
                let chunk = data.chunk();
                total += chunk.len();
                if total <= MAX_BODY_BYTES {
                    bytes.extend_from_slice(chunk);
                }
                let read = chunk.len();
                data.advance(read);
            }
            if total > 4 * MAX_BODY_BYTES {
                break;
            }
        }
        if total > MAX_BODY_BYTES {
            return Err(BodyError::TooLarge);
        }
        Ok(bytes)
    };
    timeout(BODY_TIMEOUT, reading)
        .await
        .unwrap_or(Err(BodyError::Broken))
}

fn gone(job_id: &Value) -> Response<String> {
    reply(StatusCode::OK, &json!({"status": "gone", "job_id": job_id}))
}

fn reply(status: StatusCode, body: &Value) -> Response<String> {
    let mut response = Response::new(body.to_string());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn retry_after(mut response: Response<String>, wait: Duration) -> Response<String> {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let secs = whole.clamp(1, MAX_RETRY.as_secs());
    response.headers_mut().insert(RETRY_AFTER, secs.into());
    response
}

/// A token bucket for all senders together.
#[derive(Debug)]
struct RateGate {
    tokens: f64,
    at: Instant,
}

impl RateGate {
    fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            at: now,
        }
    }

    /// Takes one request, or says when the next one can be taken.
    fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * RATE_PER_SEC).min(BURST);
        self.at = now.max(self.at);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / RATE_PER_SEC));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_limit_lets_a_hundred_a_second_pass() {
        let start = Instant::now();
        let mut gate = RateGate::new(start);
        let passed = (0..1000).filter(|_| gate.admit(start).is_ok()).count();
        assert_eq!(passed, 200, "the burst");
        let wait = gate.admit(start).unwrap_err();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        let second = start + Duration::from_secs(1);
        let passed = (0..1000).filter(|_| gate.admit(second).is_ok()).count();
        assert_eq!(passed, 100);
        let mut steady = RateGate::new(start);
        for tick in 0..2000 {
            let now = start + Duration::from_millis(50 * tick);
            assert_eq!(steady.admit(now), Ok(()), "twenty a second always pass");
        }
    }

    #[test]
    fn retry_times_are_whole_seconds_between_one_and_an_hour() {
        let secs = |wait| {
            let response = retry_after(reply(StatusCode::OK, &Value::Null), wait);
            response.headers()[RETRY_AFTER].to_str().unwrap().to_owned()
        };
        assert_eq!(secs(Duration::ZERO), "1");
        assert_eq!(secs(Duration::from_millis(1500)), "2");
        assert_eq!(secs(Duration::from_secs(86_400)), "3600");
    }
}
