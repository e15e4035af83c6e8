//! Statements 14 to 33: deliveries.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hermes_relay::agent_connector::contract::{
    CauseKind, DeliveryFailure, DeliveryKind, DeliveryPayload, DeliveryReceipt, EnvelopeError,
};
use hermes_relay::agent_connector::{AgentConnector, NoopConnector, WebhookConnector, dispatch};
use serde_json::{Value, json};

use super::{Bundled, named, notice, shown};
use crate::connectors::{SECRET, augment, credentials, file, hook, payload, webhook};
use crate::support::http_stub::{Seen, Stub, json_reply, nobody, reply, reply_with, silent};

/// What a webhook makes of an answer.
async fn receipt_of(answer: Value) -> DeliveryReceipt {
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    hook(&receiver).deliver("cc", &augment("d", "x")).await.unwrap()
}

async fn failure_of(connector: &dyn AgentConnector) -> (CauseKind, Option<u16>) {
    let failure = connector.deliver("cc", &augment("d", "x")).await.unwrap_err();
    cause(&failure)
}

fn cause(failure: &DeliveryFailure) -> (CauseKind, Option<u16>) {
    (failure.cause_kind, failure.http_status)
}

fn dispatch_id(seen: &Seen) -> String {
    seen.json()["meta"]["dispatch_id"].as_str().unwrap().to_owned()
}

fn body(kind: &str, field: &str) -> Result<DeliveryPayload, EnvelopeError> {
    let mut body = json!({"agent_id": "cc", "kind": kind, "meta": {"dispatch_id": "d"}});
    body[field] = "x".into();
    DeliveryPayload::from_body(body)
}

#[tokio::test]
async fn statement_14_augment_is_delivered_from_content_and_template_from_prompt() {
    let receiver = Stub::always(200, "").await;
    let connector = hook(&receiver);
    let context = augment("d-1", "Grüße\n\"x\"");
    connector.deliver("cc", &context).await.unwrap();
    let playbook = payload(DeliveryKind::Template, "d-2", "Do it.");
    connector.deliver("cc@term", &playbook).await.unwrap();
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

#[test]
fn statement_15_the_field_of_the_other_kind_is_not_present() {
    assert_eq!(augment("d", "x").to_body("cc").get("prompt"), None);
    let playbook = payload(DeliveryKind::Template, "d", "x");
    assert_eq!(playbook.to_body("cc").get("content"), None);
    assert_eq!(
        body("augment", "prompt"),
        Err(EnvelopeError::ForeignField("prompt"))
    );
    assert_eq!(
        body("template", "content"),
        Err(EnvelopeError::ForeignField("content"))
    );
}

#[test]
fn statement_16_an_unknown_kind_is_refused() {
    assert!(body("augment", "content").is_ok() && body("template", "prompt").is_ok());
    for kind in ["binary", "Augment", "", "augment "] {
        let refused = body(kind, "content");
        assert_eq!(refused, Err(EnvelopeError::UnknownKind(kind.to_owned())));
    }
}

#[tokio::test]
async fn statement_17_delivered_at_is_in_unix_milliseconds() {
    for connector in Bundled::new().await.all() {
        let receipt = connector.deliver("cc", &augment("d", "x")).await.unwrap();
        assert!(receipt.delivered_at > 1_700_000_000_000, "{receipt:?}");
    }
}

#[tokio::test]
async fn statement_18_meta_reaches_the_receiver_unchanged_with_unknown_keys() {
    let receiver = Stub::always(200, "").await;
    let body = json!({"agent_id": "x", "kind": "augment", "content": "c", "meta": {"dispatch_id": "d", "sent_at": 5,
        "origin": {"skill_name": "s", "trigger_kind": "cron", "new": [1]}, "later": {"key": null}}});
    let payload = DeliveryPayload::from_body(body.clone()).unwrap();
    hook(&receiver).deliver("cc", &payload).await.unwrap();
    assert_eq!(receiver.only().json()["meta"], body["meta"]);
}

#[tokio::test]
async fn statement_19_unset_optional_keys_of_meta_are_absent() {
    let receiver = Stub::always(200, "").await;
    dispatch(&named(vec![Box::new(hook(&receiver))]), &notice("cc")).await;
    let meta = receiver.only().json()["meta"].clone();
    let keys: Vec<&String> = meta.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["dispatch_id", "origin", "sent_at"]);
    let origin: Vec<&String> = meta["origin"].as_object().unwrap().keys().collect();
    assert_eq!(origin, ["skill_name", "trigger_kind"]);
}

#[tokio::test]
async fn statement_20_the_connector_creates_and_edits_nothing_of_the_envelope() {
    let bundled = Bundled::new().await;
    let payload = augment("a-foreign.id_9", "x");
    for connector in bundled.all() {
        connector.deliver("cc@term", &payload).await.unwrap();
    }
    let meta = Value::Object(payload.meta.as_object().clone());
    for seen in bundled.receiver.seen() {
        assert_eq!(seen.json()["meta"], meta);
    }
    let dropped = bundled.folder.path().join("a-foreign.id_9.json");
    let dropped: Value = serde_json::from_slice(&std::fs::read(dropped).unwrap()).unwrap();
    assert_eq!(dropped["meta"], meta);
}

#[tokio::test]
async fn statement_21_a_retry_reuses_the_dispatch_id() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let receiver = Stub::start(|_| match CALLS.fetch_add(1, Ordering::SeqCst) {
        0 => reply(503, "busy"),
        1 => reply_with(429, &[("retry-after", "0")], ""),
        2 => reply(500, ""),
        _ => json_reply(200, &json!({"delivery_id": "x"})),
    })
    .await;
    let url = json!({"url": receiver.url("/")});
    let connector = webhook(&url, credentials(None, Some(SECRET)));
    let receipt = connector.deliver("cc", &augment("d", "once")).await.unwrap();
    assert_eq!(receipt.delivery_id.as_deref(), Some("x"));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 4);
    for one in &seen {
        assert_eq!((dispatch_id(one).as_str(), &one.body), ("d", &seen[0].body));
        assert_eq!(one.header("x-signature"), seen[0].header("x-signature"));
    }
}

#[tokio::test]
async fn statement_22_the_same_dispatch_id_twice_acts_once_and_succeeds_twice() {
    // The relay's own receiver is tested with the real program; this is a directory.
    let folder = tempfile::tempdir().unwrap();
    let connector = file(folder.path());
    for _ in 0..2 {
        let receipt = connector.deliver("cc", &augment("d", "x")).await.unwrap();
        let path = folder.path().join("d.json");
        assert_eq!(receipt.delivery_id.as_deref(), path.to_str());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn statement_23_one_notice_to_several_connectors_has_one_dispatch_id() {
    let (one, two) = (Stub::always(200, "").await, Stub::always(200, "").await);
    let folder = tempfile::tempdir().unwrap();
    let targets = named(vec![
        Box::new(hook(&one)),
        Box::new(hook(&two)),
        Box::new(file(folder.path())),
        Box::new(NoopConnector),
    ]);
    let dispatched = dispatch(&targets, &notice("cc")).await;
    assert!(dispatched.is_accepted(), "{dispatched:?}");
    assert_eq!(dispatched.dispatched.len(), 3, "noop has no agents");
    let id = dispatch_id(&one.only());
    assert_eq!(id, dispatch_id(&two.only()));
    let dropped = std::fs::read(folder.path().join(format!("{id}.json"))).unwrap();
    let dropped: Value = serde_json::from_slice(&dropped).unwrap();
    assert_eq!(dropped, one.only().json(), "a file has the body of a webhook");
    // A wake that is delivered shares it, too.
    dispatch(&targets, &notice("cc@term")).await;
    assert_eq!(dispatch_id(&one.seen()[1]), dispatch_id(&two.seen()[1]));
}

#[tokio::test]
async fn statement_24_two_notices_have_different_dispatch_ids() {
    let receiver = Stub::always(200, "").await;
    let targets = named(vec![Box::new(hook(&receiver))]);
    for _ in 0..2 {
        dispatch(&targets, &notice("cc")).await;
    }
    let seen = receiver.seen();
    assert_ne!(dispatch_id(&seen[0]), dispatch_id(&seen[1]));
}

#[tokio::test]
async fn statement_25_an_unknown_agent_is_client_validation_without_a_status() {
    let bundled = Bundled::new().await;
    for connector in bundled.silent().into_iter().chain([bundled.ringing()]) {
        let failure = connector.deliver("dd", &augment("d", "x")).await.unwrap_err();
        assert_eq!(cause(&failure), (CauseKind::ClientValidation, None));
        assert_eq!(failure.agent_id, "dd");
    }
    assert_eq!(bundled.receiver.seen().len(), 0);
}

#[tokio::test]
async fn statement_26_4xx_and_5xx_fail_with_the_status() {
    for status in [400, 401, 404, 422] {
        let receiver = Stub::start(move |_| json_reply(status, &json!({"error": "not you\u{1b}[2J"}))).await;
        let failure = hook(&receiver)
            .deliver("cc", &augment("d", "x"))
            .await
            .unwrap_err();
        assert_eq!(cause(&failure), (CauseKind::HttpStatus, Some(status)));
        assert!(failure.message.contains("not you"), "{failure}");
        assert!(!failure.message.contains('\u{1b}'), "{failure}");
        receiver.only();
    }
    let receiver = Stub::always(502, "").await;
    assert_eq!(
        failure_of(&hook(&receiver)).await,
        (CauseKind::HttpStatus, Some(502))
    );
    assert_eq!(receiver.seen().len(), 4, "a few times");
}

#[tokio::test]
async fn statement_27_a_timeout_is_timeout_and_a_refused_connection_is_network() {
    let url = format!("http://{}/", silent().await);
    let settings = json!({"agents": {"cc": {"url": url}}, "timeout_ms": 100});
    let settings = serde_json::from_value(settings).unwrap();
    let slow = WebhookConnector::new(settings, credentials(None, None)).unwrap();
    let began = Instant::now();
    assert_eq!(failure_of(&slow).await, (CauseKind::Timeout, None));
    assert!(began.elapsed().as_secs() < 10, "within seconds");
    let away = webhook(&json!({"url": nobody()}), credentials(None, None));
    assert_eq!(failure_of(&away).await, (CauseKind::Network, None));
}

#[tokio::test]
async fn statement_28_any_body_of_a_2xx_makes_a_receipt() {
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
        let warned = usize::from(body.len() > 1_000);
        assert_eq!(receipt.warnings.len(), warned, "{receipt:?}");
    }
}

#[tokio::test]
async fn statement_29_delivery_id_is_delivery_id_then_id_then_ts_as_a_text() {
    for (answer, id) in [
        (json!({"delivery_id": "a", "id": "b", "ts": "c"}), Some("a")),
        (json!({"delivery_id": null, "id": "b", "ts": "c"}), Some("b")),
        (json!({"ts": "c"}), Some("c")),
        (json!({"delivery_id": 3, "id": "b"}), None),
        (json!({}), None),
    ] {
        assert_eq!(
            receipt_of(answer.clone()).await.delivery_id.as_deref(),
            id,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn statement_30_delivery_skipped_means_accepted_and_not_pushed() {
    let skipped = receipt_of(json!({"delivery_skipped": true})).await;
    assert_eq!(skipped.delivery_skipped, Some(true));
    for other in [json!(false), json!("true"), json!(1)] {
        let receipt = receipt_of(json!({"delivery_skipped": other})).await;
        let receipt = serde_json::to_value(receipt).unwrap();
        assert_eq!(receipt.get("delivery_skipped"), None);
    }
    let nobody = NoopConnector.deliver("cc", &augment("d", "x")).await.unwrap();
    assert_eq!(nobody.delivery_skipped, Some(true));
    let receiver = Stub::start(|_| json_reply(409, &json!({"delivery_skipped": true}))).await;
    let failed = failure_of(&hook(&receiver)).await;
    assert_eq!(failed, (CauseKind::HttpStatus, Some(409)), "a failure fails");
}

#[tokio::test]
async fn statement_31_warnings_are_no_failure_and_reach_the_record() {
    let answer = json!({"warnings": ["slow down"]});
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    let dispatched = dispatch(&named(vec![Box::new(hook(&receiver))]), &notice("cc")).await;
    assert!(dispatched.is_accepted());
    let receipt = shown(&dispatched)["dispatched"][0]["receipt"].clone();
    assert_eq!(receipt["warnings"], json!(["slow down"]));
}

#[tokio::test]
async fn statement_32_session_id_is_set_when_a_session_was_chosen_and_omitted_otherwise() {
    let chosen = receipt_of(json!({"session_id": "s"})).await;
    assert_eq!(chosen.session_id.as_deref(), Some("s"));
    let none = serde_json::to_value(receipt_of(json!({})).await).unwrap();
    assert_eq!(none.get("session_id"), None);
    let folder = tempfile::tempdir().unwrap();
    let dropped = file(folder.path()).deliver("cc@term", &augment("d", "x")).await;
    assert_eq!(dropped.unwrap().session_id.as_deref(), Some("term"));
}

#[tokio::test]
async fn statement_33_a_bare_id_is_never_a_wake() {
    let bundled = Bundled::new().await;
    let targets = named(vec![bundled.ringing()]);
    let dispatched = dispatch(&targets, &notice("cc")).await;
    assert_eq!(shown(&dispatched)["dispatched"][0]["route"], "deliver");
    assert_eq!(bundled.receiver.only().path(), "/cc");
}
