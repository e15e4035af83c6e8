//! What a trace contains, and what it never does.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::dev::{OpAnswer, ResultRule};

use crate::support::dev::FrameKinds as _;
use crate::support::relay_process::SOON;
use crate::traces::{
    accepting, answered, attribute, connector, counted, deliver, exporting, has_failed, is_root, named, only,
    received, running, spans, started, times, traces,
};

#[tokio::test]
async fn an_answered_message_is_one_trace() {
    let (connector, collector) = (connector().await, accepting().await);
    let relay = started(&exporting(&connector, &collector.base())).await;
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    answered(&connector, "chat-8471", "mid-5533", "sleep=50 a private matter").await;
    let trace = received(&collector, 1).await.remove(0);
    counted(&relay, "sent", 1.0).await;
    relay.stop().await;
    let names: Vec<_> = trace.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["session", "turn", "op"]);

    let (root, children) = trace.split_first().unwrap();
    let hex = |id: &str, length| id.len() == length && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut ids = BTreeSet::new();
    for span in &trace {
        assert!(hex(span["traceId"].as_str().unwrap(), 32), "{span}");
        assert!(hex(span["spanId"].as_str().unwrap(), 16), "{span}");
        assert!(ids.insert(span["spanId"].to_string()), "an id of its own: {span}");
        assert!(!has_failed(span), "{span}");
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
    let (turn, op) = (only(&trace, "turn"), only(&trace, "op"));
    let (began, ended) = times(turn);
    assert!(ended <= times(op).0, "one after the other");
    assert!(ended - began >= 50_000_000, "the agent slept: {turn}");
    assert_eq!(turn["events"][0]["name"], "first_token");
    let first: u64 = turn["events"][0]["timeUnixNano"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((began + 50_000_000..=ended).contains(&first), "{turn}");
    assert!(u128::from(from) + 1_000_000_000 > before.as_nanos());

    for (span, key, wanted) in [
        (root, "relay.platform", "discord"),
        (root, "relay.agent", "echo"),
        (root, "relay.outcome", "done"),
        (root, "relay.attempt", "1"),
        (root, "relay.steered", "0"),
        (root, "relay.ops", "1"),
        (turn, "relay.agent", "echo"),
        (turn, "relay.platform", "discord"),
        (op, "relay.op", "send"),
        (op, "relay.outcome", "applied"),
        (op, "relay.attempt", "1"),
    ] {
        assert_eq!(attribute(span, key).as_deref(), Some(wanted), "{key}");
    }
    let queued: u64 = attribute(root, "relay.queued_ms").unwrap().parse().unwrap();
    assert!(queued < 10_000);
    let kinds: Vec<_> = trace.iter().map(|span| span["kind"].as_i64().unwrap()).collect();
    assert_eq!(kinds, [5, 3, 3], "consumer, client, client");

    let posted = collector.only();
    assert_eq!(
        (posted.method.as_str(), posted.uri.as_str()),
        ("POST", "/v1/traces")
    );
    assert_eq!(posted.header("content-type"), Some("application/json"));
    let resource = &posted.json()["resourceSpans"][0]["resource"];
    assert_eq!(
        attribute(resource, "service.name").as_deref(),
        Some("hermes-relay")
    );
    for private in [
        "8471",
        "5533",
        "private",
        "matter",
        "echo:",
        "u1",
        "User One",
        "agent:main",
        "\"session\":",
    ] {
        assert!(!posted.body.contains(private), "{private} in {}", posted.body);
    }
    let allowed = ["relay.", "gen_ai.usage.", "error.type"];
    for pair in trace
        .iter()
        .flat_map(|span| span["attributes"].as_array().unwrap())
    {
        let key = pair["key"].as_str().unwrap();
        assert!(allowed.iter().any(|prefix| key.starts_with(prefix)), "{key}");
    }
}

#[tokio::test]
async fn waiting_and_failures_are_visible() {
    let (connector, collector) = (connector().await, accepting().await);
    let relay = started(&exporting(&connector, &collector.base())).await;
    deliver(&connector, "a", "1", "sleep=3000 first");
    deliver(&connector, "a", "2", "fail");
    let traces = received(&collector, 2).await;
    let outcome = |trace: &[serde_json::Value]| attribute(&trace[0], "relay.outcome").unwrap();
    let (first, second) = (&traces[0], &traces[1]);
    assert_eq!(
        (outcome(first).as_str(), outcome(second).as_str()),
        ("done", "failed")
    );
    let queued: u64 = attribute(&second[0], "relay.queued_ms").unwrap().parse().unwrap();
    assert!(queued >= 500, "it waited for the first: {queued}");
    assert!(times(only(second, "turn")).0 >= times(only(first, "turn")).1);
    let (arrived, began) = (times(&second[0]).0, times(only(second, "turn")).0);
    assert!(began - arrived >= 500_000_000, "from its arrival on");
    assert!(has_failed(&second[0]) && has_failed(only(second, "turn")));
    assert_eq!(
        attribute(only(second, "turn"), "error.type").as_deref(),
        Some("reported")
    );
    assert_ne!(first[0]["traceId"], second[0]["traceId"]);

    deliver(&connector, "a", "3", "sleep=600000 late");
    running(&relay).await;
    deliver(&connector, "a", "4", "/stop");
    let stopped = received(&collector, 3).await.remove(2);
    assert_eq!(outcome(&stopped), "stopped");
    assert!(!has_failed(&stopped[0]), "a request is no failure");
    relay.stop().await;
}

#[tokio::test]
async fn ops_have_a_span_each_time_they_are_sent() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base()).setting("sessions.resend_unknown", "all");
    let relay = started(&setup).await;
    let refuse = |code: Option<&str>| OpAnswer::Refuse {
        error: "no".to_owned(),
        code: code.map(str::to_owned),
    };
    connector.script(ResultRule::on("send", refuse(None)).once());
    deliver(&connector, "a", "1", "one");
    let refused = received(&collector, 1).await.remove(0);
    assert_eq!(attribute(&refused[0], "relay.outcome").as_deref(), Some("done"));
    let op = named(&refused, "op")[0];
    assert_eq!(attribute(op, "relay.outcome").as_deref(), Some("refused"));
    assert!(has_failed(op));

    connector.clear_script();
    connector.script(ResultRule::on("send", OpAnswer::DropSocket).once());
    deliver(&connector, "a", "2", "two");
    let repeated = received(&collector, 2).await.remove(1);
    let sent: Vec<_> = named(&repeated, "op")
        .into_iter()
        .map(|op| ["relay.outcome", "relay.attempt"].map(|key| attribute(op, key).unwrap()))
        .collect();
    assert_eq!(sent, [["unknown", "1"], ["applied", "2"]]);

    connector.clear_script();
    connector.script(ResultRule::on("send", refuse(Some("egress_declined"))).once());
    deliver(&connector, "a", "3", "three");
    let declined = received(&collector, 3).await.remove(2);
    assert_eq!(
        attribute(&declined[0], "relay.outcome").as_deref(),
        Some("declined")
    );
    relay.stop().await;
}

#[tokio::test]
async fn what_an_earlier_run_left_is_traced_from_its_arrival() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base());
    let mut relay = started(&setup).await;
    deliver(&connector, "a", "1", "sleep=600000 late");
    deliver(&connector, "a", "2", "waits");
    connector
        .until("two acknowledgements", SOON, |connector| {
            let frames = connector.frames();
            let acks = frames
                .iter()
                .filter(|frame| frame.is_from_gateway("inbound_ack"))
                .count();
            (acks >= 2).then_some(())
        })
        .await
        .unwrap();
    relay.kill().await;
    let restarted = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let relay = started(&setup).await;
    connector.reply_to(SOON, "2").await.unwrap();
    let trace = received(&collector, 1).await.remove(0);
    let queued: u64 = attribute(&trace[0], "relay.queued_ms").unwrap().parse().unwrap();
    let (arrived, _) = times(&trace[0]);
    assert!(u128::from(arrived) < restarted.as_nanos(), "before the restart");
    let began = times(only(&trace, "turn")).0;
    // A busy machine may pause it between the two.
    assert!(queued * 1_000_000 <= began - arrived && began - arrived < (queued + 500) * 1_000_000);
    relay.stop().await;
}

#[tokio::test]
async fn commands_are_no_traces() {
    let (connector, collector) = (connector().await, accepting().await);
    let relay = started(&exporting(&connector, &collector.base())).await;
    deliver(&connector, "a", "1", "/stop");
    answered(&connector, "a", "2", "hi").await;
    received(&collector, 1).await;
    relay.stop().await;
    assert_eq!(spans(&collector).iter().filter(|span| is_root(span)).count(), 1);
}

#[tokio::test]
async fn a_part_of_all_turns_is_traced_or_none() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base()).setting("telemetry.sample", "0.5");
    let relay = started(&setup).await;
    for chat in 0..200 {
        deliver(&connector, &format!("c{chat}"), &format!("m{chat}"), "hi");
    }
    for chat in 0..200 {
        connector.reply_to(SOON, &format!("m{chat}")).await.unwrap();
    }
    relay.stop().await;
    let sampled = traces(&collector).len();
    assert!((50..150).contains(&sampled), "{sampled} of 200");

    let (connector, collector) = (self::connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base()).setting("telemetry.sample", "0");
    let relay = started(&setup).await;
    answered(&connector, "a", "1", "hi").await;
    relay.stop().await;
    assert!(collector.seen().is_empty());
}

#[tokio::test]
async fn the_end_of_the_program_sends_what_is_there() {
    let (connector, collector) = (connector().await, accepting().await);
    let setup = exporting(&connector, &collector.base()).setting("shutdown.drain_secs", "0");
    let relay = started(&setup).await;
    answered(&connector, "a", "1", "hi").await;
    deliver(&connector, "b", "2", "stream=3 sleep=600000 late");
    running(&relay).await;
    relay.stop().await;
    let outcomes: BTreeSet<_> = traces(&collector)
        .iter()
        .map(|trace| attribute(&trace[0], "relay.outcome").unwrap())
        .collect();
    assert_eq!(
        outcomes,
        BTreeSet::from(["done".to_owned(), "interrupted".to_owned()])
    );
}
