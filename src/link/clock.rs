//! Two clocks, told apart, and the connector's.
//!
//! The monotonic clock stops while the machine sleeps; the wall clock goes on but may be wrong or be set.
//! Nothing here reads either: a [`Moment`] is handed in.

use std::time::Duration;

/// What both clocks said when something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since some start; stands still while the machine sleeps, never runs backwards.
    pub mono: Duration,
    /// Wall clock, milliseconds since 1970.
    pub unix_ms: i64,
}

impl Moment {
    /// This moment as whole milliseconds of the wall clock, moved by `ms`.
    fn unix_ms_plus(self, ms: i64) -> i64 {
        self.unix_ms.saturating_add(ms)
    }
}

/// A time that has come once either clock says so: a machine that slept through it does not wait again,
/// and a wall clock that was set back does not put it off.
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

    /// Whether it has come.
    pub fn passed(self, now: Moment) -> bool {
        now.mono >= self.mono || now.unix_ms >= self.unix_ms
    }

    /// When it comes on the monotonic clock, as far as `now` can tell.
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

/// How the wall clock moved against the monotonic one since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// Together, near enough.
    Steady,
    /// The wall clock ran ahead: the machine slept, or the clock was set.
    Ahead,
    /// The wall clock was set back.
    Back,
}

/// The last moment seen, and what is known about the connector's clock.
#[derive(Debug)]
pub(super) struct Clock {
    seen: Moment,
    jump_ms: i64,
    max_correction_ms: i64,
    measured_ms: Option<i64>,
    correction_ms: i64,
    warned: bool,
}

/// A difference up to this is the granularity of a `Date` header and the way it travelled.
const TOLERATED_MS: i64 = 5_000;
/// A difference from here on is worth a word to people.
const WORTH_A_WARNING_MS: i64 = 30_000;

impl Clock {
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

    /// The last moment seen.
    pub(super) fn seen(&self) -> Moment {
        self.seen
    }

    /// Takes in the present; the monotonic part never goes back.
    pub(super) fn observe(&mut self, now: Moment) -> (Moment, Drift) {
        let now = Moment {
            mono: now.mono.max(self.seen.mono),
            ..now
        };
        let wall = now.unix_ms.saturating_sub(self.seen.unix_ms);
        let ahead = wall.saturating_sub(millis(now.mono.saturating_sub(self.seen.mono)));
        self.seen = now;
        let drift = if ahead > self.jump_ms {
            Drift::Ahead
        } else if ahead < -self.jump_ms {
            Drift::Back
        } else {
            Drift::Steady
        };
        if drift != Drift::Steady {
            // The correction was measured against a clock that is gone.
            self.correction_ms = 0;
            self.measured_ms = None;
        }
        (now, drift)
    }

    /// Learns from the connector's `Date`. Tells the difference once, when it is worth a warning.
    pub(super) fn learn(&mut self, server_date_unix_ms: i64, now: Moment) -> Option<i64> {
        let skew = server_date_unix_ms.saturating_sub(now.unix_ms);
        self.measured_ms = Some(skew);
        let size = skew.saturating_abs();
        self.correction_ms = if size > TOLERATED_MS && size <= self.max_correction_ms {
            skew
        } else {
            0
        };
        let warn = size > WORTH_A_WARNING_MS && !self.warned;
        self.warned |= warn;
        warn.then_some(skew)
    }

    /// How far the connector's clock was ahead when it was last heard, in milliseconds.
    pub(super) fn skew_ms(&self) -> Option<i64> {
        self.measured_ms
    }

    /// What is added to the wall clock for a token.
    pub(super) fn correction_ms(&self) -> i64 {
        self.correction_ms
    }

    /// Unix seconds on the connector's clock, as far as it is known.
    pub(super) fn connector_unix(&self, now: Moment) -> i64 {
        now.unix_ms_plus(self.correction_ms).div_euclid(1000)
    }

    /// Whether a token minted under `correction_ms` carried a date that we would not give it now.
    pub(super) fn disowns(&self, correction_ms: i64) -> bool {
        self.correction_ms.saturating_sub(correction_ms).saturating_abs() > TOLERATED_MS
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
