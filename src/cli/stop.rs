//! `hermes-relay stop`: stops the turn of one session.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::exit;
use super::format::printable;
use super::remote::{RemoteArgs, RemoteRelay};
use crate::config::file::nearest;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;

/// Stop the running turn of one session. Queued messages of that session run next. If the turn does not run here, the
/// connector is asked to stop it in the instance that runs it.
///
/// Exit codes: 0 stopping, 1 no turn of that session runs here, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay stop agent:main:discord:dm:1234\n  \
                  hermes-relay sessions                    # list the sessions")]
pub(super) struct StopArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Session key, as listed by `hermes-relay sessions`.
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Runs the verb.
pub(super) fn run(args: &StopArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.relay(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let request = ControlRequest::Stop {
        session: args.session.clone(),
    };
    let session = printable(&args.session);
    match relay.call(&request) {
        Ok(_) => args
            .remote
            .print(&json!({"stopped": args.session}), format!("stopping {session}")),
        Err(ClientError::Refused(refused)) if refused.code == "no_turn" => {
            let what = format!("no turn runs in `{session}`");
            relay.fail(exit::FAILED, what, Some(&hint(&relay, &args.session)))
        }
        Err(ClientError::Refused(refused)) if refused.code == "no_turn_here" => {
            let what =
                format!("no turn runs in `{session}` here; the connector was asked to stop it elsewhere");
            relay.fail(exit::FAILED, what, Some(&hint(&relay, &args.session)))
        }
        Err(error) => relay.report(&error, None),
    }
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
