//! The one next deadline, with its name, and what happens at it.

use std::time::Duration;

use super::action::LinkEvent;
use super::clock::{Deadline, Moment};
use super::close_reason::{CloseReason, End};
use super::state::{Idle, Link, LinkState, Live, Reader};
use super::transitions::{CloseFrame, GOING_AWAY};

const TOO_SLOW: CloseFrame = (1011, "handshake timeout");
const SILENT: CloseFrame = (1011, "keepalive timeout");

/// What the link waits for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// When [`Link::handle_timeout`] is to be called, on the monotonic clock. Never later than [`Self::due`];
    /// sooner when that is far, since a clock that stops during a sleep cannot tell how long it lasted.
    pub wake_at: Duration,
    /// When the thing itself is due, on the monotonic clock.
    pub due: Duration,
    /// The thing.
    pub reason: TimerReason,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerReason {
    /// The next dial.
    Redial,
    /// The next dial, no longer held back.
    HoldCeiling,
    /// The dial takes too long.
    DialTimeout,
    /// The first descriptor takes too long.
    HandshakeTimeout,
    /// The next ping.
    Ping,
    /// Too long a silence.
    Silence,
    /// The next look at a blocked reader.
    ReaderBlocked,
    /// An op runs out of time.
    Request,
    /// The connector takes too long to say that it buffers.
    IdleAnswer,
    /// Descriptors of the connection before are dropped.
    OlderDescriptors,
    /// The last moment of a closing link.
    CloseBy,
}

impl Link {
    /// The next deadline; none only when the link has ended.
    pub fn poll_timeout(&self) -> Option<Timer> {
        let seen = self.clock.seen();
        let at = |deadline: Deadline| deadline.on_mono(seen);
        let glance = seen.mono.saturating_add(self.settings.glance);
        let (due, reason) = match &self.state {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => {
                let redial = (at(*until), TimerReason::Redial);
                match self.hold {
                    Some(hold) if at(hold) > redial.0 => (at(hold), TimerReason::HoldCeiling),
                    _ => redial,
                }
            }
            LinkState::Dialing { until, .. } => (at(*until), TimerReason::DialTimeout),
            LinkState::Greeting { .. } if self.is_blocked() => (glance, TimerReason::ReaderBlocked),
            LinkState::Greeting { until, .. } => (at(*until), TimerReason::HandshakeTimeout),
            LinkState::Live(live) => self.next_of_live(live, seen),
            LinkState::Closing { until, .. } => self.or_request((at(*until), TimerReason::CloseBy)),
            LinkState::Ended(_) => return None,
        };
        Some(Timer {
            wake_at: due.min(glance),
            due,
            reason,
        })
    }

    /// Time has passed. Harmless when nothing is due.
    pub fn handle_timeout(&mut self, now: Moment) {
        let now = self.enter(now);
        while let Some(expired) = self.pending.expire_next(now.mono) {
            self.complete(expired);
        }
        match &self.state {
            LinkState::Dialing { until, .. } if until.passed(now) => {
                self.lose(CloseReason::DialTimeout, Some(TOO_SLOW), now);
            }
            LinkState::Greeting { until, .. } if until.passed(now) && !self.is_blocked() => {
                self.lose(CloseReason::HandshakeTimeout, Some(TOO_SLOW), now);
            }
            LinkState::Live(live) if live.silent_at.passed(now) && !self.is_blocked() => {
                self.lose(CloseReason::Silent, Some(SILENT), now);
            }
            LinkState::Live(_) => self.tend_live(now),
            LinkState::Closing { until, .. } if until.passed(now) => {
                self.end(End::Closed, Some(GOING_AWAY));
            }
            LinkState::Closing { .. } => self.close_if_drained(),
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => {}
        }
        self.dial_if_due(now);
    }

    fn is_blocked(&self) -> bool {
        self.reader == Reader::Blocked
    }

    fn next_of_live(&self, live: &Live, seen: Moment) -> (Duration, TimerReason) {
        let mut next = match self.reader {
            Reader::Reading => (live.ping_at, TimerReason::Ping),
            Reader::Blocked => (
                seen.mono.saturating_add(self.settings.glance),
                TimerReason::ReaderBlocked,
            ),
        };
        let mut consider = |deadline: Deadline, reason| {
            let at = deadline.on_mono(seen);
            if at < next.0 {
                next = (at, reason);
            }
        };
        if self.reader == Reader::Reading {
            consider(live.silent_at, TimerReason::Silence);
        }
        if let Idle::Asked { until } = live.idle {
            consider(until, TimerReason::IdleAnswer);
        }
        if let Some(until) = live.older_until {
            consider(until, TimerReason::OlderDescriptors);
        }
        self.or_request(next)
    }

    fn or_request(&self, next: (Duration, TimerReason)) -> (Duration, TimerReason) {
        match self.pending.deadline() {
            Some(at) if at < next.0 => (at, TimerReason::Request),
            _ => next,
        }
    }

    fn tend_live(&mut self, now: Moment) {
        self.ping_if_due(now);
        let LinkState::Live(live) = &mut self.state else {
            return;
        };
        if live.older_until.is_some_and(|until| until.passed(now)) {
            live.older_until = None;
            let generation = live.generation;
            if self.descriptors.drop_older(generation) {
                self.emit(LinkEvent::Described { generation });
            }
        }
        if let LinkState::Live(live) = &self.state
            && let Idle::Asked { until } = live.idle
            && until.passed(now)
        {
            self.stop_asking_idle();
        }
    }
}
