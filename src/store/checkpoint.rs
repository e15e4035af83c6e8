//! When the write-ahead log is folded into the database: between commits, never inside one.
//!
//! It never fails a command: a checkpoint that cannot run is tried again later.

use rusqlite::Connection;

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
pub(super) fn finish(db: &Connection) {
    log(db, "TRUNCATE");
}

/// Folds in what can be on a full disk, so that the log's own space is used again.
pub(super) fn relieve(db: &Connection) {
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
