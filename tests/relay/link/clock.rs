//! Clocks that stand still, and clocks that disagree.

use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, TokenCheck, text_event};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::link::handshake::connector;
use crate::link::refusals::dials;
use crate::support::relay_process::{SOON, Setup};

#[tokio::test]
async fn a_relay_that_was_stopped_for_longer_than_the_silence_it_allows_is_back_immediately() {
    let settings = ConnectorSettings {
        ping_interval: None,
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let relay = Setup::for_connector(&connector)
        .setting("link.ping_interval_secs", "1")
        .setting("link.dead_after_secs", "2")
        .start();
    connector.wait_connected(SOON).await.unwrap();
    relay.freeze().await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "while it slept"))
        .unwrap();
    sleep(Duration::from_secs(4)).await;
    assert!(connector.sent_messages().is_empty(), "it is stopped");
    let woken = Instant::now();
    relay.signal(Signal::CONT);
    connector.reply_to(SOON, "m1").await.unwrap();
    let took = woken.elapsed();
    assert!(took < Duration::from_secs(5), "answered only after {took:?}");
    connector
        .deliver(&text_event("discord", "c1", "m2", "and after"))
        .unwrap();
    connector.reply_to(SOON, "m2").await.unwrap();
    assert_eq!(connector.sent_messages().len(), 2);
    assert_eq!(connector.open_connections().len(), 1);
    relay.stop().await;
}

/// Connects in spite of the difference, reconnects without trouble, and warns once.
async fn gets_along_with_a_clock_that_is_off_by(seconds: i64) {
    let connector = connector().await;
    connector.set_clock_offset(seconds);
    let setup = Setup::for_connector(&connector);
    setup.write("config.yaml", "discord:\n  require_mention: true\n");
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    let at_first = connector.dials().len();
    assert!(at_first <= 2, "one refusal teaches enough");
    for round in 1..=2 {
        connector.drop_sockets();
        dials(&connector, at_first + round).await;
        connector.wait_connected(SOON).await.unwrap();
    }
    let dials = connector.dials();
    assert!(
        dials[at_first - 1..]
            .iter()
            .all(|dial| dial.token == TokenCheck::Valid),
        "{dials:?}"
    );
    connector
        .deliver(&text_event("discord", "c1", "m1", "what time is it?"))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    let line = relay
        .wait_for_log("this machine's clock differs from the connector's")
        .await;
    assert!(line.contains("skew_ms=") && line.contains("clock=\""), "{line}");
    assert_eq!(relay.count("clock differs from the connector's"), 1);
    let taken = connector.until("a policy that was taken", SOON, |connector| {
        let requests = connector.requests();
        requests
            .iter()
            .any(|request| request.answered.is_success())
            .then_some(())
    });
    taken.await.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn a_connector_whose_clock_is_ahead_is_shown_tokens_of_its_own_time() {
    gets_along_with_a_clock_that_is_off_by(1000).await;
}

#[tokio::test]
async fn a_connector_whose_clock_is_behind_is_shown_tokens_of_its_own_time() {
    gets_along_with_a_clock_that_is_off_by(-1000).await;
}
