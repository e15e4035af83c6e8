//! Escapes text so that a Markdown parser reads it as text.

use std::fmt::Write as _;

/// Appends a text of one line. `line` is where the line begins: some characters mean something only there.
pub(super) fn push_text(text: &str, line: usize, out: &mut String) {
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let before = out[line.min(out.len())..].trim_start();
        let previous = before.chars().next_back();
        let next = rest.peek().copied();
        let escaped = match c {
            '<' => {
                out.push_str("&lt;");
                continue;
            }
            '>' => {
                out.push_str("&gt;");
                continue;
            }
            '&' => {
                out.push_str("&amp;");
                continue;
            }
            '\\' | '`' | '[' | ']' | '|' | '~' | '$' => true,
            // Between spaces, or within a word, it marks nothing.
            '*' => !(previous == Some(' ') && next == Some(' ')),
            '_' => {
                let in_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                !(in_word(previous) && in_word(next))
            }
            '=' => before.is_empty() || next == Some('=') || previous == Some('='),
            '-' | '+' => before.is_empty(),
            '^' => previous == Some('['),
            '#' => before.is_empty() || previous == Some(' '),
            '.' | ')' => !before.is_empty() && before.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        };
        if escaped {
            out.push('\\');
        }
        out.push(c);
    }
}

/// Appends a text within HTML, whether Markdown is read there or not.
pub(super) fn push_reference_text(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            c if c.is_ascii_punctuation() && !matches!(c, '.' | ',' | ':' | '-' | '(' | ')' | '\'') => {
                out.push_str("&#");
                out.push_str(&u32::from(c).to_string());
                out.push(';');
            }
            c => out.push(c),
        }
    }
}

/// Appends the address of a link.
pub(super) fn push_address(url: &str, out: &mut String) {
    for c in url.chars() {
        match c {
            '(' | ')' | '<' | '>' | '\\' | '`' | '|' | '"' | '\'' | '*' | '[' | ']' | '$' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{:02X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// A run of backticks that is longer than any in a text, and at least this long.
pub(super) fn fence_for(text: &str, shortest: usize) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    "`".repeat((longest + 1).max(shortest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_markdown_would_read_is_escaped_and_nothing_else() {
        for (text, expected) in [
            ("plain, text. (here) 3.5!", "plain, text. (here) 3.5!"),
            ("a_b __c__", "a_b \\_\\_c\\_\\_"),
            ("2 * 3 *x*", "2 * 3 \\*x\\*"),
            ("<img src=x> & co", "&lt;img src=x&gt; &amp; co"),
            ("![a](b)", "!\\[a\\](b)"),
            ("$5 ~6 `x` a|b", "\\$5 \\~6 \\`x\\` a\\|b"),
            ("==x== a=b", "\\=\\=x\\=\\= a=b"),
            ("# x #1 c#", "\\# x \\#1 c#"),
            ("- x - y", "\\- x - y"),
            ("12. x 3. y", "12\\. x 3. y"),
            ("1) x", "1\\) x"),
            ("\\", "\\\\"),
        ] {
            let mut out = String::new();
            push_text(text, 0, &mut out);
            assert_eq!(out, expected);
        }
        // Where a line has begun already.
        let mut out = "a ".to_owned();
        push_text("- 1. x", 0, &mut out);
        assert_eq!(out, "a - 1. x");
    }

    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert_eq!(fence_for("a", 1), "`");
        assert_eq!(fence_for("a ` b `` c", 1), "```");
        assert_eq!(fence_for("x", 3), "```");
        assert_eq!(fence_for("````", 3), "`````");
    }

    #[test]
    fn addresses_cannot_end_their_link() {
        let mut out = String::new();
        push_address("https://a.b/c_(d)?e=`f`&g=[h]", &mut out);
        assert_eq!(out, "https://a.b/c_%28d%29?e=%60f%60&g=%5Bh%5D");
    }
}
