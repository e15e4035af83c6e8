use super::arms::ARM_TIMEOUT;
use super::*;
use crate::cron::chronos::{ArmState, ArmedAs};
use crate::cron::job::NewJob;
use crate::store::{JobRunStatus, RunRow, RunSource};

const START_MS: i64 = 1_780_000_000_000;

fn at(secs: u64) -> Moment {
    Moment {
        mono: Duration::from_secs(secs),
        unix_ms: START_MS + i64::try_from(secs).unwrap() * 1_000,
    }
}

/// A job whose first run is an hour after the start.
fn hourly(id: &str) -> JobRow {
    let new = NewJob {
        schedule: "every 1h".to_owned(),
        prompt: "look".to_owned(),
        ..NewJob::default()
    };
    JobRow {
        job: Job::create(&new, id, instant(at(0)), &TimeZone::UTC).unwrap(),
        consumed: None,
        armed: None,
        arm_error: None,
        is_running: false,
    }
}

fn scheduler(provider: CronProvider, arms: Option<Arms>) -> Scheduler {
    let settings = CronConfig {
        provider,
        max_parallel_jobs: 2,
        misfire_grace_minutes: 10,
        ..CronConfig::default()
    };
    let mut scheduler = Scheduler::new(&settings, arms, 7);
    scheduler.loaded(vec![hourly("aaaaaaaaaaaa")]);
    scheduler
}

fn run_of(id: &str, seq: i64) -> RunRow {
    RunRow {
        seq,
        job: id.to_owned(),
        name: "look".to_owned(),
        occurrence: None,
        source: RunSource::Manual,
        status: JobRunStatus::Requested,
        owner: None,
        requested_at: instant(at(0)),
        began_at: None,
        ended_at: None,
        error: None,
        delivery_error: None,
        output: None,
    }
}

/// The commands since the last call, without reads.
fn writes(effects: &mut Effects) -> Vec<CronCommand> {
    let (commands, _) = effects.take_commands();
    let cron = commands.into_iter().filter_map(|command| match command {
        Command::Cron { command, .. } => Some(*command),
        _ => None,
    });
    cron.filter(|command| !command.only_reads() && !matches!(command, CronCommand::Repair { .. }))
        .collect()
}

#[test]
fn the_timer_claims_a_due_job_once_and_again_only_after_a_while() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    scheduler.step(at(3_599), true, &mut effects);
    assert_eq!(writes(&mut effects), []);
    assert_eq!(scheduler.next_due(at(3_599)), Some(Duration::from_secs(3_600)));
    scheduler.step(at(3_600), false, &mut effects);
    assert_eq!(writes(&mut effects), [], "not while it does not serve");
    scheduler.step(at(3_600), true, &mut effects);
    scheduler.step(at(3_601), true, &mut effects);
    let claims = writes(&mut effects);
    assert!(
        matches!(
            &claims[..],
            [CronCommand::Claim {
                source: RunSource::Builtin,
                fire_at: None,
                ..
            }]
        ),
        "{claims:?}"
    );
    scheduler.not_claimed("aaaaaaaaaaaa", at(3_602));
    scheduler.loaded(vec![hourly("aaaaaaaaaaaa")]);
    scheduler.step(at(3_603), true, &mut effects);
    assert_eq!(writes(&mut effects), [], "it was tried a moment ago");
    scheduler.step(at(3_607), true, &mut effects);
    assert_eq!(writes(&mut effects).len(), 1);
}

#[test]
fn with_the_managed_scheduler_only_a_misfire_is_claimed_and_nothing_wakes_a_sleeping_process() {
    let (arms, _desired, _report) = Arms::channel();
    let mut scheduler = scheduler(CronProvider::Chronos, Some(arms));
    let mut effects = Effects::default();
    assert_eq!(scheduler.next_due(at(0)), None);
    scheduler.step(at(3_600 + 599), true, &mut effects);
    assert_eq!(writes(&mut effects), []);
    scheduler.step(at(3_600 + 600), true, &mut effects);
    let claims = writes(&mut effects);
    assert!(
        matches!(
            &claims[..],
            [CronCommand::Claim {
                source: RunSource::Misfire,
                ..
            }]
        ),
        "{claims:?}"
    );
    assert_eq!(scheduler.status(at(4_200)).misfires, 1);
}

#[test]
fn a_managed_scheduler_that_refuses_for_good_leaves_jobs_to_the_timer() {
    let (arms, _desired, report) = Arms::channel();
    let scheduler = scheduler(CronProvider::Chronos, Some(arms));
    report.send_modify(|report| report.unavailable = Some("invalid_client".to_owned()));
    assert_eq!(scheduler.next_due(at(0)), Some(Duration::from_secs(3_600)));
    assert_eq!(scheduler.status(at(0)).provider, "builtin");
}

#[test]
fn off_claims_nothing_and_needs_no_time() {
    let mut scheduler = scheduler(CronProvider::Off, None);
    let mut effects = Effects::default();
    scheduler.step(at(9_999), true, &mut effects);
    assert_eq!(writes(&mut effects), []);
    assert_eq!(
        (scheduler.next_due(at(0)), scheduler.deadline(at(0), true)),
        (None, None)
    );
}

#[test]
fn a_changed_clock_is_noticed_within_half_a_minute() {
    let scheduler = scheduler(CronProvider::Builtin, None);
    assert_eq!(scheduler.deadline(at(10), true), Some(Duration::from_secs(40)));
}

#[test]
fn a_job_that_comes_due_in_a_shutdown_is_not_looked_at_again_and_again() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    scheduler.step(at(3_600), false, &mut effects);
    assert_eq!(writes(&mut effects), [], "nothing is claimed");
    assert_eq!(scheduler.deadline(at(3_600), false), None);
    assert_eq!(
        scheduler.deadline(at(3_600), true),
        Some(Duration::from_secs(3_600)),
        "due at once while the relay serves"
    );
}

#[test]
fn a_job_whose_run_is_claimed_is_not_due_before_that_run_is_over() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    let id = "aaaaaaaaaaaa";
    scheduler.claimed(&run_of(id, 1), hourly(id));
    let run = scheduler.next_run().unwrap();
    scheduler.step(at(3_600), true, &mut effects);
    assert!(scheduler.deadline(at(3_600), true) > Some(Duration::from_secs(3_600)));
    scheduler.end(run.seq);
    assert_eq!(
        scheduler.deadline(at(3_600), true),
        Some(Duration::from_secs(3_600))
    );
}

#[test]
fn runs_beyond_the_limit_wait_for_a_slot() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    for (index, id) in ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"]
        .into_iter()
        .enumerate()
    {
        let seq = i64::try_from(index).unwrap();
        scheduler.claimed(&run_of(id, seq), hourly(id));
    }
    let first = scheduler.next_run().unwrap();
    assert!(scheduler.next_run().is_some());
    assert!(scheduler.next_run().is_none(), "two run");
    assert_eq!(scheduler.outstanding(), 3);
    scheduler.end(first.seq);
    assert_eq!(scheduler.next_run().unwrap().seq, RunSeq(2));
}

#[test]
fn a_run_that_somebody_asked_for_waits_while_the_job_runs_without_a_loop() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    let id = "aaaaaaaaaaaa";
    scheduler.claimed(&run_of(id, 1), hourly(id));
    let running = scheduler.next_run().unwrap();
    scheduler.requested(vec![run_of(id, 2)], at(5), &mut effects);
    scheduler.requested(vec![run_of(id, 2)], at(6), &mut effects);
    assert_eq!(writes(&mut effects), []);
    assert_eq!(
        scheduler.deadline(at(6), true).map(|at| at.as_secs()),
        Some(0),
        "the claim is renewed first"
    );
    scheduler.end(running.seq);
    scheduler.requested(vec![run_of(id, 2)], at(7), &mut effects);
    scheduler.requested(vec![run_of(id, 2)], at(7), &mut effects);
    assert_eq!(writes(&mut effects).len(), 1, "asked for once");
}

#[test]
fn a_run_that_takes_too_long_is_reported_once() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    let id = "aaaaaaaaaaaa";
    scheduler.claimed(&run_of(id, 1), hourly(id));
    let run = scheduler.next_run().unwrap();
    assert_eq!(scheduler.overdue(at(9_999).mono), [], "it has not begun");
    scheduler.begin(TurnId(1), run.seq, at(10), &mut effects);
    assert_eq!(scheduler.overdue(at(10 + 3_599).mono), []);
    assert_eq!(scheduler.overdue(at(10 + 3_600).mono), [run.seq]);
    assert_eq!(scheduler.overdue(at(10 + 3_601).mono), []);
}

#[test]
fn nothing_is_armed_or_cancelled_before_the_jobs_are_read() {
    let (arms, desired, _report) = Arms::channel();
    let settings = CronConfig {
        provider: CronProvider::Chronos,
        ..CronConfig::default()
    };
    let mut scheduler = Scheduler::new(&settings, Some(arms), 7);
    // A run that an earlier process left has ended: the other jobs are not known yet.
    let left = "aaaaaaaaaaaa";
    scheduler.finished(Some(hourly(left)));
    assert!(
        desired.borrow().is_unread,
        "one job alone would cancel the others"
    );
    scheduler.loaded(vec![hourly(left), hourly("bbbbbbbbbbbb")]);
    assert!(!desired.borrow().is_unread);
    assert_eq!(desired.borrow().jobs.len(), 2);
}

#[test]
fn a_verb_learns_whether_its_job_is_armed_and_waits_a_while_at_most() {
    let (arms, desired, report) = Arms::channel();
    let mut scheduler = scheduler(CronProvider::Chronos, Some(arms));
    let mut effects = Effects::default();
    let ask = |scheduler: &mut Scheduler, now| {
        let (sender, receiver) = oneshot::channel();
        scheduler.changed(ArmWaiter::Verb(sender), now);
        receiver
    };
    let mut answer = ask(&mut scheduler, at(1).mono);
    scheduler.step(at(1), true, &mut effects);
    scheduler.loaded(vec![hourly("aaaaaaaaaaaa")]);
    scheduler.step(at(2), true, &mut effects);
    assert!(answer.try_recv().is_err(), "the scheduler has not answered");
    let fire_at = desired.borrow().jobs[0].fire_at.clone();
    report.send_modify(|report| {
        let state = ArmState::Armed;
        report
            .jobs
            .insert("aaaaaaaaaaaa".to_owned(), ArmedAs { fire_at, state });
    });
    scheduler.step(at(3), true, &mut effects);
    assert_eq!(answer.try_recv().unwrap().armed(), 1);
    report.send_modify(|report| report.jobs.clear());
    let mut answer = ask(&mut scheduler, at(4).mono);
    let over = 4 + ARM_TIMEOUT.as_secs();
    scheduler.step(at(over - 1), true, &mut effects);
    assert!(answer.try_recv().is_err());
    scheduler.step(at(over), true, &mut effects);
    assert_eq!(answer.try_recv().unwrap().armed(), 0, "after {ARM_TIMEOUT:?}");
}

#[test]
fn a_clock_that_was_ahead_makes_the_jobs_be_repaired() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    let repairs = |effects: &mut Effects| {
        let (commands, _) = effects.take_commands();
        let is_repair = |command: &&Command| match command {
            Command::Cron { command, .. } => matches!(**command, CronCommand::Repair { .. }),
            _ => false,
        };
        commands.iter().filter(is_repair).count()
    };
    let moved = |secs: u64, by_secs: i64| Moment {
        unix_ms: at(secs).unix_ms + by_secs * 1_000,
        ..at(secs)
    };
    scheduler.step(at(10), true, &mut effects);
    scheduler.step(moved(20, 3_000), true, &mut effects);
    assert_eq!(
        repairs(&mut effects),
        0,
        "what is due is found anyway when time goes on"
    );
    scheduler.step(moved(30, 2_990), true, &mut effects);
    assert_eq!(repairs(&mut effects), 0, "a clock that is slewed");
    scheduler.step(at(40), true, &mut effects);
    assert_eq!(repairs(&mut effects), 1);
    scheduler.loaded(vec![hourly("aaaaaaaaaaaa")]);
    scheduler.step(at(50), true, &mut effects);
    assert_eq!(repairs(&mut effects), 0, "once");
}

#[test]
fn a_run_that_ended_has_its_job_replaced_and_the_jobs_read_again() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    scheduler.step(at(10), true, &mut effects);
    effects.take_commands();
    let mut later = hourly("aaaaaaaaaaaa");
    let next = schedule::plus_secs(instant(at(0)), 7_200);
    later.job.set_next_run(Some(next), &TimeZone::UTC);
    scheduler.finished(Some(later));
    assert_eq!(scheduler.next_due(at(20)), Some(Duration::from_secs(7_200)));
    assert!(scheduler.reads.stale);
}

#[test]
fn an_occurrence_whose_fire_met_a_running_job_is_claimed_when_that_run_is_over() {
    let (arms, desired, report) = Arms::channel();
    let settings = CronConfig {
        provider: CronProvider::Chronos,
        misfire_grace_minutes: 0,
        ..CronConfig::default()
    };
    let mut scheduler = Scheduler::new(&settings, Some(arms), 7);
    let id = "aaaaaaaaaaaa";
    let mut effects = Effects::default();
    scheduler.loaded(vec![hourly(id)]);
    let fire_at = desired.borrow().jobs[0].fire_at.clone();
    report.send_modify(|report| {
        let state = ArmState::Armed;
        report.jobs.insert(id.to_owned(), ArmedAs { fire_at, state });
    });
    let running = JobRow {
        is_running: true,
        ..hourly(id)
    };
    scheduler.claimed(&run_of(id, 1), running.clone());
    let run = scheduler.next_run().unwrap();
    // Its fire comes a little early.
    scheduler.met_run(id, instant(at(3_600)), at(3_590));
    scheduler.loaded(vec![running]);
    scheduler.step(at(3_650), true, &mut effects);
    let claims = |effects: &mut Effects| {
        let claims = writes(effects).into_iter().filter_map(|command| match command {
            CronCommand::Claim { source, .. } => Some(source),
            _ => None,
        });
        claims.collect::<Vec<_>>()
    };
    assert_eq!(claims(&mut effects), [], "it runs");
    scheduler.end(run.seq);
    scheduler.finished(Some(hourly(id)));
    scheduler.loaded(vec![hourly(id)]);
    assert_eq!(scheduler.outstanding(), 1, "it does not sleep before that");
    assert_eq!(
        scheduler.deadline(at(3_651), true),
        Some(Duration::from_secs(3_651))
    );
    scheduler.step(at(3_651), true, &mut effects);
    assert_eq!(claims(&mut effects), [RunSource::Chronos]);
    // What was given another time has an alarm of its own.
    let mut later = hourly(id);
    later.job.set_next_run(Some(instant(at(9_000))), &TimeZone::UTC);
    scheduler.not_claimed(id, at(3_652));
    scheduler.loaded(vec![later]);
    assert_eq!(scheduler.deadline(at(3_700), true), None);
    scheduler.loaded(vec![hourly(id)]);
    assert_eq!(scheduler.deadline(at(3_700), true), None, "it is forgotten");
}

#[test]
fn a_job_that_was_not_claimed_is_tried_again_by_elapsed_time() {
    let mut scheduler = scheduler(CronProvider::Builtin, None);
    let mut effects = Effects::default();
    let day_ahead = |secs: u64| Moment {
        unix_ms: at(secs + 86_400).unix_ms,
        ..at(secs)
    };
    scheduler.not_claimed("aaaaaaaaaaaa", day_ahead(3_600));
    // The time of day is set right.
    scheduler.step(at(3_604), true, &mut effects);
    assert_eq!(writes(&mut effects), []);
    scheduler.step(at(3_605), true, &mut effects);
    assert_eq!(writes(&mut effects).len(), 1);
}

#[test]
fn a_run_that_has_only_its_output_ends_when_that_is_written() {
    let outcome = || RunOutcome {
        output: Some("file".to_owned()),
        ..RunOutcome::default()
    };
    for (error, output, said) in [
        (None, Some("file"), None),
        (
            Some("disk full"),
            None,
            Some("the output was not saved: disk full"),
        ),
    ] {
        let mut scheduler = scheduler(CronProvider::Builtin, None);
        let mut effects = Effects::default();
        let id = "aaaaaaaaaaaa";
        scheduler.claimed(&run_of(id, 1), hourly(id));
        let run = scheduler.next_run().unwrap();
        let run = scheduler.end(run.seq).unwrap();
        scheduler.finish_when_saved(run, outcome());
        assert!(scheduler.has_unsaved() && scheduler.outstanding() == 1);
        assert_eq!(writes(&mut effects), []);
        let error = error.map(str::to_owned);
        scheduler.saved(RunSeq(1), id, error.clone(), at(9), &mut effects);
        let noted = writes(&mut effects);
        let [CronCommand::Finish { outcome, .. }] = &noted[..] else {
            panic!("{noted:?}")
        };
        let noted = (outcome.output.as_deref(), outcome.delivery_error.as_deref());
        assert_eq!(noted, (output, said));
        assert_eq!(scheduler.outstanding(), 0);
        // A run that has ended before gets only an error noted.
        scheduler.saved(RunSeq(1), id, error, at(9), &mut effects);
        let noted = writes(&mut effects);
        let is_note = |command: &CronCommand| matches!(command, CronCommand::NotDelivered { .. });
        assert_eq!(noted.len(), usize::from(said.is_some()));
        assert!(noted.iter().all(is_note), "{noted:?}");
    }
}
