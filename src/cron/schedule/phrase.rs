//! Times of day as people write them: `weekdays at 9am`, `first of the month at 9`, `tomorrow at 8am`.

use super::ScheduleError;

const DAYS: [(&str, u8); 7] = [
    ("sunday", 0),
    ("monday", 1),
    ("tuesday", 2),
    ("wednesday", 3),
    ("thursday", 4),
    ("friday", 5),
    ("saturday", 6),
];

/// What a phrase means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phrase {
    /// Again and again: a cron expression.
    Again(String),
    /// Once.
    Once {
        /// Days from today.
        days: u8,
        /// Hour and minute.
        clock: (u8, u8),
    },
}

/// The days of a phrase.
enum Days {
    /// On these weekdays.
    Week(Vec<u8>),
    /// On this day of every month.
    Month(u8),
    /// So many days from today.
    Ahead(u8),
}

/// Reads a phrase such as `weekdays at 9am`, `monday, friday 14:30`, `noon` or `8am tomorrow`, in lower case; `None` if it is none.
pub(super) fn read(lower: &str) -> Option<Result<Phrase, ScheduleError>> {
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty() && *word != "and" && *word != "on")
        .collect();
    if words.is_empty() {
        return None;
    }
    let (days, rest) = days_of(&words);
    if let Some(days) = days {
        return match (time_of(rest), rest.is_empty()) {
            (Some(clock), _) => Some(Ok(phrase(&days, clock))),
            (None, true) => Some(Err(ScheduleError::NoTime(super::grammar::clip(lower)))),
            (None, false) => None,
        };
    }
    if let Some(clock) = time_of(&words).filter(|_| !is_bare_hour(&words)) {
        return Some(Ok(phrase(&Days::Week(Vec::new()), clock)));
    }
    // The time first: `at 9 every day`, `8am tomorrow`.
    (1..words.len().min(4)).rev().find_map(|end| {
        let (time, days) = words.split_at(end);
        let clock = time_of(time)?;
        let every = ["every", "each"]
            .iter()
            .find_map(|word| days.strip_prefix(&[*word]));
        let days = every.unwrap_or(days);
        match days_of(days) {
            (Some(days), []) => Some(Ok(phrase(&days, clock))),
            _ => None,
        }
    })
}

fn phrase(days: &Days, clock: (u8, u8)) -> Phrase {
    let (hour, minute) = clock;
    match days {
        Days::Ahead(days) => Phrase::Once { days: *days, clock },
        Days::Month(day) => Phrase::Again(format!("{minute} {hour} {day} * *")),
        Days::Week(weekdays) => {
            let on = match weekdays.len() {
                0 | 7 => "*".to_owned(),
                _ if *weekdays == [1, 2, 3, 4, 5] => "1-5".to_owned(),
                _ => weekdays.iter().map(u8::to_string).collect::<Vec<_>>().join(","),
            };
            Phrase::Again(format!("{minute} {hour} * * {on}"))
        }
    }
}

/// The days in front, and what follows them.
fn days_of<'w>(words: &'w [&'w str]) -> (Option<Days>, &'w [&'w str]) {
    match words {
        ["today", rest @ ..] => return (Some(Days::Ahead(0)), rest),
        ["tomorrow", rest @ ..] => return (Some(Days::Ahead(1)), rest),
        _ => {}
    }
    if let Some((day, rest)) = day_of_month(words) {
        return (Some(Days::Month(day)), rest);
    }
    let words = match words {
        ["weekly", rest @ ..] => rest,
        words => words,
    };
    let end = words.iter().position(|word| weekdays(word).is_none());
    let (days, rest) = words.split_at(end.unwrap_or(words.len()));
    let mut named: Vec<u8> = (days.iter().filter_map(|word| weekdays(word)))
        .flatten()
        .copied()
        .collect();
    named.sort_unstable();
    named.dedup();
    ((!named.is_empty()).then_some(Days::Week(named)), rest)
}

/// `first of the month`, `the 15th day of each month`, `monthly on the 1st`: the day, and what follows.
fn day_of_month<'w>(words: &'w [&'w str]) -> Option<(u8, &'w [&'w str])> {
    let (is_monthly, words) = match words {
        ["monthly", rest @ ..] => (true, rest),
        words => (false, words),
    };
    let words = words.strip_prefix(&["the"]).unwrap_or(words);
    let (first, rest) = words.split_first()?;
    let day = ordinal(first)?;
    let rest = rest.strip_prefix(&["day"]).unwrap_or(rest);
    match rest {
        ["of", "the" | "each" | "every" | "a", "month", rest @ ..] => Some((day, rest)),
        rest => is_monthly.then_some((day, rest)),
    }
}

/// `first`, `2nd`, `15th`.
fn ordinal(word: &str) -> Option<u8> {
    match word {
        "first" => return Some(1),
        "second" => return Some(2),
        "third" => return Some(3),
        _ => {}
    }
    let digits = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|suffix| word.strip_suffix(suffix))?;
    number(digits).filter(|day| (1..=31).contains(day))
}

/// The weekdays that a word names.
pub(super) fn weekdays(word: &str) -> Option<&'static [u8]> {
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

/// A time of day, with or without `at`; after `at` an hour alone is enough.
fn time_of(words: &[&str]) -> Option<(u8, u8)> {
    let words = words.strip_suffix(&["o'clock"]).unwrap_or(words);
    match words {
        ["at", hour] if is_number(hour) => number(hour).filter(|hour| *hour < 24).map(|hour| (hour, 0)),
        ["at", time @ ..] | time => clock(&time.concat()),
    }
}

/// `at 9`, which alone says neither today nor every day.
fn is_bare_hour(words: &[&str]) -> bool {
    matches!(words, ["at", hour] if is_number(hour))
}

/// `noon`, `9am`, `9:30pm`, `14:00`: hour and minute.
pub(super) fn clock(text: &str) -> Option<(u8, u8)> {
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
    let (hour, minute) = (number(hour)?, number(minute).filter(|_| minute.len() == 2)?);
    let hour = match half {
        Some((_, add)) if (1..=12).contains(&hour) => hour % 12 + add,
        Some(_) => return None,
        None => hour,
    };
    (hour < 24 && minute < 60).then_some((hour, minute))
}

fn is_number(text: &str) -> bool {
    (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str) -> Option<u8> {
    is_number(text).then(|| text.parse().ok())?
}
