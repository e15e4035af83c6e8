//! Turns, from their start to their end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::arrival::is_for_the_relay;
use super::core::Core;
use super::owed::OwedOp;
use super::turn_task::{TurnReport, run_turn};
use crate::adapter::{ChatFacts, ChatId, interaction_event};
use crate::agent::{
    Asker, EventSink, Failure, FailureClass, Permission, Truncation, Turn, TurnEnd, TurnInput,
};
use crate::session::{Stop, TurnId};
use crate::store::{InboxRow, InboxSeq, Kind, TurnState, Write};
use crate::wire::{ConnectorFrame, MessageEvent, SessionKey};

/// Rows of one session that are fetched at a time.
const FETCHED_ROWS: u32 = 32;

/// A turn that runs, or holds its place until its message is there.
#[derive(Debug)]
pub(super) struct LiveTurn {
    pub(super) key: SessionKey,
    pub(super) seq: Option<i64>,
    pub(super) stop: Option<Stop>,
    pub(super) chat: ChatId,
    pub(super) facts: ChatFacts,
    cancel: CancellationToken,
}

impl LiveTurn {
    pub(super) fn new(key: SessionKey, event: &MessageEvent) -> Self {
        Self {
            key,
            seq: None,
            stop: None,
            cancel: CancellationToken::new(),
            chat: ChatId::of(&event.source),
            facts: ChatFacts::of(&event.source),
        }
    }
}

impl Core {
    /// Fetches rows for sessions whose queue in memory ran dry.
    pub(super) fn fetch_waiting(&mut self) {
        while let Some((key, after)) = self.sessions.next_refill() {
            let token = self.token();
            let session = key.shared();
            self.refilling.insert(token, key);
            self.writes.push(Write::NextQueued {
                token,
                session,
                after: InboxSeq(after),
                limit: FETCHED_ROWS,
            });
        }
    }

    pub(super) fn take_fetched(&mut self, token: u64, rows: &[InboxRow]) {
        if let Some(key) = self.refilling.remove(&token) {
            // Fewer than asked for may also mean that their lines were long; only none means no more.
            self.sessions
                .refill(&key, rows.iter().map(|row| row.seq.0), rows.is_empty());
        }
    }

    /// Starts what waits and may: marked as running and read back in one commit, then run.
    pub(super) fn start_waiting(&mut self) {
        let now_ms = self.now_ms();
        while let Some((key, row, turn)) = self.sessions.next_start() {
            self.turns
                .insert(turn, LiveTurn::new(key, &MessageEvent::default()));
            self.loading.insert(row, turn);
            let seq = InboxSeq(row);
            self.writes.push(Write::Start { seq, now_ms });
            self.writes.push(Write::Load { seq });
        }
    }

    pub(super) fn take_loaded(&mut self, row: &InboxRow) {
        if self.cut_short.front() == Some(&row.seq) {
            self.cut_short.pop_front();
            self.take_cut_short(row);
            return self.read_cut_short();
        }
        // A sick disk still reads: an agent must not act on a message that would be run again after a restart.
        if row.state != TurnState::Running && self.loading.contains_key(&row.seq.0) {
            self.unstarted.insert(row.seq.0);
            return;
        }
        let Some(turn) = self.loading.remove(&row.seq.0) else {
            return;
        };
        let event = row.line.as_deref().and_then(|line| read_back(row.kind, line));
        if let Some(mut event) = event {
            let key = self.understand(&mut event);
            if is_for_the_relay(&event) {
                self.abandon(turn);
                return self.answer_late(&key, row.seq.0, &event);
            }
            if let Some(live) = self.turns.get_mut(&turn) {
                live.chat = ChatId::of(&event.source);
                live.facts = ChatFacts::of(&event.source);
            }
            self.start_turn(turn, row.seq.0, event);
        } else {
            tracing::error!(
                row = row.seq.0,
                "a journaled message cannot be read back and is given up"
            );
            self.abandon(turn);
            self.end_row(row.seq.0, TurnState::Failed, Vec::new());
        }
    }

    /// The row is gone: somebody dropped it, or it had ended.
    pub(super) fn take_missing(&mut self, row: i64) {
        self.ending.remove(&row);
        self.unstarted.remove(&row);
        if self.cut_short.front() == Some(&InboxSeq(row)) {
            self.cut_short.pop_front();
            self.read_cut_short();
        }
        if let Some(turn) = self.loading.remove(&row) {
            self.abandon(turn);
        }
    }

    fn abandon(&mut self, turn: TurnId) {
        if let Some(live) = self.turns.remove(&turn) {
            self.sessions.ended(&live.key, turn);
        }
    }

    /// Runs the agent for a committed message, unless the turn was stopped before it began.
    pub(super) fn start_turn(&mut self, id: TurnId, seq: i64, event: MessageEvent) {
        let Some(live) = self.turns.get_mut(&id) else {
            return;
        };
        live.seq = Some(seq);
        if live.cancel.is_cancelled() {
            let end = TurnEnd::Cancelled { confirmed: true };
            return self.end_turn(TurnReport {
                turn: id,
                text: String::new(),
                cut: false,
                end,
            });
        }
        let (events, heard) = EventSink::new();
        let turn = Turn {
            id,
            session: live.key.clone(),
            input: TurnInput::of(event),
            asker: Asker::new(&events, Permission::Ask),
            events,
            cancel: live.cancel.clone(),
            workdir: None,
        };
        self.tally.turns_started += 1;
        let (grace, most) = (self.settings.grace, self.settings.max_output_bytes);
        let task = self
            .tasks
            .spawn(run_turn(Arc::clone(&self.agent), turn, heard, grace, most));
        self.task_turns.insert(task.id(), id);
    }

    pub(super) fn cancel_turn(&mut self, turn: TurnId, why: Stop) {
        if let Some(live) = self.turns.get_mut(&turn) {
            live.stop.get_or_insert(why);
            live.cancel.cancel();
        }
    }

    pub(super) fn take_turn_end(
        &mut self,
        ended: Option<Result<(tokio::task::Id, TurnReport), tokio::task::JoinError>>,
    ) {
        match ended {
            None => {}
            Some(Ok((task, report))) => {
                self.task_turns.remove(&task);
                self.end_turn(report);
            }
            Some(Err(error)) => {
                let Some(turn) = self.task_turns.remove(&error.id()) else {
                    return;
                };
                tracing::error!(turn = turn.0, "the agent panicked");
                let failure = Failure::new(
                    FailureClass::Internal,
                    "Something went wrong inside the agent.",
                    "it panicked",
                );
                let end = TurnEnd::Failed(failure);
                self.end_turn(TurnReport {
                    turn,
                    text: String::new(),
                    cut: false,
                    end,
                });
            }
        }
    }

    /// The answer and the turn's end are one commit; the ops go out after it.
    fn end_turn(&mut self, report: TurnReport) {
        let Some(live) = self.turns.remove(&report.turn) else {
            return;
        };
        self.sessions.ended(&live.key, report.turn);
        let Some(seq) = live.seq else { return };
        let (state, said) = self.conclude(report, live.stop);
        let ops = self.plan(&said, &live.key, &live.chat, &live.facts);
        self.end_row(seq, state, ops);
    }

    fn conclude(&mut self, report: TurnReport, stop: Option<Stop>) -> (TurnState, String) {
        let mut said = report.text;
        if report.cut {
            said.push_str("\n\n[the rest was too long and is cut]");
        }
        let then = |said: String, more: &str| {
            if said.trim().is_empty() {
                more.to_owned()
            } else {
                format!("{said}\n\n{more}")
            }
        };
        match &report.end {
            TurnEnd::Completed => {
                self.tally.turns_done += 1;
                (TurnState::Done, said)
            }
            TurnEnd::Cancelled { confirmed } => {
                self.tally.turns_stopped += 1;
                if !confirmed {
                    tracing::warn!(
                        turn = report.turn.0,
                        "the agent did not stop in time and was given up"
                    );
                }
                if stop == Some(Stop::Shutdown) {
                    let notice = self.settings.interrupted_notice.clone().unwrap_or_default();
                    return (TurnState::Interrupted, then(said, &notice));
                }
                let marked = if said.trim().is_empty() {
                    said
                } else {
                    then(said, "[stopped]")
                };
                (TurnState::Stopped, marked)
            }
            TurnEnd::Truncated(why) => {
                self.tally.turns_done += 1;
                let why = match why {
                    Truncation::Tokens => "[the answer reached its longest length]",
                    Truncation::Steps => "[stopped after the most steps of one turn]",
                    Truncation::Filter => "[the provider cut the answer]",
                    Truncation::Size => "[the answer was cut: it is longer than one turn may say]",
                };
                (TurnState::Done, then(said, why))
            }
            TurnEnd::Refused => {
                self.tally.turns_done += 1;
                (TurnState::Done, then(said, "The agent declines to answer this."))
            }
            TurnEnd::Failed(failure) => {
                self.tally.turns_failed += 1;
                tracing::warn!(turn = report.turn.0, detail = failure.detail, "the turn failed");
                (TurnState::Failed, then(said, &failure.public_text))
            }
        }
    }

    pub(super) fn end_row(&mut self, seq: i64, state: TurnState, ops: Vec<OwedOp>) {
        let now_ms = self.now_ms();
        let rows = ops.iter().map(OwedOp::to_row).collect();
        self.ending.insert(seq, ops);
        self.writes.push(Write::End {
            seq: InboxSeq(seq),
            state,
            ops: rows,
            start_next: None,
            now_ms,
        });
    }

    /// Ends a message that the relay itself answers.
    pub(super) fn answer_directly(
        &mut self,
        key: &SessionKey,
        seq: i64,
        said: &str,
        chat: &ChatId,
        facts: &ChatFacts,
    ) {
        let ops = self.plan(said, key, chat, facts);
        self.end_row(seq, TurnState::Done, ops);
    }

    pub(super) fn forget_session(&mut self, key: &SessionKey) {
        self.writes.push(Write::DropResume {
            session: key.shared(),
        });
        let (agent, key) = (Arc::clone(&self.agent), key.clone());
        tokio::spawn(async move { agent.forget(&key).await });
    }
}

/// Reads a journaled line again.
pub(super) fn read_back(kind: Kind, line: &[u8]) -> Option<MessageEvent> {
    match (kind, ConnectorFrame::decode(line).ok()?) {
        (Kind::Inbound, ConnectorFrame::Inbound { event, .. }) => Some(*event),
        (Kind::Forward, ConnectorFrame::PassthroughForward { forward, .. }) => interaction_event(&forward),
        _ => None,
    }
}
