//! What the endpoints for other programs share: rate limits, a bounded body, one bearer key, and responses in JSON.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Buf as _};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Requests per second.
const RATE_PER_SEC: f64 = 100.0;
/// Longest retry time that a response asks for.
const MAX_RETRY: Duration = Duration::from_secs(60 * 60);

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyError {
    /// It is longer than the limit.
    TooLarge,
    /// It did not arrive in time or in full.
    Broken,
}

/// The body, if it is small and comes in time. Nothing is waited for that is announced to be too large.
pub(super) async fn read_body<B: Body + Unpin>(
    mut body: B,
    limit: usize,
    within: Duration,
) -> Result<Vec<u8>, BodyError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(BodyError::TooLarge);
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let Ok(mut data) = frame.map_err(|_| BodyError::Broken)?.into_data() else {
                continue;
            };
            if bytes.len() + data.remaining() > limit {
                return Err(BodyError::TooLarge);
            }
            while data.has_remaining() {
                let chunk = data.chunk();
                bytes.extend_from_slice(chunk);
                let read = chunk.len();
                data.advance(read);
            }
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

/// The response while too much is done already.
pub(super) fn too_busy() -> Response<String> {
    let error = json!({"error": "too many requests are under way; try again"});
    retry_after(
        reply(StatusCode::SERVICE_UNAVAILABLE, &error),
        Duration::from_secs(1),
    )
}

/// A token bucket. What comes above it is refused for later.
#[derive(Debug)]
struct TokenBucket {
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    fn new(burst: u16, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes one request, or says when the next one can be taken.
    fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * RATE_PER_SEC).min(self.burst);
        self.at = now.max(self.at);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / RATE_PER_SEC));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

/// The rate limits of an endpoint: one for requests that pass authentication, one for all others, so that strangers cost nobody
/// else an answer.
#[derive(Debug)]
pub(super) struct RateGate {
    known: Mutex<TokenBucket>,
    strangers: Mutex<TokenBucket>,
}

impl RateGate {
    /// A hundred requests per second of each, and so many together.
    pub(super) fn new(burst: u16, now: Instant) -> Self {
        let bucket = || Mutex::new(TokenBucket::new(burst, now));
        Self {
            known: bucket(),
            strangers: bucket(),
        }
    }

    /// Takes a request that passed authentication, or says when the next one can be taken.
    pub(super) fn admit_known(&self, now: Instant) -> Result<(), Duration> {
        admit(&self.known, now)
    }

    /// The same for a request that did not.
    pub(super) fn admit_stranger(&self, now: Instant) -> Result<(), Duration> {
        admit(&self.strangers, now)
    }
}

fn admit(bucket: &Mutex<TokenBucket>, now: Instant) -> Result<(), Duration> {
    let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
    bucket.admit(now)
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// A body of which nothing comes.
    pub(in super::super) struct Announced(pub Option<u64>);

    impl Body for Announced {
        type Data = &'static [u8];
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Infallible>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_too_large_is_not_waited_for() {
        let within = Duration::from_secs(10);
        let read = async |body: &str, limit| read_body(body.to_owned(), limit, within).await;
        assert_eq!(read("four", 4).await, Ok(b"four".to_vec()));
        assert_eq!(read("five!", 4).await, Err(BodyError::TooLarge));
        let waited = async |length| {
            let start = tokio::time::Instant::now();
            let error = read_body(Announced(length), 4, within).await.unwrap_err();
            (error, start.elapsed().as_secs())
        };
        assert_eq!(waited(Some(5)).await, (BodyError::TooLarge, 0));
        assert_eq!(waited(Some(4)).await, (BodyError::Broken, 10));
        assert_eq!(waited(None).await, (BodyError::Broken, 10));
    }

    #[test]
    fn the_rate_limit_lets_a_hundred_a_second_pass() {
        let start = Instant::now();
        let gate = RateGate::new(200, start);
        let passed = (0..1000).filter(|_| gate.admit_known(start).is_ok()).count();
        assert_eq!(passed, 200, "the burst");
        let wait = gate.admit_known(start).unwrap_err();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        let second = start + Duration::from_secs(1);
        let passed = (0..1000).filter(|_| gate.admit_known(second).is_ok()).count();
        assert_eq!(passed, 100);
        let steady = RateGate::new(200, start);
        for tick in 0..2000 {
            let now = start + Duration::from_millis(50 * tick);
            assert_eq!(steady.admit_known(now), Ok(()), "twenty a second always pass");
        }
    }

    #[test]
    fn a_flood_of_strangers_costs_nobody_else_an_answer() {
        let start = Instant::now();
        let gate = RateGate::new(200, start);
        let passed = (0..1000).filter(|_| gate.admit_stranger(start).is_ok()).count();
        assert_eq!(passed, 200, "strangers have a limit of their own");
        assert_eq!(gate.admit_known(start), Ok(()));
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
