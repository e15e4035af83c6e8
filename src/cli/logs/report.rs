//! The report of `logs redact`: what was found, how often, and on which lines. Never a value.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::MAX_LINE;
use crate::cli::log::redact::{KnownSecret, MatchKind};

/// Maximum number of line numbers kept per kind; counting goes on.
const MAX_LINE_NUMBERS: usize = 1000;
/// Maximum number of line numbers printed per kind.
const MAX_PRINTED: usize = 12;

/// How often something was found, and on which lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Occurrences {
    count: u64,
    lines: Vec<u64>,
}

/// What was found in one log.
#[derive(Clone, Debug, Default)]
pub(super) struct FileScan {
    lines: u64,
    /// Lines that were too long to be checked to their end.
    truncated: Occurrences,
    found: BTreeMap<MatchKind, Occurrences>,
}

impl Occurrences {
    fn add(&mut self, line: u64) {
        self.count += 1;
        if self.lines.len() < MAX_LINE_NUMBERS && self.lines.last() != Some(&line) {
            self.lines.push(line);
        }
    }

    /// The lines as text.
    fn places(&self) -> String {
        let shown: Vec<_> = self.lines.iter().take(MAX_PRINTED).map(u64::to_string).collect();
        let more = if self.lines.len() > MAX_PRINTED {
            ", .."
        } else {
            ""
        };
        let place = if shown.len() == 1 { "line" } else { "lines" };
        format!("{place} {}{more}", shown.join(", "))
    }
}

/// Which secrets were searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coverage {
    /// The settings contain a secret of this gateway.
    GatewaySecret,
    /// The settings contain none.
    NoGatewaySecret,
    /// The settings cannot be read.
    NoSettings,
}

impl FileScan {
    /// Counts a line.
    pub(super) fn next_line(&mut self) {
        self.lines += 1;
    }

    /// Counts a match in the current line.
    pub(super) fn found(&mut self, kind: MatchKind) {
        self.found.entry(kind).or_default().add(self.lines);
    }

    /// Counts the current line as truncated.
    pub(super) fn truncated(&mut self) {
        self.truncated.add(self.lines);
    }
}

/// What was found in all logs.
pub(super) struct LogReport {
    coverage: Coverage,
    logs: Vec<(String, FileScan)>,
    unread: Vec<String>,
}

impl LogReport {
    pub(super) fn new(coverage: Coverage) -> Self {
        Self {
            coverage,
            logs: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Adds a log.
    pub(super) fn add(&mut self, name: &str, scan: FileScan) {
        self.logs.push((name.to_owned(), scan));
    }

    /// Adds a log that could not be read completely.
    pub(super) fn add_unread(&mut self, name: &str) {
        self.unread.push(name.to_owned());
    }

    /// Whether all logs could be read.
    pub(super) fn is_complete(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether every log was read and no line was truncated.
    pub(super) fn is_fully_checked(&self) -> bool {
        self.is_complete() && self.logs.iter().all(|(_, scan)| scan.truncated.count == 0)
    }

    /// Whether anything was found.
    pub(super) fn has_any(&self) -> bool {
        self.count(|_| true) > 0
    }

    /// Whether a secret of this installation was found.
    pub(super) fn has_known_secret(&self) -> bool {
        self.count(|kind| matches!(kind, MatchKind::Known(_))) > 0
    }

    fn count(&self, counts: impl Fn(MatchKind) -> bool) -> u64 {
        let found = self.logs.iter().flat_map(|(_, scan)| &scan.found);
        found
            .filter(|(kind, _)| counts(**kind))
            .map(|(_, found)| found.count)
            .sum()
    }

    /// The result in one line.
    pub(super) fn summary(&self) -> String {
        let ids = self.count(|kind| kind == MatchKind::Id);
        let known = self.count(|kind| matches!(kind, MatchKind::Known(_)));
        let likely = self.count(|kind| kind != MatchKind::Id) - known;
        format!(
            "redacted: secrets of this installation {}, likely secrets {}; ids renamed {}; read the result before you post it",
            times(known),
            times(likely),
            times(ids)
        )
    }

    /// Writes the report for people.
    pub(super) fn write_to(&self, out: &mut impl Write, secrets: &[KnownSecret]) -> io::Result<()> {
        for (name, scan) in &self.logs {
            writeln!(out, "{name}: {} lines", scan.lines)?;
            for (kind, found) in &scan.found {
                let (what, times, places) = (description(*kind, secrets), times(found.count), found.places());
                writeln!(out, "  {what}: {times}, on {places}")?;
            }
            if scan.truncated.count > 0 {
                let places = scan.truncated.places();
                writeln!(
                    out,
                    "  longer than {MAX_LINE} bytes, not checked beyond that: {places}"
                )?;
            }
        }
        let result = match (self.has_known_secret(), self.coverage, self.is_fully_checked()) {
            (true, _, _) => "found a secret of this installation: change it, or redact the log",
            (false, Coverage::NoSettings, _) => {
                "unknown whether there is a secret of this installation: the settings cannot be read"
            }
            (false, Coverage::NoGatewaySecret, _) => {
                "unknown whether there is a secret of this installation: the settings contain none"
            }
            (false, Coverage::GatewaySecret, false) => {
                "no secret of this installation found in what could be read"
            }
            (false, Coverage::GatewaySecret, true) => "no secret of this installation found",
        };
        writeln!(out, "{result}")
    }

    /// The report for programs.
    pub(super) fn to_json(&self, secrets: &[KnownSecret]) -> Value {
        let found = |scan: &FileScan| -> Vec<Value> {
            let found = scan.found.iter().map(|(kind, found)| {
                let name = match kind {
                    MatchKind::Known(number) => secrets.get(*number).map(|known| known.name.clone()),
                    _ => None,
                };
                json!({"kind": json_name(*kind), "name": name, "count": found.count, "lines": found.lines})
            });
            found.collect()
        };
        let logs: Vec<Value> = self
            .logs
            .iter()
            .map(|(name, scan)| json!({"file": name, "lines": scan.lines, "found": found(scan), "cut": scan.truncated.lines}))
            .collect();
        json!({
            "holds_known_secret": self.has_known_secret(), "files": logs, "unread": self.unread,
            "settings_read": self.coverage != Coverage::NoSettings,
            "secrets_known": self.coverage == Coverage::GatewaySecret,
        })
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn json_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Known(_) => "known",
        MatchKind::Token => "token",
        MatchKind::Bearer => "bearer",
        MatchKind::Named => "named",
        MatchKind::Login => "login",
        MatchKind::Query => "query",
        MatchKind::KeyFormat => "form",
        MatchKind::Code => "code",
        MatchKind::Id => "id",
    }
}

fn description(kind: MatchKind, secrets: &[KnownSecret]) -> String {
    match kind {
        MatchKind::Known(number) => {
            let name = secrets
                .get(number)
                .map_or("a secret", |known| known.name.as_str());
            format!("a secret of this installation, {name}")
        }
        MatchKind::Token => "a relay token".to_owned(),
        MatchKind::Bearer => "a bearer".to_owned(),
        MatchKind::Named => "a value with the name of a secret".to_owned(),
        MatchKind::Login => "a login in a URL".to_owned(),
        MatchKind::Query => "a secret in the query of a URL".to_owned(),
        MatchKind::KeyFormat => "a key in a well-known format".to_owned(),
        MatchKind::Code => "a pairing code".to_owned(),
        MatchKind::Id => "ids and names of chats and people".to_owned(),
    }
}
