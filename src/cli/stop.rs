//! `hermes-relay stop`: end the turn of one conversation.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::asking::{Relay, RelayArgs};
use super::exit::{self, printed};
use super::words::spelled;
use crate::config::file::nearest;
use crate::serve::client::AskError;
use crate::serve::request::Ask;

/// Stop the turn that runs in a conversation, and no other. What waits there runs next.
///
/// Exit codes: 0 told to stop, 1 no turn runs there, 69 no relay is running here, 78 the configuration cannot be used.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay stop agent:main:discord:dm:1234\n  \
                  hermes-relay sessions                    # which there are")]
pub(super) struct StopArgs {
    #[command(flatten)]
    relay: RelayArgs,
    /// The session's key, as `hermes-relay sessions` lists it.
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Runs the verb.
pub(super) fn run(args: &StopArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.relay.found(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let ask = Ask::Stop {
        session: args.session.clone(),
    };
    match relay.ask(&ask) {
        Ok(_) => {
            let mut out = anstream::stdout().lock();
            let told = if args.relay.json {
                writeln!(out, "{}", json!({"stopped": args.session}))
            } else {
                writeln!(out, "told to stop: {}", spelled(&args.session))
            };
            printed(told.and_then(|()| out.flush()))
        }
        Err(AskError::Refused(refusal)) if refusal.code == "no_turn" => {
            let what = format!("no turn runs in `{}`", spelled(&args.session));
            relay.fail(exit::FAILED, what, Some(&which(&relay, &args.session)))
        }
        Err(error) => relay.tell(&error, None),
    }
}

/// What may have been meant.
fn which(relay: &Relay, typed: &str) -> String {
    let list = relay.ask(&Ask::Sessions).unwrap_or_default();
    let sessions = list["sessions"].as_array().into_iter().flatten();
    let running = sessions
        .filter(|session| session["running_ms"].is_u64())
        .filter_map(|session| session["session"].as_str());
    match nearest(typed, running) {
        Some(near) => format!("did you mean `{}`?", spelled(near)),
        None if list["sessions"].as_array().is_none_or(Vec::is_empty) => {
            "nothing runs at the moment; `hermes-relay sessions` shows what does".to_owned()
        }
        None => "`hermes-relay sessions` shows what runs".to_owned(),
    }
}
