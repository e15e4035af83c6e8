//! This relay as a member of a cluster: a thread that follows the stream, asks for the lease, and appends commits.
//!
//! What it does when is decided in [`cluster`](crate::cluster); here is what talks to the NATS server and the disk. The thread has a
//! runtime of its own, so that nothing in the relay delays a renewal. When the member may not be active any more, the lease that
//! every write to the connector looks at ends first, and then the process starts over.

mod alone;
mod driver;
mod follow;
mod members;
mod publish;

use std::io;
use std::path::PathBuf;
use std::thread;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use self::driver::drive;
pub use self::follow::{ANOTHER_HISTORY, has_copy, remove_copy};
use self::publish::CommitSender;
use crate::cluster::WithoutServer;
use crate::net::nats::NatsSettings;
use crate::net::send_lease::SendLease;
use crate::net::tls::Tls;
use crate::store::{CommitStream, JournalSettings};

/// Requests that wait for the thread.
const MAX_REQUESTS: usize = 4;

/// What a member is started with.
#[derive(Clone, Debug)]
pub struct MemberSettings {
    /// The server.
    pub nats: NatsSettings,
    /// The certificates that are trusted.
    pub tls: Tls,
    /// What streams and subjects begin with.
    pub prefix: String,
    /// The cluster's name.
    pub cluster: String,
    /// This member's name.
    pub name: String,
    /// Copies of the stream in a cluster of servers.
    pub replicas: usize,
    /// Commits after which a snapshot is made.
    pub snapshot_every: u64,
    /// What it does as the active member when it cannot reach the server.
    pub without_server: WithoutServer,
    /// Directory of the journal.
    pub state_dir: PathBuf,
    /// The journal's settings.
    pub journal: JournalSettings,
}

/// One member, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Names the process.
    pub id: String,
    /// `active`, `standby`, or `taking over`.
    pub role: String,
    /// The last record that it has.
    pub position: Option<u64>,
    /// Its version.
    pub version: String,
}

/// The state of this member.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub name: String,
    /// This member's role.
    pub role: &'static str,
    /// This member's name.
    pub member: String,
    /// The last record that is in the journal here.
    pub position: Option<u64>,
    /// The last record in the stream, when it was last seen.
    pub last: Option<u64>,
    /// Why this member cannot follow or take over.
    pub problem: Option<String>,
    /// All members that were seen in the last seconds, this one first.
    pub members: Vec<MemberStatus>,
    /// Commits that the stream took from this process.
    pub commits: u64,
    /// While this relay goes on without the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<AloneStatus>,
    /// At a standby: the member whose the active role is without a limit of time, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderStatus>,
    #[serde(skip)]
    phase: MemberPhase,
}

/// A relay that goes on without the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AloneStatus {
    /// The last record that the stream and the journal have in common.
    pub since_record: u64,
    /// Since when, in Unix milliseconds.
    pub since_ms: i64,
    /// Commits that are in this journal only.
    pub commits: u64,
}

/// The member whose the active role is without a limit of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HolderStatus {
    /// Its name, if it is known.
    pub name: Option<String>,
    /// For how long it has not renewed its lease; 0 while it does.
    pub silent_secs: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum MemberPhase {
    #[default]
    Following,
    Active,
    /// The lease was given back.
    Released,
    /// It cannot be a member at all.
    Failed(String),
}

impl ClusterStatus {
    /// Another member that could take over now.
    pub fn standby(&self) -> Option<&MemberStatus> {
        if self.alone.is_some() {
            return None;
        }
        let is_behind = |member: &MemberStatus| member.position.is_none();
        self.members
            .iter()
            .skip(1)
            .find(|member| member.role == "standby" && !is_behind(member))
    }
}

/// What the thread is asked to do.
enum MemberRequest {
    /// Give the lease back: everything is done. Answered when it is back.
    Release(oneshot::Sender<()>),
    /// Take over (`handover --take`). Answered when this member is active, or with why it is not.
    Take(oneshot::Sender<Result<(), String>>),
}

/// This process as a member.
#[derive(Debug)]
pub struct ClusterMember {
    status: watch::Receiver<ClusterStatus>,
    requests: mpsc::Sender<MemberRequest>,
    appends: mpsc::Sender<publish::CommitRequest>,
    without_server: WithoutServer,
    lease: SendLease,
}

/// Asks a standby to take over (`handover --take`).
#[derive(Clone, Debug)]
pub struct TakeOver(mpsc::Sender<MemberRequest>);

impl TakeOver {
    /// Waits until this member is active, or for why it is not.
    pub async fn take(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let gone = || "the thread of the cluster does not answer".to_owned();
        self.0.try_send(MemberRequest::Take(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// Called when this member was active and may not be any more: the process has to start over at once.
pub type StartOver = Box<dyn Fn() + Send>;

impl ClusterMember {
    /// Starts the thread.
    pub fn start(settings: MemberSettings, start_over: StartOver) -> io::Result<Self> {
        let (status_sender, status) = watch::channel(ClusterStatus {
            name: settings.cluster.clone(),
            role: "standby",
            member: settings.name.clone(),
            ..ClusterStatus::default()
        });
        let (requests, request_queue) = mpsc::channel(MAX_REQUESTS);
        let (appends, append_queue) = mpsc::channel(1);
        let lease = SendLease::default();
        let member = Self {
            status,
            requests,
            appends,
            without_server: settings.without_server,
            lease: lease.clone(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new().name("cluster".into()).spawn(move || {
            let channels = driver::DriverChannels {
                status: status_sender,
                requests: request_queue,
                appends: append_queue,
                lease,
                start_over,
            };
            runtime.block_on(drive(settings, channels));
        })?;
        Ok(member)
    }

    /// The state; watchers are notified of changes.
    pub fn status(&self) -> watch::Receiver<ClusterStatus> {
        self.status.clone()
    }

    /// Waits until this member is active. Cancel-safe.
    pub async fn active(&self) -> Result<(), String> {
        let mut status = self.status.clone();
        let decided =
            |status: &ClusterStatus| matches!(status.phase, MemberPhase::Active | MemberPhase::Failed(_));
        match status.wait_for(decided).await.map(|status| status.phase.clone()) {
            Ok(MemberPhase::Failed(why)) => Err(why),
            Ok(MemberPhase::Following | MemberPhase::Active | MemberPhase::Released) => Ok(()),
            Err(_) => Err("the thread of the cluster ended unexpectedly".to_owned()),
        }
    }

    /// Where the journal's commits go.
    pub fn stream(&self) -> Box<dyn CommitStream> {
        Box::new(CommitSender::new(self.appends.clone(), self.without_server))
    }

    /// For `handover --take`.
    pub fn take_over(&self) -> TakeOver {
        TakeOver(self.requests.clone())
    }

    /// Until when this process may write to the connector.
    pub fn lease(&self) -> SendLease {
        self.lease.clone()
    }

    /// Gives the lease back: the relay has ended, and its journal is closed.
    pub async fn release(&self) {
        let (released, wait) = oneshot::channel();
        if self.requests.try_send(MemberRequest::Release(released)).is_ok() {
            let _ = wait.await;
        }
    }

    /// Waits until another member is active.
    pub async fn replaced(&self) {
        let mut status = self.status.clone();
        let taken = |status: &ClusterStatus| {
            status
                .members
                .iter()
                .skip(1)
                .any(|member| member.role != "standby")
        };
        let _ = status.wait_for(taken).await;
    }
}
