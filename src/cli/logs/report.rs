//! What was found: kinds, how often, and on which lines. Never a value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::lines::MAX_LINE;
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
    /// Lines that were too long to be looked at to their end.
    cut: Found,
    found: BTreeMap<Kind, Found>,
}

impl Found {
    fn note(&mut self, line: u64) {
        self.count += 1;
        if self.lines.len() < MOST_LINES && self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    /// Where, in words.
    fn places(&self) -> String {
        let told: Vec<_> = self.lines.iter().take(LINES_TOLD).map(u64::to_string).collect();
        let more = if self.lines.len() > LINES_TOLD { ", .." } else { "" };
        let place = if told.len() == 1 { "line" } else { "lines" };
        format!("{place} {}{more}", told.join(", "))
    }
}

/// What is known of the secrets to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The settings hold the gateway's.
    Secrets,
    /// The settings hold none.
    NoSecret,
    /// The settings cannot be read.
    NoSettings,
}

impl Tally {
    /// Another line is looked at.
    pub(super) fn next_line(&mut self) {
        self.lines += 1;
    }

    /// Something was found in it.
    pub(super) fn found(&mut self, kind: Kind) {
        self.found.entry(kind).or_default().note(self.lines);
    }

    /// The rest of it was passed over.
    pub(super) fn cut(&mut self) {
        self.cut.note(self.lines);
    }

    /// How often it was found.
    #[cfg(test)]
    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.found.get(&kind).map_or(0, |found| found.count)
    }
}

/// What was found in all of them.
pub(super) struct Report {
    knowledge: Knowledge,
    logs: Vec<(String, Tally)>,
    unread: Vec<String>,
}

impl Report {
    pub(super) fn new(knowledge: Knowledge) -> Self {
        Self {
            knowledge,
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

    /// Whether everything was looked at: everything could be read, and no line was too long.
    pub(super) fn is_looked_through(&self) -> bool {
        self.is_whole() && self.logs.iter().all(|(_, tally)| tally.cut.count == 0)
    }

    /// Whether something was found at all, be it by its looks.
    pub(super) fn holds_anything(&self) -> bool {
        self.count(|_| true) > 0
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
                let (about, times, places) = (about(*kind, secrets), times(found.count), found.places());
                writeln!(out, "  {about}: {times}, on {places}")?;
            }
            if tally.cut.count > 0 {
                let places = tally.cut.places();
                writeln!(
                    out,
                    "  longer than {MAX_LINE} bytes, and not looked at beyond that: {places}"
                )?;
            }
        }
        let verdict = match (self.holds_known(), self.knowledge, self.is_looked_through()) {
            (true, _, _) => "a secret of this set-up is in there: change it, or redact the log",
            (false, Knowledge::NoSettings, _) => {
                "whether a secret of this set-up is in there is not known: the settings cannot be read"
            }
            (false, Knowledge::NoSecret, _) => {
                "whether a secret of this set-up is in there is not known: the settings hold none"
            }
            (false, Knowledge::Secrets, false) => "no secret of this set-up is in what could be read",
            (false, Knowledge::Secrets, true) => "no secret of this set-up is in there",
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
            .map(|(name, tally)| json!({"file": name, "lines": tally.lines, "found": found(tally), "cut": tally.cut.lines}))
            .collect();
        json!({
            "holds_known_secret": self.holds_known(), "files": logs, "unread": self.unread,
            "settings_read": self.knowledge != Knowledge::NoSettings,
            "secrets_known": self.knowledge == Knowledge::Secrets,
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
