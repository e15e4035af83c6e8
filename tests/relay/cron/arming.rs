//! The managed scheduler's client against the embedded managed scheduler, over real sockets, with a login on disk.

use std::path::Path;
use std::time::Duration;

use crate::support::dev::{EmbeddedScheduler, SchedulerFault, SchedulerSettings};
use hermes_relay::cron::arming::{Arming, DesiredArms};
use hermes_relay::cron::chronos::{ArmReport, ArmState};
use hermes_relay::net::chronos::{ArmedJob, ChronosClient};
use hermes_relay::net::portal_login::PortalLogin;
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::support::http_stub::{Stub, egress, reply};
use crate::support::wait::{eventually, eventually_within};

const FAR: &str = "2036-11-15T09:00:00+01:00";
const CALLBACK: &str = "http://127.0.0.1:9";

/// A managed scheduler, a login for it, and a client that keeps it in step.
struct ArmRig {
    managed: EmbeddedScheduler,
    home: TempDir,
    desired: watch::Sender<DesiredArms>,
    report: watch::Receiver<ArmReport>,
    task: JoinHandle<()>,
}

impl ArmRig {
    async fn start(jobs: &[(&str, &str)]) -> Self {
        Self::with(SchedulerSettings::default(), jobs, |_| {}).await
    }

    async fn with(
        settings: SchedulerSettings,
        jobs: &[(&str, &str)],
        prepare: impl FnOnce(&EmbeddedScheduler),
    ) -> Self {
        let managed = EmbeddedScheduler::start(settings).await.unwrap();
        let home = TempDir::new().unwrap();
        managed.write_login(home.path()).unwrap();
        prepare(&managed);
        let (desired, report, task) = arm(&managed, home.path(), jobs);
        Self {
            managed,
            home,
            desired,
            report,
            task,
        }
    }

    fn want(&self, jobs: &[(&str, &str)]) {
        self.desired.send_modify(|desired| desired.jobs = arms(jobs));
    }

    async fn reported(&self, what: &str, wanted: impl Fn(&ArmReport) -> bool) -> ArmReport {
        eventually(what, async || {
            let report = self.report.borrow().clone();
            if wanted(&report) { Ok(report) } else { Err(report) }
        })
        .await
    }

    async fn settled(&self) -> ArmReport {
        self.reported("arming settled", |report| {
            report.is_settled() && !report.jobs.is_empty()
        })
        .await
    }

    fn armed(&self) -> Vec<(String, String)> {
        let view = self.managed.view();
        let mut armed: Vec<_> = view
            .armed
            .into_iter()
            .map(|job| (job.job_id, job.fire_at))
            .collect();
        armed.sort();
        armed
    }

    fn paths(&self) -> Vec<String> {
        let requests = self.managed.requests();
        let last = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        requests.iter().map(|request| last(&request.path)).collect()
    }
}

fn arms(jobs: &[(&str, &str)]) -> Vec<ArmedJob> {
    let job = |(id, at): &(&str, &str)| ArmedJob {
        job_id: (*id).to_owned(),
        fire_at: (*at).to_owned(),
    };
    jobs.iter().map(job).collect()
}

fn arm(
    managed: &EmbeddedScheduler,
    home: &Path,
    jobs: &[(&str, &str)],
) -> (
    watch::Sender<DesiredArms>,
    watch::Receiver<ArmReport>,
    JoinHandle<()>,
) {
    let client = ChronosClient::new(
        &egress(),
        &format!("{}/", managed.portal_url()),
        &format!("{CALLBACK}/"),
    )
    .unwrap();
    let login = PortalLogin::new(home, &|_| None).trusting(&managed.portal_url());
    let (desired, watched) = watch::channel(DesiredArms {
        jobs: arms(jobs),
        ..DesiredArms::default()
    });
    let (reporting, report) = watch::channel(ArmReport::default());
    let task = tokio::spawn(Arming::new(client, login).run(watched, reporting));
    (desired, report, task)
}

fn pairs(jobs: &[(&str, &str)]) -> Vec<(String, String)> {
    jobs.iter()
        .map(|(id, at)| ((*id).to_owned(), (*at).to_owned()))
        .collect()
}

#[tokio::test]
async fn jobs_are_armed_changed_and_cancelled() {
    let rig = ArmRig::start(&[("a", FAR), ("b", FAR)]).await;
    assert_eq!(rig.settled().await.armed(), 2);
    assert_eq!(rig.armed(), pairs(&[("a", FAR), ("b", FAR)]));
    assert_eq!(rig.paths(), ["list", "provision", "provision"]);
    let first = &rig.managed.requests()[1].json;
    let expected = json!({
        "job_id": "a",
        "fire_at": FAR,
        "agent_callback_url": CALLBACK,
        "dedup_key": format!("a:{FAR}"),
    });
    assert_eq!(*first, expected, "exactly the four fields of the contract");
    let later = "2037-01-01T00:00:00+00:00";
    rig.want(&[("b", later)]);
    eventually("the change", async || rig.armed() == pairs(&[("b", later)])).await;
    assert_eq!(rig.paths().len(), 5, "one provision, one cancel");
    drop(rig.desired);
    rig.task.await.unwrap();
}

#[tokio::test]
async fn another_start_finds_what_is_armed_whatever_the_list_looks_like() {
    let rig = ArmRig::start(&[("a", FAR)]).await;
    rig.settled().await;
    rig.managed.fault(SchedulerFault::ZuluList);
    let (_desired, report, _task) = arm(&rig.managed, rig.home.path(), &[("a", FAR)]);
    eventually("the second start", async || report.borrow().armed() == 1).await;
    assert_eq!(rig.paths(), ["list", "provision", "list"]);
}

#[tokio::test]
async fn an_arm_fails_honestly_and_is_repeated_soon() {
    let rig = ArmRig::with(SchedulerSettings::default(), &[("a", FAR)], |managed| {
        managed.fault(SchedulerFault::Outage);
    })
    .await;
    let failed = rig
        .reported("the failure", |report| {
            matches!(
                report.jobs.get("a").map(|job| &job.state),
                Some(ArmState::NotArmed { .. })
            )
        })
        .await;
    let summary = failed.jobs["a"].state.summary();
    let expected = "saved; the scheduler has not taken it: POST /api/agent-cron/provision: HTTP 503: ";
    assert!(
        summary.starts_with(expected) && summary.ends_with("; will retry"),
        "{summary}"
    );
    assert!(!failed.is_settled() && failed.unavailable.is_none());
    rig.managed.mend(SchedulerFault::Outage);
    // The first retry comes after three seconds and the second after six more.
    let within = Duration::from_secs(8);
    eventually_within(within, "armed after the outage", async || {
        rig.report.borrow().armed() == 1
    })
    .await;
}

#[tokio::test]
async fn a_portal_that_does_not_answer_is_an_outage() {
    let nobody = crate::support::http_stub::nobody();
    let home = TempDir::new().unwrap();
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    managed.write_login(home.path()).unwrap();
    let client = ChronosClient::new(&egress(), &nobody, CALLBACK).unwrap();
    let (_desired, watched) = watch::channel(DesiredArms {
        jobs: arms(&[("a", FAR)]),
        ..DesiredArms::default()
    });
    let (reporting, report) = watch::channel(ArmReport::default());
    tokio::spawn(Arming::new(client, PortalLogin::new(home.path(), &|_| None)).run(watched, reporting));
    let state = eventually("the outage", async || {
        let report = report.borrow().clone();
        let state = report.jobs.get("a").map(|job| job.state.clone());
        state.filter(|state| matches!(state, ArmState::NotArmed { .. }))
    })
    .await;
    assert!(
        state
            .summary()
            .contains("GET /api/agent-cron/list: no connection to 127.0.0.1"),
        "{state:?}"
    );
}

#[tokio::test]
async fn a_rejected_identity_ends_all_requests() {
    let rig = ArmRig::with(SchedulerSettings::default(), &[("a", FAR)], |managed| {
        managed.fault(SchedulerFault::IdentityRejected);
    })
    .await;
    let report = rig
        .reported("the rejection", |report| report.unavailable.is_some())
        .await;
    assert!(
        report.is_settled(),
        "the relay may sleep: its own timer has the jobs"
    );
    assert!(report.jobs["a"].state.summary().contains("invalid_client"));
    rig.managed.mend(SchedulerFault::IdentityRejected);
    rig.want(&[("a", FAR), ("b", FAR)]);
    rig.desired.send_modify(|desired| desired.relist += 1);
    let report = rig
        .reported("the other job", |report| report.jobs.len() == 2)
        .await;
    assert!(matches!(report.jobs["b"].state, ArmState::Unavailable { .. }));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(rig.paths(), ["list"], "one request, and none after it");
}

#[tokio::test]
async fn a_refused_token_is_refreshed_once() {
    let rig = ArmRig::with(SchedulerSettings::default(), &[("a", FAR)], |managed| {
        managed.fault(SchedulerFault::UnauthorizedOnce);
    })
    .await;
    rig.settled().await;
    assert_eq!(rig.managed.refreshes(), 1);
    assert_eq!(rig.paths(), ["list", "list", "provision"]);
    let stored: Value =
        serde_json::from_slice(&std::fs::read(rig.home.path().join("auth.json")).unwrap()).unwrap();
    assert_eq!(stored["version"], 1, "what it does not know stays");
    assert_eq!(stored["active_provider"], "nous");
}

#[tokio::test]
async fn a_login_about_to_end_is_refreshed_first() {
    let short = SchedulerSettings {
        login_secs: 60,
        ..SchedulerSettings::default()
    };
    let rig = ArmRig::with(short, &[("a", FAR)], |_| {}).await;
    rig.settled().await;
    assert!(rig.managed.refreshes() >= 1);
    assert!(
        !rig.managed
            .requests()
            .iter()
            .any(|request| request.answered == 401)
    );
}

#[tokio::test]
async fn an_ended_session_is_written_down_and_not_tried_again() {
    let rig = ArmRig::with(
        SchedulerSettings {
            login_secs: 60,
            ..SchedulerSettings::default()
        },
        &[],
        |_| {},
    )
    .await;
    // Somebody else spent the refresh token.
    let file = rig.home.path().join("auth.json");
    let mut stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    stored["providers"]["nous"]["refresh_token"] = "spent".into();
    stored["providers"]["nous"]["agent_key"] = "kept".into();
    std::fs::write(&file, stored.to_string()).unwrap();
    rig.want(&[("a", FAR)]);
    let report = rig
        .reported("the end", |report| report.unavailable.is_some())
        .await;
    assert!(
        report.jobs["a"].state.summary().contains("refresh_token_reused"),
        "{report:?}"
    );
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let login = &stored["providers"]["nous"];
    assert_eq!(login["last_auth_error"]["relogin_required"], true);
    assert_eq!(login["last_auth_error"]["code"], "refresh_token_reused");
    assert_eq!(login["agent_key"], "kept");
    assert!(login.get("access_token").is_none() && login.get("refresh_token").is_none());
    // A new login brings it back without a restart.
    rig.managed.write_login(rig.home.path()).unwrap();
    rig.settled().await;
    eventually("armed with the new login", async || {
        rig.report.borrow().armed() == 1
    })
    .await;
}

#[tokio::test]
async fn a_refresh_that_has_begun_is_stored_although_the_relay_stops() {
    let slowly = Duration::from_millis(300);
    let portal = Stub::at("127.0.0.1:0", slowly, |_| {
        let granted = json!({"access_token": "new", "refresh_token": "rotated", "expires_in": 3600});
        reply(200, granted.to_string())
    })
    .await;
    let home = TempDir::new().unwrap();
    let file = home.path().join("auth.json");
    let expired = json!({
        "access_token": "old",
        "refresh_token": "single-use",
        "expires_at": "2020-01-01T00:00:00Z",
        "portal_base_url": portal.base(),
    });
    std::fs::write(&file, json!({"providers": {"nous": expired}}).to_string()).unwrap();
    let client = ChronosClient::new(&egress(), &portal.base(), CALLBACK).unwrap();
    let login = PortalLogin::new(home.path(), &|_| None).trusting(&portal.base());
    login.refreshed().await;
    let (_desired, watched) = watch::channel(DesiredArms {
        jobs: arms(&[("a", FAR)]),
        ..DesiredArms::default()
    });
    let (reporting, _report) = watch::channel(ArmReport::default());
    let task = tokio::spawn(Arming::new(client, login.clone()).run(watched, reporting));
    eventually("the token is spent", async || !portal.seen().is_empty()).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    login.refreshed().await;
    let stored: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(stored["providers"]["nous"]["refresh_token"], "rotated");
    assert_eq!(portal.seen()[0].path(), "/api/oauth/token");
    assert_eq!(portal.seen().len(), 1);
}

#[tokio::test]
async fn nothing_is_asked_or_cancelled_before_the_jobs_are_read() {
    let rig = ArmRig::start(&[("a", FAR)]).await;
    rig.settled().await;
    let asked = rig.paths().len();
    let client = ChronosClient::new(&egress(), &rig.managed.portal_url(), CALLBACK).unwrap();
    let login = PortalLogin::new(rig.home.path(), &|_| None).trusting(&rig.managed.portal_url());
    let (desired, watched) = watch::channel(DesiredArms {
        is_unread: true,
        ..DesiredArms::default()
    });
    let (reporting, _report) = watch::channel(ArmReport::default());
    tokio::spawn(Arming::new(client, login).run(watched, reporting));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.paths().len(), asked, "a start knows no jobs yet");
    desired.send_modify(|desired| desired.is_unread = false);
    eventually("there is no such job", async || rig.armed().is_empty()).await;
}

#[tokio::test]
async fn a_lost_arm_is_found_by_the_next_list() {
    let rig = ArmRig::with(SchedulerSettings::default(), &[("a", FAR)], |managed| {
        managed.fault(SchedulerFault::LoseArm);
    })
    .await;
    rig.settled().await;
    assert_eq!(rig.armed(), []);
    rig.desired.send_modify(|desired| desired.relist += 1);
    eventually("armed after all", async || rig.armed() == pairs(&[("a", FAR)])).await;
}

#[tokio::test]
async fn errors_quote_a_little_and_never_the_token() {
    let stub = Stub::start(|seen| {
        let token = seen.header("authorization").unwrap_or_default().to_owned();
        let json = seen.header("content-type").unwrap_or_default().to_owned();
        assert!(seen.method == "GET" || json == "application/json");
        match seen.path() {
            "/api/agent-cron/list" => reply(200, "no JSON at all"),
            _ => reply(500, format!("{} {}", "x".repeat(400), token.len())),
        }
    })
    .await;
    let client = ChronosClient::new(&egress(), &stub.base(), CALLBACK).unwrap();
    let token = SecretString::from("hush-hush");
    assert_eq!(
        client.list(&token).await.unwrap(),
        [],
        "a success without a list has nothing armed"
    );
    let error = client.provision(&token, "a", FAR).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("POST /api/agent-cron/provision: HTTP 500: xxx"),
        "{shown}"
    );
    assert!(
        error.to_string().len() < 300 && !shown.contains("hush"),
        "{shown}"
    );
    let seen = &stub.seen()[0];
    assert_eq!(seen.header("user-agent"), Some("hermes-relay/test"));
    assert_eq!(seen.header("authorization"), Some("Bearer hush-hush"));
}
