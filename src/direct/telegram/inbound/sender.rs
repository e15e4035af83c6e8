//! The author of a message: a person, a bot, or a chat that somebody writes as.

use serde_json::Value;

use crate::direct::field;
use crate::direct::telegram::bot::Bot;
use crate::direct::telegram::chat::{MAX_NAME, chat_name, person_name};
use crate::text::one_line;

/// Longest tag of a language.
const MAX_LANGUAGE: usize = 35;

/// The author of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sender {
    /// The id of the person, of an anonymous administrator's group, or of the channel that somebody writes as.
    pub(super) id: Option<i64>,
    /// The display name; may be empty.
    pub(super) name: String,
    /// The user name without the `@`.
    pub(super) handle: Option<String>,
    /// Whether the author is a bot. A chat is not, though Telegram names one of its own bots as the person then.
    pub(super) is_bot: bool,
    /// The language of the person's client.
    pub(super) language: Option<String>,
}

impl Sender {
    /// The author of a message. A chat as the author never stands for the person behind it: nobody has personal rights then.
    pub(super) fn of(message: &Value) -> Self {
        if let Some(chat) = field::object(message, "sender_chat") {
            let signature = field::text(message, "author_signature");
            let name = signature.map_or_else(|| chat_name(chat), |signature| one_line(signature, MAX_NAME));
            return Self {
                id: field::integer(chat, "id"),
                name,
                handle: field::text(chat, "username").map(|handle| one_line(handle, MAX_NAME)),
                is_bot: false,
                language: None,
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
            language: field::text(user, "language_code").map(|tag| one_line(tag, MAX_LANGUAGE)),
        }
    }

    /// Whether the bot itself wrote the message.
    pub(super) fn is_own(message: &Value, bot: &Bot) -> bool {
        field::object(message, "from").and_then(|from| field::integer(from, "id")) == Some(bot.id)
    }
}

/// The name of the author of a forwarded message, or of a message in another chat that is replied to.
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
