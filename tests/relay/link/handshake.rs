//! The dial, the hellos, and a message there and back.

use crate::support::dev::{Connector, ConnectorSettings, PlatformPreset, TokenCheck, text_event};
use serde_json::json;

use crate::support::dev::FrameKinds as _;
use crate::support::relay_process::{SOON, Setup};

pub(crate) async fn connector() -> Connector {
    Connector::start(ConnectorSettings::default()).await.unwrap()
}

#[tokio::test]
async fn the_dial_shows_a_valid_token_our_name_and_no_extension() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    let dials = connector.dials();
    assert_eq!(dials.len(), 1, "{dials:?}");
    let dial = &dials[0];
    assert_eq!(dial.token, TokenCheck::Valid);
    assert_eq!(dial.gateway_id.as_deref(), Some("gw-dev"));
    let header = |name: &str| dial.headers.get(name).map(|value| value.to_str().unwrap());
    let name = concat!("hermes-relay/", env!("CARGO_PKG_VERSION"));
    assert_eq!(header("user-agent"), Some(name));
    assert_eq!(header("sec-websocket-version"), Some("13"));
    assert_eq!(header("sec-websocket-extensions"), None);
    assert_eq!(header("sec-websocket-protocol"), None);
    relay.stop().await;
}

#[tokio::test]
async fn every_identity_sends_hello_in_order_before_any_descriptor_comes() {
    let connector = connector().await;
    connector.ignore_hellos(true);
    let bots = r#"{"telegram":{"botId":"42"},"slack":{"botId":"B7","username":"@robot"}}"#;
    let relay = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "telegram,discord,slack")
        .env("GATEWAY_RELAY_BOT_IDS", bots)
        .start();
    let hellos = connector.until("three hellos", SOON, |connector| {
        let frames = connector.frames();
        let hellos: Vec<_> = frames
            .iter()
            .filter(|frame| frame.is_from_gateway("hello"))
            .map(|frame| frame.text().to_owned())
            .collect();
        (hellos.len() == 3).then_some(hellos)
    });
    let mut hellos: Vec<serde_json::Value> = hellos
        .await
        .unwrap()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let manifest = hellos[1].as_object_mut().unwrap().remove("command_manifest");
    let manifest = manifest.expect("Discord is offered the commands");
    assert_eq!(manifest[0]["name"], "stop");
    assert_eq!(
        hellos,
        [
            json!({ "type": "hello", "platform": "telegram", "botId": "42" }),
            json!({ "type": "hello", "platform": "discord", "botId": "" }),
            json!({ "type": "hello", "platform": "slack", "botId": "B7" }),
        ]
    );
    assert!(
        !connector
            .frames()
            .iter()
            .any(|frame| frame.is_to_gateway("descriptor")),
        "no descriptor was there to wait for"
    );
    drop(relay);
}

#[tokio::test]
async fn a_message_is_answered_where_it_came_from_and_tagged_with_whose_it_is() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "discord,telegram")
        .env("GATEWAY_RELAY_BOT_IDS", r#"{"telegram":{"botId":"42"}}"#)
        .start();
    connector.wait_connected(SOON).await.unwrap();
    let mut event = text_event("telegram", "c9", "m1", "hello there");
    event["source"]["scope_id"] = json!("team-1");
    event["source"]["user_id"] = json!("u77");
    let buffered = connector.deliver(&event).unwrap();
    let sent = connector.reply_to(SOON, "m1").await.unwrap();
    assert_eq!(sent.text, "echo: hello there");
    assert_eq!((sent.op, &*sent.chat_id), ("send", "c9"));
    assert_eq!(sent.platform, "telegram");
    assert_eq!(sent.bot_id.as_deref(), Some("42"));
    assert_eq!(sent.metadata["scope_id"], "team-1");
    assert_eq!(sent.metadata["user_id"], "u77");
    let frame = connector
        .wait_for("the send", SOON, |frame| frame.asks_for("send"))
        .await
        .unwrap();
    assert_eq!(frame.json()["platform"], "telegram");
    assert_eq!(frame.json()["botId"], "42");
    assert_eq!(frame.json()["action"]["reply_to"], "m1");
    let request_id = frame.json()["requestId"].as_str().unwrap();
    assert!(request_id.len() == 32 && request_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let acks = connector.acks();
    assert_eq!(acks.len(), 1);
    assert!(acks[0].matched && acks[0].buffer_id == buffered.to_string());
    // A bot without an id is tagged with its platform alone.
    connector
        .deliver(&text_event("discord", "c1", "m2", "and here"))
        .unwrap();
    let sent = connector.reply_to(SOON, "m2").await.unwrap();
    assert_eq!((&*sent.platform, sent.bot_id), ("discord", None));
    relay.stop().await;
}

#[tokio::test]
async fn a_numeric_buffer_id_is_acknowledged_as_text() {
    let settings = ConnectorSettings {
        numeric_buffer_ids: true,
        ..ConnectorSettings::default()
    };
    let connector = Connector::start(settings).await.unwrap();
    let relay = Setup::for_connector(&connector).start();
    connector
        .deliver(&text_event("discord", "c1", "m1", "one"))
        .unwrap();
    let ack = connector
        .wait_for("an ack", SOON, |frame| frame.is_from_gateway("inbound_ack"))
        .await
        .unwrap();
    assert_eq!(*ack.json(), json!({ "type": "inbound_ack", "bufferId": "1" }));
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(connector.acks().iter().all(|ack| ack.matched));
    relay.stop().await;
}

#[tokio::test]
async fn a_socket_that_goes_between_hello_and_descriptor_leaves_nobody_waiting() {
    let connector = connector().await;
    connector.ignore_hellos(true);
    let relay = Setup::for_connector(&connector)
        .setting("link.handshake_timeout_secs", "600")
        .start();
    let first = connector
        .wait_for("a hello", SOON, |frame| frame.is_from_gateway("hello"))
        .await
        .unwrap();
    connector.ignore_hellos(false);
    connector.drop_sockets();
    connector
        .deliver(&text_event("discord", "c1", "m1", "here?"))
        .unwrap();
    let sent = connector.reply_to(SOON, "m1").await.unwrap();
    assert!(sent.connection > first.connection);
    relay.stop().await;
}

#[tokio::test]
async fn what_a_connector_declares_on_a_new_connection_replaces_what_it_declared_before() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    let long = "word ".repeat(30);
    connector
        .deliver(&text_event("discord", "c1", "m1", &long))
        .unwrap();
    connector.reply_to(SOON, "m1").await.unwrap();
    assert_eq!(connector.sent_messages().len(), 1);
    let mut narrow = PlatformPreset::Discord.wire("discord");
    narrow["max_message_length"] = json!(100);
    connector.set_descriptor("discord", narrow);
    connector.drop_sockets();
    connector
        .deliver(&text_event("discord", "c1", "m2", &long))
        .unwrap();
    let parts = connector.until("an answer in parts", SOON, |connector| {
        let sent = connector.sent_messages();
        let parts: Vec<_> = sent.into_iter().skip(1).collect();
        (parts.len() >= 2).then_some(parts)
    });
    let parts = parts.await.unwrap();
    assert!(parts.iter().all(|part| part.text.chars().count() <= 100));
    assert!(parts.iter().all(|part| part.reply_to.as_deref() == Some("m2")));
    relay.stop().await;
}

#[tokio::test]
async fn a_message_without_a_buffer_id_is_answered_and_not_acknowledged() {
    let connector = connector().await;
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    assert!(connector.deliver_live(&text_event("discord", "c1", "m1", "live")));
    connector.reply_to(SOON, "m1").await.unwrap();
    assert!(connector.acks().is_empty());
    relay.stop().await;
}
