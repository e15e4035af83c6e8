//! The thread's loop: what happened goes to [`Member`], and what it asks for is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::alone::{AloneSince, Opening, begin};
use super::follow::{
    FollowProblem, Followed, HELD, HeldBy, Joined, Source, TERM, TermText, close, follow, join, put_snapshot,
};
use super::publish::{CommitRequest, PublishControl, PublishMode, Published, Publisher};
use super::{ClusterStatus, MemberPhase, MemberRequest, MemberSettings, MemberStatus, StartOver};
use crate::cluster::{LeaseTiming, Member, MemberAction, MemberEvent, MemberRole, Tail, WithoutServer};
use crate::net::nats::{Bus, NatsError, Subscription};
use crate::net::nats_cluster::{AppendReply, ClusterStore, LeaseReply};
use crate::net::send_lease::{SendLease, now};
use crate::relay::clock::now_ms;
use crate::store::{Follower, StreamContent};

/// Interval of looks at the stream.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// Interval in which members say that they are there.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_millis(500);
/// Interval of looks at the size of the stream.
const SNAPSHOT_CHECK: Duration = Duration::from_secs(10);
/// Bytes of the stream at which a snapshot is made, whatever the number of commits.
const SNAPSHOT_BYTES: u64 = 256 << 20;
/// Pause before the server or the journal is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);
/// Events that wait for the loop: more than there are tasks that send one.
const MAX_EVENTS: usize = 64;
/// Attempts to append the record of a term before the stream is read again.
pub(super) const TERM_ATTEMPTS: usize = 5;
/// Requests that wait for the task that appends commits.
const MAX_CONTROLS: usize = 8;

pub(super) struct DriverChannels {
    pub(super) status: watch::Sender<ClusterStatus>,
    pub(super) requests: mpsc::Receiver<MemberRequest>,
    pub(super) appends: mpsc::Receiver<CommitRequest>,
    pub(super) lease: SendLease,
    pub(super) start_over: StartOver,
}

/// What is written into the lease.
#[derive(Serialize, Deserialize)]
pub(super) struct LeaseText {
    id: String,
    pub(super) name: String,
    /// When it was asked for, in microseconds of the holder's own clock.
    asked: u64,
}

/// What a task of the loop came to.
pub(super) enum DriverEvent {
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
    /// The stream has what this journal has, up to this record.
    InSync(u64),
    /// Why it has not.
    NotInSync(FollowProblem),
    /// The journal was kept beside.
    SetAside,
    /// The lease that is there, and whose it is.
    Lease(Option<String>),
}

pub(super) struct MemberDriver {
    pub(super) settings: MemberSettings,
    pub(super) id: String,
    pub(super) store: ClusterStore,
    pub(super) bus: Bus,
    pub(super) member: Member,
    pub(super) status: watch::Sender<ClusterStatus>,
    pub(super) lease: SendLease,
    start_over: StartOver,
    pub(super) events: mpsc::Sender<DriverEvent>,
    /// Names this journal in the stream.
    pub(super) own: Option<u64>,
    pub(super) holder: Option<u64>,
    /// The holder's name, and when it was last seen to renew its lease.
    pub(super) seen_holder: (Option<String>, Instant),
    pub(super) is_silence_reported: bool,
    pub(super) alone: Option<AloneSince>,
    pub(super) controls: mpsc::Sender<PublishControl>,
    publisher: Option<Publisher>,
    pub(super) appends: Option<mpsc::Receiver<CommitRequest>>,
    pub(super) follower: Option<Arc<Follower>>,
    is_empty: bool,
    pub(super) position: Option<u64>,
    pub(super) last: Option<u64>,
    pub(super) commits: u64,
    pub(super) problem: Option<String>,
    /// A task uses the journal.
    pub(super) is_busy: bool,
    catching_up: bool,
    is_snapshotting: bool,
    released: Option<oneshot::Sender<()>>,
    taking: Option<oneshot::Sender<Result<(), String>>>,
    pub(super) others: BTreeMap<String, (MemberStatus, Instant)>,
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
    let (controls, control_queue) = mpsc::channel(MAX_CONTROLS);
    let (outcomes, mut outcome_queue) = mpsc::channel(MAX_EVENTS);
    let mut publisher = Some(Publisher::new(
        channels.lease.clone(),
        PublishMode::Alone(None),
        control_queue,
        outcomes,
    ));
    let DriverChannels {
        status,
        mut requests,
        appends,
        lease,
        start_over,
    } = channels;
    let mut appends = Some(appends);
    let go_on = || {
        lease.extend(Duration::MAX);
        if let (Some(publisher), Some(appends)) = (publisher.take(), appends.take()) {
            tokio::spawn(publisher.run(appends));
        }
    };
    let Opening {
        store,
        mut hello,
        marks,
        member,
        alone,
    } = Box::pin(begin(&bus, &settings, &status, &mut requests, go_on)).await;
    let mut number = [0; 8];
    let _ = getrandom::fill(&mut number);
    let (events, mut event_queue) = mpsc::channel(MAX_EVENTS);
    let is_returning = matches!(member.role(), MemberRole::Alone | MemberRole::Returning);
    let mut driver = MemberDriver {
        id: format!("{:016x}", u64::from_le_bytes(number)),
        settings,
        store,
        bus,
        member,
        status,
        lease,
        start_over,
        events,
        own: marks.member,
        holder: marks.holder,
        seen_holder: (None, Instant::now()),
        is_silence_reported: false,
        alone,
        controls,
        publisher,
        appends,
        follower: None,
        is_empty: true,
        position: marks.position,
        last: None,
        commits: 0,
        problem: None,
        is_busy: false,
        catching_up: false,
        is_snapshotting: false,
        released: None,
        taking: None,
        others: BTreeMap::new(),
    };
    if is_returning {
        driver.start_publisher();
    } else {
        driver.join_soon(Duration::ZERO, Source::Own);
    }
    let (mut looks, mut announces, mut sizes) =
        (ticks(FOLLOW_EVERY), ticks(ANNOUNCE_EVERY), ticks(SNAPSHOT_CHECK));
    loop {
        let due = driver.member.deadline().map(|at| at.saturating_sub(now()));
        // Cancel-safe: channels, a subscription and timers.
        tokio::select! {
            biased;
            Some(event) = event_queue.recv() => driver.handle(event),
            Some(outcome) = outcome_queue.recv() => driver.appended(&outcome),
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

/// Opens what the cluster has at the server, however long that takes. Cancel-safe.
pub(super) async fn open_store(
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

pub(super) fn member_subject(settings: &MemberSettings) -> String {
    format!("{}.cluster.{}.member", settings.prefix, settings.cluster)
}

impl MemberDriver {
    pub(super) fn member_event(&mut self, event: MemberEvent) {
        for action in self.member.handle(now(), event) {
            self.perform(action);
        }
        match self.member.active_until() {
            Some(until) => self.lease.extend(until),
            None => self.lease.end(),
        }
        if let Some(taking) = self.taking.take_if(|_| !self.member.is_taking()) {
            let _ = taking.send(match (self.member.role(), &self.problem) {
                (MemberRole::Active, _) => Ok(()),
                (_, Some(problem)) => Err(cannot_take_over(problem)),
                (_, None) => Err("the active role could not be taken: its holder still renews its lease, or the server does not answer".to_owned()),
            });
        }
    }

    fn perform(&mut self, action: MemberAction) {
        match action {
            // Who cannot follow must not become active.
            MemberAction::Acquire
                if self.member.role() == MemberRole::Standby
                    && (self.follower.is_none() || self.problem.is_some()) =>
            {
                self.send(DriverEvent::Member(MemberEvent::Denied));
            }
            MemberAction::Acquire => self.ask_lease(None),
            MemberAction::Renew { revision } => self.ask_lease(Some(revision)),
            MemberAction::Release { revision } => self.release(revision),
            MemberAction::Decline { revision } => {
                let store = self.store.clone();
                tokio::spawn(async move { store.release_lease(revision).await });
            }
            MemberAction::GoAlone => self.go_alone(),
            MemberAction::Check => self.check_stream(),
            MemberAction::Resync { term, expected } => self.resync(term, expected),
            MemberAction::SetAside => self.set_aside(),
            MemberAction::Leave => {
                tracing::warn!(
                    "ending without the NATS server: no standby takes over until this relay is back, or one is told to by `handover --take`"
                );
                self.lease.end();
                self.send(DriverEvent::Released);
            }
            MemberAction::CatchUp => {
                self.catching_up = true;
                self.look();
            }
            MemberAction::StoreTerm { term, expected } => self.store_term(term, expected),
            MemberAction::Activate => {
                self.start_publisher();
                tracing::info!(
                    cluster = self.settings.cluster,
                    "this relay is the active member now"
                );
            }
            MemberAction::Stop => self.stop(),
        }
    }

    pub(super) fn send(&self, event: DriverEvent) {
        let _ = self.events.try_send(event);
    }

    pub(super) fn control(&self, control: PublishControl) {
        let _ = self.controls.try_send(control);
    }

    fn start_publisher(&mut self) {
        if let (Some(publisher), Some(appends)) = (self.publisher.take(), self.appends.take()) {
            tokio::spawn(publisher.run(appends));
        }
    }

    fn stop(&self) {
        self.lease.end();
        if self.settings.without_server == WithoutServer::Continue {
            self.stand_down_now();
        }
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
                        held: None,
                    }),
                    Ok(_) => Err(FollowProblem::NeedsSnapshot(0)),
                    Err(error) => Err(error.into()),
                },
            };
            drop(follower);
            let _ = events.try_send(DriverEvent::Followed(outcome));
        });
    }

    fn join_soon(&mut self, after: Duration, source: Source) {
        self.is_busy = true;
        let follower = self.follower.take().and_then(Arc::into_inner);
        let (store, events, settings) = (self.store.clone(), self.events.clone(), self.settings.clone());
        tokio::spawn(async move {
            sleep(after).await;
            if let Some(follower) = follower {
                close(follower).await;
            }
            let joined = join(&store, &settings, source).await;
            let _ = events.try_send(DriverEvent::Joined(joined));
        });
    }

    fn handle(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Member(event) => self.member_event(event),
            DriverEvent::Joined(Ok(joined)) => {
                self.is_busy = false;
                self.problem = None;
                (self.follower, self.is_empty) = (Some(joined.follower), joined.is_empty);
                (self.position, self.own) = (joined.marks.position, joined.marks.member);
                self.held_by(joined.marks.holder);
                self.look();
            }
            DriverEvent::Rejoin | DriverEvent::SetAside => self.join_soon(Duration::ZERO, Source::Own),
            DriverEvent::Joined(Err(problem)) => {
                let is_final = matches!(problem, FollowProblem::NotOurs(_) | FollowProblem::Open(_));
                self.trouble(&problem);
                if is_final {
                    let why = problem.to_string();
                    self.status
                        .send_modify(|status| status.phase = MemberPhase::Failed(why));
                } else {
                    self.join_soon(RETRY, Source::Own);
                }
            }
            DriverEvent::Followed(Ok(followed)) => {
                self.is_busy = false;
                self.problem = None;
                if let Some(HeldBy(holder)) = followed.held {
                    self.held_by(holder);
                }
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
                self.trouble(&problem);
                match problem {
                    FollowProblem::NeedsSnapshot(_) => self.join_soon(RETRY, Source::Own),
                    FollowProblem::BeginAgain { seq, object } => {
                        self.join_soon(Duration::ZERO, Source::Object(object, seq));
                    }
                    FollowProblem::Server(_)
                    | FollowProblem::Journal(_)
                    | FollowProblem::Snapshot(_)
                    | FollowProblem::Open(_)
                    | FollowProblem::Shorter { .. }
                    | FollowProblem::NotOurs(_)
                    | FollowProblem::Record(_) => {}
                }
            }
            DriverEvent::Term { term, tail } => self.term_stored(term, tail),
            DriverEvent::InSync(last) => {
                (self.position, self.last, self.problem) = (Some(last), Some(last), None);
                self.alone = None;
                tracing::info!(
                    record = last,
                    "the cluster's stream has this relay's journal again"
                );
                self.member_event(MemberEvent::InSync);
            }
            DriverEvent::NotInSync(problem) => {
                self.problem = Some(problem.to_string());
                self.member_event(MemberEvent::NotInSync);
            }
            DriverEvent::Lease(name) => self.holder_seen(name),
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

    fn term_stored(&mut self, term: u64, tail: Tail) {
        self.position = Some(tail.last());
        self.last = self.position;
        if let Some(publisher) = &mut self.publisher {
            publisher.append_to(self.store.clone(), tail);
        }
        self.member_event(MemberEvent::TermStored { term });
        // The lease ran out meanwhile, and the journal is closed.
        if self.member.role() != MemberRole::Active {
            self.stop();
        }
    }

    fn trouble(&mut self, problem: &FollowProblem) {
        let text = problem.to_string();
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!(problem = text, "this member cannot follow the cluster's stream");
        }
        self.problem = Some(text);
        // A server that does not answer does not take a record of anybody else either.
        if !matches!(problem, FollowProblem::Server(_)) {
            self.member_event(MemberEvent::CannotFollow);
        }
    }

    fn appended(&mut self, published: &Published) {
        match published {
            Published::Stored(seq) => {
                self.commits += 1;
                (self.position, self.last) = (Some(*seq), Some(*seq));
            }
            Published::Alone(number) => {
                if let Some(alone) = &mut self.alone {
                    alone.commits = *number;
                }
            }
            Published::Abandoned => self.member_event(MemberEvent::Abandoned),
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
        let kind = match self.settings.without_server {
            WithoutServer::Stop => TERM,
            WithoutServer::Continue => HELD,
        };
        let author = self.own;
        let holder = author.filter(|_| kind == HELD);
        let record = self.term_text(term).record(kind);
        tokio::spawn(async move {
            if is_founder {
                // The stream begins with what is in this journal.
                let founded = if has_content {
                    put_snapshot(&store, dir, None).await.map(drop)
                } else {
                    Ok(())
                };
                if let Err(problem) = founded {
                    close_last(follower).await;
                    let _ = events.try_send(DriverEvent::Joined(Err(problem)));
                    return;
                }
            }
            let mut tail = Tail::new(term, expected);
            let attempt = tail.append();
            for _ in 0..TERM_ATTEMPTS {
                match store.append(&attempt.id, attempt.expected, record.clone()).await {
                    AppendReply::Stored(seq) if tail.stored(&attempt, seq) => {
                        let content = StreamContent::Term { author, holder };
                        let applied = follower.apply(vec![(seq, content)], now_ms()).await;
                        close_last(follower).await;
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
            close_last(follower).await;
            let _ = events.try_send(DriverEvent::Member(MemberEvent::Fenced));
            let _ = events.try_send(DriverEvent::Rejoin);
        });
    }

    fn request(&mut self, request: MemberRequest) {
        match (request, self.member.role()) {
            (MemberRequest::Release(released), MemberRole::Active | MemberRole::Alone) => {
                self.released = Some(released);
                self.member_event(MemberEvent::HandOver);
            }
            (MemberRequest::Release(released), _) => drop(released.send(())),
            (MemberRequest::Take(reply), _) => {
                if let Some(why) = self.take_refusal() {
                    return drop(reply.send(Err(why)));
                }
                tracing::warn!("taking the active role over, as asked by `handover --take`");
                self.taking = Some(reply);
                self.member_event(MemberEvent::Take);
            }
        }
    }

    pub(super) fn term_text(&self, term: u64) -> TermText {
        TermText {
            term,
            name: self.settings.name.clone(),
            member: self.own,
            object: None,
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
                let position = put_snapshot(&store, dir, None).await?.position.unwrap_or(0);
                // A standby that is a little behind does not need the snapshot.
                store.truncate((position + 1).saturating_sub(every / 10)).await?;
                Ok(position)
            };
            let _ = events.try_send(DriverEvent::Snapshot(made.await));
        });
    }
}

pub(super) fn cannot_take_over(problem: &str) -> String {
    format!("this relay cannot take over: {problem}")
}

/// Closes a journal that no other task uses.
async fn close_last(follower: Arc<Follower>) {
    if let Some(follower) = Arc::into_inner(follower) {
        close(follower).await;
    }
}
