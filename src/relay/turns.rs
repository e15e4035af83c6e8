//! Turns, from the message that starts one to its committed end.
//!
//! | a message is | where | next |
//! |---|---|---|
//! | accepting | a turn holds its place ([`TurnPhase`]), or nothing does | queued, or its turn starts |
//! | queued | its row waits in [`Sessions`], or in the journal alone | loading |
//! | loading | its turn waits for the row ([`RowState`]) | choosing or running |
//! | choosing | its turn waits to learn which agent people chose | running |
//! | running | the agent runs in a task, or inline when it answers inline | ending |
//! | ending | its end and what it owes are being committed ([`RowState`]) | over |
//!
//! Every turn ends exactly once. A session is free for its next message as soon as its turn has ended, before the end is
//! committed.
//!
//! An agent that panics fails its own turn, in a build that unwinds. The program itself is built with `panic = "abort"`: none of
//! its own agents runs foreign code in its process, so a panic is a fault of its own, and after the restart the turn is
//! reported as interrupted.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet, unconstrained};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::effects::{Effects, Pending, SelectedAgent};
use super::metrics::TurnMetrics;
use super::ops::{DurableOp, OpGroup};
use super::turn_task::{TurnContext, TurnReport, TurnRequest, run_turn};
use crate::access::Author;
use crate::adapter::stream::{ShownDraft, TurnResult};
use crate::adapter::{ChatFacts, ChatId, interaction_event};
use crate::agent::{Approver, EventSink, Failure, FailureClass, Truncation, Turn, TurnEnd, TurnInput, Usage};
use crate::collections::IdMap;
use crate::session::{Admission, Interrupt, SessionLimits, Sessions, StopReason, TurnId};
use crate::store::{Command, InboxKind, InboxRow, InboxSeq, TurnState as RowOutcome, WaitingRow};
use crate::wire::{Action, ConnectorFrame, MessageEvent, SessionKey};

/// Rows of one session that are read at a time.
const ROWS_PER_READ: u32 = 32;
/// Rows that are read at a time to find sessions that did not fit in memory.
const ROWS_PER_RELOAD: u32 = 1024;

/// What has happened to turns so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnCounters {
    pub(super) started: u64,
    pub(super) done: u64,
    pub(super) stopped: u64,
    pub(super) failed: u64,
    pub(super) interrupted: u64,
    pub(super) steered: u64,
    pub(super) overflows: u64,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
}

/// Where a turn belongs.
#[derive(Debug)]
pub(super) struct TurnOrigin {
    pub(super) session: SessionKey,
    pub(super) chat: Arc<ChatId>,
    pub(super) facts: Arc<ChatFacts>,
    /// Whether the session belongs to one person.
    pub(super) personal: bool,
    /// Who wrote the message.
    pub(super) author: Arc<Author>,
    /// The chat's key: its ops go out in order.
    pub(super) lane: Arc<str>,
    /// Follows the message through the log.
    pub(super) span: tracing::Span,
}

impl TurnOrigin {
    fn new(
        session: SessionKey,
        event: &MessageEvent,
        personal: bool,
        author: Arc<Author>,
        span: tracing::Span,
    ) -> Self {
        let chat = ChatId::from_source(&event.source);
        Self {
            session,
            personal,
            lane: chat.key().into(),
            chat: Arc::new(chat),
            facts: Arc::new(ChatFacts::from_source(&event.source)),
            author,
            span,
        }
    }
}

/// A turn that runs, or holds its place until its message is there.
struct LiveTurn {
    origin: Arc<TurnOrigin>,
    cancel: CancellationToken,
    stop: Option<StopReason>,
    state: TurnPhase,
}

enum TurnPhase {
    /// Its message is being committed.
    Accepting,
    /// Its message is being read back.
    Loading,
    /// It waits to learn which agent people chose.
    Choosing(InboxSeq, Box<MessageEvent>),
    /// Its agent runs.
    Running(Running),
}

struct Running {
    row: InboxSeq,
    agent: SelectedAgent,
    started: Instant,
    /// Follows the agent's run.
    span: tracing::Span,
    /// Messages that it was handed while it ran.
    steered: u64,
    /// Cancelled when the turn is over; made when somebody waits for that.
    ended: Option<CancellationToken>,
    /// The session starts a new conversation: what the agent saves is dropped.
    forgotten: bool,
    /// The connector declined its answer: nothing more of it is sent.
    declined: bool,
}

/// A message that the journal is asked about by its row.
#[derive(Debug)]
enum RowState {
    /// It is read back for this turn.
    Loading {
        turn: TurnId,
        /// It was read before the journal had written that it runs: it is read again after that.
        early: bool,
    },
    /// Its turn was running when an earlier run ended; it is read to be reported.
    Interrupted,
    /// Its end is being committed.
    Ending(Ending),
}

/// What goes out once the end of a message is committed.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) ops: Vec<DurableOp>,
    /// Indicators that follow the ops.
    pub(super) indicators: Option<(Arc<ChatId>, Vec<Action>)>,
    pub(super) declined: bool,
}

/// What a row that was read back is for.
pub(super) enum Loaded {
    /// Nobody waits for it.
    Nothing,
    /// An earlier run left its turn running.
    Interrupted,
    /// This turn waits for it.
    Turn(TurnId),
}

/// How a turn's task ended.
pub(super) type Finished = Result<TurnReport, TurnId>;

/// A turn that has ended, for whoever shows its end.
pub(super) struct EndedTurn {
    pub(super) origin: Arc<TurnOrigin>,
    pub(super) row: InboxSeq,
    pub(super) agent: Arc<str>,
    pub(super) outcome: RowOutcome,
    pub(super) result: TurnResult,
    /// The last text of the turn, if any.
    pub(super) notice: Option<String>,
    pub(super) declined: bool,
}

/// One session, as people see it.
pub(super) struct SessionSnapshot<'t> {
    pub(super) session: &'t SessionKey,
    pub(super) state: &'static str,
    pub(super) agent: Option<&'t str>,
    pub(super) running_for: Option<Duration>,
    pub(super) waiting: usize,
}

/// Sessions, running turns and ends under way.
pub(super) struct Turns {
    sessions: Sessions,
    live: IdMap<TurnId, LiveTurn>,
    rows: IdMap<InboxSeq, RowState>,
    /// Turns that an earlier run left and whose message is still to be read, one after the other.
    interrupted: VecDeque<InboxSeq>,
    /// What the journal could not read and is asked for again.
    unread: Vec<Unread>,
    tasks: JoinSet<TurnReport>,
    by_task: IdMap<tokio::task::Id, TurnId>,
    /// Turns that ended inline.
    inline: Vec<Finished>,
    requests: mpsc::Sender<(TurnId, TurnRequest)>,
    interrupted_notice: Option<String>,
    counters: TurnCounters,
    metrics: TurnMetrics,
}

#[derive(Debug)]
enum Unread {
    Row(InboxSeq),
    Session(SessionKey),
    Waiting(InboxSeq),
}

impl Turns {
    /// No turns yet.
    pub(super) fn new(
        limits: SessionLimits,
        requests: mpsc::Sender<(TurnId, TurnRequest)>,
        interrupted_notice: Option<String>,
    ) -> Self {
        Self {
            sessions: Sessions::new(limits),
            live: IdMap::default(),
            rows: IdMap::default(),
            interrupted: VecDeque::new(),
            unread: Vec::new(),
            tasks: JoinSet::new(),
            by_task: IdMap::default(),
            inline: Vec::new(),
            requests,
            interrupted_notice,
            counters: TurnCounters::default(),
            metrics: TurnMetrics::default(),
        }
    }

    pub(super) fn counters(&self) -> TurnCounters {
        self.counters
    }

    pub(super) fn metrics(&self) -> &TurnMetrics {
        &self.metrics
    }

    /// The sessions' queues and running turns.
    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Whether no turn runs or holds a place.
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Ends that are being committed.
    pub(super) fn ending(&self) -> usize {
        let ending = |state: &&RowState| matches!(state, RowState::Ending(_));
        self.rows.values().filter(ending).count()
    }

    /// Everything that is still to be done: turns, tasks, and rows that are read or ended.
    pub(super) fn outstanding(&self) -> usize {
        self.live.len() + self.tasks.len() + self.rows.len() + self.interrupted.len() + self.unread.len()
    }

    /// Sessions with a turn before sessions that wait, the longest-running first.
    pub(super) fn snapshot(&self) -> impl Iterator<Item = SessionSnapshot<'_>> {
        let mut live: Vec<&LiveTurn> = self.live.values().collect();
        let started = |turn: &LiveTurn| match &turn.state {
            TurnPhase::Running(running) => Some(running.started),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => None,
        };
        live.sort_by_key(|turn| (started(turn).is_none(), started(turn)));
        let turns = live.into_iter().map(|turn| {
            let running = match &turn.state {
                TurnPhase::Running(running) => Some(running),
                TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => None,
            };
            SessionSnapshot {
                session: &turn.origin.session,
                state: match (turn.stop, running) {
                    (Some(_), _) => "stopping",
                    (None, Some(_)) => "running",
                    (None, None) => "starting",
                },
                agent: running.map(|running| &*running.agent.name),
                running_for: running.map(|running| running.started.elapsed()),
                waiting: self.sessions.waiting(&turn.origin.session),
            }
        });
        let waiting = self.sessions.idle().map(|(session, waiting)| SessionSnapshot {
            session,
            state: "waiting",
            agent: None,
            running_for: None,
            waiting,
        });
        turns.chain(waiting)
    }

    /// Starts nothing new while `paused`.
    pub(super) fn set_paused(&mut self, paused: bool) {
        if paused {
            self.sessions.pause();
        } else {
            self.sessions.resume();
        }
    }

    /// A message arrived for the agent. A turn that may start holds its place until the message is committed.
    pub(super) fn admit(
        &mut self,
        session: &SessionKey,
        event: &MessageEvent,
        personal: bool,
        author: &Arc<Author>,
        span: &tracing::Span,
    ) -> Admission {
        let admission = self.sessions.admit(session);
        if let Admission::Start(turn) = admission {
            let origin = TurnOrigin::new(session.clone(), event, personal, Arc::clone(author), span.clone());
            self.insert(turn, origin, TurnPhase::Accepting);
        }
        admission
    }

    fn insert(&mut self, turn: TurnId, origin: TurnOrigin, state: TurnPhase) {
        let origin = Arc::new(origin);
        let live = LiveTurn {
            origin,
            cancel: CancellationToken::new(),
            stop: None,
            state,
        };
        self.live.insert(turn, live);
    }

    /// The message of an admitted turn was not accepted: the turn never was.
    pub(super) fn cancel_admission(&mut self, session: &SessionKey, turn: TurnId) {
        self.live.remove(&turn);
        self.sessions.cancel_admission(session, turn);
    }

    /// The message that was to wait was not accepted, or somebody else took it.
    pub(super) fn cancel_waiting(&mut self, session: &SessionKey) {
        self.sessions.cancel_waiting(session);
    }

    /// A committed message waits for its session; `true` when it is the first that does not fit in memory.
    pub(super) fn enqueue(&mut self, session: &SessionKey, row: InboxSeq) -> bool {
        let overflowed = self.sessions.enqueue(session, row.0);
        self.counters.overflows += u64::from(overflowed);
        overflowed
    }

    /// The journal holds waiting messages from an earlier run.
    pub(super) fn recover_waiting(&mut self) {
        self.sessions.recover();
    }

    /// Reads sessions that did not fit in memory, and rows for those whose queue in memory ran dry.
    pub(super) fn refill(&mut self, effects: &mut Effects) {
        if let Some(after) = self.sessions.next_reload().map(InboxSeq) {
            effects.request(Pending::WaitingRows(after), |token| Command::NextWaiting {
                token,
                after,
                limit: ROWS_PER_RELOAD,
            });
        }
        while let Some((session, after)) = self.sessions.next_refill() {
            let key = session.shared();
            effects.request(Pending::SessionRows(session), |token| Command::NextQueued {
                token,
                session: key,
                after: InboxSeq(after),
                limit: ROWS_PER_READ,
            });
        }
    }

    /// Waiting rows after this one that were read; `None` when the journal could not read them.
    pub(super) fn reloaded(&mut self, after: InboxSeq, rows: Option<&[WaitingRow]>) {
        match rows {
            Some(rows) => {
                let last = rows.last().map(|row| row.seq.0);
                let has_more = rows.len() >= ROWS_PER_RELOAD as usize;
                let sessions = rows
                    .iter()
                    .map(|row| SessionKey::from_text(Arc::clone(&row.session)));
                self.sessions.reload(sessions, last.filter(|_| has_more));
            }
            None => self.unread.push(Unread::Waiting(after)),
        }
    }

    /// Rows of a session that were read; `None` when the journal could not read them.
    pub(super) fn refilled(&mut self, session: SessionKey, rows: Option<&[InboxRow]>) {
        match rows {
            Some(rows) => {
                let complete = rows.len() < ROWS_PER_READ as usize;
                // One whose end the journal could not write yet is over all the same.
                let is_over = |seq: &InboxSeq| matches!(self.rows.get(seq), Some(RowState::Ending(_)));
                let rows: Vec<i64> = rows
                    .iter()
                    .filter(|row| !is_over(&row.seq))
                    .map(|row| row.seq.0)
                    .collect();
                self.sessions.refill(&session, rows, complete);
            }
            None => self.unread.push(Unread::Session(session)),
        }
    }

    /// Starts the turns of waiting messages, as far as there is room: their messages are read back first.
    pub(super) fn start_waiting(&mut self, now_ms: i64, effects: &mut Effects) {
        while let Some((session, row, turn)) = self.sessions.next_start() {
            self.load(session, InboxSeq(row), turn, now_ms, effects);
        }
    }

    /// Runs an interrupted message again, because that does no harm.
    pub(super) fn run_again(&mut self, row: &InboxRow, now_ms: i64, effects: &mut Effects) {
        let session = SessionKey::from_text(Arc::clone(&row.session));
        if let Admission::Start(turn) = self.sessions.admit(&session) {
            self.load(session, row.seq, turn, now_ms, effects);
        } else {
            self.sessions.enqueue_again(&session, row.seq.0);
        }
    }

    /// The message of an admitted turn is committed as waiting: it is marked as running, and read back, before its agent starts.
    pub(super) fn start_stored(&mut self, turn: TurnId, row: InboxSeq, now_ms: i64, effects: &mut Effects) {
        let Some(live) = self.live.get_mut(&turn) else {
            return;
        };
        live.state = TurnPhase::Loading;
        self.rows.insert(row, RowState::Loading { turn, early: false });
        effects.write(Command::Start { seq: row, now_ms });
        effects.write(Command::Load { seq: row });
    }

    fn load(&mut self, session: SessionKey, row: InboxSeq, turn: TurnId, now_ms: i64, effects: &mut Effects) {
        let span = message_span(&session);
        let origin = TurnOrigin::new(session, &MessageEvent::default(), false, Arc::default(), span);
        self.insert(turn, origin, TurnPhase::Loading);
        self.rows.insert(row, RowState::Loading { turn, early: false });
        effects.write(Command::Start { seq: row, now_ms });
        effects.write(Command::Load { seq: row });
    }

    /// A turn was running when an earlier run ended: its message is read, one at a time.
    pub(super) fn read_interrupted(&mut self, row: InboxSeq, effects: &mut Effects) {
        self.interrupted.push_back(row);
        if self.interrupted.len() == 1 {
            self.read_next_interrupted(effects);
        }
    }

    fn read_next_interrupted(&mut self, effects: &mut Effects) {
        if let Some(row) = self.interrupted.front().copied() {
            self.rows.insert(row, RowState::Interrupted);
            effects.write(Command::Load { seq: row });
        }
    }

    fn interrupted_read(&mut self, effects: &mut Effects) {
        self.interrupted.pop_front();
        self.read_next_interrupted(effects);
    }

    /// A row was read back. One that is not marked as running yet is waited for: a disk that cannot be written still reads,
    /// and an agent must not act on a message that would run again after a restart.
    pub(super) fn loaded(&mut self, row: &InboxRow, effects: &mut Effects) -> Loaded {
        match self.rows.get_mut(&row.seq) {
            Some(RowState::Interrupted) => {
                self.rows.remove(&row.seq);
                self.interrupted_read(effects);
                Loaded::Interrupted
            }
            Some(RowState::Loading { early, .. }) if row.state != RowOutcome::Running => {
                *early = true;
                Loaded::Nothing
            }
            Some(RowState::Loading { turn, .. }) => {
                let turn = *turn;
                self.rows.remove(&row.seq);
                Loaded::Turn(turn)
            }
            Some(RowState::Ending(_)) | None => Loaded::Nothing,
        }
    }

    /// The journal has written that a message runs.
    pub(super) fn started(&mut self, row: InboxSeq, effects: &mut Effects) {
        if let Some(RowState::Loading { early, .. }) = self.rows.get_mut(&row)
            && std::mem::take(early)
        {
            effects.write(Command::Load { seq: row });
        }
    }

    /// The row does not exist: somebody dropped it, or it had ended.
    pub(super) fn missing(&mut self, row: InboxSeq, effects: &mut Effects) {
        match self.rows.remove(&row) {
            Some(RowState::Loading { turn, .. }) => self.abandon(turn),
            Some(RowState::Interrupted) => self.interrupted_read(effects),
            Some(RowState::Ending(_)) | None => {}
        }
    }

    /// The journal failed a command about a row. Only a read can fail while a row is read, and is repeated.
    pub(super) fn row_failed(&mut self, row: InboxSeq) {
        match self.rows.get(&row) {
            Some(RowState::Loading { .. } | RowState::Interrupted) => self.unread.push(Unread::Row(row)),
            Some(RowState::Ending(_)) => {
                self.rows.remove(&row);
                tracing::error!(row = row.0, "dropped an answer that the journal refused");
            }
            None => {}
        }
    }

    /// Whether the journal is to be asked again for what it could not read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Asks the journal again for what it could not read.
    pub(super) fn read_again(&mut self, effects: &mut Effects) {
        for unread in std::mem::take(&mut self.unread) {
            match unread {
                Unread::Row(seq) => effects.write(Command::Load { seq }),
                Unread::Session(session) => self.sessions.refill(&session, [], false),
                Unread::Waiting(after) => self.sessions.reload([], Some(after.0)),
            }
        }
    }

    /// Where a turn belongs.
    pub(super) fn origin(&self, turn: TurnId) -> Option<Arc<TurnOrigin>> {
        self.live.get(&turn).map(|live| Arc::clone(&live.origin))
    }

    /// Where the turn of a session belongs, if it has one.
    pub(super) fn origin_of(&self, session: &SessionKey) -> Option<Arc<TurnOrigin>> {
        let mut live = self.live.values().map(|live| &live.origin);
        live.find(|origin| origin.session == *session).cloned()
    }

    /// A loaded message belongs to this chat.
    pub(super) fn set_chat(
        &mut self,
        turn: TurnId,
        row: &InboxRow,
        event: &MessageEvent,
        personal: bool,
        author: Arc<Author>,
        now_ms: i64,
    ) {
        if let Some(live) = self.live.get_mut(&turn) {
            let (session, span) = (live.origin.session.clone(), live.origin.span.clone());
            span.record("attempt", row.attempt);
            span.record("waited_ms", now_ms.saturating_sub(row.received_at));
            live.origin = Arc::new(TurnOrigin::new(session, event, personal, author, span));
        }
    }

    /// Whether a turn of this agent runs.
    pub(super) fn is_agent_running(&self, agent: &str) -> bool {
        let runs = |live: &LiveTurn| match &live.state {
            TurnPhase::Running(running) => &*running.agent.name == agent,
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => false,
        };
        self.live.values().any(runs)
    }

    /// A turn that never ran is over.
    pub(super) fn abandon(&mut self, turn: TurnId) {
        if let Some(live) = self.live.remove(&turn) {
            self.sessions.ended(&live.origin.session, turn);
        }
    }

    /// A turn waits to learn which agent people chose for its session.
    pub(super) fn choosing(&mut self, turn: TurnId, row: InboxSeq, event: Box<MessageEvent>) {
        if let Some(live) = self.live.get_mut(&turn) {
            live.state = TurnPhase::Choosing(row, event);
        }
    }

    /// The message of a turn that waited to learn which agent people chose.
    pub(super) fn chosen(&mut self, turn: TurnId) -> Option<(InboxSeq, Box<MessageEvent>)> {
        let live = self.live.get_mut(&turn)?;
        match std::mem::replace(&mut live.state, TurnPhase::Accepting) {
            TurnPhase::Choosing(row, event) => Some((row, event)),
            other => {
                live.state = other;
                None
            }
        }
    }

    /// Runs the agent for a committed message. A turn that was stopped before it began ends right away.
    pub(super) fn begin(
        &mut self,
        id: TurnId,
        row: InboxSeq,
        agent: SelectedAgent,
        input: TurnInput,
        mut context: TurnContext,
    ) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let span = tracing::info_span!(
            parent: &live.origin.span,
            "turn",
            turn = id.0,
            agent = &*agent.name,
            platform = live.origin.chat.platform,
            failure = Empty,
            first_text_ms = Empty,
            input_tokens = Empty,
            output_tokens = Empty,
        );
        live.state = TurnPhase::Running(Running {
            row,
            agent: agent.clone(),
            started: Instant::now(),
            span: span.clone(),
            steered: 0,
            ended: None,
            forgotten: false,
            declined: false,
        });
        if live.cancel.is_cancelled() {
            let end = TurnEnd::Cancelled { confirmed: true };
            self.inline
                .push(Ok(TurnReport::without_text(id, context.stream, end)));
            return;
        }
        let (mut events, signals) = EventSink::new();
        if let Some(mark) = context.handover.take() {
            events = events.with_handover(move || mark.note());
        }
        let turn = Turn {
            id,
            session: live.origin.session.clone(),
            input,
            approver: Approver::new(&events, agent.permission),
            events,
            cancel: live.cancel.clone(),
            workdir: agent.workdir,
        };
        self.counters.started += 1;
        let inline = agent.agent.answers_inline();
        let running = run_turn(agent.agent, turn, signals, self.requests.clone(), context).instrument(span);
        if inline {
            self.run_inline(id, running);
        } else {
            self.spawn(id, running);
        }
    }

    /// Polls a turn once, and goes on in a task when it is not done by then.
    fn run_inline(&mut self, turn: TurnId, running: impl Future<Output = TurnReport> + Send + 'static) {
        let mut running = Box::pin(running);
        // However many turns begin together, the event loop's budget must not make one of them wait.
        let poll_once = || unconstrained(running.as_mut()).now_or_never();
        match catch_unwind(AssertUnwindSafe(poll_once)) {
            Ok(Some(report)) => self.inline.push(Ok(report)),
            Ok(None) => self.spawn(turn, running),
            Err(_) => self.inline.push(Err(turn)),
        }
    }

    fn spawn(&mut self, turn: TurnId, running: impl Future<Output = TurnReport> + Send + 'static) {
        let task = self.tasks.spawn(running);
        self.by_task.insert(task.id(), turn);
    }

    /// Turns that ended inline.
    pub(super) fn take_inline(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.inline)
    }

    /// Waits for the next task to end; never resolves while there is none. Cancel-safe.
    pub(super) async fn next_finished(&mut self) -> Finished {
        loop {
            match self.tasks.join_next_with_id().await {
                Some(joined) => {
                    if let Some(finished) = self.joined(joined) {
                        return finished;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }

    /// A task that has ended already.
    pub(super) fn try_finished(&mut self) -> Option<Finished> {
        loop {
            let joined = self.tasks.try_join_next_with_id()?;
            if let Some(finished) = self.joined(joined) {
                return Some(finished);
            }
        }
    }

    fn joined(&mut self, joined: Result<(tokio::task::Id, TurnReport), JoinError>) -> Option<Finished> {
        match joined {
            Ok((task, report)) => {
                self.by_task.remove(&task);
                Some(Ok(report))
            }
            Err(error) => self.by_task.remove(&error.id()).map(Err),
        }
    }

    /// Hands a message to the running turn that it met, if nothing older waits and it is for the same agent on the same
    /// terms. What a turn has taken is the turn's business: its own end answers it.
    pub(super) fn steer(
        &mut self,
        session: &SessionKey,
        met: TurnId,
        agent: &SelectedAgent,
        input: &TurnInput,
    ) -> bool {
        if self.sessions.running_turn(session) != Some(met) || self.sessions.has_waiting(session) {
            return false;
        }
        let Some(LiveTurn {
            state: TurnPhase::Running(running),
            ..
        }) = self.live.get_mut(&met)
        else {
            return false;
        };
        let steered = !running.declined
            && running.agent.is_same(agent)
            && running.agent.agent.info().steers
            && running.agent.agent.steer(session, input);
        running.steered += u64::from(steered);
        self.counters.steered += u64::from(steered);
        steered
    }

    /// Stops a session's turn: the one given, or whichever runs. Returns it, unless there is none or it is stopping already.
    pub(super) fn stop(
        &mut self,
        session: &SessionKey,
        only: Option<TurnId>,
        reason: StopReason,
    ) -> Option<TurnId> {
        if only.is_some() && self.sessions.turn_of(session) != only {
            return None;
        }
        let Interrupt::Cancel(turn) = self.sessions.interrupt(session) else {
            return None;
        };
        if let Some(live) = self.live.get_mut(&turn) {
            live.stop.get_or_insert(reason);
            live.cancel.cancel();
        }
        Some(turn)
    }

    /// The turn that shows a draft, while it runs, and its session.
    pub(super) fn showing(&self, draft: &ShownDraft) -> Option<(TurnId, SessionKey)> {
        let (turn, live) = self.live.iter().find(|(_, live)| match &live.state {
            TurnPhase::Running(running) => draft.is_of(&live.origin.chat, running.row.0.unsigned_abs()),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => false,
        })?;
        Some((*turn, live.origin.session.clone()))
    }

    /// Every turn with an author: its session and who wrote its message.
    pub(super) fn authors(&self) -> impl Iterator<Item = (TurnId, &SessionKey, &Author)> {
        let live = self
            .live
            .iter()
            .filter(|(_, live)| !live.origin.author.platform.is_empty());
        live.map(|(turn, live)| (*turn, &live.origin.session, &*live.origin.author))
    }

    /// Stops every turn; returns those that were not stopping already.
    pub(super) fn stop_all(&mut self, reason: StopReason) -> Vec<TurnId> {
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

    /// Whether a turn may still ask people.
    pub(super) fn may_ask(&self, turn: TurnId) -> bool {
        self.live.get(&turn).is_some_and(|live| live.stop.is_none())
    }

    /// The agent that runs a turn; none before it runs.
    fn running(&self, turn: TurnId) -> Option<&Running> {
        match &self.live.get(&turn)?.state {
            TurnPhase::Running(running) => Some(running),
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => None,
        }
    }

    /// The name of the agent that runs a turn, when what it saves is kept.
    pub(super) fn agent_name(&self, turn: TurnId) -> Option<&Arc<str>> {
        self.running(turn).map(|running| &running.agent.name)
    }

    /// Whether what a turn saves is kept: not once its session starts a new conversation.
    pub(super) fn keeps_state(&self, turn: TurnId) -> bool {
        self.running(turn).is_some_and(|running| !running.forgotten)
    }

    /// Whether the connector declined what a turn answers.
    pub(super) fn is_turn_declined(&self, turn: TurnId) -> bool {
        self.running(turn).is_some_and(|running| running.declined)
    }

    /// The message that a turn answers.
    pub(super) fn row_of(&self, turn: TurnId) -> Option<InboxSeq> {
        self.running(turn).map(|running| running.row)
    }

    /// The session starts a new conversation. Returns a token that is cancelled when its running turn is over.
    pub(super) fn forget(&mut self, session: &SessionKey) -> Option<CancellationToken> {
        let turn = self.sessions.turn_of(session)?;
        match &mut self.live.get_mut(&turn)?.state {
            TurnPhase::Running(running) => {
                running.forgotten = true;
                Some(running.ended.get_or_insert_default().clone())
            }
            // A turn that does not run yet waits for the agents to forget.
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => None,
        }
    }

    /// The connector declined the answer to a message. Returns the turn that still runs for it; its row is ended as
    /// ignored, so that a process killed before the turn's end has nothing to report either.
    pub(super) fn decline(&mut self, row: InboxSeq, now_ms: i64, effects: &mut Effects) -> Option<TurnId> {
        if let Some(RowState::Ending(ending)) = self.rows.get_mut(&row) {
            ending.declined = true;
        }
        for (turn, live) in &mut self.live {
            if let TurnPhase::Running(running) = &mut live.state
                && running.row == row
            {
                if !std::mem::replace(&mut running.declined, true) {
                    effects.write(Command::End {
                        seq: row,
                        state: RowOutcome::Ignored,
                        ops: Vec::new(),
                        now_ms,
                    });
                }
                return Some(*turn);
            }
        }
        None
    }

    /// Whether the connector declined the answer that these ops belong to.
    pub(super) fn is_declined(&self, group: OpGroup) -> bool {
        let OpGroup::Message(row) = group else {
            return false;
        };
        if let Some(RowState::Ending(ending)) = self.rows.get(&row) {
            return ending.declined;
        }
        self.live.values().any(|live| match &live.state {
            TurnPhase::Running(running) => running.row == row && running.declined,
            TurnPhase::Accepting | TurnPhase::Loading | TurnPhase::Choosing(..) => false,
        })
    }

    /// A turn has ended: its session is free. `None` for a turn that is not there, or never ran.
    pub(super) fn end(&mut self, report: &TurnReport) -> Option<EndedTurn> {
        let live = self.live.remove(&report.turn)?;
        self.sessions.ended(&live.origin.session, report.turn);
        let TurnPhase::Running(running) = live.state else {
            return None;
        };
        if let Some(ended) = running.ended {
            ended.cancel();
        }
        self.metrics.ended(running.started.elapsed(), report.first_text);
        self.counters.input_tokens += report.usage.input_tokens;
        self.counters.output_tokens += report.usage.output_tokens;
        let (outcome, result, notice) = self.conclude(report, live.stop);
        let span = &live.origin.span;
        span.record("steered", running.steered);
        record_report(&running.span, report);
        let outcome_name = if running.declined {
            "declined"
        } else {
            outcome_label(outcome)
        };
        span.record("outcome", outcome_name);
        tracing::info!(
            parent: span,
            agent = &*running.agent.name,
            platform = live.origin.chat.platform,
            outcome = outcome_name,
            ms = u64::try_from(running.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "turn ended"
        );
        Some(EndedTurn {
            origin: live.origin,
            row: running.row,
            agent: running.agent.name,
            outcome,
            result,
            // A turn that was stopped before it said anything stays silent.
            notice: notice.filter(|_| outcome != RowOutcome::Stopped || report.has_text),
            declined: running.declined,
        })
    }

    /// The agent panicked: what its turn ends with.
    pub(super) fn panicked(turn: TurnId) -> TurnEnd {
        tracing::error!(turn = turn.0, "the agent panicked");
        TurnEnd::Failed(Failure::new(
            FailureClass::Internal,
            "Something went wrong inside the agent.",
            "it panicked",
        ))
    }

    /// What a turn's end means: for the journal, for the chat's indicators, and as the turn's last text.
    fn conclude(
        &mut self,
        report: &TurnReport,
        stop: Option<StopReason>,
    ) -> (RowOutcome, TurnResult, Option<String>) {
        let turn = report.turn;
        match &report.end {
            TurnEnd::Completed => {
                self.counters.done += 1;
                (RowOutcome::Done, TurnResult::Done, None)
            }
            TurnEnd::Truncated(why) => {
                self.counters.done += 1;
                let notice = match why {
                    Truncation::Tokens => "[truncated: the model reached its output limit]",
                    Truncation::Steps => "[stopped: the turn reached its step limit]",
                    Truncation::Filter => "[truncated by the provider]",
                    Truncation::Size => "[truncated: the answer is too long]",
                };
                (RowOutcome::Done, TurnResult::Done, Some(notice.to_owned()))
            }
            TurnEnd::Refused => {
                self.counters.done += 1;
                let notice = "The agent declined to answer.".to_owned();
                (RowOutcome::Done, TurnResult::Failed, Some(notice))
            }
            TurnEnd::Cancelled { confirmed } => {
                self.counters.stopped += 1;
                if !confirmed {
                    tracing::warn!(
                        turn = turn.0,
                        "the agent did not stop in time; its turn was dropped"
                    );
                }
                if stop == Some(StopReason::Shutdown) {
                    let notice = self.interrupted_notice.clone();
                    return (RowOutcome::Interrupted, TurnResult::Stopped, notice);
                }
                (
                    RowOutcome::Stopped,
                    TurnResult::Stopped,
                    Some("[stopped]".to_owned()),
                )
            }
            TurnEnd::Failed(failure) => {
                self.counters.failed += 1;
                tracing::warn!(turn = turn.0, class = ?failure.class, detail = failure.detail, "the turn failed");
                let notice = failure.public_text.clone();
                (RowOutcome::Failed, TurnResult::Failed, Some(notice))
            }
        }
    }

    /// Counts a turn that an earlier run left running.
    pub(super) fn count_interrupted(&mut self) {
        self.counters.interrupted += 1;
    }

    /// Ends a message: its outcome and its ops are one commit, after which [`Self::committed`] returns the ops.
    pub(super) fn end_row(
        &mut self,
        row: InboxSeq,
        outcome: RowOutcome,
        ending: Ending,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        effects.write(Command::End {
            seq: row,
            state: outcome,
            ops: ending.ops.iter().map(DurableOp::to_row).collect(),
            now_ms,
        });
        self.rows.insert(row, RowState::Ending(ending));
    }

    /// The end of a message is committed.
    pub(super) fn committed(&mut self, row: InboxSeq) -> Option<Ending> {
        match self.rows.remove(&row)? {
            RowState::Ending(ending) => Some(ending),
            // The connector declined the answer of a turn that is being read again.
            other @ (RowState::Loading { .. } | RowState::Interrupted) => {
                self.rows.insert(row, other);
                None
            }
        }
    }

    /// Asks all tasks to end, and waits for that.
    pub(super) async fn abort_all(&mut self, within: Duration) {
        self.tasks.abort_all();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(within, ended).await.is_err() {
            tracing::warn!(left = self.tasks.len(), "some turns did not end in time");
        }
    }
}

/// The span that follows one message through the log.
pub(super) fn message_span(session: &SessionKey) -> tracing::Span {
    tracing::info_span!(
        "session",
        session = session.as_str(),
        attempt = Empty,
        waited_ms = Empty,
        steered = Empty,
        ops = Empty,
        outcome = Empty,
    )
}

/// Adds to a turn's span what its agent reported.
fn record_report(span: &tracing::Span, report: &TurnReport) {
    if let TurnEnd::Failed(failure) = &report.end {
        span.record("failure", failure.class.label());
    }
    if let Some(after) = report.first_text {
        span.record(
            "first_text_ms",
            u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
        );
    }
    if report.usage != Usage::default() {
        span.record("input_tokens", report.usage.input_tokens);
        span.record("output_tokens", report.usage.output_tokens);
    }
}

/// How a turn ended, for its span.
fn outcome_label(outcome: RowOutcome) -> &'static str {
    match outcome {
        RowOutcome::Done => "done",
        RowOutcome::Stopped => "stopped",
        RowOutcome::Failed => "failed",
        RowOutcome::Interrupted => "interrupted",
        _ => "other",
    }
}

/// Reads a journaled line back.
pub(super) fn decode_row(row: &InboxRow) -> Option<MessageEvent> {
    let frame = ConnectorFrame::decode(row.line.as_deref()?).ok()?;
    match (row.kind, frame) {
        (InboxKind::Inbound, ConnectorFrame::Inbound { event, .. }) => Some(*event),
        (InboxKind::Forward, ConnectorFrame::PassthroughForward { forward, .. }) => {
            interaction_event(&forward)
        }
        _ => None,
    }
}
