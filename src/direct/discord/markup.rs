//! Styled text in Discord's Markdown. A message counts with its markup, so a part that grows too long is split again.

use crate::direct::text::{Styled, TextSpan, TextStyle, render};

/// Longest message, in code points with markup.
const MESSAGE_CHARS: usize = 2000;
/// Shortest text that is split again.
const SHORTEST_PART: usize = 40;

/// The messages of a Markdown text, in Discord's Markdown.
pub fn discord_parts(source: &str) -> Vec<String> {
    let mut parts = Vec::new();
    split_into(render(source), MESSAGE_CHARS, &mut parts);
    parts
}

fn split_into(text: Styled, limit: usize, parts: &mut Vec<String>) {
    for part in text.split(limit) {
        let written = write_markdown(&part);
        let chars = written.chars().count();
        if chars <= MESSAGE_CHARS {
            parts.push(written);
        } else if part.chars() <= SHORTEST_PART {
            parts.push(part.text.chars().take(MESSAGE_CHARS).collect());
        } else {
            let limit = (part.chars() * MESSAGE_CHARS / chars)
                .min(part.chars() - 1)
                .max(SHORTEST_PART);
            split_into(part, limit, parts);
        }
    }
}

/// A text in Discord's Markdown.
pub fn write_markdown(styled: &Styled) -> String {
    let mut writer = MarkupWriter::default();
    let mut open: Vec<&TextSpan> = Vec::new();
    let mut at = 0;
    for span in &styled.spans {
        while let Some(done) = open.pop_if(|last| last.end <= span.start) {
            writer.text(&styled.text[at..done.end]);
            at = done.end;
            writer.close(&done.style);
        }
        writer.text(&styled.text[at..span.start]);
        at = span.start;
        writer.open(&span.style, &styled.text[span.start..span.end]);
        open.push(span);
    }
    while let Some(done) = open.pop() {
        writer.text(&styled.text[at..done.end]);
        at = done.end;
        writer.close(&done.style);
    }
    writer.text(&styled.text[at..]);
    writer.out
}

#[derive(Default)]
struct MarkupWriter {
    out: String,
    /// Whether text is written as it is: in code.
    verbatim: bool,
    /// The fence around inline code.
    fence: &'static str,
    quoted: bool,
}

impl MarkupWriter {
    fn open(&mut self, style: &TextStyle, content: &str) {
        match style {
            TextStyle::Quote { .. } => {
                self.quoted = true;
                self.begin_line();
                self.out.push_str("> ");
            }
            TextStyle::Link(_) => self.out.push('['),
            TextStyle::Bold => self.out.push_str("**"),
            TextStyle::Italic => self.out.push('*'),
            TextStyle::Strike => self.out.push_str("~~"),
            TextStyle::Code => {
                self.fence = if content.contains('`') { "``" } else { "`" };
                self.out.push_str(self.fence);
                if self.fence.len() > 1 {
                    self.out.push(' ');
                }
                self.verbatim = true;
            }
            TextStyle::Pre(language) => {
                self.begin_line();
                self.out.push_str("```");
                self.out.push_str(language.as_deref().unwrap_or_default());
                self.out.push_str(if self.quoted { "\n> " } else { "\n" });
                self.verbatim = true;
            }
        }
    }

    fn close(&mut self, style: &TextStyle) {
        match style {
            TextStyle::Quote { .. } => self.quoted = false,
            TextStyle::Link(url) => {
                let url = url.replace(')', "%29");
                self.out.extend(["](<", url.as_str(), ">)"]);
            }
            TextStyle::Bold => self.out.push_str("**"),
            TextStyle::Italic => self.out.push('*'),
            TextStyle::Strike => self.out.push_str("~~"),
            TextStyle::Code => {
                if self.fence.len() > 1 {
                    self.out.push(' ');
                }
                self.out.push_str(self.fence);
                self.verbatim = false;
            }
            TextStyle::Pre(_) => {
                self.begin_line();
                self.out.push_str("```");
                self.verbatim = false;
            }
        }
    }

    /// Begins a line, unless one has just begun.
    fn begin_line(&mut self) {
        if !(self.out.is_empty() || self.out.ends_with('\n') || self.out.ends_with("\n> ")) {
            self.out.push('\n');
        }
    }

    fn text(&mut self, text: &str) {
        let mut line_start = self.out.is_empty() || self.out.ends_with('\n') || self.out.ends_with("> ");
        // Up to where an address goes, in which nothing is markup.
        let mut address_end = 0;
        for (at, symbol) in text.char_indices() {
            if at >= address_end && symbol == 'h' {
                address_end = at + address_length(&text[at..]);
            }
            let is_markup = matches!(symbol, '*' | '_' | '~' | '|' | '`' | '\\')
                || (line_start && matches!(symbol, '#' | '>' | '-'))
                || symbol == '<';
            if self.verbatim {
                // A fence in code would end it.
                if symbol == '`' && self.out.ends_with("``") {
                    self.out.push('\u{200b}');
                }
            } else if is_markup && at >= address_end {
                self.out.push('\\');
            }
            self.out.push(symbol);
            line_start = symbol == '\n';
            if line_start && self.quoted {
                self.out.push_str("> ");
            }
        }
    }
}

/// The bytes of the address at the start of a text; 0 if there is none.
fn address_length(text: &str) -> usize {
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return 0;
    }
    let is_end = |symbol: char| symbol.is_whitespace() || matches!(symbol, '<' | '>');
    text.find(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(source: &str) -> String {
        let parts = discord_parts(source);
        assert_eq!(parts.len(), 1, "{parts:?}");
        parts.into_iter().next().unwrap()
    }

    #[test]
    fn markdown_is_written_as_discord_reads_it() {
        for (source, written) in [
            ("plain", "plain"),
            ("**b** and *i* and ~~s~~", "**b** and *i* and ~~s~~"),
            ("__b__", "**b**"),
            ("`a*b`", "`a*b`"),
            ("2 \\* 3 a_b_c", "2 \\* 3 a\\_b\\_c"),
            ("```rust\nlet x = 1;\n```", "```rust\nlet x = 1;\n```"),
            ("[t](https://e.org/x)", "[t](<https://e.org/x>)"),
            ("> q", "> q"),
            (
                "see http://e.org/a_b~c?x=*|y a_b",
                "see http://e.org/a_b~c?x=*|y a\\_b",
            ),
            ("(https://e.org/_x_y)\na_b", "(https://e.org/_x_y)\na\\_b"),
            ("https a_b http: a_b", "https a\\_b http: a\\_b"),
        ] {
            assert_eq!(one(source), written, "{source}");
        }
    }

    #[test]
    fn no_part_is_longer_than_discord_allows() {
        let code = format!("```rust\n{}\n```", "let a_b = 1;\n".repeat(600));
        let escaped = "a_b*c ".repeat(1500);
        for source in [code, escaped, "é".repeat(5000)] {
            let parts = discord_parts(&source);
            assert!(parts.len() > 1);
            for part in &parts {
                assert!(part.chars().count() <= 2000, "{}", part.chars().count());
                assert_eq!(part.matches("```").count() % 2, 0, "{part}");
            }
        }
    }
}
