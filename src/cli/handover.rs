//! `hermes-relay handover`: lets another member of the cluster become active.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Environment;
use super::exit;
use super::format::printable;
use super::remote::RemoteArgs;
use crate::serve::ControlRequest;
use crate::serve::client::ClientError;

/// Interval of looks at the relay.
const INTERVAL: Duration = Duration::from_millis(200);

/// Finish running turns, then let another relay of the cluster become active; this one becomes its standby.
///
/// Running turns have `shutdown.drain_secs` to end, as with SIGTERM; their answers are sent. Messages that wait run at the other relay.
///
/// Exit codes: 0 another relay is active, 69 no relay is running here, 75 it is not the active one, no other one could take over, or it took too long.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay handover\n  hermes-relay handover --wait-secs 60")]
pub(super) struct HandoverArgs {
    #[command(flatten)]
    remote: RemoteArgs,
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
    let to = match relay.call(&ControlRequest::HandOver) {
        Ok(response) => response["to"].as_str().unwrap_or_default().to_owned(),
        Err(ClientError::Refused(refused)) => {
            let hint = "`hermes-relay status` shows the members; docs/scaling.md explains them";
            return relay.fail(exit::TRY_AGAIN, printable(&refused.message), Some(hint));
        }
        Err(error) => return relay.report(&error, None),
    };
    let until = Instant::now() + Duration::from_secs(args.wait_secs);
    while Instant::now() < until {
        #[expect(clippy::disallowed_methods, reason = "the interval of looks at the relay")]
        std::thread::sleep(INTERVAL);
        // It does not answer while it starts over.
        let Ok(status) = relay.call(&ControlRequest::Status) else {
            continue;
        };
        let mut members = status["cluster"]["members"].as_array().into_iter().flatten();
        let active = members.find(|member| member["role"] == "active");
        if let (true, Some(active)) = (status["role"] == "standby", active) {
            let name = active["name"].as_str().unwrap_or_default();
            return args.remote.print(
                &json!({"active": name}),
                format!("{} is active now", printable(name)),
            );
        }
    }
    let what = format!("{} is not active yet after {} s", printable(&to), args.wait_secs);
    relay.fail(
        exit::TRY_AGAIN,
        what,
        Some("running turns may still end; look at `hermes-relay status`"),
    )
}
