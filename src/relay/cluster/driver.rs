//! The thread's loop: what happened goes to [`Member`], and what it asks for is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::follow::{FollowProblem, Followed, Joined, TERM, close, follow, join, put_snapshot, unix_ms};
use super::publish::{CommitRequest, Published, publish};
use super::{ClusterStatus, MemberPhase, MemberRequest, MemberSettings, MemberStatus, StartOver};
use crate::cluster::{LeaseTiming, Member, MemberAction, MemberEvent, MemberRole, Tail};
use crate::net::nats::{Bus, NatsError, Subscription};
use crate::net::nats_cluster::{AppendReply, ClusterStore, LeaseReply};
use crate::net::send_lease::{SendLease, now};
use crate::store::Follower;

/// Interval of looks at the stream.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// Interval in which members say that they are there.
const ANNOUNCE_EVERY: Duration = Duration::from_millis(500);
/// When a silent member is gone.
const GONE_AFTER: Duration = Duration::from_secs(4);
/// Members that are remembered.
const MAX_MEMBERS: usize = 64;
/// Interval of looks at the size of the stream.
const SNAPSHOT_CHECK: Duration = Duration::from_secs(10);
/// Bytes of the stream at which a snapshot is made, whatever the number of commits.
const SNAPSHOT_BYTES: u64 = 256 << 20;
/// Pause before the server or the journal is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Events that wait for the loop: more than there are tasks that send one.
const MAX_EVENTS: usize = 64;
/// Attempts to append the record of a term before the stream is read again.
const TERM_ATTEMPTS: usize = 5;

pub(super) struct DriverChannels {
    pub(super) status: watch::Sender<ClusterStatus>,
    pub(super) requests: mpsc::Receiver<MemberRequest>,
    pub(super) appends: mpsc::Receiver<CommitRequest>,
    pub(super) lease: SendLease,
    pub(super) start_over: StartOver,
}

/// What is written into the lease.
#[derive(Serialize, Deserialize)]
struct LeaseText {
    id: String,
    name: String,
    /// When it was asked for, in microseconds of the holder's own clock.
    asked: u64,
}

/// What a task of the loop came to.
enum DriverEvent {
    Member(MemberEvent),
    Followed(Result<Followed, FollowProblem>),
    Joined(Result<Joined, FollowProblem>),
    /// The journal was closed, and is needed again.
    Rejoin,
    /// The record of a term is in the stream, and the journal is closed.
    Term {
        term: u64,
        tail: Tail,
    },
    Snapshot(Result<u64, FollowProblem>),
    Released,
}

struct MemberDriver {
    settings: MemberSettings,
    id: String,
    store: ClusterStore,
    bus: Bus,
    member: Member,
    status: watch::Sender<ClusterStatus>,
    lease: SendLease,
    start_over: StartOver,
    events: mpsc::Sender<DriverEvent>,
    published: mpsc::Sender<Published>,
    appends: Option<mpsc::Receiver<CommitRequest>>,
    follower: Option<Arc<Follower>>,
    is_empty: bool,
    position: Option<u64>,
    last: Option<u64>,
    commits: u64,
    problem: Option<String>,
    /// A task uses the journal.
    is_busy: bool,
    catching_up: bool,
    is_snapshotting: bool,
    released: Option<oneshot::Sender<()>>,
    others: BTreeMap<String, (MemberStatus, Instant)>,
}

/// Runs until the process ends.
pub(super) async fn drive(settings: MemberSettings, channels: DriverChannels) {
    let fail = |channels: &DriverChannels, why: String| {
        channels
            .status
            .send_modify(|status| status.phase = MemberPhase::Failed(why));
    };
    let name = format!("hermes-relay {}", settings.name);
    let bus = match Bus::connect(&settings.nats, &settings.tls, &name).await {
        Ok(bus) => bus,
        Err(error) => return fail(&channels, error.to_string()),
    };
    let (store, mut hello) = open_store(&bus, &settings, &channels.status).await;
    let mut number = [0; 8];
    let _ = getrandom::fill(&mut number);
    let (events, mut event_queue) = mpsc::channel(MAX_EVENTS);
    let (published, mut published_queue) = mpsc::channel(MAX_EVENTS);
    let DriverChannels {
        status,
        mut requests,
        appends,
        lease,
        start_over,
    } = channels;
    let mut driver = MemberDriver {
        id: format!("{:016x}", u64::from_le_bytes(number)),
        settings,
        store,
        bus,
        member: Member::new(LeaseTiming::default(), now()),
        status,
        lease,
        start_over,
        events,
        published,
        appends: Some(appends),
        follower: None,
        is_empty: true,
        position: None,
        last: None,
        commits: 0,
        problem: None,
        is_busy: false,
        catching_up: false,
        is_snapshotting: false,
        released: None,
        others: BTreeMap::new(),
    };
    driver.join_soon(Duration::ZERO);
    let (mut looks, mut announces, mut sizes) =
        (ticks(FOLLOW_EVERY), ticks(ANNOUNCE_EVERY), ticks(SNAPSHOT_CHECK));
    loop {
        let due = driver.member.deadline().map(|at| at.saturating_sub(now()));
        // Cancel-safe: channels, a subscription and timers.
        tokio::select! {
            biased;
            Some(event) = event_queue.recv() => driver.handle(event),
            Some(published) = published_queue.recv() => driver.appended(&published),
            () = sleep(due.unwrap_or(RETRY)), if due.is_some() => driver.member_event(MemberEvent::Time),
            Some(request) = requests.recv() => driver.request(request),
            _ = announces.tick() => driver.announce(),
            Some(message) = hello.next() => driver.heard(&message.payload),
            _ = looks.tick() => driver.look(),
            _ = sizes.tick() => driver.check_size(),
        }
        driver.report();
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Opens what the cluster has at the server, however long that takes.
async fn open_store(
    bus: &Bus,
    settings: &MemberSettings,
    status: &watch::Sender<ClusterStatus>,
) -> (ClusterStore, Subscription) {
    let mut is_reported = false;
    loop {
        let opened = async {
            bus.connected(Duration::from_secs(5)).await?;
            let names = (settings.prefix.as_str(), settings.cluster.as_str());
            let ttl = LeaseTiming::default().ttl;
            let store = ClusterStore::open(bus, names, ttl, settings.replicas).await?;
            let hello = bus.subscribe(member_subject(settings)).await?;
            Ok::<_, NatsError>((store, hello))
        };
        match opened.await {
            Ok(opened) => {
                status.send_modify(|status| status.problem = None);
                return opened;
            }
            Err(error) => {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::warn!(%error, "cannot use the NATS server for the cluster yet; trying again");
                }
                status.send_modify(|status| status.problem = Some(error.to_string()));
                sleep(RETRY).await;
            }
        }
    }
}

fn member_subject(settings: &MemberSettings) -> String {
    format!("{}.cluster.{}.member", settings.prefix, settings.cluster)
}

impl MemberDriver {
    fn member_event(&mut self, event: MemberEvent) {
        for action in self.member.handle(now(), event) {
            self.perform(action);
        }
        match self.member.active_until() {
            Some(until) => self.lease.extend(until),
            None => self.lease.end(),
        }
    }

    fn perform(&mut self, action: MemberAction) {
        match action {
            // Who cannot follow must not become active.
            MemberAction::Acquire if self.follower.is_none() || self.problem.is_some() => {
                self.send(DriverEvent::Member(MemberEvent::Denied));
            }
            MemberAction::Acquire => self.ask_lease(None),
            MemberAction::Renew { revision } => self.ask_lease(Some(revision)),
            MemberAction::Release { revision } => {
                self.lease.end();
                let (store, events) = (self.store.clone(), self.events.clone());
                tokio::spawn(async move {
                    if !store.release_lease(revision).await {
                        tracing::warn!("cannot give the cluster's lease back; it ends by itself");
                    }
                    let _ = events.try_send(DriverEvent::Released);
                });
            }
            MemberAction::CatchUp => {
                self.catching_up = true;
                self.look();
            }
            MemberAction::StoreTerm { term, expected } => self.store_term(term, expected),
            MemberAction::Activate => {
                tracing::info!(
                    cluster = self.settings.cluster,
                    "this relay is the active member now"
                );
            }
            MemberAction::Stop => self.stop(),
        }
    }

    fn send(&self, event: DriverEvent) {
        let _ = self.events.try_send(event);
    }

    fn stop(&self) {
        self.lease.end();
        tracing::error!(
            "this relay is not the active member any more: it closes its connection and starts over as a standby"
        );
        (self.start_over)();
    }

    fn ask_lease(&self, revision: Option<u64>) {
        let (store, events, id) = (self.store.clone(), self.events.clone(), self.id.clone());
        let name = self.settings.name.clone();
        tokio::spawn(async move {
            // Before the request is sent: that is the earliest that the server can count from.
            let asked = now();
            let text = LeaseText {
                id: id.clone(),
                name,
                asked: u64::try_from(asked.as_micros()).unwrap_or(0),
            };
            let text = serde_json::to_vec(&text).unwrap_or_default();
            let event = match store.ask_lease(revision, text).await {
                LeaseReply::Granted(revision) => MemberEvent::Granted { asked, revision },
                LeaseReply::Unknown => MemberEvent::NoAnswer,
                // It may be ours all the same: the answer to an earlier request was lost.
                LeaseReply::Taken => match store.lease().await {
                    Err(_) => MemberEvent::NoAnswer,
                    Ok(None) if revision.is_none() => MemberEvent::NoAnswer,
                    Ok(None) => MemberEvent::Denied,
                    Ok(Some((revision, text))) => match serde_json::from_slice::<LeaseText>(&text) {
                        Ok(text) if text.id == id => MemberEvent::Granted {
                            asked: Duration::from_micros(text.asked),
                            revision,
                        },
                        Ok(_) | Err(_) => MemberEvent::Denied,
                    },
                },
            };
            let _ = events.try_send(DriverEvent::Member(event));
        });
    }

    /// Looks at the stream, if nothing else uses the journal.
    fn look(&mut self) {
        let is_following = matches!(self.member.role(), MemberRole::Standby | MemberRole::TakingOver);
        let (Some(follower), false, true) = (&self.follower, self.is_busy, is_following) else {
            return;
        };
        self.is_busy = true;
        let (store, events, follower) = (self.store.clone(), self.events.clone(), Arc::clone(follower));
        let position = self.position;
        tokio::spawn(async move {
            let outcome = match position {
                Some(position) => follow(&store, &follower, position).await,
                // Nobody was active yet; when somebody is, this journal begins as theirs does.
                None => match store.bounds().await {
                    Ok(bounds) if bounds.last == 0 => Ok(Followed {
                        position: 0,
                        read: 0,
                        last: 0,
                    }),
                    Ok(_) => Err(FollowProblem::NeedsSnapshot(0)),
                    Err(error) => Err(error.into()),
                },
            };
            drop(follower);
            let _ = events.try_send(DriverEvent::Followed(outcome));
        });
    }

    fn join_soon(&mut self, after: Duration) {
        self.is_busy = true;
        let follower = self.follower.take().and_then(Arc::into_inner);
        let (store, events) = (self.store.clone(), self.events.clone());
        let settings = MemberSettings {
            nats: self.settings.nats.clone(),
            tls: self.settings.tls.clone(),
            prefix: self.settings.prefix.clone(),
            cluster: self.settings.cluster.clone(),
            name: self.settings.name.clone(),
            state_dir: self.settings.state_dir.clone(),
            journal: self.settings.journal.clone(),
            ..self.settings
        };
        tokio::spawn(async move {
            sleep(after).await;
            if let Some(follower) = follower {
                close(follower).await;
            }
            let _ = events.try_send(DriverEvent::Joined(join(&store, &settings).await));
        });
    }

    fn handle(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Member(event) => self.member_event(event),
            DriverEvent::Joined(Ok(joined)) => {
                self.is_busy = false;
                self.problem = None;
                (self.follower, self.position, self.is_empty) =
                    (Some(joined.follower), joined.position, joined.is_empty);
                self.look();
            }
            DriverEvent::Rejoin => self.join_soon(Duration::ZERO),
            DriverEvent::Joined(Err(problem)) => {
                let is_final = matches!(problem, FollowProblem::NotOurs(_) | FollowProblem::Open(_));
                self.trouble(&problem);
                if is_final {
                    let why = problem.to_string();
                    self.status
                        .send_modify(|status| status.phase = MemberPhase::Failed(why));
                } else {
                    self.join_soon(RETRY);
                }
            }
            DriverEvent::Followed(Ok(followed)) => {
                self.is_busy = false;
                self.problem = None;
                self.last = Some(followed.last);
                if self.position.is_some() {
                    self.position = Some(followed.position);
                }
                if self.catching_up && followed.read == followed.last {
                    self.catching_up = false;
                    self.member_event(MemberEvent::CaughtUp { last: followed.last });
                } else if self.catching_up {
                    self.look();
                }
            }
            DriverEvent::Followed(Err(problem)) => {
                self.is_busy = false;
                let rejoins = matches!(problem, FollowProblem::NeedsSnapshot(_));
                self.trouble(&problem);
                if rejoins {
                    self.join_soon(RETRY);
                }
            }
            DriverEvent::Term { term, tail } => {
                self.position = Some(tail.last());
                self.last = self.position;
                self.member_event(MemberEvent::TermStored { term });
                match (self.member.role(), self.appends.take()) {
                    (MemberRole::Active, Some(appends)) => {
                        let (store, lease) = (self.store.clone(), self.lease.clone());
                        tokio::spawn(publish(store, lease, tail, appends, self.published.clone()));
                    }
                    // The lease ran out meanwhile, and the journal is closed.
                    _ => self.stop(),
                }
            }
            DriverEvent::Snapshot(made) => {
                self.is_snapshotting = false;
                match made {
                    // The stream is short.
                    Ok(0) => {}
                    Ok(position) => {
                        tracing::info!(position, "made a snapshot of the journal for the cluster");
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot make a snapshot of the journal for the cluster");
                    }
                }
            }
            DriverEvent::Released => {
                self.status
                    .send_modify(|status| status.phase = MemberPhase::Released);
                if let Some(released) = self.released.take() {
                    let _ = released.send(());
                }
            }
        }
    }

    fn trouble(&mut self, problem: &FollowProblem) {
        let text = problem.to_string();
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!(problem = text, "this member cannot follow the cluster's stream");
        }
        self.problem = Some(text);
    }

    fn appended(&mut self, published: &Published) {
        match published {
            Published::Stored(seq) => {
                self.commits += 1;
                (self.position, self.last) = (Some(*seq), Some(*seq));
            }
            Published::Fenced => self.member_event(MemberEvent::Fenced),
        }
    }

    /// Appends the record of this term, then closes the journal, so that the relay can open it.
    fn store_term(&mut self, term: u64, expected: u64) {
        let Some(follower) = self.follower.take() else {
            return;
        };
        self.is_busy = true;
        let (store, events) = (self.store.clone(), self.events.clone());
        let is_founder = self.position.is_none();
        let (has_content, dir) = (!self.is_empty, self.settings.state_dir.clone());
        let text = format!("{{\"term\":{term},\"name\":{:?}}}", self.settings.name);
        tokio::spawn(async move {
            if is_founder {
                // The stream begins with what is in this journal.
                let founded = if has_content {
                    put_snapshot(&store, dir).await.map(drop)
                } else {
                    Ok(())
                };
                if let Err(problem) = founded {
                    release(follower).await;
                    let _ = events.try_send(DriverEvent::Joined(Err(problem)));
                    return;
                }
            }
            let mut tail = Tail::new(term, expected);
            let attempt = tail.append();
            let mut record = vec![TERM];
            record.extend_from_slice(text.as_bytes());
            for _ in 0..TERM_ATTEMPTS {
                match store.append(&attempt.id, attempt.expected, record.clone()).await {
                    AppendReply::Stored(seq) if tail.stored(&attempt, seq) => {
                        let applied = follower.apply(vec![(seq, None)], unix_ms()).await;
                        release(follower).await;
                        let _ = events.try_send(match applied {
                            Ok(()) => DriverEvent::Term { term, tail },
                            Err(error) => DriverEvent::Joined(Err(error.into())),
                        });
                        return;
                    }
                    AppendReply::Stored(_) | AppendReply::Fenced => break,
                    AppendReply::Unknown(_) => sleep(Duration::from_millis(50)).await,
                }
            }
            release(follower).await;
            let _ = events.try_send(DriverEvent::Member(MemberEvent::Fenced));
            let _ = events.try_send(DriverEvent::Rejoin);
        });
    }

    fn request(&mut self, request: MemberRequest) {
        let MemberRequest::Release(released) = request;
        if self.member.role() == MemberRole::Active {
            self.released = Some(released);
            self.member_event(MemberEvent::HandOver);
        } else {
            let _ = released.send(());
        }
    }

    fn role(&self) -> &'static str {
        match self.member.role() {
            MemberRole::Standby | MemberRole::Stopped => "standby",
            MemberRole::TakingOver => "taking over",
            MemberRole::Active => "active",
        }
    }

    fn own_status(&self) -> MemberStatus {
        MemberStatus {
            name: self.settings.name.clone(),
            id: self.id.clone(),
            role: self.role().to_owned(),
            position: self.position.filter(|_| self.problem.is_none()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn announce(&mut self) {
        self.others.retain(|_, (_, seen)| seen.elapsed() < GONE_AFTER);
        let text = serde_json::to_vec(&self.own_status()).unwrap_or_default();
        let (bus, subject) = (self.bus.clone(), member_subject(&self.settings));
        if bus.is_connected() {
            tokio::spawn(async move {
                let _ = timeout(ANNOUNCE_EVERY, bus.publish(subject, text)).await;
            });
        }
    }

    fn heard(&mut self, text: &[u8]) {
        let Ok(other) = serde_json::from_slice::<MemberStatus>(text) else {
            return;
        };
        if other.id != self.id && (self.others.len() < MAX_MEMBERS || self.others.contains_key(&other.id)) {
            self.others.insert(other.id.clone(), (other, Instant::now()));
        }
    }

    fn check_size(&mut self) {
        if self.member.role() != MemberRole::Active || self.is_snapshotting {
            return;
        }
        self.is_snapshotting = true;
        let (store, events) = (self.store.clone(), self.events.clone());
        let (dir, every) = (self.settings.state_dir.clone(), self.settings.snapshot_every);
        tokio::spawn(async move {
            let Ok(bounds) = store.bounds().await else {
                return drop(events.try_send(DriverEvent::Snapshot(Ok(0))));
            };
            if bounds.records < every && bounds.bytes < SNAPSHOT_BYTES {
                return drop(events.try_send(DriverEvent::Snapshot(Ok(0))));
            }
            let made = async {
                let position = put_snapshot(&store, dir).await?;
                // A standby that is a little behind does not need the snapshot.
                store.truncate((position + 1).saturating_sub(every / 10)).await?;
                Ok(position)
            };
            let _ = events.try_send(DriverEvent::Snapshot(made.await));
        });
    }

    fn report(&self) {
        let mut members = vec![self.own_status()];
        members.extend(self.others.values().map(|(member, _)| member.clone()));
        let (role, problem) = (self.role(), self.problem.clone());
        self.status.send_if_modified(|status| {
            let phase = match (&status.phase, self.member.role()) {
                (MemberPhase::Following, MemberRole::Active) if self.appends.is_none() => MemberPhase::Active,
                (phase, _) => phase.clone(),
            };
            let is_changed = (status.role, &status.phase, &status.members, &status.problem)
                != (role, &phase, &members, &problem)
                || (status.position, status.last) != (self.position, self.last);
            status.role = role;
            status.phase = phase;
            status.members = members;
            status.problem = problem;
            (status.position, status.last, status.commits) = (self.position, self.last, self.commits);
            is_changed
        });
    }
}

/// Closes a journal that no other task uses.
async fn release(follower: Arc<Follower>) {
    if let Some(follower) = Arc::into_inner(follower) {
        close(follower).await;
    }
}
