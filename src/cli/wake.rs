//! `hermes-relay wake`: have a running relay dial at once.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::Environment;
use super::asking::RelayArgs;
use super::exit::printed;
use crate::serve::request::Ask;

/// Have a running relay dial its connector now, if it is not connected.
///
/// Exit codes: 0 told, 69 no relay is running here, 78 the configuration cannot be used.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay wake\n  hermes-relay wake --json")]
pub(super) struct WakeArgs {
    #[command(flatten)]
    relay: RelayArgs,
}

/// Runs the verb.
pub(super) fn run(args: &WakeArgs, env: Environment<'_>) -> ExitCode {
    let told = match args.relay.ask(env, &Ask::Wake) {
        Ok(told) => told,
        Err(code) => return code,
    };
    let mut out = anstream::stdout().lock();
    let written = if args.relay.json {
        writeln!(out, "{told}")
    } else {
        writeln!(out, "dialling, unless it is connected")
    };
    printed(written.and_then(|()| out.flush()))
}
