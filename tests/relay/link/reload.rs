//! SIGHUP: what is read again, what takes effect immediately, and what needs a restart.

use crate::support::dev::{Connector, ConnectorSettings, GatewayCredentials, TokenCheck, text_event};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::link::handshake::connector;
use crate::link::refusals::dials;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

async fn connected(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    relay
}

/// Waits until so many policies were declared, and gives their bodies.
async fn policies(connector: &Connector, count: usize) -> Vec<Value> {
    let what = format!("{count} policies");
    let declared = connector.until(&what, SOON, |connector| {
        let requests = connector.requests().into_iter();
        let bodies: Vec<_> = requests
            .filter(|request| request.path == "/relay/policy")
            .map(|request| request.json)
            .collect();
        (bodies.len() >= count).then_some(bodies)
    });
    declared.await.unwrap()
}

#[tokio::test]
async fn a_changed_mention_rule_is_declared_again_over_the_same_connection() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    setup.write("config.yaml", "discord:\n  require_mention: true\n");
    let relay = connected(&setup).await;
    assert_eq!(policies(&connector, 1).await[0]["requireAddress"], true);
    setup.write("config.yaml", "discord:\n  require_mention: false\n");
    relay.signal(Signal::HUP);
    assert_eq!(
        policies(&connector, 2).await[1],
        json!({
            "platform": "discord",
            "requireAddress": false,
            "freeResponseScopes": [],
            "allowOtherBots": false,
        })
    );
    relay.wait_for_log("settings reloaded").await;
    assert_eq!(connector.dials().len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_changed_log_level_is_in_force_immediately() {
    let connector = connector().await;
    let mut setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    assert_eq!(relay.count("dialing the connector"), 0);
    setup = setup.setting("log.level", "debug");
    relay.signal(Signal::HUP);
    let line = relay.wait_for_log("settings reloaded").await;
    assert!(line.contains("are applied"), "{line}");
    connector.drop_sockets();
    relay.wait_for_log("dialing the connector").await;
    drop(setup);
    relay.stop().await;
}

#[tokio::test]
async fn what_needs_a_restart_is_named() {
    let connector = connector().await;
    let mut setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    setup = setup
        .setting("link.backoff_min_ms", "75")
        .setting("sessions.max_queue", "5")
        .setting("shutdown.drain_secs", "3")
        .setting("connector.display_name", "Somebody");
    relay.signal(Signal::HUP);
    let line = relay.wait_for_log("need a restart").await;
    for key in [
        "link.backoff_min_ms",
        "sessions.max_queue",
        "shutdown.drain_secs",
        "connector.display_name",
    ] {
        assert!(line.contains(key), "{key} is not named: {line}");
    }
    let named = line.matches("\", \"").count() + 1;
    assert_eq!(named, 4, "nothing else has changed: {line}");
    drop(setup);
    relay.stop().await;
}

/// A file that only its owner may read.
fn write_private(setup: &Setup, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    setup.write(name, text);
    let path = setup.home().join(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_change_inside_an_agent_is_named_and_its_secrets_are_not() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let key = write_private(&setup, "key", "first-key");
    let coder = |value: &str| format!("{{kind: command, argv: [cat], env: {{TOKEN: {value}, SAME: same}}}}");
    let model =
        format!("{{kind: openai, base_url: \"http://127.0.0.1:9/v1\", model: m, api_key_file: \"{key}\"}}");
    let mut setup = setup
        .setting("agents.coder", &coder("first-token"))
        .setting("agents.model", &model)
        .setting("agents.same", "{kind: echo}");
    let relay = connected(&setup).await;
    relay.signal(Signal::HUP);
    relay.wait_for_log("are applied").await;
    setup = setup.setting("agents.coder", &coder("second-token"));
    write_private(&setup, "key", "second-key");
    relay.signal(Signal::HUP);
    let line = relay.wait_for_log("need a restart").await;
    assert!(
        line.contains(r#"["agents.coder.env", "agents.model.api_key_file"]"#),
        "{line}"
    );
    let log = relay.stderr();
    for secret in ["first-token", "second-token", "first-key", "second-key"] {
        assert!(!log.contains(secret), "{log}");
    }
    relay.stop().await;
}

#[tokio::test]
async fn settings_that_cannot_be_read_leave_the_old_ones_in_force() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let relay = connected(&setup).await;
    setup.write("relay.yaml", "link:\n  backof_min_ms: 5\n");
    relay.signal(Signal::HUP);
    let line = relay.wait_for_log("cannot reload the settings").await;
    assert!(
        line.contains("backoff_min_ms") && line.contains("relay.yaml:2"),
        "{line}"
    );
    connector
        .deliver(&text_event("discord", "c1", "m1", "still there?"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}

fn two_secrets() -> ConnectorSettings {
    let secret = |secret: &str| GatewayCredentials {
        gateway_id: "gw-dev".to_owned(),
        secret: secret.into(),
    };
    ConnectorSettings {
        gateways: vec![secret("the-new-secret"), secret("the-old-secret")],
        ..ConnectorSettings::default()
    }
}

fn dotenv(secret: &str) -> String {
    format!("GATEWAY_RELAY_ID=gw-dev\nGATEWAY_RELAY_SECRET={secret}\n")
}

#[tokio::test]
async fn a_rotated_secret_signs_the_next_dial() {
    let connector = Connector::start(two_secrets()).await.unwrap();
    let setup = Setup::with_url(&connector.url()).env("GATEWAY_RELAY_PLATFORMS", "discord");
    setup.write(".env", &dotenv("the-old-secret"));
    let relay = connected(&setup).await;
    setup.write(".env", &dotenv("the-new-secret"));
    relay.signal(Signal::HUP);
    relay.wait_for_log("settings reloaded").await;
    assert_eq!(connector.dials().len(), 1, "a live connection is kept");
    connector.drop_sockets();
    dials(&connector, 2).await;
    connector.wait_connected(SOON).await.unwrap();
    let signed_by = |index: usize, secret: &str| {
        use secrecy::ExposeSecret as _;
        let dial = &connector.dials()[index];
        let bearer = dial.bearer.as_ref().unwrap().expose_secret();
        hermes_relay::wire::UpgradeToken::verify(bearer, [secret], dial.expires_at.unwrap()).is_some()
    };
    assert!(signed_by(0, "the-old-secret") && signed_by(1, "the-new-secret"));
    relay.stop().await;
}

#[tokio::test]
async fn a_relay_that_was_refused_dials_immediately_when_it_gets_a_good_secret() {
    let connector = Connector::start(two_secrets()).await.unwrap();
    let setup = Setup::with_url(&connector.url())
        .env("GATEWAY_RELAY_PLATFORMS", "discord")
        .setting("link.refused_retry_secs", "600");
    setup.write(".env", &dotenv("a-wrong-secret"));
    let relay = setup.start();
    relay.wait_for_log("does not accept our credentials").await;
    setup.write(".env", &dotenv("the-new-secret"));
    relay.signal(Signal::HUP);
    connector.wait_connected(SOON).await.unwrap();
    let verdicts: Vec<_> = connector.dials().iter().map(|dial| dial.token).collect();
    assert_eq!(verdicts, [TokenCheck::Unauthorized, TokenCheck::Valid]);
    relay.stop().await;
}

#[tokio::test]
async fn a_revoked_relay_that_stayed_comes_back_with_a_new_secret() {
    let connector = Connector::start(two_secrets()).await.unwrap();
    let setup = Setup::with_url(&connector.url())
        .env("GATEWAY_RELAY_PLATFORMS", "discord")
        .setting("link.on_revoked", "stay");
    setup.write(".env", &dotenv("the-old-secret"));
    let relay = connected(&setup).await;
    connector.revoke();
    relay.wait_for_log("has revoked this gateway").await;
    connector.reinstate();
    setup.write(".env", &dotenv("the-new-secret"));
    relay.signal(Signal::HUP);
    connector
        .deliver(&text_event("discord", "c1", "m1", "welcome back"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert_eq!(connector.dials().len(), 3);
    relay.stop().await;
}
