//! What the endpoints for other programs share: a rate limit, a bounded body, one bearer key, and responses in JSON.

use std::pin::Pin;
use std::time::{Duration, Instant};

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper::body::{Body, Buf as _};
use serde_json::Value;
use tokio::time::timeout;

/// Requests per second.
const RATE_PER_SEC: f64 = 100.0;
/// Longest retry time that a response asks for.
const MAX_RETRY: Duration = Duration::from_secs(60 * 60);
/// How much of a body that is not kept is read before its connection is closed: a sender that writes all of it before it reads
/// would not see the response.
const MAX_DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// How long the next part of such a body is waited for.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

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
    // A body that announces too large a length need not arrive.
    let is_announced = body.size_hint().lower() > limit as u64;
    let reading = async {
        let (mut bytes, mut total) = (Vec::new(), 0);
        loop {
            let next = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            let next = if is_announced || total > limit {
                timeout(DRAIN_PAUSE, next).await.unwrap_or(None)
            } else {
                next.await
            };
            let Some(frame) = next else { break };
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
            if total > MAX_DRAIN_BYTES {
                break;
            }
        }
        if is_announced || total > limit {
            return Err(BodyError::TooLarge);
        }
        Ok(bytes)
    };
    let late = if is_announced {
        BodyError::TooLarge
    } else {
        BodyError::Broken
    };
    timeout(within, reading).await.unwrap_or(Err(late))
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

/// A token bucket for all senders together. What comes above it is refused for later.
#[derive(Debug)]
pub(super) struct RateGate {
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl RateGate {
    /// A hundred requests per second, and so many together.
    pub(super) fn new(burst: u16, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes one request, or says when the next one can be taken.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use hyper::body::{Frame, SizeHint};

    use super::*;

    /// A body of which nothing comes.
    struct Announced(Option<u64>);

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
    async fn a_body_that_is_too_large_is_read_to_its_end_and_not_waited_for_if_it_does_not_come() {
        let within = Duration::from_secs(10);
        let read = async |body: &str, limit| read_body(body.to_owned(), limit, within).await;
        assert_eq!(read("four", 4).await, Ok(b"four".to_vec()));
        assert_eq!(read("five!", 4).await, Err(BodyError::TooLarge));
        let waited = async |length| {
            let start = tokio::time::Instant::now();
            let error = read_body(Announced(length), 4, within).await.unwrap_err();
            (error, start.elapsed().as_secs())
        };
        assert_eq!(waited(Some(5)).await, (BodyError::TooLarge, 1));
        assert_eq!(waited(Some(4)).await, (BodyError::Broken, 10));
        assert_eq!(waited(None).await, (BodyError::Broken, 10));
    }

    #[test]
    fn the_rate_limit_lets_a_hundred_a_second_pass() {
        let start = Instant::now();
        let mut gate = RateGate::new(200, start);
        let passed = (0..1000).filter(|_| gate.admit(start).is_ok()).count();
        assert_eq!(passed, 200, "the burst");
        let wait = gate.admit(start).unwrap_err();
        assert!(wait <= Duration::from_millis(10), "{wait:?}");
        let second = start + Duration::from_secs(1);
        let passed = (0..1000).filter(|_| gate.admit(second).is_ok()).count();
        assert_eq!(passed, 100);
        let mut steady = RateGate::new(200, start);
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
