//! An action in JSON: encoded once, stored in the journal, written at every send.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::action::Action;
use super::json_text::{push_fields, push_text};
use super::metadata::Metadata;

/// An [`Action`] as JSON on one line. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionText(Arc<String>);

impl ActionText {
    /// The JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A JSON object with these string fields, where set, and this action under `action`.
    ///
    /// Keys are written as they are: they are names.
    pub fn beside(&self, texts: &[(&'static str, Option<&str>)]) -> String {
        const ROOM: usize = 96;
        let mut out = String::with_capacity(self.0.len() + ROOM);
        out.push('{');
        push_fields(&mut out, texts);
        out.push_str(r#""action":"#);
        out.push_str(&self.0);
        out.push('}');
        out
    }
}

impl From<&Action> for ActionText {
    fn from(action: &Action) -> Self {
        let text = match action {
            Action::Send {
                chat_id,
                content,
                reply_to,
                metadata,
            } => send(chat_id, content, reply_to.as_deref(), metadata),
            other => serde_json::to_string(other).expect("actions have text keys and no failing values"),
        };
        Self(Arc::new(text))
    }
}

/// A frame is one line, so line breaks between JSON tokens become spaces.
impl From<Box<RawValue>> for ActionText {
    fn from(action: Box<RawValue>) -> Self {
        let text = action.get();
        if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
            return Self(Arc::new(text.replace(['\n', '\r'], " ")));
        }
        Self(Arc::new(text.to_owned()))
    }
}

/// The most frequent op, encoded in one allocation.
fn send(chat_id: &str, content: &str, reply_to: Option<&str>, metadata: &Metadata) -> String {
    const ROOM: usize = 256;
    let mut out = String::with_capacity(content.len() + content.len() / 16 + ROOM);
    out.push_str(r#"{"op":"send","chat_id":"#);
    push_text(&mut out, chat_id);
    out.push_str(r#","content":"#);
    push_text(&mut out, content);
    out.push_str(r#","reply_to":"#);
    match reply_to {
        Some(id) => push_text(&mut out, id),
        None => out.push_str("null"),
    }
    out.push_str(r#","metadata":{"#);
    for (index, (key, value)) in metadata.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        push_text(&mut out, key);
        out.push(':');
        push_value(&mut out, value);
    }
    out.push_str("}}");
    out
}

fn push_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_text(out, text),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_action_is_written_as_the_serializer_does() {
        let tags = json!({"notify": true, "scope_id": "g\"1", "n": [1, null, "a\n"]});
        for (reply_to, metadata) in [(None, json!({})), (Some("m"), tags)] {
            let action = Action::Send {
                chat_id: "c\\".into(),
                content: "a \"b\"\n\u{1}😀".to_owned(),
                reply_to: reply_to.map(Into::into),
                metadata: metadata.as_object().unwrap().clone().into(),
            };
            assert_eq!(
                ActionText::from(&action).as_str(),
                serde_json::to_string(&action).unwrap()
            );
        }
    }

    #[test]
    fn an_action_stands_beside_texts() {
        let action = ActionText::from(RawValue::from_string(r#"{"op":"x"}"#.to_owned()).unwrap());
        let object = action.beside(&[("a", Some("1\"")), ("b", None), ("c", Some(""))]);
        assert_eq!(object, r#"{"a":"1\"","c":"","action":{"op":"x"}}"#);
    }

    #[test]
    fn line_breaks_between_tokens_are_gone() {
        let raw = RawValue::from_string("{\r\n  \"op\": \"a\\nb\"\n}".to_owned()).unwrap();
        assert_eq!(ActionText::from(raw).as_str(), "{    \"op\": \"a\\nb\" }");
    }
}
