//! When to dial anew so that the connector delivers again what the journal had to turn away.
//!
//! A journal that fails now and then must not become a storm of dials: each renewal waits longer than the one
//! before, until messages are accepted again, and lets ops that are out come home first.

use std::time::Duration;

use tokio::time::Instant;

/// The wait before the first renewal.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LAST: Duration = Duration::from_secs(60);
/// How much longer a due renewal waits for ops that are out.
const PATIENCE: Duration = Duration::from_secs(5);

/// A renewal that is planned, and how long the next one waits.
#[derive(Debug)]
pub(super) struct Renewal {
    at: Option<Instant>,
    wait: Duration,
}

impl Default for Renewal {
    fn default() -> Self {
        Self {
            at: None,
            wait: FIRST,
        }
    }
}

impl Renewal {
    /// Plans one, unless one is planned.
    pub(super) fn plan(&mut self, now: Instant) {
        if self.at.is_none() {
            self.at = Some(now + self.wait);
            self.wait = (self.wait * 2).min(LAST);
        }
    }

    /// Plans one for this moment: nothing is wrong, so it need not wait.
    pub(super) fn plan_now(&mut self, now: Instant) {
        self.at = Some(self.at.map_or(now, |at| at.min(now)));
    }

    /// Whether one is planned.
    pub(super) fn is_planned(&self) -> bool {
        self.at.is_some()
    }

    /// A message was accepted: the journal is well.
    pub(super) fn accepted(&mut self) {
        if self.at.is_none() {
            self.wait = FIRST;
        }
    }

    /// Whether it is time; tells so once.
    pub(super) fn is_due(&mut self, now: Instant, nothing_out: bool) -> bool {
        let due = self
            .at
            .is_some_and(|at| now >= at && (nothing_out || now >= at + PATIENCE));
        if due {
            self.at = None;
        }
        due
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.at
            .map(|at| if Instant::now() < at { at } else { at + PATIENCE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_keep_their_distance_until_messages_are_accepted_again() {
        let start = Instant::now();
        let mut renewal = Renewal::default();
        renewal.plan(start);
        renewal.plan(start + FIRST / 2);
        assert!(!renewal.is_due(start + FIRST / 2, true));
        assert!(
            !renewal.is_due(start + FIRST, false),
            "ops that are out come home first"
        );
        assert!(renewal.is_due(start + FIRST, true));
        assert!(!renewal.is_due(start + FIRST, true), "told once");
        renewal.plan(start);
        assert!(!renewal.is_due(start + FIRST, true) && renewal.is_due(start + FIRST * 2, true));
        renewal.accepted();
        renewal.plan(start);
        assert!(renewal.is_due(start + FIRST + PATIENCE, false));
    }
}
