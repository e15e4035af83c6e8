//! Reading JSON objects field by field: unknown keys are skipped, the last of equal keys wins, and a value
//! of the wrong shape is reported by name instead of ending the parse.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Why a frame cannot be used. Never carries message text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, not UTF-8, or nested too deeply.
    #[error("not valid JSON: {0}")]
    Json(String),
    /// A JSON value, but not an object.
    #[error("the frame is {0}, not an object")]
    NotAnObject(&'static str),
    /// A known field of a known frame has a shape that cannot be read.
    #[error("{field} is not {wanted}")]
    WrongType {
        /// The field, with its path.
        field: &'static str,
        /// What it should have been.
        wanted: &'static str,
    },
    /// A number that would lose digits where an id is expected.
    #[error("{field} is a number too large to keep exactly")]
    NumberTooLarge {
        /// The field, with its path.
        field: &'static str,
    },
    /// A field that must be there is not.
    #[error("{0} is missing")]
    Missing(String),
    /// The line is longer than the limit.
    #[error("the line is longer than the limit of {limit} bytes")]
    TooLong {
        /// The limit that was passed.
        limit: usize,
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

/// What an object of one kind is read into.
pub(super) trait ObjectParts: Sized {
    /// Reads every key; the last of equal keys wins.
    fn read<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error>;
}

/// An object, or what was there instead of it.
pub(super) enum Object<T> {
    /// The object.
    Is(T),
    /// `null`.
    Null,
    /// Something else; said by its JSON name.
    Not(&'static str),
}

impl<'de, T: ObjectParts> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: ObjectParts> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::read(map).map(Object::Is)
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
