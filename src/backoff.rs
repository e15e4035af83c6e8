//! Exponential backoff, with optional full jitter. Pure: randomness comes in as a number.

use std::time::Duration;

/// Delays between retries: each is twice the one before, up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Starts at `first` and doubles up to `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        let first = first.min(max);
        Self {
            first,
            max,
            next: first,
        }
    }

    /// The next delay.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.max);
        delay
    }

    /// The next delay with full jitter: uniform between zero and [`Self::next_delay`], chosen by `random`.
    pub fn next_delay_with_jitter(&mut self, random: u64) -> Duration {
        jitter(self.next_delay(), random)
    }

    /// Starts over with the first delay.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A duration between zero and `max`, inclusive, in steps of a microsecond; uniform if `random` is.
pub fn jitter(max: Duration, random: u64) -> Duration {
    let steps = u128::from(u64::try_from(max.as_micros()).unwrap_or(u64::MAX)) + 1;
    let step = (u128::from(random) * steps) >> 64;
    Duration::from_micros(u64::try_from(step).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn delays_double_up_to_the_maximum_until_reset() {
        let mut backoff = Backoff::new(secs(1), secs(30));
        let delays: Vec<u64> = (0..7).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), secs(1));
        let mut huge = Backoff::new(Duration::MAX, Duration::MAX);
        huge.next_delay();
        assert_eq!(huge.next_delay(), Duration::MAX);
        assert_eq!(Backoff::new(secs(5), secs(2)).next_delay(), secs(2));
    }

    #[test]
    fn jitter_stays_between_zero_and_the_delay() {
        let mut backoff = Backoff::new(secs(4), secs(8));
        assert_eq!(backoff.next_delay_with_jitter(0), Duration::ZERO);
        assert_eq!(backoff.next_delay_with_jitter(u64::MAX), secs(8));
        assert_eq!(backoff.next_delay_with_jitter(u64::MAX / 2).as_millis(), 4000);
    }
}
