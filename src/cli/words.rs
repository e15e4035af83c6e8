//! How things are worded for a terminal: spans of time, sizes, and texts from outside.

/// A text in which nothing can move a terminal's cursor.
pub(super) fn spelled(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            spelled.extend(character.escape_default());
        } else {
            spelled.push(character);
        }
    }
    spelled
}

/// A span of time in its two largest units.
pub(super) fn span(ms: u64) -> String {
    let secs = ms / 1000;
    match secs {
        0 => format!("{ms} ms"),
        1..60 => format!("{secs} s"),
        60..3600 => format!("{} min {} s", secs / 60, secs % 60),
        3600..86_400 => format!("{} h {} min", secs / 3600, secs % 3600 / 60),
        _ => format!("{} d {} h", secs / 86_400, secs % 86_400 / 3600),
    }
}

/// A size in megabytes.
pub(super) fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / 1_000_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(spelled("a\x1b[2Jb\u{9b}c\n"), "a\\u{1b}[2Jb\\u{9b}c\\n");
        assert_eq!(spelled("Grüße"), "Grüße");
    }

    #[test]
    fn spans_and_sizes_are_told_in_words() {
        let told: Vec<_> = [5, 1500, 61_000, 3_660_000, 90_000_000].map(span).to_vec();
        assert_eq!(told, ["5 ms", "1 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(megabytes(8_450_000), "8.4 MB");
    }
}
