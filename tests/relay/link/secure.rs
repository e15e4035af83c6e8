//! TLS end to end: a terminator in front of the connector, with a certificate of a private authority.

use crate::support::dev::text_event;

use crate::link::handshake::connector;
use crate::support::relay_process::{SOON, Setup};
use crate::support::tls_front::terminator;

#[tokio::test]
async fn a_private_authority_is_trusted_by_its_file_for_the_link_and_the_policy_alike() {
    let connector = connector().await;
    let (port, pem) = terminator("localhost", connector.addr(), 1000).await;
    let setup = Setup::with_url(&format!("https://localhost:{port}"))
        .enrolled_with(&connector)
        .setting("tls.ca_file", "authority.pem");
    setup.write("authority.pem", &pem);
    setup.write("config.yaml", "require_mention: true\n");
    let relay = setup.start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "sealed"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.wait_for_log("accepted the relevance policy").await;
    relay.stop().await;
}

#[tokio::test]
async fn an_unknown_authority_is_named_as_the_reason_and_the_relay_keeps_trying() {
    let connector = connector().await;
    let (port, _) = terminator("localhost", connector.addr(), 1000).await;
    let mut relay = Setup::with_url(&format!("wss://localhost:{port}"))
        .enrolled_with(&connector)
        .start();
    let line = relay.wait_for_log("cannot reach the connector").await;
    assert!(line.to_lowercase().contains("certificate"), "{line}");
    assert!(line.contains("retry_ms"), "{line}");
    assert!(connector.dials().is_empty(), "no token goes to a stranger");
    assert!(!relay.has_ended());
    relay.stop().await;
}

#[tokio::test]
async fn an_authority_file_that_is_not_there_is_a_configuration_error() {
    let setup = Setup::with_url("wss://localhost:1").setting("tls.ca_file", "nowhere.pem");
    let (code, log) = setup.ends().await;
    assert_eq!(code, 78, "{log}");
    assert!(log.contains("nowhere.pem"), "{log}");
}
