//! The first five minutes: enroll in a clean home, run, and get an answer; or learn why there is none.

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use serde_json::Value;

use crate::operate::{answered, connected, status_until, verb, verb_with};
use crate::support::http_stub::Stub;
use crate::support::relay_process::Setup;

/// A connector that lets one gateway enroll, and a clean home with an identity.
async fn before_enrolment(platforms: &[&str]) -> (Connector, Setup, Stub) {
    let settings = ConnectorSettings {
        enrol_tokens: vec!["one-time".to_owned()],
        platforms: platforms.iter().map(|&name| name.to_owned()).collect(),
        ..ConnectorSettings::default()
    };
    let idp = Stub::always(200, r#"{"access_token":"who-i-am"}"#).await;
    let setup = Setup::new().env("GATEWAY_RELAY_IDP_TOKEN_URL", &idp.base());
    (Connector::start(settings).await.unwrap(), setup, idp)
}

async fn enroll(setup: &Setup, connector: &Connector, more: &[&str]) -> String {
    let url = connector.http_base();
    let args = [&["enroll", "--connector-url", &url, "--token", "-"], more].concat();
    let output = verb_with(setup, &args, Some("one-time\n")).await;
    assert_eq!(output.code, 0, "{output:?}");
    output.err
}

/// The doctor's findings of one probe: outcome and detail.
async fn findings(setup: &Setup, id: &str) -> Vec<(String, String)> {
    let report = verb(setup, &["doctor", "--json"]).await.out;
    let rows: Vec<Value> = serde_json::from_str(&report).unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let of_probe = rows.iter().filter(|row| row["id"] == id);
    of_probe
        .map(|row| (text(row, "outcome"), text(row, "detail")))
        .collect()
}

#[tokio::test]
async fn enrolment_learns_the_platforms_and_the_first_message_is_answered() {
    let (connector, setup, _idp) = before_enrolment(&["discord"]).await;
    assert_eq!(enroll(&setup, &connector, &[]).await, "", "nothing to warn about");
    let relay = connected(&setup).await;
    answered(&connector, "m1", "hello").await;
    let status = status_until(&setup, "no refusal", |status| status["tally"]["ops_applied"] != 0).await;
    assert_eq!(status["undeclared_platforms"].as_array().map(Vec::len), Some(0));
    let platforms = findings(&setup, "platforms").await;
    assert_eq!(platforms[0].0, "ok", "{platforms:?}");
    assert!(platforms[0].1.starts_with("discord ("), "{platforms:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_misspelt_platform_is_named_by_enroll_run_doctor_and_status() {
    let (connector, setup, _idp) = before_enrolment(&[]).await;
    let hint = "did you mean `discord`?";
    let warned = enroll(&setup, &connector, &["--platform", "discrod"]).await;
    assert!(warned.contains(hint), "{warned}");
    let setup = setup.setting("sessions.refused_retries", "0");
    let relay = connected(&setup).await;
    assert!(relay.stderr().contains(hint), "{}", relay.stderr());
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    let status = status_until(&setup, "a refusal", |status| !status["last_refusal"].is_null()).await;
    assert_eq!(status["undeclared_platforms"][0], "discord", "{status}");
    assert_eq!(
        status["last_refusal"]["error"], "platform not fronted",
        "{status}"
    );
    let shown = verb(&setup, &["status"]).await.out;
    for part in ["messages come from discord", "platform not fronted"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let running = findings(&setup, "lock").await;
    let failed = running.iter().find(|(outcome, _)| outcome == "failed");
    assert!(
        failed.is_some_and(|(_, detail)| detail.contains("`discord`")),
        "{running:?}"
    );
    let platforms = findings(&setup, "platforms").await;
    assert!(
        platforms[0].0 == "warn" && platforms[0].1.contains(hint),
        "{platforms:?}"
    );
    relay.stop().await;
}

#[tokio::test]
async fn without_any_platform_everybody_says_so() {
    let (connector, setup, _idp) = before_enrolment(&[]).await;
    let warned = enroll(&setup, &connector, &[]).await;
    assert!(warned.contains("--platform"), "{warned}");
    let relay = connected(&setup).await;
    assert!(
        relay.stderr().contains("no platform is configured"),
        "{}",
        relay.stderr()
    );
    let platforms = findings(&setup, "platforms").await;
    assert_eq!(platforms[0].0, "warn", "{platforms:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_working_directory_that_is_mounted_later_ends_no_relay() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let setup = Setup::for_connector(&connector);
    let workdir = setup.home().join("mounted-later");
    let agent = format!(
        "{{kind: command, argv: [/bin/cat], workdir: {}}}",
        workdir.display()
    );
    let setup = setup
        .setting("agents.script", &agent)
        .args(&["run", "--agent", "script"]);
    let relay = connected(&setup).await;
    assert_eq!(relay.count("an agent is not usable at the moment"), 1);
    answered(&connector, "m1", "hello").await;
    let answer = |index: usize| connector.messages_in("c1")[index].text.clone();
    assert!(
        answer(0).contains("My working directory is missing"),
        "{}",
        answer(0)
    );
    std::fs::create_dir(&workdir).unwrap();
    answered(&connector, "m2", "hello again").await;
    assert!(answer(1).starts_with("hello again"), "{}", answer(1));
    relay.stop().await;
}
