//! `hermes-relay doctor`: what is wrong, and what to do about it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::exit::{self, Voice, fail};
use super::{Environment, SharedArgs, Surround};
use crate::check::{Case, Consent, Finding, Outcome, PROBES, examine};
use crate::config::Flags;

/// Find out what keeps the relay from working, and what to do about it.
///
/// Looks at the settings, the state directory, the way to the connector (proxy, DNS, TCP, TLS, clock), the token, the
/// handshake, the agents and the service unit, within 30 seconds. A relay that runs on the same state directory is
/// asked how it stands. The connector is dialled once as this gateway, and nothing is acknowledged; while a relay is
/// connected that is left out, unless asked for with --dial.
///
/// Exit codes: 0 nothing failed, 1 something did.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay doctor\n  hermes-relay doctor --json | jq '.[] | select(.outcome == \"failed\")'"
)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// As one JSON array, on one line.
    #[arg(long)]
    json: bool,
    /// Dial even while a relay runs; the connector may drop that relay's connection, which then dials again.
    #[arg(long)]
    dial: bool,
    /// Declare the relevance policy to see whether it is taken; changes what the connector delivers.
    #[arg(long)]
    declare: bool,
    /// The connector's URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Where the journal lives.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Runs the verb.
pub(super) fn run(args: &DoctorArgs, surround: &Surround<'_>) -> ExitCode {
    let flags = Flags {
        url: args.url.clone(),
        state_dir: args.state_dir.clone(),
        ..args.shared.flags()
    };
    let consent = Consent {
        dial: args.dial,
        declare: args.declare,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return Voice::of(args.json).fail(exit::OUR_FAULT, "cannot start the runtime", None);
    };
    let marks = Marks::fitting(surround.env);
    let mut out = anstream::stdout();
    let mut written = Ok(());
    let findings = runtime.block_on(async {
        let mut case = Case::new(flags, surround.env, surround.base.clone(), consent);
        examine(PROBES, &mut case, |finding| {
            if !args.json && written.is_ok() {
                written = tell(&mut out, finding, &marks);
            }
        })
        .await
    });
    // A resolver that never answers must not hold up the end.
    runtime.shutdown_background();
    let count = |outcome| {
        findings
            .iter()
            .filter(|finding| finding.outcome == outcome)
            .count()
    };
    let (failed, warned) = (count(Outcome::Failed), count(Outcome::Warn));
    let written = written.and_then(|()| {
        if args.json {
            let rows: Vec<_> = findings.iter().map(row).collect();
            writeln!(out, "{}", serde_json::Value::Array(rows))
        } else {
            writeln!(out, "\n{}", summary(failed, warned))
        }
    });
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(exit::FAILED, format!("cannot write: {error}"), None)
        }
        _ if failed > 0 => ExitCode::from(exit::FAILED),
        _ => ExitCode::SUCCESS,
    }
}

fn row(finding: &Finding) -> serde_json::Value {
    json!({
        "id": finding.id,
        "title": finding.title,
        "subject": finding.subject,
        "outcome": finding.outcome.word(),
        "detail": finding.detail,
        "remedy": finding.remedy,
        "blocked_by": finding.blocked_by,
    })
}

fn summary(failed: usize, warned: usize) -> String {
    match (failed, warned) {
        (0, 0) => "Nothing is wrong.".to_owned(),
        (0, warned) => format!("Nothing failed; {warned} to look at."),
        (failed, 0) => format!("{failed} failed."),
        (failed, warned) => format!("{failed} failed, {warned} more to look at."),
    }
}

/// Wide enough for the longest title.
const TITLE_WIDTH: usize = 18;

fn tell(out: &mut impl Write, finding: &Finding, marks: &Marks) -> io::Result<()> {
    const PLAIN: &str = "\u{1b}[0m";
    let (mark, colour) = marks.of(finding.outcome);
    let subject = finding
        .subject
        .as_ref()
        .map_or_else(String::new, |subject| format!("{subject}: "));
    writeln!(
        out,
        "{colour}{mark}{PLAIN} {:TITLE_WIDTH$} {subject}{}",
        finding.title, finding.detail
    )?;
    match &finding.remedy {
        Some(remedy) => writeln!(out, "  {:TITLE_WIDTH$} {} {remedy}", "", marks.arrow),
        None => Ok(()),
    }
}

/// What stands in front of each line.
struct Marks {
    ok: &'static str,
    failed: &'static str,
    skipped: &'static str,
    arrow: &'static str,
}

impl Marks {
    /// Those that the terminal's character set has.
    fn fitting(env: Environment<'_>) -> Self {
        let charset = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| env(name).filter(|value| !value.is_empty()))
            .unwrap_or_default()
            .to_ascii_lowercase();
        if charset.contains("utf-8") || charset.contains("utf8") {
            Self {
                ok: "✓",
                failed: "✗",
                skipped: "–",
                arrow: "→",
            }
        } else {
            Self {
                ok: "+",
                failed: "x",
                skipped: "-",
                arrow: "->",
            }
        }
    }

    fn of(&self, outcome: Outcome) -> (&'static str, &'static str) {
        match outcome {
            Outcome::Ok => (self.ok, "\u{1b}[32m"),
            Outcome::Warn => ("!", "\u{1b}[33m"),
            Outcome::Failed => (self.failed, "\u{1b}[31m"),
            Outcome::Skipped => (self.skipped, "\u{1b}[2m"),
        }
    }
}
