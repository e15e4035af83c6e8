//! Attachments as the contract sees them: names, kinds, whose address is whose, and the op that sends one.
//!
//! It never opens a file or an address, and never puts a path of this machine into a text.

mod address;
mod mime;
mod names;
mod place;

pub use address::is_public;
pub use mime::{MediaKind, UNKNOWN_MIME, clean_mime, extension_of, media_kind, mime_of};
pub use names::{
    MAX_NAME, disposition_name, header_name, numbered_name, percent_decoded, received_name, safe_file_name,
};
pub use place::{
    AddressError, AllowedHosts, Shelf, Whose, is_media_id, is_plainly_private, parse_address, public_address,
    vetted,
};

use super::chats::{ChatFacts, ChatId};
use super::relay_adapter::reply;
use super::split::split;
use super::stream::DurableAction;
use crate::wire::{Action, CapabilityDescriptor, FALLBACK_MESSAGE_LENGTH, LenUnit};

/// Longest caption on platforms that take less with a file than alone, in UTF-16 units.
const SHORT_CAPTION: u64 = 1024;
const SHORT_CAPTION_PLATFORMS: &[&str] = &["telegram", "whatsapp"];

/// An attachment for a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutgoingAttachment {
    /// A file that the connector can reach.
    File {
        /// How it is shown.
        kind: MediaKind,
        /// Where the connector finds the bytes: one of its own media, or a public address.
        source_url: String,
        /// Its caption; may be empty.
        caption: String,
        /// The name to show; made safe.
        name: Option<String>,
        /// Whether people can open its address too.
        is_public: bool,
    },
    /// The text that replaces a file.
    Text(String),
}

/// The ops that deliver an attachment, with a text as the fallback; the text alone where the platform accepts no
/// attachments. What does not fit into the caption follows as messages, and all of them reply to the same message.
pub(super) fn attachment_ops(
    attachment: &OutgoingAttachment,
    chat: &ChatId,
    facts: &ChatFacts,
    descriptor: Option<&CapabilityDescriptor>,
) -> Vec<DurableAction> {
    let text = |text: &str| reply(text, chat, facts, descriptor);
    let durable = |actions: Vec<Action>| actions.into_iter().map(DurableAction::from).collect();
    let (kind, source_url, caption, name, is_public) = match attachment {
        OutgoingAttachment::Text(instead) => return durable(text(instead)),
        OutgoingAttachment::File {
            kind,
            source_url,
            caption,
            name,
            is_public,
        } => (kind, source_url, caption.trim(), name.as_deref(), *is_public),
    };
    let undelivered = if is_public {
        Undelivered::At(source_url)
    } else {
        Undelivered::Named(name.unwrap_or_default())
    };
    let Some(descriptor) = descriptor.filter(|descriptor| descriptor.supports_op("send_media")) else {
        return durable(text(&fallback_text(undelivered, caption)));
    };
    let (limit, unit) = caption_limit(descriptor);
    let mut parts = if caption.is_empty() {
        Vec::new()
    } else {
        split(caption, limit, unit)
    }
    .into_iter();
    let content = parts.next().unwrap_or_default();
    let mut metadata = facts.tags();
    metadata.insert("notify".to_owned(), true.into());
    let mut ops = vec![DurableAction {
        fallback: text(&fallback_text(undelivered, &content)),
        action: Action::SendMedia {
            chat_id: chat.chat.clone(),
            media_kind: kind.as_str().to_owned(),
            source_url: source_url.clone(),
            content,
            reply_to: facts.message_id.clone(),
            metadata,
            filename: name.and_then(safe_file_name),
        },
    }];
    ops.extend(parts.flat_map(|part| text(&part)).map(DurableAction::from));
    ops
}

/// An attachment that does not reach the chat as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered<'a> {
    /// It is at this address.
    At(&'a str),
    /// It is a file of this name, on this machine.
    Named(&'a str),
}

/// The text that replaces an attachment: its caption, and its address where people can open it, else that it could not
/// be delivered. A file's name is reduced to its last part.
pub fn fallback_text(media: Undelivered<'_>, caption: &str) -> String {
    let notice =
        |name: Option<String>| format!("(could not deliver {})", name.as_deref().unwrap_or("a file"));
    let line = match media {
        Undelivered::At(url) => public_address(url).map_or_else(|| notice(None), String::from),
        Undelivered::Named(name) => notice(safe_file_name(name)),
    };
    match caption.trim() {
        "" => line,
        caption => format!("{caption}\n{line}"),
    }
}

/// What an agent is told about attachments that it does not get; nothing when there are none.
pub fn missing_note(missing: usize) -> Option<String> {
    match missing {
        0 => None,
        1 => Some("(one attachment could not be downloaded)".to_owned()),
        many => Some(format!("({many} attachments could not be downloaded)")),
    }
}

fn caption_limit(descriptor: &CapabilityDescriptor) -> (usize, LenUnit) {
    let whole = match descriptor.max_message_length {
        0 => FALLBACK_MESSAGE_LENGTH,
        length => length,
    };
    let short = SHORT_CAPTION_PLATFORMS
        .iter()
        .any(|platform| descriptor.platform.eq_ignore_ascii_case(platform));
    let (limit, unit) = if short && whole > SHORT_CAPTION {
        (SHORT_CAPTION, LenUnit::Utf16)
    } else {
        (whole, descriptor.length_unit())
    };
    (usize::try_from(limit).unwrap_or(usize::MAX), unit)
}

#[cfg(test)]
mod tests;
