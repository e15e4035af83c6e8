//! Instants as text, and time zones by name.
//!
//! Reads what Hermes reads (ISO 8601 with `T` or a space, basic format, week dates, offsets with or without a colon) and
//! writes what Hermes writes: the zone's offset as `+00:00`, microseconds only if there are any.

use jiff::civil::{Date, DateTime, ISOWeekDate, Time, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::ScheduleError;

/// The zone with this IANA name, spelled exactly so; UTC for an empty one.
pub fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let name = name.trim();
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    let found = jiff::tz::db().get(name).ok();
    let exact = found.as_ref().and_then(TimeZone::iana_name);
    match (found.clone(), exact) {
        (Some(zone), Some(exact)) if exact == name => Ok(zone),
        (_, near) => Err(ScheduleError::Zone {
            name: name.chars().take(64).collect(),
            near: near.map(str::to_owned),
        }),
    }
}

/// An instant as text, with the zone's offset.
pub fn format(at: Timestamp, zone: &TimeZone) -> String {
    let zoned = at.to_zoned(zone.clone());
    let micros = zoned.subsec_nanosecond() / 1000;
    let fraction = if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    };
    format!(
        "{}{fraction}{}",
        zoned.strftime("%Y-%m-%dT%H:%M:%S"),
        zoned.strftime("%:z")
    )
}

/// An instant as text; one without an offset is on the zone's wall clock. `None` if it is anything else.
pub fn parse(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let (wall, offset) = read(text)?;
    match offset {
        Some(offset) => offset.to_timestamp(wall).ok(),
        // A time that does not exist takes the offset before the gap, one that exists twice the first of both.
        None => zone.to_ambiguous_timestamp(wall).compatible().ok(),
    }
}

/// The wall clock time as written, and its offset if it has one.
pub(super) fn read(text: &str) -> Option<(DateTime, Option<Offset>)> {
    let text = text.trim();
    if !text.is_ascii() || text.len() > 64 {
        return None;
    }
    let (date, rest) = date(text)?;
    let Some(separator) = rest.chars().next() else {
        return Some((DateTime::from_parts(date, Time::midnight()), None));
    };
    if !matches!(separator, 'T' | 't' | ' ') {
        return None;
    }
    let rest = &rest[1..];
    let split = rest.find(['+', '-', 'Z']).unwrap_or(rest.len());
    let (clock, offset) = rest.split_at(split);
    let offset = match offset {
        "" => None,
        "Z" => Some(Offset::UTC),
        text => Some(self::offset(text)?),
    };
    Some((DateTime::from_parts(date, time(clock)?), offset))
}

/// A date in front, and what follows it.
fn date(text: &str) -> Option<(Date, &str)> {
    let bytes = text.as_bytes();
    let year = digits(text.get(..4)?)?;
    let year = i16::try_from(year).ok()?;
    let extended = bytes.get(4) == Some(&b'-');
    let rest = &text[4 + usize::from(extended)..];
    if let Some(week) = rest.strip_prefix('W') {
        let (number, day, length) = if extended {
            (week.get(..2)?, week.get(2..4)?.strip_prefix('-')?, 4)
        } else {
            (week.get(..2)?, week.get(2..3)?, 3)
        };
        let day = Weekday::from_monday_one_offset(i8::try_from(digits(day)?).ok()?).ok()?;
        let week_date = ISOWeekDate::new(year, i8::try_from(digits(number)?).ok()?, day).ok()?;
        return Some((week_date.date(), &week[length..]));
    }
    let (month, day, length) = if extended {
        (rest.get(..2)?, rest.get(2..5)?.strip_prefix('-')?, 5)
    } else {
        (rest.get(..2)?, rest.get(2..4)?, 4)
    };
    let small = |text| i8::try_from(digits(text)?).ok();
    Some((Date::new(year, small(month)?, small(day)?).ok()?, &rest[length..]))
}

/// `14`, `14:00`, `1400`, with seconds and a fraction.
fn time(text: &str) -> Option<Time> {
    let (clock, fraction) = match text.split_once(['.', ',']) {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (text, None),
    };
    let parts: Vec<&str> = if clock.contains(':') {
        clock.split(':').collect()
    } else {
        (0..clock.len())
            .step_by(2)
            .map(|at| clock.get(at..at + 2))
            .collect::<Option<_>>()?
    };
    let full = parts.len() == 3;
    if !(1..=3).contains(&parts.len())
        || parts.iter().any(|part| part.len() != 2)
        || (fraction.is_some() && !full)
    {
        return None;
    }
    let nanos = match fraction {
        None => 0,
        Some(fraction) => {
            digits(fraction.get(..fraction.len().min(9))?)?;
            let micros: String = fraction.chars().chain("000000".chars()).take(6).collect();
            i32::try_from(digits(&micros)?).ok()? * 1000
        }
    };
    let mut values = parts.iter().map(|part| i8::try_from(digits(part)?).ok());
    let (hour, minute, second) = (
        values.next()??,
        values.next().unwrap_or(Some(0))?,
        values.next().unwrap_or(Some(0))?,
    );
    Time::new(hour, minute, second, nanos).ok()
}

/// `+02:00`, `+0200` or `+02`.
fn offset(text: &str) -> Option<Offset> {
    let (sign, rest) = match text.split_at(1) {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "0"),
        4 => rest.split_at(2),
        5 => rest.split_once(':')?,
        _ => return None,
    };
    let (hours, minutes) = (digits(hours)?, digits(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * i32::try_from(hours * 3600 + minutes * 60).ok()?).ok()
}

fn digits(text: &str) -> Option<u32> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// An instant some seconds later; the last one that there is if that is out of range.
pub fn plus_secs(at: Timestamp, secs: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(secs))
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_hermes_reads_them() {
        let berlin = zone("Europe/Berlin").unwrap();
        for (text, wanted) in [
            ("2026-06-19T14:00:00Z", "2026-06-19T16:00:00+02:00"),
            ("2026-06-19 14:00", "2026-06-19T14:00:00+02:00"),
            ("20260619T1400Z", "2026-06-19T16:00:00+02:00"),
            (
                "2026-06-19T14:00:00.250+00:00",
                "2026-06-19T16:00:00.250000+02:00",
            ),
            ("2026-W25-5T09", "2026-06-19T09:00:00+02:00"),
            ("2026-06-19T14:00:00-0430", "2026-06-19T20:30:00+02:00"),
            ("2026-06-19", "2026-06-19T00:00:00+02:00"),
            ("2026-03-29T02:30", "2026-03-29T03:30:00+02:00"),
            ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00"),
        ] {
            let read = parse(text, &berlin).map(|at| format(at, &berlin));
            assert_eq!(read.as_deref(), Some(wanted), "{text}");
        }
        for wrong in [
            "",
            "2026-06-19T14:00:00z",
            "2026-170T09:00",
            "2026-06-19T24:00",
            "2026-06-19T14:00+02:00[Europe/Berlin]",
            "2026-06-31",
            "2026-6-1",
            "2026-06-19T9:00",
            "2026-06-19T14:00 tomorrow",
            "2026-06-19T14:0",
            "2026-06-19T14:00:00+24:00",
            "2026-06-19x14:00",
            "2026-W60-1T09:00",
        ] {
            assert_eq!(parse(wrong, &berlin), None, "{wrong}");
        }
    }

    #[test]
    fn every_part_of_a_text_has_its_length_and_its_bounds() {
        for (text, wanted) in [
            ("2026-06-19T14:00:59+23:59", "2026-06-18T14:01:59+00:00"),
            ("2026-06-19T14:00-23:59", "2026-06-20T13:59:00+00:00"),
            ("2026-06-19T14+02", "2026-06-19T12:00:00+00:00"),
            ("20260619t140001,5Z", "2026-06-19T14:00:01.500000+00:00"),
            ("2026W255T09", "2026-06-19T09:00:00+00:00"),
            (
                "2026-06-19T14:00:00.123456789Z",
                "2026-06-19T14:00:00.123456+00:00",
            ),
        ] {
            let read = parse(text, &TimeZone::UTC).map(|at| format(at, &TimeZone::UTC));
            assert_eq!(read.as_deref(), Some(wanted), "{text}");
        }
        for wrong in [
            "2026-06-19T14:00+00:60",
            "2026-06-19T14:00+2:00",
            "2026-06-19T14:00+002",
            "2026-06-19T14:00.5",
            "2026-06-19T14:000",
            "2026-06-19T014:00",
            "2026-06-19T14:00:00:00",
            "2026-06-19T14000",
            "2026-06-19T14:60",
            "2026-06-19T14:00:00.x",
            "2026-06-19T",
            "2026-W25T09",
            "2026-00-10",
            "+026-06-19",
            "2026-06-19T14:00:00.\u{663}",
        ] {
            assert_eq!(parse(wrong, &TimeZone::UTC), None, "{wrong}");
        }
        let long = |zeros: usize| format!("2026-06-19T14:00:00.{}", "0".repeat(zeros));
        assert!(parse(&long(64 - 20), &TimeZone::UTC).is_some());
        assert!(parse(&long(64 - 19), &TimeZone::UTC).is_none());
        let most = Timestamp::MAX;
        assert_eq!(plus_secs(most, 1), most);
        assert_eq!(plus_secs(Timestamp::UNIX_EPOCH, 61).as_second(), 61);
    }

    #[test]
    fn zones_are_spelled_exactly() {
        assert!(zone("").is_ok() && zone("UTC").is_ok() && zone("Etc/GMT+5").is_ok());
        for wrong in ["Not/AZone", "+05:30", "../etc/passwd"] {
            assert!(
                matches!(zone(wrong), Err(ScheduleError::Zone { near: None, .. })),
                "{wrong}"
            );
        }
        let near = ScheduleError::Zone {
            name: "asia/kolkata".into(),
            near: Some("Asia/Kolkata".into()),
        };
        assert_eq!(zone("asia/kolkata"), Err(near));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = parse(&text, &TimeZone::UTC);
        }

        #[test]
        fn what_is_written_reads_back(micros in 0_i64..4_102_444_800_000_000) {
            let at = Timestamp::from_microsecond(micros).unwrap();
            let zone = zone("Australia/Lord_Howe").unwrap();
            proptest::prop_assert_eq!(parse(&format(at, &zone), &zone), Some(at));
        }
    }
}
