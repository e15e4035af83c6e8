//! Scheduled jobs, whenever the process dies: none is lost silently, none runs twice.
//!
//! The real binary is killed (SIGKILL) again and again at seeded random moments while the embedded managed scheduler fires jobs at it: before a
//! claim, between a claim and its run, while the agent runs, between a run and its delivery, before the next arm. A last run works
//! everything off. Then every job is accounted for:
//!
//! - its agent was started at most once, as the agent itself notes;
//! - its chat got its answer or the notice that it was interrupted, once, and not both;
//! - the journal has one run of it, which is over, and the scheduler has exactly the jobs that will run again.
//!
//! The short form is 25 rounds. The long form: `CRON_ROUNDS=200 cargo test --all-features --test faults cron -- --nocapture`;
//! `CRASH_SEED` chooses another course.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, EmbeddedScheduler, SchedulerSettings};
use hermes_relay::cron::job::{JobOrigin, NewJob};
use hermes_relay::store::{CronCommand, CronFiles, CronReply, JobChange, JobRow, JobRunStatus, RunRow};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::rig::{Rng, env_number};
use crate::support::load::loading;
use crate::support::port::free_port;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually_within;

/// Jobs per round.
const JOBS: usize = 3;

/// What the agent does: it notes its message, and answers.
const AGENT: &str = "read -r line; echo \\\"$line\\\" >> \\\"$RUNS\\\"; sleep 0.2; echo \\\"ran $line\\\"";

fn run(files: &mut CronFiles, command: &CronCommand) -> CronReply {
    files.run(command).unwrap()
}

fn add(files: &mut CronFiles, schedule: &str, prompt: &str, random: u64) -> String {
    let new = NewJob {
        schedule: schedule.to_owned(),
        prompt: prompt.to_owned(),
        origin: Some(JobOrigin {
            platform: "discord".into(),
            chat_id: "home".into(),
            ..JobOrigin::default()
        }),
        ..NewJob::default()
    };
    let new = Box::new(new);
    let command = CronCommand::Change {
        change: JobChange::Add { new, random },
        maker: None,
        zone: TimeZone::UTC,
        now: Timestamp::now(),
    };
    match run(files, &command) {
        CronReply::Changed { job: Some(row), .. } => row.job.id().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn runs(files: &mut CronFiles) -> Vec<RunRow> {
    match run(
        files,
        &CronCommand::Runs {
            job: None,
            limit: 1_000,
        },
    ) {
        CronReply::Runs(runs) => runs,
        other => panic!("{other:?}"),
    }
}

fn jobs(files: &mut CronFiles) -> Vec<JobRow> {
    match run(files, &CronCommand::Jobs) {
        CronReply::Jobs(jobs, _) => jobs,
        other => panic!("{other:?}"),
    }
}

fn setup(managed: &EmbeddedScheduler, connector: &Connector, notes: &Path) -> Setup {
    let port = free_port();
    let chronos = format!(
        "{{portal_url: \"{}\", callback_url: \"http://127.0.0.1:{port}\", expected_audience: \"{}\", nas_jwks_url: \"{}\"}}",
        managed.portal_url(),
        managed.audience(),
        managed.jwks_url()
    );
    let script = AGENT.replace("$RUNS", &notes.display().to_string());
    let setup = Setup::for_connector(connector)
        .args(&["run", "--agent", "mark"])
        .env("PATH", "/usr/bin:/bin")
        .setting(
            "agents.mark",
            &format!("{{kind: command, argv: [/bin/sh, -c, \"{script}\"]}}"),
        )
        .setting("cron.provider", "chronos")
        .setting("cron.listen", &format!("\"127.0.0.1:{port}\""))
        .setting("cron.wrap_response", "false")
        .setting("cron.chronos", &chronos);
    managed.write_login(&setup.home()).unwrap();
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_job_is_lost_silently_and_none_runs_twice_whenever_the_process_dies() {
    let _shared = loading().await;
    let rounds = env_number("CRON_ROUNDS", 25);
    let mut rng = Rng::new(env_number("CRASH_SEED", 1) as u64);
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let notes = tempfile::tempdir().unwrap();
    let notes = notes.path().join("runs");
    let setup = setup(&managed, &connector, &notes);
    let mut files = CronFiles::open(&setup.state_dir(), false, 0).unwrap();
    add(&mut files, "every 2h", "again", 1);
    let mut all = BTreeMap::new();
    for round in 0..rounds {
        for job in 0..JOBS {
            let name = format!("job-{}", round * JOBS + job);
            let due = Timestamp::now().as_millisecond() + 100;
            let due = Timestamp::from_millisecond(due).unwrap().to_string();
            let id = add(&mut files, &due, &name, 1_000 + (round * JOBS + job) as u64);
            all.insert(name, id);
        }
        let mut relay = setup.start();
        // Some die while they start; the others at work, however long this machine takes to start them.
        if rng.percent(80) {
            relay.wait_for_log("connected to the connector").await;
            tokio::time::sleep(Duration::from_millis(rng.below(700))).await;
        } else {
            tokio::time::sleep(Duration::from_millis(rng.below(300))).await;
        }
        relay.kill().await;
    }
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    eventually_within(Duration::from_secs(120), "every job is over", async || {
        let runs = runs(&mut files);
        let over = runs.iter().filter(|run| run.ended_at.is_some()).count();
        if over == all.len() {
            Ok(())
        } else {
            Err((over, all.len()))
        }
    })
    .await;
    let texts = eventually_within(SOON, "every answer arrives", async || {
        let texts: Vec<String> = (connector.messages_in("home").into_iter())
            .map(|sent| sent.text)
            .collect();
        let told = |name: &str| {
            let (answer, quoted) = (format!("ran {name}"), format!("`{name}`"));
            texts.iter().any(|text| *text == answer || text.contains(&quoted))
        };
        let missing: Vec<&String> = all.keys().filter(|name| !told(name)).collect();
        if missing.is_empty() {
            Ok(texts)
        } else {
            Err(format!("{missing:?}"))
        }
    })
    .await;
    let runs = runs(&mut files);
    let started_jobs = std::fs::read_to_string(&notes).unwrap();
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, id) in &all {
        let started = started_jobs.lines().filter(|line| line == name).count();
        let of_job: Vec<&RunRow> = runs.iter().filter(|run| run.job == *id).collect();
        assert_eq!(of_job.len(), 1, "{name}: {of_job:?}");
        assert!(started <= 1, "{name} was started {started} times");
        let answer = format!("ran {name}");
        let answers = texts.iter().filter(|text| **text == answer).count();
        let notices = texts
            .iter()
            .filter(|text| text.contains(&format!("`{name}`")))
            .count();
        assert_eq!(
            (answers + notices, of_job[0].status == JobRunStatus::Completed),
            (1, answers == 1),
            "{name}: {answers} answers, {notices} notices, {of_job:?}"
        );
        *totals.entry(of_job[0].status.as_str()).or_default() += 1;
    }
    eventually_within(SOON, "exactly what runs again is armed", async || {
        let armed: Vec<String> = managed.view().armed.into_iter().map(|job| job.job_id).collect();
        let active: Vec<String> = (jobs(&mut files).iter())
            .filter(|row| row.job.is_active())
            .map(|row| row.job.id().to_owned())
            .collect();
        if armed == active {
            Ok(())
        } else {
            Err((armed, active))
        }
    })
    .await;
    let interrupted = totals.get("unknown").copied().unwrap_or(0);
    assert!(interrupted > 0 && interrupted < all.len(), "{totals:?}");
    eprintln!("{rounds} rounds, {} jobs: {totals:?}", all.len());
    relay.stop().await;
}
