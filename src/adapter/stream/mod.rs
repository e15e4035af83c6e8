//! One turn's reply as it grows: which ops show it while the turn runs, and which complete it at the end.
//!
//! It sends nothing and reads no clock: `now` is the time since a start that the caller chose.
//!
//! The agent's text is a row of segments, ended by tools and breaks; a segment is cut into messages as they fill up.
//! Text goes out by drafts, by edits, or by finished segments, whichever the platform offers and the settings want, with
//! at most one op of text and one indicator in flight. Invariants:
//!
//! - A message is delivered when the connector acknowledged exactly its text; everything else is sent at the end.
//! - Text that is known to be shown is not sent again; text that may be shown is sent again at the end, in whole.
//! - An op refused for lack of permission ends the stream: no further op, and nothing at the end.
//! - Ops of text are an interval apart, however fast the agent writes.
//! - The first text is held back a moment, so that a short, fast answer is one message.

mod draft_ids;
mod final_ops;
mod indicators;
mod pending_text;
mod settings;
mod strategy;
#[cfg(test)]
mod tests;
mod text_stream;
mod types;

pub use draft_ids::{ShownDraft, first_draft_id};
pub use settings::{StreamMode, StreamSettings};
pub use types::{
    DurableAction, DurableActions, FinalOps, HalfWritten, OpOutcome, PlanLine, PlannedOp, Position, Priority,
    StepState, StreamTarget, ToolLine, TurnResult,
};

use std::sync::Arc;
use std::time::Duration;

use self::indicators::Indicators;
use self::pending_text::{Boundary, Shown, Trail};
use self::strategy::{Drafts, Strategies, Strategy};
use self::text_stream::TextStream;
use crate::adapter::action_builder::ActionBuilder;
use crate::wire::{Action, OpId, OpIds};
use crate::words::Language;

/// One turn's reply to its chat.
///
/// Push what the agent writes; call [`poll`](Self::poll) until it returns nothing, after every push or finished op and
/// at [`poll_timeout`](Self::poll_timeout); report every op with [`op_finished`](Self::op_finished); then
/// [`finish`](Self::finish).
#[derive(Debug)]
pub struct ReplyStream {
    target: StreamTarget,
    builder: ActionBuilder,
    text: TextStream,
    indicators: Indicators,
    ids: OpIds,
}

impl ReplyStream {
    /// A turn that starts `now`. `draft_id` is the first of its own draft ids ([`first_draft_id`]).
    #[expect(clippy::needless_pass_by_value, reason = "the indicators share the settings")]
    pub(super) fn new(
        settings: Arc<StreamSettings>,
        builder: ActionBuilder,
        target: StreamTarget,
        draft_id: u64,
        ids: OpIds,
        now: Duration,
    ) -> Self {
        let strategies = Strategies::new(&settings, &target, &builder);
        Self {
            text: TextStream::new(&settings, &builder, strategies, draft_id, now),
            indicators: Indicators::new(&settings, &target, strategies.edits, now),
            target,
            builder,
            ids,
        }
    }

    /// Shows the time and the current step of a turn that began `now`, once it runs for this long.
    pub(super) fn showing_time(mut self, after: Duration, now: Duration) -> Self {
        self.indicators.show_time(after, now, self.builder.language);
        self
    }

    /// The language of its reader.
    pub(crate) fn language(&self) -> Language {
        self.builder.language
    }

    /// Appends to the answer. Costs what is added.
    pub fn push_text(&mut self, text: &str, now: Duration) {
        self.text.touch(now);
        self.text.push(text);
    }

    /// Replaces the answer since the last [`Self::break_message`]. Messages that are complete stay; their text is not
    /// sent again when `text` begins with it.
    pub fn replace_text(&mut self, text: &str, now: Duration) {
        self.text.touch(now);
        self.text.replace(text);
    }

    /// Starts a new message.
    pub fn break_message(&mut self, now: Duration) {
        self.text.touch(now);
        self.text.close(Boundary::Break);
    }

    /// Starts a new message and returns the point between, for something that is inserted there.
    pub fn position(&mut self, now: Duration) -> Position {
        self.break_message(now);
        Position(self.text.pending.breaks())
    }

    /// Whether the chat shows everything before the position. Text that is only sent at the end is not shown before it.
    pub fn is_shown(&self, position: Position) -> bool {
        let front = self.text.pending.front();
        front.is_none_or(|front| front.breaks >= position.0)
    }

    /// A tool call starts, progresses or ends. A new one ends the segment of text before it.
    pub fn tool(&mut self, line: &ToolLine, now: Duration) {
        self.text.touch(now);
        self.text.release();
        if self.indicators.tool(line) {
            self.text.close(Boundary::Tool);
        }
    }

    /// The agent's plan, as a whole.
    pub fn plan(&mut self, steps: &[PlanLine], now: Duration) {
        self.text.touch(now);
        self.text.release();
        self.indicators.plan(steps);
    }

    /// A notice beside the answer: a message of its own that is not a reply.
    pub fn notice(&mut self, text: &str, now: Duration) {
        self.text.touch(now);
        self.text.release();
        self.text.notice(text, &self.builder);
    }

    /// The next op to send, if one is due.
    pub fn poll(&mut self, now: Duration) -> Option<PlannedOp> {
        let id = self.ids.next();
        let (action, priority, deadline) = if let Some(action) = self.text.poll(id, &self.builder, now) {
            (action, Priority::Text, None)
        } else {
            self.indicators.poll(id, &self.builder, now)?
        };
        Some(PlannedOp {
            id,
            action,
            priority,
            deadline,
        })
    }

    /// When to poll again although nothing happened. A time in the past means now.
    pub fn poll_timeout(&self) -> Option<Duration> {
        [self.text.due(), self.indicators.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The outcome of an op. An op that is not in flight any more is ignored.
    pub fn op_finished(&mut self, id: OpId, outcome: &OpOutcome, now: Duration) {
        let nameless = OpOutcome::Applied { message_id: None };
        let outcome = match outcome {
            OpOutcome::Applied { message_id: Some(id) } if id.is_empty() => &nameless,
            outcome => outcome,
        };
        if !self.text.op_finished(id, outcome, now) {
            return self.indicators.op_finished(id, outcome, now);
        }
        if self.text.strategy == Strategy::Silent {
            self.indicators.silence();
        }
        if matches!(outcome, OpOutcome::RateLimited { .. }) {
            self.indicators.hold(self.text.pace.next());
        }
    }

    /// Whether [`Self::finish`] should wait, for a bounded time, because an op of text is in flight: its message id
    /// decides how the reply is completed, and an edit that lands after the last one would undo it.
    pub fn awaits_outcome(&self) -> bool {
        self.text.in_flight.is_some()
    }

    /// The message that is being written, if the chat shows it with a cursor, or as a draft that has to be sealed.
    pub fn half_written(&self) -> Option<HalfWritten> {
        match &self.text.pending.front()?.shown {
            Shown::Message {
                id: Some(id),
                text,
                trail: Trail::Cursor | Trail::Unknown,
            } => Some(HalfWritten {
                message_id: id.clone(),
                draft_id: None,
                text: text.clone(),
            }),
            Shown::Stream { text } if self.text.strategy == Strategy::Drafts(Drafts::Sealed) => {
                Some(HalfWritten {
                    message_id: String::new(),
                    draft_id: Some(self.text.draft_id),
                    text: text.clone(),
                })
            }
            _ => None,
        }
    }

    /// Ends the turn. The outcome of an op that is still in flight counts as unknown.
    pub fn finish(&mut self, result: TurnResult, now: Duration) -> FinalOps {
        self.text.abandon(now);
        let (mut durable, breaks, notices) = self.text.take_durable(&self.builder);
        if let Some(first) = durable.get_mut(notices).filter(|_| self.target.uses_follow_up()) {
            follow_up(first, &self.target);
        }
        FinalOps {
            durable,
            breaks,
            indicators: self.indicators.finish(result, &self.builder, now),
        }
    }
}

/// The last indicators of a turn that ended with its process: those of a turn that was stopped.
pub(super) fn left_indicators(
    settings: &Arc<StreamSettings>,
    builder: &ActionBuilder,
    target: &StreamTarget,
) -> Vec<Action> {
    Indicators::left(settings, target).finish(TurnResult::Stopped, builder, Duration::ZERO)
}

/// Makes a follow-up of a send, and keeps the send as its fallback.
fn follow_up(durable: &mut DurableAction, target: &StreamTarget) {
    let (
        Action::Send {
            content, metadata, ..
        },
        Some(kind),
    ) = (&durable.action, &target.follow_up)
    else {
        return;
    };
    let follow_up = Action::FollowUp {
        session_key: target.session.as_ref().to_owned(),
        kind: kind.clone(),
        content: content.clone(),
        metadata: metadata.clone(),
    };
    let send = std::mem::replace(&mut durable.action, follow_up);
    durable.fallback.insert(0, send);
}
