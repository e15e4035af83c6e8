//! Platforms that the contract does not know: our identities and the connector's descriptors name them.

use crate::support::dev::{Connector, ConnectorSettings, Direction, RecordedFrame, text_event};
use serde_json::{Value, json};

use crate::support::relay_process::{RelayProcess, Setup};
use crate::support::wait::eventually;

/// Envelope and content of every send.
fn sends(connector: &Connector) -> Vec<(Value, Value, String)> {
    let frames = connector.frames();
    let sent = frames
        .iter()
        .filter(|frame| frame.direction == Direction::FromGateway)
        .map(RecordedFrame::json)
        .filter(|frame| frame["action"]["op"] == "send");
    sent.map(|frame| {
        let text = frame["action"]["content"].as_str().unwrap_or_default().to_owned();
        (frame["platform"].clone(), frame["botId"].clone(), text)
    })
    .collect()
}

async fn replied(connector: &Connector, text: &str) -> (Value, Value) {
    let (platform, bot_id, _) = eventually(&format!("a reply to {text:?}"), async || {
        let sends = sends(connector);
        let found = sends
            .iter()
            .find(|(_, _, content)| content.contains(text))
            .cloned();
        found.ok_or(sends)
    })
    .await;
    (platform, bot_id)
}

async fn connected(setup: &Setup) -> RelayProcess {
    let relay = setup.start();
    relay.wait_for_log("connected to the connector").await;
    relay
}

#[tokio::test]
async fn two_platforms_with_the_same_ids_are_two_messages_and_each_reply_names_its_own() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let setup = Setup::for_connector(&connector)
        .env("GATEWAY_RELAY_PLATFORMS", "intranet,MySpace")
        .env(
            "GATEWAY_RELAY_BOT_IDS",
            r#"{"intranet": {"botId": "bot-i"}, "MySpace": {"botId": "bot-m"}}"#,
        );
    let relay = connected(&setup).await;
    for (platform, text) in [
        ("intranet", "from one"),
        ("myspace", "from two"),
        ("elsewhere", "from three"),
    ] {
        connector
            .deliver(&text_event(platform, "c1", "m1", text))
            .unwrap();
    }
    assert_eq!(
        replied(&connector, "from one").await,
        (json!("intranet"), json!("bot-i"))
    );
    assert_eq!(
        replied(&connector, "from two").await,
        (json!("MySpace"), json!("bot-m"))
    );
    assert_eq!(
        replied(&connector, "from three").await,
        (Value::Null, Value::Null),
        "nobody's name is mapped as the contract says"
    );
    eventually("every message acknowledged", async || connector.acked() == 3).await;
    // The same message again is still the same.
    connector
        .deliver(&text_event("Intranet", "c1", "m1", "from one"))
        .unwrap();
    connector
        .deliver(&text_event("intranet", "c1", "m2", "after it"))
        .unwrap();
    replied(&connector, "after it").await;
    let ones = sends(&connector);
    let ones = ones.iter().filter(|(_, _, text)| text.contains("from one"));
    assert_eq!(ones.count(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_declared_platform_is_its_own_from_the_first_delivery_and_after_a_crash() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    let descriptor = json!({ "contract_version": 1, "platform": "intranet", "label": "Intranet",
        "max_message_length": 2000, "supports_draft_streaming": false, "supports_edit": false,
        "supports_threads": false, "markdown_dialect": "plain", "len_unit": "chars", "supported_ops": ["send"] });
    connector.set_descriptor("relay", descriptor);
    let setup = Setup::for_connector(&connector).without_env("GATEWAY_RELAY_PLATFORMS");
    // It waits in the buffer, so that it follows the descriptor at once.
    connector
        .deliver(&text_event("intranet", "c1", "m1", "early"))
        .unwrap();
    let mut relay = connected(&setup).await;
    assert_eq!(
        replied(&connector, "early").await,
        (json!("intranet"), Value::Null)
    );

    connector
        .deliver(&text_event("intranet", "c1", "m2", "sleep=600000 long"))
        .unwrap();
    connector
        .deliver(&text_event("intranet", "c1", "m3", "waiting"))
        .unwrap();
    eventually("all acknowledged", async || connector.acked() == 3).await;
    let sessions = setup.verb(&["sessions", "--json"]).output().await.unwrap();
    let sessions = String::from_utf8(sessions.stdout).unwrap();
    assert!(sessions.contains("agent:main:intranet:dm:c1"), "{sessions}");
    relay.kill().await;
    // What it answers is read back before the connector declares anything.
    let relay = connected(&setup).await;
    assert_eq!(
        replied(&connector, "waiting").await,
        (json!("intranet"), Value::Null)
    );
    let sends = sends(&connector);
    assert!(
        sends.iter().all(|(platform, _, _)| platform == "intranet"),
        "the interrupted turn's notice too: {sends:?}"
    );
    relay.stop().await;
}
