//! `hermes-relay wake`: makes a running relay dial now.

use std::process::ExitCode;

use clap::Args;

use super::Environment;
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;

/// Make a running relay dial its connector now, unless it is connected.
///
/// Exit codes: 0 done, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay wake\n  hermes-relay wake --json")]
pub(super) struct WakeArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Runs the verb.
pub(super) fn run(args: &WakeArgs, env: Environment<'_>) -> ExitCode {
    match args.remote.call(env, &ControlRequest::Wake) {
        Ok(response) => args.remote.print(&response, "dialling unless connected"),
        Err(code) => code,
    }
}
