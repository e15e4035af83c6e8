//! How soon the next op may follow the last.

use std::time::Duration;

/// The time between two ops; it grows when the platform asks for patience, and never shrinks within a turn.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    most: Duration,
    next: Duration,
}

impl Pace {
    pub(super) fn new(interval_ms: u64, most_ms: u64, first: Duration) -> Self {
        let interval = Duration::from_millis(interval_ms);
        Self {
            interval,
            most: Duration::from_millis(most_ms).max(interval),
            next: first,
        }
    }

    /// When the next op may go.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// An op goes out.
    pub(super) fn went(&mut self, now: Duration) {
        self.next = now.saturating_add(self.interval);
    }

    /// An op has to be tried again.
    pub(super) fn again(&mut self, now: Duration) {
        self.next = self.next.max(now.saturating_add(self.interval));
    }

    /// The platform asks for patience.
    pub(super) fn slow(&mut self, retry_after: Option<Duration>, now: Duration) {
        // Doubling nothing would never get slower.
        let floor = Duration::from_millis(100);
        self.interval = (self.interval.max(floor) * 2).min(self.most);
        let wait = self.interval.max(retry_after.unwrap_or_default());
        self.next = self.next.max(now.saturating_add(wait));
    }
}
