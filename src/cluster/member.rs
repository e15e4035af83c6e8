//! One member: standby, taking over, active, or at its end.

use std::time::Duration;

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
    /// All work is done; another member is to become active.
    HandOver,
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
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    revision: u64,
    /// The revision that it began with.
    term: u64,
    /// Until when it is believed.
    until: Duration,
    /// When to renew it; none while the server is asked.
    renew_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// When to ask for the lease; none while the server is asked.
    Standby(Option<Duration>),
    TakingOver(Lease),
    Active(Lease),
    Stopped,
}

/// A member of the cluster.
#[derive(Debug)]
pub struct Member {
    timing: LeaseTiming,
    state: State,
}

impl Member {
    /// A standby that asks for the lease from this time on.
    pub fn new(timing: LeaseTiming, ask_at: Duration) -> Self {
        Self {
            timing,
            state: State::Standby(Some(ask_at)),
        }
    }

    /// What it is.
    pub fn role(&self) -> MemberRole {
        match self.state {
            State::Standby(_) => MemberRole::Standby,
            State::TakingOver(_) => MemberRole::TakingOver,
            State::Active(_) => MemberRole::Active,
            State::Stopped => MemberRole::Stopped,
        }
    }

    /// Until when it may send; none unless it is active.
    pub fn active_until(&self) -> Option<Duration> {
        match self.state {
            State::Active(lease) => Some(lease.until),
            State::Standby(_) | State::TakingOver(_) | State::Stopped => None,
        }
    }

    /// When [`MemberEvent::Time`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        match self.state {
            State::Standby(ask_at) => ask_at,
            State::TakingOver(lease) | State::Active(lease) => {
                Some(lease.renew_at.map_or(lease.until, |at| at.min(lease.until)))
            }
            State::Stopped => None,
        }
    }

    /// Takes an event. Before every event the time is looked at: an answer that comes too late changes nothing.
    pub fn handle(&mut self, now: Duration, event: MemberEvent) -> Vec<MemberAction> {
        let mut actions = self.pass_time(now);
        match (self.state, event) {
            (State::Standby(_), MemberEvent::Granted { asked, revision }) => {
                let lease = self.lease(now, asked, revision, revision);
                if now < lease.until {
                    self.state = State::TakingOver(lease);
                    actions.push(MemberAction::CatchUp);
                } else {
                    self.state = State::Standby(Some(now + self.timing.acquire));
                }
            }
            (State::Standby(None), MemberEvent::Denied | MemberEvent::NoAnswer)
            | (State::TakingOver(_), MemberEvent::Denied) => {
                self.state = State::Standby(Some(now + self.timing.acquire));
            }
            (State::TakingOver(lease) | State::Active(lease), MemberEvent::Granted { asked, revision }) => {
                let mut renewed = self.lease(now, asked, revision, lease.term);
                renewed.until = renewed.until.max(lease.until);
                self.hold(renewed);
            }
            (State::TakingOver(mut lease) | State::Active(mut lease), MemberEvent::NoAnswer) => {
                lease.renew_at = Some(now + self.timing.renew / 4);
                self.hold(lease);
            }
            (State::TakingOver(lease), MemberEvent::CaughtUp { last }) => {
                actions.push(MemberAction::StoreTerm {
                    term: lease.term,
                    expected: last,
                });
            }
            (State::TakingOver(_), MemberEvent::Fenced) => actions.push(MemberAction::CatchUp),
            (State::TakingOver(lease), MemberEvent::TermStored { term }) if term == lease.term => {
                self.state = State::Active(lease);
                actions.push(MemberAction::Activate);
            }
            (State::Active(_), MemberEvent::Denied | MemberEvent::Fenced) => {
                self.state = State::Stopped;
                actions.push(MemberAction::Stop);
            }
            (State::TakingOver(lease) | State::Active(lease), MemberEvent::HandOver) => {
                self.state = State::Stopped;
                actions.push(MemberAction::Release {
                    revision: lease.revision,
                });
            }
            (
                State::Standby(_),
                MemberEvent::Time
                | MemberEvent::Denied
                | MemberEvent::NoAnswer
                | MemberEvent::CaughtUp { .. }
                | MemberEvent::TermStored { .. }
                | MemberEvent::Fenced
                | MemberEvent::HandOver,
            )
            | (State::TakingOver(_), MemberEvent::Time | MemberEvent::TermStored { .. })
            | (
                State::Active(_),
                MemberEvent::Time | MemberEvent::CaughtUp { .. } | MemberEvent::TermStored { .. },
            )
            | (State::Stopped, _) => {}
        }
        actions
    }

    fn lease(&self, now: Duration, asked: Duration, revision: u64, term: u64) -> Lease {
        Lease {
            revision,
            term,
            until: asked + self.timing.ttl.saturating_sub(self.timing.margin),
            renew_at: Some(now.max(asked + self.timing.renew)),
        }
    }

    fn hold(&mut self, lease: Lease) {
        match &mut self.state {
            State::TakingOver(held) | State::Active(held) => *held = lease,
            State::Standby(_) | State::Stopped => {}
        }
    }

    /// What the time alone brings.
    fn pass_time(&mut self, now: Duration) -> Vec<MemberAction> {
        match &mut self.state {
            State::Standby(ask_at) if ask_at.is_some_and(|at| now >= at) => {
                *ask_at = None;
                vec![MemberAction::Acquire]
            }
            State::TakingOver(lease) if now >= lease.until => {
                self.state = State::Standby(Some(now + self.timing.acquire));
                Vec::new()
            }
            State::Active(lease) if now >= lease.until => {
                self.state = State::Stopped;
                vec![MemberAction::Stop]
            }
            State::TakingOver(lease) | State::Active(lease) if lease.renew_at.is_some_and(|at| now >= at) => {
                lease.renew_at = None;
                vec![MemberAction::Renew {
                    revision: lease.revision,
                }]
            }
            State::Standby(_) | State::TakingOver(_) | State::Active(_) | State::Stopped => Vec::new(),
        }
    }
}
