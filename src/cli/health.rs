//! `hermes-relay health`: whether a running relay is connected, for supervisors.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::Environment;
use super::asking::RelayArgs;
use super::exit;
use super::words::spelled;
use crate::serve::request::Ask;

/// Tell whether a relay runs here and is connected; for a container's HEALTHCHECK.
///
/// Prints one line.
///
/// Exit codes: 0 connected, or dormant by agreement with the connector; 1 otherwise, whatever the reason.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay health\n  \
                        HEALTHCHECK CMD [\"hermes-relay\", \"health\", \"--state-dir\", \"/data\"]")]
pub(super) struct HealthArgs {
    #[command(flatten)]
    relay: RelayArgs,
}

/// Runs the verb.
pub(super) fn run(args: &HealthArgs, env: Environment<'_>) -> ExitCode {
    let asked = match args.relay.find(env) {
        Ok(relay) => relay.ask(&Ask::Health).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let answer = match asked {
        Ok(answer) => answer,
        Err(why) => serde_json::json!({"ready": false, "link": null, "why": why}),
    };
    let ready = answer["ready"] == true;
    let word = |key: &str| answer[key].as_str().map(spelled).unwrap_or_default();
    let mut out = anstream::stdout().lock();
    // The exit code tells; a reader that has gone wants no more.
    let _ = if args.relay.json {
        writeln!(out, "{answer}")
    } else if ready {
        writeln!(out, "{}", word("link"))
    } else {
        writeln!(out, "not ready: {}", word("why"))
    }
    .and_then(|()| out.flush());
    if ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    }
}
