//! Builds the ops of one chat that carry text: target, reply anchor, tags.

use std::sync::Arc;

use super::chats::{ChatFacts, ChatId};
use super::split::split;
use super::stream::StreamSettings;
use crate::wire::{Action, CapabilityDescriptor, LenUnit, Metadata, Platform};

/// The role of a text for its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// Complete, without a notification.
    Plain,
    /// Incomplete: edits follow.
    Growing,
    /// The answer: people are notified.
    Final,
}

/// Builds the ops of one chat.
#[derive(Debug)]
pub(super) struct ActionBuilder {
    pub(super) chat: Arc<ChatId>,
    facts: Arc<ChatFacts>,
    /// Further tags of ops that carry text.
    hints: Metadata,
    /// Longest message, in `unit`.
    pub(super) limit: usize,
    pub(super) unit: LenUnit,
}

impl ActionBuilder {
    pub(super) fn new(
        chat: Arc<ChatId>,
        facts: Arc<ChatFacts>,
        descriptor: Option<&CapabilityDescriptor>,
    ) -> Self {
        let (limit, unit) = CapabilityDescriptor::message_limit(descriptor);
        Self {
            chat,
            facts,
            hints: Metadata::new(),
            limit,
            unit,
        }
    }

    /// Adds the configured formatting hints, where the platform supports them.
    pub(super) fn with_hints(
        mut self,
        settings: &StreamSettings,
        descriptor: Option<&CapabilityDescriptor>,
    ) -> Self {
        if descriptor.is_some_and(|descriptor| descriptor.supports_block_formatting) {
            let formats: Metadata = [
                ("rich_blocks", settings.rich_blocks),
                ("markdown_blocks", settings.markdown_blocks),
            ]
            .into_iter()
            .filter(|(_, enabled)| *enabled)
            .map(|(key, _)| (key.to_owned(), true.into()))
            .collect();
            if !formats.is_empty() {
                self.hints.insert("format_hints".to_owned(), formats.into());
            }
        }
        if is_slack(&self.chat) {
            for (key, unfurl) in [
                ("unfurl_links", settings.unfurl_links),
                ("unfurl_media", settings.unfurl_media),
            ] {
                if let Some(unfurl) = unfurl {
                    self.hints.insert(key.to_owned(), unfurl.into());
                }
            }
        }
        self
    }

    /// Id of the message that is answered.
    pub(super) fn anchor(&self) -> Option<String> {
        self.facts.message_id.clone()
    }

    /// Tags of an op without text.
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

    fn text_tags(&self, kind: TextKind) -> Metadata {
        let mut tags = self.tags();
        tags.extend(self.hints.clone());
        let flag = match kind {
            TextKind::Plain => return tags,
            TextKind::Growing => "expect_edits",
            TextKind::Final => "notify",
        };
        tags.insert(flag.to_owned(), true.into());
        tags
    }

    /// A message that replies to the answered message.
    pub(super) fn reply(&self, content: String, kind: TextKind) -> Action {
        Action::Send {
            chat_id: self.chat.chat.clone(),
            content,
            reply_to: self.anchor(),
            metadata: self.text_tags(kind),
        }
    }

    /// A message that replies to nothing: progress, or a notice.
    pub(super) fn message(&self, content: String, kind: TextKind) -> Action {
        Action::Send {
            chat_id: self.chat.chat.clone(),
            content,
            reply_to: None,
            metadata: self.text_tags(kind),
        }
    }

    /// A message's new text.
    pub(super) fn edit(&self, message_id: &str, content: String, kind: TextKind) -> Action {
        Action::Edit {
            chat_id: self.chat.chat.clone(),
            message_id: message_id.to_owned(),
            content,
            metadata: self.text_tags(kind),
        }
    }

    /// A native draft's new text.
    pub(super) fn draft(&self, draft_id: u64, content: String, sealed: bool, kind: TextKind) -> Action {
        Action::Draft {
            chat_id: self.chat.chat.clone(),
            draft_id,
            content,
            r#final: sealed,
            metadata: self.text_tags(kind),
        }
    }

    /// The numbered parts of a whole text; none for a blank one.
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
