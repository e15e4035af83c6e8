//! The writer thread: group commits, completions, checkpoints and upkeep.
//!
//! It owns the only writing connection. It never reports an uncommitted command as done, and never drops one that must
//! not be lost: those are kept and retried when the disk fails. Checkpoints run between commits and never fail a command.

use super::apply::{JournalDb, complete};
use super::command::{Command, FailurePolicy};
use super::completion::{Batch, Commit, Completion, Failed};
use super::fault::{Fault, FaultKind, Health};
use super::journal::{Durability, JournalSettings};
use super::log::FreedPages;
use super::pace::WriterPace;
use super::queue::{Queue, Woken};
use super::retention::{SliceContext, Upkeep, vacuum_slice};
use super::wal_space::WalSpace;
use crate::backoff::Backoff;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Delay of the first upkeep, and interval when there is nothing to do.
const UPKEEP_EVERY: Duration = Duration::from_secs(20);
/// Delay between slices of upkeep.
const UPKEEP_PAUSE: Duration = Duration::from_millis(20);
/// How long the log may be ahead of the tables when nothing else moves it; twice as long with what is not finished.
const MATERIALISE_AFTER: Duration = Duration::from_secs(1);
/// Slices of free pages that are given back at the end; the rest is left to the next start.
const MAX_LAST_SLICES: usize = 64;
/// First delay between retries on a failing disk.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Maximum delay between retries.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Maximum commits waiting to be reported; more are not measured.
const MAX_UNREPORTED: usize = 256;

/// Maximum commands whose room is kept for the next commit.
const MAX_ROOM: usize = 256;

/// What the thread needs besides its database.
pub(super) struct JournalWriter {
    pub(super) queue: Arc<Queue>,
    pub(super) batches: mpsc::Sender<Batch>,
    pub(super) health: watch::Sender<Health>,
    pub(super) settings: JournalSettings,
    pub(super) clock: WriterClock,
    pub(super) pace: WriterPace,
}

/// The caller's wall clock, continued between commands.
#[derive(Debug)]
pub(super) struct WriterClock {
    caller_ms: i64,
    at: Instant,
}

impl WriterClock {
    pub(super) fn new(now_ms: i64, at: Instant) -> Self {
        Self {
            caller_ms: now_ms,
            at,
        }
    }

    fn now_ms(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.at);
        self.caller_ms
            .saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The state of the disk.
enum Disk {
    Healthy,
    Failing {
        fault: Fault,
        retry_at: Instant,
        backoff: Backoff,
    },
}

struct WriterTask<'a, 'c> {
    writer: JournalWriter,
    journal_db: &'a mut JournalDb<'c>,
    disk: Disk,
    /// Commands to retry, in order.
    kept: Vec<Command>,
    /// Room for the commands of the next commit.
    room: Vec<Command>,
    /// Commits not reported yet.
    commits: Vec<Commit>,
    checkpoint: Checkpoint,
    wal_space: WalSpace,
    upkeep: Upkeep,
    upkeep_at: Instant,
    /// When the log is moved into the tables; none while it is empty.
    materialise_at: Option<Instant>,
    began: Instant,
}

impl JournalWriter {
    /// Runs until the queue is closed and empty. Returns how many commands could not be written.
    pub(super) fn run(self, journal_db: &mut JournalDb<'_>) -> usize {
        let now = self.pace.now();
        let mut work = WriterTask {
            writer: self,
            journal_db,
            disk: Disk::Healthy,
            kept: Vec::new(),
            room: Vec::new(),
            commits: Vec::new(),
            checkpoint: Checkpoint::default(),
            wal_space: WalSpace::default(),
            upkeep: Upkeep::default(),
            upkeep_at: now + UPKEEP_EVERY,
            materialise_at: None,
            began: now,
        };
        loop {
            let mut taken = std::mem::take(&mut work.room);
            let until = match work.disk {
                Disk::Healthy => work
                    .materialise_at
                    .map_or(work.upkeep_at, |at| at.min(work.upkeep_at)),
                Disk::Failing { retry_at, .. } => retry_at,
            };
            let JournalWriter { pace, queue, .. } = &mut work.writer;
            match pace.wait(queue, &mut taken, until) {
                // Nothing more is written.
                None => return work.kept.len(),
                Some(Woken::Closed) => break,
                Some(Woken::Taken | Woken::Time) => work.step(taken),
            }
        }
        if !work.kept.is_empty() {
            work.attempt(Vec::new());
        }
        // What cannot be moved now stays in the log, and is moved at the next opening.
        if let Err(fault) = work.journal_db.materialise() {
            tracing::warn!(%fault, "cannot bring the journal's tables up to date; the next start does");
        }
        for _ in 0..MAX_LAST_SLICES {
            match work.journal_db.vacuum_free_pages() {
                Ok(true) => work.checkpoint.after(work.journal_db.db, 0, SLICE_BYTES),
                Ok(false) => break,
                Err(fault) => {
                    tracing::warn!(%fault, "cannot vacuum the journal's free pages, which may have text of messages; the next start tries again");
                    break;
                }
            }
        }
        checkpoint_fully(work.journal_db.db);
        work.kept.len()
    }
}

impl WriterTask<'_, '_> {
    fn now(&self) -> Instant {
        self.writer.pace.now()
    }

    fn step(&mut self, taken: Vec<Command>) {
        if let Some(now_ms) = taken.iter().rev().find_map(Command::now_ms) {
            self.writer.clock = WriterClock::new(now_ms, self.now());
        }
        match &self.disk {
            Disk::Failing { fault, retry_at, .. } if self.now() < *retry_at => {
                let fault = fault.clone();
                self.defer(taken, &fault);
            }
            Disk::Failing { .. } => self.attempt(taken),
            Disk::Healthy => {
                let idle = taken.is_empty();
                if !idle {
                    self.attempt(taken);
                }
                if self.materialise_at.is_some_and(|at| self.now() >= at) {
                    // A busy journal needs the pages again.
                    self.shorten_log(if idle {
                        FreedPages::Overwritten
                    } else {
                        FreedPages::NotOverwritten
                    });
                }
                if self.now() >= self.upkeep_at {
                    self.tidy(idle);
                }
            }
        }
    }

    /// Commits kept and new commands; without any, probes the failing disk.
    fn attempt(&mut self, taken: Vec<Command>) {
        let mut commands = taken;
        if !self.kept.is_empty() {
            commands.splice(0..0, self.kept.drain(..));
        }
        let bytes = commands.iter().map(Command::payload).sum();
        let mut completions = Vec::with_capacity(commands.len());
        let began = self.now();
        let shortens_log = self.journal_db.is_log_full();
        match self.commit(commands, &mut completions) {
            Ok(commands) => {
                if shortens_log {
                    self.materialise_at = None;
                }
                if self.commits.len() < MAX_UNREPORTED {
                    let took = self.now().saturating_duration_since(began);
                    self.commits.push(Commit { commands, took });
                }
                self.recovered();
                self.deliver(completions);
                if self.journal_db.must_move_log() {
                    self.shorten_log(FreedPages::NotOverwritten);
                }
                self.materialise_at = if self.journal_db.has_overlay() {
                    self.materialise_at
                        .or_else(|| Some(self.now() + MATERIALISE_AFTER))
                } else {
                    None
                };
                self.checkpoint.after(self.journal_db.db, commands, bytes);
                if self.writer.settings.durability == Durability::Full {
                    self.wal_space.after_commit(self.journal_db.db);
                }
            }
            Err((fault, commands)) => {
                self.deliver(completions);
                self.failed(&fault);
                self.defer(commands, &fault);
            }
        }
    }

    fn commit(
        &mut self,
        mut commands: Vec<Command>,
        completions: &mut Vec<Completion>,
    ) -> Result<usize, (Fault, Vec<Command>)> {
        let now_ms = self.writer.clock.now_ms(self.now());
        if commands.is_empty() {
            return self
                .journal_db
                .probe()
                .map(|()| 0)
                .map_err(|fault| (fault, commands));
        }
        loop {
            let units = self.units(&commands);
            match self.journal_db.commit_commands(&mut commands, now_ms) {
                Ok(outcomes) => {
                    let count = commands.len();
                    self.writer.queue.release(units);
                    let committed = commands.iter_mut().zip(outcomes);
                    completions.extend(committed.filter_map(|(command, outcome)| complete(command, outcome)));
                    commands.clear();
                    if commands.capacity() <= MAX_ROOM {
                        self.room = commands;
                    }
                    return Ok(count);
                }
                Err(error) => match error.at {
                    Some(at) if !error.fault.fails_commit() => {
                        let command = commands.remove(at);
                        self.release(&command);
                        completions.push(Completion::Failed(Failed {
                            subject: command.subject(),
                            fault: error.fault,
                        }));
                    }
                    _ => return Err((error.fault, commands)),
                },
            }
        }
    }

    /// Handles commands that cannot be committed now by their failure policy.
    fn defer(&mut self, commands: Vec<Command>, fault: &Fault) {
        let mut completions = Vec::new();
        for command in commands {
            match command.failure_policy() {
                FailurePolicy::Retry => {
                    self.kept.push(command);
                    continue;
                }
                FailurePolicy::Read => completions.extend(self.journal_db.read(&command)),
                FailurePolicy::Fail => {
                    completions.push(Completion::Failed(Failed {
                        subject: command.subject(),
                        fault: fault.clone(),
                    }));
                }
            }
            self.release(&command);
        }
        self.deliver(completions);
    }

    fn recovered(&mut self) {
        if let Disk::Failing { fault, .. } = &self.disk {
            if fault.kind == FaultKind::Full {
                // Somebody made room, which the log must not take for itself.
                checkpoint_now(self.journal_db.db);
            }
            self.disk = Disk::Healthy;
            self.writer.health.send_replace(Health::Ok);
            tracing::info!("journal writes succeed again");
        }
    }

    fn failed(&mut self, fault: &Fault) {
        let mut backoff = match self.disk {
            Disk::Healthy => {
                tracing::error!(%fault, "journal cannot be written, retrying");
                Backoff::new(RETRY_FIRST, RETRY_MAX)
            }
            Disk::Failing { backoff, .. } => backoff,
        };
        if fault.kind == FaultKind::Full {
            checkpoint_now(self.journal_db.db);
        }
        self.writer.health.send_replace(Health::Failing {
            reason: fault.to_string().into(),
        });
        self.disk = Disk::Failing {
            fault: fault.clone(),
            retry_at: self.now() + backoff.next_delay(),
            backoff,
        };
    }

    /// Moves what is finished out of the log, and the rest unless it can stay until the next time.
    fn shorten_log(&mut self, freed: FreedPages) {
        if let Err(fault) = self.journal_db.shorten_log(freed) {
            self.failed(&fault);
        }
        self.materialise_at = (self.journal_db.has_overlay()).then(|| self.now() + MATERIALISE_AFTER);
    }

    fn tidy(&mut self, idle: bool) {
        let now = SliceContext {
            now_ms: self.writer.clock.now_ms(self.now()),
            mono: self.now().saturating_duration_since(self.began),
            idle,
        };
        let (upkeep, settings) = (&mut self.upkeep, &self.writer.settings);
        let more = self
            .journal_db
            .upkeep(|journal_db| upkeep.slice(journal_db, settings, now))
            .and_then(|more| {
                Ok(more | vacuum_slice(self.journal_db.db).map_err(|error| Fault::from_error(&error))?)
            })
            .and_then(|more| Ok(more | (idle && self.journal_db.vacuum_free_pages()?)));
        let pause = match more {
            Ok(true) => {
                self.checkpoint.after(self.journal_db.db, 0, SLICE_BYTES);
                UPKEEP_PAUSE
            }
            Ok(false) if !idle => UPKEEP_EVERY,
            Ok(false) => {
                self.checkpoint.idle(self.journal_db.db);
                // Only a hint.
                let _ = self.journal_db.db.release_memory();
                UPKEEP_EVERY
            }
            Err(fault) => {
                self.failed(&fault);
                UPKEEP_EVERY
            }
        };
        self.upkeep_at = self.now() + pause;
    }

    fn release(&self, command: &Command) {
        let queue = &self.writer.queue;
        queue.release(queue.units_of(command) as usize);
    }

    /// The units of all commands, which are known only while they have the bytes of their ops.
    fn units(&self, commands: &[Command]) -> usize {
        let queue = &self.writer.queue;
        let units = commands.iter().map(|command| queue.units_of(command) as usize);
        units.sum()
    }

    fn deliver(&mut self, completions: Vec<Completion>) {
        if !completions.is_empty() {
            let commits = std::mem::take(&mut self.commits);
            // Without a reader the commands are done all the same.
            let _ = self.writer.batches.blocking_send(Batch { completions, commits });
        }
    }
}

/// Pages of the write-ahead log (16 MiB) at which it is checkpointed.
const CHECKPOINT_PAGES: i64 = 4000;
/// Free bytes on the disk below which it is checkpointed at every check, before the log itself fills the disk.
const LOW_DISK_BYTES: u64 = 64 << 20;
/// Approximate bytes written between checks of the log.
const CHECK_EVERY_BYTES: usize = 512 << 10;
/// Approximate bytes that a slice of upkeep writes.
const SLICE_BYTES: usize = 512 << 10;
/// Approximate bytes that a command writes besides its payload.
const COMMAND_OVERHEAD_BYTES: usize = 512;

/// What was written to the log.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    /// Bytes since it was checked.
    written: usize,
    /// Whether there is anything since it was checkpointed.
    is_due: bool,
}

impl Checkpoint {
    /// Notes a committed batch or a slice of upkeep, and checkpoints a long log.
    pub(super) fn after(&mut self, db: &Connection, commands: usize, bytes: usize) {
        self.written += commands * COMMAND_OVERHEAD_BYTES + bytes + 4096;
        self.is_due = true;
        if self.written < CHECK_EVERY_BYTES {
            return;
        }
        self.written = 0;
        let max_pages = max_pages(free_bytes(db));
        if log(db, "NOOP").is_some_and(|log| log.pages - log.checkpointed > max_pages) {
            log(db, "PASSIVE");
            self.is_due = false;
        }
    }

    /// Checkpoints while idle, if anything was written since.
    pub(super) fn idle(&mut self, db: &Connection) {
        self.written = 0;
        if std::mem::take(&mut self.is_due) {
            log(db, "PASSIVE");
        }
    }
}

/// Checkpoints everything and empties the log, for a clean close.
pub(super) fn checkpoint_fully(db: &Connection) {
    log(db, "TRUNCATE");
}

/// Checkpoints what is possible, so that the log's space is reused.
pub(super) fn checkpoint_now(db: &Connection) {
    log(db, "PASSIVE");
}

/// Pages that the log may have on a disk with this much space, as far as that is known.
fn max_pages(free_bytes: Option<u64>) -> i64 {
    if is_low(free_bytes) { 0 } else { CHECKPOINT_PAGES }
}

/// Whether a disk with this much space, as far as that is known, is nearly full.
pub(super) fn is_low(free_bytes: Option<u64>) -> bool {
    free_bytes.is_some_and(|free| free < LOW_DISK_BYTES)
}

/// Pages of the log.
pub(super) fn wal_pages(db: &Connection) -> Option<u64> {
    u64::try_from(log(db, "NOOP")?.pages).ok()
}

pub(super) fn free_bytes(db: &Connection) -> Option<u64> {
    let disk = rustix::fs::statvfs(db.path()?).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

struct WalSize {
    pages: i64,
    checkpointed: i64,
}

fn log(db: &Connection, mode: &str) -> Option<WalSize> {
    let result = db
        .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))
        .and_then(|mut checkpoint| {
            checkpoint.query_row([], |row| {
                Ok(WalSize {
                    pages: row.get(1)?,
                    checkpointed: row.get(2)?,
                })
            })
        });
    result
        .inspect_err(|error| tracing::warn!(%error, mode, "journal checkpoint failed"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database whose log nobody else checkpoints, and its directory.
    fn open() -> (Connection, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let db = Connection::open(dir.path().join("test.db")).unwrap();
        let setup = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF;
                     CREATE TABLE counts (count INTEGER); INSERT INTO counts VALUES (0);
                     CREATE TABLE blobs (blob BLOB);";
        db.execute_batch(setup).unwrap();
        (db, dir)
    }

    /// Adds a page to the log.
    fn write_page(db: &Connection) {
        db.execute("UPDATE counts SET count = count + 1", []).unwrap();
    }

    fn checkpointed(db: &Connection) -> i64 {
        log(db, "NOOP").unwrap().checkpointed
    }

    #[test]
    fn a_log_is_checked_after_enough_bytes_and_checkpointed_when_it_is_long() {
        let (db, dir) = open();
        let blob = (CHECKPOINT_PAGES - 100) * 4096;
        db.execute("INSERT INTO blobs VALUES (zeroblob(?1))", [blob])
            .unwrap();
        while log(&db, "NOOP").unwrap().pages < CHECKPOINT_PAGES {
            write_page(&db);
        }
        let mut checkpoint = Checkpoint::default();
        checkpoint.after(&db, 1, CHECK_EVERY_BYTES);
        assert_eq!(
            (checkpointed(&db), checkpoint.written),
            (0, 0),
            "it is not too long yet"
        );

        write_page(&db);
        // Two commits, each with a page besides its commands and its bytes.
        let written = |last_bytes| {
            let mut checkpoint = Checkpoint::default();
            checkpoint.after(&db, 10, 200 << 10);
            checkpoint.after(&db, 0, last_bytes);
            checkpoint.written
        };
        let enough = CHECK_EVERY_BYTES - (200 << 10) - 10 * COMMAND_OVERHEAD_BYTES - 2 * 4096;
        assert_eq!(
            (written(enough - 1), checkpointed(&db)),
            (CHECK_EVERY_BYTES - 1, 0)
        );
        // While it reads, the log is not begun anew.
        let reader = Connection::open(dir.path().join("test.db")).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        let count = reader.query_row("SELECT count FROM counts", [], |row| row.get::<_, i64>(0));
        assert!(count.is_ok_and(|count| count > 0));
        assert_eq!((written(enough), checkpointed(&db)), (0, CHECKPOINT_PAGES + 1));

        write_page(&db);
        reader.execute_batch("COMMIT").unwrap();
        checkpoint.after(&db, 0, CHECK_EVERY_BYTES);
        let size = log(&db, "NOOP").unwrap();
        assert_eq!(
            (size.pages, size.checkpointed),
            (CHECKPOINT_PAGES + 2, CHECKPOINT_PAGES + 1),
            "what is checkpointed does not count"
        );
    }

    #[test]
    fn an_idle_journal_is_checkpointed_if_anything_was_written() {
        let (db, _dir) = open();
        let mut checkpoint = Checkpoint::default();
        checkpoint.idle(&db);
        assert_eq!(checkpointed(&db), 0);
        checkpoint.after(&db, 1, 0);
        assert_eq!(checkpointed(&db), 0);
        checkpoint.idle(&db);
        assert!(checkpointed(&db) > 0);
        write_page(&db);
        checkpoint.idle(&db);
        assert_eq!(checkpointed(&db), 0, "nothing was noted");
        checkpoint.after(&db, 0, CHECK_EVERY_BYTES);
        assert_eq!(checkpointed(&db), 0, "it was checked, and is not long");
        checkpoint.idle(&db);
        assert!(checkpointed(&db) > 0);
    }

    #[test]
    fn on_a_low_disk_any_log_is_too_long() {
        for (free, wanted) in [
            (Some(LOW_DISK_BYTES - 1), 0),
            (Some(LOW_DISK_BYTES), CHECKPOINT_PAGES),
            (None, CHECKPOINT_PAGES),
        ] {
            assert_eq!(max_pages(free), wanted, "{free:?}");
        }
        let (db, _dir) = open();
        assert!(free_bytes(&db).is_some());
        assert_eq!(free_bytes(&Connection::open_in_memory().unwrap()), None);
    }
}
