//! What configures traces, what the log reports of the collector, and what stays secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::support::http_stub::{Stub, reply};
use crate::support::relay_process::Setup;
use crate::traces::{accepting, answered, attribute, connector, exporting, received, started, traces};

const SECRET: &str = "hunter2-of-the-collector";

#[tokio::test]
async fn the_usual_variables_configure_it_and_the_headers_stay_secret() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = Setup::for_connector(&connector)
        .setting("log.level", "trace")
        .env("RUST_LOG", "trace")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base())
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("x-team=ops,authorization=Bearer%20{SECRET}"),
        )
        .env("OTEL_SERVICE_NAME", "kitchen");
    let relay = started(&setup).await;
    answered(&connector, "c1", "m1", "hi").await;
    let traces = received(&collector, 1).await;
    assert_eq!(attribute(&traces[0][0], "relay.agent").as_deref(), Some("echo"));
    let posted = collector.only();
    assert_eq!(
        posted.header("authorization"),
        Some(format!("Bearer {SECRET}").as_str())
    );
    assert_eq!(posted.header("x-team"), Some("ops"));
    let resource = &posted.json()["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name").as_deref(), Some("kitchen"));
    let shown = setup.verb(&["config", "show"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("telemetry.headers") && shown.contains("<hidden>"),
        "{shown}"
    );
    let log = relay.stderr();
    relay.stop().await;
    for text in [shown, log, posted.body] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// The SDK knows variables that are none of ours.
#[tokio::test]
async fn other_variables_of_opentelemetry_change_nothing() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base())
        .env("OTEL_TRACES_SAMPLER", "always_off")
        .env("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=kitchen")
        .env("OTEL_SDK_DISABLED", "true");
    let relay = started(&setup).await;
    answered(&connector, "c1", "m1", "hi").await;
    let trace = received(&collector, 1).await.remove(0);
    assert_eq!(attribute(&trace[0], "relay.outcome").as_deref(), Some("done"));
    relay.stop().await;
    assert!(!collector.only().body.contains("kitchen"));
}

#[tokio::test]
async fn traces_do_not_change_what_the_log_prints() {
    let (connector, collector) = (connector().await, accepting().await);
    let relay = started(&exporting(&connector, &collector.base())).await;
    answered(&connector, "c1", "m1", "fail").await;
    let trace = received(&collector, 1).await.remove(0);
    assert_eq!(trace.len(), 3, "its op too: {trace:?}");
    let log = relay.stderr();
    assert!(log.contains("the turn failed"), "{log}");
    assert!(!log.contains("DEBUG") && !log.contains("op{"), "{log}");
    relay.stop().await;
}

#[tokio::test]
async fn a_failing_collector_is_logged_once_and_so_is_its_return() {
    let (connector, status) = (connector().await, Arc::new(AtomicU16::new(401)));
    let current = Arc::clone(&status);
    let collector = Stub::start(move |_| reply(current.load(Ordering::SeqCst), "{}")).await;
    let relay = started(&exporting(&connector, &collector.base())).await;
    relay.wait_for_log("exporting traces to the collector").await;
    for (before, id) in ["m1", "m2"].into_iter().enumerate() {
        answered(&connector, "c1", id, "hi").await;
        received(&collector, before + 1).await;
    }
    relay.wait_for_log("it answered 401").await;
    status.store(200, Ordering::SeqCst);
    answered(&connector, "c1", "m3", "hi").await;
    relay.wait_for_log("accepts traces again").await;
    let log = relay.stderr();
    assert_eq!(log.matches("does not accept traces").count(), 1, "{log}");
    assert!(log.contains("port 4318"), "{log}");
    relay.stop().await;
    assert_eq!(traces(&collector).len(), 3);
}

#[tokio::test]
async fn headers_are_not_sent_unencrypted_over_a_network_and_the_relay_works_without_traces() {
    let connector = connector().await;
    let setup = Setup::for_connector(&connector)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.example:4318")
        .env("OTEL_EXPORTER_OTLP_HEADERS", &format!("key={SECRET}"));
    let relay = started(&setup).await;
    relay.wait_for_log("unencrypted; use https").await;
    answered(&connector, "c1", "m1", "hi").await;
    assert!(!relay.stderr().contains(SECRET), "{}", relay.stderr());
    relay.stop().await;
}
