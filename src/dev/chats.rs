//! What the connector knows of the chats that it delivered messages from.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const LIMIT: usize = 10_000;

/// Chats by id; further ones than the limit are not learnt.
#[derive(Default)]
pub(super) struct Chats {
    sources: BTreeMap<String, Value>,
}

impl Chats {
    /// Learns the chat that an event comes from.
    pub(super) fn learn(&mut self, event: &Value) {
        let source = &event["source"];
        let Some(chat_id) = source["chat_id"].as_str() else {
            return;
        };
        if let Some(known) = self.sources.get_mut(chat_id) {
            if known != source {
                *known = source.clone();
            }
        } else if self.sources.len() < LIMIT {
            self.sources.insert(chat_id.to_owned(), source.clone());
        }
    }

    /// The last source seen in a chat.
    pub(super) fn source(&self, chat_id: &str) -> Option<&Value> {
        self.sources.get(chat_id)
    }

    /// The chat's platform.
    pub(super) fn platform(&self, chat_id: &str) -> Option<&str> {
        self.source(chat_id)?["platform"].as_str()
    }

    /// The answer to `get_chat_info`.
    pub(super) fn info(&self, chat_id: &str) -> Value {
        let field = |key: &str| self.source(chat_id).and_then(|source| source[key].as_str());
        json!({
            "name": field("chat_name").unwrap_or(chat_id),
            "type": field("chat_type").unwrap_or("dm"),
        })
    }
}
