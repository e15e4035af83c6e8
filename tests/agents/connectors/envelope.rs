//! One notice: its route, its envelope, and one id for all connectors that have the agent.

use std::time::Duration;

use hermes_relay::agent_connector::contract::{
    DeliveryKind, DeliveryOrigin, DeliveryPayload, EnvelopeError, TriggerKind,
};
use hermes_relay::agent_connector::{
    AgentConnector, CommandConnector, Dispatched, FileConnector, NoopConnector, Notice, TmuxConnector,
    WebhookConnector, dispatch,
};
use serde_json::{Value, json};

use super::{credentials, file, hook, webhook};
use crate::support::http_stub::{Stub, json_reply};

fn notice(address: &str) -> Notice {
    Notice {
        address: address.to_owned(),
        kind: DeliveryKind::Augment,
        text: "hello".to_owned(),
        origin: DeliveryOrigin {
            trigger: TriggerKind::Cli,
            ..DeliveryOrigin::default()
        },
        wait: None,
    }
}

fn named(connectors: Vec<Box<dyn AgentConnector>>) -> Vec<(String, Box<dyn AgentConnector>)> {
    let names = (1..).map(|number| format!("c{number}"));
    names.zip(connectors).collect()
}

fn shown(dispatched: &Dispatched) -> Value {
    serde_json::to_value(dispatched).unwrap()
}

#[tokio::test]
async fn statement_23_24_one_notice_has_one_id_and_the_next_another() {
    let (one, two) = (Stub::always(200, "").await, Stub::always(200, "").await);
    let folder = tempfile::tempdir().unwrap();
    let connectors = named(vec![
        Box::new(hook(&one)),
        Box::new(hook(&two)),
        Box::new(file(folder.path())),
        Box::new(NoopConnector),
    ]);
    for _ in 0..2 {
        let dispatched = dispatch(&connectors, &notice("cc")).await;
        assert!(dispatched.is_accepted(), "{dispatched:?}");
        assert_eq!(dispatched.dispatched.len(), 3, "noop has no agents");
    }
    let id = |seen: &crate::support::http_stub::Seen| seen.json()["meta"]["dispatch_id"].clone();
    let ids: Vec<Value> = one.seen().iter().map(id).collect();
    assert_eq!(ids, two.seen().iter().map(id).collect::<Vec<_>>());
    assert_ne!(ids[0], ids[1]);
    for id in &ids {
        let dropped = folder.path().join(format!("{}.json", id.as_str().unwrap()));
        let dropped: Value = serde_json::from_slice(&std::fs::read(dropped).unwrap()).unwrap();
        let seen = one.seen();
        let posted = seen.iter().find(|seen| seen.body.contains(id.as_str().unwrap()));
        assert_eq!(
            dropped,
            posted.unwrap().json(),
            "a file has the body of a webhook"
        );
    }
    // A wake that is delivered shares it, too.
    let dispatched = dispatch(&connectors, &notice("cc@term")).await;
    assert!(dispatched.dispatched.iter().all(|to| shown_route(to) == "wake"));
    assert_eq!(id(&one.seen()[2]), id(&two.seen()[2]));
}

fn shown_route(to: &hermes_relay::agent_connector::DispatchedTo) -> String {
    serde_json::to_value(to.route)
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn statement_33_48_an_address_decides_about_the_route() {
    let receiver = Stub::always(200, "").await;
    let agent = json!({"url": receiver.url("/deliver"), "wake_url": receiver.url("/wake")});
    let connectors = named(vec![Box::new(webhook(&agent, credentials(None, None)))]);
    dispatch(&connectors, &notice("cc")).await;
    dispatch(&connectors, &notice("cc@term")).await;
    let seen = receiver.seen();
    assert_eq!((seen[0].path(), seen[1].path()), ("/deliver", "/wake"));
    assert_eq!(
        seen[1].json(),
        json!({"agent_id": "cc", "session_id": "term", "context": "hello"})
    );
}

#[tokio::test]
async fn statement_19_49_50_55_what_is_not_set_is_absent() {
    let receiver = Stub::always(200, "").await;
    let connectors = named(vec![Box::new(hook(&receiver))]);
    dispatch(&connectors, &notice("cc")).await;
    let mut said = notice("cc");
    said.origin.event_type = Some("alert".to_owned());
    said.origin.correlation_id = Some("q-7".to_owned());
    said.origin.skill_name = Some("triage".to_owned());
    dispatch(&connectors, &said).await;
    let metas: Vec<Value> = receiver
        .seen()
        .iter()
        .map(|seen| seen.json()["meta"].clone())
        .collect();
    let keys = |meta: &Value| meta.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&metas[0]), ["dispatch_id", "origin", "sent_at"]);
    assert_eq!(
        metas[0]["origin"],
        json!({"skill_name": "(unnamed)", "trigger_kind": "cli"})
    );
    assert_eq!(
        (
            &metas[1]["event_type"],
            &metas[1]["correlation_id"],
            &metas[1]["origin"]["skill_name"]
        ),
        (&json!("alert"), &json!("q-7"), &json!("triage"))
    );
    assert!(metas[0]["sent_at"].as_i64().unwrap() > 1_700_000_000_000);
}

#[test]
fn statement_1_2_3_4_5_capabilities_need_no_instance() {
    let all = [
        CommandConnector::CAPABILITIES,
        FileConnector::CAPABILITIES,
        NoopConnector::CAPABILITIES,
        TmuxConnector::CAPABILITIES,
        WebhookConnector::CAPABILITIES,
    ];
    let flags = [
        "agent_status",
        "deliver",
        "health_check",
        "list_agents",
        "request_response",
        "wake",
    ];
    for capabilities in all {
        let shown = serde_json::to_value(capabilities).unwrap();
        assert_eq!(
            (&shown["connector_type"], &shown["contract_version"]),
            (&json!("agent_connector"), &json!("1.0.0"))
        );
        assert!(!shown["implementation"].as_str().unwrap().is_empty());
        let features = shown["features"].as_object().unwrap();
        assert_eq!(features.keys().collect::<Vec<_>>(), flags);
        assert!(features.values().all(Value::is_boolean));
    }
}

#[test]
fn statement_15_16_an_unknown_kind_and_the_field_of_the_other_are_refused() {
    let body = |kind: &str, field: &str| {
        let mut body = json!({"agent_id": "cc", "kind": kind, "meta": {"dispatch_id": "d"}});
        body[field] = "x".into();
        DeliveryPayload::from_body(body)
    };
    assert!(body("augment", "content").is_ok() && body("template", "prompt").is_ok());
    assert_eq!(
        body("binary", "content"),
        Err(EnvelopeError::UnknownKind("binary".to_owned()))
    );
    assert_eq!(
        body("augment", "prompt"),
        Err(EnvelopeError::ForeignField("prompt"))
    );
    assert_eq!(
        body("template", "content"),
        Err(EnvelopeError::ForeignField("content"))
    );
}

#[tokio::test]
async fn statement_31_32_warnings_and_sessions_of_the_receiver_reach_the_record() {
    let answer = json!({"session_id": "s", "warnings": ["slow down"]});
    let receiver = Stub::start(move |_| json_reply(200, &answer)).await;
    let connectors = named(vec![Box::new(hook(&receiver))]);
    let dispatched = dispatch(&connectors, &notice("cc")).await;
    assert!(dispatched.is_accepted(), "a warning is no failure");
    let receipt = shown(&dispatched)["dispatched"][0]["receipt"].clone();
    assert_eq!(
        (&receipt["session_id"], &receipt["warnings"]),
        (&json!("s"), &json!(["slow down"]))
    );
}

#[tokio::test]
async fn nobody_has_the_agent() {
    let connectors = named(vec![Box::new(NoopConnector)]);
    for address in ["cc", "cc@term", "", "@term", "c\nc"] {
        let dispatched = dispatch(&connectors, &notice(address)).await;
        assert!(!dispatched.is_accepted());
        let shown = shown(&dispatched);
        assert_eq!(
            (
                &shown["agent"],
                &shown["dispatched"],
                &shown["error"]["cause_kind"]
            ),
            (&json!(address), &json!([]), &json!("client_validation"))
        );
    }
}

#[tokio::test]
async fn statement_56_a_substrate_that_cannot_wait_says_so_at_once() {
    let receiver = Stub::always(200, "").await;
    let folder = tempfile::tempdir().unwrap();
    let connectors = named(vec![Box::new(hook(&receiver)), Box::new(file(folder.path()))]);
    let mut question = notice("cc");
    question.wait = Some(Duration::from_secs(3600));
    let dispatched = dispatch(&connectors, &question).await;
    for to in shown(&dispatched)["dispatched"].as_array().unwrap() {
        assert_eq!(
            (&to["ok"], &to["route"], &to["error"]["cause_kind"]),
            (
                &json!(false),
                &json!("request_response"),
                &json!("not_implemented")
            )
        );
    }
    assert_eq!(receiver.seen().len(), 0);
}
