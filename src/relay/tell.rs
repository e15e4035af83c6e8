//! What the driver tells: the log, and whoever watches the link.

use super::drive::Drive;
use crate::link::{End, LinkEvent, LinkState, Loss};

impl Drive {
    pub(super) fn tell(&mut self, report: &LinkEvent) {
        if self.turns_to_another_secret(report) {
            return;
        }
        let now = self.clock.mono();
        if let LinkEvent::Dialing { .. } = report {
            self.dial_began = now;
        }
        let loss_told = |loss: &Loss| loss.to_string();
        match report {
            LinkEvent::Dialing { generation } => tracing::debug!(%generation, "dialling the connector"),
            LinkEvent::Live { generation, primary } => {
                tracing::info!(%generation, platform = primary.platform, "connected to the connector");
            }
            LinkEvent::Described { generation } => tracing::debug!(%generation, "descriptors changed"),
            LinkEvent::Lost { loss, retry_in } => {
                let retry_ms = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                let detail = self.view.borrow().last_loss.clone().unwrap_or_default();
                tell_loss(loss, &detail, retry_ms);
            }
            LinkEvent::SkewWarning { ms } => {
                tracing::warn!(
                    skew_ms = ms,
                    "this machine's clock and the connector's differ; correcting for it, but set the clock"
                );
            }
            LinkEvent::Thawed => tracing::info!("the machine slept; looking after the connection"),
            LinkEvent::IdleAcked { .. } => self.answer_idle(true),
            LinkEvent::IdleUnanswered => self.answer_idle(false),
            LinkEvent::Dormant => tracing::info!("dormant: the connector buffers until the next dial"),
            LinkEvent::Ended(End::Closed) => tracing::info!("the link is closed"),
            LinkEvent::Ended(End::Revoked { reason }) => {
                tracing::error!(
                    reason,
                    "the connector has revoked this gateway; enrol again with `hermes-relay enroll`"
                );
            }
        }
        let state = state_name(self.link.state());
        let dial_began = self.dial_began;
        let retry_at_ms = self.retry_at_ms();
        self.view.send_modify(|view| {
            view.retry_at_ms = retry_at_ms;
            view.live = self.link.is_live().then(|| self.link.generation()).flatten();
            view.descriptors = self.link.descriptors().clone();
            state.clone_into(&mut view.state);
            view.clock_skew_ms = self.link.clock_skew_ms();
            view.counters = *self.link.counters();
            match report {
                LinkEvent::Lost { loss, .. } => view.measures.losses.add(loss.kind(), 1),
                LinkEvent::Ended(End::Revoked { .. }) => view.measures.losses.add("revoked", 1),
                LinkEvent::Live { .. } => view.measures.handshaken(now.saturating_sub(dial_began)),
                _ => {}
            }
            match report {
                LinkEvent::Lost { loss, .. }
                    if (!matches!(loss, Loss::DialFailed) || view.last_loss.is_none()) =>
                {
                    view.last_loss = Some(loss_told(loss));
                }
                LinkEvent::Ended(end) => view.ended = Some(end.clone()),
                LinkEvent::Live { .. } | LinkEvent::Dialing { .. } => view.ended = None,
                _ => {}
            }
        });
    }

    /// Tells when the next dial is due, where that has changed.
    pub(super) fn show_retry(&mut self) {
        let retry_at_ms = self.retry_at_ms();
        self.view.send_if_modified(|view| {
            let before = std::mem::replace(&mut view.retry_at_ms, retry_at_ms);
            before != retry_at_ms
        });
    }

    fn retry_at_ms(&self) -> Option<i64> {
        match self.link.state() {
            LinkState::Waiting { until, .. } | LinkState::Dormant { until } => Some(until.unix_ms),
            LinkState::Dialing { .. }
            | LinkState::Greeting { .. }
            | LinkState::Live(_)
            | LinkState::Closing { .. }
            | LinkState::Ended(_) => None,
        }
    }

    /// Learns from a refusal or a handshake which secret is good. `true` when another one is dialled with now, so that
    /// the refusal means nothing yet.
    fn turns_to_another_secret(&mut self, report: &LinkEvent) -> bool {
        let refused = match report {
            LinkEvent::Live { .. } => {
                if self.keys.accepted() {
                    tracing::info!("the connector accepts the new secret; the one before it is forgotten");
                }
                false
            }
            LinkEvent::Lost { loss, .. } => matches!(
                loss,
                Loss::Unauthorized { .. } | Loss::UnauthorizedHttp { .. } | Loss::Doubted { .. }
            ),
            LinkEvent::Ended(End::Revoked { .. }) => true,
            _ => false,
        };
        let another = refused && self.keys.refused();
        if another {
            tracing::warn!(
                "the connector does not accept the new secret yet; dialling once with the one before it"
            );
            self.view
                .send_modify(|view| view.last_loss = Some("the connector refused the new secret".to_owned()));
            self.link.note_secret_rotated(self.clock.now());
        }
        another
    }

    fn answer_idle(&mut self, buffers: bool) {
        for answer in self.idle_askers.drain(..) {
            let _ = answer.send(buffers);
        }
    }
}

fn tell_loss(loss: &Loss, detail: &str, retry_ms: u64) {
    match loss {
        Loss::DialFailed => tracing::warn!(why = detail, retry_ms, "cannot reach the connector"),
        Loss::UnauthorizedHttp { .. } | Loss::Unauthorized { .. } => {
            tracing::warn!(why = %loss, retry_ms, "the connector does not accept our credentials; check the gateway id and secret, or enrol again with `hermes-relay enroll`");
        }
        // There was no connection yet that could be lost.
        Loss::Refused { .. } | Loss::DialTimeout => {
            tracing::warn!(why = %loss, retry_ms, "cannot reach the connector; `hermes-relay doctor` looks for the cause");
        }
        other => tracing::warn!(why = %other, retry_ms, "lost the connector"),
    }
}

fn state_name(state: &LinkState) -> &'static str {
    match state {
        LinkState::Waiting { .. } => "waiting",
        LinkState::Dialing { .. } => "dialing",
        LinkState::Greeting { .. } => "greeting",
        LinkState::Live(_) => "live",
        LinkState::Dormant { .. } => "dormant",
        LinkState::Closing { .. } => "closing",
        LinkState::Ended(End::Closed) => "closed",
        LinkState::Ended(End::Revoked { .. }) => "revoked",
    }
}
