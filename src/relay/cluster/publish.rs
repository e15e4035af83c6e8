//! Commits on their way into the stream: cut into records, each repeated until its outcome is known.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::follow::{LAST, PART, WHOLE};
use crate::cluster::Tail;
use crate::net::nats_cluster::{AppendReply, ClusterStore};
use crate::net::send_lease::SendLease;
use crate::store::{CommitStream, NotReplicated};

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A commit, and who waits for it; without one the member cannot go on.
pub(super) enum CommitRequest {
    Append {
        commit: Vec<u8>,
        reply: SyncSender<Result<u64, NotReplicated>>,
    },
    Abandon,
}

/// The journal's end.
pub(super) struct CommitSender(mpsc::Sender<CommitRequest>);

impl CommitSender {
    pub(super) fn new(requests: mpsc::Sender<CommitRequest>) -> Self {
        Self(requests)
    }
}

fn gone() -> NotReplicated {
    NotReplicated("this relay is not the active member any more".to_owned())
}

impl CommitStream for CommitSender {
    fn append(&mut self, commit: &[u8]) -> Result<u64, NotReplicated> {
        let (reply, answer) = sync_channel(1);
        let request = CommitRequest::Append {
            commit: commit.to_vec(),
            reply,
        };
        self.0.blocking_send(request).map_err(|_| gone())?;
        answer.recv().unwrap_or_else(|_| Err(gone()))
    }

    fn abandon(&mut self) {
        let _ = self.0.blocking_send(CommitRequest::Abandon);
    }
}

/// What became of a commit.
pub(super) enum Published {
    /// The stream has it; the last record.
    Stored(u64),
    /// This member is not active any more.
    Fenced,
}

/// Appends commits, one after the other, until this member is fenced off.
pub(super) async fn publish(
    store: ClusterStore,
    lease: SendLease,
    mut tail: Tail,
    mut requests: mpsc::Receiver<CommitRequest>,
    events: mpsc::Sender<Published>,
) {
    while let Some(request) = requests.recv().await {
        let CommitRequest::Append { commit, reply } = request else {
            let _ = events.send(Published::Fenced).await;
            return;
        };
        let result = append(&store, &lease, &mut tail, &commit).await;
        let published = match &result {
            Ok(seq) => Published::Stored(*seq),
            Err(_) => Published::Fenced,
        };
        let _ = events.send(published).await;
        let is_over = result.is_err();
        let _ = reply.send(result);
        if is_over {
            return;
        }
    }
}

async fn append(
    store: &ClusterStore,
    lease: &SendLease,
    tail: &mut Tail,
    commit: &[u8],
) -> Result<u64, NotReplicated> {
    let most = store.record_bytes() - 1;
    let mut parts = commit.chunks(most).peekable();
    let is_whole = commit.len() <= most;
    while let Some(part) = parts.next() {
        let kind = match (is_whole, parts.peek()) {
            (true, _) => WHOLE,
            (false, Some(_)) => PART,
            (false, None) => LAST,
        };
        let mut record = Vec::with_capacity(part.len() + 1);
        record.push(kind);
        record.extend_from_slice(part);
        let attempt = tail.append();
        loop {
            // An earlier attempt may have succeeded; whoever is active next finds that in the stream.
            if !lease.holds() {
                return Err(gone());
            }
            match store.append(&attempt.id, attempt.expected, record.clone()).await {
                AppendReply::Stored(seq) if tail.stored(&attempt, seq) => break,
                AppendReply::Stored(_) | AppendReply::Fenced => return Err(gone()),
                AppendReply::Unknown(why) => {
                    tracing::warn!(
                        why,
                        "cannot tell whether the cluster's stream has a commit; trying again"
                    );
                    sleep(PAUSE).await;
                }
            }
        }
    }
    Ok(tail.last())
}
