//! One turn at a time per session, and a limit on running turns over all sessions.
//!
//! A session exists here only while it runs or has messages waiting. A message whose session is free is admitted
//! immediately and reserves the turn while the journal commits it; every other message is queued by its journal row once it
//! is committed (`admit`, then `enqueue`, `cancel_admission` or `cancel_waiting`). Rows beyond the queue's capacity stay in
//! the journal and are read again with `refill`. Invariants: a session's messages start in order of arrival; a turn ends
//! exactly once; the number of running turns never exceeds the limit.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::wire::SessionKey;

/// Names a turn within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// Limits of [`Sessions`].
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Maximum running turns over all sessions.
    pub running: usize,
    /// Maximum rows of one session in memory; more stay in the journal.
    pub queued: usize,
}

/// Whether a message may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It starts this turn once it is committed.
    Start(TurnId),
    /// It waits for its session's turn to end, or for a free slot.
    Wait {
        /// The session's turn, if there is one.
        behind: Option<TurnId>,
    },
}

/// Why a turn is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A person or the connector asked for it.
    Asked,
    /// A newer message replaces it.
    Superseded,
    /// The relay is shutting down.
    Shutdown,
}

/// The effect of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Cancel this turn now.
    Cancel(TurnId),
    /// The session has no turn, or it is being stopped already.
    Nothing,
}

#[derive(Debug)]
enum State {
    /// Nothing runs; messages wait for a free slot.
    Idle,
    /// A turn runs, or is reserved until its message is committed.
    Running(TurnId),
    /// A turn is being stopped and has not ended yet.
    Stopping(TurnId),
}

impl State {
    fn turn(&self) -> Option<TurnId> {
        match self {
            Self::Idle => None,
            Self::Running(turn) | Self::Stopping(turn) => Some(*turn),
        }
    }
}

/// Whether the journal has rows of a session that are not in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalRows {
    /// No.
    Nothing,
    /// Yes.
    More,
    /// Yes, and they were requested.
    Asked,
    /// Yes, they were requested, and more have been added since.
    AskedAndMore,
}

#[derive(Debug)]
struct Session {
    state: State,
    queue: VecDeque<i64>,
    in_journal: JournalRows,
    /// The last row that was queued.
    last: i64,
    /// Messages that will wait and are not committed yet: no later message may start before them.
    uncommitted_waiting: usize,
    /// Whether the queue has overflowed since the session was last inactive.
    overflowed: bool,
}

impl Session {
    fn new(state: State) -> Self {
        Self {
            state,
            queue: VecDeque::new(),
            in_journal: JournalRows::Nothing,
            last: 0,
            uncommitted_waiting: 0,
            overflowed: false,
        }
    }

    /// Whether nothing runs, waits or is being committed.
    fn is_inactive(&self) -> bool {
        matches!(self.state, State::Idle)
            && self.queue.is_empty()
            && self.in_journal == JournalRows::Nothing
            && self.uncommitted_waiting == 0
    }
}

/// All active sessions.
#[derive(Debug)]
pub struct Sessions {
    limits: SessionLimits,
    active: HashMap<SessionKey, Session>,
    /// Idle sessions with waiting messages, first come first served.
    line: VecDeque<SessionKey>,
    in_line: HashSet<SessionKey>,
    /// Sessions that may have to be refilled.
    to_refill: VecDeque<SessionKey>,
    running: usize,
    next_turn: u64,
    paused: bool,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            active: HashMap::new(),
            line: VecDeque::new(),
            in_line: HashSet::new(),
            to_refill: VecDeque::new(),
            running: 0,
            next_turn: 1,
            paused: false,
        }
    }

    /// Admits a message that is about to be written to the journal. [`Admission::Start`] reserves the turn until it ends or
    /// [`Self::cancel_admission`]; [`Admission::Wait`] is followed by [`Self::enqueue`] or [`Self::cancel_waiting`].
    pub fn admit(&mut self, key: &SessionKey) -> Admission {
        if let Some(session) = self.active.get_mut(key) {
            session.uncommitted_waiting += 1;
            return Admission::Wait {
                behind: session.state.turn(),
            };
        }
        if self.paused || self.running >= self.limits.running || !self.line.is_empty() {
            let session = self
                .active
                .entry(key.clone())
                .or_insert_with(|| Session::new(State::Idle));
            session.uncommitted_waiting = 1;
            return Admission::Wait { behind: None };
        }
        let turn = self.begin();
        self.active
            .insert(key.clone(), Session::new(State::Running(turn)));
        Admission::Start(turn)
    }

    /// The message of an admitted turn was a duplicate or could not be stored: releases the turn.
    pub fn cancel_admission(&mut self, key: &SessionKey, turn: TurnId) {
        self.ended(key, turn);
    }

    /// A message that was to wait was a duplicate or could not be stored.
    pub fn cancel_waiting(&mut self, key: &SessionKey) {
        if let Some(session) = self.active.get_mut(key) {
            session.uncommitted_waiting = session.uncommitted_waiting.saturating_sub(1);
            self.drop_if_inactive(key);
        }
    }

    /// Queues a committed row. Returns whether it was the first that overflowed the queue since the session was last
    /// inactive.
    pub fn enqueue(&mut self, key: &SessionKey, row: i64) -> bool {
        let bound = self.limits.queued.max(1);
        let session = self
            .active
            .entry(key.clone())
            .or_insert_with(|| Session::new(State::Idle));
        session.uncommitted_waiting = session.uncommitted_waiting.saturating_sub(1);
        let first_over = match session.in_journal {
            JournalRows::Nothing if session.queue.len() < bound => {
                session.queue.push_back(row);
                session.last = row;
                false
            }
            JournalRows::Nothing => {
                session.in_journal = JournalRows::More;
                !std::mem::replace(&mut session.overflowed, true)
            }
            JournalRows::Asked => {
                session.in_journal = JournalRows::AskedAndMore;
                false
            }
            JournalRows::More | JournalRows::AskedAndMore => false,
        };
        self.join_line(key);
        first_over
    }

    /// The journal has rows of this session from an earlier run; they start first.
    pub fn recover(&mut self, key: &SessionKey) {
        let session = self
            .active
            .entry(key.clone())
            .or_insert_with(|| Session::new(State::Idle));
        session.in_journal = JournalRows::More;
        self.to_refill.push_back(key.clone());
    }

    /// The next session whose queue is empty while the journal has more rows, and the row after which to read. Answer with
    /// [`Self::refill`].
    pub fn next_refill(&mut self) -> Option<(SessionKey, i64)> {
        loop {
            let key = self.to_refill.pop_front()?;
            let Some(session) = self.active.get_mut(&key) else {
                continue;
            };
            if session.queue.is_empty() && session.in_journal == JournalRows::More {
                session.in_journal = JournalRows::Asked;
                return Some((key, session.last));
            }
        }
    }

    /// Adds the rows that [`Self::next_refill`] requested; `complete` if the journal has no more.
    pub fn refill(&mut self, key: &SessionKey, rows: impl IntoIterator<Item = i64>, complete: bool) {
        let Some(session) = self.active.get_mut(key) else {
            return;
        };
        session.queue.extend(rows);
        session.last = session.queue.back().copied().unwrap_or(session.last);
        let came_since = session.in_journal == JournalRows::AskedAndMore;
        session.in_journal = if complete && !came_since {
            JournalRows::Nothing
        } else {
            JournalRows::More
        };
        self.drop_if_inactive(key);
        self.join_line(key);
    }

    /// Ends a turn; if messages wait, the session goes to the end of the line. Does nothing for a turn that is not the
    /// session's current one.
    pub fn ended(&mut self, key: &SessionKey, turn: TurnId) -> bool {
        let Some(session) = self.active.get_mut(key) else {
            return false;
        };
        if session.state.turn() != Some(turn) {
            return false;
        }
        session.state = State::Idle;
        self.running -= 1;
        if session.is_inactive() {
            self.active.remove(key);
        } else {
            self.join_line(key);
        }
        true
    }

    /// The next waiting row that may start now, with its turn. Call it until there is none.
    pub fn next_start(&mut self) -> Option<(SessionKey, i64, TurnId)> {
        while !self.paused && self.running < self.limits.running {
            let key = self.line.pop_front()?;
            self.in_line.remove(&key);
            let turn = TurnId(self.next_turn);
            let Some(session) = self.active.get_mut(&key) else {
                continue;
            };
            let Some(row) = session.queue.pop_front() else {
                continue;
            };
            session.state = State::Running(turn);
            if session.queue.is_empty() && session.in_journal == JournalRows::More {
                self.to_refill.push_back(key.clone());
            }
            self.begin();
            return Some((key, row, turn));
        }
        None
    }

    /// Stops the session's current turn, unless it is being stopped already. Later turns are not affected.
    pub fn interrupt(&mut self, key: &SessionKey) -> Interrupt {
        match self.active.get_mut(key) {
            Some(session) => match session.state {
                State::Running(turn) => {
                    session.state = State::Stopping(turn);
                    Interrupt::Cancel(turn)
                }
                State::Idle | State::Stopping(_) => Interrupt::Nothing,
            },
            None => Interrupt::Nothing,
        }
    }

    /// Starts no turns until [`Self::resume`]: for shutdown, or when too many ops wait.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Starts turns again.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Turns that run now.
    pub fn running(&self) -> usize {
        self.running
    }

    /// The session's turn, unless it is being stopped.
    pub fn running_turn(&self, key: &SessionKey) -> Option<TurnId> {
        match self.active.get(key)?.state {
            State::Running(turn) => Some(turn),
            State::Idle | State::Stopping(_) => None,
        }
    }

    /// Rows waiting in memory.
    pub fn queued(&self) -> usize {
        self.active.values().map(|session| session.queue.len()).sum()
    }

    /// Sessions that wait without a running turn, in no order, each with its number of rows in memory.
    pub fn idle(&self) -> impl Iterator<Item = (&SessionKey, usize)> {
        let idle = |session: &Session| matches!(session.state, State::Idle);
        self.active
            .iter()
            .filter(move |(_, session)| idle(session))
            .map(|(key, session)| (key, session.queue.len()))
    }

    /// Number of active sessions.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Rows of the session waiting in memory.
    pub fn waiting(&self, key: &SessionKey) -> usize {
        self.active.get(key).map_or(0, |session| session.queue.len())
    }

    /// Whether rows of the session wait, in memory or in the journal.
    pub fn has_waiting(&self, key: &SessionKey) -> bool {
        let waits =
            |session: &Session| !session.queue.is_empty() || session.in_journal != JournalRows::Nothing;
        self.active.get(key).is_some_and(waits)
    }

    /// The session's turn.
    pub fn turn_of(&self, key: &SessionKey) -> Option<TurnId> {
        self.active.get(key).and_then(|session| session.state.turn())
    }

    fn begin(&mut self) -> TurnId {
        let turn = TurnId(self.next_turn);
        self.next_turn += 1;
        self.running += 1;
        turn
    }

    fn join_line(&mut self, key: &SessionKey) {
        let Some(session) = self.active.get(key) else {
            return;
        };
        if session.queue.is_empty() {
            if session.in_journal == JournalRows::More {
                self.to_refill.push_back(key.clone());
            }
        } else if matches!(session.state, State::Idle) && self.in_line.insert(key.clone()) {
            self.line.push_back(key.clone());
        }
    }

    fn drop_if_inactive(&mut self, key: &SessionKey) {
        if self.active.get(key).is_some_and(Session::is_inactive) {
            self.active.remove(key);
        }
    }
}
