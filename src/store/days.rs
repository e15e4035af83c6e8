//! The journal's calendar: days that really went by, whatever the wall clock says. Pure.
//!
//! Ages are counted in these days. A wall clock that jumps ahead makes nothing old, one that jumps back keeps nothing young:
//! the calendar moves on by one day at a time, at most once in [`MIN_DAY`] of running, and starts from wherever the wall clock
//! is. Days on which the relay did not run may be missing, so things stay a little longer, never shorter.

use std::time::Duration;

pub(super) const DAY_MS: i64 = 24 * 3_600_000;
/// Least time between two days.
const MIN_DAY: Duration = Duration::from_secs(20 * 3600);

/// The calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    /// Today.
    pub(super) day: i64,
    /// The wall clock's day that belongs to it.
    pub(super) wall_day: i64,
    /// When this process counted a day, on its monotonic clock.
    counted_at: Option<Duration>,
}

impl Calendar {
    /// The calendar of a new journal.
    pub(super) fn new(now_ms: i64) -> Self {
        let day = now_ms.div_euclid(DAY_MS);
        Self::restore(day, day)
    }

    /// The calendar as it was noted.
    pub(super) fn restore(day: i64, wall_day: i64) -> Self {
        Self {
            day,
            wall_day,
            counted_at: None,
        }
    }

    /// Follows the wall clock; `mono` is the time that this process has been running.
    pub(super) fn observe(&mut self, now_ms: i64, mono: Duration) {
        let wall_day = now_ms.div_euclid(DAY_MS);
        let is_due = self.counted_at.is_none_or(|at| mono >= at + MIN_DAY);
        if wall_day < self.wall_day {
            self.wall_day = wall_day;
        } else if wall_day > self.wall_day && is_due {
            self.wall_day = wall_day;
            self.day += 1;
            self.counted_at = Some(mono);
        }
    }

    /// The time in the calendar: its day, and the wall clock's time of day.
    pub(super) fn now_ms(&self, wall_ms: i64) -> i64 {
        self.day
            .saturating_mul(DAY_MS)
            .saturating_add(wall_ms.rem_euclid(DAY_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 20_000 * DAY_MS + DAY_MS / 2;
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn days_go_by_with_the_wall_clock() {
        let mut calendar = Calendar::new(NOON);
        for hours in 0..24 * 30 {
            calendar.observe(NOON + i64::from(hours) * DAY_MS / 24, HOUR * hours);
            let wall = 20_000 + (i64::from(hours) + 12) / 24;
            assert!((wall - 1..=wall).contains(&calendar.day), "hour {hours}");
        }
    }

    #[test]
    fn a_jump_is_a_day_at_most_and_time_goes_on_after_it() {
        const YEARS: i64 = 5000;
        let mut calendar = Calendar::new(NOON);
        let mut mono = Duration::ZERO;
        // Back and forth, again and again within an hour.
        for _ in 0..1000 {
            calendar.observe(NOON + YEARS * DAY_MS, mono);
            calendar.observe(NOON - YEARS * DAY_MS, mono);
            mono += HOUR / 1000;
        }
        assert_eq!(calendar.day, 20_001);
        // Wherever it stays, days are counted.
        for wall in [NOON + YEARS * DAY_MS, NOON, NOON - YEARS * DAY_MS] {
            let before = calendar.day;
            for day in 0..10 {
                mono += 24 * HOUR;
                calendar.observe(wall + day * DAY_MS, mono);
            }
            assert!(
                (9..=10).contains(&(calendar.day - before)),
                "{}",
                calendar.day - before
            );
        }
        // The relay was off for a year: one day.
        let mut calendar = Calendar::restore(20_000, 20_000);
        calendar.observe(NOON + 365 * DAY_MS, Duration::ZERO);
        assert_eq!((calendar.day, calendar.wall_day), (20_001, 20_365));
        assert_eq!(calendar.now_ms(NOON), NOON + DAY_MS);
    }
}
