//! The journal's commands.

use super::access::{AccessRow, UsageRow};
use super::completion::{ChatRow, InboxKind, NewOps, RowState, Subject};
use super::completion::{InboxSeq, OpSeq};
use super::cron::CronCommand;
use super::dedupe::DedupeKey;
use super::handed::{HandedBody, HandedCommand};
use super::inspect::Item;
use super::repair::Repair;
use std::sync::Arc;

/// One command. Commands that nobody waits for are lazy (those without a completion, and the end of a finished turn
/// without ops): they join the next commit, after 50 ms at the latest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Store a message: [`Completion::Accepted`](super::Completion::Accepted) or [`Completion::Duplicate`](super::Completion::Duplicate).
    Accept {
        /// Returned in the completion.
        token: u64,
        /// Its kind.
        kind: InboxKind,
        /// Its session.
        session: Arc<str>,
        /// Identifies the message when it is delivered again; without one it is never a duplicate.
        dedupe: Option<DedupeKey>,
        /// The delivery's buffer id.
        buffer_id: Option<String>,
        /// The frame as received.
        line: Arc<[u8]>,
        /// Store it as running: its turn starts once it is committed.
        start: bool,
        /// Whether its turn can be run again after a crash, whichever agent it starts.
        repeatable: bool,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Store that a message came and is not acted on, without its text: the same completions as [`Command::Accept`].
    Ignore {
        /// Returned in the completion.
        token: u64,
        /// Its kind.
        kind: InboxKind,
        /// Its session.
        session: Arc<str>,
        /// Identifies the message when it is delivered again.
        dedupe: Option<DedupeKey>,
        /// The delivery's buffer id.
        buffer_id: Option<String>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Store or delete a rule of who may drive an agent. No completion.
    SetAccess(AccessRow),
    /// Add to what a person has used on a day. No completion.
    AddUsage(UsageRow),
    /// Read or change scheduled jobs: [`Completion::Cron`](super::Completion::Cron).
    Cron {
        /// Returned in the completion.
        token: u64,
        /// What to do.
        command: Box<CronCommand>,
    },
    /// Take or read what others hand to the agents: [`Completion::Handed`](super::Completion::Handed).
    Handed {
        /// Returned in the completion.
        token: u64,
        /// What to do.
        command: Box<HandedCommand>,
    },
    /// Quarantine a line that cannot be decoded, so that it can be acknowledged: [`Completion::Quarantined`](super::Completion::Quarantined).
    Quarantine {
        /// Returned in the completion.
        token: u64,
        /// Why it cannot be decoded.
        reason: String,
        /// The delivery's buffer id.
        buffer_id: Option<String>,
        /// The line as received.
        line: Vec<u8>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Mark a message's turn as running: [`Completion::Started`](super::Completion::Started) or [`Completion::Missing`](super::Completion::Missing).
    Start {
        /// The message.
        seq: InboxSeq,
        /// Whether it can be run again after a crash, whichever agent it starts.
        repeatable: bool,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Note that the running turn can be run again after a crash: the agent that it starts does nothing but answer. Gone with the
    /// next start. No completion.
    SetRepeatable {
        /// The message.
        seq: InboxSeq,
    },
    /// Give an unfinished message another line, because it was edited before its turn; it keeps its place. No completion.
    SetLine {
        /// The message.
        seq: InboxSeq,
        /// The kind of the frame.
        kind: InboxKind,
        /// The frame of the edit as received.
        line: Arc<[u8]>,
    },
    /// Store what the chat shows of the running turn's answer, for whoever has to report that it was interrupted. Gone with the
    /// turn's end. No completion.
    SetShown {
        /// The message.
        seq: InboxSeq,
        /// The half-written message, or none.
        shown: Option<Vec<u8>>,
    },
    /// Read an unfinished message: [`Completion::Loaded`](super::Completion::Loaded) or [`Completion::Missing`](super::Completion::Missing).
    Load {
        /// The message.
        seq: InboxSeq,
    },
    /// Read a session's waiting messages in order: [`Completion::Queued`](super::Completion::Queued).
    NextQueued {
        /// Returned in the completion.
        token: u64,
        /// The session.
        session: Arc<str>,
        /// Only rows after this one.
        after: InboxSeq,
        /// Maximum rows.
        limit: u32,
        /// Maximum rows that are named behind those.
        behind: u32,
    },
    /// Read which messages of all sessions wait, in order: [`Completion::Waiting`](super::Completion::Waiting).
    NextWaiting {
        /// Returned in the completion.
        token: u64,
        /// Only rows after this one.
        after: InboxSeq,
        /// Maximum rows.
        limit: u32,
    },
    /// Read unsettled ops in order: [`Completion::Ops`](super::Completion::Ops).
    NextOps {
        /// Returned in the completion.
        token: u64,
        /// Only rows after this one.
        after: OpSeq,
        /// Maximum rows.
        limit: u32,
    },
    /// End a turn: delete its line and store its ops, atomically: [`Completion::Ended`](super::Completion::Ended), or
    /// [`Completion::Missing`](super::Completion::Missing) if it had ended before (then nothing is written).
    End {
        /// The message.
        seq: InboxSeq,
        /// How it ended.
        state: RowState,
        /// The ops to send.
        ops: NewOps,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Store ops outside a turn's end: [`Completion::OpsAdded`](super::Completion::OpsAdded).
    AddOps {
        /// Returned in the completion.
        token: u64,
        /// The turn they belong to, if any.
        inbox: Option<InboxSeq>,
        /// The ops.
        ops: NewOps,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Run or send an entry again, or drop it: [`Completion::Repaired`](super::Completion::Repaired).
    Repair {
        /// Returned in the completion.
        token: u64,
        /// What is done.
        repair: Repair,
        /// The entry.
        item: Item,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Mark an op as sent. No completion.
    OpSent {
        /// The op.
        op: OpSeq,
    },
    /// Replace an op's body; it counts as not sent. No completion.
    OpChanged {
        /// The op.
        op: OpSeq,
        /// The new body.
        body: Vec<u8>,
    },
    /// Delete an op that was applied or declined, or that nobody needs any more. No completion.
    OpSettled {
        /// The op.
        op: OpSeq,
    },
    /// Drop an op that could not be delivered: it is not sent again, but kept for people. No completion.
    OpDropped {
        /// The op.
        op: OpSeq,
        /// Its body, as it is to be sent if somebody retries it.
        body: Vec<u8>,
        /// Why it was dropped.
        reason: String,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Store what is known about a chat. No completion.
    RememberChat(ChatRow),
    /// Store how to resume a session. No completion.
    SetResume {
        /// The session.
        session: Arc<str>,
        /// What the backend needs.
        blob: Vec<u8>,
        /// Unix milliseconds.
        now_ms: i64,
    },
    /// Delete how to resume a session. No completion.
    DropResume {
        /// The session.
        session: Arc<str>,
    },
    /// Read how to resume a session: [`Completion::Resume`](super::Completion::Resume).
    LoadResume {
        /// Returned in the completion.
        token: u64,
        /// The session.
        session: Arc<str>,
    },
    /// Look for texts in what backends need to resume sessions: [`Completion::Found`](super::Completion::Found).
    FindResume {
        /// Returned in the completion.
        token: u64,
        /// The texts.
        texts: Vec<String>,
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
            Self::Cron { command, .. } if command.only_reads() => FailurePolicy::Read,
            Self::Cron { command, .. } if command.must_last() => FailurePolicy::Retry,
            Self::Handed { command, .. } => match **command {
                HandedCommand::Take(_) => FailurePolicy::Fail,
                HandedCommand::Contexts => FailurePolicy::Read,
                HandedCommand::Taken(_) | HandedCommand::PutBack(_) => FailurePolicy::Retry,
            },
            Self::Accept { .. }
            | Self::Ignore { .. }
            | Self::Quarantine { .. }
            | Self::Repair { .. }
            | Self::Cron { .. } => FailurePolicy::Fail,
            Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::LoadResume { .. }
            | Self::FindResume { .. } => FailurePolicy::Read,
            Self::Start { .. }
            | Self::SetRepeatable { .. }
            | Self::SetLine { .. }
            | Self::SetShown { .. }
            | Self::End { .. }
            | Self::AddOps { .. }
            | Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::OpDropped { .. }
            | Self::RememberChat(_)
            | Self::SetAccess(_)
            | Self::AddUsage(_)
            | Self::SetResume { .. }
            | Self::DropResume { .. } => FailurePolicy::Retry,
        }
    }

    pub(super) fn is_lazy(&self) -> bool {
        match self {
            Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::OpDropped { .. }
            | Self::RememberChat(_)
            | Self::AddUsage(_)
            | Self::SetShown { .. }
            | Self::SetResume { .. }
            | Self::DropResume { .. } => true,
            Self::End { state, ops, .. } => {
                ops.is_empty() && matches!(state, RowState::Done | RowState::Ignored)
            }
            Self::Accept { .. }
            | Self::Cron { .. }
            | Self::Handed { .. }
            | Self::Ignore { .. }
            | Self::SetAccess(_)
            | Self::Quarantine { .. }
            | Self::Start { .. }
            | Self::SetRepeatable { .. }
            | Self::SetLine { .. }
            | Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::AddOps { .. }
            | Self::Repair { .. }
            | Self::LoadResume { .. }
            | Self::FindResume { .. } => false,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Accept { token, .. }
            | Self::Cron { token, .. }
            | Self::Handed { token, .. }
            | Self::Ignore { token, .. }
            | Self::Quarantine { token, .. }
            | Self::NextQueued { token, .. }
            | Self::NextWaiting { token, .. }
            | Self::NextOps { token, .. }
            | Self::LoadResume { token, .. }
            | Self::FindResume { token, .. }
            | Self::Repair { token, .. }
            | Self::AddOps { token, .. } => Subject::Token(*token),
            Self::Start { seq, .. } | Self::Load { seq } | Self::End { seq, .. } => Subject::Message(*seq),
            Self::OpSent { op }
            | Self::OpChanged { op, .. }
            | Self::OpSettled { op }
            | Self::OpDropped { op, .. } => Subject::Op(*op),
            Self::RememberChat(_)
            | Self::SetAccess(_)
            | Self::AddUsage(_)
            | Self::SetRepeatable { .. }
            | Self::SetLine { .. }
            | Self::SetShown { .. }
            | Self::SetResume { .. }
            | Self::DropResume { .. } => Subject::None,
        }
    }

    /// Size of its payload in bytes.
    pub(super) fn payload(&self) -> usize {
        match self {
            Self::Accept { line, .. } | Self::SetLine { line, .. } => line.len(),
            Self::Quarantine { line, .. } => line.len(),
            Self::End { ops, .. } | Self::AddOps { ops, .. } => ops.iter().map(|op| op.op.len()).sum(),
            Self::RememberChat(chat) => chat.memory.len(),
            Self::SetResume { blob, .. } => blob.len(),
            Self::SetShown { shown, .. } => shown.as_ref().map_or(0, Vec::len),
            Self::OpChanged { body, .. } | Self::OpDropped { body, .. } => body.len(),
            Self::Handed { command, .. } => match &**command {
                HandedCommand::Take(new) => match &new.body {
                    HandedBody::Context { text, meta } => text.len() + meta.len(),
                    HandedBody::Turn(line) => line.len(),
                },
                HandedCommand::Contexts | HandedCommand::Taken(_) | HandedCommand::PutBack(_) => 0,
            },
            Self::SetAccess(row) => row.value.as_ref().map_or(0, String::len),
            Self::Ignore { .. }
            | Self::Cron { .. }
            | Self::AddUsage(_)
            | Self::Repair { .. }
            | Self::Start { .. }
            | Self::SetRepeatable { .. }
            | Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::OpSent { .. }
            | Self::OpSettled { .. }
            | Self::DropResume { .. }
            | Self::LoadResume { .. }
            | Self::FindResume { .. } => 0,
        }
    }

    /// Its time, if it has one.
    pub(super) fn now_ms(&self) -> Option<i64> {
        match self {
            Self::Accept { now_ms, .. }
            | Self::Ignore { now_ms, .. }
            | Self::Quarantine { now_ms, .. }
            | Self::Start { now_ms, .. }
            | Self::End { now_ms, .. }
            | Self::AddOps { now_ms, .. }
            | Self::Repair { now_ms, .. }
            | Self::OpDropped { now_ms, .. }
            | Self::SetResume { now_ms, .. } => Some(*now_ms),
            Self::RememberChat(chat) => Some(chat.last_used),
            Self::Handed { command, .. } => match &**command {
                HandedCommand::Take(new) => Some(new.now_ms),
                HandedCommand::Contexts | HandedCommand::Taken(_) | HandedCommand::PutBack(_) => None,
            },
            Self::SetAccess(_)
            | Self::SetRepeatable { .. }
            | Self::SetLine { .. }
            | Self::SetShown { .. }
            | Self::Cron { .. }
            | Self::AddUsage(_)
            | Self::Load { .. }
            | Self::NextQueued { .. }
            | Self::NextWaiting { .. }
            | Self::NextOps { .. }
            | Self::OpSent { .. }
            | Self::OpChanged { .. }
            | Self::OpSettled { .. }
            | Self::DropResume { .. }
            | Self::LoadResume { .. }
            | Self::FindResume { .. } => None,
        }
    }
}
