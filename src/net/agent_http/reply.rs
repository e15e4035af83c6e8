//! An agent's answer: its head at once, the rest as events or whole, with a limit on every silence.
//!
//! It never reads on after it was dropped: that closes the connection.

use std::fmt;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};

use super::AgentHttpError;
use crate::net::http::{excerpt, innermost};
use crate::wire::{SseEvent, SseParser};

/// Most bytes of an answer that is read whole; a longer one is an error.
pub const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// The beginning of an answer; the rest is read from it. Dropping it closes the connection.
pub struct Reply {
    /// HTTP status, never a redirect with a target.
    pub status: u16,
    /// The kind of content that it says it is, in lower case, without parameters; empty when it does not say.
    pub content_type: String,
    /// How long the server asks to wait before the next try.
    pub retry_after: Option<Duration>,
    parser: SseParser,
    response: Option<reqwest::Response>,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl Reply {
    /// The answer that begins with this.
    pub(super) fn of(response: reqwest::Response) -> Self {
        let headers = response.headers();
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status: response.status().as_u16(),
            content_type: header(CONTENT_TYPE).map(essence).unwrap_or_default(),
            retry_after: header(RETRY_AFTER).and_then(|text| wait_of(text, SystemTime::now())),
            parser: SseParser::default(),
            response: Some(response),
        }
    }

    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it says that it is JSON.
    pub fn is_json(&self) -> bool {
        self.content_type == "application/json" || self.content_type.ends_with("+json")
    }

    /// The next event, `None` at the end; an error when nothing at all, not even a comment, comes for `patience`.
    /// Dropping the future loses nothing.
    pub async fn next_event(&mut self, patience: Duration) -> Result<Option<SseEvent>, AgentHttpError> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event?));
            }
            let Some(response) = &mut self.response else {
                return Ok(None);
            };
            let read = tokio::time::timeout(patience, response.chunk()).await;
            match read.map_err(|_| AgentHttpError::Silent(patience))? {
                Ok(Some(chunk)) => self.parser.feed(&chunk),
                Ok(None) => {
                    self.response = None;
                    self.parser.finish();
                }
                Err(error) => {
                    // What came whole before the break still counts.
                    self.response = None;
                    return Err(AgentHttpError::Broken(innermost(&error.without_url())));
                }
            }
        }
    }

    /// The whole body, which may be silent for `patience` at a time.
    pub async fn body(mut self, patience: Duration) -> Result<Vec<u8>, AgentHttpError> {
        let mut body = Vec::new();
        while let Some(response) = &mut self.response {
            let read = tokio::time::timeout(patience, response.chunk()).await;
            match read.map_err(|_| AgentHttpError::Silent(patience))? {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_ANSWER => {
                    return Err(AgentHttpError::TooLarge);
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(AgentHttpError::Broken(innermost(&error.without_url()))),
            }
        }
        Ok(body)
    }

    /// The whole body of a short answer, which may take no longer than `limit` altogether, however it trickles.
    pub async fn short_body(self, limit: Duration) -> Result<Vec<u8>, AgentHttpError> {
        let read = tokio::time::timeout(limit, self.body(limit)).await;
        read.unwrap_or(Err(AgentHttpError::Silent(limit)))
    }
}

fn essence(content_type: &str) -> String {
    let kind = content_type.split(';').next().unwrap_or_default();
    excerpt(kind).to_ascii_lowercase()
}

/// `Retry-After` as a wait: seconds, or a date.
fn wait_of(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(secs) = text.parse::<u64>() {
        return Some(Duration::from_secs(secs).min(LONGEST_WAIT));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default().min(LONGEST_WAIT))
}

/// The longest wait that a server may ask for; whoever retries waits far less.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_seconds_or_dates() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        assert_eq!(wait_of(" 7 ", now), Some(Duration::from_secs(7)));
        let later = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait_of(later, now), Some(Duration::from_secs(37)));
        assert_eq!(
            wait_of("Sun, 06 Nov 1994 08:00:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(wait_of("soon", now), None);
        assert_eq!(wait_of("-1", now), None);
    }
}
