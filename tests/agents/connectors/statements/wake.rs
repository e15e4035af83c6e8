//! Statements 34 to 48: wakes.

use hermes_relay::agent_connector::contract::{CauseKind, TriggerKind, WakeOpts};
use hermes_relay::agent_connector::{AgentConnector, WakeTurnError, dispatch, wake_payload};
use serde_json::{Value, json};

use super::{Bundled, named, notice, shown};
use crate::connectors::{context, credentials, webhook};
use crate::support::http_stub::{Stub, json_reply, nobody};

fn in_session(session: &str) -> WakeOpts {
    WakeOpts {
        session_id: Some(session.to_owned()),
        ..context("x")
    }
}

#[tokio::test]
async fn statement_34_woken_is_always_there_and_a_boolean() {
    for connector in Bundled::new().await.all() {
        let receipt = connector.wake("cc", &context("x")).await.unwrap();
        assert!(serde_json::to_value(receipt).unwrap()["woken"].is_boolean());
    }
}

#[tokio::test]
async fn statement_35_woken_at_is_in_unix_milliseconds() {
    for connector in Bundled::new().await.all() {
        let receipt = connector.wake("cc", &context("x")).await.unwrap();
        assert!(receipt.woken_at > 1_700_000_000_000, "{receipt:?}");
    }
}

#[tokio::test]
async fn statement_36_without_an_interrupt_channel_a_wake_does_not_fail_and_says_so() {
    for connector in Bundled::new().await.silent() {
        let receipt = connector.wake("cc@term", &context("x")).await.unwrap();
        assert!(!receipt.woken, "{connector:?}");
    }
}

#[tokio::test]
async fn statement_37_and_its_context_is_delivered() {
    let bundled = Bundled::new().await;
    for connector in bundled.silent() {
        connector.wake("cc@term", &context("read this")).await.unwrap();
    }
    let body = bundled.receiver.only().json();
    assert_eq!(
        (&body["agent_id"], &body["kind"], &body["content"]),
        (&json!("cc@term"), &json!("augment"), &json!("read this"))
    );
    assert_eq!(body["meta"]["dispatch_id"].as_str().map(str::len), Some(36));
    let mut dropped = std::fs::read_dir(bundled.folder.path()).unwrap();
    let dropped = std::fs::read(dropped.next().unwrap().unwrap().path()).unwrap();
    let dropped: Value = serde_json::from_slice(&dropped).unwrap();
    assert_eq!(dropped["content"], "read this");
}

#[tokio::test]
async fn statement_38_an_agent_that_is_offline_gets_it_and_is_not_woken() {
    let answer = json!({"woken": false, "woken_at": 9, "session_id": "s9", "warnings": ["offline"]});
    let expected = answer.clone();
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    let urls = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let receipt = webhook(&urls, credentials(None, None))
        .wake("cc", &context("x"))
        .await;
    assert_eq!(serde_json::to_value(receipt.unwrap()).unwrap(), expected);
}

#[tokio::test]
async fn statement_39_an_interrupt_that_was_sent_is_woken() {
    let bundled = Bundled::new().await;
    let receipt = bundled
        .ringing()
        .wake("cc@term", &context("get up"))
        .await
        .unwrap();
    assert!(receipt.woken);
    let seen = bundled.receiver.only();
    assert_eq!((seen.method.as_str(), seen.path()), ("POST", "/wake"));
}

#[tokio::test]
async fn statement_40_a_wake_of_an_unknown_agent_fails() {
    let bundled = Bundled::new().await;
    for connector in bundled.silent().into_iter().chain([bundled.ringing()]) {
        let failure = connector.wake("dd@term", &context("x")).await.unwrap_err();
        assert_eq!(
            (failure.cause_kind, failure.http_status),
            (CauseKind::ClientValidation, None)
        );
    }
    assert_eq!(bundled.receiver.seen().len(), 0);
}

#[tokio::test]
async fn statement_41_a_fault_of_the_interrupt_channel_fails_and_delivers_nothing() {
    let receiver = Stub::always(403, "").await;
    let refused = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let away = json!({"url": receiver.url("/cc"), "wake_url": nobody()});
    for (urls, wanted) in [
        (refused, (CauseKind::HttpStatus, Some(403))),
        (away, (CauseKind::Network, None)),
    ] {
        let connector = webhook(&urls, credentials(None, None));
        let failure = connector.wake("cc@term", &context("x")).await.unwrap_err();
        assert_eq!((failure.cause_kind, failure.http_status), wanted);
    }
    assert_eq!(receiver.only().path(), "/wake");
}

#[test]
fn statement_42_the_context_stands_before_the_wake_message() {
    let text = |opts: &WakeOpts| wake_payload(opts, TriggerKind::Cli).unwrap().text;
    let bare = text(&WakeOpts::default());
    assert_eq!(bare, "You were woken.");
    assert_eq!(
        text(&context("The build is red.")),
        "The build is red.",
        "the context is all there is to say"
    );
    assert_eq!(text(&context(" \n")), bare);
}

#[tokio::test]
async fn statement_43_a_missing_when_is_immediate_and_a_number_is_a_time() {
    let bundled = Bundled::new().await;
    let ringing = bundled.ringing();
    let at = |when: Option<i64>| WakeOpts {
        when,
        ..WakeOpts::default()
    };
    ringing.wake("cc", &at(None)).await.unwrap();
    ringing.wake("cc", &at(Some(5))).await.unwrap();
    let seen = bundled.receiver.seen();
    assert_eq!(seen[0].json().get("when"), None);
    assert_eq!(seen[1].json()["when"], 5);
    // Without a schedule it is delivered now, and the receipt says so; this relay refuses.
    let later = at(Some(i64::MAX));
    for connector in bundled.silent() {
        let receipt = connector.wake("cc", &later).await.unwrap();
        let warned = receipt
            .warnings
            .iter()
            .any(|warning| warning.contains("no schedule"));
        assert!(warned, "{receipt:?}");
    }
    assert!(matches!(
        wake_payload(&later, TriggerKind::Cli),
        Err(WakeTurnError::Later)
    ));
}

#[tokio::test]
async fn statement_44_an_address_is_split_into_agent_and_session() {
    let bundled = Bundled::new().await;
    let wake = context("get up");
    bundled.ringing().wake("cc@a@b", &wake).await.unwrap();
    assert_eq!(
        bundled.receiver.only().json(),
        json!({"agent_id": "cc", "session_id": "a@b", "context": "get up"})
    );
}

#[tokio::test]
async fn statement_45_the_structured_session_wins() {
    let bundled = Bundled::new().await;
    for connector in bundled.silent().into_iter().chain([bundled.ringing()]) {
        let receipt = connector.wake("cc@term", &in_session("other")).await.unwrap();
        assert_eq!(receipt.session_id.as_deref(), Some("other"), "{connector:?}");
    }
    let seen = bundled.receiver.seen();
    assert_eq!(seen[0].json()["agent_id"], "cc@other", "delivered instead");
    assert_eq!(seen[1].json()["session_id"], "other", "woken");
}

#[tokio::test]
async fn statement_46_the_resolved_session_is_echoed() {
    for connector in Bundled::new().await.all() {
        let receipt = connector.wake("cc@term", &context("x")).await.unwrap();
        assert_eq!(receipt.session_id.as_deref(), Some("term"), "{connector:?}");
    }
    let receiver = Stub::start(|_| json_reply(200, &json!({"session_id": "chosen"}))).await;
    let urls = json!({"url": receiver.url("/"), "wake_url": receiver.url("/wake")});
    let connector = webhook(&urls, credentials(None, None));
    let receipt = connector.wake("cc@term", &context("x")).await.unwrap();
    assert_eq!(receipt.session_id.as_deref(), Some("chosen"));
}

#[tokio::test]
async fn statement_47_a_bare_id_leaves_session_id_absent() {
    let bundled = Bundled::new().await;
    for connector in bundled.all() {
        let receipt = connector.wake("cc", &context("x")).await.unwrap();
        let receipt = serde_json::to_value(receipt).unwrap();
        assert_eq!(receipt.get("session_id"), None, "{connector:?}");
    }
    for seen in bundled.receiver.seen() {
        assert_eq!(seen.json().get("session_id"), None);
    }
}

#[tokio::test]
async fn statement_48_an_address_with_a_session_is_accepted_where_its_agent_is_listed() {
    let bundled = Bundled::new().await;
    let targets = named(vec![bundled.ringing()]);
    let dispatched = dispatch(&targets, &notice("cc@term")).await;
    assert!(dispatched.is_accepted(), "{dispatched:?}");
    let to = &shown(&dispatched)["dispatched"][0];
    assert_eq!(
        (&to["route"], &to["receipt"]["woken"]),
        (&json!("wake"), &json!(true))
    );
}
