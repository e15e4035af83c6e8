//! The whole way with the real program, the embedded managed scheduler and the embedded connector: arm, sleep, fire, wake, run, deliver, arm
//! anew.

use std::path::Path;

use crate::support::dev::{
    Connector, ConnectorSettings, EmbeddedScheduler, SchedulerFault, SchedulerSettings,
};
use hermes_relay::cron::job::{JobEdit, JobOrigin, NewJob};
use hermes_relay::store::{CronCommand, CronFiles, CronReply, JobChange, JobRunStatus, RunRow};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::support::port::free_port;
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;

struct Hosted {
    managed: EmbeddedScheduler,
    connector: Connector,
    setup: Setup,
}

/// A hosted relay that sleeps after so many seconds of silence.
async fn hosted(idle_secs: u32) -> Hosted {
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let port = free_port();
    let chronos = format!(
        "{{portal_url: \"{}\", callback_url: \"http://127.0.0.1:{port}\", expected_audience: \"{}\", nas_jwks_url: \"{}\"}}",
        managed.portal_url(),
        managed.audience(),
        managed.jwks_url()
    );
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_WAKE_URL", "http://127.0.0.1:9/wake")
        .env("HERMES_SCALE_TO_ZERO", "1")
        .setting("sleep.idle_secs", &idle_secs.to_string())
        .setting("cron.provider", "chronos")
        .setting("cron.listen", &format!("\"127.0.0.1:{port}\""))
        .setting("cron.wrap_response", "false")
        .setting("cron.chronos", &chronos);
    managed.write_login(&setup.home()).unwrap();
    Hosted {
        managed,
        connector,
        setup,
    }
}

fn files(dir: &Path) -> CronFiles {
    CronFiles::open(dir, false, Timestamp::now().as_millisecond()).unwrap()
}

fn add(dir: &Path, schedule: &str, prompt: &str) -> String {
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
    let command = CronCommand::Change {
        change: JobChange::Add {
            new: Box::new(new),
            random: 0xc0_ffee,
        },
        maker: None,
        zone: TimeZone::UTC,
        now: Timestamp::now(),
    };
    match files(dir).run(&command).unwrap() {
        CronReply::Changed { job: Some(row), .. } => row.job.id().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn runs(dir: &Path) -> Vec<RunRow> {
    match files(dir)
        .run(&CronCommand::Runs { job: None, limit: 99 })
        .unwrap()
    {
        CronReply::Runs(runs) => runs,
        other => panic!("{other:?}"),
    }
}

impl Hosted {
    async fn armed(&self) -> String {
        eventually("the job is armed", async || {
            self.managed.view().armed.first().map(|job| job.fire_at.clone())
        })
        .await
    }
}

#[tokio::test]
async fn a_job_is_armed_before_a_sleep_fired_after_it_runs_once_and_is_armed_anew() {
    // It is fired at while it is idle, before it sleeps.
    let hosted = hosted(4).await;
    let state_dir = hosted.setup.state_dir();
    // Sixty seconds ahead at most, so that a fire owns it at once.
    let id = add(&state_dir, "every 1m", "the hourly look");
    hosted.managed.fault(SchedulerFault::Outage);
    let mut relay = hosted.setup.start();
    relay.wait_for_log("connected to the connector").await;
    eventually("an arm fails", async || hosted.managed.requests().len() >= 2).await;
    assert!(!relay.has_ended(), "it does not sleep before the job is armed");
    hosted.managed.mend(SchedulerFault::Outage);
    let first = hosted.armed().await;
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());

    let nobody = hosted.managed.fire_now(&id).await.unwrap();
    assert_eq!(nobody.status, None, "the relay sleeps");
    let mut relay = hosted.setup.start();
    relay.wait_for_log("connected to the connector").await;
    let mut answers = hosted
        .managed
        .fire_twice(&id)
        .await
        .unwrap()
        .map(|attempt| attempt.status);
    answers.sort_unstable();
    assert_eq!(answers, [Some(200), Some(202)], "one fire owns the occurrence");
    eventually("the answer arrives", async || {
        !hosted.connector.messages_in("home").is_empty()
    })
    .await;
    let again = eventually("it is armed anew", async || {
        let armed = hosted.managed.view().armed.first().map(|job| job.fire_at.clone());
        armed.filter(|fire_at| *fire_at != first)
    })
    .await;
    assert!(again > first, "{again} after {first}");
    assert_eq!(
        relay.exit_code(SOON).await,
        0,
        "it sleeps again: {}",
        relay.stderr()
    );
    let texts: Vec<String> = (hosted.connector.messages_in("home").into_iter())
        .map(|sent| sent.text)
        .collect();
    assert_eq!(texts, ["echo: the hourly look"]);
    let runs = runs(&state_dir);
    assert_eq!(
        (runs.len(), runs[0].status),
        (1, JobRunStatus::Completed),
        "{runs:?}"
    );
}

#[tokio::test]
async fn a_job_of_a_relay_that_was_down_runs_when_it_is_up_again() {
    let hosted = hosted(1).await;
    let state_dir = hosted.setup.state_dir();
    // Late enough for a busy machine to start it, and for it to sleep before that.
    let at = Timestamp::now().as_second() + 15;
    let at = Timestamp::from_second(at).unwrap().to_string();
    add(&state_dir, &at, "once");
    let mut relay = hosted.setup.start();
    hosted.armed().await;
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    eventually("the scheduler finds nobody", async || {
        let attempts = hosted.managed.view().attempts;
        attempts.iter().any(|attempt| attempt.status.is_none())
    })
    .await;
    // As the host does when a request comes for a container that sleeps.
    let mut relay = hosted.setup.start();
    eventually("the answer arrives", async || {
        !hosted.connector.messages_in("home").is_empty()
    })
    .await;
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    assert_eq!(runs(&state_dir).len(), 1);
    let view = hosted.managed.view();
    assert_eq!(view.armed, [], "it has run for the last time");
}

#[tokio::test]
async fn a_job_whose_alarm_met_a_run_that_somebody_asked_for_runs_after_it() {
    let hosted = hosted(1).await;
    let setup = hosted.setup.setting("cron.misfire_grace_minutes", "0");
    let state_dir = setup.state_dir();
    let at = Timestamp::from_second(Timestamp::now().as_second() + 15).unwrap();
    let id = add(&state_dir, &at.to_string(), "sleep=600000 slow");
    let change = |change: JobChange| {
        let command = CronCommand::Change {
            change,
            maker: None,
            zone: TimeZone::UTC,
            now: Timestamp::now(),
        };
        let reply = files(&state_dir).run(&command).unwrap();
        assert!(matches!(reply, CronReply::Changed { .. }), "{reply:?}");
    };
    change(JobChange::Run { job: id.clone() });
    let mut relay = setup.start();
    eventually("it runs", async || {
        runs(&state_dir)
            .iter()
            .any(|run| run.status == JobRunStatus::Running)
    })
    .await;
    assert!(Timestamp::now() < at, "it runs before its time");
    let met = eventually("the alarm goes off", async || {
        hosted.managed.view().attempts.first().cloned()
    })
    .await;
    assert_eq!((met.status, met.answer.as_str()), (Some(200), "duplicate"));
    let edit = JobEdit {
        prompt: Some("quick".to_owned()),
        ..JobEdit::default()
    };
    let (job, edit) = (id.clone(), Box::new(edit));
    change(JobChange::Edit { job, edit });
    let session = format!("cron:{id}");
    let stopped = setup.verb(&["sessions", "stop", &session]).output().await;
    assert!(stopped.unwrap().status.success());
    eventually("the answer arrives", async || {
        let messages = hosted.connector.messages_in("home");
        messages.iter().any(|sent| sent.text == "echo: quick")
    })
    .await;
    // It sleeps when that is done, and not before.
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    let occurrences: Vec<_> = runs(&state_dir).iter().map(|run| run.occurrence).collect();
    assert_eq!(occurrences, [Some(at), None], "the newest first");
    assert_eq!(hosted.managed.view().armed, []);
}

#[tokio::test]
async fn a_fire_under_keys_that_were_rotated_is_accepted() {
    let hosted = hosted(1).await;
    let setup = hosted.setup.without_env("HERMES_SCALE_TO_ZERO");
    let state_dir = setup.state_dir();
    let id = add(&state_dir, "every 1m", "rotated");
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    eventually("the job is armed", async || {
        !hosted.managed.view().armed.is_empty()
    })
    .await;
    let before = hosted.managed.key_fetches();
    hosted.managed.rotate_keys().unwrap();
    let fired = hosted.managed.fire_now(&id).await.unwrap();
    assert_eq!(fired.status, Some(202), "{}", fired.answer);
    assert!(hosted.managed.key_fetches() > before);
    relay.stop().await;
}
