//! What others handed to the agents: each under its `dispatch_id`, so that the same one again is answered and not acted on, and
//! the context that waits for a session's next turn.

use rusqlite::{Connection, OptionalExtension, Result, params};

use super::completion::InboxSeq;
use std::ops::RangeInclusive;

/// Days for which a handed-over item is recognised.
pub(super) const KEEP_DAYS: i64 = 7;
/// Maximum items that are recognised; beyond it the oldest are forgotten before their time.
pub(super) const MAX_KEPT: i64 = 100_000;
/// Maximum bytes of context that wait for one session's next turn.
pub const MAX_CONTEXT_BYTES: usize = 256 << 10;
/// Maximum contexts that wait, in all sessions.
const MAX_WAITING: i64 = 10_000;
/// Maximum bytes of context that wait, in all sessions: a running relay holds them in memory.
const MAX_TOTAL_BYTES: usize = 16 << 20;

pub(super) const SCHEMA: &str = "
    CREATE TABLE deliveries (
        dispatch_id TEXT PRIMARY KEY,
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        has_session INTEGER NOT NULL,
        received_at INTEGER NOT NULL,
        context TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX deliveries_by_age ON deliveries (received_at) WHERE context IS NULL;
    CREATE INDEX deliveries_waiting ON deliveries (session, received_at) WHERE context IS NOT NULL;
";

/// What a sender said of context that waits, as JSON: for those who look into the journal.
pub(super) const META: &str = "
    ALTER TABLE deliveries ADD COLUMN meta TEXT;
";

/// An item to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHandedItem {
    /// Its id.
    pub dispatch_id: String,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: String,
    /// Whether the sender named it.
    pub has_session: bool,
    /// What it does.
    pub body: HandedBody,
    /// Unix milliseconds.
    pub now_ms: i64,
}

/// What an item does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandedBody {
    /// It waits for the session's next turn.
    Context {
        /// The text.
        text: String,
        /// What its sender said of it, as JSON.
        meta: String,
    },
    /// It is a turn, which waits: its row's line.
    Turn(Vec<u8>),
}

/// What is done to items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandedCommand {
    /// Store one: [`HandedReply::Stored`], [`HandedReply::Known`] or [`HandedReply::Full`].
    Take(NewHandedItem),
    /// All context that waits: [`HandedReply::Contexts`].
    Contexts,
    /// A turn has taken this context: [`HandedReply::Done`].
    Taken(Vec<String>),
    /// The turn of an item has not begun and waits again: [`HandedReply::Done`].
    PutBack(InboxSeq),
}

/// The answer to a [`HandedCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandedReply {
    /// It is stored; the row of its turn, if it is one.
    Stored(Option<InboxSeq>),
    /// It came before.
    Known {
        /// The agent that it was for.
        agent: String,
        /// When, in Unix milliseconds.
        received_at: i64,
        /// The session, if the sender named it.
        session: Option<String>,
    },
    /// Too much waits for the session's next turn.
    Full,
    /// The oldest first.
    Contexts(Vec<PendingContext>),
    /// It is done.
    Done,
}

/// Context that waits for an agent's next turn in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingContext {
    /// The item's id.
    pub dispatch_id: String,
    /// The session.
    pub session: String,
    /// The agent.
    pub agent: String,
    /// The text.
    pub text: String,
}

/// The item that came before under this id.
pub(super) fn find(db: &Connection, dispatch_id: &str) -> Result<Option<HandedReply>> {
    db.prepare_cached(
        "SELECT received_at, session, has_session, agent FROM deliveries WHERE dispatch_id = ?1",
    )?
    .query_row([dispatch_id], |row| {
        let has_session: bool = row.get(2)?;
        Ok(HandedReply::Known {
            agent: row.get(3)?,
            received_at: row.get(0)?,
            session: has_session.then(|| row.get(1)).transpose()?,
        })
    })
    .optional()
}

/// Whether there is room for this context.
pub(super) fn has_room(db: &Connection, session: &str, text: &str, meta: &str) -> Result<bool> {
    let (waiting, total, own): (i64, i64, i64) = db
        .prepare_cached(
            "SELECT count(*), ifnull(sum(length(CAST(context AS BLOB)) + ifnull(length(CAST(meta AS BLOB)), 0)), 0),
                 ifnull(sum(length(CAST(context AS BLOB))) FILTER (WHERE session = ?1), 0)
             FROM deliveries WHERE context IS NOT NULL",
        )?
        .query_row([session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let with_text = |bytes: i64| usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes + text.len());
    let fits_in_all = with_text(total).saturating_add(meta.len()) <= MAX_TOTAL_BYTES;
    Ok(waiting < MAX_WAITING && fits_in_all && with_text(own) <= MAX_CONTEXT_BYTES)
}

/// Stores an item.
pub(super) fn insert(db: &Connection, new: &NewHandedItem) -> Result<()> {
    let (context, meta) = match &new.body {
        HandedBody::Context { text, meta } => (Some(text), Some(meta)),
        HandedBody::Turn(_) => (None, None),
    };
    db.prepare_cached(
        "INSERT INTO deliveries (dispatch_id, agent, session, has_session, received_at, context, meta)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        new.dispatch_id,
        new.agent,
        new.session,
        new.has_session,
        new.now_ms,
        context,
        meta
    ])?;
    Ok(())
}

/// Forgets items that came at none of these times, at most so many of them; returns how many. Context that waits stays.
pub(super) fn forget_old(db: &Connection, kept: &RangeInclusive<i64>, at_most: i64) -> Result<usize> {
    db.prepare_cached(
        "DELETE FROM deliveries WHERE dispatch_id IN
         (SELECT dispatch_id FROM deliveries WHERE context IS NULL AND (received_at < ?1 OR received_at > ?2) LIMIT ?3)",
    )?
    .execute(params![kept.start(), kept.end(), at_most])
}

/// Forgets the oldest items if more than `max` are known, at most so many of them; returns how many. Context that waits stays.
pub(super) fn forget_oldest(db: &Connection, max: i64, at_most: i64) -> Result<usize> {
    let known: i64 = db
        .prepare_cached("SELECT count(*) FROM deliveries WHERE context IS NULL")?
        .query_row([], |row| row.get(0))?;
    let over = (known - max).min(at_most);
    if over <= 0 {
        return Ok(0);
    }
    db.prepare_cached(
        "DELETE FROM deliveries WHERE dispatch_id IN
         (SELECT dispatch_id FROM deliveries WHERE context IS NULL ORDER BY received_at LIMIT ?1)",
    )?
    .execute([over])
}

/// All context that waits, the oldest first.
pub(super) fn contexts(db: &Connection) -> Result<Vec<PendingContext>> {
    let mut find = db.prepare_cached(
        "SELECT dispatch_id, session, agent, context FROM deliveries WHERE context IS NOT NULL ORDER BY received_at",
    )?;
    let rows = find.query_map([], |row| {
        Ok(PendingContext {
            dispatch_id: row.get(0)?,
            session: row.get(1)?,
            agent: row.get(2)?,
            text: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// A turn has taken this context; its ids are still recognised.
pub(super) fn taken(db: &Connection, dispatch_ids: &[String]) -> Result<()> {
    let mut update =
        db.prepare_cached("UPDATE deliveries SET context = NULL, meta = NULL WHERE dispatch_id = ?1")?;
    for id in dispatch_ids {
        update.execute([id])?;
    }
    Ok(())
}

/// A row that was marked as running waits again.
pub(super) fn put_back(db: &Connection, row: InboxSeq) -> Result<()> {
    db.prepare_cached("UPDATE inbox SET state = 0, started_at = NULL WHERE seq = ?1 AND state = 1")?
        .execute([row.0])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_context_is_kept_as_long_as_it_waits_and_takes_room() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db.execute_batch(META).unwrap();
        let meta = r#"{"dispatch_id":"d","novel":[1]}"#;
        let new = NewHandedItem {
            dispatch_id: "d".to_owned(),
            agent: "a".to_owned(),
            session: "s".to_owned(),
            has_session: true,
            body: HandedBody::Context {
                text: "wait".to_owned(),
                meta: meta.to_owned(),
            },
            now_ms: 1,
        };
        insert(&db, &new).unwrap();
        let kept = || -> Option<String> {
            db.query_row("SELECT meta FROM deliveries", [], |row| row.get(0))
                .unwrap()
        };
        assert_eq!(kept().as_deref(), Some(meta));
        assert!(has_room(&db, "s", "text", meta).unwrap());
        let huge = "x".repeat(MAX_TOTAL_BYTES - meta.len() - 8);
        assert!(has_room(&db, "t", "text", &huge).unwrap());
        assert!(!has_room(&db, "t", "text!", &huge).unwrap());
        taken(&db, &["d".to_owned()]).unwrap();
        assert_eq!(kept(), None);
        assert!(find(&db, "d").unwrap().is_some(), "it is still recognised");
    }

    #[test]
    fn too_many_are_forgotten_from_the_oldest_on_and_context_that_waits_stays() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        db.execute_batch(META).unwrap();
        for number in 0..10 {
            let body = if number == 1 {
                HandedBody::Context {
                    text: "wait".to_owned(),
                    meta: "{}".to_owned(),
                }
            } else {
                HandedBody::Turn(Vec::new())
            };
            let new = NewHandedItem {
                dispatch_id: format!("d{number}"),
                agent: "a".to_owned(),
                session: "s".to_owned(),
                has_session: true,
                body,
                now_ms: number,
            };
            insert(&db, &new).unwrap();
        }
        let waiting = contexts(&db).unwrap();
        let waiting: Vec<_> = (waiting.iter())
            .map(|one| (&*one.dispatch_id, &*one.text))
            .collect();
        assert_eq!(waiting, [("d1", "wait")]);
        let is_known = |number: i64| find(&db, &format!("d{number}")).unwrap().is_some();
        assert_eq!(forget_oldest(&db, 9, 2).unwrap(), 0, "the limit");
        assert_eq!(forget_oldest(&db, 4, 2).unwrap(), 2, "in slices");
        assert_eq!(forget_oldest(&db, 4, 100).unwrap(), 3);
        let known: Vec<i64> = (0..10).filter(|number| is_known(*number)).collect();
        assert_eq!(known, [1, 6, 7, 8, 9]);
    }
}
