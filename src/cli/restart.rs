//! `hermes-relay restart`: restarts the service of a running relay.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::Environment;
use super::exit;
use super::remote::RemoteArgs;
use super::service::{self, ServiceUnit};
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;

/// Restart the running relay through the service manager. Running turns finish first.
///
/// A changed settings file mostly needs only `hermes-relay reload`, which says what it needs a restart for.
///
/// Exit codes: 0 restarted, 1 the relay does not run as a service or could not be restarted, 69 no relay is running here,
/// 78 invalid configuration.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay restart\n  sudo hermes-relay restart      # a system service"
)]
pub(super) struct RestartArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the verb.
pub(super) fn run(args: &RestartArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.relay(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let status = match relay.call(&ControlRequest::Status) {
        Ok(status) => status,
        Err(error @ ClientError::NotRunning(_)) => {
            let Some(unit) = ServiceUnit::installed(env) else {
                return relay.report(&error, None);
            };
            let hint = format!(
                "start its service with `{} start {}`",
                unit.systemctl(),
                unit.name
            );
            return relay.fail(exit::UNAVAILABLE, error, Some(&hint));
        }
        Err(error) => return relay.report(&error, None),
    };
    let pid = status["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let Some(unit) = pid.and_then(ServiceUnit::of_process) else {
        let what = format!(
            "the relay (process {}) does not run as a service, so nothing would start it again",
            pid.unwrap_or_default()
        );
        let hint = "stop it with `hermes-relay stop` and start it as before (`hermes-relay run`), restart its container, or \
                    install the service with `hermes-relay service install --user --now`";
        return relay.fail(exit::FAILED, what, Some(hint));
    };
    match service::systemctl_run(unit.user, &["restart", &unit.name]) {
        Ok(()) => args.remote.print(
            &json!({"restarted": unit.name}),
            format!("{} is restarted", unit.name),
        ),
        Err(failure) => {
            let hint = format!("run `sudo {} restart {}`", unit.systemctl(), unit.name);
            relay.fail(
                exit::FAILED,
                failure,
                Some(&hint).filter(|_| !unit.user).map(String::as_str),
            )
        }
    }
}
