//! Scheduled jobs in a running relay: claimed once, run as turns of their own, delivered to their targets.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hermes_relay::access::{AccessRequest, ByRole, ChatRule, Mode, PersonRule, Role};
use hermes_relay::agent::{AgentEvent, EchoAgent, Media, MediaLocation, PromptAnswer, Truncation, TurnEnd};
use hermes_relay::config::{CronProvider, Settings};
use hermes_relay::cron::fire::{AdmitFire as _, FireAdmission, FireRequest};
use hermes_relay::cron::job::{JobOrigin, JobState, NewJob};
use hermes_relay::relay::SeenOp;
use hermes_relay::skill::{SkillStatus, SkillStore as _, SkillWrite};
use hermes_relay::store::{ClaimReply, RunSource, SqliteSkillStore};
use hermes_relay::store::{
    CronCommand, CronFiles, CronReply, JobChange, JobRow, JobRunStatus, RunRow, current_owner,
};
use hermes_relay::wire::CapabilityDescriptor;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use crate::prompts::{BUTTONS, Stubborn, press, start_asking};
use crate::support::memory_relay::{Running, event, start_on, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;

fn now() -> Timestamp {
    Timestamp::now()
}

fn files(dir: &Path) -> CronFiles {
    CronFiles::open(dir, false, now().as_millisecond()).unwrap()
}

fn change(files: &mut CronFiles, change: JobChange) -> JobRow {
    let command = CronCommand::Change {
        change,
        maker: None,
        zone: TimeZone::UTC,
        now: now(),
    };
    match files.run(&command).unwrap() {
        CronReply::Changed { job: Some(job), .. } => *job,
        other => panic!("{other:?}"),
    }
}

fn new_job(schedule: &str, prompt: &str) -> NewJob {
    NewJob {
        schedule: schedule.to_owned(),
        prompt: prompt.to_owned(),
        origin: Some(JobOrigin {
            platform: "discord".into(),
            chat_id: "home".into(),
            ..JobOrigin::default()
        }),
        ..NewJob::default()
    }
}

fn add(files: &mut CronFiles, new: NewJob) -> String {
    let new = Box::new(new);
    let random = new.prompt.len() as u64;
    change(files, JobChange::Add { new, random }).job.id().to_owned()
}

fn runs(files: &mut CronFiles) -> Vec<RunRow> {
    let command = CronCommand::Runs { job: None, limit: 99 };
    match files.run(&command).unwrap() {
        CronReply::Runs(runs) => runs,
        other => panic!("{other:?}"),
    }
}

fn in_seconds(seconds: i64) -> String {
    (now() + seconds.seconds()).to_string()
}

/// The prompt's own words in an echoed answer.
fn plain(settings: &mut Settings) {
    settings.cron.wrap_response = false;
    settings.streaming.typing = false;
}

async fn fire(relay: &Running, job: &str, fire_at: Option<&str>) -> FireAdmission {
    let request = FireRequest {
        job_id: job.to_owned(),
        fire_at: fire_at.map(str::to_owned),
    };
    relay.handle.admit(request).await
}

async fn ended(files: &mut CronFiles, count: usize) -> Vec<RunRow> {
    eventually("the runs end", async || {
        let runs = runs(files);
        let over = runs.iter().filter(|run| run.ended_at.is_some()).count();
        (over >= count).then_some(runs)
    })
    .await
}

#[tokio::test]
async fn a_due_job_runs_once_and_its_answer_reaches_a_chat_that_never_spoke() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let id = add(&mut files, new_job("in 1m", "say=hi"));
    let due = JobChange::Run { job: id.clone() };
    change(&mut files, due);
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let texts = relay.replies("home", 1).await;
    assert!(texts[0].contains("say=hi"), "{texts:?}");
    let runs = ended(&mut files, 1).await;
    assert_eq!(
        (runs.len(), runs[0].status),
        (1, JobRunStatus::Completed),
        "{runs:?}"
    );
    let output = dir.path().join(runs[0].output.as_deref().unwrap());
    let saved = eventually("the output is saved", async || {
        std::fs::read_to_string(&output).ok()
    })
    .await;
    assert!(saved.contains("say=hi"));
    relay.stop().await;
}

/// Whether the answer of a job rings.
async fn rings(dir: &Path, files: &mut CronFiles, adjust: impl FnOnce(&mut Settings)) -> bool {
    let id = add(files, new_job("in 1m", "say=hi"));
    change(files, JobChange::Run { job: id.clone() });
    let relay = start_with(dir, EchoAgent, |settings| {
        plain(settings);
        settings.cron.timezone = Some("UTC".to_owned());
        adjust(settings);
    })
    .await;
    relay.replies("home", 1).await;
    let seen = relay.stop().await;
    change(files, JobChange::Remove { job: id });
    let answer = seen.ops.iter().rfind(|op| op.kind() == Some("send")).unwrap();
    answer.action["metadata"]["notify"] == true
}

#[tokio::test]
async fn the_answer_of_a_job_rings_nobody_in_quiet_hours() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    assert!(rings(dir.path(), &mut files, |_| {}).await);
    let hour = now().to_zoned(TimeZone::UTC).hour();
    let hours = format!("{:02}:00-{:02}:00", (hour + 23) % 24, (hour + 2) % 24);
    let quiet = |settings: &mut Settings| settings.chat.quiet_hours = Some(hours.parse().unwrap());
    assert!(!rings(dir.path(), &mut files, quiet).await);
}

#[tokio::test]
async fn what_a_person_chose_holds_for_their_jobs_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let hour = now().to_zoned(TimeZone::UTC).hour();
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        plain(settings);
        settings.cron.timezone = Some("UTC".to_owned());
    })
    .await;
    let hours = format!("{:02}:00-{:02}:00", (hour + 23) % 24, (hour + 2) % 24);
    relay.deliver("home", "1", &format!("/quiet {hours}")).await;
    relay.replies("home", 1).await;
    relay.stop().await;
    assert!(!rings(dir.path(), &mut files, |_| {}).await);
}

#[tokio::test]
async fn the_timer_claims_what_is_due_and_computes_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let once = add(&mut files, new_job(&in_seconds(1), "once"));
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let every = add(&mut files, new_job("every 1h", "hourly"));
    assert!(relay.handle.jobs_changed().await.is_ok());
    let texts = relay.replies("home", 1).await;
    assert!(texts[0].contains("once"), "{texts:?}");
    ended(&mut files, 1).await;
    let status = relay
        .wait_for_status("the run is counted", |status| status.cron.completed == 1)
        .await;
    assert_eq!(
        (status.cron.provider, status.cron.jobs, status.cron.armed),
        ("builtin", 1, None)
    );
    assert!(status.cron.next_run_at.is_some());
    assert_eq!(
        fire(&relay, &once, None).await,
        FireAdmission::Gone,
        "it has run for the last time"
    );
    assert!(matches!(
        fire(&relay, &every, None).await,
        FireAdmission::Early { .. }
    ));
    assert_eq!(runs(&mut files).len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_fire_owns_its_occurrence_and_the_same_one_never_runs_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let at = in_seconds(30);
    let id = add(&mut files, new_job(&at, "fired"));
    let settings = |settings: &mut Settings| {
        plain(settings);
        settings.cron.provider = CronProvider::Off;
    };
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    let eight = (0..8).map(|_| fire(&relay, &id, Some(&at)));
    let admissions = futures_util::future::join_all(eight).await;
    let accepted = |admission: &&FireAdmission| **admission == FireAdmission::Accepted;
    assert_eq!(admissions.iter().filter(accepted).count(), 1, "{admissions:?}");
    relay.replies("home", 1).await;
    ended(&mut files, 1).await;
    assert_ne!(
        fire(&relay, &id, Some(&at)).await,
        FireAdmission::Accepted,
        "after completion"
    );
    relay.stop().await;
    let relay = start_with(dir.path(), EchoAgent, settings).await;
    assert_ne!(
        fire(&relay, &id, Some(&at)).await,
        FireAdmission::Accepted,
        "after a restart"
    );
    assert_eq!(fire(&relay, "ffffffffffff", None).await, FireAdmission::Gone);
    assert_eq!(runs(&mut files).len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_paused_job_is_a_duplicate_and_a_relay_that_shuts_down_refuses_for_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let at = in_seconds(5);
    let id = add(&mut files, new_job(&at, "sleep=3000 draining"));
    change(
        &mut files,
        JobChange::Pause {
            job: id.clone(),
            reason: None,
        },
    );
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    assert_eq!(fire(&relay, &id, Some(&at)).await, FireAdmission::Duplicate);
    relay.deliver("other", "1", "sleep=1500 keeps it alive").await;
    relay.wait_for_turns(1).await;
    let handle = relay.handle.clone();
    let ending = relay.ask_to_stop();
    let refused = eventually("the drain begins", async || {
        let request = FireRequest {
            job_id: id.clone(),
            fire_at: Some(at.clone()),
        };
        (handle.admit(request).await == FireAdmission::Draining).then_some(())
    });
    refused.await;
    ending.ended().await;
    assert!(runs(&mut files).is_empty(), "nothing was consumed");
}

#[tokio::test]
async fn a_claim_without_a_run_is_taken_over_and_a_run_without_an_end_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let claimed = add(&mut files, new_job(&in_seconds(1), "claimed"));
    let began = add(&mut files, new_job(&in_seconds(1), "began before"));
    // What a process left that is gone: another start time of this process id.
    let mut gone = current_owner(7);
    gone.start = "earlier".into();
    for (index, id) in [&claimed, &began].into_iter().enumerate() {
        let owner = gone.with_random(index as u64);
        let claim = CronCommand::Claim {
            job: id.clone(),
            fire_at: None,
            source: RunSource::Chronos,
            owner: owner.clone(),
            zone: TimeZone::UTC,
            now: now(),
        };
        let CronReply::Claim(ClaimReply::Claimed { run, .. }) = files.run(&claim).unwrap() else {
            panic!("not claimed")
        };
        if id == &began {
            let mark = CronCommand::Begin {
                seq: run.seq,
                owner,
                now: now(),
            };
            assert_eq!(files.run(&mark).unwrap(), CronReply::Held(true));
        }
    }
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let texts = relay.replies("home", 2).await;
    assert!(
        texts
            .iter()
            .any(|text| text.contains("claimed") && !text.contains("failed")),
        "{texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("failed: the relay was restarted")),
        "{texts:?}"
    );
    ended(&mut files, 2).await;
    relay.stop().await;
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    relay.deliver("other", "1", "hi").await;
    relay.replies("other", 1).await;
    let seen = relay.stop().await;
    assert!(
        seen.texts("home").is_empty(),
        "reported once: {:?}",
        seen.texts("home")
    );
}

#[test]
fn a_run_that_was_cut_short_is_found_again_until_that_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let id = add(&mut files, new_job(&in_seconds(1), "cut short"));
    let mut gone = current_owner(7);
    gone.start = "earlier".into();
    let claim = CronCommand::Claim {
        job: id,
        fire_at: None,
        source: RunSource::Chronos,
        owner: gone.clone(),
        zone: TimeZone::UTC,
        now: now(),
    };
    let CronReply::Claim(ClaimReply::Claimed { run, .. }) = files.run(&claim).unwrap() else {
        panic!("not claimed")
    };
    let (seq, owner) = (run.seq, gone);
    let begin = CronCommand::Begin {
        seq,
        owner,
        now: now(),
    };
    assert_eq!(files.run(&begin).unwrap(), CronReply::Held(true));

    let found = |files: &mut CronFiles| {
        let owner = current_owner(8);
        match files.run(&CronCommand::Recover { owner, now: now() }).unwrap() {
            CronReply::Recovered { interrupted, .. } => interrupted.len(),
            other => panic!("{other:?}"),
        }
    };
    // A relay that dies before it has told anybody leaves it to the next one.
    assert_eq!((found(&mut files), found(&mut files)), (1, 1));
    let (zone, now) = (TimeZone::UTC, now());
    let noted = CronCommand::Interrupted { seq, zone, now };
    let is_noted = |files: &mut CronFiles| match files.run(&noted).unwrap() {
        CronReply::Finished { held, .. } => held,
        other => panic!("{other:?}"),
    };
    assert!(is_noted(&mut files) && !is_noted(&mut files), "once");
    assert_eq!(found(&mut files), 0);
    assert_eq!(runs(&mut files)[0].status, JobRunStatus::Unknown);
}

#[tokio::test]
async fn a_job_is_listed_can_be_stopped_and_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let slow = add(&mut files, new_job("every 2h", "sleep=60000 slow"));
    let mut limited = new_job("every 3h", "sleep=60000 too slow");
    limited.timeout_secs = Some(1);
    let limited = add(&mut files, limited);
    for id in [&slow, &limited] {
        change(&mut files, JobChange::Run { job: id.clone() });
    }
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let key = format!("cron:{slow}");
    eventually("the job is listed", async || {
        let sessions = relay.handle.sessions(9).await.unwrap().sessions;
        sessions
            .iter()
            .any(|session| session.session == key && session.state == "running")
            .then_some(())
    })
    .await;
    let texts = relay.replies("home", 1).await;
    assert!(texts[0].contains("failed: it took longer than 1 s"), "{texts:?}");
    relay
        .handle
        .stop_turn(hermes_relay::wire::SessionKey::from_text(key))
        .await
        .unwrap();
    let runs = ended(&mut files, 2).await;
    assert!(
        runs.iter().all(|run| run.status == JobRunStatus::Failed),
        "{runs:?}"
    );
    let seen = relay.stop().await;
    assert_eq!(
        seen.texts("home").len(),
        1,
        "whoever stops a job knows: {:?}",
        seen.texts("home")
    );
}

#[tokio::test]
async fn silence_delivers_nothing_and_a_failure_is_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let quiet = add(
        &mut files,
        NewJob {
            deliver: Some("local".into()),
            ..new_job("every 2h", "quiet")
        },
    );
    let failing = add(&mut files, new_job("every 3h", "fail"));
    for id in [&quiet, &failing] {
        change(&mut files, JobChange::Run { job: id.clone() });
    }
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let runs = ended(&mut files, 2).await;
    let status = |id: &str| runs.iter().find(|run| run.job == id).unwrap().status;
    assert_eq!(status(&quiet), JobRunStatus::Completed);
    let texts = relay.replies("home", 1).await;
    let seen = relay.stop().await;
    assert_eq!(seen.texts("home").len(), 1, "{texts:?}");
}

/// What the targets of a job read, and the saved answer, when its agent says this and ends so.
async fn answered(says: Vec<AgentEvent>, end: TurnEnd) -> (Vec<String>, RunRow, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let id = add(&mut files, new_job("in 1m", "report"));
    change(&mut files, JobChange::Run { job: id });
    let agent = ScriptedAgent::new(move |turn| {
        let (says, end) = (says.clone(), end.clone());
        async move {
            for event in says {
                turn.events.emit(event).await;
            }
            end
        }
    });
    let relay = start_with(dir.path(), agent, plain).await;
    let run = ended(&mut files, 1).await.remove(0);
    let output = dir.path().join(run.output.as_deref().unwrap());
    let page = eventually("the output is saved", async || {
        std::fs::read_to_string(&output).ok()
    })
    .await;
    let (_, answer) = page.split_once("## Answer\n\n").unwrap();
    let texts = relay.stop().await;
    let texts = texts.texts("home").into_iter().map(str::to_owned).collect();
    (texts, run, answer.trim_end().to_owned())
}

#[tokio::test]
async fn the_answer_of_a_job_says_that_it_was_cut_short() {
    let says = || vec![AgentEvent::Text("half of it".to_owned())];
    let cut = TurnEnd::Truncated(Truncation::Steps);
    let whole = "half of it\n\n[stopped: the turn reached its step limit]";
    let (texts, run, saved) = answered(says(), cut.clone()).await;
    assert_eq!(
        (texts, run.status),
        (vec![whole.to_owned()], JobRunStatus::Completed)
    );
    assert_eq!(saved, whole);
    let silence = vec![AgentEvent::Text("[SILENT]".to_owned())];
    let (texts, ..) = answered(silence, cut.clone()).await;
    assert!(texts.is_empty(), "{texts:?}");
    let (texts, run, _) = answered(Vec::new(), cut).await;
    assert_eq!(run.status, JobRunStatus::Failed);
    assert!(texts[0].contains("the turn reached its step limit"), "{texts:?}");
}

#[tokio::test]
async fn the_saved_answer_of_a_job_says_that_it_was_too_long() {
    for end in [TurnEnd::Completed, TurnEnd::Truncated(Truncation::Size)] {
        let long = AgentEvent::Text("x".repeat(2 << 20));
        let says = vec![AgentEvent::Text("[SILENT]\n".to_owned()), long];
        let (texts, _, saved) = answered(says, end).await;
        assert!(texts.is_empty());
        assert!(saved.ends_with("xx\n\n[truncated: the answer is too long]"));
    }
}

#[tokio::test]
async fn a_job_whose_agent_declines_says_so() {
    let (texts, run, saved) = answered(Vec::new(), TurnEnd::Refused).await;
    assert_eq!(run.status, JobRunStatus::Failed);
    assert!(
        texts[0].ends_with("failed: The agent declined to answer."),
        "{texts:?}"
    );
    assert_eq!(saved, "Failed: The agent declined to answer.");
    let says = vec![AgentEvent::Text("Not this.".to_owned())];
    let (texts, ..) = answered(says, TurnEnd::Refused).await;
    assert_eq!(texts, ["Not this.\n\nThe agent declined to answer."]);
}

#[tokio::test]
async fn a_line_of_text_replaces_a_file_of_a_job() {
    let chart = AgentEvent::Media(Media {
        location: MediaLocation::File("chart.png".into()),
        caption: "July".to_owned(),
        kind: None,
        name: None,
    });
    let line = "July\n(could not deliver chart.png)";
    let (texts, run, _) = answered(vec![chart.clone()], TurnEnd::Completed).await;
    assert_eq!(
        (texts, run.status),
        (vec![line.to_owned()], JobRunStatus::Completed)
    );
    let text = |text: &str| AgentEvent::Text(text.to_owned());
    let says = vec![text("Here it is:"), chart, text("Anything else?")];
    let (texts, _, saved) = answered(says, TurnEnd::Completed).await;
    assert_eq!(texts, [format!("Here it is:\n\n{line}\n\nAnything else?")]);
    assert_eq!(saved, texts[0]);
}

#[tokio::test]
async fn an_output_that_cannot_be_saved_is_an_error_of_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    std::fs::write(dir.path().join("cron"), "in the way").unwrap();
    let kept = NewJob {
        deliver: Some("local".into()),
        ..new_job("every 2h", "kept")
    };
    let ids = [
        add(&mut files, kept),
        add(&mut files, new_job("every 3h", "delivered")),
    ];
    for id in &ids {
        change(&mut files, JobChange::Run { job: id.clone() });
    }
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    relay.replies("home", 1).await;
    eventually("both errors are noted", async || {
        let runs = runs(&mut files);
        let has_error = |run: &&RunRow| {
            let error = run.delivery_error.as_deref();
            error.is_some_and(|error| error.starts_with("the output was not saved: "))
        };
        let noted = runs.iter().filter(has_error).count() == 2;
        if noted { Ok(()) } else { Err(runs) }
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_chat_lists_and_changes_its_own_jobs_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let foreign = add(&mut files, new_job("every 2h", "of another chat"));
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let mut asked = 0;
    let mut ask = async |text: &str| {
        asked += 1;
        relay.deliver("c1", &format!("m{asked}"), text).await;
        relay.replies("c1", asked).await.pop().unwrap()
    };
    assert!(ask("/cron").await.starts_with("This chat has no jobs."));
    let added = ask("/cron add weekdays at 9am What is up?").await;
    let rest = added
        .strip_prefix("Added job ")
        .unwrap_or_else(|| panic!("{added}"));
    let id = rest.split(':').next().unwrap().to_owned();
    assert!(added.contains("Next runs: "), "{added}");
    let listed = ask("/cron list").await;
    assert!(listed.starts_with(&id) && !listed.contains(&foreign), "{listed}");
    for change in ["pause", "resume", "remove"] {
        let refused = ask(&format!("/cron {change} {foreign}")).await;
        assert!(refused.contains("no job"), "{refused}");
    }
    assert!(ask(&format!("/cron pause {id}")).await.starts_with("Paused"));
    assert!(ask("/cron list").await.ends_with("paused"));
    let resumed = ask("/cron resume what is up?").await;
    assert!(
        resumed.starts_with(&format!("Resumed job {id}")),
        "by its name: {resumed}"
    );
    assert!(ask(&format!("/cron remove {id}")).await.starts_with("Removed"));
    assert!(ask("/cron list").await.starts_with("This chat has no jobs."));
    let wrong = ask("/cron add tomorrow water the plants").await;
    assert!(wrong.contains("has no time of day"), "{wrong}");
    relay.stop().await;
}

#[tokio::test]
async fn a_command_that_is_read_again_after_a_crash_makes_its_job_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let new = || JobChange::Add {
        new: Box::new(new_job("every 2h", "once")),
        random: 99,
    };
    let first = change(&mut files, new());
    assert_eq!(change(&mut files, new()).job.id(), first.job.id());
    let other = JobChange::Add {
        new: Box::new(new_job("every 2h", "something else")),
        random: 99,
    };
    assert_ne!(change(&mut files, other).job.id(), first.job.id());
}

#[tokio::test]
async fn a_run_that_was_asked_for_while_the_job_runs_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let id = add(&mut files, new_job("every 2h", "sleep=700 slow"));
    change(&mut files, JobChange::Run { job: id.clone() });
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    relay.wait_for_turns(1).await;
    change(&mut files, JobChange::Run { job: id.clone() });
    assert!(relay.handle.jobs_changed().await.is_ok());
    let runs = ended(&mut files, 2).await;
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!(relay.replies("home", 2).await.len(), 2);
    relay.stop().await;
}

/// A job that was deleted, and imported again as it was.
#[tokio::test]
async fn an_imported_job_does_not_run_an_occurrence_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let at = in_seconds(0);
    let id = add(&mut files, new_job("every 2h", "imported"));
    let job = change(
        &mut files,
        JobChange::Pause {
            job: id.clone(),
            reason: None,
        },
    )
    .job;
    let mut record = job.to_value();
    record["next_run_at"] = at.clone().into();
    record["enabled"] = true.into();
    record["state"] = "scheduled".into();
    let import = || CronCommand::Change {
        change: JobChange::Import {
            records: vec![record.clone()],
            rest: serde_json::Map::new(),
        },
        maker: None,
        zone: TimeZone::UTC,
        now: now(),
    };
    files.run(&import()).unwrap();
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    ended(&mut files, 1).await;
    change(&mut files, JobChange::Remove { job: id.clone() });
    files.run(&import()).unwrap();
    assert!(relay.handle.jobs_changed().await.is_ok());
    relay
        .wait_for_status("it goes on with its next time", |status| {
            let next = status.cron.next_run_at.as_deref();
            next.and_then(|next| next.parse::<Timestamp>().ok())
                .is_some_and(|next| next > now())
        })
        .await;
    assert_eq!(runs(&mut files).len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_run_counts_as_a_turn_of_whoever_made_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let of = |user: &str, prompt: &str| {
        let mut new = new_job("every 2h", prompt);
        new.origin.as_mut().unwrap().user_id = Some(user.to_owned());
        new
    };
    let ids = [
        add(&mut files, of("u1", "first")),
        add(&mut files, of("u1", "second one")),
        add(&mut files, of("stranger", "of a stranger")),
    ];
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        plain(settings);
        settings.access.mode = Mode::List;
        settings.access.people = vec![PersonRule {
            platform: "discord".to_owned(),
            user: "u1".to_owned(),
            role: Role::User,
            ..PersonRule::default()
        }];
        settings.access.limits.turns_per_day = Some(ByRole::All(1));
    })
    .await;
    for (index, id) in ids.iter().enumerate() {
        change(&mut files, JobChange::Run { job: id.clone() });
        assert!(relay.handle.jobs_changed().await.is_ok());
        ended(&mut files, index + 1).await;
    }
    let runs = runs(&mut files);
    let error = |id: &str| runs.iter().find(|run| run.job == id).unwrap().error.clone();
    assert_eq!(error(&ids[0]), None);
    assert!(error(&ids[1]).unwrap().contains("limit"), "{runs:?}");
    assert!(error(&ids[2]).unwrap().contains("no access"), "{runs:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_route_of_the_chat_holds_for_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let routed = add(&mut files, new_job("every 2h", "routed"));
    change(&mut files, JobChange::Run { job: routed });
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        plain(settings);
        settings.routes =
            vec![serde_json::from_value(serde_json::json!({"chat": "home", "agent": "noop"})).unwrap()];
    })
    .await;
    let runs = ended(&mut files, 1).await;
    assert!(
        runs[0]
            .error
            .as_deref()
            .is_some_and(|error| error.contains("no answer")),
        "the agent that says nothing: {runs:?}"
    );
    relay.stop().await;
}

/// Every claimant has a connection of its own, as a process has.
#[test]
fn of_many_claimants_of_an_occurrence_one_wins() {
    const CLAIMANTS: u64 = 8;
    let dir = tempfile::tempdir().unwrap();
    let mut files_here = files(dir.path());
    for round in 0..10_u64 {
        let at = in_seconds(30);
        let mut new = new_job(&at, "contested");
        new.prompt = format!("contested {round}");
        let change_command = JobChange::Add {
            new: Box::new(new),
            random: 7_000 + round,
        };
        let id = change(&mut files_here, change_command).job.id().to_owned();
        let barrier = std::sync::Barrier::new(usize::try_from(CLAIMANTS).unwrap());
        let replies: Vec<CronReply> = std::thread::scope(|scope| {
            let claimants: Vec<_> = (0..CLAIMANTS)
                .map(|claimant| {
                    let (id, barrier, path) = (id.clone(), &barrier, dir.path());
                    scope.spawn(move || {
                        let mut own = files(path);
                        let claim = CronCommand::Claim {
                            job: id,
                            fire_at: None,
                            source: RunSource::Chronos,
                            owner: current_owner(1 + claimant),
                            zone: TimeZone::UTC,
                            now: now(),
                        };
                        barrier.wait();
                        own.run(&claim).unwrap()
                    })
                })
                .collect();
            claimants
                .into_iter()
                .map(|claimant| claimant.join().unwrap())
                .collect()
        });
        let won = |reply: &&CronReply| matches!(reply, CronReply::Claim(ClaimReply::Claimed { .. }));
        assert_eq!(replies.iter().filter(won).count(), 1, "{replies:?}");
    }
}

/// A job that `user` made on `platform`, in the chat `home`, with the answer going elsewhere.
fn job_of(platform: &str, user: &str, deliver: &str, prompt: &str) -> NewJob {
    NewJob {
        deliver: Some(deliver.to_owned()),
        origin: Some(JobOrigin {
            platform: platform.to_owned(),
            chat_id: "home".to_owned(),
            user_id: Some(user.to_owned()),
            ..JobOrigin::default()
        }),
        ..new_job("every 2h", prompt)
    }
}

#[tokio::test]
async fn a_job_belongs_to_whoever_made_it_wherever_its_answer_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    // `Acme-Chat` is a platform of the connector's own.
    let jobs = [
        ("discord", "local"),
        ("discord", "discord:other"),
        ("discord", "Acme-Chat:other"),
        ("Acme-Chat", "origin"),
        ("acme-chat", "discord:other"),
    ];
    let add_all = |files: &mut CronFiles, user: &str| -> Vec<String> {
        let each = jobs.iter().enumerate();
        each.map(|(number, (platform, deliver))| {
            let prompt = format!("of {user} {}", "x".repeat(number));
            add(files, job_of(platform, user, deliver, &prompt))
        })
        .collect()
    };
    let (allowed, denied) = (add_all(&mut files, "ann"), add_all(&mut files, "mallory"));
    let own = CapabilityDescriptor::placeholder("Acme-Chat");
    let relay = start_on(dir.path(), EchoAgent, &own, |settings| {
        plain(settings);
        settings.access.mode = Mode::List;
        settings.cron.max_parallel_jobs = 1;
        let rule = |platform: &str| PersonRule {
            platform: platform.to_owned(),
            user: "ann".to_owned(),
            role: Role::User,
            ..PersonRule::default()
        };
        settings.access.people = vec![rule("discord"), rule("Acme-Chat")];
    })
    .await;
    for id in allowed.iter().chain(&denied) {
        change(&mut files, JobChange::Run { job: id.clone() });
    }
    assert!(relay.handle.jobs_changed().await.is_ok());
    let runs = ended(&mut files, 2 * jobs.len()).await;
    for run in &runs {
        let error = run.error.as_deref().unwrap_or_default();
        if allowed.contains(&run.job) {
            assert_eq!(error, "", "{run:?}");
        } else {
            assert!(error.contains("no access"), "{run:?}");
        }
    }
    // Each run would be refused: the job waits until somebody resumes it.
    let paused = eventually("paused jobs", async || {
        let Ok(CronReply::Jobs(rows, _)) = files.run(&CronCommand::Jobs) else {
            panic!("no jobs")
        };
        let paused = rows.into_iter().filter(|row| row.job.state() == JobState::Paused);
        let paused: Vec<JobRow> = paused.collect();
        if paused.len() == denied.len() {
            Ok(paused)
        } else {
            Err(paused.len())
        }
    })
    .await;
    for row in &paused {
        assert!(denied.iter().any(|id| id == row.job.id()), "{row:?}");
        let reason = row.job.paused_reason().unwrap();
        assert!(
            reason.ends_with(":mallory, who made it, has no access any more"),
            "{reason}"
        );
    }
    let record = relay.stop().await;
    assert!(record.texts("home").iter().any(|text| text.contains("of ann")));
}

/// The jobs by their prompts, each with why it is paused, if it is.
fn paused(files: &mut CronFiles) -> BTreeMap<String, Option<String>> {
    let Ok(CronReply::Jobs(rows, _)) = files.run(&CronCommand::Jobs) else {
        panic!("no jobs")
    };
    let reason = |row: &JobRow| {
        let is_paused = row.job.state() == JobState::Paused;
        is_paused.then(|| row.job.paused_reason().unwrap_or_default().to_owned())
    };
    rows.iter()
        .map(|row| (row.job.prompt().to_owned(), reason(row)))
        .collect()
}

async fn change_rules(relay: &Running, request: AccessRequest) {
    relay.handle.access(request).await.unwrap().unwrap();
}

fn allow(person: &str, role: Option<Role>) -> AccessRequest {
    AccessRequest::Allow {
        person: person.to_owned(),
        role,
        agents: None,
        chats: None,
    }
}

/// `bob`, and whoever writes in the chat `team`.
fn bob_and_the_team(settings: &mut Settings) {
    plain(settings);
    settings.access.mode = Mode::List;
    settings.access.people = vec![PersonRule {
        platform: "discord".to_owned(),
        user: "bob".to_owned(),
        ..PersonRule::default()
    }];
    settings.access.chats = vec![ChatRule {
        platform: "discord".to_owned(),
        chat: "team".to_owned(),
        role: Role::User,
        agents: None,
    }];
}

#[tokio::test]
async fn whoever_is_forgotten_has_no_jobs_that_run_unless_another_rule_lets_them_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let relay = start_with(dir.path(), EchoAgent, bob_and_the_team).await;
    for person in ["discord:ann", "discord:bob"] {
        change_rules(&relay, allow(person, Some(Role::User))).await;
    }
    let made = |user: &str, chat: &str, prompt: &str| {
        let mut job = job_of("discord", user, "local", prompt);
        job.origin.as_mut().unwrap().chat_id = chat.to_owned();
        job
    };
    add(&mut files, made("ann", "home", "of ann"));
    add(&mut files, made("ann", "team", "of ann, in the team"));
    add(&mut files, made("bob", "home", "of bob, who has another rule"));
    add(&mut files, new_job("every 2h", "of nobody"));
    let job = add(&mut files, made("ann", "home", "of ann, paused by hand"));
    let reason = Some("by hand".to_owned());
    change(&mut files, JobChange::Pause { job, reason });
    assert!(relay.handle.jobs_changed().await.is_ok());
    let expected = |of_ann: Option<&str>| {
        let jobs = [
            ("of ann", of_ann),
            ("of ann, in the team", None),
            ("of ann, paused by hand", Some("by hand")),
            ("of bob, who has another rule", None),
            ("of nobody", None),
        ];
        BTreeMap::from(jobs.map(|(prompt, reason)| (prompt.to_owned(), reason.map(str::to_owned))))
    };
    assert_eq!(paused(&mut files), expected(None));
    for person in ["discord:bob", "discord:ann"] {
        let person = person.to_owned();
        change_rules(&relay, AccessRequest::Forget { person }).await;
    }
    let of_ann = expected(Some("discord:ann, who made it, has no access any more"));
    eventually("the jobs of whoever was forgotten are paused", async || {
        let paused = paused(&mut files);
        if paused == of_ann { Ok(()) } else { Err(paused) }
    })
    .await;
    // Nothing but a command resumes a job.
    change_rules(&relay, allow("discord:ann", None)).await;
    assert!(relay.handle.jobs_changed().await.is_ok());
    assert_eq!(paused(&mut files), of_ann);
    relay.stop().await;
}

#[tokio::test]
async fn a_start_with_rules_that_let_a_maker_in_no_more_pauses_their_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    add(&mut files, job_of("discord", "ann", "local", "of ann"));
    add(&mut files, job_of("discord", "bob", "local", "of bob"));
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    assert!(relay.handle.jobs_changed().await.is_ok());
    relay.stop().await;
    assert!(paused(&mut files).values().all(Option::is_none));
    let relay = start_with(dir.path(), EchoAgent, bob_and_the_team).await;
    let reason = "discord:ann, who made it, has no access any more".to_owned();
    let expected = BTreeMap::from([("of ann".to_owned(), Some(reason)), ("of bob".to_owned(), None)]);
    eventually("the jobs of whoever is let in no more are paused", async || {
        let paused = paused(&mut files);
        if paused == expected { Ok(()) } else { Err(paused) }
    })
    .await;
    relay.stop().await;
}

#[tokio::test]
async fn a_skill_that_cannot_be_read_yet_keeps_no_chat_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = files(dir.path());
    let approved = SkillWrite {
        status: Some(SkillStatus::Approved),
        ..SkillWrite::default()
    };
    let skills = SqliteSkillStore::in_state_dir(dir.path());
    skills.store("brief", "# Brief\nBe brief.\n", &approved).unwrap();
    drop(skills);
    let lock = rusqlite::Connection::open(dir.path().join("skills.db")).unwrap();
    lock.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; PRAGMA user_version = 1;")
        .unwrap();
    let relay = start_with(dir.path(), EchoAgent, plain).await;
    let job = NewJob {
        skill: Some("brief".to_owned()),
        ..new_job("every 2h", "go")
    };
    let job = add(&mut files, job);
    change(&mut files, JobChange::Run { job });
    assert!(relay.handle.jobs_changed().await.is_ok());
    relay
        .wait_for_status("the run waits for its skill", |status| status.cron.running == 1)
        .await;
    let asked = std::time::Instant::now();
    for number in 0..10 {
        relay.deliver("c1", &format!("m{number}"), "hello").await;
        relay.replies("c1", number + 1).await;
    }
    // The lock is waited for much longer than this takes.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    lock.execute_batch("ROLLBACK").unwrap();
    drop(lock);
    let texts = relay.replies("home", 1).await;
    assert!(
        texts[0].contains("Be brief.") && texts[0].contains("go"),
        "{texts:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn a_job_that_was_made_in_a_groups_thread_answers_there_and_opens_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let platform = CapabilityDescriptor {
        supports_threads: true,
        supported_ops: ["send", "thread_create"].map(str::to_owned).into(),
        ..CapabilityDescriptor::placeholder("discord")
    };
    let adjust = |settings: &mut Settings| {
        plain(settings);
        settings.streaming.reactions = false;
        settings.chat.group_threads = true;
        let projects = r#"{"site": {"workdir": "/"}, "docs": {"workdir": "/tmp"}}"#;
        settings.projects = serde_json::from_str(projects).unwrap();
    };
    let relay = start_on(dir.path(), EchoAgent, &platform, adjust).await;
    let event = |chat: &str, kind: &str, id: &str, text: &str| {
        let mut event = event(chat, id, text);
        event["source"]["chat_type"] = kind.into();
        event
    };
    let group = event("c", "group", "1", "/project site");
    relay.connector.deliver_buffered("b1", group).await.unwrap();
    relay.replies("c", 1).await;
    let group = event("c", "group", "2", "begin");
    relay.connector.deliver_buffered("b2", group).await.unwrap();
    let begun = |op: &&SeenOp| op.text() == Some("echo: begin");
    let seen = relay
        .seen("an answer", |seen| seen.ops.iter().any(|op| begun(&op)))
        .await;
    let thread = seen
        .ops
        .iter()
        .find(begun)
        .and_then(SeenOp::chat)
        .unwrap()
        .to_owned();
    assert!(thread.starts_with("thread-"), "{thread}");
    let mut inside = event(&thread, "thread", "3", "/cron add every 2h look");
    inside["source"]["thread_id"] = thread.as_str().into();
    inside["source"]["parent_chat_id"] = "c".into();
    relay.connector.deliver_buffered("b3", inside).await.unwrap();
    let added = relay.replies(&thread, 2).await.pop().unwrap();
    let id = added
        .strip_prefix("Added job ")
        .and_then(|rest| rest.split(':').next());
    let id = id.unwrap_or_else(|| panic!("{added}")).to_owned();
    relay.stop().await;
    let mut files = files(dir.path());
    change(&mut files, JobChange::Run { job: id });
    let relay = start_on(dir.path(), EchoAgent, &platform, adjust).await;
    let texts = relay.replies(&thread, 1).await;
    assert!(texts[0].contains("look"), "{texts:?}");
    let seen = relay.stop().await;
    assert_eq!(seen.ops.len(), 1, "{:?}", seen.ops);
}

#[tokio::test]
async fn a_job_that_is_made_outside_threads_on_slack_answers_in_the_chat_itself() {
    let platform = CapabilityDescriptor {
        supported_ops: vec!["send".to_owned()],
        ..CapabilityDescriptor::placeholder("slack")
    };
    for made_in in [None, Some("7")] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_on(dir.path(), EchoAgent, &platform, plain).await;
        let mut event = event("c", "9", "/cron add every 2h look");
        event["source"]["platform"] = "slack".into();
        event["source"]["chat_type"] = "channel".into();
        event["source"]["thread_id"] = made_in.into();
        relay.connector.deliver_buffered("b1", event).await.unwrap();
        let added = relay.replies("c", 1).await.pop().unwrap();
        let id = added
            .strip_prefix("Added job ")
            .and_then(|rest| rest.split(':').next());
        let id = id.unwrap_or_else(|| panic!("{added}")).to_owned();
        relay.stop().await;
        change(&mut files(dir.path()), JobChange::Run { job: id });
        let relay = start_on(dir.path(), EchoAgent, &platform, plain).await;
        let texts = relay.replies("c", 1).await;
        assert!(texts[0].contains("look"), "{texts:?}");
        let seen = relay.stop().await;
        assert_eq!(seen.ops[0].metadata()["thread_id"].as_str(), made_in);
    }
}

#[tokio::test]
async fn a_job_keeps_the_terms_of_its_project_when_it_is_the_first_to_run_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let adjust = |settings: &mut Settings| {
        plain(settings);
        settings.projects = serde_json::from_str(r#"{"site": {"permission": "deny"}}"#).unwrap();
    };
    let relay = start_with(dir.path(), EchoAgent, adjust).await;
    relay.deliver("c", "1", "/project site").await;
    relay.replies("c", 1).await;
    relay.deliver("c", "2", "/cron add every 2h ask hi").await;
    let added = relay.replies("c", 2).await.pop().unwrap();
    let id = added
        .strip_prefix("Added job ")
        .and_then(|rest| rest.split(':').next());
    let id = id.unwrap_or_else(|| panic!("{added}")).to_owned();
    relay.stop().await;
    change(&mut files(dir.path()), JobChange::Run { job: id });
    let relay = start_with(dir.path(), EchoAgent, adjust).await;
    assert_eq!(relay.replies("c", 1).await, ["echo: denied hi"]);
    relay.stop().await;
}

/// Runs a job whose agent asks something; its buttons are pressed by each of these. Returns what the agent was answered.
async fn asked_by_job(dir: &Path, origin: JobOrigin, pressed_by: &[Option<&str>]) -> Vec<PromptAnswer> {
    let mut files = files(dir);
    let new = NewJob {
        origin: Some(origin),
        ..new_job("in 1m", "look")
    };
    let id = add(&mut files, new);
    change(&mut files, JobChange::Run { job: id });
    let agent = Stubborn::default();
    let relay = start_asking(dir, agent.clone(), BUTTONS, plain).await;
    let question = eventually("a question or its end", async || {
        let seen = relay.connector.record().borrow().clone();
        let question = seen.ops.iter().find(|op| op.kind() == Some("prompt"));
        (question.is_some() || !agent.answers().is_empty()).then(|| question.cloned())
    })
    .await;
    for (by, number) in pressed_by.iter().zip(1..) {
        let Some(question) = &question else { break };
        // Who decides is seen by what is decided.
        let option = if *by == Some("ann") { "o1" } else { "o0" };
        let mut press = press(question, option, by.unwrap_or_default());
        press["message_id"] = format!("press-{number}").into();
        press["source"]["chat_type"] = "group".into();
        if by.is_none() {
            press["source"]["user_id"].take();
        }
        let buffer_id = format!("p{number}");
        relay.connector.deliver_buffered(&buffer_id, press).await.unwrap();
        relay.seen("a press", |seen| seen.acked(&buffer_id) == 1).await;
    }
    ended(&mut files, 1).await;
    relay.stop().await;
    agent.answers()
}

#[tokio::test]
async fn what_a_job_asks_in_a_group_is_for_its_maker_alone() {
    let group = || JobOrigin {
        platform: "discord".into(),
        chat_id: "home".into(),
        ..JobOrigin::default()
    };
    let no = PromptAnswer::Chosen("no".to_owned());
    // A job of the operator, in a chat that is known as a group, and in one that is not known.
    for is_known in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        if is_known {
            let relay = start_asking(dir.path(), Stubborn::default(), BUTTONS, plain).await;
            let mut status = event("home", "1", "/status");
            status["source"]["chat_type"] = "group".into();
            relay.connector.deliver_buffered("b1", status).await.unwrap();
            relay.replies("home", 1).await;
            relay.stop().await;
        }
        let answers = asked_by_job(dir.path(), group(), &[Some("mallory")]).await;
        assert_eq!(answers, [PromptAnswer::Cancelled], "known: {is_known}");
    }
    // A job that somebody made there, although nobody has written since.
    let dir = tempfile::tempdir().unwrap();
    let made_by_ann = JobOrigin {
        chat_type: Some("group".to_owned()),
        user_id: Some("ann".to_owned()),
        ..group()
    };
    let pressed_by = [Some("mallory"), None, Some("ann")];
    let answers = asked_by_job(dir.path(), made_by_ann, &pressed_by).await;
    assert_eq!(answers, [no]);
}
