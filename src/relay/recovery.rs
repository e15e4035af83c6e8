//! What the journal says, batch by batch; and what it says first, after a restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::core::{Core, Ears};
use super::handle::SendError;
use super::turns::read_back;
use crate::adapter::{ChatFacts, ChatId};
use crate::store::{
    Batch, Command, Completion, Failed, Health, InboxRow, InboxSeq, Recovered, Subject, TurnState,
};
use crate::wire::SessionKey;

/// Rows of one kind that are read at a time while recovering.
const PAGE: u32 = 1024;
/// Names the reading of ops while recovering; no other command has it.
const OPS_PAGE: u64 = 0;
/// Names the reading of sessions while recovering; no other command has it.
const SESSIONS_PAGE: u64 = u64::MAX;
/// Before what could not be read while recovering is asked for again.
const PAUSE: Duration = Duration::from_millis(500);

/// Something that the journal could not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The message of a turn that holds its place.
    Row(InboxSeq),
    /// A session's waiting rows.
    Session(SessionKey),
}

impl Core {
    pub(super) fn take_health(&mut self, now: Health) {
        match now {
            Health::Ok => {
                self.journal_failing = None;
                if std::mem::take(&mut self.turned_away) {
                    tracing::info!(
                        "the journal works again; asking the connector for what was not acknowledged"
                    );
                    self.renewal.plan(Instant::now());
                }
            }
            Health::Failing { reason } => {
                let before = self.journal_failing.replace(reason.to_string());
                if before.is_none() {
                    tracing::error!(
                        %reason,
                        "the journal cannot be written; nothing is acknowledged until it can"
                    );
                }
            }
        }
    }

    pub(super) fn take_batch(&mut self, batch: Batch) {
        for commit in batch.commits {
            self.measures.committed(commit.commands, commit.took);
        }
        for done in batch.completions {
            match done {
                Completion::Accepted { token, seq, receipt } => self.take_accepted(token, seq.0, receipt),
                Completion::Duplicate { token, receipt, .. } => self.take_duplicate(token, receipt),
                Completion::Quarantined { token, receipt } => self.take_accepted(token, 0, receipt),
                Completion::Ended { seq, ops, .. } => {
                    self.take_ended(seq.0, ops.iter());
                }
                Completion::OpsAdded { token, ops } => {
                    if let Some(adding) = self.adding.remove(&token) {
                        let owed = adding.tell(Ok(()));
                        self.take_owed(ops.iter(), owed);
                    }
                }
                Completion::Loaded(row) => self.take_loaded(&row),
                Completion::Missing { seq } => self.take_missing(seq.0),
                Completion::Queued { token, rows } => self.take_fetched(token, &rows),
                Completion::Failed(failed) => self.take_failed(&failed),
                Completion::Started { seq, .. } => {
                    if self.unstarted.remove(&seq.0) {
                        self.writes.push(Command::Load { seq });
                    }
                }
                Completion::Resume { token, blob, .. } => self.take_resume(token, blob),
                Completion::Waiting { .. } | Completion::Ops { .. } => {}
            }
        }
    }

    fn take_failed(&mut self, failed: &Failed) {
        match failed.subject {
            Subject::Token(token) => {
                if let Some(key) = self.refilling.remove(&token) {
                    self.unread.push(Unread::Session(key));
                    self.retry_soon();
                } else if let Some(adding) = self.adding.remove(&token) {
                    tracing::error!("the journal refused what was to be sent; it is given up");
                    adding.tell(Err(SendError::Refused));
                } else if self.undecided.contains_key(&token) || self.recalling.contains_key(&token) {
                    self.take_resume(token, None);
                } else {
                    self.take_unaccepted(token, &failed.fault);
                }
            }
            // Only a read of it can fail; the row is still there and is read again.
            Subject::Message(seq)
                if self.loading.contains_key(&seq.0) || self.cut_short.front() == Some(&seq) =>
            {
                self.unread.push(Unread::Row(seq));
                self.retry_soon();
            }
            Subject::Message(seq) => {
                self.declined.remove(&seq.0);
                if self.ending.remove(&seq.0).is_some() {
                    self.traces.close(seq.0);
                    tracing::error!(row = seq.0, "the journal refused an answer; it is given up");
                }
            }
            Subject::Op(_) | Subject::None => {}
        }
    }

    /// Asks the journal again for what it could not read.
    pub(super) fn read_again(&mut self) {
        for unread in std::mem::take(&mut self.unread) {
            match unread {
                Unread::Row(seq) => self.writes.push(Command::Load { seq }),
                Unread::Session(key) => self.sessions.refill(&key, [], false),
            }
        }
    }

    /// Takes in what the journal held when it was opened.
    pub(super) fn recover(&mut self, recovered: Recovered) {
        for chat in recovered.chats.iter().rev() {
            if let Ok(facts) = serde_json::from_slice::<ChatFacts>(&chat.memory) {
                let id = ChatId {
                    platform: chat.platform.to_string(),
                    chat: chat.chat_id.to_string(),
                };
                self.chats.restore(id, facts, chat.last_used);
            }
        }
        for row in &recovered.ops {
            self.take_recovered_op(row);
        }
        for row in recovered.running {
            if row.line.is_some() {
                self.take_cut_short(&row);
            } else {
                self.cut_short.push_back(row.seq);
            }
        }
        self.read_cut_short();
        for waiting in &recovered.waiting {
            self.sessions
                .recover(&SessionKey::from_text(Arc::clone(&waiting.session)));
        }
        self.recovery = Some((
            recovered.ops.last().map(|op| op.seq),
            recovered.waiting.last().map(|w| w.session.clone()),
        ));
    }

    /// Reads whatever did not fit into the first pages, before anything new is taken.
    pub(super) async fn finish_recovery(&mut self, ears: &mut Ears) {
        let Some((mut last_op, mut last_session)) = self.recovery.take() else {
            return;
        };
        // What recovery itself owes is written after everything was read, or it would be read as left behind.
        let held = std::mem::take(&mut self.writes);
        while last_op.is_some() || last_session.is_some() {
            let mut asked = 0;
            let (mut ops_after, mut sessions_after, mut unread) = (None, None, false);
            if let Some(after) = last_op.take() {
                ops_after = Some(after);
                self.writes.push(Command::NextOps {
                    token: OPS_PAGE,
                    after,
                    limit: PAGE,
                });
                asked += 1;
            }
            if let Some(after) = last_session.take() {
                sessions_after = Some(Arc::clone(&after));
                self.writes.push(Command::NextWaiting {
                    token: SESSIONS_PAGE,
                    after,
                    limit: PAGE,
                });
                asked += 1;
            }
            self.submit();
            while asked > 0 {
                let Some(batch) = ears.batches.recv().await else {
                    return;
                };
                let mut rest = Batch {
                    commits: batch.commits,
                    ..Batch::default()
                };
                for done in batch.completions {
                    match done {
                        Completion::Ops { ops, .. } => {
                            asked -= 1;
                            last_op = ops.last().map(|op| op.seq);
                            for row in &ops {
                                self.take_recovered_op(row);
                            }
                        }
                        Completion::Waiting { sessions, .. } => {
                            asked -= 1;
                            last_session = sessions.last().map(|waiting| waiting.session.clone());
                            for waiting in sessions {
                                self.sessions.recover(&SessionKey::from_text(waiting.session));
                            }
                        }
                        Completion::Failed(failed) if failed.subject == Subject::Token(OPS_PAGE) => {
                            asked -= 1;
                            last_op = ops_after.take();
                            unread = true;
                        }
                        Completion::Failed(failed) if failed.subject == Subject::Token(SESSIONS_PAGE) => {
                            asked -= 1;
                            last_session = sessions_after.take();
                            unread = true;
                        }
                        other => rest.completions.push(other),
                    }
                }
                self.take_batch(rest);
            }
            if unread {
                tracing::warn!("the journal cannot be read yet; trying again before anything new is taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.writes.splice(..0, held);
        let waiting = self.sessions.active();
        let (owed, unknown, interrupted) = (
            self.tally.ops_recovered,
            self.tally.ops_unknown,
            self.tally.turns_interrupted,
        );
        if waiting > 0 || owed + unknown + interrupted > 0 {
            tracing::info!(
                owed,
                unknown,
                interrupted,
                waiting,
                "going on where the last run ended"
            );
        }
    }

    /// Reads the next message that did not fit beside the others when the journal was opened.
    pub(super) fn read_cut_short(&mut self) {
        if let Some(seq) = self.cut_short.front().copied() {
            self.writes.push(Command::Load { seq });
        }
    }

    /// A turn that was running when the process ended: the agent may have acted, so it is not run again but
    /// told to the chat, unless running it twice does no harm.
    pub(super) fn take_cut_short(&mut self, row: &InboxRow) {
        let event = row.line.as_deref().and_then(|line| read_back(row.kind, line));
        // A person or a route may have chosen who ran it: it is repeated only where any of them may repeat it.
        let harmless = self.crew.agents().all(|(_, agent)| agent.info().repeatable);
        if event.is_some() && harmless {
            return self.run_again(row);
        }
        self.tally.turns_interrupted += 1;
        let ops = match (event, self.settings.interrupted_notice.clone()) {
            (Some(mut event), Some(notice)) => {
                let key = self.understand(&mut event);
                self.plan(
                    &notice,
                    &key,
                    &ChatId::from_source(&event.source),
                    &ChatFacts::from_source(&event.source),
                )
            }
            _ => Vec::new(),
        };
        tracing::warn!(row = row.seq.0, "a turn was cut short by the end of the last run");
        self.end_row(row.seq.0, TurnState::Interrupted, ops, None);
    }

    fn run_again(&mut self, row: &InboxRow) {
        let key = SessionKey::from_text(Arc::clone(&row.session));
        if let crate::session::Admission::Start(turn) = self.sessions.admit(&key) {
            let event = crate::wire::MessageEvent::default();
            self.turns.insert(turn, super::turns::LiveTurn::new(key, &event));
            self.loading.insert(row.seq.0, turn);
            let seq = InboxSeq(row.seq.0);
            self.writes.push(Command::Start {
                seq,
                now_ms: self.now_ms(),
            });
            self.writes.push(Command::Load { seq });
        } else {
            self.sessions.enqueue(&key, row.seq.0);
        }
    }
}
