//! Deliveries to a webhook: the exact wire, what is tried again, what is made of answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hermes_relay::agent_connector::AgentConnector as _;
use hermes_relay::agent_connector::contract::{AgentActivity, CauseKind, DeliveryKind, DeliveryPayload};
use hermes_relay::wire::sign;
use serde_json::{Value, json};

use super::{SECRET, augment, credentials, hook, payload, webhook};
use crate::support::http_stub::{Stub, json_reply, nobody, reply, reply_with, silent};

#[tokio::test]
async fn statement_14_15_each_kind_has_its_own_field_and_not_the_others() {
    let receiver = Stub::always(200, "").await;
    let connector = hook(&receiver);
    connector
        .deliver("cc", &augment("d-1", "Grüße\n\"x\""))
        .await
        .unwrap();
    let template = payload(DeliveryKind::Template, "d-2", "Do it.");
    connector.deliver("cc@term", &template).await.unwrap();
    let seen = receiver.seen();
    let meta = |id: &str| {
        json!({"dispatch_id": id, "sent_at": 1_700_000_000_000_i64,
            "origin": {"skill_name": "(unnamed)", "trigger_kind": "inline"}})
    };
    assert_eq!(
        seen[0].json(),
        json!({"agent_id": "cc", "kind": "augment", "content": "Grüße\n\"x\"", "meta": meta("d-1")})
    );
    assert_eq!(
        seen[1].json(),
        json!({"agent_id": "cc@term", "kind": "template", "prompt": "Do it.", "meta": meta("d-2")})
    );
    assert_eq!((seen[0].method.as_str(), seen[0].path()), ("POST", "/cc"));
    assert_eq!(seen[0].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn statement_18_20_meta_reaches_the_receiver_unchanged() {
    let receiver = Stub::always(200, "").await;
    let body = json!({"agent_id": "x", "kind": "augment", "content": "c", "meta": {"dispatch_id": "d", "sent_at": 5,
        "origin": {"skill_name": "s", "trigger_kind": "cron", "new": [1]}, "later": {"key": null}}});
    let payload = DeliveryPayload::from_body(body.clone()).unwrap();
    hook(&receiver).deliver("cc", &payload).await.unwrap();
    assert_eq!(receiver.only().json()["meta"], body["meta"]);
}

#[tokio::test]
async fn statement_58_the_signature_covers_the_exact_bytes() {
    let receiver = Stub::always(200, "").await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    for (auth, secret) in [
        (None, None),
        (Some("Bearer abc"), None),
        (None, Some(SECRET)),
        (Some("Token t"), Some(SECRET)),
    ] {
        let connector = webhook(&agent, credentials(auth, secret));
        connector.deliver("cc", &augment("d", "ü")).await.unwrap();
        connector.wake("cc@term", &super::context("wach")).await.unwrap();
        let seen = receiver.seen();
        for one in &seen[seen.len() - 2..] {
            assert_eq!(one.header("authorization"), auth);
            let signature = secret.map(|secret| format!("sha256={}", sign(&one.body, secret)));
            assert_eq!(one.header("x-signature"), signature.as_deref());
        }
    }
}

#[tokio::test]
async fn statement_21_a_retry_sends_the_same_bytes() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let receiver = Stub::start(|_| match CALLS.fetch_add(1, Ordering::SeqCst) {
        0 => reply(503, "busy"),
        1 => reply_with(429, &[("retry-after", "0")], ""),
        2 => reply(500, ""),
        _ => json_reply(200, &json!({"delivery_id": "x"})),
    })
    .await;
    let connector = webhook(
        &json!({"url": receiver.url("/")}),
        credentials(None, Some(SECRET)),
    );
    let receipt = connector.deliver("cc", &augment("d", "once")).await.unwrap();
    assert_eq!(receipt.delivery_id.as_deref(), Some("x"));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 4);
    for one in &seen {
        assert_eq!(one.body, seen[0].body);
        assert_eq!(one.header("x-signature"), seen[0].header("x-signature"));
    }
}

#[tokio::test]
async fn statement_26_an_error_status_is_attached_and_other_4xx_are_not_tried_again() {
    for status in [400, 401, 404, 422] {
        let receiver = Stub::start(move |_| json_reply(status, &json!({"error": "not you\u{1b}[2J"}))).await;
        let failure = hook(&receiver)
            .deliver("cc", &augment("d", "x"))
            .await
            .unwrap_err();
        assert_eq!(
            (failure.cause_kind, failure.http_status),
            (CauseKind::HttpStatus, Some(status))
        );
        assert!(failure.message.contains("not you"), "{failure}");
        assert!(!failure.message.contains('\u{1b}'), "{failure}");
        receiver.only();
    }
    let receiver = Stub::always(502, "").await;
    let failure = hook(&receiver)
        .deliver("cc", &augment("d", "x"))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::HttpStatus, Some(502))
    );
    assert_eq!(receiver.seen().len(), 4, "a few times");
}

#[tokio::test]
async fn statement_27_a_timeout_and_a_refused_connection_have_causes_of_their_own() {
    let settings =
        json!({"agents": {"cc": {"url": format!("http://{}/", silent().await)}}, "timeout_ms": 100});
    let settings = serde_json::from_value(settings).unwrap();
    let slow =
        hermes_relay::agent_connector::WebhookConnector::new(settings, credentials(None, None)).unwrap();
    let began = Instant::now();
    let failure = slow.deliver("cc", &augment("d", "x")).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::Timeout, None)
    );
    assert!(failure.message.contains("100 ms"), "{failure}");
    assert!(began.elapsed().as_secs() < 10, "within seconds");
    let away = webhook(&json!({"url": nobody()}), credentials(None, None));
    let failure = away.deliver("cc", &augment("d", "x")).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::Network, None)
    );
}

#[tokio::test]
async fn statement_28_29_every_accepting_answer_makes_a_receipt() {
    let huge = "x".repeat(100_000);
    for body in [
        "",
        "ok",
        "<html></html>",
        "[]",
        "null",
        "{\"delivered_at\":",
        huge.as_str(),
    ] {
        let receiver = Stub::always(202, body).await;
        let receipt = hook(&receiver).deliver("cc", &augment("d", "x")).await.unwrap();
        assert!(receipt.delivered_at > 1_700_000_000_000, "{receipt:?}");
        assert_eq!(receipt.delivery_id, None);
        assert_eq!(
            receipt.warnings.len(),
            usize::from(body.len() > 1_000),
            "{receipt:?}"
        );
    }
    let answer = json!({"delivered_at": 12, "ts": "t", "session_id": "s", "warnings": ["w"], "delivery_skipped": true});
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    let receipt = hook(&receiver).deliver("cc", &augment("d", "x")).await.unwrap();
    assert_eq!(
        serde_json::to_value(&receipt).unwrap(),
        json!({"delivered_at": 12, "delivery_id": "t", "session_id": "s", "warnings": ["w"], "delivery_skipped": true})
    );
}

#[tokio::test]
async fn statement_25_an_unknown_agent_is_refused_before_anything_is_sent() {
    let receiver = Stub::always(200, "").await;
    let failure = hook(&receiver)
        .deliver("dd", &augment("d", "x"))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::ClientValidation, None)
    );
    assert_eq!(receiver.seen().len(), 0);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect() {
    let elsewhere = Stub::always(200, "").await;
    let target = elsewhere.url("/taken");
    let receiver = Stub::start(move |_| reply_with(307, &[("location", &target)], "")).await;
    let connector = webhook(
        &json!({"url": receiver.url("/")}),
        credentials(Some("Bearer abc"), Some(SECRET)),
    );
    let failure = connector.deliver("cc", &augment("d", "x")).await.unwrap_err();
    assert_eq!(
        (failure.cause_kind, failure.http_status),
        (CauseKind::HttpStatus, Some(307))
    );
    receiver.only();
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn statement_11_57_health_and_status_ask_every_status_url() {
    let receiver = Stub::start(|seen| match seen.path() {
        "/well" => json_reply(200, &json!({"agent_id": "cc", "status": "idle"})),
        "/odd" => json_reply(200, &json!({"status": "on fire"})),
        _ => reply(503, ""),
    })
    .await;
    let agent = |path: &str| json!({"url": receiver.url("/"), "status_url": receiver.url(path)});
    let well = webhook(&agent("/well"), credentials(Some("Bearer abc"), None));
    assert!(well.health_check().await);
    assert_eq!(receiver.seen()[0].method, "GET");
    assert_eq!(receiver.seen()[0].header("authorization"), Some("Bearer abc"));
    assert_eq!(well.agent_status("cc").await, AgentActivity::Idle);
    assert_eq!(well.agent_status("dd").await, AgentActivity::Unknown);
    let odd = webhook(&agent("/odd"), credentials(None, None));
    assert_eq!(odd.agent_status("cc").await, AgentActivity::Unknown);
    assert!(
        !webhook(&agent("/ill"), credentials(None, None))
            .health_check()
            .await
    );
    let away = json!({"url": receiver.url("/"), "status_url": nobody()});
    assert!(!webhook(&away, credentials(None, None)).health_check().await);
    assert!(
        hook(&receiver).health_check().await,
        "without a status_url there is nothing to ask"
    );
}

#[test]
fn statement_7_agents_are_listed_without_the_network() {
    let agent = json!({"url": nobody(), "wake_url": nobody()});
    let listed = webhook(&agent, credentials(None, None)).list_agents();
    let listed: Value = serde_json::to_value(listed).unwrap();
    assert_eq!(
        listed,
        json!([{"agent_id": "cc", "capabilities": ["deliver", "augment", "template", "wake"]}])
    );
}
