//! A member that goes on without the server, or did so before it was started: the stream tells it whether it still may.

use std::time::Duration;

use super::member::{Lease, LeaseTiming, MemberAction, MemberEvent};

/// What an active member does when it cannot reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutServer {
    /// It stops; another member may become active.
    #[default]
    Stop,
    /// It goes on alone; no other member becomes active but by `handover --take`.
    Continue,
}

/// Who holds the active role without a lease, according to the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// Nobody's: whoever has the lease may become active.
    #[default]
    Nobody,
    /// This member's.
    Own,
    /// Another one's: it may be going on alone.
    Other,
}

/// How a member begins, by what its journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It follows the stream, as soon as the server is there.
    Follow,
    /// The same; without the server it goes on alone.
    FollowOrGoOn,
    /// Its journal has commits that the stream has not, so that it cannot follow. It waits for the server.
    Return,
    /// The same; without the server it goes on alone.
    ReturnOrGoOn,
}

impl Beginning {
    /// `was_alone`: the journal has commits that the stream has not. `may_go_on`: the role was its own without a limit when it was last
    /// written, and it did not begin to give it back.
    pub fn of(without_server: WithoutServer, was_alone: bool, may_go_on: bool) -> Self {
        match (was_alone, may_go_on && without_server == WithoutServer::Continue) {
            (false, false) => Self::Follow,
            (false, true) => Self::FollowOrGoOn,
            (true, false) => Self::Return,
            (true, true) => Self::ReturnOrGoOn,
        }
    }

    /// Whether it goes on alone when the server cannot be reached.
    pub fn goes_on(self) -> bool {
        matches!(self, Self::FollowOrGoOn | Self::ReturnOrGoOn)
    }

    /// Whether its journal has commits that the stream has not.
    pub fn returns(self) -> bool {
        matches!(self, Self::Return | Self::ReturnOrGoOn)
    }
}

/// What became of a member that is alone.
pub(super) enum AloneStep {
    Stays,
    /// The stream has all of this member's journal.
    InSync(Lease),
    /// Another member took over by `handover --take`.
    Taken,
    /// It ends as it is.
    Left,
}

/// A member without the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// It has the link and sends.
    pub(super) acts: bool,
    /// When it acts without having reached the server.
    pub(super) act_at: Option<Duration>,
    /// When to ask for the lease, without one; none while the server is asked.
    ask_at: Option<Duration>,
    lease: Option<Lease>,
    /// The stream is looked at, or gets what it lacks.
    is_busy: bool,
}

impl Alone {
    pub(super) fn new(now: Duration, acts: bool, act_at: Option<Duration>) -> Self {
        Self {
            acts,
            act_at,
            ask_at: Some(now),
            lease: None,
            is_busy: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let lease = self.lease.map_or(self.ask_at, |lease| Some(lease.due()));
        [self.act_at.filter(|_| !self.acts), lease]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn pass_time(&mut self, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        if !self.acts && self.act_at.is_some_and(|at| now >= at) {
            self.acts = true;
            actions.extend([MemberAction::GoAlone, MemberAction::Activate]);
        }
        if self.lease.take_if(|lease| now >= lease.until).is_some() {
            self.ask_at = Some(now);
        }
        match &mut self.lease {
            Some(lease) if lease.renew_at.is_some_and(|at| now >= at) => {
                lease.renew_at = None;
                actions.push(MemberAction::Renew {
                    revision: lease.revision,
                });
            }
            None if self.ask_at.is_some_and(|at| now >= at) => {
                self.ask_at = None;
                actions.push(MemberAction::Acquire);
            }
            Some(_) | None => {}
        }
        actions
    }

    /// Looks at the stream, unless that is being done.
    fn check(&mut self, actions: &mut Vec<MemberAction>) {
        if !std::mem::replace(&mut self.is_busy, true) {
            actions.push(MemberAction::Check);
        }
    }

    pub(super) fn handle(
        &mut self,
        now: Duration,
        timing: &LeaseTiming,
        event: MemberEvent,
        actions: &mut Vec<MemberAction>,
    ) -> AloneStep {
        let later = now + timing.acquire;
        match event {
            MemberEvent::Granted { asked, revision } => {
                let lease = Lease::new(timing, now, asked, revision, revision);
                if now < lease.until {
                    (self.lease, self.ask_at) = (Some(lease), None);
                    self.check(actions);
                } else {
                    self.ask_at = Some(later);
                }
            }
            // Who has it is not decided by the lease.
            MemberEvent::Denied => {
                (self.lease, self.ask_at) = (None, Some(later));
                self.check(actions);
            }
            MemberEvent::NoAnswer => match &mut self.lease {
                Some(lease) => lease.renew_at = Some(later),
                None => self.ask_at = Some(later),
            },
            MemberEvent::Unchanged { last } => {
                if let Some(lease) = self.lease {
                    actions.push(MemberAction::Resync {
                        term: lease.revision,
                        expected: last,
                    });
                } else {
                    (self.is_busy, self.ask_at) = (false, Some(later));
                }
            }
            // A record of its own came in between, or one of somebody else.
            MemberEvent::Fenced => {
                self.is_busy = true;
                actions.push(MemberAction::Check);
            }
            MemberEvent::Taken => return AloneStep::Taken,
            MemberEvent::Abandoned if self.acts => return AloneStep::Taken,
            MemberEvent::NotInSync => {
                self.is_busy = false;
                match &mut self.lease {
                    Some(lease) => lease.renew_at = Some(later),
                    None => self.ask_at = Some(later),
                }
            }
            MemberEvent::InSync => {
                // Without a lease it is alone again at once.
                let none = Lease {
                    revision: 0,
                    term: 0,
                    until: now,
                    renew_at: None,
                };
                return AloneStep::InSync(self.lease.unwrap_or(none));
            }
            MemberEvent::HandOver => return AloneStep::Left,
            MemberEvent::Time
            | MemberEvent::Abandoned
            | MemberEvent::CannotFollow
            | MemberEvent::CaughtUp { .. }
            | MemberEvent::TermStored { .. }
            | MemberEvent::Held(_)
            | MemberEvent::Take => {}
        }
        AloneStep::Stays
    }
}
