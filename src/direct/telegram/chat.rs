//! A chat object of the Bot API: its kind, its type in the contract's words, and its name.

use serde_json::Value;

use crate::direct::field;
use crate::text::one_line;

/// Longest name in characters.
pub(super) const MAX_NAME: usize = 128;

/// The kind of chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatPlace {
    Private,
    Group,
    Channel,
}

impl ChatPlace {
    pub(super) fn of(chat: &Value) -> Self {
        match field::text(chat, "type") {
            Some("private") => Self::Private,
            Some("channel") => Self::Channel,
            // People have positive ids, groups and channels negative ones.
            None if field::integer(chat, "id").is_some_and(|id| id > 0) => Self::Private,
            _ => Self::Group,
        }
    }
}

/// The type of a chat in the contract's words.
pub(super) fn chat_type(chat: &Value) -> &'static str {
    match ChatPlace::of(chat) {
        ChatPlace::Private => "dm",
        ChatPlace::Channel => "channel",
        ChatPlace::Group if field::flag(chat, "is_forum") => "forum",
        ChatPlace::Group => "group",
    }
}

/// A chat's title, else the name of the person in it.
pub(super) fn chat_name(chat: &Value) -> String {
    field::text(chat, "title").map_or_else(|| person_name(chat), |title| one_line(title, MAX_NAME))
}

/// First and last name, else the user name.
pub(super) fn person_name(user: &Value) -> String {
    let [first, last] = ["first_name", "last_name"].map(|key| field::text(user, key).unwrap_or_default());
    let name = one_line(&format!("{first} {last}"), MAX_NAME);
    if name.is_empty() {
        one_line(field::text(user, "username").unwrap_or_default(), MAX_NAME)
    } else {
        name
    }
}
