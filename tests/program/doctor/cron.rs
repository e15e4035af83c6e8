//! What is wrong between this relay and the managed scheduler.

use crate::support::dev::{EmbeddedScheduler, SchedulerFault, SchedulerSettings};
use serde_json::{Value, json};

use crate::doctor::rig::{Report, connector, doctor};
use crate::support::http_stub::{Stub, json_reply, reply};
use crate::support::relay_process::Setup;

/// The row of the probe about this subject.
fn about<'r>(report: &'r Report, subject: &str) -> &'r Value {
    let rows = report.of("cron");
    let row = rows.iter().find(|row| row["subject"] == subject);
    row.unwrap_or_else(|| panic!("nothing about {subject} in {rows:?}"))
}

#[track_caller]
fn says(report: &Report, subject: &str, outcome: &str, detail: &str) {
    let row = about(report, subject);
    assert_eq!(row["outcome"], outcome, "{row}");
    let text = row["detail"].as_str().unwrap();
    assert!(text.contains(detail), "wanted {detail:?} in {text:?}");
}

/// Jobs are managed, as a hosted Hermes is set up for it.
fn with_scheduler(setup: Setup, managed: &EmbeddedScheduler, callback: &str, keys: &str) -> Setup {
    managed.write_login(&setup.home()).unwrap();
    let chronos = json!({
        "portal_url": managed.portal_url(),
        "callback_url": callback,
        "expected_audience": managed.audience(),
        "nas_jwks_url": keys,
    });
    let settings = json!({"cron": {"provider": "chronos", "chronos": chronos}});
    setup.write("config.yaml", &settings.to_string());
    setup
}

#[tokio::test]
async fn without_the_managed_scheduler_there_is_nothing_to_check() {
    let connector = connector().await;
    let report = doctor(Setup::for_connector(&connector), &[]).await;
    report.passes(&["cron"]);
    let half = Setup::for_connector(&connector).setting("cron.provider", "chronos");
    let report = doctor(half, &[]).await;
    report.warns("cron", "own timer starts jobs", "set cron.chronos.callback_url");
}

#[tokio::test]
async fn the_managed_scheduler_is_checked_from_end_to_end() {
    let connector = connector().await;
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    let nowhere = "http://127.0.0.1:9";
    let setup = || {
        with_scheduler(
            Setup::for_connector(&connector),
            &managed,
            nowhere,
            &managed.jwks_url(),
        )
    };
    let report = doctor(setup(), &[]).await;
    says(&report, "portal", "ok", "it has 0 jobs");
    says(&report, "keys", "ok", "1 usable keys");
    says(&report, "callback", "skipped", "while a relay runs");
    assert_eq!(report.code, 0);

    managed.fault(SchedulerFault::KeyOutage);
    managed.fault(SchedulerFault::IdentityRejected);
    let report = doctor(setup(), &[]).await;
    says(&report, "portal", "failed", "does not know this login");
    says(&report, "keys", "failed", "HTTP 503");
    assert_eq!(report.code, 1);

    let stranger = setup();
    stranger.write("auth.json", "{}");
    let report = doctor(stranger, &[]).await;
    says(&report, "login", "failed", "not logged into Nous Portal");
    let remedy = about(&report, "login")["remedy"].as_str().unwrap();
    assert!(remedy.contains("hermes auth add nous"), "{remedy}");
    assert_eq!(managed.refreshes(), 0, "the doctor refreshes nothing");
}

#[tokio::test]
async fn the_callback_and_the_clock_are_checked_while_a_relay_runs() {
    let connector = connector().await;
    let managed = EmbeddedScheduler::start(SchedulerSettings::default())
        .await
        .unwrap();
    let ours = Stub::start(|_| json_reply(401, &json!({"error": "invalid fire token"}))).await;
    let theirs = Stub::start(|_| {
        let mut page = reply(200, "{\"keys\": []}");
        let date = "Tue, 15 Nov 1994 12:00:00 GMT".parse().unwrap();
        page.headers_mut().insert("date", date);
        page
    })
    .await;
    let setup = with_scheduler(
        Setup::for_connector(&connector),
        &managed,
        &ours.base(),
        &managed.jwks_url(),
    );
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    let report = doctor(setup, &[]).await;
    says(&report, "callback", "ok", "/api/cron/fire answers");
    relay.stop().await;
    let keys = theirs.url("/jwks");
    let setup = with_scheduler(Setup::for_connector(&connector), &managed, &theirs.base(), &keys);
    let other = setup.start();
    other.wait_for_log("connected to the connector").await;
    let report = doctor(setup, &[]).await;
    says(&report, "callback", "failed", "something else answers there");
    says(&report, "keys", "failed", "no usable key");
    says(&report, "clock", "failed", "ahead of the managed scheduler's");
    other.stop().await;
}
