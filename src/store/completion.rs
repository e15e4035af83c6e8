//! The journal's completions, its rows and their ids.

use super::cron::CronReply;
use super::fault::Fault;
use super::handed::HandedReply;
use super::repair::Repaired;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Row id of a message. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InboxSeq(pub i64);

/// Row id of an op. Grows while the journal is open; the id of a settled op may be reused after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpSeq(pub i64);

impl fmt::Display for InboxSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for OpSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The consecutive row ids of one command's ops, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpSeqs {
    first: i64,
    count: u32,
}

impl OpSeqs {
    pub(super) fn new(first: i64, count: u32) -> Self {
        Self { first, count }
    }

    /// How many ops were written.
    #[cfg(feature = "internals")]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there was no op.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The row id of each op, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OpSeq> + Clone + use<> {
        let first = self.first;
        (0..self.count).map(move |offset| OpSeq(first + i64::from(offset)))
    }
}

/// Proof of a commit. Only the store makes one, so only committed deliveries can be acknowledged.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed {
    buffer_id: Option<String>,
}

impl Committed {
    pub(super) fn new(buffer_id: Option<String>) -> Self {
        Self { buffer_id }
    }

    /// The connector's name for the delivery, if it carried one.
    #[cfg(feature = "internals")]
    pub fn buffer_id(&self) -> Option<&str> {
        self.buffer_id.as_deref()
    }

    /// Takes the id to acknowledge, once; an empty buffer id is none.
    pub fn take_ack_id(&mut self) -> Option<String> {
        self.buffer_id.take().filter(|id| !id.is_empty())
    }

    /// The id to acknowledge; an empty buffer id is none.
    #[cfg(feature = "internals")]
    pub fn ack_id(&self) -> Option<&str> {
        self.buffer_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// The kind of frame that brought a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxKind {
    /// An inbound event.
    Inbound,
    /// A forwarded platform request.
    Forward,
    /// A run of a scheduled job.
    Job,
    /// Something that was handed to an agent.
    Handed,
}

/// State of a message's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// Waiting for its turn.
    Queued,
    /// The agent was started.
    Running,
    /// Answered.
    Done,
    /// Stopped by an interrupt.
    Stopped,
    /// The agent failed.
    Failed,
    /// Running when the process died.
    Interrupted,
    /// Accepted and not answered on purpose.
    Ignored,
}

/// State of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpState {
    /// Not sent yet.
    Pending,
    /// Sent, no result yet.
    Sent,
}

/// An op to be written to the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOp {
    /// Its session.
    pub session: Arc<str>,
    /// Its chat.
    pub chat: Arc<str>,
    /// The encoded action and its tags.
    pub op: Vec<u8>,
}

/// Ops that are written together: one for most answers.
pub type NewOps = SmallVec<[NewOp; 1]>;

/// The completion of one command.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
    /// Stored for the first time.
    Accepted {
        /// The command's token.
        token: u64,
        /// Its row id.
        seq: InboxSeq,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// Stored before.
    Duplicate {
        /// The command's token.
        token: u64,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// The line is quarantined.
    Quarantined {
        /// The command's token.
        token: u64,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// The turn is marked running.
    Started {
        /// The message.
        seq: InboxSeq,
        /// Number of this attempt, from 1.
        attempt: u32,
    },
    /// An unfinished message.
    Loaded(Box<InboxRow>),
    /// No such unfinished message.
    Missing {
        /// The row id that was asked for.
        seq: InboxSeq,
    },
    /// A session's waiting messages in order.
    Queued {
        /// The command's token.
        token: u64,
        /// The messages.
        rows: Vec<InboxRow>,
        /// The first of those that wait behind these.
        more: Vec<InboxSeq>,
    },
    /// Waiting messages in order.
    Waiting {
        /// The command's token.
        token: u64,
        /// The messages.
        rows: Vec<WaitingRow>,
    },
    /// Unsettled ops in order.
    Ops {
        /// The command's token.
        token: u64,
        /// The ops.
        ops: Vec<OpRow>,
    },
    /// The turn's end is stored.
    Ended {
        /// The message.
        seq: InboxSeq,
        /// Row ids of its ops.
        ops: OpSeqs,
    },
    /// The ops are stored.
    OpsAdded {
        /// The command's token.
        token: u64,
        /// Their row ids.
        ops: OpSeqs,
    },
    /// How to resume a session.
    Resume {
        /// The command's token.
        token: u64,
        /// The stored blob.
        blob: Option<Vec<u8>>,
    },
    /// Which of the texts occur in what is stored to resume sessions.
    Found {
        /// The command's token.
        token: u64,
        /// One answer for each text.
        found: Vec<bool>,
    },
    /// About scheduled jobs.
    Cron {
        /// The command's token.
        token: u64,
        /// The answer.
        reply: CronReply,
    },
    /// About what others hand to the agents.
    Handed {
        /// The command's token.
        token: u64,
        /// The answer.
        reply: HandedReply,
    },
    /// About an entry that somebody repairs.
    Repaired {
        /// The command's token.
        token: u64,
        /// What became of it.
        repaired: Repaired,
    },
    /// The command failed. For an accept: do not acknowledge.
    Failed(Failed),
}

/// A command that failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which command.
    pub subject: Subject,
    /// Why.
    pub fault: Fault,
}

/// Identifies a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By its token.
    Token(u64),
    /// By its message.
    Message(InboxSeq),
    /// By its op.
    Op(OpSeq),
    /// Not at all.
    None,
}

/// An unfinished message as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its row id.
    pub seq: InboxSeq,
    /// Its kind.
    pub kind: InboxKind,
    /// Its session.
    pub session: Arc<str>,
    /// The delivery's buffer id.
    pub buffer_id: Option<SmolStr>,
    /// The frame as received; `None` in a recovery that reached its byte limit (load it).
    pub line: Option<Arc<[u8]>>,
    /// Queued or running.
    pub state: RowState,
    /// Number of starts.
    pub attempt: u32,
    /// Unix milliseconds.
    pub received_at: i64,
    /// Unix milliseconds.
    pub started_at: Option<i64>,
    /// What the chat shows of its answer, as [`Command::SetShown`](super::Command::SetShown) stored it.
    pub shown: Option<Vec<u8>>,
    /// Whether its turn can be run again after a crash.
    pub repeatable: bool,
}

/// A waiting message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRow {
    /// Its row id.
    pub seq: InboxSeq,
    /// Its session.
    pub session: Arc<str>,
}

/// An unsettled op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpRow {
    /// Its row id.
    pub seq: OpSeq,
    /// Its session.
    pub session: Arc<str>,
    /// Its chat.
    pub chat: Arc<str>,
    /// The encoded action and its tags.
    pub op: Vec<u8>,
    /// The turn it belongs to.
    pub inbox: Option<InboxSeq>,
    /// Pending or sent.
    pub state: OpState,
    /// Unix milliseconds.
    pub created_at: i64,
}

/// What is stored about a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRow {
    /// The platform.
    pub platform: SmolStr,
    /// The chat on it.
    pub chat_id: SmolStr,
    /// Encoded by the caller.
    pub memory: Vec<u8>,
    /// Unix milliseconds.
    pub last_used: i64,
}

/// Everything that one commit completed, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The completions.
    pub completions: Vec<Completion>,
    /// The commits since the last batch, this one included.
    pub commits: Vec<Commit>,
}

/// One commit, measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Commands in it.
    pub commands: usize,
    /// How long it took, fsync included.
    pub took: Duration,
}

impl InboxKind {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Inbound => 0,
            Self::Forward => 1,
            Self::Job => 2,
            Self::Handed => 3,
        }
    }

    pub(super) fn from_code(code: i64) -> Self {
        match code {
            1 => Self::Forward,
            2 => Self::Job,
            3 => Self::Handed,
            _ => Self::Inbound,
        }
    }
}

impl RowState {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Queued => 0,
            Self::Running => 1,
            Self::Done => 2,
            Self::Stopped => 3,
            Self::Failed => 4,
            Self::Interrupted => 5,
            Self::Ignored => 6,
        }
    }

    pub(super) fn from_code(code: i64) -> Self {
        match code {
            0 => Self::Queued,
            1 => Self::Running,
            3 => Self::Stopped,
            4 => Self::Failed,
            5 => Self::Interrupted,
            6 => Self::Ignored,
            _ => Self::Done,
        }
    }
}

impl OpState {
    pub(super) fn from_code(code: i64) -> Self {
        if code == 1 { Self::Sent } else { Self::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_buffer_id_is_nothing_to_acknowledge() {
        assert_eq!(Committed::new(Some(String::new())).ack_id(), None);
        assert_eq!(Committed::new(Some("b".into())).ack_id(), Some("b"));
        assert_eq!(Committed::new(None).buffer_id(), None);
    }

    #[test]
    fn op_numbers_run_in_order() {
        let ops = OpSeqs::new(7, 3);
        assert_eq!(ops.iter().collect::<Vec<_>>(), [OpSeq(7), OpSeq(8), OpSeq(9)]);
        assert!(OpSeqs::new(7, 0).is_empty());
    }
}
