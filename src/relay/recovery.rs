//! What an earlier run left in the journal: taken in before anything new is.

use std::time::Duration;

use tokio::sync::mpsc;

use super::event_loop::{Cursor, EventLoop};
use super::ops::OpGroup;
use super::turns::decode_row;
use crate::adapter::{ChatFacts, ChatId};
use crate::store::{
    Batch, Command, Completion, InboxKind, InboxRow, Recovered, Subject, TurnState as RowOutcome,
};

/// Ops that are read at a time.
const PAGE: u32 = 1024;
/// How long to wait before reading a page again that could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

impl EventLoop {
    /// Takes in what was read when the journal was opened; returns from where on the rest is to be read.
    pub(super) fn recover(&mut self, recovered: &Recovered) -> Cursor {
        for chat in recovered.chats.iter().rev() {
            self.inbound.add_platform(&chat.platform);
            if let Ok(facts) = serde_json::from_slice::<ChatFacts>(&chat.memory) {
                let id = ChatId {
                    platform: chat.platform.to_string(),
                    chat: chat.chat_id.to_string(),
                };
                self.chats.restore(id, facts, chat.last_used);
            }
        }
        for row in &recovered.ops {
            self.outbox.recover(row, self.clock.now(), &mut self.effects);
        }
        if recovered.waiting > 0 {
            self.turns.recover_waiting();
        }
        for row in &recovered.running {
            if row.line.is_some() {
                self.turn_interrupted(row);
            } else {
                self.turns.read_interrupted(row.seq, &mut self.effects);
            }
        }
        Cursor {
            last_op: recovered.ops.last().map(|op| op.seq),
            waiting: recovered.waiting,
        }
    }

    /// A turn was running when an earlier run ended. The agent may have acted, so it is not run again but reported to the
    /// chat, unless running it twice does no harm whoever ran it.
    pub(super) fn turn_interrupted(&mut self, row: &InboxRow) {
        if row.kind == InboxKind::Job {
            // Its claim says what becomes of it.
            return self.end_message(row.seq, RowOutcome::Interrupted, Vec::new(), None);
        }
        if row.kind == InboxKind::Delivery {
            return self.delivery_interrupted(row);
        }
        let now_ms = self.clock.unix_ms();
        let mut event = decode_row(row);
        if event.is_some() && self.agents.are_repeatable() {
            return self.turns.run_again(row, now_ms, &mut self.effects);
        }
        self.turns.count_interrupted();
        tracing::warn!(
            row = row.seq.0,
            "a turn was interrupted by the end of the last run"
        );
        if let Some(event) = &mut event {
            self.inbound.name_platform(event);
        }
        let known = event.filter(|event| {
            let author = self.access.author(&event.source);
            self.access.may_talk(&author)
        });
        let ops = match (known, self.settings.interrupted_notice.clone()) {
            (Some(mut event), Some(notice)) => {
                self.threads.learn(&event.source);
                let session = self.inbound.session_of(&mut event);
                let chat = ChatId::from_source(&event.source);
                let facts = ChatFacts::from_source(&event.source);
                self.plan_text(&notice, &session, &chat, &facts, OpGroup::Message(row.seq))
            }
            _ => Vec::new(),
        };
        self.end_message(row.seq, RowOutcome::Interrupted, ops, None);
    }

    /// Reads whatever did not fit into the first pages. What recovery itself wants written waits until everything is
    /// read, or it would be read as left behind.
    pub(super) async fn recover_rest(&mut self, mut cursor: Cursor, batches: &mut mpsc::Receiver<Batch>) {
        while cursor.last_op.is_some() {
            if !self.read_page(&mut cursor, batches).await {
                return;
            }
        }
        let waiting = cursor.waiting;
        let (ops, turns) = (self.outbox.counters(), self.turns.counters());
        if waiting > 0 || ops.recovered + ops.unknown + turns.interrupted > 0 {
            tracing::info!(
                unsent = ops.recovered,
                unknown = ops.unknown,
                interrupted = turns.interrupted,
                waiting,
                "resuming where the last run ended"
            );
        }
    }

    /// Reads one page of ops; `false` when the journal is lost. What cannot be read is asked for again.
    async fn read_page(&mut self, cursor: &mut Cursor, batches: &mut mpsc::Receiver<Batch>) -> bool {
        let Some(after) = cursor.last_op else {
            return true;
        };
        let token = self.effects.token();
        let read = Command::NextOps {
            token,
            after,
            limit: PAGE,
        };
        self.journal.submit_now(vec![read]).await;
        let (mut answered, mut failed) = (false, false);
        while !answered {
            let Some(batch) = batches.recv().await else {
                self.journal.lost();
                return false;
            };
            for completion in batch.completions {
                match completion {
                    Completion::Ops { ops, .. } => {
                        answered = true;
                        cursor.last_op = ops.last().map(|op| op.seq);
                        for row in &ops {
                            self.outbox.recover(row, self.clock.now(), &mut self.effects);
                        }
                    }
                    Completion::Failed(failure) if failure.subject == Subject::Token(token) => {
                        answered = true;
                        failed = true;
                    }
                    other => self.handle_completion(other),
                }
            }
        }
        if failed {
            tracing::warn!("cannot read the journal yet; retrying before anything new is taken");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        true
    }
}
