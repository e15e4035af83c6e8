//! State transitions that events, commands and timers share.

use std::time::Duration;

use super::action::{LinkAction, LinkEvent, NotSent, SendResult};
use super::clock::{ClockDrift, Deadline, Moment};
use super::close_reason::{AfterClose, CloseReason, ConnectionRecord, End, decide};
use super::pending::Completed;
use super::state::{
    Generation, IdleRequest, Link, LinkState, Liveness, Mint, ReaderState, WaitReason, WriterLoad,
};
use crate::wire::{GatewayFrame, Outcome, close_code};

/// A close code and its reason.
pub(super) type CloseFrame = (u16, &'static str);

pub(super) const GOING_AWAY: CloseFrame = (close_code::GOING_AWAY, "going away");

impl Link {
    /// Reads the clocks. Every event, command and timeout starts here and ends in [`Self::dial_if_due`].
    pub(super) fn enter(&mut self, now: Moment) -> Moment {
        let (now, drift) = self.clock.observe(now);
        match drift {
            ClockDrift::Ahead => self.handle_suspend(now),
            ClockDrift::Steady | ClockDrift::Back => {}
        }
        now
    }

    /// The machine was suspended: waits end, and a ping checks the connection.
    fn handle_suspend(&mut self, now: Moment) {
        match &mut self.state {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => {
                *until = Deadline::after(now, Duration::ZERO);
            }
            LinkState::Dialing { .. } | LinkState::Greeting { .. } => self.mint.spoiled = true,
            LinkState::Live(live) => {
                let grace = Deadline::after(now, self.settings.thaw_grace);
                live.silent_at = live.silent_at.or_later(grace);
                live.ping_at = now.mono;
                live.liveness = Liveness::Doubtful;
                self.ping_if_due(now);
            }
            LinkState::Closing { .. } => {}
            LinkState::Ended(_) => return,
        }
        self.counters.thaws += 1;
        self.emit(LinkEvent::Thawed);
    }

    /// Dials if a dial is due and not held.
    pub(super) fn dial_if_due(&mut self, now: Moment) {
        let (LinkState::Waiting { until, .. } | LinkState::Dormant { until }) = &self.state else {
            return;
        };
        if !until.passed(now) || self.hold.is_some_and(|hold| !hold.passed(now)) {
            return;
        }
        self.hold = None;
        self.reader = ReaderState::Reading;
        self.writer = WriterLoad::Normal;
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

    /// The current generation closed, or is closed with this frame.
    pub(super) fn lose(&mut self, departure: CloseReason, close_frame: Option<CloseFrame>, now: Moment) {
        let Some(generation) = self.generation() else {
            return;
        };
        if let LinkState::Closing { .. } = self.state {
            self.end(End::Closed, close_frame);
            return;
        }
        let (lived, worked) = match &self.state {
            LinkState::Live(live) => (Some(now.mono.saturating_sub(live.since.mono)), live.worked),
            _ => (None, false),
        };
        let record = ConnectionRecord {
            generation,
            handshaken: self.handshaken,
            doubt: self.doubt,
            lived,
            worked,
            stable: self.settings.stable,
            stale_token: lived.is_none()
                && (self.mint.spoiled || self.clock.contradicts(self.mint.correction_ms)),
        };
        if worked || lived.is_some_and(|lived| lived >= self.settings.stable) {
            self.redial_delay.reset();
        }
        self.counters.losses += 1;
        match decide(departure, &record) {
            AfterClose::End(end) => self.end(end, close_frame),
            AfterClose::Retry { loss, pace, doubt } => {
                self.doubt = doubt;
                let retry_in = self.redial_delay.after_loss(pace, &mut self.rng);
                self.abandon_generation(NotSent::Lost, close_frame);
                self.state = LinkState::Waiting {
                    until: Deadline::after(now, retry_in),
                    why: WaitReason::Lost(loss.clone()),
                };
                self.emit(LinkEvent::Lost { loss, retry_in });
            }
        }
    }

    /// The link has ended.
    pub(super) fn end(&mut self, end: End, close_frame: Option<CloseFrame>) {
        let why = match end {
            End::Revoked { .. } => NotSent::Lost,
            End::Closed => NotSent::Closing,
        };
        self.abandon_generation(why, close_frame);
        self.state = LinkState::Ended(end.clone());
        self.emit(LinkEvent::Ended(end));
    }

    /// Completes everything that depends on the current generation. The caller sets the next state.
    pub(super) fn abandon_generation(&mut self, why: NotSent, close_frame: Option<CloseFrame>) {
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
        self.end_idle_request();
        if let Some((code, reason)) = close_frame {
            self.actions.push_back(LinkAction::CloseSocket {
                generation: gone,
                code,
                reason,
            });
        }
    }

    /// Ends a pending `going_idle` without an answer.
    pub(super) fn end_idle_request(&mut self) {
        if let LinkState::Live(live) = &mut self.state
            && let IdleRequest::Asked { .. } = live.idle
        {
            live.idle = IdleRequest::Unanswered;
            self.emit(LinkEvent::IdleUnanswered);
        }
    }

    /// Ends a closing link once no op is pending.
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
            && self.reader == ReaderState::Reading
        {
            live.ping_at = now.mono.saturating_add(self.settings.ping_interval);
            if live.liveness == Liveness::Alive {
                live.liveness = Liveness::Pinged(now.mono);
            }
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
            SendResult::Lost => &mut self.counters.unknown,
            SendResult::NotSent(_) => &mut self.counters.not_sent,
        };
        *counter += 1;
        self.actions.push_back(LinkAction::Completed { id, result });
    }
}
