//! Texts of others made fit to be shown: nothing invisible, nothing that leaves its frame, nothing endless.
//!
//! It never changes what is decided, only what is seen.

/// Stands for what cannot be seen but must not go unseen.
const UNSEEN: char = '\u{fffd}';
/// Shows nothing and keeps two marks from being read as one.
const GAP: char = '\u{200b}';
/// Longest name of a person.
const NAME_POINTS: usize = 32;
/// What gives a name a meaning of its own in some dialect.
const MARKUP: &str = "@<>`*_~|[](){}#:/\\";

/// One line of at most `most` code points: white space is folded, what is cut is marked.
pub(super) fn line(text: &str, most: usize) -> String {
    let visible = text
        .chars()
        .map(|point| if point.is_whitespace() { ' ' } else { point });
    let mut folded = String::new();
    let mut points = 0;
    for point in visible.filter(|point| !is_hidden(*point)) {
        if point == ' ' && (folded.is_empty() || folded.ends_with(' ')) {
            continue;
        }
        folded.push(point);
        points += 1;
        if points > most {
            break;
        }
    }
    let folded = folded.trim_end();
    if folded.chars().count() <= most {
        return folded.to_owned();
    }
    let kept: String = folded.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// A person's name: short, one line, and not able to call anybody.
pub(super) fn name(text: &str) -> String {
    let plain: String = text
        .chars()
        .take(NAME_POINTS * 8)
        .map(|point| if MARKUP.contains(point) { ' ' } else { point })
        .collect();
    let name = line(&plain, NAME_POINTS);
    if name.is_empty() {
        "someone".to_owned()
    } else {
        name
    }
}

/// A few lines, at most `most` code points read: nothing hidden, at most one empty line at a time.
pub(super) fn paragraph(text: &str, most: usize) -> String {
    let mut kept = String::new();
    for point in text.chars().take(most) {
        match point {
            '\n' if kept.ends_with("\n\n") => {}
            '\n' => kept.push('\n'),
            _ if point.is_whitespace() => kept.push(' '),
            _ if is_hidden(point) => {}
            _ => kept.push(point),
        }
    }
    kept.trim().to_owned()
}

/// The text with code marks only where they are in pairs of single ones; otherwise it could swallow, or open, what
/// follows it.
pub(super) fn paired_ticks(text: &str) -> String {
    let paired = text.matches('`').count().is_multiple_of(2) && !text.contains("``") && !text.contains("\\`");
    if paired {
        text.to_owned()
    } else {
        text.replace('`', "'")
    }
}

/// A text to be read verbatim: what is hidden shows as a mark, and no line of it closes a code block.
pub(super) fn verbatim(text: &str) -> String {
    let mut kept = String::new();
    let mut points = text.trim_end_matches(['\n', '\r']).chars().peekable();
    let mut before = '\0';
    while let Some(point) = points.next() {
        match point {
            '\r' if points.peek() == Some(&'\n') => continue,
            '\n' | '\t' => kept.push(point),
            '`' if before == '`' => kept.extend([GAP, '`']),
            _ if is_hidden(point) => kept.push(UNSEEN),
            _ => kept.push(point),
        }
        before = point;
    }
    kept
}

/// What takes no room on the screen or turns the direction of what follows.
fn is_hidden(point: char) -> bool {
    point.is_control()
        || matches!(point,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_calls_nobody() {
        for (given, shown) in [
            ("Ann", "Ann"),
            ("  Ann\n\tLee ", "Ann Lee"),
            ("@everyone", "everyone"),
            ("<@123> <!here>", "123 !here"),
            ("[x](https://evil.example)", "x https evil.example"),
            ("\u{202e}nnA\u{200b}\u{7}", "nnA"),
            ("\u{3164}\n", "someone"),
            ("", "someone"),
        ] {
            assert_eq!(name(given), shown, "{given:?}");
        }
        let long = name(&"å".repeat(5_000));
        assert!(long.chars().count() == NAME_POINTS && long.ends_with('…'));
    }

    #[test]
    fn a_verbatim_text_shows_what_hides_and_closes_nothing() {
        for (given, shown) in [
            ("ls -la\n", "ls -la"),
            ("a\r\nb\rc", "a\nb\u{fffd}c"),
            ("safe\u{202e}live", "safe\u{fffd}live"),
            ("a``b", "a`\u{200b}`b"),
        ] {
            assert_eq!(verbatim(given), shown, "{given:?}");
        }
        for ticks in 2..9 {
            let hostile = format!("x\n{}\n@everyone", "`".repeat(ticks));
            assert!(!verbatim(&hostile).contains("``"));
        }
        assert_eq!(verbatim("`\r\n`"), "`\n`");
    }

    #[test]
    fn code_marks_stay_only_where_they_are_in_pairs() {
        for (given, shown) in [
            ("run `ls`?", "run `ls`?"),
            ("run `ls?", "run 'ls?"),
            ("```\nrun", "'''\nrun"),
            ("a \\` b `", "a \\' b '"),
        ] {
            assert_eq!(paired_ticks(given), shown);
        }
    }

    #[test]
    fn a_line_folds_white_space_and_marks_what_it_cuts() {
        assert_eq!(line(" a \n\u{2003} b\u{0} ", 75), "a b");
        assert_eq!(line("abcdef", 6), "abcdef");
        assert_eq!(line("abcdefg", 6), "abcde…");
        assert_eq!(line("abcde   ", 5), "abcde");
        assert_eq!(paragraph("a\n\n\n\n\u{200b}b\u{2028}c", 99), "a\n\nb c");
    }
}
