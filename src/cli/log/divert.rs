//! Log lines while a line editor owns the terminal: they go to the chat, which prints them above the typed line.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc;

/// Lines that may wait for the chat; further ones go to standard error.
const MAX_LINES: usize = 64;

/// Where lines go instead of standard error.
static DIVERTED: Mutex<Option<mpsc::Sender<String>>> = Mutex::new(None);

/// Takes the lines that would be printed on the same terminal; `None` where standard error is something else.
pub(crate) fn divert() -> Option<mpsc::Receiver<String>> {
    if !io::stderr().is_terminal() {
        return None;
    }
    let (sender, lines) = mpsc::channel(MAX_LINES);
    *DIVERTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Some(lines)
}

/// The next line; never one where nothing is diverted.
pub(crate) async fn next_line(lines: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match lines {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

/// Standard error, or the chat of `dev`.
pub(super) struct LogOutput(());

impl LogOutput {
    pub(super) fn new() -> Self {
        Self(())
    }
}

impl Write for LogOutput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let diverted = DIVERTED.lock().unwrap_or_else(PoisonError::into_inner);
        let line_text = || String::from_utf8_lossy(line).into_owned();
        let is_taken = diverted
            .as_ref()
            .is_some_and(|sender| sender.try_send(line_text()).is_ok());
        drop(diverted);
        if !is_taken {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
