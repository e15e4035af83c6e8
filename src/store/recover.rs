//! What is read when the journal opens: unfinished work, memories, and the numbers the writer goes on from.
//!
//! Every list is bounded by `recover_rows` or `chat_memory`. It never reads finished messages, except the few
//! whose dedupe keys are not in the index yet.

use super::apply::Counters;
use super::completion::{ChatRow, InboxRow, OpRow, WaitingSession};
use super::ids::{DedupeKey, InboxSeq, OpSeq};
use super::reads::{self, text};
use super::recent::Recent;
use super::retention::Shelf;
use super::settings::JournalSettings;
use rusqlite::{Connection, OptionalExtension, Result};

/// What an earlier run left behind.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Sessions with waiting messages, in key order, at most `recover_rows`. When it is that long, ask on with
    /// [`Command::NextWaiting`](super::Command::NextWaiting) after its last key.
    pub waiting: Vec<WaitingSession>,
    /// Messages whose turn was running, oldest first, at most `recover_rows` (ended ones make room for the next
    /// opening); past 4 MiB without their line, which [`Command::Load`](super::Command::Load) reads.
    pub running: Vec<InboxRow>,
    /// Unsettled ops in order, at most `recover_rows` and about 4 MiB. Ask on with
    /// [`Command::NextOps`](super::Command::NextOps) after the last until none come.
    pub ops: Vec<OpRow>,
    /// Remembered chats, the most recently used first, at most `chat_memory`.
    pub chats: Vec<ChatRow>,
}

/// Where the writer goes on.
pub(super) struct Footing {
    pub(super) recent: Recent,
    pub(super) shelf: Shelf,
    pub(super) counters: Counters,
}

pub(super) fn recover(db: &Connection, settings: &JournalSettings) -> Result<(Recovered, Footing)> {
    let rows = settings.recover_rows;
    let recovered = Recovered {
        waiting: reads::waiting(db, "", rows)?,
        running: reads::running(db, rows)?,
        ops: reads::ops(db, OpSeq(0), rows)?,
        chats: chats(db, settings.chat_memory)?,
    };
    let footing = Footing {
        recent: recent(db)?,
        shelf: Shelf::measure(db, settings)?,
        counters: Counters {
            // What is still owed names the message that it answers, also when that is no longer remembered.
            inbox: 1 + db.query_row(
                "SELECT max((SELECT ifnull(max(seq), 0) FROM inbox), (SELECT ifnull(max(seq), 0) FROM done),
                    (SELECT ifnull(max(inbox_seq), 0) FROM outbox))",
                [],
                |row| row.get::<_, i64>(0),
            )?,
            op: 1 + db.query_row("SELECT ifnull(max(seq), 0) FROM outbox", [], |row| {
                row.get::<_, i64>(0)
            })?,
        },
    };
    Ok((recovered, footing))
}

/// The number up to which every dedupe key is in the index.
pub(super) fn indexed_upto(db: &Connection) -> Result<i64> {
    let found = db
        .prepare_cached("SELECT value FROM meta WHERE name = 'indexed_upto'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(0))
}

fn chats(db: &Connection, limit: u32) -> Result<Vec<ChatRow>> {
    let mut find = db
        .prepare("SELECT platform, chat_id, memory, last_used FROM chats ORDER BY last_used DESC LIMIT ?1")?;
    let rows = find.query_map([limit], |row| {
        Ok(ChatRow {
            platform: text(row, 0)?,
            chat_id: text(row, 1)?,
            memory: row.get(2)?,
            last_used: row.get(3)?,
        })
    })?;
    rows.collect()
}

fn recent(db: &Connection) -> Result<Recent> {
    let mut recent = Recent::default();
    let mut find = db.prepare(
        "SELECT dedupe, seq FROM inbox WHERE seq > ?1 AND dedupe IS NOT NULL
         UNION ALL SELECT dedupe, seq FROM done WHERE seq > ?1 AND dedupe IS NOT NULL",
    )?;
    let mut rows = find.query([indexed_upto(db)?])?;
    while let Some(row) = rows.next()? {
        recent.restore(DedupeKey::from_bytes(row.get(0)?), InboxSeq(row.get(1)?));
    }
    Ok(recent)
}
