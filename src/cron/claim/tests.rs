//! The executed cases of the reference where the rules agree, and why they differ where they do not.

use serde_json::{Value, json};

use super::*;
use crate::cron::job::{JobEdit, JobError, RunOutcome};
use crate::cron::schedule::{format, parse_instant};

/// Cases with another answer here, and why.
const DIFFERENT: [(&str, &str); 13] = [
    ("C003", "a fire a day early owns no occurrence"),
    (
        "C011",
        "a claim in the future is a clock that differs, not a free job",
    ),
    ("C012", "claims are rows of the journal, which always have a time"),
    ("C013", "claims are rows of the journal, which always have a time"),
    (
        "C026",
        "a job that has run for the last time is kept as completed",
    ),
    (
        "C027",
        "a job that has run for the last time is kept as completed",
    ),
    (
        "C028",
        "a job that has run for the last time is kept as completed",
    ),
    ("C030", "runs are counted when they end, never before"),
    ("C035", "runs are counted when they end, never before"),
    ("C036", "runs are counted when they end, never before"),
    ("C037", "runs are counted when they end, never before"),
    (
        "C042",
        "a run that somebody asks for leaves the schedule and the pause alone",
    ),
    (
        "C050",
        "a replay after completion names an occurrence that is consumed",
    ),
];

fn at(text: &str) -> Timestamp {
    parse_instant(text, &TimeZone::UTC).unwrap()
}

fn job(base: &Value, overrides: &Value) -> Job {
    let mut record = base.clone();
    for (name, value) in overrides.as_object().into_iter().flatten() {
        record[name] = value.clone();
    }
    Job::from_record(record).unwrap()
}

/// The claim of a record, as the journal would hold it: of another machine, known only by its age.
fn held(job: &Job, now: Timestamp) -> Option<Held> {
    let at = job.record().get("fire_claim")?.get("at")?.as_str()?;
    let age = now.as_second() - parse_instant(at, &TimeZone::UTC)?.as_second();
    Some(Held {
        occurrence: None,
        began: true,
        is_dead: age.abs() >= STALE_SECS,
    })
}

#[test]
fn claims_and_ends_are_what_the_vectors_say() {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/claim.json")).unwrap();
    let mut compared = 0;
    for case in vectors["vectors"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        if DIFFERENT.iter().any(|(different, _)| *different == id) {
            continue;
        }
        let (label, now) = (case["label"].as_str().unwrap(), at(case["now"].as_str().unwrap()));
        let mut job = job(&vectors["base_job"], &case["job_overrides"]);
        let record = &case["record"];
        let zone = TimeZone::UTC;
        if label.starts_with("mark") {
            let error = record["last_error"].as_str().map(str::to_owned);
            let outcome = RunOutcome {
                error,
                ..RunOutcome::default()
            };
            job.finish(&outcome, true, None, now, &zone);
            for field in ["last_status", "last_error", "repeat"] {
                assert_eq!(job.record()[field], record[field], "{id} {field}");
            }
        } else if label == "pause" {
            job.pause(Some("why"), now, &zone);
            assert_eq!(job.record()["paused_at"], record["paused_at"], "{id}");
            assert_eq!(job.record()["paused_reason"], record["paused_reason"], "{id}");
        } else if label.starts_with("resume") {
            let refused = job.resume(now, &zone);
            assert!(matches!(refused, Err(JobError::Schedule(_))), "{id}: {refused:?}");
        } else if label.starts_with("update") {
            let schedule = match id {
                "C044" => "every 2h",
                "C046" => "2020-01-01T00:00:00Z",
                _ => continue,
            };
            let edit = JobEdit {
                schedule: Some(schedule.to_owned()),
                ..JobEdit::default()
            };
            assert_eq!(job.edit(&edit, now, &zone).is_err(), id == "C046", "{id}");
        } else {
            let known = !matches!(id, "C020" | "C021");
            let verdict = decide(known.then_some(&job), None, held(&job, now), None, now, &zone);
            let won = matches!(verdict, ClaimVerdict::Claim { .. });
            assert_eq!(Value::from(won), case["returns"], "{id}: {verdict:?}");
            if let ClaimVerdict::Claim { next: Some(next), .. } = verdict {
                job.set_next_run(Some(next), &zone);
            }
        }
        for field in ["state", "enabled", "next_run_at"] {
            if let Some(wanted) = record.get(field) {
                assert_eq!(&job.record()[field], wanted, "{id} {field}");
            }
        }
        compared += 1;
    }
    assert!(compared >= 23, "{compared}");
}

fn daily() -> Job {
    job(
        &json!({"id": "abc123abc123", "schedule": {"kind": "cron", "expr": "0 9 * * *"}}),
        &json!({"next_run_at": "2026-06-18T09:00:00+00:00"}),
    )
}

fn decided(job: &Job, consumed: Option<&str>, fire_at: Option<&str>, now: &str) -> ClaimVerdict {
    decide(
        Some(job),
        consumed.map(at),
        None,
        fire_at.map(at),
        at(now),
        &TimeZone::UTC,
    )
}

#[test]
fn a_fire_owns_its_occurrence_up_to_a_minute_early_and_however_late() {
    let job = daily();
    let occurrence = at("2026-06-18T09:00:00Z");
    let early = ClaimVerdict::Early { occurrence };
    assert_eq!(
        decided(&job, None, Some("2026-06-18T09:00:00Z"), "2026-06-18T08:58:59Z"),
        early
    );
    assert_eq!(decided(&job, None, None, "2026-06-18T08:58:59Z"), early);
    for now in [
        "2026-06-18T08:59:00Z",
        "2026-06-18T09:00:00Z",
        "2026-06-18T20:00:00Z",
    ] {
        let next = Some(at("2026-06-19T09:00:00Z"));
        let claim = ClaimVerdict::Claim { occurrence, next };
        // The same instant, written with another offset and without its fraction of a second.
        assert_eq!(
            decided(&job, None, Some("2026-06-18T11:00:00+02:00"), now),
            claim,
            "{now}"
        );
        assert_eq!(decided(&job, None, None, now), claim, "{now}");
    }
}

#[test]
fn an_occurrence_never_runs_twice() {
    let mut job = daily();
    job.set_next_run(Some(at("2026-06-19T09:00:00Z")), &TimeZone::UTC);
    let consumed = Some("2026-06-18T09:00:00Z");
    let replay = decided(
        &job,
        consumed,
        Some("2026-06-18T09:00:00+00:00"),
        "2026-06-18T09:05:00Z",
    );
    assert_eq!(replay, ClaimVerdict::Duplicate);
    // Even if the record still has that occurrence, as a one-shot's does.
    assert_eq!(
        decided(&daily(), consumed, consumed, "2026-06-18T09:05:00Z"),
        ClaimVerdict::Duplicate
    );
    // An arm from before the schedule moved on.
    let old = decided(&job, None, Some("2026-06-18T09:00:00Z"), "2026-06-18T09:05:00Z");
    assert_eq!(old, ClaimVerdict::Duplicate);
    // The next one runs.
    let next = decided(
        &job,
        consumed,
        Some("2026-06-19T09:00:00.4Z"),
        "2026-06-19T09:00:01Z",
    );
    assert!(matches!(next, ClaimVerdict::Claim { .. }), "{next:?}");
}

#[test]
fn a_fire_may_differ_from_its_occurrence_by_a_fraction_and_may_come_for_a_later_one() {
    let mut job = daily();
    job.set_next_run(Some(at("2026-06-18T09:00:00.4Z")), &TimeZone::UTC);
    let claims = |job: &Job, fire_at, now| {
        let verdict = decided(job, None, Some(fire_at), now);
        matches!(verdict, ClaimVerdict::Claim { .. })
    };
    assert!(claims(&job, "2026-06-18T09:00:00Z", "2026-06-18T09:00:05Z"));
    assert!(!claims(&job, "2026-06-18T08:59:50Z", "2026-06-18T09:00:05Z"));
    // The run of the 18th was missed: whatever fires first makes up for it.
    let late = decided(
        &daily(),
        None,
        Some("2026-06-19T09:00:00Z"),
        "2026-06-19T09:00:00Z",
    );
    let (occurrence, next) = (at("2026-06-18T09:00:00Z"), Some(at("2026-06-20T09:00:00Z")));
    assert_eq!(late, ClaimVerdict::Claim { occurrence, next });
}

#[test]
fn a_one_shot_without_a_stored_run_gets_its_time_within_its_grace_and_once() {
    let run_at = at("2026-06-18T09:00:00Z");
    let once = json!({"id": "a1", "schedule": {"kind": "once", "run_at": "2026-06-18T09:00:00+00:00"}});
    let job = Job::from_record(once).unwrap();
    let next = |consumed: Option<&str>, now| next_run(&job, consumed.map(at), at(now), &TimeZone::UTC);
    assert_eq!(next(None, "2026-06-18T08:00:00Z"), NextRun::Repair(run_at));
    assert_eq!(next(None, "2026-06-18T09:02:00Z"), NextRun::Repair(run_at));
    assert_eq!(next(None, "2026-06-18T09:02:01Z"), NextRun::Never);
    let consumed = Some("2026-06-18T09:00:00Z");
    assert_eq!(next(consumed, "2026-06-18T09:01:00Z"), NextRun::Never);
}

#[test]
fn an_early_run_is_not_followed_by_itself() {
    let mut job = daily();
    let minutely = JobEdit {
        schedule: Some("* * * * *".into()),
        ..JobEdit::default()
    };
    job.edit(&minutely, at("2026-06-18T08:58:30Z"), &TimeZone::UTC)
        .unwrap();
    let verdict = decided(&job, None, None, "2026-06-18T08:58:10Z");
    let (occurrence, next) = (at("2026-06-18T08:59:00Z"), Some(at("2026-06-18T09:00:00Z")));
    assert_eq!(verdict, ClaimVerdict::Claim { occurrence, next });
    let early_end = at("2026-06-18T08:58:20Z");
    job.finish(
        &RunOutcome::default(),
        true,
        Some(occurrence),
        early_end,
        &TimeZone::UTC,
    );
    assert_eq!(job.next_run_text(), Some("2026-06-18T09:00:00+00:00"));
}

#[test]
fn holders_that_are_gone_give_way() {
    let job = daily();
    let (now, occurrence) = (at("2026-06-18T09:00:10Z"), at("2026-06-18T09:00:00Z"));
    let ask = |began, is_dead, of: Option<Timestamp>, consumed| {
        let held = Held {
            occurrence: of,
            began,
            is_dead,
        };
        decide(
            Some(&job),
            consumed,
            Some(held),
            Some(occurrence),
            now,
            &TimeZone::UTC,
        )
    };
    let consumed = Some(occurrence);
    assert_eq!(ask(false, false, consumed, consumed), ClaimVerdict::Duplicate);
    assert_eq!(ask(false, true, consumed, consumed), ClaimVerdict::TakeOver);
    // It began: that occurrence stays consumed, and the next one is free.
    assert_eq!(ask(true, true, consumed, consumed), ClaimVerdict::Duplicate);
    let yesterday = Some(at("2026-06-17T09:00:00Z"));
    assert!(matches!(
        ask(true, true, yesterday, yesterday),
        ClaimVerdict::Claim { .. }
    ));
}

#[test]
fn a_fire_that_meets_another_run_of_its_job_is_told_apart_from_a_repeated_one() {
    let job = daily();
    let occurrence = at("2026-06-18T09:00:00Z");
    let ask = |of: Option<&str>, consumed: Option<&str>, fire_at: Option<&str>, now: &str| {
        let held = Held {
            occurrence: of.map(at),
            began: true,
            is_dead: false,
        };
        let (consumed, fire_at) = (consumed.map(at), fire_at.map(at));
        decide(Some(&job), consumed, Some(held), fire_at, at(now), &TimeZone::UTC)
    };
    let (yesterday, today) = (Some("2026-06-17T09:00:00Z"), Some("2026-06-18T09:00:00Z"));
    // A run that somebody asked for, and one that takes a day.
    for of in [None, yesterday] {
        for (fire_at, now) in [
            (today, "2026-06-18T08:59:00Z"),
            (None, "2026-06-18T08:59:00Z"),
            (today, "2026-06-18T09:10:00Z"),
        ] {
            let verdict = ask(of, yesterday, fire_at, now);
            assert_eq!(verdict, ClaimVerdict::Busy { occurrence }, "{fire_at:?} {now}");
        }
        let early = ask(of, yesterday, today, "2026-06-18T08:58:00Z");
        assert_eq!(early, ClaimVerdict::Early { occurrence }, "its alarm is kept");
    }
    let again = [
        ask(yesterday, yesterday, yesterday, "2026-06-17T09:10:00Z"),
        ask(yesterday, yesterday, None, "2026-06-17T09:10:00Z"),
        ask(today, today, today, "2026-06-18T09:00:10Z"),
    ];
    assert_eq!(again, [ClaimVerdict::Duplicate; 3]);
}

#[test]
fn a_time_that_the_clocks_repeat_runs_once() {
    let berlin = crate::cron::schedule::zone("Europe/Berlin").unwrap();
    let half_past_two = json!({"kind": "cron", "expr": "30 2 * * *"});
    let first = at("2026-10-25T00:30:00Z");
    let tomorrow = at("2026-10-26T01:30:00Z");
    // It ran before the clocks went back, and it is looked at after that.
    let consumed = Some(first);
    let job = stored(&half_past_two, "2026-10-26T02:30:00+01:00");
    let look = |job: &Job, now: &str| {
        let now = at(now);
        (
            repair(job, consumed, now, &berlin),
            next_run(job, consumed, now, &berlin),
        )
    };
    for now in ["2026-10-25T00:40:00Z", "2026-10-25T01:05:00Z"] {
        assert_eq!(look(&job, now), (None, NextRun::At(tomorrow)), "{now}");
    }
    let consumed_again = stored(&half_past_two, "2026-10-25T02:30:00+02:00");
    let repaired = look(&consumed_again, "2026-10-25T01:05:00Z");
    assert_eq!(repaired, (Some(tomorrow), NextRun::Repair(tomorrow)));
    // It was claimed late, and ended late.
    let late = at("2026-10-25T01:10:00Z");
    let verdict = decide(Some(&consumed_again), None, None, None, late, &berlin);
    let (occurrence, next) = (first, Some(tomorrow));
    assert_eq!(verdict, ClaimVerdict::Claim { occurrence, next });
    let mut ended = consumed_again.clone();
    ended.finish(&RunOutcome::default(), true, consumed, late, &berlin);
    assert_eq!(ended.next_run_text(), Some("2026-10-26T02:30:00+01:00"));
    // What has not run yet may run in the second pass; what ran every minute goes on after it.
    let last = Some(at("2026-10-24T00:30:00Z"));
    let made_late = next_run(
        &stored(&half_past_two, ""),
        last,
        at("2026-10-25T01:10:00Z"),
        &berlin,
    );
    assert_eq!(made_late, NextRun::Repair(at("2026-10-25T01:30:00Z")));
    let minutely = stored(&json!({"kind": "cron", "expr": "* * * * *"}), "");
    let after = next_run(&minutely, Some(at("2026-10-25T00:59:00Z")), late, &berlin);
    assert_eq!(after, NextRun::Repair(at("2026-10-25T02:00:00Z")));
    // Intervals count elapsed time.
    let hourly = stored(&json!({"kind": "interval", "minutes": 60}), "");
    let after = next_run(&hourly, consumed, late, &berlin);
    assert_eq!(after, NextRun::Repair(at("2026-10-25T02:10:00Z")));
}

#[test]
fn finished_jobs_are_gone_and_paused_ones_refuse() {
    let mut job = daily();
    job.pause(None, at("2026-06-18T08:00:00Z"), &TimeZone::UTC);
    assert_eq!(
        decided(&job, None, None, "2026-06-18T09:00:00Z"),
        ClaimVerdict::Duplicate
    );
    let done = self::job(&job.to_value(), &json!({"state": "completed"}));
    assert_eq!(
        decided(&done, None, None, "2026-06-18T09:00:00Z"),
        ClaimVerdict::Gone
    );
    assert_eq!(
        decide(None, None, None, None, at("2026-06-18T09:00:00Z"), &TimeZone::UTC),
        ClaimVerdict::Gone
    );
}

#[test]
fn due_jobs_are_those_of_the_vectors() {
    let vectors: Value = serde_json::from_str(include_str!("../../../tests/vectors/schedule.json")).unwrap();
    let cases = vectors["due_vectors"].as_array().unwrap();
    assert!(cases.len() >= 15);
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let zone = crate::cron::schedule::zone(case["timezone"].as_str().unwrap()).unwrap();
        let now = at(case["now"].as_str().unwrap());
        let job = job(&json!({"id": "abc123abc123"}), &case["job"]);
        let next = next_run(&job, None, now, &zone);
        let due = match next {
            NextRun::At(at) | NextRun::Repair(at) => at <= now,
            NextRun::Never => false,
        };
        let wanted = match id {
            "D010" => true,  // claims are rows of the journal, not fields of the record
            "D015" => false, // a paused job does not run
            _ => case["due"].as_bool().unwrap(),
        };
        assert_eq!(due, wanted, "{id} {next:?}");
        if let NextRun::Repair(at) = next {
            let stored = case["stored_next_run_at_after"].as_str().unwrap();
            assert_eq!(format(at, &zone), stored, "{id}");
        }
    }
}

fn stored(schedule: &Value, next: &str) -> Job {
    let record = json!({"id": "a1", "schedule": schedule, "next_run_at": next});
    Job::from_record(record).unwrap()
}

#[test]
fn a_next_run_that_is_later_than_the_schedule_gives_is_repaired() {
    let now = at("2026-06-15T08:00:00Z");
    let daily = json!({"kind": "cron", "expr": "0 9 * * *"});
    let hourly = json!({"kind": "interval", "minutes": 60});
    let (soon, in_an_hour) = (Some(at("2026-06-15T09:00:00Z")), Some(at("2026-06-15T09:00:00Z")));
    for (schedule, next, consumed, wanted) in [
        // By a clock that was years ahead, which also consumed an occurrence.
        (
            &daily,
            "2031-01-02T09:00:00+00:00",
            Some("2031-01-01T09:00:00Z"),
            soon,
        ),
        (&daily, "2031-01-02T09:00:00+00:00", None, soon),
        (
            &hourly,
            "2031-01-01T10:00:00+00:00",
            Some("2031-01-01T09:00:00Z"),
            in_an_hour,
        ),
        (&daily, "2026-06-16T09:00:00+00:00", None, soon),
        // What the schedule gives stays as it is.
        (
            &daily,
            "2026-06-15T09:00:00+00:00",
            Some("2026-06-14T09:00:00Z"),
            None,
        ),
        (
            &hourly,
            "2026-06-15T08:30:00+00:00",
            Some("2026-06-15T07:30:00Z"),
            None,
        ),
        (&hourly, "2026-06-15T09:00:00.400000+00:00", None, None),
        (&hourly, "2026-06-15T07:00:00+00:00", None, None),
        // A fire that was early, or a clock that was set back a little, has consumed the occurrence all the same.
        (
            &daily,
            "2026-06-16T09:00:00+00:00",
            Some("2026-06-15T09:00:00Z"),
            None,
        ),
    ] {
        let job = stored(schedule, next);
        let consumed = consumed.map(at);
        let found = repair(&job, consumed, now, &TimeZone::UTC);
        assert_eq!(found, wanted, "{schedule} {next} {consumed:?}");
    }
    // A one-shot runs when it says.
    let once = stored(
        &json!({"kind": "once", "run_at": "2031-01-01T09:00:00+00:00"}),
        "2031-01-01T09:00:00+00:00",
    );
    assert_eq!(repair(&once, None, now, &TimeZone::UTC), None);
}

#[test]
fn an_occurrence_that_a_wrong_clock_consumed_does_not_count() {
    let now = at("2026-06-15T09:00:00Z");
    let job = stored(
        &json!({"kind": "cron", "expr": "0 9 * * *"}),
        "2026-06-15T09:00:00+00:00",
    );
    let years_ahead = Some(at("2031-01-01T09:00:00Z"));
    let claimed = ClaimVerdict::Claim {
        occurrence: now,
        next: Some(at("2026-06-16T09:00:00Z")),
    };
    for fire_at in [None, Some(now)] {
        let verdict = decide(Some(&job), years_ahead, None, fire_at, now, &TimeZone::UTC);
        assert_eq!(verdict, claimed);
    }
    let minutes_ahead = Some(at("2026-06-15T09:05:00Z"));
    let verdict = decide(Some(&job), minutes_ahead, None, Some(now), now, &TimeZone::UTC);
    assert_eq!(verdict, ClaimVerdict::Duplicate, "it was consumed, however late");
}
