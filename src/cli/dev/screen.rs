//! Output of the terminal chat: lines that stay, and below them text that grows in place, above the line that is typed.
//!
//! Text is escaped here. Growing text takes at most the height of the terminal; its end is shown.

use std::io::Write as _;

use rustyline::{ExternalPrinter, GraphemeClusterMode};

use super::markdown::render;
use crate::cli::exit::outln;
use crate::text::escape_lines;

/// Rows that growing text leaves free.
const FREE_ROWS: usize = 4;
/// The prompt of the typed line.
pub(super) const PROMPT: &str = "> ";

/// Where the chat is shown.
pub(super) enum Screen {
    /// A file, a pipe, or a terminal without cursor control.
    Plain {
        prompt: bool,
    },
    Terminal(Box<TerminalScreen>),
}

/// A terminal with a line editor.
pub(super) struct TerminalScreen {
    printer: Box<dyn ExternalPrinter + Send>,
    /// The growing text as it is shown, a row each.
    live: Vec<String>,
}

impl Screen {
    pub(super) fn terminal(printer: Box<dyn ExternalPrinter + Send>) -> Self {
        Self::Terminal(Box::new(TerminalScreen {
            printer,
            live: Vec::new(),
        }))
    }

    /// Whether there is a line editor.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Prints lines for good, and replaces the growing text.
    pub(super) fn show(&mut self, lines: &[String], live: &[String]) {
        match self {
            Self::Plain { prompt } => {
                for line in lines {
                    outln!("{line}");
                }
                if *prompt && !lines.is_empty() {
                    print_prompt();
                }
            }
            Self::Terminal(terminal) => {
                let lines: Vec<String> = lines.iter().map(|line| render(&escape_lines(line))).collect();
                terminal.show(&[], &lines, live);
            }
        }
    }

    /// Prints one line for good; the growing text stays.
    pub(super) fn note(&mut self, line: &str) {
        match self {
            Self::Plain { .. } => self.show(&[line.to_owned()], &[]),
            Self::Terminal(terminal) => terminal.insert(&escape_lines(line)),
        }
    }

    /// The same for a line of the log, which is escaped and may have colours.
    pub(super) fn log(&mut self, line: &str) {
        if let Self::Terminal(terminal) = self {
            terminal.insert(line.trim_end());
        }
    }

    /// A line was typed: it is now between the growing text and the cursor.
    pub(super) fn typed(&mut self, line: &str) {
        if let Self::Terminal(terminal) = self
            && !terminal.live.is_empty()
        {
            let typed = typed_rows(line);
            let shown: Vec<String> = typed.iter().map(|row| escape_lines(row).into()).collect();
            terminal.show(&typed, &shown, &[]);
        }
    }

    /// Ctrl-C was pressed behind this text: says so, as a shell does.
    pub(super) fn interrupted(&mut self, typed: &str) {
        if let Self::Terminal(terminal) = self {
            let shown = format!("{PROMPT}{typed}^C");
            terminal.show(&typed_rows(typed), &[escape_lines(&shown).into()], &[]);
        }
    }
}

impl TerminalScreen {
    /// Erases the growing text and the `typed` rows below it, and prints the rest instead. `lines` are escaped already.
    fn show(&mut self, typed: &[String], lines: &[String], live: &[String]) {
        let size = terminal_size();
        let live = wrap(live, size);
        if typed.is_empty() && lines.is_empty() && live == self.live {
            return;
        }
        let old = std::mem::take(&mut self.live);
        let mut text = erase(rows(&old, size.columns) + typed_height(typed, size.columns));
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        self.write(&text, live);
    }

    fn insert(&mut self, text: &str) {
        let live = std::mem::take(&mut self.live);
        let rows = rows(&live, terminal_size().columns);
        self.write(&format!("{}{text}\n", erase(rows)), live);
    }

    fn write(&mut self, text: &str, live: Vec<String>) {
        let mut text = text.to_owned();
        for row in &live {
            text.push_str(row);
            text.push('\n');
        }
        self.live = live;
        if !text.is_empty() && !text.ends_with('\n') {
            // The editor would add a line break.
            text.push_str("\x1b[1A\n");
        }
        if !text.is_empty() {
            // A terminal that went away also ends the input.
            let _ = self.printer.print(text);
        }
    }
}

/// Prints the prompt of a terminal without a line editor.
pub(super) fn print_prompt() {
    let mut out = std::io::stdout();
    let _ = write!(out, "{PROMPT}").and_then(|()| out.flush());
}

#[derive(Clone, Copy, Debug)]
struct TerminalSize {
    columns: usize,
    rows: usize,
}

fn terminal_size() -> TerminalSize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    size.map_or(
        TerminalSize {
            columns: 80,
            rows: 24,
        },
        |size| TerminalSize {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        },
    )
}

/// Moves the cursor up so many rows, and erases everything from there.
fn erase(rows: usize) -> String {
    if rows == 0 {
        String::new()
    } else {
        format!("\x1b[{rows}A\x1b[J")
    }
}

/// Rows that lines take, each at least one.
fn rows(lines: &[String], columns: usize) -> usize {
    let rows = lines.iter().map(|line| width(line).div_ceil(columns).max(1));
    rows.sum()
}

/// The lines of a typed text, with the prompt.
fn typed_rows(line: &str) -> Vec<String> {
    format!("{PROMPT}{line}").split('\n').map(str::to_owned).collect()
}

/// Rows that a typed text took: the cursor was behind its last character.
fn typed_height(lines: &[String], columns: usize) -> usize {
    match lines.split_last() {
        None => 0,
        Some((last, others)) => rows(others, columns) + width(last) / columns + 1,
    }
}

/// The end of the texts, escaped, in rows that fit.
fn wrap(texts: &[String], size: TerminalSize) -> Vec<String> {
    let columns = size.columns.saturating_sub(1).max(1);
    let mut wrapped = Vec::new();
    for text in texts {
        let text = text.replace('\t', "    ");
        for line in escape_lines(&text).split('\n') {
            let (mut row, mut used) = (String::new(), 0);
            for c in line.chars() {
                let wide = char_width(c);
                if used + wide > columns {
                    wrapped.push(std::mem::take(&mut row));
                    used = 0;
                }
                row.push(c);
                used += wide;
            }
            wrapped.push(row);
        }
    }
    let most = size.rows.saturating_sub(FREE_ROWS).max(1);
    wrapped.split_off(wrapped.len().saturating_sub(most))
}

fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

fn char_width(c: char) -> usize {
    GraphemeClusterMode::WcWidth
        .width(c.encode_utf8(&mut [0; 4]))
        .into()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const SMALL: TerminalSize = TerminalSize { columns: 11, rows: 7 };

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn growing_text_is_wrapped_escaped_and_shown_from_its_end() {
        assert_eq!(
            wrap(&texts(&["abcdefghijkl", "x\u{1b}[2J"]), SMALL),
            ["abcdefghij", "kl", "x\\u001b[2J"]
        );
        assert_eq!(wrap(&texts(&["日本語日本語"]), SMALL), ["日本語日本", "語"]);
        assert_eq!(wrap(&texts(&["1\n2\n3\n4\n"]), SMALL), ["3", "4", ""]);
        assert!(wrap(&[], SMALL).is_empty());
    }

    #[test]
    fn rows_are_counted_as_the_terminal_wraps_them() {
        assert_eq!(rows(&texts(&["", "12345678901", "123456789012"]), 11), 4);
        assert_eq!(typed_height(&typed_rows("123456789"), 11), 2, "the cursor wraps");
        assert_eq!(typed_height(&typed_rows("12345678"), 11), 1);
        assert_eq!(typed_height(&typed_rows("a\nb"), 11), 2);
        assert_eq!(typed_height(&[], 11), 0);
    }

    #[derive(Clone, Default)]
    struct Printed(Arc<Mutex<String>>);

    impl ExternalPrinter for Printed {
        fn print(&mut self, text: String) -> rustyline::Result<()> {
            self.0.lock().unwrap().push_str(&text);
            Ok(())
        }
    }

    impl Printed {
        fn take(&self) -> String {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[test]
    fn growing_text_is_replaced_in_place_and_moves_below_what_is_typed() {
        let printed = Printed::default();
        let mut screen = Screen::terminal(Box::new(printed.clone()));
        screen.show(&[], &texts(&["a: one"]));
        assert_eq!(printed.take(), "a: one\n");
        screen.show(&[], &texts(&["a: one"]));
        assert_eq!(printed.take(), "", "nothing changed");
        screen.note("(note)");
        assert_eq!(printed.take(), "\x1b[1A\x1b[J(note)\na: one\n");
        screen.typed("hi");
        assert_eq!(printed.take(), "\x1b[2A\x1b[J> hi\n");
        screen.interrupted("hi");
        assert_eq!(printed.take(), "\x1b[1A\x1b[J> hi^C\n");
        screen.show(&[], &texts(&["a: one two"]));
        screen.show(&texts(&["a: one two\x07"]), &[]);
        assert_eq!(printed.take(), "a: one two\n\x1b[1A\x1b[Ja: one two\\u0007\n");
        screen.show(&[], &texts(&["a: ..."]));
        screen.show(&[], &[]);
        assert_eq!(printed.take(), "a: ...\n\x1b[1A\x1b[J\x1b[1A\n");
        screen.typed("again");
        assert_eq!(printed.take(), "", "nothing grows above it");
    }
}
