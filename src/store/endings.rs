//! Ends of turns and ops: one by one, or runs of consecutive rows with one statement.
//!
//! Messages end and ops settle roughly in row order, so most endings of a transaction form runs. A run is only used if
//! all its rows exist; the outcome of each command stays the same.

use super::apply::{CommandOutcome, JournalDb};
use super::command::Command;
use super::completion::{InboxKind, InboxSeq, OpSeqs};
use super::completion::{NewOp, RowState};
use rusqlite::{Result, params};

impl JournalDb<'_> {
    /// Ends the run of consecutive rows at the start of `commands`. Returns its length, 0 if there is none.
    pub(super) fn end_run(
        &mut self,
        commands: &[Command],
        outcomes: &mut Vec<CommandOutcome>,
    ) -> Result<usize> {
        let Some(EndingRun {
            first,
            last,
            state,
            now_ms,
            endings,
        }) = EndingRun::at_head_of(commands)
        else {
            return Ok(0);
        };
        if state == RowState::Interrupted {
            // One by one: their lines are kept.
            return Ok(0);
        }
        let span = [first.0, last.0];
        let held: i64 = self.statements.count_run.query_row(span, |row| row.get(0))?;
        if held != last.0 - first.0 + 1 {
            return Ok(0);
        }
        let finish = params![first.0, last.0, state.code(), now_ms];
        if self.statements.finish_run.execute(finish).is_err() {
            // Nothing was written. EndingRun one by one, the failing command is found.
            return Ok(0);
        }
        self.statements.delete_run.execute(span)?;
        for command in endings {
            if let Command::End { seq, ops, .. } = command {
                let ops = self.add_ops(Some(*seq), ops, now_ms)?;
                outcomes.push(CommandOutcome::Ended(ops));
            }
        }
        Ok(endings.len())
    }

    /// Ends one turn. The line of an interrupted message is kept, so that it can be run again on request; a job's claim says
    /// what becomes of its run.
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
        let finish = params![seq.0, state.code(), now_ms];
        if self.statements.finish.execute(finish)? == 0 {
            return Ok(CommandOutcome::Missing(*seq));
        }
        let is_kept = *state == RowState::Interrupted
            && self
                .statements
                .keep
                .execute(params![seq.0, state.code(), InboxKind::Job.code()])?
                > 0;
        if !is_kept {
            self.statements.delete.execute([seq.0])?;
        }
        let ops = self.add_ops(Some(*seq), ops, *now_ms)?;
        Ok(CommandOutcome::Ended(ops))
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

    /// Deletes the ops that were settled in this transaction.
    pub(super) fn delete_settled(&mut self) -> Result<()> {
        self.settled.sort_unstable();
        for run in self.settled.chunk_by(|op, next| next - op <= 1) {
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                self.statements.ops_settled.execute([first, last])?;
            }
        }
        Ok(())
    }
}

/// Consecutive rows that end alike.
struct EndingRun<'a> {
    first: InboxSeq,
    last: InboxSeq,
    state: RowState,
    now_ms: i64,
    endings: &'a [Command],
}

impl<'a> EndingRun<'a> {
    /// The longest run at the start of `commands`, if it has at least two.
    fn at_head_of(commands: &'a [Command]) -> Option<Self> {
        let ending = |command: &Command| match command {
            Command::End {
                seq, state, now_ms, ..
            } => Some((*seq, *state, *now_ms)),
            _ => None,
        };
        let (first, state, now_ms) = ending(commands.first()?)?;
        let following = (first.0 + 1..)
            .zip(&commands[1..])
            .take_while(|(seq, command)| ending(command) == Some((InboxSeq(*seq), state, now_ms)));
        let count = 1 + following.count();
        let last = InboxSeq(first.0 + i64::try_from(count).ok()? - 1);
        (count > 1).then_some(Self {
            first,
            last,
            state,
            now_ms,
            endings: &commands[..count],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::JournalSettings;
    use super::super::{DedupeKey, InboxKind, OpSeq, reads, schema};
    use super::*;

    const NOW: i64 = 1_790_000_000_000;

    fn accept(token: u64) -> Command {
        Command::Accept {
            token,
            kind: InboxKind::Inbound,
            session: "s".into(),
            dedupe: Some(DedupeKey::new(&[&token.to_string()])),
            buffer_id: None,
            line: b"line".to_vec(),
            start: true,
            now_ms: NOW,
        }
    }

    fn end(seq: i64, state: RowState, ops: usize, now_ms: i64) -> Command {
        let op = NewOp {
            session: "s".into(),
            chat: "c".into(),
            op: seq.to_string().into_bytes(),
        };
        Command::End {
            seq: InboxSeq(seq),
            state,
            ops: vec![op; ops],
            now_ms,
        }
    }

    /// What each command came to, and what the tables hold after it.
    type CarriedOut = (String, Vec<(i64, i64, i64)>, Vec<(i64, i64)>, i64);

    fn carried_out(transactions: &[&[Command]]) -> CarriedOut {
        let dir = tempfile::tempdir().unwrap();
        let settings = JournalSettings::default();
        std::fs::write(schema::path_in(dir.path()), "").unwrap();
        let db = schema::open(&schema::path_in(dir.path()), &settings).unwrap();
        let (_, writer_state) = reads::recover(&db, &settings).unwrap();
        let mut journal_db = JournalDb::new(&db, writer_state).unwrap();
        let mut came_to = Vec::new();
        for commands in transactions {
            came_to.extend(journal_db.transact(commands, NOW).unwrap());
        }
        let mut done = db
            .prepare("SELECT seq, state, ended_at FROM done ORDER BY seq")
            .unwrap();
        let done = done.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let mut outbox = db
            .prepare("SELECT seq, inbox_seq FROM outbox ORDER BY seq")
            .unwrap();
        let outbox = outbox.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        (
            format!("{came_to:?}"),
            done.unwrap().map(Result::unwrap).collect(),
            outbox.unwrap().map(Result::unwrap).collect(),
            db.query_row("SELECT count(*) FROM inbox", [], |row| row.get(0))
                .unwrap(),
        )
    }

    #[test]
    fn a_run_comes_to_what_its_commands_come_to_one_by_one() {
        use RowState::{Done, Failed};
        let held: Vec<Command> = (0..12).map(accept).collect();
        let endings = [
            end(1, Done, 1, NOW),
            end(2, Done, 0, NOW),
            end(3, Done, 2, NOW),
            end(4, Failed, 1, NOW),
            end(5, Failed, 1, NOW + 1),
            end(6, Failed, 1, NOW + 1),
            end(6, Failed, 1, NOW + 1),
            end(8, Done, 0, NOW),
            end(9, Done, 1, NOW),
            // 8 and 9 have ended, 10 has not: no run, and only the last of them ends.
            end(8, Done, 1, NOW),
            end(9, Done, 1, NOW),
            end(10, Done, 1, NOW),
        ];
        let together = carried_out(&[&held, &endings]);
        let mut singly: Vec<&[Command]> = vec![&held];
        singly.extend(endings.chunks(1));
        assert_eq!(together, carried_out(&singly));
        assert_eq!((together.1.len(), together.2.len(), together.3), (9, 8, 3));
    }

    #[test]
    fn only_settled_ops_are_forgotten() {
        let settle = |op| Command::OpSettled { op: OpSeq(op) };
        let held = [accept(0), end(1, RowState::Done, 8, NOW)];
        let settled = [settle(2), settle(6), settle(3), settle(8), settle(2), settle(99)];
        let (_, _, outbox, _) = carried_out(&[&held, &settled]);
        let left: Vec<i64> = outbox.into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(left, [1, 4, 5, 7]);
    }
}
