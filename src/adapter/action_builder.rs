//! Builds the ops of one chat that people read: target, reply anchor, tags.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use smallvec::{SmallVec, smallvec};
use smol_str::SmolStr;

use super::chats::{Chat, ChatFacts, ChatId};
use super::slack::{SlackConfig, has_new_link, is_slack};
use super::split::{fits, split};
use super::stream::StreamSettings;
use crate::wire::{Action, CapabilityDescriptor, LenUnit, Metadata};
use crate::words::Language;

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
#[derive(Clone, Debug)]
pub(super) struct ActionBuilder {
    pub(super) chat: Arc<Chat>,
    /// Whether what people read names the answered message.
    is_anchored: bool,
    /// Hints of ops that carry text: how it is formatted.
    formats: Metadata,
    /// Hints of new messages: what Slack previews.
    previews: Metadata,
    /// Longest message, in `unit`.
    pub(super) limit: usize,
    pub(super) unit: LenUnit,
    /// The language of the chat's reader.
    pub(super) language: Language,
}

/// An [`ActionBuilder`] as the journal keeps it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ActionBuilder")]
pub(super) struct KeptBuilder {
    #[serde(getter = "ActionBuilder::chat_id")]
    chat: ChatId,
    #[serde(getter = "ActionBuilder::facts")]
    facts: ChatFacts,
    is_anchored: bool,
    formats: Metadata,
    previews: Metadata,
    limit: usize,
    unit: LenUnit,
    language: Language,
}

impl From<KeptBuilder> for ActionBuilder {
    fn from(kept: KeptBuilder) -> Self {
        Self {
            chat: Arc::new(Chat {
                id: kept.chat,
                facts: kept.facts,
            }),
            is_anchored: kept.is_anchored,
            formats: kept.formats,
            previews: kept.previews,
            limit: kept.limit,
            unit: kept.unit,
            language: kept.language,
        }
    }
}

impl ActionBuilder {
    pub(super) fn new(
        chat: Arc<Chat>,
        descriptor: Option<&CapabilityDescriptor>,
        settings: &StreamSettings,
        slack: &SlackConfig,
        language: Language,
    ) -> Self {
        let (limit, unit) = CapabilityDescriptor::message_limit(descriptor);
        let is_anchored = !is_slack(&chat.id) || chat.facts.thread_id.is_some() || slack.anchors(&chat);
        Self {
            formats: formats(settings, descriptor),
            previews: previews(settings, &chat.id),
            is_anchored,
            chat,
            limit,
            unit,
            language,
        }
    }

    fn chat_id(&self) -> &ChatId {
        &self.chat.id
    }

    fn facts(&self) -> &ChatFacts {
        &self.chat.facts
    }

    /// Whether the chat is a direct message.
    pub(super) fn is_direct(&self) -> bool {
        self.chat.facts.is_direct()
    }

    /// The message that is answered: what reactions go on.
    pub(super) fn answered(&self) -> Option<SmolStr> {
        self.chat.facts.message_id.clone()
    }

    /// The message that a reply names.
    pub(super) fn anchor(&self) -> Option<SmolStr> {
        self.answered().filter(|_| self.is_anchored)
    }

    /// Tags of typing and reactions, which belong to the answered message wherever the reply goes.
    pub(super) fn indicator_tags(&self) -> Metadata {
        self.threaded(self.chat.facts.message_id.as_ref())
    }

    /// Tags of an op that people read.
    pub(super) fn tags(&self) -> Metadata {
        self.threaded(self.chat.facts.message_id.as_ref().filter(|_| self.is_anchored))
    }

    /// Slack ignores `reply_to`: a reply is a message in the thread of the message that it answers.
    fn threaded(&self, anchor: Option<&SmolStr>) -> Metadata {
        let mut tags = self.chat.facts.tags();
        if let Some(anchor) =
            anchor.filter(|_| is_slack(&self.chat.id) && self.chat.facts.thread_id.is_none())
        {
            tags.insert("thread_id", anchor.as_str());
        }
        tags
    }

    fn text_tags(&self, kind: TextKind) -> Metadata {
        let mut tags = self.tags();
        tags.extend(self.formats.clone());
        let flag = match kind {
            TextKind::Plain => return tags,
            TextKind::Growing => "expect_edits",
            TextKind::Final => "notify",
        };
        tags.insert(flag, true);
        tags
    }

    /// A new message.
    pub(super) fn send(&self, content: String, reply_to: Option<SmolStr>, kind: TextKind) -> Action {
        let mut metadata = self.text_tags(kind);
        metadata.extend(self.previews.clone());
        Action::Send {
            chat_id: self.chat.id.chat.clone(),
            content,
            reply_to,
            metadata,
        }
    }

    /// A message that replies to the answered message.
    pub(super) fn reply(&self, content: String, kind: TextKind) -> Action {
        self.send(content, self.anchor(), kind)
    }

    /// A message that replies to nothing: progress, or a notice.
    pub(super) fn message(&self, content: String, kind: TextKind) -> Action {
        self.send(content, None, kind)
    }

    /// The tags of an attachment that is part of the answer.
    pub(super) fn media_tags(&self) -> Metadata {
        let mut tags = self.tags();
        tags.extend(self.previews.clone());
        tags.insert("notify", true);
        tags
    }

    /// A message's new text.
    pub(super) fn edit(&self, message_id: &str, content: String, kind: TextKind) -> Action {
        Action::Edit {
            chat_id: self.chat.id.chat.clone(),
            message_id: message_id.into(),
            content,
            metadata: self.text_tags(kind),
        }
    }

    /// Removes a message.
    pub(super) fn delete(&self, message_id: SmolStr) -> Action {
        Action::Delete {
            chat_id: self.chat.id.chat.clone(),
            message_id,
            metadata: self.tags(),
        }
    }

    /// A native draft's new text.
    pub(super) fn draft(&self, draft_id: u64, content: String, sealed: bool, kind: TextKind) -> Action {
        Action::Draft {
            chat_id: self.chat.id.chat.clone(),
            draft_id,
            content,
            r#final: sealed,
            metadata: self.text_tags(kind),
        }
    }

    /// The numbered parts of a whole text; none for a blank one.
    pub(super) fn parts(&self, text: String) -> SmallVec<[String; 1]> {
        if text.trim().is_empty() {
            return SmallVec::new();
        }
        if fits(&text, self.limit, self.unit) {
            return smallvec![text];
        }
        split(&text, self.limit, self.unit).into()
    }

    /// Whether links are to be previewed by all means.
    pub(super) fn forces_previews(&self) -> bool {
        self.previews.iter().any(|(_, preview)| *preview == true)
    }

    /// Whether a message that was posted with another text has to be posted anew for its links to be previewed.
    pub(super) fn needs_new_post(&self, text: &str, posted: &str) -> bool {
        self.forces_previews() && has_new_link(text, posted)
    }
}

/// The configured formatting hints, where the platform supports them.
fn formats(settings: &StreamSettings, descriptor: Option<&CapabilityDescriptor>) -> Metadata {
    let mut hints = Metadata::new();
    if descriptor.is_some_and(|descriptor| descriptor.supports_block_formatting) {
        let formats: Metadata = [
            ("rich_blocks", settings.rich_blocks),
            ("markdown_blocks", settings.markdown_blocks),
        ]
        .into_iter()
        .filter(|(_, enabled)| *enabled)
        .map(|(key, _)| (key, true))
        .collect();
        if !formats.is_empty() {
            hints.insert("format_hints", formats);
        }
    }
    hints
}

/// The configured previews, on Slack.
fn previews(settings: &StreamSettings, chat: &ChatId) -> Metadata {
    let previews = [
        ("unfurl_links", settings.unfurl_links),
        ("unfurl_media", settings.unfurl_media),
    ];
    previews
        .into_iter()
        .filter(|_| is_slack(chat))
        .filter_map(|(key, preview)| Some((key, preview?)))
        .collect()
}
