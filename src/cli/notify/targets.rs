//! `hermes-relay notify --list` and `--test NAME`: the targets of the settings, and whether one works.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::ProcessEnv;
use crate::cli::exit::{self, errln, outln};
use crate::cli::remote::RemoteArgs;
use crate::config::file::nearest;
use crate::serve::targets::Targets;

/// Timeout of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// List or check the targets of `notify`: use `hermes-relay notify --list` and `hermes-relay notify --test NAME`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ConnectorsArgs {
    #[command(subcommand)]
    verb: ConnectorsVerb,
}

#[derive(Subcommand, Debug)]
enum ConnectorsVerb {
    /// Use `hermes-relay notify --list`.
    List {
        #[command(flatten)]
        remote: RemoteArgs,
    },
    /// Use `hermes-relay notify --test NAME`.
    Test {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Name of the target.
        name: String,
    },
}

/// Runs the former verb `connectors`.
pub(in crate::cli) fn run_former(args: &ConnectorsArgs, process: &ProcessEnv<'_>) -> ExitCode {
    match &args.verb {
        ConnectorsVerb::List { remote } => {
            errln!("note: `connectors list` is now `hermes-relay notify --list`");
            list(remote, process)
        }
        ConnectorsVerb::Test { remote, name } => {
            errln!("note: `connectors test` is now `hermes-relay notify --test {name}`");
            test(remote, name, process)
        }
    }
}

pub(super) fn list(remote: &RemoteArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let relay = match remote.relay(process.env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let configured = &relay.settings().notify.targets;
    let targets = Targets::new(relay.settings(), process.env, &process.base);
    if remote.json {
        let rows = configured.iter().map(|(name, target)| {
            let capabilities = target.kind().capabilities();
            json!({"name": name, "kind": capabilities.implementation, "agents": targets.agents(target),
                "capabilities": capabilities})
        });
        return exit::print(Value::Array(rows.collect()));
    }
    if configured.is_empty() {
        return exit::print("none; add `notify.targets` to the settings (docs/notify.md)");
    }
    for (name, target) in configured {
        let capabilities = target.kind().capabilities();
        let wakes = if capabilities.features.wake {
            "deliver, wake"
        } else {
            "deliver"
        };
        let (kind, agents) = (capabilities.implementation, targets.agents(target).join(", "));
        outln!("{name:<16} {kind:<8} {wakes:<14} {agents}");
    }
    ExitCode::SUCCESS
}

pub(super) fn test(remote: &RemoteArgs, name: &str, process: &ProcessEnv<'_>) -> ExitCode {
    let relay = match remote.relay(process.env) {
        Ok(relay) => relay,
        Err(code) => return code,
    };
    let configured = &relay.settings().notify.targets;
    let Some(target) = configured.get(name) else {
        let hint = match nearest(name, configured.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`hermes-relay notify --list` lists all".to_owned(),
        };
        let what = format!("there is no `{name}` under `notify.targets`");
        return relay.fail(exit::CONFIGURATION, what, Some(&hint));
    };
    let connector = match Targets::new(relay.settings(), process.env, &process.base).connect(target) {
        Ok(connector) => connector,
        Err(error) => return relay.fail(exit::FAILED, format!("{name}: {error}"), None),
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return relay.fail(exit::INTERNAL, "cannot start the runtime", None);
    };
    let kind = target.kind();
    let check = async { tokio::time::timeout(CHECK_TIMEOUT, connector.health_check()).await };
    if runtime.block_on(check).unwrap_or(false) {
        let kind_name = kind.capabilities().implementation;
        let what = json!({"name": name, "kind": kind_name, "healthy": true});
        return remote.print(&what, format!("{name}: {}", kind.health()));
    }
    let fault = kind.fault();
    let remedy = Some(fault.remedy.as_str()).filter(|remedy| !remedy.is_empty());
    relay.fail(exit::FAILED, format!("{name}: {}", fault.what), remedy)
}
