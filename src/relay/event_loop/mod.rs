//! The event loop: one task that waits for whatever happens next, routes it to the part it concerns, and carries the parts'
//! effects to the others.
//!
//! It owns the parts and decides nothing that a part can decide. It waits for no turn, no commit, no op and no file; what is to
//! be written is submitted together, and while the journal is behind, no frames are taken. Interrupts have a channel of their
//! own and come first. After every event the effects of the parts are carried to the others ([`EventLoop::handle`]). What each
//! event means is in [`walk`](super::walk).

mod assembly;
mod rest;

pub(super) use assembly::{Assembly, Channels, Cursor, LoopSettings, adapters};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::clock::LoopClock;
use super::effects::{Effects, Listing};
use super::handle::{HandleRequest, MAX_REQUESTS};
use super::parts::access::AccessControl;
use super::parts::agents::AgentRegistry;
use super::parts::approvals::Approvals;
use super::parts::changes::Changes;
use super::parts::chats::Chats;
use super::parts::conversations::Conversations;
use super::parts::group_threads::GroupThreads;
use super::parts::handed::Handed;
use super::parts::inbound::Inbound;
use super::parts::job_files::{FileDone, JobFiles};
use super::parts::journal_io::JournalIo;
use super::parts::lifecycle::Lifecycle;
use super::parts::link::RelayLink;
use super::parts::listings::Listings;
use super::parts::messages::Messages;
use super::parts::outbox::{MAX_IN_FLIGHT, Outbox};
use super::parts::pickers::Pickers;
use super::parts::quiet::Quiet;
use super::parts::scheduler::Scheduler;
use super::parts::slash_commands::SlashCommands;
use super::parts::sleep::{SleepEvent, SleepTask, Sleeper};
use super::parts::turn_task::TurnRequest;
use super::parts::turns::{Finished, Turns};
use super::transport::{InboundFrame, InboundReceiver, InterruptRequest, LinkStatus, inbound_channel};
use super::voice::Voice;
use crate::adapter::Adapters;
use crate::agent::ListedSession;
use crate::agent::child::GroupNotes;
use crate::link::SendResult;
use crate::net::media::MediaClient;
use crate::session::TurnId;
use crate::store::{Batch, Health};
use crate::wire::OpId;

/// Messages that take a step together, so that its code stays in the processor's first-level cache. Seven is how many free blocks of a
/// size glibc keeps for a thread. Only speed depends on it.
pub const STEP_BATCH: usize = 7;
/// Requests of turns that may wait for the loop.
const MAX_TURN_REQUESTS: usize = 1024;
/// Maximum time between two rounds of the loop.
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

/// The parts of a running relay.
pub(super) struct EventLoop {
    pub(super) clock: LoopClock,
    pub(super) settings: LoopSettings,
    pub(super) link: RelayLink,
    /// One adapter for each identity, rebuilt at every handshake.
    pub(super) adapters: Adapters,
    pub(super) chats: Chats,
    /// Downloads and uploads attachments; none over an embedder's own transport.
    pub(super) media: Option<Arc<MediaClient>>,
    /// Transcribes recordings and speaks answers, as far as the settings name a way to.
    pub(super) voice: Voice,
    pub(super) access: AccessControl,
    pub(super) inbound: Inbound,
    pub(super) turns: Turns,
    turn_requests: mpsc::Receiver<(TurnId, TurnRequest)>,
    pub(super) outbox: Outbox,
    pub(super) approvals: Approvals,
    pub(super) quiet: Quiet,
    pub(super) changes: Changes,
    pub(super) messages: Messages,
    pub(super) commands: SlashCommands,
    pub(super) pickers: Pickers,
    pub(super) conversations: Conversations,
    pub(super) listings: Listings,
    pub(super) group_threads: GroupThreads,
    pub(super) agents: AgentRegistry,
    pub(super) scheduler: Scheduler,
    pub(super) job_files: JobFiles,
    pub(super) handed: Handed,
    /// Before the journal, which has the state directory's lock.
    group_notes: Option<GroupNotes>,
    pub(super) journal: JournalIo,
    pub(super) lifecycle: Lifecycle,
    /// The way to sleep; none for a relay that stays awake.
    pub(super) sleeper: Option<Sleeper>,
    pub(super) effects: Effects,
}

/// Something that happened.
enum Event {
    Shutdown,
    Interrupt(InterruptRequest),
    IdleAnswered,
    Sleep(SleepEvent),
    Committed(Option<Batch>),
    Submitted,
    Result(OpId, SendResult),
    TurnRequest(Option<(TurnId, TurnRequest)>),
    TurnFinished(Finished),
    File(FileDone),
    Listed(Listing, Vec<ListedSession>),
    Arms,
    Link(Box<LinkStatus>),
    Health(Health),
    Request(Option<HandleRequest>),
    Frames(Option<Vec<InboundFrame>>),
    Deadline,
}

impl EventLoop {
    /// Serves until `shutdown` resolves, the gateway is revoked, or the journal is lost.
    pub(super) async fn run(
        mut self: Box<Self>,
        mut channels: Channels,
        shutdown: impl Future<Output = ()>,
    ) -> ExitReason {
        let mut link = self.link.watch();
        let (sender, mut inbound) = inbound_channel();
        let recovery = std::mem::take(&mut channels.recovery);
        self.recover_rest(recovery, &mut channels.batches).await;
        self.clock.advance();
        self.scheduler.start(self.clock.now(), &mut self.effects);
        self.offer_commands();
        self.welcome_approved();
        let transport = Arc::clone(self.link.transport());
        transport.connect(sender);
        let mut shutdown = std::pin::pin!(shutdown);
        let mut idle: Option<Pin<Box<dyn Future<Output = bool> + Send + '_>>> = None;
        let mut sleep_task: Option<SleepTask<'_>> = None;
        let reason = loop {
            self.step_turns();
            self.inbound.set_waiting(!inbound.frames.is_empty());
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
            let takes_frames = self.takes_frames();
            let mut event = tokio::select! {
                biased;
                () = &mut shutdown, if serving => Event::Shutdown,
                // Cancel-safe, as all of these: nothing is taken out unless the branch is chosen.
                Some(interrupt) = inbound.interrupts.recv() => Event::Interrupt(interrupt),
                _ = maybe(&mut idle) => Event::IdleAnswered,
                event = maybe(&mut sleep_task) => Event::Sleep(event),
                batch = channels.batches.recv() => Event::Committed(batch),
                () = self.journal.submitted() => Event::Submitted,
                Some((op, result)) = channels.results.recv() => Event::Result(op, result),
                request = self.turn_requests.recv() => Event::TurnRequest(request),
                () = self.scheduler.arms_changed() => Event::Arms,
                finished = self.turns.next_finished() => Event::TurnFinished(finished),
                file = self.job_files.next_done() => Event::File(file),
                (listing, listed) = self.listings.next_list() => Event::Listed(listing, listed),
                Ok(()) = link.changed() => Event::Link(Box::new(link.borrow_and_update().clone())),
                Ok(()) = channels.health.changed() => Event::Health(channels.health.borrow_and_update().clone()),
                request = channels.requests.recv() => Event::Request(request),
                frames = inbound.frames.recv(), if takes_frames => Event::Frames(frames),
                () = tokio::time::sleep_until(deadline) => Event::Deadline,
            };
            self.clock.advance();
            if let Event::Committed(Some(batch)) = &mut event
                && self.acknowledge_batch(batch)
            {
                // The connector reads them while the turns begin.
                tokio::task::yield_now().await;
            }
            match &event {
                Event::Shutdown => {
                    // Whether it would have slept no longer matters.
                    sleep_task = None;
                    idle = Some(transport.go_idle(self.begin_shutdown()));
                }
                Event::IdleAnswered => idle = None,
                Event::Sleep(_) => {
                    sleep_task = None;
                    self.inbound.set_waiting(!inbound.frames.is_empty());
                }
                // A turn requests before it ends.
                Event::TurnFinished(_) => self.take_turn_requests(),
                Event::Frames(_) => self.take_link(&mut link),
                _ => {}
            }
            self.handle(event);
            self.drain(&mut channels, &mut inbound, &mut link);
        };
        self.shut_down(&mut channels).await;
        reason
    }

    /// Handles one event, and then what the parts ask of each other because of it.
    fn handle(&mut self, event: Event) {
        match event {
            Event::Interrupt(interrupt) => self.handle_interrupt(interrupt),
            Event::IdleAnswered => self.lifecycle.idle_answered(),
            Event::Sleep(event) => self.handle_sleep(event),
            Event::Committed(Some(batch)) => self.handle_batch(batch),
            Event::Committed(None) => self.journal.lost(),
            Event::Result(op, result) => self.handle_result(op, result),
            Event::TurnRequest(Some((turn, request))) => self.handle_turn_request(turn, request),
            Event::TurnFinished(finished) => self.finish_turn(finished),
            Event::File(FileDone::Prompt(turn, prompt)) => self.prompt_read(turn, prompt),
            Event::File(FileDone::Saved(saved)) => self.output_saved(saved),
            Event::Listed(listing, listed) => self.sessions_listed(listing, listed),
            Event::Arms => self.scheduler.note_arms(&mut self.effects),
            Event::Link(status) => self.handle_link(*status),
            Event::Health(health) => self.handle_health(health),
            Event::Request(Some(request)) => self.handle_request(request),
            Event::Frames(Some(frames)) => self.handle_frames(frames),
            Event::Frames(None) => self.lifecycle.frames_closed(),
            Event::Shutdown
            | Event::Submitted
            | Event::TurnRequest(None)
            | Event::Request(None)
            | Event::Deadline => {}
        }
        self.run_effects();
    }

    /// Handles whatever else has come, so that one write of the journal serves all of it. Each channel is bounded, and so is what a
    /// round takes.
    fn drain(
        &mut self,
        channels: &mut Channels,
        inbound: &mut InboundReceiver,
        link: &mut watch::Receiver<LinkStatus>,
    ) {
        while let Ok(interrupt) = inbound.interrupts.try_recv() {
            self.handle(Event::Interrupt(interrupt));
        }
        while let Ok(mut batch) = channels.batches.try_recv() {
            self.acknowledge_batch(&mut batch);
            self.handle(Event::Committed(Some(batch)));
        }
        for _ in 0..MAX_IN_FLIGHT {
            let Ok((op, result)) = channels.results.try_recv() else {
                break;
            };
            self.handle(Event::Result(op, result));
        }
        self.take_turn_requests();
        // However busy the relay is, whoever asks for its status is answered.
        for _ in 0..MAX_REQUESTS {
            let Ok(request) = channels.requests.try_recv() else {
                break;
            };
            self.handle(Event::Request(Some(request)));
        }
        while let Some(finished) = self.turns.try_finished() {
            self.take_turn_requests();
            self.handle(Event::TurnFinished(finished));
        }
        while self.takes_frames()
            && let Ok(frames) = inbound.frames.try_recv()
        {
            self.take_link(link);
            self.handle(Event::Frames(Some(frames)));
        }
    }

    /// Handles a change of the link that came before frames: what a platform can do is known before its messages are handled.
    fn take_link(&mut self, link: &mut watch::Receiver<LinkStatus>) {
        if link.has_changed().unwrap_or(false) {
            self.handle(Event::Link(Box::new(link.borrow_and_update().clone())));
        }
    }

    /// Takes the requests of turns. A turn requests before it ends, so this is done before an end is taken.
    fn take_turn_requests(&mut self) {
        for _ in 0..2 * MAX_TURN_REQUESTS {
            let Ok(request) = self.turn_requests.try_recv() else {
                return;
            };
            self.handle(Event::TurnRequest(Some(request)));
        }
    }

    /// Prepares the turns whose message is committed, runs those that answer inline, and finishes those that have ended: each step
    /// for all of them before the next one.
    pub(super) fn step_turns(&mut self) {
        while let Some((turn, row)) = self.turns.next_committed() {
            self.prepare_turn(turn, row);
        }
        self.run_effects();
        self.turns.run_inline();
        if self.turns.have_ended_inline() {
            self.clock.advance();
            self.take_turn_requests();
            self.finish_inline();
        }
        self.run_effects();
    }

    /// Everything that may go on goes on: rows are read, turns started, ops handed to the transport, writes submitted.
    fn advance(&mut self) {
        self.clock.advance();
        let now = self.clock.now();
        self.step_lifecycle(now.mono);
        if self.lifecycle.is_serving() {
            self.turns.set_paused(self.outbox.is_full());
        }
        self.turns.read_again(now.mono, &mut self.effects);
        if self.lifecycle.is_reconnect_due(now.mono, self.outbox.in_flight()) {
            self.link.reconnect();
        }
        self.approvals.expire(now.mono, &mut self.effects);
        self.end_pairings(&[]);
        self.remind(now.mono);
        self.step_jobs();
        self.turns.refill(&mut self.effects);
        self.turns.start_waiting(now.unix_ms, &mut self.effects);
        let turns = &self.turns;
        self.approvals
            .end_lists(|session, row| turns.is_waiting(session, row), &mut self.effects);
        self.outbox.release(now.mono);
        self.run_effects();
        if self.link.is_live() {
            self.outbox.hand_out(now, &mut self.effects);
        }
        let transport = self.link.transport();
        let has_left = |op, platform: Option<&str>| transport.has_left(op, platform);
        self.outbox
            .mark_sent(now.mono, false, has_left, &mut self.effects);
        self.run_effects();
        self.step_sleep();
        self.keep_questions();
        self.journal.submit(&mut self.effects);
    }

    fn takes_frames(&self) -> bool {
        self.journal.has_room() && self.lifecycle.takes_frames()
    }

    fn deadline(&self) -> Instant {
        let moment = self.clock.now();
        let now = moment.mono;
        let serving = self.lifecycle.is_serving();
        let sleeper = self.sleeper.as_ref().filter(|_| serving);
        let due = [
            self.turns.deadline(),
            self.outbox.deadline(),
            self.approvals.deadline(),
            self.scheduler.deadline(moment, serving),
            self.lifecycle.deadline(now),
            sleeper.and_then(|sleeper| sleeper.deadline(now, self.link.is_live())),
        ];
        let due = due.into_iter().flatten().min().unwrap_or(now + MAX_WAIT);
        debug_assert!(
            due >= now,
            "what was due is still due: the event loop would never wait"
        );
        self.clock.instant(due.min(now + MAX_WAIT))
    }
}

async fn maybe<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
