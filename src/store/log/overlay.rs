//! What the log comes to: messages and ops that the tables do not have yet.

use super::super::access::{UsageRow, add_usage};
use super::super::apply::{CommandOutcome, NextIds};
use super::super::chats;
use super::super::command::Command;
use super::super::completion::{
    ChatRow, InboxKind, InboxRow, InboxSeq, NewOp, OpRow, OpSeq, OpSeqs, OpState, RowState, WaitingRow,
};
use super::super::dedupe::DedupeKey;
use super::super::finished::{self, FinishedRecord};
use super::codec::LogWriter;
use crate::collections::IdMap;
use rusqlite::{Connection, Result, Statement, params};
use smol_str::SmolStr;
use std::sync::Arc;

/// Messages at which the overlay is moved into the tables: few enough to delay one commit by a few milliseconds.
const MAX_MESSAGES: usize = if cfg!(test) { 12 } else { 1024 };
/// Finished messages that are packed at once, and not as rows of `done`.
const PACK_AT: usize = if cfg!(test) { 3 } else { 64 };
/// Bytes of the log at which the overlay is moved into the tables.
const MAX_BYTES: usize = 2 << 20;
/// Bytes of unfinished messages and ops that may stay in the log when the rest is moved.
const MAX_CARRIED: usize = 256 << 10;
/// Starts of a message that may stay.
const MAX_CARRIED_STARTS: u32 = 2;

/// Commands that no log holds: those that only read, and those about what only the tables have. A pattern, so that every command is
/// either here or in each match that this is in.
macro_rules! never_logged {
    () => {
        Command::SetAccess(_)
            | Command::Cron { .. }
            | Command::Handed { .. }
            | Command::Quarantine { .. }
            | Command::Load { .. }
            | Command::NextQueued { .. }
            | Command::NextWaiting { .. }
            | Command::NextOps { .. }
            | Command::Repair { .. }
            | Command::OpDropped { .. }
            | Command::SetResume { .. }
            | Command::DropResume { .. }
            | Command::LoadResume { .. }
            | Command::FindResume { .. }
    };
}

/// The state since the tables were last brought up to date.
#[derive(Debug, Default)]
pub(in crate::store) struct Overlay {
    /// Unfinished messages.
    rows: IdMap<InboxSeq, LoggedRow>,
    /// Finished messages.
    done: Vec<LoggedEnd>,
    /// Unsettled ops.
    ops: IdMap<OpSeq, OpRow>,
    /// What was told about chats, in order; a chat may be there more than once.
    chats: Vec<ChatRow>,
    usage: Vec<UsageRow>,
    messages: usize,
    bytes: usize,
    /// What came before these stayed in the log already when the rest was moved.
    carried: Option<NextIds>,
}

/// A message that came since then.
#[derive(Debug)]
struct LoggedRow {
    row: InboxRow,
    dedupe: Option<DedupeKey>,
}

/// A message that ended since then.
#[derive(Debug)]
struct LoggedEnd {
    row: InboxRow,
    dedupe: Option<DedupeKey>,
    ended_at: i64,
}

impl LoggedRow {
    /// Adds the commands that come to this message.
    fn push_to(&self, batch: &mut LogWriter) {
        let row = &self.row;
        let starts_at_once = row.attempt == 1 && row.started_at == Some(row.received_at);
        batch.push(&Command::Accept {
            token: 0,
            kind: row.kind,
            session: Arc::clone(&row.session),
            dedupe: self.dedupe,
            buffer_id: row.buffer_id.clone().map(String::from),
            line: row.line.clone().unwrap_or_default(),
            start: starts_at_once,
            repeatable: row.repeatable,
            now_ms: row.received_at,
        });
        if let Some(now_ms) = row.started_at
            && !starts_at_once
        {
            for _ in 0..row.attempt {
                batch.push(&Command::Start {
                    seq: row.seq,
                    repeatable: row.repeatable,
                    now_ms,
                });
            }
        }
        if row.shown.is_some() {
            batch.push(&Command::SetShown {
                seq: row.seq,
                shown: row.shown.clone(),
            });
        }
    }
}

/// Adds a batch to the log; returns its bytes.
fn append_batch(append: &mut Statement<'_>, batch: &LogWriter) -> Result<usize> {
    let bytes = batch.bytes().unwrap_or_default();
    append.execute([bytes])?;
    Ok(bytes.len())
}

impl LoggedEnd {
    fn record(&self) -> FinishedRecord<'_> {
        FinishedRecord {
            seq: self.row.seq.0,
            kind: self.row.kind,
            session: &self.row.session,
            buffer_id: self.row.buffer_id.as_deref(),
            state: self.row.state,
            attempt: self.row.attempt,
            received_at: self.row.received_at,
            started_at: self.row.started_at,
            ended_at: self.ended_at,
        }
    }
}

impl Overlay {
    /// Whether the tables have everything.
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether it is time to move it into the tables.
    pub(in crate::store) fn is_full(&self) -> bool {
        self.messages >= MAX_MESSAGES || self.bytes >= MAX_BYTES
    }

    /// A row of so many bytes was added to the log.
    pub(in crate::store) fn logged(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether a command can be logged: it is about nothing that is in the tables.
    pub(in crate::store) fn covers(&self, command: &Command) -> bool {
        match command {
            never_logged!() => false,
            Command::Start { seq, .. }
            | Command::SetRepeatable { seq }
            | Command::SetLine { seq, .. }
            | Command::SetShown { seq, .. } => self.rows.contains_key(seq),
            // The line of an interrupted message is kept in its row.
            Command::End { seq, state, .. } => *state != RowState::Interrupted && self.rows.contains_key(seq),
            Command::OpSent { op } | Command::OpChanged { op, .. } | Command::OpSettled { op } => {
                self.ops.contains_key(op)
            }
            Command::Accept { .. }
            | Command::Ignore { .. }
            | Command::AddOps { .. }
            | Command::RememberChat(_)
            | Command::AddUsage(_) => true,
        }
    }

    /// Applies a logged command, and takes the bytes of its ops, or of what is known about its chat. A command about what is not here has no effect.
    pub(in crate::store) fn apply(&mut self, command: &mut Command, ids: &mut NextIds) -> CommandOutcome {
        match command {
            Command::Accept { .. } => self.accept(command, ids),
            Command::Ignore {
                kind,
                session,
                dedupe,
                buffer_id,
                now_ms,
                ..
            } => {
                let message = LoggedMessage {
                    kind: *kind,
                    session,
                    buffer_id: buffer_id.as_deref(),
                    received_at: *now_ms,
                };
                let mut row = self.message(&message, ids);
                row.state = RowState::Ignored;
                let seq = row.seq;
                self.done.push(LoggedEnd {
                    row,
                    dedupe: *dedupe,
                    ended_at: *now_ms,
                });
                CommandOutcome::Accepted(seq)
            }
            Command::Start {
                seq,
                repeatable,
                now_ms,
            } => self.start(*seq, *repeatable, *now_ms),
            Command::SetRepeatable { seq } => {
                if let Some(LoggedRow { row, .. }) = self.rows.get_mut(seq) {
                    row.repeatable |= row.state == RowState::Running;
                }
                CommandOutcome::Silent
            }
            Command::SetLine { seq, kind, line } => {
                if let Some(LoggedRow { row, .. }) = self.rows.get_mut(seq) {
                    (row.kind, row.line) = (*kind, Some(Arc::clone(line)));
                }
                CommandOutcome::Silent
            }
            Command::SetShown { seq, shown } => {
                if let Some(LoggedRow { row, .. }) = self.rows.get_mut(seq)
                    && row.state == RowState::Running
                {
                    row.shown.clone_from(shown);
                }
                CommandOutcome::Silent
            }
            Command::End {
                seq,
                state,
                ops,
                now_ms,
            } => {
                if !self.end(*seq, *state, *now_ms) {
                    return CommandOutcome::Missing(*seq);
                }
                CommandOutcome::Ended(self.add_ops(Some(*seq), ops, *now_ms, ids))
            }
            Command::AddOps {
                inbox, ops, now_ms, ..
            } => CommandOutcome::OpsAdded(self.add_ops(*inbox, ops, *now_ms, ids)),
            Command::OpSent { op } => {
                if let Some(row) = self.ops.get_mut(op) {
                    row.state = OpState::Sent;
                }
                CommandOutcome::Silent
            }
            Command::OpChanged { op, body } => {
                if let Some(row) = self.ops.get_mut(op) {
                    row.state = OpState::Pending;
                    row.op.clone_from(body);
                }
                CommandOutcome::Silent
            }
            Command::OpSettled { op } => {
                self.ops.remove(op);
                CommandOutcome::Silent
            }
            Command::RememberChat(chat) => {
                self.remember(chat);
                CommandOutcome::Silent
            }
            Command::AddUsage(row) => {
                self.usage.push(row.clone());
                CommandOutcome::Silent
            }
            never_logged!() => CommandOutcome::Silent,
        }
    }

    fn accept(&mut self, command: &Command, ids: &mut NextIds) -> CommandOutcome {
        let Command::Accept {
            kind,
            session,
            dedupe,
            buffer_id,
            line,
            start,
            repeatable,
            now_ms,
            ..
        } = command
        else {
            return CommandOutcome::Silent;
        };
        let message = LoggedMessage {
            kind: *kind,
            session,
            buffer_id: buffer_id.as_deref(),
            received_at: *now_ms,
        };
        let mut row = self.message(&message, ids);
        row.line = Some(line.clone());
        row.repeatable = *repeatable;
        if *start {
            (row.state, row.attempt, row.started_at) = (RowState::Running, 1, Some(*now_ms));
        }
        let seq = row.seq;
        self.rows.insert(seq, LoggedRow { row, dedupe: *dedupe });
        CommandOutcome::Accepted(seq)
    }

    fn start(&mut self, seq: InboxSeq, repeatable: bool, now_ms: i64) -> CommandOutcome {
        let Some(LoggedRow { row, .. }) = self.rows.get_mut(&seq) else {
            return CommandOutcome::Missing(seq);
        };
        row.state = RowState::Running;
        row.attempt += 1;
        row.started_at = Some(now_ms);
        row.shown = None;
        row.repeatable = repeatable;
        CommandOutcome::Started(row.attempt)
    }

    /// Ends a message; `false` if it is not here.
    fn end(&mut self, seq: InboxSeq, state: RowState, ended_at: i64) -> bool {
        let Some(LoggedRow { mut row, dedupe }) = self.rows.remove(&seq) else {
            return false;
        };
        (row.state, row.line, row.shown) = (state, None, None);
        self.done.push(LoggedEnd {
            row,
            dedupe,
            ended_at,
        });
        true
    }

    fn remember(&mut self, chat: &mut ChatRow) {
        self.chats.push(ChatRow {
            platform: chat.platform.clone(),
            chat_id: chat.chat_id.clone(),
            memory: std::mem::take(&mut chat.memory),
            last_used: chat.last_used,
        });
    }

    /// The row of a new message.
    fn message(&mut self, message: &LoggedMessage<'_>, ids: &mut NextIds) -> InboxRow {
        let seq = InboxSeq(ids.inbox);
        ids.inbox += 1;
        self.messages += 1;
        InboxRow {
            seq,
            kind: message.kind,
            session: Arc::clone(message.session),
            buffer_id: message.buffer_id.map(SmolStr::from),
            line: None,
            state: RowState::Queued,
            attempt: 0,
            received_at: message.received_at,
            started_at: None,
            shown: None,
            repeatable: false,
        }
    }

    /// Adds ops, and takes their bytes.
    pub(in crate::store) fn add_ops(
        &mut self,
        inbox: Option<InboxSeq>,
        ops: &mut [NewOp],
        created_at: i64,
        ids: &mut NextIds,
    ) -> OpSeqs {
        let (first, count) = (ids.op, u32::try_from(ops.len()).unwrap_or(u32::MAX));
        for op in ops {
            let seq = OpSeq(ids.op);
            ids.op += 1;
            let row = OpRow {
                seq,
                session: Arc::clone(&op.session),
                chat: Arc::clone(&op.chat),
                op: std::mem::take(&mut op.op),
                inbox,
                state: OpState::Pending,
                created_at,
            };
            self.ops.insert(seq, row);
        }
        OpSeqs::new(first, count)
    }
}

/// Reads. Everything here is newer than anything in the tables.
impl Overlay {
    /// An unfinished message.
    pub(in crate::store) fn row(&self, seq: InboxSeq) -> Option<&InboxRow> {
        self.rows.get(&seq).map(|logged| &logged.row)
    }

    /// Whether an unsettled op is here.
    pub(in crate::store) fn has_op(&self, op: OpSeq) -> bool {
        self.ops.contains_key(&op)
    }

    /// A session's waiting messages after this one, in order.
    pub(in crate::store) fn queued(&self, session: &str, after: InboxSeq) -> Vec<&InboxRow> {
        let mut rows: Vec<_> = self.waiting_rows(after).collect();
        rows.retain(|row| &*row.session == session);
        rows.sort_unstable_by_key(|row| row.seq);
        rows
    }

    /// All waiting messages after this one, in order.
    pub(in crate::store) fn waiting(&self, after: InboxSeq) -> Vec<WaitingRow> {
        let mut rows: Vec<_> = self
            .waiting_rows(after)
            .map(|row| WaitingRow {
                seq: row.seq,
                session: Arc::clone(&row.session),
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.seq);
        rows
    }

    fn waiting_rows(&self, after: InboxSeq) -> impl Iterator<Item = &InboxRow> {
        let rows = self.rows.values().map(|logged| &logged.row);
        rows.filter(move |row| row.state == RowState::Queued && row.seq > after)
    }

    /// Unsettled ops after this one, in order.
    pub(in crate::store) fn ops(&self, after: OpSeq) -> Vec<&OpRow> {
        let mut ops: Vec<_> = self.ops.values().filter(|op| op.seq > after).collect();
        ops.sort_unstable_by_key(|op| op.seq);
        ops
    }
}

/// What becomes of the pages of a log that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum FreedPages {
    /// They are overwritten, so that no text of a message that is over stays in the file.
    Overwritten,
    /// The next log takes them. Overwriting them would be a third of what a busy journal writes.
    NotOverwritten,
}

fn empty_log(db: &Connection, freed: FreedPages) -> Result<()> {
    let set = |mode: &str| -> Result<()> {
        let mut set = db.prepare_cached(&format!("PRAGMA secure_delete = {mode}"))?;
        set.query_row([], |_| Ok(()))
    };
    if freed == FreedPages::NotOverwritten {
        set("FAST")?;
    }
    let emptied = db.prepare_cached("DELETE FROM main.log")?.execute([]);
    if freed == FreedPages::NotOverwritten {
        set("ON")?;
    }
    emptied.map(drop)
}

/// Moving into the tables.
impl Overlay {
    /// Writes everything into the tables and empties the log. The caller's transaction makes both one step.
    pub(in crate::store) fn materialise(&self, db: &Connection, freed: FreedPages) -> Result<()> {
        self.write_unfinished(db, "main.")?;
        self.move_done(db)?;
        empty_log(db, freed)
    }

    /// Whether what is not finished may stay in the log: it is little, and none of it has stayed before.
    pub(in crate::store) fn can_carry(&self) -> bool {
        let (row, op) = self.carried.map_or((0, 0), |ids| (ids.inbox, ids.op));
        let is_young = |logged: &LoggedRow| {
            let LoggedRow { row: message, .. } = logged;
            message.seq.0 >= row && message.attempt <= MAX_CARRIED_STARTS && message.line.is_some()
        };
        let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let messages = self.rows.values().map(|logged| &logged.row);
        let bytes = messages
            .map(|row| size(row.line.as_deref()) + size(row.shown.as_deref()))
            .sum::<usize>()
            + self.ops.values().map(|op| op.op.len()).sum::<usize>();
        bytes <= MAX_CARRIED
            && self.rows.values().all(is_young)
            && self.ops.values().all(|waiting| waiting.seq.0 >= op)
    }

    /// Writes what is finished into the tables, and a new log of what is not; returns the bytes of that. The caller's transaction makes
    /// both one step.
    pub(in crate::store) fn move_finished(
        &self,
        db: &Connection,
        batch: &mut LogWriter,
        freed: FreedPages,
    ) -> Result<usize> {
        self.move_done(db)?;
        self.write_chats(db, "main.")?;
        empty_log(db, freed)?;
        let mut append = db.prepare_cached("INSERT INTO main.log (batch) VALUES (?1)")?;
        let mut bytes = 0;
        // A batch numbers its messages and ops one after the other.
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_unstable_by_key(|logged| logged.row.seq);
        for rows in rows.chunk_by(|one, next| one.row.seq.0 + 1 == next.row.seq.0) {
            batch.begin(NextIds {
                inbox: rows[0].row.seq.0,
                op: 1,
            });
            for logged in rows {
                logged.push_to(batch);
            }
            bytes += append_batch(&mut append, batch)?;
        }
        let ops = self.ops(OpSeq(0));
        for ops in ops.chunk_by(|one, next| one.seq.0 + 1 == next.seq.0) {
            batch.begin(NextIds {
                inbox: 1,
                op: ops[0].seq.0,
            });
            for op in ops {
                let new = NewOp {
                    session: Arc::clone(&op.session),
                    chat: Arc::clone(&op.chat),
                    op: op.op.clone(),
                };
                batch.push_ops(op.inbox, &[new], op.created_at);
                if op.state == OpState::Sent {
                    batch.push(&Command::OpSent { op: op.seq });
                }
            }
            bytes += append_batch(&mut append, batch)?;
        }
        Ok(bytes)
    }

    /// What is finished was moved: the log has so many bytes of the rest, which came before these ids.
    pub(in crate::store) fn keep_unfinished(&mut self, bytes: usize, ids: NextIds) {
        self.done.clear();
        self.chats.clear();
        self.usage.clear();
        (self.messages, self.bytes, self.carried) = (self.rows.len(), bytes, Some(ids));
    }

    /// Writes finished messages and what people used into the tables.
    fn move_done(&self, db: &Connection) -> Result<()> {
        if self.done.len() >= PACK_AT {
            self.pack_done(db)?;
        } else {
            self.write_done(db, "main.")?;
        }
        for row in &self.usage {
            add_usage(db, row)?;
        }
        Ok(())
    }

    /// Writes messages, ops and chats into the tables whose names begin so.
    pub(super) fn write(&self, db: &Connection, prefix: &str) -> Result<()> {
        self.write_unfinished(db, prefix)?;
        self.write_done(db, prefix)
    }

    /// Finished messages, in order.
    fn sorted_done(&self) -> Vec<&LoggedEnd> {
        let mut done: Vec<_> = self.done.iter().collect();
        done.sort_unstable_by_key(|ended| ended.row.seq);
        done
    }

    fn pack_done(&self, db: &Connection) -> Result<()> {
        let done = self.sorted_done();
        let keyed = done
            .iter()
            .filter_map(|ended| Some((ended.dedupe?, ended.row.seq.0)));
        finished::keep_keys(db, keyed)?;
        let records: Vec<FinishedRecord<'_>> = done.iter().map(|ended| ended.record()).collect();
        finished::pack_between(db, &records)
    }

    fn write_done(&self, db: &Connection, prefix: &str) -> Result<()> {
        if self.done.is_empty() {
            return Ok(());
        }
        let mut insert = db.prepare_cached(&format!(
            "INSERT INTO {prefix}done
             (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        ))?;
        for LoggedEnd {
            row,
            dedupe,
            ended_at,
        } in self.sorted_done()
        {
            insert.execute(params![
                row.seq.0,
                row.kind.code(),
                row.session,
                dedupe.as_ref().map(|key| key.as_bytes().as_slice()),
                row.buffer_id.as_deref(),
                row.state.code(),
                row.attempt,
                row.received_at,
                row.started_at,
                ended_at
            ])?;
        }
        Ok(())
    }

    fn write_unfinished(&self, db: &Connection, prefix: &str) -> Result<()> {
        let mut rows: Vec<_> = self.rows.values().collect();
        rows.sort_unstable_by_key(|logged| logged.row.seq);
        if !rows.is_empty() {
            let mut insert = db.prepare_cached(&format!(
                "INSERT INTO {prefix}inbox
                 (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, line, shown)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
            ))?;
            for LoggedRow { row, dedupe } in &rows {
                insert.execute(params![
                    row.seq.0,
                    row.kind.code(),
                    row.session,
                    dedupe.as_ref().map(|key| key.as_bytes().as_slice()),
                    row.buffer_id.as_deref(),
                    row.state.code(),
                    row.attempt,
                    row.received_at,
                    row.started_at,
                    row.line,
                    row.shown
                ])?;
            }
            // A reader of a journal of an earlier version has no such column, and no such rows.
            for LoggedRow { row, .. } in rows.iter().filter(|logged| logged.row.repeatable) {
                db.prepare_cached(&format!("UPDATE {prefix}inbox SET repeatable = 1 WHERE seq = ?1"))?
                    .execute([row.seq.0])?;
            }
        }
        if !self.ops.is_empty() {
            let mut insert = db.prepare_cached(&format!(
                "INSERT INTO {prefix}outbox (seq, session, chat, op, inbox_seq, state, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
            ))?;
            for op in self.ops(OpSeq(0)) {
                insert.execute(params![
                    op.seq.0,
                    op.session,
                    op.chat,
                    op.op,
                    op.inbox.map(|seq| seq.0),
                    i64::from(op.state == OpState::Sent),
                    op.created_at
                ])?;
            }
        }
        self.write_chats(db, prefix)
    }

    fn write_chats(&self, db: &Connection, prefix: &str) -> Result<()> {
        chats::write(db, prefix, &mut self.chats.iter().collect::<Vec<_>>())
    }

    /// What people used, as it was added.
    pub(super) fn usage(&self) -> &[UsageRow] {
        &self.usage
    }
}

/// What a new message brings.
struct LoggedMessage<'m> {
    kind: InboxKind,
    session: &'m Arc<str>,
    buffer_id: Option<&'m str>,
    received_at: i64,
}
