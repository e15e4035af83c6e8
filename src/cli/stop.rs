//! `hermes-relay stop`: ends the running relay.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::exit::{self, errln};
use super::remote::{RemoteArgs, RemoteRelay};
use super::sessions;
use crate::config::ShutdownConfig;
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
    let budget = budget(&answer, &relay.settings().shutdown);
    if let Some(waited_for) = waited_for(&answer) {
        errln!("waiting up to {} s for {waited_for}", budget.as_secs());
    }
    let within = budget + MARGIN;
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

/// How long the end may take: as the relay says, which may have other settings than are read here.
fn budget(answer: &Value, settings: &ShutdownConfig) -> Duration {
    let known = answer["budget_secs"].as_u64();
    Duration::from_secs(known.unwrap_or(settings.budget_secs.max(settings.drain_secs)))
}

/// What is to be finished before the end.
fn waited_for(answer: &Value) -> Option<String> {
    let count = |key: &str, one: &str, many: &str| {
        let number = answer[key].as_u64().filter(|number| *number > 0)?;
        Some(format!("{number} {}", if number == 1 { one } else { many }))
    };
    let turns = count("turns_running", "running turn", "running turns");
    let unsent = count("ops_unsent", "message to be sent", "messages to be sent");
    let all: Vec<String> = turns.into_iter().chain(unsent).collect();
    (!all.is_empty()).then(|| all.join(" and "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_says_how_long_its_end_may_take_and_what_for() {
        let settings = ShutdownConfig {
            budget_secs: 120,
            ..ShutdownConfig::default()
        };
        let secs = |answer: &Value| budget(answer, &settings).as_secs();
        assert_eq!(secs(&json!({"budget_secs": 40})), 40);
        assert_eq!(
            secs(&json!({"budget_secs": null})),
            120,
            "an older relay, or a standby"
        );
        assert_eq!(waited_for(&json!({"turns_running": 0, "ops_unsent": 0})), None);
        assert_eq!(waited_for(&json!({"turns_running": null})), None);
        let both = json!({"turns_running": 1, "ops_unsent": 3});
        let text = waited_for(&both).unwrap();
        assert_eq!(text, "1 running turn and 3 messages to be sent");
    }
}
