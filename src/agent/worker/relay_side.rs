//! The agent whose turns run in a pool: the relay's side of each turn.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::channel::{Channel, MAX_MESSAGE};
use super::hub::{FromWorker, WorkerHub};
use super::memory::digest;
use super::protocol::{Down, Head, MessageKind, Up, decode, encode, encode_packet, new_id, packet};
use super::remote_turn::{RemoteStep, RemoteTurn, WaitLimits};
use crate::agent::pool::PoolSettings;
use crate::agent::{
    Agent, AgentCommand, AgentEvent, AgentFuture, AgentHealth, AgentInfo, AgentPool, AgentSignal, Failure,
    FailureClass, MediaLocation, PreferenceAnswer, PreferenceRequest, PromptAnswer, Turn, TurnEnd, TurnInput,
};
use crate::collections::BoundedCache;
use crate::net::nats::{Bus, NatsError};
use crate::wire::SessionKey;

/// Sessions whose last worker is remembered.
const MAX_SESSIONS: usize = 10_000;
/// How long a health check waits for the server and the first heartbeats.
const HEALTH_PATIENCE: Duration = Duration::from_millis(1500);
/// How long a worker may take to begin with what people choose.
const PREFERENCE_WAIT: Duration = Duration::from_secs(10);
/// How long the saved state may take to be looked at: the worker waits meanwhile.
const STATE_PATIENCE: Duration = Duration::from_secs(1);
/// Messages for running turns that wait for their turn's task.
const MAX_STEERS: usize = 64;
/// Files of workers that nobody sent away are removed after this long.
const FILE_AGE: Duration = Duration::from_secs(3600);

/// An agent whose turns run in a pool of workers.
pub struct WorkerAgent {
    name: String,
    settings: PoolSettings,
    hub: Arc<WorkerHub>,
    /// Where files of workers are kept until they are sent.
    files: PathBuf,
    waiting: AtomicUsize,
    state: Mutex<PoolSessions>,
}

struct PoolSessions {
    /// The worker that ran the session's last turn.
    last: BoundedCache<SessionKey, String>,
    /// The running turns: who runs it, and the way to its task.
    running: HashMap<SessionKey, (String, mpsc::Sender<TurnInput>)>,
}

impl WorkerAgent {
    /// Dials nothing yet. Files that workers send are kept in `files` for a while.
    pub fn new(name: &str, settings: PoolSettings, hub: Arc<WorkerHub>, files: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            settings,
            hub,
            files,
            waiting: AtomicUsize::new(0),
            state: Mutex::new(PoolSessions {
                last: BoundedCache::new(MAX_SESSIONS),
                running: HashMap::new(),
            }),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, PoolSessions> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one turn; messages that its agent did not take while it ran are run after it.
    async fn run_all(&self, mut turn: Turn) -> TurnEnd {
        let mut later = Vec::new();
        loop {
            let (end, _) = self.run_one(&turn, &mut later, None).await;
            if later.is_empty() {
                return end;
            }
            if end != TurnEnd::Completed {
                let notice = "A message that you sent meanwhile was not answered. Please send it again.";
                turn.events.emit(AgentEvent::Notice(notice.to_owned())).await;
                return end;
            }
            turn.input = later.remove(0);
            turn.events.emit(AgentEvent::Break).await;
        }
    }

    /// Runs a turn on a worker, or asks its agent for a preference.
    async fn run_one(
        &self,
        turn: &Turn,
        later: &mut Vec<TurnInput>,
        preference: Option<PreferenceRequest>,
    ) -> (TurnEnd, Option<PreferenceAnswer>) {
        let bus = match self.hub.bus().await {
            Ok(bus) => bus,
            Err(error) => return (TurnEnd::Failed(unavailable(&error.to_string())), None),
        };
        let waiting = WaitingCount::new(&self.waiting);
        if waiting.number > self.settings.max_waiting {
            let failure = unavailable("too many turns wait for a worker");
            return (TurnEnd::Failed(failure), None);
        }
        let now = Instant::now();
        let preferred = self.sessions().last.get(&turn.session).cloned();
        let limits = WaitLimits {
            notice_after: Some(Duration::from_secs(self.settings.notice_after_secs))
                .filter(|wait| !wait.is_zero() && preference.is_none()),
            max_wait: match preference {
                None => Duration::from_secs(self.settings.max_wait_secs),
                Some(_) => PREFERENCE_WAIT,
            },
        };
        let id = new_id();
        let inbox = self.hub.add(&id);
        let _registered = Registered {
            agent: self,
            id: id.clone(),
            session: turn.session.clone(),
        };
        let (steer, steers) = mpsc::channel(MAX_STEERS);
        let mut running = RemoteRun {
            agent: self,
            bus,
            life: RemoteTurn::new(&id, preferred, limits, now),
            id,
            channel: Channel::new(self.hub.piece()),
            queued: Vec::new(),
            waiting: Some(waiting),
            steer,
            steers_sent: Vec::new(),
            open: FuturesUnordered::new(),
            withdrawn: HashMap::new(),
            files: 0,
            preference,
            preferred: None,
        };
        let end = running.drive(turn, inbox, steers).await;
        later.extend(
            std::mem::take(&mut running.steers_sent)
                .into_iter()
                .map(|(_, input)| input),
        );
        (end, running.preferred.take())
    }

    /// The digest of the state that the worker's agent may have in memory; empty if another worker had the session since.
    async fn latest_state(&self, turn: &Turn, worker: &str) -> String {
        let last = self.sessions().last.get(&turn.session).cloned();
        if last.is_some_and(|last| last != worker) {
            return String::new();
        }
        let loading = tokio::time::timeout(STATE_PATIENCE, turn.events.load_state());
        // Cancel-safe: nobody waits for the answer any more.
        tokio::select! {
            biased;
            () = turn.cancel.cancelled() => String::new(),
            state = loading => state.map_or_else(|_| String::new(), |state| digest(&state.unwrap_or_default())),
        }
    }
}

impl Agent for WorkerAgent {
    fn reports_changes(&self) -> bool {
        true
    }

    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: self.name.clone().into(),
            kind: "worker",
            repeatable: false,
            marks_start: true,
            steers: true,
            asks: true,
            resumes: false,
            remembers: true,
            sees_images: true,
            parallel: None,
        }
    }

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(async {
            let bus = match self.hub.bus().await {
                Ok(bus) => bus,
                Err(error) => return AgentHealth::Down(error.to_string()),
            };
            if bus.connected(HEALTH_PATIENCE).await.is_err() {
                return AgentHealth::Down(bus.trouble().to_owned());
            }
            if let Err(error) = self.hub.queue(&self.settings.pool).await {
                return AgentHealth::Down(format!("{error}; is JetStream switched on (`nats-server -js`)?"));
            }
            let deadline = Instant::now() + HEALTH_PATIENCE;
            loop {
                let there = |roster: &super::remote_turn::Roster| {
                    roster.of(&self.settings.pool, Instant::now()).next().is_some()
                };
                if self.hub.with_roster(there) {
                    return AgentHealth::Ready;
                }
                if Instant::now() >= deadline {
                    let pool = &self.settings.pool;
                    return AgentHealth::Degraded(format!(
                        "no worker of the pool `{pool}` is there; turns wait for one"
                    ));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.run_all(turn))
    }

    fn steer(&self, session: &SessionKey, input: &TurnInput) -> bool {
        let sessions = self.sessions();
        let Some((worker, steer)) = sessions.running.get(session) else {
            return false;
        };
        let steers = |roster: &super::remote_turn::Roster| {
            let worker = roster.get(worker, Instant::now());
            worker.is_some_and(|beat| beat.steers)
        };
        self.hub.with_roster(steers) && steer.try_send(input.clone()).is_ok()
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.sessions().last.remove(session);
        Box::pin(self.hub.forget(&self.settings.pool, session))
    }

    fn prefer(&self, turn: Turn, request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(async move {
            match self.run_one(&turn, &mut Vec::new(), Some(request)).await {
                (_, Some(answer)) => answer,
                (TurnEnd::Failed(failure), None) => PreferenceAnswer::Failed(failure),
                (_, None) => PreferenceAnswer::Unsupported,
            }
        })
    }

    fn commands(&self) -> Vec<AgentCommand> {
        self.hub.commands(&self.settings.pool)
    }

    fn pool(&self) -> Option<AgentPool> {
        let pool = &self.settings.pool;
        Some(AgentPool {
            name: pool.clone(),
            waiting: self.waiting.load(Ordering::Relaxed),
            workers: self.hub.workers(pool),
        })
    }
}

/// A turn that workers may ask for; dropped with the turn's future, however that ends. A worker that still runs it is refused, and stops.
struct Registered<'a> {
    agent: &'a WorkerAgent,
    id: String,
    session: SessionKey,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.agent.sessions().running.remove(&self.session);
        self.agent.hub.remove(&self.id);
    }
}

/// Counts a turn that waits for a worker.
struct WaitingCount<'a> {
    count: &'a AtomicUsize,
    number: usize,
}

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        Self { count, number }
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn unavailable(detail: &str) -> Failure {
    let public = "No worker could take this at the moment. Please try again later.";
    Failure::new(FailureClass::Unavailable, public, detail)
        .retryable()
        .without_side_effects()
}

/// What came of a question or a request for state: what to tell the worker.
type DownReply = (Down, Vec<u8>);

/// One turn while it runs elsewhere.
struct RemoteRun<'a> {
    agent: &'a WorkerAgent,
    bus: &'a Bus,
    id: String,
    life: RemoteTurn,
    channel: Channel,
    /// The numbers of its copies in the pool's queue.
    queued: Vec<u64>,
    waiting: Option<WaitingCount<'a>>,
    steer: mpsc::Sender<TurnInput>,
    /// Messages that the worker's agent has not taken so far.
    steers_sent: Vec<(u64, TurnInput)>,
    /// Questions and requests that are open.
    open: FuturesUnordered<BoxFuture<'static, Option<DownReply>>>,
    withdrawn: HashMap<u64, CancellationToken>,
    files: usize,
    /// What is asked instead of a turn, and the answer.
    preference: Option<PreferenceRequest>,
    preferred: Option<PreferenceAnswer>,
}

impl RemoteRun<'_> {
    async fn drive(
        &mut self,
        turn: &Turn,
        mut inbox: mpsc::Receiver<FromWorker>,
        mut steers: mpsc::Receiver<TurnInput>,
    ) -> TurnEnd {
        let mut stopping = false;
        let mut next_steer = 0;
        loop {
            if let Some(end) = self.steps(turn).await {
                return end;
            }
            self.flush().await;
            let now = Instant::now();
            let deadline = self
                .channel
                .deadline()
                .into_iter()
                .fold(self.life.deadline(now), Instant::min);
            tokio::select! {
                biased;
                () = turn.cancel.cancelled(), if !stopping => {
                    stopping = true;
                    if self.life.runner().is_none() {
                        self.withdraw();
                        return TurnEnd::Cancelled { confirmed: true };
                    }
                    self.tell(&Down::Stop, &[]);
                }
                Some(message) = inbox.recv() => {
                    if let Some(end) = self.handle(turn, message).await {
                        self.flush().await;
                        return end;
                    }
                }
                Some(reply) = self.open.next(), if !self.open.is_empty() => {
                    if let Some((down, blob)) = reply {
                        self.tell(&down, &blob);
                    }
                }
                Some(input) = steers.recv() => {
                    self.tell(&Down::Steer(next_steer, Box::new(input.clone())), &[]);
                    self.steers_sent.push((next_steer, input));
                    next_steer += 1;
                }
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
        }
    }

    /// Does what is due; returns the end if that is one.
    async fn steps(&mut self, turn: &Turn) -> Option<TurnEnd> {
        let pool = &self.agent.settings.pool;
        loop {
            let now = Instant::now();
            let step = self
                .agent
                .hub
                .with_roster(|roster| self.life.step(pool, roster, now))?;
            match step {
                RemoteStep::Offer(worker) => {
                    let offer = encode(&self.agent.hub.head(&self.id, MessageKind::Offer), &[]);
                    let subject = self.agent.hub.names.worker(&worker);
                    if self.bus.publish(subject, offer).await.is_err() {
                        self.life.offer_failed(Instant::now());
                    }
                }
                RemoteStep::Enqueue => {
                    if let Err(error) = self.enqueue().await {
                        tracing::debug!(%error, pool, "a turn could not be queued for a worker; trying again");
                        self.agent.hub.forget_queue(pool).await;
                        self.life.offer_failed(Instant::now());
                    }
                }
                RemoteStep::Notice => {
                    tracing::warn!(pool, "no worker is there; a turn waits");
                    let notice =
                        "No worker is there to do this at the moment. I will go on when one is back.";
                    turn.events.emit(AgentEvent::Notice(notice.to_owned())).await;
                }
                RemoteStep::Expired => {
                    self.withdraw();
                    return Some(TurnEnd::Failed(unavailable("no worker took the turn in time")));
                }
                RemoteStep::Lost => {
                    self.tell(&Down::Stop, &[]);
                    self.flush().await;
                    return Some(TurnEnd::Failed(Failure::new(
                        FailureClass::Crashed,
                        "The worker was lost while working on this and did not finish. Please ask again.",
                        "the worker is gone",
                    )));
                }
            }
        }
    }

    async fn enqueue(&mut self) -> Result<(), NatsError> {
        if !self.bus.is_connected() {
            return Err(NatsError::Timeout);
        }
        let offer = encode(&self.agent.hub.head(&self.id, MessageKind::Offer), &[]);
        let queue = self.agent.hub.queue(&self.agent.settings.pool).await?;
        self.queued.push(queue.put(offer).await?);
        Ok(())
    }

    /// Takes a turn that nobody has begun out of the queue. Whoever has taken it from there is refused.
    fn withdraw(&mut self) {
        self.agent.hub.remove(&self.id);
        self.remove_copies();
    }

    fn remove_copies(&mut self) {
        let copies = std::mem::take(&mut self.queued);
        if copies.is_empty() {
            return;
        }
        let (hub, pool) = (Arc::clone(&self.agent.hub), self.agent.settings.pool.clone());
        tokio::spawn(async move {
            if let Ok(queue) = hub.queue(&pool).await {
                for number in copies {
                    queue.remove(number).await;
                }
            }
        });
    }

    fn tell(&mut self, down: &Down, blob: &[u8]) {
        self.channel.send(&encode(down, blob));
    }

    async fn flush(&mut self) {
        let Some(worker) = self.life.runner() else { return };
        let subject = self.agent.hub.names.worker(worker);
        while let Some(packet) = self.channel.packet(Instant::now()) {
            let bytes = encode_packet(&self.id, &self.agent.hub.id, &packet);
            if self.bus.publish(subject.clone(), bytes).await.is_err() {
                return;
            }
        }
    }

    async fn handle(&mut self, turn: &Turn, (head, blob, reply): FromWorker) -> Option<TurnEnd> {
        let Head { from, kind, .. } = head;
        if matches!(kind, MessageKind::Begin) {
            let is_new = self.life.runner().is_none();
            let go = self.life.begin(&from, Instant::now());
            if go && is_new {
                self.begun(turn, &from).await;
            }
            let answer = self
                .agent
                .hub
                .head(&self.id, if go { MessageKind::Go } else { MessageKind::No });
            if let Some(reply) = reply {
                let _ = self.bus.publish(reply, encode(&answer, &[])).await;
            }
            return None;
        }
        if !self.life.heard(&from) {
            return None;
        }
        let Ok(messages) = self.channel.receive(packet(kind, &blob)?, Instant::now()) else {
            self.tell(&Down::Stop, &[]);
            let failure = Failure::new(
                FailureClass::Protocol,
                "The worker sent something too large.",
                "a message of the worker was too large",
            );
            return Some(TurnEnd::Failed(failure));
        };
        for message in messages {
            let Some((up, blob)) = decode::<Up>(&message) else {
                tracing::warn!("a worker of another version sent something unknown; it was ignored");
                continue;
            };
            if let Some(end) = self.take(turn, up, blob).await {
                return Some(end);
            }
        }
        None
    }

    /// A worker begins the turn: from here on a crash leaves it interrupted.
    async fn begun(&mut self, turn: &Turn, worker: &str) {
        self.waiting = None;
        // The worker takes its own copy out of the queue.
        if self.queued.len() > 1 {
            self.remove_copies();
        }
        let state = Some(self.agent.latest_state(turn, worker).await);
        // Only now is it sure that the server was reached, and what it takes.
        self.channel = Channel::new(self.agent.hub.piece());
        if self.preference.is_none() {
            turn.events.mark_started();
        }
        {
            let mut sessions = self.agent.sessions();
            sessions.last.insert(turn.session.clone(), worker.to_owned());
            let running = (worker.to_owned(), self.steer.clone());
            sessions.running.insert(turn.session.clone(), running);
        }
        let mut input = turn.input.clone();
        let mut missing = Vec::new();
        for (at, attachment) in input.attachments.iter_mut().enumerate() {
            let MediaLocation::File(path) = &attachment.location else {
                continue;
            };
            match read_bounded(path).await {
                Some(content) => self.tell(&Down::File(at), &content),
                None => missing.push(attachment.name.clone()),
            }
        }
        for name in missing {
            input
                .notes
                .push(format!("The file {name} could not be passed to you."));
        }
        let (session, input) = (turn.session.as_str().to_owned(), Box::new(input));
        let permission = turn.approver.permission();
        let start = match self.preference.clone() {
            None => Down::Start {
                session,
                input,
                permission,
                state,
            },
            Some(request) => Down::Prefer {
                session,
                input,
                permission,
                request,
                state,
            },
        };
        self.tell(&start, &[]);
    }

    async fn take(&mut self, turn: &Turn, up: Up, blob: &[u8]) -> Option<TurnEnd> {
        match up {
            Up::Event(AgentEvent::Media(mut media)) => {
                if let MediaLocation::File(path) = &media.location {
                    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                    let name = name.unwrap_or_else(|| "file".to_owned());
                    self.files += 1;
                    let kept = self.agent.files.join(format!("{}-{}", self.id, self.files));
                    media.name.get_or_insert(name);
                    if let Err(error) = keep(&self.agent.files, &kept, blob).await {
                        tracing::warn!(%error, "a worker's file could not be kept");
                    }
                    media.location = MediaLocation::File(kept);
                }
                turn.events.emit(AgentEvent::Media(media)).await;
            }
            Up::Event(event) => turn.events.emit(event).await,
            Up::Question(ask, question) => {
                let (answer, answered) = oneshot::channel();
                let withdrawn = CancellationToken::new();
                self.withdrawn.insert(ask, withdrawn.clone());
                let signal = AgentSignal::Question(question, answer);
                let _ = turn.events.signals.send(Box::new(signal)).await;
                self.open.push(Box::pin(async move {
                    tokio::select! {
                        () = withdrawn.cancelled() => None,
                        answer = answered => {
                            Some((Down::Answer(ask, answer.unwrap_or(PromptAnswer::Cancelled)), Vec::new()))
                        }
                    }
                }));
            }
            Up::Withdraw(ask) => {
                if let Some(withdrawn) = self.withdrawn.remove(&ask) {
                    withdrawn.cancel();
                }
            }
            Up::SaveState => turn.events.save_state(blob.to_vec()).await,
            Up::LoadState(ask) => {
                let events = turn.events.clone();
                self.open.push(Box::pin(async move {
                    let state = events.load_state().await;
                    Some((Down::State(ask, state.is_some()), state.unwrap_or_default()))
                }));
            }
            Up::Steered(steer, taken) => {
                if taken {
                    self.steers_sent.retain(|(sent, _)| *sent != steer);
                }
            }
            Up::Preferred(answer) => self.preferred = Some(*answer),
            Up::End(end) => return Some(end),
        }
        None
    }
}

/// The content of a file, unless it is too large or unreadable.
pub(super) async fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let length = tokio::fs::metadata(path).await.ok()?.len();
    if usize::try_from(length).is_ok_and(|length| length < MAX_MESSAGE / 2) {
        return tokio::fs::read(path).await.ok();
    }
    None
}

/// Writes a file, and removes old ones.
async fn keep(directory: &Path, path: &Path, content: &[u8]) -> std::io::Result<()> {
    tokio::fs::create_dir_all(directory).await?;
    let mut entries = tokio::fs::read_dir(directory).await?;
    while let Some(entry) = entries.next_entry().await? {
        let age = entry.metadata().await.and_then(|meta| meta.modified());
        if age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > FILE_AGE)) {
            let _ = tokio::fs::remove_file(entry.path()).await;
        }
    }
    tokio::fs::write(path, content).await
}
