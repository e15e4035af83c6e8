//! The schedule that somebody probably meant, or an example of its form, for a text that cannot be read as one.

use super::phrase::weekdays;

/// Words of schedules, which people misspell.
const WORDS: [&str; 35] = [
    "every",
    "day",
    "days",
    "daily",
    "weekday",
    "weekdays",
    "weekend",
    "weekends",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "today",
    "tomorrow",
    "first",
    "month",
    "week",
    "weeks",
    "hour",
    "hours",
    "minute",
    "minutes",
    "noon",
    "midnight",
    "at",
    "in",
    "of",
    "the",
    "and",
    "on",
    "monthly",
    "weekly",
];
const NUMBERS: [&str; 12] = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];
/// Parts of a day, and an hour in each.
const PARTS: [(&str, &str); 5] = [
    ("morning", "8"),
    ("afternoon", "14"),
    ("evening", "18"),
    ("night", "20"),
    ("tonight", "20"),
];
/// More words than a schedule has.
const MAX_WORDS: usize = 12;

/// The nearest schedule: the text with a few words mended, as far as `is_schedule` accepts that.
pub(super) fn nearest(lower: &str, is_schedule: impl Fn(&str) -> bool) -> Option<String> {
    let typed: Vec<&str> = lower.split_whitespace().take(MAX_WORDS + 1).collect();
    if typed.is_empty() || typed.len() > MAX_WORDS {
        return None;
    }
    let mut words: Vec<String> = Vec::new();
    for word in &typed {
        let is_time = words.last().is_some_and(|before| before == "at");
        words.push(mend(word, is_time));
    }
    let mended = words.join(" ");
    let mut candidates = vec![mended.clone()];
    candidates.extend(with_part_of_day(&words));
    candidates.extend(with_other(&mended));
    // `every day 9`: the word that says that a time follows.
    if let Some((last, days)) = words.split_last().filter(|(_, days)| !days.is_empty()) {
        candidates.push(format!("{} at {last}", days.join(" ")));
    }
    if words.first().is_some_and(|first| first == "at") {
        candidates.push(format!("every day {mended}"));
    }
    candidates.push(format!("{mended} at 9"));
    candidates.push(format!("every {mended}"));
    let is_other = |candidate: &String| *candidate != lower && is_schedule(candidate);
    candidates.into_iter().find(is_other)
}

/// An example of the form that a text seems to have.
pub(super) fn example(lower: &str) -> Option<&'static str> {
    let has = |start: &str| lower.split_whitespace().any(|word| word.starts_with(start));
    let first = lower.split_whitespace().next()?;
    Some(if has("month") {
        "first of the month at 9"
    } else if has("tomorrow") {
        "tomorrow at 8am"
    } else if has("today") || has("tonight") {
        "today at 18:00"
    } else if has("week") && !has("weekday") && !has("weekend") {
        "every 2 weeks"
    } else if first == "in" || first.starts_with('+') {
        "in 30m"
    } else if lower.contains('*') {
        "0 9 * * 1-5"
    } else if first == "every"
        || first == "each"
        || lower.split_whitespace().any(|word| weekdays(word).is_some())
    {
        "every day at 9"
    } else {
        return None;
    })
}

/// A word as it was probably meant.
fn mend(word: &str, is_time: bool) -> String {
    if let Some(number) = NUMBERS.iter().position(|number| *number == word) {
        return (number + 1).to_string();
    }
    if let Some(clock) = mended_clock(word, is_time) {
        return clock;
    }
    let length = word.chars().count();
    let is_plain = WORDS.contains(&word) || weekdays(word).is_some() || length < 3;
    if is_plain || PARTS.iter().any(|(part, _)| word.starts_with(part)) {
        return word.to_owned();
    }
    let max_distance = if length > 5 { 2 } else { 1 };
    let near = (WORDS.iter().filter(|known| known.len() > 2))
        .map(|known| (strsim::damerau_levenshtein(known, word), known))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance);
    near.map_or(word, |(_, known)| known).to_owned()
}

/// A time of day with its numbers put into their bounds: `25` as `23`, `9:75` as `9:59`, `13pm` as `1pm`.
fn mended_clock(word: &str, is_time: bool) -> Option<String> {
    let split = word
        .find(|c: char| !c.is_ascii_digit() && c != ':')
        .unwrap_or(word.len());
    let (numbers, half) = word.split_at(split);
    if !matches!(half, "" | "am" | "pm") || (half.is_empty() && !is_time && !numbers.contains(':')) {
        return None;
    }
    let (hour, minute) = match numbers.split_once(':') {
        Some((hour, minute)) => (hour, Some(minute)),
        None => (numbers, None),
    };
    let number = |text: &str| text.parse::<u16>().ok();
    let hour = match (number(hour)?, half) {
        (0, "am" | "pm") => 12,
        (hour, "am" | "pm") if hour > 12 => (hour - 12).min(12),
        (24, _) => 0,
        (hour, _) => hour.min(23),
    };
    Some(match minute {
        Some(minute) => format!("{hour}:{:02}{half}", number(minute)?.min(59)),
        None => format!("{hour}{half}"),
    })
}

/// `every morning` and `tomorrow evening`, with an hour.
fn with_part_of_day(words: &[String]) -> Vec<String> {
    let found = words.iter().enumerate().find_map(|(at, word)| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        let (part, hour) = PARTS.iter().find(|(part, _)| *part == singular)?;
        Some((at, *part, *hour))
    });
    let Some((at, part, hour)) = found else {
        return Vec::new();
    };
    let before = words[..at].join(" ");
    let after = words[at + 1..].join(" ");
    let day = match (part, before.as_str()) {
        ("tonight", _) => "today".to_owned(),
        (_, "every" | "each" | "") => "every day".to_owned(),
        (_, before) => before.to_owned(),
    };
    // An hour after noon may be meant as one on a clock of twelve.
    let as_typed = (part == "morning").then(|| format!("{day} {after}").trim().to_owned());
    let with_hour = format!("{day} at {hour} {after}").trim().to_owned();
    as_typed.into_iter().chain([with_hour]).collect()
}

/// `every other week`, `every week` and `every month`.
fn with_other(mended: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for unit in ["hour", "day", "week"] {
        if mended == format!("every other {unit}") || mended == format!("every second {unit}") {
            texts.push(format!("every 2 {unit}s"));
        }
    }
    match mended {
        "every week" | "weekly" => texts.push("every monday at 9".to_owned()),
        "every month" | "monthly" | "each month" => texts.push("first of the month at 9".to_owned()),
        _ => {}
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_mended_where_a_time_stands() {
        for (word, is_time, wanted) in [
            ("25", true, Some("23")),
            ("25", false, None),
            ("9:75", false, Some("9:59")),
            ("13pm", false, Some("1pm")),
            ("0am", false, Some("12am")),
            ("24", true, Some("0")),
            ("9xm", true, None),
            ("9:75", true, Some("9:59")),
        ] {
            assert_eq!(mended_clock(word, is_time).as_deref(), wanted, "{word} {is_time}");
        }
    }

    #[test]
    fn a_text_with_more_words_than_a_schedule_has_is_not_mended() {
        let is_mended = |text: &str| text.split(' ').all(|word| word == "every");
        let mended = |words| nearest(&vec!["evry"; words].join(" "), is_mended);
        assert_eq!(mended(12), Some(["every"; 12].join(" ")));
        assert_eq!(mended(13), None);
        assert_eq!(nearest(" ", |_| true), None);
    }

    #[test]
    fn an_example_has_the_form_of_the_text() {
        for (text, wanted) in [
            ("later today", "today at 18:00"),
            ("perhaps tonight", "today at 18:00"),
            ("each month or so", "first of the month at 9"),
            ("every other week", "every 2 weeks"),
            ("in a bit", "in 30m"),
            ("+ a bit", "in 30m"),
            ("* *", "0 9 * * 1-5"),
            ("every so often", "every day at 9"),
            ("each evening", "every day at 9"),
        ] {
            assert_eq!(example(text), Some(wanted), "{text}");
        }
    }
}
