//! Receipts of what a receiver answered: a JSON object with known keys, or anything else, which is no failure.

use serde_json::{Map, Value};

use super::contract::{AgentAddress, DeliveryReceipt, MAX_ID_BYTES, WakeReceipt};
use crate::text::printable;

/// Warnings of one answer that are kept.
const MAX_WARNINGS: usize = 16;
/// Characters of a warning that are kept.
const MAX_WARNING: usize = 500;

/// An accepting answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    object: Map<String, Value>,
    /// What is to be known about the answer itself.
    note: Option<String>,
}

impl Answer {
    /// Reads a body; what is no JSON object says nothing.
    pub(super) fn read(body: &[u8]) -> Self {
        Self {
            object: serde_json::from_slice(body).unwrap_or_default(),
            note: None,
        }
    }

    /// An answer that could not be read to its end.
    pub(super) fn unread(note: String) -> Self {
        Self {
            object: Map::new(),
            note: Some(note),
        }
    }

    fn time(&self, key: &str) -> Option<i64> {
        let time = self.object.get(key)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a time in milliseconds; more saturates"
        )]
        time.as_i64().or_else(|| time.as_f64().map(|time| time as i64))
    }

    fn session(&self) -> Option<String> {
        let session = self.object.get("session_id")?.as_str()?;
        (!session.is_empty() && session.len() <= MAX_ID_BYTES).then(|| session.to_owned())
    }

    fn warnings(&self) -> Vec<String> {
        let given = self.object.get("warnings").and_then(Value::as_array);
        let given = given.into_iter().flatten().filter_map(Value::as_str);
        let given = given.map(|warning| printable(warning, MAX_WARNING));
        given.take(MAX_WARNINGS).chain(self.note.clone()).collect()
    }

    /// The receipt of a delivery. Its id is the first of `delivery_id`, `id` and `ts` that is set, if that is a text.
    pub(super) fn delivered(&self, now_ms: i64) -> DeliveryReceipt {
        let ids = ["delivery_id", "id", "ts"];
        let id = ids
            .iter()
            .filter_map(|key| self.object.get(*key))
            .find(|id| !id.is_null());
        let id = id.and_then(Value::as_str).map(str::to_owned);
        let is_skipped = self.object.get("delivery_skipped") == Some(&Value::Bool(true));
        DeliveryReceipt {
            delivered_at: self.time("delivered_at").unwrap_or(now_ms),
            delivery_id: id.filter(|id| id.len() <= MAX_ID_BYTES),
            session_id: self.session(),
            delivery_skipped: is_skipped.then_some(true),
            warnings: self.warnings(),
        }
    }

    /// The receipt of a wake that was sent; only a receiver that says so has not woken the agent.
    pub(super) fn woken(&self, address: AgentAddress, now_ms: i64) -> WakeReceipt {
        WakeReceipt {
            woken_at: self.time("woken_at").unwrap_or(now_ms),
            woken: self.object.get("woken").and_then(Value::as_bool).unwrap_or(true),
            session_id: self.session().or(address.session),
            warnings: self.warnings(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receipt(answer: &Value) -> Value {
        let receipt = Answer::read(answer.to_string().as_bytes()).delivered(7);
        serde_json::to_value(receipt).unwrap()
    }

    #[test]
    fn a_receipt_is_made_of_any_answer() {
        for (answer, wanted) in [
            (json!({}), json!({"delivered_at": 7})),
            (json!([1]), json!({"delivered_at": 7})),
            (json!("ok"), json!({"delivered_at": 7})),
            (json!({"delivered_at": 12.9}), json!({"delivered_at": 12})),
            (json!({"delivered_at": "12"}), json!({"delivered_at": 7})),
            (
                json!({"delivery_id": null, "id": "a", "ts": "b"}),
                json!({"delivered_at": 7, "delivery_id": "a"}),
            ),
            (json!({"delivery_id": 3, "id": "a"}), json!({"delivered_at": 7})),
            (
                json!({"ts": "1.2"}),
                json!({"delivered_at": 7, "delivery_id": "1.2"}),
            ),
            (
                json!({"delivery_skipped": true, "session_id": "s", "warnings": ["w\u{1b}", 1]}),
                json!({"delivered_at": 7, "delivery_skipped": true, "session_id": "s", "warnings": ["w"]}),
            ),
            (
                json!({"delivery_skipped": 1, "session_id": ""}),
                json!({"delivered_at": 7}),
            ),
        ] {
            assert_eq!(receipt(&answer), wanted, "{answer}");
        }
        for body in ["", "<html>", "{\"delivered_at\":"] {
            assert_eq!(
                Answer::read(body.as_bytes()).delivered(7).delivered_at,
                7,
                "{body}"
            );
        }
    }

    #[test]
    fn only_a_receiver_that_says_so_has_not_woken() {
        let woken = |answer: Value| {
            let answer = Answer::read(answer.to_string().as_bytes());
            answer.woken(AgentAddress::parse("cc@term"), 7)
        };
        assert!(woken(json!({})).woken);
        assert!(!woken(json!({"woken": false})).woken);
        assert_eq!(woken(json!({})).session_id.as_deref(), Some("term"));
        assert_eq!(
            woken(json!({"session_id": "t2"})).session_id.as_deref(),
            Some("t2")
        );
        assert_eq!(woken(json!({"woken_at": 9})).woken_at, 9);
    }
}
