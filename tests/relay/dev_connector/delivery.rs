use std::time::Duration;

use crate::support::dev::{Connector, ConnectorSettings, NotBuffered, text_event};
use serde_json::{Value, json};

use crate::dev_connector::client::{Client, SOON, connector, dial, greeted};
use crate::support::dev::FrameKinds as _;

fn event(n: usize) -> Value {
    text_event("discord", "c1", &format!("u{n}"), &format!("message {n}"))
}

async fn inbound(client: &mut Client) -> (String, Value) {
    let frame = client.line().await;
    assert_eq!(frame["type"], "inbound", "{frame}");
    (
        frame["event"]["text"].as_str().unwrap().to_owned(),
        frame["bufferId"].clone(),
    )
}

#[tokio::test]
async fn the_buffer_drains_one_at_a_time_after_the_first_hello() {
    let connector = connector().await;
    let ids: Vec<_> = (0..3)
        .map(|n| connector.deliver(&event(n)).unwrap().to_string())
        .collect();
    let mut client = dial(&connector).await;
    client.quiet().await;
    client.hello("discord").await;
    assert_eq!(client.line().await["type"], "descriptor");
    for (n, id) in ids.iter().enumerate() {
        let (text, buffer_id) = inbound(&mut client).await;
        assert_eq!(
            (text, buffer_id.as_str().unwrap()),
            (format!("message {n}"), &**id)
        );
        client.ack(&json!("stale")).await;
        client.quiet().await;
        client.ack(&buffer_id).await;
    }
    client.quiet().await;
    assert_eq!((connector.acked(), connector.waiting()), (3, 0));
    let matched: Vec<_> = connector.acks().iter().map(|ack| ack.matched).collect();
    assert_eq!(matched, [false, true, false, true, false, true]);
}

#[tokio::test]
async fn what_is_not_acknowledged_comes_again_until_it_is() {
    let connector = connector().await;
    connector.deliver(&event(0)).unwrap();
    connector.deliver(&event(1)).unwrap();
    for _ in 0..3 {
        let mut client = greeted(&connector, "discord").await;
        assert_eq!(inbound(&mut client).await.0, "message 0");
    }
    let mut client = greeted(&connector, "discord").await;
    let (_, id) = inbound(&mut client).await;
    client.ack(&id).await;
    assert_eq!(inbound(&mut client).await.0, "message 1");
    let mut client = greeted(&connector, "discord").await;
    assert_eq!(inbound(&mut client).await.0, "message 1");
}

#[tokio::test]
async fn a_window_lets_many_be_on_their_way() {
    const COUNT: usize = 20_000;
    let settings = ConnectorSettings {
        drain_window: 256,
        record_limit: 0,
        numeric_buffer_ids: true,
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    for n in 0..COUNT {
        connector.deliver(&event(n)).unwrap();
    }
    let mut client = greeted(&connector, "discord").await;
    let mut held = Vec::new();
    for n in 0..256 {
        let (text, id) = inbound(&mut client).await;
        assert!(text == format!("message {n}") && id.is_u64());
        held.push(id);
    }
    client.quiet().await;
    for id in held.into_iter().rev() {
        client.ack(&id).await;
    }
    for n in 256..COUNT {
        let (text, id) = inbound(&mut client).await;
        assert_eq!(text, format!("message {n}"));
        client.ack(&id).await;
    }
    connector
        .until("every ack", SOON, |connector| {
            (connector.acked() == COUNT as u64).then_some(())
        })
        .await
        .unwrap();
    assert!(connector.frames().is_empty());
}

#[tokio::test]
async fn going_idle_holds_deliveries_for_the_next_connection() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    assert!(connector.deliver_live(&event(0)));
    assert_eq!(inbound(&mut client).await, ("message 0".into(), Value::Null));
    client.say(json!({ "type": "going_idle" })).await;
    assert_eq!(client.line().await, json!({ "type": "going_idle_ack" }));
    connector.deliver(&event(1)).unwrap();
    assert!(!connector.deliver_live(&event(2)));
    client.quiet().await;
    drop(client);
    let mut client = greeted(&connector, "discord").await;
    assert!(
        !connector.deliver_live(&event(2)),
        "not before the buffer is empty"
    );
    let (text, id) = inbound(&mut client).await;
    assert_eq!(text, "message 1");
    client.ack(&id).await;
    let drained = connector.until("an empty buffer", SOON, |connector| {
        (connector.waiting() == 0).then_some(())
    });
    drained.await.unwrap();
    assert!(connector.deliver_live(&event(3)));
    assert_eq!(inbound(&mut client).await.0, "message 3");
}

#[tokio::test]
async fn forwards_interrupts_and_raw_messages_go_out_as_they_are() {
    let connector = connector().await;
    assert!(!connector.interrupt("k", "c") && !connector.send_raw("x"));
    let mut client = greeted(&connector, "discord").await;
    assert!(connector.interrupt("k", "c"));
    assert_eq!(
        client.line().await,
        json!({ "type": "interrupt_inbound", "session_key": "k", "chat_id": "c" })
    );
    assert!(connector.forward_live(&json!({ "platform": "discord" })));
    assert_eq!(
        client.line().await,
        json!({ "type": "passthrough_forward", "forward": { "platform": "discord" } })
    );
    let id = connector.forward(&json!({})).unwrap();
    assert_eq!(client.line().await["bufferId"], id.to_string());
    assert!(connector.send_raw("[1]\n{\"ty") && connector.send_binary(&[0xff, b'\n']));
    assert_eq!(client.text().await, "[1]\n{\"ty");
    let binary = client.message().await.unwrap().unwrap();
    assert_eq!(binary.into_data().as_ref(), [0xff, b'\n']);
}

#[tokio::test]
async fn an_enrolled_gateway_has_a_buffer_of_its_own() {
    let connector = connector().await;
    connector.deliver(&event(0)).unwrap();
    let body = json!({ "gatewayId": "gw-two" }).to_string();
    let provisioned =
        crate::dev_connector::routes::request(&connector, "POST", "/relay/provision", Some("me"), body).await;
    assert_eq!(provisioned.status, 200);
    connector.deliver(&event(1)).unwrap();
    connector.deliver_to("gw-dev", &event(2)).unwrap();
    let mut client = greeted(&connector, "discord").await;
    let (text, id) = inbound(&mut client).await;
    assert_eq!(text, "message 0");
    client.ack(&id).await;
    assert_eq!(inbound(&mut client).await.0, "message 2");
    let nobody = connector.deliver_to("gw-three", &event(3)).unwrap_err();
    assert_eq!(nobody, NotBuffered::UnknownGateway("gw-three".into()));
}

#[tokio::test]
async fn a_wait_that_times_out_reports_what_was_missing() {
    let connector = connector().await;
    let missed = connector
        .wait_for("a hello", Duration::from_millis(20), |record| {
            record.is_from_gateway("hello")
        })
        .await
        .unwrap_err();
    assert!(
        missed
            .to_string()
            .starts_with("a hello: not seen within 20ms; 0 connections")
    );
    let mut client = greeted(&connector, "discord").await;
    let hello = connector
        .wait_for("a hello", SOON, |record| record.is_from_gateway("hello"))
        .await
        .unwrap();
    let mark = connector.mark();
    assert!(hello.json()["platform"] == "discord" && connector.frames_since(mark).is_empty());
    client.say(json!({ "type": "going_idle" })).await;
    connector
        .wait_after(mark, "its ack", SOON, |record| {
            record.is_to_gateway("going_idle_ack")
        })
        .await
        .unwrap();
    connector.wait_connected(SOON).await.unwrap();
}
