//! What is remembered of each chat, so that a reply — and a message nobody asked for — reaches the right
//! tenant, also right after a restart.
//!
//! Bounded: the chat that was longest quiet is forgotten first.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::wire::{Metadata, Scalar, SessionSource};

/// A chat: platform and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChatId {
    /// The platform's name.
    pub platform: String,
    /// The id on it.
    pub chat: String,
}

impl ChatId {
    /// The chat that a message came from.
    pub fn from_source(source: &SessionSource) -> Self {
        Self {
            platform: source.platform.as_str().to_owned(),
            chat: source
                .chat_id
                .as_ref()
                .map(|id| id.as_str().to_owned())
                .unwrap_or_default(),
        }
    }

    /// One text for both parts; the platform's name has no `:`.
    pub fn key(&self) -> String {
        [&self.platform, ":", &self.chat].concat()
    }
}

/// What replies to a chat are tagged with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatFacts {
    /// Guild, workspace or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    /// Who spoke last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// `dm`, `group` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<String>,
    /// Agent profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Thread of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

impl ChatFacts {
    /// What a message tells about its chat.
    pub fn from_source(source: &SessionSource) -> Self {
        let text = |field: &Option<Scalar>| {
            field
                .as_ref()
                .map(|text| text.as_str().to_owned())
                .filter(|text| !text.is_empty())
        };
        Self {
            scope_id: text(&source.scope_id),
            user_id: text(&source.user_id),
            chat_type: text(&source.chat_type),
            profile: text(&source.profile),
            thread_id: text(&source.thread_id),
            message_id: text(&source.message_id),
        }
    }

    /// The tags of an op to this chat: tenant, author, profile, thread.
    pub fn tags(&self) -> Metadata {
        let tags = [
            ("scope_id", &self.scope_id),
            ("user_id", &self.user_id),
            ("profile", &self.profile),
            ("thread_id", &self.thread_id),
        ];
        tags.into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?.into())))
            .collect()
    }

    /// Whether the lasting part is the same: everything but the last message.
    fn lasts_as(&self, other: &Self) -> bool {
        let Self {
            scope_id,
            user_id,
            chat_type,
            profile,
            thread_id,
            message_id: _,
        } = self;
        *scope_id == other.scope_id
            && *user_id == other.user_id
            && *chat_type == other.chat_type
            && *profile == other.profile
            && *thread_id == other.thread_id
    }
}

#[derive(Debug)]
struct Remembered {
    facts: ChatFacts,
    used: u64,
    written_at_ms: i64,
}

/// The chats that are remembered.
#[derive(Debug)]
pub struct ChatMemory {
    bound: usize,
    chats: HashMap<ChatId, Remembered>,
    by_use: BTreeMap<u64, ChatId>,
    uses: u64,
}

/// The last message alone is written down again at most this often.
const LAST_MESSAGE_EVERY_MS: i64 = 60_000;

impl ChatMemory {
    /// Remembers up to `bound` chats.
    pub fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            chats: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Learns from a message; tells whether what is written down about the chat should be renewed.
    pub fn learn(&mut self, chat: &ChatId, facts: &ChatFacts, now_ms: i64) -> bool {
        let Some(known) = self.chats.get_mut(chat) else {
            self.put(chat.clone(), facts.clone(), now_ms);
            return true;
        };
        let same = known.facts.lasts_as(facts);
        let stale = !same
            || (known.facts.message_id != facts.message_id
                && now_ms.saturating_sub(known.written_at_ms) >= LAST_MESSAGE_EVERY_MS);
        if same {
            known.facts.message_id.clone_from(&facts.message_id);
        } else {
            known.facts.clone_from(facts);
        }
        if stale {
            known.written_at_ms = now_ms;
        }
        self.uses += 1;
        let before = std::mem::replace(&mut known.used, self.uses);
        if let Some(chat) = self.by_use.remove(&before) {
            self.by_use.insert(self.uses, chat);
        }
        stale
    }

    /// Takes in what was written down before a restart; least recently used first.
    pub fn restore(&mut self, chat: ChatId, facts: ChatFacts, written_at_ms: i64) {
        self.put(chat, facts, written_at_ms);
    }

    /// What is known about a chat.
    pub fn facts(&self, chat: &ChatId) -> Option<&ChatFacts> {
        self.chats.get(chat).map(|remembered| &remembered.facts)
    }

    /// The chat of that id, on whichever platform it is known; the most recently used one wins.
    pub fn find(&self, chat: &str) -> Option<&ChatId> {
        self.by_use.values().rev().find(|known| known.chat == chat)
    }

    /// Chats that are remembered.
    pub fn len(&self) -> usize {
        self.chats.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.chats.is_empty()
    }

    fn put(&mut self, chat: ChatId, facts: ChatFacts, written_at_ms: i64) {
        self.uses += 1;
        let remembered = Remembered {
            facts,
            used: self.uses,
            written_at_ms,
        };
        if let Some(before) = self.chats.insert(chat.clone(), remembered) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(self.uses, chat);
        while self.chats.len() > self.bound {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.chats.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(name: &str) -> ChatId {
        ChatId {
            platform: "discord".into(),
            chat: name.into(),
        }
    }

    fn facts(user: &str, message: &str) -> ChatFacts {
        ChatFacts {
            user_id: Some(user.into()),
            message_id: Some(message.into()),
            ..ChatFacts::default()
        }
    }

    #[test]
    fn the_quietest_chat_is_forgotten_first() {
        let mut memory = ChatMemory::new(2);
        memory.learn(&chat("a"), &facts("u", "1"), 0);
        memory.learn(&chat("b"), &facts("u", "1"), 0);
        memory.learn(&chat("a"), &facts("u", "2"), 0);
        memory.learn(&chat("c"), &facts("u", "1"), 0);
        assert!(memory.facts(&chat("b")).is_none() && memory.facts(&chat("a")).is_some());
        assert_eq!((memory.len(), memory.by_use.len()), (2, 2));
    }

    #[test]
    fn what_lasts_is_written_at_once_and_the_last_message_now_and_then() {
        let mut memory = ChatMemory::new(8);
        assert!(memory.learn(&chat("a"), &facts("u", "1"), 0));
        assert!(!memory.learn(&chat("a"), &facts("u", "2"), 1_000));
        assert!(memory.learn(&chat("a"), &facts("v", "3"), 2_000));
        assert!(memory.learn(&chat("a"), &facts("v", "4"), 62_000));
    }

    #[test]
    fn tags_name_tenant_author_and_thread_and_nothing_unknown() {
        let facts = ChatFacts {
            scope_id: Some("g".into()),
            user_id: Some("u".into()),
            ..ChatFacts::default()
        };
        assert_eq!(
            serde_json::Value::Object(facts.tags()),
            serde_json::json!({"scope_id": "g", "user_id": "u"})
        );
    }
}
