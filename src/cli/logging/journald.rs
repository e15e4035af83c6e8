//! The system's journal, in its own language: one datagram for each event, every field by its name.
//!
//! `MESSAGE` is the line that a person reads, fields included; each field stands beside it as `HERMES_<NAME>`, so that
//! `journalctl HERMES_AGENT=code` finds it. It is written here and not taken from a crate because every value has to pass
//! the net before it leaves, and because a test names another socket.
//!
//! It never waits long for the journal, and for one that hangs not at all. What the journal does not take goes to standard
//! error where that has room, cut at 4 KiB; what finds no way at all is dropped, counted, and told later.
//! A value is cut at 16 KiB, the message at 32 KiB, and an entry takes fields until it has 96 KiB, which is less than
//! any kernel takes as one datagram.

mod way;

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use self::way::Beside;
pub(super) use self::way::Journal;
use super::veil::{Net, Veil};
use crate::cli::words::spelled;

/// Where the journal listens.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";
/// Who we are to it.
const IDENTIFIER: &str = "hermes-relay";
/// What our own fields start with.
const PREFIX: &str = "HERMES_";
/// The longest value, in bytes.
const MAX_VALUE: usize = 16 * 1024;
/// The longest message, in bytes.
const MAX_MESSAGE: usize = 32 * 1024;
/// The largest entry, in bytes; fields that would go beyond it are left out.
const MAX_ENTRY: usize = 96 * 1024;
/// The longest line on standard error, in bytes: with its end, what any pipe with room takes at once.
const MAX_BESIDE: usize = 4095;
/// The longest name of a field that the journal takes.
const MAX_NAME: usize = 64;
/// What stands at the end of something that was cut.
const CUT: &str = "[cut]";

impl Journal {
    /// Opens it where the system has it.
    pub(super) fn open() -> io::Result<Self> {
        Self::at(Path::new(SOCKET))
    }

    /// The layer that writes to it through the net.
    pub(super) fn layer(self, net: Net) -> JournalLayer {
        self.layer_beside(Beside::standard_error(), net)
    }

    fn layer_beside(self, beside: Beside, net: Net) -> JournalLayer {
        JournalLayer {
            journal: self,
            beside,
            net,
            untold: AtomicU64::new(0),
        }
    }
}

/// Whether the journal reads what is written to this file: `JOURNAL_STREAM` names its device and inode. A program whose
/// standard error leads elsewhere may have inherited the variable, so that the variable alone says nothing.
pub(super) fn is_stream(named: &str, file: impl std::os::fd::AsFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| named.trim() == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Writes events to the journal.
pub(super) struct JournalLayer {
    journal: Journal,
    beside: Beside,
    net: Net,
    /// Lines that found no way and that nobody was told of yet.
    untold: AtomicU64,
}

impl JournalLayer {
    /// Hands an entry to the journal; or what it says, as a line, to standard error.
    fn write(&self, entry: &[u8], level: Level, said: &Said) {
        if self.journal.send(entry).is_ok() {
            let untold = self.untold.swap(0, Ordering::Relaxed);
            if untold > 0 && self.journal.send(&lost(untold)).is_err() {
                self.untold.fetch_add(untold, Ordering::Relaxed);
            }
            return;
        }
        let line = format!("{level} {}", said.line());
        if !self.beside.write(&format!("{}\n", cut(&line, MAX_BESIDE))) {
            self.untold.fetch_add(1, Ordering::Relaxed);
            self.net.counts().lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What is told once there is a way again.
fn lost(lines: u64) -> Vec<u8> {
    let message = "the system's journal took no lines for a while, and some of them are lost";
    let mut entry = Vec::with_capacity(256);
    add(&mut entry, "MESSAGE", &format!("{message} count={lines}"));
    add(&mut entry, "PRIORITY", priority(Level::WARN));
    add(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    add(&mut entry, "HERMES_TARGET", module_path!());
    add(&mut entry, "HERMES_COUNT", &lines.to_string());
    entry
}

impl<S: Subscriber> Layer<S> for JournalLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        if said.hide(&self.net.veil()) {
            self.net.count_hidden();
        }
        let meta = event.metadata();
        self.write(&entry(meta, &said), *meta.level(), &said);
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    /// Name, the value as it is, and as it stands in a line.
    fields: Vec<(&'static str, String, String)>,
}

impl Said {
    /// Hides what is secret, before anything is spelled or cut: half a secret would not be known for one. Says whether
    /// there was something to hide.
    fn hide(&mut self, veil: &Veil) -> bool {
        let fields = self
            .fields
            .iter_mut()
            .flat_map(|(_, value, shown)| [value, shown]);
        let mut hidden = false;
        for text in fields.chain([&mut self.message]) {
            if let Cow::Owned(shown) = veil.hide_text(text) {
                *text = shown;
                hidden = true;
            }
        }
        hidden
    }

    /// In one line, in which nothing can move a terminal's cursor.
    fn line(&self) -> String {
        let mut line = spelled(&self.message);
        for (name, _, shown) in &self.fields {
            let space = if line.is_empty() { "" } else { " " };
            let _ = write!(line, "{space}{name}={}", spelled(shown));
        }
        line
    }

    fn note(&mut self, field: &Field, value: String, shown: String) {
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value, shown)),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        self.note(field, value.clone(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, value.to_owned(), format!("{value:?}"));
    }
}

/// One event in the journal's form.
fn entry(meta: &Metadata<'_>, said: &Said) -> Vec<u8> {
    let mut entry = Vec::with_capacity(512);
    add(&mut entry, "MESSAGE", &cut(&said.line(), MAX_MESSAGE));
    add(&mut entry, "PRIORITY", priority(*meta.level()));
    add(&mut entry, "SYSLOG_IDENTIFIER", IDENTIFIER);
    add(&mut entry, "HERMES_TARGET", meta.target());
    if let (Some(file), Some(line)) = (meta.file(), meta.line()) {
        add(&mut entry, "CODE_FILE", file);
        add(&mut entry, "CODE_LINE", &line.to_string());
    }
    for (name, value, _) in &said.fields {
        add(&mut entry, &field_name(name), &cut(value, MAX_VALUE));
    }
    entry
}

/// The journal's own scale; both of our finest levels are its `debug`.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// A name that the journal takes: capitals, digits and underscores.
fn field_name(name: &str) -> String {
    let plain = name.chars().map(|char| match char.to_ascii_uppercase() {
        char @ ('A'..='Z' | '0'..='9') => char,
        _ => '_',
    });
    PREFIX.chars().chain(plain).take(MAX_NAME).collect()
}

fn cut(value: &str, most: usize) -> Cow<'_, str> {
    if value.len() <= most {
        return Cow::Borrowed(value);
    }
    let ends = (0..=most - CUT.len()).rev();
    let end = ends
        .into_iter()
        .find(|end| value.is_char_boundary(*end))
        .unwrap_or_default();
    [&value[..end], CUT].concat().into()
}

/// Adds a field, unless the entry is full: as a line, or with its length before it where it has lines of its own.
fn add(entry: &mut Vec<u8>, name: &str, value: &str) {
    // The name, two line ends and the length.
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
