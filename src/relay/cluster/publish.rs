//! Commits on their way into the stream: cut into records, each repeated until its outcome is known.
//!
//! While the member goes on without the server, commits go nowhere but to the journal. When a copy of the journal goes to the server,
//! those that are made meanwhile are kept, up to a limit, and follow it.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::follow::{LAST, PART, WHOLE};
use crate::cluster::{Tail, WithoutServer};
use crate::net::nats_cluster::{AppendReply, ClusterStore};
use crate::net::send_lease::SendLease;
use crate::store::{Appended, CommitStream, NotReplicated};

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the server may take for what was committed while a copy of the journal went to it.
const KEPT_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of commits that are kept; beyond that they wait.
const MAX_KEPT: usize = 64 << 20;

/// A commit, and who waits for it; without one the member cannot go on.
pub(super) enum CommitRequest {
    Append {
        commit: Vec<u8>,
        number: u64,
        reply: SyncSender<Result<Appended, NotReplicated>>,
    },
    Abandon,
}

/// The journal's end.
pub(super) struct CommitSender {
    requests: mpsc::Sender<CommitRequest>,
    without_server: WithoutServer,
}

impl CommitSender {
    pub(super) fn new(requests: mpsc::Sender<CommitRequest>, without_server: WithoutServer) -> Self {
        Self {
            requests,
            without_server,
        }
    }
}

fn gone() -> NotReplicated {
    NotReplicated("this relay is not the active member any more".to_owned())
}

impl CommitStream for CommitSender {
    fn append(&mut self, commit: &[u8], number: u64) -> Result<Appended, NotReplicated> {
        let (reply, answer) = sync_channel(1);
        let request = CommitRequest::Append {
            commit: commit.to_vec(),
            number,
            reply,
        };
        self.requests.blocking_send(request).map_err(|_| gone())?;
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }

    fn goes_on(&self) -> bool {
        self.without_server == WithoutServer::Continue
    }

    fn abandon(&mut self) {
        let _ = self.requests.blocking_send(CommitRequest::Abandon);
    }
}

/// What became of a commit.
pub(super) enum Published {
    /// The stream has it; the last record.
    Stored(u64),
    /// It is in the journal only: so many are.
    Alone(u64),
    /// This member is not active any more, and no commit is taken any more.
    Abandoned,
}

/// What the publisher is told.
pub(super) enum PublishControl {
    /// Commits go to the journal only.
    GoAlone,
    /// A copy of the journal is about to be made: commits are kept from now on. Answered with `true` if none is needed, because the
    /// stream ends with this record and nothing was committed without it.
    Begin {
        last: u64,
        is_enough: oneshot::Sender<bool>,
    },
    /// No copy is made.
    Forget,
    /// The stream has the copy: those that were kept after this number follow. Answered with the last record.
    Resume {
        store: Box<ClusterStore>,
        tail: Tail,
        copied: u64,
        done: oneshot::Sender<Option<u64>>,
    },
    /// Append this record, which gives the role back. Answered with the last record.
    Release {
        record: Vec<u8>,
        done: oneshot::Sender<Option<u64>>,
    },
}

/// Where commits go.
pub(super) enum PublishMode {
    InSync(ClusterStore, Tail),
    /// With the end of the stream as it was, until a commit is made.
    Alone(Option<(ClusterStore, Tail)>),
}

/// Why a record was not appended.
enum NotAppended {
    /// Somebody else is active.
    Fenced,
    /// The member goes on alone.
    Alone,
    /// The server did not answer in time.
    Late,
}

pub(super) struct Publisher {
    lease: SendLease,
    mode: PublishMode,
    /// Commits since the copy of the journal began, by their numbers.
    kept: Option<VecDeque<(u64, Vec<u8>)>>,
    kept_bytes: usize,
    controls: mpsc::Receiver<PublishControl>,
    events: mpsc::Sender<Published>,
}

impl Publisher {
    pub(super) fn new(
        lease: SendLease,
        mode: PublishMode,
        controls: mpsc::Receiver<PublishControl>,
        events: mpsc::Sender<Published>,
    ) -> Self {
        Self {
            lease,
            mode,
            kept: None,
            kept_bytes: 0,
            controls,
            events,
        }
    }

    /// Commits go to the stream, after this end of it.
    pub(super) fn append_to(&mut self, store: ClusterStore, tail: Tail) {
        self.mode = PublishMode::InSync(store, tail);
    }

    /// Appends commits, one after the other, until this member is fenced off.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<CommitRequest>) {
        loop {
            // Cancel-safe: channels.
            tokio::select! {
                biased;
                Some(control) = self.controls.recv() => self.control(control).await,
                request = requests.recv(), if self.kept_bytes < MAX_KEPT => {
                    let Some(request) = request else { return };
                    if !self.request(request).await {
                        return;
                    }
                }
            }
        }
    }

    /// Takes a request; `false` if it was the last.
    async fn request(&mut self, request: CommitRequest) -> bool {
        let CommitRequest::Append {
            commit,
            number,
            reply,
        } = request
        else {
            let _ = self.events.send(Published::Abandoned).await;
            return false;
        };
        let (result, published) = match self.append(&commit).await {
            Ok(seq) => (Ok(Appended::Stored(seq)), Published::Stored(seq)),
            Err(NotAppended::Alone) => {
                self.commit_alone(number, commit);
                (Ok(Appended::Alone), Published::Alone(number))
            }
            Err(NotAppended::Fenced | NotAppended::Late) => (Err(gone()), Published::Abandoned),
        };
        let is_over = result.is_err();
        let _ = self.events.send(published).await;
        let _ = reply.send(result);
        !is_over
    }

    fn commit_alone(&mut self, number: u64, commit: Vec<u8>) {
        self.mode = PublishMode::Alone(None);
        if let Some(kept) = &mut self.kept {
            self.kept_bytes += commit.len();
            kept.push_back((number, commit));
        }
    }

    fn forget(&mut self) {
        (self.kept, self.kept_bytes) = (None, 0);
    }

    async fn control(&mut self, control: PublishControl) {
        match control {
            PublishControl::GoAlone => self.go_alone(),
            PublishControl::Begin { last, is_enough } => {
                let mode = std::mem::replace(&mut self.mode, PublishMode::Alone(None));
                let (mode, is_same) = match mode {
                    PublishMode::Alone(Some((store, tail))) if tail.last() == last => {
                        (PublishMode::InSync(store, tail), true)
                    }
                    PublishMode::Alone(_) => (PublishMode::Alone(None), false),
                    PublishMode::InSync(store, tail) => (PublishMode::InSync(store, tail), true),
                };
                self.mode = mode;
                self.kept = (!is_same).then(VecDeque::new);
                let _ = is_enough.send(is_same);
            }
            PublishControl::Forget => self.forget(),
            PublishControl::Resume {
                store,
                tail,
                copied,
                done,
            } => {
                self.mode = PublishMode::InSync(*store, tail);
                let result = self.append_kept(copied).await;
                self.forget();
                if result.is_none() {
                    self.mode = PublishMode::Alone(None);
                }
                let _ = done.send(result);
            }
            PublishControl::Release { record, done } => {
                let until = Instant::now() + KEPT_WITHIN;
                let released = self.append_record(&record, Some(until)).await;
                let _ = done.send(released.ok());
            }
        }
    }

    fn go_alone(&mut self) {
        let mode = std::mem::replace(&mut self.mode, PublishMode::Alone(None));
        self.mode = match mode {
            PublishMode::InSync(store, tail) => PublishMode::Alone(Some((store, tail))),
            alone @ PublishMode::Alone(_) => alone,
        };
    }

    /// Appends what was kept after this number; returns the last record.
    async fn append_kept(&mut self, copied: u64) -> Option<u64> {
        let until = Some(Instant::now() + KEPT_WITHIN);
        for (number, commit) in self.kept.take().unwrap_or_default() {
            if number > copied {
                self.append_parts(&commit, until).await.ok()?;
            }
        }
        match &self.mode {
            PublishMode::InSync(_, tail) => Some(tail.last()),
            PublishMode::Alone(_) => None,
        }
    }

    async fn append(&mut self, commit: &[u8]) -> Result<u64, NotAppended> {
        self.append_parts(commit, None).await
    }

    async fn append_parts(&mut self, commit: &[u8], until: Option<Instant>) -> Result<u64, NotAppended> {
        let most = match &self.mode {
            PublishMode::InSync(store, _) => store.record_bytes() - 1,
            PublishMode::Alone(_) if self.lease.holds() => return Err(NotAppended::Alone),
            PublishMode::Alone(_) => return Err(NotAppended::Fenced),
        };
        let mut parts = commit.chunks(most).peekable();
        let (is_whole, mut last) = (commit.len() <= most, 0);
        while let Some(part) = parts.next() {
            let kind = match (is_whole, parts.peek()) {
                (true, _) => WHOLE,
                (false, Some(_)) => PART,
                (false, None) => LAST,
            };
            let mut record = Vec::with_capacity(part.len() + 1);
            record.push(kind);
            record.extend_from_slice(part);
            last = self.append_record(&record, until).await?;
        }
        Ok(last)
    }

    /// Appends one record, once, however often it takes; returns its number. With a limit of time it is not a commit of the relay's, and
    /// the stream alone decides whether this member may.
    async fn append_record(&mut self, record: &[u8], until: Option<Instant>) -> Result<u64, NotAppended> {
        let PublishMode::InSync(store, tail) = &mut self.mode else {
            return Err(NotAppended::Alone);
        };
        let attempt = tail.append();
        loop {
            // An earlier attempt may have succeeded; whoever is active next finds that in the stream.
            if until.is_none() && !self.lease.holds() {
                return Err(NotAppended::Fenced);
            }
            let appending = store.append(&attempt.id, attempt.expected, record.to_vec());
            // Cancel-safe: an attempt without an answer is repeated under the same id, or is of no interest any more.
            let answer = tokio::select! {
                biased;
                answer = appending => answer,
                // Nothing else is said while a commit is on its way.
                Some(_) = self.controls.recv(), if until.is_none() => {
                    self.go_alone();
                    return Err(NotAppended::Alone);
                }
            };
            match answer {
                AppendReply::Stored(seq) if tail.stored(&attempt, seq) => return Ok(seq),
                AppendReply::Stored(_) | AppendReply::Fenced => return Err(NotAppended::Fenced),
                AppendReply::Unknown(why) => {
                    tracing::warn!(
                        why,
                        "cannot tell whether the cluster's stream has a commit; trying again"
                    );
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return Err(NotAppended::Late);
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }
}
