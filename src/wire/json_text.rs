//! Texts in JSON: where they stop being plain, and how they are written.

use std::fmt::Write as _;

/// The place of the next byte, from here on, that a JSON text does not have as it is: a quote, a backslash or a control character.
/// The end if there is none.
#[inline]
pub(super) fn next_special(text: &[u8], from: usize) -> usize {
    let (words, rest) = text.get(from..).unwrap_or_default().as_chunks();
    let mut at = from;
    for word in words {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    // What follows the last byte is marked.
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    at + marks(u64::from_le_bytes(word)).trailing_zeros() as usize / 8
}

/// Marks the special bytes of a word. The first mark is right; one above it may be wrong.
#[inline]
fn marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Changing this bit brings the quote next to the control characters, and the space away from them.
    let moved = word ^ (ONES * 2);
    let quote_or_control = moved.wrapping_sub(ONES * u64::from(b'!')) & !moved;
    let rest = word ^ (ONES * u64::from(b'\\'));
    let backslash = rest.wrapping_sub(ONES) & !rest;
    (quote_or_control | backslash) & (ONES << 7)
}

/// Appends a JSON string, quotes included.
pub(super) fn push_text(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut at = 0;
    loop {
        let special = next_special(text.as_bytes(), at);
        out.push_str(&text[at..special]);
        let Some(byte) = text.as_bytes().get(special) else {
            break;
        };
        push_escape(out, *byte);
        at = special + 1;
    }
    out.push('"');
}

/// A JSON object with these texts, where set. Keys are written as they are: they are names.
pub fn object_of_texts(texts: &[(&'static str, Option<&str>)]) -> String {
    let room = texts
        .iter()
        .map(|(key, text)| key.len() + text.map_or(0, str::len) + 6);
    let mut out = String::with_capacity(room.sum::<usize>() + 2);
    out.push('{');
    push_fields(&mut out, texts);
    if out.ends_with(',') {
        out.pop();
    }
    out.push('}');
    out
}

/// Appends these fields, where set, each with a comma behind it.
pub(super) fn push_fields(out: &mut String, texts: &[(&'static str, Option<&str>)]) {
    for (key, text) in texts {
        if let Some(text) = text {
            out.push('"');
            out.push_str(key);
            out.push_str("\":");
            push_text(out, text);
            out.push(',');
        }
    }
}

fn push_escape(out: &mut String, byte: u8) {
    out.push_str(match byte {
        b'"' => "\\\"",
        b'\\' => "\\\\",
        b'\n' => "\\n",
        b'\r' => "\\r",
        b'\t' => "\\t",
        0x08 => "\\b",
        0x0c => "\\f",
        control => {
            let _ = write!(out, "\\u{control:04x}");
            return;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &str) -> String {
        let mut out = String::new();
        push_text(&mut out, text);
        out
    }

    #[test]
    fn every_byte_at_every_place_is_escaped_as_the_serializer_does() {
        for byte in 0..=0x7f_u8 {
            for before in 0..17 {
                for tail in ["", "#!", "é tail", "\"#", "\\]\\"] {
                    let text = format!("{}{}{tail}", "x".repeat(before), char::from(byte));
                    assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_escaped_as_the_serializer_does(text in any::<String>()) {
            prop_assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
        }
    }
}
