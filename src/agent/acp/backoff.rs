//! How long an agent that keeps failing rests before it is started again. Pure.

use std::time::{Duration, Instant};

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// At most.
const LONGEST: Duration = Duration::from_secs(60);

/// A process that lived so long was sound: its end counts as a first failure.
const SOUND: Duration = Duration::from_secs(60);

/// Failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl Backoff {
    /// A process failed at that moment, after it had lived so long.
    pub(super) fn failed(&mut self, at: Instant, lived: Duration) {
        if lived >= SOUND {
            self.failures = 0;
        }
        let rest = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.not_before = at.checked_add(rest);
    }

    /// How long to wait now.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.not_before
            .map_or(Duration::ZERO, |then| then.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_a_bound_and_a_sound_life_starts_over() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.wait(now), Duration::ZERO);
        let rests: Vec<u64> = (0..100)
            .map(|_| {
                backoff.failed(now, Duration::ZERO);
                backoff.wait(now).as_secs()
            })
            .collect();
        assert_eq!(rests[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rests[99], 60);
        assert_eq!(backoff.wait(now + LONGEST), Duration::ZERO);
        backoff.failed(now, SOUND);
        assert_eq!(backoff.wait(now), FIRST);
    }
}
