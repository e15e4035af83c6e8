//! `hermes-relay status`: the status of a running relay.

mod watch;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, finish};
use super::format::{printable, stdout};
use super::remote::RemoteArgs;
use crate::serve::{ControlRequest, StatusRow, Tone, status_rows};

/// Interval of --watch.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Show the status of a running relay: link, platforms, sessions, journal, agents, counters.
///
/// Exit codes: 0 shown, 69 no relay is running here, 78 invalid configuration. To check whether it is connected, use
/// `hermes-relay health`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay status\n  hermes-relay status --watch\n  \
                  hermes-relay status --json | jq .link\n  hermes-relay status --state-dir /var/lib/hermes-relay"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Show it again every two seconds; q quits.
    #[arg(long)]
    watch: bool,
}

/// Runs the verb.
pub(super) fn run(args: &StatusArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let status = match relay.call(&ControlRequest::Status) {
        Ok(status) => status,
        Err(error) => return relay.report(&error, None),
    };
    if args.watch && !args.remote.json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        return watch::run(&relay, &status);
    }
    let mut shown = show(&status, args);
    while args.watch && shown.is_ok() {
        #[expect(clippy::disallowed_methods, reason = "the interval of --watch")]
        std::thread::sleep(WATCH_INTERVAL);
        shown = match relay.call(&ControlRequest::Status) {
            Ok(status) => show(&status, args),
            // Keep watching until it is back.
            Err(error) => show_error(&error, args),
        };
    }
    finish(shown)
}

fn show(status: &Value, args: &StatusArgs) -> io::Result<()> {
    if args.remote.json {
        writeln!(stdout(), "{status}")?;
        return stdout().flush();
    }
    let mut out = anstream::stdout().lock();
    if args.watch {
        writeln!(out)?;
    }
    for row in status_rows(status) {
        writeln!(out, "{}", line(&row, usize::MAX, true))?;
    }
    out.flush()
}

fn show_error(error: &dyn std::fmt::Display, args: &StatusArgs) -> io::Result<()> {
    let mut out = stdout();
    if args.remote.json {
        let error = json!({"exit_code": exit::UNAVAILABLE, "message": error.to_string(), "hint": null});
        writeln!(out, "{}", json!({ "error": error }))?;
    } else {
        writeln!(out, "{}", printable(&error.to_string()))?;
    }
    out.flush()
}

/// A row as a line of at most so many columns, with everything escaped that came from outside.
fn line(row: &StatusRow, columns: usize, colour: bool) -> String {
    let mut line = String::new();
    let label = format!("{:<9} ", row.label);
    let mut room = columns;
    for (tone, text) in std::iter::once(&(Tone::Plain, label)).chain(&row.pieces) {
        let text: String = printable(text).chars().take(room).collect();
        room -= text.chars().count();
        match code(*tone).filter(|_| colour) {
            Some(code) => line.extend(["\x1b[", code, "m", &text, "\x1b[0m"]),
            None => line.push_str(&text),
        }
    }
    line
}

/// The colour of a tone.
fn code(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Plain => None,
        Tone::Good => Some("32"),
        Tone::Warning => Some("33"),
        Tone::Bad => Some("31"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_the_connector_is_escaped() {
        let status = json!({
            "link": "waiting\r", "last_loss": "it said \u{1b}[2J", "descriptors": [{"platform": "x\n", "label": "\u{7}", "ops": ["a\r"]}],
        });
        let rows = status_rows(&status);
        let page: Vec<_> = rows.iter().map(|row| line(row, usize::MAX, true)).collect();
        let text = page.join("\n").replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("last loss it said \\u001b[2J"), "{text}");
    }

    #[test]
    fn a_line_is_cut_at_the_edge_of_the_screen() {
        let row = StatusRow {
            label: "link",
            pieces: vec![
                (Tone::Good, "live".to_owned()),
                (Tone::Plain, " for 3 s".to_owned()),
            ],
        };
        assert_eq!(line(&row, 100, false), "link      live for 3 s");
        assert_eq!(line(&row, 15, true), "link      \x1b[32mlive\x1b[0m ");
        assert_eq!(line(&row, 6, false), "link  ");
    }
}
