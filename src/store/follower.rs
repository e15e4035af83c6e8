//! A standby's journal: a thread that applies the records of the cluster's stream, in order.
//!
//! It holds the state directory's lock, as a relay does. Nothing is recovered and nothing is decided: that is for the journal's
//! writer, once this member is active.

use super::apply::JournalDb;
use super::fault::{Fault, FaultKind, OpenError};
use super::journal::{JournalSettings, open_database};
use super::lock::StateLock;
use super::retention::{SliceContext, Upkeep};
use super::schema;
use super::start_marks;
use super::stream_marks::StreamMarks;
use super::writer::checkpoint_fully;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Interval of upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(20);
/// Slices of upkeep at a time.
const MAX_SLICES: usize = 50;

/// A record of the stream: its number, and what is in it.
pub type StreamRecord = (u64, StreamContent);

/// What a record of the stream has for a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamContent {
    /// Only its number counts.
    Nothing,
    /// A commit.
    Commit(Vec<u8>),
    /// A member became active, or gave the role back.
    Term {
        /// Names the member's journal.
        author: Option<u64>,
        /// The journal whose the role is from here on without a limit of time.
        holder: Option<u64>,
    },
}

/// Why records were not applied.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The journal failed.
    #[error(transparent)]
    Journal(Fault),
    /// The thread is gone.
    #[error("the journal's thread ended unexpectedly")]
    Died,
}

/// What the journal of a standby holds when it is opened.
#[derive(Clone, Copy, Debug)]
pub struct FollowerState {
    /// What it says about the stream.
    pub marks: StreamMarks,
    /// Whether nothing is in it that could be lost.
    pub is_empty: bool,
}

/// The journal of a standby.
#[derive(Debug)]
pub struct Follower {
    requests: mpsc::Sender<Apply>,
    thread: JoinHandle<()>,
}

type Applied = oneshot::Sender<Result<(), Fault>>;

struct Apply {
    records: Vec<StreamRecord>,
    now_ms: i64,
    applied: Applied,
}

impl Follower {
    /// Locks the state directory, opens or creates its journal, and starts the thread. Blocking.
    pub fn open(
        dir: &Path,
        settings: JournalSettings,
        now_ms: i64,
    ) -> Result<(Self, FollowerState), OpenError> {
        let lock = StateLock::take_within(dir, settings.assigned_dir, settings.lock_wait, now_ms)?;
        let (requests, queue) = mpsc::channel();
        let (ready_sender, ready) = mpsc::sync_channel(1);
        let path = schema::path_in(dir);
        let thread = thread::Builder::new()
            .name("follower".into())
            .spawn(move || live(&path, &lock, &settings, now_ms, &queue, &ready_sender))
            .map_err(OpenError::Thread)?;
        let died = || OpenError::Thread(std::io::Error::other("it ended unexpectedly"));
        match ready.recv().unwrap_or_else(|_| Err(died())) {
            Ok(state) => Ok((Self { requests, thread }, state)),
            Err(error) => {
                // The thread holds the lock until it ends.
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// Applies records in one transaction, in order.
    pub async fn apply(&self, records: Vec<StreamRecord>, now_ms: i64) -> Result<(), FollowError> {
        let (applied, answer) = oneshot::channel();
        let request = Apply {
            records,
            now_ms,
            applied,
        };
        self.requests.send(request).map_err(|_| FollowError::Died)?;
        let answer = answer.await.map_err(|_| FollowError::Died)?;
        answer.map_err(FollowError::Journal)
    }

    /// Closes the journal and releases the state directory. Blocking.
    pub fn close(self) {
        drop(self.requests);
        let _ = self.thread.join();
    }
}

fn live(
    path: &Path,
    lock: &StateLock,
    settings: &JournalSettings,
    now_ms: i64,
    queue: &mpsc::Receiver<Apply>,
    ready: &mpsc::SyncSender<Result<FollowerState, OpenError>>,
) {
    let (db, _, writer_state) = match open_database(path, settings, lock) {
        Ok(opened) => opened,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let journal_db = JournalDb::new(&db, writer_state).and_then(|journal_db| {
        let marks = journal_db.begin_following()?;
        let is_empty = is_empty(&db)?;
        Ok((journal_db, FollowerState { marks, is_empty }))
    });
    let (mut journal_db, state) = match journal_db {
        Ok(journal_db) => journal_db,
        Err(error) => {
            let _ = ready.send(Err(schema::to_open_error(path, &error)));
            return;
        }
    };
    let _ = ready.send(Ok(state));
    let (began, mut upkeep, mut clock_ms) = (Instant::now(), Upkeep::default(), now_ms);
    let mut upkeep_at = began + UPKEEP_EVERY;
    loop {
        match queue.recv_timeout(upkeep_at.saturating_duration_since(Instant::now())) {
            Ok(apply) => {
                clock_ms = apply.now_ms;
                let applied = leave_to_others(path, state.marks.member, &apply.records)
                    .and_then(|()| journal_db.follow(&apply.records, apply.now_ms));
                let _ = apply.applied.send(applied);
            }
            Err(RecvTimeoutError::Timeout) => {
                let context = SliceContext {
                    now_ms: clock_ms,
                    mono: began.elapsed(),
                    idle: true,
                };
                for _ in 0..MAX_SLICES {
                    let slice = journal_db.upkeep(|journal_db| upkeep.slice(journal_db, settings, context));
                    if !matches!(slice, Ok(true)) {
                        break;
                    }
                }
                super::writer::checkpoint_now(&db);
                upkeep_at = Instant::now() + UPKEEP_EVERY;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    drop(journal_db);
    checkpoint_fully(&db);
}

/// What was noted here about handed items is over once another member was active.
fn leave_to_others(path: &Path, own: Option<u64>, records: &[StreamRecord]) -> Result<(), Fault> {
    let is_of_another =
        |(_, content): &StreamRecord| matches!(content, StreamContent::Term { author, .. } if *author != own);
    match path.parent() {
        Some(dir) if records.iter().any(is_of_another) => start_marks::discard(dir).map_err(|error| Fault {
            kind: FaultKind::Io,
            detail: error.to_string().into(),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether nothing is in the journal that could be lost.
fn is_empty(db: &rusqlite::Connection) -> rusqlite::Result<bool> {
    let tables = [
        "inbox",
        "done",
        "done_packs",
        "outbox",
        "dropped",
        "access",
        "cron_jobs",
        "chats",
        "resume",
        "deliveries",
    ];
    let mut is_empty = true;
    for table in tables {
        let has_rows: bool = db.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {table})"), [], |row| {
            row.get(0)
        })?;
        is_empty &= !has_rows;
    }
    Ok(is_empty)
}
