//! Following the stream: records become commits of the journal here, and a member without one begins with the snapshot.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::MemberSettings;
use crate::net::nats::NatsError;
use crate::net::nats_cluster::{ClusterStore, StreamBounds};
use crate::store::{
    FollowError, Follower, FollowerState, OpenError, StreamRecord, install_snapshot, snapshot,
};

/// The first byte of a record: a commit.
pub(super) const WHOLE: u8 = 0;
/// A part of a commit, and more follow.
pub(super) const PART: u8 = 1;
/// The last part of a commit.
pub(super) const LAST: u8 = 2;
/// A member became active.
pub(super) const TERM: u8 = 3;

/// Records of one read.
const RECORDS: u64 = 512;
/// Bytes of one read.
const BYTES: usize = 16 << 20;
/// Bytes of a commit in parts.
const MAX_COMMIT: usize = 256 << 20;
/// Name of a copy of the journal in the state directory.
const COPY: &str = "journal.snapshot";

/// How the error of a journal ends that was never in the cluster.
pub const ANOTHER_HISTORY: &str = "is not the cluster's";

/// Why this member cannot follow.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowProblem {
    /// The server did not answer as it should; trying again helps.
    #[error(transparent)]
    Server(#[from] NatsError),
    /// The journal failed; trying again may help.
    #[error(transparent)]
    Journal(#[from] FollowError),
    /// A snapshot failed; trying again may help.
    #[error("{0}")]
    Snapshot(String),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Records are gone that are not in the journal here: the snapshot has them.
    #[error("the stream does not have the records after {0} any more")]
    NeedsSnapshot(u64),
    /// The stream has lost records.
    #[error(
        "the stream ends with record {last}, but this journal has {position}: the server lost records, or the stream was deleted"
    )]
    Shorter {
        /// What the journal has.
        position: u64,
        /// What the stream has.
        last: u64,
    },
    /// The journal is another one.
    #[error("the journal in {} {ANOTHER_HISTORY}", .0.display())]
    NotOurs(PathBuf),
    /// A record cannot be read.
    #[error("record {0} of the stream cannot be read; this version may be too old for the active member's")]
    Record(u64),
}

/// What following came to.
pub(super) struct Followed {
    /// The last record that is in the journal.
    pub(super) position: u64,
    /// The last record that was read; after `position` only when a commit is not whole.
    pub(super) read: u64,
    /// The end of the stream.
    pub(super) last: u64,
}

/// An open journal and where it stands.
pub(super) struct Joined {
    pub(super) follower: Arc<Follower>,
    pub(super) position: Option<u64>,
    pub(super) is_empty: bool,
}

/// Opens the journal here; without a usable one it begins with the snapshot.
pub(super) async fn join(store: &ClusterStore, settings: &MemberSettings) -> Result<Joined, FollowProblem> {
    let bounds = store.bounds().await?;
    let (follower, state) = open(settings).await?;
    match state.position {
        None if bounds.last == 0 => Ok(joined(follower, state.position, state.is_empty)),
        None if !state.is_empty => Err(FollowProblem::NotOurs(settings.state_dir.clone())),
        Some(position) if position > bounds.last => Err(FollowProblem::Shorter {
            position,
            last: bounds.last,
        }),
        Some(position) if position + 1 >= bounds.first => {
            Ok(joined(follower, Some(position), state.is_empty))
        }
        None | Some(_) => {
            close(follower).await;
            restore(store, settings, bounds).await
        }
    }
}

fn joined(follower: Follower, position: Option<u64>, is_empty: bool) -> Joined {
    Joined {
        follower: Arc::new(follower),
        position,
        is_empty,
    }
}

async fn restore(
    store: &ClusterStore,
    settings: &MemberSettings,
    bounds: StreamBounds,
) -> Result<Joined, FollowProblem> {
    let copy = settings.state_dir.join(COPY);
    let dir = settings.state_dir.clone();
    let assigned = settings.journal.assigned_dir;
    let has_one = store.get_snapshot(&copy).await?;
    if has_one {
        let from = copy.clone();
        spawn_blocking(move || install_snapshot(&dir, assigned, &from, unix_ms()))
            .await
            .map_err(|error| FollowProblem::Snapshot(error.to_string()))??;
        tracing::info!("began with the cluster's snapshot of the journal");
    }
    let (follower, state) = open(settings).await?;
    let position = state.position.unwrap_or(0);
    if position + 1 < bounds.first {
        return Err(FollowProblem::NeedsSnapshot(position));
    }
    if state.position.is_none() {
        follower.apply(vec![(0, None)], unix_ms()).await?;
    }
    Ok(joined(follower, Some(position), state.is_empty))
}

async fn open(settings: &MemberSettings) -> Result<(Follower, FollowerState), FollowProblem> {
    let (dir, journal) = (settings.state_dir.clone(), settings.journal.clone());
    let opened = spawn_blocking(move || Follower::open(&dir, journal, unix_ms())).await;
    Ok(opened.map_err(|error| FollowProblem::Snapshot(error.to_string()))??)
}

/// Closes the journal, so that another may open it.
pub(super) async fn close(follower: Follower) {
    let _ = spawn_blocking(move || follower.close()).await;
}

/// Reads and applies what the stream has after `position`, to its end.
pub(super) async fn follow(
    store: &ClusterStore,
    follower: &Follower,
    mut position: u64,
) -> Result<Followed, FollowProblem> {
    let StreamBounds { first, last, .. } = store.bounds().await?;
    if last < position {
        return Err(FollowProblem::Shorter { position, last });
    }
    if last > position && first > position + 1 {
        return Err(FollowProblem::NeedsSnapshot(position));
    }
    let mut read = position;
    let mut parts: Vec<u8> = Vec::new();
    while read < last {
        let records = store.read(read + 1..=last.min(read + RECORDS), BYTES).await?;
        let mut commits: Vec<StreamRecord> = Vec::with_capacity(records.len());
        for (seq, record) in records {
            if seq != read + 1 {
                return Err(FollowProblem::NeedsSnapshot(position));
            }
            read = seq;
            let (kind, body) = record.split_first().ok_or(FollowProblem::Record(seq))?;
            match *kind {
                WHOLE => {
                    parts.clear();
                    commits.push((seq, Some(body.to_vec())));
                }
                PART | LAST if parts.len() + body.len() > MAX_COMMIT => {
                    return Err(FollowProblem::Record(seq));
                }
                PART => parts.extend_from_slice(body),
                LAST => {
                    parts.extend_from_slice(body);
                    commits.push((seq, Some(std::mem::take(&mut parts))));
                }
                // Parts before it are of a commit that was never whole.
                TERM => {
                    parts.clear();
                    commits.push((seq, None));
                }
                _ => return Err(FollowProblem::Record(seq)),
            }
        }
        if let Some((seq, _)) = commits.last() {
            let seq = *seq;
            follower.apply(commits, unix_ms()).await?;
            position = seq;
        }
    }
    Ok(Followed { position, read, last })
}

/// Copies the journal into the object store; returns the last record that is in the copy.
pub(super) async fn put_snapshot(store: &ClusterStore, dir: PathBuf) -> Result<u64, FollowProblem> {
    let copy = dir.join(COPY);
    let into = copy.clone();
    let made = spawn_blocking(move || snapshot(&dir, &into)).await;
    let position = made
        .map_err(|error| FollowProblem::Snapshot(error.to_string()))?
        .map_err(|fault| FollowProblem::Snapshot(fault.to_string()))?;
    let put = store.put_snapshot(&copy).await;
    let _ = tokio::fs::remove_file(&copy).await;
    put?;
    Ok(position.unwrap_or(0))
}

/// Now, in Unix milliseconds.
pub(super) fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(i64::MAX)
}
