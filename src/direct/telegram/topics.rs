//! Topics of forums. Their names are known as far as messages name them: no method of the Bot API lists them.

use crate::collections::BoundedCache;
use crate::text::one_line;

/// The thread id of a forum's General topic, which messages of that topic do not name.
pub(super) const GENERAL_TOPIC: i64 = 1;
/// Longest name of a topic, in characters; Telegram's own limit.
pub(super) const MAX_TOPIC_NAME: usize = 128;
/// Topics that are remembered; the least recently used makes room.
const MAX_TOPICS: usize = 4096;

/// Names of topics by chat and thread.
#[derive(Clone, Debug)]
pub struct TopicNames(BoundedCache<(i64, i64), String>);

impl TopicNames {
    /// No names are known.
    pub fn new() -> Self {
        Self(BoundedCache::new(MAX_TOPICS))
    }

    /// A topic has this name now.
    pub fn learn(&mut self, chat_id: i64, thread_id: i64, name: &str) {
        let name = one_line(name, MAX_TOPIC_NAME);
        if !name.is_empty() {
            self.0.insert((chat_id, thread_id), name);
        }
    }

    /// A topic's name, if it was seen.
    pub fn name_of(&self, chat_id: i64, thread_id: i64) -> Option<&str> {
        self.0.peek(&(chat_id, thread_id)).map(String::as_str)
    }
}

impl Default for TopicNames {
    fn default() -> Self {
        Self::new()
    }
}
