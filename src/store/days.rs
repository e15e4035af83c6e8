//! The journal's calendar: days that really went by, whatever the wall clock says. Pure.
//!
//! Ages are counted in these days. A wall clock that jumps ahead makes nothing old, one that jumps back keeps nothing young:
//! the calendar moves on by one day at a time, at most once in [`MIN_DAY`] of running, and starts from wherever the wall clock
//! is. Days on which the relay did not run may be missing, so things stay a little longer, never shorter.
//!
//! What is stored with a time of the wall clock is as old as the last day of the calendar on which the clock showed that time
//! ([`ShownDays`]).

use std::ops::RangeInclusive;
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

/// What the wall clock showed on the last days of the calendar. Whatever was written on one of them has such a time, however wrong
/// the clock was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownDays(Vec<ShownDay>);

/// A day of the calendar, and the first and the last day that the wall clock showed on it.
type ShownDay = (i64, i64, i64);

impl ShownDays {
    /// As it was noted; else it begins with the calendar.
    pub(super) fn restore(noted: Option<&str>, calendar: Calendar) -> Self {
        let noted: Option<Vec<ShownDay>> = noted.and_then(|noted| serde_json::from_str(noted).ok());
        Self(noted.unwrap_or_else(|| vec![(calendar.day, calendar.wall_day, calendar.wall_day)]))
    }

    /// To note it.
    pub(super) fn to_text(&self) -> String {
        // A list of numbers.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// The wall clock showed this on a day of the calendar.
    pub(super) fn observe(&mut self, day: i64, wall_ms: i64) {
        let wall_day = wall_ms.div_euclid(DAY_MS);
        match self.0.last_mut() {
            Some((last, first_shown, last_shown)) if *last >= day => {
                *first_shown = wall_day.min(*first_shown);
                *last_shown = wall_day.max(*last_shown);
            }
            Some(_) | None => self.0.push((day, wall_day, wall_day)),
        }
    }

    /// Forgets what was before a day.
    pub(super) fn forget_before(&mut self, day: i64) {
        self.0.drain(..self.begin(day));
    }

    /// The times of what was written since a day of the calendar, at this time of that day.
    pub(super) fn since(&self, day: i64, now_ms: i64) -> RangeInclusive<i64> {
        let known = &self.0[self.begin(day)..];
        let Some((first, later)) = known.split_first() else {
            return i64::MIN..=i64::MAX;
        };
        let start_of = |wall_day: i64| wall_day.saturating_mul(DAY_MS);
        // On days that are not known, the wall clock went on with the calendar.
        let (first_day, first_shown, _) = *first;
        let begin = start_of(first_shown.saturating_add(day - first_day));
        let begin = begin.saturating_add(now_ms.rem_euclid(DAY_MS));
        let begins = later.iter().map(|(_, first_shown, _)| start_of(*first_shown));
        // A day more, because it goes on between two looks at it.
        let ends = known
            .iter()
            .map(|(_, _, last_shown)| start_of(last_shown.saturating_add(2)));
        begins.fold(begin, i64::min)..=ends.fold(i64::MIN, i64::max)
    }

    /// Where the days begin that say what was shown since this one.
    fn begin(&self, day: i64) -> usize {
        self.0
            .partition_point(|(known, ..)| *known <= day)
            .saturating_sub(1)
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

    #[test]
    fn what_was_written_under_a_wrong_clock_is_as_old_as_the_day_on_which_it_was_written() {
        const KEEP: i64 = 3;
        let is_kept = |shown: &ShownDays, today: i64, written: i64| {
            let now = NOON + (today - 20_000) * DAY_MS;
            shown.since(today - KEEP, now).contains(&written)
        };
        let mut shown = ShownDays::restore(None, Calendar::new(NOON));
        assert!(is_kept(&shown, 20_000, NOON - KEEP * DAY_MS));
        assert!(!is_kept(&shown, 20_000, NOON - KEEP * DAY_MS - 1));
        let wrong = [NOON - 9000 * DAY_MS, NOON + 9000 * DAY_MS];
        for wall_ms in wrong {
            shown.observe(20_000, wall_ms);
        }
        for day in 1..=10 {
            shown.observe(20_000 + day, NOON + day * DAY_MS);
            shown.forget_before(20_000 + day - KEEP);
            for written in wrong {
                assert_eq!(is_kept(&shown, 20_000 + day, written), day <= KEEP, "day {day}");
            }
            let right = NOON + (day - KEEP) * DAY_MS;
            assert!(is_kept(&shown, 20_000 + day, right));
            assert_eq!(is_kept(&shown, 20_000 + day, right - 1), day <= KEEP, "day {day}");
        }
        assert_eq!(shown.0.len(), 4, "it is bounded");
        assert_eq!(
            ShownDays::restore(Some(&shown.to_text()), Calendar::new(0)),
            shown
        );
        // The relay was off for a year: what was before is kept for the days of the calendar.
        for day in 11..=15 {
            shown.observe(20_000 + day, NOON + (365 + day) * DAY_MS);
            let now = NOON + (365 + day) * DAY_MS;
            let before_that = NOON + 10 * DAY_MS + 1;
            let is_kept = shown.since(20_000 + day - KEEP, now).contains(&before_that);
            assert_eq!(is_kept, day <= 10 + KEEP, "day {day}");
        }
    }
}
