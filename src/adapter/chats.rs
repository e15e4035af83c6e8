//! Chats: their ids, the tags of ops to them, and the bounded memory of both, so that replies and unsolicited messages
//! reach the right tenant, also after a restart.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::{SmolStr, SmolStrBuilder};

use crate::collections::BoundedCache;
use crate::wire::{Metadata, Scalar, SessionSource, object_of_texts};

/// A chat: platform and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChatId {
    /// The platform's name.
    pub platform: SmolStr,
    /// The chat's id on that platform.
    pub chat: SmolStr,
}

impl ChatId {
    /// The chat of a message.
    pub fn from_source(source: &SessionSource) -> Self {
        Self {
            platform: source.platform.as_str().into(),
            chat: source
                .chat_id
                .as_ref()
                .map(Scalar::to_smolstr)
                .unwrap_or_default(),
        }
    }

    /// The chat with this [`Self::key`].
    pub fn from_key(key: &str) -> Option<Self> {
        let (platform, chat) = key.split_once(':')?;
        Some(Self {
            platform: platform.into(),
            chat: chat.into(),
        })
    }

    /// Platform and id as one text, for use as a key. A platform's name has no `:`.
    pub fn key(&self) -> SmolStr {
        let mut key = SmolStrBuilder::new();
        for part in [&self.platform, ":", &self.chat] {
            key.push_str(part);
        }
        key.finish()
    }
}

/// A chat, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chat {
    /// Its platform and id.
    pub id: ChatId,
    /// What an op to it has to name.
    pub facts: ChatFacts,
}

impl Chat {
    /// The chat of a message.
    pub fn from_source(source: &SessionSource) -> Self {
        Self {
            id: ChatId::from_source(source),
            facts: ChatFacts::from_source(source),
        }
    }

    /// The same chat with other facts.
    #[must_use]
    pub fn with_facts(&self, facts: ChatFacts) -> Self {
        let id = self.id.clone();
        Self { id, facts }
    }
}

/// A chat of which nothing else is known.
impl From<ChatId> for Chat {
    fn from(id: ChatId) -> Self {
        let facts = ChatFacts::default();
        Self { id, facts }
    }
}

/// Written as a pair, as the journal keeps it.
impl Serialize for Chat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.id, &self.facts).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Chat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (id, facts) = Deserialize::deserialize(deserializer)?;
        Ok(Self { id, facts })
    }
}

/// What is known about a chat; ops to it are tagged with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatFacts {
    /// Guild, workspace or server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<SmolStr>,
    /// Author of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<SmolStr>,
    /// `dm`, `group` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_type: Option<SmolStr>,
    /// Agent profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<SmolStr>,
    /// Thread of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<SmolStr>,
    /// Id of the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SmolStr>,
    /// Language of its author's client, as the platform tags it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<SmolStr>,
}

impl ChatFacts {
    /// The facts of a message's chat.
    pub fn from_source(source: &SessionSource) -> Self {
        let text = |field: &Option<Scalar>| {
            let text = field.as_ref().map(Scalar::to_smolstr);
            text.filter(|text| !text.is_empty())
        };
        Self {
            scope_id: text(&source.scope_id),
            user_id: text(&source.user_id),
            chat_type: text(&source.chat_type),
            profile: text(&source.profile),
            thread_id: text(&source.thread_id),
            message_id: text(&source.message_id),
            language: text(&source.language_code),
        }
    }

    /// As JSON, the same as its serialisation.
    pub fn to_json(&self) -> String {
        object_of_texts(&[
            ("scope_id", self.scope_id.as_deref()),
            ("user_id", self.user_id.as_deref()),
            ("chat_type", self.chat_type.as_deref()),
            ("profile", self.profile.as_deref()),
            ("thread_id", self.thread_id.as_deref()),
            ("message_id", self.message_id.as_deref()),
            ("language", self.language.as_deref()),
        ])
    }

    /// The tags of an op to this chat: tenant, author, profile, thread.
    pub fn tags(&self) -> Metadata {
        let tags = [
            ("scope_id", &self.scope_id),
            ("user_id", &self.user_id),
            ("profile", &self.profile),
            ("thread_id", &self.thread_id),
        ];
        // Room for what an op adds.
        let mut known = Metadata::with_capacity(4);
        for (key, value) in tags {
            if let Some(value) = value {
                known.insert(SmolStr::new_static(key), value.as_str());
            }
        }
        known
    }

    /// Whether the chat is a direct message.
    pub(crate) fn is_direct(&self) -> bool {
        self.chat_type.as_deref() == Some("dm")
    }

    /// Everything but the last message.
    fn lasting(&self) -> [&Option<SmolStr>; 6] {
        [
            &self.scope_id,
            &self.user_id,
            &self.chat_type,
            &self.profile,
            &self.thread_id,
            &self.language,
        ]
    }
}

#[derive(Debug)]
struct RememberedChat {
    facts: ChatFacts,
    written_at_ms: i64,
}

/// The chats that were seen last, up to a bound.
#[derive(Debug)]
pub struct ChatMemory(BoundedCache<ChatId, RememberedChat>);

/// A change of the last message alone is written to the journal at most this often.
const MESSAGE_WRITE_INTERVAL_MS: i64 = 60_000;

impl ChatMemory {
    /// Remembers up to `capacity` chats; the least recently used one is dropped first.
    pub fn new(capacity: usize) -> Self {
        Self(BoundedCache::new(capacity))
    }

    /// Updates a chat from a message; returns whether the journal's copy should be written again.
    pub fn learn(&mut self, chat: &Chat, now_ms: i64) -> bool {
        let Chat { id, facts } = chat;
        let Some(known) = self.0.get_mut(id) else {
            self.restore(chat.clone(), now_ms);
            return true;
        };
        let changed = known.facts.lasting() != facts.lasting();
        let stale = changed
            || (known.facts.message_id != facts.message_id
                && now_ms.saturating_sub(known.written_at_ms) >= MESSAGE_WRITE_INTERVAL_MS);
        if changed {
            known.facts.clone_from(facts);
        } else {
            known.facts.message_id.clone_from(&facts.message_id);
        }
        if stale {
            known.written_at_ms = now_ms;
        }
        stale
    }

    /// Takes a chat from the journal; call it for the least recently used chat first.
    pub fn restore(&mut self, Chat { id, facts }: Chat, written_at_ms: i64) {
        self.0.insert(id, RememberedChat { facts, written_at_ms });
    }

    /// What is known about a chat.
    pub fn facts(&self, chat: &ChatId) -> Option<&ChatFacts> {
        self.0.peek(chat).map(|known| &known.facts)
    }

    /// The chat with that id on any platform; the most recently used one if there are several.
    pub fn find(&self, chat: &str) -> Option<&ChatId> {
        self.0.recent_keys().find(|known| known.chat == chat)
    }

    /// Every chat, the most recently used first.
    pub fn all(&self) -> impl Iterator<Item = Chat> {
        self.those(|_| true)
    }

    /// Every direct message, the most recently used first.
    pub fn direct(&self) -> impl Iterator<Item = Chat> {
        self.those(ChatFacts::is_direct)
    }

    fn those(&self, which: impl Fn(&ChatFacts) -> bool) -> impl Iterator<Item = Chat> {
        let known = self.0.recent_keys();
        known.filter_map(move |id| {
            let facts = self.facts(id).filter(|facts| which(facts))?;
            Some(Chat {
                id: id.clone(),
                facts: facts.clone(),
            })
        })
    }

    /// Number of known chats.
    pub fn count(&self) -> usize {
        self.0.len()
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

    fn said(chat_id: &str, user: &str, message: &str) -> Chat {
        Chat {
            id: chat(chat_id),
            facts: facts(user, message),
        }
    }

    #[test]
    fn the_least_recently_used_chat_is_dropped_first() {
        let mut memory = ChatMemory::new(2);
        memory.learn(&said("a", "u", "1"), 0);
        memory.learn(&said("b", "u", "1"), 0);
        memory.learn(&said("a", "u", "2"), 0);
        memory.learn(&said("c", "u", "1"), 0);
        assert!(memory.facts(&chat("b")).is_none() && memory.facts(&chat("a")).is_some());
        assert_eq!(memory.count(), 2);
        assert_eq!(memory.find("a"), Some(&chat("a")));
    }

    #[test]
    fn facts_are_written_immediately_and_the_last_message_now_and_then() {
        let mut memory = ChatMemory::new(8);
        assert!(memory.learn(&said("a", "u", "1"), 0));
        assert!(!memory.learn(&said("a", "u", "2"), 1_000));
        assert!(memory.learn(&said("a", "v", "3"), 2_000));
        assert!(memory.learn(&said("a", "v", "4"), 62_000));
    }

    #[test]
    fn what_is_written_is_what_serde_writes() {
        let text = |text: &str| Some(SmolStr::from(text));
        let full = ChatFacts {
            scope_id: text("g \"1\""),
            user_id: text("u\n\u{1}"),
            chat_type: text("dm"),
            profile: text("p\\"),
            thread_id: text("\u{fc}\u{1f600}"),
            message_id: text("9"),
            language: text("de-AT"),
        };
        for facts in [full, facts("u", "1"), ChatFacts::default()] {
            let written = facts.to_json();
            assert_eq!(written, serde_json::to_string(&facts).unwrap());
            assert_eq!(serde_json::from_str::<ChatFacts>(&written).unwrap(), facts);
        }
    }

    #[test]
    fn tags_contain_only_what_is_known() {
        let facts = ChatFacts {
            scope_id: Some("g".into()),
            user_id: Some("u".into()),
            ..ChatFacts::default()
        };
        assert_eq!(
            serde_json::Value::from(facts.tags()),
            serde_json::json!({"scope_id": "g", "user_id": "u"})
        );
    }
}
