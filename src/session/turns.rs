//! One turn at a time per session, any number of sessions side by side, up to a limit.
//!
//! A session exists here only while it runs or has something waiting; a quiet one costs nothing. A message
//! that finds its session free is admitted at once and holds the place while the journal commits it; every
//! other message is queued by its journal row once it is committed (`admit`, then `enqueue`, `cancel_admission` or
//! `cancel_waiting`). Rows beyond the queue's bound stay in the journal and are asked for again with `refill`.
//! Invariants: a session's messages start in the order in which they arrived; a turn is ended exactly once;
//! the number of running turns never passes the limit.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::wire::SessionKey;

/// Names one turn for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// How much may run and wait.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Turns at the same time, over all sessions.
    pub running: usize,
    /// Rows that one session keeps in memory; more stay in the journal.
    pub queued: usize,
}

/// What becomes of a message that has just arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It starts this turn as soon as the journal has it.
    Start(TurnId),
    /// It waits for `running` to end, or for a free place.
    Wait {
        /// The session's own turn, when there is one.
        behind: Option<TurnId>,
    },
}

/// Why a turn is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A person or the connector asked for it.
    Asked,
    /// A newer message takes its place.
    Superseded,
    /// The relay is shutting down.
    Shutdown,
}

/// What an interrupt met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// This turn is to be cancelled now.
    Cancel(TurnId),
    /// The session has no turn, or it is being stopped already.
    Nothing,
}

#[derive(Debug)]
enum State {
    /// Nothing runs; something waits for a free place.
    Idle,
    /// A turn runs, or holds the place until its message is committed.
    Running(TurnId),
    /// A turn was told to stop and has not ended yet.
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

/// Whether the journal holds rows of a session that its queue does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    /// The queue is all there is.
    Nothing,
    /// There are more.
    More,
    /// There are more, and the journal was asked for them.
    Asked,
    /// The same, and yet more have come since it was asked.
    AskedAndMore,
}

#[derive(Debug)]
struct Session {
    state: State,
    queue: VecDeque<i64>,
    beyond: Beyond,
    /// The last row that was queued.
    last: i64,
    /// Messages that arrived to wait and are not committed yet: nothing that arrives later may start first.
    coming: usize,
    /// Whether it did not fit in memory since it was last quiet.
    overflowed: bool,
}

impl Session {
    fn new(state: State) -> Self {
        Self {
            state,
            queue: VecDeque::new(),
            beyond: Beyond::Nothing,
            last: 0,
            coming: 0,
            overflowed: false,
        }
    }

    /// Whether nothing runs and nothing waits or is on its way.
    fn is_quiet(&self) -> bool {
        matches!(self.state, State::Idle)
            && self.queue.is_empty()
            && self.beyond == Beyond::Nothing
            && self.coming == 0
    }
}

/// All sessions that have something going on.
#[derive(Debug)]
pub struct Sessions {
    limits: SessionLimits,
    active: HashMap<SessionKey, Session>,
    /// Idle sessions with something waiting, first come first served.
    line: VecDeque<SessionKey>,
    in_line: HashSet<SessionKey>,
    /// Sessions that may have to be refilled.
    dry: VecDeque<SessionKey>,
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
            dry: VecDeque::new(),
            running: 0,
            next_turn: 1,
            paused: false,
        }
    }

    /// A message arrived and is about to be written to the journal. [`Admission::Start`] holds the place for
    /// it until the turn ends or [`Self::cancel_admission`]; [`Admission::Wait`] is followed by [`Self::enqueue`] or
    /// [`Self::cancel_waiting`].
    pub fn admit(&mut self, key: &SessionKey) -> Admission {
        if let Some(session) = self.active.get_mut(key) {
            session.coming += 1;
            return Admission::Wait {
                behind: session.state.turn(),
            };
        }
        if self.paused || self.running >= self.limits.running || !self.line.is_empty() {
            let session = self
                .active
                .entry(key.clone())
                .or_insert_with(|| Session::new(State::Idle));
            session.coming = 1;
            return Admission::Wait { behind: None };
        }
        let turn = self.begin();
        self.active
            .insert(key.clone(), Session::new(State::Running(turn)));
        Admission::Start(turn)
    }

    /// The message of an admitted turn turned out to be none (a duplicate, or the journal failed): the turn
    /// never was.
    pub fn cancel_admission(&mut self, key: &SessionKey, turn: TurnId) {
        self.ended(key, turn);
    }

    /// The message that was to wait turned out to be none: nobody waits for it any more.
    pub fn cancel_waiting(&mut self, key: &SessionKey) {
        if let Some(session) = self.active.get_mut(key) {
            session.coming = session.coming.saturating_sub(1);
            self.forget_if_quiet(key);
        }
    }

    /// A committed row waits for its session. Tells whether it was the first that did not fit in memory since
    /// the session was last quiet.
    pub fn enqueue(&mut self, key: &SessionKey, row: i64) -> bool {
        let bound = self.limits.queued.max(1);
        let session = self
            .active
            .entry(key.clone())
            .or_insert_with(|| Session::new(State::Idle));
        session.coming = session.coming.saturating_sub(1);
        let first_over = match session.beyond {
            Beyond::Nothing if session.queue.len() < bound => {
                session.queue.push_back(row);
                session.last = row;
                false
            }
            Beyond::Nothing => {
                session.beyond = Beyond::More;
                !std::mem::replace(&mut session.overflowed, true)
            }
            Beyond::Asked => {
                session.beyond = Beyond::AskedAndMore;
                false
            }
            Beyond::More | Beyond::AskedAndMore => false,
        };
        self.stand_in_line(key);
        first_over
    }

    /// The journal holds rows of this session from before; they come first.
    pub fn recover(&mut self, key: &SessionKey) {
        let session = self
            .active
            .entry(key.clone())
            .or_insert_with(|| Session::new(State::Idle));
        session.beyond = Beyond::More;
        self.dry.push_back(key.clone());
    }

    /// The next session whose queue ran dry while the journal holds more, and the row after which to read.
    /// Answer with [`Self::refill`].
    pub fn next_refill(&mut self) -> Option<(SessionKey, i64)> {
        loop {
            let key = self.dry.pop_front()?;
            let Some(session) = self.active.get_mut(&key) else {
                continue;
            };
            if session.queue.is_empty() && session.beyond == Beyond::More {
                session.beyond = Beyond::Asked;
                return Some((key, session.last));
            }
        }
    }

    /// Rows that [`Self::next_refill`] asked for; `complete` when the journal had no more.
    pub fn refill(&mut self, key: &SessionKey, rows: impl IntoIterator<Item = i64>, complete: bool) {
        let Some(session) = self.active.get_mut(key) else {
            return;
        };
        session.queue.extend(rows);
        session.last = session.queue.back().copied().unwrap_or(session.last);
        let came_since = session.beyond == Beyond::AskedAndMore;
        session.beyond = if complete && !came_since {
            Beyond::Nothing
        } else {
            Beyond::More
        };
        self.forget_if_quiet(key);
        self.stand_in_line(key);
    }

    /// The turn ended; its session goes to the end of the line when something waits. Ending a turn twice, or
    /// one that is not the session's, does nothing.
    pub fn ended(&mut self, key: &SessionKey, turn: TurnId) -> bool {
        let Some(session) = self.active.get_mut(key) else {
            return false;
        };
        if session.state.turn() != Some(turn) {
            return false;
        }
        session.state = State::Idle;
        self.running -= 1;
        if session.is_quiet() {
            self.active.remove(key);
        } else {
            self.stand_in_line(key);
        }
        true
    }

    /// The next waiting row that may start now, with the turn it starts. Call until it says none.
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
            if session.queue.is_empty() && session.beyond == Beyond::More {
                self.dry.push_back(key.clone());
            }
            self.begin();
            return Some((key, row, turn));
        }
        None
    }

    /// Stops the session's turn, if it has one that is not being stopped already. Bound to the turn it
    /// meets: what starts later is not touched.
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

    /// Starts nothing new until [`Self::resume`]: shutdown, or too much waiting to go out.
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

    /// The session's turn, unless it was told to stop.
    pub fn running_turn(&self, key: &SessionKey) -> Option<TurnId> {
        match self.active.get(key)?.state {
            State::Running(turn) => Some(turn),
            State::Idle | State::Stopping(_) => None,
        }
    }

    /// Rows that wait in memory.
    pub fn queued(&self) -> usize {
        self.active.values().map(|session| session.queue.len()).sum()
    }

    /// Sessions in which nothing runs and something waits, in no order: each with how many of its rows are in memory.
    pub fn idle(&self) -> impl Iterator<Item = (&SessionKey, usize)> {
        let idle = |session: &Session| matches!(session.state, State::Idle);
        self.active
            .iter()
            .filter(move |(_, session)| idle(session))
            .map(|(key, session)| (key, session.queue.len()))
    }

    /// Sessions that run or have something waiting.
    pub fn active(&self) -> usize {
        self.active.len()
    }

    /// Rows of the session that wait in memory.
    pub fn waiting(&self, key: &SessionKey) -> usize {
        self.active.get(key).map_or(0, |session| session.queue.len())
    }

    /// Whether rows of the session wait, in memory or in the journal.
    pub fn has_waiting(&self, key: &SessionKey) -> bool {
        let waits = |session: &Session| !session.queue.is_empty() || session.beyond != Beyond::Nothing;
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

    fn stand_in_line(&mut self, key: &SessionKey) {
        let Some(session) = self.active.get(key) else {
            return;
        };
        if session.queue.is_empty() {
            if session.beyond == Beyond::More {
                self.dry.push_back(key.clone());
            }
        } else if matches!(session.state, State::Idle) && self.in_line.insert(key.clone()) {
            self.line.push_back(key.clone());
        }
    }

    fn forget_if_quiet(&mut self, key: &SessionKey) {
        if self.active.get(key).is_some_and(Session::is_quiet) {
            self.active.remove(key);
        }
    }
}
