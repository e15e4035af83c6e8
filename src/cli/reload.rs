//! `hermes-relay reload`: have a running relay read its settings again.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Environment;
use super::asking::RelayArgs;
use super::exit::{self, printed};
use super::words::spelled;
use crate::serve::client::AskError;
use crate::serve::request::Ask;

/// Have a running relay read its settings again, as SIGHUP does, and tell what needs a restart.
///
/// Log level, credentials and relevance policy take effect at once.
///
/// Exit codes: 0 read again, 69 no relay is running here, 78 the settings cannot be used (the relay goes on with the
/// old ones).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay reload\n  hermes-relay reload --json | jq .needs_restart")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    relay: RelayArgs,
}

/// Runs the verb.
pub(super) fn run(args: &ReloadArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.relay.found(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let told = match relay.ask(&Ask::Reload) {
        Ok(told) => told,
        Err(AskError::Refused(refusal)) if refusal.code == "settings" => {
            let hint = "the relay goes on with the old settings";
            return relay.fail(exit::CONFIGURATION, spelled(&refusal.message), Some(hint));
        }
        Err(error) => return relay.tell(&error, None),
    };
    let mut out = anstream::stdout().lock();
    let keys = told["needs_restart"].as_array().into_iter().flatten();
    let keys: Vec<_> = keys.filter_map(Value::as_str).map(spelled).collect();
    let written = if args.relay.json {
        writeln!(out, "{told}")
    } else if keys.is_empty() {
        writeln!(out, "settings read again")
    } else {
        writeln!(
            out,
            "settings read again; these need a restart: {}",
            keys.join(", ")
        )
    };
    printed(written.and_then(|()| out.flush()))
}
