//! The queue of updates: ids, what is confirmed, what has expired, and which kinds are wanted.

use std::collections::VecDeque;

use serde_json::{Value, json};

/// Updates that wait at most; further ones are dropped without a word.
const MAX_QUEUED: usize = 100_000;
/// How far ahead of the last id an offset may be to count.
const AHEAD: i64 = 10;
/// How far behind the first id an offset may be to count.
const BEHIND: i64 = 100_000;
/// Bytes of updates in one answer.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Kinds that only an explicit list asks for.
const UNUSUAL: [&str; 3] = ["chat_member", "message_reaction", "message_reaction_count"];
/// Every kind that a list may name.
const KINDS: [&str; 16] = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "inline_query",
    "chosen_inline_result",
    "callback_query",
    "my_chat_member",
    "chat_member",
    "message_reaction",
    "message_reaction_count",
    "chat_join_request",
    "poll",
    "poll_answer",
    "stopped_message_generation",
    "guest_message",
];

/// How long an update of this kind waits, in seconds.
fn lifetime(kind: &str) -> i64 {
    match kind {
        "callback_query" => 150,
        "inline_query" => 30,
        "chosen_inline_result" => 600,
        _ => 24 * 60 * 60,
    }
}

/// An update that waits.
pub struct QueuedUpdate {
    pub id: i64,
    pub body: Value,
    pub expires_at: i64,
}

/// Updates that wait for the bot.
pub struct ApiUpdates {
    /// Oldest first.
    pub queue: VecDeque<QueuedUpdate>,
    /// The id of the next one.
    pub next_id: i64,
    confirmed: Option<i64>,
    allowed: Vec<String>,
    /// Updates that were dropped: not wanted, expired, or one too many.
    dropped: u64,
}

impl ApiUpdates {
    pub fn new(first_id: i64) -> Self {
        Self {
            queue: VecDeque::new(),
            next_id: first_id,
            confirmed: None,
            allowed: default_kinds(),
            dropped: 0,
        }
    }

    /// Queues an update if its kind is wanted. Returns its id.
    pub fn push(&mut self, kind: &str, content: Value, now: i64) -> Option<i64> {
        let wanted = self.allowed.iter().any(|allowed| allowed == kind) || !KINDS.contains(&kind);
        let room = self.queue.len() < MAX_QUEUED;
        if !wanted || !room {
            self.dropped += 1;
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut body = json!({ "update_id": id });
        body[kind] = content;
        self.queue.push_back(QueuedUpdate {
            id,
            body,
            expires_at: now + lifetime(kind),
        });
        Some(id)
    }

    /// Remembers which kinds are wanted, as a call lists them.
    pub fn allow(&mut self, list: &Value) {
        let Some(list) = list.as_array() else {
            return;
        };
        let known: Vec<String> = list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_ascii_lowercase)
            .filter(|kind| KINDS.contains(&kind.as_str()))
            .collect();
        self.allowed = if known.is_empty() { default_kinds() } else { known };
    }

    pub fn allowed(&self) -> &[String] {
        &self.allowed
    }

    /// Confirms what is before `offset`, and returns what follows.
    pub fn take(&mut self, offset: i64, limit: usize, now: i64) -> Vec<Value> {
        let before = self.queue.len();
        self.queue.retain(|update| update.expires_at > now);
        self.dropped += (before - self.queue.len()) as u64;
        let head = self.queue.front().map_or(self.next_id, |update| update.id);
        let tail = self.next_id;
        let from = match offset {
            0 => head,
            negative if negative < 0 => head.max(tail + negative),
            far if far > tail + AHEAD || far < head - BEHIND => head,
            offset => offset,
        };
        while self.queue.front().is_some_and(|update| update.id < from) {
            self.queue.pop_front();
        }
        if offset != 0 && from == offset {
            self.confirmed = Some(offset);
        }
        let mut batch: Vec<Value> = Vec::new();
        let mut bytes = 0;
        for update in self.queue.iter().take(limit) {
            bytes += update.body.to_string().len();
            if bytes > MAX_ANSWER_BYTES && !batch.is_empty() {
                break;
            }
            batch.push(update.body.clone());
        }
        batch
    }

    pub fn clear(&mut self) {
        self.queue.clear();
    }

    pub fn pending_count(&self) -> usize {
        self.queue.len()
    }

    /// The last offset that counted.
    pub fn confirmed(&self) -> Option<i64> {
        self.confirmed
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn default_kinds() -> Vec<String> {
    let usual = KINDS.into_iter().filter(|kind| !UNUSUAL.contains(kind));
    usual.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(batch: &[Value]) -> Vec<i64> {
        batch
            .iter()
            .map(|update| update["update_id"].as_i64().unwrap())
            .collect()
    }

    fn filled(first: i64, count: i64) -> ApiUpdates {
        let mut updates = ApiUpdates::new(first);
        for _ in 0..count {
            updates.push("message", json!({}), 0);
        }
        updates
    }

    #[test]
    fn an_offset_confirms_what_is_before_it() {
        let mut updates = filled(100, 5);
        assert_eq!(ids(&updates.take(0, 2, 0)), [100, 101]);
        assert_eq!(ids(&updates.take(102, 100, 0)), [102, 103, 104]);
        assert_eq!(
            ids(&updates.take(101, 100, 0)),
            [102, 103, 104],
            "confirmed ones are gone"
        );
        assert_eq!(updates.confirmed(), Some(101));
        assert_eq!(ids(&updates.take(-1, 100, 0)), [104], "only the last one is kept");
        assert_eq!(updates.take(105, 100, 0), Vec::<Value>::new());
    }

    #[test]
    fn an_offset_far_ahead_or_far_behind_is_ignored() {
        let mut updates = filled(200_000, 2);
        assert_eq!(ids(&updates.take(200_013, 100, 0)), [200_000, 200_001]);
        assert_eq!(ids(&updates.take(99_999, 100, 0)), [200_000, 200_001]);
        assert_eq!(updates.confirmed(), None);
        assert_eq!(
            updates.take(200_012, 100, 0),
            Vec::<Value>::new(),
            "ten ahead count"
        );
        updates.next_id = 50;
        updates.push("message", json!({}), 0);
        assert_eq!(ids(&updates.take(200_002, 100, 0)), [50]);
        assert_eq!(ids(&updates.take(51, 100, 0)), Vec::<i64>::new());
    }

    #[test]
    fn updates_expire_by_kind_and_are_wanted_by_kind() {
        let mut updates = ApiUpdates::new(1);
        assert_eq!(updates.push("message_reaction", json!({}), 0), None);
        updates.allow(&json!(["message_reaction", "callback_query", "nonsense"]));
        assert_eq!(updates.push("message", json!({}), 0), None);
        assert!(updates.push("message_reaction", json!({}), 0).is_some());
        assert!(updates.push("callback_query", json!({}), 0).is_some());
        assert_eq!(updates.take(0, 100, 149).len(), 2);
        assert_eq!(updates.take(0, 100, 150).len(), 1);
        assert_eq!(updates.take(0, 100, 24 * 60 * 60).len(), 0);
        assert_eq!(updates.dropped(), 4);
        updates.allow(&json!([]));
        assert!(updates.push("message", json!({}), 0).is_some());
        assert!(updates.push("message_reaction", json!({}), 0).is_none());
    }
}
