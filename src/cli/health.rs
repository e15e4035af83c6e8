//! `hermes-relay health`: whether a running relay is connected, for supervisors.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::exit;
use super::format::printable;
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;

/// Check whether a relay runs here and is connected; for a container's HEALTHCHECK.
///
/// Prints one line.
///
/// Exit codes: 0 connected, or dormant by agreement with the connector; 1 otherwise.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay health\n  \
                        HEALTHCHECK CMD [\"hermes-relay\", \"health\", \"--state-dir\", \"/data\"]")]
pub(super) struct HealthArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the verb.
pub(super) fn run(args: &HealthArgs, env: Environment<'_>) -> ExitCode {
    let response = match args.remote.load_running(env) {
        Ok(relay) => relay
            .call(&ControlRequest::Health)
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let health = response.unwrap_or_else(|why| json!({"ready": false, "link": null, "why": why}));
    let is_ready = health["ready"] == true;
    let text = |key: &str| health[key].as_str().map(printable).unwrap_or_default();
    let line = if is_ready {
        text("link")
    } else {
        format!("not ready: {}", text("why"))
    };
    // The exit code reports the health, whether the line could be printed or not.
    args.remote.print(&health, line);
    ExitCode::from(if is_ready { 0 } else { exit::FAILED })
}
