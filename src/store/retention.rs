//! Retention: deletes what is too old or too much, oldest first, in bounded slices.
//!
//! It never touches an unfinished message or an unsettled op. Free space is reused; when a quarter of the file is free, it
//! is returned to the file system in slices (incremental vacuum).

use super::apply::JournalDb;
use super::chats;
use super::completion::RowState;
use super::days::{Calendar, ShownDays};
use super::finished;
use super::handed;
use super::journal::JournalSettings;
use super::key_index::{EntryDays, KeyIndex};
use super::reads::indexed_upto;
use crate::store::days::DAY_MS;
use rusqlite::{Connection, OptionalExtension, Result, params};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Finished messages per slice.
const DONE_SLICE: i64 = 2048;
/// Dedupe keys per slice.
const KEY_SLICE: i64 = 4096;
/// Conversations per slice.
const RESUME_SLICE: i64 = 256;
/// Pages vacuumed per slice: twice as many can delay a commit by more than 2 ms.
const VACUUM_SLICE: i64 = 128;
/// Free pages that are not worth a vacuum.
const VACUUM_FLOOR: i64 = 1024;

/// State of the upkeep: what the wall clock showed, and the sweep through the dedupe index.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    shown: Option<ShownDays>,
    sweep: Option<Sweep>,
    swept_before: Option<i64>,
    days_cut: i64,
}

/// The circumstances of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceContext {
    /// Unix milliseconds.
    pub(super) now_ms: i64,
    /// Time since the writer was started.
    pub(super) mono: Duration,
    /// Whether no command waits.
    pub(super) idle: bool,
}

#[derive(Debug)]
struct Sweep {
    /// The first byte of the next keys of the index; none when only the table from before is left.
    byte: Option<u8>,
    after: Vec<u8>,
    before_day: i64,
}

impl Upkeep {
    /// One slice of work in a transaction; returns whether there is more. A small number of recent keys is moved only while
    /// idle, because many keys together share pages.
    pub(super) fn slice(
        &mut self,
        journal_db: &mut JournalDb<'_>,
        settings: &JournalSettings,
        now: SliceContext,
    ) -> Result<bool> {
        let SliceContext { now_ms, mono, idle } = now;
        let keep_days = i64::from(settings.keep_days);
        let before = journal_db.calendar;
        let today = follow_calendar(journal_db, (now_ms, mono), self.shown.is_none())?;
        let shown = self.follow_clock(journal_db, (before, today), now_ms, keep_days)?;
        let handed_since = shown.since(today.day - handed::KEEP_DAYS, now_ms);
        let kept = shown.since(today.day - keep_days, now_ms);
        let mut more = idle && (journal_db.recent.idle_round() || journal_db.index.is_passing());
        if more {
            journal_db.tend_index(1024, now_ms)?;
        }
        let db = journal_db.db;
        let over_limit = used_bytes(db)? > settings.max_bytes;
        // Nothing is kept when there is too much.
        let older_than = if over_limit { i64::MAX } else { *kept.start() };
        let kept = older_than..=*kept.end();
        let removed = delete_finished(db, &kept)?;
        more |= removed > 0;
        more |= finished::pack_rows(db, indexed_upto(db)?)?;
        if over_limit && removed == 0 {
            self.days_cut += i64::from(self.sweep.is_none());
        } else if !over_limit {
            self.days_cut = 0;
        }
        more |= self.sweep_keys(db, &mut journal_db.index, settings, today.day)?;
        more |= delete_dropped(db, &kept)? > 0;
        more |= chats::forget_oldest(db, settings.chat_memory, DONE_SLICE)? > 0;
        more |= handed::forget_old(db, &handed_since, DONE_SLICE)? > 0;
        more |= handed::forget_oldest(db, handed::MAX_KEPT, DONE_SLICE)? > 0;
        if settings.resume_days > 0 {
            let older_than = today.now_ms(now_ms) - i64::from(settings.resume_days) * DAY_MS;
            more |= journal_db.resume.delete_older(db, older_than)? > 0;
        }
        Ok(more)
    }

    /// What the wall clock showed on the days that anything is kept for, noted when it changes.
    fn follow_clock(
        &mut self,
        journal_db: &mut JournalDb<'_>,
        (before, today): (Option<Calendar>, Calendar),
        now_ms: i64,
        keep_days: i64,
    ) -> Result<&ShownDays> {
        let mut find = (journal_db.db).prepare_cached("SELECT value FROM meta WHERE name = 'shown_days'")?;
        let noted: Option<String> = find.query_row([], |row| row.get(0)).optional()?;
        let before = before.unwrap_or(today);
        let shown = (self.shown).get_or_insert_with(|| ShownDays::restore(noted.as_deref(), before));
        // It was written before this look at the calendar.
        if let Some((earliest, latest)) = journal_db.written_ms.take() {
            shown.observe(before.day, earliest);
            shown.observe(before.day, latest);
        }
        shown.observe(today.day, now_ms);
        shown.forget_before(today.day - keep_days.max(handed::KEEP_DAYS));
        let text = shown.to_text();
        if noted.as_ref() != Some(&text) {
            journal_db
                .db
                .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('shown_days', ?1)")?
                .execute([text])?;
        }
        Ok(shown)
    }

    fn sweep_keys(
        &mut self,
        db: &Connection,
        index: &mut KeyIndex,
        settings: &JournalSettings,
        today: i64,
    ) -> Result<bool> {
        let days = (i64::from(settings.dedupe_days) - self.days_cut).max(1);
        let before_day = today - days;
        if self.sweep.is_none() {
            let swept_before = match self.swept_before {
                Some(day) => day,
                None => *self.swept_before.insert(swept_before(db, before_day)?),
            };
            // Beyond today: it was noted under a clock that was ahead.
            if before_day > swept_before || swept_before > today {
                self.sweep = Some(Sweep {
                    byte: Some(0),
                    after: Vec::new(),
                    before_day,
                });
            }
        }
        let Some(sweep) = &mut self.sweep else {
            return Ok(false);
        };
        if let Some(byte) = sweep.byte {
            let days = EntryDays {
                before: sweep.before_day,
                today,
            };
            sweep.byte = index.sweep(db, byte, days)?;
            return Ok(true);
        }
        let mut end =
            db.prepare_cached("SELECT key FROM dedupe WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2")?;
        let end: Option<Vec<u8>> = end
            .query_row(params![sweep.after, KEY_SLICE - 1], |row| row.get(0))
            .optional()?;
        db.prepare_cached("DELETE FROM dedupe WHERE key > ?1 AND (?2 IS NULL OR key <= ?2) AND day < ?3")?
            .execute(params![sweep.after, end, sweep.before_day])?;
        db.prepare_cached(
            "UPDATE dedupe SET day = ?3 WHERE key > ?1 AND (?2 IS NULL OR key <= ?2) AND day > ?3",
        )?
        .execute(params![sweep.after, end, today])?;
        if let Some(key) = end {
            sweep.after = key;
        } else {
            set_swept_before(db, sweep.before_day)?;
            self.swept_before = Some(sweep.before_day);
            self.sweep = None;
            index.look_for_old(db)?;
        }
        Ok(self.sweep.is_some())
    }
}

/// Today, noted when it changes, and once by each process.
fn follow_calendar(
    journal_db: &mut JournalDb<'_>,
    (now_ms, mono): (i64, Duration),
    is_first: bool,
) -> Result<Calendar> {
    let noted = journal_db.calendar.filter(|_| !is_first);
    let calendar = journal_db.calendar.get_or_insert_with(|| Calendar::new(now_ms));
    calendar.observe(now_ms, mono);
    if noted != Some(*calendar) {
        let mut note = journal_db
            .db
            .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
        note.execute(params!["day", calendar.day])?;
        note.execute(params!["wall_day", calendar.wall_day])?;
    }
    Ok(*calendar)
}

/// The day before which the index was swept last. A journal that never was swept has nothing older than today's limit.
fn swept_before(db: &Connection, limit: i64) -> Result<i64> {
    let noted = db
        .prepare_cached("SELECT value FROM meta WHERE name = 'swept_before'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    if let Some(day) = noted {
        return Ok(day);
    }
    set_swept_before(db, limit)?;
    Ok(limit)
}

fn set_swept_before(db: &Connection, day: i64) -> Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('swept_before', ?1)")?
        .execute([day])?;
    Ok(())
}

/// Vacuums a slice of free pages; returns whether there are more. Outside any transaction.
pub(super) fn vacuum_slice(db: &Connection) -> Result<bool> {
    let pages = pragma(db, "page_count")?;
    let free = free_pages(db)?;
    if free < VACUUM_FLOOR || free * 4 < pages {
        return Ok(false);
    }
    vacuum(db)?;
    Ok(true)
}

/// Gives a slice of free pages back to the file system. Outside any transaction.
pub(super) fn vacuum(db: &Connection) -> Result<()> {
    let mut vacuum = db.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_SLICE})"))?;
    let mut pages = vacuum.query([])?;
    // Each row is a page that was given back.
    while pages.next()?.is_some() {}
    Ok(())
}

/// Pages that nothing uses.
pub(super) fn free_pages(db: &Connection) -> Result<i64> {
    pragma(db, "freelist_count")
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

/// Deletes records that ended at none of these times. Keeps the newest one whatever its age: the next row id is derived from it.
fn delete_finished(db: &Connection, kept: &RangeInclusive<i64>) -> Result<usize> {
    let (older_than, latest) = (*kept.start(), *kept.end());
    let mut delete = db.prepare_cached(
        "DELETE FROM done WHERE seq IN (SELECT seq FROM done ORDER BY seq LIMIT ?1)
         AND (ended_at < ?2 OR ended_at > ?4) AND seq <= ?3 AND seq <> ?5",
    )?;
    let newest = db
        .prepare_cached("SELECT ifnull(max(seq), 0) FROM done")?
        .query_row([], |row| row.get(0))?;
    let newest = finished::newest(db)?.max(newest);
    let deleted = delete.execute(params![DONE_SLICE, older_than, indexed_upto(db)?, latest, newest])?;
    if deleted > 0 {
        // The line of an interrupted message is kept as long as its record.
        db.prepare_cached("DELETE FROM inbox WHERE state = ?1 AND NOT EXISTS (SELECT 1 FROM done WHERE done.seq = inbox.seq)")?
            .execute([RowState::Interrupted.code()])?;
    }
    Ok(deleted + finished::forget(db, older_than, latest, newest)?)
}

/// Ops that were dropped are kept as long as finished messages.
fn delete_dropped(db: &Connection, kept: &RangeInclusive<i64>) -> Result<usize> {
    let mut delete = db.prepare_cached(
        "DELETE FROM dropped WHERE seq IN (SELECT seq FROM dropped ORDER BY seq LIMIT ?1)
         AND (dropped_at < ?2 OR dropped_at > ?3)",
    )?;
    delete.execute(params![DONE_SLICE, kept.start(), kept.end()])
}

/// What conversations are resumed with, and its size.
#[derive(Debug)]
pub(super) struct ResumeStates {
    bytes: i64,
    committed: i64,
    max: i64,
}

impl ResumeStates {
    pub(super) fn measure(db: &Connection, settings: &JournalSettings) -> Result<Self> {
        let bytes = db.query_row("SELECT ifnull(sum(length(blob)), 0) FROM resume", [], |row| {
            row.get(0)
        })?;
        let max = settings.resume_bytes.min(settings.max_bytes / 2);
        Ok(Self {
            bytes,
            committed: bytes,
            max: i64::try_from(max).unwrap_or(i64::MAX),
        })
    }

    /// Replaces what a session is resumed with, and deletes what was unused for longest while there is too much.
    pub(super) fn put(&mut self, db: &Connection, session: &str, blob: &[u8], now_ms: i64) -> Result<()> {
        self.delete(db, session)?;
        db.prepare_cached("INSERT INTO resume (session, blob, updated_at) VALUES (?1, ?2, ?3)")?
            .execute(params![session, blob, now_ms])?;
        self.bytes += i64::try_from(blob.len()).unwrap_or(i64::MAX);
        while self.bytes > self.max && self.delete_oldest(db, session)? {}
        Ok(())
    }

    pub(super) fn delete(&mut self, db: &Connection, session: &str) -> Result<()> {
        let mut delete = db.prepare_cached("DELETE FROM resume WHERE session = ?1 RETURNING length(blob)")?;
        let bytes: Option<i64> = delete.query_row([session], |row| row.get(0)).optional()?;
        self.bytes -= bytes.unwrap_or(0);
        Ok(())
    }

    /// Deletes the oldest but for one session; `false` if there is no other.
    fn delete_oldest(&mut self, db: &Connection, keep: &str) -> Result<bool> {
        let oldest: Option<String> = db
            .prepare_cached("SELECT session FROM resume WHERE session <> ?1 ORDER BY updated_at LIMIT 1")?
            .query_row([keep], |row| row.get(0))
            .optional()?;
        match oldest {
            Some(session) => self.delete(db, &session).map(|()| true),
            None => Ok(false),
        }
    }

    /// Deletes a slice of what was not used since; returns how many.
    fn delete_older(&mut self, db: &Connection, older_than: i64) -> Result<usize> {
        let old: Vec<String> = db
            .prepare_cached("SELECT session FROM resume WHERE updated_at < ?1 ORDER BY updated_at LIMIT ?2")?
            .query_map(params![older_than, RESUME_SLICE], |row| row.get(0))?
            .collect::<Result<_>>()?;
        for session in &old {
            self.delete(db, session)?;
        }
        Ok(old.len())
    }

    pub(super) fn committed(&mut self) {
        self.committed = self.bytes;
    }

    pub(super) fn rolled_back(&mut self) {
        self.bytes = self.committed;
    }
}

/// The quarantine and its size.
#[derive(Debug)]
pub(super) struct Quarantine {
    held: QuarantineSize,
    committed: QuarantineSize,
    max: QuarantineSize,
}

#[derive(Clone, Copy, Debug, Default)]
struct QuarantineSize {
    rows: i64,
    bytes: i64,
}

impl Quarantine {
    pub(super) fn measure(db: &Connection, settings: &JournalSettings) -> Result<Self> {
        let held = db.query_row(
            "SELECT count(*), ifnull(sum(length(line)), 0) FROM quarantine",
            [],
            |row| {
                Ok(QuarantineSize {
                    rows: row.get(0)?,
                    bytes: row.get(1)?,
                })
            },
        )?;
        let max = QuarantineSize {
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

    /// Adds a line, truncated to the limit, and deletes the oldest while there are too many.
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

    /// A line of so many bytes was deleted by hand.
    pub(super) fn deleted(&mut self, bytes: i64) {
        self.held.rows -= 1;
        self.held.bytes -= bytes;
    }

    pub(super) fn committed(&mut self) {
        self.committed = self.held;
    }

    pub(super) fn rolled_back(&mut self) {
        self.held = self.committed;
    }
}
