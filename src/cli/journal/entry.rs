//! An entry of the journal as text and as JSON, and its id.
//!
//! Everything in an entry comes from outside: control characters are escaped for a terminal.

use std::io::{self, Write};

use base64::Engine as _;
use serde_json::{Map, Value};

use super::SectionArg;
use crate::adapter::interaction_event;
use crate::cli::format::printable;
use crate::store::{InboxSeq, Item, Listed, OpSeq};
use crate::text::instant;
use crate::wire::{ConnectorFrame, SessionSource};

/// Kinds of ids.
const KINDS: [&str; 3] = ["message", "op", "quarantine"];

/// An entry with as much of its content as requested.
pub(super) struct JournalEntry<'a> {
    listed: &'a Listed,
    op_kind: Option<String>,
    content: Option<Content>,
}

/// The content of an entry.
struct Content {
    /// The message text.
    text: Option<String>,
    line: Vec<u8>,
}

impl<'a> JournalEntry<'a> {
    pub(super) fn new(listed: &'a Listed) -> Self {
        Self {
            listed,
            op_kind: None,
            content: None,
        }
    }

    /// Adds the op's kind, and with `text` the content itself.
    pub(super) fn with_content(mut self, content: Option<Vec<u8>>, text: bool) -> Self {
        let Some(line) = content else { return self };
        let op = matches!(self.listed.item, Item::Op(_))
            .then(|| serde_json::from_slice::<Value>(&line).ok())
            .flatten();
        let field = |path: &str| op.as_ref()?.pointer(path)?.as_str().map(str::to_owned);
        self.op_kind = field("/op");
        if text {
            let text = match self.listed.item {
                Item::Message(_) => message_text(&line),
                Item::Op(_) => field("/action/content"),
                Item::Quarantined(_) => None,
            };
            self.content = Some(Content { text, line });
        }
        self
    }

    /// Its id.
    pub(super) fn name(item: Item) -> String {
        let kind = match item {
            Item::Message(_) => "message",
            Item::Op(_) => "op",
            Item::Quarantined(_) => "quarantine",
        };
        format!("{kind}:{}", item.number())
    }

    /// Its line in a list.
    pub(super) fn row(&self, now_ms: i64) -> String {
        let listed = self.listed;
        let detail = match listed.item {
            Item::Message(_) => listed.session.as_deref(),
            Item::Op(_) => listed.name.as_deref(),
            Item::Quarantined(_) => listed.reason.as_deref(),
        };
        let attempt = match listed.attempt {
            0 | 1 => String::new(),
            attempt => format!("  (attempt {attempt})"),
        };
        format!(
            "{:<16}{:<13}{:<10}{}{attempt}",
            Self::name(listed.item),
            listed.state,
            age(listed.at, now_ms),
            printable(detail.unwrap_or("-"))
        )
    }

    /// Writes all fields, one per line.
    pub(super) fn write_to(&self, out: &mut impl Write, now_ms: i64) -> io::Result<()> {
        let listed = self.listed;
        let mut field = |name: &str, value: Option<&str>| match value {
            Some(value) => writeln!(out, "{name:<10} {}", printable(value)),
            None => Ok(()),
        };
        let when = |ms: i64| format!("{} ({})", instant(ms.div_euclid(1000)), age(ms, now_ms));
        field("id", Some(&Self::name(listed.item)))?;
        field("section", Some(SectionArg::from_entry(listed).name()))?;
        field("state", Some(listed.state))?;
        field("kind", self.op_kind.as_deref())?;
        field(
            "session",
            listed.session.as_deref().filter(|session| !session.is_empty()),
        )?;
        field(self.name_key().trim_end_matches("_id"), listed.name.as_deref())?;
        field("reason", listed.reason.as_deref())?;
        field(
            "attempt",
            (listed.attempt > 0)
                .then(|| listed.attempt.to_string())
                .as_deref(),
        )?;
        field("came", Some(&when(listed.at)))?;
        field("ended", listed.ended_at.map(when).as_deref())?;
        field("bytes", Some(&listed.bytes.to_string()))?;
        let Some(content) = &self.content else {
            return Ok(());
        };
        let text = match &content.text {
            Some(text) => text.clone(),
            None => String::from_utf8_lossy(&content.line).into_owned(),
        };
        writeln!(out, "text")?;
        for line in text.lines() {
            writeln!(out, "  {}", printable(line))?;
        }
        Ok(())
    }

    /// The entry as JSON.
    pub(super) fn to_json(&self) -> Value {
        let listed = self.listed;
        let mut entry = Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                entry.insert(key.to_owned(), value);
            }
        };
        put("id", Self::name(listed.item).into());
        put("section", SectionArg::from_entry(listed).name().into());
        put("state", listed.state.into());
        put("kind", self.op_kind.clone().into());
        put("session", listed.session.clone().into());
        put(self.name_key(), listed.name.clone().into());
        put("reason", listed.reason.clone().into());
        put("attempt", listed.attempt.into());
        put("at_ms", listed.at.into());
        put("ended_at_ms", listed.ended_at.into());
        put("bytes", listed.bytes.into());
        if let Some(content) = &self.content {
            put("text", content.text.clone().into());
            if let Ok(line) = std::str::from_utf8(&content.line) {
                put("line", line.into());
            } else {
                let encoded = base64::engine::general_purpose::STANDARD.encode(&content.line);
                put("line_base64", encoded.into());
            }
        }
        Value::Object(entry)
    }

    fn name_key(&self) -> &'static str {
        match self.listed.item {
            Item::Op(_) => "chat",
            Item::Message(_) | Item::Quarantined(_) => "buffer_id",
        }
    }
}

/// Parses an id.
pub(super) fn parse_item(typed: &str) -> Result<Item, String> {
    const FORM: &str = "an id looks like message:12, op:3 or quarantine:1";
    let Some((kind, number)) = typed.split_once(':') else {
        let all_digits = !typed.is_empty() && typed.bytes().all(|byte| byte.is_ascii_digit());
        return Err(if all_digits {
            format!("the kind is missing: message:{typed}, op:{typed} or quarantine:{typed}?")
        } else {
            FORM.to_owned()
        });
    };
    let number: i64 = number
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{FORM}; `{}` is not a positive number", number.escape_debug()))?;
    match kind {
        "message" => Ok(Item::Message(InboxSeq(number))),
        "op" => Ok(Item::Op(OpSeq(number))),
        "quarantine" => Ok(Item::Quarantined(number)),
        other => {
            let near = KINDS
                .into_iter()
                .map(|kind| (strsim::jaro_winkler(kind, other), kind))
                .filter(|(likeness, _)| *likeness > 0.7)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            Err(match near {
                Some((_, kind)) => format!("{FORM}; did you mean {kind}:{number}?"),
                None => FORM.to_owned(),
            })
        }
    }
}

fn message_text(line: &[u8]) -> Option<String> {
    match ConnectorFrame::decode(line).ok()? {
        ConnectorFrame::Inbound { event, .. } => Some(event.text().to_owned()),
        _ => None,
    }
}

/// Where the message of a line comes from.
pub(super) fn message_source(line: &[u8]) -> Option<SessionSource> {
    match ConnectorFrame::decode(line).ok()? {
        ConnectorFrame::Inbound { event, .. } => Some(event.source),
        ConnectorFrame::PassthroughForward { forward, .. } => Some(interaction_event(&forward)?.source),
        _ => None,
    }
}

/// The age in its largest unit.
fn age(at_ms: i64, now_ms: i64) -> String {
    let secs = now_ms.saturating_sub(at_ms).max(0) / 1000;
    match secs {
        0..60 => format!("{secs}s ago"),
        60..3600 => format!("{}m ago", secs / 60),
        3600..86_400 => format!("{}h ago", secs / 3600),
        _ => format!("{}d ago", secs / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip() {
        for item in [
            Item::Message(InboxSeq(12)),
            Item::Op(OpSeq(3)),
            Item::Quarantined(1),
        ] {
            assert_eq!(parse_item(&JournalEntry::name(item)), Ok(item));
        }
    }

    #[test]
    fn an_invalid_id_gets_a_suggestion() {
        let error = |typed| parse_item(typed).unwrap_err();
        assert!(error("mesage:7").contains("did you mean message:7?"));
        assert!(error("12").contains("message:12, op:12 or quarantine:12"));
        for typed in [
            "",
            ":",
            "message:",
            "message:0",
            "message:-1",
            "op:x",
            "zzz:1",
            "message:99999999999999999999",
        ] {
            assert!(error(typed).contains("looks like"), "{typed}");
        }
    }

    #[test]
    fn ages_have_one_unit() {
        let shown: Vec<_> = [-5, 59, 60, 3599, 3600, 86_400]
            .map(|secs: i64| age(0, secs * 1000))
            .to_vec();
        assert_eq!(
            shown,
            ["0s ago", "59s ago", "1m ago", "59m ago", "1h ago", "1d ago"]
        );
    }
}
