//! The bot's own account and its capability descriptor.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::direct::field;
use crate::wire::{ALBUMS, CapabilityDescriptor};

/// What the gateway is asked for: guilds, messages of guilds, direct messages, and their content.
pub const INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;

/// What the bot needs in a server: add reactions, view channels, send messages, embed links, attach files, read the history, open
/// threads, and send messages in them.
const PERMISSIONS: u64 = 1 << 6 | 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 35 | 1 << 38;

/// Roles of the bot that are remembered: one connection has fewer servers.
const MAX_ROLES: usize = 2500;

/// The flags of an application that may read the content of messages: in many servers, and in few.
const CONTENT_FLAGS: u64 = 1 << 18 | 1 << 19;

/// Where somebody invites the bot to a server, with exactly the permissions that it needs.
pub fn invite_link(application: &str) -> String {
    let id: String = application.chars().filter(char::is_ascii_digit).collect();
    format!(
        "https://discord.com/oauth2/authorize?client_id={id}&scope=bot+applications.commands&permissions={PERMISSIONS}"
    )
}

/// Whether the bot of an application may read what people write in channels; `None` if Discord does not say.
pub fn reads_content(application: &Value) -> Option<bool> {
    let flags = application.get("flags").and_then(Value::as_u64)?;
    Some(flags & CONTENT_FLAGS != 0)
}

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
    "send_media",
];

/// The bot, as the gateway or `GET /users/@me` describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscordBot {
    /// The bot's user id.
    pub id: String,
    /// The user name.
    pub name: String,
    /// The id of its application; for a bot of today it is the user id.
    #[serde(default)]
    pub application: String,
    /// Its own roles, one in each server: people choose them for the bot, because they have its name. Roles that others hold too are
    /// none of them.
    #[serde(default)]
    pub roles: BTreeSet<String>,
}

impl DiscordBot {
    /// Reads a user object; `None` if it has no id.
    pub fn from_user(user: &Value) -> Option<Self> {
        let id = field::text(user, "id")?;
        Some(Self {
            id: id.to_owned(),
            application: id.to_owned(),
            name: field::text(user, "username").unwrap_or_default().to_owned(),
            roles: BTreeSet::new(),
        })
    }

    /// Learns of a role of a server.
    pub fn learn_role(&mut self, role: &Value) {
        let of_bot = field::object(role, "tags").and_then(|tags| field::text(tags, "bot_id"));
        if let Some(id) = field::text(role, "id")
            && of_bot == Some(&self.id)
            && self.roles.len() < MAX_ROLES
        {
            self.roles.insert(id.to_owned());
        }
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
        supported_ops: OPS.iter().copied().chain([ALBUMS]).map(str::to_owned).collect(),
        ..CapabilityDescriptor::placeholder("discord")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_invitation_names_exactly_what_is_needed() {
        assert_eq!(
            invite_link("5"),
            "https://discord.com/oauth2/authorize?client_id=5&scope=bot+applications.commands&permissions=309237763136"
        );
        assert_eq!(reads_content(&json!({"flags": 1 << 19})), Some(true));
        assert_eq!(reads_content(&json!({"flags": 0})), Some(false));
        assert_eq!(reads_content(&json!({})), None);
    }
}
