//! How turns end: once, in one commit with what is still owed to their chat.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use super::egress::{Listener, PassingOp};
use super::owed_op::OwedOp;
use super::turn_task::TurnReport;
use crate::adapter::ChatId;
use crate::adapter::stream::{Priority, TurnResult};
use crate::agent::{Failure, FailureClass, Truncation, TurnEnd};
use crate::session::{StopReason, TurnId};
use crate::store::{Command, InboxSeq, OpSeq, TurnState};
use crate::wire::{Action, MessageEvent};

/// How long a reaction at the end of a turn may hold up what comes after it.
const SHOWN_WITHIN: Duration = Duration::from_millis(1500);

/// What goes out once a row's end is committed.
#[derive(Debug)]
pub(super) struct EndingRow {
    pub(super) ops: Vec<OwedOp>,
    /// What is only for show, and where.
    after: Option<Box<(Arc<ChatId>, Vec<Action>)>>,
}

impl Core {
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
                self.end_panicked(turn);
            }
        }
    }

    /// The agent panicked in this turn.
    pub(super) fn end_panicked(&mut self, turn: TurnId) {
        tracing::error!(turn = turn.0, "the agent panicked");
        let failure = Failure::new(
            FailureClass::Internal,
            "Something went wrong inside the agent.",
            "it panicked",
        );
        let end = TurnEnd::Failed(failure);
        let (seq, event) = (0, MessageEvent::default());
        let speech = Box::new(self.speech_for(turn, seq, &event));
        self.end_turn(TurnReport::unspoken(turn, speech, end));
    }

    /// The answer and the turn's end are one commit; the ops go out after it.
    pub(super) fn end_turn(&mut self, report: TurnReport) {
        let Some(live) = self.turns.remove(&report.turn) else {
            return;
        };
        live.tell_end();
        self.offer_commands();
        self.withdraw_questions(report.turn);
        self.sessions.ended(&live.key, report.turn);
        let Some(seq) = live.seq else { return };
        let is_declined = self.is_declined(&live);
        if let Some(began) = live.began {
            self.measures.turn_ended(began.elapsed(), report.first_word);
        }
        self.traces.reported(seq, &report);
        self.tally.input_tokens += report.usage.input_tokens;
        self.tally.output_tokens += report.usage.output_tokens;
        let mut speech = report.speech;
        let now = self.clock.mono();
        if report.cut {
            speech.push_text("\n\n[the rest was too long and is cut]", now);
        }
        let (state, ending, last_words) = self.conclude(report.turn, report.end, live.stop);
        // A turn that was stopped before it said anything stays silent.
        if let Some(words) = last_words.filter(|_| state != TurnState::Stopped || report.spoke) {
            if report.spoke {
                speech.push_text("\n\n", now);
            }
            speech.push_text(&words, now);
        }
        if is_declined {
            self.traces.declined(seq);
            return self.end_row(seq, state, Vec::new(), None);
        }
        let mut farewell = speech.finish(ending, now);
        for (mark, parcel) in &report.parcels {
            farewell.insert(*mark, self.plan_parcel(parcel, &live.chat, &live.facts));
        }
        let ops = self.to_owe(&live.key, &live.chat, &live.lane, &farewell.durable);
        self.traces.ended(seq, state, ops.len());
        self.end_row(seq, state, ops, Some((live.chat, farewell.indicators)));
    }

    /// What a turn's end means: for the journal, for the chat's reactions, and what is said last.
    fn conclude(
        &mut self,
        turn: TurnId,
        end: TurnEnd,
        stop: Option<StopReason>,
    ) -> (TurnState, TurnResult, Option<String>) {
        match end {
            TurnEnd::Completed => {
                self.tally.turns_done += 1;
                (TurnState::Done, TurnResult::Done, None)
            }
            TurnEnd::Truncated(why) => {
                self.tally.turns_done += 1;
                let why = match why {
                    Truncation::Tokens => "[the answer reached its longest length]",
                    Truncation::Steps => "[stopped after the most steps of one turn]",
                    Truncation::Filter => "[the provider cut the answer]",
                    Truncation::Size => "[the answer was cut: it is longer than one turn may say]",
                };
                (TurnState::Done, TurnResult::Done, Some(why.to_owned()))
            }
            TurnEnd::Refused => {
                self.tally.turns_done += 1;
                let declined = "The agent declines to answer this.".to_owned();
                (TurnState::Done, TurnResult::Failed, Some(declined))
            }
            TurnEnd::Cancelled { confirmed } => {
                self.tally.turns_stopped += 1;
                if !confirmed {
                    tracing::warn!(turn = turn.0, "the agent did not stop in time and was given up");
                }
                if stop == Some(StopReason::Shutdown) {
                    let notice = self.settings.interrupted_notice.clone();
                    return (TurnState::Interrupted, TurnResult::Stopped, notice);
                }
                (
                    TurnState::Stopped,
                    TurnResult::Stopped,
                    Some("[stopped]".to_owned()),
                )
            }
            TurnEnd::Failed(failure) => {
                self.tally.turns_failed += 1;
                tracing::warn!(
                    turn = turn.0,
                    class = ?failure.class,
                    detail = failure.detail,
                    "the turn failed"
                );
                (TurnState::Failed, TurnResult::Failed, Some(failure.public_text))
            }
        }
    }

    /// Ends a message's row; what it owes goes out after the commit, and then what is only for show.
    pub(super) fn end_row(
        &mut self,
        seq: i64,
        state: TurnState,
        mut ops: Vec<OwedOp>,
        after: Option<(Arc<ChatId>, Vec<Action>)>,
    ) {
        let now_ms = self.now_ms();
        self.traces.forget(seq);
        for op in &mut ops {
            op.belongs_to(seq);
        }
        let rows = ops.iter().map(OwedOp::to_row).collect();
        let after = after.filter(|(_, actions)| !actions.is_empty()).map(Box::new);
        self.ending.insert(seq, EndingRow { ops, after });
        self.writes.push(Command::End {
            seq: InboxSeq(seq),
            state,
            ops: rows,
            now_ms,
        });
    }

    /// A row's end is committed: what it owes takes its place in its lane, and behind it what is only for show.
    pub(super) fn take_ended(&mut self, seq: i64, ops: impl Iterator<Item = OpSeq> + Clone) {
        let Some(row) = self.ending.remove(&seq) else {
            return;
        };
        if self.declined.contains(&seq) {
            self.traces.declined(seq);
        } else {
            ops.clone().for_each(|op| self.traces.owed(seq, op.0));
        }
        self.take_owed(ops, row.ops);
        let is_declined = self.declined.remove(&seq);
        let live = self.is_live() && !is_declined;
        let Some((chat, actions)) = row.after.map(|after| *after).filter(|_| live) else {
            return;
        };
        let lane = chat.key().into();
        let (platform, bot_id) = self.envelope(&chat);
        for action in &actions {
            self.queue_passing(PassingOp {
                lane: Arc::clone(&lane),
                platform: platform.clone(),
                bot_id: bot_id.clone(),
                op: action.op(),
                action: action.into(),
                timeout: Some(SHOWN_WITHIN),
                weight: Priority::Indicator,
                listener: Listener::Nobody,
            });
        }
    }
}
