//! The handle to the journal, its settings, and how it is opened and closed.
//!
//! Its thread ends when the journal is closed or the last handle is dropped. Submitting never blocks a thread.

use super::apply::JournalDb;
use super::command::Command;
use super::completion::Batch;
use super::fault::{Health, OpenError};
use super::lock::StateLock;
use super::pace::WriterPace;
#[cfg(feature = "internals")]
use super::pace::steps::{self, JournalSteps};
use super::queue::{Queue, QueueRefusal};
use super::reads::{self, Recovered};
use super::replication::{self, CommitStream};
use super::schema;
use super::writer::{JournalWriter, WriterClock};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
#[cfg(feature = "internals")]
use std::time::Instant;
use tokio::sync::{mpsc, watch};

/// A handle to the open journal. Clones share it.
#[derive(Clone, Debug)]
pub struct Journal {
    inner: Arc<JournalInner>,
}

#[derive(Debug)]
struct JournalInner {
    queue: Arc<Queue>,
    ended: watch::Receiver<Option<usize>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An open journal and its outputs.
#[derive(Debug)]
pub struct Opened {
    /// The handle.
    pub journal: Journal,
    /// Completions, one batch per commit. Its reader must not wait in [`Journal::submit`]: when this is full, the writer
    /// waits for the reader. Ends when the journal is closed.
    pub batches: mpsc::Receiver<Batch>,
    /// Whether commits succeed.
    pub health: watch::Receiver<Health>,
    /// Unfinished work of earlier runs.
    pub recovered: Recovered,
}

/// Why commands were not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The queue is full.
    #[error("the journal's queue is full")]
    Full,
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

/// Why a close was not clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseError {
    /// The last commands could not be written.
    #[error(
        "{0} journal records could not be written before closing; free some space on the state directory's disk"
    )]
    Lost(usize),
    /// The writer thread died.
    #[error("the journal's writer ended unexpectedly")]
    Died,
}

impl Journal {
    /// Locks the state directory, opens or creates its journal, and starts the writer. Blocking.
    pub fn open(dir: &Path, settings: JournalSettings, now_ms: i64) -> Result<Opened, OpenError> {
        Self::open_with(dir, settings, now_ms, None, |_, _| WriterPace::Clock)
    }

    /// The same for the active member of a cluster: a commit counts when its stream has it and when it is on this disk.
    pub fn open_replicated(
        dir: &Path,
        settings: JournalSettings,
        now_ms: i64,
        stream: Box<dyn CommitStream>,
    ) -> Result<Opened, OpenError> {
        Self::open_with(dir, settings, now_ms, Some(stream), |_, _| WriterPace::Clock)
    }

    /// The same for a simulation: the writer works only when it is asked to, at the time that it is told.
    #[cfg(feature = "internals")]
    pub fn open_stepped(
        dir: &Path,
        settings: JournalSettings,
        now_ms: i64,
        now: Instant,
    ) -> Result<(Opened, JournalSteps), OpenError> {
        let mut stepped = None;
        let opened = Self::open_with(dir, settings, now_ms, None, |queue, ended| {
            let (steps, receiver) = steps::channel(queue, ended, now);
            stepped = Some(steps);
            WriterPace::Steps(receiver)
        })?;
        let steps = stepped.ok_or_else(|| OpenError::Thread(std::io::Error::other("it has no steps")))?;
        Ok((opened, steps))
    }

    fn open_with(
        dir: &Path,
        settings: JournalSettings,
        now_ms: i64,
        stream: Option<Box<dyn CommitStream>>,
        pace: impl FnOnce(Arc<Queue>, watch::Receiver<Option<usize>>) -> WriterPace,
    ) -> Result<Opened, OpenError> {
        let lock = StateLock::take_within(dir, settings.assigned_dir, settings.lock_wait, now_ms)?;
        let queue = Arc::new(Queue::new(settings.queue));
        let (batch_sender, batches) = mpsc::channel(settings.batches.max(1) as usize);
        let (health_sender, health) = watch::channel(Health::Ok);
        let (ended_sender, ended) = watch::channel(None);
        let (ready_sender, ready) = std::sync::mpsc::sync_channel(1);
        let path = schema::path_in(dir);
        let pace = pace(Arc::clone(&queue), ended.clone());
        let writer = JournalWriter {
            queue: Arc::clone(&queue),
            batches: batch_sender,
            health: health_sender,
            settings,
            clock: WriterClock::new(now_ms, pace.now()),
            pace,
        };
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                let lost = live(&path, &lock, writer, (now_ms, stream), &ready_sender);
                drop(lock);
                ended_sender.send_replace(Some(lost));
            })
            .map_err(OpenError::Thread)?;
        let died = || OpenError::Thread(std::io::Error::other("it ended unexpectedly"));
        let recovered = match ready.recv().unwrap_or_else(|_| Err(died())) {
            Ok(recovered) => recovered,
            Err(error) => {
                // The thread holds the lock until it ends.
                let _ = thread.join();
                return Err(error);
            }
        };
        let inner = JournalInner {
            queue,
            ended,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Opened {
            journal: Self {
                inner: Arc::new(inner),
            },
            batches,
            health,
            recovered,
        })
    }

    /// Queues the commands in order, waiting for room. If dropped while waiting, the rest is not queued.
    pub async fn submit(&self, commands: Vec<Command>) -> Result<(), QueueError> {
        self.inner.queue.push(commands).await.map_err(QueueError::from)
    }

    /// Takes all commands out of the list, or none if there is no room. More than the queue's capacity never fits: split
    /// them.
    pub fn try_submit(&self, commands: &mut Vec<Command>) -> Result<(), QueueError> {
        self.inner.queue.try_push(commands).map_err(QueueError::from)
    }

    /// Accepts no more commands, drains the queue, checkpoints and ends the thread. The batches must still be read, or their
    /// receiver dropped.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.inner.queue.close();
        let mut ended = self.inner.ended.clone();
        let lost = ended.wait_for(Option::is_some).await.map(|lost| *lost);
        let thread = self
            .inner
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            thread.join().map_err(|_| CloseError::Died)?;
        }
        match lost {
            Ok(Some(0)) => Ok(()),
            Ok(Some(lost)) => Err(CloseError::Lost(lost)),
            Ok(None) | Err(_) => Err(CloseError::Died),
        }
    }
}

impl Drop for JournalInner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl From<QueueRefusal> for QueueError {
    fn from(refused: QueueRefusal) -> Self {
        match refused {
            QueueRefusal::Full => Self::Full,
            QueueRefusal::Closed => Self::Closed,
        }
    }
}

type Ready = std::sync::mpsc::SyncSender<Result<Recovered, OpenError>>;

/// Runs the thread. Returns how many commands could not be written.
fn live(
    path: &Path,
    held: &StateLock,
    writer: JournalWriter,
    (now_ms, stream): (i64, Option<Box<dyn CommitStream>>),
    ready: &Ready,
) -> usize {
    let answer = |result| {
        // `open` waits for this.
        let _ = ready.send(result);
    };
    let opened = match open_database(path, &writer.settings, held) {
        Err(OpenError::Corrupt { detail, .. }) if writer.settings.fresh_on_corruption => {
            tracing::error!(
                detail,
                "the journal is damaged: it was moved aside and a fresh one begun"
            );
            schema::move_aside(path, now_ms).and_then(|()| open_database(path, &writer.settings, held))
        }
        opened => opened,
    };
    let (db, recovered, writer_state) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            answer(Err(error));
            return 0;
        }
    };
    let mut journal_db = match JournalDb::new(&db, writer_state) {
        Ok(journal_db) => journal_db,
        Err(error) => {
            answer(Err(schema::to_open_error(path, &error)));
            return 0;
        }
    };
    let prepared = match stream {
        Some(stream) => journal_db.replicate_to(stream),
        None => replication::leave(&db),
    };
    if let Err(error) = prepared {
        answer(Err(schema::to_open_error(path, &error)));
        return 0;
    }
    answer(Ok(recovered));
    writer.run(&mut journal_db)
}

pub(super) type Database = (rusqlite::Connection, Recovered, reads::WriterState);

pub(super) fn open_database(
    path: &Path,
    settings: &JournalSettings,
    held: &StateLock,
) -> Result<Database, OpenError> {
    let db = schema::open_held(path, settings, held)?;
    let (recovered, writer_state) =
        reads::recover(&db, settings).map_err(|error| schema::to_open_error(path, &error))?;
    Ok((db, recovered, writer_state))
}

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power failure: every commit waits for the disk.
    #[default]
    Full,
    /// A crash of the process. A power failure may lose the last commits; the file stays consistent.
    Process,
}

/// Settings and bounds of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// What a commit survives.
    pub durability: Durability,
    /// Days for which duplicates are recognised. At least 1.
    pub dedupe_days: u32,
    /// Days for which finished messages stay listed (without their text).
    pub keep_days: u32,
    /// Size of the used database at which the oldest finished records are deleted early. Unfinished ones never are.
    pub max_bytes: u64,
    /// Days for which an unused conversation can be resumed. 0 for no limit.
    pub resume_days: u32,
    /// Maximum bytes of what conversations are resumed with; those unused for longest are deleted first. At most half of
    /// `max_bytes` counts.
    pub resume_bytes: u64,
    /// Maximum chats; the least recently used are deleted first.
    pub chat_memory: u32,
    /// Maximum quarantined lines; the oldest are deleted first.
    pub quarantine_rows: u32,
    /// Maximum bytes of quarantined lines; a longer line is truncated.
    pub quarantine_bytes: u64,
    /// Capacity of the queue: commands waiting or being retried, plus one per KiB of payload. Submitters wait when it is full.
    pub queue: u32,
    /// Maximum batches waiting for their reader; the writer waits when it is reached.
    pub batches: u32,
    /// How long opening waits for another process that holds the state directory.
    pub lock_wait: Duration,
    /// Milliseconds that a commit waits for another program's lock on the database.
    pub lock_wait_ms: u32,
    /// Page cache of the database in KiB.
    pub cache_kib: u32,
    /// Maximum rows of each kind read at opening; the rest is read with commands.
    pub recover_rows: u32,
    /// Move a corrupt database aside and start a new one, instead of failing.
    pub fresh_on_corruption: bool,
    /// The service manager made the state directory for this relay: it may hold anything.
    pub assigned_dir: bool,
    /// The number of the Telegram bot that the relay is; 0 if it is none.
    pub telegram_bot: i64,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            dedupe_days: 7,
            keep_days: 7,
            max_bytes: 1 << 30,
            resume_days: 90,
            resume_bytes: 256 << 20,
            chat_memory: 10_000,
            quarantine_rows: 100,
            quarantine_bytes: 4 << 20,
            queue: 16 << 10,
            batches: 64,
            lock_wait: Duration::ZERO,
            lock_wait_ms: 5000,
            cache_kib: 2 << 10,
            recover_rows: 4096,
            fresh_on_corruption: false,
            assigned_dir: false,
            telegram_bot: 0,
        }
    }
}
