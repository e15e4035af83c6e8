//! Attachments: kinds, names, URLs, and the ops that send one. Nothing here opens a file or a URL, or puts a local path
//! into a text.

mod album;
mod length;
mod mime;
mod names;
mod url;

pub(super) use album::attachments_ops;
pub use length::recording_secs;
pub use mime::{MediaKind, UNKNOWN_MIME, clean_mime, media_kind, mime_for};
pub use names::{disposition_name, download_name, header_name, numbered_name, safe_file_name};
pub use url::{
    AllowedHosts, MediaUrlError, MediaUrls, UrlOwner, carries_secret, check_url, is_media_id, is_private_url,
    is_public_ip, parse_url, public_url, url_for_agents,
};

use super::action_builder::ActionBuilder;
use super::relay_adapter::reply;
use super::split::split;
use super::stream::DurableAction;
use crate::wire::{Action, CapabilityDescriptor, LenUnit};
use crate::words::Language;

/// Longest caption, in UTF-16 units, on platforms whose captions are shorter than their messages.
const SHORT_CAPTION: usize = 1024;
const SHORT_CAPTION_PLATFORMS: &[&str] = &["telegram", "whatsapp"];

/// An attachment for a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutgoingAttachment {
    /// A file that the connector can reach.
    File {
        /// How the platform shows the file.
        kind: MediaKind,
        /// Where the connector finds the bytes: one of its own media, or a public address.
        source_url: String,
        /// Its caption; may be empty.
        caption: String,
        /// The name to show; made safe.
        name: Option<String>,
        /// Whether people can open its address too.
        is_public: bool,
        /// What is shown where the file cannot be delivered; a note about it if there is nothing else to show.
        instead: Option<String>,
    },
    /// The text that replaces a file.
    Text(String),
}

/// The ops that deliver an attachment, with a text as the fallback; the text alone where the platform accepts no
/// attachments. What does not fit into the caption follows as messages, and all of them reply to the same message.
pub(super) fn attachment_ops(
    attachment: &OutgoingAttachment,
    builder: &ActionBuilder,
    descriptor: Option<&CapabilityDescriptor>,
    language: Language,
) -> Vec<DurableAction> {
    let text = |text: &str| reply(text, builder);
    let durable = |actions: Vec<Action>| actions.into_iter().map(DurableAction::from).collect();
    let (kind, source_url, caption, name, is_public, instead) = match attachment {
        OutgoingAttachment::Text(instead) => return durable(text(&language.reword(instead))),
        OutgoingAttachment::File {
            kind,
            source_url,
            caption,
            name,
            is_public,
            instead,
        } => (
            kind,
            source_url,
            caption.trim(),
            name.as_deref(),
            *is_public,
            instead,
        ),
    };
    let undelivered = if is_public {
        Undelivered::At(source_url)
    } else {
        Undelivered::Named(name.unwrap_or_default())
    };
    let lost = |caption: &str| match instead {
        Some(instead) => text(instead),
        None => text(&language.reword(&fallback_text(undelivered, caption))),
    };
    let Some(descriptor) = descriptor.filter(|descriptor| descriptor.supports_op("send_media")) else {
        return durable(lost(caption));
    };
    let (limit, unit) = caption_limit(descriptor);
    let mut parts = if caption.is_empty() {
        Vec::new()
    } else {
        split(caption, limit, unit)
    }
    .into_iter();
    let content = parts.next().unwrap_or_default();
    let mut ops = vec![DurableAction {
        fallback: lost(&content),
        action: Action::SendMedia {
            chat_id: builder.chat.id.chat.clone(),
            media_kind: kind.as_str().to_owned(),
            source_url: source_url.clone(),
            content,
            reply_to: builder.anchor(),
            metadata: builder.media_tags(),
            filename: name.and_then(safe_file_name),
        },
        then: Vec::new(),
    }];
    ops.extend(parts.flat_map(|part| text(&part)).map(DurableAction::from));
    ops
}

/// An attachment that does not reach the chat as a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undelivered<'a> {
    /// A file at this address.
    At(&'a str),
    /// A file of this name, on this machine.
    Named(&'a str),
}

/// The text that replaces an attachment: its caption, and its address where people can open it, else that it could not
/// be delivered. A file's name is reduced to its last part.
pub fn fallback_text(media: Undelivered<'_>, caption: &str) -> String {
    let notice =
        |name: Option<String>| format!("(could not deliver {})", name.as_deref().unwrap_or("a file"));
    let line = match media {
        Undelivered::At(url) => public_url(url).map_or_else(|| notice(None), String::from),
        Undelivered::Named(name) => notice(safe_file_name(name)),
    };
    match caption.trim() {
        "" => line,
        caption => format!("{caption}\n{line}"),
    }
}

/// Why attachments of a message are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingReason {
    /// They could not be downloaded.
    #[default]
    NotDownloaded,
    /// Nothing is downloaded, and their addresses are private.
    Withheld,
}

/// The agent's note about missing attachments; `None` when there are none.
pub fn missing_note(missing: usize, reason: MissingReason) -> Option<String> {
    let note = match (missing, reason) {
        (0, _) => return None,
        (1, MissingReason::NotDownloaded) => "(one attachment could not be downloaded)".to_owned(),
        (many, MissingReason::NotDownloaded) => format!("({many} attachments could not be downloaded)"),
        (1, MissingReason::Withheld) => {
            "(one attachment was not passed on: downloads are off, and its address is private)".to_owned()
        }
        (many, MissingReason::Withheld) => format!(
            "({many} attachments were not passed on: downloads are off, and their addresses are private)"
        ),
    };
    Some(note)
}

fn caption_limit(descriptor: &CapabilityDescriptor) -> (usize, LenUnit) {
    let (limit, unit) = CapabilityDescriptor::message_limit(Some(descriptor));
    let short = SHORT_CAPTION_PLATFORMS
        .iter()
        .any(|platform| descriptor.platform.eq_ignore_ascii_case(platform));
    if short && limit > SHORT_CAPTION {
        (SHORT_CAPTION, LenUnit::Utf16)
    } else {
        (limit, unit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::adapter::{ChatFacts, ChatId, RelayAdapter};

    fn builder(descriptor: &CapabilityDescriptor) -> ActionBuilder {
        let chat = ChatId {
            platform: "discord".into(),
            chat: "c".into(),
        };
        let facts = ChatFacts {
            message_id: Some("m".into()),
            ..ChatFacts::default()
        };
        let adapter = RelayAdapter::new(
            "discord",
            None,
            Some(Arc::new(descriptor.clone())),
            Arc::default(),
        );
        adapter.builder_of(&chat, &facts)
    }

    fn descriptor(platform: &str, limit: u64) -> CapabilityDescriptor {
        let mut descriptor = CapabilityDescriptor::placeholder(platform);
        descriptor.max_message_length = limit;
        descriptor.supported_ops = vec!["send".into(), "send_media".into()];
        descriptor
    }

    fn send_media(caption: &str, descriptor: &CapabilityDescriptor) -> Vec<Action> {
        let file = OutgoingAttachment::File {
            kind: MediaKind::Image,
            source_url: "https://c.example/relay/media/1".to_owned(),
            caption: caption.to_owned(),
            name: Some("../x y.png".to_owned()),
            is_public: false,
            instead: None,
        };
        let ops = attachment_ops(&file, &builder(descriptor), Some(descriptor), Language::En);
        ops.into_iter().map(|op| op.action).collect()
    }

    #[test]
    fn an_attachment_is_one_op_with_every_field() {
        let ops = send_media(" look ", &descriptor("discord", 2000));
        assert_eq!(
            serde_json::to_value(&ops).unwrap(),
            json!([{
                "op": "send_media", "chat_id": "c", "media_kind": "image", "content": "look", "reply_to": "m",
                "source_url": "https://c.example/relay/media/1", "metadata": {"notify": true}, "filename": "x y.png",
            }])
        );
    }

    #[test]
    fn a_long_caption_continues_in_messages_that_fit() {
        for (platform, limit, fits) in [
            ("discord", 60, 60),
            ("telegram", 4096, 1024),
            ("WhatsApp", 100, 100),
        ] {
            let caption = "word ".repeat(2000);
            let ops = send_media(&caption, &descriptor(platform, limit));
            let Action::SendMedia { content, .. } = &ops[0] else {
                panic!("{ops:?}")
            };
            assert!(
                !content.is_empty() && content.encode_utf16().count() <= fits,
                "{platform}"
            );
            assert!(ops.len() > 2);
            let mut words = content.matches("word").count();
            for op in &ops[1..] {
                let Action::Send {
                    content, reply_to, ..
                } = op
                else {
                    panic!("{op:?}")
                };
                assert!(content.chars().count() as u64 <= limit && reply_to.as_deref() == Some("m"));
                words += content.matches("word").count();
            }
            assert_eq!(words, 2000, "{platform}");
        }
    }

    #[test]
    fn the_fallback_text_never_contains_a_path() {
        let at = |url| fallback_text(Undelivered::At(url), "see");
        assert_eq!(at("https://h.example/x.png"), "see\nhttps://h.example/x.png");
        for hidden in [
            "file:///home/me/x",
            "http://10.0.0.1/x",
            "https://u:p@h.example/",
            "/home/me/x",
        ] {
            assert_eq!(at(hidden), "see\n(could not deliver a file)");
        }
        assert_eq!(
            fallback_text(Undelivered::Named("/home/me/report.pdf"), ""),
            "(could not deliver report.pdf)"
        );
        assert_eq!(
            fallback_text(Undelivered::Named(".."), ""),
            "(could not deliver a file)"
        );
    }

    #[test]
    fn the_agent_reads_how_many_attachments_are_missing_and_why() {
        for (reason, why) in [
            (MissingReason::NotDownloaded, "could not be downloaded"),
            (MissingReason::Withheld, "downloads are off"),
        ] {
            assert_eq!(missing_note(0, reason), None);
            for (missing, number) in [(1, "one"), (3, "3")] {
                let note = missing_note(missing, reason).unwrap();
                assert!(note.contains(number) && note.contains(why), "{note}");
            }
        }
    }
}
