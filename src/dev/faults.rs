//! What the page makes go wrong: refused dials, a revoked gateway, one late or refused send.

use std::time::Duration;

/// How late a delayed result is.
pub(super) const LATE: Duration = Duration::from_secs(2);

/// What becomes of the next `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFault {
    /// Performed, and answered late.
    Late,
    /// Not performed.
    Refused,
}

/// The faults in force.
#[derive(Default)]
pub struct Faults {
    /// Dials that are still refused.
    pub(super) refused_dials: usize,
    pub(super) next_send: Option<SendFault>,
    /// Whether no token is accepted.
    pub revoked: bool,
}

impl Faults {
    /// Whether the dial that just came is refused.
    pub(super) fn refuse_dial(&mut self) -> bool {
        let refuse = self.refused_dials > 0;
        self.refused_dials = self.refused_dials.saturating_sub(1);
        refuse
    }
}
