//! Following the stream: records become commits of the journal here, and a member without one begins with the snapshot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::MemberSettings;
use crate::net::nats::NatsError;
use crate::net::nats_cluster::{ClusterStore, StreamBounds};
use crate::relay::clock::now_ms;
use crate::store::{
    FollowError, Follower, FollowerState, OpenError, StreamContent, StreamMarks, StreamRecord,
    install_snapshot, snapshot,
};

/// The first byte of a record: a commit.
pub(super) const WHOLE: u8 = 0;
/// A part of a commit, and more follow.
pub(super) const PART: u8 = 1;
/// The last part of a commit.
pub(super) const LAST: u8 = 2;
/// A member became active, until its lease ends; or it gave the role back.
pub(super) const TERM: u8 = 3;
/// A member became active without a limit of time.
pub(super) const HELD: u8 = 4;
/// The same, and followers begin again from a copy of its journal.
pub(super) const AGAIN: u8 = 5;

/// Records of one read.
const RECORDS: u64 = 512;
/// Bytes of one read.
const BYTES: usize = 16 << 20;
/// Bytes of a commit in parts.
const MAX_COMMIT: usize = 256 << 20;
/// Name of a copy of the journal in the state directory.
const COPY: &str = "journal.snapshot";

/// What is in a record about a term.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TermText {
    pub(super) term: u64,
    /// The member's name.
    pub(super) name: String,
    /// Names its journal.
    #[serde(default)]
    pub(super) member: Option<u64>,
    /// The object with the copy of its journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<String>,
}

impl TermText {
    pub(super) fn record(&self, kind: u8) -> Vec<u8> {
        let mut record = vec![kind];
        // A struct of numbers and texts.
        record.extend(serde_json::to_vec(self).unwrap_or_default());
        record
    }

    fn read(seq: u64, body: &[u8]) -> Result<Self, FollowProblem> {
        serde_json::from_slice(body).map_err(|_| FollowProblem::Record(seq))
    }
}

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
    /// The active member was alone: the stream goes on from a copy of its journal.
    #[error("begins again from the active member's journal at record {seq}")]
    BeginAgain {
        /// The record that says so.
        seq: u64,
        /// The object with the copy.
        object: String,
    },
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
    /// What the last record about it said, if there was one.
    pub(super) held: Option<HeldBy>,
}

/// The journal whose the active role is without a limit of time; nobody's without one.
pub(super) struct HeldBy(pub(super) Option<u64>);

/// An open journal and where it stands.
pub(super) struct Joined {
    pub(super) follower: Arc<Follower>,
    pub(super) marks: StreamMarks,
    pub(super) is_empty: bool,
}

/// Where a journal begins that is not in sync.
#[derive(Debug)]
pub(super) enum Source {
    /// With what is in it, or with the cluster's snapshot.
    Own,
    /// With this object, which has everything up to the record.
    Object(String, u64),
}

/// Opens the journal here; without a usable one it begins with the snapshot.
pub(super) async fn join(
    store: &ClusterStore,
    settings: &MemberSettings,
    source: Source,
) -> Result<Joined, FollowProblem> {
    if let Source::Object(object, seq) = source {
        return install(store, settings, Some((&object, seq))).await;
    }
    let bounds = store.bounds().await?;
    let (follower, state) = open(settings).await?;
    match state.marks.position {
        None if bounds.last == 0 => Ok(joined(follower, state)),
        None if !state.is_empty => Err(FollowProblem::NotOurs(settings.state_dir.clone())),
        Some(position) if position > bounds.last => Err(FollowProblem::Shorter {
            position,
            last: bounds.last,
        }),
        Some(position) if position + 1 >= bounds.first => Ok(joined(follower, state)),
        None | Some(_) => {
            close(follower).await;
            restore(store, settings, bounds).await
        }
    }
}

fn joined(follower: Follower, state: FollowerState) -> Joined {
    Joined {
        follower: Arc::new(follower),
        marks: state.marks,
        is_empty: state.is_empty,
    }
}

/// Begins with the cluster's snapshot, or with a named copy of the active member's journal.
async fn install(
    store: &ClusterStore,
    settings: &MemberSettings,
    named: Option<(&str, u64)>,
) -> Result<Joined, FollowProblem> {
    let dir = settings.state_dir.clone();
    let copy = LocalCopy::new(&dir);
    let assigned = settings.journal.assigned_dir;
    let (object, position) = named.unzip();
    let has_one = store.get_snapshot(object, &copy.0).await?;
    if has_one {
        let from = copy.0.clone();
        spawn_blocking(move || install_snapshot(&dir, assigned, &from, position, now_ms()))
            .await
            .map_err(|error| FollowProblem::Snapshot(error.to_string()))??;
        tracing::info!("began with the cluster's snapshot of the journal");
    } else if let Some(object) = object {
        let why = format!("the server does not have `{object}`, a copy of the active member's journal");
        return Err(FollowProblem::Snapshot(why));
    }
    let (follower, state) = open(settings).await?;
    Ok(joined(follower, state))
}

async fn restore(
    store: &ClusterStore,
    settings: &MemberSettings,
    bounds: StreamBounds,
) -> Result<Joined, FollowProblem> {
    let mut joined = install(store, settings, None).await?;
    let position = joined.marks.position.unwrap_or(0);
    if position + 1 < bounds.first {
        return Err(FollowProblem::NeedsSnapshot(position));
    }
    if joined.marks.position.is_none() {
        let begin = vec![(0, StreamContent::Nothing)];
        joined.follower.apply(begin, now_ms()).await?;
    }
    joined.marks.position = Some(position);
    Ok(joined)
}

async fn open(settings: &MemberSettings) -> Result<(Follower, FollowerState), FollowProblem> {
    let (dir, journal) = (settings.state_dir.clone(), settings.journal.clone());
    let opened = spawn_blocking(move || Follower::open(&dir, journal, now_ms())).await;
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
    let (mut read, mut held) = (position, None);
    // The newest one counts; older copies may be gone.
    let mut again: Option<(u64, String)> = None;
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
                    commits.push((seq, StreamContent::Commit(body.to_vec())));
                }
                PART | LAST if parts.len() + body.len() > MAX_COMMIT => {
                    return Err(FollowProblem::Record(seq));
                }
                PART => parts.extend_from_slice(body),
                LAST => {
                    parts.extend_from_slice(body);
                    commits.push((seq, StreamContent::Commit(std::mem::take(&mut parts))));
                }
                // Parts before it are of a commit that was never whole.
                TERM | HELD => {
                    parts.clear();
                    let author = TermText::read(seq, body)?.member;
                    let holder = author.filter(|_| *kind == HELD);
                    held = Some(HeldBy(holder));
                    commits.push((seq, StreamContent::Term { author, holder }));
                }
                AGAIN => {
                    let object = TermText::read(seq, body)?.object;
                    again = Some((seq, object.ok_or(FollowProblem::Record(seq))?));
                }
                _ => return Err(FollowProblem::Record(seq)),
            }
        }
        if let (Some((seq, _)), None) = (commits.last(), &again) {
            let seq = *seq;
            follower.apply(commits, now_ms()).await?;
            position = seq;
        }
    }
    if let Some((seq, object)) = again {
        return Err(FollowProblem::BeginAgain { seq, object });
    }
    Ok(Followed {
        position,
        read,
        last,
        held,
    })
}

/// What the stream has after `position`: its end, or none if another member has become active since.
pub(super) async fn check(
    store: &ClusterStore,
    position: u64,
    member: Option<u64>,
) -> Result<Option<u64>, FollowProblem> {
    let StreamBounds { first, last, .. } = store.bounds().await?;
    if last < position {
        return Err(FollowProblem::Shorter { position, last });
    }
    // Only an active member shortens the stream, and not beyond what is in its journal.
    if last > position && first > position + 1 {
        return Ok(None);
    }
    let mut read = position;
    while read < last {
        for (seq, record) in store.read(read + 1..=last.min(read + RECORDS), BYTES).await? {
            read = seq;
            let (kind, body) = record.split_first().ok_or(FollowProblem::Record(seq))?;
            match *kind {
                TERM | HELD | AGAIN => {
                    let author = TermText::read(seq, body)?.member;
                    if author.is_none() || author != member {
                        return Ok(None);
                    }
                }
                // Whoever appends a commit has appended the record of a term before.
                WHOLE | PART | LAST => {}
                _ => return Err(FollowProblem::Record(seq)),
            }
        }
    }
    Ok(Some(last))
}

/// Copies the journal into the object store, as the cluster's snapshot or under a name; returns what the copy says.
pub(super) async fn put_snapshot(
    store: &ClusterStore,
    dir: PathBuf,
    object: Option<&str>,
) -> Result<StreamMarks, FollowProblem> {
    let made = spawn_blocking(move || {
        let copy = LocalCopy::new(&dir);
        snapshot(&dir, &copy.0).map(|marks| (copy, marks))
    });
    let (copy, marks) = made
        .await
        .map_err(|error| FollowProblem::Snapshot(error.to_string()))?
        .map_err(|fault| FollowProblem::Snapshot(fault.to_string()))?;
    let put = store.put_snapshot(object, &copy.0).await;
    // It may be large, and renewals of the lease do not wait.
    let _ = spawn_blocking(move || drop(copy)).await;
    put?;
    Ok(marks)
}

/// A copy of the journal in the state directory. It goes when it is dropped, if it was not moved.
struct LocalCopy(PathBuf);

impl LocalCopy {
    /// Removes the one that an earlier process left.
    fn new(dir: &Path) -> Self {
        remove_copy(dir);
        Self(dir.join(COPY))
    }
}

impl Drop for LocalCopy {
    fn drop(&mut self) {
        if let Some(dir) = self.0.parent() {
            remove_copy(dir);
        }
    }
}

fn copy_files(dir: &Path) -> impl Iterator<Item = PathBuf> {
    ["", "-journal", "-wal", "-shm"]
        .map(|suffix| dir.join(format!("{COPY}{suffix}")))
        .into_iter()
}

/// Whether a process has left a copy of its journal in the state directory, or makes one now.
pub fn has_copy(dir: &Path) -> bool {
    copy_files(dir).any(|file| file.exists())
}

/// Removes it, however much of it is there.
pub fn remove_copy(dir: &Path) {
    for file in copy_files(dir) {
        let _ = std::fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_journal_goes_with_all_that_a_failure_or_a_kill_left_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let leave = || {
            for file in copy_files(dir.path()) {
                std::fs::write(file, "x").unwrap();
            }
        };
        leave();
        let copy = LocalCopy::new(dir.path());
        assert!(!has_copy(dir.path()), "an earlier one");
        leave();
        std::fs::write(dir.path().join("journal.db"), "x").unwrap();
        drop(copy);
        let left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["journal.db"]);
    }
}
