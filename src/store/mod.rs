//! The journal: what arrived, what is owed, and what must be remembered, durable in one database file.
//!
//! One thread owns the database. It takes everything that waits, runs it in one transaction, commits once,
//! and hands all completions back together. This is the only module that names the database crate; it never
//! reads a clock for what it records (times come in as arguments), never logs message text, and never makes
//! a [`Committed`] before its commit succeeded.
//!
//! # Tables
//!
//! | table | holds | leaves when |
//! |---|---|---|
//! | `inbox` | unfinished messages only, with their line | the turn ends: the line is gone, a short record moves to `done` |
//! | `done` | finished messages without their text | `keep_days`, or `max_bytes` |
//! | `dedupe` | 16-byte keys of accepted messages | `dedupe_days` |
//! | `outbox` | ops that are not settled | settled |
//! | `chats`, `resume`, `quarantine`, `meta` | memories, poison lines, numbers | their bounds |
//!
//! Keys of recent messages live in memory and in their own rows, and move into `dedupe` sorted and in slices:
//! random inserts into a large index would otherwise write a page per message. A crash loses nothing, opening
//! reads the rows above the last moved one.
//!
//! # Durability
//!
//! [`Durability::Full`] is WAL with `synchronous=FULL`: one fsync per commit. [`Durability::Process`] is
//! `synchronous=NORMAL`: no fsync per commit, so a commit survives the death of the process but the last ones
//! may not survive the machine's; the file itself stays sound because checkpoints still sync.
//!
//! # Faults
//!
//! When a commit fails (disk full, I/O error, read-only, corrupt) nothing in it is receipted. What a caller can
//! repeat (an accept, a read) fails at once; what must not be lost (endings, starts, op states, memories) is kept
//! in order and tried again until it succeeds, and keeps its place in the queue's bound while it waits.

mod apply;
mod command;
mod completion;

mod dedupe;
mod endings;
mod fault;
mod inspect;
mod journal;
mod lock;
mod queue;
mod reads;
mod retention;
mod schema;
mod writer;

#[cfg(test)]
mod tests;

pub use command::Command;
pub use completion::{
    Batch, ChatRow, Commit, Committed, Completion, Failed, InboxKind, InboxRow, InboxSeq, NewOp, OpRow,
    OpSeq, OpSeqs, OpState, Subject, TurnState, WaitingSession,
};
pub use dedupe::DedupeKey;
pub use fault::{Fault, FaultKind, Health, Holder, OpenError};
pub use inspect::{Counts, Depth, InspectError, Inspector, Item, Listed, Section};
pub use journal::{CloseError, Durability, Journal, JournalSettings, Opened, SubmitError};
pub use lock::held_by;
pub use reads::Recovered;
