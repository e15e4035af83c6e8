//! How a call is refused.

use serde_json::{Value, json};

/// A refusal: the code is the HTTP status, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRefusal {
    pub(super) code: u16,
    pub(super) description: String,
    pub(super) migrate_to: Option<i64>,
}

impl ApiRefusal {
    pub(super) fn new(code: u16, description: impl Into<String>) -> Self {
        Self {
            code,
            description: description.into(),
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
        if let Some(id) = self.migrate_to {
            body["parameters"]["migrate_to_chat_id"] = json!(id);
        }
        body
    }
}

/// The result of a call.
pub(super) type ApiResult = Result<Value, ApiRefusal>;
