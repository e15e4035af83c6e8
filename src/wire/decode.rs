//! Decoding of JSON objects field by field, and recovery of what strict JSON rejects.
//!
//! Unknown keys are skipped, the last of equal keys wins, and a value of the wrong type is reported by field name instead
//! of ending the parse.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Why a frame cannot be decoded. Never contains message text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, not UTF-8, or nested too deeply.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// A JSON value, but not an object.
    #[error("the frame is {0}, not an object")]
    NotAnObject(&'static str),
    /// A known field has the wrong type.
    #[error("{field} is not {wanted}")]
    WrongType {
        /// The field, with its path.
        field: &'static str,
        /// The type that the contract demands.
        wanted: &'static str,
    },
    /// A number that would lose digits where an id is expected.
    #[error("{field} is a number too large to keep exactly")]
    NumberTooLarge {
        /// The field, with its path.
        field: &'static str,
    },
    /// A required field is missing.
    #[error("{0} is missing")]
    Missing(String),
    /// The line is longer than the limit.
    #[error("the line is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Its type is unknown.
    #[error("no frame from a connector has this type")]
    UnknownType,
    /// The platform is not the connector's: the relay is a bot there itself.
    #[error("{platform} is served by the relay's own bot")]
    OwnPlatform {
        /// The platform.
        platform: &'static str,
    },
}

impl DecodeError {
    pub(super) fn json(error: &serde_json::Error) -> Self {
        let what = match error.classify() {
            serde_json::error::Category::Eof => "it ends too early",
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => "syntax error",
            serde_json::error::Category::Data => "unusable value",
        };
        Self::Json(format!("{what} at column {}", error.column()))
    }
}

/// The raw fields of a JSON object.
pub(super) trait ObjectParts: Default {
    /// Reads every key; the last of equal keys wins.
    fn read<'de, A: MapAccess<'de>>(&mut self, map: A) -> Result<(), A::Error>;
}

/// Large parts are boxed, because they are passed through several layers.
impl<T: ObjectParts> ObjectParts for Box<T> {
    fn read<'de, A: MapAccess<'de>>(&mut self, map: A) -> Result<(), A::Error> {
        (**self).read(map)
    }
}

/// Declares a struct with its JSON keys and implements [`ObjectParts`] for it. A derived `Deserialize` would refuse equal
/// keys. `=> Some` keeps `null` apart from a missing key.
macro_rules! object_parts {
    ($(#[$doc:meta])* $vis:vis struct $name:ident { $($field:ident: $type:ty = $key:literal $(=> $wrap:path)?,)* }) => {
        $(#[$doc])*
        #[derive(Default)]
        $vis struct $name {
            $($field: $type,)*
        }

        impl $crate::wire::decode::ObjectParts for $name {
            fn read<'de, A: serde::de::MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
                #[derive(serde::Deserialize)]
                #[serde(field_identifier)]
                #[expect(non_camel_case_types, reason = "named as the fields")]
                enum Key {
                    $(#[serde(rename = $key)] $field,)*
                    #[serde(other)]
                    Other,
                }
                while let Some(key) = map.next_key()? {
                    match key {
                        $(Key::$field => self.$field = $($wrap)?(map.next_value()?),)*
                        Key::Other => {
                            map.next_value::<serde::de::IgnoredAny>()?;
                        }
                    }
                }
                Ok(())
            }
        }
    };
}
pub(super) use object_parts;

/// An object, or what was found instead.
pub(super) enum Object<T> {
    /// The object was read.
    Is(T),
    /// `null`.
    Null,
    /// Another type, by its JSON name.
    Not(&'static str),
}

impl<'de, T: ObjectParts> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut parts = T::default();
        Ok(match Filled(&mut parts).deserialize(deserializer)? {
            Object::Is(()) => Self::Is(parts),
            Object::Null => Self::Null,
            Object::Not(what) => Self::Not(what),
        })
    }
}

/// Reads an object into fresh parts, where they are.
pub(super) struct Filled<'a, T>(pub(super) &'a mut T);

impl<'de, T: ObjectParts> DeserializeSeed<'de> for Filled<'_, T> {
    type Value = Object<()>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: ObjectParts> Visitor<'de> for Filled<'_, T> {
    type Value = Object<()>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        self.0.read(map)?;
        Ok(Object::Is(()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Object::Not("an array"))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Object::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Object::Not("a boolean"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Object::Not("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Object::Not("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Object::Not("a number"))
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Object::Not("text"))
    }
}

/// Replaces escaped halves of surrogate pairs by U+FFFD; `None` when there are none.
///
/// Peers that truncate text by UTF-16 units send such halves; their frames are otherwise valid.
pub(super) fn without_lone_surrogates(line: &[u8]) -> Option<Vec<u8>> {
    let mut mended = line.to_vec();
    let mut changed = false;
    let mut at = 0;
    while at + 1 < mended.len() {
        if mended[at] != b'\\' {
            at += 1;
            continue;
        }
        match (escape_at(&mended, at), escape_at(&mended, at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => at += 12,
            (Some(0xd800..0xe000), _) => {
                mended[at + 2..at + 6].copy_from_slice(b"fffd");
                changed = true;
                at += 6;
            }
            _ => at += 2,
        }
    }
    changed.then_some(mended)
}

/// The `\uXXXX` escape that starts at `at`.
fn escape_at(line: &[u8], at: usize) -> Option<u32> {
    let digits = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The `bufferId` of a line that does not parse: the last key of that name in the outermost object. Strings and nested
/// objects are skipped, so message text cannot forge one.
pub(super) fn buffer_id(line: &[u8]) -> Option<String> {
    let mut found = None;
    let (mut at, mut depth) = (0, 0_usize);
    while at < line.len() {
        match line[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let Some(end) = string_end(line, at) else { break };
                let rest = line[end..].trim_ascii_start();
                if depth == 1
                    && &line[at..end] == b"\"bufferId\""
                    && let Some(value) = rest.strip_prefix(b":")
                {
                    found = scalar_text(value.trim_ascii_start());
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The `bufferId` from the end of a truncated line, if it is the last key of the outermost object, as connectors write
/// it. An escaped quote does not match.
pub(super) fn buffer_id_at_end(end: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"bufferId\"";
    let at = memchr::memmem::rfind(end, KEY)?;
    // The byte before the first may have been a backslash.
    if at == 0 || end[at - 1] == b'\\' {
        return None;
    }
    let value = end[at + KEY.len()..]
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii();
    let value = value.strip_suffix(b"}")?.trim_ascii_end();
    let whole = match value.first() {
        Some(b'"') => string_end(value, 0) == Some(value.len()),
        _ => value.iter().all(u8::is_ascii_digit),
    };
    scalar_text(value).filter(|_| whole)
}

/// The `bufferId` from the start of a truncated line. A number at the very end may be incomplete.
pub(super) fn buffer_id_at_start(start: &[u8]) -> Option<String> {
    let cut = start.iter().rposition(|byte| !byte.is_ascii_digit())?;
    buffer_id(&start[..=cut])
}

/// End of the string that starts at `at`, after its closing quote.
fn string_end(line: &[u8], at: usize) -> Option<usize> {
    let mut next = at + 1;
    loop {
        match line.get(next)? {
            b'"' => return Some(next + 1),
            b'\\' => next += 2,
            _ => next += 1,
        }
    }
}

/// The text or whole number that a value begins with.
fn scalar_text(value: &[u8]) -> Option<String> {
    if value.first() == Some(&b'"') {
        let id: String = serde_json::from_slice(&value[..string_end(value, 0)?]).ok()?;
        return Some(id).filter(|id| !id.is_empty());
    }
    let digits: Vec<u8> = value.iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits)
        .ok()
        .filter(|id| !id.is_empty() && id != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_halves_are_replaced() {
        let mend =
            |text: &str| without_lone_surrogates(text.as_bytes()).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(mend(r#""\ud83d\ude00""#), None);
        assert_eq!(mend(r#""\\ud83d""#), None);
        assert_eq!(mend(r#""a\ud83d""#).as_deref(), Some(r#""a\ufffd""#));
        assert_eq!(
            mend(r#""\ude00\ud83d\ud83d\ude00""#).as_deref(),
            Some(r#""\ufffd\ufffd\ud83d\ude00""#)
        );
        assert_eq!(mend(r#""\ud8"#), None);
    }

    #[test]
    fn the_buffer_id_is_found_by_its_own_key_only() {
        assert_eq!(buffer_id(br#"{"x":NaN,"bufferId":"b1"}"#).as_deref(), Some("b1"));
        assert_eq!(buffer_id(br#"{"bufferId": 12, "x": nope"#).as_deref(), Some("12"));
        assert_eq!(buffer_id(br#"{"text":"\"bufferId\":\"forged\"" x}"#), None);
        assert_eq!(
            buffer_id(br#"{"event":{"bufferId":"inner"},"bufferId":"outer","x":NaN}"#).as_deref(),
            Some("outer")
        );
        assert_eq!(
            buffer_id(br#"{"bufferId":"outer","event":{"bufferId":"inner","x":NaN}}"#).as_deref(),
            Some("outer")
        );
        assert_eq!(
            buffer_id(br#"{"bufferId":"b1","event":{"text":"bufferId"},"x":NaN}"#).as_deref(),
            Some("b1")
        );
        assert_eq!(buffer_id(br#"{"bufferId":"#), None);
        assert_eq!(buffer_id(br#"{"bufferId":"open"#), None);
        let long = format!(r#"{{"bufferId":"{}","x":NaN}}"#, "b".repeat(1000));
        assert_eq!(buffer_id(long.as_bytes()).map(|id| id.len()), Some(1000));
    }

    #[test]
    fn the_start_of_a_line_names_it_before_anything_is_cut_off() {
        let id = |start: &str| buffer_id_at_start(start.as_bytes());
        assert_eq!(
            id(r#"{"bufferId":"b1","event":{"text":"xxx"#).as_deref(),
            Some("b1")
        );
        assert_eq!(
            id(r#"{"type":"inbound","bufferId":17,"event":{"#).as_deref(),
            Some("17")
        );
        assert_eq!(id(r#"{"type":"inbound","bufferId":17"#), None);
        assert_eq!(id(r#"{"type":"inbound","bufferId":"cut"#), None);
        assert_eq!(id(r#"{"event":{"bufferId":"inner","text":"#), None);
        assert_eq!(id(r#"{"event":{"text":"\"},\"bufferId\":\"forged\",x"#), None);
        assert_eq!((id(""), id("123")), (None, None));
    }

    #[test]
    fn the_end_of_a_line_names_it_only_as_its_last_key() {
        let id = |end: &str| buffer_id_at_end(end.as_bytes());
        assert_eq!(id(r#"xxx"},"bufferId":"b1"}"#).as_deref(), Some("b1"));
        assert_eq!(id(r#"xxx"}, "bufferId": 7 } "#).as_deref(), Some("7"));
        assert_eq!(id(r#"xxx","bufferId":"inner"}}"#), None);
        assert_eq!(id(r#"x\"bufferId\":\"forged\"}"}"#), None);
        assert_eq!(id(r#""bufferId":"cut"}"#), None);
        assert_eq!(id(r#"x,"bufferId":"b","type":"inbound"}"#), None);
    }
}
