//! `hermes-relay doctor`: runs the probes and prints findings with remedies.

mod bundle;
mod context;
mod cron;
mod deliveries;
mod discord;
mod handshake;
mod local;
#[cfg(feature = "nats")]
mod nats;
mod network;
mod probe;
mod running;
mod table;
mod telegram;
mod unit;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use self::context::{CheckContext, Consent};
use self::probe::{Finding, ProbeOutcome, run_probes};
use self::table::PROBES;
use super::exit::{self, ErrorFormat, fail};
use super::format::{printable, stdout};
use super::{Environment, ProcessEnv, SharedArgs};
use crate::config::Flags;

/// Find out why the relay does not work, and what to do about it.
///
/// Checks the settings, the state directory, the network path to the connector (proxy, DNS, TCP, TLS, clock), the token,
/// the handshake, the NATS server of workers and clusters, the agents, jobs, notify targets, the receiver and the service unit, within 30 seconds. A
/// relay that runs on the same state directory is asked for its status. The connector is dialled once as this gateway, and nothing is acknowledged; while a
/// relay is connected, and for a member of a cluster, that is skipped unless you pass --dial. Of a worker's file it checks the server and the agent. Of a Telegram bot of your own it checks the token, privacy mode,
/// and whether a webhook or another program receives its messages; no message is confirmed. Of a Discord bot it checks the token and Message Content Intent.
///
/// Exit codes: 0 no probe failed, or the file of --bundle is written; 1 a probe failed, or the file is not written.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay doctor\n  hermes-relay doctor --json | jq '.[] | select(.outcome == \"failed\")'\n  hermes-relay doctor --bundle relay.txt       # for a bug report"
)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Print a JSON array on one line.
    #[arg(long)]
    json: bool,
    /// Write a file for a bug report: version, findings, settings, status and the end of the log, without secrets and ids. Read it
    /// before you post it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = bundle::FILE, conflicts_with_all = ["json", "verbose"])]
    bundle: Option<PathBuf>,
    /// Print every probe, not only problems.
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Dial even while a relay runs; the connector may close that relay's connection, which then reconnects.
    #[arg(long)]
    dial: bool,
    /// Declare the relevance policy to check whether it is accepted; changes what the connector delivers.
    #[arg(long)]
    declare: bool,
    /// Check the Telegram bot, as `run --telegram` uses it.
    #[arg(long)]
    telegram: bool,
    /// Check the Discord bot, as `run --discord` uses it.
    #[arg(long)]
    discord: bool,
    /// Connector URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Directory of the journal.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Runs the verb.
pub(super) fn run(args: &DoctorArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let flags = Flags {
        url: args.url.clone(),
        state_dir: (args.state_dir.clone()).or_else(|| args.shared.state_dir.clone()),
        telegram: args.telegram,
        discord: args.discord,
        ..args.shared.relay_flags()
    };
    let consent = Consent {
        dial: args.dial,
        declare: args.declare,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        return ErrorFormat::new(args.json).fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let marks = Marks::for_locale(process.env);
    let mut out = anstream::stdout();
    let mut written = Ok(());
    let findings = runtime.block_on(async {
        let mut context = CheckContext::new(flags.clone(), process.env, process.base.clone(), consent);
        run_probes(PROBES, &mut context, |finding| {
            let is_shown = args.verbose || finding.outcome.is_problem();
            if !args.json && args.bundle.is_none() && is_shown && written.is_ok() {
                written = print(&mut out, finding, &marks);
            }
        })
        .await
    });
    // Do not wait for a resolver that never answers.
    runtime.shutdown_background();
    if let Some(file) = &args.bundle {
        return bundle::write(file, &findings, flags, process);
    }
    let count = |outcome| {
        findings
            .iter()
            .filter(|finding| finding.outcome == outcome)
            .count()
    };
    let failed = count(ProbeOutcome::Failed);
    let written = written.and_then(|()| {
        if args.json {
            let rows: Vec<_> = findings.iter().map(row).collect();
            writeln!(stdout(), "{}", serde_json::Value::Array(rows))
        } else {
            let problems = [failed, count(ProbeOutcome::Warn)];
            let rest = [count(ProbeOutcome::Ok), count(ProbeOutcome::Skipped)];
            let gap = if args.verbose || problems != [0, 0] {
                "\n"
            } else {
                ""
            };
            writeln!(out, "{gap}{}", summary(problems, rest, args.verbose))
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
        "outcome": finding.outcome.as_str(),
        "detail": finding.detail,
        "remedy": finding.remedy,
        "blocked_by": finding.blocked_by,
    })
}

fn summary([failed, warned]: [usize; 2], [passed, skipped]: [usize; 2], verbose: bool) -> String {
    let warnings = match warned {
        1 => "1 warning".to_owned(),
        warned => format!("{warned} warnings"),
    };
    let found = match (failed, warned) {
        (0, 0) => "No problems found".to_owned(),
        (0, _) => warnings,
        (failed, 0) => format!("{failed} failed"),
        (failed, _) => format!("{failed} failed, {warnings}"),
    };
    let hint = if verbose { "" } else { " (--verbose shows them)" };
    format!("{found}. {passed} checks passed, {skipped} skipped{hint}.")
}

/// The length of the longest title.
const TITLE_WIDTH: usize = 18;

fn print(out: &mut impl Write, finding: &Finding, marks: &Marks) -> io::Result<()> {
    const PLAIN: &str = "\u{1b}[0m";
    let (mark, colour) = marks.for_outcome(finding.outcome);
    let subject = finding
        .subject
        .as_ref()
        .map_or_else(String::new, |subject| format!("{}: ", printable(subject)));
    writeln!(
        out,
        "{colour}{mark}{PLAIN} {:TITLE_WIDTH$} {subject}{}",
        finding.title,
        printable(&finding.detail)
    )?;
    match &finding.remedy {
        Some(remedy) => writeln!(out, "  {:TITLE_WIDTH$} {} {}", "", marks.arrow, printable(remedy)),
        None => Ok(()),
    }
}

/// Symbols in front of each line.
struct Marks {
    ok: &'static str,
    failed: &'static str,
    skipped: &'static str,
    arrow: &'static str,
}

impl Marks {
    /// Unicode symbols if the locale supports them.
    fn for_locale(env: Environment<'_>) -> Self {
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

    fn for_outcome(&self, outcome: ProbeOutcome) -> (&'static str, &'static str) {
        match outcome {
            ProbeOutcome::Ok => (self.ok, "\u{1b}[32m"),
            ProbeOutcome::Warn => ("!", "\u{1b}[33m"),
            ProbeOutcome::Failed => (self.failed, "\u{1b}[31m"),
            ProbeOutcome::Skipped => (self.skipped, "\u{1b}[2m"),
        }
    }
}
