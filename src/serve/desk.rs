//! The desk: answers for the relay, by asking its own task and the journal beside it.
//!
//! It never waits for the relay longer than [`PATIENCE`], and never for an agent longer than that either.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::request::{Answer, Ask, Refusal};
use super::{exposition, process};
use crate::relay::{AgentStatus, Credentials, RelayHandle, SendError, SessionList, Status};
use crate::store::Inspector;
use crate::wire::{ConnectorUrl, SessionKey};

/// How long the relay's task may take to answer, and an agent to say how it stands.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// How long the journal may take to hold a message that is to be sent.
const SENDING: Duration = Duration::from_secs(20);
/// The most sessions that are listed.
pub const MOST_SESSIONS: usize = 1000;

/// Somebody wants the settings read again: what of them needs a restart, or why they cannot be read.
pub type Reload = oneshot::Sender<Result<Vec<String>, String>>;

/// What became of log lines, counted by who writes the log.
#[derive(Debug, Default)]
pub struct LogCounts {
    /// Lines that repeated themselves and were left out.
    pub left_out: AtomicU64,
    /// Lines in which a secret had to be hidden.
    pub hidden: AtomicU64,
    /// Lines that nobody could take, so that they are lost.
    pub lost: AtomicU64,
}

/// Answers for a running relay.
#[derive(Debug)]
pub struct Desk {
    handle: RelayHandle,
    state_dir: PathBuf,
    started: Instant,
    started_at_ms: i64,
    reloads: Option<mpsc::Sender<Reload>>,
    log: Arc<LogCounts>,
    dialled: Option<(String, watch::Receiver<Option<Credentials>>)>,
}

/// How everything stands.
#[derive(Debug, Serialize)]
struct Overview {
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
    #[serde(flatten)]
    relay: Status,
    agents: Vec<AgentStatus>,
    journal: Option<JournalStatus>,
}

/// How much the journal holds that is not through.
#[derive(Debug, Serialize)]
struct JournalStatus {
    waiting: u64,
    running: u64,
    owed: u64,
    oldest_message_at_ms: Option<i64>,
    oldest_op_at_ms: Option<i64>,
}

impl Desk {
    /// A desk for a relay whose journal is in `state_dir`.
    pub fn new(handle: RelayHandle, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            handle,
            state_dir: state_dir.into(),
            started: Instant::now(),
            started_at_ms: now_ms(),
            reloads: None,
            log: Arc::default(),
            dialled: None,
        }
    }

    /// Also tells what became of log lines.
    #[must_use]
    pub fn log(mut self, counts: Arc<LogCounts>) -> Self {
        self.log = counts;
        self
    }

    /// Hands on who wants the settings read again.
    #[must_use]
    pub fn reloads_to(mut self, reloads: mpsc::Sender<Reload>) -> Self {
        self.reloads = Some(reloads);
        self
    }

    /// Tells whom the relay dials, and as whom.
    #[must_use]
    pub fn dials(mut self, url: &ConnectorUrl, credentials: watch::Receiver<Option<Credentials>>) -> Self {
        self.dialled = Some((url.to_string(), credentials));
        self
    }

    pub(super) fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// How the relay stands; nothing when its task does not answer in time.
    pub(super) async fn status(&self) -> Option<Status> {
        timeout(PATIENCE, self.handle.status()).await.ok().flatten()
    }

    /// Dials at once; `false` when the relay's task does not answer in time.
    pub(super) async fn wake(&self) -> bool {
        timeout(PATIENCE, self.handle.wake()).await.unwrap_or(false)
    }

    /// Everything counted and measured, in Prometheus' text format.
    pub(super) async fn metrics(&self) -> Option<String> {
        let metrics = timeout(PATIENCE, self.handle.metrics()).await.ok().flatten()?;
        let about = exposition::Process {
            started_at_ms: self.started_at_ms,
            resident_bytes: process::resident_bytes(),
            log_left_out: self.log.left_out.load(Ordering::Relaxed),
            log_hidden: self.log.hidden.load(Ordering::Relaxed),
            log_lost: self.log.lost.load(Ordering::Relaxed),
        };
        Some(exposition::page(&metrics, &about))
    }

    /// Does what is asked.
    pub(super) async fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Status => shown(&self.overview().await.ok_or_else(silent)?),
            Ask::Sessions => shown(&self.sessions().await.ok_or_else(silent)?),
            Ask::Stop { session } => {
                let session = SessionKey::from_text(session);
                let stopped = timeout(PATIENCE, self.handle.stop_turn(session)).await;
                if stopped.map_err(|_| silent())? {
                    Ok(json!({"stopped": true}))
                } else {
                    Err(Refusal::new("no_turn", "no turn runs in that session"))
                }
            }
            Ask::Send { chat, platform, text } => self.send(&chat, platform.as_deref(), &text).await,
            Ask::Reload => self.reload().await,
            Ask::Wake if self.wake().await => Ok(json!({"woken": true})),
            Ask::Wake => Err(silent()),
            Ask::Health => {
                let status = self.status().await.ok_or_else(silent)?;
                let why = status.readiness().err();
                Ok(json!({"ready": why.is_none(), "link": status.link, "why": why}))
            }
        }
    }

    async fn overview(&self) -> Option<Overview> {
        let agents = timeout(PATIENCE * 2, self.handle.agents(PATIENCE));
        let (relay, agents, journal) = tokio::join!(self.status(), agents, self.depth());
        let relay = relay?;
        let not_ready = relay.readiness().err();
        Some(Overview {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_at_ms: self.started_at_ms,
            now_ms: now_ms(),
            uptime_secs: self.started.elapsed().as_secs(),
            rss_bytes: process::resident_bytes(),
            ready: not_ready.is_none(),
            not_ready,
            connector: self.dialled.as_ref().map(|(url, _)| url.clone()),
            gateway_id: self.gateway_id(),
            relay,
            agents: agents.ok().flatten().unwrap_or_default(),
            journal,
        })
    }

    fn gateway_id(&self) -> Option<String> {
        let (_, credentials) = self.dialled.as_ref()?;
        let credentials = credentials.borrow();
        credentials.as_ref().map(|known| known.gateway_id.clone())
    }

    /// What the journal holds, read beside its writer.
    async fn depth(&self) -> Option<JournalStatus> {
        let dir = self.state_dir.clone();
        let read = tokio::task::spawn_blocking(move || Inspector::open(&dir)?.depth());
        let depth = timeout(PATIENCE, read).await.ok()?.ok()?.ok()?;
        Some(JournalStatus {
            waiting: depth.waiting,
            running: depth.running,
            owed: depth.owed,
            oldest_message_at_ms: depth.oldest_message,
            oldest_op_at_ms: depth.oldest_op,
        })
    }

    async fn sessions(&self) -> Option<SessionList> {
        let asked = timeout(PATIENCE, self.handle.sessions(MOST_SESSIONS));
        let list = asked.await.ok().flatten()?;
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
        // Without the journal's word there is no age, but there is still a list.
        Some(
            timeout(PATIENCE, dating)
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or(list),
        )
    }

    async fn send(&self, chat: &str, platform: Option<&str>, text: &str) -> Answer {
        let sending = async {
            match platform {
                Some(platform) => self.handle.send_on(platform, chat, text).await,
                None => self.handle.send(chat, text).await,
            }
        };
        let Ok(sent) = timeout(SENDING, sending).await else {
            let message = "the journal has not taken the message yet; it may still be sent";
            return Err(Refusal::new("busy", message));
        };
        let code = match sent {
            Ok(()) => return Ok(json!({"accepted": true})),
            Err(SendError::UnknownChat) => "unknown_chat",
            Err(SendError::Empty) => "empty",
            Err(SendError::Busy) => "busy",
            Err(SendError::Refused) => "refused",
            Err(SendError::NotRunning) => "silent",
        };
        let message = sent.err().map(|error| error.to_string());
        Err(Refusal::new(code, message.unwrap_or_default()))
    }

    async fn reload(&self) -> Answer {
        let Some(reloads) = &self.reloads else {
            let message = "this relay runs inside another program, which keeps its settings";
            return Err(Refusal::new("embedded", message));
        };
        let (answer, answered) = oneshot::channel();
        let asked = async {
            reloads.send(answer).await.ok()?;
            answered.await.ok()
        };
        match timeout(PATIENCE, asked).await.ok().flatten() {
            Some(Ok(needs_restart)) => Ok(json!({"needs_restart": needs_restart})),
            Some(Err(why)) => Err(Refusal::new("settings", why)),
            None => Err(silent()),
        }
    }
}

fn silent() -> Refusal {
    Refusal::new(
        "silent",
        "the relay does not answer in time; it is starting, ending or stuck",
    )
}

fn shown(what: &impl Serialize) -> Answer {
    serde_json::to_value(what).map_err(|error| Refusal::new("fault", error.to_string()))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
