//! The real binary in a pseudo-terminal, and what a person would see there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::wait::{SOON, eventually, eventually_within};

/// Keys that are no characters.
pub(crate) const ENTER: &str = "\r";
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";
pub(crate) const UP: &str = "\x1b[A";
pub(crate) const PASTE_BEGIN: &str = "\x1b[200~";
pub(crate) const PASTE_END: &str = "\x1b[201~";

const COLUMNS: u16 = 120;
const ROWS: u16 = 40;

/// A program in a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Emulator>>,
}

impl Terminal {
    /// Starts the program with the terminal as its standard input, output and error.
    pub(crate) fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("its other side");
        unlockpt(&master).expect("its other side");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let other_side = rustix::fs::open(name, flags, Mode::empty()).expect("its other side");
        let size = Winsize {
            ws_row: ROWS,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("a size");
        let clone = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("a descriptor"));
        let child = command
            .env("TERM", "xterm")
            .stdin(clone(&other_side))
            .stdout(clone(&other_side))
            .stderr(clone(&other_side))
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        drop((command, other_side));
        let screen = Arc::new(Mutex::new(Emulator::new(COLUMNS.into(), ROWS.into())));
        let keyboard = File::from(master);
        let (mut output, shown) = (keyboard.try_clone().expect("a descriptor"), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is how the end of the other side is reported.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().write(&bytes[..count]);
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    /// Presses keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self
            .child
            .id()
            .and_then(|id| id.try_into().ok())
            .and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("the program runs");
    }

    /// The lines on the screen and above it, without space at their ends and without the last empty ones.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.screen.lock().unwrap().lines()
    }

    /// Everything that was written, as it was written.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap().written).into_owned()
    }

    /// Waits until the lines are as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        eventually(what, async || {
            let lines = self.lines();
            if wanted(&lines) { Ok(lines) } else { Err(lines) }
        })
        .await
    }

    /// The same for something that takes longer, or not so long.
    pub(crate) async fn until_within(
        &self,
        within: Duration,
        what: &str,
        wanted: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        eventually_within(within, what, async || {
            let lines = self.lines();
            if wanted(&lines) { Ok(lines) } else { Err(lines) }
        })
        .await
    }

    /// Waits for a line with this part.
    pub(crate) async fn shows(&self, part: &str) -> Vec<String> {
        self.until(part, |lines| has(lines, part)).await
    }

    /// Waits for a question, and types the answer: the lines above the answer.
    pub(crate) async fn reply(&mut self, question: &str, answer: &str) -> Vec<String> {
        let lines = self.shows(question).await;
        if question.contains("not shown") {
            let modes = tcgetattr(&self.keyboard).expect("a terminal").local_modes;
            assert!(
                !modes.contains(LocalModes::ECHO),
                "an answer that comes at once is shown"
            );
        }
        self.keys(answer);
        self.keys(ENTER);
        lines
    }

    /// Waits for the prompt below a line.
    pub(crate) async fn answered(&self, line: &str) -> Vec<String> {
        self.until(line, |lines| {
            lines.iter().any(|shown| shown == line) && lines.last().is_some_and(|last| last == ">")
        })
        .await
    }

    /// Types a line at the prompt.
    pub(crate) async fn enter(&mut self, line: &str) {
        self.until("a prompt", |lines| lines.last().is_some_and(|last| last == ">"))
            .await;
        self.keys(line);
        let typed = format!("> {line}");
        self.until(&typed, |lines| lines.last() == Some(&typed)).await;
        self.keys(ENTER);
    }

    /// Waits for the program's end: its exit code, and whether the terminal echoes and edits lines as before.
    pub(crate) async fn ends(mut self) -> (Option<i32>, bool) {
        let ended = timeout(SOON, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("it does not end: {:#?}", self.lines()));
        let modes = tcgetattr(&self.keyboard).expect("a terminal").local_modes;
        let is_restored = modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        (status.expect("a status").code(), is_restored)
    }
}

/// Whether a line has this part.
pub(crate) fn has(lines: &[String], part: &str) -> bool {
    lines.iter().any(|line| line.contains(part))
}

/// As much of a terminal as line editors use. Every character is one column wide.
struct Emulator {
    columns: usize,
    rows: usize,
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// An escape sequence that is not complete.
    sequence: String,
    /// Bytes of a character that is not complete.
    partial: Vec<u8>,
    written: Vec<u8>,
    /// What was shown before a program switched to the other screen.
    other: Option<(Vec<Vec<char>>, usize, usize)>,
}

impl Emulator {
    fn new(columns: usize, rows: usize) -> Self {
        Self {
            columns,
            rows,
            lines: vec![Vec::new()],
            row: 0,
            column: 0,
            sequence: String::new(),
            partial: Vec::new(),
            written: Vec::new(),
            other: None,
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        let mut lines: Vec<_> = self.lines.iter().map(text).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    fn write(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.partial.split_off(whole);
        let text = String::from_utf8(std::mem::replace(&mut self.partial, rest)).expect("whole characters");
        for c in text.chars() {
            self.put(c);
        }
    }

    fn put(&mut self, c: char) {
        if !self.sequence.is_empty() {
            self.sequence.push(c);
            let is_csi = self.sequence.starts_with("\x1b[");
            if (is_csi && self.sequence.len() > 2 && ('@'..='~').contains(&c)) || (!is_csi && c != '[') {
                let sequence = std::mem::take(&mut self.sequence);
                self.perform(&sequence);
            }
            return;
        }
        match c {
            '\x1b' => self.sequence.push(c),
            '\r' => self.column = 0,
            '\n' => self.move_to(self.row + 1),
            '\x08' => self.column = self.column.saturating_sub(1),
            _ if c.is_control() => {}
            _ => {
                if self.column == self.columns {
                    self.column = 0;
                    self.move_to(self.row + 1);
                }
                let line = &mut self.lines[self.row];
                line.resize(line.len().max(self.column + 1), ' ');
                line[self.column] = c;
                self.column += 1;
            }
        }
    }

    fn move_to(&mut self, row: usize) {
        self.row = row;
        while self.lines.len() <= row {
            self.lines.push(Vec::new());
        }
    }

    fn perform(&mut self, sequence: &str) {
        let Some(body) = sequence.strip_prefix("\x1b[") else {
            return;
        };
        let Some(kind) = body.chars().last() else {
            return;
        };
        let count = body[..body.len() - 1].parse().unwrap_or(1);
        match kind {
            'h' if body == "?1049h" => {
                let lines = std::mem::replace(&mut self.lines, vec![Vec::new()]);
                self.other = Some((lines, self.row, self.column));
                (self.row, self.column) = (0, 0);
            }
            'l' if body == "?1049l" => {
                if let Some(other) = self.other.take() {
                    (self.lines, self.row, self.column) = other;
                }
            }
            'H' => {
                self.row = self.lines.len().saturating_sub(self.rows);
                self.column = 0;
            }
            'A' => {
                let top = self.lines.len().saturating_sub(self.rows);
                self.row = self.row.saturating_sub(count).max(top);
            }
            'B' => self.move_to(self.row + count),
            'C' => self.column = (self.column + count).min(self.columns - 1),
            'D' => self.column = self.column.saturating_sub(count),
            'G' => self.column = count - 1,
            'J' => {
                self.lines.truncate(self.row + 1);
                self.lines[self.row].truncate(self.column);
            }
            'K' => self.lines[self.row].truncate(self.column),
            _ => {}
        }
    }
}
