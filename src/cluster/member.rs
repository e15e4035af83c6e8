//! One member: standby, taking over, active, or at its end.

use std::time::Duration;

use super::alone::{Alone, AloneStep, Hold, WithoutServer};

/// How long a lease holds, and how often it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTiming {
    /// When the server forgets a lease that is not renewed.
    pub ttl: Duration,
    /// How much earlier its holder stops.
    pub margin: Duration,
    /// Interval of renewals.
    pub renew: Duration,
    /// Interval of attempts to get it.
    pub acquire: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(3),
            margin: Duration::from_secs(1),
            renew: Duration::from_millis(500),
            acquire: Duration::from_millis(300),
        }
    }
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRole {
    /// It follows the stream.
    Standby,
    /// It has the lease and reads the rest of the stream.
    TakingOver,
    /// It has the link.
    Active,
    /// It has the link, and goes on without the server.
    Alone,
    /// Its journal has commits that the stream has not; it does not send until the server is there, or is known to be away.
    Returning,
    /// It was active; it sends nothing more and begins anew as a standby.
    Stopped,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// Time passed.
    Time,
    /// The server gave or renewed the lease when it was asked at that time, or later.
    Granted {
        /// By this member's clock, before the request was sent.
        asked: Duration,
        /// The lease's revision.
        revision: u64,
    },
    /// Somebody else has the lease.
    Denied,
    /// The request for the lease may have been carried out or not.
    NoAnswer,
    /// Everything in the stream up to its end, this record, is in the journal here.
    CaughtUp {
        /// The last record.
        last: u64,
    },
    /// The record of this term is in the stream.
    TermStored {
        /// The term.
        term: u64,
    },
    /// The stream refused a record: somebody else has appended one.
    Fenced,
    /// No commit is taken any more: the stream refused one, or has one that could not be stored here.
    Abandoned,
    /// The journal here cannot follow the stream at the moment.
    CannotFollow,
    /// All work is done; another member is to become active.
    HandOver,
    /// Whose the role is without a limit of time, by the stream as far as it was read.
    Held(Hold),
    /// A person says that the member whose the role is without a limit is gone.
    Take,
    /// The stream has nothing of another member after what is in the journal here; its last record.
    Unchanged {
        /// The last record.
        last: u64,
    },
    /// Another member took over by `handover --take`.
    Taken,
    /// The stream could not be read, or did not get what it lacks.
    NotInSync,
    /// The stream has what this journal has.
    InSync,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// Ask for the lease.
    Acquire,
    /// Renew the lease of this revision.
    Renew {
        /// The revision.
        revision: u64,
    },
    /// Give the lease of this revision back.
    Release {
        /// The revision.
        revision: u64,
    },
    /// Read the stream to its end.
    CatchUp,
    /// Append the record of the new term, after this record.
    StoreTerm {
        /// The term.
        term: u64,
        /// The last record.
        expected: u64,
    },
    /// Open the link.
    Activate,
    /// Close the link at once and send nothing more.
    Stop,
    /// Give the lease of this revision back, and follow.
    Decline {
        /// The revision.
        revision: u64,
    },
    /// Commits go to the journal only.
    GoAlone,
    /// Read what the stream has after what is in the journal here.
    Check,
    /// Give the stream what is in the journal here, after this record.
    Resync {
        /// The term.
        term: u64,
        /// The last record.
        expected: u64,
    },
    /// The journal here is not the cluster's: keep it beside, and follow.
    SetAside,
    /// End; the role stays this member's.
    Leave,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) revision: u64,
    /// The revision that it began with.
    pub(super) term: u64,
    /// Until when it is believed.
    pub(super) until: Duration,
    /// When to renew it; none while the server is asked.
    pub(super) renew_at: Option<Duration>,
}

impl Lease {
    pub(super) fn new(
        timing: &LeaseTiming,
        now: Duration,
        asked: Duration,
        revision: u64,
        term: u64,
    ) -> Self {
        Self {
            revision,
            term,
            until: asked + timing.ttl.saturating_sub(timing.margin),
            renew_at: Some(now.max(asked + timing.renew)),
        }
    }

    /// When something has to be done about it.
    pub(super) fn due(&self) -> Duration {
        self.renew_at.map_or(self.until, |at| at.min(self.until))
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// When to ask for the lease; none while the server is asked.
    Standby(Option<Duration>),
    TakingOver(Lease),
    Active(Lease),
    /// Without the server.
    Alone(Alone),
    Stopped,
}

/// A member of the cluster.
#[derive(Debug)]
pub struct Member {
    timing: LeaseTiming,
    without_server: WithoutServer,
    state: State,
    hold: Hold,
    /// `handover --take`: the member that holds the role without a lease is gone.
    is_taking: bool,
}

impl Member {
    /// A standby that asks for the lease from this time on.
    pub fn new(timing: LeaseTiming, without_server: WithoutServer, ask_at: Duration) -> Self {
        Self {
            timing,
            without_server,
            state: State::Standby(Some(ask_at)),
            hold: Hold::Nobody,
            is_taking: false,
        }
    }

    /// A member whose journal has commits that the stream has not, or that went on alone before the server was reached.
    pub fn returning(
        timing: LeaseTiming,
        without_server: WithoutServer,
        now: Duration,
        acts: bool,
        act_at: Option<Duration>,
    ) -> Self {
        Self {
            state: State::Alone(Alone::new(now, acts, act_at)),
            ..Self::new(timing, without_server, now)
        }
    }

    /// Whether it takes over by `handover --take`.
    pub fn is_taking(&self) -> bool {
        self.is_taking
    }

    /// What it is.
    pub fn role(&self) -> MemberRole {
        match self.state {
            State::Standby(_) => MemberRole::Standby,
            State::TakingOver(_) => MemberRole::TakingOver,
            State::Active(_) => MemberRole::Active,
            State::Alone(alone) if alone.acts => MemberRole::Alone,
            State::Alone(_) => MemberRole::Returning,
            State::Stopped => MemberRole::Stopped,
        }
    }

    /// Until when it may send; none unless it is active.
    pub fn active_until(&self) -> Option<Duration> {
        match self.state {
            // Nobody else becomes active when the lease ends.
            State::Active(_) if self.without_server == WithoutServer::Continue => Some(Duration::MAX),
            State::Active(lease) => Some(lease.until),
            State::Alone(alone) => alone.acts.then_some(Duration::MAX),
            State::Standby(_) | State::TakingOver(_) | State::Stopped => None,
        }
    }

    /// When [`MemberEvent::Time`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Standby(ask_at) => ask_at,
            State::TakingOver(lease) | State::Active(lease) => Some(lease.due()),
            State::Alone(alone) => alone.deadline(),
            State::Stopped => None,
        }
    }

    /// Takes an event. Before every event the time is looked at: an answer that comes too late changes nothing.
    pub fn handle(&mut self, now: Duration, event: MemberEvent) -> Vec<MemberAction> {
        let mut actions = self.pass_time(now);
        if let MemberEvent::Held(hold) = event {
            self.hold = hold;
        }
        match (self.state, event) {
            (State::Alone(_), event) => self.handle_alone(now, event, &mut actions),
            (State::Standby(_), MemberEvent::Take) => {
                (self.is_taking, self.state) = (true, State::Standby(None));
                actions.push(MemberAction::Acquire);
            }
            (State::Standby(_), MemberEvent::Granted { asked, revision }) => {
                let lease = self.lease(now, asked, revision, revision);
                if now < lease.until {
                    self.state = State::TakingOver(lease);
                    actions.push(MemberAction::CatchUp);
                } else {
                    self.stand_by(now);
                }
            }
            (State::Standby(None), MemberEvent::Denied | MemberEvent::NoAnswer)
            | (State::TakingOver(_), MemberEvent::Denied) => self.stand_by(now),
            (State::TakingOver(lease) | State::Active(lease), MemberEvent::Granted { asked, revision }) => {
                let mut renewed = self.lease(now, asked, revision, lease.term);
                renewed.until = renewed.until.max(lease.until);
                self.hold(renewed);
            }
            (State::TakingOver(mut lease) | State::Active(mut lease), MemberEvent::NoAnswer) => {
                lease.renew_at = Some(now + self.timing.renew / 4);
                self.hold(lease);
            }
            (State::TakingOver(lease), MemberEvent::CaughtUp { .. }) if !self.may_take_over() => {
                self.decline(now, lease, &mut actions);
            }
            // Another member may be able to.
            (State::TakingOver(lease), MemberEvent::CannotFollow) => self.decline(now, lease, &mut actions),
            (State::TakingOver(lease), MemberEvent::CaughtUp { last }) => {
                actions.push(MemberAction::StoreTerm {
                    term: lease.term,
                    expected: last,
                });
            }
            (State::TakingOver(_), MemberEvent::Fenced) => actions.push(MemberAction::CatchUp),
            (State::TakingOver(lease), MemberEvent::TermStored { term }) if term == lease.term => {
                self.state = State::Active(lease);
                self.is_taking = false;
                actions.push(MemberAction::Activate);
            }
            // The stream decides whether somebody else is active.
            (State::Active(_), MemberEvent::Denied) if self.without_server == WithoutServer::Continue => {
                self.go_alone(now, &mut actions);
                self.handle_alone(now, event, &mut actions);
            }
            (
                State::Active(_),
                MemberEvent::Denied | MemberEvent::Fenced | MemberEvent::Abandoned | MemberEvent::Taken,
            ) => {
                self.state = State::Stopped;
                actions.push(MemberAction::Stop);
            }
            (State::TakingOver(lease) | State::Active(lease), MemberEvent::HandOver) => {
                self.state = State::Stopped;
                actions.push(MemberAction::Release {
                    revision: lease.revision,
                });
            }
            (State::Standby(_) | State::TakingOver(_) | State::Active(_) | State::Stopped, _) => {}
        }
        actions
    }

    fn lease(&self, now: Duration, asked: Duration, revision: u64, term: u64) -> Lease {
        Lease::new(&self.timing, now, asked, revision, term)
    }

    /// Whether it may become active: when another member may be going on alone, only by `handover --take`.
    fn may_take_over(&self) -> bool {
        self.hold != Hold::Other || self.is_taking
    }

    fn stand_by(&mut self, now: Duration) {
        self.is_taking = false;
        self.state = State::Standby(Some(now + self.timing.acquire));
    }

    fn decline(&mut self, now: Duration, lease: Lease, actions: &mut Vec<MemberAction>) {
        self.stand_by(now);
        actions.push(MemberAction::Decline {
            revision: lease.revision,
        });
    }

    fn go_alone(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        self.state = State::Alone(Alone::new(now, true, None));
        actions.push(MemberAction::GoAlone);
    }

    fn handle_alone(&mut self, now: Duration, event: MemberEvent, actions: &mut Vec<MemberAction>) {
        let State::Alone(alone) = &mut self.state else {
            return;
        };
        let acts = alone.acts;
        match alone.handle(now, &self.timing, event, actions) {
            AloneStep::Stays => {}
            AloneStep::InSync(lease) => {
                self.state = State::Active(lease);
                if !acts {
                    actions.push(MemberAction::Activate);
                }
            }
            AloneStep::Taken if acts => {
                self.state = State::Stopped;
                actions.push(MemberAction::Stop);
            }
            AloneStep::Taken => {
                // Until the stream was read.
                self.hold = Hold::Other;
                self.stand_by(now);
                actions.push(MemberAction::SetAside);
            }
            AloneStep::Left => {
                self.state = State::Stopped;
                actions.push(MemberAction::Leave);
            }
        }
    }

    fn hold(&mut self, lease: Lease) {
        match &mut self.state {
            State::TakingOver(held) | State::Active(held) => *held = lease,
            State::Standby(_) | State::Alone(_) | State::Stopped => {}
        }
    }

    /// What the time alone brings.
    fn pass_time(&mut self, now: Duration) -> Vec<MemberAction> {
        let may_take_over = self.may_take_over();
        match &mut self.state {
            State::Standby(ask_at) if ask_at.is_some_and(|at| now >= at) => {
                if may_take_over {
                    *ask_at = None;
                    vec![MemberAction::Acquire]
                } else {
                    *ask_at = Some(now + self.timing.acquire);
                    Vec::new()
                }
            }
            State::TakingOver(lease) if now >= lease.until => {
                self.stand_by(now);
                Vec::new()
            }
            State::Active(lease) if now >= lease.until => {
                let mut actions = Vec::new();
                match self.without_server {
                    WithoutServer::Stop => {
                        self.state = State::Stopped;
                        actions.push(MemberAction::Stop);
                    }
                    WithoutServer::Continue => self.go_alone(now, &mut actions),
                }
                actions
            }
            State::TakingOver(lease) | State::Active(lease) if lease.renew_at.is_some_and(|at| now >= at) => {
                lease.renew_at = None;
                vec![MemberAction::Renew {
                    revision: lease.revision,
                }]
            }
            State::Alone(alone) => alone.pass_time(now),
            State::Standby(_) | State::TakingOver(_) | State::Active(_) | State::Stopped => Vec::new(),
        }
    }
}
