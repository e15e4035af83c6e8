//! Frames that nobody can use, between frames that must be answered.

use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, FrameKinds as _, text_event};
use hermes_relay::store::{Inspector, Section};
use serde_json::{Value, json};

use crate::link::refusals::dials;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

const ROUNDS: usize = 4;

/// A connector that refuses a second socket, so that one too many shows.
async fn strict() -> Connector {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.refuse_second_connections();
    connector
}

fn good(number: usize) -> (String, Value) {
    let id = format!("good-{number}");
    let event = text_event("discord", "c1", &id, &format!("good {number}"));
    (id, event)
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// Frames that came without a buffer id, as they stand on the wire.
fn loose() -> Vec<String> {
    let lines = [
        "[1,2,3]",
        "\"text\"",
        "5",
        "null",
        "{\"type\":\"inbound\"",
        "{\"type\":\"inbound\",\"event\":null}",
        "{\"type\":\"inbound\",\"event\":\"text\"}",
        "{\"type\":\"inbound\",\"event\":[1]}",
        "{\"type\":\"inbound\",\"event\":{\"text\":\"x\",\"source\":\"text\"}}",
        "{\"type\":\"inbound\",\"event\":{\"text\":\"x\",\"source\":[1]}}",
        "{\"type\":\"descriptor\",\"descriptor\":null}",
        "{\"type\":\"descriptor\",\"descriptor\":5}",
        "{\"type\":\"descriptor\",\"descriptor\":{\"platform\":\"discord\"}}",
        "{\"type\":\"descriptor\"}",
        "{\"type\":\"passthrough_forward\",\"forward\":null}",
        "{\"type\":\"outbound_result\",\"requestId\":[1],\"result\":{}}",
        "{\"type\":\"outbound_result\",\"requestId\":{\"a\":1},\"result\":null}",
        "{\"type\":\"outbound_result\",\"requestId\":\"none\",\"result\":null}",
        "{\"type\":17}",
        "{\"type\":\"never heard of\"}",
        "{\"type\":\"hello\",\"platform\":\"discord\",\"botId\":\"\"}",
        "{\"type\":\"inbound_ack\",\"bufferId\":\"echoed\"}",
        "{}",
    ];
    let deep = [1_500, 20_000].map(|depth| format!("{{\"type\":\"inbound\",\"event\":{}}}", nested(depth)));
    let long = format!("{{\"type\":\"inbound\",\"event\":\"{}\"}}", "x".repeat(1_100_000));
    let lines = lines.into_iter().map(str::to_owned);
    lines.chain(deep).chain([long, nested(3_000)]).collect()
}

/// Events that nobody can use; each is buffered and waits for its acknowledgement.
fn poisons() -> Vec<Value> {
    vec![
        json!(null),
        json!("text"),
        json!([1, 2]),
        json!({ "text": "x", "source": "text" }),
        json!({ "text": "x", "source": [1] }),
    ]
}

async fn answered_once(connector: &Connector, ids: &[String]) {
    for id in ids {
        connector.reply_to(SOON, id).await.unwrap();
    }
    for id in ids {
        let sent = connector.sent_messages();
        let replies = sent.iter().filter(|sent| sent.reply_to.as_ref() == Some(id));
        assert_eq!(replies.count(), 1, "{id}");
    }
}

/// One socket at a time, and not one dial more than sockets were taken away.
fn one_at_a_time(connector: &Connector, expected_dials: usize) {
    assert_eq!(connector.dials().len(), expected_dials);
    assert_eq!(connector.open_connections().len(), 1);
    let turned_away = connector.closed().into_iter().find(|end| end.code == Some(1008));
    assert!(turned_away.is_none(), "{turned_away:?}");
}

async fn reconnected(connector: &Connector, relay: &mut RelayProcess, expected_dials: usize) {
    dials(connector, expected_dials).await;
    connector.wait_connected(SOON).await.unwrap();
    assert!(!relay.has_ended());
}

#[tokio::test]
async fn a_frame_without_a_use_is_skipped_on_every_connection_and_the_next_one_answered() {
    let connector = strict().await;
    let mut relay = Setup::for_connector(&connector).start();
    let mut number = 0;
    for round in 1..=ROUNDS {
        reconnected(&connector, &mut relay, round).await;
        let mut ids = Vec::new();
        for line in loose() {
            let (id, event) = good(number);
            number += 1;
            assert!(connector.send_raw(&format!("{line}\n")));
            assert!(connector.deliver_live(&event));
            ids.push(id);
        }
        assert!(connector.send_binary(b"\xff\xfe{\"type\"\n"));
        let (id, event) = good(number);
        number += 1;
        assert!(connector.deliver_live(&event));
        ids.push(id);
        answered_once(&connector, &ids).await;
        one_at_a_time(&connector, round);
        connector.drop_sockets();
    }
    reconnected(&connector, &mut relay, ROUNDS + 1).await;
    assert!(connector.acks().is_empty(), "nothing was there to acknowledge");
    relay.stop().await;
}

#[tokio::test]
async fn a_buffered_poison_is_quarantined_and_acknowledged_so_that_what_is_behind_it_comes() {
    let connector = strict().await;
    let setup = Setup::for_connector(&connector);
    let mut ids = Vec::new();
    for (number, poison) in poisons().iter().enumerate() {
        let (id, event) = good(number);
        connector.deliver(&event).unwrap();
        connector.deliver(poison).unwrap();
        ids.push(id);
    }
    connector.forward(&json!(null)).unwrap();
    connector.forward(&json!({ "platform": "fax" })).unwrap();
    let (id, event) = good(poisons().len());
    connector.deliver(&event).unwrap();
    ids.push(id);
    let mut relay = setup.start();
    reconnected(&connector, &mut relay, 1).await;
    answered_once(&connector, &ids).await;
    connector
        .until("an empty buffer", SOON, |connector| {
            (connector.waiting() == 0).then_some(())
        })
        .await
        .unwrap();
    one_at_a_time(&connector, 1);
    relay.stop().await;
    let inspector = Inspector::open(&setup.state_dir()).unwrap();
    let aside = inspector.list(Section::Quarantine, 0, 100).unwrap();
    assert_eq!(aside.len(), poisons().len() + 2, "{aside:?}");
    assert!(
        aside
            .iter()
            .all(|listed| listed.name.is_some() && listed.reason.is_some())
    );
}

#[tokio::test]
async fn a_buffered_frame_of_an_unknown_type_is_quarantined_and_acknowledged() {
    let connector = strict().await;
    let setup = Setup::for_connector(&connector);
    let mut relay = setup.start();
    reconnected(&connector, &mut relay, 1).await;
    for frame in [
        json!({ "type": "reaction_inbound", "bufferId": "b9", "event": {} }),
        json!({ "bufferId": "b10" }),
        json!({ "type": 17, "bufferId": 11 }),
    ] {
        assert!(connector.send_raw(&format!("{frame}\n")));
    }
    let (id, event) = good(0);
    assert!(connector.deliver_live(&event));
    answered_once(&connector, &[id]).await;
    let names: Vec<_> = connector.acks().into_iter().map(|ack| ack.buffer_id).collect();
    assert_eq!(names, ["b9", "b10", "11"]);
    one_at_a_time(&connector, 1);
    relay.stop().await;
    let inspector = Inspector::open(&setup.state_dir()).unwrap();
    assert_eq!(inspector.list(Section::Quarantine, 0, 100).unwrap().len(), 3);
}

#[tokio::test]
async fn a_link_request_is_refused_so_that_nobody_waits_for_it() {
    let connector = strict().await;
    let mut relay = Setup::for_connector(&connector).start();
    reconnected(&connector, &mut relay, 1).await;
    let request = json!({ "type": "link_request", "requestId": "l1", "link": "sync", "body": {} });
    assert!(connector.send_raw(&format!("{request}\n")));
    let answer = connector.until("an answer", SOON, |connector| {
        let mut frames = connector.frames().into_iter();
        frames.find(|frame| frame.is_from_gateway("link_result"))
    });
    let frame = answer.await.unwrap();
    let answer = frame.json();
    assert_eq!(
        (&answer["requestId"], &answer["ok"]),
        (&json!("l1"), &json!(false))
    );
    assert!(answer["body"]["error"].is_string());
    one_at_a_time(&connector, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_line_that_is_broken_deep_or_too_long_is_acknowledged_under_the_name_that_it_still_shows() {
    let connector = strict().await;
    let mut relay = Setup::for_connector(&connector).start();
    reconnected(&connector, &mut relay, 1).await;
    let inbound =
        |event: &str, name: &str| format!("{{\"type\":\"inbound\",\"event\":{event},\"bufferId\":{name}}}\n");
    let long = format!("\"{}\"", "x".repeat(1_100_000));
    assert!(connector.send_raw(&inbound("{nonsense}", "\"broken\"")));
    assert!(connector.send_raw(&inbound(&nested(1_500), "\"deep\"")));
    assert!(connector.send_raw(&inbound(&long, "\"long\"")));
    assert!(connector.send_raw(&inbound(&long, "17")));
    let (id, event) = good(0);
    assert!(connector.deliver_live(&event));
    answered_once(&connector, &[id]).await;
    let names: Vec<_> = connector.acks().into_iter().map(|ack| ack.buffer_id).collect();
    assert_eq!(names, ["broken", "deep", "long", "17"]);
    one_at_a_time(&connector, 1);
    relay.stop().await;
}

#[tokio::test]
async fn events_that_are_merely_odd_are_taken_as_they_are() {
    let connector = strict().await;
    let relay = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "discord,slack")
        .start();
    let mut reply_to = text_event("discord", "c1", "odd-1", "quotes oddly");
    reply_to["reply_to"] = json!("text");
    let mut silent = text_event("slack", "c2", "odd-2", "");
    silent["text"] = json!(null);
    let mut numeric = text_event("discord", "c3", "odd-3", "numbers");
    numeric["source"]["chat_id"] = json!(123_456);
    numeric["source"]["chat_type"] = json!("group");
    for event in [&reply_to, &silent, &numeric, &json!({})] {
        connector.deliver(event).unwrap();
    }
    let (last, event) = good(0);
    connector.deliver(&event).unwrap();
    answered_once(&connector, &["odd-1".to_owned(), "odd-3".to_owned(), last]).await;
    connector
        .until("an empty buffer", SOON, |connector| {
            (connector.waiting() == 0).then_some(())
        })
        .await
        .unwrap();
    one_at_a_time(&connector, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_message_without_anything_to_act_on_starts_no_turn() {
    let connector = strict().await;
    let relay = Setup::for_connector(&connector)
        .setting("serve.http", "127.0.0.1:0")
        .start();
    let sealed = json!({"ciphertext": "AAAA", "ephemeralPublic": "BBBB", "scheme": "x25519", "channel": "c",
        "messageId": "m", "toDevice": "d"});
    for number in 0..3 {
        let mut event = text_event("discord", "c1", &format!("sealed-{number}"), "");
        event["sealed"] = sealed.clone();
        if number == 0 {
            event.as_object_mut().unwrap().remove("text");
        }
        connector.deliver(&event).unwrap();
    }
    let (last, event) = good(0);
    connector.deliver(&event).unwrap();
    answered_once(&connector, &[last]).await;
    connector
        .until("everything acknowledged", SOON, |connector| {
            (connector.waiting() == 0).then_some(())
        })
        .await
        .unwrap();
    assert_eq!(connector.messages_in("c1").len(), 1, "one answer, and to words");
    assert_eq!(relay.count("neither text nor anything else"), 1, "logged once");
    let shown = relay_status(&relay).await;
    assert!(
        shown.contains("hermes_relay_empty_messages_total 3\n")
            && shown.contains("hermes_relay_acks_total 4\n"),
        "{shown}"
    );
    relay.stop().await;
}

/// The metrics of a relay.
async fn relay_status(relay: &RelayProcess) -> String {
    let line = relay.wait_for_log("serving health and metrics over HTTP").await;
    let address = line.split("address=").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().parse().unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    crate::support::raw_http::exchange(address, &request).await.body
}

#[tokio::test]
async fn a_torn_handshake_is_dialled_again_and_not_in_a_hurry() {
    let connector = strict().await;
    connector.set_descriptor("discord", json!({ "platform": "discord" }));
    let mut relay = Setup::for_connector(&connector)
        .setting("link.handshake_timeout_secs", "1")
        .start();
    dials(&connector, 3).await;
    assert!(!relay.has_ended());
    let gaps = crate::link::refusals::gaps(&connector);
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_secs(1)), "{gaps:?}");
    assert!(connector.open_connections().len() <= 1);
    assert!(connector.closed().iter().all(|end| end.code != Some(1008)));
}
