//! What the endpoints for other programs share: a rate limit, a bounded body, one bearer key, and responses in JSON.

use std::pin::Pin;
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Buf as _};
use serde_json::Value;
use tokio::time::timeout;

/// Requests per second, and how many may come together. What comes above this is refused for later.
const RATE_PER_SEC: f64 = 100.0;
const BURST: f64 = 200.0;
/// Longest retry time that a response asks for.
const MAX_RETRY: Duration = Duration::from_secs(60 * 60);
/// How much of a body is read at least before its connection is closed.
const MIN_DRAIN_BYTES: usize = 4 * 1024 * 1024;

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than the limit.
    TooLarge,
    /// It did not arrive in time or in full.
    Broken,
}

/// The body, if it is small and comes in time. What is too large is read to a bound, so that the sender reads the response.
pub(super) async fn read_body<B: Body + Unpin>(
    mut body: B,
    limit: usize,
    within: Duration,
) -> Result<Vec<u8>, BodyError> {
    let drained = (4 * limit).max(MIN_DRAIN_BYTES);
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
                if total <= limit {
                    bytes.extend_from_slice(chunk);
                }
                let read = chunk.len();
                data.advance(read);
            }
            if total > drained {
                break;
            }
        }
        if total > limit {
            return Err(BodyError::TooLarge);
        }
        Ok(bytes)
    };
    timeout(within, reading).await.unwrap_or(Err(BodyError::Broken))
}

/// The token of the one `Authorization` header.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.trim().split_once(' ')?;
    let only = values.next().is_none() && scheme.eq_ignore_ascii_case("bearer");
    only.then(|| token.trim())
}

/// A response in JSON.
pub(super) fn reply(status: StatusCode, body: &Value) -> Response<String> {
    let mut response = Response::new(body.to_string());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The response, which asks to try again after this time.
pub(super) fn retry_after(mut response: Response<String>, wait: Duration) -> Response<String> {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let secs = whole.clamp(1, MAX_RETRY.as_secs());
    response.headers_mut().insert(RETRY_AFTER, secs.into());
    response
}

/// A token bucket for all senders together.
#[derive(Debug)]
pub(super) struct RateGate {
    tokens: f64,
    at: Instant,
}

impl RateGate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            at: now,
        }
    }

    /// Takes one request, or says when the next one can be taken.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
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
