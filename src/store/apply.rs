//! One transaction: commands in, outcomes out, completions only after the commit.
//!
//! A transaction adds one row to the log and changes what the tables have already. When a command is about both, it moves the log
//! into the tables first, and applies everything there. [`JournalDb`] keeps the few values that a rollback must restore. It never commits half of a
//! command, and never makes a completion for a transaction that did not commit.

use super::access;
use super::chats;
use super::command::Command;
use super::completion::{Committed, InboxSeq, OpSeq, OpSeqs};
use super::completion::{Completion, Failed, InboxKind, RowState};
use super::cron;
use super::days::Calendar;
use super::dedupe::DedupeKey;
use super::dedupe::RecentKeys;
use super::fault::Fault;
use super::finished;
use super::handed::{self, HandedBody, HandedCommand, HandedReply, NewHandedItem};
use super::inspect::Item;
use super::key_index::{FindKey, KeyIndex};
use super::log::{FreedPages, LogWriter, Overlay};
use super::reads;
use super::reads::WriterState;
use super::repair::{self, Beside, Repaired};
use super::replication::Replication;
use super::retention::{Quarantine, ResumeStates, free_pages};
use rusqlite::{Connection, OptionalExtension, Result, Statement, params};

/// The database, its prepared statements, and state that follows its transactions.
pub(super) struct JournalDb<'c> {
    pub(super) db: &'c Connection,
    pub(super) recent: RecentKeys,
    pub(super) quarantine: Quarantine,
    pub(super) resume: ResumeStates,
    /// None until the time is known.
    pub(super) calendar: Option<Calendar>,
    /// The earliest and the latest time of what was written since the last upkeep.
    pub(super) written_ms: Option<(i64, i64)>,
    pub(super) statements: Statements<'c>,
    pub(super) counters: NextIds,
    pub(super) overlay: Overlay,
    pub(super) batch: LogWriter,
    pub(super) replication: Option<Replication>,
    pub(super) index: KeyIndex,
    /// Whether pages that nothing uses may have text of messages.
    pub(super) has_text_in_free_pages: bool,
}

/// The next row ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextIds {
    pub(super) inbox: i64,
    pub(super) op: i64,
}

/// Why a transaction did not commit, and which command caused it, if one did.
#[derive(Debug)]
pub(super) struct TransactionError {
    pub(super) fault: Fault,
    pub(super) at: Option<usize>,
}

/// The outcome of a command before the commit.
#[derive(Debug)]
pub(super) enum CommandOutcome {
    Accepted(InboxSeq),
    Duplicate,
    Quarantined,
    Started(u32),
    Missing(InboxSeq),
    Ended(OpSeqs),
    OpsAdded(OpSeqs),
    Read(Completion),
    Silent,
}

impl<'c> JournalDb<'c> {
    pub(super) fn new(db: &'c Connection, writer_state: WriterState) -> Result<Self> {
        let WriterState {
            recent,
            quarantine,
            resume,
            calendar,
            counters,
        } = writer_state;
        let index = KeyIndex::open(db)?;
        let statements = Statements::prepare(db)?;
        // Those of a process that was killed.
        let has_text_in_free_pages = free_pages(db)? > 0;
        Ok(Self {
            db,
            recent,
            quarantine,
            resume,
            calendar,
            written_ms: None,
            statements,
            counters,
            overlay: Overlay::default(),
            batch: LogWriter::default(),
            replication: None,
            index,
            has_text_in_free_pages,
        })
    }

    /// Runs all commands in one transaction and commits, or rolls everything back. The bytes of committed ops are taken out of them.
    pub(super) fn commit_commands(
        &mut self,
        commands: &mut [Command],
        now_ms: i64,
    ) -> std::result::Result<Vec<CommandOutcome>, TransactionError> {
        let before = self.counters;
        let mut at = None;
        self.calendar.get_or_insert_with(|| Calendar::new(now_ms));
        for command in &*commands {
            self.note_time(command);
        }
        let result = match self.route_in_one_read(commands, &mut at) {
            Ok(Some(routes)) => {
                let written = self.write(commands, &routes, now_ms);
                match self.settle(before, written) {
                    Ok(written) => Ok(self.apply_logged(commands, routes, written)),
                    // In the tables it shows which of the commands is impossible.
                    Err(error) if !Fault::from_error(&error).fails_commit() => {
                        self.run_in_tables(commands, now_ms, &mut at)
                    }
                    Err(error) => Err(error),
                }
            }
            Ok(None) => {
                self.recent.rolled_back();
                self.run_in_tables(commands, now_ms, &mut at)
            }
            Err(error) => self.settle(before, Err(error)),
        };
        result.map_err(|error| TransactionError {
            fault: Fault::from_error(&error),
            at,
        })
    }

    /// Notes the time of a command that is written.
    pub(super) fn note_time(&mut self, command: &Command) {
        if let Some(at_ms) = command.now_ms() {
            let (earliest, latest) = self.written_ms.unwrap_or((at_ms, at_ms));
            self.written_ms = Some((earliest.min(at_ms), latest.max(at_ms)));
        }
    }

    /// The same with commands that are needed again.
    #[cfg(test)]
    pub(super) fn transact(
        &mut self,
        commands: &[Command],
        now_ms: i64,
    ) -> std::result::Result<Vec<CommandOutcome>, TransactionError> {
        self.commit_commands(&mut commands.to_vec(), now_ms)
    }

    /// Moves the log into the tables and applies the commands to them, in one transaction.
    pub(super) fn run_in_tables(
        &mut self,
        commands: &[Command],
        now_ms: i64,
        at: &mut Option<usize>,
    ) -> Result<Vec<CommandOutcome>> {
        let before = self.counters;
        let result = self.run(commands, now_ms, at);
        let outcomes = self.settle(before, result)?;
        self.overlay = Overlay::default();
        Ok(outcomes)
    }

    /// Runs upkeep in a transaction of its own.
    pub(super) fn upkeep<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> std::result::Result<T, Fault> {
        let before = self.counters;
        let result = self
            .statements
            .begin
            .execute([])
            .and_then(|_| work(self))
            .and_then(|value| {
                self.statements.commit.execute([])?;
                Ok(value)
            });
        self.settle(before, result)
            .map_err(|error| Fault::from_error(&error))
    }

    /// Writes and removes a few pages to see whether the disk accepts writes.
    pub(super) fn probe(&mut self) -> std::result::Result<(), Fault> {
        self.upkeep(|journal_db| {
            journal_db.db.execute(
                "INSERT OR REPLACE INTO meta (name, value) VALUES ('probe', zeroblob(16384))",
                [],
            )
        })?;
        self.upkeep(|journal_db| journal_db.db.execute("DELETE FROM meta WHERE name = 'probe'", []))?;
        Ok(())
    }

    /// Runs a command that only reads, outside any transaction.
    pub(super) fn read(&self, command: &Command) -> Option<Completion> {
        reads::answer(self.db, &self.overlay, command).unwrap_or_else(|error| {
            Some(Completion::Failed(Failed {
                subject: command.subject(),
                fault: Fault::from_error(&error),
            }))
        })
    }

    /// Moves up to `limit` recent keys into the index.
    pub(super) fn move_keys(&mut self, limit: usize, now_ms: i64) -> Result<()> {
        let day = self.calendar.get_or_insert_with(|| Calendar::new(now_ms)).day;
        let slice = self.recent.slice(limit);
        if slice.is_empty() {
            return Ok(());
        }
        self.index.add(self.db, slice, day)?;
        if let Some(upto) = self.recent.completes() {
            self.db
                .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('indexed_upto', ?1)")?
                .execute([upto.0])?;
            finished::drop_keys(self.db, upto)?;
            self.index.begin_pass_if_due();
        }
        Ok(())
    }

    /// Goes on with what the index has to do: keys leave memory, or runs become blocks.
    pub(super) fn tend_index(&mut self, limit: usize, now_ms: i64) -> Result<()> {
        if self.recent.is_moving() {
            self.move_keys(limit, now_ms)
        } else {
            self.index.step(self.db)
        }
    }

    fn settle<T>(&mut self, before: NextIds, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => {
                self.recent.committed();
                self.quarantine.committed();
                self.resume.committed();
                Ok(value)
            }
            Err(error) => {
                self.counters = before;
                self.recent.rolled_back();
                self.quarantine.rolled_back();
                self.resume.rolled_back();
                if !self.db.is_autocommit() {
                    // If the rollback fails, the next BEGIN reports it.
                    let _ = self.db.execute_batch("ROLLBACK");
                }
                Err(error)
            }
        }
    }

    fn run(
        &mut self,
        commands: &[Command],
        now_ms: i64,
        at: &mut Option<usize>,
    ) -> Result<Vec<CommandOutcome>> {
        self.statements.begin.execute([])?;
        if self.has_overlay() {
            self.overlay.materialise(self.db, FreedPages::Overwritten)?;
        }
        self.begin_replication();
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            *at = Some(outcomes.len());
            let outcome = self.apply(command)?;
            self.replicate_applied(command, &outcome);
            outcomes.push(outcome);
        }
        *at = None;
        self.tend_index(commands.len() * 2 + 64, now_ms)?;
        self.commit_replicated()?;
        Ok(outcomes)
    }

    pub(super) fn apply(&mut self, command: &Command) -> Result<CommandOutcome> {
        Ok(match command {
            Command::Accept { dedupe, .. } | Command::Ignore { dedupe, .. }
                if self.is_known(dedupe.as_ref())? =>
            {
                CommandOutcome::Duplicate
            }
            Command::Accept { .. } => self.accept(command)?,
            Command::Ignore { .. } => self.ignore(command)?,
            Command::SetAccess(row) => {
                access::set(self.db, row)?;
                CommandOutcome::Silent
            }
            Command::AddUsage(row) => {
                access::add_usage(self.db, row)?;
                CommandOutcome::Silent
            }
            Command::Cron { token, command } => CommandOutcome::Read(Completion::Cron {
                token: *token,
                reply: cron::apply(self.db, command)?,
            }),
            Command::Handed { token, command } => CommandOutcome::Read(Completion::Handed {
                token: *token,
                reply: self.deliver(command)?,
            }),
            Command::Quarantine {
                reason,
                buffer_id,
                line,
                now_ms,
                ..
            } => {
                self.quarantine
                    .put(self.db, reason, buffer_id.as_deref(), line, *now_ms)?;
                CommandOutcome::Quarantined
            }
            Command::Start {
                seq,
                repeatable,
                now_ms,
            } => self.start(*seq, *repeatable, *now_ms)?,
            Command::SetRepeatable { seq } => self.set_repeatable(*seq)?,
            Command::SetLine { seq, kind, line } => self.set_line(*seq, *kind, line)?,
            Command::SetShown { seq, shown } => self.set_shown(*seq, shown.as_deref())?,
            Command::End { .. } => self.end(command)?,
            Command::AddOps {
                inbox, ops, now_ms, ..
            } => CommandOutcome::OpsAdded(self.add_ops(*inbox, ops, *now_ms)?),
            Command::Repair { .. } => self.repair(command)?,
            Command::OpSent { op } => {
                self.statements.op_sent.execute([op.0])?;
                CommandOutcome::Silent
            }
            Command::OpChanged { op, body } => {
                self.db
                    .prepare_cached("UPDATE outbox SET op = ?2, state = 0 WHERE seq = ?1")?
                    .execute(params![op.0, body])?;
                CommandOutcome::Silent
            }
            Command::OpSettled { op } => {
                self.statements.op_settled.execute([op.0])?;
                CommandOutcome::Silent
            }
            Command::OpDropped {
                op,
                body,
                reason,
                now_ms,
            } => {
                self.keep_dropped(*op, body, reason, *now_ms)?;
                self.statements.op_settled.execute([op.0])?;
                CommandOutcome::Silent
            }
            Command::RememberChat(chat) => {
                chats::write(self.db, "", &mut [chat])?;
                CommandOutcome::Silent
            }
            Command::SetResume {
                session,
                blob,
                now_ms,
            } => {
                let now_ms = self.calendar.map_or(*now_ms, |calendar| calendar.now_ms(*now_ms));
                self.resume.put(self.db, session, blob, now_ms)?;
                CommandOutcome::Silent
            }
            Command::DropResume { session } => {
                self.resume.delete(self.db, session)?;
                CommandOutcome::Silent
            }
            Command::Load { .. }
            | Command::NextQueued { .. }
            | Command::NextWaiting { .. }
            | Command::NextOps { .. }
            | Command::LoadResume { .. }
            | Command::FindResume { .. } => reads::answer(self.db, &Overlay::default(), command)?
                .map_or(CommandOutcome::Silent, CommandOutcome::Read),
        })
    }

    fn repair(&mut self, command: &Command) -> Result<CommandOutcome> {
        let Command::Repair {
            token,
            repair,
            item,
            now_ms,
        } = *command
        else {
            return Ok(CommandOutcome::Silent);
        };
        let quarantined = match item {
            Item::Quarantined(seq) => repair::quarantined_bytes(self.db, seq)?,
            Item::Message(_) | Item::Op(_) => 0,
        };
        let repaired = repair::apply(self.db, repair, item, Beside::Relay, now_ms)?;
        if matches!(item, Item::Quarantined(_)) && repaired == Repaired::Dropped {
            self.quarantine.deleted(quarantined);
        }
        Ok(CommandOutcome::Read(Completion::Repaired { token, repaired }))
    }

    /// Copies an op into the table of dropped ones.
    fn keep_dropped(&self, op: OpSeq, body: &[u8], reason: &str, now_ms: i64) -> Result<()> {
        let mut copy = self.db.prepare_cached(
            "INSERT OR REPLACE INTO dropped (seq, session, chat, op, inbox_seq, created_at, dropped_at, reason)
             SELECT seq, session, chat, ?2, inbox_seq, created_at, ?3, ?4 FROM outbox WHERE seq = ?1",
        )?;
        copy.execute(params![op.0, body, now_ms, reason])?;
        Ok(())
    }

    pub(super) fn is_known(&mut self, key: Option<&DedupeKey>) -> Result<bool> {
        let Some(key) = key else { return Ok(false) };
        if self.recent.contains(key) {
            return Ok(true);
        }
        self.index.contains(self.db, &mut self.statements.find_key, key)
    }

    pub(super) fn accept(&mut self, command: &Command) -> Result<CommandOutcome> {
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
            return Ok(CommandOutcome::Silent);
        };
        let row = NewRow {
            kind: *kind,
            session,
            dedupe: dedupe.as_ref(),
            buffer_id: buffer_id.as_deref(),
            line,
            start: *start,
            repeatable: *repeatable,
            now_ms: *now_ms,
        };
        Ok(CommandOutcome::Accepted(self.insert(&row)?))
    }

    fn insert(&mut self, row: &NewRow<'_>) -> Result<InboxSeq> {
        let seq = InboxSeq(self.counters.inbox);
        let key = row.dedupe.map(|key| key.as_bytes().as_slice());
        self.statements.accept.execute(params![
            seq.0,
            row.kind.code(),
            row.session,
            key,
            row.buffer_id,
            i64::from(row.start),
            row.now_ms,
            row.start.then_some(row.now_ms),
            row.line,
            row.repeatable
        ])?;
        self.counters.inbox += 1;
        if let Some(key) = row.dedupe {
            self.recent.add(*key, seq);
        }
        Ok(seq)
    }

    pub(super) fn deliver(&mut self, command: &HandedCommand) -> Result<HandedReply> {
        let new = match command {
            HandedCommand::Contexts => return Ok(HandedReply::Contexts(handed::contexts(self.db)?)),
            HandedCommand::Taken(ids) => {
                handed::taken(self.db, ids)?;
                return Ok(HandedReply::Done);
            }
            HandedCommand::PutBack(row) => {
                handed::put_back(self.db, *row)?;
                return Ok(HandedReply::Done);
            }
            HandedCommand::Take(new) => new,
        };
        if let Some(known) = handed::find(self.db, &new.dispatch_id)? {
            return Ok(known);
        }
        if let HandedBody::Context { text, meta } = &new.body
            && !handed::has_room(self.db, &new.session, text, meta)?
        {
            return Ok(HandedReply::Full);
        }
        self.take(new)
    }

    /// Stores a delivery.
    pub(super) fn take(&mut self, new: &NewHandedItem) -> Result<HandedReply> {
        let row = match &new.body {
            HandedBody::Context { .. } => None,
            HandedBody::Turn(line) => Some(self.insert(&NewRow {
                kind: InboxKind::Handed,
                session: &new.session,
                dedupe: None,
                buffer_id: None,
                line,
                start: false,
                repeatable: false,
                now_ms: new.now_ms,
            })?),
        };
        handed::insert(self.db, new)?;
        Ok(HandedReply::Stored(row))
    }

    /// A message that is not acted on ends as it comes, without its text.
    pub(super) fn ignore(&mut self, command: &Command) -> Result<CommandOutcome> {
        let Command::Ignore {
            kind,
            session,
            dedupe,
            buffer_id,
            now_ms,
            ..
        } = command
        else {
            return Ok(CommandOutcome::Silent);
        };
        let seq = InboxSeq(self.counters.inbox);
        let key = dedupe.as_ref().map(|key| key.as_bytes().as_slice());
        self.db
            .prepare_cached(
                "INSERT INTO done
                 (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, NULL, ?7)",
            )?
            .execute(params![
                seq.0,
                kind.code(),
                session,
                key,
                buffer_id,
                RowState::Ignored.code(),
                now_ms
            ])?;
        self.counters.inbox += 1;
        if let Some(key) = dedupe {
            self.recent.add(*key, seq);
        }
        Ok(CommandOutcome::Accepted(seq))
    }

    fn start(&mut self, seq: InboxSeq, repeatable: bool, now_ms: i64) -> Result<CommandOutcome> {
        let attempt = self
            .statements
            .start
            .query_row(params![seq.0, now_ms, repeatable], |row| row.get(0))
            .optional()?;
        Ok(attempt.map_or(CommandOutcome::Missing(seq), CommandOutcome::Started))
    }

    fn set_repeatable(&mut self, seq: InboxSeq) -> Result<CommandOutcome> {
        self.db
            .prepare_cached("UPDATE inbox SET repeatable = 1 WHERE seq = ?1 AND state = 1")?
            .execute([seq.0])?;
        Ok(CommandOutcome::Silent)
    }

    fn set_line(&mut self, seq: InboxSeq, kind: InboxKind, line: &[u8]) -> Result<CommandOutcome> {
        self.db
            .prepare_cached("UPDATE inbox SET kind = ?2, line = ?3 WHERE seq = ?1 AND state IN (0, 1)")?
            .execute(params![seq.0, kind.code(), line])?;
        Ok(CommandOutcome::Silent)
    }

    fn set_shown(&mut self, seq: InboxSeq, shown: Option<&[u8]>) -> Result<CommandOutcome> {
        self.db
            .prepare_cached("UPDATE inbox SET shown = ?2 WHERE seq = ?1 AND state = 1")?
            .execute(params![seq.0, shown])?;
        Ok(CommandOutcome::Silent)
    }
}

/// A row of the inbox to store.
struct NewRow<'r> {
    kind: InboxKind,
    session: &'r str,
    dedupe: Option<&'r DedupeKey>,
    buffer_id: Option<&'r str>,
    line: &'r [u8],
    start: bool,
    repeatable: bool,
    now_ms: i64,
}

/// The completion of a command whose transaction committed. It takes what it needs of the command.
pub(super) fn complete(command: &mut Command, outcome: CommandOutcome) -> Option<Completion> {
    Some(match (command, outcome) {
        (
            Command::Accept { token, buffer_id, .. } | Command::Ignore { token, buffer_id, .. },
            CommandOutcome::Accepted(seq),
        ) => Completion::Accepted {
            token: *token,
            seq,
            receipt: Committed::new(buffer_id.take()),
        },
        (
            Command::Accept { token, buffer_id, .. } | Command::Ignore { token, buffer_id, .. },
            CommandOutcome::Duplicate,
        ) => Completion::Duplicate {
            token: *token,
            receipt: Committed::new(buffer_id.take()),
        },
        (Command::Quarantine { token, buffer_id, .. }, CommandOutcome::Quarantined) => {
            Completion::Quarantined {
                token: *token,
                receipt: Committed::new(buffer_id.take()),
            }
        }
        (Command::Start { seq, .. }, CommandOutcome::Started(attempt)) => {
            Completion::Started { seq: *seq, attempt }
        }
        (Command::End { seq, .. }, CommandOutcome::Ended(ops)) => Completion::Ended { seq: *seq, ops },
        (Command::AddOps { token, .. }, CommandOutcome::OpsAdded(ops)) => {
            Completion::OpsAdded { token: *token, ops }
        }
        (_, CommandOutcome::Missing(seq)) => Completion::Missing { seq },
        (_, CommandOutcome::Read(done)) => done,
        (_, _) => return None,
    })
}

/// Prepared statements of one connection.
pub(super) struct Statements<'c> {
    pub(super) begin: Statement<'c>,
    pub(super) begin_read: Statement<'c>,
    pub(super) commit: Statement<'c>,
    pub(super) append: Statement<'c>,
    pub(super) find_key: FindKey<'c>,
    pub(super) accept: Statement<'c>,
    pub(super) start: Statement<'c>,
    pub(super) finish: Statement<'c>,
    pub(super) keep: Statement<'c>,
    pub(super) delete: Statement<'c>,
    pub(super) add_op: Statement<'c>,
    pub(super) op_sent: Statement<'c>,
    pub(super) op_settled: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(db: &'c Connection) -> Result<Self> {
        Ok(Self {
            begin: db.prepare("BEGIN IMMEDIATE")?,
            begin_read: db.prepare("BEGIN")?,
            commit: db.prepare("COMMIT")?,
            append: db.prepare("INSERT INTO log (batch) VALUES (?1)")?,
            find_key: FindKey::prepare(db)?,
            accept: db.prepare(
                "INSERT INTO inbox (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, line, repeatable)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10)",
            )?,
            start: db.prepare(
                "UPDATE inbox SET state = 1, attempt = attempt + 1, started_at = ?2, shown = NULL, repeatable = ?3
                 WHERE seq = ?1 AND state < 2 RETURNING attempt",
            )?,
            finish: db.prepare(
                "INSERT INTO done (seq, kind, session, dedupe, buffer_id, state, attempt, received_at, started_at, ended_at)
                 SELECT seq, kind, session, dedupe, buffer_id, ?2, attempt, received_at, started_at, ?3
                 FROM inbox WHERE seq = ?1 AND state < 2",
            )?,
            keep: db.prepare("UPDATE inbox SET state = ?2, shown = NULL WHERE seq = ?1 AND kind <> ?3")?,
            delete: db.prepare("DELETE FROM inbox WHERE seq = ?1")?,
            add_op: db.prepare(
                "INSERT INTO outbox (seq, session, chat, op, inbox_seq, state, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
            )?,
            op_sent: db.prepare("UPDATE outbox SET state = 1 WHERE seq = ?1")?,
            op_settled: db.prepare("DELETE FROM outbox WHERE seq = ?1")?,
        })
    }
}
