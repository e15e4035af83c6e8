//! Lines inside WebSocket messages, however they were cut and joined.

use crate::support::dev::{Connector, text_event};
use serde_json::json;

use crate::link::handshake::connector;
use crate::support::relay_process::{RelayProcess, SOON, Setup};

fn line(message_id: &str, text: &str) -> String {
    let event = text_event("discord", "c1", message_id, text);
    json!({ "type": "inbound", "event": event }).to_string()
}

async fn connected() -> (Connector, RelayProcess) {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    (connector, relay)
}

/// Every message is answered, in order, once, and the connection has held.
async fn answered(connector: &Connector, expected: &[(&str, &str)]) {
    let (last, _) = expected.last().unwrap();
    connector.reply_to(SOON, last).await.unwrap();
    let sent: Vec<_> = connector
        .sent_messages()
        .into_iter()
        .map(|sent| (sent.reply_to.unwrap_or_default(), sent.text))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, text)| ((*id).to_owned(), format!("echo: {text}")))
        .collect();
    assert_eq!(sent, expected);
    assert_eq!(
        (connector.dials().len(), connector.open_connections().len()),
        (1, 1)
    );
}

#[tokio::test]
async fn several_frames_in_one_message_are_taken_in_order() {
    let (connector, relay) = connected().await;
    let joined = format!(
        "{}\n\n  \n{}\n{}\n",
        line("m1", "a"),
        line("m2", "b"),
        line("m3", "c")
    );
    assert!(connector.send_raw(&joined));
    answered(&connector, &[("m1", "a"), ("m2", "b"), ("m3", "c")]).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_frame_cut_into_single_bytes_is_taken_when_its_newline_comes() {
    let (connector, relay) = connected().await;
    let whole = format!("{}\n{}\n", line("m1", "grüße 😀"), line("m2", "next"));
    // Binary messages, so that the cuts go through the characters too.
    for byte in whole.as_bytes() {
        assert!(connector.send_binary(&[*byte]));
    }
    answered(&connector, &[("m1", "grüße 😀"), ("m2", "next")]).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_cut_across_text_messages_joins_the_end_of_one_frame_to_the_start_of_the_next() {
    let (connector, relay) = connected().await;
    let (first, second) = (line("m1", "one"), line("m2", "two"));
    let (head, tail) = first.split_at(first.len() / 2);
    let (neck, rest) = second.split_at(7);
    assert!(connector.send_raw(head));
    assert!(connector.send_raw(&format!("{tail}\n{neck}")));
    assert!(connector.send_raw(&format!("{rest}\n")));
    answered(&connector, &[("m1", "one"), ("m2", "two")]).await;
    relay.stop().await;
}

#[tokio::test]
async fn carriage_returns_and_binary_messages_make_no_difference() {
    let (connector, relay) = connected().await;
    assert!(connector.send_raw(&format!("{}\r\n", line("m1", "crlf"))));
    assert!(connector.send_binary(format!("{}\r\n\r\n", line("m2", "bytes")).as_bytes()));
    answered(&connector, &[("m1", "crlf"), ("m2", "bytes")]).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_delivery_that_comes_again_is_acknowledged_again_and_answered_once() {
    let (connector, relay) = connected().await;
    let event = text_event("discord", "c1", "m1", "once");
    for buffer_id in ["x1", "x1", "x2"] {
        let frame = json!({ "type": "inbound", "event": event, "bufferId": buffer_id });
        assert!(connector.send_raw(&format!("{frame}\n")));
    }
    assert!(connector.send_raw(&format!("{}\n", line("m2", "after"))));
    answered(&connector, &[("m1", "once"), ("m2", "after")]).await;
    let acks: Vec<_> = connector.acks().into_iter().map(|ack| ack.buffer_id).collect();
    assert_eq!(acks, ["x1", "x1", "x2"]);
    relay.stop().await;
}
