//! The executed cases of the reference, and properties over time zones.

use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Cases that the reference refuses and this program accepts, because people write them.
const NEWLY_ACCEPTED: [(&str, &str, &str); 9] = [
    ("P035", "once", "2026-06-18T10:01:30+00:00"),
    ("P046", "cron", "2026-06-22T09:00:00+00:00"),
    ("P047", "once", "2026-06-18T10:30:00+00:00"),
    ("P049", "once", "2026-06-19T09:00:00+00:00"),
    ("P050", "cron", "2026-06-19T09:00:00+00:00"),
    ("P052", "once", "2026-06-25T10:00:00+00:00"),
    ("P053", "interval", "2026-06-25T10:00:00+00:00"),
    ("P091", "cron", "2026-06-22T09:00:00+00:00"),
    ("P092", "cron", "2027-01-01T09:00:00+00:00"),
];
/// An interval of nothing, which the reference accepts, runs in a loop.
const NEWLY_REFUSED: [&str; 1] = ["P028"];
/// The reference adds a delay to the wall clock; here two hours are two hours.
const ELAPSED: (&str, &str) = ("P034", "2026-03-08T08:30:00+00:00");

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../tests/vectors/schedule.json")).unwrap()
}

fn at(text: &str) -> Timestamp {
    parse_instant(text, &TimeZone::UTC).unwrap_or_else(|| panic!("{text}"))
}

/// As the oracle: an unknown zone is UTC.
fn zone_of(case: &Value) -> TimeZone {
    zone(case["timezone"].as_str().unwrap()).unwrap_or(TimeZone::UTC)
}

#[test]
fn every_text_is_read_as_the_vectors_say() {
    let vectors = vectors();
    let cases = vectors["parse_vectors"].as_array().unwrap();
    assert!(cases.len() >= 138);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let (now, zone) = (at(case["now"].as_str().unwrap()), zone_of(case));
        let parsed = Schedule::parse(case["schedule"].as_str().unwrap(), now, &zone);
        let first = parsed
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|parsed| parsed.first_run(now, &zone));
        if let Some((_, kind, next)) = NEWLY_ACCEPTED.iter().find(|(accepted, ..)| *accepted == id) {
            assert_eq!(
                (parsed.unwrap().kind(), first.unwrap()),
                (*kind, at(next)),
                "{id}"
            );
            continue;
        }
        if NEWLY_REFUSED.contains(&id) {
            assert_eq!(parsed, Err(ScheduleError::TooOften), "{id}");
            continue;
        }
        assert_eq!(parsed.is_ok(), case["parse"] == "ok", "{id}: {case} {parsed:?}");
        let Ok(parsed) = parsed else { continue };
        assert_eq!(parsed.kind(), case["kind"], "{id}");
        assert_eq!(parsed.display(), case["parsed"]["display"], "{id}");
        assert_eq!(first.is_ok(), case["create"] == "ok", "{id}: {first:?}");
        let later = case["later_upstream_next_run_at"].as_str();
        let wanted = match later.or(case["next_run_at"].as_str()) {
            _ if id == ELAPSED.0 => ELAPSED.1,
            Some(wanted) => wanted,
            None => continue,
        };
        assert_eq!(
            first.map(|first| format(first, &TimeZone::UTC)),
            Ok(format(at(wanted), &TimeZone::UTC)),
            "{id}"
        );
        let stored = Value::Object(parsed.to_record(&zone));
        let read = Schedule::from_record(&stored, &zone).unwrap_or_else(|| panic!("{id}: {stored}"));
        assert_eq!(read, parsed, "{id}");
    }
}

#[test]
fn the_next_run_is_what_the_vectors_say() {
    let vectors = vectors();
    let cases = vectors["next_vectors"].as_array().unwrap();
    assert!(cases.len() >= 15);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let (now, zone) = (at(case["now"].as_str().unwrap()), zone_of(case));
        let schedule = Schedule::from_record(&case["schedule"], &zone);
        let base = case["last_run_at"]
            .as_str()
            .and_then(|text| parse_instant(text, &zone))
            .unwrap_or(now);
        let next = schedule.and_then(|schedule| {
            if schedule.is_once() {
                schedule.first_run(now, &zone).ok()
            } else {
                schedule.next_after(base, &zone)
            }
        });
        let later = case["later_upstream_next_run_at"].as_str();
        let wanted = later.or(case["next_run_at"].as_str()).map(at);
        // An interval of nothing is no schedule here.
        let wanted = wanted.filter(|_| id != "N008");
        assert_eq!(next, wanted, "{id}");
    }
}

#[test]
fn a_star_in_a_prompt_is_no_column_of_a_schedule() {
    assert!(Schedule::is_continued_by("*/5 look"));
    assert!(Schedule::is_continued_by("* look"));
    assert!(!Schedule::is_continued_by("*important* look"));
    assert!(!Schedule::is_continued_by("look at 5"));
}

#[test]
fn a_text_after_a_schedule_goes_on_with_it_or_is_a_prompt() {
    for more in [
        "& 5pm",
        "+ 30m",
        ", 5pm",
        "; 5pm",
        "(utc) look",
        "/ 5 look",
        "and 5pm look",
        "every monday look",
        "until friday look",
        "and the evening look",
        "in january look",
        "30m look",
        "9:30 look",
        "17 look",
        "٣ look",
        "+02:00 look",
        "-5h look",
        "UTC look",
        "europe/berlin look",
        "pm look",
        "p.m. look",
        "twice look",
        "noon, look",
        "Mondays: look",
        "10s look",
    ] {
        assert!(Schedule::is_continued_by(more), "{more}");
    }
    for prompt in [
        "",
        "look",
        "/status",
        "and look",
        "and the weather",
        "the evening news",
        "january report",
        "src/main look",
        "a/b look",
        "- look",
        "5x look",
        "look at 5pm",
        "and or to for 5pm",
    ] {
        assert!(!Schedule::is_continued_by(prompt), "{prompt}");
    }
}

#[test]
fn a_schedule_has_at_most_256_characters() {
    let spaced = |length: usize| {
        let gap = " ".repeat(length - "every30m".len());
        Schedule::parse(&format!("every{gap}30m"), Timestamp::UNIX_EPOCH, &TimeZone::UTC)
    };
    assert_eq!(spaced(256).map(|schedule| schedule.kind()), Ok("interval"));
    assert_eq!(spaced(257), Err(ScheduleError::TooLong));
}

#[test]
fn phrases_become_the_shortest_expression() {
    for (text, expression) in [
        ("weekdays at 9", "0 9 * * 1-5"),
        ("mon, tue, wed, thu, fri at 9", "0 9 * * 1-5"),
        ("mon, tue, wed, thu, sat at 9", "0 9 * * 1,2,3,4,6"),
        ("fri and mon and mon 9:05", "5 9 * * 1,5"),
        ("weekdays and weekends at 23", "0 23 * * *"),
        ("12pm", "0 12 * * *"),
        ("12:59am", "59 0 * * *"),
        ("31st of a month at 0", "0 0 31 * *"),
        ("monthly on the 2nd day at 9", "0 9 2 * *"),
    ] {
        let schedule = Schedule::parse(text, Timestamp::UNIX_EPOCH, &TimeZone::UTC).unwrap();
        let Timing::Cron { expression: read, .. } = schedule.timing() else {
            panic!("{text}")
        };
        assert_eq!(read, expression, "{text}");
    }
    for wrong in [
        "every day at 24",
        "every day at 9:60",
        "every day at 24:00",
        "every day at 9:5",
        "every day at 13pm",
        "0th of the month at 9",
        "2nd at 9",
        "30 parrots",
        "Tea or so",
    ] {
        let read = Schedule::parse(wrong, Timestamp::UNIX_EPOCH, &TimeZone::UTC);
        assert!(matches!(read, Err(ScheduleError::Unknown { .. })), "{wrong}");
    }
}

#[test]
fn a_record_holds_a_hundred_years_at_most_and_a_text_only_what_repeats() {
    let read = |record: Value| Schedule::from_record(&record, &TimeZone::UTC);
    let interval = |minutes: u64| read(json!({"kind": "interval", "minutes": minutes}));
    assert!(interval(0).is_none() && interval(1).is_some());
    assert!(interval(36_525 * 24 * 60).is_some() && interval(36_525 * 24 * 60 + 1).is_none());
    assert!(read(json!("every 5m")).is_some_and(|schedule| !schedule.is_once()));
    assert!(read(json!("in 5m")).is_none());
    assert!(read(json!({"kind": "once", "run_at": "2026-06-19"})).is_some_and(|schedule| schedule.is_once()));
    assert!(read(json!({"kind": "sometimes"})).is_none());
}

#[test]
fn a_time_may_be_over_for_two_minutes() {
    let now = at("2026-06-18T10:00:00Z");
    let first = |text: &str| {
        let schedule = Schedule::parse(text, now, &TimeZone::UTC).unwrap();
        schedule.first_run(now, &TimeZone::UTC).is_ok()
    };
    assert!(first("2026-06-18T09:58:00Z"));
    assert!(!first("2026-06-18T09:57:59Z"));
    assert_eq!(
        Schedule::parse("2026-06-18T25:00", now, &TimeZone::UTC),
        Err(ScheduleError::Timestamp("2026-06-18T25:00".to_owned()))
    );
}

#[test]
fn phrases_are_understood() {
    let now = at("2026-06-18T10:00:00Z"); // a Thursday
    for (text, next) in [
        ("weekdays at 9am", "2026-06-19T09:00:00"),
        ("every monday 9am", "2026-06-22T09:00:00"),
        ("every Tuesday and Friday at 9:30 PM", "2026-06-19T21:30:00"),
        ("every day at 14:00", "2026-06-18T14:00:00"),
        ("daily at midnight", "2026-06-19T00:00:00"),
        ("noon", "2026-06-18T12:00:00"),
        ("at 12am", "2026-06-19T00:00:00"),
        ("Saturdays noon", "2026-06-20T12:00:00"),
        ("weekends at 08:05", "2026-06-20T08:05:00"),
        ("mon, wed, fri 7pm", "2026-06-19T19:00:00"),
        ("every day at 9 a.m.", "2026-06-19T09:00:00"),
        ("every day at 9:30 p.m.", "2026-06-18T21:30:00"),
        ("every hour", "2026-06-18T11:00:00"),
        ("in 90s", "2026-06-18T10:01:30"),
        ("+ 2 hours", "2026-06-18T12:00:00"),
        ("In 30M", "2026-06-18T10:30:00"),
        ("tomorrow at 8am", "2026-06-19T08:00:00"),
        ("Tomorrow at 8", "2026-06-19T08:00:00"),
        ("tomorrow noon", "2026-06-19T12:00:00"),
        ("8am tomorrow", "2026-06-19T08:00:00"),
        ("today at 18:00", "2026-06-18T18:00:00"),
        ("at 18 today", "2026-06-18T18:00:00"),
        ("every day at 7", "2026-06-19T07:00:00"),
        ("at 7 o'clock every day", "2026-06-19T07:00:00"),
        ("daily at 7:30", "2026-06-19T07:30:00"),
        ("every weekday at 9", "2026-06-19T09:00:00"),
        ("each monday at 18:00", "2026-06-22T18:00:00"),
        ("9am on weekdays", "2026-06-19T09:00:00"),
        ("weekly on monday at 9", "2026-06-22T09:00:00"),
        ("every monday at 9", "2026-06-22T09:00:00"),
        ("first of the month at 9", "2026-07-01T09:00:00"),
        ("every first day of the month at 9am", "2026-07-01T09:00:00"),
        ("on the 20th of each month at 9:15", "2026-06-20T09:15:00"),
        ("monthly on the 1st at noon", "2026-07-01T12:00:00"),
        ("every 2 weeks", "2026-07-02T10:00:00"),
        ("in 2 hours", "2026-06-18T12:00:00"),
        ("in an hour", "2026-06-18T11:00:00"),
        ("in 1 week", "2026-06-25T10:00:00"),
        ("hourly", "2026-06-18T11:00:00"),
    ] {
        let schedule =
            Schedule::parse(text, now, &TimeZone::UTC).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(schedule.first_run(now, &TimeZone::UTC), Ok(at(next)), "{text}");
    }
    for wrong in [
        "every monday",
        "weekdays",
        "every monday 9",
        "every day at 1 5",
        "at 9",
        "tomorrow",
        "every tomorrow at 9",
        "32nd of the month at 9",
        "first monday of the month at 9",
        "9",
        "13pm",
        "0am",
        "every 25:00",
        "every week",
        "sun",
        "every",
        "in monday",
        "+",
        "in",
        "every monday at 9am please",
        "every 60s",
        "every 200000d",
        "at",
    ] {
        assert!(Schedule::parse(wrong, now, &TimeZone::UTC).is_err(), "{wrong}");
    }
}

#[test]
fn phrases_are_stored_in_forms_that_the_reference_reads() {
    let now = at("2026-06-18T22:30:00Z");
    let berlin = zone("Europe/Berlin").unwrap();
    for (text, stored) in [
        // In Berlin it is Friday already.
        (
            "tomorrow at 8am",
            json!({"kind": "once", "run_at": "2026-06-20T08:00:00+02:00", "display": "once at 2026-06-20 08:00"}),
        ),
        (
            "every 2 weeks",
            json!({"kind": "interval", "minutes": 20_160, "display": "every 20160m"}),
        ),
        (
            "first of the month at 9",
            json!({"kind": "cron", "expr": "0 9 1 * *", "display": "first of the month at 9"}),
        ),
        (
            "every day at 7",
            json!({"kind": "cron", "expr": "0 7 * * *", "display": "every day at 7"}),
        ),
    ] {
        let record = Schedule::parse(text, now, &berlin).unwrap().to_record(&berlin);
        assert_eq!(Value::Object(record), stored, "{text}");
    }
}

#[test]
fn the_nearest_right_schedule_is_named() {
    let now = at("2026-06-18T10:00:00Z");
    for (wrong, near) in [
        ("every day at 25", "Did you mean `every day at 23`?"),
        ("every day at 24:00", "Did you mean `every day at 0:00`?"),
        ("Tuesday at 9:75", "Did you mean `tuesday at 9:59`?"),
        ("weekly", "Did you mean `every monday at 9`?"),
        ("every mnday at 9", "Did you mean `every monday at 9`?"),
        ("evry day at 7", "Did you mean `every day at 7`?"),
        ("every day 7", "Did you mean `every day at 7`?"),
        ("every day at seven", "Did you mean `every day at 7`?"),
        ("daily at 13pm", "Did you mean `daily at 1pm`?"),
        ("tomorow at 8am", "Did you mean `tomorrow at 8am`?"),
        ("every morning", "Did you mean `every day at 8`?"),
        ("every morning at 7", "Did you mean `every day at 7`?"),
        ("tomorrow evening", "Did you mean `tomorrow at 18`?"),
        ("tonight", "Did you mean `today at 20`?"),
        ("every other week", "Did you mean `every 2 weeks`?"),
        ("every month", "Did you mean `first of the month at 9`?"),
        ("at 9", "Did you mean `every day at 9`?"),
        (
            "last of the month at 9",
            "Write it like `first of the month at 9`",
        ),
        ("shortly before noon tomorrow", "Write it like `tomorrow at 8am`"),
        ("every evening at 7", "Write it like `every day at 9`"),
        ("whenever", "Write `every 30m`"),
        ("every day at 12:60pm", "Did you mean `every day at 12:59pm`?"),
        ("every dey at 9", "Did you mean `every day at 9`?"),
        ("each evening", "Did you mean `every day at 18`?"),
        ("mornings", "Did you mean `every day at 8`?"),
        ("monday afternoons", "Did you mean `monday at 14`?"),
        ("every second hour", "Did you mean `every 2 hours`?"),
        ("every other day", "Did you mean `every 2 days`?"),
        ("every week", "Did you mean `every monday at 9`?"),
        ("wenesdy at 9", "Did you mean `wednesday at 9`?"),
        ("30 minuts", "Did you mean `30 minute`?"),
        ("day 9", "Did you mean `day at 9`?"),
        ("2nd monthh at 9", "Write it like `first of the month at 9`"),
        ("a week from now", "Write it like `every 2 weeks`"),
        ("a weekday or so", "Write it like `every day at 9`"),
        ("a weekend or so", "Write it like `every day at 9`"),
        ("every a b c d e f g h i j k", "Write it like `every day at 9`"),
    ] {
        let error = Schedule::parse(wrong, now, &TimeZone::UTC)
            .unwrap_err()
            .to_string();
        let expected = format!("I cannot read `{wrong}` as a time. {near}");
        assert!(error.starts_with(&expected), "{error}");
    }
    let timeless = Schedule::parse("every day", now, &TimeZone::UTC).unwrap_err();
    assert!(
        timeless.to_string().contains("write it as `every day at 9`"),
        "{timeless}"
    );
}

#[test]
fn more_than_a_hundred_years_ahead_is_refused() {
    let now = at("2026-06-18T10:00:00Z");
    for absurd in [
        "2126-07-18T10:00",
        "9999-12-31T23:59:59",
        "in 36526d",
        "every 99999999999999999999m",
    ] {
        let parsed = Schedule::parse(absurd, now, &TimeZone::UTC);
        assert_eq!(parsed, Err(ScheduleError::TooFar), "{absurd}");
    }
    for far in ["2126-05-18T10:00", "in 36525d"] {
        assert!(Schedule::parse(far, now, &TimeZone::UTC).is_ok(), "{far}");
    }
}

#[test]
fn a_change_of_the_clocks_moves_no_daily_job() {
    let zone = zone("America/New_York").unwrap();
    let daily = Schedule::parse("30 1 * * *", at("2026-10-30T00:00:00Z"), &zone).unwrap();
    let runs = daily.runs_from(at("2026-10-31T05:30:00Z"), &zone, 3);
    let shown: Vec<String> = runs.into_iter().map(|run| format(run, &zone)).collect();
    // 01:30 comes twice on 1 November; the job runs once.
    assert_eq!(
        shown,
        [
            "2026-10-31T01:30:00-04:00",
            "2026-11-01T01:30:00-04:00",
            "2026-11-02T01:30:00-05:00"
        ]
    );
}

#[test]
fn every_time_that_the_clocks_skip_runs_later_by_the_change() {
    for (text, name, base, expected) in [
        (
            "15,45 2 * * *",
            "America/New_York",
            "2027-03-14T06:00:00Z",
            &[
                "2027-03-14T07:15:00Z",
                "2027-03-14T07:45:00Z",
                "2027-03-15T06:15:00Z",
            ][..],
        ),
        (
            "*/20 2 * * *",
            "Europe/Berlin",
            "2027-03-28T00:30:00Z",
            &[
                "2027-03-28T01:00:00Z",
                "2027-03-28T01:20:00Z",
                "2027-03-28T01:40:00Z",
                "2027-03-29T00:00:00Z",
            ],
        ),
        // What is on the wall after the change runs between them, and at the same time once.
        (
            "0,30 2,3 * * *",
            "Europe/Berlin",
            "2027-03-28T00:30:00Z",
            &[
                "2027-03-28T01:00:00Z",
                "2027-03-28T01:30:00Z",
                "2027-03-29T00:00:00Z",
            ],
        ),
        (
            "45 2,3 * * *",
            "Europe/Berlin",
            "2027-03-28T01:10:00Z",
            &["2027-03-28T01:45:00Z", "2027-03-29T00:45:00Z"],
        ),
        // Half an hour in Lord Howe, a whole day in Samoa.
        (
            "*/10 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T15:20:00Z",
            &[
                "2026-10-03T15:30:00Z",
                "2026-10-03T15:40:00Z",
                "2026-10-03T15:50:00Z",
                "2026-10-04T15:00:00Z",
            ],
        ),
        (
            "0 8,20 30 * *",
            "Pacific/Apia",
            "2011-12-30T09:00:00Z",
            &[
                "2011-12-30T18:00:00Z",
                "2011-12-31T06:00:00Z",
                "2012-01-29T18:00:00Z",
            ],
        ),
        // The first time after the change comes before one that it skipped.
        (
            "15,35 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T15:20:00Z",
            &[
                "2026-10-03T15:35:00Z",
                "2026-10-03T15:45:00Z",
                "2026-10-04T15:15:00Z",
            ],
        ),
    ] {
        let (zone, base) = (zone(name).unwrap(), base.parse().unwrap());
        let schedule = Schedule::parse(text, base, &zone).unwrap();
        let first = schedule.next_after(base, &zone).unwrap();
        let runs = schedule.runs_from(first, &zone, expected.len());
        let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
        assert_eq!(runs, expected, "{text} in {name}");
    }
}

/// Zones with whole, half and quarter hour offsets, changes of one hour and of half an hour, in both hemispheres.
const ZONES: [&str; 10] = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "America/Santiago",
    "Africa/Casablanca",
    "Pacific/Apia",
];

fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        (min..=max).prop_map(|value| value.to_string()),
        (min..=max, min..=max).prop_map(|(low, high)| format!("{low}-{high}")),
        (min..=max, 1..=max).prop_map(|(from, step)| format!("{from}/{step}")),
        (1..=max).prop_map(|step| format!("*/{step}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_next_run_is_later_and_on_the_wall_clock(
        name in proptest::sample::select(&ZONES),
        secs in 1_500_000_000_i64..2_500_000_000,
        fields in (field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 7)),
    ) {
        let zone = zone(name).unwrap();
        let base = Timestamp::from_second(secs).unwrap();
        let text = format!("{} {} {} {} {}", fields.0, fields.1, fields.2, fields.3, fields.4);
        let schedule = Schedule::parse(&text, base, &zone).unwrap();
        let Timing::Cron { fields, .. } = schedule.timing() else { panic!("{text}") };
        let next = schedule.next_after(base, &zone).expect("a date matches");
        prop_assert!(next > base, "{text} in {name}");
        let wall = zone.to_datetime(next);
        let skipped = !fields.matches(wall);
        if skipped {
            // Only a time that the clocks skip runs at another one, later by the change.
            let before = plus_secs(next, -3 * 3_600);
            prop_assert_ne!(zone.to_offset(before), zone.to_offset(next), "{} in {} at {}", text, name, wall);
        }
        prop_assert!(schedule.next_after(next, &zone).is_none_or(|after| after > next));
    }

    #[test]
    fn no_schedule_panics(text in "\\PC{0,60}", secs in 0_i64..4_000_000_000) {
        let now = Timestamp::from_second(secs).unwrap();
        if let Ok(schedule) = Schedule::parse(&text, now, &TimeZone::UTC) {
            let _ = schedule.first_run(now, &TimeZone::UTC);
        }
    }

    #[test]
    fn no_words_panic(words in proptest::collection::vec(proptest::sample::select(
        &["every", "in", "at", "monday", "9am", "30m", "*", "*/5", "1-5", "T", "2026-06-19", "noon", "+", "99999999999999d", "٣", ":", "tomorrow", "first", "of", "the", "month", "weeks", "25", "morning"]), 0..8)) {
        let _ = Schedule::parse(&words.join(" "), Timestamp::UNIX_EPOCH, &TimeZone::UTC);
    }
}
