//! One turn at a time per session, and a limit on running turns over all sessions.
//!
//! A session exists here only while it runs or has messages waiting. A message whose session is free is admitted
//! immediately and reserves the turn while the journal commits it; every other message is queued by its journal row once it
//! is committed (`admit`, then `enqueue`, `cancel_admission` or `cancel_waiting`). Rows beyond the queue's capacity stay in
//! the journal and are read again with `refill`. Sessions beyond the limit of waiting ones are not kept here at all: the
//! journal finds them again, in order of arrival (`reload`), and until then no session that is not here starts anything.
//! Invariants: a session's messages start in order of arrival, behind the wakes of the session, which start in order of theirs; a
//! turn ends exactly once; the number of running turns never exceeds the limit; a session that is here knows of all its rows.

use std::collections::{HashSet, VecDeque};

use crate::collections::TextMap;
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
    /// Maximum sessions that wait in memory; more stay in the journal.
    pub waiting: usize,
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
    /// A program woke the session.
    Woken,
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
enum SessionState {
    /// Nothing runs; messages wait for a free slot.
    Idle,
    /// A turn runs, or is reserved until its message is committed.
    Running(TurnId),
    /// A turn is being stopped and has not ended yet.
    Stopping(TurnId),
}

impl SessionState {
    fn turn(&self) -> Option<TurnId> {
        match self {
            Self::Idle => None,
            Self::Running(turn) | Self::Stopping(turn) => Some(*turn),
        }
    }
}

/// Whether the journal has rows that are not here: of one session, or of sessions that are not here either.
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
    state: SessionState,
    queue: VecDeque<i64>,
    /// How many rows at the head of `queue` are wakes.
    wakes: usize,
    /// Rows that were queued before others which the journal still has, and are not to be read again with those: wakes, and what runs
    /// again.
    read_ahead: Vec<i64>,
    in_journal: JournalRows,
    /// How many rows the journal has that are not in `queue`.
    beyond: usize,
    /// The last row that was queued in order.
    last: i64,
    /// Messages that will wait and are not committed yet: no later message may start before them.
    uncommitted_waiting: usize,
    /// Whether the queue has overflowed since the session was last inactive.
    overflowed: bool,
}

impl Session {
    fn new(state: SessionState) -> Self {
        Self {
            state,
            queue: VecDeque::new(),
            wakes: 0,
            read_ahead: Vec::new(),
            in_journal: JournalRows::Nothing,
            beyond: 0,
            last: 0,
            uncommitted_waiting: 0,
            overflowed: false,
        }
    }

    /// A session of which the journal has rows of an earlier run.
    fn recovered() -> Self {
        Self {
            in_journal: JournalRows::More,
            ..Self::new(SessionState::Idle)
        }
    }

    /// Rows that wait, in memory and in the journal.
    fn waiting(&self) -> usize {
        self.queue.len() + self.beyond
    }

    /// Whether the journal has a row behind those in memory.
    fn has_beyond(&self, row: i64) -> bool {
        self.in_journal != JournalRows::Nothing && row > self.last && !self.read_ahead.contains(&row)
    }

    /// Takes the next row that waits in memory.
    fn pop(&mut self) -> Option<i64> {
        let row = self.queue.pop_front()?;
        self.wakes = self.wakes.saturating_sub(1);
        Some(row)
    }

    /// Puts a row that waits before all others but wakes.
    fn put_first(&mut self, row: i64) {
        self.queue.insert(self.wakes, row);
        self.wakes += 1;
    }

    /// Whether nothing runs, waits or is being committed.
    fn is_inactive(&self) -> bool {
        matches!(self.state, SessionState::Idle)
            && self.queue.is_empty()
            && self.in_journal == JournalRows::Nothing
            && self.uncommitted_waiting == 0
    }
}

/// All active sessions.
#[derive(Debug)]
pub struct Sessions {
    limits: SessionLimits,
    active: TextMap<SessionKey, Session>,
    /// Idle sessions with waiting messages, first come first served.
    line: VecDeque<SessionKey>,
    in_line: HashSet<SessionKey>,
    /// Sessions that may have to be refilled.
    to_refill: VecDeque<SessionKey>,
    /// Rows of sessions that are not in `active`.
    elsewhere: JournalRows,
    /// All of those rows that were not requested yet come after this one.
    elsewhere_after: i64,
    /// Messages that are not committed yet, of sessions that were not in `active` when they came.
    uncommitted_elsewhere: TextMap<SessionKey, usize>,
    running: usize,
    next_turn: u64,
    paused: bool,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            active: TextMap::default(),
            line: VecDeque::new(),
            in_line: HashSet::new(),
            to_refill: VecDeque::new(),
            elsewhere: JournalRows::Nothing,
            elsewhere_after: i64::MAX,
            uncommitted_elsewhere: TextMap::default(),
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
        if self.is_full() || self.uncommitted_elsewhere.contains_key(key) {
            *self.uncommitted_elsewhere.entry(key.clone()).or_default() += 1;
            return Admission::Wait { behind: None };
        }
        if self.paused || self.running >= self.limits.running || !self.line.is_empty() {
            let session = self
                .active
                .entry(key.clone())
                .or_insert_with(|| Session::new(SessionState::Idle));
            session.uncommitted_waiting = 1;
            return Admission::Wait { behind: None };
        }
        let turn = self.begin();
        self.active
            .insert(key.clone(), Session::new(SessionState::Running(turn)));
        Admission::Start(turn)
    }

    /// The message of an admitted turn was a duplicate or could not be stored: releases the turn.
    pub fn cancel_admission(&mut self, key: &SessionKey, turn: TurnId) {
        self.ended(key, turn);
    }

    /// A message that was to wait was a duplicate or could not be stored.
    pub fn cancel_waiting(&mut self, key: &SessionKey) {
        if self.committed_elsewhere(key) {
            return;
        }
        if let Some(session) = self.active.get_mut(key) {
            session.uncommitted_waiting = session.uncommitted_waiting.saturating_sub(1);
            self.drop_if_inactive(key);
        }
    }

    /// Queues a committed row. Returns whether it was the first that overflowed the queue since the session was last
    /// inactive.
    pub fn enqueue(&mut self, key: &SessionKey, row: i64) -> bool {
        self.enqueue_as(key, row, false)
    }

    /// Queues a committed row of a wake: it starts next, behind other wakes. Of more wakes than the queue holds, the later ones start
    /// in order of arrival.
    pub fn enqueue_wake(&mut self, key: &SessionKey, row: i64) -> bool {
        self.enqueue_as(key, row, true)
    }

    fn enqueue_as(&mut self, key: &SessionKey, row: i64, is_wake: bool) -> bool {
        let bound = self.limits.queued.max(1);
        let came_elsewhere = self.committed_elsewhere(key);
        if came_elsewhere && self.is_full() && !self.active.contains_key(key) {
            self.leave_elsewhere(row);
            return false;
        }
        let session = self
            .active
            .entry(key.clone())
            .or_insert_with(|| Session::new(SessionState::Idle));
        if !came_elsewhere {
            session.uncommitted_waiting = session.uncommitted_waiting.saturating_sub(1);
        }
        if is_wake && session.wakes < bound {
            session.put_first(row);
            if session.in_journal == JournalRows::Nothing {
                session.last = session.last.max(row);
            } else {
                session.read_ahead.push(row);
            }
            self.join_line(key);
            return false;
        }
        if session.in_journal == JournalRows::Nothing && session.queue.len() < bound {
            session.queue.push_back(row);
            session.last = row;
            self.join_line(key);
            return false;
        }
        session.beyond += 1;
        let first_over = match session.in_journal {
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

    /// A row that waits in memory is a wake's: it starts next, behind other wakes.
    pub fn move_ahead(&mut self, key: &SessionKey, row: i64) {
        if let Some(session) = self.active.get_mut(key)
            && let Some(place) = session.queue.iter().position(|waiting| *waiting == row)
            && place >= session.wakes
        {
            session.queue.remove(place);
            session.put_first(row);
        }
    }

    /// Whether a row was queued before others that the journal still has. A read of those may find it, too.
    pub fn is_read_ahead(&self, key: &SessionKey, row: i64) -> bool {
        (self.active.get(key)).is_some_and(|session| session.read_ahead.contains(&row))
    }

    /// Queues a row that had its turn before, behind those in memory; rows that only the journal has follow it.
    pub fn enqueue_again(&mut self, key: &SessionKey, row: i64) {
        self.cancel_waiting(key);
        let session = self.active.entry(key.clone()).or_insert_with(Session::recovered);
        session.queue.push_back(row);
        if session.in_journal != JournalRows::Nothing {
            session.read_ahead.push(row);
        }
        self.join_line(key);
    }

    /// The journal has waiting rows of an earlier run; they start first.
    pub fn recover(&mut self) {
        self.elsewhere = JournalRows::More;
        self.elsewhere_after = 0;
    }

    /// The row after which to read the rows of sessions that are not here, once there is room for them. Answer with
    /// [`Self::reload`].
    pub fn next_reload(&mut self) -> Option<i64> {
        let has_room = self.waiting_sessions() <= self.limits.waiting / 2;
        (has_room && self.elsewhere == JournalRows::More).then(|| {
            self.elsewhere = JournalRows::Asked;
            std::mem::replace(&mut self.elsewhere_after, i64::MAX)
        })
    }

    /// Takes in the sessions of the rows that [`Self::next_reload`] requested, in their order. `read_to` is the last of these
    /// rows if there may be more.
    pub fn reload(&mut self, sessions: impl IntoIterator<Item = SessionKey>, read_to: Option<i64>) {
        for key in sessions {
            if !self.active.contains_key(&key) {
                self.active.insert(key.clone(), Session::recovered());
                self.to_refill.push_back(key);
            }
        }
        let came_since = self.elsewhere == JournalRows::AskedAndMore;
        self.elsewhere = if came_since || read_to.is_some() {
            JournalRows::More
        } else {
            JournalRows::Nothing
        };
        self.elsewhere_after = self.elsewhere_after.min(read_to.unwrap_or(i64::MAX));
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

    /// Adds the rows that [`Self::next_refill`] requested, without those that were read ahead, and how many of those behind them wait;
    /// `None` for that if the journal has no more, and for all if they could not be read.
    pub fn refill(&mut self, key: &SessionKey, read: Option<(&[i64], Option<usize>)>) {
        let Some(session) = self.active.get_mut(key) else {
            return;
        };
        let came_since = session.in_journal == JournalRows::AskedAndMore;
        session.in_journal = JournalRows::More;
        if let Some((rows, more)) = read {
            session.queue.extend(rows);
            session.last = rows.last().copied().unwrap_or(session.last);
            let since = if came_since {
                session.beyond.saturating_sub(rows.len())
            } else {
                0
            };
            session.beyond = more.unwrap_or_default().max(since);
            if more.is_none() && !came_since {
                session.in_journal = JournalRows::Nothing;
                session.read_ahead.clear();
            }
            let last = session.last;
            session.read_ahead.retain(|row| *row > last);
        }
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
        session.state = SessionState::Idle;
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
            let Some(row) = session.pop() else {
                continue;
            };
            session.state = SessionState::Running(turn);
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
                SessionState::Running(turn) => {
                    session.state = SessionState::Stopping(turn);
                    Interrupt::Cancel(turn)
                }
                SessionState::Idle | SessionState::Stopping(_) => Interrupt::Nothing,
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
            SessionState::Running(turn) => Some(turn),
            SessionState::Idle | SessionState::Stopping(_) => None,
        }
    }

    /// Rows waiting in memory.
    pub fn queued(&self) -> usize {
        self.active.values().map(|session| session.queue.len()).sum()
    }

    /// Sessions that wait without a running turn, in no order, each with its number of rows.
    pub fn idle(&self) -> impl Iterator<Item = (&SessionKey, usize)> {
        let idle = |session: &Session| matches!(session.state, SessionState::Idle);
        self.active
            .iter()
            .filter(move |(_, session)| idle(session))
            .map(|(key, session)| (key, session.waiting()))
    }

    /// Whether sessions wait that are not here.
    pub fn has_elsewhere(&self) -> bool {
        self.elsewhere != JournalRows::Nothing
    }

    /// Number of active sessions.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Rows of the session that wait, in memory and in the journal.
    pub fn waiting(&self, key: &SessionKey) -> usize {
        self.active.get(key).map_or(0, Session::waiting)
    }

    /// The session's rows that wait in memory, in order.
    pub fn rows(&self, key: &SessionKey) -> impl Iterator<Item = i64> {
        let session = self.active.get(key);
        session
            .into_iter()
            .flat_map(|session| session.queue.iter().copied())
    }

    /// Whether a committed row of the session that is not over may wait: it does in memory; the journal may have it behind what is in
    /// memory.
    pub fn may_wait(&self, key: &SessionKey, row: i64) -> bool {
        match self.active.get(key) {
            Some(session) => session.has_beyond(row) || session.queue.contains(&row),
            None => self.has_elsewhere(),
        }
    }

    /// Whether the journal may have rows of the session that were not read.
    pub fn has_unread(&self, key: &SessionKey) -> bool {
        let has_more = |session: &Session| session.in_journal != JournalRows::Nothing;
        self.active.get(key).map_or(self.has_elsewhere(), has_more)
    }

    /// A row that waits is about to be ended.
    pub fn withdraw(&mut self, key: &SessionKey, row: i64) {
        if let Some(session) = self.active.get_mut(key) {
            if let Some(place) = session.queue.iter().position(|waiting| *waiting == row) {
                session.queue.remove(place);
                session.wakes -= usize::from(place < session.wakes);
            } else if session.has_beyond(row) {
                session.beyond = session.beyond.saturating_sub(1);
            }
            self.join_line(key);
            self.drop_if_inactive(key);
        }
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

    /// Sessions here without a turn.
    fn waiting_sessions(&self) -> usize {
        self.active.len() - self.running
    }

    /// Whether no further session may wait here.
    fn is_full(&self) -> bool {
        self.has_elsewhere() || self.waiting_sessions() >= self.limits.waiting.max(1)
    }

    /// Whether the next message of the session to be committed came when it was not here.
    fn committed_elsewhere(&mut self, key: &SessionKey) -> bool {
        let Some(count) = self.uncommitted_elsewhere.get_mut(key) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.uncommitted_elsewhere.remove(key);
        }
        true
    }

    /// Leaves a committed row to the journal.
    fn leave_elsewhere(&mut self, row: i64) {
        self.elsewhere_after = self.elsewhere_after.min(row - 1);
        self.elsewhere = match self.elsewhere {
            JournalRows::Nothing | JournalRows::More => JournalRows::More,
            JournalRows::Asked | JournalRows::AskedAndMore => JournalRows::AskedAndMore,
        };
    }

    fn join_line(&mut self, key: &SessionKey) {
        let Some(session) = self.active.get(key) else {
            return;
        };
        if session.queue.is_empty() {
            if session.in_journal == JournalRows::More {
                self.to_refill.push_back(key.clone());
            }
        } else if matches!(session.state, SessionState::Idle) && self.in_line.insert(key.clone()) {
            self.line.push_back(key.clone());
        }
    }

    fn drop_if_inactive(&mut self, key: &SessionKey) {
        if self.active.get(key).is_some_and(Session::is_inactive) {
            self.active.remove(key);
        }
    }
}
