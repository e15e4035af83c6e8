//! Reads a line of JSON as connectors write it, in a fraction of what a general reader takes.
//!
//! It knows the JSON of nearly every frame and gives up on all else: control characters, whitespace other than spaces, numbers that
//! are no short integers, halves of surrogate pairs, deep nesting. Whoever calls it reads the line with `serde_json` then. What it
//! does read, it reads as that does.

use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
    value::BorrowedStrDeserializer,
};
use serde::forward_to_deserialize_any;

use super::json_text::next_special;

/// Containers within each other.
const MAX_DEPTH: u8 = 32;
/// Digits of a number, which then fits every integer type.
const MAX_DIGITS: usize = 18;
/// Room for a text with escapes to begin with.
const ROOM: usize = 1024;

/// Reads a value that is all of the line; `None` when it is not for this reader.
pub(super) fn read<'de, S: DeserializeSeed<'de>>(line: &'de str, seed: S) -> Option<S::Value> {
    let mut reader = JsonReader {
        line,
        at: 0,
        depth: 0,
        unescaped: String::new(),
    };
    let value = seed.deserialize(&mut reader).ok()?;
    (reader.peek() == END && reader.at == line.len()).then_some(value)
}

/// Stands for what is after the last byte. A line of JSON has no such byte.
const END: u8 = 0;

/// The line is not for this reader.
#[derive(Debug)]
struct GiveUp;

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not for this reader")
    }
}

impl std::error::Error for GiveUp {}

impl de::Error for GiveUp {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

struct JsonReader<'de> {
    line: &'de str,
    at: usize,
    depth: u8,
    /// The last text with escapes, without them.
    unescaped: String,
}

impl<'de> JsonReader<'de> {
    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.line.as_bytes().get(at).copied().unwrap_or(END)
    }

    /// The next byte that is no space.
    #[inline]
    fn peek(&mut self) -> u8 {
        loop {
            match self.byte(self.at) {
                b' ' => self.at += 1,
                byte => return byte,
            }
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), GiveUp> {
        if self.peek() != byte {
            return Err(GiveUp);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes these letters.
    #[inline]
    fn word(&mut self, word: &str) -> Result<(), GiveUp> {
        let rest = self.line.as_bytes().get(self.at..).ok_or(GiveUp)?;
        if !rest.starts_with(word.as_bytes()) {
            return Err(GiveUp);
        }
        self.at += word.len();
        Ok(())
    }

    /// A text without escapes, whose opening quote is next; stays where it is for all else.
    #[inline]
    fn plain_text(&mut self) -> Option<&'de str> {
        let start = self.at + 1;
        let stop = next_special(self.line.as_bytes(), start);
        if self.byte(stop) != b'"' {
            return None;
        }
        self.at = stop + 1;
        self.line.get(start..stop)
    }

    /// A text with escapes, whose opening quote is next. The next one takes its place.
    #[cold]
    fn escaped_text(&mut self) -> Result<&str, GiveUp> {
        self.at += 1;
        self.unescaped.clear();
        self.unescaped.reserve(ROOM.min(self.line.len() - self.at));
        loop {
            let stop = next_special(self.line.as_bytes(), self.at);
            let plain = self.line.get(self.at..stop).ok_or(GiveUp)?;
            self.unescaped.push_str(plain);
            self.at = stop + 1;
            match self.byte(stop) {
                b'"' => return Ok(&self.unescaped),
                b'\\' => {
                    let character = self.escape()?;
                    self.unescaped.push(character);
                }
                _ => return Err(GiveUp),
            }
        }
    }

    /// The character of an escape, after its backslash.
    fn escape(&mut self) -> Result<char, GiveUp> {
        let letter = self.byte(self.at);
        self.at += 1;
        Ok(match letter {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => return self.unicode_escape(),
            _ => return Err(GiveUp),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, GiveUp> {
        let code = match self.hex()? {
            high @ 0xd800..0xdc00 => {
                self.word("\\u")?;
                let low = self.hex()?;
                if !(0xdc00..0xe000).contains(&low) {
                    return Err(GiveUp);
                }
                0x1_0000 + ((high - 0xd800) << 10 | (low - 0xdc00))
            }
            code => code,
        };
        char::from_u32(code).ok_or(GiveUp)
    }

    /// Four digits.
    fn hex(&mut self) -> Result<u32, GiveUp> {
        let digits = self.line.as_bytes().get(self.at..self.at + 4).ok_or(GiveUp)?;
        self.at += 4;
        digits.iter().try_fold(0, |code, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(GiveUp)?;
            Ok(code << 4 | digit)
        })
    }

    /// The digits of an integer, with nothing after them that would belong to it.
    fn integer(&mut self) -> Result<i64, GiveUp> {
        let start = self.at;
        let mut number = 0;
        while let digit @ b'0'..=b'9' = self.byte(self.at) {
            if self.at - start == MAX_DIGITS {
                return Err(GiveUp);
            }
            number = number * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        let leads_with_zero = self.byte(start) == b'0' && self.at - start > 1;
        if self.at == start || leads_with_zero || matches!(self.byte(self.at), b'.' | b'e' | b'E') {
            return Err(GiveUp);
        }
        Ok(number)
    }

    /// What is in a container, whose opening bracket is next and whose closing one is `close`.
    fn within<T>(
        &mut self,
        close: u8,
        visit: impl FnOnce(Elements<'_, 'de>) -> Result<T, GiveUp>,
    ) -> Result<T, GiveUp> {
        if self.depth == MAX_DEPTH {
            return Err(GiveUp);
        }
        self.at += 1;
        self.depth += 1;
        let value = visit(Elements {
            reader: self,
            close,
            is_first: true,
        })?;
        self.depth -= 1;
        self.expect(close)?;
        Ok(value)
    }
}

impl<'de> Deserializer<'de> for &mut JsonReader<'de> {
    type Error = GiveUp;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, GiveUp> {
        match self.peek() {
            b'"' => match self.plain_text() {
                Some(text) => visitor.visit_borrowed_str(text),
                None => visitor.visit_str(self.escaped_text()?),
            },
            b'{' => self.within(b'}', |fields| visitor.visit_map(fields)),
            b'[' => self.within(b']', |items| visitor.visit_seq(items)),
            b'n' => {
                self.word("null")?;
                visitor.visit_unit()
            }
            b't' => {
                self.word("true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.word("false")?;
                visitor.visit_bool(false)
            }
            b'0'..=b'9' => visitor.visit_u64(self.integer()?.unsigned_abs()),
            b'-' => {
                self.at += 1;
                match self.integer()? {
                    // Others read it as a fraction.
                    0 => Err(GiveUp),
                    number => visitor.visit_i64(-number),
                }
            }
            _ => Err(GiveUp),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, GiveUp> {
        if self.peek() == b'n' {
            self.word("null")?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The elements of an array, or the fields of an object.
struct Elements<'r, 'de> {
    reader: &'r mut JsonReader<'de>,
    close: u8,
    is_first: bool,
}

impl Elements<'_, '_> {
    /// Goes to the next one; `false` when there is none.
    #[inline]
    fn advance(&mut self) -> Result<bool, GiveUp> {
        let next = self.reader.peek();
        if next == self.close {
            return Ok(false);
        }
        if self.is_first {
            self.is_first = false;
        } else if next == b',' {
            self.reader.at += 1;
        } else {
            return Err(GiveUp);
        }
        Ok(true)
    }
}

impl<'de> MapAccess<'de> for Elements<'_, 'de> {
    type Error = GiveUp;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, GiveUp> {
        if !self.advance()? {
            return Ok(None);
        }
        if self.reader.peek() != b'"' {
            return Err(GiveUp);
        }
        match self.reader.plain_text() {
            Some(key) => seed.deserialize(BorrowedStrDeserializer::new(key)),
            None => seed.deserialize(self.reader.escaped_text()?.into_deserializer()),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, GiveUp> {
        self.reader.expect(b':')?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = GiveUp;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, GiveUp> {
        if !self.advance()? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::marker::PhantomData;

    fn quick(line: &str) -> Option<Value> {
        read(line, PhantomData)
    }

    #[test]
    fn what_connectors_write_is_read() {
        let event = json!({
            "text": "a \"b\"\n\\ \u{1}\u{8}\u{c}\u{7f}é😀/", "ids": [0, -1, 12, "", true, false, null], "empty": [{}, []],
            "large": [999_999_999_999_999_999_u64, -999_999_999_999_999_999_i64],
        });
        let spaced = r#" { "a" : [ 1 , "b" ] , "b" : { } }  "#;
        let escaped = r#"{"\u0061\/":"\ud83d\ude00\u0000\uD7FF\ue000\"\b"}"#;
        for line in [&event.to_string(), spaced, escaped, "\"x\"", "7", "null"] {
            assert_eq!(quick(line), Some(serde_json::from_str(line).unwrap()), "{line}");
        }
    }

    #[test]
    fn all_else_is_left_to_the_general_reader() {
        let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
        for line in [
            "",
            " ",
            "{",
            "[",
            "\"",
            "\"\\",
            "\"\\u12",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{a:1}",
            "{\"a\":1",
            "{}{}",
            "01",
            "-0",
            "-",
            "1.0",
            "1e2",
            "1234567890123456789",
            "+1",
            "nul",
            "nulls",
            "True",
            "\"\\x\"",
            "\"\\ud83d\"",
            "\"\\ud83dx\"",
            "\"\\ud83d\\u0041\"",
            "\"\\ude00\"",
            "\"\\u12g4\"",
            "\"a\tb\"",
            "{}\0",
            "\0",
            "[1,\n2]",
            "{\"a\":\t1}",
            "\u{feff}{}",
            &deep,
        ] {
            assert_eq!(quick(line), None, "{line:?}");
        }
    }

    /// Pieces of JSON, so that most lines are nearly right.
    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"", "\\", " ", "\t", "null", "true", "0", "-", "12", ".", "e", "\"a\"", "\"a\":", "\"b\":1",
                "\\n", "\\ud83d", "\\ude00", "\\u00e9", "é", "{}", "[]",
                "$serde_json::private::RawValue",
            ])
            .prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_general_reader_reads(line in pieces()) {
            for line in [line.clone(), format!("[{line}]"), format!("{{\"a\":{line}}}"), format!("\"{line}\"")] {
                if let Some(value) = quick(&line) {
                    prop_assert_eq!(Some(value), serde_json::from_str(&line).ok(), "{}", line);
                }
            }
        }

        #[test]
        fn any_value_is_read_alike(value in values(), pretty in any::<bool>()) {
            let line = if pretty { format!("{value:#}").replace('\n', " ") } else { value.to_string() };
            if let Some(read) = quick(&line) {
                prop_assert_eq!(read, serde_json::from_str::<Value>(&line).unwrap());
            }
        }
    }
}
