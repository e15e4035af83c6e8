//! What a [`Speech`](super::Speech) is given and gives back: plain data.

use std::sync::Arc;
use std::time::Duration;

use crate::adapter::chats::{ChatFacts, ChatId};
use crate::wire::{Action, CapabilityDescriptor};

/// Where a turn speaks.
#[derive(Debug, Clone)]
pub struct Place {
    /// The chat.
    pub chat: Arc<ChatId>,
    /// What its ops are tagged with; its message is the one that is answered and marked.
    pub facts: Arc<ChatFacts>,
    /// The session key's text.
    pub session: Arc<str>,
    /// What the platform can do; only plain sends when it is not known.
    pub descriptor: Option<Arc<CapabilityDescriptor>>,
    /// The capability that the first part of the answer goes through, such as `discord.interaction_token`.
    pub follow_up: Option<String>,
}

/// How far a tool or a step of a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StepState {
    /// Not begun.
    #[default]
    Pending,
    /// Under way.
    Running,
    /// Done.
    Done,
    /// Failed, or given up.
    Failed,
}

/// One use of a tool, as a line of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLine {
    /// The agent's name for this use; a name not seen before ends the segment of text before it.
    pub id: String,
    /// What it does.
    pub title: String,
    /// How far it is.
    pub state: StepState,
}

/// One step of a plan, as a line of progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: StepState,
}

/// Names an op that [`Speech::poll`](super::Speech::poll) gave out, until it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// A point in what was said; see [`Speech::mark`](super::Speech::mark).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub(super) u64);

/// What an op is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It carries the answer or a notice.
    Text,
    /// It only decorates, and may be shed.
    Cosmetic,
}

/// An op to send now. At most one of each weight is out at any time.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// Name it when it is settled.
    pub ticket: Ticket,
    /// The op.
    pub action: Action,
    /// What it is worth.
    pub weight: Weight,
    /// When to stop waiting for its result and settle it as unknown, on the clock of `now`.
    pub deadline: Option<Duration>,
}

/// What became of an op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was done.
    Applied {
        /// The message that was made or changed.
        message_id: Option<String>,
    },
    /// It was refused as a matter of permission: nothing else may be tried for this turn.
    Declined,
    /// It was refused because too much was asked.
    RateLimited {
        /// How long to wait, as far as the caller believes it.
        retry_after: Option<Duration>,
    },
    /// It was refused for another reason.
    Refused,
    /// It was sent, and what became of it is not known.
    Unknown,
    /// It was not sent.
    NotSent,
    /// It was not sent because the chat's budget had no room.
    Shed,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The agent is done.
    Done,
    /// It was told to stop.
    Stopped,
    /// It failed.
    Failed,
}

/// What is left to do when the turn has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Farewell {
    /// What must reach the chat, in order.
    pub owed: Vec<OwedAction>,
    /// What decorates the end, in order, after everything that is owed.
    pub after: Vec<Action>,
    /// For each op that is owed, how many breaks there were before it was said.
    pub(super) stretches: Vec<u64>,
}

impl Farewell {
    /// Owes something at the mark: after what was said before it, and before what was said after it.
    pub fn insert(&mut self, mark: Mark, actions: Vec<OwedAction>) {
        let later = self.stretches.iter().position(|stretch| *stretch >= mark.0);
        let at = later.unwrap_or(self.owed.len()).min(self.owed.len());
        // Counted to what was said before, so that whatever has a later mark comes after it.
        let stretch = mark.0.saturating_sub(1);
        self.stretches.splice(at..at, actions.iter().map(|_| stretch));
        self.owed.splice(at..at, actions);
    }
}

/// An op that must reach the chat.
#[derive(Debug, Clone, PartialEq)]
pub struct OwedAction {
    /// The op.
    pub action: Action,
    /// Sent instead, in order, when the connector refuses it for any reason but permission and rate. May be
    /// empty: then nothing is lost by the refusal that could still be shown.
    pub otherwise: Vec<Action>,
}

impl From<Action> for OwedAction {
    fn from(action: Action) -> Self {
        Self {
            action,
            otherwise: Vec::new(),
        }
    }
}

/// What became of the ops of one turn that are not owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpeechCounters {
    /// Ops of text given out.
    pub text_ops: u64,
    /// Ops that decorate given out.
    pub cosmetic_ops: u64,
    /// Ops that decorate and were shed or never sent.
    pub cosmetic_shed: u64,
    /// Ops that decorate and were refused, or whose fate is not known.
    pub cosmetic_failed: u64,
    /// Ops of text that were refused for their rate.
    pub rate_limited: u64,
    /// Ops of text that were refused otherwise.
    pub refused: u64,
    /// Ops of text whose fate is not known.
    pub unknown: u64,
}
