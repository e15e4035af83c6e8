//! The journal from the event loop's side: what was submitted, and who waits for it.
//!
//! Commands are submitted together; while the journal's queue is full, no frames are taken. Whoever waits for a completion
//! stands in one table, by the command's token.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::watch;

use crate::collections::IdMap;
use crate::link::Generation;
use crate::relay::effects::{Effects, MessageChange, Pending, Work};
use crate::relay::metrics::CommitMetrics;
use crate::store::{Command, Commit, Health, Journal, QueueError};

/// Messages that may wait for their commit; no frames are taken beyond it.
const MAX_UNCOMMITTED: usize = 4096;
/// Commands that are enough for a commit.
pub const ENOUGH_COMMANDS: usize = 32;

type Submitting = Pin<Box<dyn Future<Output = Result<(), QueueError>> + Send>>;

/// The journal's queue, as seen by the event loop.
pub struct JournalIo {
    journal: Journal,
    /// Commands that wait for room in the journal's queue.
    submission: Option<Submitting>,
    pending: IdMap<u64, Pending>,
    /// Commands that are enough for a commit.
    enough_commands: usize,
    health: watch::Receiver<Health>,
    failing: Option<String>,
    /// Messages were rejected and have to come again.
    rejected: bool,
    closed: bool,
    metrics: CommitMetrics,
}

impl JournalIo {
    pub fn new(journal: Journal, health: watch::Receiver<Health>, enough_commands: usize) -> Self {
        Self {
            journal,
            submission: None,
            pending: IdMap::default(),
            enough_commands,
            health,
            failing: None,
            rejected: false,
            closed: false,
            metrics: CommitMetrics::default(),
        }
    }

    /// Submits what the parts want written, unless earlier commands still wait for room.
    pub fn submit(&mut self, effects: &mut Effects) {
        if self.submission.is_some() || effects.commands() == 0 {
            return;
        }
        let (commands, pending) = effects.outgoing();
        self.pending.extend(pending);
        match self.journal.try_submit(commands) {
            Ok(()) => effects.shrink(),
            Err(QueueError::Full) => {
                let (journal, commands) = (self.journal.clone(), std::mem::take(commands));
                self.submission = Some(Box::pin(async move { journal.submit(commands).await }));
            }
            Err(QueueError::Closed) => {
                commands.clear();
                self.closed = true;
            }
        }
    }

    /// Submits what the parts want written once that is enough for a commit: the journal syncs it while the event loop goes
    /// on with the rest of a round.
    pub fn submit_early(&mut self, effects: &mut Effects) {
        if effects.commands() >= self.enough_commands {
            self.submit(effects);
        }
    }

    /// Submits commands past everything else, and waits until the journal has taken them.
    pub async fn submit_now(&mut self, commands: Vec<Command>) {
        self.closed |= self.journal.submit(commands).await.is_err();
    }

    /// Waits until the journal has taken the commands that waited for room; never resolves while there are none.
    pub async fn submitted(&mut self) {
        match &mut self.submission {
            Some(submission) => {
                let result = submission.await;
                self.submission = None;
                self.closed |= result.is_err();
            }
            None => std::future::pending().await,
        }
    }

    pub fn metrics(&self) -> &CommitMetrics {
        &self.metrics
    }

    /// The journal has committed, and measured it.
    pub fn committed(&mut self, commits: Vec<Commit>) {
        for commit in commits {
            self.metrics.committed(commit);
        }
    }

    /// Who waits for the completion with this token.
    pub fn take(&mut self, token: u64) -> Option<Pending> {
        self.pending.remove(&token)
    }

    /// Whether a message waits for the completion with this token whose turn can begin.
    pub fn starts_turn(&self, token: u64) -> bool {
        matches!(self.pending.get(&token), Some(Pending::Accept(accepting)) if accepting.work.starts_turn())
    }

    /// The connection whose frame waits for the completion with this token.
    pub fn frame_from(&self, token: u64) -> Option<Generation> {
        match self.pending.get(&token)? {
            Pending::Accept(accepting) => match accepting.work {
                Work::Message(generation, _) => Some(generation),
                Work::Job(_) | Work::Handed(_) => None,
            },
            Pending::Quarantine(generation) => Some(*generation),
            _ => None,
        }
    }

    /// Whether frames may be taken.
    pub fn has_room(&self) -> bool {
        self.submission.is_none() && self.pending.len() < MAX_UNCOMMITTED
    }

    /// Messages and ops that are being committed, and edits that look for their messages.
    pub fn uncommitted(&self) -> usize {
        let commits = |pending: &&Pending| match pending {
            Pending::Accept(_)
            | Pending::Quarantine(_)
            | Pending::Ops(_)
            | Pending::Access(..)
            | Pending::Repair(..)
            | Pending::Job(_)
            | Pending::Handed => true,
            // Until it is applied, its row waits as a message of its own.
            Pending::ChangedMessage(_, change) => matches!(**change, MessageChange::Edit { .. }),
            Pending::SessionRows(_)
            | Pending::WaitingRows(_)
            | Pending::AgentChoice(..)
            | Pending::Project(..)
            | Pending::Conversations(..)
            | Pending::CommandConversations(..)
            | Pending::Quiet(..)
            | Pending::ListedSessions(..)
            | Pending::AgentState(_)
            | Pending::Voice(..) => false,
        };
        self.pending.values().filter(commits).count()
    }

    /// Messages that are being committed.
    pub fn accepting(&self) -> usize {
        let messages = |pending: &&Pending| matches!(pending, Pending::Accept(_) | Pending::Quarantine(_));
        self.pending.values().filter(messages).count()
    }

    /// Messages sent without being asked that are being committed.
    pub fn adding(&self) -> usize {
        let ops = |pending: &&Pending| matches!(pending, Pending::Ops(_));
        self.pending.values().filter(ops).count()
    }

    /// Everything that is still to be done: requests without a completion, and commands on their way.
    pub fn outstanding(&self) -> usize {
        self.pending.len() + usize::from(self.submission.is_some())
    }

    /// Why the journal cannot be written.
    pub fn failing(&self) -> Option<&String> {
        self.failing.as_ref()
    }

    /// Whether something cannot be seen now, so that the relay must not sleep: a failing journal, or messages that were
    /// rejected and have to come again.
    pub fn is_unwell(&self) -> bool {
        self.failing.is_some() || self.rejected
    }

    /// Whether the journal's writer is gone.
    pub fn is_lost(&self) -> bool {
        self.closed
    }

    /// The journal's writer is gone.
    pub fn lost(&mut self) {
        self.closed = true;
    }

    /// The journal's health at this moment, which its completions may be behind.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// A message was rejected: it has to come again once the journal works.
    pub fn rejected(&mut self) {
        self.rejected = true;
    }

    /// The journal's health changed. `true` when it works again and rejected messages have to come again.
    pub fn on_health(&mut self, health: Health) -> bool {
        match health {
            Health::Ok => {
                self.failing = None;
                let rejected = std::mem::take(&mut self.rejected);
                if rejected {
                    tracing::info!("the journal works again; asking for what was not acknowledged");
                }
                rejected
            }
            Health::Failing { reason } => {
                if self.failing.replace(reason.to_string()).is_none() {
                    tracing::error!(
                        %reason,
                        "cannot write the journal; nothing is acknowledged until that works"
                    );
                }
                false
            }
        }
    }

    /// The last commands, after what still waits for room, as a future that also closes the journal.
    pub fn close(
        &mut self,
        effects: &mut Effects,
        within: std::time::Duration,
    ) -> impl Future<Output = Result<(), crate::store::CloseError>> + use<> {
        let submission = self.submission.take();
        let (commands, _): (Vec<Command>, _) = effects.take_commands();
        let journal = self.journal.clone();
        async move {
            // A journal that cannot write takes nothing more; closing it reports what was lost.
            let _ = tokio::time::timeout(within, async {
                if let Some(submission) = submission {
                    let _ = submission.await;
                }
                let _ = journal.submit(commands).await;
            })
            .await;
            journal.close().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{InboxSeq, JournalSettings};
    use crate::wire::SessionKey;

    const NOW: i64 = 1_790_000_000_000;

    fn failing(reason: &str) -> Health {
        Health::Failing {
            reason: reason.into(),
        }
    }

    #[tokio::test]
    async fn a_failing_journal_is_unwell_until_it_works_and_what_it_rejected_comes_again() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
        let (_, health) = watch::channel(Health::Ok);
        let mut io = JournalIo::new(opened.journal, health, ENOUGH_COMMANDS);
        assert!(io.failing().is_none() && !io.is_unwell() && !io.is_lost());
        assert!(!io.on_health(failing("no room")));
        assert!(io.is_unwell());
        assert_eq!(io.failing().map(String::as_str), Some("no room"));
        assert!(!io.on_health(Health::Ok), "nothing was rejected");
        assert!(io.failing().is_none() && !io.is_unwell());
        io.rejected();
        assert!(io.is_unwell());
        assert!(io.on_health(Health::Ok) && !io.on_health(Health::Ok), "once");
        assert!(!io.is_unwell());
        assert_eq!(io.health(), Health::Ok);
        io.lost();
        assert!(io.is_lost());
    }

    #[tokio::test]
    async fn whoever_waits_is_counted_by_what_they_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
        let (_, health) = watch::channel(Health::Ok);
        let mut io = JournalIo::new(opened.journal, health, ENOUGH_COMMANDS);
        let mut effects = Effects::default();
        io.submit(&mut effects);
        assert_eq!((io.outstanding(), io.has_room()), (0, true));
        let load = |token| Command::NextQueued {
            token,
            session: "s".into(),
            after: InboxSeq(0),
            limit: 1,
            behind: 1,
        };
        let ops = effects.request(Pending::Ops(None), load);
        effects.request(Pending::SessionRows(SessionKey::from_text("s")), load);
        effects.request(Pending::Quarantine(Generation::first()), load);
        io.submit(&mut effects);
        assert_eq!(effects.commands(), 0);
        assert_eq!((io.outstanding(), io.uncommitted()), (3, 2));
        assert_eq!((io.accepting(), io.adding()), (1, 1));
        assert!(matches!(io.take(ops), Some(Pending::Ops(None))));
        assert!(io.take(ops).is_none());
        assert_eq!((io.outstanding(), io.uncommitted(), io.adding()), (2, 1, 0));
        let edit = MessageChange::empty_edit(InboxSeq(1));
        for (change, uncommitted) in [(MessageChange::Deletion(Box::default()), 1), (edit, 2)] {
            let session = SessionKey::from_text("s");
            effects.request(Pending::ChangedMessage(session, Box::new(change)), load);
            io.submit(&mut effects);
            assert_eq!(io.uncommitted(), uncommitted);
        }
        let read = opened.batches.recv().await.unwrap();
        assert!(!read.completions.is_empty(), "the journal has the commands");
        let waiting = (10..).map(|token| (token, Pending::Handed));
        io.pending.extend(waiting.take(MAX_UNCOMMITTED - 5));
        assert!(io.has_room());
        io.pending.insert(9, Pending::Handed);
        assert!(!io.has_room());
    }

    #[tokio::test]
    async fn commands_wait_for_the_end_of_a_round_until_they_are_enough_for_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let opened = Journal::open(dir.path(), JournalSettings::default(), NOW).unwrap();
        let (_, health) = watch::channel(Health::Ok);
        let mut io = JournalIo::new(opened.journal, health, ENOUGH_COMMANDS);
        let mut effects = Effects::default();
        for number in 1..=ENOUGH_COMMANDS {
            effects.request(Pending::Handed, |token| Command::NextQueued {
                token,
                session: "s".into(),
                after: InboxSeq(0),
                limit: 1,
                behind: 1,
            });
            io.submit_early(&mut effects);
            let is_enough = number == ENOUGH_COMMANDS;
            assert_eq!(effects.commands(), if is_enough { 0 } else { number });
            assert_eq!(io.outstanding(), if is_enough { number } else { 0 });
        }
    }
}
