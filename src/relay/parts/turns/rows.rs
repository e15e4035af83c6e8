//! The rows of turns: queued, read back from the journal, ended.

use std::sync::Arc;
use std::time::Duration;

use super::{Loaded, RowWait, TurnPhase, Turns, Unread};
use crate::access::Author;
use crate::adapter::Chat;
use crate::relay::effects::{Effects, MessageChange, Pending, Steering};
use crate::relay::ops::DurableOp;
use crate::relay::origin::TurnOrigin;
use crate::relay::spans::MessageSpan;
use crate::session::{Admission, TurnId};
use crate::store::{Command, InboxRow, InboxSeq, RowState, WaitingRow};
use crate::wire::{SessionKey, SessionSource};

/// Rows of one session that are read at a time.
const ROWS_PER_READ: u32 = 32;
/// Rows that are counted behind those.
const MAX_COUNTED: u32 = 10_000;
/// How long to wait before reading again what the journal could not read.
const READ_RETRY: Duration = Duration::from_millis(200);
/// Rows that are read at a time to find sessions that did not fit in memory.
const ROWS_PER_RELOAD: u32 = 1024;

impl Turns {
    /// A committed message waits for its session; `true` when it is the first that does not fit in memory.
    pub fn enqueue(&mut self, session: &SessionKey, row: InboxSeq) -> bool {
        let overflowed = self.sessions.enqueue(session, row.0);
        self.counters.overflows += u64::from(overflowed);
        overflowed
    }

    /// A committed wake runs next, behind other wakes.
    pub fn enqueue_wake(&mut self, session: &SessionKey, row: InboxSeq) {
        let overflowed = self.sessions.enqueue_wake(session, row.0);
        self.counters.overflows += u64::from(overflowed);
    }

    /// A row that was read is a wake's: it runs next, behind other wakes.
    pub fn move_ahead(&mut self, session: &SessionKey, row: InboxSeq) {
        self.sessions.move_ahead(session, row.0);
    }

    /// Whether a committed message of the session may wait, in memory or in the journal.
    pub fn is_waiting(&self, session: &SessionKey, row: InboxSeq) -> bool {
        // The row of an edit may be answered before older ones that wait.
        !self.is_over(row) && self.sessions.may_wait(session, row.0) && self.answering(session, row).is_none()
    }

    /// Whether a row is over, although the journal may not have written that yet; a command is never the agent's.
    pub fn is_over(&self, row: InboxSeq) -> bool {
        matches!(self.rows.get(&row), Some(RowWait::Ending | RowWait::Answering))
    }

    /// A message that waits will not run.
    pub fn withdraw_waiting(&mut self, session: &SessionKey, row: InboxSeq) {
        self.sessions.withdraw(session, row.0);
    }

    /// The journal holds waiting messages from an earlier run.
    pub fn recover_waiting(&mut self) {
        self.sessions.recover();
    }

    /// Reads sessions that did not fit in memory, and rows for those whose queue in memory ran dry.
    pub fn refill(&mut self, effects: &mut Effects) {
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
                behind: MAX_COUNTED,
            });
        }
    }

    /// Waiting rows after this one that were read; `None` when the journal could not read them.
    pub fn reloaded(&mut self, after: InboxSeq, rows: Option<&[WaitingRow]>) {
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

    /// Rows of a session that were read, and those that wait behind them; `None` when the journal could not read them.
    pub fn refilled(&mut self, session: SessionKey, read: Option<(&[InboxRow], &[InboxSeq])>) {
        match read {
            Some((rows, more)) => {
                let is_new = |row: InboxSeq| {
                    !self.is_over(row)
                        && !self.sessions.is_read_ahead(&session, row.0)
                        && self.answering(&session, row).is_none()
                };
                let rows = rows.iter().map(|row| row.seq);
                let rows: Vec<i64> = rows.filter(|row| is_new(*row)).map(|row| row.0).collect();
                let waiting = || more.iter().filter(|row| is_new(**row)).count();
                let more = (!more.is_empty()).then(waiting);
                self.sessions.refill(&session, Some((&rows, more)));
            }
            None => self.unread.push(Unread::Session(session)),
        }
    }

    /// Starts the turns of waiting messages, as far as there is room: their messages are read back first.
    pub fn start_waiting(&mut self, now_ms: i64, effects: &mut Effects) {
        while let Some((session, row, turn)) = self.sessions.next_start() {
            self.load(session, InboxSeq(row), turn, now_ms, effects);
        }
    }

    /// Runs an interrupted message again, because that does no harm, or because somebody asked for it.
    pub fn run_again(&mut self, row: &InboxRow, now_ms: i64, effects: &mut Effects) {
        let session = SessionKey::from_text(Arc::clone(&row.session));
        if let Admission::Start(turn) = self.sessions.admit(&session) {
            self.load(session, row.seq, turn, now_ms, effects);
        } else {
            self.sessions.enqueue_again(&session, row.seq.0);
        }
    }

    /// The message of an admitted turn is committed as waiting: it is marked as running, and read back, before its agent starts.
    pub fn start_stored(&mut self, turn: TurnId, row: InboxSeq, now_ms: i64, effects: &mut Effects) {
        let Some(live) = self.live.get_mut(&turn) else {
            return;
        };
        live.state = TurnPhase::Loading;
        self.load_started(turn, row, now_ms, effects);
    }

    /// A turn whose agent does not run yet answers another committed row instead, which is read first.
    pub fn answer_instead(&mut self, turn: TurnId, row: InboxSeq, now_ms: i64, effects: &mut Effects) {
        if let Some(live) = self.live.get_mut(&turn) {
            live.task = None;
            self.start_stored(turn, row, now_ms, effects);
        }
    }

    pub(super) fn load(
        &mut self,
        session: SessionKey,
        row: InboxSeq,
        turn: TurnId,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        let span = MessageSpan::new(session.as_str());
        let nowhere = SessionSource::default();
        let origin = TurnOrigin::new(session, &nowhere, false, Author::operator(), span);
        self.insert(turn, Arc::new(origin), None, TurnPhase::Loading);
        self.load_started(turn, row, now_ms, effects);
    }

    fn load_started(&mut self, turn: TurnId, row: InboxSeq, now_ms: i64, effects: &mut Effects) {
        let before = self.rows.insert(row, RowWait::Loading { turn, early: false });
        if matches!(before, Some(RowWait::Steering(_))) {
            self.not_given.insert(row);
        }
        effects.write(Command::Start {
            seq: row,
            repeatable: self.are_repeatable,
            now_ms,
        });
        effects.write(Command::Load { seq: row });
    }

    /// A message that waits is marked as running before the turn that it met takes it: an agent must not act on a message that would
    /// run again after a restart.
    pub fn mark_steering(&mut self, row: InboxSeq, steering: Steering, now_ms: i64, effects: &mut Effects) {
        let agent = self.agent_of(steering.met);
        let is_repeatable = agent.is_some_and(|agent| agent.agent.info().repeatable);
        effects.write(Command::Start {
            seq: row,
            repeatable: self.are_repeatable || is_repeatable,
            now_ms,
        });
        self.rows.insert(row, RowWait::Steering(Box::new(steering)));
    }

    /// A message that was marked as running is not handed to a turn: it waits for one of its own. No agent was given it, so that
    /// it may run after a restart.
    pub fn wait_again(&mut self, row: InboxSeq, effects: &mut Effects) {
        self.not_given.insert(row);
        effects.write(Command::SetRepeatable { seq: row });
    }

    /// A message that waits was changed: if it was to be handed to a turn, it waits for one of its own.
    pub fn stop_steering(&mut self, row: InboxSeq, effects: &mut Effects) {
        if matches!(self.rows.get(&row), Some(RowWait::Steering(_))) {
            self.rows.remove(&row);
            self.wait_again(row, effects);
        }
    }

    /// A turn that an earlier run left was shown in this chat. There are as many as ran at a time.
    pub fn leave_shown(&mut self, chat: Chat) {
        self.left_shown.push(chat);
    }

    /// Where turns were shown that an earlier run left, on platforms that are described.
    pub fn take_left_shown(&mut self, undescribed: &[String]) -> Vec<Chat> {
        let is_described = |chat: &mut Chat| {
            let mut undescribed = undescribed.iter();
            undescribed.all(|platform| *platform != *chat.id.platform)
        };
        self.left_shown.extract_if(.., is_described).collect()
    }

    /// A turn was running when an earlier run ended: its message is read, one at a time.
    pub fn read_interrupted(&mut self, row: InboxSeq, effects: &mut Effects) {
        self.interrupted.push_back(row);
        if self.interrupted.len() == 1 {
            self.read_next_interrupted(effects);
        }
    }

    pub(super) fn read_next_interrupted(&mut self, effects: &mut Effects) {
        if let Some(row) = self.interrupted.front().copied() {
            self.rows.insert(row, RowWait::Interrupted);
            effects.write(Command::Load { seq: row });
        }
    }

    pub(super) fn interrupted_read(&mut self, effects: &mut Effects) {
        self.interrupted.pop_front();
        self.read_next_interrupted(effects);
    }

    /// A row was read back. One that is not marked as running yet, or still as it was marked before this turn, is waited for: a
    /// disk that cannot be written still reads, and an agent must not act on a message that would run again after a restart.
    pub fn loaded(&mut self, row: &InboxRow, effects: &mut Effects) -> Loaded {
        match self.rows.get_mut(&row.seq) {
            Some(RowWait::Interrupted) => {
                self.rows.remove(&row.seq);
                self.interrupted_read(effects);
                Loaded::Interrupted
            }
            Some(RowWait::Loading { early, .. })
                if row.state != RowState::Running
                    || row.attempt <= u32::from(self.not_given.contains(&row.seq))
                    || (row.repeatable && !self.are_repeatable) =>
            {
                *early = true;
                Loaded::Nothing
            }
            Some(RowWait::Loading { turn, .. }) => {
                let turn = *turn;
                self.rows.remove(&row.seq);
                Loaded::Turn(turn)
            }
            Some(RowWait::Steering(_) | RowWait::Answering | RowWait::Ending) | None => Loaded::Nothing,
        }
    }

    /// The journal has written that a message runs. Returns it if it is to be handed to a turn.
    pub fn started(&mut self, row: InboxSeq, effects: &mut Effects) -> Option<Box<Steering>> {
        match self.rows.get_mut(&row)? {
            RowWait::Loading { early, .. } => {
                if std::mem::take(early) {
                    effects.write(Command::Load { seq: row });
                }
                None
            }
            RowWait::Steering(_) => match self.rows.remove(&row) {
                Some(RowWait::Steering(steering)) => Some(steering),
                _ => None,
            },
            RowWait::Interrupted | RowWait::Answering | RowWait::Ending => None,
        }
    }

    /// The row does not exist: somebody dropped it, or it had ended.
    pub fn missing(&mut self, row: InboxSeq, effects: &mut Effects) {
        self.not_given.remove(&row);
        match self.rows.remove(&row) {
            Some(RowWait::Steering(steering)) => self.sessions.withdraw(&steering.session, row.0),
            Some(RowWait::Loading { turn, .. }) => {
                self.abandon(turn);
            }
            Some(RowWait::Interrupted) => self.interrupted_read(effects),
            Some(RowWait::Answering | RowWait::Ending) | None => {}
        }
    }

    /// The journal failed a command about a row. Only a read can fail while a row is read, and is repeated. Returns whether
    /// an end was refused.
    pub fn row_failed(&mut self, row: InboxSeq) -> bool {
        match self.rows.get(&row) {
            Some(RowWait::Loading { .. } | RowWait::Interrupted) => {
                self.unread.push(Unread::Row(row));
                false
            }
            // It waits as it did.
            Some(RowWait::Steering(_)) => {
                self.rows.remove(&row);
                false
            }
            Some(RowWait::Ending) => {
                self.rows.remove(&row);
                tracing::error!(row = row.0, "dropped an answer that the journal refused");
                true
            }
            Some(RowWait::Answering) | None => false,
        }
    }

    /// When the journal is asked again for what it could not read.
    pub fn deadline(&self) -> Option<Duration> {
        self.read_again_at
    }

    /// Asks the journal again for what it could not read, after a while.
    pub fn read_again(&mut self, now: Duration, effects: &mut Effects) {
        if self.unread.is_empty() || *self.read_again_at.get_or_insert(now + READ_RETRY) > now {
            return;
        }
        self.read_again_at = None;
        for unread in std::mem::take(&mut self.unread) {
            match unread {
                Unread::Row(seq) => effects.write(Command::Load { seq }),
                Unread::Session(session) => self.sessions.refill(&session, None),
                Unread::Waiting(after) => self.sessions.reload([], Some(after.0)),
                Unread::Change(session, change) => self.find_changed(session, InboxSeq(0), change, effects),
            }
        }
    }

    /// One of the relay's own commands is answered later: until then nobody takes its row for a waiting message.
    pub fn answer_later(&mut self, row: InboxSeq) {
        self.rows.insert(row, RowWait::Answering);
    }

    /// An edit that looked for its message is applied: its row is no longer kept from those that wait.
    pub fn answer_now(&mut self, row: InboxSeq) {
        if matches!(self.rows.get(&row), Some(RowWait::Answering)) {
            self.rows.remove(&row);
        }
    }

    /// Asks for the rows of a session that wait behind this one, to find the message that was changed. Until it is found, nobody takes
    /// the row of an edit for a waiting message.
    pub fn find_changed(
        &mut self,
        session: SessionKey,
        after: InboxSeq,
        change: Box<MessageChange>,
        effects: &mut Effects,
    ) {
        if let MessageChange::Edit { row, .. } = &*change {
            self.answer_later(*row);
        }
        let key = session.shared();
        effects.request(Pending::ChangedMessage(session, change), |token| {
            Command::NextQueued {
                token,
                session: key,
                after,
                limit: ROWS_PER_READ,
                // Whether there are any.
                behind: 1,
            }
        });
    }

    /// The journal could not read the rows to find the message that was changed.
    pub fn changed_unread(&mut self, session: SessionKey, change: Box<MessageChange>) {
        self.unread.push(Unread::Change(session, change));
    }

    /// Whether an edit looks for its message and has to ask again.
    pub fn has_unread_edit(&self) -> bool {
        let is_edit = |unread: &Unread| match unread {
            Unread::Change(_, change) => matches!(**change, MessageChange::Edit { .. }),
            Unread::Row(_) | Unread::Session(_) | Unread::Waiting(_) => false,
        };
        self.unread.iter().any(is_edit)
    }

    /// Ends a row: its outcome and its ops are one commit.
    pub fn end_row(
        &mut self,
        row: InboxSeq,
        outcome: RowState,
        ops: &[Box<DurableOp>],
        now_ms: i64,
        effects: &mut Effects,
    ) {
        effects.write(Command::End {
            seq: row,
            state: outcome,
            ops: ops.iter().map(|op| op.to_row()).collect(),
            now_ms,
        });
        self.not_given.remove(&row);
        self.rows.insert(row, RowWait::Ending);
    }

    /// The end of a row is committed; `false` if the row is being read again, because the connector declined the answer of
    /// its turn.
    pub fn committed(&mut self, row: InboxSeq) -> bool {
        let is_ending = matches!(self.rows.get(&row), Some(RowWait::Ending));
        if is_ending {
            self.rows.remove(&row);
        }
        is_ending
    }
}
