//! The names of topics, as far as they were seen: no method of the Bot API lists them.

use crate::collections::BoundedCache;
use crate::text::one_line;

/// Topics that are remembered; the one used least recently makes room.
const MAX_TOPICS: usize = 4096;
/// Longest name in characters; Telegram's own limit.
const MAX_NAME: usize = 128;

/// Names of topics by chat and thread.
#[derive(Clone, Debug)]
pub struct TopicNames(BoundedCache<(i64, i64), String>);

impl TopicNames {
    /// No names.
    pub fn new() -> Self {
        Self(BoundedCache::new(MAX_TOPICS))
    }

    /// A topic has this name now.
    pub fn learn(&mut self, chat_id: i64, thread_id: i64, name: &str) {
        let name = one_line(name, MAX_NAME);
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
