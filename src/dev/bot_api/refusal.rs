//! How a call is refused.

use serde_json::{Value, json};

/// A refusal: the code is the HTTP status, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiRefusal {
    pub(super) code: u16,
    pub(super) description: String,
    pub(super) retry_after: Option<u64>,
    pub(super) migrate_to: Option<i64>,
}

impl ApiRefusal {
    pub(super) fn new(code: u16, description: impl Into<String>) -> Self {
        Self {
            code,
            description: description.into(),
            retry_after: None,
            migrate_to: None,
        }
    }

    /// 400 with the usual prefix.
    pub(super) fn bad(why: impl AsRef<str>) -> Self {
        Self::new(400, format!("Bad Request: {}", why.as_ref()))
    }

    /// 403 with the usual prefix.
    pub(super) fn forbidden(why: &str) -> Self {
        Self::new(403, format!("Forbidden: {why}"))
    }

    /// 409 with the usual prefix.
    pub(super) fn conflict(why: &str) -> Self {
        Self::new(409, format!("Conflict: {why}"))
    }

    /// 429, with the seconds to wait.
    pub(super) fn too_many(retry_after: u64) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(429, format!("Too Many Requests: retry after {retry_after}"))
        }
    }

    /// The group has become a supergroup with another id.
    pub(super) fn migrated(to: i64) -> Self {
        Self {
            migrate_to: Some(to),
            ..Self::bad("group chat was upgraded to a supergroup chat")
        }
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({ "ok": false, "error_code": self.code, "description": self.description });
        if let Some(seconds) = self.retry_after {
            body["parameters"]["retry_after"] = json!(seconds);
        }
        if let Some(id) = self.migrate_to {
            body["parameters"]["migrate_to_chat_id"] = json!(id);
        }
        body
    }
}

/// The result of a call.
pub(super) type ApiResult = Result<Value, ApiRefusal>;
