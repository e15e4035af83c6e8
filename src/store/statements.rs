//! The statements of the hot path, prepared once. It never decides anything.

use rusqlite::{Connection, Result, Statement};

/// Prepared statements of one connection.
pub(super) struct Statements<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) find_key: Statement<'c>,
    pub(super) add_key: Statement<'c>,
    pub(super) accept: Statement<'c>,
    pub(super) start: Statement<'c>,
    pub(super) finish: Statement<'c>,
    pub(super) forget: Statement<'c>,
    pub(super) count_run: Statement<'c>,
    pub(super) finish_run: Statement<'c>,
    pub(super) forget_run: Statement<'c>,
    pub(super) add_op: Statement<'c>,
    pub(super) op_sent: Statement<'c>,
    pub(super) ops_settled: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(db: &'c Connection) -> Result<Self> {
        Ok(Self {
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            find_key: db.prepare("SELECT seq FROM dedupe WHERE key = ?1")?,
            add_key: db.prepare("INSERT OR IGNORE INTO dedupe (key, seq, day) VALUES (?1, ?2, ?3)")?,
            accept: db.prepare(
                "INSERT INTO inbox (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, line)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9)",
            )?,
            start: db.prepare(
                "UPDATE inbox SET state = 1, attempt = attempt + 1, started_at = ?2 WHERE seq = ?1 RETURNING attempt",
            )?,
            finish: db.prepare(
                "INSERT INTO done (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
                 SELECT seq, kind, session, dedupe, buffer_id, ?2, attempt, received_at, started_at, ?3
                 FROM inbox WHERE seq = ?1",
            )?,
            forget: db.prepare("DELETE FROM inbox WHERE seq = ?1")?,
            count_run: db.prepare("SELECT count(*) FROM inbox WHERE seq BETWEEN ?1 AND ?2")?,
            finish_run: db.prepare(
                "INSERT INTO done (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
                 SELECT seq, kind, session, dedupe, buffer_id, ?3, attempt, received_at, started_at, ?4
                 FROM inbox WHERE seq BETWEEN ?1 AND ?2",
            )?,
            forget_run: db.prepare("DELETE FROM inbox WHERE seq BETWEEN ?1 AND ?2")?,
            add_op: db.prepare(
                "INSERT INTO outbox (seq, session, chat, op, inbox_seq, state, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
            )?,
            op_sent: db.prepare("UPDATE outbox SET state = 1 WHERE seq = ?1")?,
            ops_settled: db.prepare("DELETE FROM outbox WHERE seq BETWEEN ?1 AND ?2")?,
        })
    }
}
