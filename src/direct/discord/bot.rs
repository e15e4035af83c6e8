//! The bot's own account and its capability descriptor.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::direct::field;
use crate::wire::CapabilityDescriptor;

/// What the gateway is asked for: guilds, messages of guilds, direct messages, and their content.
pub const INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;

/// The ops that a direct bot performs.
const OPS: &[&str] = &[
    "send",
    "edit",
    "typing",
    "delete",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "get_chat_info",
];

/// The bot, as the gateway or `GET /users/@me` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscordBot {
    /// The bot's user id.
    pub id: String,
    /// The user name.
    pub name: String,
}

impl DiscordBot {
    /// Reads a user object; `None` if it has no id.
    pub fn from_user(user: &Value) -> Option<Self> {
        Some(Self {
            id: field::text(user, "id")?.to_owned(),
            name: field::text(user, "username").unwrap_or_default().to_owned(),
        })
    }
}

/// What a direct Discord bot can do, in the contract's words.
pub fn descriptor() -> CapabilityDescriptor {
    CapabilityDescriptor {
        label: "Discord".to_owned(),
        max_message_length: 2000,
        len_unit: "chars".to_owned(),
        supports_edit: true,
        supports_threads: true,
        markdown_dialect: Some("discord".to_owned()),
        emoji: Some("\u{1f3ae}".to_owned()),
        supported_ops: OPS.iter().map(|op| (*op).to_owned()).collect(),
        ..CapabilityDescriptor::placeholder("discord")
    }
}
