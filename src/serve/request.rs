//! What travels over the control socket: one line of JSON in, one line of JSON out, and the connection ends.
//!
//! ```text
//! {"v":1,"op":"stop","session":"agent:main:discord:dm:c1"}
//! {"v":1,"ok":{"stopped":true}}
//! {"v":1,"error":{"code":"no_turn","message":"no turn runs in that session"}}
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of what travels. A relay answers only its own; fields may be added within one.
pub const VERSION: u32 = 1;
/// The longest request, newline included.
pub const LONGEST_REQUEST: usize = 64 * 1024;

/// The reason for which somebody else's request is not even read.
pub(super) const DENIED: &str = "denied";

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Ask {
    /// How everything stands.
    Status,
    /// Which sessions run or wait.
    Sessions,
    /// Stop a session's turn.
    Stop {
        /// Its key.
        session: String,
    },
    /// Send a message to a chat that has spoken before.
    Send {
        /// The chat's id.
        chat: String,
        /// Its platform, where several have a chat of that id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        platform: Option<String>,
        /// What to say.
        text: String,
    },
    /// Read the settings again.
    Reload,
    /// Dial at once.
    Wake,
    /// Whether messages come in, or the connector keeps them for us.
    Health,
}

#[derive(Serialize, Deserialize)]
struct Request {
    v: u32,
    #[serde(flatten)]
    ask: Ask,
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

impl Ask {
    /// The request as one line, newline included.
    pub fn to_line(&self) -> String {
        let request = Request {
            v: VERSION,
            ask: self.clone(),
        };
        let mut line =
            serde_json::to_string(&request).expect("requests have text keys and no failing values");
        line.push('\n');
        line
    }

    /// Reads a request's line.
    pub fn from_line(line: &[u8]) -> Result<Self, Refusal> {
        let wrong = |error: serde_json::Error| Refusal::new("bad_request", format!("not a request: {error}"));
        let versioned: Versioned = serde_json::from_slice(line).map_err(wrong)?;
        if versioned.v != VERSION {
            let message = format!(
                "this relay speaks version {VERSION} of the control protocol, not {}",
                versioned.v
            );
            return Err(Refusal::new("version", message));
        }
        let request: Request = serde_json::from_slice(line).map_err(wrong)?;
        Ok(request.ask)
    }
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The reason in one word, for programs.
    pub code: String,
    /// The reason, for people.
    pub message: String,
}

impl Refusal {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// What is answered.
pub type Answer = Result<Value, Refusal>;

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

/// The answer as one line, newline included.
pub(super) fn answer_line(answer: Answer) -> String {
    let (ok, error) = match answer {
        Ok(value) => (Some(value), None),
        Err(refusal) => (None, Some(refusal)),
    };
    let envelope = Envelope {
        v: VERSION,
        ok,
        error,
    };
    let mut line = serde_json::to_string(&envelope).expect("answers have text keys and no failing values");
    line.push('\n');
    line
}

/// Reads an answer's line; nothing when it is none.
pub(super) fn read_answer(line: &[u8]) -> Option<Answer> {
    let envelope: Envelope = serde_json::from_slice(line).ok()?;
    match (envelope.ok, envelope.error) {
        (Some(value), None) => Some(Ok(value)),
        (None, Some(refusal)) => Some(Err(refusal)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_and_answers_read_back_what_was_written() {
        for ask in [
            Ask::Status,
            Ask::Stop {
                session: "a\nb".to_owned(),
            },
            Ask::Send {
                chat: "c".to_owned(),
                platform: None,
                text: "hi".to_owned(),
            },
        ] {
            let line = ask.to_line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Ask::from_line(line.as_bytes()), Ok(ask));
        }
        for answer in [Ok(json!({"a": 1})), Err(Refusal::new("no", "because"))] {
            let line = answer_line(answer.clone());
            assert_eq!(read_answer(line.as_bytes()), Some(answer));
        }
    }

    #[test]
    fn what_is_no_request_says_why() {
        let code = |line: &str| Ask::from_line(line.as_bytes()).unwrap_err().code;
        assert_eq!(code("hello"), "bad_request");
        assert_eq!(code(r#"{"op":"status"}"#), "bad_request");
        assert_eq!(code(r#"{"v":1,"op":"stauts"}"#), "bad_request");
        assert_eq!(code(r#"{"v":2,"op":"status"}"#), "version");
        assert_eq!(code(r#"{"v":2,"op":"novel"}"#), "version");
    }
}
