//! Messages that are edited or deleted after they came, `/retry` and `/queue`.

use crate::config::BusyMode;
use crate::relay::effects::{CommandCall, MessageChange, NewMessage, OwnMessage, Steering, SteeringKind};
use crate::relay::event_loop::EventLoop;
use crate::relay::ops::DurableOps;
use crate::relay::origin::TurnOrigin;
use crate::relay::parts::approvals::{QueueEntry, QueueQuestion};
use crate::relay::parts::messages::MessageLine;
use crate::relay::parts::turns::decode_line;
use crate::session::{Admission, TurnId};
use crate::store::{Command, InboxRow, InboxSeq, RowState};
use crate::wire::{MessageEvent, SessionKey};
use crate::words::ChatPhrase;

/// Messages that `/queue` offers to drop.
const MAX_LISTED: usize = 10;

impl EventLoop {
    /// A message was edited or deleted. If it is not known, an earlier process may have taken it, and it is looked for among those that
    /// wait in the journal.
    pub fn change_message(&mut self, session: &SessionKey, change: MessageChange) {
        let key = self.messages.key(change.event());
        let is_unknown = key.is_known_by_id() && self.messages.find(key).is_none();
        if !is_unknown || !self.turns.sessions().has_unread(session) {
            return self.apply_change(session, change);
        }
        let (first, change) = (InboxSeq(0), Box::new(change));
        self.turns
            .find_changed(session.clone(), first, change, &mut self.effects);
    }

    /// Rows were read to find the message that was changed.
    pub fn changed_message_read(
        &mut self,
        session: SessionKey,
        rows: &[InboxRow],
        has_more: bool,
        change: Box<MessageChange>,
    ) {
        self.learn_rows(&session, rows);
        let is_found = self.messages.find(self.messages.key(change.event())).is_some();
        match rows.last() {
            Some(last) if !is_found && has_more => {
                self.turns
                    .find_changed(session, last.seq, change, &mut self.effects);
            }
            _ => self.apply_change(&session, *change),
        }
    }

    /// Applies a change to a message that is known, if it is.
    pub fn apply_change(&mut self, session: &SessionKey, change: MessageChange) {
        match change {
            MessageChange::Edit { row, event, message } => {
                self.turns.answer_now(row);
                self.apply_edit(session, row, (event, message));
            }
            MessageChange::Deletion(event) => self.apply_deletion(session, &event),
        }
    }

    /// An edit is committed. A message that waits gets its text and keeps its place; one whose agent does not run yet is replaced; one
    /// that is being answered is asked again as `sessions.busy_mode` says; one that was answered stays as it was.
    fn apply_edit(
        &mut self,
        session: &SessionKey,
        row: InboxSeq,
        (event, message): (Box<MessageEvent>, MessageLine),
    ) {
        let key = self.messages.key(&event);
        let known = self.messages.find(key).filter(|known| known.session == *session);
        let Some(original) = known.filter(|known| key.changes(known)).map(|known| known.row) else {
            return self.end_row(row, RowState::Ignored, DurableOps::new(), None);
        };
        let turn = self.turns.answering(session, original);
        if turn.is_none() {
            if self.turns.is_waiting(session, original) {
                self.turns.stop_steering(original, &mut self.effects);
                self.messages
                    .learn(key, session, original, Some(self.messages.waiting(&event)));
                self.effects.write(Command::SetLine {
                    seq: original,
                    kind: message.kind,
                    line: message.line,
                });
            }
            return self.end_row(row, RowState::Ignored, DurableOps::new(), None);
        }
        self.messages
            .learn(key, session, row, Some(self.messages.waiting(&event)));
        if let Some(turn) = turn.filter(|turn| self.is_unshown(*turn, original) && self.turns.may_ask(*turn))
        {
            // A kill before both are committed loses neither.
            self.end_row(original, RowState::Ignored, DurableOps::new(), None);
            let now_ms = self.clock.unix_ms();
            return self.turns.answer_instead(turn, row, now_ms, &mut self.effects);
        }
        self.enqueue_committed(session, row);
        let has_files = self.media.is_some() && !event.media_urls.is_empty();
        let is_asked_apart = has_files && self.settings.busy_mode == BusyMode::Steer;
        if let Some(met) = turn.filter(|_| !is_asked_apart) {
            let steering = Steering {
                session: session.clone(),
                met,
                key,
                event,
                kind: SteeringKind::Edit(original),
            };
            self.meet(row, steering);
        }
    }

    /// A message was deleted: it is withdrawn if its agent does not run yet.
    fn apply_deletion(&mut self, session: &SessionKey, event: &MessageEvent) {
        let known = self.messages.find(self.messages.key(event));
        if let Some(row) = known
            .filter(|known| known.session == *session)
            .map(|known| known.row)
        {
            self.drop_waiting(session, row);
        }
    }

    /// Drops a message that waits, or whose agent does not run yet; one that runs or is over stays as it is. Returns whether it
    /// was dropped.
    pub fn drop_waiting(&mut self, session: &SessionKey, row: InboxSeq) -> bool {
        // What is over is not known any more.
        if self.messages.knows(row) && self.turns.is_waiting(session, row) {
            self.withdraw(session, row);
            self.end_row(row, RowState::Ignored, DurableOps::new(), None);
            return true;
        }
        if let Some(turn) = self.turns.answering(session, row)
            && self.messages.knows(row)
            && self.is_unshown(turn, row)
        {
            if let Some(origin) = self.turns.origin(turn) {
                self.messages.unset_last(session, &origin.author, row);
            }
            self.end_unstarted(turn, row, RowState::Ignored, "", None);
            return true;
        }
        false
    }

    /// A message that waits is dropped: it has no place in its session any more, and nobody waits for its answer.
    pub fn withdraw(&mut self, session: &SessionKey, row: InboxSeq) {
        self.turns.withdraw_waiting(session, row);
        // The program that handed it over need not wait for its answer.
        self.handed.answer(row, None, self.clock.unix_ms());
        self.settle_unanswered(row);
    }

    /// Whether nobody has seen anything of the turn that answers this row: its agent does not run yet, nor did it in an earlier
    /// process that left a question open.
    fn is_unshown(&self, turn: TurnId, row: InboxSeq) -> bool {
        self.turns.is_unstarted(turn) && !self.approvals.is_restored(row)
    }

    /// Queues a row that held no place while it was committed.
    fn enqueue_committed(&mut self, session: &SessionKey, row: InboxSeq) {
        let admission = self.turns.admit(session);
        if let Admission::Start(_) = admission {
            self.turns.release(session, admission.into());
        }
        self.turns.enqueue(session, row);
    }

    /// `/retry`: runs again the last message of its author that had its turn. Returns what is answered instead.
    pub fn retry(&mut self, CommandCall { row, origin, .. }: &CommandCall) -> Option<String> {
        let TurnOrigin { chat, author, .. } = &**origin;
        let last = if self.chats.is_separate_in(chat) {
            self.messages.last_in(&chat.id, author)
        } else {
            self.messages.last(&origin.session, author)
        };
        let decoded = last.and_then(|last| {
            let event = decode_line(last.kind, &last.line, self.chats.labels())?;
            Some((last, Box::new(event)))
        });
        let Some((last, mut event)) = decoded else {
            return Some(self.language(chat).say(ChatPhrase::NothingToRetry));
        };
        let now = self.clock.now();
        let session = self.chats.name(&mut event);
        let message = NewMessage {
            kind: last.kind,
            // A command that is read again after a crash makes the same message.
            dedupe: Some(
                self.inbound
                    .own_key(&["retry", session.as_str(), &row.0.to_string()]),
            ),
            buffer_id: None,
            line: last.line,
            start: false,
            repeatable: false,
            now_ms: now.unix_ms,
        };
        self.take_own_message(session, event, (message, OwnMessage::Retried), now);
        None
    }

    /// `/queue`: shows what waits, in the order in which it runs in its session, and asks which of it to drop. Returns what is answered
    /// instead.
    pub fn show_queue(&mut self, origin: &TurnOrigin) -> Option<String> {
        let chat = &*origin.chat;
        let language = self.language(chat);
        let about = self.sessions_about(origin);
        let sessions = self.turns.sessions();
        let count: usize = about.iter().map(|session| sessions.waiting(session)).sum();
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if count == 0 {
            return Some(language.say(ChatPhrase::NothingWaits));
        }
        let rows = about.iter().flat_map(|session| {
            let rows = sessions.rows(session).map(InboxSeq);
            rows.map(|row| (row, session.clone()))
        });
        let mut rows: Vec<(InboxSeq, SessionKey)> = rows.collect();
        if rows.is_empty() {
            // They are being read from the journal.
            return Some(language.say(ChatPhrase::MessagesWait { count }));
        }
        if about.len() > 1 {
            rows.sort_unstable_by_key(|(row, _)| *row);
        }
        let entry = |(row, session): (InboxSeq, SessionKey)| {
            let gist = self.messages.gist(row).filter(|gist| !gist.is_empty());
            QueueEntry {
                session,
                row,
                gist: gist.unwrap_or("\u{2026}").to_owned(),
            }
        };
        let question = QueueQuestion {
            session: origin.session.clone(),
            chat: chat.clone(),
            text: language.say(ChatPhrase::MessagesWait { count }),
            entries: rows.into_iter().take(MAX_LISTED).map(entry).collect(),
            is_quiet: self.is_quiet(chat),
        };
        let adapter = self.adapters.get(&chat.id.platform);
        let (now, effects) = (self.clock.mono(), &mut self.effects);
        self.approvals
            .ask_about_queue(question, &adapter, now, effects)
            .err()
            .map(|_| language.say(ChatPhrase::MessagesWait { count }))
    }
}
