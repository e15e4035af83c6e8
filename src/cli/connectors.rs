//! `hermes-relay connectors`: lists the ways to hand something to an agent, and checks one.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::exit::{self, outln};
use super::remote::RemoteArgs;
use super::{ProcessEnv, substrates};
use crate::config::Substrate;
use crate::config::file::nearest;
use crate::relay::unhealthy;

/// Timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// List the ways to hand something to an agent (`connectors` in the settings), or check one.
///
/// They are used by `hermes-relay notify`. The chat connector that the relay dials is another thing: `hermes-relay doctor` checks that.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  hermes-relay connectors list\n  hermes-relay connectors test hooks")]
pub(super) struct ConnectorsArgs {
    #[command(subcommand)]
    verb: ConnectorsVerb,
}

#[derive(Subcommand, Debug)]
enum ConnectorsVerb {
    /// List the entries of `connectors` with their kind and their agents.
    ///
    /// Exit codes: 0 listed, 78 invalid configuration.
    #[command(after_help = "Examples:\n  hermes-relay connectors list\n  \
                      hermes-relay connectors list --json | jq '.[] | {name, agents}'")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Check whether one of them works: its addresses, its directory, its panes or its programs. Delivers nothing.
    ///
    /// Exit codes: 0 it works, 1 it does not, 78 there is no such entry, or invalid configuration.
    #[command(after_help = "Example:\n  hermes-relay connectors test hooks")]
    Test {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Name of the entry.
        name: String,
    },
}

/// Runs the verb.
pub(super) fn run(args: &ConnectorsArgs, process: &ProcessEnv<'_>) -> ExitCode {
    match &args.verb {
        ConnectorsVerb::List { remote } => list(remote, process),
        ConnectorsVerb::Test { remote, name } => test(remote, name, process),
    }
}

fn list(remote: &RemoteArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let relay = match remote.relay(process.env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let settings = relay.settings();
    let rows: Vec<Value> = (settings.connectors.iter())
        .map(|(name, entry)| {
            let substrate = &entry.substrate;
            json!({"name": name, "kind": substrate.kind(), "agents": substrates::agents(substrate, settings),
                "capabilities": substrates::capabilities(substrate)})
        })
        .collect();
    if remote.json {
        return exit::print(Value::Array(rows));
    }
    if rows.is_empty() {
        return exit::print("none; add `connectors` to the settings (docs/connectors.md)");
    }
    for (name, entry) in &settings.connectors {
        let substrate = &entry.substrate;
        let agents = substrates::agents(substrate, settings).join(", ");
        let wakes = if substrates::capabilities(substrate).features.wake {
            "deliver, wake"
        } else {
            "deliver"
        };
        outln!("{name:<16} {:<8} {wakes:<14} {agents}", substrate.kind());
    }
    ExitCode::SUCCESS
}

fn test(remote: &RemoteArgs, name: &str, process: &ProcessEnv<'_>) -> ExitCode {
    let relay = match remote.relay(process.env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let settings = relay.settings();
    let Some(entry) = settings.connectors.get(name) else {
        let near = nearest(name, settings.connectors.keys().map(String::as_str));
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`hermes-relay connectors list` lists all".to_owned(),
        };
        let what = format!("there is no `{name}` under `connectors`");
        return relay.fail(exit::CONFIGURATION, what, Some(&hint));
    };
    let connector = match substrates::build(&entry.substrate, settings, process) {
        Ok(connector) => connector,
        Err(reason) => return relay.fail(exit::FAILED, format!("{name}: {reason}"), None),
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return relay.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let kind = entry.substrate.kind();
    let check = async { tokio::time::timeout(CHECK_TIMEOUT, connector.health_check()).await };
    if runtime.block_on(check).unwrap_or(false) {
        let what = json!({"name": name, "kind": kind, "healthy": true});
        let text = match &entry.substrate {
            Substrate::Webhook(webhook)
                if webhook.agents.values().all(|agent| agent.status_url.is_none()) =>
            {
                "nothing to check: no agent has a `status_url`"
            }
            _ => "it works",
        };
        return remote.print(&what, format!("{name}: {text}"));
    }
    let what = unhealthy(&entry.substrate);
    relay.fail(exit::FAILED, format!("{name}: {what}"), None)
}
