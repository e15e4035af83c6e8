//! Completions of the journal: each goes to whoever waits for it. One that meets a waiter of another kind is an error, which
//! fails the waiter.

use crate::link::Generation;
use crate::relay::effects::{Accepting, Pending, Work};
use crate::relay::event_loop::{EventLoop, STEP_BATCH};
use crate::relay::handle::{RepairError, SendError};
use crate::relay::parts::outbox::OpsCommit;
use crate::store::{Batch, Committed, Completion, Failed, Fault, Subject};

impl EventLoop {
    /// Acknowledges the frames of a commit; returns whether there are any. They may leave before their messages are acted on.
    pub fn acknowledge_batch(&mut self, batch: &mut Batch) -> bool {
        let mut is_any = false;
        for completion in &mut batch.completions {
            let (Completion::Accepted { token, receipt, .. }
            | Completion::Duplicate { token, receipt, .. }
            | Completion::Quarantined { token, receipt }) = completion
            else {
                continue;
            };
            if let Some(generation) = self.journal.frame_from(*token) {
                is_any |= self.acknowledge(generation, receipt);
            }
        }
        self.run_effects();
        is_any
    }

    /// Acts on what a commit completed.
    pub fn handle_batch(&mut self, batch: Batch) {
        self.journal.committed(batch.commits);
        for completion in batch.completions {
            self.handle_completion(completion);
            self.run_effects();
            if self.turns.committed_count() >= STEP_BATCH {
                self.step_turns();
                self.journal.submit_early(&mut self.effects);
            }
        }
        self.step_turns();
        self.journal.submit_early(&mut self.effects);
    }

    pub fn handle_completion(&mut self, completion: Completion) {
        if !self.joins_step(&completion) {
            // It may be about the turn of a message right before it.
            self.step_turns();
        }
        let token = match &completion {
            Completion::Accepted { token, .. }
            | Completion::Duplicate { token, .. }
            | Completion::Quarantined { token, .. }
            | Completion::Cron { token, .. }
            | Completion::Handed { token, .. }
            | Completion::Repaired { token, .. }
            | Completion::OpsAdded { token, .. }
            | Completion::Queued { token, .. }
            | Completion::Waiting { token, .. }
            | Completion::Resume { token, .. }
            | Completion::Found { token, .. }
            | Completion::Ops { token, .. } => *token,
            Completion::Ended { seq, ops } => return self.row_ended(*seq, *ops),
            Completion::Loaded(row) => return self.row_loaded(row),
            Completion::Missing { seq } => return self.row_missing(*seq),
            Completion::Started { seq, .. } => return self.row_started(*seq),
            Completion::Failed(failed) => return self.command_failed(failed),
        };
        let Some(waiter) = self.journal.take(token) else {
            tracing::error!(token, "the journal completed a command that nobody waits for");
            return;
        };
        match (completion, waiter) {
            (Completion::Accepted { seq, .. }, Pending::Accept(accepting)) => {
                if matches!(accepting.work, Work::Message(..)) {
                    self.lifecycle.accepted();
                }
                self.work_accepted(*accepting, seq);
            }
            (Completion::Duplicate { .. }, Pending::Accept(accepting)) => {
                self.inbound.count_duplicate();
                self.work_repeated(*accepting);
            }
            (Completion::Quarantined { .. }, Pending::Quarantine(_)) => self.lifecycle.accepted(),
            (Completion::Cron { reply, .. }, Pending::Job(step)) => self.handle_job_reply(step, reply),
            (Completion::Handed { reply, .. }, Pending::Accept(accepting)) => {
                self.handle_submission_reply(*accepting, reply);
            }
            (Completion::Handed { reply, .. }, Pending::Handed) => self.handle_items_reply(reply),
            (Completion::OpsAdded { .. }, Pending::Access(reply, answer)) => drop(reply.send(Ok(answer))),
            (Completion::Repaired { repaired, .. }, Pending::Repair(kept_back, reply)) => {
                self.repaired(&repaired, kept_back, reply);
            }
            (Completion::OpsAdded { ops, .. }, Pending::Ops(reply)) => {
                if let Some(reply) = reply {
                    let _ = reply.send(Ok(()));
                }
                self.outbox
                    .committed(OpsCommit::Token(token), ops, &mut self.effects);
            }
            (Completion::Queued { rows, more, .. }, Pending::SessionRows(session)) => {
                self.rows_refilled(&session, &rows, &more);
            }
            (Completion::Queued { rows, more, .. }, Pending::ChangedMessage(session, change)) => {
                self.changed_message_read(session, &rows, !more.is_empty(), change);
            }
            (Completion::Waiting { rows, .. }, Pending::WaitingRows(after)) => {
                self.turns.reloaded(after, Some(&rows));
            }
            (Completion::Resume { blob, .. }, Pending::AgentChoice(session, waiter)) => {
                self.choice_known(&session, waiter, blob);
            }
            (Completion::Resume { blob, .. }, Pending::Project(place, waiter)) => {
                self.project_known(&place, waiter, blob);
            }
            (Completion::Resume { blob, .. }, Pending::Conversations(turn, owner)) => {
                self.conversations_known(turn, &owner, blob);
            }
            (Completion::Resume { blob, .. }, Pending::CommandConversations(owner, call)) => {
                self.command_conversations_known(&owner, &call, blob);
            }
            (Completion::Found { found, .. }, Pending::ListedSessions(listing, mut listed)) => {
                let mut found = found.into_iter();
                listed.retain(|_| !found.next().unwrap_or(true));
                self.sessions_sorted(&listing, &listed);
            }
            (Completion::Resume { blob, .. }, Pending::Quiet(person, waiter)) => {
                self.quiet_hours_loaded(person, waiter, blob.as_deref());
            }
            (Completion::Resume { blob, .. }, Pending::AgentState(reply)) => drop(reply.send(blob)),
            (Completion::Resume { blob, .. }, Pending::Voice(mut sessions, reply)) => {
                if blob.is_some() {
                    // What is used is kept.
                    sessions.dedup();
                    for session in sessions {
                        self.keep_voice(session);
                    }
                }
                drop(reply.send(blob));
            }
            (_, waiter) => self.waiter_mismatched(waiter),
        }
    }

    /// Whether a completion is about none of the turns whose messages are committed and that have not taken their step yet.
    fn joins_step(&self, completion: &Completion) -> bool {
        match completion {
            Completion::Accepted { token, .. } => self.journal.starts_turn(*token),
            Completion::Started { .. } | Completion::Ended { .. } => true,
            Completion::Duplicate { .. }
            | Completion::Quarantined { .. }
            | Completion::Cron { .. }
            | Completion::Handed { .. }
            | Completion::Repaired { .. }
            | Completion::OpsAdded { .. }
            | Completion::Queued { .. }
            | Completion::Waiting { .. }
            | Completion::Resume { .. }
            | Completion::Found { .. }
            | Completion::Ops { .. }
            | Completion::Loaded(_)
            | Completion::Missing { .. }
            | Completion::Failed(_) => false,
        }
    }

    /// A message came before: it is acknowledged again, and holds no place.
    fn work_repeated(&mut self, accepting: Accepting) {
        if !matches!(accepting.work, Work::Message(..)) {
            // Neither a run nor an item can be a duplicate by its row.
            return self.waiter_mismatched(Pending::Accept(Box::new(accepting)));
        }
        self.turns.release(&accepting.session, accepting.place);
    }

    fn acknowledge(&mut self, generation: Generation, receipt: &mut Committed) -> bool {
        let is_acknowledged = self.inbound.acknowledge(generation, receipt, &mut self.effects);
        if is_acknowledged && let Some(sleeper) = &mut self.sleeper {
            sleeper.acknowledged(self.clock.now());
        }
        is_acknowledged
    }

    /// The journal completed a command in a way that its waiter cannot use: a fault of this program. The waiter is answered
    /// as if the command had failed.
    pub fn waiter_mismatched(&mut self, waiter: Pending) {
        tracing::error!(
            waiter = waiter.name(),
            "the journal's answer does not fit the question"
        );
        let fault = Fault::refused("the answer does not fit the question");
        self.waiter_failed(waiter, None, &fault);
    }

    fn command_failed(&mut self, failed: &Failed) {
        match failed.subject {
            Subject::Token(token) => {
                if let Some(waiter) = self.journal.take(token) {
                    self.waiter_failed(waiter, Some(token), &failed.fault);
                } else {
                    tracing::error!(token, "a command failed that nobody waits for");
                }
            }
            Subject::Message(row) => {
                if self.turns.row_failed(row) {
                    self.outbox.not_committed(OpsCommit::End(row));
                }
            }
            Subject::Op(_) | Subject::None => {}
        }
    }

    fn waiter_failed(&mut self, waiter: Pending, token: Option<u64>, fault: &Fault) {
        match waiter {
            Pending::Accept(accepting) => self.work_rejected(*accepting, fault),
            Pending::Quarantine(_) => self.frame_rejected(fault),
            Pending::SessionRows(session) => self.turns.refilled(session, None),
            Pending::WaitingRows(after) => self.turns.reloaded(after, None),
            Pending::ChangedMessage(session, change) => self.turns.changed_unread(session, change),
            Pending::Ops(reply) => {
                tracing::error!("dropped a message that the journal refused");
                if let Some(token) = token {
                    self.outbox.not_committed(OpsCommit::Token(token));
                }
                if let Some(reply) = reply {
                    let _ = reply.send(Err(SendError::Refused));
                }
            }
            // The command line notices that it was dropped.
            Pending::Access(..) => tracing::error!("the journal refused a change of the access rules"),
            Pending::Repair(kept_back, reply) => {
                self.repair_failed(kept_back, RepairError::NotStored, reply);
            }
            // What cannot be read is as if nothing had been saved.
            Pending::AgentChoice(session, waiter) => self.choice_known(&session, waiter, None),
            // Nobody is asked about a place whose project cannot be read.
            Pending::Project(place, waiter) => self.project_known(&place, waiter, Some(Vec::new())),
            Pending::Conversations(turn, owner) => self.conversations_known(turn, &owner, None),
            Pending::CommandConversations(owner, call) => {
                self.command_conversations_known(&owner, &call, None);
            }
            // Nobody is shown a session that may be somebody else's.
            Pending::ListedSessions(listing, _) => self.sessions_sorted(&listing, &[]),
            Pending::Quiet(person, waiter) => self.quiet_hours_loaded(person, waiter, None),
            Pending::AgentState(reply) | Pending::Voice(_, reply) => drop(reply.send(None)),
            Pending::Job(step) => self.job_command_failed(step),
            Pending::Handed => {
                tracing::error!("cannot read the context that waits for turns; it is read at the next start");
            }
        }
    }
}
