//! What keeps a relay from starting: the exit code, and what a person is told.

use crate::support::dev::text_event;

use crate::link::handshake::connector;
use crate::support::relay_process::{SOON, Setup};

/// The relay ends with this code and says all of this.
async fn ends_with(setup: &Setup, code: i32, parts: &[&str]) {
    let (ended, log) = setup.ends().await;
    assert_eq!(ended, code, "{log}");
    for part in parts {
        assert!(log.contains(part), "{part:?} is not in:\n{log}");
    }
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test]
async fn without_a_url_it_explains_how_to_get_one() {
    ends_with(
        &Setup::new(),
        78,
        &[
            "error: no connector URL is configured",
            "hint: ",
            "hermes-relay enroll",
            "hermes-relay dev",
            "GATEWAY_RELAY_URL",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    for url in [
        "connector.example",
        "ftp://connector.example",
        "https://",
        "http://[::1",
    ] {
        ends_with(&Setup::with_url(url), 78, &["error: "]).await;
    }
}

#[tokio::test]
async fn a_url_that_would_carry_the_token_in_the_clear_is_refused() {
    ends_with(
        &Setup::with_url("ws://192.0.2.7:8080"),
        78,
        &["is not encrypted", "wss://", "allow_plaintext"],
    )
    .await;
}

#[tokio::test]
async fn a_relay_that_was_switched_off_reports_where() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write("config.yaml", "platforms:\n  relay:\n    enabled: false\n");
    // An address given to this program stands; one that Hermes shares does not.
    let setup = setup.without_env("GATEWAY_RELAY_URL");
    setup.write(".env", &format!("GATEWAY_RELAY_URL={}\n", connector.url()));
    ends_with(&setup, 78, &["platforms.relay.enabled"]).await;
    assert!(connector.dials().is_empty() && connector.requests().is_empty());
}

#[tokio::test]
async fn an_unknown_agent_is_refused_with_the_known_ones_listed() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector).args(&["run", "--agent", "parrot"]);
    ends_with(&setup, 78, &["parrot", "echo", "noop"]).await;
    assert!(connector.dials().is_empty());
}

#[tokio::test]
async fn a_misspelt_setting_is_refused_with_its_line_and_the_nearest_key() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write("relay.yaml", "agent: echo\nlink:\n  ping_intervall_secs: 30\n");
    ends_with(
        &setup,
        78,
        &["relay.yaml:3", "ping_intervall_secs", "ping_interval_secs"],
    )
    .await;
    assert!(connector.dials().is_empty());
}

#[tokio::test]
async fn a_state_directory_in_use_is_refused_with_the_holders_pid_and_the_holder_goes_on() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    let pid = relay.pid().to_string();
    ends_with(&setup, 75, &[&pid, "--state-dir"]).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "undisturbed"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert_eq!(connector.dials().len(), 1);
    relay.stop().await;
    let again = setup.start();
    again.wait_for_log("connected to the connector").await;
    again.stop().await;
}

#[tokio::test]
async fn what_hermes_calls_it_works_too() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector)
        .args(&["gateway", "run", "--agent", "echo"])
        .start();
    connector.wait_connected(SOON).await.unwrap();
    relay.stop().await;
}
