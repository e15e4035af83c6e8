//! Replication: a commit is one record of the cluster's stream, and counts when the stream has it and when it is on this disk.
//!
//! The commands are applied inside the transaction, the record goes to the stream, and only then is the transaction committed,
//! together with the record's number. A commit that the stream did not take is rolled back. When the process dies in between, the
//! stream has a record that this journal has not: whoever opens it next reads the stream first (`follower`).
//!
//! A record has the commands that took effect, as the log writes them, and the rows of scheduled jobs that changed: what a claim comes
//! to depends on the machine, so its result is sent and not the command. Triggers note these rows, also for other processes that
//! change jobs beside the relay.

use super::apply::{CommandOutcome, JournalDb};
use super::command::Command;
use super::completion::Completion;
use super::cron::FILE_FIELDS;
use super::handed::HandedReply;
use super::log::LogWriter;
use super::repair::Repaired;
use super::stream_marks::{self, ACTIVE, POSITION, set_alone, set_goes_on, set_position};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Result, params};
use serde_json::Value;
use std::fmt::Write as _;

/// Takes the commits of the active member of a cluster.
pub trait CommitStream: Send {
    /// Appends a commit and waits until it is known whether the stream has it. `number` is its number among the commits that are made
    /// without the server, if it becomes one of them.
    fn append(&mut self, commit: &[u8], number: u64) -> std::result::Result<Appended, NotReplicated>;

    /// Whether the relay may go on without the server.
    fn goes_on(&self) -> bool;

    /// The stream has a commit that could not be stored here: this member cannot go on.
    fn abandon(&mut self);
}

/// Where a commit is, beside this disk.
#[cfg_attr(
    not(any(feature = "nats", feature = "internals")),
    expect(dead_code, reason = "only a member of a cluster has a stream")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// In the stream, under this number.
    Stored(u64),
    /// Nowhere: this relay goes on without the server.
    Alone,
}

/// Why the stream of the cluster did not take a commit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReplicated(pub String);

/// Where commits go.
pub(super) struct Replication {
    stream: Box<dyn CommitStream>,
    batch: LogWriter,
    /// A commit counts that is not on this disk.
    is_ahead: bool,
    /// Commits that were made without the server.
    alone: Option<u64>,
}

/// The tables whose rows are sent, and their keys.
const TABLES: [(&str, &str); 3] = [("cron_jobs", "id"), ("cron_runs", "seq"), ("meta", "name")];

/// Whether a journal is part of a cluster: then only the active member changes it.
pub(super) fn is_member(db: &Connection) -> bool {
    let find = "SELECT EXISTS (SELECT 1 FROM meta WHERE name = ?1)";
    db.query_row(find, [POSITION], |row| row.get(0)).unwrap_or(false)
}

/// Whether another process may change jobs in this journal: the relay that holds the state directory sends the change to the stream.
pub(super) fn may_change_jobs(db: &Connection, holder: Option<u32>) -> bool {
    let active: Result<Option<u32>> = db
        .query_row("SELECT value FROM meta WHERE name = ?1", [ACTIVE], |row| {
            row.get(0)
        })
        .optional();
    !is_member(db) || (holder.is_some() && active.is_ok_and(|active| active == holder))
}

/// Notes changed rows of jobs from now on.
fn watch_jobs(db: &Connection) -> Result<()> {
    let mut sql = "CREATE TABLE IF NOT EXISTS cron_changed (tbl TEXT NOT NULL, id TEXT NOT NULL,
                   PRIMARY KEY (tbl, id)) STRICT, WITHOUT ROWID;"
        .to_owned();
    for (table, key) in TABLES {
        for (event, row) in [("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")] {
            let only = if table == "meta" {
                format!("WHEN {row}.name = '{FILE_FIELDS}'")
            } else {
                String::new()
            };
            let _ = write!(sql, "CREATE TRIGGER IF NOT EXISTS {table}_{event} AFTER {event} ON {table} {only}
                 BEGIN INSERT OR IGNORE INTO cron_changed VALUES ('{table}', CAST({row}.{key} AS TEXT)); END;");
        }
    }
    db.execute_batch(&sql)
}

/// A journal that is used without its cluster is not part of it any more.
pub(super) fn leave(db: &Connection) -> Result<()> {
    if !is_member(db) {
        return Ok(());
    }
    let mut sql = "BEGIN IMMEDIATE;".to_owned();
    for (table, _) in TABLES {
        for event in ["INSERT", "UPDATE", "DELETE"] {
            let _ = write!(sql, "DROP TRIGGER IF EXISTS {table}_{event};");
        }
    }
    let marks = stream_marks::ALL.join("', '");
    let _ = write!(
        sql,
        "DROP TABLE IF EXISTS cron_changed; DELETE FROM meta WHERE name IN ('{marks}'); COMMIT;"
    );
    db.execute_batch(&sql)
}

impl JournalDb<'_> {
    /// Every commit goes to this stream from now on.
    pub(super) fn replicate_to(&mut self, stream: Box<dyn CommitStream>) -> Result<()> {
        watch_jobs(self.db)?;
        self.db.execute(
            "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)",
            params![ACTIVE, std::process::id()],
        )?;
        set_goes_on(self.db, stream.goes_on())?;
        self.replication = Some(Replication {
            alone: stream_marks::read(self.db)?.alone,
            stream,
            batch: LogWriter::default(),
            is_ahead: false,
        });
        Ok(())
    }

    /// A transaction begins.
    pub(super) fn begin_replication(&mut self) {
        if let Some(replication) = &mut self.replication {
            replication.batch.begin(self.counters);
        }
    }

    /// A command of the transaction was applied.
    pub(super) fn replicate_applied(&mut self, command: &Command, outcome: &CommandOutcome) {
        if let Some(replication) = &mut self.replication
            && took_effect(outcome)
        {
            replication.batch.push(command);
        }
    }

    /// Whether another process has changed jobs that the stream does not have yet.
    pub(super) fn has_changes_of_others(&self) -> Result<bool> {
        match self.replication {
            None => Ok(false),
            Some(_) => self
                .db
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM cron_changed)")?
                .query_row([], |row| row.get(0)),
        }
    }

    /// Commits the transaction, once the stream has it.
    pub(super) fn commit_replicated(&mut self) -> Result<()> {
        if let Some(replication) = &mut self.replication {
            let refused = |why: NotReplicated| rusqlite::Error::ToSqlConversionFailure(Box::new(why));
            if replication.is_ahead {
                replication.stream.abandon();
                let why = "the stream has a commit that could not be stored here".to_owned();
                return Err(refused(NotReplicated(why)));
            }
            let jobs = take_jobs(self.db)?;
            let batch = replication.batch.bytes().unwrap_or_default();
            if !jobs.is_empty() || !batch.is_empty() {
                let number = replication.alone.unwrap_or(0) + 1;
                let appended = replication.stream.append(&join(&jobs, batch), number);
                let appended = appended.map_err(refused)?;
                replication.is_ahead = true;
                match appended {
                    Appended::Stored(seq) => {
                        set_position(self.db, seq)?;
                        if replication.alone.take().is_some() {
                            set_alone(self.db, None)?;
                        }
                    }
                    Appended::Alone => {
                        replication.alone = Some(number);
                        set_alone(self.db, replication.alone)?;
                    }
                }
            }
        }
        self.statements.commit.execute([])?;
        if let Some(replication) = &mut self.replication {
            replication.is_ahead = false;
        }
        Ok(())
    }
}

/// Whether a command that came to this changed anything.
fn took_effect(outcome: &CommandOutcome) -> bool {
    match outcome {
        CommandOutcome::Duplicate | CommandOutcome::Missing(_) => false,
        CommandOutcome::Read(Completion::Handed { reply, .. }) => {
            matches!(reply, HandedReply::Stored(_) | HandedReply::Done)
        }
        CommandOutcome::Read(Completion::Repaired { repaired, .. }) => *repaired != Repaired::Refused,
        CommandOutcome::Accepted(_)
        | CommandOutcome::Quarantined
        | CommandOutcome::Started(_)
        | CommandOutcome::Ended(_)
        | CommandOutcome::OpsAdded(_)
        | CommandOutcome::Read(_)
        | CommandOutcome::Silent => true,
    }
}

/// The rows of jobs that are noted as changed: table and key.
fn changed_jobs(db: &Connection) -> Result<Vec<(String, String)>> {
    let mut find = db.prepare_cached("SELECT tbl, id FROM cron_changed ORDER BY tbl, id")?;
    let keys = find.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    keys.collect()
}

/// The changed rows of jobs, as JSON: table, key, and the columns or null. They count as sent.
fn take_jobs(db: &Connection) -> Result<Vec<u8>> {
    let keys = changed_jobs(db)?;
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut images = Vec::with_capacity(keys.len());
    for (table, id) in keys {
        let Some((table, key)) = TABLES.into_iter().find(|(name, _)| *name == table) else {
            continue;
        };
        let mut read = db.prepare_cached(&format!("SELECT * FROM {table} WHERE CAST({key} AS TEXT) = ?1"))?;
        let columns = read.column_count();
        let row = read
            .query_row([&id], |row| {
                (0..columns)
                    .map(|column| Ok(to_json(row.get_ref(column)?)))
                    .collect()
            })
            .optional()?
            .map_or(Value::Null, Value::Array);
        images.push(Value::Array(vec![table.into(), id.into(), row]));
    }
    db.prepare_cached("DELETE FROM cron_changed")?.execute([])?;
    Ok(Value::Array(images).to_string().into_bytes())
}

fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null | ValueRef::Blob(_) => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
    }
}

/// Stores changed rows of jobs; `None` if they cannot be read.
#[cfg(feature = "nats")]
fn put_jobs(db: &Connection, images: &[u8]) -> Result<Option<()>> {
    use rusqlite::types::Value as Column;
    let Ok(images) = serde_json::from_slice::<Vec<(String, String, Option<Vec<Value>>)>>(images) else {
        return Ok(None);
    };
    let known = |table: &str| TABLES.into_iter().find(|(name, _)| *name == table);
    // All old rows go first: a claim that ended must not stand in the way of the next one.
    for (table, id, _) in &images {
        let Some((table, key)) = known(table) else {
            return Ok(None);
        };
        db.prepare_cached(&format!("DELETE FROM {table} WHERE CAST({key} AS TEXT) = ?1"))?
            .execute([id])?;
    }
    for (table, _, row) in images {
        let (Some((table, _)), Some(row)) = (known(&table), row) else {
            continue;
        };
        let marks = vec!["?"; row.len()].join(", ");
        let columns = row.into_iter().map(|value| match value {
            Value::String(text) => Column::Text(text),
            Value::Number(number) => number.as_i64().map_or(Column::Null, Column::Integer),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Column::Null,
        });
        db.prepare_cached(&format!("INSERT INTO {table} VALUES ({marks})"))?
            .execute(rusqlite::params_from_iter(columns))?;
    }
    Ok(Some(()))
}

/// A commit as bytes: the length of the rows of jobs, these, the batch.
fn join(jobs: &[u8], batch: &[u8]) -> Vec<u8> {
    let mut commit = Vec::with_capacity(4 + jobs.len() + batch.len());
    commit.extend(u32::try_from(jobs.len()).unwrap_or(u32::MAX).to_le_bytes());
    commit.extend(jobs);
    commit.extend(batch);
    commit
}

#[cfg(feature = "nats")]
pub use following::{install_snapshot, snapshot};

#[cfg(feature = "nats")]
mod following {
    use super::super::apply::JournalDb;
    use super::super::command::Command;
    use super::super::fault::{Fault, FaultKind, OpenError};
    use super::super::follower::{StreamContent, StreamRecord};
    use super::super::handed::HandedCommand;
    use super::super::lock::{StateLock, private_file};
    use super::super::log::{BatchError, read_batch};
    use super::super::schema;
    use super::super::start_marks;
    use super::super::stream_marks::{self, StreamMarks, adopt, name_journal, set_holder};
    use super::super::writer::free_bytes;
    use super::{ACTIVE, changed_jobs, put_jobs, set_position, watch_jobs};
    use rusqlite::{Connection, OpenFlags, Result};
    use std::fs::{self, File};
    use std::path::Path;

    /// Bytes that a copy of the journal leaves free: about what the write-ahead log takes until it is checkpointed.
    const COMMIT_BYTES: u64 = 16 << 20;

    fn damaged(why: &str) -> rusqlite::Error {
        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        rusqlite::Error::SqliteFailure(corrupt, Some(why.to_owned()))
    }

    /// Jobs that were removed here, which the stream does not know yet.
    fn removed_jobs(db: &Connection) -> Result<Vec<String>> {
        let mut find = db.prepare_cached(
            "SELECT id FROM cron_changed WHERE tbl = 'cron_jobs' AND id NOT IN (SELECT id FROM cron_jobs)",
        )?;
        let ids = find.query_map([], |row| row.get(0))?;
        ids.collect()
    }

    /// Of what is noted as changed, only this is not in the stream. A job that was removed stays removed, whatever became of it
    /// elsewhere since.
    fn keep_unsent(db: &Connection, unsent: &[(String, String)], removed: &[String]) -> Result<()> {
        for id in removed {
            db.prepare_cached("DELETE FROM cron_jobs WHERE id = ?1")?
                .execute([id])?;
        }
        db.prepare_cached("DELETE FROM cron_changed")?.execute([])?;
        for (table, id) in unsent {
            db.prepare_cached("INSERT INTO cron_changed VALUES (?1, ?2)")?
                .execute([table, id])?;
        }
        Ok(())
    }

    impl JournalDb<'_> {
        /// Applies records of the stream, in order; those without a commit only count. A change of jobs that was made here and is not
        /// in the stream stays noted: this member sends it when it is active again.
        pub(in crate::store) fn follow(
            &mut self,
            records: &[StreamRecord],
            now_ms: i64,
        ) -> std::result::Result<(), Fault> {
            let Some((last, _)) = records.last() else {
                return Ok(());
            };
            self.upkeep(|journal_db| {
                let unsent = changed_jobs(journal_db.db)?;
                let removed = removed_jobs(journal_db.db)?;
                for (_, content) in records {
                    match content {
                        StreamContent::Nothing => {}
                        StreamContent::Commit(commit) => journal_db.replay(commit)?,
                        StreamContent::Term { holder, .. } => set_holder(journal_db.db, *holder)?,
                    }
                }
                journal_db.tend_index(records.len() * 64, now_ms)?;
                keep_unsent(journal_db.db, &unsent, &removed)?;
                set_position(journal_db.db, *last)
            })
        }

        /// The journal notes what it needs to follow a stream.
        pub(in crate::store) fn begin_following(&self) -> Result<StreamMarks> {
            watch_jobs(self.db)?;
            self.db.execute("DELETE FROM meta WHERE name = ?1", [ACTIVE])?;
            name_journal(self.db)?;
            stream_marks::read(self.db)
        }

        fn replay(&mut self, commit: &[u8]) -> Result<()> {
            let length = commit
                .first_chunk()
                .map(|length| u32::from_le_bytes(*length) as usize);
            let parts = length.and_then(|length| commit[4..].split_at_checked(length));
            let (jobs, batch) = parts.ok_or_else(|| damaged("a record of the stream is damaged"))?;
            if !jobs.is_empty() {
                put_jobs(self.db, jobs)?.ok_or_else(|| damaged("a record of jobs is damaged"))?;
            }
            if batch.is_empty() {
                return Ok(());
            }
            let (ids, commands) = read_batch(batch).map_err(BatchError::into_sql)?;
            self.counters = ids;
            for command in &commands {
                self.note_time(command);
                self.replay_command(command)?;
            }
            Ok(())
        }

        /// What the active member decided is not decided again: what it took is taken, whatever is known here.
        fn replay_command(&mut self, command: &Command) -> Result<()> {
            match command {
                Command::Accept { .. } => drop(self.accept(command)?),
                Command::Ignore { .. } => drop(self.ignore(command)?),
                Command::Handed { command, .. } => match &**command {
                    HandedCommand::Take(new) => {
                        self.db
                            .prepare_cached("DELETE FROM deliveries WHERE dispatch_id = ?1")?
                            .execute([&new.dispatch_id])?;
                        self.take(new)?;
                    }
                    other => drop(self.deliver(other)?),
                },
                other => drop(self.apply(other)?),
            }
            Ok(())
        }
    }

    /// Whether a copy of so many bytes leaves what commits need on a disk with this much space, as far as that is known.
    fn has_room(free_bytes: Option<u64>, bytes: u64) -> bool {
        free_bytes.is_none_or(|free| free.saturating_sub(bytes) >= COMMIT_BYTES)
    }

    /// Writes a copy of a state directory's journal, also while a relay uses it; returns what the copy says. A copy that failed may be
    /// there in part.
    pub fn snapshot(dir: &Path, into: &Path) -> std::result::Result<StreamMarks, Fault> {
        let failed = |error: rusqlite::Error| Fault::from_error(&error);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(schema::path_in(dir), flags).map_err(failed)?;
        let number = |pragma: &str| {
            db.query_row(&format!("PRAGMA {pragma}"), [], |row| {
                row.get::<_, u32>(0).map(u64::from)
            })
        };
        let bytes = number("page_count").and_then(|pages| Ok(pages.saturating_mul(number("page_size")?)));
        if !has_room(free_bytes(&db), bytes.map_err(failed)?) {
            return Err(Fault {
                kind: FaultKind::Full,
                detail: "not enough room for a copy of the journal".into(),
            });
        }
        db.execute("VACUUM INTO ?1", [into.to_string_lossy()])
            .map_err(failed)?;
        let copy = Connection::open_with_flags(into, flags).map_err(failed)?;
        stream_marks::read(&copy).map_err(failed)
    }

    /// Puts a copy into the place of a state directory's journal; what was there is moved aside. With a position: the copy has
    /// everything up to that record, whatever it says, and what was there is in it, too, so that it is removed.
    pub fn install_snapshot(
        dir: &Path,
        assigned: bool,
        copy: &Path,
        position: Option<u64>,
        now_ms: i64,
    ) -> std::result::Result<(), OpenError> {
        let lock = StateLock::take(dir, assigned, now_ms)?;
        let path = schema::path_in(dir);
        let failed = |action| {
            let path = path.clone();
            move |source| OpenError::Directory { action, path, source }
        };
        start_marks::discard(dir).map_err(failed("remove"))?;
        let open_error = |error: rusqlite::Error| schema::to_open_error(copy, &error);
        let db = Connection::open(copy).map_err(open_error)?;
        schema::check_known(&db, copy)?;
        adopt(&db, position).map_err(open_error)?;
        db.close().map_err(|(_, error)| open_error(error))?;
        match position {
            None => schema::move_aside_as(&path, "journal.stale", now_ms)?,
            Some(_) => schema::remove(&path).map_err(failed("remove"))?,
        }
        private_file(copy)?;
        File::open(copy)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(copy, &path))
            .and_then(|()| File::open(dir)?.sync_all())
            .map_err(failed("move"))?;
        drop(lock);
        Ok(())
    }
    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_copy_leaves_room_for_commits() {
            let copy = 5 << 20;
            for (free, expected) in [
                (None, true),
                (Some(COMMIT_BYTES + copy), true),
                (Some(COMMIT_BYTES + copy - 1), false),
                (Some(copy - 1), false),
            ] {
                assert_eq!(has_room(free, copy), expected, "{free:?}");
            }
        }
    }
}
