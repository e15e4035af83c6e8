//! What people write as a schedule: cron expressions, intervals, delays, timestamps and weekday phrases.
//!
//! The order is fixed: `every ...`, `in ...` and `+...`, a cron expression, a phrase, a timestamp, a bare duration. A bare duration is
//! a delay: `30m` runs once, in 30 minutes.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::instant::{self, plus_secs};
use super::{CronFields, Schedule, ScheduleError, Timing};

/// Maximum length of a schedule.
const MAX_CHARS: usize = 256;
/// Longest delay or interval, in seconds: a hundred years.
const MAX_SECS: u64 = 36_525 * 86_400;
/// The zero of each script whose digits are accepted.
const ZEROS: [char; 9] = ['0', '٠', '۰', '०', '০', '๐', '༠', '၀', '０'];
const DAYS: [(&str, u8); 7] = [
    ("sunday", 0),
    ("monday", 1),
    ("tuesday", 2),
    ("wednesday", 3),
    ("thursday", 4),
    ("friday", 5),
    ("saturday", 6),
];

pub(super) fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Schedule, ScheduleError> {
    let text = text.trim();
    if text.chars().count() > MAX_CHARS {
        return Err(ScheduleError::TooLong);
    }
    let lower = text.to_lowercase();
    if let Some(rest) = lower.strip_prefix("every ") {
        return every(text, rest.trim());
    }
    if let Some(rest) = lower.strip_prefix("in ").or_else(|| lower.strip_prefix('+')) {
        let rest = rest.trim();
        let secs = duration(rest, true)?.ok_or_else(|| ScheduleError::Unknown(clip(text)))?;
        return Ok(once(now, secs, rest));
    }
    let columns: Vec<&str> = text.split_whitespace().collect();
    let is_plain = |column: &&str| column.chars().all(|c| c.is_ascii_digit() || "*-,/".contains(c));
    if columns.len() >= 5 && columns.first().is_some_and(is_plain) {
        let fields = CronFields::parse(text)?;
        return Ok(cron(fields, text, text));
    }
    if let Some(expression) = phrase(&lower) {
        let expression = expression?;
        return Ok(cron(CronFields::parse(&expression)?, &expression, text));
    }
    let dated = text.len() >= 10 && text.is_char_boundary(10) && is_date(&text.as_bytes()[..10]);
    if text.contains('T') || dated {
        let wrong = || ScheduleError::Timestamp(clip(text));
        let (wall, _) = instant::read(text).ok_or_else(wrong)?;
        let at = instant::parse(text, zone).ok_or(ScheduleError::TooFar)?;
        if at > plus_secs(now, i64::try_from(MAX_SECS).unwrap_or(i64::MAX)) {
            return Err(ScheduleError::TooFar);
        }
        let shown = wall.strftime("%Y-%m-%d %H:%M");
        return Ok(Schedule {
            timing: Timing::Once { run_at: at },
            display: format!("once at {shown}"),
        });
    }
    match duration(&lower, false)? {
        Some(secs) => Ok(once(now, secs, text)),
        None => Err(ScheduleError::Unknown(clip(text))),
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
fn every(text: &str, rest: &str) -> Result<Schedule, ScheduleError> {
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
        return Ok(Schedule {
            timing: Timing::Interval { minutes },
            display: format!("every {minutes}m"),
        });
    }
    if duration(rest, true)?.is_some() {
        return Err(ScheduleError::SecondsInterval);
    }
    match phrase(rest) {
        Some(expression) => {
            let expression = expression?;
            Ok(cron(CronFields::parse(&expression)?, &expression, text))
        }
        None => Err(ScheduleError::Unknown(clip(text))),
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

/// The expression of a phrase such as `weekdays at 9am`, `monday, friday 14:30` or `noon`; `None` if it is no phrase.
fn phrase(lower: &str) -> Option<Result<String, ScheduleError>> {
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty() && *word != "and" && *word != "on")
        .collect();
    let split = words
        .iter()
        .position(|word| days(word).is_none())
        .unwrap_or(words.len());
    let (days_part, time_part) = words.split_at(split);
    let time_part = time_part.strip_prefix(&["at"]).unwrap_or(time_part);
    let mut weekdays: Vec<u8> = days_part
        .iter()
        .filter_map(|word| days(word))
        .flatten()
        .copied()
        .collect();
    weekdays.sort_unstable();
    weekdays.dedup();
    if days_part.is_empty() && time_part.is_empty() {
        return None;
    }
    let Some((hour, minute)) = clock(&time_part.concat()) else {
        // `monday` without a time is a phrase that lacks one; anything else is none.
        let lacks = !days_part.is_empty() && time_part.is_empty();
        return lacks.then(|| Err(ScheduleError::NoTime(clip(lower))));
    };
    let on = match weekdays.len() {
        0 | 7 => "*".to_owned(),
        _ if weekdays == [1, 2, 3, 4, 5] => "1-5".to_owned(),
        _ => weekdays.iter().map(u8::to_string).collect::<Vec<_>>().join(","),
    };
    Some(Ok(format!("{minute} {hour} * * {on}")))
}

/// The weekdays that a word names.
fn days(word: &str) -> Option<&'static [u8]> {
    const ALL: [u8; 7] = [0, 1, 2, 3, 4, 5, 6];
    let singular = word.strip_suffix('s').unwrap_or(word);
    Some(match singular {
        "day" | "daily" | "everyday" => &ALL,
        "weekday" => &ALL[1..6],
        "weekend" => &[0, 6],
        _ => {
            let day = DAYS.iter().find(|(name, _)| {
                let short = &name[..3];
                [word, singular].iter().any(|word| word == name || *word == short)
            });
            let at = usize::from(day?.1);
            &ALL[at..=at]
        }
    })
}

/// `noon`, `9am`, `9:30pm`, `14:00`: hour and minute.
fn clock(text: &str) -> Option<(u8, u8)> {
    match text {
        "noon" => return Some((12, 0)),
        "midnight" => return Some((0, 0)),
        _ => {}
    }
    let half = [("am", 0), ("pm", 12)].into_iter().find_map(|(suffix, add)| {
        let rest = text
            .strip_suffix(suffix)
            .or_else(|| text.strip_suffix(if add == 0 { "a.m." } else { "p.m." }))?;
        Some((rest, add))
    });
    let (hour, minute) = match half {
        Some((rest, _)) if !rest.contains(':') => (rest, "00"),
        Some((rest, _)) => rest.split_once(':')?,
        None => text.split_once(':')?,
    };
    let number = |text: &str| {
        (text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse::<u8>().ok())?
    };
    let (hour, minute) = (number(hour)?, number(minute).filter(|_| minute.len() == 2)?);
    let hour = match half {
        Some((_, add)) if (1..=12).contains(&hour) => hour % 12 + add,
        Some(_) => return None,
        None => hour,
    };
    (hour < 24 && minute < 60).then_some((hour, minute))
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
        || clock(word).is_some()
        || days(word).is_some()
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

fn clip(text: &str) -> String {
    text.chars().take(60).collect()
}
