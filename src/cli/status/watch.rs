//! `status --watch` in a terminal: a screen of its own, whose top stays visible, until q or Ctrl-C.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use rustix::termios::tcgetwinsize;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{WATCH_INTERVAL, line};
use crate::cli::exit::{self, fail, finish};
use crate::cli::prompt::NoEcho;
use crate::cli::remote::RemoteRelay;
use crate::serve::{ControlRequest, StatusRow, Tone, status_rows};

/// The size of a terminal that does not know its own: rows and columns.
const DEFAULT_SIZE: (usize, usize) = (24, 80);

/// Keys that quit: q, Ctrl-C and Ctrl-D.
const QUIT: [u8; 4] = [b'q', b'Q', 0x03, 0x04];

/// Shows the status again and again. Standard input and output must be a terminal.
pub(super) fn run(relay: &RemoteRelay, status: &Value) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let stdin = io::stdin();
    finish(runtime.block_on(watch(relay, status, stdin.as_fd())))
}

async fn watch(relay: &RemoteRelay, status: &Value, terminal: BorrowedFd<'_>) -> io::Result<()> {
    let mut events = Events::listen()?;
    let screen = WatchScreen::enter(terminal)?;
    let mut rows = status_rows(status);
    loop {
        let next = Instant::now() + WATCH_INTERVAL;
        loop {
            screen.show(&rows)?;
            match events.next(next).await {
                WatchEvent::Quit => return Ok(()),
                WatchEvent::Redraw => {}
                WatchEvent::Refresh => break,
            }
        }
        rows = match relay.call(&ControlRequest::Status) {
            Ok(status) => status_rows(&status),
            // Keep watching until it is back.
            Err(error) => vec![StatusRow {
                label: "relay",
                pieces: vec![(Tone::Bad, error.to_string())],
            }],
        };
    }
}

enum WatchEvent {
    Quit,
    Redraw,
    Refresh,
}

/// Keys and signals.
struct Events {
    keys: mpsc::Receiver<u8>,
    resized: Signal,
    ended: [Signal; 3],
}

impl Events {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            keys: read_keys(),
            resized: signal(SignalKind::window_change())?,
            ended: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
        })
    }

    async fn next(&mut self, refresh: Instant) -> WatchEvent {
        let [interrupted, terminated, hung_up] = &mut self.ended;
        loop {
            tokio::select! {
                biased;
                _ = interrupted.recv() => return WatchEvent::Quit,
                _ = terminated.recv() => return WatchEvent::Quit,
                _ = hung_up.recv() => return WatchEvent::Quit,
                key = self.keys.recv() => {
                    if key.is_none_or(|key| QUIT.contains(&key)) {
                        return WatchEvent::Quit;
                    }
                }
                _ = self.resized.recv() => return WatchEvent::Redraw,
                () = sleep_until(refresh) => return WatchEvent::Refresh,
            }
        }
    }
}

/// Reads keys in a thread of its own, which ends with the program: a read cannot be cancelled.
fn read_keys() -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut key = [0];
        while let Ok(1) = io::stdin().lock().read(&mut key) {
            if sender.blocking_send(key[0]).is_err() {
                break;
            }
        }
    });
    keys
}

/// The terminal's other screen, without echo and cursor; the terminal is as before when it is dropped.
struct WatchScreen<'a> {
    _no_echo: NoEcho<'a>,
    colour: bool,
}

impl<'a> WatchScreen<'a> {
    fn enter(terminal: BorrowedFd<'a>) -> io::Result<Self> {
        let screen = Self {
            _no_echo: NoEcho::start(terminal)?,
            colour: AutoStream::choice(&io::stdout()) != ColorChoice::Never,
        };
        // Long lines are cut, not wrapped: they would push the top away.
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    fn show(&self, rows: &[StatusRow]) -> io::Result<()> {
        let size = match tcgetwinsize(io::stdout().as_fd()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
            _ => DEFAULT_SIZE,
        };
        let mut out = io::stdout().lock();
        out.write_all(page(rows, size, self.colour).as_bytes())?;
        out.flush()
    }
}

/// The rows from the top of the screen on, as many as fit, and how to quit below them.
fn page(rows: &[StatusRow], (height, width): (usize, usize), colour: bool) -> String {
    let room = height.saturating_sub(1);
    let shown = if rows.len() > room {
        room.saturating_sub(1)
    } else {
        rows.len()
    };
    let mut page = String::from("\x1b[H");
    for row in &rows[..shown] {
        page.push_str(&line(row, width, colour));
        page.push_str("\x1b[K\r\n");
    }
    let more = match rows.len() - shown {
        0 => String::new(),
        more => format!("{more} more below; "),
    };
    let help = format!("{more}every {} s; q quits", WATCH_INTERVAL.as_secs());
    page.extend(help.chars().take(width));
    page.push_str("\x1b[J");
    page
}

impl Drop for WatchScreen<'_> {
    fn drop(&mut self) {
        let mut out = io::stdout();
        // Nothing can be done if the terminal is gone.
        let _ = out.write_all(b"\x1b[?7h\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_stays_on_a_small_screen() {
        let row = |number: usize| StatusRow {
            label: "agent",
            pieces: vec![(Tone::Plain, number.to_string())],
        };
        let rows: Vec<_> = (1..=10).map(row).collect();
        let lines = |size| {
            let page = page(&rows, size, false).replace("\x1b[K", "");
            let page = page
                .strip_prefix("\x1b[H")
                .unwrap()
                .strip_suffix("\x1b[J")
                .unwrap();
            page.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let small = ["agent     1", "agent     2", "8 more below; every 2 s; q quits"];
        assert_eq!(lines((4, 80)), small);
        assert_eq!(lines((11, 80)).len(), 11, "everything fits");
        assert_eq!(lines((4, 8)), ["agent   ", "agent   ", "8 more b"]);
        assert_eq!(lines((1, 80)).len(), 1);
    }
}
