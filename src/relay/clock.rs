//! The two clocks, read here and handed down as arguments.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::link::Moment;

/// Reads both clocks; every moment of one process counts from the same start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// In a simulation: the time of day at the start, and what chance is made of.
    simulated: Option<(i64, u64)>,
}

impl Clock {
    /// Starts counting.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            simulated: None,
        }
    }

    /// Starts counting in a simulation: by the runtime's clock, which may be paused, from this time of day on.
    #[cfg(feature = "internals")]
    pub(crate) fn simulated(unix_ms: i64, seed: u64) -> Self {
        Self {
            start: tokio::time::Instant::now().into_std(),
            simulated: Some((unix_ms, seed)),
        }
    }

    /// What both clocks say now.
    pub(crate) fn now(self) -> Moment {
        Moment {
            mono: self.mono(),
            unix_ms: self.unix_ms(),
        }
    }

    /// Whether it is the clock of a simulation.
    pub(crate) fn is_simulated(self) -> bool {
        self.simulated.is_some()
    }

    /// What the monotonic one says now.
    pub(crate) fn mono(self) -> Duration {
        if self.is_simulated() {
            return tokio::time::Instant::now().into_std() - self.start;
        }
        self.start.elapsed()
    }

    /// The time of day, in milliseconds since 1970.
    pub(crate) fn unix_ms(self) -> i64 {
        match self.simulated {
            None => now_ms(),
            Some((start, _)) => {
                start.saturating_add(i64::try_from(self.mono().as_millis()).unwrap_or(i64::MAX))
            }
        }
    }

    /// A random number; the time of day where the system has no randomness.
    pub(crate) fn seed(self) -> u64 {
        if let Some((_, seed)) = self.simulated {
            let passed = u64::try_from(self.mono().as_nanos()).unwrap_or(u64::MAX);
            return seed ^ passed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let mut seed = [0; 8];
        if getrandom::fill(&mut seed).is_err() {
            seed = self.unix_ms().to_le_bytes();
        }
        u64::from_le_bytes(seed)
    }

    /// A point of the monotonic clock, for a timer.
    pub(crate) fn instant(self, mono: Duration) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.start + mono)
    }
}

/// The clocks as the event loop sees them: they stand still while it handles what has happened, so that a turn does not read
/// them a dozen times.
#[derive(Debug)]
pub(crate) struct LoopClock {
    clock: Clock,
    now: Moment,
}

impl LoopClock {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            now: clock.now(),
        }
    }

    /// Reads both clocks.
    pub(crate) fn advance(&mut self) {
        self.now = self.clock.now();
    }

    /// What both clocks said last.
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// What the monotonic one said last.
    pub(crate) fn mono(&self) -> Duration {
        self.now.mono
    }

    /// The time of day as it was last, in milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> i64 {
        self.now.unix_ms
    }

    /// A point of the monotonic clock, for a timer.
    pub(crate) fn instant(&self, mono: Duration) -> tokio::time::Instant {
        self.clock.instant(mono)
    }

    /// The clocks themselves, for a task.
    pub(crate) fn live(&self) -> Clock {
        self.clock
    }
}

/// The time of day, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    unix_ms(SystemTime::now())
}

/// Milliseconds since 1970; zero for a clock that stands before it.
pub(crate) fn unix_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
