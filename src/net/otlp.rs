//! A trace collector, reached over OTLP/HTTP.
//!
//! It posts one body at a time and never retries. Its headers go to the collector's own address only, and never
//! unencrypted over a network.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use zeroize::Zeroizing;

use super::http::{Body, HttpClient, HttpEgress, HttpError, HttpPolicy, HttpResponse, Request, sensitive};

/// Timeout of a request.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum headers.
const MAX_HEADERS: usize = 32;

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// A header is invalid. Its value is not shown.
    #[error(
        "header {place} for the collector {why}; write name=value, separated by commas, values percent-encoded"
    )]
    Header {
        /// The position of the header, from 1.
        place: usize,
        /// The fault of the header.
        why: &'static str,
    },
    /// The address cannot be used, or the client cannot be built.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Outcome of an export.
#[derive(Debug, PartialEq, Eq)]
pub enum ExportOutcome {
    /// The collector accepted all of it.
    Accepted,
    /// The same body may be sent again later.
    RetryLater(String),
    /// The collector rejected it, or some of it.
    Rejected(String),
}

/// One collector.
#[derive(Debug, Clone)]
pub struct Collector {
    http: HttpClient,
    url: String,
    origin: String,
    /// Sent with every request; marked sensitive.
    headers: HeaderMap,
}

impl Collector {
    /// A collector that accepts traces at `url`, with `headers` in the form of their variable.
    pub fn new(
        egress: &HttpEgress,
        url: &str,
        headers: Option<&SecretString>,
    ) -> Result<Self, CollectorError> {
        let headers = headers.map(parse_headers).transpose()?.unwrap_or_default();
        let policy = HttpPolicy {
            timeout: Some(EXPORT_TIMEOUT),
            // Traces hold no secrets, so a collector on the same network needs no certificate; headers may be secret.
            allow_plaintext: headers.is_empty(),
            ..HttpPolicy::default()
        };
        let http = HttpClient::new(egress, policy)?;
        let origin = http.check(&request(url, Vec::new()))?.origin();
        Ok(Self {
            http,
            url: url.to_owned(),
            origin: origin.ascii_serialization(),
            headers,
        })
    }

    /// Its origin, for the log.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Posts a body once.
    pub async fn post(&self, json: Vec<u8>) -> ExportOutcome {
        let mut request = request(&self.url, json);
        request.headers = self.headers.clone();
        match self.http.send(request).await {
            Ok(answer) => outcome_of(&answer),
            Err(error @ (HttpError::TimedOut(_) | HttpError::Connect { .. } | HttpError::Broken(_))) => {
                ExportOutcome::RetryLater(error.to_string())
            }
            Err(error) => ExportOutcome::Rejected(error.to_string()),
        }
    }
}

fn request(url: &str, json: Vec<u8>) -> Request<'_> {
    Request::new(url, Body::Json(json)).accept("application/json")
}

fn outcome_of(answer: &HttpResponse) -> ExportOutcome {
    match answer.status {
        200..300 => match rejected(answer) {
            0 => ExportOutcome::Accepted,
            count => ExportOutcome::Rejected(format!("it rejected {count} spans")),
        },
        // The statuses after which OTLP repeats a request.
        429 | 502..=504 => ExportOutcome::RetryLater(format!("it answered {}", answer.status)),
        status => ExportOutcome::Rejected(format!("it answered {status}")),
    }
}

/// Number of spans the collector rejected.
fn rejected(answer: &HttpResponse) -> u64 {
    let count = answer
        .object()
        .and_then(|object| object.get("partialSuccess")?.get("rejectedSpans").cloned());
    match count {
        Some(Value::String(digits)) => digits.parse().unwrap_or(0),
        Some(Value::Number(number)) => number.as_u64().unwrap_or(0),
        _ => 0,
    }
}

/// `name=value`, separated by commas, values percent-encoded.
fn parse_headers(text: &SecretString) -> Result<HeaderMap, CollectorError> {
    let mut headers = HeaderMap::new();
    let entries = text.expose_secret().split(',').map(str::trim);
    for (place, entry) in (1..).zip(entries).filter(|(_, entry)| !entry.is_empty()) {
        let wrong = |why| CollectorError::Header { place, why };
        let (name, value) = entry.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong("has no usable name"))?;
        if [CONTENT_TYPE, CONTENT_LENGTH, HOST, TRANSFER_ENCODING].contains(&name) {
            return Err(wrong("is set by the relay itself"));
        }
        let value =
            decoded(value.trim()).ok_or_else(|| wrong("has a value that is not percent-encoded text"))?;
        let value = sensitive(&value).map_err(|_| wrong("has a value that no header can carry"))?;
        if headers.len() == MAX_HEADERS {
            return Err(wrong("is one too many"));
        }
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Percent-decodes text; `None` when it is malformed.
fn decoded(text: &str) -> Option<Zeroizing<String>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HeaderMap, CollectorError> {
        parse_headers(&SecretString::from(text))
    }

    #[test]
    fn headers_are_read_as_their_variable_writes_them() {
        let headers = read("api-key=hunter2, authorization=Basic%20aGk6aG8=,").unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["api-key"], "hunter2");
        assert_eq!(headers["authorization"], "Basic aGk6aG8=");
        assert!(headers.values().all(http::HeaderValue::is_sensitive));
        let shown = format!("{headers:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        for (wrong, says) in [
            ("hunter2", "header 1"),
            ("a=1,b c=hunter2", "header 2"),
            ("a=hunter2%2", "percent"),
            ("a=hunter2%0a", "no header can carry"),
            ("a=hunter2%ff", "percent"),
            ("Content-Type=hunter2", "by the relay itself"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_answer_means_taken_later_or_never() {
        let answer = |status, body: &str| HttpResponse {
            status,
            body: body.into(),
            date: None,
        };
        for body in [
            "{}",
            "",
            "{\"partialSuccess\":{}}",
            "{\"partialSuccess\":{\"rejectedSpans\":\"0\"}}",
        ] {
            assert_eq!(outcome_of(&answer(200, body)), ExportOutcome::Accepted, "{body}");
        }
        for body in [
            "{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}",
            "{\"partialSuccess\":{\"rejectedSpans\":3}}",
        ] {
            assert_eq!(
                outcome_of(&answer(200, body)),
                ExportOutcome::Rejected("it rejected 3 spans".to_owned())
            );
        }
        for status in [429, 502, 503, 504] {
            assert!(
                matches!(outcome_of(&answer(status, "")), ExportOutcome::RetryLater(_)),
                "{status}"
            );
        }
        for status in [300, 400, 401, 404, 413, 500] {
            assert!(
                matches!(outcome_of(&answer(status, "")), ExportOutcome::Rejected(_)),
                "{status}"
            );
        }
    }
}
