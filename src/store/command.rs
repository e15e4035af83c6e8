//! What can be asked of the journal. It never touches the database itself.

use super::completion::{ChatRow, InboxKind, NewOp, Subject, TurnState};
use super::completion::{InboxSeq, OpSeq};
use super::dedupe::DedupeKey;
use std::sync::Arc;

/// One command. Commands that nobody waits for are lazy (those without a completion, and the end of a finished turn
/// without ops): they join the next commit, after 50 ms at the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hold a message: [`Completion::Accepted`](super::Completion::Accepted) or [`Completion::Duplicate`](super::Completion::Duplicate).
    Accept {
        /// Given back in the completion.
        token: u64,
        /// Its lane.
        kind: InboxKind,
        /// Its conversation.
        session: Arc<str>,
        /// What makes it the same message when it comes again; none is never a duplicate.
        dedupe: Option<DedupeKey>,
        /// The connector's name for the delivery.
        buffer_id: Option<String>,
        /// The frame exactly as it came.
        line: Vec<u8>,
        /// Begin as running: its turn starts as soon as it is held.
        start: bool,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Hold a line nobody can read, so that it can be acknowledged: [`Completion::Quarantined`](super::Completion::Quarantined).
    Quarantine {
        /// Given back in the completion.
        token: u64,
        /// Why it cannot be read.
        reason: String,
        /// The connector's name for the delivery.
        buffer_id: Option<String>,
        /// The line as it came.
        line: Vec<u8>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// A waiting (or interrupted and repeatable) turn runs now: [`Completion::Started`](super::Completion::Started) or [`Completion::Missing`](super::Completion::Missing).
    Start {
        /// The message.
        seq: InboxSeq,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Read an unfinished message: [`Completion::Loaded`](super::Completion::Loaded) or [`Completion::Missing`](super::Completion::Missing).
    Load {
        /// The message.
        seq: InboxSeq,
    },
    /// Read a session's waiting messages in order: [`Completion::Queued`](super::Completion::Queued).
    NextQueued {
        /// Given back in the completion.
        token: u64,
        /// The conversation.
        session: Arc<str>,
        /// Only what came after this one.
        after: InboxSeq,
        /// How many at most.
        limit: u32,
    },
    /// Read which sessions have waiting messages, in key order: [`Completion::Waiting`](super::Completion::Waiting).
    NextWaiting {
        /// Given back in the completion.
        token: u64,
        /// Only keys after this one.
        after: Arc<str>,
        /// How many at most.
        limit: u32,
    },
    /// Read unsettled ops in order: [`Completion::Ops`](super::Completion::Ops).
    NextOps {
        /// Given back in the completion.
        token: u64,
        /// Only what came after this one.
        after: OpSeq,
        /// How many at most.
        limit: u32,
    },
    /// A turn ended; its line goes and its ops are stored, all or nothing: [`Completion::Ended`](super::Completion::Ended), or
    /// [`Completion::Missing`](super::Completion::Missing) when it had ended before (then nothing is written).
    End {
        /// The message.
        seq: InboxSeq,
        /// How it ended.
        state: TurnState,
        /// What is owed to the chat.
        ops: Vec<NewOp>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Owe ops outside a turn's end: [`Completion::OpsAdded`](super::Completion::OpsAdded).
    AddOps {
        /// Given back in the completion.
        token: u64,
        /// The turn they belong to, if any.
        inbox: Option<InboxSeq>,
        /// The ops.
        ops: Vec<NewOp>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// An op went out. No completion.
    OpSent {
        /// The op.
        op: OpSeq,
    },
    /// Something else is owed in an op's place, and has not gone out. No completion.
    OpChanged {
        /// The op.
        op: OpSeq,
        /// What is owed now.
        body: Vec<u8>,
    },
    /// An op was applied, refused or given up: forget it. No completion.
    OpSettled {
        /// The op.
        op: OpSeq,
    },
    /// Remember a chat. No completion.
    RememberChat(ChatRow),
    /// Remember how to resume a session. No completion.
    SetResume {
        /// The conversation.
        session: Arc<str>,
        /// What the backend needs.
        blob: Vec<u8>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Forget how to resume a session. No completion.
    DropResume {
        /// The conversation.
        session: Arc<str>,
    },
    /// Read how to resume a session: [`Completion::Resume`](super::Completion::Resume).
    LoadResume {
        /// Given back in the completion.
        token: u64,
        /// The conversation.
        session: Arc<str>,
    },
}

/// What happens to a command when its commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailurePolicy {
    /// Fail it now: the caller or the connector repeats it.
    Fail,
    /// It only reads: run it on its own.
    Read,
    /// Keep it and retry until it commits.
    Retry,
}

impl Command {
    pub(super) fn failure_policy(&self) -> FailurePolicy {
        match self {
            Self::Accept { .. } | Self::Quarantine { .. } => FailurePolicy::Fail,
            Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::LoadResume { .. } => FailurePolicy::Read,
            Self::Start { .. }
            | Self::End { .. }
            | Self::AddOps { .. }
            | Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::RememberChat(_)
            | Self::SetResume { .. }
            | Self::DropResume { .. } => FailurePolicy::Retry,
        }
    }

    pub(super) fn is_lazy(&self) -> bool {
        match self {
            Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::RememberChat(_)
            | Self::SetResume { .. }
            | Self::DropResume { .. } => true,
            Self::End { state, ops, .. } => {
                ops.is_empty() && matches!(state, TurnState::Done | TurnState::Ignored)
            }
            Self::Accept { .. }
            | Self::Quarantine { .. }
            | Self::Start { .. }
            | Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::AddOps { .. }
            | Self::LoadResume { .. } => false,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Accept { token, .. }
            | Self::Quarantine { token, .. }
            | Self::NextQueued { token, .. }
            | Self::NextWaiting { token, .. }
            | Self::NextOps { token, .. }
            | Self::LoadResume { token, .. }
            | Self::AddOps { token, .. } => Subject::Token(*token),
            Self::Start { seq, .. } | Self::Load { seq } | Self::End { seq, .. } => Subject::Message(*seq),
            Self::OpSent { op } | Self::OpChanged { op, .. } | Self::OpSettled { op } => Subject::Op(*op),
            Self::RememberChat(_) | Self::SetResume { .. } | Self::DropResume { .. } => Subject::None,
        }
    }

    /// Bytes it brings along.
    pub(super) fn payload(&self) -> usize {
        match self {
            Self::Accept { line, .. } | Self::Quarantine { line, .. } => line.len(),
            Self::End { ops, .. } | Self::AddOps { ops, .. } => ops.iter().map(|op| op.op.len()).sum(),
            Self::RememberChat(chat) => chat.memory.len(),
            Self::SetResume { blob, .. } => blob.len(),
            Self::OpChanged { body, .. } => body.len(),
            Self::Start { .. }
            | Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::OpSent { .. }
            | Self::OpSettled { .. }
            | Self::DropResume { .. }
            | Self::LoadResume { .. } => 0,
        }
    }

    /// The time it names, if it names one.
    pub(super) fn now_ms(&self) -> Option<i64> {
        match self {
            Self::Accept { now_ms, .. }
            | Self::Quarantine { now_ms, .. }
            | Self::Start { now_ms, .. }
            | Self::End { now_ms, .. }
            | Self::AddOps { now_ms, .. }
            | Self::SetResume { now_ms, .. } => Some(*now_ms),
            Self::RememberChat(chat) => Some(chat.last_used),
            Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::DropResume { .. }
            | Self::LoadResume { .. } => None,
        }
    }
}
