//! `hermes-relay reload`: makes a running relay reload its settings.

use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::Environment;
use super::exit;
use super::format::printable;
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;

/// Make a running relay reload its settings, as SIGHUP does, and report which changes need a restart.
///
/// Log level, credentials and relevance policy take effect immediately.
///
/// Exit codes: 0 reloaded, 69 no relay is running here, 78 the settings are invalid, or a certificate that they name is (the relay keeps
/// the old ones).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay reload\n  hermes-relay reload --json | jq .needs_restart")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the verb.
pub(super) fn run(args: &ReloadArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.relay(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let response = match relay.call(&ControlRequest::Reload) {
        Ok(response) => response,
        Err(ClientError::Refused(refused)) if refused.code == "settings" => {
            let hint = "the relay keeps the old settings";
            return relay.fail(exit::CONFIGURATION, printable(&refused.message), Some(hint));
        }
        Err(error) => return relay.report(&error, None),
    };
    let keys = response["needs_restart"].as_array().into_iter().flatten();
    let keys: Vec<_> = keys.filter_map(Value::as_str).map(printable).collect();
    let text = if keys.is_empty() {
        "settings reloaded".to_owned()
    } else {
        format!(
            "settings reloaded; these changes need a restart: {}",
            keys.join(", ")
        )
    };
    args.remote.print(&response, text)
}
