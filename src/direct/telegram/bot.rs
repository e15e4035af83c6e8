//! The bot's own account and its capability descriptor.

use serde_json::Value;

use crate::direct::field;
use crate::wire::{ALBUMS, CapabilityDescriptor, TABLES};

/// The ops that a direct bot performs; `draft` comes on top where the operator chose drafts.
const OPS: &[&str] = &[
    "send",
    "edit",
    "typing",
    "delete",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "get_chat_info",
];

/// The bot, as `getMe` describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bot {
    /// The bot's user id.
    pub id: i64,
    /// The user name without the `@`; empty if Telegram gave none.
    pub username: String,
    /// The display name.
    pub name: String,
    /// Whether the bot sees every message of its groups: its privacy mode is off.
    pub reads_all_group_messages: bool,
    /// Whether the bot's private chats have topics.
    pub has_topics: bool,
}

impl Bot {
    /// Reads the result of `getMe`; `None` if it describes no account.
    pub fn from_value(value: &Value) -> Option<Self> {
        let username = field::text(value, "username").unwrap_or_default();
        Some(Self {
            id: field::integer(value, "id").filter(|id| *id > 0)?,
            username: username.to_owned(),
            name: field::text(value, "first_name").unwrap_or(username).to_owned(),
            reads_all_group_messages: field::flag(value, "can_read_all_group_messages"),
            has_topics: field::flag(value, "has_topics_enabled"),
        })
    }

    /// Whether this is the bot's name, with or without the `@`; case does not count.
    pub fn is_named(&self, name: &str) -> bool {
        let name = name.strip_prefix('@').unwrap_or(name);
        !self.username.is_empty() && name.eq_ignore_ascii_case(&self.username)
    }
}

/// What a direct Telegram bot can do, in the contract's words. Drafts stream only in private chats; elsewhere they are
/// refused op by op.
pub fn descriptor(drafts: bool) -> CapabilityDescriptor {
    let drafted = drafts.then_some("draft");
    CapabilityDescriptor {
        label: "Telegram".to_owned(),
        max_message_length: 4096,
        len_unit: "utf16".to_owned(),
        supports_draft_streaming: drafts,
        supports_edit: true,
        supports_threads: true,
        markdown_dialect: Some("markdown_v2".to_owned()),
        emoji: Some("\u{2708}\u{fe0f}".to_owned()),
        supported_ops: (OPS.iter().copied().chain([ALBUMS, TABLES]).chain(drafted))
            .map(str::to_owned)
            .collect(),
        ..CapabilityDescriptor::placeholder("telegram")
    }
}
