//! What is written around a text on its way to a chat: where it goes, what it answers, and its tags.
//!
//! It never decides what is said or when.

use std::sync::Arc;

use crate::adapter::chats::{ChatFacts, ChatId};
use crate::adapter::split::split;
use crate::adapter::stream::StreamSettings;
use crate::wire::{Action, CapabilityDescriptor, FALLBACK_MESSAGE_LENGTH, LenUnit, Metadata, Platform};

/// What a text is to the people who read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// It stands as it is.
    Plain,
    /// It will be edited.
    Growing,
    /// It is the answer: people are told of it.
    Final,
}

/// The outside of every op of one chat.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) chat: Arc<ChatId>,
    facts: Arc<ChatFacts>,
    /// The further tags of ops that carry text.
    hints: Metadata,
    pub(super) limit: usize,
    pub(super) unit: LenUnit,
}

impl Envelope {
    pub(super) fn new(
        chat: Arc<ChatId>,
        facts: Arc<ChatFacts>,
        descriptor: Option<&CapabilityDescriptor>,
    ) -> Self {
        let (limit, unit) = descriptor.map_or((FALLBACK_MESSAGE_LENGTH, LenUnit::Chars), |descriptor| {
            (descriptor.max_message_length, descriptor.length_unit())
        });
        Self {
            chat,
            facts,
            hints: Metadata::new(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            unit,
        }
    }

    /// The same with the operator's wishes for texts, where the platform understands them.
    pub(super) fn hinted(
        mut self,
        settings: &StreamSettings,
        descriptor: Option<&CapabilityDescriptor>,
    ) -> Self {
        let mut formats = Metadata::new();
        if descriptor.is_some_and(|descriptor| descriptor.supports_block_formatting) {
            for (key, wanted) in [
                ("rich_blocks", settings.rich_blocks),
                ("markdown_blocks", settings.markdown_blocks),
            ] {
                if wanted {
                    formats.insert(key.to_owned(), true.into());
                }
            }
        }
        if !formats.is_empty() {
            self.hints.insert("format_hints".to_owned(), formats.into());
        }
        if is_slack(&self.chat) {
            for (key, wanted) in [
                ("unfurl_links", settings.unfurl_links),
                ("unfurl_media", settings.unfurl_media),
            ] {
                if let Some(wanted) = wanted {
                    self.hints.insert(key.to_owned(), wanted.into());
                }
            }
        }
        self
    }

    /// The message that is answered.
    pub(super) fn anchor(&self) -> Option<String> {
        self.facts.message_id.clone()
    }

    /// The tags of an op without text.
    pub(super) fn tags(&self) -> Metadata {
        let mut tags = self.facts.tags();
        // On Slack a reply is a message in the thread of the message that it answers.
        if is_slack(&self.chat)
            && self.facts.thread_id.is_none()
            && let Some(anchor) = &self.facts.message_id
        {
            tags.insert("thread_id".to_owned(), anchor.as_str().into());
        }
        tags
    }

    /// The tags of an op with text.
    pub(super) fn text_tags(&self, note: Note) -> Metadata {
        let mut tags = self.tags();
        tags.extend(self.hints.clone());
        match note {
            Note::Plain => {}
            Note::Growing => {
                tags.insert("expect_edits".to_owned(), true.into());
            }
            Note::Final => {
                tags.insert("notify".to_owned(), true.into());
            }
        }
        tags
    }

    /// A message that answers.
    pub(super) fn send(&self, content: String, note: Note) -> Action {
        Action::Send {
            chat_id: self.chat.chat.clone(),
            content,
            reply_to: self.anchor(),
            metadata: self.text_tags(note),
        }
    }

    /// A message that answers nothing: progress, or a notice.
    pub(super) fn aside(&self, content: String, note: Note) -> Action {
        Action::Send {
            chat_id: self.chat.chat.clone(),
            content,
            reply_to: None,
            metadata: self.text_tags(note),
        }
    }

    /// A message's new text.
    pub(super) fn edit(&self, message_id: &str, content: String, note: Note) -> Action {
        Action::Edit {
            chat_id: self.chat.chat.clone(),
            message_id: message_id.to_owned(),
            content,
            metadata: self.text_tags(note),
        }
    }

    /// A state of a native stream.
    pub(super) fn draft(&self, draft_id: u64, content: String, sealed: bool, note: Note) -> Action {
        Action::Draft {
            chat_id: self.chat.chat.clone(),
            draft_id,
            content,
            r#final: sealed,
            metadata: self.text_tags(note),
        }
    }

    /// The numbered parts of a text that is said at once; none for a text without content.
    pub(super) fn parts(&self, text: &str) -> Vec<String> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        split(text, self.limit, self.unit)
    }
}

/// Whether the chat is on Slack.
pub(super) fn is_slack(chat: &ChatId) -> bool {
    chat.platform == Platform::SLACK.as_str()
}
