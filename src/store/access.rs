//! Who may drive an agent, as verbs and pairings decided it, and how much people have used.

use std::path::Path;

use rusqlite::{Connection, Result, params};

use super::fault::OpenError;
use super::inspect::InspectError;
use super::journal::JournalSettings;
use super::lock::StateLock;
use super::replication;
use super::schema;

/// Days for which usage is kept.
const USAGE_DAYS: i64 = 40;
/// The kind of a row that stands for what a person has used.
const USAGE: &str = "usage";
/// Maximum rows of one answer about usage.
const MAX_USAGE_ROWS: u32 = 100_000;

/// A rule, or a pairing that waits; deleted when it has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRow {
    /// What sort of row it is.
    pub kind: String,
    /// The platform.
    pub platform: String,
    /// The person's id on it.
    pub person: String,
    /// What is stored.
    pub value: Option<String>,
}

impl AccessRow {
    /// Whether it deletes what a person has used.
    pub(super) fn deletes_usage(&self) -> bool {
        self.kind == USAGE && self.value.is_none()
    }
}

/// What a person has used on a day, in a chat, of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The day since 1970, in UTC.
    pub day: i64,
    /// The platform.
    pub platform: String,
    /// The person's id on it.
    pub person: String,
    /// The chat.
    pub chat: String,
    /// The agent.
    pub agent: String,
    /// Turns.
    pub turns: i64,
    /// Tokens, read and written.
    pub tokens: i64,
}

/// The rules of a state directory that no relay uses.
#[derive(Debug)]
pub struct AccessFiles {
    db: Connection,
    _lock: StateLock,
}

impl AccessFiles {
    /// Locks the state directory and opens its journal; creates both when there are none. `assigned`: see
    /// [`JournalSettings::assigned_dir`].
    pub fn open(dir: &Path, assigned: bool, now_ms: i64) -> std::result::Result<Self, OpenError> {
        let lock = StateLock::take(dir, assigned, now_ms)?;
        let path = schema::path_in(dir);
        let db = schema::open_held(&path, &JournalSettings::default(), &lock)?;
        if replication::is_member(&db) {
            return Err(OpenError::Replicated { path });
        }
        Ok(Self { db, _lock: lock })
    }

    /// All rows.
    pub fn rows(&self) -> std::result::Result<Vec<AccessRow>, InspectError> {
        Ok(rows(&self.db)?)
    }

    /// Platform and id of people who have written.
    pub fn people(&self) -> std::result::Result<Vec<(String, String)>, InspectError> {
        let mut find = self.db.prepare(
            "SELECT platform, person FROM usage UNION
             SELECT platform, json_extract(CAST(memory AS TEXT), '$.user_id') FROM chats
             WHERE json_valid(CAST(memory AS TEXT)) AND json_extract(CAST(memory AS TEXT), '$.user_id') IS NOT NULL",
        )?;
        let rows = find.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_>>()?)
    }

    /// Writes rows, all or none.
    pub fn write(&mut self, rows: &[AccessRow]) -> std::result::Result<(), InspectError> {
        let mut change = || {
            let transaction = self.db.transaction()?;
            for row in rows {
                set(&transaction, row)?;
            }
            transaction.commit()
        };
        change().map_err(|error| InspectError::of_change(&error))
    }
}

/// Reads all rows.
pub(super) fn rows(db: &Connection) -> Result<Vec<AccessRow>> {
    let mut find =
        db.prepare("SELECT kind, platform, person, value FROM access ORDER BY kind, platform, person")?;
    let rows = find.query_map([], |row| {
        Ok(AccessRow {
            kind: row.get(0)?,
            platform: row.get(1)?,
            person: row.get(2)?,
            value: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Writes or deletes one row; a row of this kind without a value deletes what a person has used.
pub(super) fn set(db: &Connection, row: &AccessRow) -> Result<()> {
    match &row.value {
        None if row.deletes_usage() => db
            .prepare_cached("DELETE FROM usage WHERE platform = ?1 AND person = ?2")?
            .execute(params![row.platform, row.person]),
        Some(value) => db
            .prepare_cached(
                "INSERT OR REPLACE INTO access (kind, platform, person, value) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![row.kind, row.platform, row.person, value]),
        None => db
            .prepare_cached("DELETE FROM access WHERE kind = ?1 AND platform = ?2 AND person = ?3")?
            .execute(params![row.kind, row.platform, row.person]),
    }?;
    Ok(())
}

/// Adds to what a person has used, up to the largest number of a column: beyond it SQLite computes with reals, which the table
/// refuses. The first of a day deletes what is too old.
pub(super) fn add_usage(db: &Connection, row: &UsageRow) -> Result<()> {
    let known: bool = db
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM usage WHERE day = ?1)")?
        .query_row([row.day], |row| row.get(0))?;
    if !known {
        db.execute("DELETE FROM usage WHERE day < ?1", [row.day - USAGE_DAYS])?;
    }
    db.prepare_cached(
        "INSERT INTO usage (day, platform, person, chat, agent, turns, tokens) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (day, platform, person, chat, agent)
         DO UPDATE SET turns = turns + min(excluded.turns, 9223372036854775807 - turns),
                       tokens = tokens + min(excluded.tokens, 9223372036854775807 - tokens)",
    )?
    .execute(params![
        row.day,
        row.platform,
        row.person,
        row.chat,
        row.agent,
        row.turns,
        row.tokens
    ])?;
    Ok(())
}

/// What was used on the last days that anything was used.
pub(super) fn latest_usage(db: &Connection) -> Result<Vec<UsageRow>> {
    let last: i64 = db.query_row("SELECT ifnull(max(day), 0) FROM usage", [], |row| row.get(0))?;
    usage(db, last)
}

/// What was used since a day.
pub(super) fn usage(db: &Connection, since_day: i64) -> Result<Vec<UsageRow>> {
    let mut find = db.prepare(
        "SELECT day, platform, person, chat, agent, turns, tokens FROM usage WHERE day >= ?1
         ORDER BY day, platform, person, chat, agent LIMIT ?2",
    )?;
    let rows = find.query_map(params![since_day, MAX_USAGE_ROWS], |row| {
        Ok(UsageRow {
            day: row.get(0)?,
            platform: row.get(1)?,
            person: row.get(2)?,
            chat: row.get(3)?,
            agent: row.get(4)?,
            turns: row.get(5)?,
            tokens: row.get(6)?,
        })
    })?;
    rows.collect()
}
