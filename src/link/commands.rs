//! What we want of the link.

use std::time::Duration;

use serde_json::Value;

use super::action::{LinkEvent, NotSent, SendResult};
use super::clock::{Deadline, Moment};
use super::close_reason::{CloseReason, Doubt, End};
use super::pending::{Completed, Op};
use super::state::{Generation, Idle, Link, LinkState, WaitReason};
use super::transitions::GOING_AWAY;
use crate::wire::GatewayFrame;

/// Why the link stays connected instead of going dormant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DormancyRefused {
    /// There is no connection that could be closed for a sleep.
    #[error("the relay is not connected")]
    NotLive,
    /// The connector has not said that it buffers: what it sends during a sleep would be lost.
    #[error("the connector has not said that it buffers")]
    NotBuffering,
    /// Ops are unsettled.
    #[error("ops are still unsettled")]
    Busy,
}

impl Link {
    /// Offers these slash commands on a platform from the next handshake on.
    pub fn offer_commands(&mut self, platform: &str, manifest: &[Value]) {
        for identity in &mut self.identities {
            if identity.platform == platform {
                identity.command_manifest = Some(manifest.to_vec()).filter(|manifest| !manifest.is_empty());
            }
        }
    }

    /// Asks for an op. It is settled exactly once, at once when it cannot be accepted.
    pub fn request(&mut self, op: Op, now: Moment) {
        let now = self.enter(now);
        self.counters.requests += 1;
        let refusal = match &self.state {
            LinkState::Live(_) if self.pending.waiting() >= self.settings.max_waiting => Some(NotSent::Full),
            LinkState::Live(_) if self.pending.contains(op.id) => Some(NotSent::AlreadyInFlight),
            LinkState::Live(_) => None,
            LinkState::Closing { .. } | LinkState::Ended(End::Closed) => Some(NotSent::Closing),
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(End::Revoked { .. }) => Some(NotSent::NotLive),
        };
        match refusal {
            None => self.pending.push(op, self.settings.request_timeout, now.mono),
            Some(why) => self.complete(Completed {
                id: op.id,
                result: SendResult::NotSent(why),
            }),
        }
        self.dial_if_due(now);
    }

    /// Tells the connector to stop a session's turn, wherever it runs; `false` when there is no connection.
    pub fn interrupt(&mut self, session_key: String, reason: Option<String>) -> bool {
        let LinkState::Live(live) = &self.state else {
            return false;
        };
        let generation = live.generation;
        self.write(generation, &GatewayFrame::Interrupt { session_key, reason });
        true
    }

    /// Says that a delivery is safe here, on the connection that brought it; `false` when that is gone, for
    /// then the connector delivers again.
    pub fn acknowledge(&mut self, generation: Generation, buffer_id: String) -> bool {
        let open = match &self.state {
            LinkState::Greeting { generation, .. } | LinkState::Closing { generation, .. } => {
                Some(*generation)
            }
            LinkState::Live(live) => Some(live.generation),
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Dormant { .. }
            | LinkState::Ended(_) => None,
        };
        if open == Some(generation) {
            self.counters.acks_sent += 1;
            self.write(generation, &GatewayFrame::InboundAck { buffer_id });
            true
        } else {
            self.counters.acks_dropped += 1;
            false
        }
    }

    /// Asks the connector to buffer, and goes on serving. Answered by one report, [`LinkEvent::IdleAcked`] or
    /// [`LinkEvent::IdleUnanswered`], also for several askers, the least patient of whom decides how long is waited.
    pub fn go_idle(&mut self, within: Duration, now: Moment) {
        let now = self.enter(now);
        let deadline = Deadline::after(now, within);
        if let LinkState::Live(live) = &mut self.state {
            match &mut live.idle {
                Idle::Asked { until } => *until = until.or_earlier(deadline),
                Idle::Acked => self.emit(LinkEvent::IdleAcked { late: false }),
                idle @ (Idle::Awake | Idle::Unanswered) => {
                    *idle = Idle::Asked { until: deadline };
                    let generation = live.generation;
                    self.write(generation, &GatewayFrame::GoingIdle);
                }
            }
        } else {
            self.emit(LinkEvent::IdleUnanswered);
        }
        self.dial_if_due(now);
    }

    /// Closes the socket to sleep. Only a connector that has said that it buffers is left like this. The next
    /// dial comes by itself, unless it is held.
    pub fn go_dormant(&mut self, now: Moment) -> Result<(), DormancyRefused> {
        let now = self.enter(now);
        let refusal = match &self.state {
            LinkState::Live(live) if live.idle != Idle::Acked => Some(DormancyRefused::NotBuffering),
            LinkState::Live(_) if !self.pending.is_empty() => Some(DormancyRefused::Busy),
            LinkState::Live(_) => None,
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Dormant { .. }
            | LinkState::Closing { .. }
            | LinkState::Ended(_) => Some(DormancyRefused::NotLive),
        };
        if let Some(refusal) = refusal {
            self.dial_if_due(now);
            return Err(refusal);
        }
        self.leave_socket(NotSent::Lost, Some(GOING_AWAY));
        self.doubt = Doubt::None;
        self.state = LinkState::Dormant {
            until: Deadline::after(now, self.settings.dormant_redial),
        };
        self.emit(LinkEvent::Dormant);
        Ok(())
    }

    /// Dials anew, so that the connector delivers again what was not acknowledged. Ops in flight become
    /// unknown. Does nothing without a connection: the next one is as good.
    pub fn renew(&mut self, now: Moment) {
        let now = self.enter(now);
        if self.is_live() {
            self.lose(CloseReason::Renewed, Some(GOING_AWAY), now);
        }
        self.dial_if_due(now);
    }

    /// Holds back every dial until released, woken, or the ceiling is reached on either clock, so that a
    /// dial does not undo what [`Self::go_dormant`] did before the machine has come to sleep.
    pub fn hold_redial(&mut self, now: Moment) {
        let now = self.enter(now);
        self.hold = Some(Deadline::after(now, self.settings.hold_ceiling));
    }

    /// Lets go of what [`Self::hold_redial`] holds.
    pub fn release_redial(&mut self, now: Moment) {
        let now = self.enter(now);
        self.hold = None;
        self.dial_if_due(now);
    }

    /// Dials at once if there is no connection, held or not. Whoever calls this for every stranger's knock is
    /// safe: dials keep their shortest distance.
    pub fn wake(&mut self, now: Moment) {
        let now = self.enter(now);
        if let LinkState::Waiting { until, .. } | LinkState::Dormant { until } = &mut self.state {
            self.hold = None;
            *until = until.or_earlier(self.last_dial);
        }
        self.dial_if_due(now);
    }

    /// There is a new secret: whatever was said about the old one no longer counts.
    pub fn note_secret_rotated(&mut self, now: Moment) {
        let now = self.enter(now);
        self.doubt = Doubt::None;
        match &mut self.state {
            LinkState::Ended(End::Revoked { .. }) | LinkState::Waiting { .. } => {
                self.state = LinkState::Waiting {
                    until: Deadline::after(now, Duration::ZERO),
                    why: WaitReason::SecretRotated,
                };
            }
            LinkState::Dialing { .. } | LinkState::Greeting { .. } => self.mint.spoiled = true,
            LinkState::Live(_)
            | LinkState::Dormant { .. }
            | LinkState::Closing { .. }
            | LinkState::Ended(End::Closed) => {}
        }
        self.dial_if_due(now);
    }

    /// Closes for good. A live link settles what it has accepted first, for so long at most; asked again, the
    /// shorter wait counts.
    pub fn close(&mut self, within: Duration, now: Moment) {
        let now = self.enter(now);
        let deadline = Deadline::after(now, within);
        let until = match &self.state {
            LinkState::Ended(End::Closed) => return,
            LinkState::Live(_) if !self.pending.is_empty() => deadline,
            LinkState::Closing { until, .. } => until.or_earlier(deadline),
            LinkState::Waiting { .. }
            | LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Live(_)
            | LinkState::Dormant { .. }
            | LinkState::Ended(End::Revoked { .. }) => return self.end(End::Closed, Some(GOING_AWAY)),
        };
        let Some(generation) = self.generation().filter(|_| !until.passed(now)) else {
            return self.end(End::Closed, Some(GOING_AWAY));
        };
        self.stop_asking_idle();
        self.state = LinkState::Closing { generation, until };
    }
}
