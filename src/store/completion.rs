//! What the journal answers, and its rows as they are read. It never touches the database itself.

use super::fault::Fault;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A message's place in the journal. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InboxSeq(pub i64);

/// An op's place in the outbox. Grows while the journal is open; a settled number may return after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// The consecutive numbers given to the ops of one command, in their order.
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
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there was no op.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of each op, in the order they were given.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OpSeq> + Clone + use<> {
        let first = self.first;
        (0..self.count).map(move |offset| OpSeq(first + i64::from(offset)))
    }
}

/// Proof that a commit succeeded. Only the store makes one, so only what is safely held can be acknowledged.
#[derive(Debug, PartialEq, Eq)]
pub struct Committed {
    buffer_id: Option<String>,
}

impl Committed {
    pub(super) fn new(buffer_id: Option<String>) -> Self {
        Self { buffer_id }
    }

    /// The connector's name for the delivery, if it carried one.
    pub fn buffer_id(&self) -> Option<&str> {
        self.buffer_id.as_deref()
    }

    /// The id to acknowledge, taken.
    pub fn into_ack_id(self) -> Option<String> {
        self.buffer_id.filter(|id| !id.is_empty())
    }

    /// The id to acknowledge: the buffer id when there is one to acknowledge, an empty one being none.
    pub fn ack_id(&self) -> Option<&str> {
        self.buffer_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// Which lane a message came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxKind {
    /// An inbound event.
    Inbound,
    /// A forwarded platform request.
    Forward,
}

/// Where a message's turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnState {
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
    /// Accepted and deliberately not answered.
    Ignored,
}

/// Where an op is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpState {
    /// Not sent yet.
    Pending,
    /// Sent, no answer seen.
    Sent,
}

/// An op to be written to the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOp {
    /// The session it speaks for.
    pub session: Arc<str>,
    /// The chat it goes to.
    pub chat: Arc<str>,
    /// The action with its tagging, encoded.
    pub op: Vec<u8>,
}

/// The completion of one command.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
    /// Held for the first time.
    Accepted {
        /// The caller's.
        token: u64,
        /// Its place.
        seq: InboxSeq,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// Held already.
    Duplicate {
        /// The caller's.
        token: u64,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// The line is held aside.
    Quarantined {
        /// The caller's.
        token: u64,
        /// Proof for the acknowledgement.
        receipt: Committed,
    },
    /// The turn is marked running.
    Started {
        /// The message.
        seq: InboxSeq,
        /// Which attempt this is, from 1.
        attempt: u32,
    },
    /// An unfinished message.
    Loaded(Box<InboxRow>),
    /// No such unfinished message.
    Missing {
        /// The number asked for.
        seq: InboxSeq,
    },
    /// A session's waiting messages in order.
    Queued {
        /// The caller's.
        token: u64,
        /// The messages.
        rows: Vec<InboxRow>,
    },
    /// Sessions with waiting messages, in key order.
    Waiting {
        /// The caller's.
        token: u64,
        /// The sessions.
        sessions: Vec<WaitingSession>,
    },
    /// Unsettled ops in order.
    Ops {
        /// The caller's.
        token: u64,
        /// The ops.
        ops: Vec<OpRow>,
    },
    /// The turn's end is held.
    Ended {
        /// The message.
        seq: InboxSeq,
        /// Its ops' numbers.
        ops: OpSeqs,
    },
    /// The ops are held.
    OpsAdded {
        /// The caller's.
        token: u64,
        /// Their numbers.
        ops: OpSeqs,
    },
    /// How to resume a session.
    Resume {
        /// The caller's.
        token: u64,
        /// What was remembered.
        blob: Option<Vec<u8>>,
    },
    /// Nothing was done. For an accept: do not acknowledge.
    Failed(Failed),
}

/// A command that was not carried out.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which command.
    pub subject: Subject,
    /// Why.
    pub fault: Fault,
}

/// How a failed command is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// By its token.
    Token(u64),
    /// By its message.
    Message(InboxSeq),
    /// By its op.
    Op(OpSeq),
    /// It has no name.
    None,
}

/// An unfinished message as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its place.
    pub seq: InboxSeq,
    /// Its lane.
    pub kind: InboxKind,
    /// Its conversation.
    pub session: Arc<str>,
    /// The connector's name for the delivery.
    pub buffer_id: Option<String>,
    /// The frame as it came; `None` in a recovery that reached its byte bound (load it).
    pub line: Option<Vec<u8>>,
    /// Queued or running.
    pub state: TurnState,
    /// How often it was started.
    pub attempt: u32,
    /// Unix milliseconds.
    pub received_at: i64,
    /// Unix milliseconds.
    pub started_at: Option<i64>,
}

/// A session with waiting messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingSession {
    /// The conversation.
    pub session: Arc<str>,
    /// Its oldest waiting message.
    pub first: InboxSeq,
    /// How many wait.
    pub count: u64,
}

/// An unsettled op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpRow {
    /// Its place.
    pub seq: OpSeq,
    /// The session it speaks for.
    pub session: Arc<str>,
    /// The chat it goes to.
    pub chat: Arc<str>,
    /// The action with its tagging, encoded.
    pub op: Vec<u8>,
    /// The turn it belongs to.
    pub inbox: Option<InboxSeq>,
    /// Pending or sent.
    pub state: OpState,
    /// Unix milliseconds.
    pub created_at: i64,
}

/// What is remembered about a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRow {
    /// The platform.
    pub platform: Arc<str>,
    /// The chat on it.
    pub chat_id: Arc<str>,
    /// Encoded by the caller.
    pub memory: Vec<u8>,
    /// Unix milliseconds.
    pub last_used: i64,
}

/// Everything one commit completed, in the order it was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The completions.
    pub completions: Vec<Completion>,
    /// The commits since the last batch, this one included; one that completed nothing is told with the next.
    pub commits: Vec<Commit>,
}

/// One commit, measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Commands that it held.
    pub commands: usize,
    /// How long it took, fsync included.
    pub took: Duration,
}

impl InboxKind {
    pub(super) fn code(self) -> i64 {
        match self {
            Self::Inbound => 0,
            Self::Forward => 1,
        }
    }

    pub(super) fn from_code(code: i64) -> Self {
        if code == 1 { Self::Forward } else { Self::Inbound }
    }
}

impl TurnState {
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
