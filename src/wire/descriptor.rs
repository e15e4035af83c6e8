//! Capability descriptors: what a platform can do, as the connector declares it at the handshake.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::decode::DecodeError;
use super::scalar::{is_truthy, text_of};

/// What the descriptor of a bot of one's own names if it lays out tables itself. It is no op.
pub const TABLES: &str = "send.table";

/// Maximum message length if the limit is missing, zero, negative or invalid.
const FALLBACK_MESSAGE_LENGTH: u64 = 4096;

/// Ops that every connector supports.
pub const LEGACY_OPS: &[&str] = &["send", "edit", "typing", "follow_up"];

#[rustfmt::skip]
const REQUIRED: &[&str] = &[
    "contract_version", "platform", "label", "max_message_length", "supports_draft_streaming",
    "supports_edit", "supports_threads", "markdown_dialect", "len_unit",
];

/// The unit in which a platform counts message length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LenUnit {
    /// Unicode code points.
    Chars,
    /// UTF-16 code units.
    Utf16,
}

impl LenUnit {
    /// `utf16` is UTF-16 units; everything else is code points.
    pub fn from_wire(name: &str) -> Self {
        if name == "utf16" { Self::Utf16 } else { Self::Chars }
    }

    /// The length of `text` in this unit.
    pub fn measure(self, text: &str) -> usize {
        match self {
            _ if text.is_ascii() => text.len(),
            Self::Chars => text.chars().count(),
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }

    /// The length of one code point in this unit.
    pub fn width(self, point: char) -> usize {
        match self {
            Self::Chars => 1,
            Self::Utf16 => point.len_utf16(),
        }
    }
}

/// A platform's capabilities. Wrong types are coerced; a missing required key is an error, an unknown key is ignored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapabilityDescriptor {
    /// Version of the contract, as received; never checked.
    pub contract_version: Value,
    /// Platform name.
    pub platform: String,
    /// Name for people.
    pub label: String,
    /// Maximum message length, in [`Self::len_unit`]; never zero.
    pub max_message_length: u64,
    /// Native streaming previews.
    pub supports_draft_streaming: bool,
    /// Messages can be edited.
    pub supports_edit: bool,
    /// Threads can be opened.
    pub supports_threads: bool,
    /// Markdown dialect; `None` for `null`.
    pub markdown_dialect: Option<String>,
    /// `utf16` or anything else for code points.
    pub len_unit: String,
    /// Shown beside the platform's name.
    pub emoji: Option<String>,
    /// A hint for the agent's instructions.
    pub platform_hint: String,
    /// Personal data must be kept out of descriptions.
    pub pii_safe: bool,
    /// Events may carry surrounding messages.
    pub supports_context: bool,
    /// A conversation may continue in the channel without a thread.
    pub supports_inchannel_continuable: bool,
    /// Rich blocks are supported.
    pub supports_block_formatting: bool,
    /// Supported ops; empty means the legacy set.
    pub supported_ops: Vec<String>,
}

impl CapabilityDescriptor {
    /// Reads the wire object.
    pub fn from_value(value: &Value) -> Result<Self, DecodeError> {
        let Value::Object(wire) = value else {
            return Err(DecodeError::WrongType {
                field: "descriptor",
                wanted: "an object",
            });
        };
        let missing: Vec<_> = REQUIRED
            .iter()
            .copied()
            .filter(|key| !wire.contains_key(*key))
            .collect();
        if !missing.is_empty() {
            return Err(DecodeError::Missing(format!(
                "descriptor.{}",
                missing.join(", descriptor.")
            )));
        }
        Ok(Self {
            contract_version: wire["contract_version"].clone(),
            platform: text(wire, "platform").unwrap_or_default(),
            label: text(wire, "label").unwrap_or_default(),
            max_message_length: message_length(&wire["max_message_length"]),
            supports_draft_streaming: flag(wire, "supports_draft_streaming"),
            supports_edit: flag(wire, "supports_edit"),
            supports_threads: flag(wire, "supports_threads"),
            markdown_dialect: text(wire, "markdown_dialect"),
            len_unit: text(wire, "len_unit").unwrap_or_default(),
            emoji: if wire.contains_key("emoji") {
                text(wire, "emoji")
            } else {
                Some("\u{1f50c}".to_owned())
            },
            platform_hint: text(wire, "platform_hint").unwrap_or_default(),
            pii_safe: flag(wire, "pii_safe"),
            supports_context: flag(wire, "supports_context"),
            supports_inchannel_continuable: flag(wire, "supports_inchannel_continuable"),
            supports_block_formatting: flag(wire, "supports_block_formatting"),
            supported_ops: ops(wire.get("supported_ops")),
        })
    }

    /// The descriptor before any handshake: editable text, and nothing else.
    pub fn placeholder(platform: &str) -> Self {
        Self {
            contract_version: 1.into(),
            platform: platform.to_owned(),
            label: "Relay".to_owned(),
            max_message_length: FALLBACK_MESSAGE_LENGTH,
            supports_draft_streaming: false,
            supports_edit: true,
            supports_threads: false,
            markdown_dialect: Some("plain".to_owned()),
            len_unit: "chars".to_owned(),
            emoji: Some("\u{1f50c}".to_owned()),
            platform_hint: String::new(),
            pii_safe: false,
            supports_context: false,
            supports_inchannel_continuable: false,
            supports_block_formatting: false,
            supported_ops: Vec::new(),
        }
    }

    /// Whether an op may be sent. Without a list, the legacy set may; drafts, deletes and task cards always
    /// need to be listed, and drafts need their flag too.
    pub fn supports_op(&self, op: &str) -> bool {
        let listed = self.supported_ops.iter().any(|supported| supported == op);
        match op {
            "draft" => listed && self.supports_draft_streaming,
            _ => listed || (self.supported_ops.is_empty() && LEGACY_OPS.contains(&op)),
        }
    }

    /// Whether fenced code is rendered.
    pub fn supports_code_blocks(&self) -> bool {
        !matches!(self.markdown_dialect.as_deref(), Some("" | "plain"))
    }

    /// Maximum length of a message and its unit; the fallback while undeclared.
    pub fn message_limit(descriptor: Option<&Self>) -> (usize, LenUnit) {
        let declared = descriptor.map_or((0, LenUnit::Chars), |descriptor| {
            (descriptor.max_message_length, descriptor.length_unit())
        });
        let limit = if declared.0 == 0 {
            FALLBACK_MESSAGE_LENGTH
        } else {
            declared.0
        };
        (usize::try_from(limit).unwrap_or(usize::MAX), declared.1)
    }

    /// The unit that [`Self::max_message_length`] counts in.
    pub fn length_unit(&self) -> LenUnit {
        LenUnit::from_wire(&self.len_unit)
    }
}

fn text(wire: &Map<String, Value>, key: &str) -> Option<String> {
    wire.get(key).filter(|value| !value.is_null()).map(text_of)
}

fn flag(wire: &Map<String, Value>, key: &str) -> bool {
    wire.get(key).is_some_and(is_truthy)
}

fn ops(value: Option<&Value>) -> Vec<String> {
    let listed = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    listed
        .iter()
        .filter_map(Value::as_str)
        .filter(|op| !op.is_empty())
        .map(str::to_owned)
        .collect()
}

fn message_length(value: &Value) -> u64 {
    let length = match value {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and 0 is the fallback"
        )]
        Value::Number(number) => number
            .as_u64()
            .or_else(|| number.as_f64().map(|float| float as u64)),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(value) => Some(u64::from(*value)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    length
        .filter(|length| *length > 0)
        .unwrap_or(FALLBACK_MESSAGE_LENGTH)
}
