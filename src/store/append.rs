//! Commits into the log: a batch is written, committed as one row, and then applied to the overlay.

use super::apply::{CommandOutcome, JournalDb};
use super::command::Command;
use super::completion::InboxSeq;
#[cfg(test)]
use super::days::Calendar;
use super::fault::Fault;
use super::log::Overlay;
use super::reads;
use rusqlite::Result;

impl JournalDb<'_> {
    /// Writes the commands into a batch for the log, and says which leave nothing in it: duplicates and reads. `None` if one of them
    /// needs the tables.
    pub(super) fn write_batch(
        &mut self,
        commands: &[Command],
        at: &mut Option<usize>,
    ) -> Result<Option<Vec<bool>>> {
        if self.overlay.is_full() {
            return Ok(None);
        }
        self.batch.begin(self.counters);
        let mut next = self.counters.inbox;
        let mut is_unlogged = Vec::with_capacity(commands.len());
        for (index, command) in commands.iter().enumerate() {
            let is_known = match command {
                Command::Accept { dedupe, .. } | Command::Ignore { dedupe, .. } => {
                    *at = Some(index);
                    let is_known = self.is_known(dedupe.as_ref())?;
                    if !is_known {
                        if let Some(key) = dedupe {
                            self.recent.add(*key, InboxSeq(next));
                        }
                        next += 1;
                    }
                    is_known
                }
                command => reads::answers(command),
            };
            is_unlogged.push(is_known);
            if is_known {
                continue;
            }
            if !self.overlay.covers(command) || !self.batch.push(command) {
                *at = None;
                return Ok(None);
            }
        }
        *at = None;
        Ok(Some(is_unlogged))
    }

    /// Commits the batch as one row of the log; nothing if it is empty.
    pub(super) fn append(&mut self, commands: usize, now_ms: i64) -> Result<()> {
        if self.batch.bytes().is_none() {
            return Ok(());
        }
        self.statements.begin.execute([])?;
        self.statements.append.execute([self.batch.bytes()])?;
        if self.recent.is_moving() {
            self.move_keys(commands * 2 + 64, now_ms)?;
        }
        self.statements.commit.execute([])?;
        Ok(())
    }

    /// What the commands of a committed batch come to.
    pub(super) fn apply_logged(&mut self, commands: &[Command], is_unlogged: &[bool]) -> Vec<CommandOutcome> {
        self.overlay.logged(self.batch.bytes().map_or(0, <[u8]>::len));
        let outcome = |(command, is_unlogged): (&Command, &bool)| match command {
            Command::Accept { .. } | Command::Ignore { .. } if *is_unlogged => CommandOutcome::Duplicate,
            command if *is_unlogged => self
                .read(command)
                .map_or(CommandOutcome::Silent, CommandOutcome::Read),
            command => self.overlay.apply(command, &mut self.counters),
        };
        commands.iter().zip(is_unlogged).map(outcome).collect()
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

    /// Moves the log into the tables, in a transaction of its own.
    pub(super) fn materialise(&mut self) -> std::result::Result<(), Fault> {
        if self.has_overlay() {
            self.upkeep(|journal_db| journal_db.overlay.materialise(journal_db.db))?;
            self.overlay = Overlay::default();
        }
        Ok(())
    }
}
