//! The monotonic clock, the wall clock, and the connector's clock.
//!
//! The monotonic clock stops while the machine is suspended; the wall clock continues but may be wrong or be set.
//! Neither is read here: a [`Moment`] is passed in.

use std::time::Duration;

/// A reading of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time; stops while the machine is suspended.
    pub mono: Duration,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: i64,
}

impl Moment {
    /// The wall clock, shifted by `ms`.
    fn unix_ms_plus(self, ms: i64) -> i64 {
        self.unix_ms.saturating_add(ms)
    }
}

/// A deadline that passes as soon as either clock reaches it, so that neither a suspend nor a wall clock that is set
/// back delays it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// On the monotonic clock.
    pub mono: Duration,
    /// On the wall clock.
    pub unix_ms: i64,
}

impl Deadline {
    /// `wait` from `now`.
    pub fn after(now: Moment, wait: Duration) -> Self {
        Self {
            mono: now.mono.saturating_add(wait),
            unix_ms: now.unix_ms_plus(millis(wait)),
        }
    }

    /// Whether it has passed.
    pub fn passed(self, now: Moment) -> bool {
        now.mono >= self.mono || now.unix_ms >= self.unix_ms
    }

    /// The deadline on the monotonic clock, estimated from `now`.
    pub fn on_mono(self, now: Moment) -> Duration {
        let left = self.unix_ms.saturating_sub(now.unix_ms).max(0);
        let by_wall = Duration::from_millis(left.unsigned_abs());
        self.mono.min(now.mono.saturating_add(by_wall))
    }

    /// The later of two, clock by clock.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        Self {
            mono: self.mono.max(other.mono),
            unix_ms: self.unix_ms.max(other.unix_ms),
        }
    }

    /// The earlier of two, clock by clock.
    #[must_use]
    pub fn or_earlier(self, other: Self) -> Self {
        Self {
            mono: self.mono.min(other.mono),
            unix_ms: self.unix_ms.min(other.unix_ms),
        }
    }
}

/// How the wall clock moved relative to the monotonic one since the last reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockDrift {
    /// In step.
    Steady,
    /// The wall clock jumped ahead: the machine was suspended, or the clock was set.
    Ahead,
    /// The wall clock was set back.
    Back,
}

/// The last reading, and the offset of the connector's clock.
#[derive(Debug)]
pub(super) struct LinkClock {
    seen: Moment,
    jump_ms: i64,
    max_correction_ms: i64,
    measured_ms: Option<i64>,
    correction_ms: i64,
    warned: bool,
}

/// Differences up to this come from the granularity of `Date` headers and from latency.
const TOLERATED_SKEW_MS: i64 = 5_000;
/// Differences from this on are reported.
const WARN_SKEW_MS: i64 = 30_000;

impl LinkClock {
    pub(super) fn new(now: Moment, freeze_jump: Duration, max_correction: Duration) -> Self {
        Self {
            seen: now,
            jump_ms: millis(freeze_jump),
            max_correction_ms: millis(max_correction),
            measured_ms: None,
            correction_ms: 0,
            warned: false,
        }
    }

    /// The latest reading of the clocks.
    pub(super) fn seen(&self) -> Moment {
        self.seen
    }

    /// Takes a reading; the monotonic part never goes back.
    pub(super) fn observe(&mut self, now: Moment) -> (Moment, ClockDrift) {
        let now = Moment {
            mono: now.mono.max(self.seen.mono),
            ..now
        };
        let wall = now.unix_ms.saturating_sub(self.seen.unix_ms);
        let ahead = wall.saturating_sub(millis(now.mono.saturating_sub(self.seen.mono)));
        self.seen = now;
        let drift = if ahead > self.jump_ms {
            ClockDrift::Ahead
        } else if ahead < -self.jump_ms {
            ClockDrift::Back
        } else {
            ClockDrift::Steady
        };
        if drift != ClockDrift::Steady {
            // The correction was measured before the clock jumped.
            self.correction_ms = 0;
            self.measured_ms = None;
        }
        (now, drift)
    }

    /// Learns the offset from the connector's `Date`. Returns it once when it is large enough for a warning.
    pub(super) fn learn(&mut self, server_date_unix_ms: i64, now: Moment) -> Option<i64> {
        let skew = server_date_unix_ms.saturating_sub(now.unix_ms);
        self.measured_ms = Some(skew);
        let size = skew.saturating_abs();
        self.correction_ms = if size > TOLERATED_SKEW_MS && size <= self.max_correction_ms {
            skew
        } else {
            0
        };
        let warn = size > WARN_SKEW_MS && !self.warned;
        self.warned |= warn;
        warn.then_some(skew)
    }

    /// How far the connector's clock was ahead when last measured, in milliseconds.
    pub(super) fn skew_ms(&self) -> Option<i64> {
        self.measured_ms
    }

    /// Correction of the wall clock for tokens.
    pub(super) fn correction_ms(&self) -> i64 {
        self.correction_ms
    }

    /// Unix seconds on the connector's clock.
    pub(super) fn connector_unix(&self, now: Moment) -> i64 {
        now.unix_ms_plus(self.correction_ms).div_euclid(1000)
    }

    /// Whether a token minted with this correction would now get a different date.
    pub(super) fn contradicts(&self, correction_ms: i64) -> bool {
        self.correction_ms.saturating_sub(correction_ms).saturating_abs() > TOLERATED_SKEW_MS
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
