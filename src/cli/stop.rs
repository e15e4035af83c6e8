//! `hermes-relay stop`: ends the running relay.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Environment;
use super::exit::{self, errln};
use super::remote::{RemoteArgs, RemoteRelay};
use super::sessions;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;
use crate::store;

/// How often to look whether the relay is gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the relay may take beyond the time for its turns.
const MARGIN: Duration = Duration::from_secs(20);

/// Stop the running relay: it finishes running turns, as with SIGTERM, and this waits until it is gone.
///
/// `hermes-relay sessions stop SESSION` stops one turn only.
///
/// Exit codes: 0 stopped, 1 it has not ended in time, 69 no relay is running here, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay stop\n  \
                  hermes-relay sessions stop agent:main:discord:dm:1234    # one turn only")]
pub(super) struct StopArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The former way to stop the turn of a session.
    #[arg(value_name = "SESSION", hide = true)]
    session: Option<String>,
}

/// Runs the verb.
pub(super) fn run(args: &StopArgs, env: Environment<'_>) -> ExitCode {
    if let Some(session) = &args.session {
        errln!("note: `hermes-relay stop SESSION` is now `hermes-relay sessions stop SESSION`");
        return sessions::stop(&args.remote, session, env);
    }
    let relay = match args.remote.running(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let answer = match relay.call(&ControlRequest::Shutdown) {
        Ok(answer) => answer,
        Err(error @ ClientError::Refused(_)) => {
            return relay.report(&error, Some("end the program that runs it"));
        }
        Err(error) => return relay.report(&error, None),
    };
    let pid = answer["pid"].as_u64().unwrap_or(0);
    let drain = Duration::from_secs(relay.settings().shutdown.drain_secs);
    if let Some(running) = answer["turns_running"].as_u64().filter(|running| *running > 0) {
        let turns = if running == 1 { "turn" } else { "turns" };
        errln!(
            "waiting up to {} s for {running} running {turns}",
            drain.as_secs()
        );
    }
    let within = drain + MARGIN;
    if !is_gone_within(&relay, within) {
        let what = format!(
            "the relay (process {pid}) has not ended within {} s",
            within.as_secs()
        );
        let hint = format!("its log says why; `kill {pid}` ends it at once");
        return relay.fail(exit::FAILED, what, Some(&hint));
    }
    args.remote.print(
        &json!({"stopped": true, "pid": pid}),
        format!("stopped the relay (process {pid})"),
    )
}

/// Waits until nobody holds the state directory and nobody listens on the socket.
#[expect(clippy::disallowed_methods, reason = "another process; the time is bounded")]
fn is_gone_within(relay: &RemoteRelay, within: Duration) -> bool {
    let until = Instant::now() + within;
    loop {
        let is_free = matches!(store::held_by(&relay.settings().state_dir), Ok(None));
        if is_free
            && matches!(
                relay.call(&ControlRequest::Health),
                Err(ClientError::NotRunning(_))
            )
        {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        sleep(LOOK_EVERY);
    }
}
