//! What an error of the Bot API means.
//!
//! The code and the parameters count first, the text second: its wording may change. Upper-case codes and texts are
//! compared without regard to case, and anywhere in the description.

use std::time::Duration;

/// The wait when the server limits the rate without saying for how long.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiFault {
    /// The call has no effect because its effect is there already.
    Done,
    /// The chat has a new id.
    Migrated(i64),
    /// The topic was not found.
    NoThread,
    /// The message to reply to was not found.
    NoAnchor,
    /// The message to edit was not found, or cannot be edited any more.
    NoMessage,
    /// The message to edit has a caption, not a text.
    NoText,
    /// The markup cannot be read.
    Markup,
    /// The text is too long.
    TooLong,
    /// The file can only be sent as a document.
    AsDocument,
    /// The server does not have this method.
    NoMethod,
    /// There are no drafts in this chat.
    NoDrafts,
    /// The rate is limited: the call was not made, and may be repeated after this time.
    Limited(Duration),
    /// The call went to the wrong server: repeat it at once.
    Misdirected,
    /// The call failed for now, and may be repeated later.
    Later,
    /// Another program takes this bot's updates.
    Conflict,
    /// The call is refused for good. The code names the reason.
    Refused(&'static str),
    /// The call may or may not have taken effect.
    Unknown,
}

/// Descriptions of a 400, in the order in which they are searched.
const BAD_REQUESTS: &[(&str, ApiFault)] = &[
    ("message is not modified", ApiFault::Done),
    ("topic_not_modified", ApiFault::Done),
    ("message to delete not found", ApiFault::Done),
    ("message can't be deleted", ApiFault::Done),
    ("query is too old", ApiFault::Done),
    ("message thread not found", ApiFault::NoThread),
    ("topic_closed", ApiFault::Refused("topic_closed")),
    ("topic_deleted", ApiFault::Refused("topic_deleted")),
    ("topic_id_invalid", ApiFault::Refused("topic_deleted")),
    ("message to be replied not found", ApiFault::NoAnchor),
    ("replied message not found", ApiFault::NoAnchor),
    ("quote_text_invalid", ApiFault::NoAnchor),
    ("message to edit not found", ApiFault::NoMessage),
    ("message_id_invalid", ApiFault::NoMessage),
    ("message can't be edited", ApiFault::NoMessage),
    ("there is no text in the message to edit", ApiFault::NoText),
    ("can't parse entities", ApiFault::Markup),
    ("message is too long", ApiFault::TooLong),
    ("message_too_long", ApiFault::TooLong),
    ("caption is too long", ApiFault::TooLong),
    ("entities_too_long", ApiFault::TooLong),
    ("chat not found", ApiFault::Refused("chat_not_found")),
    ("not enough rights", ApiFault::Refused("no_rights")),
    ("have no write access", ApiFault::Refused("no_rights")),
    ("no rights to send", ApiFault::Refused("no_rights")),
    ("chat_write_forbidden", ApiFault::Refused("no_rights")),
    ("chat_restricted", ApiFault::Refused("no_rights")),
    ("need administrator rights", ApiFault::Refused("no_rights")),
    ("chat_admin_required", ApiFault::Refused("no_rights")),
    ("the chat is not a forum", ApiFault::Refused("no_topics")),
    ("message text is empty", ApiFault::Refused("empty")),
    ("text must be non-empty", ApiFault::Refused("empty")),
    ("button_data_invalid", ApiFault::Refused("bad_buttons")),
    ("reply markup is too long", ApiFault::Refused("bad_buttons")),
    ("reaction_invalid", ApiFault::Refused("reaction_not_allowed")),
    (
        "reaction isn't available",
        ApiFault::Refused("reaction_not_allowed"),
    ),
    ("message to react not found", ApiFault::Refused("message_gone")),
    ("textdraft_peer_invalid", ApiFault::NoDrafts),
    ("wrong file identifier/http url", ApiFault::Refused("not_fetched")),
    ("failed to get http url content", ApiFault::Refused("not_fetched")),
    (
        "wrong type of the web page content",
        ApiFault::Refused("not_fetched"),
    ),
    ("file is too big", ApiFault::Refused("too_large")),
    ("file is temporarily unavailable", ApiFault::Later),
    ("too big for a photo", ApiFault::AsDocument),
    ("photo_invalid_dimensions", ApiFault::AsDocument),
    ("image_process_failed", ApiFault::AsDocument),
    ("voice_messages_forbidden", ApiFault::AsDocument),
];

/// Descriptions of a 403, which may also come as a 400.
const FORBIDDEN: &[(&str, ApiFault)] = &[
    ("blocked by the user", ApiFault::Refused("blocked")),
    ("user_is_blocked", ApiFault::Refused("blocked")),
    ("user is deactivated", ApiFault::Refused("deactivated")),
    ("bot was kicked", ApiFault::Refused("kicked")),
    ("bot is not a member", ApiFault::Refused("not_a_member")),
    ("group chat was deleted", ApiFault::Refused("chat_deleted")),
    ("can't initiate conversation", ApiFault::Refused("not_started")),
    ("can't send messages to the bot", ApiFault::Refused("is_a_bot")),
    ("can't send messages to bots", ApiFault::Refused("is_a_bot")),
];

impl ApiFault {
    /// The meaning of an error with this code, description and parameters.
    pub fn of(code: i64, description: &str, retry_after: Option<u64>, migrate_to: Option<i64>) -> Self {
        let description = description.to_lowercase();
        let find = |known: &[(&str, Self)]| {
            let found = known.iter().find(|(text, _)| description.contains(text));
            found.map(|(_, fault)| *fault)
        };
        if let Some(chat) = migrate_to {
            return Self::Migrated(chat);
        }
        if code == 429 || retry_after.is_some() {
            let wait = retry_after
                .map(Duration::from_secs)
                .or_else(|| spelled(&description));
            return Self::Limited(wait.unwrap_or(DEFAULT_RETRY_AFTER));
        }
        match code {
            400 => find(BAD_REQUESTS)
                .or_else(|| find(FORBIDDEN))
                .unwrap_or(Self::Refused("bad_request")),
            401 => Self::Refused("unauthorized"),
            403 => find(FORBIDDEN)
                .or_else(|| find(BAD_REQUESTS))
                .unwrap_or(Self::Refused("forbidden")),
            404 if description.contains("method not found") => Self::NoMethod,
            404 => Self::Refused("not_found"),
            409 => Self::Conflict,
            413 => Self::Refused("too_large"),
            421 => Self::Misdirected,
            500.. => Self::Unknown,
            _ => Self::Refused("refused"),
        }
    }

    /// Whether a text that was refused as a rich message may be accepted as formatted text.
    pub fn is_about_rich(self) -> bool {
        match self {
            Self::NoMethod | Self::Markup | Self::TooLong | Self::NoText | Self::NoMessage => true,
            Self::Refused(code) => RICH_ONLY.contains(&code),
            _ => false,
        }
    }

    /// Whether trying again cannot help, whatever is sent. Rights may lack for one kind of message only.
    pub fn is_permanent(self) -> bool {
        self.closes_chat() && self != Self::Refused("no_rights")
    }

    /// Whether a file may be at fault: neither the chat, nor its topic, nor the message that is answered, nor the markup.
    pub fn is_about_files(self) -> bool {
        match self {
            Self::AsDocument | Self::TooLong | Self::NoMethod => true,
            Self::Refused(_) => !self.closes_chat(),
            _ => false,
        }
    }

    /// Whether the bot can send nothing to this chat until its members or their rights change.
    pub fn closes_chat(self) -> bool {
        matches!(
            self,
            Self::Refused(
                "blocked"
                    | "deactivated"
                    | "kicked"
                    | "not_a_member"
                    | "chat_deleted"
                    | "not_started"
                    | "is_a_bot"
                    | "no_rights"
                    | "chat_not_found"
            )
        )
    }
}

/// Reasons for which the same text may be refused as a rich message only.
const RICH_ONLY: [&str; 5] = ["bad_request", "empty", "too_large", "not_fetched", "refused"];

/// The wait that a description names.
fn spelled(description: &str) -> Option<Duration> {
    let (_, rest) = description.split_once("retry after ")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
