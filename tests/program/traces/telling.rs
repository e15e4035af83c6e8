//! What a trace tells, and what it never does.

use std::collections::BTreeSet;

use hermes_relay::agent::{Agent, AgentFuture, AgentInfo, EchoAgent, Turn, TurnEnd, TurnInput};
use hermes_relay::config::BusyMode;
use hermes_relay::relay::Answering;
use hermes_relay::wire::SessionKey;
use serde_json::json;

use crate::support::memory_relay::{session, start_with};
use crate::traces::{about, counts, named, only, times, to, traced, willing};

#[tokio::test]
async fn a_message_that_is_answered_is_one_trace_with_everything_in_its_place() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    let before = std::time::SystemTime::now();
    relay
        .hears("chat-8471", "mid-5533", "sleep=50 a private matter")
        .await;
    let traces = traced(&collector, 1).await;
    counts(&relay, "sent", 1).await;
    relay.stop().await;
    let trace = &traces[0];
    let names: Vec<_> = trace.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["turn", "commit", "wait", "agent", "op"]);

    let (root, children) = trace.split_first().unwrap();
    let hex = |id: &str, length| id.len() == length && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut ids = BTreeSet::new();
    for span in trace {
        assert!(hex(span["traceId"].as_str().unwrap(), 32), "{span}");
        assert!(hex(span["spanId"].as_str().unwrap(), 16), "{span}");
        assert!(ids.insert(span["spanId"].to_string()), "an id of its own: {span}");
    }
    let (from, to) = times(root);
    for child in children {
        assert_eq!(child["parentSpanId"], root["spanId"]);
        let (began, ended) = times(child);
        assert!(
            from <= began && began <= ended && ended <= to,
            "{child} in {root}"
        );
    }
    // One after the other.
    let order: Vec<_> = ["commit", "wait", "agent", "op"]
        .map(|name| times(only(trace, name)))
        .into();
    assert!(
        order.is_sorted_by(|(_, before), (after, _)| before <= after),
        "{order:?}"
    );
    assert_eq!(order[0].0, from, "from the arrival on");
    let agent = only(trace, "agent");
    assert!(order[2].1 - order[2].0 >= 50_000_000, "the agent slept: {agent}");
    assert_eq!(agent["events"][0]["name"], "first_token");
    let first: u64 = agent["events"][0]["timeUnixNano"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((order[2].0 + 50_000_000..=order[2].1).contains(&first), "{agent}");
    let since = before.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    assert!(
        u128::from(from) + 1_000_000_000 > since,
        "on the clock of the wall"
    );

    for (key, wanted) in [
        ("relay.platform", "discord"),
        ("relay.agent", "tested"),
        ("relay.outcome", "done"),
        ("relay.attempt", "1"),
        ("relay.steered", "0"),
        ("relay.ops", "1"),
    ] {
        assert_eq!(about(root, key).as_deref(), Some(wanted), "{key}");
    }
    assert!(about(root, "relay.queued_ms").unwrap().parse::<u64>().unwrap() < 10_000);
    let op = only(trace, "op");
    assert_eq!(about(op, "relay.op").as_deref(), Some("send"));
    assert_eq!(about(op, "relay.outcome").as_deref(), Some("applied"));
    assert!(trace.iter().all(|span| span.get("status").is_none()));

    let posted = collector.only();
    assert_eq!(
        (posted.method.as_str(), posted.uri.as_str()),
        ("POST", "/v1/traces")
    );
    assert_eq!(posted.header("content-type"), Some("application/json"));
    let resource = &posted.json()["resourceSpans"][0]["resource"];
    assert_eq!(about(resource, "service.name").as_deref(), Some("hermes-relay"));
    let key = session("chat-8471");
    for private in [
        "8471",
        "5533",
        "private",
        "matter",
        "echo",
        "user-of",
        "guild",
        key.as_str(),
    ] {
        assert!(!posted.body.contains(private), "{private} in {}", posted.body);
    }
}

#[tokio::test]
async fn what_waits_waits_in_its_trace_and_what_fails_is_marked() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, to(&collector.base())).await;
    relay.hears("a", "1", "sleep=1500 first").await;
    relay.runs(1).await;
    relay.hears("a", "2", "fail").await;
    let traces = traced(&collector, 2).await;
    let (first, second) = (&traces[0], &traces[1]);
    let (began, ended) = times(only(second, "wait"));
    assert!(ended - began > 50_000_000, "it waited for the first");
    assert!(ended >= times(only(first, "agent")).1, "and for all of it");
    assert!(
        about(&second[0], "relay.queued_ms")
            .unwrap()
            .parse::<u64>()
            .unwrap()
            >= 50
    );
    assert_eq!(about(&second[0], "relay.outcome").as_deref(), Some("failed"));
    assert_eq!(second[0]["status"]["code"], 2);
    assert_eq!(
        about(only(second, "agent"), "error.type").as_deref(),
        Some("reported")
    );
    assert_ne!(first[0]["traceId"], second[0]["traceId"]);

    relay.hears("a", "3", "sleep=600000 late").await;
    relay.runs(1).await;
    relay.interrupt("a").await;
    let stopped = &traced(&collector, 3).await[2];
    assert_eq!(about(&stopped[0], "relay.outcome").as_deref(), Some("stopped"));
    assert!(stopped[0].get("status").is_none(), "a person's wish is no error");
    relay.stop().await;
}

#[tokio::test]
async fn ops_tell_what_became_of_them_each_time() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        to(&collector.base())(settings);
        settings.sessions.resend_unknown = true;
    })
    .await;
    relay.connector.answering(Answering::Refuse("no".into()));
    relay.hears("a", "1", "one").await;
    let refused = traced(&collector, 1).await.remove(0);
    assert_eq!(
        about(only(&refused, "op"), "relay.outcome").as_deref(),
        Some("refused")
    );
    assert_eq!(only(&refused, "op")["status"]["code"], 2);
    assert_eq!(about(&refused[0], "relay.outcome").as_deref(), Some("done"));

    relay.connector.answering(Answering::Hold);
    relay.hears("a", "2", "two").await;
    relay.seen("the op", |seen| seen.in_flight == 1).await;
    relay.hears("b", "1", "other").await;
    let seen = relay.seen("the other op", |seen| seen.in_flight == 2).await;
    let other = seen.ops.iter().find(|op| op.chat() == Some("b")).unwrap();
    relay.connector.answer(other.number, &json!({"success": true}));
    // The one that began later is told, the one that is still owed is not.
    assert_eq!(traced(&collector, 2).await.len(), 2);
    relay.connector.drop_connection();
    relay.connector.answering(Answering::Apply);
    relay.connector.restore();
    let repeated = traced(&collector, 3).await.remove(2);
    let told: Vec<_> = named(&repeated, "op")
        .into_iter()
        .map(|op| {
            (
                about(op, "relay.outcome").unwrap(),
                about(op, "relay.attempt").unwrap(),
            )
        })
        .collect();
    let words = |outcome: &str, attempt: &str| (outcome.to_owned(), attempt.to_owned());
    assert_eq!(told, [words("unknown", "1"), words("applied", "2")]);
    relay.stop().await;
}

#[tokio::test]
async fn what_an_earlier_run_left_is_traced_from_when_it_came() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, |_| {}).await;
    relay.hears("a", "1", "sleep=600000 late").await;
    relay.runs(1).await;
    relay.hears("a", "2", "waits").await;
    relay.seen("both safe", |seen| seen.acks.len() == 2).await;
    relay.crash().await;
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        to(&collector.base())(settings);
        settings.sessions.interrupted_notice = None;
    })
    .await;
    relay.interrupt("a").await;
    relay.told("a", 1).await;
    let traces = traced(&collector, 1).await;
    let waited = traces
        .iter()
        .find(|trace| about(&trace[0], "relay.outcome").as_deref() == Some("done"))
        .expect("the message that waited");
    assert!(named(waited, "commit").is_empty(), "nobody here saw it committed");
    assert_eq!(times(only(waited, "wait")).0, times(&waited[0]).0);
    relay.stop().await;
}

/// Runs until it is told `end`; takes everything else.
#[derive(Clone, Default)]
struct Listener(std::sync::Arc<tokio::sync::Notify>);

impl Agent for Listener {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "listener".into(),
            steers: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            self.0.notified().await;
            turn.events.text("heard").await;
            TurnEnd::Completed
        })
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        if input.text == "end" {
            self.0.notify_one();
        }
        true
    }
}

#[tokio::test]
async fn what_a_turn_was_handed_is_counted_in_its_trace_and_has_none_of_its_own() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), Listener::default(), |settings| {
        to(&collector.base())(settings);
        settings.sessions.busy_mode = BusyMode::Steer;
    })
    .await;
    relay.hears("a", "1", "listen").await;
    relay.runs(1).await;
    relay.hears("a", "2", "left").await;
    relay.hears("a", "3", "end").await;
    let traces = traced(&collector, 1).await;
    assert_eq!(about(&traces[0][0], "relay.steered").as_deref(), Some("2"));
    relay.stop().await;
    assert_eq!(crate::traces::traces(&collector).len(), 1);
}

#[tokio::test]
async fn a_part_of_all_turns_is_traced_or_none() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        to(&collector.base())(settings);
        settings.telemetry.sample = 0.5;
    })
    .await;
    for chat in 0..200 {
        relay.hears(&format!("c{chat}"), "1", "hi").await;
    }
    relay
        .stands("all done", |status| status.tally.ops_applied == 200)
        .await;
    relay.stop().await;
    let sampled = crate::traces::traces(&collector).len();
    assert!((50..150).contains(&sampled), "{sampled} of 200");

    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        to(&collector.base())(settings);
        settings.telemetry.sample = 0.0;
    })
    .await;
    relay.hears("a", "1", "hi").await;
    relay.told("a", 1).await;
    relay.stop().await;
    assert!(collector.seen().is_empty());
}

#[tokio::test]
async fn the_end_of_the_relay_sends_what_is_there() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let relay = start_with(dir.path(), EchoAgent, |settings| {
        to(&collector.base())(settings);
        settings.shutdown.drain_secs = 0;
    })
    .await;
    relay.hears("a", "1", "hi").await;
    relay.told("a", 1).await;
    relay.hears("b", "1", "sleep=600000 late").await;
    relay.runs(1).await;
    relay.stop().await;
    let outcomes: BTreeSet<_> = crate::traces::traces(&collector)
        .iter()
        .map(|trace| about(&trace[0], "relay.outcome").unwrap())
        .collect();
    assert_eq!(
        outcomes,
        BTreeSet::from(["done".to_owned(), "interrupted".to_owned()])
    );
}
