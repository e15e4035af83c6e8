//! Truncation of text, and text that is safe to print. Pure.

/// The first `max_chars` characters.
pub fn truncate(text: &str, max_chars: usize) -> &str {
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

/// The first `max_chars` characters that are not control characters.
pub fn printable(text: &str, max_chars: usize) -> String {
    text.chars()
        .filter(|character| !character.is_control())
        .take(max_chars)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn printable_text_has_no_control_characters() {
        assert_eq!(printable("a\u{1b}[31mb\nc\0d", 99), "a[31mbcd");
        assert_eq!(printable("\n\nabc", 2), "ab");
    }
}
