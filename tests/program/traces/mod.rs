//! Traces: the real relay, and a real collector on loopback. What a turn's trace says and never says, and that no
//! collector, however it behaves, touches a turn.

mod collector;
mod declining;
mod process;
mod telling;

use crate::support::http_stub::Stub;
use crate::support::memory_relay::Running;
use crate::support::wait::eventually;
use hermes_relay::config::Settings;
use hermes_relay::relay::Metrics;
use serde_json::Value;

/// A collector that takes everything.
async fn willing() -> Stub {
    Stub::always(200, "{}").await
}

/// Settings that send every trace there.
fn to(base: &str) -> impl FnOnce(&mut Settings) {
    let base = base.to_owned();
    move |settings| settings.telemetry.otlp_endpoint = Some(base)
}

/// Every span that a collector was sent.
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

/// The spans of each trace, its root first.
fn traces(stub: &Stub) -> Vec<Vec<Value>> {
    let all = spans(stub);
    let roots = all.iter().filter(|span| span.get("parentSpanId").is_none());
    roots
        .map(|root| {
            let of_it = |span: &&Value| span["traceId"] == root["traceId"] && *span != root;
            let children = all.iter().filter(of_it).cloned();
            std::iter::once(root.clone()).chain(children).collect()
        })
        .collect()
}

/// Waits until a collector has so many traces, and gives them.
async fn traced(stub: &Stub, count: usize) -> Vec<Vec<Value>> {
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
fn about(span: &Value, key: &str) -> Option<String> {
    let attributes = span["attributes"].as_array()?;
    let value = &attributes.iter().find(|attribute| attribute["key"] == key)?["value"];
    let text = value.get("stringValue").or_else(|| value.get("intValue"))?;
    Some(text.as_str()?.to_owned())
}

/// The spans of a trace that have this name.
fn named<'t>(trace: &'t [Value], name: &str) -> Vec<&'t Value> {
    trace.iter().filter(|span| span["name"] == name).collect()
}

/// The only span of a trace that has this name.
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

/// How many traces came to this end.
fn counted(metrics: &Metrics, outcome: &str) -> u64 {
    metrics
        .traces
        .iter()
        .find(|(name, _)| *name == outcome)
        .unwrap()
        .1
}

/// Waits until so many traces came to this end.
async fn counts(relay: &Running, outcome: &str, least: u64) -> u64 {
    eventually(&format!("{least} traces {outcome}"), async || {
        let metrics = relay.handle.metrics().await.unwrap();
        let count = counted(&metrics, outcome);
        if count >= least {
            Ok(count)
        } else {
            Err(metrics.traces)
        }
    })
    .await
}
