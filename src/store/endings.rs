//! Ends of turns and ops, in the tables.

use super::apply::{CommandOutcome, JournalDb};
use super::command::Command;
use super::completion::{InboxKind, InboxSeq, OpSeqs};
use super::completion::{NewOp, RowState};
use rusqlite::{Result, params};

impl JournalDb<'_> {
    /// Ends one turn and adds its ops.
    pub(super) fn end(&mut self, command: &Command) -> Result<CommandOutcome> {
        let Command::End {
            seq,
            state,
            ops,
            now_ms,
        } = command
        else {
            return Ok(CommandOutcome::Silent);
        };
        if !self.finish(*seq, *state, *now_ms)? {
            return Ok(CommandOutcome::Missing(*seq));
        }
        let ops = self.add_ops(Some(*seq), ops, *now_ms)?;
        Ok(CommandOutcome::Ended(ops))
    }

    /// Ends one turn; `false` if it had ended before. The line of an interrupted message is kept, so that it can be run again on
    /// request; a job's claim says what becomes of its run.
    pub(super) fn finish(&mut self, seq: InboxSeq, state: RowState, now_ms: i64) -> Result<bool> {
        if (self.statements.finish).execute(params![seq.0, state.code(), now_ms])? == 0 {
            return Ok(false);
        }
        let is_kept = state == RowState::Interrupted
            && self
                .statements
                .keep
                .execute(params![seq.0, state.code(), InboxKind::Job.code()])?
                > 0;
        if !is_kept {
            self.statements.delete.execute([seq.0])?;
        }
        Ok(true)
    }

    /// Inserts ops.
    pub(super) fn add_ops(&mut self, inbox: Option<InboxSeq>, ops: &[NewOp], now_ms: i64) -> Result<OpSeqs> {
        let first = self.counters.op;
        let mut count = 0;
        for op in ops {
            let seq = self.counters.op;
            self.statements.add_op.execute(params![
                seq,
                op.session,
                op.chat,
                op.op,
                inbox.map(|seq| seq.0),
                now_ms
            ])?;
            self.counters.op += 1;
            count += 1;
        }
        Ok(OpSeqs::new(first, count))
    }
}
