//! A member that goes on without the server, and its way back: the stream gets a copy of its journal, unless somebody else was active.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::driver::{DriverEvent, MemberDriver, TERM_ATTEMPTS, open_store};
use super::follow::{AGAIN, FollowProblem, TERM, check, put_snapshot};
use super::publish::PublishControl;
use super::{AloneStatus, ClusterStatus, MemberPhase, MemberRequest, MemberSettings};
use crate::cluster::{Beginning, LeaseTiming, Member, MemberEvent, Tail, WithoutServer};
use crate::net::nats::{Bus, NatsError, Subscription};
use crate::net::nats_cluster::{AppendReply, ClusterStore};
use crate::net::send_lease::now;
use crate::relay::clock::now_ms;
use crate::store::{StreamMarks, set_aside, stand_down, stream_marks};

/// How long a member that may go on alone looks for the server first.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
/// How long the record may take that gives the role back.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);
/// What the names of copies of journals begin with.
const COPIES: &str = "resync-";

/// Since when this member is alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct AloneSince {
    pub(super) since_ms: i64,
    /// Commits that are in the journal only.
    pub(super) commits: u64,
}

/// How a member begins.
pub(super) struct Opening {
    pub(super) store: ClusterStore,
    pub(super) hello: Subscription,
    pub(super) marks: StreamMarks,
    pub(super) member: Member,
    pub(super) alone: Option<AloneSince>,
}

/// Waits for the server; a member that may go on alone does so meanwhile (`go_on`) when it takes too long.
pub(super) async fn begin(
    bus: &Bus,
    settings: &MemberSettings,
    status: &watch::Sender<ClusterStatus>,
    requests: &mut mpsc::Receiver<MemberRequest>,
    go_on: impl FnOnce(),
) -> Opening {
    let dir = settings.state_dir.clone();
    let marks = match spawn_blocking(move || stream_marks(&dir)).await {
        Ok(Ok(marks)) => marks,
        // Whoever opens the journal reports it.
        Ok(Err(_)) | Err(_) => StreamMarks::default(),
    };
    let without_server = settings.without_server;
    let beginning = Beginning::of(without_server, marks.alone.is_some(), marks.may_go_on());
    let timing = LeaseTiming::default();
    if beginning.goes_on() {
        if let Ok((store, hello)) = timeout(REACHED_WITHIN, open_store(bus, settings, status)).await {
            return opened(settings, beginning, marks, store, hello);
        }
        let record = marks.position.unwrap_or(0);
        tracing::warn!(
            record,
            "the NATS server cannot be reached: this relay goes on alone"
        );
        go_on();
        let alone = AloneSince {
            since_ms: now_ms(),
            commits: marks.alone.unwrap_or(0),
        };
        status.send_modify(|status| {
            (status.role, status.phase) = ("active", MemberPhase::Active);
            status.position = marks.position;
            status.alone = Some(AloneStatus {
                since_record: record,
                since_ms: alone.since_ms,
                commits: alone.commits,
            });
        });
        let (store, hello) = open_meanwhile(bus, settings, status, requests).await;
        return Opening {
            store,
            hello,
            marks,
            member: Member::returning(timing, without_server, now(), true, None),
            alone: Some(alone),
        };
    }
    let (store, hello) = open_meanwhile(bus, settings, status, requests).await;
    opened(settings, beginning, marks, store, hello)
}

fn opened(
    settings: &MemberSettings,
    beginning: Beginning,
    marks: StreamMarks,
    store: ClusterStore,
    hello: Subscription,
) -> Opening {
    let (timing, now) = (LeaseTiming::default(), now());
    let member = if beginning.returns() {
        let act_at = beginning.goes_on().then_some(now + REACHED_WITHIN);
        Member::returning(timing, settings.without_server, now, false, act_at)
    } else {
        Member::new(timing, settings.without_server, now)
    };
    Opening {
        store,
        hello,
        marks,
        member,
        alone: beginning.returns().then(|| AloneSince {
            since_ms: now_ms(),
            commits: marks.alone.unwrap_or(0),
        }),
    }
}

/// Waits for the server, and answers meanwhile.
async fn open_meanwhile(
    bus: &Bus,
    settings: &MemberSettings,
    status: &watch::Sender<ClusterStatus>,
    requests: &mut mpsc::Receiver<MemberRequest>,
) -> (ClusterStore, Subscription) {
    let mut opening = std::pin::pin!(open_store(bus, settings, status));
    loop {
        // Cancel-safe: the opening is kept.
        tokio::select! {
            opened = &mut opening => return opened,
            Some(request) = requests.recv() => match request {
                MemberRequest::Release(released) => {
                    status.send_modify(|status| status.phase = MemberPhase::Released);
                    let _ = released.send(());
                }
                MemberRequest::Take(reply) => {
                    let _ = reply.send(Err("the NATS server cannot be reached".to_owned()));
                }
            },
        }
    }
}

impl MemberDriver {
    /// Commits go to the journal only from now on.
    pub(super) fn go_alone(&mut self) {
        let record = self.position.unwrap_or(0);
        tracing::warn!(
            record,
            "the NATS server cannot be reached: this relay goes on alone, and no standby takes over"
        );
        self.control(PublishControl::GoAlone);
        if self.alone.is_none() {
            self.alone = Some(AloneSince {
                since_ms: now_ms(),
                commits: 0,
            });
        }
    }

    /// Looks whether another member was active since this one is alone.
    pub(super) fn check_stream(&self) {
        let (store, events) = (self.store.clone(), self.events.clone());
        let (position, own) = (self.position.unwrap_or(0), self.own);
        tokio::spawn(async move {
            let event = match check(&store, position, own).await {
                Ok(Some(last)) => DriverEvent::Member(MemberEvent::Unchanged { last }),
                Ok(None) => DriverEvent::Member(MemberEvent::Taken),
                Err(problem) => DriverEvent::NotInSync(problem),
            };
            let _ = events.try_send(event);
        });
    }

    /// Gives the stream what is in the journal here, after this record.
    pub(super) fn resync(&self, term: u64, expected: u64) {
        let (store, events, controls) = (self.store.clone(), self.events.clone(), self.controls.clone());
        let (dir, mut text) = (self.settings.state_dir.clone(), self.term_text(term));
        tokio::spawn(async move {
            let (is_enough, enough) = oneshot::channel();
            let begin = PublishControl::Begin {
                last: expected,
                is_enough,
            };
            // Without a relay that commits nobody answers yet; everything is in the journal.
            let is_sent = controls.try_send(begin).is_ok();
            let answer = timeout(Duration::from_millis(500), enough).await;
            if is_sent && matches!(answer, Ok(Ok(true))) {
                return drop(events.try_send(DriverEvent::InSync(expected)));
            }
            let mut tail = Tail::new(term, expected);
            let attempt = tail.append();
            let object = format!("{COPIES}{}", attempt.id);
            let appended = async {
                let copied = put_snapshot(&store, dir, Some(&object)).await?.alone.unwrap_or(0);
                text.object = Some(object.clone());
                let record = text.record(AGAIN);
                for _ in 0..TERM_ATTEMPTS {
                    match store.append(&attempt.id, attempt.expected, record.clone()).await {
                        AppendReply::Stored(seq) if tail.stored(&attempt, seq) => return Ok(Some(copied)),
                        AppendReply::Stored(_) | AppendReply::Fenced => return Ok(None),
                        AppendReply::Unknown(_) => sleep(Duration::from_millis(50)).await,
                    }
                }
                Err(FollowProblem::Server(NatsError::Timeout))
            };
            let event = match appended.await {
                Ok(Some(copied)) => {
                    let (done, resumed) = oneshot::channel();
                    let resume = PublishControl::Resume {
                        store: Box::new(store.clone()),
                        tail,
                        copied,
                        done,
                    };
                    let _ = controls.send(resume).await;
                    match resumed.await {
                        Ok(Some(last)) => {
                            store.delete_copies(COPIES, &object).await;
                            DriverEvent::InSync(last)
                        }
                        Ok(None) | Err(_) => {
                            DriverEvent::NotInSync(FollowProblem::Server(NatsError::Timeout))
                        }
                    }
                }
                Ok(None) => {
                    let _ = controls.send(PublishControl::Forget).await;
                    // No record names it.
                    store.delete_copy(&object).await;
                    DriverEvent::Member(MemberEvent::Fenced)
                }
                Err(problem) => {
                    let _ = controls.send(PublishControl::Forget).await;
                    DriverEvent::NotInSync(problem)
                }
            };
            let _ = events.try_send(event);
        });
    }

    /// Keeps the journal beside, and follows the stream from its snapshot.
    pub(super) fn set_aside(&mut self) {
        tracing::error!(
            "another relay has taken over while this one was alone: its journal is kept as `journal.stale-*`, and it becomes a standby"
        );
        (self.is_busy, self.alone, self.position) = (true, None, None);
        let (dir, assigned) = (
            self.settings.state_dir.clone(),
            self.settings.journal.assigned_dir,
        );
        let events = self.events.clone();
        tokio::spawn(async move {
            let kept = spawn_blocking(move || set_aside(&dir, assigned, now_ms())).await;
            let event = match kept {
                Ok(Ok(())) => DriverEvent::SetAside,
                Ok(Err(error)) => DriverEvent::Joined(Err(error.into())),
                Err(error) => DriverEvent::Joined(Err(FollowProblem::Snapshot(error.to_string()))),
            };
            let _ = events.try_send(event);
        });
    }

    /// The process starts over, and must not go on alone before it has seen the stream.
    pub(super) fn stand_down_now(&self) {
        if let Err(fault) = stand_down(&self.settings.state_dir, None) {
            tracing::warn!(%fault, "cannot note in the journal that this relay may not go on alone");
        }
    }

    /// Gives the role back: first here, then in the stream, then the lease. Whatever of it fails, nobody else is active meanwhile.
    pub(super) fn release(&mut self, revision: u64) {
        let (store, events, controls) = (self.store.clone(), self.events.clone(), self.controls.clone());
        let record = self.term_text(revision).record(TERM);
        let (dir, position) = (self.settings.state_dir.clone(), self.position);
        let goes_on = self.settings.without_server == WithoutServer::Continue;
        let lease = self.lease.clone();
        tokio::spawn(async move {
            if goes_on {
                let noted = spawn_blocking(move || stand_down(&dir, position)).await;
                if !matches!(noted, Ok(Ok(()))) {
                    tracing::warn!("cannot note in the journal that this relay may not go on alone");
                }
                let (done, appended) = oneshot::channel();
                let _ = controls.try_send(PublishControl::Release { record, done });
                if !matches!(timeout(RELEASED_WITHIN, appended).await, Ok(Ok(Some(_)))) {
                    tracing::warn!(
                        "cannot give the active role back: no standby takes over until this relay is back, or one is told to by `handover --take`"
                    );
                }
            }
            lease.end();
            if !store.release_lease(revision).await {
                tracing::warn!("cannot give the cluster's lease back; it ends by itself");
            }
            let _ = events.try_send(DriverEvent::Released);
        });
    }
}
