//! What people write as a schedule: cron expressions, intervals, delays, timestamps and phrases.
//!
//! The order is fixed: `every ...`, `in ...` and `+...`, a cron expression, a phrase, a timestamp, a bare duration. A bare duration is
//! a delay: `30m` runs once, in 30 minutes.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::instant::{self, plus_secs};
use super::phrase::{self, Phrase};
use super::{CronFields, Near, Schedule, ScheduleError, Timing, suggest};

/// Maximum length of a schedule.
const MAX_CHARS: usize = 256;
/// Longest delay or interval, in seconds: a hundred years.
const MAX_SECS: u64 = 36_525 * 86_400;
/// The zero of each script whose digits are accepted.
const ZEROS: [char; 9] = ['0', '٠', '۰', '०', '০', '๐', '༠', '၀', '０'];

/// Reads a schedule; the error for a text that is none has the nearest one.
pub(super) fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Schedule, ScheduleError> {
    let text = text.trim();
    if text.chars().count() > MAX_CHARS {
        return Err(ScheduleError::TooLong);
    }
    read(text, now, zone)?.ok_or_else(|| {
        let lower = text.to_lowercase();
        let is_schedule = |text: &str| matches!(read(text, now, zone), Ok(Some(_)));
        let near = match suggest::nearest(&lower, is_schedule) {
            Some(near) => Near::Meant(near),
            None => suggest::example(&lower).map_or(Near::None, Near::Example),
        };
        let text = clip(text);
        ScheduleError::Unknown { text, near }
    })
}

/// Reads a schedule; `None` if it is nothing that is known.
fn read(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Option<Schedule>, ScheduleError> {
    let lower = text.to_lowercase();
    if let Some(rest) = lower
        .strip_prefix("every ")
        .or_else(|| lower.strip_prefix("each "))
    {
        return every(text, rest.trim());
    }
    if let Some(rest) = lower.strip_prefix("in ").or_else(|| lower.strip_prefix('+')) {
        let rest = rest.trim();
        let single = ["a ", "an "]
            .iter()
            .find_map(|article| rest.strip_prefix(article));
        let secs = match single {
            Some(unit) => duration(&format!("1 {unit}"), true)?,
            None => duration(rest, true)?,
        };
        return Ok(secs.map(|secs| once(now, secs, rest)));
    }
    let columns: Vec<&str> = text.split_whitespace().collect();
    let is_plain = |column: &&str| column.chars().all(|c| c.is_ascii_digit() || "*-,/".contains(c));
    if columns.len() >= 5 && columns.first().is_some_and(is_plain) {
        let fields = CronFields::parse(text)?;
        return Ok(Some(cron(fields, text, text)));
    }
    match phrase::read(&lower).transpose()? {
        Some(Phrase::Again(expression)) => {
            return Ok(Some(cron(CronFields::parse(&expression)?, &expression, text)));
        }
        Some(Phrase::Once { days, clock }) => return Ok(on_day(days, clock, now, zone)),
        None if lower == "hourly" => return every(text, "hour"),
        None => {}
    }
    let dated = text.len() >= 10 && text.is_char_boundary(10) && is_date(&text.as_bytes()[..10]);
    let begins_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
    if dated || (begins_with_digit && text.contains('T')) {
        let wrong = || ScheduleError::Timestamp(clip(text));
        let (wall, _) = instant::read(text).ok_or_else(wrong)?;
        let at = instant::parse(text, zone).ok_or(ScheduleError::TooFar)?;
        if at > plus_secs(now, i64::try_from(MAX_SECS).unwrap_or(i64::MAX)) {
            return Err(ScheduleError::TooFar);
        }
        return Ok(Some(once_at(at, wall)));
    }
    Ok(duration(&lower, false)?.map(|secs| once(now, secs, text)))
}

/// Today or so many days later, at a time of the zone's clock.
fn on_day(days: u8, (hour, minute): (u8, u8), now: Timestamp, zone: &TimeZone) -> Option<Schedule> {
    let today = zone.to_datetime(now).date();
    let date = today.checked_add(jiff::Span::new().days(days)).ok()?;
    let wall = date.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
    let at = zone.to_ambiguous_timestamp(wall).compatible().ok()?;
    Some(once_at(at, wall))
}

fn once_at(at: Timestamp, wall: DateTime) -> Schedule {
    Schedule {
        timing: Timing::Once { run_at: at },
        display: format!("once at {}", wall.strftime("%Y-%m-%d %H:%M")),
    }
}

fn once(now: Timestamp, secs: u64, shown: &str) -> Schedule {
    Schedule {
        timing: Timing::Once {
            run_at: plus_secs(now, i64::try_from(secs).unwrap_or(i64::MAX)),
        },
        display: format!("once in {shown}"),
    }
}

fn cron(fields: CronFields, expression: &str, display: &str) -> Schedule {
    Schedule {
        timing: Timing::Cron {
            expression: expression.to_owned(),
            fields,
        },
        display: display.to_owned(),
    }
}

/// `every 30m`, `every hour`, `every monday 9am`.
fn every(text: &str, rest: &str) -> Result<Option<Schedule>, ScheduleError> {
    let rest = match rest {
        "minute" => "1m",
        "hour" => "1h",
        rest => rest,
    };
    if let Some(secs) = duration(rest, false)? {
        let minutes = secs / 60;
        if minutes == 0 {
            return Err(ScheduleError::TooOften);
        }
        return Ok(Some(Schedule {
            timing: Timing::Interval { minutes },
            display: format!("every {minutes}m"),
        }));
    }
    if duration(rest, true)?.is_some() {
        return Err(ScheduleError::SecondsInterval);
    }
    let phrase = phrase::read(rest).transpose();
    match phrase.map_err(|_| ScheduleError::NoTime(clip(text)))? {
        Some(Phrase::Again(expression)) => Ok(Some(cron(CronFields::parse(&expression)?, &expression, text))),
        // There is one tomorrow.
        Some(Phrase::Once { .. }) | None => Ok(None),
    }
}

/// Seconds of `30m`, `2 hours`, `1d`; `None` if it is no duration. Seconds only where a delay may have them.
fn duration(text: &str, seconds: bool) -> Result<Option<u64>, ScheduleError> {
    let digits: String = text.chars().map_while(digit).collect();
    let unit = text.chars().skip(digits.len()).collect::<String>();
    let unit = match unit.trim_start() {
        "m" | "min" | "mins" | "minute" | "minutes" => 60,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "week" | "weeks" => 604_800,
        "s" | "sec" | "secs" | "second" | "seconds" if seconds => 1,
        _ => return Ok(None),
    };
    if digits.is_empty() {
        return Ok(None);
    }
    let secs = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(unit));
    match secs.filter(|secs| *secs <= MAX_SECS) {
        Some(secs) => Ok(Some(secs)),
        None => Err(ScheduleError::TooFar),
    }
}

/// The ASCII digit that a digit of any accepted script means.
fn digit(c: char) -> Option<char> {
    ZEROS.iter().find_map(|zero| {
        let value = u32::from(c).checked_sub(u32::from(*zero))?;
        char::from_digit(value, 10)
    })
}

/// Words that join parts of a schedule, or a schedule and what it is for.
const JOINING: [&str; 22] = [
    "and", "or", "at", "on", "in", "then", "until", "till", "except", "from", "between", "for", "every",
    "starting", "but", "not", "only", "to", "through", "after", "before", "plus",
];
/// Words that belong to a schedule after one of those.
const JOINED: [&str; 27] = [
    "hour",
    "today",
    "tomorrow",
    "tonight",
    "morning",
    "mornings",
    "afternoon",
    "afternoons",
    "evening",
    "evenings",
    "night",
    "nights",
    "week",
    "weeks",
    "month",
    "months",
    "january",
    "february",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "year",
];
/// Time zones as people write them.
const ZONES: [&str; 15] = [
    "utc", "gmt", "cet", "cest", "est", "edt", "cst", "cdt", "mst", "mdt", "pst", "pdt", "bst", "ist", "z",
];

/// Whether a text that follows a schedule goes on with it, as in `every 2h` and `30m`, or `monday 9am` and `and 5pm`.
pub(super) fn continues(text: &str) -> bool {
    // No prompt begins like this; a slash before a word is a command.
    if text.starts_with(['&', '+', ',', ';', '(']) || text.starts_with("/ ") {
        return true;
    }
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';'));
    let mut words = words.filter(|word| !word.is_empty()).take(4).peekable();
    let mut is_joined = false;
    while let Some(word) = words.next_if(|word| {
        let word = word.to_lowercase();
        JOINING.contains(&&*word) || (is_joined && word == "the")
    }) {
        // `every` begins a schedule of its own.
        is_joined = true;
        if word.eq_ignore_ascii_case("every") {
            return true;
        }
    }
    words.next().is_some_and(|word| {
        let lower = word.to_lowercase();
        let word = lower.trim_end_matches(['.', ':', '!', '?']);
        is_time_word(word) || (is_joined && JOINED.contains(&word))
    })
}

/// Whether a word stands for a time, a day, a duration, a number, a column of a cron expression or a time zone.
fn is_time_word(word: &str) -> bool {
    let is_column = word.contains('*') && word.chars().all(|c| c.is_ascii_digit() || "*-,/".contains(c));
    let is_number = !word.is_empty() && word.chars().all(|c| digit(c).is_some() || "+-:/".contains(c));
    let is_offset = word
        .strip_prefix(['+', '-'])
        .is_some_and(|rest| rest.starts_with(|c| digit(c).is_some()));
    let is_zone = ZONES.contains(&word) || (word.contains('/') && is_named_zone(word));
    let is_duration = !matches!(duration(word, true), Ok(None));
    is_column
        || (is_number && word.contains(|c| digit(c).is_some()))
        || is_offset
        || is_zone
        || is_duration
        || matches!(word, "am" | "pm" | "a.m" | "p.m" | "twice")
        || phrase::clock(word).is_some()
        || phrase::weekdays(word).is_some()
}

/// Whether there is a time zone with this name, in any case.
fn is_named_zone(word: &str) -> bool {
    jiff::tz::db().get(word).is_ok()
}

fn is_date(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    })
}

pub(super) fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}
