//! The handle to the journal, and how it is opened and closed.
//!
//! The thread it starts ends when the journal is closed or the last handle is dropped. It never blocks the
//! runtime: submitting waits for room without holding a thread.

use super::apply::Ledger;
use super::command::Command;
use super::completion::Batch;
use super::fault::{Health, OpenError};
use super::lock::StateLock;
use super::queue::{Queue, Refused};
use super::reads::{self, Recovered};
use super::schema;
use super::writer::{Clock, Writer};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, watch};

/// A handle to the open journal. Clones share it.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    queue: Arc<Queue>,
    ended: watch::Receiver<Option<usize>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// An open journal and its outputs.
#[derive(Debug)]
pub struct Opened {
    /// The handle.
    pub journal: Journal,
    /// Completions, one item per commit. Its reader must not wait in [`Journal::submit`]: the writer waits for the
    /// reader when this is full. Ends when the journal is closed.
    pub batches: mpsc::Receiver<Batch>,
    /// Whether commits succeed.
    pub health: watch::Receiver<Health>,
    /// What an earlier run left behind.
    pub recovered: Recovered,
}

/// Why commands were not queued. Nothing of them was done, unless [`Journal::submit`] says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
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
    /// The disk did not take the last commands.
    #[error(
        "{0} journal records could not be written before closing; free some space on the state directory's disk"
    )]
    Lost(usize),
    /// The writer thread died.
    #[error("the journal's writer ended unexpectedly")]
    Died,
}

impl Journal {
    /// Takes the state directory, opens or creates its journal, and starts the writer. Blocks for the duration.
    pub fn open(dir: &Path, settings: JournalSettings, now_ms: i64) -> Result<Opened, OpenError> {
        let lock = StateLock::take(dir, now_ms)?;
        let queue = Arc::new(Queue::new(settings.queue));
        let (batch_sender, batches) = mpsc::channel(settings.batches.max(1) as usize);
        let (health_sender, health) = watch::channel(Health::Ok);
        let (ended_sender, ended) = watch::channel(None);
        let (ready_sender, ready) = std::sync::mpsc::sync_channel(1);
        let path = schema::path_in(dir);
        let writer = Writer {
            queue: Arc::clone(&queue),
            batches: batch_sender,
            health: health_sender,
            settings,
            clock: Clock::new(now_ms),
        };
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || {
                let lost = live(&path, writer, now_ms, &ready_sender);
                drop(lock);
                ended_sender.send_replace(Some(lost));
            })
            .map_err(OpenError::Thread)?;
        let died = || OpenError::Thread(std::io::Error::other("it ended unexpectedly"));
        let recovered = match ready.recv().unwrap_or_else(|_| Err(died())) {
            Ok(recovered) => recovered,
            Err(error) => {
                // The thread holds the state directory until its end.
                let _ = thread.join();
                return Err(error);
            }
        };
        let shared = Shared {
            queue,
            ended,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Opened {
            journal: Self {
                shared: Arc::new(shared),
            },
            batches,
            health,
            recovered,
        })
    }

    /// Queues the commands in order, waiting for room. Dropped while it waits, a tail of them is not queued.
    pub async fn submit(&self, commands: Vec<Command>) -> Result<(), SubmitError> {
        self.shared.queue.push(commands).await.map_err(SubmitError::from)
    }

    /// Queues all commands, or gives all of them back when there is no room for them now. Commands that together
    /// exceed the queue's whole bound never fit: split them.
    pub fn try_submit(&self, commands: Vec<Command>) -> Result<(), (SubmitError, Vec<Command>)> {
        self.shared
            .queue
            .try_push(commands)
            .map_err(|(why, commands)| (why.into(), commands))
    }

    /// Takes no more commands, works off the queue, folds the log in and ends the thread. The batches must still
    /// be read, or their receiver dropped, for the writer to come to its end.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.shared.queue.close();
        let mut ended = self.shared.ended.clone();
        let lost = ended.wait_for(Option::is_some).await.map(|lost| *lost);
        let thread = self
            .shared
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

impl Drop for Shared {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl From<Refused> for SubmitError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::Closed => Self::Closed,
        }
    }
}

type Ready = std::sync::mpsc::SyncSender<Result<Recovered, OpenError>>;

/// The thread's whole life. Returns how many commands could not be held.
fn live(path: &Path, writer: Writer, now_ms: i64, ready: &Ready) -> usize {
    let answer = |result| {
        // The opener waits for exactly this.
        let _ = ready.send(result);
    };
    let opened = match open_database(path, &writer.settings) {
        Err(OpenError::Corrupt { detail, .. }) if writer.settings.fresh_on_corruption => {
            tracing::error!(
                detail,
                "the journal is damaged: it was moved aside and a fresh one begun"
            );
            schema::move_aside(path, now_ms).and_then(|()| open_database(path, &writer.settings))
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
    let mut ledger = match Ledger::new(&db, writer_state) {
        Ok(ledger) => ledger,
        Err(error) => {
            answer(Err(schema::refused(path, &error)));
            return 0;
        }
    };
    answer(Ok(recovered));
    writer.run(&mut ledger)
}

type Database = (rusqlite::Connection, Recovered, reads::WriterState);

fn open_database(path: &Path, settings: &JournalSettings) -> Result<Database, OpenError> {
    let db = schema::open(path, settings)?;
    let (recovered, writer_state) =
        reads::recover(&db, settings).map_err(|error| schema::refused(path, &error))?;
    Ok((db, recovered, writer_state))
}

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The machine losing power: every commit waits for the disk.
    #[default]
    Full,
    /// The process dying. The last commits may be lost with the machine; the file stays sound.
    Process,
}

/// How the journal is kept, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// What a commit survives.
    pub durability: Durability,
    /// Days for which a delivery is recognised as a duplicate. At least 1.
    pub dedupe_days: u32,
    /// Days for which finished messages stay listed (without their text).
    pub keep_days: u32,
    /// Size of the database in use at which the oldest finished records go early. Unfinished ones never do.
    pub max_bytes: u64,
    /// Chats remembered; the least recently used go first.
    pub chat_memory: u32,
    /// Quarantined lines kept; the oldest go first.
    pub quarantine_rows: u32,
    /// Bytes of quarantined lines kept; a longer line is cut.
    pub quarantine_bytes: u64,
    /// Commands waiting or being retried; each KiB of payload counts as one more. Submitters wait at it.
    pub queue: u32,
    /// Finished batches waiting for their reader; the writer waits at it.
    pub batches: u32,
    /// How long a commit waits for another program that locks the database, in milliseconds.
    pub lock_wait_ms: u32,
    /// Page cache of the database in KiB.
    pub cache_kib: u32,
    /// Rows of each kind read at opening; the rest is paged with commands.
    pub recover_rows: u32,
    /// A corrupt database is moved aside and a fresh one begun, instead of an error.
    pub fresh_on_corruption: bool,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            durability: Durability::Full,
            dedupe_days: 7,
            keep_days: 7,
            max_bytes: 1 << 30,
            chat_memory: 10_000,
            quarantine_rows: 100,
            quarantine_bytes: 4 << 20,
            queue: 16 << 10,
            batches: 64,
            lock_wait_ms: 5000,
            cache_kib: 4 << 10,
            recover_rows: 4096,
            fresh_on_corruption: false,
        }
    }
}
