//! The event loop: one task that waits for whatever happens next, routes it to the part it concerns, and carries the parts'
//! effects to the others.
//!
//! It owns the parts and decides nothing that a part can decide. It never waits for a turn, a commit or an op; what is to be
//! written is submitted together, and while the journal is behind, no deliveries are taken. Interrupts have a channel of their
//! own and come first. What each event means is in [`routing`](super::routing).

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::access::AccessControl;
use super::agents::AgentRegistry;
use super::approvals::Approvals;
use super::clock::Clock;
use super::effects::Effects;
use super::handle::{HandleRequest, MAX_REQUESTS};
use super::inbound::Inbound;
use super::journal_io::JournalIo;
use super::lifecycle::{ABORT_TIMEOUT, CLOSE_TIMEOUT, LAST_WRITES_TIMEOUT, Lifecycle, Step};
use super::mailbox::Mailbox;
use super::metrics::CommitMetrics;
use super::outbox::{MAX_IN_FLIGHT, Outbox, RetrySettings};
use super::scheduler::Scheduler;
use super::slash_commands::SlashCommands;
use super::sleep::{SleepEvent, SleepStep, SleepTask, Sleeper};
use super::transport::{
    Delivery, InboundReceiver, InterruptRequest, LinkStatus, RelayTransport, inbound_channel,
};
use super::turn_task::TurnRequest;
use super::turns::{Finished, Turns};
use crate::adapter::prompt::Approvers;
use crate::adapter::stream::StreamSettings;
use crate::adapter::{Adapters, ChatMemory, RateLimiter, ThreadRegistry};
use crate::config::{BusyMode, Settings};
use crate::link::{End, SendResult};
use crate::net::media::MediaClient;
use crate::session::{OutstandingWork, SessionLimits, StopReason, TurnId};
use crate::skill::SkillStore;
use crate::store::{Batch, Handovers, Health, OpSeq, Opened};
use crate::wire::{OpId, OpIds};

/// Maximum length of one turn's answer, in bytes.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The file in the state directory that says which deliveries no agent has been given.
const HANDOVERS: &str = "handovers";
/// Threads of the connector's own that are remembered.
const MAX_THREADS: usize = 1024;
/// Requests of turns that may wait for the loop.
const MAX_TURN_REQUESTS: usize = 1024;
/// Results taken together.
const RESULT_BATCH: usize = 256;
/// How long to wait before reading again what the journal could not read.
const READ_RETRY: Duration = Duration::from_millis(200);
/// The longest time without a look around.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Why the relay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to.
    Shutdown,
    /// It was idle, and the connector buffers until the next start.
    Slept,
    /// The connector has revoked this gateway.
    Revoked {
        /// The connector's reason.
        reason: String,
    },
    /// The journal's writer is gone.
    JournalLost,
}

/// The settings that routing itself needs.
pub(super) struct LoopSettings {
    pub(super) busy_mode: BusyMode,
    pub(super) grace: Duration,
    pub(super) max_output: usize,
    pub(super) approvers: Approvers,
    pub(super) anyone_in_group: bool,
    pub(super) interrupted_notice: Option<String>,
    pub(super) overflow_notice: Option<String>,
    pub(super) undelivered_notice: Option<String>,
    /// Where the answers of deliveries go whose session has no chat.
    pub(super) deliver: Option<String>,
    /// Whether other instances may run turns of the same sessions.
    pub(super) has_other_instances: bool,
    /// The identities that are announced: platform and bot id.
    pub(super) identities: Vec<(String, String)>,
    pub(super) stream: Arc<StreamSettings>,
}

impl LoopSettings {
    fn new(settings: &Settings) -> Self {
        let sessions = &settings.sessions;
        let notice = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let identities = settings.connector.identities.iter();
        Self {
            busy_mode: sessions.busy_mode,
            grace: Duration::from_secs(sessions.grace_secs),
            max_output: MAX_OUTPUT_BYTES,
            approvers: settings.prompts.approvers,
            anyone_in_group: settings.prompts.anyone_in_group,
            interrupted_notice: notice(&sessions.interrupted_notice),
            overflow_notice: notice(&sessions.overflow_notice),
            undelivered_notice: notice(&sessions.undelivered_notice),
            deliver: (settings.serve.receiver.as_ref()).and_then(|receiver| receiver.deliver.clone()),
            has_other_instances: settings.direct.telegram.is_none(),
            identities: identities
                .map(|identity| (identity.platform.clone(), identity.bot_id.clone()))
                .collect(),
            stream: Arc::new(settings.streaming.clone()),
        }
    }
}

/// The parts of a running relay.
pub(super) struct EventLoop {
    pub(super) clock: Clock,
    pub(super) settings: LoopSettings,
    pub(super) transport: Arc<dyn RelayTransport>,
    pub(super) results: mpsc::Sender<(OpId, SendResult)>,
    pub(super) link: LinkStatus,
    /// Since when the link has its state, in Unix milliseconds.
    pub(super) link_since_ms: i64,
    /// One adapter for each identity, rebuilt at every handshake.
    pub(super) adapters: Adapters,
    pub(super) chats: ChatMemory,
    pub(super) threads: ThreadRegistry,
    /// Downloads and uploads attachments; none over an embedder's own transport.
    pub(super) media: Option<Arc<MediaClient>>,
    pub(super) access: AccessControl,
    pub(super) inbound: Inbound,
    pub(super) turns: Turns,
    pub(super) outbox: Outbox,
    pub(super) approvals: Approvals,
    pub(super) commands: SlashCommands,
    pub(super) agents: AgentRegistry,
    pub(super) scheduler: Scheduler,
    pub(super) mailbox: Mailbox,
    /// Which deliveries no agent has been given yet.
    pub(super) handovers: Handovers,
    /// Where the outputs of jobs are written.
    pub(super) state_dir: PathBuf,
    /// Where the skills of jobs are.
    pub(super) skills: Box<dyn SkillStore>,
    pub(super) journal: JournalIo,
    pub(super) lifecycle: Lifecycle,
    /// The way to sleep; none for a relay that stays awake.
    pub(super) sleeper: Option<Sleeper>,
    pub(super) commits: CommitMetrics,
    pub(super) effects: Effects,
    /// When what the journal could not read is read again.
    pub(super) read_again_at: Option<Duration>,
    /// Deliveries wait to be taken.
    pub(super) deliveries_waiting: bool,
}

/// The channels that the loop reads.
pub(super) struct Channels {
    pub(super) batches: mpsc::Receiver<Batch>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) requests: mpsc::Receiver<HandleRequest>,
    pub(super) turn_requests: mpsc::Receiver<(TurnId, TurnRequest)>,
    pub(super) results: mpsc::Receiver<(OpId, SendResult)>,
    /// From where on what an earlier run left is to be read.
    pub(super) recovery: Cursor,
}

/// How far what an earlier run left has been read; each kind is done when it is empty.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    pub(super) last_op: Option<OpSeq>,
    /// Messages that wait.
    pub(super) waiting: u64,
}

/// What woke the loop.
enum Wakeup {
    Shutdown,
    Interrupt(InterruptRequest),
    IdleAnswered,
    Sleep(SleepEvent),
    Committed(Option<Batch>),
    Submitted,
    Results,
    TurnRequest(Option<(TurnId, TurnRequest)>),
    TurnFinished(Box<Finished>),
    Arms,
    Link,
    Health,
    Request(Option<HandleRequest>),
    Deliveries(Option<Vec<Delivery>>),
    Deadline,
}

impl EventLoop {
    /// The parts, and the channels that they are reached by.
    pub(super) fn new(
        settings: &Settings,
        agents: AgentRegistry,
        transport: Arc<dyn RelayTransport>,
        opened: Opened,
        requests: mpsc::Receiver<HandleRequest>,
    ) -> (Self, Channels) {
        let (result_sender, results) = mpsc::channel(MAX_IN_FLIGHT);
        let (turn_sender, turn_requests) = mpsc::channel(MAX_TURN_REQUESTS);
        let clock = Clock::start();
        let mut ids = OpIds::new(clock.seed());
        let limits = SessionLimits {
            running: settings.sessions.max_concurrent_turns,
            queued: settings.sessions.max_queue,
            waiting: settings.sessions.max_waiting,
        };
        let loop_settings = LoopSettings::new(settings);
        let link = LinkStatus::default();
        let platforms = settings.connector.identities.iter();
        let mut event_loop = Self {
            adapters: adapters(&loop_settings, &link),
            chats: ChatMemory::new(settings.journal.chat_memory),
            threads: ThreadRegistry::new(MAX_THREADS),
            access: AccessControl::new(
                settings,
                &opened.recovered.access,
                &opened.recovered.usage,
                clock.unix_ms(),
            ),
            inbound: Inbound::new(settings),
            turns: Turns::new(limits, turn_sender, loop_settings.interrupted_notice.clone()),
            approvals: Approvals::new(
                &settings.prompts,
                clock.seed(),
                ids.split(),
                settings.direct.peer(),
            ),
            outbox: Outbox::new(
                RateLimiter::new(&settings.budget),
                ids,
                RetrySettings::new(&settings.sessions),
                settings.direct.peer(),
            ),
            commands: SlashCommands::new(
                settings.sessions.commands.clone(),
                settings.discord.commands.clone(),
                platforms.map(|identity| identity.platform.as_str()),
                settings.direct.telegram.is_some(),
            ),
            agents,
            scheduler: Scheduler::new(&settings.cron, None, clock.seed()),
            mailbox: Mailbox::default(),
            handovers: Handovers::open(&settings.state_dir.join(HANDOVERS)),
            state_dir: settings.state_dir.clone(),
            skills: settings.skills.store_in(&settings.state_dir),
            journal: JournalIo::new(opened.journal, opened.health.clone()),
            lifecycle: Lifecycle::new(settings),
            settings: loop_settings,
            link_since_ms: clock.unix_ms(),
            clock,
            transport,
            results: result_sender,
            link,
            media: None,
            sleeper: None,
            commits: CommitMetrics::default(),
            effects: Effects::default(),
            read_again_at: None,
            deliveries_waiting: false,
        };
        // Before the turns of an earlier run begin again.
        Self::read_contexts(&mut event_loop.effects);
        let recovery = event_loop.recover(&opened.recovered);
        let channels = Channels {
            batches: opened.batches,
            health: opened.health,
            requests,
            turn_requests,
            results,
            recovery,
        };
        (event_loop, channels)
    }

    /// Serves until `shutdown` resolves, the gateway is revoked, or the journal is lost.
    pub(super) async fn run(
        mut self,
        mut channels: Channels,
        shutdown: impl Future<Output = ()>,
    ) -> ExitReason {
        let mut link = self.transport.status();
        let (sender, mut inbound) = inbound_channel();
        let recovery = std::mem::take(&mut channels.recovery);
        self.recover_rest(recovery, &mut channels.batches).await;
        self.scheduler.start(self.clock.now(), &mut self.effects);
        self.offer_commands();
        self.transport.connect(sender);
        let mut shutdown = std::pin::pin!(shutdown);
        let transport = Arc::clone(&self.transport);
        let mut idle: Option<Pin<Box<dyn Future<Output = bool> + Send + '_>>> = None;
        let mut sleep_task: Option<SleepTask<'_>> = None;
        let mut results = Vec::with_capacity(RESULT_BATCH);
        let reason = loop {
            self.finish_inline(&mut channels.turn_requests);
            self.deliveries_waiting = !inbound.deliveries.is_empty();
            self.advance();
            if let Some(reason) = self.exit_reason() {
                break reason;
            }
            if let Some(task) = self
                .sleeper
                .as_mut()
                .and_then(|sleeper| sleeper.next_task(&*transport))
            {
                sleep_task = Some(task);
            }
            let deadline = self.deadline();
            let serving = self.lifecycle.is_serving();
            let takes_deliveries = self.takes_deliveries();
            let wakeup = tokio::select! {
                biased;
                () = &mut shutdown, if serving => Wakeup::Shutdown,
                // Cancel-safe, as all of these: nothing is taken out unless the branch is chosen.
                Some(interrupt) = inbound.interrupts.recv() => Wakeup::Interrupt(interrupt),
                _ = maybe(&mut idle) => Wakeup::IdleAnswered,
                event = maybe(&mut sleep_task) => Wakeup::Sleep(event),
                batch = channels.batches.recv() => Wakeup::Committed(batch),
                () = self.journal.submitted() => Wakeup::Submitted,
                _ = channels.results.recv_many(&mut results, RESULT_BATCH) => Wakeup::Results,
                request = channels.turn_requests.recv() => Wakeup::TurnRequest(request),
                () = self.scheduler.arms_changed() => Wakeup::Arms,
                finished = self.turns.next_finished() => Wakeup::TurnFinished(Box::new(finished)),
                Ok(()) = link.changed() => Wakeup::Link,
                Ok(()) = channels.health.changed() => Wakeup::Health,
                request = channels.requests.recv() => Wakeup::Request(request),
                batch = inbound.deliveries.recv(), if takes_deliveries => Wakeup::Deliveries(batch),
                () = tokio::time::sleep_until(deadline) => Wakeup::Deadline,
            };
            match wakeup {
                Wakeup::Shutdown => {
                    // Whether it would have slept no longer matters.
                    sleep_task = None;
                    let within = self.begin_shutdown();
                    idle = Some(transport.go_idle(within));
                }
                Wakeup::Interrupt(interrupt) => self.handle_interrupt(interrupt),
                Wakeup::IdleAnswered => {
                    self.lifecycle.idle_answered();
                    idle = None;
                }
                Wakeup::Sleep(event) => {
                    sleep_task = None;
                    self.deliveries_waiting = !inbound.deliveries.is_empty();
                    self.handle_sleep(event);
                }
                Wakeup::Committed(Some(batch)) => self.handle_batch(batch),
                Wakeup::Committed(None) => self.journal.lost(),
                Wakeup::Results => {
                    for (op, result) in results.drain(..) {
                        self.handle_result(op, result);
                    }
                }
                Wakeup::TurnRequest(Some((turn, request))) => self.handle_turn_request(turn, request),
                Wakeup::TurnFinished(finished) => {
                    self.take_turn_requests(&mut channels.turn_requests);
                    self.finish_turn(*finished);
                }
                Wakeup::Arms => self.scheduler.note_arms(&mut self.effects),
                Wakeup::Link => {
                    let status = link.borrow_and_update().clone();
                    self.handle_link(status);
                }
                Wakeup::Health => {
                    let health = channels.health.borrow_and_update().clone();
                    self.handle_health(health);
                }
                Wakeup::Request(Some(request)) => self.handle_request(request),
                Wakeup::Deliveries(Some(batch)) => self.handle_deliveries(batch),
                Wakeup::Deliveries(None) => self.lifecycle.deliveries_closed(),
                Wakeup::Submitted | Wakeup::TurnRequest(None) | Wakeup::Request(None) | Wakeup::Deadline => {}
            }
            self.drain(&mut channels, &mut inbound);
        };
        self.shut_down(&mut channels).await;
        reason
    }

    /// Takes what has come beside that which woke the loop, so that one round of writes serves all of it. Each channel is
    /// bounded, and so is what a round takes.
    fn drain(&mut self, channels: &mut Channels, inbound: &mut InboundReceiver) {
        while let Ok(interrupt) = inbound.interrupts.try_recv() {
            self.handle_interrupt(interrupt);
        }
        while let Ok(batch) = channels.batches.try_recv() {
            self.handle_batch(batch);
        }
        for _ in 0..MAX_IN_FLIGHT {
            let Ok((op, result)) = channels.results.try_recv() else {
                break;
            };
            self.handle_result(op, result);
        }
        self.take_turn_requests(&mut channels.turn_requests);
        // However busy the relay is, whoever asks for its status is answered.
        for _ in 0..MAX_REQUESTS {
            let Ok(request) = channels.requests.try_recv() else {
                break;
            };
            self.handle_request(request);
        }
        while let Some(finished) = self.turns.try_finished() {
            self.take_turn_requests(&mut channels.turn_requests);
            self.finish_turn(finished);
        }
        while self.takes_deliveries()
            && let Ok(batch) = inbound.deliveries.try_recv()
        {
            self.handle_deliveries(batch);
        }
    }

    /// Takes the requests of turns. A turn requests before it ends, so this is done before an end is taken.
    fn take_turn_requests(&mut self, requests: &mut mpsc::Receiver<(TurnId, TurnRequest)>) {
        for _ in 0..2 * MAX_TURN_REQUESTS {
            let Ok((turn, request)) = requests.try_recv() else {
                return;
            };
            self.handle_turn_request(turn, request);
        }
    }

    /// Ends the turns that ended inline.
    fn finish_inline(&mut self, requests: &mut mpsc::Receiver<(TurnId, TurnRequest)>) {
        let finished = self.turns.take_inline();
        if !finished.is_empty() {
            self.take_turn_requests(requests);
            for finished in finished {
                self.finish_turn(finished);
            }
        }
    }

    /// Everything that may go on goes on: rows are read, turns started, ops handed to the transport, writes submitted.
    fn advance(&mut self) {
        let now = self.clock.now();
        self.step_lifecycle(now.mono);
        if self.lifecycle.is_serving() {
            self.turns.set_paused(self.outbox.is_full());
        }
        if self.read_again_at.is_some_and(|at| at <= now.mono) {
            self.read_again_at = None;
            self.turns.read_again(&mut self.effects);
        }
        if self.lifecycle.is_reconnect_due(now.mono, self.outbox.in_flight()) {
            self.transport.reconnect();
        }
        self.approvals.expire(&self.adapters, now.mono, &mut self.effects);
        self.step_jobs();
        self.turns.refill(&mut self.effects);
        self.turns.start_waiting(now.unix_ms, &mut self.effects);
        self.outbox.release(now.mono);
        self.run_effects();
        if self.is_live() {
            self.outbox.hand_out(now, &mut self.effects);
        }
        let transport = &self.transport;
        self.outbox
            .mark_sent(now.mono, false, |op| transport.has_left(op), &mut self.effects);
        self.run_effects();
        if self.turns.has_unread() {
            self.read_again_at.get_or_insert(now.mono + READ_RETRY);
        }
        self.step_sleep();
        self.journal.submit(&mut self.effects);
    }

    fn step_lifecycle(&mut self, now: Duration) {
        // Counting what is uncommitted costs a look at each entry, which only a shutdown needs.
        if self.lifecycle.is_serving() {
            return;
        }
        let committed = self.journal.uncommitted() == 0 && self.turns.ending() == 0;
        let sent = !self.is_live() || !self.outbox.is_busy();
        let flushed = committed && sent && !self.deliveries_waiting;
        if self.lifecycle.step(now, self.turns.is_empty(), flushed) == Step::StopTurns {
            for turn in self.turns.stop_all(StopReason::Shutdown) {
                self.approvals
                    .withdraw_turn(turn, &self.adapters, &mut self.effects);
            }
        }
    }

    fn step_sleep(&mut self) {
        if self.sleeper.is_none() || !self.lifecycle.is_serving() {
            return;
        }
        let (now, live, work) = (self.clock.now(), self.is_live(), self.outstanding());
        if let Some(sleeper) = &mut self.sleeper
            && sleeper.step(now, live, &work) == SleepStep::Wake
        {
            self.transport.wake();
        }
    }

    fn handle_sleep(&mut self, event: SleepEvent) {
        let (now, work) = (self.clock.now(), self.outstanding());
        let Some(sleeper) = self.sleeper.as_mut().filter(|_| self.lifecycle.is_serving()) else {
            return;
        };
        match sleeper.task_ended(event, now, &work) {
            SleepStep::Wake => self.transport.wake(),
            SleepStep::CallOff if self.is_live() => self.lifecycle.reconnect_now(now.mono),
            SleepStep::CallOff | SleepStep::Nothing => {}
        }
    }

    /// Everything that is still to be done, in whichever part it is: what sleep and drain go by. Every field is named, so
    /// that a new part cannot be forgotten.
    fn outstanding(&mut self) -> OutstandingWork {
        let Self {
            turns,
            outbox,
            approvals,
            agents,
            scheduler,
            journal,
            lifecycle,
            clock,
            effects,
            deliveries_waiting,
            access: _,
            inbound: _,
            commands: _,
            chats: _,
            threads: _,
            adapters: _,
            media: _,
            sleeper: _,
            commits: _,
            mailbox: _,
            handovers: _,
            state_dir: _,
            skills: _,
            settings: _,
            transport: _,
            results: _,
            link: _,
            link_since_ms: _,
            read_again_at: _,
        } = self;
        OutstandingWork {
            turns: turns.outstanding() + scheduler.outstanding(),
            queued: turns.sessions().active() + usize::from(turns.sessions().has_elsewhere()),
            ops: outbox.outstanding(),
            uncommitted: journal.outstanding()
                + agents.forgetting()
                + effects.commands()
                + usize::from(*deliveries_waiting),
            prompts: approvals.open(),
            unseen: journal.is_unwell() || lifecycle.is_reconnecting(),
            next_due: scheduler.next_due(clock.now()),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.link.live.is_some()
    }

    fn takes_deliveries(&self) -> bool {
        self.journal.has_room() && self.lifecycle.takes_deliveries()
    }

    fn deadline(&self) -> Instant {
        let moment = self.clock.now();
        let now = moment.mono;
        let serving_sleeper = self.sleeper.as_ref().filter(|_| self.lifecycle.is_serving());
        let due = [
            self.read_again_at,
            self.outbox.deadline(),
            self.approvals.deadline(),
            self.scheduler.deadline(moment),
            self.lifecycle.deadline(now),
            serving_sleeper.and_then(|sleeper| sleeper.deadline(now, self.is_live())),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now + MAX_WAIT);
        self.clock.instant(due.min(now + MAX_WAIT))
    }

    fn exit_reason(&self) -> Option<ExitReason> {
        if self.journal.is_lost() {
            return Some(ExitReason::JournalLost);
        }
        if self.lifecycle.is_over() {
            return Some(ExitReason::Shutdown);
        }
        if self.sleeper.as_ref().is_some_and(Sleeper::is_over) {
            return Some(ExitReason::Slept);
        }
        match &self.link.ended {
            Some(End::Revoked { reason }) if self.lifecycle.exits_when_revoked() => {
                Some(ExitReason::Revoked {
                    reason: reason.clone(),
                })
            }
            _ => None,
        }
    }

    /// Shutdown begins; returns how long the connector may take to confirm that it buffers.
    fn begin_shutdown(&mut self) -> Duration {
        self.turns.set_paused(true);
        tracing::info!(
            running = self.turns.sessions().running(),
            unsent = self.outbox.durable(),
            "shutting down"
        );
        self.lifecycle.begin_shutdown(self.clock.mono())
    }

    /// Closes everything, in order: the connection, the turns, the agents, the journal.
    async fn shut_down(&mut self, channels: &mut Channels) {
        self.turns.abort_all(Duration::ZERO).await;
        self.transport.disconnect(CLOSE_TIMEOUT).await;
        while let Ok((op, result)) = channels.results.try_recv() {
            self.handle_result(op, result);
        }
        // Aborting only asks: a turn that releases a run has it stopped, for which its agent must still be there.
        self.turns.abort_all(ABORT_TIMEOUT).await;
        if timeout(CLOSE_TIMEOUT, self.agents.shutdown()).await.is_err() {
            tracing::warn!("the agents did not shut down in time");
        }
        let transport = &self.transport;
        let now = self.clock.mono();
        self.outbox
            .mark_sent(now, true, |op| transport.has_left(op), &mut self.effects);
        let mut closing = std::pin::pin!(self.journal.close(&mut self.effects, LAST_WRITES_TIMEOUT));
        let closed = loop {
            tokio::select! {
                closed = &mut closing => break closed,
                batch = channels.batches.recv() => if batch.is_none() { break closing.await },
            }
        };
        self.turns.abort_all(CLOSE_TIMEOUT).await;
        let written = async { while self.scheduler.writes.join_next().await.is_some() {} };
        if timeout(CLOSE_TIMEOUT, written).await.is_err() {
            tracing::warn!("outputs of jobs were not written in time");
        }
        if let Err(error) = closed {
            tracing::error!(%error, "the journal was not closed cleanly");
        }
    }
}

/// The adapters of the identities, as the connector described their platforms.
pub(super) fn adapters(settings: &LoopSettings, link: &LinkStatus) -> Adapters {
    let owned = |(platform, descriptor): (&str, &Arc<_>)| (platform.to_owned(), Arc::clone(descriptor));
    let primary = link.descriptors.primary();
    let primary = primary.map(|descriptor| (descriptor.platform.as_str(), descriptor));
    let descriptors = primary.into_iter().chain(link.descriptors.iter()).map(owned);
    let identities = settings.identities.iter().cloned();
    Adapters::new(identities, descriptors, Arc::clone(&settings.stream))
}

async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
