//! docs/metrics.md and docs/grafana.json say what the page says: no more, no less.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::operate::connector;
use crate::operate::metrics::{Page, measured, page};

fn document(name: &str) -> String {
    let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every word of a text that is a metric's name or a part of a histogram.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("hermes_relay_"))
        .map(str::to_owned)
        .collect()
}

/// The metric that a name in an expression stands for; fails when there is none.
fn known(page: &Page, name: &str) -> String {
    let parts = ["_bucket", "_sum", "_count"].into_iter();
    let mut stems = parts.filter_map(|part| name.strip_suffix(part));
    let stem = stems.find(|stem| page.kinds.get(*stem).is_some_and(|kind| kind == "histogram"));
    let name = stem.unwrap_or(name);
    assert!(page.kinds.contains_key(name), "{name} is not on the page");
    name.to_owned()
}

/// Every query of a dashboard.
fn expressions(dashboard: &Value, found: &mut Vec<String>) {
    match dashboard {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(query) if key == "expr" || (key == "query" && query != "prometheus") => {
                        found.push(query.clone());
                    }
                    other => expressions(other, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| expressions(inner, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_metric_exists() {
    let connector = connector().await;
    let relay = measured(&connector).await;
    let page = page(&relay).await;
    let text = document("metrics.md");
    let rows: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `hermes_relay_")?.split('`').next())
        .map(|name| format!("hermes_relay_{}", name.split('{').next().unwrap_or(name)))
        .collect();
    let served: BTreeSet<String> = page.kinds.keys().cloned().collect();
    assert_eq!(rows, served);
    for name in named(&text) {
        known(&page, &name);
    }
    let dashboard: Value = serde_json::from_str(&document("grafana.json")).unwrap();
    let mut queries = Vec::new();
    expressions(&dashboard, &mut queries);
    assert!(queries.len() >= 10, "{queries:?}");
    for query in &queries {
        let names = named(query);
        assert!(!names.is_empty(), "{query}");
        for name in names {
            known(&page, &name);
        }
    }
    relay.stop().await;
}
