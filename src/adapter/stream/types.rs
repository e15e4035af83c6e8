//! What a [`ReplyStream`](super::ReplyStream) takes and returns: plain data.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::adapter::chats::Chat;
use crate::wire::{Action, CapabilityDescriptor, OpId};

/// The chat that a reply is streamed to.
#[derive(Debug, Clone)]
pub struct StreamTarget {
    /// The chat. Its facts are the tags of its ops; their message is the one that is answered and that reactions go on.
    pub chat: Arc<Chat>,
    /// The session key's text.
    pub session: Arc<str>,
    /// What the platform can do; only plain sends when unknown.
    pub descriptor: Option<Arc<CapabilityDescriptor>>,
    /// The capability through which the first part of the answer is sent, such as `discord.interaction_token`.
    pub follow_up: Option<String>,
}

impl StreamTarget {
    pub(super) fn supports(&self, op: &str) -> bool {
        let descriptor = self.descriptor.as_deref();
        descriptor.is_some_and(|descriptor| descriptor.supports_op(op))
    }

    /// Whether the answer begins with a follow-up.
    pub(super) fn uses_follow_up(&self) -> bool {
        self.follow_up.is_some() && self.supports("follow_up")
    }
}

/// Progress of a tool call or of a step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum StepState {
    /// Not started.
    #[default]
    Pending,
    /// Started, not finished.
    Running,
    /// Finished successfully.
    Done,
    /// Failed or abandoned.
    Failed,
}

/// A tool call, as a line of the progress message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLine {
    /// The agent's id of the call; a new id ends the segment of text before it.
    pub id: String,
    /// The call in a few words.
    pub title: String,
    /// The progress of the call.
    pub state: StepState,
}

/// A step of a plan, as a line of the progress message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// The step in a few words.
    pub text: String,
    /// The progress of the step.
    pub state: StepState,
}

/// A point in the reply; see [`ReplyStream::position`](super::ReplyStream::position).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub(super) u64);

/// Whether an op may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The op carries text of the answer or a notice: it may wait, and is never dropped.
    Text,
    /// The first reaction or typing, which show that a turn runs: dropped when the rate limit and its reserve leave no room.
    Activity,
    /// Progress, or another reaction: dropped when the rate limit leaves no room.
    Indicator,
}

/// An op to send now. At most one with text and one indicator are in flight.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedOp {
    /// The op's id, for [`ReplyStream::op_finished`](super::ReplyStream::op_finished).
    pub id: OpId,
    /// The op itself.
    pub action: Action,
    /// Whether the op may be dropped.
    pub priority: Priority,
    /// When to stop waiting for its result and report [`OpOutcome::Unknown`], on the clock of `now`.
    pub deadline: Option<Duration>,
}

/// The outcome of an op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpOutcome {
    /// The connector applied the op.
    Applied {
        /// The message that was created or changed.
        message_id: Option<String>,
    },
    /// The op was refused for lack of permission: nothing else may be sent for this turn.
    Declined,
    /// The op was refused by a rate limit.
    RateLimited {
        /// How long to wait, within the caller's bound.
        retry_after: Option<Duration>,
    },
    /// The op was refused for another reason.
    Refused,
    /// The op was sent and its outcome is unknown.
    Unknown,
    /// The op was not sent.
    NotSent,
    /// The op was dropped because the chat's rate limit left no room.
    Dropped,
}

/// A message of the answer that is still being written: it ends with the cursor, may show more than its text, or is a draft that is
/// not sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HalfWritten {
    /// The message's id; empty for a draft.
    #[serde(rename = "id")]
    pub message_id: String,
    /// The draft's id.
    #[serde(rename = "draft", default, skip_serializing_if = "Option::is_none")]
    pub draft_id: Option<u64>,
    /// Its text, as last acknowledged.
    pub text: String,
}

/// How a turn ended, as far as its chat shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnResult {
    /// The agent is done.
    Done,
    /// Somebody stopped the turn.
    Stopped,
    /// The turn failed.
    Failed,
}

/// The ops that complete a reply after its turn ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FinalOps {
    /// The ops that must reach the chat, in order.
    pub durable: DurableActions,
    /// The last indicators, in order, to send after everything durable.
    pub indicators: Vec<Action>,
    /// For each durable op, the number of breaks before its text.
    pub(super) breaks: SmallVec<[u64; 2]>,
}

impl FinalOps {
    /// Inserts ops at a position: after the text before it, and before the text after it.
    pub fn insert(&mut self, position: Position, actions: Vec<DurableAction>) {
        let later = self.breaks.iter().position(|breaks| *breaks >= position.0);
        let at = later.unwrap_or(self.durable.len()).min(self.durable.len());
        // Counted to the text before, so that whatever has a later position is inserted after it.
        let breaks = position.0.saturating_sub(1);
        self.breaks.insert_many(at, actions.iter().map(|_| breaks));
        self.durable.insert_many(at, actions);
    }
}

/// Ops that must reach the chat: one for most answers.
pub type DurableActions = SmallVec<[DurableAction; 1]>;

/// An op that must reach the chat.
#[derive(Debug, Clone, PartialEq)]
pub struct DurableAction {
    /// The op itself.
    pub action: Action,
    /// Ops sent instead, in order, when the connector refuses it for any reason but permission and rate. Empty when
    /// nothing else could show what it shows.
    pub fallback: Vec<Action>,
    /// Ops sent after it, in order, once it or its fallback is applied.
    pub then: Vec<Action>,
}

impl From<Action> for DurableAction {
    fn from(action: Action) -> Self {
        Self {
            action,
            fallback: Vec::new(),
            then: Vec::new(),
        }
    }
}
