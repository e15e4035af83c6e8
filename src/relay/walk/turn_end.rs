//! The end of a turn: its answer and its end are one commit, after which the ops go out.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::relay::effects::Task;
use crate::relay::event_loop::{EventLoop, STEP_BATCH};
use crate::relay::ops::{DurableOps, OpGroup};
use crate::relay::parts::outbox::{FinalIndicators, OpsCommit};
use crate::relay::parts::turn_task::TurnReport;
use crate::relay::parts::turns::{EndedTurn, Finished, Turns};
use crate::store::{Command, INTERRUPTED_ROWS, InboxSeq, OpSeqs, RowState};
use crate::words::{Language, PhraseKey};

use super::quiet::TurnSummary;

/// The answer of a turn that was not shown while it ran, and below it what the relay says of its end.
pub fn whole_answer(text: &str, is_truncated: bool, notice: Option<&str>, language: Language) -> String {
    let truncated = is_truncated.then(|| language.plain(PhraseKey::CutBySize).into());
    let below = truncated
        .into_iter()
        .chain(notice.map(|notice| language.reword(notice)));
    let parts = Some(text.into())
        .filter(|_| !text.is_empty())
        .into_iter()
        .chain(below);
    parts.collect::<Vec<Cow<'_, str>>>().join("\n\n")
}

impl EventLoop {
    /// A turn has ended: its answer and its end are one commit; the ops go out after it.
    pub fn finish_turn(&mut self, finished: Finished) {
        if let Some((ended, report)) = self.end_turn(finished) {
            self.finish_task(ended, report);
        }
        self.offer_commands();
    }

    /// The same for all turns that have ended inline, each step for all of them before the next one.
    pub fn finish_inline(&mut self) {
        let mut turns = SmallVec::<[_; STEP_BATCH]>::new();
        while let Some(finished) = self.turns.next_inline() {
            turns.extend(self.end_turn(finished));
        }
        for (ended, report) in turns {
            self.finish_task(ended, report);
        }
        self.offer_commands();
    }

    /// A turn has ended: its session is free. `None` for one that is not there, or never ran.
    fn end_turn(&mut self, finished: Finished) -> Option<(EndedTurn, Box<TurnReport>)> {
        let mut report = match finished {
            Ok(report) => report,
            Err(turn) => {
                let origin = self.turns.origin(turn)?;
                let row = self.turns.row_of(turn).unwrap_or(InboxSeq(0));
                let adapter = self.adapters.get(&origin.chat.id.platform);
                let stream = Box::new(self.stream(&adapter, &origin, row, false));
                TurnReport::without_text(turn, stream, Turns::panicked(turn))
            }
        };
        self.approvals.withdraw_turn(report.turn, &mut self.effects);
        let conversation = self.turns.conversation(report.turn).cloned();
        let is_answer = report.diff.is_some();
        if let (Some(conversation), Some(diff)) = (conversation, report.diff.take()) {
            self.changes.turn_ended(conversation, diff);
        }
        let Some(ended) = self.turns.end(&report, self.clock.mono()) else {
            self.settle_contexts(report.turn, false);
            return None;
        };
        self.settle_contexts(report.turn, report.has_text || ended.outcome == RowState::Done);
        let tokens = (report.usage.input_tokens).saturating_add(report.usage.output_tokens);
        let is_reply = is_answer && matches!(ended.task, Task::Message(_));
        let (now_ms, effects) = (self.clock.unix_ms(), &mut self.effects);
        let author = &ended.origin.author;
        self.access
            .turn_ended(author, &ended.agent, (tokens, is_reply), now_ms, effects);
        Some((ended, report))
    }

    /// What came of a turn goes to its chat, to the targets of its job, or to the program that handed it over.
    fn finish_task(&mut self, ended: EndedTurn, report: Box<TurnReport>) {
        match &ended.task {
            Task::Message(_) => {
                self.keep_interrupted(&ended);
                self.show_end(ended, report);
            }
            Task::Job(job) => self.finish_run(job.run, &ended, &report),
            Task::Handed(_) => self.finish_item(ended, report),
        }
    }

    /// Keeps that a shutdown interrupted the turn of a message, so that the next process knows its author's last message.
    fn keep_interrupted(&mut self, ended: &EndedTurn) {
        if ended.outcome != RowState::Interrupted || self.lifecycle.is_serving() {
            return;
        }
        let rows: Vec<i64> = self.messages.interrupted(ended.row).map(|row| row.0).collect();
        self.effects.write(Command::SetResume {
            session: INTERRUPTED_ROWS.into(),
            blob: serde_json::to_vec(&rows).unwrap_or_default(),
            now_ms: self.clock.unix_ms(),
        });
    }

    /// The end of a turn whose answer was shown while it ran.
    pub fn show_end(&mut self, ended: EndedTurn, report: Box<TurnReport>) {
        if ended.declined {
            return self.end_row(ended.row, ended.outcome, DurableOps::new(), None);
        }
        let now = self.clock.mono();
        let language = self.language(&ended.origin.chat);
        let mut stream = report.stream;
        if report.truncated {
            stream.push_text("\n\n", now);
            stream.push_text(language.plain(PhraseKey::CutBySize), now);
        }
        if let Some(notice) = &ended.notice {
            if report.has_text {
                stream.push_text("\n\n", now);
            }
            stream.push_text(&language.reword(notice), now);
        }
        let origin = ended.origin;
        let adapter = self.adapters.get(&origin.chat.id.platform);
        let mut last = stream.finish(ended.result, now);
        for together in report.attachments.chunk_by(|(here, _), (there, _)| here == there) {
            let files: Vec<_> = together.iter().map(|(_, file)| file).collect();
            let actions = adapter.attachments(&files, &origin.chat.id, &origin.chat.facts);
            if let [(position, _), ..] = together {
                last.insert(*position, actions);
            }
        }
        if let Some((preference, answer)) = report.preference {
            let shown = self.show_preference(preference, &answer, &ended.agent, &origin);
            last.durable.extend(shown);
        }
        let summary = TurnSummary {
            result: ended.result,
            took: ended.took,
            gist: &match &ended.notice {
                Some(notice) => language.reword(notice),
                None => report.gist.as_str().into(),
            },
        };
        self.sum_up(&summary, &mut last.durable, &origin);
        self.hush(&mut last.durable, &origin.chat);
        let group = OpGroup::Message(ended.row);
        let session = origin.session.shared();
        let span = origin.span.get();
        let ops = self
            .outbox
            .plan(&adapter, &session, &origin.chat.id, &last.durable, group, &span);
        if ended.is_traced {
            span.record("ops", ops.len());
        }
        let indicators = Some((Arc::clone(&origin.chat), last.indicators));
        self.end_row(ended.row, ended.outcome, ops, indicators);
    }

    /// Ends a row. Its ops go out after the commit, and then the indicators; without ops there is nothing that the
    /// indicators have to wait for, and nothing that takes the place of what shows that an answer is coming.
    pub fn end_row(
        &mut self,
        row: InboxSeq,
        outcome: RowState,
        ops: DurableOps,
        indicators: Option<FinalIndicators>,
    ) {
        if ops.is_empty() {
            self.settle_unanswered(row);
        } else {
            self.messages.settle(row);
        }
        let mut indicators = indicators.filter(|(_, actions)| !actions.is_empty());
        if ops.is_empty()
            && let Some((chat, actions)) = indicators.take()
        {
            self.send_indicators(&chat.id, &actions);
        }
        let now_ms = self.clock.unix_ms();
        self.turns.end_row(row, outcome, &ops, now_ms, &mut self.effects);
        self.outbox.hold_uncommitted(OpsCommit::End(row), ops, indicators);
    }

    /// Nothing answers a message: its author sees no more that an answer is coming.
    pub fn settle_unanswered(&mut self, row: InboxSeq) {
        if let Some((platform, message)) = self.messages.settle(row) {
            self.link.leave_unanswered(&platform, &message);
        }
    }

    /// The end of a row is committed: its ops take their place, and behind them the indicators.
    pub fn row_ended(&mut self, row: InboxSeq, rows: OpSeqs) {
        self.handed.forget(row);
        if !self.turns.committed(row) {
            return;
        }
        self.messages.forget(row);
        let indicators = self
            .outbox
            .committed(OpsCommit::End(row), rows, &mut self.effects);
        if let Some((chat, actions)) = indicators {
            self.send_indicators(&chat.id, &actions);
        }
    }
}
