//! A new secret in its file: noticed without a signal, tried first, and the old one kept until the new one works.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::support::dev::{Connector, ConnectorSettings, GatewayCredentials, TokenCheck, text_event};
use hermes_relay::wire::UpgradeToken;
use secrecy::ExposeSecret as _;

use crate::support::relay_process::{RelayProcess, SOON, Setup};

async fn knowing(secrets: &[&str]) -> Connector {
    let gateways = secrets.iter().map(|secret| GatewayCredentials {
        gateway_id: "gw-dev".to_owned(),
        secret: (*secret).into(),
    });
    let settings = ConnectorSettings {
        gateways: gateways.collect(),
        ..ConnectorSettings::default()
    };
    Connector::start(settings).await.unwrap()
}

/// Puts a secret in the place of another, as whoever rotates it does.
fn put(path: &Path, secret: &str) {
    let next = path.with_extension("next");
    fs::write(&next, secret).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&next, path).unwrap();
}

/// A relay with its secret in a file, connected.
async fn started(connector: &Connector, path: &Path) -> RelayProcess {
    let relay = Setup::with_url(&connector.url())
        .env("GATEWAY_RELAY_PLATFORMS", "discord")
        .env("GATEWAY_RELAY_ID", "gw-dev")
        .env("GATEWAY_RELAY_SECRET_FILE", path.to_str().unwrap())
        .start();
    connector.wait_connected(SOON).await.unwrap();
    relay
}

fn signed_by(connector: &Connector, dial: usize, secret: &str) -> bool {
    let dial = &connector.dials()[dial];
    let bearer = dial.bearer.as_ref().unwrap().expose_secret();
    UpgradeToken::verify(bearer, [secret], dial.expires_at.unwrap()).is_some()
}

async fn dialled(connector: &Connector, count: usize) {
    let dialled = connector.until("the dials", SOON, |connector| {
        (connector.dials().len() >= count && connector.is_connected()).then_some(())
    });
    dialled.await.unwrap();
}

#[tokio::test]
async fn a_new_secret_in_its_file_signs_the_next_dial_and_the_connection_stays() {
    let connector = knowing(&["the-new-secret", "the-old-secret"]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    put(&path, "the-old-secret");
    let relay = started(&connector, &path).await;
    put(&path, "the-new-secret");
    relay.wait_for_log("found new credentials").await;
    assert_eq!(connector.dials().len(), 1, "a live connection is kept");
    connector.drop_sockets();
    dialled(&connector, 2).await;
    assert!(signed_by(&connector, 0, "the-old-secret") && signed_by(&connector, 1, "the-new-secret"));
    relay.wait_for_log("accepts the new secret").await;
    assert!(!relay.stderr().contains("the-new-secret"));
    relay.stop().await;
}

#[tokio::test]
async fn a_secret_that_the_connector_does_not_know_yet_falls_back_to_the_one_before() {
    let connector = knowing(&["the-old-secret"]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    put(&path, "the-old-secret");
    let relay = started(&connector, &path).await;
    put(&path, "not-known-yet");
    relay.wait_for_log("found new credentials").await;
    connector.drop_sockets();
    dialled(&connector, 3).await;
    let verdicts: Vec<_> = connector.dials().iter().map(|dial| dial.token).collect();
    assert_eq!(
        verdicts,
        [TokenCheck::Valid, TokenCheck::Unauthorized, TokenCheck::Valid]
    );
    assert!(signed_by(&connector, 1, "not-known-yet") && signed_by(&connector, 2, "the-old-secret"));
    connector
        .deliver(&text_event("discord", "c1", "m1", "hello"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    // The new one goes first at every dial, until it works.
    connector.drop_sockets();
    dialled(&connector, 5).await;
    assert!(signed_by(&connector, 3, "not-known-yet") && signed_by(&connector, 4, "the-old-secret"));
    relay.stop().await;
}

#[tokio::test]
async fn a_secret_file_that_cannot_be_used_leaves_the_old_secret_in_force() {
    let connector = knowing(&["the-old-secret"]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    put(&path, "the-old-secret");
    let relay = started(&connector, &path).await;
    put(&path, "");
    relay
        .wait_for_log("cannot be used; keeping the old credentials")
        .await;
    connector.drop_sockets();
    dialled(&connector, 2).await;
    assert!(signed_by(&connector, 1, "the-old-secret"));
    relay.stop().await;
}
