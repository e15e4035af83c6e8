//! A cron expression: five columns, optionally seconds as the sixth and years as the seventh.
//!
//! It is matched against wall clock times without a zone; [`super::Schedule`] attaches the zone. Behaviour follows the
//! expressions that Hermes accepts: wrapping ranges (`22-2`, `FRI-MON`), `5/20` for "from 5 by 20", steps larger than the field,
//! and the union of day of month and day of week when both are restricted.

use jiff::Span;
use jiff::civil::{Date, DateTime, Time};

use super::ScheduleError;

/// How far ahead a match is searched.
const SEARCH_YEARS: i16 = 50;
/// Maximum length of an expression.
const MAX_CHARS: usize = 256;
const FIRST_YEAR: u32 = 1970;
const LAST_YEAR: u32 = 2099;
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
/// The last day of the week; 7 is another name for Sunday, which is 0.
const SATURDAY: u32 = 6;
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A parsed cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronFields {
    seconds: Bits,
    minutes: Bits,
    hours: Bits,
    days: Bits,
    months: Bits,
    weekdays: Bits,
    years: Bits,
    /// Whether the day columns are `*`.
    any_day: bool,
    any_weekday: bool,
}

/// The allowed values of a column, counted from its smallest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Bits {
    from: u32,
    bits: u128,
}

impl Bits {
    const fn one(value: u32) -> Self {
        Self {
            from: 0,
            bits: 1 << value,
        }
    }

    fn has(self, value: u32) -> bool {
        value >= self.from && value - self.from < 128 && self.bits >> (value - self.from) & 1 == 1
    }

    fn count(self) -> u32 {
        self.bits.count_ones()
    }

    /// The first value from `value` on.
    fn from(self, value: u32) -> Option<u32> {
        let skipped = value.saturating_sub(self.from);
        let rest = if skipped < 128 {
            self.bits >> skipped << skipped
        } else {
            0
        };
        (rest != 0).then(|| self.from + rest.trailing_zeros())
    }
}

/// A column: its name, its range and its names.
struct Column {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const COLUMNS: [Column; 7] = [
    Column {
        name: "minute",
        min: 0,
        max: 59,
        names: &[],
    },
    Column {
        name: "hour",
        min: 0,
        max: 23,
        names: &[],
    },
    Column {
        name: "day of month",
        min: 1,
        max: 31,
        names: &[],
    },
    Column {
        name: "month",
        min: 1,
        max: 12,
        names: &MONTHS,
    },
    Column {
        name: "day of week",
        min: 0,
        max: SATURDAY,
        names: &WEEKDAYS,
    },
    Column {
        name: "second",
        min: 0,
        max: 59,
        names: &[],
    },
    Column {
        name: "year",
        min: FIRST_YEAR,
        max: LAST_YEAR,
        names: &[],
    },
];

impl CronFields {
    /// Parses an expression of five to seven columns; refuses one that runs more often than once a minute on average.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let columns: Vec<&str> = text.split_whitespace().collect();
        if !(5..=7).contains(&columns.len()) || text.len() > MAX_CHARS {
            return Err(ScheduleError::Cron("it needs 5 to 7 columns".to_owned()));
        }
        let mut parsed = [Bits::default(); 7];
        parsed[5] = Bits::one(0);
        parsed[6] = Bits {
            from: FIRST_YEAR,
            bits: u128::MAX,
        };
        for ((column, text), bits) in COLUMNS.iter().zip(&columns).zip(&mut parsed) {
            *bits = column.parse(text)?;
        }
        let [minutes, hours, days, months, weekdays, seconds, years] = parsed;
        if minutes.count() * seconds.count() > 60 {
            return Err(ScheduleError::TooOften);
        }
        Ok(Self {
            seconds,
            minutes,
            hours,
            days,
            months,
            weekdays,
            years,
            any_day: columns[2] == "*",
            any_weekday: columns[4] == "*",
        })
    }

    /// Whether a wall clock time matches, to the second.
    #[cfg(test)]
    pub fn matches(&self, at: DateTime) -> bool {
        self.has_date(at.date())
            && self.hours.has(unsigned(at.hour()))
            && self.minutes.has(unsigned(at.minute()))
            && self.seconds.has(unsigned(at.second()))
    }

    /// The first match strictly after a wall clock time.
    pub fn next_after(&self, base: DateTime) -> Option<DateTime> {
        let whole = base.with().subsec_nanosecond(0).build().ok()?;
        let start = whole.checked_add(Span::new().seconds(1)).ok()?;
        let last = start.date().year().saturating_add(SEARCH_YEARS);
        let (mut date, mut from) = (start.date(), start.time());
        while date.year() <= last {
            if self.has_date(date)
                && let Some(time) = self.time_from(from)
            {
                return Some(DateTime::from_parts(date, time));
            }
            date = self.skip(date)?;
            from = Time::midnight();
        }
        None
    }

    /// The next date worth looking at.
    fn skip(&self, date: Date) -> Option<Date> {
        if self.months.has(unsigned(date.month())) && self.years.has(year(date)) {
            date.tomorrow().ok()
        } else {
            date.last_of_month().tomorrow().ok()
        }
    }

    fn has_date(&self, date: Date) -> bool {
        let day = self.days.has(unsigned(date.day()));
        let weekday = self
            .weekdays
            .has(unsigned(date.weekday().to_sunday_zero_offset()));
        let is_day = match (self.any_day, self.any_weekday) {
            (false, false) => day || weekday,
            (true, _) => weekday,
            (false, true) => day,
        };
        is_day && self.months.has(unsigned(date.month())) && self.years.has(year(date))
    }

    /// The first time of a day from this one on.
    fn time_from(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (
            unsigned(from.hour()),
            unsigned(from.minute()),
            unsigned(from.second()),
        );
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.from(second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = self.minutes.from(minute + 1) {
                return time(hour, minute, self.seconds.from(0)?);
            }
        }
        time(
            self.hours.from(hour + 1)?,
            self.minutes.from(0)?,
            self.seconds.from(0)?,
        )
    }
}

impl Column {
    fn parse(&self, text: &str) -> Result<Bits, ScheduleError> {
        let mut bits = 0_u128;
        for item in text.split(',') {
            let wrong = || ScheduleError::Cron(format!("`{item}` is not a valid {}", self.name));
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (
                    range,
                    Some(number(step).filter(|step| *step > 0).ok_or_else(wrong)?),
                ),
                None => (item, None),
            };
            let (low, high) = match range.split_once('-') {
                _ if range == "*" => (self.min, self.max),
                // From Sunday as 0 to Sunday as 7 is the whole week.
                Some((low, high))
                    if self.is_weekday() && number(low) == Some(0) && number(high) == Some(7) =>
                {
                    (self.min, self.max)
                }
                Some((low, high)) => (
                    self.value(low).ok_or_else(wrong)?,
                    self.value(high).ok_or_else(wrong)?,
                ),
                None => {
                    let value = self.value(range).ok_or_else(wrong)?;
                    (value, if step.is_some() { self.max } else { value })
                }
            };
            let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
            // A range that wraps goes on at the smallest value.
            let end = if low <= high { high } else { self.max };
            let rest = (low > high).then_some(self.min..=high);
            for value in (low..=end).chain(rest.into_iter().flatten()).step_by(step) {
                // A year before the first bit is long past.
                bits |= value.checked_sub(self.offset()).map_or(0, |bit| 1 << bit);
            }
        }
        Ok(Bits {
            from: self.offset(),
            bits,
        })
    }

    /// The value of the first bit: the last 128 years have one.
    fn offset(&self) -> u32 {
        self.max.saturating_sub(127)
    }

    fn is_weekday(&self) -> bool {
        self.max == SATURDAY
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = || {
            let at = (self.names.iter()).position(|name| name.eq_ignore_ascii_case(text))?;
            u32::try_from(at).ok().map(|at| at + self.min)
        };
        let value = match number(text).or_else(named)? {
            7 if self.is_weekday() => 0,
            value => value,
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }
}

/// Plain digits, at most nine.
fn number(text: &str) -> Option<u32> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

fn unsigned(value: i8) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

fn year(date: Date) -> u32 {
    u32::try_from(date.year()).unwrap_or(0)
}

fn time(hour: u32, minute: u32, second: u32) -> Option<Time> {
    let small = |value: u32| i8::try_from(value).ok();
    Time::new(small(hour)?, small(minute)?, small(second)?, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(expression: &str, base: &str) -> Option<String> {
        let fields = CronFields::parse(expression).unwrap();
        fields.next_after(base.parse().unwrap()).map(|at| at.to_string())
    }

    #[test]
    fn ranges_wrap_and_steps_may_exceed_the_field() {
        for (expression, wanted) in [
            ("0 22-2 * * *", "2026-06-18T22:00:00"),
            ("*/90 * * * *", "2026-06-18T11:00:00"),
            ("0 9 * * FRI-MON", "2026-06-19T09:00:00"),
            ("0 9 * nov-FEB *", "2026-11-01T09:00:00"),
            ("5/20 10 * * *", "2026-06-18T10:05:00"),
            ("0 9 * * 7", "2026-06-21T09:00:00"),
            ("0 12 * * * 30", "2026-06-18T12:00:30"),
            ("0 9 * * * 15 2028", "2028-01-01T09:00:15"),
            ("0 9 29 2 *", "2028-02-29T09:00:00"),
            ("0 9 * * * 0 2028-2020", "2028-01-01T09:00:00"),
            ("0 9 * * * 0 1970-2099", "2026-06-19T09:00:00"),
            ("0 9 * * * 0 1970,2070", "2070-01-01T09:00:00"),
        ] {
            assert_eq!(
                next(expression, "2026-06-18T10:00").as_deref(),
                Some(wanted),
                "{expression}"
            );
        }
        assert_eq!(next("0 9 30 2 *", "2026-06-18T10:00"), None);
        assert_eq!(next("0 9 * * * 0 2020", "2026-06-18T10:00"), None);
    }

    #[test]
    fn steps_over_weekdays_count_sunday_once() {
        let days = |column: &str| {
            let fields = CronFields::parse(&format!("0 9 * * {column}")).unwrap();
            (0..7).filter(|day| fields.weekdays.has(*day)).collect::<Vec<_>>()
        };
        assert_eq!(days("1/3"), [1, 4]);
        assert_eq!(days("2/5"), [2]);
        assert_eq!(days("5-1/2"), [0, 5]);
        assert_eq!(days("FRI-MON/2"), [0, 5]);
        assert_eq!(days("6-2/2"), [1, 6]);
        assert_eq!(days("5-7"), [0, 5, 6]);
        assert_eq!(days("7-2"), [0, 1, 2]);
        assert_eq!(days("0-7"), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(days("1-7"), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(days("7"), [0]);
        assert_eq!(days("*/2"), [0, 2, 4, 6]);
    }

    #[test]
    fn a_match_is_strictly_later_to_the_microsecond() {
        assert_eq!(
            next("0 9 * * *", "2026-06-18T09:00:00.000001").unwrap(),
            "2026-06-19T09:00:00"
        );
        assert_eq!(
            next("0 9 * * *", "2026-06-18T08:59:59.999999").unwrap(),
            "2026-06-18T09:00:00"
        );
    }

    #[test]
    fn hot_loops_are_refused_and_daily_jobs_with_seconds_are_not() {
        for hot in ["* * * * * *", "*/2 * * * * */2", "* * * * * 0,30"] {
            assert_eq!(CronFields::parse(hot), Err(ScheduleError::TooOften), "{hot}");
        }
        for daily in ["0 9 * * * 30", "* * * * * 5", "0 9 * * * *"] {
            assert!(CronFields::parse(daily).is_ok(), "{daily}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for wrong in [
            "60 * * * *",
            "0 24 * * *",
            "0 9 0 * *",
            "0 9 * 13 *",
            "0 9 * * 8",
            "*/0 * * * *",
            "-1 * * * *",
            "1- * * * *",
            "/5 * * * *",
            ", * * * *",
            "0 9 * * 1#2",
            "0 9 ? * *",
            "0 9 L * *",
            "0 9 * * MON MON",
            "jan * * * *",
            "0 9 * * * 0 1969",
            "1 2 3 4 5 6 2030 8",
            "0 9 * * 1,",
            "1234567890 * * * *",
        ] {
            assert!(CronFields::parse(wrong).is_err(), "{wrong}");
        }
    }
}
