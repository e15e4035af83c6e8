//! Repairs of single entries: run or send one again, or drop it. The writer makes them while a relay runs, the inspector while
//! none does.

use std::sync::Arc;

use super::completion::{InboxKind, InboxRow, InboxSeq, OpRow, RowState};
use super::inspect::Item;
use super::reads;
use rusqlite::{Connection, OptionalExtension as _, Result, params};
use serde::{Deserialize, Serialize};

/// What is done about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// Run an interrupted message, or send a dropped op, again.
    Retry,
    /// Drop it: a message ends as ignored, an op or a quarantined line is deleted.
    Drop,
}

/// What became of a repair.
#[derive(Debug, PartialEq, Eq)]
pub enum Repaired {
    /// The message waits again.
    Message(Box<InboxRow>),
    /// The op is to be sent again.
    Op(Box<OpRow>),
    /// The message of this session, which waited, is dropped.
    DroppedMessage(InboxSeq, Arc<str>),
    /// The op or the quarantined line is dropped.
    Dropped,
    /// There is no such entry, or its state does not allow that.
    Refused,
}

/// Who else may know of the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nobody: what looks busy was left by an earlier run.
    Nobody,
    /// A relay, which runs messages and sends ops.
    Relay,
}

/// Makes a repair; returns what the relay beside it must learn.
pub(super) fn apply(
    db: &Connection,
    repair: Repair,
    item: Item,
    beside: Beside,
    now_ms: i64,
) -> Result<Repaired> {
    match repair {
        Repair::Retry => retry(db, item, beside, now_ms),
        Repair::Drop => drop_entry(db, item, beside, now_ms),
    }
}

/// Resets a message whose turn was interrupted to waiting, or a dropped op to pending.
fn retry(db: &Connection, item: Item, beside: Beside, now_ms: i64) -> Result<Repaired> {
    let repaired = match item {
        Item::Message(seq) => {
            let interrupted = RowState::Interrupted.code();
            let left_running = match beside {
                Beside::Nobody => RowState::Running.code(),
                Beside::Relay => interrupted,
            };
            let reset = db.execute(
                "UPDATE inbox SET state = 0, started_at = NULL WHERE seq = ?1 AND state IN (?2, ?3)",
                params![seq.0, left_running, interrupted],
            )?;
            if reset == 0 {
                return Ok(Repaired::Refused);
            }
            db.execute("DELETE FROM done WHERE seq = ?1", [seq.0])?;
            reads::message(db, seq)?.map(|row| Repaired::Message(Box::new(row)))
        }
        Item::Op(op) => {
            let mut reset = db.execute(
                "INSERT INTO outbox (seq, session, chat, op, inbox_seq, state, created_at)
                 SELECT seq, session, chat, op, inbox_seq, 0, ?2 FROM dropped WHERE seq = ?1",
                params![op.0, now_ms],
            )?;
            db.execute("DELETE FROM dropped WHERE seq = ?1", [op.0])?;
            if beside == Beside::Nobody {
                reset += db.execute("UPDATE outbox SET state = 0 WHERE seq = ?1 AND state = 1", [op.0])?;
            }
            let row = reads::op(db, op)?.filter(|_| reset > 0);
            row.map(|row| Repaired::Op(Box::new(row)))
        }
        Item::Quarantined(_) => None,
    };
    Ok(repaired.unwrap_or(Repaired::Refused))
}

/// Drops an entry. A run of a job is no message: it goes on with its claim, whatever becomes of its row.
fn drop_entry(db: &Connection, item: Item, beside: Beside, now_ms: i64) -> Result<Repaired> {
    let deleted = match item {
        Item::Message(seq) => {
            // A turn of a running relay ends by itself.
            let below = match beside {
                Beside::Nobody => RowState::Done.code(),
                Beside::Relay => RowState::Running.code(),
            };
            db.execute(
                "INSERT INTO done
                 (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
                 SELECT seq, kind, session, dedupe, buffer_id, ?4, attempt, received_at, started_at, ?2
                 FROM inbox WHERE seq = ?1 AND state < ?3 AND kind != ?5",
                params![
                    seq.0,
                    now_ms,
                    below,
                    RowState::Ignored.code(),
                    InboxKind::Job.code()
                ],
            )?;
            let session = db
                .query_row(
                    "DELETE FROM inbox WHERE seq = ?1 AND state < ?2 AND kind != ?3 RETURNING session",
                    params![seq.0, below, InboxKind::Job.code()],
                    |row| row.get::<_, Arc<str>>(0),
                )
                .optional()?;
            return Ok(session.map_or(Repaired::Refused, |session| {
                Repaired::DroppedMessage(seq, session)
            }));
        }
        Item::Op(op) => {
            db.execute("DELETE FROM outbox WHERE seq = ?1", [op.0])?
                + db.execute("DELETE FROM dropped WHERE seq = ?1", [op.0])?
        }
        Item::Quarantined(seq) => db.execute("DELETE FROM quarantine WHERE seq = ?1", [seq])?,
    };
    Ok(if deleted > 0 {
        Repaired::Dropped
    } else {
        Repaired::Refused
    })
}

/// The length of a quarantined line.
pub(super) fn quarantined_bytes(db: &Connection, seq: i64) -> Result<i64> {
    let bytes = db
        .query_row(
            "SELECT length(line) FROM quarantine WHERE seq = ?1",
            [seq],
            |row| row.get(0),
        )
        .optional()?;
    Ok(bytes.unwrap_or(0))
}
