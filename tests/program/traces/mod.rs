//! Traces: the real binary, and a collector on loopback. What a trace of a turn contains and what it never contains, and that
//! no collector, however it behaves, affects a turn.

mod collector;
mod contents;
mod process;
mod spans;

use crate::support::dev::{Connector, ConnectorSettings, text_event};
use serde_json::Value;

use crate::operate::metrics::page;
use crate::support::http_stub::Stub;
use crate::support::relay_process::{RelayProcess, SOON, Setup};
use crate::support::wait::eventually;

async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

/// A collector that accepts everything.
async fn accepting() -> Stub {
    Stub::always(200, "{}").await
}

/// A relay that exports every trace to this address, and serves its metrics.
fn exporting(connector: &Connector, base: &str) -> Setup {
    Setup::for_connector(connector)
        .setting("telemetry.otlp_endpoint", base)
        .setting("serve.http", "127.0.0.1:0")
}

async fn started(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    relay
}

fn deliver(connector: &Connector, chat: &str, id: &str, text: &str) {
    connector.deliver(&text_event("discord", chat, id, text)).unwrap();
}

async fn answered(connector: &Connector, chat: &str, id: &str, text: &str) {
    deliver(connector, chat, id, text);
    connector.reply_to(SOON, id).await.unwrap();
}

/// Every span that a collector received.
fn spans(stub: &Stub) -> Vec<Value> {
    let mut found = Vec::new();
    for seen in stub.seen() {
        for resource in seen.json()["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                found.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    found
}

fn is_root(span: &Value) -> bool {
    span["parentSpanId"].as_str().is_none_or(str::is_empty)
}

/// The spans of each trace, its root first.
fn traces(stub: &Stub) -> Vec<Vec<Value>> {
    let all = spans(stub);
    let roots = all.iter().filter(|span| is_root(span));
    roots
        .map(|root| {
            let of_it = |span: &&Value| span["traceId"] == root["traceId"] && *span != root;
            let children = all.iter().filter(of_it).cloned();
            std::iter::once(root.clone()).chain(children).collect()
        })
        .collect()
}

/// Waits until a collector has this many traces.
async fn received(stub: &Stub, count: usize) -> Vec<Vec<Value>> {
    eventually(&format!("{count} traces"), async || {
        let traces = traces(stub);
        if traces.len() >= count {
            Ok(traces)
        } else {
            Err(traces)
        }
    })
    .await
}

/// An attribute as text.
fn attribute(span: &Value, key: &str) -> Option<String> {
    let attributes = span["attributes"].as_array()?;
    let value = &attributes.iter().find(|attribute| attribute["key"] == key)?["value"];
    let text = value.get("stringValue").or_else(|| value.get("intValue"))?;
    Some(text.as_str()?.to_owned())
}

fn has_failed(span: &Value) -> bool {
    span["status"]["code"] == 2
}

fn named<'t>(trace: &'t [Value], name: &str) -> Vec<&'t Value> {
    trace.iter().filter(|span| span["name"] == name).collect()
}

/// The only span of a trace with this name.
#[track_caller]
fn only<'t>(trace: &'t [Value], name: &str) -> &'t Value {
    let found = named(trace, name);
    assert_eq!(found.len(), 1, "{name} in {trace:?}");
    found[0]
}

/// When a span began and ended, in nanoseconds.
fn times(span: &Value) -> (u64, u64) {
    let at = |key: &str| span[key].as_str().unwrap().parse().unwrap();
    (at("startTimeUnixNano"), at("endTimeUnixNano"))
}

/// Waits until a turn runs.
async fn running(relay: &RelayProcess) {
    eventually("a running turn", async || {
        page(relay).await.value("turns_running", &[]) > 0.5
    })
    .await;
}

/// Waits until this many traces have this outcome.
async fn counted(relay: &RelayProcess, outcome: &str, least: f64) -> f64 {
    eventually(&format!("{least} traces {outcome}"), async || {
        let value = page(relay).await.value("traces_total", &[("outcome", outcome)]);
        if value >= least { Ok(value) } else { Err(value) }
    })
    .await
}
