//! Forgetting: what is too old, too much or too many goes, oldest first, a bounded slice at a time.
//!
//! It never touches an unfinished message or an unsettled op. Space that is freed is used again; when a quarter
//! of the file is free, it is given back to the file system in slices (incremental vacuum).

use super::apply::{DAY_MS, Ledger};
use super::journal::JournalSettings;
use super::reads::indexed_upto;
use rusqlite::{Connection, OptionalExtension, Result, params};

/// Finished messages looked at per slice.
const DONE_SLICE: i64 = 2048;
/// Dedupe keys looked at per slice.
const KEY_SLICE: i64 = 4096;
/// Pages given back per slice.
const VACUUM_SLICE: i64 = 256;
/// Free pages that are not worth giving back.
const VACUUM_FLOOR: i64 = 1024;

/// The sweep through the dedupe index and how far it came.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    sweep: Option<Sweep>,
    swept_before: Option<i64>,
    hurried_days: i64,
}

/// When a slice is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Unix milliseconds.
    pub(super) now_ms: i64,
    /// Whether no command waits.
    pub(super) idle: bool,
}

#[derive(Debug)]
struct Sweep {
    after: Vec<u8>,
    before_day: i64,
}

impl Upkeep {
    /// One slice of work in a transaction; whether there is more to do soon. RecentKeys keys are only hurried into
    /// the index when nothing else wants the writer: many together share pages, few do not.
    pub(super) fn slice(
        &mut self,
        ledger: &mut Ledger<'_>,
        settings: &JournalSettings,
        now: Moment,
    ) -> Result<bool> {
        let Moment { now_ms, idle } = now;
        let mut more = idle && ledger.recent.idle_round();
        if more {
            ledger.move_keys(1024, now_ms)?;
        }
        let db = ledger.db;
        let pressed = used_bytes(db)? > settings.max_bytes;
        let removed = forget_finished(db, settings, now_ms, pressed)?;
        more |= removed > 0;
        if pressed && removed == 0 {
            self.hurried_days += i64::from(self.sweep.is_none());
        } else if !pressed {
            self.hurried_days = 0;
        }
        more |= self.sweep_keys(db, settings, now_ms)?;
        more |= forget_chats(db, settings)? > 0;
        Ok(more)
    }

    fn sweep_keys(&mut self, db: &Connection, settings: &JournalSettings, now_ms: i64) -> Result<bool> {
        let days = (i64::from(settings.dedupe_days) - self.hurried_days).max(1);
        let before_day = now_ms.div_euclid(DAY_MS) - days;
        if self.sweep.is_none() {
            let swept_before = match self.swept_before {
                Some(day) => day,
                None => *self.swept_before.insert(swept_before(db, before_day)?),
            };
            if before_day > swept_before {
                self.sweep = Some(Sweep {
                    after: Vec::new(),
                    before_day,
                });
            }
        }
        let Some(sweep) = &mut self.sweep else {
            return Ok(false);
        };
        let mut end =
            db.prepare_cached("SELECT key FROM dedupe WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2")?;
        let end: Option<Vec<u8>> = end
            .query_row(params![sweep.after, KEY_SLICE - 1], |row| row.get(0))
            .optional()?;
        db.prepare_cached("DELETE FROM dedupe WHERE key > ?1 AND (?2 IS NULL OR key <= ?2) AND day < ?3")?
            .execute(params![sweep.after, end, sweep.before_day])?;
        if let Some(key) = end {
            sweep.after = key;
        } else {
            note_swept(db, sweep.before_day)?;
            self.swept_before = Some(sweep.before_day);
            self.sweep = None;
        }
        Ok(self.sweep.is_some())
    }
}

/// The day before which the index was swept last. A journal that never was has nothing older than today's limit.
fn swept_before(db: &Connection, limit: i64) -> Result<i64> {
    let noted = db
        .prepare_cached("SELECT value FROM meta WHERE name = 'swept_before'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    if let Some(day) = noted {
        return Ok(day);
    }
    note_swept(db, limit)?;
    Ok(limit)
}

fn note_swept(db: &Connection, day: i64) -> Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('swept_before', ?1)")?
        .execute([day])?;
    Ok(())
}

/// Gives a slice of free pages back; whether there are more. Outside any transaction.
pub(super) fn give_back(db: &Connection) -> Result<bool> {
    let pages = pragma(db, "page_count")?;
    let free = pragma(db, "freelist_count")?;
    if free < VACUUM_FLOOR || free * 4 < pages {
        return Ok(false);
    }
    db.execute_batch(&format!("PRAGMA incremental_vacuum({VACUUM_SLICE})"))?;
    Ok(true)
}

/// The size of the pages in use.
pub(super) fn used_bytes(db: &Connection) -> Result<u64> {
    let used = (pragma(db, "page_count")? - pragma(db, "freelist_count")?) * pragma(db, "page_size")?;
    Ok(u64::try_from(used).unwrap_or(0))
}

fn pragma(db: &Connection, name: &str) -> Result<i64> {
    db.prepare_cached(&format!("PRAGMA {name}"))?
        .query_row([], |row| row.get(0))
}

/// The newest record stays whatever its age: the next number is read from it.
fn forget_finished(db: &Connection, settings: &JournalSettings, now_ms: i64, pressed: bool) -> Result<usize> {
    let older_than = if pressed {
        i64::MAX
    } else {
        now_ms.saturating_sub(i64::from(settings.keep_days) * DAY_MS)
    };
    let mut forget = db.prepare_cached(
        "DELETE FROM done WHERE seq IN (SELECT seq FROM done ORDER BY seq LIMIT ?1)
         AND ended_at < ?2 AND seq <= ?3 AND seq < (SELECT max(seq) FROM done)",
    )?;
    forget.execute(params![DONE_SLICE, older_than, indexed_upto(db)?])
}

fn forget_chats(db: &Connection, settings: &JournalSettings) -> Result<usize> {
    let count: i64 = db
        .prepare_cached("SELECT count(*) FROM chats")?
        .query_row([], |row| row.get(0))?;
    let over = (count - i64::from(settings.chat_memory)).min(DONE_SLICE);
    if over <= 0 {
        return Ok(0);
    }
    db.prepare_cached(
        "DELETE FROM chats WHERE (platform, chat_id) IN
         (SELECT platform, chat_id FROM chats ORDER BY last_used LIMIT ?1)",
    )?
    .execute([over])
}

/// The quarantine's size, kept beside it so that its bounds cost nothing to check.
#[derive(Debug)]
pub(super) struct Quarantine {
    held: Held,
    committed: Held,
    max: Held,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    rows: i64,
    bytes: i64,
}

impl Quarantine {
    pub(super) fn measure(db: &Connection, settings: &JournalSettings) -> Result<Self> {
        let held = db.query_row(
            "SELECT count(*), ifnull(sum(length(line)), 0) FROM quarantine",
            [],
            |row| {
                Ok(Held {
                    rows: row.get(0)?,
                    bytes: row.get(1)?,
                })
            },
        )?;
        let max = Held {
            rows: i64::from(settings.quarantine_rows).max(1),
            bytes: i64::try_from(settings.quarantine_bytes)
                .unwrap_or(i64::MAX)
                .max(1),
        };
        Ok(Self {
            held,
            committed: held,
            max,
        })
    }

    /// Puts a line on the quarantine, cut to the bound, and takes the oldest off while there is too much.
    pub(super) fn put(
        &mut self,
        db: &Connection,
        reason: &str,
        buffer_id: Option<&str>,
        line: &[u8],
        now_ms: i64,
    ) -> Result<()> {
        let line = &line[..line
            .len()
            .min(usize::try_from(self.max.bytes).unwrap_or(usize::MAX))];
        db.prepare_cached("INSERT INTO quarantine (reason, buffer_id, line, at) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![reason, buffer_id, line, now_ms])?;
        self.held.rows += 1;
        self.held.bytes += i64::try_from(line.len()).unwrap_or(i64::MAX);
        while self.held.rows > self.max.rows || self.held.bytes > self.max.bytes {
            let mut drop_oldest = db.prepare_cached(
                "DELETE FROM quarantine WHERE seq = (SELECT min(seq) FROM quarantine) RETURNING length(line)",
            )?;
            let Some(bytes) = drop_oldest.query_row([], |row| row.get::<_, i64>(0)).optional()? else {
                break;
            };
            self.held.rows -= 1;
            self.held.bytes -= bytes;
        }
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        self.committed = self.held;
    }

    pub(super) fn rolled_back(&mut self) {
        self.held = self.committed;
    }
}
