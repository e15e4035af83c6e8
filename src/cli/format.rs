//! Formatting for a terminal: durations, and text from outside.

use std::io;

pub(super) use crate::text::duration;
use crate::text::{escape, escape_lines};

/// The text on one line, with everything escaped that would move a terminal's cursor or reorder the line.
pub(super) fn printable(text: &str) -> String {
    escape(text).into_owned()
}

/// Escapes the same in everything that is written, except line breaks and tabs. Each write must be whole characters.
pub(super) struct Escaped<W>(pub(super) W);

impl<W: io::Write> io::Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(escape_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Standard output for verbs.
pub(super) fn stdout() -> Escaped<io::Stdout> {
    Escaped(io::stdout())
}

/// Standard error for verbs.
pub(super) fn stderr() -> Escaped<io::Stderr> {
    Escaped(io::stderr())
}
