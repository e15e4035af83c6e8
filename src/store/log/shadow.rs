//! The tables as a reader sees them: with what is in the log.
//!
//! A reader cannot move the log into the tables. It writes what the log comes to into temporary tables of its own, and
//! temporary views with the names of the tables show both.

use super::replay;
use rusqlite::{Connection, Result, params};

/// Makes the temporary tables and views of a connection, empty. `total` and not `sum`, which fails on a sum that is too large.
pub(in crate::store) fn create(db: &Connection) -> Result<()> {
    db.execute_batch(
        "CREATE TEMP TABLE log_inbox AS SELECT * FROM main.inbox LIMIT 0;
         CREATE TEMP TABLE log_done AS SELECT * FROM main.done LIMIT 0;
         CREATE TEMP TABLE log_outbox AS SELECT * FROM main.outbox LIMIT 0;
         CREATE TEMP TABLE log_usage AS SELECT * FROM main.usage LIMIT 0;
         CREATE TEMP TABLE log_chats (platform, chat_id, memory, last_used, PRIMARY KEY (platform, chat_id));
         CREATE TEMP VIEW inbox AS SELECT * FROM main.inbox UNION ALL SELECT * FROM temp.log_inbox;
         CREATE TEMP VIEW done AS SELECT * FROM main.done UNION ALL SELECT * FROM temp.log_done;
         CREATE TEMP VIEW outbox AS SELECT * FROM main.outbox UNION ALL SELECT * FROM temp.log_outbox;
         CREATE TEMP VIEW usage AS
             SELECT day, platform, person, chat, agent,
                 CAST(total(turns) AS INTEGER) AS turns, CAST(total(tokens) AS INTEGER) AS tokens
             FROM (SELECT * FROM main.usage UNION ALL SELECT * FROM temp.log_usage)
             GROUP BY day, platform, person, chat, agent;
         CREATE TEMP VIEW chats AS
             SELECT * FROM main.chats AS old WHERE NOT EXISTS
                 (SELECT 1 FROM temp.log_chats AS new WHERE new.platform = old.platform AND new.chat_id = old.chat_id)
             UNION ALL SELECT * FROM temp.log_chats;",
    )
}

/// Fills the temporary tables from the log. The caller's transaction makes it one moment with whatever is read next.
pub(in crate::store) fn fill(db: &Connection) -> Result<()> {
    for table in ["inbox", "done", "outbox", "usage", "chats"] {
        db.prepare_cached(&format!("DELETE FROM temp.log_{table}"))?
            .execute([])?;
    }
    let overlay = replay(db)?;
    overlay.write(db, "temp.log_")?;
    let mut insert = db.prepare_cached(
        "INSERT INTO temp.log_usage (day, platform, person, chat, agent, turns, tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for row in overlay.usage() {
        insert.execute(params![
            row.day,
            row.platform,
            row.person,
            row.chat,
            row.agent,
            row.turns,
            row.tokens
        ])?;
    }
    Ok(())
}
