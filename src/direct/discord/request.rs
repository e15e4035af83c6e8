//! One request of the REST API, its answer, and what an error means.

use std::time::Duration;

use serde_json::Value;

use super::limits::RateHeaders;
use crate::direct::field;
use crate::direct::flood::{CallKind, MAX_RETRY_AFTER};

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestMethod {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

/// A request to make.
#[derive(Clone, Debug, PartialEq)]
pub struct RestRequest {
    /// The method.
    pub method: RestMethod,
    /// The path below the API's base, without a leading slash.
    pub path: String,
    /// The route that its rate limit belongs to, with the channel.
    pub route: String,
    /// The JSON body.
    pub body: Option<Value>,
    /// The chat whose budget it counts against.
    pub chat: i64,
    /// Whether it must arrive.
    pub kind: CallKind,
    /// The files that it uploads.
    pub files: Vec<RestFile>,
    /// The command that it answers: Discord must show the command's placeholder first.
    pub command: Option<String>,
}

/// A file to upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestFile {
    /// The address of the relay's copy.
    pub source: String,
    /// The name to show, if it is not the one of the copy.
    pub name: Option<String>,
    /// Whether it is a voice message, whose length is told.
    pub is_voice: bool,
}

impl RestRequest {
    /// Reads what is at a path.
    pub fn get(path: &str, route: &str) -> Self {
        Self {
            method: RestMethod::Get,
            path: path.to_owned(),
            route: format!("Get {route}"),
            body: None,
            chat: 0,
            kind: CallKind::Required,
            files: Vec::new(),
            command: None,
        }
    }

    /// Deletes what is at a path.
    pub fn delete(path: &str, route: &str) -> Self {
        Self {
            method: RestMethod::Delete,
            route: format!("Delete {route}"),
            ..Self::get(path, route)
        }
    }

    /// Sends something that counts against no chat.
    pub fn with_body(method: RestMethod, path: String, route: &str, body: Value) -> Self {
        Self {
            method,
            path,
            route: format!("{method:?} {route}"),
            body: Some(body),
            chat: 0,
            kind: CallKind::Required,
            files: Vec::new(),
            command: None,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RestAnswer {
    /// It succeeded with this result.
    Ok(Value),
    /// The server refused it.
    Error {
        /// The HTTP status.
        status: u16,
        /// Discord's code of the error; 0 if it gave none.
        code: i64,
        /// The error in the server's words.
        message: String,
        /// The time to wait.
        retry_after: Option<Duration>,
    },
    /// The request never left, for this reason: it is safe to repeat.
    NotSent(String),
    /// The request left, and its outcome is unknown.
    Unknown,
}

impl RestAnswer {
    /// Reads a response. A limit that is not Discord's own bans the address: it becomes one of the whole bot.
    pub fn read(status: u16, body: &[u8], headers: &mut RateHeaders) -> Self {
        let json: Option<Value> = serde_json::from_slice(body).ok();
        if (200..300).contains(&status) {
            return match json {
                Some(result) => Self::Ok(result),
                None if body.is_empty() => Self::Ok(Value::Null),
                None => Self::Unknown,
            };
        }
        if status >= 500 {
            return Self::Unknown;
        }
        let json = json.unwrap_or_default();
        // A proxy's answer: Discord gives each error a code and a message.
        let is_discords = json.get("code").is_some() || json.get("message").is_some();
        if matches!(status, 401 | 403 | 404) && !is_discords {
            return Self::Unknown;
        }
        if status == 429 && !is_discords {
            let wait = headers.retry_after.unwrap_or_default().max(BAN);
            (headers.retry_after, headers.is_global) = (Some(wait), true);
            return Self::Error {
                status,
                code: 0,
                message: "Discord takes no requests from this address for now".to_owned(),
                retry_after: Some(wait),
            };
        }
        let message = field::text(&json, "message").map_or_else(|| format!("status {status}"), str::to_owned);
        let named = json.get("retry_after").and_then(Value::as_f64);
        let named = named.and_then(|secs| Duration::try_from_secs_f64(secs).ok());
        let named = named.map(|wait| wait.min(MAX_RETRY_AFTER));
        Self::Error {
            status,
            code: field::integer(&json, "code").unwrap_or_default(),
            message,
            retry_after: named.or(headers.retry_after).or((status == 429).then_some(BAN)),
        }
    }
}

/// A limit without a time is a ban of the address: silence for this long.
const BAN: Duration = Duration::from_secs(600);

/// What an error of the REST API means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscordFault {
    /// Wait this long.
    Limited(Duration),
    /// The message is gone.
    NoMessage,
    /// It has been done already.
    Done,
    /// It may work later.
    Temporary,
    /// The thread is archived.
    Archived,
    /// It cannot be done.
    Refused {
        /// A short name of the reason.
        code: &'static str,
        /// Whether the chat takes nothing any more. Rights may lack for one kind of message only.
        is_permanent: bool,
    },
}

impl DiscordFault {
    /// What an error means.
    pub fn of(status: u16, code: i64, retry_after: Option<Duration>) -> Self {
        let refused = |code| Self::Refused {
            code,
            is_permanent: matches!(code, "chat_not_found" | "no_access" | "blocked"),
        };
        match code {
            _ if status == 429 => Self::Limited(retry_after.unwrap_or(BAN)),
            20_016 | 20_028 | 20_029 => Self::Limited(retry_after.unwrap_or(Duration::from_secs(5))),
            10_008 => Self::NoMessage,
            40_060 | 160_004 => Self::Done,
            40_003 | 40_004 | 40_062 | 130_000 => Self::Temporary,
            50_083 => Self::Archived,
            10_003 | 10_004 => refused("chat_not_found"),
            50_001 => refused("no_access"),
            50_013 => refused("no_permission"),
            50_007 | 50_278 => refused("blocked"),
            40_005 | 50_045 => refused("too_big"),
            200_000 | 240_000 => refused("moderated"),
            160_005 => refused("locked"),
            _ if status == 401 => refused("token"),
            _ if status == 413 => refused("too_big"),
            _ => refused("refused"),
        }
    }
}

/// Why something could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// It may be had later.
    ForNow,
    /// It is gone, or the bot may not read it.
    ForGood,
}

impl FetchFailure {
    /// What Discord's code of an error means for what was to be fetched. An error without one may be a proxy's.
    pub fn of(code: i64) -> Self {
        match code {
            10_003 | 10_004 | 10_007 | 50_001 | 50_013 => Self::ForGood,
            _ => Self::ForNow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_and_what_is_none_stays_unknown() {
        let read =
            |status, body: &str| RestAnswer::read(status, body.as_bytes(), &mut RateHeaders::default());
        assert_eq!(read(204, ""), RestAnswer::Ok(Value::Null));
        assert_eq!(read(200, "<html>"), RestAnswer::Unknown);
        assert_eq!(read(502, "{}"), RestAnswer::Unknown);
        for status in [401, 403, 404] {
            assert_eq!(read(status, "<html>"), RestAnswer::Unknown, "of a proxy");
            let said = read(status, r#"{"code": 0, "message": "no"}"#);
            assert!(matches!(said, RestAnswer::Error { .. }), "{said:?}");
        }
        let RestAnswer::Error { retry_after, .. } = read(429, r#"{"retry_after": 1.5, "message": "x"}"#)
        else {
            panic!("an error");
        };
        assert_eq!(retry_after, Some(Duration::from_millis(1500)));
        let RestAnswer::Error { retry_after, .. } = read(429, r#"{"retry_after": 1e19, "message": "x"}"#)
        else {
            panic!("an error");
        };
        assert_eq!(retry_after, Some(MAX_RETRY_AFTER));
    }

    #[test]
    fn a_limit_that_is_not_discords_own_bans_the_whole_bot_for_ten_minutes_or_more() {
        for (asked, wanted) in [(None, BAN), (Some(BAN / 2), BAN), (Some(2 * BAN), 2 * BAN)] {
            let mut headers = RateHeaders {
                retry_after: asked,
                ..RateHeaders::default()
            };
            let RestAnswer::Error { retry_after, .. } = RestAnswer::read(429, b"<html>", &mut headers) else {
                panic!("an error")
            };
            assert_eq!((retry_after, headers.retry_after), (Some(wanted), Some(wanted)));
            assert!(headers.is_global);
        }
        let mut headers = RateHeaders::default();
        RestAnswer::read(429, br#"{"retry_after": 1.5, "message": "x"}"#, &mut headers);
        assert!(!headers.is_global);
    }

    #[test]
    fn errors_have_a_meaning() {
        assert_eq!(DiscordFault::of(429, 0, Some(BAN)), DiscordFault::Limited(BAN));
        assert_eq!(DiscordFault::of(404, 10_008, None), DiscordFault::NoMessage);
        for (status, code, wanted, wanted_final) in [
            (404, 10_003, "chat_not_found", true),
            (404, 10_004, "chat_not_found", true),
            (403, 50_001, "no_access", true),
            (403, 50_007, "blocked", true),
            (403, 50_278, "blocked", true),
            (403, 50_013, "no_permission", false),
            (413, 40_005, "too_big", false),
            (413, 0, "too_big", false),
            (400, 50_035, "refused", false),
            (400, 200_000, "moderated", false),
            (400, 160_005, "locked", false),
            (404, 10_015, "refused", false),
            (401, 0, "token", false),
        ] {
            let DiscordFault::Refused {
                code: named,
                is_permanent,
            } = DiscordFault::of(status, code, None)
            else {
                panic!("{code}")
            };
            assert_eq!((named, is_permanent), (wanted, wanted_final), "{code}");
        }
    }

    #[test]
    fn only_what_is_gone_or_hidden_is_not_fetched_later() {
        for code in [10_003, 10_004, 10_007, 50_001, 50_013] {
            assert_eq!(FetchFailure::of(code), FetchFailure::ForGood, "{code}");
        }
        for code in [0, 40_001, 40_006, 130_000] {
            assert_eq!(FetchFailure::of(code), FetchFailure::ForNow, "{code}");
        }
    }
}
