//! The content of the chats: messages, drafts and threads, and where messages came from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Value, json};

use smol_str::SmolStr;

use super::record::BoundedLog;
use crate::wire::{Action, Metadata};

const MESSAGES: usize = 20_000;
const MAX_EXTRAS: usize = 10_000;

/// A message that the gateway put in a chat.
#[derive(Clone, Debug)]
pub struct SentMessage {
    /// The id that the connector gave it.
    pub message_id: String,
    /// Its platform: from the frame, else from the chat, else the first identity's.
    pub platform: String,
    /// The chat; empty for a follow-up, which names a session.
    pub chat_id: String,
    /// Its text now, with every edit.
    pub text: String,
    /// The message that it answers, from `reply_to` or `metadata.reply_to_message_id`.
    pub reply_to: Option<String>,
    /// How often it was edited.
    pub edits: usize,
    /// Whether more edits are announced: made with `expect_edits`, and without its last text yet.
    pub growing: bool,
    /// When its text last changed.
    pub changed_at: Instant,
    /// Whether it was deleted.
    pub deleted: bool,
    /// The op that made it, as it came.
    pub action: Action,
}

/// A thread that the gateway asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedThread {
    /// Its id.
    pub thread_id: String,
    /// The chat it was opened in.
    pub chat_id: String,
    /// Its name now.
    pub name: String,
}

/// Everything in the chats.
pub struct ChatContents {
    pub messages: BoundedLog<SentMessage>,
    pub drafts: BTreeMap<(String, u64), String>,
    sealed: BoundedLog<(String, u64)>,
    /// When typing was last shown, by chat.
    typing: BTreeMap<String, Instant>,
    pub threads: BoundedLog<OpenedThread>,
    capabilities: BTreeSet<(String, String)>,
}

impl ChatContents {
    pub fn new() -> Self {
        Self {
            messages: BoundedLog::new(MESSAGES),
            drafts: BTreeMap::new(),
            sealed: BoundedLog::new(MAX_EXTRAS),
            typing: BTreeMap::new(),
            threads: BoundedLog::new(MAX_EXTRAS),
            capabilities: BTreeSet::new(),
        }
    }

    /// Puts a message in a chat and names it.
    pub fn post(
        &mut self,
        action: &Action,
        text: &str,
        reply_to: Option<&SmolStr>,
        metadata: &Metadata,
        platform: &str,
    ) -> String {
        let message_id = format!("m{}", self.messages.pushed() + 1);
        self.messages.push(SentMessage {
            message_id: message_id.clone(),
            platform: platform.to_owned(),
            chat_id: action.chat_id().unwrap_or_default().to_owned(),
            text: text.to_owned(),
            reply_to: reply_to.map(SmolStr::to_string).or_else(|| {
                let anchor = metadata.get("reply_to_message_id")?;
                anchor.as_str().map(str::to_owned)
            }),
            edits: 0,
            growing: is_set(metadata, "expect_edits"),
            changed_at: Instant::now(),
            deleted: false,
            action: action.clone(),
        });
        message_id
    }

    /// Changes the text of a message; returns whether it is there.
    pub fn edit(&mut self, chat_id: &str, message_id: &str, text: &str, metadata: &Metadata) -> bool {
        let Some(sent) = self.standing(chat_id, message_id) else {
            return false;
        };
        text.clone_into(&mut sent.text);
        sent.edits += 1;
        sent.growing = !metadata.has_last_text() && (sent.growing || is_set(metadata, "expect_edits"));
        sent.changed_at = Instant::now();
        true
    }

    /// A message of ours that is still there.
    pub fn standing(&mut self, chat_id: &str, message_id: &str) -> Option<&mut SentMessage> {
        let number: u64 = message_id.strip_prefix('m')?.parse().ok()?;
        self.messages
            .get_mut(number.checked_sub(1)?)
            .filter(|sent| sent.chat_id == chat_id && !sent.deleted)
    }

    /// Shows a draft; returns whether there was room for it.
    pub fn draft(&mut self, chat_id: &str, draft_id: u64, text: &str) -> bool {
        let key = (chat_id.to_owned(), draft_id);
        let room = self.drafts.len() < MAX_EXTRAS || self.drafts.contains_key(&key);
        if room {
            self.drafts.insert(key, text.to_owned());
        }
        room
    }

    /// Whether a draft became a message already.
    pub fn is_sealed(&self, chat_id: &str, draft_id: u64) -> bool {
        self.sealed
            .iter()
            .any(|(chat, draft)| chat == chat_id && *draft == draft_id)
    }

    /// Ends a draft.
    pub fn seal(&mut self, chat_id: &str, draft_id: u64) {
        let key = (chat_id.to_owned(), draft_id);
        self.drafts.remove(&key);
        self.sealed.push(key);
    }

    /// Forgets the previews in a chat.
    pub fn clear_previews(&mut self, chat_id: &str) {
        self.drafts.retain(|(chat, _), _| chat != chat_id);
    }

    /// Typing is shown in a chat.
    pub fn type_in(&mut self, chat_id: &str) {
        if self.typing.len() < MAX_EXTRAS || self.typing.contains_key(chat_id) {
            self.typing.insert(chat_id.to_owned(), Instant::now());
        }
    }

    /// When typing was last shown in a chat.
    pub fn typed_in(&self, chat_id: &str) -> Option<Instant> {
        self.typing.get(chat_id).copied()
    }

    /// Opens a thread and names it.
    pub fn open_thread(&mut self, chat_id: &str, name: &str) -> String {
        let thread_id = format!("t{}", self.threads.pushed() + 1);
        self.threads.push(OpenedThread {
            thread_id: thread_id.clone(),
            chat_id: chat_id.to_owned(),
            name: name.to_owned(),
        });
        thread_id
    }

    /// Binds a capability to a session.
    pub fn grant(&mut self, session_key: &str, kind: &str) {
        if self.capabilities.len() < MAX_EXTRAS {
            self.capabilities
                .insert((session_key.to_owned(), kind.to_owned()));
        }
    }

    /// Whether a capability is bound to a session.
    pub fn is_granted(&self, session_key: &str, kind: &str) -> bool {
        self.capabilities
            .contains(&(session_key.to_owned(), kind.to_owned()))
    }
}

fn is_set(metadata: &Metadata, flag: &str) -> bool {
    metadata.get(flag) == Some(&Value::Bool(true))
}

const LIMIT: usize = 10_000;

/// Chats by id; further ones than the limit are not learnt.
#[derive(Default)]
pub struct DevChats {
    sources: BTreeMap<String, Value>,
}

impl DevChats {
    /// Learns the chat that an event comes from.
    pub fn learn(&mut self, event: &Value) {
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
    pub fn source(&self, chat_id: &str) -> Option<&Value> {
        self.sources.get(chat_id)
    }

    /// The chat's platform.
    pub fn platform(&self, chat_id: &str) -> Option<&str> {
        self.source(chat_id)?["platform"].as_str()
    }

    /// The answer to `get_chat_info`.
    pub fn info(&self, chat_id: &str) -> Value {
        let field = |key: &str| self.source(chat_id).and_then(|source| source[key].as_str());
        json!({
            "name": field("chat_name").unwrap_or(chat_id),
            "type": field("chat_type").unwrap_or("dm"),
        })
    }
}
