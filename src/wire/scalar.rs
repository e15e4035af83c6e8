//! Values of more than one JSON type.
//!
//! Where the contract says "string", real peers also send numbers and booleans. A [`Scalar`] keeps the value and reads as
//! text, formatted like the contract's other implementations (`true` as `True`, `1e16` as `1e+16`). A container where text
//! is expected is a [`Loose::Container`], and the caller decides whether that is an error.

use std::fmt::{self, Write as _};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};
use smol_str::SmolStr;

/// Text that may have been a number or a boolean; compares and reads as text, serialises as received.
#[derive(Clone, Debug)]
pub struct Scalar(Form);

/// As small as a `String`: an event has two dozen of these, and nearly all are short texts, which need no allocation.
#[derive(Clone, Debug)]
enum Form {
    Short(SmolStr),
    Long(Box<str>),
    Number(Box<(Number, String)>),
    Bool(bool),
}

const _: () = assert!(size_of::<Option<Scalar>>() <= size_of::<String>());

/// Longest text that needs no allocation.
const SHORT: usize = 23;

impl Scalar {
    /// The value as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Short(text) => text,
            Form::Long(text) => text,
            Form::Number(number) => &number.1,
            Form::Bool(value) => bool_text(*value),
        }
    }

    /// Non-empty text, a non-zero number, or `true`.
    pub fn is_truthy(&self) -> bool {
        match &self.0 {
            Form::Short(text) => !text.is_empty(),
            Form::Long(_) => true,
            Form::Number(number) => number.0.as_f64() != Some(0.0),
            Form::Bool(value) => *value,
        }
    }

    /// Whether it came as a JSON string.
    pub fn is_text(&self) -> bool {
        matches!(self.0, Form::Short(_) | Form::Long(_))
    }

    /// The value as a text of its own that is cheap to copy.
    pub fn to_smolstr(&self) -> SmolStr {
        match &self.0 {
            Form::Short(text) => text.clone(),
            _ => self.as_str().into(),
        }
    }

    /// The value as an owned text that is cheap to copy.
    pub fn into_smolstr(self) -> SmolStr {
        match self.0 {
            Form::Short(text) => text,
            _ => self.as_str().into(),
        }
    }

    /// The value as an owned text.
    pub fn into_string(self) -> String {
        match self.0 {
            Form::Short(text) => text.into(),
            Form::Long(text) => text.into(),
            Form::Number(number) => number.1,
            Form::Bool(value) => bool_text(value).to_owned(),
        }
    }

    fn number(number: Number) -> Self {
        let text = number_text(&number);
        Self(Form::Number(Box::new((number, text))))
    }

    fn bool(value: bool) -> Self {
        Self(Form::Bool(value))
    }
}

impl From<&str> for Scalar {
    fn from(text: &str) -> Self {
        Self(match text.len() {
            ..=SHORT => Form::Short(SmolStr::new_inline(text)),
            _ => Form::Long(text.into()),
        })
    }
}

impl From<String> for Scalar {
    fn from(text: String) -> Self {
        match text.len() {
            ..=SHORT => text.as_str().into(),
            _ => Self(Form::Long(text.into())),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Scalar {}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Short(_) | Form::Long(_) => serializer.serialize_str(self.as_str()),
            Form::Number(number) => number.0.serialize(serializer),
            Form::Bool(value) => serializer.serialize_bool(*value),
        }
    }
}

/// A field of any JSON type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loose {
    /// The key is not there.
    #[default]
    Missing,
    /// `null`.
    Null,
    /// Text, a number or a boolean.
    Scalar(Scalar),
    /// An array or object, whose content is not kept.
    Container {
        /// Whether it has no elements.
        empty: bool,
    },
    /// A number too large to be kept digit for digit.
    Unbounded,
}

impl Loose {
    /// Truthiness as in the contract's peers: missing, zero, `false` and empty values are false.
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Missing | Self::Null => false,
            Self::Scalar(scalar) => scalar.is_truthy(),
            Self::Container { empty } => !empty,
            Self::Unbounded => true,
        }
    }

    /// The scalar, or nothing for anything else. Not inlined, as `id_field`.
    #[inline(never)]
    pub fn into_scalar(self) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) => Some(scalar),
            Self::Missing | Self::Null | Self::Container { .. } | Self::Unbounded => None,
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
        Ok(Loose::Scalar(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Loose, E> {
        Ok(Loose::Scalar(text.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
        Ok(Loose::Scalar(Scalar::number(number.into())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
        Ok(Loose::Scalar(Scalar::number(number.into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Loose, E> {
        // From here on neighbouring integers share one float, so two ids could become one.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        Ok(match Number::from_f64(number) {
            Some(kept) if number.abs() <= EXACT => Loose::Scalar(Scalar::number(kept)),
            _ => Loose::Unbounded,
        })
    }

    fn visit_bool<E>(self, value: bool) -> Result<Loose, E> {
        Ok(Loose::Scalar(Scalar::bool(value)))
    }

    fn visit_unit<E>(self) -> Result<Loose, E> {
        Ok(Loose::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Loose, A::Error> {
        let mut empty = true;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(Loose::Container { empty })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
        let mut empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(Loose::Container { empty })
    }
}

/// Truth of any JSON value, by the rule of [`Loose::is_truthy`].
pub fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Any JSON value as text, formatted like the contract's peers do.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => {
            let mut out = String::new();
            write_literal(&mut out, other);
            out
        }
    }
}

fn write_literal(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(value) => out.push_str(bool_text(*value)),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => write_quoted(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_literal(out, item);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, field)) in fields.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_quoted(out, key);
                out.push_str(": ");
                write_literal(out, field);
            }
            out.push('}');
        }
    }
}

fn write_quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa0).contains(&(c as u32)) => {
                let _ = write!(out, "\\x{:02x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn bool_text(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_text(float),
        _ => number.to_string(),
    }
}

/// Shortest digits; plain between 1e-4 and 1e16, with an exponent of at least two digits outside.
fn float_text(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{float}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_read_as_peers_print_them() {
        for (value, text) in [
            (json!("a"), "a"),
            (json!(5), "5"),
            (json!(-7), "-7"),
            (json!(true), "True"),
            (json!(null), "None"),
            (json!(1.5), "1.5"),
            (json!(100.0), "100.0"),
            (json!(1e16), "1e+16"),
            (json!(1e-5), "1e-05"),
            (json!(1.25e300), "1.25e+300"),
            (json!(["a", 1, null, "it's"]), "['a', 1, None, \"it's\"]"),
            (json!({"k": {"n": false}}), "{'k': {'n': False}}"),
            (json!(["a\nb\u{1}"]), "['a\\nb\\x01']"),
        ] {
            assert_eq!(text_of(&value), text);
        }
    }

    #[test]
    fn a_scalar_goes_out_as_it_came_in() {
        for source in ["\"a\"", "12", "-3", "1.5", "true"] {
            let Loose::Scalar(scalar) = serde_json::from_str(source).unwrap() else {
                panic!("{source}")
            };
            assert_eq!(serde_json::to_string(&scalar).unwrap(), source);
        }
    }

    #[test]
    fn ids_that_would_lose_digits_are_not_ids() {
        let loose: Loose = serde_json::from_str("123456789012345678901234567890").unwrap();
        assert_eq!(loose, Loose::Unbounded);
    }
}
