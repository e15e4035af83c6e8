//! Formatting for a terminal: durations, and text from outside.

use std::io;
use std::path::Path;

pub(super) use crate::text::duration;
use crate::text::{escape, escape_lines};

/// The text on one line, with everything escaped that would move a terminal's cursor or reorder the line.
pub(super) fn printable(text: &str) -> String {
    escape(text).into_owned()
}

/// A path as one word of a shell's command line, to be copied.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=~".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('~') {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        for (path, word) in [
            ("/home/ann/.hermes/relay.yaml", "/home/ann/.hermes/relay.yaml"),
            ("/home/ann/My Files/relay.yaml", "'/home/ann/My Files/relay.yaml'"),
            ("/tmp/it's $HOME", r"'/tmp/it'\''s $HOME'"),
            ("~/x", "'~/x'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
