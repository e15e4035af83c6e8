//! `hermes-relay sessions`: lists the sessions that run or wait, and stops the turn of one.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, finish};
use super::format::{duration, printable, stdout};
use super::remote::{RemoteArgs, RemoteRelay};
use crate::config::file::nearest;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;

/// List the sessions of a running relay that run or wait, at most a thousand; stop the turn of one.
///
/// Exit codes: 0 listed or stopping, 1 no turn of that session runs here, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay sessions\n  hermes-relay sessions --json | jq -r '.sessions[].session'\n  \
                  hermes-relay sessions stop agent:main:discord:dm:1234"
)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    action: Option<SessionsCommand>,
}

#[derive(Subcommand, Debug)]
enum SessionsCommand {
    /// List the sessions; the same without `list`.
    #[command(after_help = "Example:\n  hermes-relay sessions list --json")]
    List,
    /// Stop the running turn of one session. Queued messages of that session run next. If the turn does not run here, the
    /// connector is asked to stop it in the instance that runs it.
    #[command(after_help = "Example:\n  hermes-relay sessions stop agent:main:discord:dm:1234")]
    Stop {
        /// Session key, as listed by `hermes-relay sessions`.
        #[arg(value_name = "SESSION")]
        session: String,
    },
}

/// Runs the verb.
pub(super) fn run(args: &SessionsArgs, env: Environment<'_>) -> ExitCode {
    if let Some(SessionsCommand::Stop { session }) = &args.action {
        return stop(&args.remote, session, env);
    }
    match args.remote.call(env, &ControlRequest::Sessions) {
        Ok(list) => finish(show(&list, args.remote.json)),
        Err(code) => code,
    }
}

/// Stops the turn of a session.
pub(super) fn stop(remote: &RemoteArgs, session: &str, env: Environment<'_>) -> ExitCode {
    let relay = match remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let request = ControlRequest::Stop {
        session: session.to_owned(),
    };
    let shown = printable(session);
    let what = match relay.call(&request) {
        Ok(_) => return remote.print(&json!({"stopped": session}), format!("stopping {shown}")),
        Err(ClientError::Refused(refused)) if refused.code == "no_turn" => {
            format!("no turn runs in `{shown}`")
        }
        Err(ClientError::Refused(refused)) if refused.code == "no_turn_here" => {
            format!("no turn runs in `{shown}` here; the connector was asked to stop it elsewhere")
        }
        Err(error) => return relay.report(&error, None),
    };
    relay.fail(exit::FAILED, what, Some(&hint(&relay, session)))
}

fn hint(relay: &RemoteRelay, typed: &str) -> String {
    let list = relay.call(&ControlRequest::Sessions).unwrap_or_default();
    let sessions = list["sessions"].as_array().into_iter().flatten();
    let running = sessions
        .filter(|session| session["running_ms"].is_u64())
        .filter_map(|session| session["session"].as_str());
    match nearest(typed, running) {
        Some(near) => format!("did you mean `{}`?", printable(near)),
        None if list["sessions"].as_array().is_none_or(Vec::is_empty) => {
            "no turn is running; `hermes-relay sessions` lists the sessions".to_owned()
        }
        None => "`hermes-relay sessions` lists the sessions".to_owned(),
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
