//! One message from a chat, normalised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::decode::{DecodeError, Object, object_parts};
use super::scalar::{self, Loose, Scalar};
use super::source::Platform;
use super::source::{SessionSource, SourceParts, id_field};

/// The kind of a message; unknown kinds are text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageType {
    /// Plain text.
    #[default]
    Text,
    /// A location.
    Location,
    /// A picture.
    Photo,
    /// A video.
    Video,
    /// Music or other sound.
    Audio,
    /// A voice message.
    Voice,
    /// Any other file.
    Document,
    /// A sticker.
    Sticker,
    /// A slash command.
    Command,
}

impl MessageType {
    /// Parses a wire name; lower case only, anything else is text (`image` too: the mime type is more precise).
    pub fn from_wire(name: &str) -> Self {
        match name {
            "location" => Self::Location,
            "photo" => Self::Photo,
            "video" => Self::Video,
            "audio" => Self::Audio,
            "voice" => Self::Voice,
            "document" => Self::Document,
            "sticker" => Self::Sticker,
            "command" => Self::Command,
            _ => Self::Text,
        }
    }

    /// The type of a plain text: a command if it starts with a slash.
    pub fn from_text(text: &str) -> Self {
        if text.starts_with('/') {
            Self::Command
        } else {
            Self::Text
        }
    }
}

/// A normalised message. Field names are the contract's.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MessageEvent {
    /// The text of the message; `None` for `null`.
    pub text: Option<Scalar>,
    /// The kind of message.
    pub message_type: MessageType,
    /// The chat, author and place of the message.
    pub source: SessionSource,
    /// The message's id, for dedupe and replies.
    pub message_id: Option<Scalar>,
    /// The message that this one replies to.
    pub reply_to_message_id: Option<Scalar>,
    /// The answered message's text.
    pub reply_to_text: Option<Scalar>,
    /// Who wrote the answered message.
    pub reply_to_author_name: Option<Scalar>,
    /// Whether the answered message is our own.
    pub reply_to_is_own_message: bool,
    /// Attachments by reference, verbatim.
    pub media_urls: Vec<Value>,
    /// The attachments' mime types, one for each URL, `""` where unknown.
    pub media_types: Vec<String>,
    /// Surrounding messages, rendered; never a trigger, never an instruction.
    pub channel_context: Option<String>,
    /// The answer to a prompt, when this is one.
    pub prompt_response: Option<Map<String, Value>>,
    /// Further data (Discord interactions); not part of the wire form.
    #[serde(skip)]
    pub metadata: Map<String, Value>,
    /// Whether it repeats a message that was edited, under the same id.
    #[serde(skip)]
    pub is_edit: bool,
    /// Whether it says that a message was deleted.
    #[serde(skip)]
    pub is_deleted: bool,
    /// When it was written, in Unix seconds, if its frame says that.
    #[serde(skip)]
    pub written_at: Option<i64>,
}

impl MessageEvent {
    /// Reads the `event` object of a frame that is already a JSON value.
    pub fn from_value(value: &Value) -> Result<Self, DecodeError> {
        Object::<Box<EventParts>>::deserialize(value)
            .map_err(|error| DecodeError::json(&error))
            .and_then(Object::assemble)
            .map(|event| *event)
    }

    /// Whether there is nothing to act on: no text, no attachment and no answer to a prompt. One whose body is encrypted for
    /// somebody else is like that.
    pub fn is_empty(&self) -> bool {
        let has_media = self.media_urls.iter().any(scalar::is_truthy);
        self.text().trim().is_empty() && !has_media && self.prompt_response.is_none()
    }

    /// The text, empty when there is none.
    pub fn text(&self) -> &str {
        self.text.as_ref().map_or("", Scalar::as_str)
    }

    /// When it was written, in Unix milliseconds, if its frame or its id says that.
    pub fn written_ms(&self) -> Option<i64> {
        /// The milliseconds that Discord counts from.
        const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;
        let seconds = match (self.written_at, &self.source.platform) {
            (Some(written_at), _) => written_at,
            (None, platform) if *platform == Platform::DISCORD => {
                let id: u64 = self.message_id.as_ref()?.as_str().parse().ok()?;
                return i64::try_from((id >> 22) + DISCORD_EPOCH_MS).ok();
            }
            (None, platform) if *platform == Platform::SLACK => {
                let (seconds, _) = self.message_id.as_ref()?.as_str().split_once('.')?;
                seconds.parse().ok()?
            }
            (None, _) => return None,
        };
        seconds.checked_mul(1000)
    }
}

object_parts! {
    /// The raw fields of an event.
    pub(super) struct EventParts {
        text: Loose = "text",
        message_type: Loose = "message_type",
        source: Option<Object<Box<SourceParts>>> = "source" => Some,
        message_id: Loose = "message_id",
        reply_to_message_id: Loose = "reply_to_message_id",
        reply_to: Option<Object<ReplyParts>> = "reply_to" => Some,
        media_urls: Value = "media_urls",
        media: Value = "media",
        context: Value = "context",
        prompt_response: Value = "prompt_response",
        message_is_edit: Loose = "message_is_edit",
        message_is_deleted: Loose = "message_is_deleted",
    }
}

object_parts! {
    struct ReplyParts {
        text: Loose = "text",
        author: Loose = "author",
        is_own: Loose = "is_own",
    }
}

impl Object<Box<EventParts>> {
    pub(super) fn assemble(self) -> Result<Box<MessageEvent>, DecodeError> {
        match self {
            Self::Is(parts) => parts.assemble(),
            Self::Null | Self::Not(_) => Err(DecodeError::WrongType {
                field: "event",
                wanted: "an object",
            }),
        }
    }
}

impl EventParts {
    /// Applies the contract's rules; a missing `source` is empty, a `reply_to` that is no object is ignored.
    pub(super) fn assemble(self: Box<Self>) -> Result<Box<MessageEvent>, DecodeError> {
        let message_id = id_field(self.message_id, "event.message_id")?;
        let source = match self.source {
            None | Some(Object::Null) => Box::default(),
            Some(Object::Is(parts)) => parts,
            Some(Object::Not(_)) => {
                return Err(DecodeError::WrongType {
                    field: "event.source",
                    wanted: "an object",
                });
            }
        };
        let reply = match self.reply_to {
            Some(Object::Is(parts)) => parts,
            None | Some(Object::Null | Object::Not(_)) => ReplyParts::default(),
        };
        let (media_urls, media_types) = media(self.media_urls, &self.media);
        let source = source.assemble(message_id.as_ref())?;
        Ok(Box::new(MessageEvent {
            is_edit: self.message_is_edit.is_truthy() || source.message_is_edit,
            is_deleted: self.message_is_deleted.is_truthy() || source.message_is_deleted,
            text: match self.text {
                Loose::Missing => Some("".into()),
                other => id_field(other, "event.text")?,
            },
            message_type: match &self.message_type {
                Loose::Scalar(name) if name.is_text() => MessageType::from_wire(name.as_str()),
                _ => MessageType::Text,
            },
            source,
            message_id,
            reply_to_message_id: id_field(self.reply_to_message_id, "event.reply_to_message_id")?,
            reply_to_text: reply.text.into_scalar(),
            reply_to_author_name: reply.author.into_scalar(),
            reply_to_is_own_message: reply.is_own.is_truthy(),
            media_urls,
            media_types,
            channel_context: render_context(&self.context),
            prompt_response: match self.prompt_response {
                Value::Object(fields) => Some(fields),
                _ => None,
            },
            metadata: Map::new(),
            written_at: None,
        }))
    }
}

/// Pairs URLs with mime types by URL, not by position, so that an invalid entry shifts nothing.
fn media(urls: Value, media: &Value) -> (Vec<Value>, Vec<String>) {
    let urls = match urls {
        Value::Array(urls) => urls,
        Value::String(url) if !url.is_empty() => vec![url.into()],
        _ => Vec::new(),
    };
    let described = media.as_array().map_or(&[][..], Vec::as_slice);
    // A map, because a peer may send long lists. The last entry of equal URLs wins.
    let mime_of: BTreeMap<&str, &str> = described
        .iter()
        .filter_map(|entry| {
            let url = entry.get("url")?.as_str()?;
            Some((url, entry.get("mime").and_then(Value::as_str).unwrap_or("")))
        })
        .collect();
    let types = urls
        .iter()
        .map(|url| match url.as_str() {
            Some(url) if !url.is_empty() => (*mime_of.get(url).unwrap_or(&"")).to_owned(),
            _ => String::new(),
        })
        .collect();
    (urls, types)
}

/// Renders surrounding messages, oldest first; `None` if there are none.
pub fn render_context(context: &Value) -> Option<String> {
    let entries = context.as_array()?;
    let mut rendered = String::from("[Recent channel messages]");
    let mut any = false;
    for entry in entries {
        let Some(text) = entry.get("text").filter(|text| scalar::is_truthy(text)) else {
            continue;
        };
        any = true;
        rendered.push('\n');
        let author = ["user_name", "user_id"].iter().find_map(|field| {
            entry
                .get("source")?
                .get(field)
                .filter(|name| scalar::is_truthy(name))
        });
        if let Some(author) = author {
            rendered.push_str(&scalar::text_of(author));
            rendered.push_str(": ");
        }
        rendered.push_str(&scalar::text_of(text));
    }
    any.then_some(rendered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_of_discord_and_slack_say_when_a_message_was_written() {
        let written = |platform: &str, id: &str| {
            let event = json!({"source": {"platform": platform}, "message_id": id});
            MessageEvent::from_value(&event).unwrap().written_ms()
        };
        assert_eq!(written("discord", "175928847299117063"), Some(1_462_015_105_796));
        assert_eq!(written("slack", "1700000000.123456"), Some(1_700_000_000_000));
        for (platform, id) in [
            ("telegram", "175928847299117063"),
            ("discord", "m1"),
            ("discord", "-5"),
            ("slack", "m1"),
            ("slack", "9223372036854775807.1"),
            ("slack", ""),
        ] {
            assert_eq!(written(platform, id), None, "{platform} {id}");
        }
    }

    #[test]
    fn a_message_without_anything_to_act_on_is_empty() {
        let is_empty = |event: Value| MessageEvent::from_value(&event).unwrap().is_empty();
        let sealed = json!({"ciphertext": "x", "scheme": "y", "toDevice": "d"});
        for event in [
            json!({"sealed": sealed}),
            json!({"text": "", "sealed": sealed}),
            json!({"text": null, "message_id": "m", "message_type": "photo", "media_urls": []}),
            json!({"text": " \n\u{a0}", "media_urls": [""]}),
            json!({"context": [{"text": "others talk"}], "reply_to": {"text": "old"}}),
        ] {
            assert!(is_empty(event.clone()), "{event}");
        }
        for event in [
            json!({"text": "x", "sealed": sealed}),
            json!({"text": 0}),
            json!({"media_urls": ["https://files.example/1"]}),
            json!({"prompt_response": {"prompt_id": "p", "option_id": "o"}}),
        ] {
            assert!(!is_empty(event.clone()), "{event}");
        }
    }
}
