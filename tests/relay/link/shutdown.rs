//! The end: asked to stop, asked twice, and with nobody to say goodbye to.

use std::time::Duration;

use crate::support::dev::{ClosedBy, Connector, text_event};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::link::handshake::connector;
use crate::support::dev::FrameKinds as _;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

/// Starts a relay that is in the middle of a turn of so many milliseconds.
async fn busy(connector: &Connector, setup: &Setup, millis: u32) -> RelayProcess {
    let relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    connector
        .deliver(&text_event("discord", "c1", "m1", &format!("sleep={millis} x")))
        .unwrap();
    let taken = connector.until("the message acknowledged", SOON, |connector| {
        (connector.acked() == 1).then_some(())
    });
    taken.await.unwrap();
    relay
}

async fn check_closed_with_1001(connector: &Connector) {
    let gone = connector.until("the socket closed", SOON, |connector| {
        connector
            .closed()
            .pop()
            .filter(|_| connector.open_connections().is_empty())
    });
    let gone = gone.await.unwrap();
    assert_eq!((gone.by, gone.code), (ClosedBy::Gateway, Some(1001)));
}

#[tokio::test]
async fn sigterm_and_sigint_let_a_running_turn_finish_and_go_idle() {
    for signal in [Signal::TERM, Signal::INT] {
        let connector = connector().await;
        // Long enough for the signal, and shorter than what a turn is given to finish.
        let mut relay = busy(&connector, &Setup::for_connector(&connector), 4_000).await;
        relay.signal(signal);
        connector
            .wait_for("going_idle", SOON, |frame| frame.is_from_gateway("going_idle"))
            .await
            .unwrap();
        assert!(connector.sent_messages().is_empty(), "the turn still runs");
        assert_eq!(relay.exit_code(SOON).await, 0);
        let sent = connector.sent_messages();
        assert_eq!(sent.len(), 1);
        assert_eq!(
            (sent[0].text.as_str(), sent[0].reply_to.as_deref()),
            ("echo: x", Some("m1"))
        );
        check_closed_with_1001(&connector).await;
        let order: Vec<_> = connector
            .frames()
            .iter()
            .filter(|frame| frame.kind().starts_with("going_idle") || frame.asks_for("send"))
            .map(|frame| frame.kind().to_owned())
            .collect();
        assert_eq!(order, ["going_idle", "going_idle_ack", "outbound"]);
    }
}

#[tokio::test]
async fn an_idle_relay_waits_for_the_acknowledgement_before_it_goes() {
    let connector = connector().await;
    let mut relay = Setup::for_connector(&connector).start();
    relay.wait_for_log("connected to the connector").await;
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0);
    check_closed_with_1001(&connector).await;
    let frames = connector.frames();
    let place = |kind: &str| frames.iter().position(|frame| frame.kind() == kind);
    let (asked, answered) = (place("going_idle").unwrap(), place("going_idle_ack").unwrap());
    assert!(asked < answered, "asked, and answered while the socket was open");
}

#[tokio::test]
async fn a_connector_that_does_not_acknowledge_keeps_nobody_from_going() {
    let connector = connector().await;
    connector.ignore_going_idle(true);
    let setup = Setup::for_connector(&connector).setting("shutdown.going_idle_secs", "1");
    let mut relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    let requested_at = Instant::now();
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0);
    let took = requested_at.elapsed();
    assert!(
        (Duration::from_millis(950)..Duration::from_secs(10)).contains(&took),
        "it waited as long as it was told to, not {took:?}"
    );
    check_closed_with_1001(&connector).await;
}

#[tokio::test]
async fn a_connector_that_is_not_there_keeps_nobody_from_going() {
    let connector = connector().await;
    connector.take_down().await;
    let mut relay = Setup::for_connector(&connector).start();
    relay.wait_for_log("cannot reach the connector").await;
    let requested_at = Instant::now();
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0);
    assert!(
        requested_at.elapsed() < Duration::from_secs(10),
        "{:?}",
        requested_at.elapsed()
    );
}

#[tokio::test]
async fn a_turn_that_does_not_end_is_stopped_when_its_time_is_up() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .setting("shutdown.drain_secs", "1")
        .setting("shutdown.budget_secs", "5")
        .setting("shutdown.going_idle_secs", "1");
    let mut relay = busy(&connector, &setup, 60_000).await;
    let requested_at = Instant::now();
    relay.terminate();
    assert_eq!(relay.exit_code(SOON).await, 0);
    let took = requested_at.elapsed();
    assert!(took < Duration::from_secs(15), "over the budget: {took:?}");
    check_closed_with_1001(&connector).await;
}

#[tokio::test]
async fn a_second_signal_ends_it_immediately() {
    let connector = connector().await;
    let mut relay = busy(&connector, &Setup::for_connector(&connector), 60_000).await;
    relay.terminate();
    connector
        .wait_for("going_idle", SOON, |frame| frame.is_from_gateway("going_idle"))
        .await
        .unwrap();
    let requested_at = Instant::now();
    relay.signal(Signal::INT);
    assert_eq!(relay.exit_code(SOON).await, 1);
    assert!(
        requested_at.elapsed() < Duration::from_secs(8),
        "{:?}",
        requested_at.elapsed()
    );
    assert!(relay.stderr().contains("second stop signal"));
    assert!(connector.sent_messages().is_empty());
}

#[tokio::test]
async fn what_was_not_answered_before_the_end_is_reported_after_the_next_start() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = busy(&connector, &setup, 60_000).await;
    relay.kill().await;
    let relay = setup.start();
    let sent = connector.reply_to(SOON, "m1").await.unwrap();
    assert!(sent.text.contains("restarted"), "{}", sent.text);
    connector
        .deliver(&text_event("discord", "c1", "m2", "again"))
        .unwrap();
    connector.reply_to(SOON, "m2").await.unwrap();
    assert_eq!(connector.sent_messages().len(), 2);
    relay.stop().await;
}
