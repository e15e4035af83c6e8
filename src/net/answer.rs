//! The two header fields of an HTTP answer that a dialler learns from: `Date` and `Retry-After`.
//!
//! Both come from outside: what cannot be read counts as absent, and a wait is never longer than a day.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{DATE, HeaderName, RETRY_AFTER};

/// The longest wait a server may ask for.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The server's clock, as its answer gives it.
pub(crate) fn server_date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, &DATE)?).ok()
}

/// How long the server asks to be left alone. A date is read by the server's own clock where the answer
/// gives it, so that a wrong clock here does not lengthen the wait.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, &RETRY_AFTER)?;
    let wait = if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() {
        value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(value).ok()?;
        let now = server_date(headers).unwrap_or_else(SystemTime::now);
        until.duration_since(now).unwrap_or(Duration::ZERO)
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Tue, 15 Nov 1994 12:00:00 GMT";
    const ONE_PAST: &str = "Tue, 15 Nov 1994 12:01:00 GMT";

    fn asked(fields: &[(HeaderName, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(name, value.parse().expect("a header value"));
        }
        retry_after(&headers)
    }

    #[test]
    fn seconds_are_read_and_bounded() {
        let seconds = |value| asked(&[(RETRY_AFTER, value)]);
        assert_eq!(seconds("7"), Some(Duration::from_secs(7)));
        assert_eq!(seconds(" 0 "), Some(Duration::ZERO));
        assert_eq!(seconds("99999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(seconds("99999999999999999999999999"), Some(MAX_RETRY_AFTER));
        for nonsense in ["", "-1", "soon", "1.5", "+3"] {
            assert_eq!(seconds(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_date_is_read_by_the_servers_own_clock() {
        assert_eq!(
            asked(&[(RETRY_AFTER, ONE_PAST), (DATE, NOON)]),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            asked(&[(RETRY_AFTER, NOON), (DATE, ONE_PAST)]),
            Some(Duration::ZERO)
        );
        assert_eq!(asked(&[(RETRY_AFTER, NOON)]), Some(Duration::ZERO));
    }
}
