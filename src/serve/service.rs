//! The control service: answers requests about the relay with the help of its event loop and its journal.
//!
//! Every question to the relay or an agent has the timeout [`RELAY_TIMEOUT`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::fire::{FireCounts, FireEndpoint};
use super::prometheus;
use super::protocol::{ControlError, ControlRequest, ControlResult};
use super::receiver::{AnswerCounts, Receiver};
use crate::agent::AgentPool;
use crate::agent_connector::contract::{DeliveryPayload, MAX_ID_BYTES};
use crate::config::{DiscordBotConfig, TelegramConfig};
use crate::cron::chronos::ArmState;
use crate::relay::{
    AgentStatus, Credentials, HandedItem, NotRunning, RelayHandle, SendError, SessionList, Status,
    StopOutcome, SubmitError, now_ms,
};
use crate::store::{Inspector, Item, Repair};
use crate::wire::{ConnectorUrl, SessionKey};

/// Timeout for the relay's event loop and for an agent's health check.
const RELAY_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a standby to take over: the server is asked a few times.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the journal to store a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for the managed scheduler to learn of changed jobs; longer than the relay itself waits for it.
const ARM_TIMEOUT: Duration = Duration::from_secs(8);
/// Maximum number of callers that wait for agents; fewer than there are connections, so that other requests get through.
const MAX_WAITING: usize = 8;
/// Maximum number of listed sessions.
const MAX_SESSIONS: usize = 1000;

/// A reload request; answered with the keys that need a restart, or why the settings are invalid.
pub type Reload = oneshot::Sender<Result<Vec<String>, String>>;

/// Counts of log lines, kept by the log.
#[derive(Debug, Default)]
pub struct LogCounts {
    /// Repeated lines that were suppressed.
    pub suppressed: AtomicU64,
    /// Lines in which a secret was redacted.
    pub redacted: AtomicU64,
    /// Lines that could not be written.
    pub lost: AtomicU64,
}

/// Counts of traces of turns, kept by whoever exports them.
#[derive(Debug, Default)]
pub struct TraceCounts {
    /// Traces that the collector accepted.
    pub sent: AtomicU64,
    /// Traces that were dropped: a queue was full, or the program ended first.
    pub dropped: AtomicU64,
    /// Traces that the collector refused.
    pub refused: AtomicU64,
}

/// A request to hand over to another member; answered with the name of the one that can take over, or why none can.
pub type HandOver = oneshot::Sender<Result<String, String>>;

/// A request to a standby to take over (`handover --take`); answered when it is active, or with why it is not.
pub type TakeOverReply = oneshot::Sender<Result<(), String>>;

/// Reports the cluster that the relay is a member of, as JSON.
pub struct ClusterReport(Box<dyn Fn() -> Value + Send + Sync>);

impl ClusterReport {
    /// Reports what this returns: an object with the members and the `role` of this one.
    #[cfg(any(feature = "nats", test))]
    pub fn new(report: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        Self(Box::new(report))
    }
}

impl std::fmt::Debug for ClusterReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterReport")
    }
}

/// Answers requests about a running relay.
#[derive(Debug)]
pub struct ControlService {
    handle: RelayHandle,
    state_dir: PathBuf,
    started: Instant,
    started_at_ms: i64,
    reloads: Option<mpsc::Sender<Reload>>,
    stops: Option<mpsc::Sender<()>>,
    /// How long the end may take.
    shutdown_budget: Option<Duration>,
    log: Arc<LogCounts>,
    traces: Arc<TraceCounts>,
    connector: Option<(String, watch::Receiver<Option<Credentials>>)>,
    telegram: Option<TelegramStatus>,
    discord: Option<DiscordStatus>,
    fires: Option<Arc<FireEndpoint>>,
    receiver: Option<Arc<Receiver>>,
    cluster: Option<ClusterReport>,
    handovers: Option<mpsc::Sender<HandOver>>,
    takes: Option<mpsc::Sender<TakeOverReply>>,
    /// No relay runs here: this process waits to become active.
    is_standby: bool,
    waiting: Semaphore,
}

/// The status of everything.
#[derive(Debug, Serialize)]
struct StatusReport {
    version: &'static str,
    pid: u32,
    started_at_ms: i64,
    now_ms: i64,
    uptime_secs: u64,
    rss_bytes: Option<u64>,
    ready: bool,
    not_ready: Option<String>,
    connector: Option<String>,
    gateway_id: Option<String>,
    /// Without a connector: the Telegram bot that the relay is.
    telegram: Option<TelegramStatus>,
    /// Without a connector: the Discord bot that the relay is.
    #[serde(skip_serializing_if = "Option::is_none")]
    discord: Option<DiscordStatus>,
    #[serde(flatten)]
    relay: Status,
    agents: Vec<AgentStatus>,
    /// The pools of workers that agents use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pools: Vec<AgentPool>,
    journal: Option<JournalStatus>,
    /// In a cluster: what this member is.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Value>,
    /// In a cluster: the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Value>,
}

/// The Telegram bot that the relay is.
#[derive(Debug, Clone, Serialize)]
struct TelegramStatus {
    /// The bot's number.
    bot_id: Option<i64>,
    /// Base URL of the Bot API.
    api: String,
}

/// The Discord bot that the relay is.
#[derive(Debug, Clone, Serialize)]
struct DiscordStatus {
    /// Base URL of the REST API.
    api: String,
}

/// Unfinished work in the journal.
#[derive(Debug, Serialize)]
struct JournalStatus {
    waiting: u64,
    running: u64,
    owed: u64,
    oldest_message_at_ms: Option<i64>,
    oldest_op_at_ms: Option<i64>,
}

impl ControlService {
    /// A service for the relay with this state directory.
    pub fn new(handle: RelayHandle, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            handle,
            state_dir: state_dir.into(),
            started: Instant::now(),
            started_at_ms: now_ms(),
            reloads: None,
            stops: None,
            shutdown_budget: None,
            log: Arc::default(),
            traces: Arc::default(),
            connector: None,
            telegram: None,
            discord: None,
            fires: None,
            receiver: None,
            cluster: None,
            handovers: None,
            takes: None,
            is_standby: false,
            waiting: Semaphore::new(MAX_WAITING),
        }
    }

    /// A service for a member of a cluster that is not active.
    #[cfg(feature = "nats")]
    pub fn standby(
        state_dir: impl Into<PathBuf>,
        cluster: ClusterReport,
        takes: mpsc::Sender<TakeOverReply>,
    ) -> Self {
        Self {
            is_standby: true,
            takes: Some(takes),
            cluster: Some(cluster),
            ..Self::new(RelayHandle::of_none(), state_dir)
        }
    }

    /// Also reports the cluster, and passes requests to hand over on.
    #[must_use]
    pub fn cluster(mut self, cluster: Option<ClusterReport>, handovers: mpsc::Sender<HandOver>) -> Self {
        self.handovers = cluster.is_some().then_some(handovers);
        self.cluster = cluster;
        self
    }

    /// Also reports these counts.
    #[must_use]
    pub fn log_counts(mut self, counts: Arc<LogCounts>) -> Self {
        self.log = counts;
        self
    }

    /// Also reports these counts.
    #[must_use]
    pub fn trace_counts(mut self, counts: Arc<TraceCounts>) -> Self {
        self.traces = counts;
        self
    }

    /// Also reports how fires of the managed scheduler ended.
    pub(super) fn set_fires(&mut self, fires: Arc<FireEndpoint>) {
        self.fires = Some(fires);
    }

    /// Also reports how requests to the receiver were answered.
    pub(super) fn set_receiver(&mut self, receiver: Arc<Receiver>) {
        self.receiver = Some(receiver);
    }

    /// Passes reload requests on.
    #[must_use]
    pub fn reloads(mut self, reloads: mpsc::Sender<Reload>) -> Self {
        self.reloads = Some(reloads);
        self
    }

    /// Also says how long the end may take.
    #[must_use]
    pub fn shutdown_budget(mut self, budget: Duration) -> Self {
        self.shutdown_budget = Some(budget);
        self
    }

    /// Passes requests to end the relay on.
    #[must_use]
    pub fn stops(mut self, stops: mpsc::Sender<()>) -> Self {
        self.stops = Some(stops);
        self
    }

    /// Also reports the connector and the gateway id.
    #[must_use]
    pub fn connector(
        mut self,
        url: &ConnectorUrl,
        credentials: watch::Receiver<Option<Credentials>>,
    ) -> Self {
        self.connector = Some((url.to_string(), credentials));
        self
    }

    /// Also reports the Telegram bot that the relay is, without a connector.
    #[must_use]
    pub fn telegram(mut self, bot: &TelegramConfig) -> Self {
        self.telegram = Some(TelegramStatus {
            bot_id: bot.bot_id(),
            api: bot.api_base.clone(),
        });
        self
    }

    /// Also reports the Discord bot that the relay is, without a connector.
    #[must_use]
    pub fn discord(mut self, bot: &DiscordBotConfig) -> Self {
        self.discord = Some(DiscordStatus {
            api: bot.api_base.clone(),
        });
        self
    }

    pub(super) fn relay_handle(&self) -> RelayHandle {
        self.handle.clone()
    }

    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// The relay's status; `None` when it does not answer.
    pub(super) async fn status(&self) -> Option<Status> {
        answer_within(RELAY_TIMEOUT, self.handle.status()).await
    }

    /// Makes the relay dial now; `false` when it does not answer.
    pub(super) async fn wake(&self) -> bool {
        answer_within(RELAY_TIMEOUT, self.handle.wake()).await.is_some()
    }

    /// All metrics in Prometheus' text format; `None` when it does not answer.
    pub(super) async fn metrics(&self) -> Option<String> {
        let metrics = answer_within(RELAY_TIMEOUT, self.handle.metrics()).await?;
        let process = prometheus::ProcessInfo {
            started_at_ms: self.started_at_ms,
            resident_bytes: resident_bytes(),
            log_suppressed: self.log.suppressed.load(Ordering::Relaxed),
            log_redacted: self.log.redacted.load(Ordering::Relaxed),
            log_lost: self.log.lost.load(Ordering::Relaxed),
            traces: [
                ("sent", self.traces.sent.load(Ordering::Relaxed)),
                ("dropped", self.traces.dropped.load(Ordering::Relaxed)),
                ("refused", self.traces.refused.load(Ordering::Relaxed)),
            ],
            fires: (self.fires.as_ref()).map_or_else(
                || FireCounts::default().by_outcome(),
                |fires| fires.counts().by_outcome(),
            ),
            key_fetches: self.fires.as_ref().map_or(0, |fires| fires.key_fetches()),
            received: (self.receiver.as_ref()).map_or_else(
                || AnswerCounts::default().by_status(),
                |receiver| receiver.counts().by_status(),
            ),
            cluster: self.cluster.as_ref().map(|report| report.0()),
        };
        Some(prometheus::page(&metrics, &process))
    }

    /// Handles a request.
    pub(super) async fn handle(&self, request: ControlRequest) -> ControlResult {
        if self.is_standby {
            return self.handle_as_standby(&request).await;
        }
        match request {
            ControlRequest::Status => to_json(&self.report().await.ok_or_else(no_response)?),
            ControlRequest::Sessions => to_json(&self.sessions().await.ok_or_else(no_response)?),
            ControlRequest::Stop { session } => {
                let session = SessionKey::from_text(session);
                let stopped = answer_within(RELAY_TIMEOUT, self.handle.stop_turn(session)).await;
                match stopped.ok_or_else(no_response)? {
                    StopOutcome::Stopped => Ok(json!({"stopped": true})),
                    StopOutcome::Elsewhere => Err(ControlError::new(
                        "no_turn_here",
                        "no turn of that session runs here; the connector was asked to stop it elsewhere",
                    )),
                    StopOutcome::NoTurn => Err(ControlError::new("no_turn", "no turn runs in that session")),
                }
            }
            ControlRequest::Send {
                chat,
                platform,
                text,
                silent,
            } => self.send(&chat, platform.as_deref(), &text, silent).await,
            ControlRequest::Access { request } => {
                let Ok(answer) = timeout(SEND_TIMEOUT, self.handle.access(request)).await else {
                    let message = "the journal has not stored this yet; it may still take effect";
                    return Err(ControlError::new("busy", message));
                };
                let answer = answer.map_err(|NotRunning| no_response())?;
                answer.map_err(|error| ControlError::new(error.code(), error.to_string()))
            }
            ControlRequest::Reload => self.reload().await,
            ControlRequest::Wake if self.wake().await => Ok(json!({"woken": true})),
            ControlRequest::Wake => Err(no_response()),
            ControlRequest::Health => {
                let status = self.status().await.ok_or_else(no_response)?;
                let why = status.readiness().err();
                Ok(json!({"ready": why.is_none(), "link": status.link, "why": why}))
            }
            ControlRequest::JobsChanged => self.jobs_changed().await.ok_or_else(no_response),
            ControlRequest::JobsZone => {
                let status = self.status().await.ok_or_else(no_response)?;
                Ok(json!({"timezone": status.cron.timezone}))
            }
            ControlRequest::TurnAuthor { session } => {
                let session = session.map(SessionKey::from_text);
                let author = answer_within(RELAY_TIMEOUT, self.handle.turn_author(session)).await;
                Ok(json!({"author": author.ok_or_else(no_response)?}))
            }
            ControlRequest::Hand {
                agent,
                session,
                wake,
                wait_ms,
                body,
            } => {
                let invalid = |why: String| ControlError::new("bad_request", why);
                if session
                    .as_ref()
                    .is_some_and(|session| session.len() > MAX_ID_BYTES)
                {
                    let why = format!("the session is longer than {MAX_ID_BYTES} bytes");
                    return Err(invalid(why));
                }
                let payload = DeliveryPayload::from_body(body).map_err(|error| invalid(error.to_string()))?;
                let item = HandedItem {
                    agent,
                    session,
                    payload,
                    wake,
                };
                match wait_ms.map(Duration::from_millis) {
                    Some(wait) => self.request(item, wait).await,
                    None => self.hand(item).await,
                }
            }
            ControlRequest::Repair { repair, item } => self.repair(repair, item).await,
            ControlRequest::Shutdown => self.shut_down().await,
            ControlRequest::HandOver => self.hand_over().await,
            ControlRequest::TakeOver => Err(self.not_a_standby()),
            ControlRequest::Activity { agent } => {
                let activity = answer_within(RELAY_TIMEOUT, self.handle.activity(&agent)).await;
                match activity.ok_or_else(no_response)? {
                    Some(activity) => Ok(json!({"status": activity})),
                    None => Err(refused(SubmitError::UnknownAgent)),
                }
            }
        }
    }

    async fn repair(&self, repair: Repair, item: Item) -> ControlResult {
        let Ok(repaired) = timeout(SEND_TIMEOUT, self.handle.repair(repair, item)).await else {
            return Err(no_response());
        };
        match repaired.map_err(|NotRunning| no_response())? {
            Ok(()) => {
                let status = self.status().await;
                let is_ending = status.is_some_and(|status| status.shutting_down);
                Ok(json!({"repaired": true, "shutting_down": is_ending}))
            }
            Err(error) => Err(ControlError::new(error.code(), error.to_string())),
        }
    }

    /// What a member that is not active answers.
    async fn handle_as_standby(&self, request: &ControlRequest) -> ControlResult {
        let cluster = self.cluster.as_ref().map_or(Value::Null, |report| report.0());
        let problem = cluster["problem"].as_str().map(str::to_owned);
        match request {
            ControlRequest::Status => Ok(json!({
                "version": env!("CARGO_PKG_VERSION"),
                "pid": std::process::id(),
                "started_at_ms": self.started_at_ms,
                "now_ms": now_ms(),
                "uptime_secs": self.started.elapsed().as_secs(),
                "rss_bytes": resident_bytes(),
                "ready": false,
                "not_ready": "this relay is a standby",
                "link": "standby",
                "role": cluster["role"],
                "cluster": cluster,
            })),
            ControlRequest::Health => {
                Ok(json!({"ready": problem.is_none(), "link": "standby", "why": problem}))
            }
            ControlRequest::Shutdown => self.shut_down().await,
            ControlRequest::Reload => self.reload().await,
            ControlRequest::TakeOver => self.take_over().await,
            _ => {
                let active = cluster["members"].as_array().into_iter().flatten();
                let active = active
                    .filter(|member| member["role"] == "active")
                    .find_map(|member| member["name"].as_str());
                let message = active.map_or_else(
                    || "this relay is a standby, and no member of the cluster is active".to_owned(),
                    |name| format!("this relay is a standby; the active one is `{name}`"),
                );
                Err(ControlError::new("standby", message))
            }
        }
    }

    async fn take_over(&self) -> ControlResult {
        let (reply, replied) = oneshot::channel();
        let takes = self.takes.as_ref().ok_or_else(no_response)?;
        takes.try_send(reply).map_err(|_| no_response())?;
        match timeout(TAKE_TIMEOUT, replied).await {
            // Without an answer it does not stand by any more.
            Ok(Ok(Ok(())) | Err(_)) => Ok(json!({"taking_over": true})),
            Ok(Ok(Err(why))) => Err(ControlError::new("not_taken", why)),
            Err(_) => Err(no_response()),
        }
    }

    /// Why a relay that is no standby does not take over.
    fn not_a_standby(&self) -> ControlError {
        if self.handovers.is_none() {
            return no_cluster();
        }
        let message = "this relay is not a standby; `--take` is for a standby whose active relay is gone";
        ControlError::new("no_standby", message)
    }

    async fn hand_over(&self) -> ControlResult {
        let handovers = self.handovers.as_ref().ok_or_else(no_cluster)?;
        let (reply, replied) = oneshot::channel();
        handovers.try_send(reply).map_err(|_| no_response())?;
        match timeout(RELAY_TIMEOUT, replied).await {
            Ok(Ok(Ok(name))) => Ok(json!({"handing_over": true, "to": name})),
            Ok(Ok(Err(why))) => Err(ControlError::new("no_standby", why)),
            Ok(Err(_)) | Err(_) => Err(no_response()),
        }
    }

    /// Hands something to an agent; answers with the receipt.
    async fn hand(&self, item: HandedItem) -> ControlResult {
        let Ok(handed) = timeout(SEND_TIMEOUT, self.handle.submit(item)).await else {
            let message = "the journal has not stored the item yet; it may still reach the agent";
            return Err(ControlError::new("busy", message));
        };
        to_json(&handed.map_err(refused)?)
    }

    /// Hands something to an agent; answers with the agent's answer.
    async fn request(&self, item: HandedItem, wait: Duration) -> ControlResult {
        let Ok(_permit) = self.waiting.try_acquire() else {
            let message = format!("{MAX_WAITING} callers wait for agents already; try again later");
            return Err(ControlError::new("full", message));
        };
        let Ok(answer) = timeout(wait, self.handle.request(item)).await else {
            let message = format!("the agent has not answered within {} s", wait.as_secs_f64());
            return Err(ControlError::new("timeout", message));
        };
        to_json(&answer.map_err(refused)?)
    }

    /// What starts jobs now, and for each job that the managed scheduler should have, whether it does.
    async fn jobs_changed(&self) -> Option<Value> {
        let report = answer_within(ARM_TIMEOUT, self.handle.jobs_changed()).await?;
        let status = self.status().await?;
        let cron = status.cron;
        let jobs: serde_json::Map<String, Value> = (report.jobs.iter())
            .map(|(id, arm)| {
                let is_armed = arm.state == ArmState::Armed;
                let (state, error) = (arm.state.summary(), arm.state.error());
                let arm = json!({"armed": is_armed, "fire_at": arm.fire_at, "state": state, "error": error});
                (id.clone(), arm)
            })
            .collect();
        Some(json!({
            "provider": cron.provider, "unavailable": cron.unavailable, "jobs": jobs,
            "shutting_down": status.shutting_down,
        }))
    }

    async fn report(&self) -> Option<StatusReport> {
        let agents = answer_within(RELAY_TIMEOUT * 2, self.handle.agents(RELAY_TIMEOUT));
        let (relay, agents, journal) = tokio::join!(self.status(), agents, self.journal_status());
        let relay = relay?;
        let mut agents = agents.unwrap_or_default();
        let not_ready = relay.readiness().err();
        let cluster = self.cluster.as_ref().map(|report| report.0());
        Some(StatusReport {
            role: cluster.as_ref().map(|cluster| cluster["role"].clone()),
            cluster,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_at_ms: self.started_at_ms,
            now_ms: now_ms(),
            uptime_secs: self.started.elapsed().as_secs(),
            rss_bytes: resident_bytes(),
            ready: not_ready.is_none(),
            not_ready,
            connector: self.connector.as_ref().map(|(url, _)| url.clone()),
            gateway_id: self.gateway_id(),
            telegram: self.telegram.clone(),
            discord: self.discord.clone(),
            relay,
            pools: AgentPool::merged(agents.iter_mut().filter_map(|agent| agent.pool.take())),
            agents,
            journal,
        })
    }

    fn gateway_id(&self) -> Option<String> {
        let (_, credentials) = self.connector.as_ref()?;
        let credentials = credentials.borrow();
        credentials.as_ref().map(|known| known.gateway_id.clone())
    }

    /// Reads the journal beside its writer.
    async fn journal_status(&self) -> Option<JournalStatus> {
        let dir = self.state_dir.clone();
        let read = tokio::task::spawn_blocking(move || Inspector::open(&dir)?.depth());
        let depth = timeout(RELAY_TIMEOUT, read).await.ok()?.ok()?.ok()?;
        Some(JournalStatus {
            waiting: depth.waiting,
            running: depth.running,
            owed: depth.owed,
            oldest_message_at_ms: depth.oldest_message,
            oldest_op_at_ms: depth.oldest_op,
        })
    }

    async fn sessions(&self) -> Option<SessionList> {
        let list = answer_within(RELAY_TIMEOUT, self.handle.sessions(MAX_SESSIONS)).await?;
        let dir = self.state_dir.clone();
        let mut dated = list.clone();
        let dating = tokio::task::spawn_blocking(move || {
            if let Ok(journal) = Inspector::open(&dir) {
                for session in &mut dated.sessions {
                    session.waiting_since_ms = journal.waiting_since(&session.session).ok().flatten();
                }
            }
            dated
        });
        // Without the journal the list has no ages.
        Some(
            timeout(RELAY_TIMEOUT, dating)
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or(list),
        )
    }

    async fn send(&self, chat: &str, platform: Option<&str>, text: &str, silent: bool) -> ControlResult {
        let sending = async {
            match platform {
                _ if silent => self.handle.send_silently(platform, chat, text).await,
                Some(platform) => self.handle.send_on(platform, chat, text).await,
                None => self.handle.send(chat, text).await,
            }
        };
        let Ok(sent) = timeout(SEND_TIMEOUT, sending).await else {
            let message = "the journal has not stored the message yet; it may still be sent";
            return Err(ControlError::new("busy", message));
        };
        let code = match sent {
            Ok(()) => {
                let status = self.status().await;
                let is_connected = status.is_some_and(|status| status.readiness().is_ok());
                return Ok(json!({"accepted": true, "connected": is_connected}));
            }
            Err(SendError::UnknownChat) => "unknown_chat",
            Err(SendError::Empty) => "empty",
            Err(SendError::Busy) => "busy",
            Err(SendError::Refused) => "refused",
            Err(SendError::NotRunning(NotRunning)) => "silent",
        };
        let message = sent.err().map(|error| error.to_string());
        Err(ControlError::new(code, message.unwrap_or_default()))
    }

    /// Asks for the end of the relay. Asking again changes nothing.
    async fn shut_down(&self) -> ControlResult {
        let Some(stops) = &self.stops else {
            let message = "this relay runs inside another program, which ends it";
            return Err(ControlError::new("embedded", message));
        };
        let status = self.status().await;
        if let Err(mpsc::error::TrySendError::Closed(())) = stops.try_send(()) {
            return Err(no_response());
        }
        Ok(json!({
            "stopping": true,
            "pid": std::process::id(),
            "turns_running": status.as_ref().map(|status| status.turns_running),
            "ops_unsent": status.as_ref().map(|status| status.ops_durable),
            "budget_secs": self.shutdown_budget.map(|budget| budget.as_secs()),
        }))
    }

    async fn reload(&self) -> ControlResult {
        let Some(reloads) = &self.reloads else {
            let message = "this relay runs inside another program, which owns its settings";
            return Err(ControlError::new("embedded", message));
        };
        let (reply, replied) = oneshot::channel();
        let reloaded = async {
            reloads.send(reply).await.ok()?;
            replied.await.ok()
        };
        match timeout(RELAY_TIMEOUT, reloaded).await.ok().flatten() {
            Some(Ok(needs_restart)) => Ok(json!({"needs_restart": needs_restart})),
            Some(Err(why)) => Err(ControlError::new("settings", why)),
            None => Err(no_response()),
        }
    }
}

/// What the relay answers; `None` when that takes longer, or when it has ended.
async fn answer_within<T>(limit: Duration, answer: impl Future<Output = Result<T, NotRunning>>) -> Option<T> {
    timeout(limit, answer).await.ok()?.ok()
}

fn refused(refusal: SubmitError) -> ControlError {
    let code = match refusal {
        SubmitError::UnknownAgent => "unknown_agent",
        SubmitError::OtherAgent => "bad_request",
        SubmitError::Full => "full",
        SubmitError::TooLarge => "too_large",
        SubmitError::Draining => "draining",
        SubmitError::NotStored => "not_stored",
        SubmitError::NoAnswer => "no_answer",
        SubmitError::NotRunning(NotRunning) => return no_response(),
    };
    ControlError::new(code, refusal.to_string())
}

fn no_cluster() -> ControlError {
    ControlError::new("no_cluster", "this relay is not a member of a cluster")
}

fn no_response() -> ControlError {
    ControlError::new(
        "silent",
        "the relay did not respond in time; it is starting, shutting down or stuck",
    )
}

fn to_json(what: &impl Serialize) -> ControlResult {
    serde_json::to_value(what).map_err(|error| ControlError::new("fault", error.to_string()))
}

/// Memory in use, in bytes; `None` where the system does not report it.
fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    Some(pages * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessRequest;
    use crate::agent::EchoAgent;
    use crate::relay::{MemoryTransport, Relay};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_change_of_access_waits_as_long_as_a_message_for_a_slow_relay() {
        let dir = tempfile::tempdir().unwrap();
        let (transport, _connector) = MemoryTransport::pair([]);
        // It takes requests, and does not run.
        let relay = Relay::builder(crate::config::Settings::embedded(dir.path()))
            .agent("echo", EchoAgent)
            .transport(Arc::new(transport))
            .build()
            .unwrap();
        let service = ControlService::new(relay.handle(), dir.path());
        let access = ControlRequest::Access {
            request: AccessRequest::List,
        };
        let send = ControlRequest::Send {
            chat: "c".to_owned(),
            platform: None,
            text: "hi".to_owned(),
            silent: false,
        };
        for request in [send, access] {
            let asked = Instant::now();
            let refused = service.handle(request).await.unwrap_err();
            assert_eq!(
                (refused.code.as_str(), asked.elapsed().as_secs()),
                ("busy", SEND_TIMEOUT.as_secs())
            );
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn resident_memory_is_plausible() {
        let bytes = resident_bytes().unwrap();
        assert!((1 << 16..1 << 40).contains(&bytes), "{bytes}");
    }
}
