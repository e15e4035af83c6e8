//! The two clocks, read here and handed down as arguments.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::link::Moment;

/// Reads both clocks; every moment of one process counts from the same start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// What both clocks say now.
    pub(crate) fn now(self) -> Moment {
        Moment {
            mono: self.mono(),
            unix_ms: self.unix_ms(),
        }
    }

    /// What the monotonic one says now.
    pub(crate) fn mono(self) -> Duration {
        self.0.elapsed()
    }

    /// The time of day, in milliseconds since 1970.
    #[expect(clippy::unused_self, reason = "both clocks are read in one place")]
    pub(crate) fn unix_ms(self) -> i64 {
        unix_ms(SystemTime::now())
    }

    /// Chance; the time of day where the system has none.
    pub(crate) fn seed(self) -> u64 {
        let mut seed = [0; 8];
        if getrandom::fill(&mut seed).is_err() {
            seed = self.unix_ms().to_le_bytes();
        }
        u64::from_le_bytes(seed)
    }

    /// A point of the monotonic clock, for a timer.
    pub(crate) fn instant(self, mono: Duration) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0 + mono)
    }
}

/// Milliseconds since 1970; zero for a clock that stands before it.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
