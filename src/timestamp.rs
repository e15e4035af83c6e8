//! ISO 8601 instants, to and from Unix seconds. Pure.
//!
//! It knows the proleptic Gregorian calendar and nothing about time zones by name or leap seconds.

/// Milliseconds of a day.
pub(crate) const DAY_MS: i64 = 86_400_000;

/// Reads `2026-11-15T02:41:00[.123456][Z|+00:00]`; no offset means UTC. `None` when it is anything else.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if !text.is_ascii() || text.len() < 19 {
        return None;
    }
    let (stamp, rest) = text.split_at(19);
    let bytes = stamp.as_bytes();
    let shaped = bytes[4] == b'-'
        && bytes[7] == b'-'
        && matches!(bytes[10], b'T' | b't' | b' ')
        && bytes[13] == b':'
        && bytes[16] == b':';
    let number = |from: usize, to: usize| digits(&stamp[from..to]);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let sane =
        (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
    if !shaped || !sane {
        return None;
    }
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = match rest {
        "" | "Z" | "z" => 0,
        _ => offset_seconds(rest)?,
    };
    Some(days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

/// Writes `2026-11-15T02:41:00+00:00`.
pub(crate) fn format(unix_secs: i64) -> String {
    let (days, second_of_day) = (unix_secs.div_euclid(86_400), unix_secs.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}+00:00")
}

fn offset_seconds(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = match text[1..].split_once(':') {
        Some(parts) => parts,
        None if text.len() == 5 => text[1..].split_at(2),
        None => (&text[1..], "0"),
    };
    Some(sign * (digits(hours)? * 3600 + digits(minutes)? * 60))
}

fn digits(text: &str) -> Option<i64> {
    let all_digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

/// Days from 1970-01-01, with years counted from March so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2025-08-09T00:40:00+00:00"), Some(1_754_700_000));
        assert_eq!(parse("2025-08-09T02:40:00.123456+02:00"), Some(1_754_700_000));
        assert_eq!(parse("2025-08-08 20:40:00-0400"), Some(1_754_700_000));
        assert_eq!(parse("2000-02-29T12:00:00"), Some(951_825_600));
        assert_eq!(format(1_754_700_000), "2025-08-09T00:40:00+00:00");
    }

    #[test]
    fn anything_else_is_nothing() {
        for bad in [
            "",
            "now",
            "2025-13-01T00:00:00Z",
            "2025-08-09T00:40",
            "2025-08-09T00:40:00+xx",
            "2025-08-09T00:40:00 UTC",
            "２０２５-08-09T00:40:00",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_reads_back(secs in 0i64..253_402_300_000) {
            proptest::prop_assert_eq!(parse(&format(secs)), Some(secs));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
