//! Who wrote a message: a person, a bot, or a chat that somebody writes as.

use serde_json::Value;

use super::bot::Bot;
use super::field;
use crate::text::one_line;

/// Longest name in characters.
const MAX_NAME: usize = 128;

/// The author of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sender {
    /// The person's id; an anonymous administrator's group, or the channel that somebody writes as.
    pub(super) id: Option<i64>,
    /// The name to show; may be empty.
    pub(super) name: String,
    /// The name after the `@`.
    pub(super) handle: Option<String>,
    /// Whether it is a bot. Who writes as a chat is none, though Telegram puts one of its own in the person's place.
    pub(super) is_bot: bool,
}

impl Sender {
    /// The author of a message. A chat as the author is never the person behind it: nobody has personal rights then.
    pub(super) fn of(message: &Value) -> Self {
        if let Some(chat) = field::object(message, "sender_chat") {
            let signature = field::text(message, "author_signature");
            let name = signature.map_or_else(|| chat_name(chat), |signature| one_line(signature, MAX_NAME));
            return Self {
                id: field::integer(chat, "id"),
                name,
                handle: field::text(chat, "username").map(|handle| one_line(handle, MAX_NAME)),
                is_bot: false,
            };
        }
        field::object(message, "from").map_or_else(Self::default, Self::person)
    }

    /// A person or a bot.
    pub(super) fn person(user: &Value) -> Self {
        Self {
            id: field::integer(user, "id"),
            name: person_name(user),
            handle: field::text(user, "username").map(|handle| one_line(handle, MAX_NAME)),
            is_bot: field::flag(user, "is_bot"),
        }
    }

    /// Whether the bot itself wrote the message.
    pub(super) fn is_own(message: &Value, bot: &Bot) -> bool {
        field::object(message, "from").and_then(|from| field::integer(from, "id")) == Some(bot.id)
    }
}

/// First and last name, else the handle.
pub(super) fn person_name(user: &Value) -> String {
    let [first, last] = ["first_name", "last_name"].map(|key| field::text(user, key).unwrap_or_default());
    let name = one_line(&format!("{first} {last}"), MAX_NAME);
    if name.is_empty() {
        one_line(field::text(user, "username").unwrap_or_default(), MAX_NAME)
    } else {
        name
    }
}

/// A chat's title, else the name of the person that it is with.
pub(super) fn chat_name(chat: &Value) -> String {
    field::text(chat, "title").map_or_else(|| person_name(chat), |title| one_line(title, MAX_NAME))
}

/// Who wrote what was forwarded, or is replied to in another chat.
pub(super) fn origin_name(origin: &Value) -> String {
    if let Some(user) = field::object(origin, "sender_user") {
        return person_name(user);
    }
    if let Some(name) = field::text(origin, "sender_user_name") {
        return one_line(name, MAX_NAME);
    }
    ["sender_chat", "chat"]
        .into_iter()
        .find_map(|key| field::object(origin, key))
        .map_or_else(String::new, chat_name)
}
