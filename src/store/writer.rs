//! The writer thread: takes what waits, commits it once, hands the completions back; upkeep when time allows.
//!
//! It owns the only writing connection. It never receipts what was not committed, and never drops an ending: what
//! must not be lost is kept and tried again when the disk fails.

use super::apply::{Ledger, complete};
use super::command::{Command, FailurePolicy};
use super::completion::{Batch, Commit, Completion, Failed};
use super::fault::{Fault, FaultKind, Health};
use super::journal::JournalSettings;
use super::queue::{Queue, Woken};
use super::retention::{Moment, Upkeep, give_back};
use crate::backoff::Backoff;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// First upkeep after opening, and the pause when there is nothing to do.
const UPKEEP_EVERY: Duration = Duration::from_secs(20);
/// The pause between two slices of upkeep.
const UPKEEP_PAUSE: Duration = Duration::from_millis(20);
/// The first delay between retries on a failing disk.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// The longest.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Commits that wait to be told; beyond it they are not measured.
const UNTOLD: usize = 256;

/// What the thread needs besides its database.
pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) batches: mpsc::Sender<Batch>,
    pub(super) health: watch::Sender<Health>,
    pub(super) settings: JournalSettings,
    pub(super) clock: Clock,
}

/// The caller's time, carried on between commands.
#[derive(Debug)]
pub(super) struct Clock {
    told_ms: i64,
    at: Instant,
}

impl Clock {
    pub(super) fn new(now_ms: i64) -> Self {
        Self {
            told_ms: now_ms,
            at: Instant::now(),
        }
    }

    fn now_ms(&self) -> i64 {
        self.told_ms
            .saturating_add(i64::try_from(self.at.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

/// The disk's state as the thread knows it.
enum Disk {
    Healthy,
    Failing {
        fault: Fault,
        retry_at: Instant,
        backoff: Backoff,
    },
}

struct Work<'a, 'c> {
    writer: Writer,
    ledger: &'a mut Ledger<'c>,
    disk: Disk,
    /// Commands that a failed commit must not lose, in order.
    kept: Vec<Command>,
    /// Commits that were not told yet.
    commits: Vec<Commit>,
    checkpoint: Checkpoint,
    upkeep: Upkeep,
    upkeep_at: Instant,
}

impl Writer {
    /// Runs until the queue is closed and worked off. Returns how many commands could not be held.
    pub(super) fn run(self, ledger: &mut Ledger<'_>) -> usize {
        let mut work = Work {
            writer: self,
            ledger,
            disk: Disk::Healthy,
            kept: Vec::new(),
            commits: Vec::new(),
            checkpoint: Checkpoint::default(),
            upkeep: Upkeep::default(),
            upkeep_at: Instant::now() + UPKEEP_EVERY,
        };
        loop {
            let mut taken = Vec::new();
            let until = match work.disk {
                Disk::Healthy => work.upkeep_at,
                Disk::Failing { retry_at, .. } => retry_at,
            };
            if work.writer.queue.take(&mut taken, until) == Woken::Closed {
                break;
            }
            work.step(taken);
        }
        if !work.kept.is_empty() {
            work.attempt(Vec::new());
        }
        checkpoint_fully(work.ledger.db);
        work.kept.len()
    }
}

impl Work<'_, '_> {
    fn step(&mut self, taken: Vec<Command>) {
        if let Some(now_ms) = taken.iter().rev().find_map(Command::now_ms) {
            self.writer.clock = Clock::new(now_ms);
        }
        match &self.disk {
            Disk::Failing { fault, retry_at, .. } if Instant::now() < *retry_at => {
                let fault = fault.clone();
                self.turn_away(taken, &fault);
            }
            Disk::Failing { .. } => self.attempt(taken),
            Disk::Healthy => {
                let idle = taken.is_empty();
                if !idle {
                    self.attempt(taken);
                }
                if Instant::now() >= self.upkeep_at {
                    self.tidy(idle);
                }
            }
        }
    }

    /// Commits what was kept and what was taken; on a sick disk with nothing at hand, a probe.
    fn attempt(&mut self, taken: Vec<Command>) {
        let mut commands = std::mem::take(&mut self.kept);
        commands.extend(taken);
        let bytes = commands.iter().map(Command::payload).sum();
        let mut completions = Vec::with_capacity(commands.len());
        let began = Instant::now();
        match self.commit(commands, &mut completions) {
            Ok(commands) => {
                if self.commits.len() < UNTOLD {
                    let took = began.elapsed();
                    self.commits.push(Commit { commands, took });
                }
                self.recovered();
                self.deliver(completions);
                self.checkpoint.after(self.ledger.db, commands, bytes);
            }
            Err((fault, commands)) => {
                self.deliver(completions);
                self.failed(&fault);
                self.turn_away(commands, &fault);
            }
        }
    }

    fn commit(
        &mut self,
        mut commands: Vec<Command>,
        completions: &mut Vec<Completion>,
    ) -> Result<usize, (Fault, Vec<Command>)> {
        let now_ms = self.writer.clock.now_ms();
        if commands.is_empty() {
            return self.ledger.probe().map(|()| 0).map_err(|fault| (fault, commands));
        }
        loop {
            match self.ledger.transact(&commands, now_ms) {
                Ok(outcomes) => {
                    let count = commands.len();
                    self.release(&commands);
                    completions.extend(
                        commands
                            .into_iter()
                            .zip(outcomes)
                            .filter_map(|(w, o)| complete(w, o)),
                    );
                    return Ok(count);
                }
                Err(broken) => match broken.at {
                    Some(at) if !broken.fault.is_of_the_disk() => {
                        let command = commands.remove(at);
                        self.release(std::slice::from_ref(&command));
                        completions.push(Completion::Failed(Failed {
                            subject: command.subject(),
                            fault: broken.fault,
                        }));
                    }
                    _ => return Err((broken.fault, commands)),
                },
            }
        }
    }

    /// Sorts commands that cannot be committed now: failed, answered, or kept.
    fn turn_away(&mut self, commands: Vec<Command>, fault: &Fault) {
        let mut completions = Vec::new();
        for command in commands {
            match command.failure_policy() {
                FailurePolicy::Retry => {
                    self.kept.push(command);
                    continue;
                }
                FailurePolicy::Read => completions.extend(self.ledger.read(&command)),
                FailurePolicy::Fail => {
                    completions.push(Completion::Failed(Failed {
                        subject: command.subject(),
                        fault: fault.clone(),
                    }));
                }
            }
            self.release(std::slice::from_ref(&command));
        }
        self.deliver(completions);
    }

    fn recovered(&mut self) {
        if matches!(self.disk, Disk::Failing { .. }) {
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
            checkpoint_now(self.ledger.db);
        }
        self.writer.health.send_replace(Health::Failing {
            reason: fault.to_string().into(),
        });
        self.disk = Disk::Failing {
            fault: fault.clone(),
            retry_at: Instant::now() + backoff.next_delay(),
            backoff,
        };
    }

    fn tidy(&mut self, idle: bool) {
        let now = Moment {
            now_ms: self.writer.clock.now_ms(),
            idle,
        };
        let (upkeep, settings) = (&mut self.upkeep, &self.writer.settings);
        let more = self
            .ledger
            .upkeep(|ledger| upkeep.slice(ledger, settings, now))
            .and_then(
                |more| Ok(more | give_back(self.ledger.db).map_err(|error| Fault::from_error(&error))?),
            );
        let pause = match more {
            Ok(true) => UPKEEP_PAUSE,
            Ok(false) if !idle => UPKEEP_EVERY,
            Ok(false) => {
                self.checkpoint.idle(self.ledger.db);
                // Only a hint: memory that cannot be given back now is given back later.
                let _ = self.ledger.db.release_memory();
                UPKEEP_EVERY
            }
            Err(fault) => {
                self.failed(&fault);
                UPKEEP_EVERY
            }
        };
        self.upkeep_at = Instant::now() + pause;
    }

    fn release(&self, commands: &[Command]) {
        let queue = &self.writer.queue;
        queue.release(
            commands
                .iter()
                .map(|command| queue.units_of(command) as usize)
                .sum(),
        );
    }

    fn deliver(&mut self, completions: Vec<Completion>) {
        if !completions.is_empty() {
            let commits = std::mem::take(&mut self.commits);
            // A reader that went away wants no completions; what was asked for is completions all the same.
            let _ = self.writer.batches.blocking_send(Batch { completions, commits });
        }
    }
}

/// Pages in the log (16 MiB) at which it is folded in.
const FOLD_AT: i64 = 4000;
/// Free bytes on the disk under which it is folded in at every look: a log that may grow would fill the disk
/// by itself, and a full disk has no room to fold it into.
const SCARCE: u64 = 64 << 20;
/// Bytes written, roughly, between two looks at the log.
const LOOK_EVERY: usize = 512 << 10;
/// What a command writes beside its payload, roughly.
const OVERHEAD: usize = 512;

/// How much was written since the log was looked at.
#[derive(Debug, Default)]
pub(super) struct Checkpoint {
    written: usize,
}

impl Checkpoint {
    /// Notes a committed batch and folds the log in when it is long.
    pub(super) fn after(&mut self, db: &Connection, commands: usize, bytes: usize) {
        self.written += commands * OVERHEAD + bytes + 4096;
        if self.written < LOOK_EVERY {
            return;
        }
        self.written = 0;
        let fold_at = if is_scarce(db) { 0 } else { FOLD_AT };
        if log(db, "NOOP").is_some_and(|log| log.pages - log.folded > fold_at) {
            log(db, "PASSIVE");
        }
    }

    /// Uses an idle moment, when anything was written since the last one.
    pub(super) fn idle(&mut self, db: &Connection) {
        if std::mem::take(&mut self.written) > 0 {
            log(db, "PASSIVE");
        }
    }
}

/// Folds everything in and empties the log, for a clean close.
pub(super) fn checkpoint_fully(db: &Connection) {
    log(db, "TRUNCATE");
}

/// Folds in what can be on a full disk, so that the log's own space is used again.
pub(super) fn checkpoint_now(db: &Connection) {
    log(db, "PASSIVE");
}

fn is_scarce(db: &Connection) -> bool {
    let disk = db.path().and_then(|path| rustix::fs::statvfs(path).ok());
    disk.is_some_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < SCARCE)
}

struct Log {
    pages: i64,
    folded: i64,
}

fn log(db: &Connection, mode: &str) -> Option<Log> {
    let result = db
        .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))
        .and_then(|mut checkpoint| {
            checkpoint.query_row([], |row| {
                Ok(Log {
                    pages: row.get(1)?,
                    folded: row.get(2)?,
                })
            })
        });
    result
        .inspect_err(|error| tracing::warn!(%error, mode, "journal checkpoint failed"))
        .ok()
}
