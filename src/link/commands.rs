//! Commands: what the relay asks of the link.

use std::time::Duration;

use serde_json::Value;

use super::action::{LinkEvent, NotSent, SendResult};
use super::clock::{Deadline, Moment};
use super::close_reason::{CloseReason, Doubt, End};
use super::pending::{Completed, Op};
use super::state::{Generation, IdleRequest, Link, LinkState, WaitReason, WriterLoad};
use super::transitions::GOING_AWAY;
use crate::wire::GatewayFrame;

/// Why the link does not go dormant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DormancyRefused {
    /// There is no connection.
    #[error("the relay is not connected")]
    NotLive,
    /// The connector has not confirmed that it buffers: deliveries would be lost.
    #[error("the connector has not confirmed that it buffers")]
    NotBuffering,
    /// Ops are pending.
    #[error("ops are still pending")]
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

    /// Sends an op. It completes exactly once, immediately if it cannot be accepted.
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

    /// Asks the connector to interrupt a session's turn, wherever it runs; `false` without a connection.
    pub fn interrupt(&mut self, session_key: String, reason: Option<String>) -> bool {
        let LinkState::Live(live) = &self.state else {
            return false;
        };
        let generation = live.generation;
        self.write(generation, &GatewayFrame::Interrupt { session_key, reason });
        true
    }

    /// Acknowledges a delivery on the connection that brought it; `false` if that connection is gone or too slow, in which case
    /// the connector delivers again on the next one.
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
        if open == Some(generation) && self.writer == WriterLoad::Normal {
            if let LinkState::Live(live) = &mut self.state {
                live.worked = true;
            }
            self.counters.acks_sent += 1;
            self.write(generation, &GatewayFrame::InboundAck { buffer_id });
            true
        } else {
            self.counters.acks_dropped += 1;
            false
        }
    }

    /// Sends `going_idle` and keeps serving. One event answers all pending calls: [`LinkEvent::IdleAcked`], or
    /// [`LinkEvent::IdleUnanswered`] after the shortest of their timeouts.
    pub fn go_idle(&mut self, within: Duration, now: Moment) {
        let now = self.enter(now);
        let deadline = Deadline::after(now, within);
        if let LinkState::Live(live) = &mut self.state {
            match &mut live.idle {
                IdleRequest::Asked { until } => *until = until.or_earlier(deadline),
                IdleRequest::Acked => self.emit(LinkEvent::IdleAcked { late: false }),
                idle @ (IdleRequest::Awake | IdleRequest::Unanswered) => {
                    *idle = IdleRequest::Asked { until: deadline };
                    let generation = live.generation;
                    self.write(generation, &GatewayFrame::GoingIdle);
                }
            }
        } else {
            self.emit(LinkEvent::IdleUnanswered);
        }
        self.dial_if_due(now);
    }

    /// Closes the socket for sleep, if the connector has confirmed that it buffers. The next dial follows automatically
    /// unless it is held.
    pub fn go_dormant(&mut self, now: Moment) -> Result<(), DormancyRefused> {
        let now = self.enter(now);
        let refusal = match &self.state {
            LinkState::Live(live) if live.idle != IdleRequest::Acked => Some(DormancyRefused::NotBuffering),
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
        self.abandon_generation(NotSent::Lost, Some(GOING_AWAY));
        self.doubt = Doubt::None;
        self.state = LinkState::Dormant {
            until: Deadline::after(now, self.settings.dormant_redial),
        };
        self.emit(LinkEvent::Dormant);
        Ok(())
    }

    /// Reconnects, so that the connector delivers again what was not acknowledged. The outcome of ops in flight becomes
    /// unknown. Does nothing without a connection.
    pub fn renew(&mut self, now: Moment) {
        let now = self.enter(now);
        if self.is_live() {
            self.lose(CloseReason::Renewed, Some(GOING_AWAY), now);
        }
        self.dial_if_due(now);
    }

    /// Holds back dials until [`Self::release_redial`], [`Self::wake`] or the maximum hold time, so that no dial undoes
    /// [`Self::go_dormant`] before the machine is suspended.
    pub fn hold_redial(&mut self, now: Moment) {
        let now = self.enter(now);
        self.hold = Some(Deadline::after(now, self.settings.hold_ceiling));
    }

    /// Ends [`Self::hold_redial`].
    pub fn release_redial(&mut self, now: Moment) {
        let now = self.enter(now);
        self.hold = None;
        self.dial_if_due(now);
    }

    /// Dials now if there is no connection, even if dials are held. Dials keep their minimum distance, so this may be
    /// called for every wake-up request.
    pub fn wake(&mut self, now: Moment) {
        let now = self.enter(now);
        if let LinkState::Waiting { until, .. } | LinkState::Dormant { until } = &mut self.state {
            self.hold = None;
            *until = until.or_earlier(self.last_dial);
        }
        self.dial_if_due(now);
    }

    /// The secret was replaced: refusals of the old one no longer count.
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

    /// Closes the link for good. A live link first completes pending ops, for `within` at most; a further call can only
    /// shorten that.
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
        self.end_idle_request();
        self.state = LinkState::Closing { generation, until };
    }
}
