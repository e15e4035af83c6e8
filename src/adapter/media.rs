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
use super::reply::reply;
use super::split::split;
use crate::wire::{Action, CapabilityDescriptor, FALLBACK_MESSAGE_LENGTH, LenUnit};

/// Longest caption on platforms that take less with a file than alone, in UTF-16 units.
const SHORT_CAPTION: u64 = 1024;
const SHORT_CAPTION_PLATFORMS: &[&str] = &["telegram", "whatsapp"];

/// An attachment for a chat, where the connector finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// How it is shown.
    pub kind: MediaKind,
    /// Where the connector finds the bytes: a file on its shelf, or a public address.
    pub source_url: &'a str,
    /// What is said with it; may be empty.
    pub caption: &'a str,
    /// The name to show; made safe.
    pub name: Option<&'a str>,
}

/// The ops that deliver an attachment; none when the platform takes no attachments. What does not fit into the
/// caption follows as messages of its own, and all of them answer the same message.
pub fn send_media(
    media: &Outgoing<'_>,
    chat: &ChatId,
    facts: &ChatFacts,
    descriptor: Option<&CapabilityDescriptor>,
) -> Vec<Action> {
    let Some(descriptor) = descriptor.filter(|descriptor| descriptor.supports_op("send_media")) else {
        return Vec::new();
    };
    let caption = media.caption.trim();
    let (limit, unit) = caption_limit(descriptor);
    let mut parts = if caption.is_empty() {
        vec![String::new()]
    } else {
        split(caption, limit, unit)
    }
    .into_iter();
    let mut metadata = facts.tags();
    metadata.insert("notify".to_owned(), true.into());
    let mut ops = vec![Action::SendMedia {
        chat_id: chat.chat.clone(),
        media_kind: media.kind.as_str().to_owned(),
        source_url: media.source_url.to_owned(),
        content: parts.next().unwrap_or_default(),
        reply_to: facts.message_id.clone(),
        metadata,
        filename: media.name.and_then(safe_file_name),
    }];
    for part in parts {
        ops.extend(reply(&part, chat, facts, Some(descriptor)));
    }
    ops
}

/// An attachment that does not reach the chat as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered<'a> {
    /// It is at this address.
    At(&'a str),
    /// It is a file of this name, on this machine.
    Named(&'a str),
}

/// What the chat is told instead of being given an attachment: its caption, and its address where people can open
/// it, else that it could not be delivered. A file's name is reduced to its last part.
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
