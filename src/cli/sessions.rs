//! `hermes-relay sessions`: lists the sessions that run or wait.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde_json::Value;

use super::Environment;
use super::exit::finish;
use super::format::{duration, printable, stdout};
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;

/// List the sessions of a running relay that run or wait, at most a thousand.
///
/// Exit codes: 0 listed, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay sessions\n  hermes-relay sessions --json | jq -r '.sessions[].session'"
)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the verb.
pub(super) fn run(args: &SessionsArgs, env: Environment<'_>) -> ExitCode {
    match args.remote.call(env, &ControlRequest::Sessions) {
        Ok(list) => finish(show(&list, args.remote.json)),
        Err(code) => code,
    }
}

fn show(list: &Value, as_json: bool) -> io::Result<()> {
    let mut out = stdout();
    if as_json {
        writeln!(out, "{list}")?;
        return out.flush();
    }
    let sessions = list["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if sessions.is_empty() {
        writeln!(out, "no session runs or waits")?;
    }
    for session in sessions {
        let text = |key: &str| session[key].as_str().map(printable).unwrap_or_default();
        let mut details = Vec::new();
        if let Some(ms) = session["running_ms"].as_u64() {
            details.push(format!("for {}", duration(ms)));
        }
        if !text("agent").is_empty() {
            details.push(format!("by {}", text("agent")));
        }
        match (session["waiting"].as_u64(), session["waiting_since_ms"].as_i64()) {
            (Some(0) | None, None) => {}
            (waiting, since) => {
                let since = since.map(|since| format!(" since {}", duration(ms_since(since))));
                details.push(format!(
                    "{} waiting{}",
                    waiting.unwrap_or(0).max(1),
                    since.unwrap_or_default()
                ));
            }
        }
        writeln!(
            out,
            "{:<9} {}  {}",
            text("state"),
            text("session"),
            details.join(", ")
        )?;
    }
    let rest = list["total"]
        .as_u64()
        .unwrap_or(0)
        .saturating_sub(sessions.len() as u64);
    if rest > 0 {
        writeln!(out, "and {rest} more")?;
    }
    out.flush()
}

fn ms_since(at_ms: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    now.saturating_sub(u64::try_from(at_ms).unwrap_or(0))
}
