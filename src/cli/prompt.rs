//! Reads a secret from the terminal without echo, or from a pipe; and other answers with echo.
//!
//! The terminal's mode is always restored, and a secret is never echoed or logged.

use std::io::{self, BufRead as _, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;
use zeroize::Zeroizing;

/// Maximum length of an answer, in bytes.
const MAX_ANSWER: usize = 4096;

/// Input of a secret that is neither an option nor a variable.
pub trait SecretInput {
    /// Reads the first line of a pipe, or asks at the terminal.
    fn piped(&mut self, question: &str) -> io::Result<SecretString>;
    /// Asks at the terminal; `None` without a terminal.
    fn asked(&mut self, question: &str) -> io::Result<Option<SecretString>>;
    /// Asks at the terminal for something that is no secret, with echo; `None` without a terminal.
    fn line(&mut self, question: &str) -> io::Result<Option<String>>;
}

/// The process's standard input. Reading blocks the calling thread.
#[derive(Debug, Default)]
pub struct Stdin;

impl SecretInput for Stdin {
    fn piped(&mut self, question: &str) -> io::Result<SecretString> {
        if let Some(answer) = self.asked(question)? {
            return Ok(answer);
        }
        first_line(io::stdin().lock())
    }

    fn asked(&mut self, question: &str) -> io::Result<Option<SecretString>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let mut stderr = super::format::stderr();
        // Before the question: whoever pastes at once must not see it, nor lose it.
        let no_echo = NoEcho::start(stdin.as_fd())?;
        write!(stderr, "{question}: ")?;
        stderr.flush()?;
        let answer = typed_line(stdin.lock());
        drop(no_echo);
        writeln!(stderr)?;
        answer.map(Some)
    }

    fn line(&mut self, question: &str) -> io::Result<Option<String>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let mut stderr = super::format::stderr();
        write!(stderr, "{question}: ")?;
        stderr.flush()?;
        let mut line = String::new();
        stdin.lock().take(MAX_ANSWER as u64).read_line(&mut line)?;
        Ok(Some(line.trim().to_owned()))
    }
}

/// The terminal without echo, line editing and signal keys, until dropped.
pub(super) struct NoEcho<'fd> {
    terminal: BorrowedFd<'fd>,
    before: Termios,
}

impl<'fd> NoEcho<'fd> {
    pub(super) fn start(terminal: BorrowedFd<'fd>) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut modes = before.clone();
        // Ctrl-C must arrive as a byte: as a signal it would end us with the echo off.
        modes.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Flush, &modes)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for NoEcho<'_> {
    fn drop(&mut self) {
        // Nothing can be done if the terminal is gone.
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Reads keys until Enter; handles backspace, Ctrl-U, Ctrl-C and Ctrl-D.
fn typed_line(mut keys: impl Read) -> io::Result<SecretString> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_ANSWER));
    let mut key = [0];
    while keys.read(&mut key)? == 1 {
        match key[0] {
            b'\r' | b'\n' => break,
            0x03 => return Err(io::ErrorKind::Interrupted.into()),
            0x04 if line.is_empty() => break,
            0x04 => {}
            0x08 | 0x7f => while line.pop().is_some_and(|byte| byte & 0xC0 == 0x80) {},
            0x15 => line.clear(),
            byte if line.len() < MAX_ANSWER => line.push(byte),
            _ => return Err(too_long()),
        }
    }
    secret(&line)
}

fn first_line(input: impl Read) -> io::Result<SecretString> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_ANSWER + 1));
    input.take(MAX_ANSWER as u64 + 1).read_to_end(&mut bytes)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.len() > MAX_ANSWER {
        Err(too_long())
    } else {
        secret(line)
    }
}

fn secret(bytes: &[u8]) -> io::Result<SecretString> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8 text"))?;
    Ok(text.trim().into())
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "too long to be a token")
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn typed(keys: &[u8]) -> String {
        typed_line(keys).unwrap().expose_secret().to_owned()
    }

    #[test]
    fn keys_edit_the_line() {
        assert_eq!(typed(b"abc\rrest"), "abc");
        assert_eq!(typed(b"abX\x7fc\n"), "abc");
        assert_eq!(typed("aé\x7fb\n".as_bytes()), "ab");
        assert_eq!(typed(b"wrong\x15right\n"), "right");
        assert_eq!(typed(b"\x7f\x04"), "");
        assert_eq!(typed(b"no newline"), "no newline");
    }

    #[test]
    fn ctrl_c_cancels() {
        assert_eq!(
            typed_line(&b"abc\x03"[..]).unwrap_err().kind(),
            io::ErrorKind::Interrupted
        );
    }

    #[test]
    fn answers_are_bounded() {
        let long = vec![b'x'; MAX_ANSWER + 1];
        assert!(typed_line(&long[..]).is_err());
        assert!(first_line(&long[..]).is_err());
        assert!(first_line(&b"\xff\n"[..]).is_err());
    }

    #[test]
    fn only_the_first_piped_line_is_read() {
        assert_eq!(first_line(&b" tok \r\nmore"[..]).unwrap().expose_secret(), "tok");
    }
}
