use tokio::sync::mpsc;

use super::encode::TurnTrace;
use super::recorder::{MOST_OPEN, share_of};
use super::*;
use crate::link::NotSent;
use crate::net::tls::{TlsSettings, client_config};

/// A recorder whose traces nobody sends.
fn recording(sample: f64) -> (Traces, mpsc::Receiver<TurnTrace>) {
    let tls = client_config(&TlsSettings::default()).unwrap();
    let url = "http://127.0.0.1:9/v1/traces";
    let collector = Collector::new((&tls, ProxyRules::none()), "test", url, None).unwrap();
    let mut recorder = Recorder::new(collector, "test".to_owned(), sample);
    let (finished, waiting) = mpsc::channel(2);
    recorder.finished = finished;
    (Traces(Some(Box::new(recorder))), waiting)
}

fn accept(traces: &mut Traces, row: i64) {
    let seen = traces.arrived();
    traces.accepted(seen, row);
}

fn dropped(traces: &Traces) -> u64 {
    traces
        .counts()
        .iter()
        .find(|(name, _)| *name == "dropped")
        .unwrap()
        .1
}

/// Nothing of any turn is left.
#[track_caller]
fn is_empty(traces: &Traces) {
    let recorder = traces.0.as_ref().unwrap();
    assert!(
        recorder.open.is_empty() && recorder.ops.is_empty(),
        "{recorder:?}"
    );
}

#[test]
fn a_trace_is_finished_with_its_last_op_and_nothing_of_it_stays() {
    let (mut traces, mut finished) = recording(1.0);
    let agent: Arc<str> = "tested".into();
    accept(&mut traces, 7);
    traces.steered(|| Some(7));
    traces.began(7, "slack", &agent);
    traces.ended(7, TurnState::Done, 2);
    for op in [40, 41] {
        traces.owed(7, op);
    }
    traces.op_out(40);
    traces.op_settled(40, "send", 0, &SendResult::NotSent(NotSent::Full));
    traces.op_out(40);
    traces.op_settled(40, "nobody's op", 0, &SendResult::NotSent(NotSent::Full));
    traces.op_over(40);
    assert!(finished.try_recv().is_err(), "one is still owed");
    traces.op_over(41);
    let trace = finished.try_recv().unwrap();
    let told: Vec<_> = trace.answer.ops.iter().map(|op| (op.op, op.outcome)).collect();
    assert_eq!(told, [("send", "not_sent"), ("other", "not_sent")]);
    assert_eq!((trace.answer.owed, trace.steered, trace.spans()), (2, 1, 6));
    is_empty(&traces);
    // What comes later is nobody's.
    traces.op_settled(41, "send", 0, &SendResult::NotSent(NotSent::Full));
    traces.op_over(41);
    traces.close(7);
    assert!(finished.try_recv().is_err());
}

#[test]
fn what_is_no_turn_leaves_nothing() {
    let (mut traces, mut finished) = recording(1.0);
    accept(&mut traces, 1);
    traces.forget(1);
    accept(&mut traces, 2);
    traces.close(2);
    traces.loaded(3, 2, 1_000);
    traces.close(3);
    traces.owed(0, 9);
    is_empty(&traces);
    assert!(finished.try_recv().is_err());
}

#[test]
fn what_the_connector_will_not_have_is_told_as_declined_however_far_it_came() {
    let (mut traces, mut finished) = recording(1.0);
    let agent: Arc<str> = "tested".into();
    for row in [1, 2, 3] {
        accept(&mut traces, row);
    }
    traces.declined(1);
    assert!(finished.try_recv().is_err(), "it never ran");
    traces.began(2, "slack", &agent);
    traces.declined(2);
    traces.began(3, "slack", &agent);
    traces.ended(3, TurnState::Done, 2);
    traces.declined(3);
    for owed in [0, 2] {
        let answer = finished.try_recv().unwrap().answer;
        assert_eq!((answer.outcome, answer.owed), ("declined", owed));
    }
    // What is written down after it is nobody's.
    traces.owed(3, 30);
    traces.forget(3);
    is_empty(&traces);
}

#[test]
fn everything_has_a_bound() {
    let (mut traces, mut finished) = recording(1.0);
    let (agent, most): (Arc<str>, _) = ("tested".into(), i64::try_from(MOST_OPEN).unwrap());
    for row in 1..=most + 3 {
        accept(&mut traces, row);
    }
    assert_eq!(dropped(&traces), 3);
    // Two finished ones have room here.
    for row in 1..=4 {
        traces.began(row, "slack", &agent);
        traces.ended(row, TurnState::Done, 0);
    }
    assert_eq!(dropped(&traces), 5);
    while finished.try_recv().is_ok() {}

    traces.began(5, "slack", &agent);
    traces.ended(5, TurnState::Done, 1);
    traces.owed(5, 50);
    for attempt in 0..100 {
        traces.op_out(50);
        traces.op_settled(50, "send", attempt, &SendResult::NotSent(NotSent::Full));
    }
    traces.op_over(50);
    let answer = finished.try_recv().unwrap().answer;
    assert_eq!((answer.ops.len(), answer.unlisted), (MOST_OPS, 36));
}

#[test]
fn the_same_row_is_sampled_or_not_whenever_it_is_asked() {
    let (mut traces, _finished) = recording(0.25);
    let rows = 4000;
    for row in 0..rows {
        accept(&mut traces, row);
    }
    let open = |traces: &Traces| traces.0.as_ref().unwrap().open.len();
    let sampled = open(&traces);
    assert!((800..1200).contains(&sampled), "{sampled}");
    for row in 0..rows {
        traces.loaded(row, 1, 0);
    }
    assert_eq!(open(&traces), sampled);
    assert_eq!(
        (share_of(1.0), share_of(0.0), share_of(0.5)),
        (1 << 64, 0, 1 << 63)
    );
}

#[test]
fn only_words_that_are_names_are_told() {
    for (platform, told) in [
        ("discord", "discord"),
        ("whatsapp_cloud", "whatsapp_cloud"),
        ("", "other"),
        ("12345", "other"),
        ("a b", "other"),
        ("x\"}", "other"),
        ("a-name-that-is-far-longer-than-any-platform", "other"),
    ] {
        assert_eq!(known_word(platform), told);
    }
}

#[test]
fn spans_are_written_as_the_protocol_wants_them() {
    let trace = TurnTrace {
        arrived: 1_000,
        committed: Some(1_200),
        over: 9_000_000_000,
        attempt: 1,
        steered: 0,
        run: Run {
            began: 1_300,
            platform: "slack".to_owned(),
            agent: "code".into(),
            first_word: Some(99_000_000_000),
            failure: Some("timeout"),
            tokens: (3, 4),
        },
        answer: Answer::new(8_000_000_000, "failed", 0),
    };
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        // The first half of a trace's id may be zero, the rest not.
        u64::from(drawn > 3) * drawn
    };
    let body = encode::request("kitchen", &[trace], &mut draw);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    assert_eq!(spans[0]["traceId"], "00000000000000000000000000000001");
    assert_eq!(spans[0]["spanId"], "0000000000000001");
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    assert_eq!(spans[0]["startTimeUnixNano"], "1000", "as text");
    assert_eq!(
        spans[3]["events"][0]["timeUnixNano"], "8000000000",
        "within its span"
    );
    assert_eq!(spans[3]["status"]["code"], 2);
    assert_eq!(
        spans[3]["attributes"],
        serde_json::json!([
            {"key": "relay.agent", "value": {"stringValue": "code"}},
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "3"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "4"}},
            {"key": "error.type", "value": {"stringValue": "timeout"}},
        ])
    );
}
