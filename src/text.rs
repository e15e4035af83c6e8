//! Truncation of text, text from outside that is safe to print, and numbers and instants as text. Pure.
//!
//! The one place that says which characters a log or a terminal never gets as they are.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

/// The first `max_chars` characters.
pub fn truncate(text: &str, max_chars: usize) -> &str {
    if text.len() <= max_chars {
        return text;
    }
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// As many whole characters as fit in `max_bytes`.
pub fn truncate_bytes(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// As many whole characters from the end as fit in `max_bytes`.
pub fn last_bytes(text: &str, max_bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(max_bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Bytes in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
            // Writing to a String does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The last line that is not blank, without the space around it; its end, if it is longer than `max_bytes`.
pub fn last_line(text: &str, max_bytes: usize) -> &str {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last_bytes(line.unwrap_or_default(), max_bytes)
}

/// Whether a reader would not see this character but its effect: control characters, with which terminals are driven, and
/// the invisible ones that reorder or hide what surrounds them. Joiners, which scripts and emoji need, are printable.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text on one line, with every unprintable character escaped as in JSON.
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_except(text, &[])
}

/// [`escape`] that keeps line breaks and tabs.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_except(text, &['\n', '\t'])
}

fn escape_except<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let is_escaped = |c: char| is_unprintable(c) && !kept.contains(&c);
    let Some(first) = text.find(is_escaped) else {
        return Cow::Borrowed(text);
    };
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(&text[..first]);
    for c in text[first..].chars() {
        match c {
            _ if !is_escaped(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String does not fail.
                    let _ = write!(escaped, "\\u{unit:04x}");
                }
            }
        }
    }
    Cow::Owned(escaped)
}

/// The first `max_chars` printable characters.
pub fn printable(text: &str, max_chars: usize) -> String {
    text.chars()
        .filter(|character| !is_unprintable(*character))
        .take(max_chars)
        .collect()
}

/// A text on one line of at most `max_chars` characters: white space and control characters are folded into single spaces,
/// invisible characters removed.
pub fn one_line(text: &str, max_chars: usize) -> String {
    folded(text, max_chars, |_| 1)
}

/// The same with a maximum in UTF-16 units, in which characters beyond the basic plane count twice.
pub fn one_line_utf16(text: &str, max_units: usize) -> String {
    folded(text, max_units, char::len_utf16)
}

fn folded(text: &str, max: usize, size_of: fn(char) -> usize) -> String {
    let mut line = String::new();
    let mut size = 0;
    for character in text.chars() {
        let is_space = character.is_whitespace() || character.is_control();
        let character = if is_space { ' ' } else { character };
        if is_invisible(character) || (is_space && (line.is_empty() || line.ends_with(' '))) {
            continue;
        }
        size += size_of(character);
        if size > max {
            break;
        }
        line.push(character);
    }
    line.truncate(line.trim_end().len());
    line
}

/// Unprintable characters, joiners, fillers and tags: all that can hide in a name or a command.
pub fn is_invisible(c: char) -> bool {
    is_unprintable(c)
        || matches!(c,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200c}'
            | '\u{200d}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0080}'..='\u{e0fff}')
}

/// A duration in its two largest units.
pub fn duration(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0 => format!("{ms} ms"),
        1..60 => format!("{secs} s"),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        3600..86_400 => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// An instant in UTC, as Hermes writes it: `2026-11-15T02:41:00+00:00`.
pub fn instant(unix_secs: i64) -> String {
    let at = Timestamp::from_second(unix_secs).unwrap_or(Timestamp::MAX);
    at.display_with_offset(Offset::UTC).to_string()
}

/// Reads an instant in ISO 8601, as Unix seconds; in UTC unless it has an offset.
pub fn parse_instant(text: &str) -> Option<i64> {
    let text = text.trim();
    let in_utc = |wall| Offset::UTC.to_timestamp(wall);
    let at = text
        .parse::<Timestamp>()
        .or_else(|_| text.parse::<DateTime>().and_then(in_utc));
    at.ok().map(Timestamp::as_second)
}

/// A size in megabytes.
pub fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / 1_000_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

/// The text as one segment of a path: letters, digits and `-_~.` stay, everything else is encoded.
pub fn percent_encode(text: &str) -> impl Iterator<Item = char> {
    text.bytes().flat_map(|byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_~.".contains(&byte);
        let digit = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
        let all = [
            if is_plain { char::from(byte) } else { '%' },
            digit(byte >> 4),
            digit(byte & 15),
        ];
        all.into_iter().take(if is_plain { 1 } else { 3 })
    })
}

/// Decodes `%41` to `A`; other text stays, and invalid UTF-8 is replaced.
pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = digit(at + 1).zip(digit(at + 2)).filter(|_| bytes[at] == b'%');
        let decoded = pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        out.push(decoded.unwrap_or(bytes[at]));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        let shown: Vec<_> = [5, 1500, 61_000, 3_660_000, 90_000_000].map(duration).to_vec();
        assert_eq!(shown, ["5 ms", "1 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(megabytes(8_450_000), "8.4 MB");
    }

    #[test]
    fn instants_are_written_and_read_as_hermes_does() {
        assert_eq!(instant(1_754_700_000), "2025-08-09T00:40:00+00:00");
        assert!(
            instant(i64::MAX).starts_with("9999-12-30T"),
            "the last one that there is"
        );
        for same in [
            "2025-08-09T00:40:00+00:00",
            "2025-08-09T00:40:00Z",
            " 2025-08-09T02:40:00.123456+02:00",
            "2025-08-08 20:40:00-0400",
            "2025-08-09T00:40:00",
            "2025-08-09T00:40",
        ] {
            assert_eq!(parse_instant(same), Some(1_754_700_000), "{same}");
        }
        assert_eq!(parse_instant("2000-02-29"), Some(951_782_400));
        for bad in [
            "",
            "now",
            "2025-02-29",
            "2025-13-01T00:00:00Z",
            "2025-08-09T00:40:00+xx",
            "２０２５-08-09",
        ] {
            assert_eq!(parse_instant(bad), None, "{bad}");
        }
    }

    #[test]
    fn truncation_never_splits_a_character() {
        assert_eq!(truncate("héllo", 2), "hé");
        assert_eq!(truncate("héllo", 9), "héllo");
        assert_eq!(truncate("héllo", 0), "");
        assert_eq!(truncate_bytes("héllo", 2), "h");
        assert_eq!(truncate_bytes("héllo", 3), "hé");
        assert_eq!(truncate_bytes("héllo", 99), "héllo");
        assert_eq!(last_bytes("héllo", 4), "llo");
        assert_eq!(last_bytes("héllo", 99), "héllo");
    }

    #[test]
    fn the_last_line_is_found_behind_blank_ones() {
        assert_eq!(last_line("one\ntwo \r\n\n  \n", 99), "two");
        assert_eq!(last_line("one\nhéllo", 4), "llo");
        assert_eq!(last_line("\n \n", 99), "");
    }

    #[test]
    fn what_would_drive_a_terminal_or_reorder_a_line_is_escaped_as_in_json() {
        for (text, line) in [
            ("a\x1b[2Jb\u{9b}c\n", "a\\u001b[2Jb\\u009bc\\n"),
            (
                "safe\u{202e}evil\u{2066}\r\t\0",
                "safe\\u202eevil\\u2066\\r\\t\\u0000",
            ),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(escape(text), line);
            let json: String = serde_json::from_str(&format!("\"{line}\"")).unwrap();
            assert_eq!(json, text);
        }
        for shown in ["Grüße \\ \"quoted\"", "👩\u{200d}👩", "می\u{200c}خواهم"] {
            assert!(matches!(escape(shown), Cow::Borrowed(_)), "{shown}");
        }
        assert_eq!(escape_lines("one\n\ttwo\r\n"), "one\n\ttwo\\r\n");
    }

    #[test]
    fn printable_text_has_no_control_characters() {
        assert_eq!(printable("a\u{1b}[31mb\nc\0d", 99), "a[31mbcd");
        assert_eq!(printable("\n\nabc", 2), "ab");
    }

    #[test]
    fn one_line_folds_space_and_hides_nothing() {
        assert_eq!(one_line(" a\n\t b\u{1b}\u{2028}c ", 99), "a b c");
        assert_eq!(one_line("a\u{202e}b\u{200b} \u{200b} c", 99), "ab c");
        assert_eq!(one_line("ab cd", 3), "ab");
        assert_eq!(one_line("héllo", 2), "hé");
        assert_eq!(one_line("\u{200b} \n", 9), "");
    }
}
