//! The real binary: it ends to sleep, it has the machine suspended, and it comes back.

use crate::support::dev::{Connector, ConnectorSettings, text_event};

use crate::support::http_stub::Stub;
use crate::support::relay_process::{SOON, Setup};

async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

/// Sleeps after a second of silence.
fn sleepy(connector: &Connector) -> Setup {
    Setup::for_connector(connector)
        .env("GATEWAY_RELAY_WAKE_URL", "http://127.0.0.1:9/wake")
        .env("HERMES_SCALE_TO_ZERO", "1")
        .setting("sleep.idle_secs", "1")
}

fn deliver(connector: &Connector, id: &str, text: &str) {
    connector.deliver(&text_event("discord", "c1", id, text)).unwrap();
}

async fn disconnected(connector: &Connector) {
    let gone = connector.until("no connection", SOON, |connector| {
        connector.open_connections().is_empty().then_some(())
    });
    gone.await.unwrap();
}

#[tokio::test]
async fn a_relay_that_ends_to_sleep_ends_well_and_the_next_start_drains_in_order() {
    let connector = connector().await;
    let setup = sleepy(&connector);
    let mut relay = setup.start();
    connector.wait_connected(SOON).await.unwrap();
    deliver(&connector, "m0", "zero");
    connector.reply_to(SOON, "m0").await.unwrap();
    assert_eq!(relay.exit_code(SOON).await, 0, "{}", relay.stderr());
    assert_eq!(relay.count("exiting to sleep"), 1, "{}", relay.stderr());
    disconnected(&connector).await;

    for (id, text) in [("m1", "one"), ("m2", "two"), ("m3", "three")] {
        deliver(&connector, id, text);
    }
    assert_eq!(connector.waiting(), 3);
    let mut relay = setup.start();
    connector.reply_to(SOON, "m3").await.unwrap();
    let texts: Vec<String> = connector
        .sent_messages()
        .into_iter()
        .map(|sent| sent.text)
        .collect();
    assert_eq!(texts, ["echo: zero", "echo: one", "echo: two", "echo: three"]);
    eprintln!(
        "{}",
        relay.wait_for_log("the first message is acknowledged").await
    );
    assert_eq!(
        relay.exit_code(SOON).await,
        0,
        "and it sleeps again: {}",
        relay.stderr()
    );
}

#[tokio::test]
async fn a_suspend_is_requested_once_and_a_machine_that_stays_up_connects_again_after_the_grace_period() {
    let connector = connector().await;
    let mark = tempfile::tempdir().unwrap();
    let mark = mark.path().join("slept");
    let command = format!("[/bin/sh, -c, \"echo slept >> {}\"]", mark.display());
    let setup = sleepy(&connector)
        .setting("sleep.action", "suspend")
        .setting("sleep.command", &command);
    let relay = setup.start();
    relay.wait_for_log("about to be suspended").await;
    disconnected(&connector).await;
    assert_eq!(std::fs::read_to_string(&mark).unwrap(), "slept\n");
    deliver(&connector, "m1", "are you there?");
    assert_eq!(connector.waiting(), 1, "within the fence nobody dials");
    connector.reply_to(SOON, "m1").await.unwrap();
    let replies = connector.sent_messages().len();
    assert_eq!(replies, 1);
    relay.stop().await;
}

#[tokio::test]
async fn the_sleep_url_is_posted_to_and_a_refusal_brings_the_relay_back_immediately() {
    let connector = connector().await;
    let stub = Stub::always(503, "{}").await;
    let relay = sleepy(&connector)
        .env("GATEWAY_RELAY_SLEEP_URL", &format!("{}/sleep", stub.base()))
        .setting("sleep.action", "suspend")
        .start();
    let line = relay.wait_for_log("was not suspended").await;
    assert!(line.contains("503"), "{line}");
    connector.wait_connected(SOON).await.unwrap();
    let seen = stub.seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].uri.as_str()),
        ("POST", "/sleep")
    );
    deliver(&connector, "m1", "still there?");
    connector.reply_to(SOON, "m1").await.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn a_machine_that_nothing_can_suspend_stays_awake_and_reports_it() {
    let connector = connector().await;
    let relay = sleepy(&connector).setting("sleep.action", "suspend").start();
    let line = relay.wait_for_log("nothing can suspend this machine").await;
    assert!(line.contains("sleep.command"), "{line}");
    relay.stop().await;
}
