//! The real binary: what it is told by the environment, what it says of its collector, and what it keeps to itself.

use hermes_relay::dev::{Connector, ConnectorSettings, text_event};

use crate::support::http_stub::Stub;
use crate::support::relay_process::{SOON, Setup};
use crate::traces::{about, traced, willing};

const SECRET: &str = "hunter2-of-the-collector";

async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

async fn answered(connector: &Connector, id: &str) {
    connector.deliver(&text_event("discord", "c1", id, "hi")).unwrap();
    connector.reply_to(SOON, id).await.unwrap();
}

#[tokio::test]
async fn the_usual_variables_are_enough_and_the_headers_stay_secret() {
    let (connector, collector) = (connector().await, willing().await);
    let setup = Setup::against(&connector)
        .setting("log.level", "trace")
        .env("RUST_LOG", "trace")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base())
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("x-team=ops,authorization=Bearer%20{SECRET}"),
        )
        .env("OTEL_SERVICE_NAME", "kitchen");
    let relay = setup.start();
    relay.says("connected to the connector").await;
    answered(&connector, "m1").await;
    let traces = traced(&collector, 1).await;
    assert_eq!(about(&traces[0][0], "relay.agent").as_deref(), Some("echo"));
    let posted = collector.only();
    assert_eq!(
        posted.header("authorization"),
        Some(format!("Bearer {SECRET}").as_str())
    );
    assert_eq!(posted.header("x-team"), Some("ops"));
    let resource = &posted.json()["resourceSpans"][0]["resource"];
    assert_eq!(about(resource, "service.name").as_deref(), Some("kitchen"));
    let shown = setup.verb(&["config", "show"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("telemetry.headers") && shown.contains("<hidden>"),
        "{shown}"
    );
    let said = relay.said();
    relay.stops().await;
    for text in [shown, said, posted.body] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn a_collector_that_fails_is_told_once_and_so_is_its_return() {
    let (connector, mood) = (
        connector().await,
        std::sync::Arc::new(std::sync::atomic::AtomicU16::new(401)),
    );
    let told = std::sync::Arc::clone(&mood);
    let collector = Stub::start(move |_| {
        crate::support::http_stub::reply(told.load(std::sync::atomic::Ordering::SeqCst), "{}")
    })
    .await;
    let setup = Setup::against(&connector).setting("telemetry.otlp_endpoint", &collector.base());
    let relay = setup.start();
    relay.says("traces of turns go to a collector").await;
    relay.says("connected to the connector").await;
    for (asked, id) in ["m1", "m2"].into_iter().enumerate() {
        answered(&connector, id).await;
        traced(&collector, asked + 1).await;
    }
    relay.says("it answered 401").await;
    mood.store(200, std::sync::atomic::Ordering::SeqCst);
    answered(&connector, "m3").await;
    relay.says("takes traces again").await;
    let said = relay.said();
    assert_eq!(said.matches("does not take traces").count(), 1, "{said}");
    assert!(said.contains("port 4318"), "{said}");
    relay.stops().await;
}

#[tokio::test]
async fn headers_do_not_cross_a_network_in_the_clear_and_the_relay_works_without_traces() {
    let connector = connector().await;
    let setup = Setup::against(&connector)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("key={SECRET}"));
    let relay = setup.start();
    relay.says("unencrypted; use https").await;
    relay.says("connected to the connector").await;
    answered(&connector, "m1").await;
    assert!(!relay.said().contains(SECRET), "{}", relay.said());
    relay.stops().await;
}
