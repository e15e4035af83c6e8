//! The journal: the durable inbox and outbox, and what must survive a restart, in one SQLite database.
//!
//! One thread owns the database. It takes all waiting commands, runs them in one transaction, commits once, and returns
//! all completions together. The usual commands are appended to a log, and move into the tables together (`log`). This is the only module that names the database crate. It never reads a clock for what it
//! records in the journal (times are arguments), never logs message text, and never makes a [`Committed`] before its commit succeeded.
//!
//! # Tables
//!
//! | table | content | deleted |
//! |---|---|---|
//! | `log` | the commands of commits that the other tables do not show yet | when they do, after 1,024 messages, 2 MiB or a second; what is not finished may stay for one more time |
//! | `inbox` | unfinished messages, with their line | when the turn ends; a short record moves to `done` |
//! | `done`, `done_packs` | finished messages, without their text; many of them in one row | after `keep_days`, or at `max_bytes` |
//! | `recent_keys`, `key_runs`, `key_blocks` | keys of accepted messages: those of packed records, then the index | when the index has them; after `dedupe_days` |
//! | `dedupe` | keys of a journal from before there were blocks | after `dedupe_days` |
//! | `outbox` | unsettled ops | when settled |
//! | `dropped` | ops that could not be delivered | like `done` |
//! | `access`, `usage` | rules that verbs and pairings made; turns and tokens by day | when a verb says so; after 40 days |
//! | `cron_jobs`, `cron_runs` | scheduled jobs; their runs, of which the unfinished ones are claims | when a verb says so; at their bounds |
//! | `chats`, `resume`, `quarantine`, `meta` | chat facts, resume blobs, undecodable lines, counters | at their bounds |
//!
//! Keys of recent messages are in memory and in their rows, and move into the index (`key_index`) sorted and in slices, because random
//! inserts into a large index write a page per message. A crash loses none: opening reads the rows after the last moved
//! one.
//!
//! # Durability
//!
//! [`Durability::Full`] is WAL with `synchronous=FULL`: one fsync per commit. [`Durability::Process`] is
//! `synchronous=NORMAL`: no fsync per commit, so commits survive a crash of the process, but a power failure may lose the
//! last ones; the file stays consistent because checkpoints sync.
//!
//! # Beside the journal
//!
//! Skills and data are in databases of their own (`skills.db`, `data.db`), which verbs and the relay open when they need them. They
//! keep the clock of whoever writes.
//!
//! # Faults
//!
//! When a commit fails (disk full, I/O error, read-only, corrupt), nothing in it is acknowledged. What a caller can repeat
//! (an accept, a read) fails immediately; what must not be lost (ends, starts, op states, chat facts) is kept in order and
//! retried until it succeeds, and counts against the queue's capacity meanwhile.

mod access;
mod append;
mod applied_ops;
mod apply;
mod audit;
mod bot_state;
mod chats;
mod command;
mod completion;
mod cron;
mod data;
mod days;
mod dedupe;
mod endings;
mod fault;
mod finished;
#[cfg(feature = "nats")]
mod follower;
mod handed;
mod inspect;
mod journal;
mod key_index;
mod lock;
mod log;
mod pace;
mod process;
mod queue;
mod reads;
mod repair;
mod replication;
mod retention;
mod schema;
mod side_file;
mod skill_files;
mod skills;
mod start_marks;
mod stream_marks;
mod varint;
mod wal_space;
mod writer;

#[cfg(test)]
mod tests;

pub use access::{AccessFiles, AccessRow, UsageRow};
pub use applied_ops::AppliedOps;
pub use audit::{AuditFile, AuditLog};
pub use bot_state::{read_bot_state, write_bot_state};
pub use command::Command;
pub use completion::{
    Batch, ChatRow, Commit, Committed, Completion, Failed, InboxKind, InboxRow, InboxSeq, NewOp, NewOps,
    OpRow, OpSeq, OpSeqs, OpState, RowState, Subject, WaitingRow,
};
pub use cron::{
    ChangeRefusal, ClaimReply, CronCommand, CronFiles, CronReply, JobChange, JobRow, JobRunStatus,
    MAX_LISTED_RUNS, RunRow, RunSource, UnreadableJob,
};
pub use data::SqliteDataStore;
pub use dedupe::{DedupeKey, KeyHash};
pub use fault::{Fault, FaultKind, Health, Holder, OpenError};
#[cfg(feature = "nats")]
pub use follower::{FollowError, Follower, FollowerState, StreamContent, StreamRecord};
pub use handed::{HandedBody, HandedCommand, HandedReply, MAX_CONTEXT_BYTES, NewHandedItem, PendingContext};
pub use inspect::{Counts, Depth, InspectError, Inspector, Item, Listed, Section};
pub use journal::{CloseError, Durability, Journal, JournalSettings, Opened, QueueError};
#[cfg(feature = "nats")]
pub use lock::while_held;
pub use lock::{check_state_dir, held_by, make_private};
#[cfg(feature = "internals")]
pub use log::{decode_batch, encode_batch};
#[cfg(feature = "internals")]
pub use pace::steps::JournalSteps;
pub use process::current_owner;
pub use reads::{INTERRUPTED_ROWS, LEFT_QUESTIONS, QUIET_HOURS, Recovered};
pub use repair::{Repair, Repaired};
pub use replication::{Appended, CommitStream, NotReplicated};
#[cfg(feature = "nats")]
pub use replication::{install_snapshot, snapshot};
pub use skill_files::FileSkillStore;
pub use skills::SqliteSkillStore;
pub use start_marks::{START_MARKS, StartMark, StartMarks};
#[cfg(feature = "nats")]
pub use stream_marks::{StreamMarks, set_aside, stand_down, stream_marks};
