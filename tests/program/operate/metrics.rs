//! The metrics page: it parses, it moves with traffic, and it tells nothing of any chat.

use std::collections::BTreeMap;

use crate::support::dev::{Connector, text_event};
use rustix::process::Signal;

use crate::operate::http::{address, ask};
use crate::operate::{answered, connected, connector};
use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually;

type Labels = Vec<(String, String)>;
type Sample = (String, Labels, f64);

/// A page, read strictly.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The type of each metric, by name.
    pub(crate) kinds: BTreeMap<String, String>,
    /// Each sample: its name, its labels in order, its value.
    samples: Vec<Sample>,
    text: String,
}

impl Page {
    /// Reads the text format 0.0.4, as far as we write it; anything else is a mistake.
    fn parse(text: &str) -> Self {
        let mut page = Self {
            text: text.to_owned(),
            ..Self::default()
        };
        let mut helped = None;
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                assert!(help.ends_with('.'), "a sentence: {line}");
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(helped.take().as_deref(), Some(name), "help comes first");
                let before = page.kinds.insert(name.to_owned(), kind.to_owned());
                assert!(before.is_none(), "{name} comes once");
            } else {
                let (series, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = match series.split_once('{') {
                    Some((name, rest)) => (name, labels(rest.strip_suffix('}').expect("a closing brace"))),
                    None => (series, Vec::new()),
                };
                let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
                assert!(
                    page.kinds.contains_key(Self::family(name, &page.kinds)),
                    "no type: {line}"
                );
                page.samples.push((name.to_owned(), labels, value));
            }
        }
        page
    }

    /// The metric that a sample belongs to.
    fn family<'n>(name: &'n str, kinds: &BTreeMap<String, String>) -> &'n str {
        let parts = ["_bucket", "_sum", "_count"].into_iter();
        let mut stems = parts.filter_map(|part| name.strip_suffix(part));
        let is_histogram = |stem: &&str| kinds.get(*stem).is_some_and(|kind| kind == "histogram");
        stems.find(is_histogram).unwrap_or(name)
    }

    /// The sum of all samples of that name with these labels among theirs.
    pub(crate) fn value(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        let name = format!("hermes_relay_{name}");
        let has = |labels: &[(String, String)]| {
            wanted
                .iter()
                .all(|(key, value)| labels.iter().any(|(k, v)| k == key && v == value))
        };
        let found: Vec<f64> = self
            .samples
            .iter()
            .filter(|(known, labels, _)| *known == name && has(labels))
            .map(|(_, _, value)| *value)
            .collect();
        assert!(!found.is_empty(), "no {name} with {wanted:?}");
        found.iter().sum()
    }

    /// Every histogram's buckets grow, the last is the count, and the sum is one that the buckets allow.
    fn check_histograms(&self) {
        let histograms = self.kinds.iter().filter(|(_, kind)| *kind == "histogram");
        let mut checked = 0;
        for (name, _) in histograms {
            let short = name.strip_prefix("hermes_relay_").unwrap();
            let buckets = self
                .samples
                .iter()
                .filter(|(known, ..)| *known == format!("{name}_bucket"));
            let buckets: Vec<_> = buckets.collect();
            let bounds: Vec<f64> = buckets
                .iter()
                .map(|(_, labels, _)| labels[0].1.parse().unwrap())
                .collect();
            assert!(
                bounds.is_sorted_by(|a, b| a < b) && bounds.last() == Some(&f64::INFINITY),
                "{name}"
            );
            assert!(buckets.is_sorted_by(|a, b| a.2 <= b.2), "{name}");
            let count = self.value(&format!("{short}_count"), &[]);
            assert!((buckets.last().unwrap().2 - count).abs() < 0.5, "{name}");
            let (mut least, mut most) = (0.0, 0.0);
            let (mut lower, mut below) = (0.0, 0.0);
            for (bound, (_, _, cumulative)) in bounds.iter().zip(&buckets) {
                let values = cumulative - below;
                if values > 0.5 {
                    least += values * lower;
                    most += values * bound;
                }
                (lower, below) = (*bound, *cumulative);
            }
            let sum = self.value(&format!("{short}_sum"), &[]);
            assert!(
                (least - 1e-3..=most + 1e-3).contains(&sum),
                "{name}_sum is {sum}, and its buckets allow {least} to {most}"
            );
            checked += 1;
        }
        assert!(checked >= 5);
    }
}

fn labels(text: &str) -> Labels {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect("a label's value");
        let end = after.find('"').expect("a closing quote");
        assert!(!after[..end].contains('\\'), "our labels need no escapes: {text}");
        found.push((name.trim_start_matches(',').to_owned(), after[..end].to_owned()));
        rest = &after[end + 1..];
    }
    found
}

/// The page of a relay.
pub(crate) async fn page(relay: &RelayProcess) -> Page {
    let (status, text) = ask(address(relay).await, "GET", "/metrics").await;
    assert_eq!(status, 200);
    Page::parse(&text)
}

/// Waits until a number on the page is at least this.
async fn until(relay: &RelayProcess, name: &str, labels: &[(&str, &str)], least: f64) -> Page {
    eventually(&format!("{name} {labels:?} at least {least}"), async || {
        let page = page(relay).await;
        let value = page.value(name, labels);
        if value >= least { Ok(page) } else { Err(value) }
    })
    .await
}

/// A relay with a page.
pub(crate) async fn measured(connector: &Connector) -> RelayProcess {
    let setup = Setup::for_connector(connector).setting("serve.http", "127.0.0.1:0");
    connected(&setup).await
}

#[tokio::test]
async fn the_numbers_move_with_what_happens() {
    let connector = connector().await;
    let relay = measured(&connector).await;
    let before = page(&relay).await;
    before.check_histograms();
    let is = |page: &Page, name: &str, labels: &[(&str, &str)], wanted: f64| {
        let value = page.value(name, labels);
        assert!(
            (value - wanted).abs() < 0.5,
            "{name} {labels:?} is {value}, not {wanted}"
        );
    };
    is(
        &before,
        "build_info",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    is(&before, "link_up", &[], 1.0);
    is(&before, "link_state", &[], 1.0);
    is(&before, "dials_total", &[], 1.0);
    is(&before, "handshake_seconds_count", &[], 1.0);
    is(&before, "frames_sent_total", &[("type", "hello")], 1.0);
    is(&before, "messages_total", &[], 0.0);
    assert!(before.value("resident_memory_bytes", &[]) > 1e6);

    answered(&connector, "m1", "sleep=300 hello").await;
    answered(&connector, "m2", "fail").await;
    connector.send_raw("{\"type\":\"inbound\",\"bufferId\":\"b-bad\",\"event\":7}\n");
    connector.send_raw("nonsense\n");
    connector.send_raw("{\"type\":\"novel\"}\n");
    until(&relay, "quarantined_total", &[], 1.0).await;
    until(
        &relay,
        "ops_total",
        &[("op", "send"), ("outcome", "applied")],
        2.0,
    )
    .await;
    let after = until(&relay, "acks_total", &[], 3.0).await;
    after.check_histograms();
    is(&after, "messages_total", &[], 2.0);
    is(&after, "turns_started_total", &[], 2.0);
    is(&after, "turns_total", &[("outcome", "done")], 1.0);
    is(&after, "turns_total", &[("outcome", "failed")], 1.0);
    is(&after, "turn_seconds_count", &[], 2.0);
    assert!(after.value("turn_seconds_sum", &[]) >= 0.3);
    assert!(after.value("first_token_seconds_count", &[]) >= 1.0);
    is(&after, "frames_received_total", &[("type", "inbound")], 2.0);
    is(&after, "frames_received_total", &[("type", "undecodable")], 2.0);
    is(&after, "frames_received_total", &[("type", "unknown")], 1.0);
    assert!(after.value("frames_received_total", &[("type", "outbound_result")]) >= 2.0);
    assert!(after.value("frames_sent_total", &[("type", "outbound")]) >= 2.0);
    is(&after, "frames_sent_total", &[("type", "inbound_ack")], 3.0);
    is(&after, "decode_errors_total", &[], 2.0);
    assert!(after.value("commit_commands_count", &[]) >= 3.0);
    assert!(after.value("commit_commands_sum", &[]) >= after.value("commit_commands_count", &[]));
    is(&after, "losses_total", &[], 0.0);

    connector.close_with(1001, "bye");
    let lost = until(&relay, "handshakes_total", &[], 2.0).await;
    is(&lost, "losses_total", &[("reason", "closed")], 1.0);
    is(&lost, "losses_total", &[], 1.0);
    for secret in ["c1", "m1", "u1", "gw-dev"] {
        assert!(
            !lost.text.contains(&format!("\"{secret}\"")),
            "{secret} is nobody's business"
        );
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_stopped_process_does_not_answer_and_a_going_one_does() {
    let connector = connector().await;
    let relay = measured(&connector).await;
    connector
        .deliver(&text_event("discord", "c1", "m1", "sleep=60000 x"))
        .unwrap();
    let busy = until(&relay, "turns_running", &[], 1.0).await;
    assert!((busy.value("sessions_active", &[]) - 1.0).abs() < 0.5);
    relay.freeze().await;
    let here = address(&relay).await;
    let asked = tokio::time::timeout(
        std::time::Duration::from_millis(500),
        ask(here, "GET", "/healthz"),
    );
    assert!(asked.await.is_err(), "a frozen relay must not look alive");
    relay.signal(Signal::CONT);
    assert_eq!(ask(here, "GET", "/healthz").await.0, 200);
    relay.signal(Signal::TERM);
}
