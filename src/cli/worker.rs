//! `hermes-relay worker`: takes turns of a pool and runs them here.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::exit;
use super::log::FatalErrors;
use super::log::{self, LogHandle, Repeats};
use super::run::build_agents;
use super::run::signals::{SignalRequest, Signals};
use super::sd_notify::{Notification, ServiceManager};
use super::{ProcessEnv, SharedArgs, enroll};
use crate::agent::{Worker, WorkerSettings, built_in};
use crate::config::{self, LoadedConfig, Sources, WorkerConfig};
use crate::net::nats::Bus;
use crate::relay::{AgentSlot, nats_settings, provisioning};

/// Take turns of a pool from a NATS server, and run them with an agent of this machine.
///
/// A relay with an agent of `kind: worker` gives its turns to the workers of that pool. The settings file names the server
/// (`nats:`), the pool, the agent and the number of turns at once (`worker:`), and the agent (`agents:`); docs/scaling.md has
/// examples.
///
/// SIGTERM or Ctrl-C takes no more turns, lets the running ones end (`shutdown.drain_secs`) and exits; a second one exits
/// immediately. Without its server a worker keeps trying to reach it.
///
/// Exit codes: 0 stopped, 1 stopped twice, 70 an internal error, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hermes-relay worker --config worker.yaml")]
pub(super) struct WorkerArgs {
    #[command(flatten)]
    shared: SharedArgs,
}

/// The hint without a `worker` section.
const NO_WORKER: &str =
    "add for example `worker: {pool: code, agent: claude, slots: 4}`; docs/scaling.md has a whole file";

/// Runs the verb.
pub(super) fn run(args: &WorkerArgs, process: &ProcessEnv<'_>) -> ExitCode {
    let loaded = match config::load(&Sources {
        flags: args.shared.flags(),
        env: process.env,
    }) {
        Ok(loaded) => loaded,
        Err(error) => return FatalErrors::without_settings(process).fail(exit::CONFIGURATION, error, None),
    };
    let log = log::start(&loaded, process, Repeats::RateLimited);
    let fatal = log.fatal_errors(process.env);
    let Some(worker) = loaded.settings.worker.clone() else {
        return fatal.fail(
            exit::CONFIGURATION,
            "the settings have no `worker` section",
            Some(NO_WORKER),
        );
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(&loaded, worker, process, &log)),
        Err(error) => fatal.fail(exit::INTERNAL, format!("cannot start the runtime: {error}"), None),
    }
}

async fn serve(
    loaded: &LoadedConfig,
    config: WorkerConfig,
    process: &ProcessEnv<'_>,
    log: &LogHandle,
) -> ExitCode {
    let fatal = log.fatal_errors(process.env);
    let mut settings = loaded.settings.clone();
    // Only this agent is used here; the check of its program is the same as that of a relay.
    settings.agent.clone_from(&config.agent);
    settings.agents.retain(|name, _| *name == config.agent);
    settings.routes.clear();
    let process = &process.with_config(loaded.own_file.as_deref());
    let slot = match build_agents(&settings, process).await {
        Ok((agents, _)) => agents.into_iter().next().map(|(_, slot)| slot),
        Err(error) => return fatal.fail(exit::CONFIGURATION, error.message, error.hint),
    };
    let slot = match slot.map_or_else(|| built_in(&config.agent).map(AgentSlot::new), Ok) {
        Ok(slot) => slot,
        Err(error) => return fatal.fail(exit::CONFIGURATION, error, None),
    };
    let tls = provisioning::tls(&settings);
    let bus = match Bus::connect(&nats_settings(&settings), &tls, "hermes-relay worker").await {
        Ok(bus) => bus,
        Err(error) => return fatal.fail(exit::CONFIGURATION, error, None),
    };
    let (_stops, stop_verbs) = tokio::sync::mpsc::channel(1);
    let Ok(mut signals) = Signals::listen(stop_verbs) else {
        return fatal.fail(exit::INTERNAL, "cannot listen for signals", None);
    };
    let name = config
        .name
        .or_else(enroll::hostname)
        .unwrap_or_else(|| "worker".to_owned());
    tracing::info!(
        pool = config.pool,
        agent = config.agent,
        slots = config.slots,
        name,
        "worker starts"
    );
    let worker = Worker::new(
        WorkerSettings {
            pool: config.pool,
            name,
            slots: config.slots,
            prefix: settings.nats.prefix.clone(),
            workdir: slot.workdir,
            drain: Duration::from_secs(settings.shutdown.drain_secs),
            grace: Duration::from_secs(settings.sessions.grace_secs),
        },
        slot.agent,
        bus,
    );
    let manager = ServiceManager::from_env(process.env, std::process::id());
    manager.notify(&Notification::Ready).await;
    let stop = CancellationToken::new();
    let mut running = std::pin::pin!(worker.clone().run(stop.clone()));
    let mut watchdog = std::pin::pin!(manager.watchdog(|| std::future::ready(true)));
    loop {
        tokio::select! {
            biased;
            ended = &mut running => return match ended {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fatal.fail(exit::INTERNAL, error, None),
            },
            never = &mut watchdog => match never {},
            request = signals.next() => match request {
                SignalRequest::Reload | SignalRequest::Dump => {
                    tracing::info!(turns = worker.running(), "a worker reads its settings when it starts; restart it to change them");
                }
                _ if stop.is_cancelled() => {
                    tracing::warn!("second stop signal; exiting immediately");
                    return ExitCode::from(exit::FAILED);
                }
                _ => {
                    tracing::info!(turns = worker.running(), "stopping: no more turns are taken");
                    stop.cancel();
                    manager.notify(&Notification::Stopping).await;
                }
            },
        }
    }
}
