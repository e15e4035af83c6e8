//! One call of the Bot API, and its answer.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::direct::flood::CallKind;
use crate::text::truncate_bytes;

/// The field that stands in for a list entry that could not be read: the entry as text, truncated.
pub(super) const UNREADABLE: &str = "unreadable";
/// Bytes of an unreadable entry that are kept for people to look at.
pub(super) const MAX_UNREADABLE_BYTES: usize = 64 * 1024;

/// A call to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name of the Bot API method.
    pub method: &'static str,
    /// The parameters of the method.
    pub body: Map<String, Value>,
    /// The files that are sent with the call.
    pub files: Vec<CallFile>,
    /// The chat whose flood budget the call counts against.
    pub chat: i64,
    /// Whether the call must arrive.
    pub kind: CallKind,
}

/// A file that is sent with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFile {
    /// The parameter that holds the file.
    pub field: &'static str,
    /// The address of the file, as the op names it.
    pub source: String,
    /// The file name to show.
    pub name: Option<String>,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiAnswer {
    /// The call succeeded with this result.
    Ok(Value),
    /// The server refused the call.
    Error {
        /// The error code, usually the HTTP status.
        code: i64,
        /// The error in the server's words.
        description: String,
        /// Seconds to wait before the next call.
        retry_after: Option<u64>,
        /// The new id of a chat that became a supergroup.
        migrate_to: Option<i64>,
    },
    /// The request never left, for this reason: it is safe to repeat.
    NotSent(String),
    /// The request left, and its outcome is unknown.
    Unknown,
}

impl ApiAnswer {
    /// Whether the server says that it does not have the method.
    pub fn lacks_method(&self) -> bool {
        matches!(self, Self::Error { code: 404, .. })
    }

    /// Reads an HTTP response. A body that is not the API's leaves the outcome unknown, unless the status alone decides it.
    pub fn read(status: u16, body: &[u8]) -> Self {
        let body = serde_json::from_slice(body).ok().or_else(|| read_singly(body));
        let field = |name: &str| body.as_ref().and_then(|body| body.get(name));
        if field("ok").and_then(Value::as_bool) == Some(true) && (200..300).contains(&status) {
            return Self::Ok(field("result").cloned().unwrap_or_default());
        }
        let code = field("error_code")
            .and_then(Value::as_i64)
            .unwrap_or_else(|| i64::from(status));
        let described = field("description").and_then(Value::as_str);
        // A proxy in between may answer 401, 403 or 404 of its own.
        let is_answer = described.is_some() || matches!(code, 400..500 if !matches!(code, 401 | 403 | 404));
        if !is_answer || code >= 500 {
            return Self::Unknown;
        }
        let parameter = |name: &str| field("parameters").and_then(|parameters| parameters.get(name));
        Self::Error {
            code,
            description: described.map_or_else(|| format!("status {code}"), str::to_owned),
            retry_after: parameter("retry_after").and_then(Value::as_u64),
            migrate_to: parameter("migrate_to_chat_id").and_then(Value::as_i64),
        }
    }
}

/// A result list whose entries are still raw JSON.
#[derive(Deserialize)]
struct RawList<'b> {
    ok: bool,
    #[serde(borrow)]
    result: Vec<&'b RawValue>,
}

/// The id of an update whose other fields cannot be read.
#[derive(Deserialize)]
struct UpdateNumber {
    update_id: i64,
}

/// Reads a list entry by entry: an unreadable entry (nested too deep, or with half a surrogate pair) harms no other.
fn read_singly(body: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(body);
    let list: RawList<'_> = serde_json::from_str(&text).ok()?;
    let entries = list.result.into_iter().map(|entry| {
        serde_json::from_str(entry.get()).unwrap_or_else(|_| {
            let number: Option<UpdateNumber> = serde_json::from_str(entry.get()).ok();
            json!({
                "update_id": number.map(|number| number.update_id),
                UNREADABLE: truncate_bytes(entry.get(), MAX_UNREADABLE_BYTES),
            })
        })
    });
    let entries: Vec<Value> = entries.collect();
    Some(json!({ "ok": list.ok, "result": entries }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_harms_no_other() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let bad = [
            format!(r#"{{"message":{deep},"update_id":7}}"#),
            r#"{"update_id":7,"message":{"text":"\ud83d"}}"#.to_owned(),
        ];
        for entry in bad {
            let body = format!(r#"{{"ok":true,"result":[{{"update_id":6}},{entry},{{"update_id":8}}]}}"#);
            let ApiAnswer::Ok(Value::Array(entries)) = ApiAnswer::read(200, body.as_bytes()) else {
                panic!("a list");
            };
            assert_eq!(entries.len(), 3);
            assert_eq!(
                (&entries[0], &entries[2]),
                (&json!({"update_id": 6}), &json!({"update_id": 8}))
            );
            assert_eq!(
                (&entries[1]["update_id"], &entries[1][UNREADABLE]),
                (&json!(7), &json!(entry))
            );
        }
        let broken = b"{\"ok\":true,\"result\":[{\"update_id\":1,\"message\":\"\xff\"}]}";
        let ApiAnswer::Ok(entries) = ApiAnswer::read(200, broken) else {
            panic!("a list");
        };
        assert_eq!(entries[0]["update_id"], 1);
    }

    fn error(code: i64, description: &str, retry_after: Option<u64>, migrate_to: Option<i64>) -> ApiAnswer {
        ApiAnswer::Error {
            code,
            description: description.to_owned(),
            retry_after,
            migrate_to,
        }
    }

    #[test]
    fn answers_are_read_and_what_is_none_stays_unknown() {
        let cases: [(u16, &str, ApiAnswer); 11] = [
            (
                200,
                r#"{"ok":true,"result":{"message_id":5}}"#,
                ApiAnswer::Ok(json!({"message_id": 5})),
            ),
            (200, r#"{"ok":true}"#, ApiAnswer::Ok(Value::Null)),
            (
                400,
                r#"{"ok":false,"error_code":400,"description":"Bad Request: x"}"#,
                error(400, "Bad Request: x", None, None),
            ),
            (
                429,
                r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 9","parameters":{"retry_after":9}}"#,
                error(429, "Too Many Requests: retry after 9", Some(9), None),
            ),
            (
                400,
                r#"{"ok":false,"error_code":400,"description":"up","parameters":{"migrate_to_chat_id":-1001}}"#,
                error(400, "up", None, Some(-1001)),
            ),
            (429, "<html>", error(429, "status 429", None, None)),
            (413, "", error(413, "status 413", None, None)),
            (502, "<html>Bad Gateway</html>", ApiAnswer::Unknown),
            (
                500,
                r#"{"ok":false,"error_code":500,"description":"Internal Server Error"}"#,
                ApiAnswer::Unknown,
            ),
            (200, "<html>", ApiAnswer::Unknown),
            (200, r#"{"ok":"#, ApiAnswer::Unknown),
        ];
        for (status, body, answer) in cases {
            assert_eq!(
                ApiAnswer::read(status, body.as_bytes()),
                answer,
                "{status} {body}"
            );
        }
    }
}
