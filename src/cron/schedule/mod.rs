//! Schedules: when a job runs. Pure: time comes in as an instant, the zone as a value.
//!
//! Cron expressions follow the wall clock of the zone: a job at 09:00 runs at 09:00 before and after a change of the clocks. A
//! time that a change skips runs as much later as the clocks were put forward; in the hour that is repeated, each time runs once.
//! Intervals and delays count elapsed time.

mod fields;
mod grammar;
pub mod instant;
mod phrase;
mod suggest;

use std::fmt;

use jiff::SignedDuration;
pub use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::AmbiguousOffset;
pub use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

pub use fields::CronFields;
pub use instant::{format, parse as parse_instant, plus_secs, zone};

/// How long ago the time of a one-shot may be.
pub const ONCE_GRACE_SECS: i64 = 120;
/// The longest interval that a record may have, in minutes: a hundred years.
const MAX_MINUTES: u64 = 36_525 * 24 * 60;

/// Why a text cannot be read as a schedule, or a schedule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Nothing that is known.
    #[error("I cannot read `{text}` as a time{near}")]
    Unknown {
        /// What was written.
        text: String,
        /// What to write instead.
        near: Near,
    },
    /// A cron expression with a mistake.
    #[error("invalid cron expression: {0}")]
    Cron(String),
    /// A timestamp with a mistake.
    #[error("`{0}` is not a valid time; write it as 2026-06-19T14:00 or 2026-06-19T14:00:00+02:00")]
    Timestamp(String),
    /// A weekday without a time.
    #[error("`{0}` has no time of day; write it as `{0} at 9` or `{0} at 14:30`")]
    NoTime(String),
    /// More often than once a minute.
    #[error("this runs more often than once a minute; the shortest interval is `every 1m`")]
    TooOften,
    /// An interval in seconds.
    #[error("intervals are in minutes; write `every 2m`, or `in 90s` for once")]
    SecondsInterval,
    /// A number that is too large.
    #[error("this is more than a hundred years ahead")]
    TooFar,
    /// A text that is too long.
    #[error("the schedule is longer than 256 characters")]
    TooLong,
    /// A cron expression without a match.
    #[error("this never runs: no date in the next 50 years matches")]
    Never,
    /// A one-shot in the past.
    #[error("{0} is in the past")]
    Past(String),
    /// An unknown time zone.
    #[error("there is no time zone `{name}`; {}", match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "use a name such as Europe/Berlin or UTC".to_owned(),
    })]
    Zone {
        /// The name.
        name: String,
        /// The name that differs only in case.
        near: Option<String>,
    },
}

/// What to write instead of a text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Near {
    /// What was probably meant.
    Meant(String),
    /// An example of the same form.
    Example(&'static str),
    /// It resembles nothing.
    None,
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meant(near) => write!(f, ". Did you mean `{near}`?"),
            Self::Example(example) => write!(f, ". Write it like `{example}`"),
            Self::None => f.write_str(
                ". Write `every 30m`, `in 30m`, `weekdays at 9am`, `tomorrow at 8am`, a time such as `2026-06-19T14:00`, or a cron \
                 expression such as `0 9 * * 1-5`",
            ),
        }
    }
}

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    timing: Timing,
    display: String,
}

/// The three kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are at most as many as there are jobs"
)]
pub enum Timing {
    /// Once.
    Once {
        /// When.
        run_at: Timestamp,
    },
    /// Again and again, by elapsed time.
    Interval {
        /// Minutes between runs.
        minutes: u64,
    },
    /// By the wall clock.
    Cron {
        /// The expression as text.
        expression: String,
        /// The same, parsed.
        fields: CronFields,
    },
}

impl Schedule {
    /// Reads what a person wrote. It does not look whether the schedule ever runs: [`Self::first_run`] does.
    pub fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Self, ScheduleError> {
        grammar::parse(text, now, zone)
    }

    /// Whether a text that follows a schedule looks like a part of it.
    pub fn is_continued_by(text: &str) -> bool {
        grammar::continues(text)
    }

    /// Reads the `schedule` of a job's record; a text is read as what a person wrote.
    pub fn from_record(record: &Value, zone: &TimeZone) -> Option<Self> {
        if let Value::String(text) = record {
            return Self::parse(text, Timestamp::UNIX_EPOCH, zone)
                .ok()
                .filter(|schedule| !matches!(schedule.timing, Timing::Once { .. }));
        }
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let timing = match text("kind")? {
            "once" => Timing::Once {
                run_at: parse_instant(text("run_at")?, zone)?,
            },
            "interval" => {
                let minutes = record.get("minutes")?.as_u64()?;
                Timing::Interval {
                    minutes: Some(minutes).filter(|minutes| (1..=MAX_MINUTES).contains(minutes))?,
                }
            }
            "cron" => {
                let expression = text("expr")?.trim().to_owned();
                let fields = CronFields::parse(&expression).ok()?;
                Timing::Cron { expression, fields }
            }
            _ => return None,
        };
        let display = text("display").unwrap_or_default().to_owned();
        Some(Self { timing, display })
    }

    /// The `schedule` of a job's record.
    pub fn to_record(&self, zone: &TimeZone) -> Map<String, Value> {
        let record = match &self.timing {
            Timing::Once { run_at } => {
                json!({"kind": "once", "run_at": format(*run_at, zone), "display": self.display})
            }
            Timing::Interval { minutes } => {
                json!({"kind": "interval", "minutes": minutes, "display": self.display})
            }
            Timing::Cron { expression, .. } => {
                json!({"kind": "cron", "expr": expression, "display": self.display})
            }
        };
        match record {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    /// `once`, `interval` or `cron`.
    pub fn kind(&self) -> &'static str {
        match self.timing {
            Timing::Once { .. } => "once",
            Timing::Interval { .. } => "interval",
            Timing::Cron { .. } => "cron",
        }
    }

    /// The kind with its values.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// For people.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Whether it runs once only.
    pub fn is_once(&self) -> bool {
        matches!(self.timing, Timing::Once { .. })
    }

    /// The first run of a job that is made, resumed or changed now.
    pub fn first_run(&self, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, ScheduleError> {
        match self.timing {
            Timing::Once { run_at } if run_at < plus_secs(now, -ONCE_GRACE_SECS) => {
                Err(ScheduleError::Past(format(run_at, zone)))
            }
            Timing::Once { run_at } => Ok(run_at),
            _ => self.next_after(now, zone).ok_or(ScheduleError::Never),
        }
    }

    /// The run that follows one at `base`; a one-shot has none.
    pub fn next_after(&self, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match &self.timing {
            Timing::Once { .. } => None,
            Timing::Interval { minutes } => {
                let next = plus_secs(base, i64::try_from(*minutes).ok()?.checked_mul(60)?);
                (next > base).then_some(next)
            }
            Timing::Cron { fields, .. } => {
                let wall = zone.to_datetime(base);
                // Times that the clocks skipped run after those on the wall that follow the change.
                let skipped = skipped_before(base, zone).and_then(|skipped| wall.checked_sub(skipped).ok());
                let walls = [Some(wall), skipped].into_iter().flatten();
                walls
                    .filter_map(|wall| next_on_wall(fields, wall, base, zone))
                    .min()
            }
        }
    }

    /// The next run of a job whose latest run was that of `consumed`. A time on the wall that ran before the clocks repeated it does
    /// not run again. A one-shot has its run ahead only if it was given a later time meanwhile.
    pub fn next_after_run(
        &self,
        consumed: Option<Timestamp>,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        let base = consumed.map_or(now, |consumed| consumed.max(now));
        let wall = |at| zone.to_datetime(at);
        match &self.timing {
            Timing::Once { run_at } => consumed.and_then(|consumed| (*run_at > consumed).then_some(*run_at)),
            Timing::Interval { .. } => self.next_after(base, zone),
            Timing::Cron { .. } => {
                std::iter::successors(self.next_after(base, zone), |at| self.next_after(*at, zone))
                    .find(|at| consumed.is_none_or(|consumed| wall(*at) > wall(consumed)))
            }
        }
    }

    /// Up to `count` runs from `first` on.
    pub fn runs_from(&self, first: Timestamp, zone: &TimeZone, count: usize) -> Vec<Timestamp> {
        std::iter::successors(Some(first), |last| self.next_after(*last, zone))
            .take(count)
            .collect()
    }
}

/// The first run after `base` of the times after this one on the wall.
fn next_on_wall(
    fields: &CronFields,
    mut wall: DateTime,
    base: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    // The second pass of a repeated hour can need a second look, no more.
    for _ in 0..3 {
        wall = fields.next_after(wall)?;
        let ambiguous = zone.to_ambiguous_timestamp(wall);
        let candidates = [ambiguous.compatible(), ambiguous.later()];
        let Some(next) = candidates.into_iter().flatten().find(|next| *next > base) else {
            continue;
        };
        if !matches!(ambiguous.offset(), AmbiguousOffset::Gap { .. }) {
            return Some(next);
        }
        // A time on the wall after the change can come before one that the change skipped.
        let change = zone.preceding(plus_secs(next, 1)).next()?.timestamp();
        let before = zone.to_datetime(change).checked_sub(SignedDuration::from_secs(1));
        let after = next_on_wall(fields, before.ok()?, base, zone);
        return after.into_iter().chain([next]).min();
    }
    None
}

/// How far the clocks were put forward, if times that they skipped are still to run at `base`.
fn skipped_before(base: Timestamp, zone: &TimeZone) -> Option<SignedDuration> {
    let change = zone.preceding(plus_secs(base, 1)).next()?.timestamp();
    let offset = |at: Timestamp| zone.to_offset(at).seconds();
    let skipped = i64::from(offset(change) - offset(plus_secs(change, -1)));
    let since = base.as_second() - change.as_second();
    (since < skipped).then(|| SignedDuration::from_secs(skipped))
}

#[cfg(test)]
mod tests;
