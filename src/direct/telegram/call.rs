//! One call of the Bot API, and what came back of it.

use serde_json::{Map, Value};

/// Whether a call must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Only for show: dropped rather than delayed.
    Show,
    /// It says something: it waits for its turn.
    Speak,
}

/// A call to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The method's name.
    pub method: &'static str,
    /// Its parameters.
    pub body: Map<String, Value>,
    /// A file that is sent with it.
    pub file: Option<CallFile>,
    /// The chat whose budget it counts to.
    pub chat: i64,
    /// Whether it must arrive.
    pub kind: CallKind,
}

/// A file of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFile {
    /// The parameter that it is.
    pub field: &'static str,
    /// Where its bytes are, as the op names it.
    pub source: String,
    /// The name to show.
    pub name: Option<String>,
}

/// What came back of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum ApiAnswer {
    /// It was done; this is the result.
    Ok(Value),
    /// The server refused it.
    Error {
        /// The code.
        code: i64,
        /// Why, in the server's words.
        description: String,
        /// Seconds to wait.
        retry_after: Option<u64>,
        /// The chat's new id.
        migrate_to: Option<i64>,
    },
    /// It never left: it is safe to repeat.
    NotSent(String),
    /// It left, and nobody knows what became of it.
    Unknown,
}

impl ApiAnswer {
    /// Reads an HTTP answer. What is no answer of the API says nothing about what became of the call, unless the status
    /// alone does.
    pub fn read(status: u16, body: &[u8]) -> Self {
        let body: Option<Value> = serde_json::from_slice(body).ok();
        let field = |name: &str| body.as_ref().and_then(|body| body.get(name));
        if field("ok").and_then(Value::as_bool) == Some(true) && (200..300).contains(&status) {
            return Self::Ok(field("result").cloned().unwrap_or_default());
        }
        let code = field("error_code")
            .and_then(Value::as_i64)
            .unwrap_or_else(|| i64::from(status));
        let described = field("description").and_then(Value::as_str);
        let is_answer = described.is_some() || matches!(code, 400..500);
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
