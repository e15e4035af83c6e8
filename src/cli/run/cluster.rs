//! `run` as one of several relays for the same gateway: a standby until it is active, and over again when it may not be any more.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::reload::{Reloaded, reload_for};
use super::signals::{SignalRequest, Signals};
use super::{LOCK_WAIT, MAX_RELOADS, build_failure, requested_exit, serve_failure};
use crate::agent::child::{end_groups, end_leftovers, has_notes};
use crate::cli::exit;
use crate::cli::format::printable;
use crate::cli::log::{FatalErrors, LogHandle};
use crate::cli::sd_notify::{Notification, ServiceManager};
use crate::cli::{ProcessEnv, enroll};
use crate::cluster::WithoutServer;
use crate::config::{ConfigError, LoadedConfig, ServeConfig, ServerAbsence, Settings};
use crate::net::send_lease::SendLease;
use crate::relay::cluster::{
    ANOTHER_HISTORY, ClusterMember, ClusterStatus, MemberSettings, has_copy, remove_copy,
};
use crate::relay::{RelayBuilder, journal_settings, nats_settings, now_ms, provisioning};
use crate::serve::{ClusterReport, ControlService, Reload, Serving, TakeOverReply};
use crate::store::{Holder, JournalSettings, held_by, make_private, while_held};

/// How long this process waits for another member before it asks for the lease again itself.
const REPLACED_WITHIN: Duration = Duration::from_secs(5);
/// How long the processes of agents may take to be gone once they are killed.
const AGENTS_END_WITHIN: Duration = Duration::from_secs(2);
/// Interval of looks at the lock of the state directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
/// The hint for a journal that another history wrote.
const NOT_OURS: &str = "start the cluster with the relay whose journal is to be kept, and give every other member an empty state \
                        directory (docs/scaling.md)";

/// This process as a member of a cluster.
pub(super) struct Membership(ClusterMember);

impl Membership {
    /// Joins the cluster of the settings; none if they name none.
    pub(super) fn start(settings: &Settings) -> std::io::Result<Option<Self>> {
        let Some(cluster) = &settings.cluster else {
            return Ok(None);
        };
        end_own_leftovers(settings);
        let host = || enroll::hostname().unwrap_or_else(|| "relay".to_owned());
        let member = MemberSettings {
            nats: nats_settings(settings),
            tls: provisioning::tls(settings),
            prefix: settings.nats.prefix.clone(),
            cluster: cluster.name.clone(),
            name: cluster.member.clone().unwrap_or_else(host),
            replicas: cluster.replicas,
            snapshot_every: cluster.snapshot_every,
            without_server: match cluster.without_server {
                ServerAbsence::Stop => WithoutServer::Stop,
                ServerAbsence::Continue => WithoutServer::Continue,
            },
            state_dir: settings.state_dir.clone(),
            journal: JournalSettings {
                lock_wait: LOCK_WAIT,
                ..journal_settings(settings)
            },
        };
        let member = ClusterMember::start(member, Box::new(|| match start_over() {}))?;
        Ok(Some(Self(member)))
    }

    /// The relay's commits go to the cluster's stream.
    pub(super) fn apply(&self, builder: RelayBuilder) -> RelayBuilder {
        builder.cluster(self.0.stream(), self.0.lease())
    }

    /// Nothing leaves this process once it has ended.
    pub(super) fn lease(&self) -> SendLease {
        self.0.lease()
    }

    /// For `status`.
    pub(super) fn report(&self) -> ClusterReport {
        let status = self.0.status();
        ClusterReport::new(move || {
            let status: &ClusterStatus = &status.borrow();
            serde_json::to_value(status).unwrap_or_default()
        })
    }

    /// The name of a member that can take over, or why there is none.
    pub(super) fn successor(&self) -> Result<String, String> {
        let status = self.0.status();
        let status = status.borrow();
        match status.standby() {
            Some(standby) => Ok(standby.name.clone()),
            None if status.alone.is_some() => {
                let why =
                    "this relay goes on without the NATS server, and the others do not have what it has";
                Err(why.to_owned())
            }
            None => Err("no standby is in sync, so that none can take over".to_owned()),
        }
    }

    /// Waits as a standby until this member is active, and returns the settings that were reloaded meanwhile; or the exit code, if it
    /// ends before.
    pub(super) async fn stand_by(
        &self,
        settings: &Settings,
        process: &ProcessEnv<'_>,
        log: &LogHandle,
        reload: impl Fn() -> Result<Reloaded, ConfigError>,
    ) -> Result<Option<LoadedConfig>, ExitCode> {
        let fatal = log.fatal_errors(process.env);
        let (stops, stop_verbs) = mpsc::channel(1);
        let Ok(mut signals) = Signals::listen(stop_verbs) else {
            return Err(fatal.fail(exit::INTERNAL, "cannot listen for signals", None));
        };
        self.own_state_dir(settings, &fatal).await?;
        let (takes, mut take_requests) = mpsc::channel::<TakeOverReply>(1);
        let (reloads, mut reload_requests) = mpsc::channel::<Reload>(MAX_RELOADS);
        let service = ControlService::standby(&settings.state_dir, self.report(), takes)
            .stops(stops)
            .reloads(reloads);
        let take_over = self.0.take_over();
        let mut taking = std::pin::pin!(async {
            while let Some(reply) = take_requests.recv().await {
                let _ = reply.send(take_over.take().await);
            }
        });
        // Only the control socket: nothing is ready here that a monitor or a caller could use.
        let only_control = ServeConfig {
            http: None,
            receiver: None,
            ..settings.serve.clone()
        };
        let _serving =
            Serving::start(&only_control, service, None).map_err(|error| serve_failure(&error, &fatal))?;
        let manager = ServiceManager::from_env(process.env, std::process::id());
        manager.notify(&Notification::Ready).await;
        tracing::info!("this relay is a member of a cluster; it waits until it is the active one");
        let mut watchdog = std::pin::pin!(manager.watchdog(|| std::future::ready(true)));
        let mut loaded = None;
        loop {
            let asker = tokio::select! {
                biased;
                active = self.0.active() => return match active {
                    Ok(()) => Ok(loaded),
                    Err(why) => {
                        let hint = why.ends_with(ANOTHER_HISTORY).then_some(NOT_OURS);
                        Err(fatal.fail(exit::CONFIGURATION, why, hint))
                    }
                },
                request = signals.next() => match request {
                    SignalRequest::Stop | SignalRequest::StopVerb | SignalRequest::Restart => {
                        manager.notify(&Notification::Stopping).await;
                        return Err(requested_exit(request));
                    }
                    SignalRequest::Reload => None,
                    SignalRequest::Dump => {
                        dump(&self.0.status().borrow());
                        continue;
                    }
                },
                Some(asker) = reload_requests.recv() => Some(asker),
                never = &mut watchdog => match never {},
                // Cancel-safe: who waits is answered before this relay is active, or looks at its status.
                () = &mut taking => return Err(fatal.fail(exit::INTERNAL, "the control service ended", None)),
            };
            reload_for(asker, &manager, &reload, |reloaded| loaded = Some(reloaded)).await;
        }
    }

    /// Nobody else uses the state directory.
    async fn own_state_dir(&self, settings: &Settings, fatal: &FatalErrors) -> Result<(), ExitCode> {
        // A new member has none yet.
        make_private(&settings.state_dir, settings.state_dir_assigned)
            .map_err(|error| build_failure(&error.into(), fatal))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            let holder = held_by(&settings.state_dir).ok().flatten().and_then(Holder::pid);
            let Some(other) = holder.filter(|pid| *pid != std::process::id()) else {
                return Ok(());
            };
            if Instant::now() >= until {
                let what = format!(
                    "state directory {} is in use by process {other}",
                    settings.state_dir.display()
                );
                let hint = "every member of a cluster needs a state directory of its own";
                return Err(fatal.fail(exit::TRY_AGAIN, what, Some(hint)));
            }
            tokio::time::sleep(LOCK_INTERVAL).await;
        }
    }

    /// The relay has ended: another member may be active.
    pub(super) async fn release(&self) {
        let _ = timeout(REPLACED_WITHIN, self.0.release()).await;
    }

    /// Becomes a standby again, once another member is active.
    pub(super) async fn step_back(&self) -> Infallible {
        let _ = timeout(REPLACED_WITHIN, self.0.replaced()).await;
        start_over()
    }
}

/// Ends and removes what an earlier run of this member left. A standby opens its journal only with the server, and may be one for long.
fn end_own_leftovers(settings: &Settings) {
    let dir = &settings.state_dir;
    if !has_notes(dir) && !has_copy(dir) {
        return;
    }
    let ended = while_held(dir, settings.state_dir_assigned, LOCK_WAIT, now_ms(), || {
        end_leftovers(dir);
        remove_copy(dir);
    });
    if let Err(error) = ended {
        tracing::warn!(%error, "cannot look for what an earlier run left: processes of agents, a copy of the journal");
    }
}

/// Logs the state of a standby.
fn dump(status: &ClusterStatus) {
    let number = |record: Option<u64>| record.map_or_else(|| "none".to_owned(), |number| number.to_string());
    tracing::info!(
        "dump: {} `{}` of the cluster `{}`; last record here {}, in the stream {}",
        status.role,
        printable(&status.member),
        printable(&status.name),
        number(status.position),
        number(status.last)
    );
    for member in status.members.iter().skip(1) {
        tracing::info!(
            "dump: member `{}` {}, last record {}",
            printable(&member.name),
            printable(&member.role),
            number(member.position)
        );
    }
    if let Some(problem) = &status.problem {
        tracing::warn!("dump: this member cannot take over: {}", printable(problem));
    }
}

/// Runs this program again in the same process: every connection and every thread ends with that. The processes of agents
/// would go on, so they are ended before.
fn start_over() -> Infallible {
    let left = end_groups(AGENTS_END_WITHIN);
    if left > 0 {
        tracing::warn!(left, "processes of agents have not ended in time");
    }
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_else(|_| name.clone().into());
    // The file of a program that was replaced meanwhile.
    let text = program.to_string_lossy().into_owned();
    let program = match text.strip_suffix(" (deleted)") {
        Some(path) if !program.exists() => path.into(),
        Some(_) | None => program,
    };
    let error = Command::new(program).arg0(name).args(words).exec();
    tracing::error!(%error, "cannot start over; ending as in a crash");
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
