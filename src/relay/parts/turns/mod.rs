//! Turns, from the moment one holds a place until its end is committed. A message, a run of a job and a handed-over item are
//! turns with one life, and differ in their [`Task`] alone.
//!
//! | a turn is | where | next |
//! |---|---|---|
//! | accepting | it holds its place ([`TurnPhase`]) while its task is committed | preparing; a task that has to wait is queued |
//! | queued | its row waits in [`Sessions`], or in the journal alone | loading |
//! | loading | it waits for its row ([`RowWait`]) | preparing |
//! | preparing | it waits to learn which agent people chose, for the skills of its job, or for the journal's word that the job has begun | running |
//! | running | the agent runs in a task, or inline when it answers inline | ending |
//! | ending | its end and its ops are being committed ([`RowWait`]) | over |
//!
//! A message that a running turn takes is queued behind it until the journal has written that it runs ([`RowWait::Steering`]).
//!
//! Every turn ends exactly once. A session is free for its next message as soon as its turn has ended, before the end is
//! committed.
//!
//! An agent that panics fails its own turn, in a build that unwinds. The program itself is built with `panic = "abort"`: none of
//! its own agents runs foreign code in its process, so a panic is a fault of its own, and after the restart the turn is
//! reported as interrupted.

mod lookup;
mod rows;
mod running;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

use super::turn_task::{TurnReport, TurnRequest};
use crate::adapter::stream::TurnResult;
use crate::adapter::{Chat, LabelMemory, labelled_interaction};
use crate::agent::{SignalChannel, TurnInput};
use crate::collections::IdMap;
use crate::relay::effects::{Effects, MessageChange, Place, SelectedAgent, Steering, Task};
use crate::relay::metrics::TurnMetrics;
use crate::relay::origin::TurnOrigin;
use crate::session::{Admission, Interrupt, SessionLimits, Sessions, StopReason, TurnId};
use crate::store::{Command, InboxKind, InboxRow, InboxSeq, NewOps, RowState};
use crate::wire::{ConnectorFrame, MessageEvent, SessionKey};

/// What has happened to turns so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnCounters {
    pub started: u64,
    pub done: u64,
    pub stopped: u64,
    pub failed: u64,
    pub interrupted: u64,
    pub steered: u64,
    pub overflows: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// A turn that runs, or holds its place until its message is there.
struct LiveTurn {
    origin: Arc<TurnOrigin>,
    /// None while its row is read, and while the task is in the hands of the loop.
    task: Option<Task>,
    /// Made when the turn begins or is stopped before that.
    cancel: Option<CancellationToken>,
    stop: Option<StopReason>,
    /// Whether it began before, in an earlier process.
    ran_before: bool,
    state: TurnPhase,
}

impl LiveTurn {
    /// Where it belongs and who its author is, once that is known: a row that is read back says it.
    fn known_origin(&self) -> Option<Arc<TurnOrigin>> {
        self.task.as_ref().map(|_| Arc::clone(&self.origin))
    }
}

enum TurnPhase {
    /// Its task is being committed.
    Accepting,
    /// Its row is being read back.
    Loading,
    /// Its task is committed as this row, and waits for what it needs to begin.
    Preparing(InboxSeq),
    /// Its agent runs.
    Running(Box<Running>),
}

struct Running {
    row: InboxSeq,
    agent: SelectedAgent,
    /// The key of its conversation at the agent.
    conversation: SessionKey,
    started: Duration,
    /// Follows the agent's run.
    span: tracing::Span,
    /// Whether its outcome is recorded in spans.
    is_traced: bool,
    /// Messages that it was handed while it ran.
    steered: u64,
    /// Cancelled when the turn is over; made when somebody waits for that.
    ended: Option<CancellationToken>,
    /// The session starts a new conversation: what the agent saves is dropped.
    forgotten: bool,
    /// The connector declined its answer: nothing more of it is sent.
    declined: bool,
}

/// What the journal was asked about a row.
#[derive(Debug)]
enum RowWait {
    /// It is read back for this turn.
    Loading {
        turn: TurnId,
        /// It was read before the journal had written that it runs: it is read again after that.
        early: bool,
    },
    /// Its turn was running when an earlier process ended; it is read to be reported.
    Interrupted,
    /// It is being marked as running before it is handed to the turn that it met; until then it waits behind that turn.
    Steering(Box<Steering>),
    /// One of the relay's own commands is being carried out; its answer ends the row.
    Answering,
    /// Its end is being committed.
    Ending,
}

/// What a row that was read back is for.
pub enum Loaded {
    /// Nobody waits for it.
    Nothing,
    /// An earlier run left its turn running.
    Interrupted,
    /// This turn waits for it.
    Turn(TurnId),
}

/// The task of a turn that answers inline.
type InlineTask = ReusableBoxFuture<'static, (Box<TurnReport>, SignalChannel)>;

/// How a turn's task ended.
pub type Finished = Result<Box<TurnReport>, TurnId>;

/// A turn that has ended, for whoever shows its end.
pub struct EndedTurn {
    pub origin: Arc<TurnOrigin>,
    pub task: Task,
    pub row: InboxSeq,
    pub agent: Arc<str>,
    pub outcome: RowState,
    pub result: TurnResult,
    /// The last text of the turn, if any.
    pub notice: Option<String>,
    pub declined: bool,
    /// Whether its outcome is recorded in spans.
    pub is_traced: bool,
    /// How long it ran.
    pub took: Duration,
}

/// One session, as people see it.
pub struct SessionSnapshot<'t> {
    pub session: &'t SessionKey,
    pub state: &'static str,
    pub agent: Option<&'t str>,
    pub running_for: Option<Duration>,
    pub waiting: usize,
}

/// Sessions, running turns and ends under way.
pub struct Turns {
    sessions: Sessions,
    live: IdMap<TurnId, LiveTurn>,
    rows: IdMap<InboxSeq, RowWait>,
    /// Messages that are marked as running, but that no agent was given: they wait for a turn of their own.
    not_given: HashSet<InboxSeq>,
    /// Turns that an earlier run left and whose message is still to be read, one after the other.
    interrupted: VecDeque<InboxSeq>,
    /// Where such turns were shown, until there is a connection.
    left_shown: Vec<Chat>,
    /// What the journal could not read and is asked for again.
    unread: Vec<Unread>,
    /// When that is.
    read_again_at: Option<Duration>,
    tasks: JoinSet<Box<TurnReport>>,
    by_task: IdMap<tokio::task::Id, TurnId>,
    /// Turns whose message is committed, and that are prepared next.
    committed: VecDeque<(TurnId, InboxSeq)>,
    /// Edits and deletions that are being committed, by session.
    changes: HashMap<SessionKey, usize>,
    /// Turns that answer inline, and run next.
    inline: VecDeque<(TurnId, InlineTask, tracing::Span)>,
    /// Turns that ended inline.
    ended_inline: VecDeque<Finished>,
    /// Where turns ran that ended inline; the next ones run there, too.
    idle_tasks: Vec<InlineTask>,
    /// The channels of turns that ended inline.
    idle_channels: Vec<SignalChannel>,
    requests: mpsc::Sender<(TurnId, TurnRequest)>,
    interrupted_notice: Option<String>,
    /// Whether running any turn twice does no harm.
    are_repeatable: bool,
    counters: TurnCounters,
    metrics: TurnMetrics,
}

#[derive(Debug)]
enum Unread {
    Row(InboxSeq),
    Session(SessionKey),
    Waiting(InboxSeq),
    Change(SessionKey, Box<MessageChange>),
}

impl Turns {
    /// No turns yet.
    pub fn new(
        limits: SessionLimits,
        requests: mpsc::Sender<(TurnId, TurnRequest)>,
        interrupted_notice: Option<String>,
        are_repeatable: bool,
    ) -> Self {
        Self {
            sessions: Sessions::new(limits),
            live: IdMap::default(),
            rows: IdMap::default(),
            not_given: HashSet::new(),
            interrupted: VecDeque::new(),
            left_shown: Vec::new(),
            unread: Vec::new(),
            read_again_at: None,
            tasks: JoinSet::new(),
            by_task: IdMap::default(),
            committed: VecDeque::new(),
            inline: VecDeque::new(),
            ended_inline: VecDeque::new(),
            changes: HashMap::new(),
            idle_tasks: Vec::new(),
            idle_channels: Vec::new(),
            requests,
            interrupted_notice,
            are_repeatable,
            counters: TurnCounters::default(),
            metrics: TurnMetrics::default(),
        }
    }

    pub fn counters(&self) -> TurnCounters {
        self.counters
    }

    pub fn metrics(&self) -> &TurnMetrics {
        &self.metrics
    }

    /// The sessions' queues and running turns.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether no turn runs or holds a place.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Rows whose end is being committed, or their mark before a turn takes them.
    pub fn uncommitted(&self) -> usize {
        let is_uncommitted = |state: &&RowWait| matches!(state, RowWait::Ending | RowWait::Steering(_));
        self.rows.values().filter(is_uncommitted).count()
    }

    /// Everything that is still to be done: turns, tasks, and rows that are read or ended.
    pub fn outstanding(&self) -> usize {
        self.live.len() + self.tasks.len() + self.rows.len() + self.interrupted.len() + self.unread.len()
    }

    /// Starts nothing new while `paused`.
    pub fn set_paused(&mut self, paused: bool) {
        if paused {
            self.sessions.pause();
        } else {
            self.sessions.resume();
        }
    }

    /// A task arrived for a session: whether it may start. [`Self::hold_place`] follows for a turn that may.
    pub fn admit(&mut self, session: &SessionKey) -> Admission {
        self.sessions.admit(session)
    }

    /// An admitted turn holds its place until its task is committed.
    pub fn hold_place(&mut self, turn: TurnId, origin: Arc<TurnOrigin>, task: Task) {
        self.insert(turn, origin, Some(task), TurnPhase::Accepting);
    }

    fn insert(&mut self, turn: TurnId, origin: Arc<TurnOrigin>, task: Option<Task>, state: TurnPhase) {
        let live = LiveTurn {
            origin,
            task,
            cancel: None,
            stop: None,
            ran_before: false,
            state,
        };
        self.live.insert(turn, live);
    }

    /// The work that held this place was not accepted: it never was there.
    pub fn release(&mut self, session: &SessionKey, place: Place) {
        match place {
            Place::Turn(turn) => {
                self.live.remove(&turn);
                self.sessions.cancel_admission(session, turn);
            }
            Place::Queue(_) => self.sessions.cancel_waiting(session),
            Place::Change => {
                if let Entry::Occupied(mut changes) = self.changes.entry(session.clone()) {
                    *changes.get_mut() -= 1;
                    if *changes.get() == 0 {
                        changes.remove();
                    }
                }
            }
            Place::None => {}
        }
    }

    /// An edit or a deletion comes: the turn of its session that has not begun is not prepared before it is applied.
    pub fn await_change(&mut self, session: &SessionKey) -> Place {
        *self.changes.entry(session.clone()).or_default() += 1;
        Place::Change
    }

    /// The row of a turn was read back: its task, and where it belongs.
    pub fn assign(&mut self, turn: TurnId, row: &InboxRow, origin: TurnOrigin, task: Task, now_ms: i64) {
        if let Some(live) = self.live.get_mut(&turn) {
            let (span, waited_ms) = (origin.span.get(), now_ms.saturating_sub(row.received_at));
            let attempt = row.attempt - u32::from(self.not_given.remove(&row.seq));
            tracing::record_all!(span, attempt = attempt, waited_ms = waited_ms);
            live.origin = Arc::new(origin);
            live.task = Some(task);
            live.ran_before = attempt > 1;
        }
    }

    /// Whether a turn goes on that began before.
    pub fn ran_before(&self, turn: TurnId) -> bool {
        self.live.get(&turn).is_some_and(|live| live.ran_before)
    }

    /// A turn that never ran is over; its task, unless its row was still being read.
    pub fn abandon(&mut self, turn: TurnId) -> Option<Task> {
        let live = self.live.remove(&turn)?;
        self.sessions.ended(&live.origin.session, turn);
        live.task
    }

    /// The task of a turn is committed as this row: it may be prepared.
    pub fn prepare(&mut self, turn: TurnId, row: InboxSeq) -> Option<(Arc<TurnOrigin>, &mut Task)> {
        let live = self.live.get_mut(&turn)?;
        live.state = TurnPhase::Preparing(row);
        Some((Arc::clone(&live.origin), live.task.as_mut()?))
    }

    /// The message of a turn is committed: it is prepared once the changes that came with it are applied.
    pub fn note_committed(&mut self, turn: TurnId, row: InboxSeq) {
        if let Some(live) = self.live.get_mut(&turn) {
            live.state = TurnPhase::Preparing(row);
            self.committed.push_back((turn, row));
        }
    }

    /// How many turns are prepared next.
    pub fn committed_count(&self) -> usize {
        self.committed.len()
    }

    /// The next turn that can be prepared, unless a change of its message has ended it or given it another row.
    pub fn next_committed(&mut self) -> Option<(TurnId, InboxSeq)> {
        loop {
            let is_free = |(turn, _): &(TurnId, InboxSeq)| {
                let live = self.live.get(turn);
                live.is_none_or(|live| !self.changes.contains_key(&live.origin.session))
            };
            let next = if self.changes.is_empty() {
                0
            } else {
                self.committed.iter().position(is_free)?
            };
            let (turn, row) = self.committed.remove(next)?;
            let live = self.live.get(&turn);
            if live.is_some_and(|live| matches!(live.state, TurnPhase::Preparing(of) if of == row)) {
                return Some((turn, row));
            }
        }
    }

    /// A turn that is being prepared: its row, where it belongs, and its task.
    pub fn preparing(&mut self, turn: TurnId) -> Option<(InboxSeq, Arc<TurnOrigin>, &mut Task)> {
        let live = self.live.get_mut(&turn)?;
        let TurnPhase::Preparing(row) = live.state else {
            return None;
        };
        Some((row, Arc::clone(&live.origin), live.task.as_mut()?))
    }

    /// Whether a message that waits may be handed to the running turn that it met: nothing older waits but what is handed over, too,
    /// and it is for the same agent with the same options and rights.
    pub fn may_steer(
        &self,
        session: &SessionKey,
        (met, row): (TurnId, InboxSeq),
        agent: &SelectedAgent,
    ) -> bool {
        let is_steering = |row: &InboxSeq| matches!(self.rows.get(row), Some(RowWait::Steering(_)));
        let mut waiting = self.sessions.rows(session).map(InboxSeq);
        self.sessions.running_turn(session) == Some(met)
            && waiting.find(|waiting| !is_steering(waiting)) == Some(row)
            && self.running(met).is_some_and(|running| {
                !running.declined
                    && running.agent.is_same(agent)
                    && running.agent.permission == agent.permission
                    && running.agent.agent.info().steers
            })
    }

    /// Hands a message that is marked as running to the turn that it met, if that may still be done and the agent takes it. What a
    /// turn has taken is the turn's business: its own end answers it.
    pub fn steer(
        &mut self,
        session: &SessionKey,
        (met, row): (TurnId, InboxSeq),
        agent: &SelectedAgent,
        input: &TurnInput,
    ) -> bool {
        if self.sessions.rows(session).next() != Some(row.0) || !self.may_steer(session, (met, row), agent) {
            return false;
        }
        let Some(LiveTurn {
            state: TurnPhase::Running(running),
            ..
        }) = self.live.get_mut(&met)
        else {
            return false;
        };
        let steered = running.agent.agent.steer(&running.conversation, input);
        running.steered += u64::from(steered);
        self.counters.steered += u64::from(steered);
        steered
    }

    /// Stops a session's turn: the one given, or whichever runs. Returns it, unless there is none or it is stopping already.
    pub fn stop(&mut self, session: &SessionKey, only: Option<TurnId>, reason: StopReason) -> Option<TurnId> {
        if only.is_some() && self.sessions.turn_of(session) != only {
            return None;
        }
        let Interrupt::Cancel(turn) = self.sessions.interrupt(session) else {
            return None;
        };
        if let Some(live) = self.live.get_mut(&turn) {
            live.stop.get_or_insert(reason);
            live.cancel.get_or_insert_default().cancel();
        }
        Some(turn)
    }

    /// Stops every turn; returns those that were not stopping already.
    pub fn stop_all(&mut self, reason: StopReason) -> Vec<TurnId> {
        let sessions: Vec<SessionKey> = self
            .live
            .values()
            .map(|live| live.origin.session.clone())
            .collect();
        sessions
            .iter()
            .filter_map(|session| self.stop(session, None, reason))
            .collect()
    }

    /// The session starts a new conversation. Returns a token that is cancelled when its running turn is over.
    pub fn forget(&mut self, session: &SessionKey) -> Option<CancellationToken> {
        let turn = self.sessions.turn_of(session)?;
        match &mut self.live.get_mut(&turn)?.state {
            TurnPhase::Running(running) => {
                running.forgotten = true;
                Some(running.ended.get_or_insert_default().clone())
            }
            // A turn that does not run yet waits for the agents to forget.
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Preparing(_) => None,
        }
    }

    /// The connector declined the answer to a message. Returns the turn that still runs for it; its row is ended as
    /// ignored, so that a process killed before the turn's end has nothing to report either.
    pub fn decline(&mut self, row: InboxSeq, now_ms: i64, effects: &mut Effects) -> Option<TurnId> {
        for (turn, live) in &mut self.live {
            if let TurnPhase::Running(running) = &mut live.state
                && running.row == row
            {
                if !std::mem::replace(&mut running.declined, true) {
                    effects.write(Command::End {
                        seq: row,
                        state: RowState::Ignored,
                        ops: NewOps::new(),
                        now_ms,
                    });
                }
                return Some(*turn);
            }
        }
        None
    }
}

/// Reads a journaled line back.
pub fn decode_row(row: &InboxRow, labels: &LabelMemory) -> Option<MessageEvent> {
    decode_line(row.kind, row.line.as_deref()?, labels)
}

/// The message in a line of the wire.
pub fn decode_line(kind: InboxKind, line: &[u8], labels: &LabelMemory) -> Option<MessageEvent> {
    let frame = ConnectorFrame::decode(line).ok()?;
    match (kind, frame) {
        (InboxKind::Inbound, ConnectorFrame::Inbound { event, .. }) => Some(*event),
        (InboxKind::Forward, ConnectorFrame::PassthroughForward { forward, .. }) => {
            labelled_interaction(&forward, labels)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
