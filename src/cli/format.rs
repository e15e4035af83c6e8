//! Formatting for a terminal: durations, sizes, and text from outside.

/// The text with control characters escaped: it cannot move a terminal's cursor.
pub(super) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

/// A duration in its two largest units.
pub(super) fn duration(ms: u64) -> String {
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
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}c\n"), "a\\u{1b}[2Jb\\u{9b}c\\n");
        assert_eq!(printable("Grüße"), "Grüße");
    }

    #[test]
    fn durations_and_sizes_have_units() {
        let shown: Vec<_> = [5, 1500, 61_000, 3_660_000, 90_000_000].map(duration).to_vec();
        assert_eq!(shown, ["5 ms", "1 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(megabytes(8_450_000), "8.4 MB");
    }
}
