//! The log: what was committed since the tables were last brought up to date.
//!
//! A commit of the usual commands (a message comes, starts, ends; ops are added and settled) is one row of the table `log`: the
//! commands as bytes ([`codec`]), appended to the last page, whatever is in them. What they come to is kept in memory
//! ([`Overlay`]). Every few hundred messages, when nothing else is to do, and at the close, the writer moves the overlay into the
//! tables and empties the log in one transaction ([`Overlay::materialise`]); a message that came and ended in between never
//! touches `inbox`, and an op that was settled in between never touches `outbox`. Under load, when the log is full, what is not
//! finished may stay in a new log for one more time ([`Overlay::move_finished`]): most of it is over soon. The next commit does that in
//! its own transaction, so that one sync is for both.
//!
//! Invariants:
//!
//! - A message or an op is either in the overlay or in the tables, and all of the overlay are newer than all of the tables. What is
//!   new is logged; what is about a row of the tables changes it there, in the same transaction. A command that could be about
//!   both (an item that is handed over, a repair, an interrupted message) first moves everything into the tables, in its own
//!   transaction.
//! - The overlay is what the log's rows come to: opening a journal replays them.
//! - Of what is not finished, all stays in the log or nothing, so that the tables never have something newer.
//! - The overlay is bounded ([`Overlay::is_full`]).
//! - The text of what is finished is gone from the file when the journal is idle or closed: a log that is moved then is overwritten, and
//!   pages of one that was moved under load ([`FreedPages`]) are given back if nothing has used them again.

mod codec;
mod overlay;
mod shadow;
#[cfg(test)]
mod tests;

#[cfg(feature = "nats")]
pub(super) use codec::read as read_batch;
pub(super) use codec::{BatchError, LogWriter};
#[cfg(feature = "internals")]
pub use codec::{decode_batch, encode_batch};
pub(super) use overlay::{FreedPages, Overlay};
pub(super) use shadow::{create as create_shadow, fill as fill_shadow};

use rusqlite::{Connection, Result, TransactionBehavior};

pub(super) const SCHEMA: &str = "
    CREATE TABLE log (seq INTEGER PRIMARY KEY, batch BLOB NOT NULL) STRICT;
";

/// What the rows of the log come to.
fn replay(db: &Connection) -> Result<Overlay> {
    let mut overlay = Overlay::default();
    let mut batches = db.prepare("SELECT batch FROM main.log ORDER BY seq")?;
    let mut rows = batches.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(0)?.as_blob()?;
        let (mut ids, mut commands) = codec::read(bytes).map_err(BatchError::into_sql)?;
        overlay.logged(bytes.len());
        for command in &mut commands {
            overlay.apply(command, &mut ids);
        }
    }
    Ok(overlay)
}

/// Moves what an earlier process left in the log into the tables.
pub(super) fn recover(db: &mut Connection) -> Result<()> {
    let is_empty: bool = db.query_row("SELECT NOT EXISTS (SELECT 1 FROM log)", [], |row| row.get(0))?;
    if is_empty {
        return Ok(());
    }
    // It reads before it writes: with the lock from the start, it waits for others that write.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    replay(&transaction)?.materialise(&transaction, FreedPages::Overwritten)?;
    transaction.commit()
}
