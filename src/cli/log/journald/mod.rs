//! journald's native protocol: one datagram per event, every field by name.
//!
//! `MESSAGE` is the line for people, fields included; each field is also stored as `HERMES_<NAME>`, so that
//! `journalctl HERMES_AGENT=code` finds it. The crate `tracing-journald` does not serve: it sends values as they come, with
//! nothing in between that could redact them, waits for a stalled journald without limit, discards errors, so that lost
//! entries could not be counted, and knows one socket, which tests cannot replace.
//!
//! Logging never blocks for long: a stalled journald gets no time for some seconds. Entries that journald does not accept
//! go to standard error while that is writable, truncated to 4 KiB; otherwise they are dropped, counted, and reported later.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::redacting::LogRedactor;
use crate::cli::format::printable;
use crate::cli::log::redact::Redactor;
use crate::text::escape_lines;

/// The socket of the system's journald.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
const IDENTIFIER: &str = "hermes-relay";
/// Prefix of our own fields.
const PREFIX: &str = "HERMES_";
/// Maximum length of a value, in bytes.
const MAX_VALUE: usize = 16 * 1024;
/// Maximum length of the message, in bytes.
const MAX_MESSAGE: usize = 32 * 1024;
/// Maximum size of an entry, in bytes: less than any kernel's datagram limit. Further fields are dropped.
const MAX_ENTRY: usize = 96 * 1024;
/// Maximum length of a line on standard error, in bytes: with its newline, what a writable pipe accepts without blocking.
const MAX_FALLBACK: usize = 4095;
/// Maximum length of a field name in journald.
const MAX_NAME: usize = 64;
/// Marks truncated text.
const TRUNCATED: &str = "[cut]";
/// Timeout of a send.
const SEND_TIMEOUT: Duration = Duration::from_millis(50);
/// After a timeout, sends do not block for this long.
const STALL_PAUSE: Duration = Duration::from_secs(5);

/// A connection to journald.
#[derive(Debug)]
pub(super) struct Journald {
    blocking: UnixDatagram,
    non_blocking: UnixDatagram,
    path: PathBuf,
    /// Set after a timeout: until then sends do not block.
    stalled_until: Mutex<Option<Instant>>,
}

impl Journald {
    /// Opens the system's journald.
    pub(super) fn open() -> io::Result<Self> {
        Self::open_at(Path::new(SOCKET))
    }

    /// Opens the socket at a path; fails if nobody listens there.
    fn open_at(path: &Path) -> io::Result<Self> {
        UnixDatagram::unbound()?.connect(path)?;
        let (blocking, non_blocking) = (UnixDatagram::unbound()?, UnixDatagram::unbound()?);
        blocking.set_write_timeout(Some(SEND_TIMEOUT))?;
        non_blocking.set_nonblocking(true)?;
        Ok(Self {
            blocking,
            non_blocking,
            path: path.to_owned(),
            stalled_until: Mutex::default(),
        })
    }

    /// Sends to the path each time: a restarted journald listens on a new socket.
    fn send(&self, entry: &[u8]) -> io::Result<()> {
        let is_stalled = self.stalled_until().is_some_and(|until| Instant::now() < until);
        let socket = if is_stalled {
            &self.non_blocking
        } else {
            &self.blocking
        };
        let sent = socket.send_to(entry, &self.path).map(drop);
        match &sent {
            Ok(()) => *self.stalled_until() = None,
            Err(error) if !is_stalled && error.kind() == io::ErrorKind::WouldBlock => {
                *self.stalled_until() = Some(Instant::now() + STALL_PAUSE);
            }
            Err(_) => {}
        }
        sent
    }

    fn stalled_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.stalled_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layer that writes redacted events to it.
    pub(super) fn layer(self, redactor: LogRedactor) -> JournaldLayer {
        let stderr = io::stderr().as_fd().try_clone_to_owned().ok();
        self.layer_with_fallback(stderr.map(File::from), redactor)
    }

    fn layer_with_fallback(self, fallback: Option<File>, redactor: LogRedactor) -> JournaldLayer {
        JournaldLayer {
            journald: self,
            fallback,
            redactor,
            unreported: AtomicU64::new(0),
        }
    }
}

/// Whether journald reads this file: `JOURNAL_STREAM` contains its device and inode. The variable alone proves nothing: it
/// may be inherited while standard error leads elsewhere.
pub(super) fn is_journal_stream(stream: &str, file: impl AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stream.trim() == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Writes events to journald.
pub(super) struct JournaldLayer {
    journald: Journald,
    fallback: Option<File>,
    redactor: LogRedactor,
    /// Dropped entries that are not reported yet.
    unreported: AtomicU64,
}

impl JournaldLayer {
    /// Sends an entry to journald, or its line to standard error.
    fn write(&self, entry: &[u8], level: Level, text: &EventText) {
        if self.journald.send(entry).is_ok() {
            let unreported = self.unreported.swap(0, Ordering::Relaxed);
            if unreported > 0 && self.journald.send(&dropped_entry(unreported)).is_err() {
                self.unreported.fetch_add(unreported, Ordering::Relaxed);
            }
            return;
        }
        let line = format!("{level} {}", text.line());
        let line = format!("{}\n", truncate(&line, MAX_FALLBACK));
        let fallback = self.fallback.as_ref().filter(|file| is_writable(file));
        if fallback.is_none_or(|mut file| file.write_all(line.as_bytes()).is_err()) {
            self.unreported.fetch_add(1, Ordering::Relaxed);
            self.redactor.counts().lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Whether a write would not block.
fn is_writable(file: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&file, PollFlags::OUT)];
    let immediately = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&immediately)).is_ok() && polled[0].revents() == PollFlags::OUT
}

/// Reports dropped entries once journald accepts entries again.
fn dropped_entry(count: u64) -> Vec<u8> {
    let message = "journald accepted no entries for a while; some were dropped";
    let mut entry = Vec::with_capacity(256);
    add(&mut entry, "MESSAGE", &format!("{message} count={count}"));
    add(&mut entry, "PRIORITY", priority(Level::WARN));
    add(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    add(&mut entry, "HERMES_TARGET", module_path!());
    add(&mut entry, "HERMES_COUNT", &count.to_string());
    entry
}

impl<S: Subscriber> Layer<S> for JournaldLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        if text.redact(&self.redactor.current()) {
            self.redactor.count_redacted();
        }
        let meta = event.metadata();
        self.write(&entry(meta, &text), *meta.level(), &text);
    }
}

/// The message and the fields of an event.
#[derive(Default)]
struct EventText {
    message: String,
    /// Name, plain value, and value as shown in a line.
    fields: Vec<(&'static str, String, String)>,
}

impl EventText {
    /// Redacts before anything is escaped or truncated: half a secret would not be recognised. Returns whether something
    /// was redacted.
    fn redact(&mut self, redactor: &Redactor) -> bool {
        let fields = self
            .fields
            .iter_mut()
            .flat_map(|(_, value, shown)| [value, shown]);
        let mut redacted = false;
        for text in fields.chain([&mut self.message]) {
            if let Cow::Owned(shown) = redactor.redact_str(text) {
                *text = shown;
                redacted = true;
            }
        }
        redacted
    }

    /// One line without control characters.
    fn line(&self) -> String {
        let mut line = printable(&self.message);
        for (name, _, shown) in &self.fields {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{name}={}", printable(shown));
        }
        line
    }

    fn add(&mut self, field: &Field, value: String, shown: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value, shown)),
        }
    }
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        self.add(field, value.clone(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned(), format!("{value:?}"));
    }
}

/// An event in journald's format.
fn entry(meta: &Metadata<'_>, text: &EventText) -> Vec<u8> {
    let mut entry = Vec::with_capacity(512);
    add(&mut entry, "MESSAGE", &truncate(&text.line(), MAX_MESSAGE));
    add(&mut entry, "PRIORITY", priority(*meta.level()));
    add(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    add(&mut entry, "HERMES_TARGET", meta.target());
    if let (Some(file), Some(line)) = (meta.file(), meta.line()) {
        add(&mut entry, "CODE_FILE", file);
        add(&mut entry, "CODE_LINE", &line.to_string());
    }
    for (name, value, _) in &text.fields {
        add(
            &mut entry,
            &field_name(name),
            &truncate(&escape_lines(value), MAX_VALUE),
        );
    }
    entry
}

/// journald's scale; debug and trace share its `debug`.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// A valid field name: capitals, digits and underscores.
fn field_name(name: &str) -> String {
    let plain = name.chars().map(|char| match char.to_ascii_uppercase() {
        char @ ('A'..='Z' | '0'..='9') => char,
        _ => '_',
    });
    PREFIX.chars().chain(plain).take(MAX_NAME).collect()
}

fn truncate(value: &str, max: usize) -> Cow<'_, str> {
    if value.len() <= max {
        return Cow::Borrowed(value);
    }
    let mut end = max - TRUNCATED.len();
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    [&value[..end], TRUNCATED].concat().into()
}

/// Adds a field unless the entry is full: as a line, or length-prefixed if the value has several lines.
fn add(entry: &mut Vec<u8>, name: &str, value: &str) {
    // The name, two newlines and the length.
    if entry.len() + name.len() + value.len() + 10 > MAX_ENTRY {
        return;
    }
    entry.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests;
