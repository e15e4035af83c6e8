//! What can be asked of the journal. It never touches the database itself.

use super::done::{ChatMemory, Kind, NewOp, Subject, TurnState};
use super::ids::{DedupeKey, InboxSeq, OpSeq};
use std::sync::Arc;

/// One command. Those that nobody waits for are lazy, which are those without a completion and an ending that owes
/// nothing: they ride in the next commit, at the latest 50 ms later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Hold a message: [`Done::Accepted`](super::Done::Accepted) or [`Done::Duplicate`](super::Done::Duplicate).
    Accept {
        /// Given back in the completion.
        token: u64,
        /// Its lane.
        kind: Kind,
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
    /// Hold a line nobody can read, so that it can be acknowledged: [`Done::Quarantined`](super::Done::Quarantined).
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
    /// A waiting (or interrupted and repeatable) turn runs now: [`Done::Started`](super::Done::Started) or [`Done::Missing`](super::Done::Missing).
    Start {
        /// The message.
        seq: InboxSeq,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Read an unfinished message: [`Done::Loaded`](super::Done::Loaded) or [`Done::Missing`](super::Done::Missing).
    Load {
        /// The message.
        seq: InboxSeq,
    },
    /// Read a session's waiting messages in order: [`Done::Queued`](super::Done::Queued).
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
    /// Read which sessions have waiting messages, in key order: [`Done::Waiting`](super::Done::Waiting).
    NextWaiting {
        /// Given back in the completion.
        token: u64,
        /// Only keys after this one.
        after: Arc<str>,
        /// How many at most.
        limit: u32,
    },
    /// Read unsettled ops in order: [`Done::Ops`](super::Done::Ops).
    NextOps {
        /// Given back in the completion.
        token: u64,
        /// Only what came after this one.
        after: OpSeq,
        /// How many at most.
        limit: u32,
    },
    /// A turn ended; its line goes, its ops are owed, the next may start, all or nothing: [`Done::Ended`](super::Done::Ended), or
    /// [`Done::Missing`](super::Done::Missing) when it had ended before (then nothing is written).
    End {
        /// The message.
        seq: InboxSeq,
        /// How it ended.
        state: TurnState,
        /// What is owed to the chat.
        ops: Vec<NewOp>,
        /// A waiting message that runs next.
        start_next: Option<InboxSeq>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Owe ops outside a turn's end: [`Done::OpsAdded`](super::Done::OpsAdded).
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
    RememberChat(ChatMemory),
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
    /// Read how to resume a session: [`Done::Resume`](super::Done::Resume).
    LoadResume {
        /// Given back in the completion.
        token: u64,
        /// The conversation.
        session: Arc<str>,
    },
}

/// What happens to a command when its commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Temper {
    /// It fails at once; the caller repeats it or the connector does.
    Repeatable,
    /// It only reads: it is tried on its own.
    Read,
    /// It is kept and tried again until it is held.
    Kept,
}

impl Write {
    pub(super) fn temper(&self) -> Temper {
        match self {
            Self::Accept { .. } | Self::Quarantine { .. } => Temper::Repeatable,
            Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::LoadResume { .. } => Temper::Read,
            Self::Start { .. }
            | Self::End { .. }
            | Self::AddOps { .. }
            | Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::RememberChat(_)
            | Self::SetResume { .. }
            | Self::DropResume { .. } => Temper::Kept,
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
            Self::End { ops, start_next, .. } => ops.is_empty() && start_next.is_none(),
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
            Self::RememberChat(_) | Self::SetResume { .. } | Self::DropResume { .. } => Subject::Nameless,
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
