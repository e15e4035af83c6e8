//! Markdown for a terminal: bold, italic and faint text instead of marks. Takes text that is escaped already. Pure.

const BOLD: (&str, &str) = ("\x1b[1m", "\x1b[22m");
const ITALIC: (&str, &str) = ("\x1b[3m", "\x1b[23m");
const FAINT: (&str, &str) = ("\x1b[2m", "\x1b[22m");
/// Marks and what they make of the text between two of them; longer ones first.
const MARKS: [(&str, (&str, &str)); 5] = [
    ("`", FAINT),
    ("**", BOLD),
    ("__", BOLD),
    ("*", ITALIC),
    ("_", ITALIC),
];

/// A message as a terminal shows it. Marks that have no partner stay as they are.
pub(super) fn render(text: &str) -> String {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let (head, body) = match line.split_once(": ") {
            // The author, in front of the first line.
            Some((author, body)) if lines.is_empty() && !author.contains(['*', '_', '`']) => {
                (&line[..author.len() + 2], body)
            }
            _ => ("", line),
        };
        if body.trim_start().starts_with("```") {
            is_code = !is_code;
            if !head.is_empty() {
                lines.push(head.trim_end().to_owned());
            }
        } else if is_code {
            lines.push(format!("{}{line}{}", FAINT.0, FAINT.1));
        } else {
            lines.push(format!("{head}{}", line_of(body)));
        }
    }
    lines.join("\n")
}

fn line_of(line: &str) -> String {
    let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&hashes)
        && let Some(title) = line[hashes..].strip_prefix(' ')
    {
        return format!("{}{}{}", BOLD.0, inline(title), BOLD.1);
    }
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    match text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")) {
        Some(item) => format!("{indent}\u{2022} {}", inline(item)),
        None => inline(line),
    }
}

fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let marked = MARKS.iter().find_map(|(mark, style)| {
            let is_open =
                rest.starts_with(mark) && !out.chars().next_back().is_some_and(char::is_alphanumeric);
            is_open
                .then(|| between(rest, mark))
                .flatten()
                .map(|inside| (inside, *mark, *style))
        });
        if let Some((inside, mark, (on, off))) = marked {
            let shown = if mark == "`" {
                inside.to_owned()
            } else {
                inline(inside)
            };
            out.extend([on, &shown, off]);
            rest = &rest[inside.len() + 2 * mark.len()..];
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// The text between a mark at the beginning and its partner. `snake_case` and 2*3*4 are no emphasis.
fn between<'t>(text: &'t str, mark: &str) -> Option<&'t str> {
    let after = &text[mark.len()..];
    let length = after.find(mark).filter(|length| *length > 0)?;
    let (inside, behind) = (&after[..length], &after[length + mark.len()..]);
    let is_tight = mark == "`" || !(inside.starts_with(' ') || inside.ends_with(' '));
    let is_longer = mark.len() == 1 && behind.starts_with(mark);
    let is_apart = !is_longer && !behind.starts_with(char::is_alphanumeric);
    (is_tight && is_apart).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_styles_and_what_is_none_stays() {
        for (text, wanted) in [
            ("echo: a **b** c", "echo: a <b>b</b> c"),
            (
                "echo: *i* and _i_, `c*d*`",
                "echo: <i>i</i> and <i>i</i>, <f>c*d*</b>",
            ),
            ("echo: **a *b* c**", "echo: <b>a <i>b</i> c</b>"),
            (
                "echo: snake_case_name 2*3*4 a * b * c **open",
                "echo: snake_case_name 2*3*4 a * b * c **open",
            ),
            (
                "echo: # Title\n- one\n  * two\n#no",
                "echo: <b>Title</b>\n\u{2022} one\n  \u{2022} two\n#no",
            ),
            (
                "echo: ```rust\nlet a = *b;\n```\nend",
                "echo:\n<f>let a = *b;</b>\nend",
            ),
            ("(turn stopped)", "(turn stopped)"),
        ] {
            let shown = render(text);
            let shown = [
                ("\x1b[1m", "<b>"),
                ("\x1b[22m", "</b>"),
                ("\x1b[3m", "<i>"),
                ("\x1b[23m", "</i>"),
                ("\x1b[2m", "<f>"),
            ]
            .iter()
            .fold(shown, |shown, (code, name)| shown.replace(code, name));
            assert_eq!(shown, wanted);
        }
    }
}
