//! The memory between ops: the messages of texts, texts that were sent in part, topics, chats that moved.
//!
//! The cache is bounded, and correctness does not need it: a forgotten entry costs a call or a repeated part.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use crate::collections::BoundedCache;
use crate::direct::telegram::text::RichMessages;
use crate::direct::text::Styled;
use crate::wire::Action;

/// Texts whose messages are remembered.
const MAX_TEXTS: usize = 4096;
/// Texts that were sent in part.
const MAX_PARTIAL: usize = 256;
/// Chats and topics of each kind that are remembered.
const MAX_CHATS: usize = 4096;

/// A message that shows a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShownPart {
    pub(super) id: i64,
    /// A hash of the text and styles that the message shows, if they are known.
    pub(super) content: Option<u64>,
}

impl ShownPart {
    /// A message of which only the id is known.
    pub(super) fn known(id: i64) -> Self {
        Self { id, content: None }
    }

    /// Whether the message is known to show exactly this part.
    pub(super) fn shows(&self, part: &Styled) -> bool {
        self.content == Some(content_hash(part))
    }
}

/// A hash of a text and its styles.
pub(super) fn content_hash(part: &Styled) -> u64 {
    hash_of(&(&part.text, &part.spans))
}

pub(super) fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The messages of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownText {
    pub(super) parts: Vec<ShownPart>,
    /// Whether the last message has buttons.
    pub(super) has_buttons: bool,
}

#[derive(Clone, Debug)]
struct TopicEntry {
    name: String,
    /// Whether this bot opened the topic.
    own: bool,
}

/// The memory between ops.
#[derive(Debug)]
pub struct OutboundCache {
    /// Texts by chat and by the message id in the op's result.
    texts: BoundedCache<(i64, i64), ShownText>,
    /// The parts that were sent of an unfinished text.
    partial: BoundedCache<u64, Vec<ShownPart>>,
    moved: BoundedCache<i64, i64>,
    /// Chats that take nothing any more, with the reason.
    closed: BoundedCache<i64, &'static str>,
    topics: BoundedCache<(i64, i64), TopicEntry>,
    /// Chats without drafts.
    without_drafts: BoundedCache<i64, ()>,
    server_has_drafts: bool,
    rich: RichMessages,
    /// Rich messages that the server refused, by a hash of their Markdown.
    refused_rich: BoundedCache<u64, ()>,
}

impl Default for OutboundCache {
    fn default() -> Self {
        Self::new()
    }
}

impl OutboundCache {
    /// Nothing was sent yet.
    pub fn new() -> Self {
        Self {
            texts: BoundedCache::new(MAX_TEXTS),
            partial: BoundedCache::new(MAX_PARTIAL),
            moved: BoundedCache::new(MAX_CHATS),
            closed: BoundedCache::new(MAX_CHATS),
            topics: BoundedCache::new(MAX_CHATS),
            without_drafts: BoundedCache::new(MAX_CHATS),
            server_has_drafts: true,
            rich: RichMessages::Never,
            refused_rich: BoundedCache::new(MAX_PARTIAL),
        }
    }

    /// A group became a supergroup.
    pub fn chat_moved(&mut self, from: i64, to: i64) {
        if from != to {
            self.moved.insert(from, to);
        }
    }

    /// A chat takes nothing any more; `true` if that or its reason is new.
    pub(super) fn chat_closed(&mut self, chat: i64, reason: &'static str) -> bool {
        self.closed.insert(chat, reason) != Some(reason)
    }

    /// Something reached a chat.
    pub(super) fn chat_open(&mut self, chat: i64) {
        self.closed.remove(&chat);
    }

    /// The current id of a chat.
    pub fn chat_now(&mut self, chat: i64) -> i64 {
        self.moved.get(&chat).copied().unwrap_or(chat)
    }

    /// A topic has this name now.
    pub fn topic_named(&mut self, chat: i64, thread: i64, name: &str) {
        let own = self.topics.get(&(chat, thread)).is_some_and(|topic| topic.own);
        let name = name.to_owned();
        self.topics.insert((chat, thread), TopicEntry { name, own });
    }

    pub(super) fn topic_opened(&mut self, chat: i64, thread: i64, name: &str) {
        let name = name.to_owned();
        self.topics.insert((chat, thread), TopicEntry { name, own: true });
    }

    /// A topic's name, if it is known.
    pub fn topic_name(&mut self, chat: i64, thread: i64) -> Option<&str> {
        self.topics.get(&(chat, thread)).map(|topic| topic.name.as_str())
    }

    pub(super) fn opened_topic(&mut self, chat: i64, thread: i64) -> bool {
        self.topics.get(&(chat, thread)).is_some_and(|topic| topic.own)
    }

    /// Whether a chat can show drafts: private chats can, unless Telegram said otherwise.
    pub fn has_drafts(&self, chat: i64) -> bool {
        chat > 0 && self.server_has_drafts && self.without_drafts.peek(&chat).is_none()
    }

    pub(super) fn no_drafts_in(&mut self, chat: i64) {
        self.without_drafts.insert(chat, ());
    }

    /// The server has no drafts.
    pub fn no_drafts(&mut self) {
        self.server_has_drafts = false;
    }

    /// Chooses which texts are sent as rich messages from now on.
    pub fn use_rich(&mut self, rich: RichMessages) {
        self.rich = rich;
    }

    /// Whether some texts are sent as rich messages.
    pub fn has_rich(&self) -> bool {
        self.rich == RichMessages::Tables
    }

    /// The server refused a rich message: its text is sent as formatted text, also when it is sent again.
    pub(super) fn rich_refused(&mut self, markdown: &str) {
        self.refused_rich.insert(hash_of(&markdown), ());
    }

    pub(super) fn is_rich_refused(&self, markdown: &str) -> bool {
        self.refused_rich.peek(&hash_of(&markdown)).is_some()
    }

    /// The messages of a text, by the message id in its op's result.
    pub(super) fn text(&mut self, chat: i64, id: i64) -> ShownText {
        let known = self.texts.get(&(chat, id)).cloned();
        known.unwrap_or_else(|| ShownText {
            parts: vec![ShownPart::known(id)],
            has_buttons: false,
        })
    }

    /// Whether an op edits a message that is known to have buttons.
    pub fn edits_buttons(&mut self, action: &Action) -> bool {
        let Action::Edit {
            chat_id, message_id, ..
        } = action
        else {
            return false;
        };
        let (Ok(chat), Ok(id)) = (chat_id.parse(), message_id.parse()) else {
            return false;
        };
        let chat = self.chat_now(chat);
        self.texts.get(&(chat, id)).is_some_and(|text| text.has_buttons)
    }

    pub(super) fn remember(&mut self, chat: i64, id: i64, text: ShownText) {
        self.texts.insert((chat, id), text);
    }

    pub(super) fn forget(&mut self, chat: i64, id: i64) {
        self.texts.remove(&(chat, id));
    }

    pub(super) fn sent_in_part(&mut self, key: u64, parts: Vec<ShownPart>) {
        if !parts.is_empty() {
            self.partial.insert(key, parts);
        }
    }

    /// The parts of an unfinished text that were sent.
    pub(super) fn resume(&mut self, key: u64) -> Vec<ShownPart> {
        self.partial.remove(&key).unwrap_or_default()
    }

    /// The number of entries of all kinds.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.texts.len() + self.partial.len() + self.moved.len() + self.topics.len() + self.refused_rich.len()
    }
}
