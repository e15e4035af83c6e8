//! Wakes: with an interrupt channel they are sent, without one the context is delivered.

use hermes_relay::agent_connector::contract::{CauseKind, WakeOpts};
use hermes_relay::agent_connector::{AgentConnector, NoopConnector};
use serde_json::json;

use super::{command, context, credentials, file, hook, webhook};
use crate::support::http_stub::{Stub, json_reply};

#[tokio::test]
async fn statement_39_44_46_a_wake_url_gets_agent_session_and_context() {
    let receiver = Stub::always(204, "").await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let connector = webhook(&agent, credentials(None, None));
    let receipt = connector.wake("cc@term", &context("get up")).await.unwrap();
    assert!(receipt.woken);
    assert!(receipt.woken_at > 1_700_000_000_000);
    assert_eq!(receipt.session_id.as_deref(), Some("term"));
    let seen = receiver.only();
    assert_eq!(seen.path(), "/wake");
    assert_eq!(
        seen.json(),
        json!({"agent_id": "cc", "session_id": "term", "context": "get up"})
    );
}

#[tokio::test]
async fn statement_45_47_the_structured_session_wins_and_none_is_absent() {
    let receiver = Stub::always(200, "").await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let connector = webhook(&agent, credentials(None, None));
    let opts = WakeOpts {
        session_id: Some("other".to_owned()),
        when: Some(5),
        ..WakeOpts::default()
    };
    let receipt = connector.wake("cc@term", &opts).await.unwrap();
    assert_eq!(receipt.session_id.as_deref(), Some("other"));
    let receipt = connector.wake("cc", &WakeOpts::default()).await.unwrap();
    assert_eq!(receipt.session_id, None);
    let bodies: Vec<_> = receiver
        .seen()
        .iter()
        .map(crate::support::http_stub::Seen::json)
        .collect();
    assert_eq!(
        bodies,
        [
            json!({"agent_id": "cc", "session_id": "other", "when": 5}),
            json!({"agent_id": "cc"})
        ]
    );
}

#[tokio::test]
async fn statement_36_37_without_an_interrupt_channel_the_context_is_delivered() {
    let receiver = Stub::always(200, "").await;
    let receipt = hook(&receiver)
        .wake("cc@term", &context("read this"))
        .await
        .unwrap();
    assert!(!receipt.woken);
    assert_eq!(receipt.session_id.as_deref(), Some("term"));
    let body = receiver.only().json();
    assert_eq!(
        (&body["agent_id"], &body["kind"], &body["content"]),
        (&json!("cc@term"), &json!("augment"), &json!("read this"))
    );
    assert_eq!(body["meta"]["dispatch_id"].as_str().map(str::len), Some(36));

    let folder = tempfile::tempdir().unwrap();
    let others: [Box<dyn AgentConnector>; 3] = [
        Box::new(file(folder.path())),
        Box::new(command(&["cat"])),
        Box::new(NoopConnector),
    ];
    for connector in others {
        let receipt = connector.wake("cc@term", &context("read this")).await.unwrap();
        assert!(!receipt.woken, "{connector:?}");
        assert_eq!(receipt.session_id.as_deref(), Some("term"), "{connector:?}");
        let receipt = connector.wake("cc", &context("read this")).await.unwrap();
        assert_eq!(receipt.session_id, None, "{connector:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[tokio::test]
async fn statement_38_a_receiver_that_could_only_deliver_says_so() {
    let answer = json!({"woken": false, "woken_at": 9, "session_id": "s9", "warnings": ["offline"]});
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let receipt = webhook(&agent, credentials(None, None))
        .wake("cc", &context("x"))
        .await;
    let receipt = serde_json::to_value(receipt.unwrap()).unwrap();
    assert_eq!(
        receipt,
        json!({"woken": false, "woken_at": 9, "session_id": "s9", "warnings": ["offline"]})
    );
}

#[tokio::test]
async fn statement_40_41_unknown_agents_and_faults_fail() {
    let receiver = Stub::always(403, "").await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let connector = webhook(&agent, credentials(None, None));
    let failure = connector.wake("cc@term", &context("x")).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::HttpStatus, Some(403))
    );
    assert_eq!(receiver.only().path(), "/wake", "a fault is no reason to deliver");
    let failure = connector.wake("dd@term", &context("x")).await.unwrap_err();
    assert_eq!(failure.cause_kind, CauseKind::ClientValidation);
}

#[tokio::test]
async fn statement_43_a_substrate_without_a_schedule_delivers_now_and_says_so() {
    let receiver = Stub::always(200, "").await;
    let later = WakeOpts {
        when: Some(i64::MAX),
        ..context("x")
    };
    let receipt = hook(&receiver).wake("cc", &later).await.unwrap();
    assert!(
        receipt
            .warnings
            .iter()
            .any(|warning| warning.contains("no schedule")),
        "{receipt:?}"
    );
    receiver.only();
}
