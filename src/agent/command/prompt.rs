//! Input of a command: the message on standard input, and metadata in the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::{Map, Value, json};

use super::CommandInput;
use crate::agent::child::set_variable;
use crate::agent::{Attachment, MediaLocation, Turn, TurnInput};
use crate::text::truncate_bytes;

/// Longest value of a variable; the system refuses to start a program with one over 128 KiB.
const MAX_VALUE: usize = 4096;

/// The bytes for standard input.
pub(super) fn prompt(turn: &Turn, input: CommandInput, memory: Option<&[u8]>) -> Vec<u8> {
    match input {
        CommandInput::Text => as_text(&turn.input).into_bytes(),
        CommandInput::Json => {
            let mut line = as_object(turn, memory).to_string().into_bytes();
            line.push(b'\n');
            line
        }
    }
}

/// The message with its surroundings as quotation, the message itself last but for a list of what came with it.
fn as_text(input: &TurnInput) -> String {
    let mut text = String::new();
    let mut block = |title: &str, quoted: &str| {
        text.push_str(title);
        for line in quoted.lines() {
            text.push_str("\n> ");
            text.push_str(line);
        }
        text.push_str("\n\n");
    };
    if let Some(context) = &input.channel_context {
        block("[earlier in this chat]", context);
    }
    if let Some(quoted) = &input.reply_to_text {
        block("[in reply to]", quoted);
    }
    text.push_str(&input.text);
    for attachment in &input.attachments {
        let at = match &attachment.location {
            MediaLocation::File(path) => path.display().to_string(),
            MediaLocation::Url(url) => url.clone(),
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.extend(["[attachment: ", &at, "]"]);
    }
    for note in &input.notes {
        text.extend(["\n[note: ", note, "]"]);
    }
    text
}

fn as_object(turn: &Turn, memory: Option<&[u8]>) -> Value {
    let input = &turn.input;
    let origin = &input.origin;
    json!({
        "type": "prompt",
        "text": input.text,
        "session": turn.session.as_str(),
        "turn": turn.id.0,
        "author": some([("name", input.author.as_deref()), ("id", input.author_id.as_deref())]),
        "context": input.channel_context,
        "reply_to": some([
            ("text", input.reply_to_text.as_deref()),
            ("author", input.reply_to_author.as_deref()),
        ]),
        "attachments": input.attachments.iter().map(attachment).collect::<Vec<_>>(),
        "notes": input.notes,
        "place": some([
            ("platform", Some(origin.platform.as_str())),
            ("chat_id", Some(origin.chat_id.as_str())),
            ("chat_type", Some(origin.chat_type.as_str())),
            ("chat_name", origin.chat_name.as_deref()),
            ("thread_id", origin.thread_id.as_deref()),
            ("message_id", origin.message_id.as_deref()),
            ("profile", origin.profile.as_deref()),
            ("hint", Some(origin.hint.as_str())),
            ("markdown", Some(origin.markdown.as_str())),
        ]),
        "memory": memory.map(String::from_utf8_lossy),
    })
}

fn attachment(attachment: &Attachment) -> Value {
    let (name, at) = match &attachment.location {
        MediaLocation::File(path) => ("path", path.to_string_lossy().into_owned()),
        MediaLocation::Url(url) => ("url", url.clone()),
    };
    json!({ name: at, "mime": attachment.mime, "name": attachment.name })
}

/// An object of the fields that are there; null for none.
fn some<const N: usize>(fields: [(&str, Option<&str>); N]) -> Value {
    let there = |value: Option<&str>| value.filter(|value| !value.is_empty()).map(Value::from);
    let object: Map<String, Value> = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), there(value)?)))
        .collect();
    if object.is_empty() {
        Value::Null
    } else {
        Value::Object(object)
    }
}

/// Adds where the message came from. Names are fixed; what people chose is in the values alone.
pub(super) fn add_metadata(vars: &mut BTreeMap<OsString, OsString>, turn: &Turn) {
    let origin = &turn.input.origin;
    let turn_id = turn.id.0.to_string();
    let known = [
        ("RELAY_SESSION_KEY", Some(turn.session.as_str())),
        ("RELAY_TURN_ID", Some(turn_id.as_str())),
        ("RELAY_PLATFORM", Some(origin.platform.as_str())),
        ("RELAY_CHAT_ID", Some(origin.chat_id.as_str())),
        ("RELAY_CHAT_TYPE", Some(origin.chat_type.as_str())),
        ("RELAY_THREAD_ID", origin.thread_id.as_deref()),
        ("RELAY_USER_ID", turn.input.author_id.as_deref()),
        ("RELAY_USER_NAME", turn.input.author.as_deref()),
        ("RELAY_MESSAGE_ID", origin.message_id.as_deref()),
    ];
    for (name, value) in known {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            set_variable(vars, name, truncate_bytes(value, MAX_VALUE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surroundings_are_quoted_and_cannot_pass_for_the_message() {
        let input = TurnInput {
            text: "and now?".to_owned(),
            channel_context: Some("a\nb".to_owned()),
            reply_to_text: Some("c".to_owned()),
            attachments: vec![Attachment {
                location: MediaLocation::File("/in/box.png".into()),
                mime: "image/png".to_owned(),
                name: "box.png".to_owned(),
            }],
            notes: vec!["one is missing".to_owned()],
            ..TurnInput::default()
        };
        assert_eq!(
            as_text(&input),
            "[earlier in this chat]\n> a\n> b\n\n[in reply to]\n> c\n\nand now?\n[attachment: /in/box.png]\n\
             [note: one is missing]"
        );
        assert_eq!(as_text(&TurnInput::default()), "");
    }
}
