//! The steps from state to state that events, verbs and timers share.

use std::time::Duration;

use super::action::{LinkAction, LinkEvent, NotSent, SendResult};
use super::clock::{Deadline, Drift, Moment};
use super::close_reason::{CloseReason, Decision, End, Record, decide};
use super::pending::Completed;
use super::state::{Generation, Idle, Link, LinkState, Mint, Reader, WaitReason};
use crate::wire::{GatewayFrame, Outcome};

/// A close code and its words.
pub(super) type CloseFrame = (u16, &'static str);

pub(super) const GOING_AWAY: CloseFrame = (1001, "going away");

impl Link {
    /// Takes in the present. Every event, verb and timeout begins here and ends in [`Self::dial_if_due`].
    pub(super) fn enter(&mut self, now: Moment) -> Moment {
        let (now, drift) = self.clock.observe(now);
        match drift {
            Drift::Ahead => self.thaw(now),
            Drift::Steady | Drift::Back => {}
        }
        now
    }

    /// The machine slept: nothing that was waited for is waited for again.
    fn thaw(&mut self, now: Moment) {
        match &mut self.state {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => {
                *until = Deadline::after(now, Duration::ZERO);
            }
            LinkState::Dialing { .. } | LinkState::Greeting { .. } => self.mint.spoiled = true,
            LinkState::Live(live) => {
                let grace = Deadline::after(now, self.settings.thaw_grace);
                live.silent_at = live.silent_at.or_later(grace);
                live.ping_at = now.mono;
                self.ping_if_due(now);
            }
            LinkState::Closing { .. } => {}
            LinkState::Ended(_) => return,
        }
        self.counters.thaws += 1;
        self.emit(LinkEvent::Thawed);
    }

    /// Begins a dial when one is due and none is held back.
    pub(super) fn dial_if_due(&mut self, now: Moment) {
        let (LinkState::Waiting { until, .. } | LinkState::Dormant { until }) = &self.state else {
            return;
        };
        if !until.passed(now) || self.hold.is_some_and(|hold| !hold.passed(now)) {
            return;
        }
        self.hold = None;
        self.reader = Reader::Reading;
        let generation = self.next_generation();
        self.mint = Mint {
            correction_ms: self.clock.correction_ms(),
            spoiled: false,
        };
        self.last_dial = Deadline::after(now, self.settings.backoff_min);
        self.state = LinkState::Dialing {
            generation,
            until: Deadline::after(now, self.settings.handshake_timeout),
        };
        self.counters.dials += 1;
        self.emit(LinkEvent::Dialing { generation });
        self.actions.push_back(LinkAction::Dial {
            generation,
            mint_at_unix: self.clock.connector_unix(now),
        });
    }

    /// The present generation is gone, or is given up with a close_frame.
    pub(super) fn lose(&mut self, departure: CloseReason, close_frame: Option<CloseFrame>, now: Moment) {
        let Some(generation) = self.generation() else {
            return;
        };
        if let LinkState::Closing { .. } = self.state {
            self.end(End::Closed, close_frame);
            return;
        }
        let lived = match &self.state {
            LinkState::Live(live) => Some(now.mono.saturating_sub(live.since.mono)),
            _ => None,
        };
        let record = Record {
            generation,
            handshaken: self.handshaken,
            doubt: self.doubt,
            lived,
            stable: self.settings.stable,
            stale_token: lived.is_none()
                && (self.mint.spoiled || self.clock.disowns(self.mint.correction_ms)),
        };
        if lived.is_some_and(|lived| lived >= self.settings.stable) {
            self.redial_delay.reset();
        }
        self.counters.losses += 1;
        match decide(departure, &record) {
            Decision::End(end) => self.end(end, close_frame),
            Decision::Retry { loss, pace, doubt } => {
                self.doubt = doubt;
                let retry_in = self.redial_delay.after_loss(pace, &mut self.rng);
                self.leave_socket(NotSent::Lost, close_frame);
                self.state = LinkState::Waiting {
                    until: Deadline::after(now, retry_in),
                    why: WaitReason::Lost(loss.clone()),
                };
                self.emit(LinkEvent::Lost { loss, retry_in });
            }
        }
    }

    /// It is over.
    pub(super) fn end(&mut self, end: End, close_frame: Option<CloseFrame>) {
        let why = match end {
            End::Revoked { .. } => NotSent::Lost,
            End::Closed => NotSent::Closing,
        };
        self.leave_socket(why, close_frame);
        self.state = LinkState::Ended(end.clone());
        self.emit(LinkEvent::Ended(end));
    }

    /// Settles all that hangs on the present generation. The caller sets the next state.
    pub(super) fn leave_socket(&mut self, why: NotSent, close_frame: Option<CloseFrame>) {
        let Some(gone) = self.generation() else {
            return;
        };
        self.actions.retain(|action| match action {
            LinkAction::Write { generation, .. } | LinkAction::Ping { generation } => *generation != gone,
            LinkAction::Dial { .. }
            | LinkAction::CloseSocket { .. }
            | LinkAction::Completed { .. }
            | LinkAction::Event(_) => true,
        });
        for completed in self.pending.fail_all(why) {
            self.complete(completed);
        }
        self.stop_asking_idle();
        if let Some((code, reason)) = close_frame {
            self.actions.push_back(LinkAction::CloseSocket {
                generation: gone,
                code,
                reason,
            });
        }
    }

    /// Nobody will hear the answer to a `going_idle` that is still open.
    pub(super) fn stop_asking_idle(&mut self) {
        if let LinkState::Live(live) = &mut self.state
            && let Idle::Asked { .. } = live.idle
        {
            live.idle = Idle::Unanswered;
            self.emit(LinkEvent::IdleUnanswered);
        }
    }

    /// The last op has left a closing link.
    pub(super) fn close_if_drained(&mut self) {
        if let LinkState::Closing { .. } = self.state
            && self.pending.is_empty()
        {
            self.end(End::Closed, Some(GOING_AWAY));
        }
    }

    pub(super) fn ping_if_due(&mut self, now: Moment) {
        if let LinkState::Live(live) = &mut self.state
            && live.ping_at <= now.mono
            && self.reader == Reader::Reading
        {
            live.ping_at = now.mono.saturating_add(self.settings.ping_interval);
            self.counters.pings += 1;
            self.actions.push_back(LinkAction::Ping {
                generation: live.generation,
            });
        }
    }

    pub(super) fn write(&mut self, generation: Generation, frame: &GatewayFrame) {
        self.actions.push_back(LinkAction::Write {
            generation,
            line: frame.to_line(),
            kind: frame.kind(),
            op: None,
        });
    }

    pub(super) fn emit(&mut self, event: LinkEvent) {
        self.actions.push_back(LinkAction::Event(event));
    }

    pub(super) fn complete(&mut self, Completed { id, result }: Completed) {
        let counter = match &result {
            SendResult::Answered(known) => match **known {
                Outcome::Applied(_) => &mut self.counters.applied,
                Outcome::Refused { .. } => &mut self.counters.refused,
                Outcome::Unknown => &mut self.counters.unknown,
            },
            SendResult::NotSent(_) => &mut self.counters.not_sent,
        };
        *counter += 1;
        self.actions.push_back(LinkAction::Completed { id, result });
    }
}
