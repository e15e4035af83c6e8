//! `hermes-relay handover`: lets another member of the cluster become active.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::Environment;
use super::caller::Refusal;
use super::exit::{self, errln};
use super::format::printable;
use super::remote::{RemoteArgs, RemoteRelay};
use crate::serve::client::ClientError;
use crate::serve::{ControlError, ControlRequest};

/// Interval of looks at the relay.
const INTERVAL: Duration = Duration::from_millis(200);
/// Maximum length of the confirmation.
const MAX_ANSWER_BYTES: u64 = 64;

/// Finish running turns, then let another relay of the cluster become active; this one becomes its standby.
///
/// Running turns have `shutdown.drain_secs` to end, as with SIGTERM; their answers are sent. Messages that wait run at the other relay.
///
/// With `cluster.without_server: continue`, a standby does not take over from an active relay that is silent, because that one may be
/// going on alone. When you know that it is gone, run `handover --take` at the standby.
///
/// Exit codes: 0 another relay is active (with `--take`: this one), 69 no relay is running here, 75 it is not the active one (with
/// `--take`: not a standby), no other one could take over, or it took too long, 78 this relay is not a member of a cluster.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay handover\n  hermes-relay handover --wait-secs 60\n  hermes-relay handover --take"
)]
pub(super) struct HandoverArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// At a standby: take over from an active relay that is silent and may be going on alone.
    #[arg(long)]
    take: bool,
    /// With --take: do not ask for confirmation.
    #[arg(long, requires = "take")]
    yes: bool,
    /// How long to wait until another relay is active.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    wait_secs: u64,
}

/// Runs the verb.
pub(super) fn run(args: &HandoverArgs, env: Environment<'_>) -> ExitCode {
    let relay = match args.remote.relay(env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    if args.take {
        return take(args, &relay);
    }
    let to = match relay.call(&ControlRequest::HandOver) {
        Ok(response) => response["to"].as_str().unwrap_or_default().to_owned(),
        Err(ClientError::Refused(refused)) if Refusal::of(&refused).is_none() => {
            let hint = "`hermes-relay status` shows the members; docs/scaling.md explains them";
            return fail_refused(&relay, &refused, hint);
        }
        Err(error) => return relay.report(&error, None),
    };
    let active = wait(&relay, args.wait_secs, |status| {
        let mut members = status["cluster"]["members"].as_array().into_iter().flatten();
        let active = members.find(|member| member["role"] == "active");
        let active = active.filter(|_| status["role"] == "standby")?;
        Some(active["name"].as_str().unwrap_or_default().to_owned())
    });
    if let Some(name) = active {
        let text = format!("{} is active now", printable(&name));
        return args.remote.print(&json!({"active": name}), text);
    }
    let what = format!("{} is not active yet after {} s", printable(&to), args.wait_secs);
    relay.fail(
        exit::TRY_AGAIN,
        what,
        Some("running turns may still end; look at `hermes-relay status`"),
    )
}

/// What makes a relay a member of a cluster.
const NO_CLUSTER: &str = "set `cluster.name` and `nats.url` in the settings of this relay and of another one, and restart them; \
                          docs/scaling.md explains it";

/// What a person has to know before.
const DANGER: &str = "Take over only if the active relay is stopped or gone. If it still runs without the NATS server, two relays answer \
                      the same people until it reaches the server again; then it stops, and what it did since it lost the server \
                      is not in the journal of this one (it keeps it as `journal.stale-*`).";

/// Takes over at a standby.
fn take(args: &HandoverArgs, relay: &RemoteRelay) -> ExitCode {
    let refused = "pass --yes to take over without confirmation";
    // Whoever is asked shall not learn afterwards that there is nothing here to take over with.
    let is_member = match relay.call(&ControlRequest::Status) {
        Ok(status) => !status["cluster"].is_null(),
        Err(error) => return relay.report(&error, None),
    };
    if is_member && !args.yes {
        errln!("{DANGER}");
        match confirm() {
            Ok(true) => {}
            Ok(false) => return relay.fail(exit::TRY_AGAIN, "nothing was changed", None),
            Err(error) => {
                let what = format!("cannot ask for confirmation ({error}); nothing was changed");
                return relay.fail(exit::USAGE, what, Some(refused));
            }
        }
    }
    match relay.call(&ControlRequest::TakeOver) {
        Err(ClientError::Refused(refused)) if Refusal::of(&refused).is_none() => {
            let hint = "`hermes-relay status` shows the members; if the active relay is there, run `hermes-relay handover` at it";
            return fail_refused(relay, &refused, hint);
        }
        Err(error @ ClientError::Refused(_)) => return relay.report(&error, None),
        // A standby that becomes active may close the connection before it has answered.
        Ok(_) | Err(_) => {}
    }
    let is_active = |status: &Value| status["role"] == "active";
    match wait(relay, args.wait_secs, |status| is_active(status).then_some(())) {
        Some(()) => args
            .remote
            .print(&json!({"active": true}), "this relay is active now"),
        None => relay.fail(
            exit::TRY_AGAIN,
            format!("this relay is not active after {} s", args.wait_secs),
            Some("look at `hermes-relay status` and its log"),
        ),
    }
}

/// Reports why the relay refused; outside a cluster it always does. `hint` is for a member of one.
fn fail_refused(relay: &RemoteRelay, refused: &ControlError, hint: &str) -> ExitCode {
    let (code, hint) = match refused.code.as_str() {
        "no_cluster" => (exit::CONFIGURATION, NO_CLUSTER),
        _ => (exit::TRY_AGAIN, hint),
    };
    relay.fail(code, printable(&refused.message), Some(hint))
}

/// Looks at the relay until it is as it should be; it does not answer while it starts over.
fn wait<T>(relay: &RemoteRelay, secs: u64, found: impl Fn(&Value) -> Option<T>) -> Option<T> {
    let until = Instant::now() + Duration::from_secs(secs);
    while Instant::now() < until {
        #[expect(clippy::disallowed_methods, reason = "the interval of looks at the relay")]
        std::thread::sleep(INTERVAL);
        let status = relay.call(&ControlRequest::Status);
        if let Some(found) = status.ok().as_ref().and_then(&found) {
            return Some(found);
        }
    }
    None
}

/// Asks for confirmation; an error without a terminal.
fn confirm() -> io::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(io::Error::other("standard input is not a terminal"));
    }
    let mut err = anstream::stderr();
    write!(err, "Take over? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    stdin.lock().take(MAX_ANSWER_BYTES).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
