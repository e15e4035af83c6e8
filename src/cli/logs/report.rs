//! What was found: kinds, how often, and on which lines. Never a value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::redactor::Kind;
use crate::cli::logging::Known;

/// Line numbers that are kept of each kind; beyond it the count goes on.
const MOST_LINES: usize = 1000;
/// Line numbers that a person is told of each kind.
const LINES_TOLD: usize = 12;

/// How often something was found, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    count: u64,
    lines: Vec<u64>,
}

/// What was found in one log.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    lines: u64,
    found: BTreeMap<Kind, Found>,
}

impl Tally {
    /// Another line is looked at.
    pub(super) fn next_line(&mut self) {
        self.lines += 1;
    }

    /// Something was found in it.
    pub(super) fn found(&mut self, kind: Kind) {
        let found = self.found.entry(kind).or_default();
        found.count += 1;
        if found.lines.len() < MOST_LINES && found.lines.last() != Some(&self.lines) {
            found.lines.push(self.lines);
        }
    }

    /// How often it was found.
    #[cfg(test)]
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.found.get(&kind).map_or(0, |found| found.count)
    }
}

/// What was found in all of them.
pub(super) struct Report {
    /// Whether the settings could be read.
    settings: bool,
    logs: Vec<(String, Tally)>,
    unread: Vec<String>,
}

impl Report {
    pub(super) fn new(settings: bool) -> Self {
        Self {
            settings,
            logs: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// One log is done.
    pub(super) fn add(&mut self, name: &str, tally: Tally) {
        self.logs.push((name.to_owned(), tally));
    }

    /// One log could not be read, or not to its end.
    pub(super) fn add_unread(&mut self, name: &str) {
        self.unread.push(name.to_owned());
    }

    /// Whether everything could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether a secret of this set-up was found.
    pub(super) fn holds_known(&self) -> bool {
        self.count(|kind| matches!(kind, Kind::Known(_))) > 0
    }

    fn count(&self, counts: impl Fn(Kind) -> bool) -> u64 {
        let found = self.logs.iter().flat_map(|(_, tally)| &tally.found);
        found
            .filter(|(kind, _)| counts(**kind))
            .map(|(_, found)| found.count)
            .sum()
    }

    /// In one line, for who has the rest of it in a file.
    pub(super) fn summary(&self) -> String {
        let ids = self.count(|kind| kind == Kind::Id);
        let known = self.count(|kind| matches!(kind, Kind::Known(_)));
        let likely = self.count(|kind| kind != Kind::Id) - known;
        format!(
            "hidden: secrets of this set-up {}, what looks like one {}; ids renamed {}; read it before you post it",
            times(known),
            times(likely),
            times(ids)
        )
    }

    /// For a person.
    pub(super) fn write_to(&self, out: &mut impl Write, secrets: &[Known]) -> io::Result<()> {
        for (name, tally) in &self.logs {
            writeln!(out, "{name}: {} lines", tally.lines)?;
            for (kind, found) in &tally.found {
                let told: Vec<_> = found.lines.iter().take(LINES_TOLD).map(u64::to_string).collect();
                let more = if found.lines.len() > LINES_TOLD {
                    ", .."
                } else {
                    ""
                };
                let place = if told.len() == 1 { "line" } else { "lines" };
                let (about, times, told) = (about(*kind, secrets), times(found.count), told.join(", "));
                writeln!(out, "  {about}: {times}, on {place} {told}{more}")?;
            }
        }
        let verdict = match (self.holds_known(), self.settings, self.is_whole()) {
            (true, _, _) => "a secret of this set-up is in there: change it, or redact the log",
            (false, false, _) => {
                "whether a secret of this set-up is in there is not known: the settings cannot be read"
            }
            (false, true, false) => "no secret of this set-up is in what could be read",
            (false, true, true) => "no secret of this set-up is in there",
        };
        writeln!(out, "{verdict}")
    }

    /// For a program.
    pub(super) fn to_json(&self, secrets: &[Known]) -> Value {
        let found = |tally: &Tally| -> Vec<Value> {
            let found = tally.found.iter().map(|(kind, found)| {
                let name = match kind {
                    Kind::Known(number) => secrets.get(*number).map(|known| known.name.clone()),
                    _ => None,
                };
                json!({"kind": word(*kind), "name": name, "count": found.count, "lines": found.lines})
            });
            found.collect()
        };
        let logs: Vec<Value> = self
            .logs
            .iter()
            .map(|(name, tally)| json!({"file": name, "lines": tally.lines, "found": found(tally)}))
            .collect();
        json!({
            "holds_known_secret": self.holds_known(), "settings_read": self.settings, "files": logs,
            "unread": self.unread,
        })
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Known(_) => "known",
        Kind::Token => "token",
        Kind::Bearer => "bearer",
        Kind::Named => "named",
        Kind::Login => "login",
        Kind::Query => "query",
        Kind::Form => "form",
        Kind::Id => "id",
    }
}

fn about(kind: Kind, secrets: &[Known]) -> String {
    match kind {
        Kind::Known(number) => {
            let name = secrets
                .get(number)
                .map_or("a secret", |known| known.name.as_str());
            format!("a secret of this set-up, {name}")
        }
        Kind::Token => "a token of a relay".to_owned(),
        Kind::Bearer => "a bearer".to_owned(),
        Kind::Named => "a value whose name is that of a secret".to_owned(),
        Kind::Login => "a login in a URL".to_owned(),
        Kind::Query => "a secret in the query of a URL".to_owned(),
        Kind::Form => "a key of a well-known form".to_owned(),
        Kind::Id => "ids of chats and people".to_owned(),
    }
}
