//! Commits: what is new is written to the log as one row and then applied to the overlay, what is about older rows changes the
//! tables.

use super::apply::{CommandOutcome, JournalDb};
use super::command::Command;
use super::completion::{InboxSeq, OpSeqs};
#[cfg(test)]
use super::days::Calendar;
use super::fault::Fault;
use super::log::{FreedPages, Overlay};
use super::reads;
use super::retention::{free_pages, vacuum};
use rusqlite::Result;

/// Where a command is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandRoute {
    /// It is logged, and applied to the overlay after the commit.
    Log,
    /// It is about what is in the tables.
    Tables,
    /// It only reads, after the commit.
    Read,
    /// It came before.
    Duplicate,
}

/// What a transaction wrote.
pub(super) struct WrittenCommit {
    /// What the changes of the tables came to.
    changes: Vec<CommandOutcome>,
    /// Bytes that stayed in the log, if it was shortened.
    stayed: Option<usize>,
}

/// Commands for whose keys it pays to begin a transaction: without one, each look into the index takes the lock of readers and gives it
/// back.
const MANY_COMMANDS: usize = 8;

impl JournalDb<'_> {
    /// Where each command is applied, looked up in one transaction if there are many.
    pub(super) fn route_in_one_read(
        &mut self,
        commands: &[Command],
        at: &mut Option<usize>,
    ) -> Result<Option<Vec<CommandRoute>>> {
        if commands.len() < MANY_COMMANDS {
            return self.route(commands, at);
        }
        self.statements.begin_read.execute([])?;
        let routes = self.route(commands, at)?;
        self.statements.commit.execute([])?;
        Ok(routes)
    }

    /// Where each command is applied; `None` if one of them is about the log and the tables at once.
    fn route(&mut self, commands: &[Command], at: &mut Option<usize>) -> Result<Option<Vec<CommandRoute>>> {
        if self.must_move_log() {
            return Ok(None);
        }
        let mut next = self.counters.inbox;
        let mut routes = Vec::with_capacity(commands.len());
        let mut has_read = false;
        for (index, command) in commands.iter().enumerate() {
            let route = match command {
                Command::Accept { dedupe, .. } | Command::Ignore { dedupe, .. } => {
                    *at = Some(index);
                    if self.is_known(dedupe.as_ref())? {
                        CommandRoute::Duplicate
                    } else {
                        if let Some(key) = dedupe {
                            self.recent.add(*key, InboxSeq(next));
                        }
                        next += 1;
                        CommandRoute::Log
                    }
                }
                command if reads::answers(command) => CommandRoute::Read,
                command if self.overlay.covers(command) => CommandRoute::Log,
                // Reads come after the commit: what follows a read must not change what it reads.
                command if self.is_in_tables(command) && !has_read => CommandRoute::Tables,
                _ => {
                    *at = None;
                    return Ok(None);
                }
            };
            has_read |= route == CommandRoute::Read;
            routes.push(route);
        }
        *at = None;
        Ok(Some(routes))
    }

    /// Whether a command that the log does not cover is about the tables alone.
    fn is_in_tables(&self, command: &Command) -> bool {
        match command {
            Command::Start { seq, .. }
            | Command::End { seq, .. }
            | Command::SetRepeatable { seq }
            | Command::SetLine { seq, .. }
            | Command::SetShown { seq, .. } => {
                seq.0 < self.counters.inbox && self.overlay.row(*seq).is_none()
            }
            Command::OpSent { op }
            | Command::OpChanged { op, .. }
            | Command::OpSettled { op }
            | Command::OpDropped { op, .. } => op.0 < self.counters.op && !self.overlay.has_op(*op),
            // What the log has of it, or gets in this commit, is written to the tables later.
            Command::SetAccess(row) => !row.deletes_usage(),
            Command::Cron { .. }
            | Command::Quarantine { .. }
            | Command::SetResume { .. }
            | Command::DropResume { .. } => true,
            Command::Accept { .. }
            | Command::Ignore { .. }
            | Command::Handed { .. }
            | Command::Load { .. }
            | Command::NextQueued { .. }
            | Command::NextWaiting { .. }
            | Command::NextOps { .. }
            | Command::AddOps { .. }
            | Command::Repair { .. }
            | Command::RememberChat(_)
            | Command::AddUsage(_)
            | Command::LoadResume { .. }
            | Command::FindResume { .. } => false,
        }
    }

    /// Changes the tables and adds one row to the log, in one transaction. A full log is shortened in it as well, without a sync of its
    /// own.
    pub(super) fn write(
        &mut self,
        commands: &[Command],
        routes: &[CommandRoute],
        now_ms: i64,
    ) -> Result<WrittenCommit> {
        let writes = |route: &CommandRoute| matches!(route, CommandRoute::Log | CommandRoute::Tables);
        if !routes.iter().any(writes) && !self.has_changes_of_others()? {
            self.batch.begin(self.counters);
            return Ok(WrittenCommit {
                changes: Vec::new(),
                stayed: None,
            });
        }
        self.statements.begin.execute([])?;
        let stayed = if self.is_log_full() {
            Some(self.move_finished(FreedPages::NotOverwritten)?)
        } else {
            None
        };
        self.batch.begin(self.counters);
        self.begin_replication();
        let mut changes = Vec::new();
        for (command, route) in commands.iter().zip(routes) {
            match (route, command) {
                (
                    CommandRoute::Tables,
                    Command::End {
                        seq,
                        state,
                        ops,
                        now_ms,
                    },
                ) => {
                    // New ops are the log's, whatever they answer.
                    let is_ended = self.finish(*seq, *state, *now_ms)?;
                    if is_ended && !ops.is_empty() {
                        self.batch.push_ops(Some(*seq), ops, *now_ms);
                    }
                    let outcome = if is_ended {
                        CommandOutcome::Ended(OpSeqs::new(0, 0))
                    } else {
                        CommandOutcome::Missing(*seq)
                    };
                    self.replicate_applied(command, &outcome);
                    changes.push(outcome);
                }
                (CommandRoute::Tables, command) => {
                    let outcome = self.apply(command)?;
                    self.replicate_applied(command, &outcome);
                    changes.push(outcome);
                }
                (CommandRoute::Log, command) => {
                    self.batch.push(command);
                    self.replicate_applied(command, &CommandOutcome::Silent);
                }
                (CommandRoute::Duplicate | CommandRoute::Read, _) => {}
            }
        }
        if let Some(batch) = self.batch.bytes() {
            self.statements.append.execute([batch])?;
        }
        self.tend_index(commands.len() * 2 + 64, now_ms)?;
        self.commit_replicated()?;
        Ok(WrittenCommit { changes, stayed })
    }

    /// What the commands of a committed transaction come to. The bytes of ops move into the overlay.
    pub(super) fn apply_logged(
        &mut self,
        commands: &mut [Command],
        routes: Vec<CommandRoute>,
        written: WrittenCommit,
    ) -> Vec<CommandOutcome> {
        if let Some(bytes) = written.stayed {
            self.overlay.keep_unfinished(bytes, self.counters);
        }
        self.overlay.logged(self.batch.bytes().map_or(0, <[u8]>::len));
        let mut changes = written.changes.into_iter();
        let outcome = |(command, route): (&mut Command, CommandRoute)| match route {
            CommandRoute::Duplicate => CommandOutcome::Duplicate,
            CommandRoute::Read => self
                .read(command)
                .map_or(CommandOutcome::Silent, CommandOutcome::Read),
            CommandRoute::Log => self.overlay.apply(command, &mut self.counters),
            CommandRoute::Tables => match (changes.next().unwrap_or(CommandOutcome::Silent), command) {
                (CommandOutcome::Ended(_), Command::End { seq, ops, now_ms, .. }) => {
                    let ids = &mut self.counters;
                    CommandOutcome::Ended(self.overlay.add_ops(Some(*seq), ops, *now_ms, ids))
                }
                (change, _) => change,
            },
        };
        commands.iter_mut().zip(routes).map(outcome).collect()
    }

    /// The same in the tables alone, to compare with.
    #[cfg(test)]
    pub(super) fn transact_in_tables(&mut self, commands: &[Command], now_ms: i64) -> Vec<CommandOutcome> {
        self.calendar.get_or_insert_with(|| Calendar::new(now_ms));
        self.run_in_tables(commands, now_ms, &mut None).unwrap()
    }

    /// Whether the log has something that the tables do not have.
    pub(super) fn has_overlay(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Whether the log is so long that the next commit shortens it.
    pub(super) fn is_log_full(&self) -> bool {
        self.overlay.is_full()
    }

    /// Whether the log is full, and all of it has to be moved.
    pub(super) fn must_move_log(&self) -> bool {
        self.is_log_full() && !self.overlay.can_carry()
    }

    /// Shortens the log, in a transaction of its own: moves what is finished into the tables, and the rest unless it can stay.
    pub(super) fn shorten_log(&mut self, freed: FreedPages) -> std::result::Result<(), Fault> {
        if !self.overlay.can_carry() {
            return self.move_all(freed);
        }
        let stayed = self.upkeep(|journal_db| journal_db.move_finished(freed))?;
        self.overlay.keep_unfinished(stayed, self.counters);
        Ok(())
    }

    /// Moves what is finished out of the log; returns the bytes of the rest. The overlay keeps it until the transaction is committed.
    fn move_finished(&mut self, freed: FreedPages) -> Result<usize> {
        self.has_text_in_free_pages |= freed == FreedPages::NotOverwritten;
        self.overlay.move_finished(self.db, &mut self.batch, freed)
    }

    /// Moves the log into the tables, in a transaction of its own.
    pub(super) fn materialise(&mut self) -> std::result::Result<(), Fault> {
        self.move_all(FreedPages::Overwritten)
    }

    fn move_all(&mut self, freed: FreedPages) -> std::result::Result<(), Fault> {
        if self.has_overlay() {
            self.has_text_in_free_pages |= freed == FreedPages::NotOverwritten;
            self.upkeep(|journal_db| journal_db.overlay.materialise(journal_db.db, freed))?;
            self.overlay = Overlay::default();
        }
        Ok(())
    }

    /// Vacuums a slice of the pages that nothing uses, if they may have text of messages; returns whether there are more.
    pub(super) fn vacuum_free_pages(&mut self) -> std::result::Result<bool, Fault> {
        if self.has_text_in_free_pages {
            let give_back = || {
                vacuum(self.db)?;
                Ok(free_pages(self.db)? > 0)
            };
            self.has_text_in_free_pages = give_back().map_err(|error| Fault::from_error(&error))?;
        }
        Ok(self.has_text_in_free_pages)
    }
}
