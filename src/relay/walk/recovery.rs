//! What an earlier run left in the journal: taken in before anything new is.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::adapter::ChatId;
use crate::adapter::prompt::PromptOp;
use crate::relay::event_loop::{Cursor, EventLoop};
use crate::relay::parts::approvals::{ClosingEdit, LeftQuestion, LeftQuestions};
use crate::store::{
    Batch, Command, Completion, INTERRUPTED_ROWS, InboxSeq, LEFT_QUESTIONS, Recovered, Subject,
};

/// Ops that are read at a time.
const PAGE: u32 = 1024;
/// How long to wait before reading a page again that could not be read.
const RETRY_AFTER: Duration = Duration::from_millis(500);

impl EventLoop {
    /// Takes in what was read when the journal was opened; returns from where on the rest is to be read.
    pub fn recover(&mut self, recovered: &Recovered) -> Cursor {
        for chat in recovered.chats.iter().rev() {
            if let Some(person) = self.chats.restore(chat) {
                self.access.remember(&person);
            }
        }
        for row in &recovered.ops {
            self.outbox.recover(row, self.clock.now(), &mut self.effects);
        }
        if recovered.waiting > 0 {
            self.turns.recover_waiting();
        }
        if let Some(interrupted) = &recovered.interrupted {
            for row in interrupted {
                self.remember_left(row);
            }
            let session = INTERRUPTED_ROWS.into();
            self.effects.write(Command::DropResume { session });
        }
        let running: Vec<InboxSeq> = recovered.running.iter().map(|row| row.seq).collect();
        self.take_left_questions(recovered.questions.as_deref(), &running);
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

    /// Goes on with the questions that an earlier process left open and whose turns can be taken up again, and with those about codes
    /// that wait. Nobody waits for an answer to the others: their messages say so, and so do late answers read.
    fn take_left_questions(&mut self, saved: Option<&[u8]>, running: &[InboxSeq]) {
        let Some(saved) = saved else { return };
        let LeftQuestions { remembered, shown } = LeftQuestions::read(saved);
        self.approvals.remember(remembered);
        for LeftQuestion {
            closing,
            kept,
            pairing,
        } in shown
        {
            // Whether the author of its turn may still decide it is looked at when that begins.
            let kept = kept.filter(|kept| {
                running.contains(&InboxSeq(kept.turn.row))
                    && self.agents.resumes(&kept.turn.agent)
                    && kept.owner.as_ref().is_none_or(|owner| self.may_decide(owner))
            });
            let now = self.clock.now();
            let pairing = pairing.filter(|pairing| self.may_decide(&pairing.owner));
            let restored = match (kept, pairing) {
                (Some(kept), _) => self.approvals.restore(kept, now),
                (None, Some(pairing)) => self.approvals.restore_pairing(pairing, now),
                (None, None) => None,
            };
            if let Some((chat, prompt)) = restored {
                let transport = self.link.transport();
                transport.expect_press(&chat.platform, prompt.as_str());
                continue;
            }
            if let Some(ClosingEdit {
                session,
                platform,
                chat,
                action,
            }) = closing
            {
                self.deliver_about(PromptOp {
                    session: session.into(),
                    chat: ChatId {
                        platform: platform.into(),
                        chat: chat.into(),
                    },
                    action,
                });
            }
        }
        let approved = self.access.approved().into_iter();
        let approved: Vec<_> = approved.map(|(person, pending)| (pending.code, person)).collect();
        self.end_pairings(&approved);
        self.approvals.mark_changed();
    }

    /// Keeps what the next start needs of the questions, when that has changed.
    pub fn keep_questions(&mut self) {
        let Some(left) = self.approvals.take_changed(self.clock.now()) else {
            return;
        };
        let session = LEFT_QUESTIONS.into();
        self.effects.write(match serde_json::to_vec(&left) {
            Ok(blob) if !left.is_empty() => Command::SetResume {
                session,
                blob,
                now_ms: self.clock.unix_ms(),
            },
            _ => Command::DropResume { session },
        });
    }

    /// Reads whatever did not fit into the first pages. What recovery itself wants written waits until everything is
    /// read, or it would be read as left behind.
    pub async fn recover_rest(&mut self, mut cursor: Cursor, batches: &mut mpsc::Receiver<Batch>) {
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
                    other => {
                        self.handle_completion(other);
                        self.run_effects();
                    }
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
