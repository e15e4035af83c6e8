//! Statements 49 to 58: what an envelope says, and the rest.

use std::time::Duration;

use hermes_relay::agent_connector::contract::{
    AgentActivity, DeliveryMeta, DeliveryOrigin, DeliveryPayload, TriggerKind,
};
use hermes_relay::agent_connector::{AgentConnector, dispatch};
use hermes_relay::skill::{ApprovalMode, SkillBody, SkillStore as _, SkillWrite};
use hermes_relay::wire::sign;
use serde_json::{Value, json};

use super::{Bundled, named, notice, shown};
use crate::connectors::{SECRET, augment, context, credentials, hook, webhook};
use crate::support::http_stub::{Stub, json_reply};

const TRIGGERS: [(TriggerKind, &str); 7] = [
    (TriggerKind::Cron, "cron"),
    (TriggerKind::Event, "event"),
    (TriggerKind::Webhook, "webhook"),
    (TriggerKind::Agent, "agent"),
    (TriggerKind::Cli, "cli"),
    (TriggerKind::Dashboard, "dashboard"),
    (TriggerKind::Inline, "inline"),
];

/// `meta` of a delivery from here.
fn meta(origin: &DeliveryOrigin) -> Value {
    Value::Object(DeliveryMeta::new("d", 5, origin).as_object().clone())
}

fn by_agent(caller: &str) -> DeliveryOrigin {
    DeliveryOrigin {
        skill_name: Some("A".to_owned()),
        trigger: TriggerKind::Agent,
        caller_agent_id: Some(caller.to_owned()),
        ..DeliveryOrigin::default()
    }
}

#[test]
fn statement_49_trigger_kind_is_one_of_seven_words_and_inline_by_default() {
    for (trigger, word) in TRIGGERS {
        let origin = DeliveryOrigin {
            trigger,
            ..DeliveryOrigin::default()
        };
        assert_eq!(meta(&origin)["origin"]["trigger_kind"], word);
    }
    assert_eq!(
        meta(&DeliveryOrigin::default())["origin"]["trigger_kind"],
        "inline"
    );
    assert!(serde_json::from_value::<TriggerKind>(json!("session")).is_err());
}

#[test]
fn statement_50_caller_agent_id_is_absent_where_nobody_proved_who_they_are() {
    for (trigger, word) in TRIGGERS {
        let origin = DeliveryOrigin {
            trigger,
            ..by_agent("bob")
        };
        let caller = meta(&origin)["origin"].get("caller_agent_id").cloned();
        let expected = ["webhook", "agent"].contains(&word).then(|| json!("bob"));
        assert_eq!(caller, expected, "{word}");
    }
}

#[test]
fn statement_51_caller_agent_id_is_never_the_owner_of_the_skill() {
    let folder = tempfile::tempdir().unwrap();
    let store = hermes_relay::SqliteSkillStore::new(folder.path().join("s.db"), ApprovalMode::Unsecured);
    let write = SkillWrite {
        author: Some("alice".to_owned()),
        ..SkillWrite::default()
    };
    store.store("triage", "Do it.", &write).unwrap();
    let skill = store.load("triage", None).unwrap();
    assert_eq!(skill.metadata.author.as_deref(), Some("alice"));
    let origin = DeliveryOrigin {
        skill_name: Some(skill.name),
        ..by_agent("bob")
    };
    assert_eq!(meta(&origin)["origin"]["caller_agent_id"], "bob");
    let nobody = DeliveryOrigin {
        caller_agent_id: None,
        ..origin
    };
    assert_eq!(meta(&nobody)["origin"].get("caller_agent_id"), None);
}

#[test]
fn statement_52_caller_agent_id_survives_composition() {
    let deep = by_agent("bob").calls("B").calls("C");
    assert_eq!(meta(&deep)["origin"]["caller_agent_id"], "bob");
    assert_eq!(meta(&deep)["origin"]["trigger_kind"], "agent");
}

#[test]
fn statement_53_entry_skill_name_is_the_first_of_a_chain_and_absent_for_itself() {
    let first = by_agent("bob");
    assert_eq!(meta(&first)["origin"].get("entry_skill_name"), None);
    let deep = first.calls("B").calls("C");
    assert_eq!(
        (
            &meta(&deep)["origin"]["skill_name"],
            &meta(&deep)["origin"]["entry_skill_name"]
        ),
        (&json!("C"), &json!("A"))
    );
    let itself = first.calls("B").calls("A");
    assert_eq!(meta(&itself)["origin"].get("entry_skill_name"), None);
}

#[test]
fn statement_54_the_event_type_of_the_call_beats_the_header_and_neither_is_absent() {
    // `notify --skill` does the same; its test uses the real program.
    let header = |text: &str| SkillBody::read(text.to_owned()).event_type();
    let said = |call: Option<&str>, text: &str| {
        let origin = DeliveryOrigin {
            event_type: call.map(str::to_owned).or(header(text)),
            ..DeliveryOrigin::default()
        };
        meta(&origin).get("event_type").cloned()
    };
    let text = "# Status: Approved\n# Event-type: alert\n\nDo it.\n";
    assert_eq!(said(Some("page"), text), Some(json!("page")));
    assert_eq!(said(None, text), Some(json!("alert")));
    assert_eq!(said(None, "Do it.\n# Event-type: alert\n"), None);
}

#[tokio::test]
async fn statement_55_correlation_id_appears_only_when_the_caller_set_it() {
    let receiver = Stub::always(200, "").await;
    let targets = named(vec![Box::new(hook(&receiver))]);
    dispatch(&targets, &notice("cc")).await;
    let mut asked = notice("cc");
    asked.origin.correlation_id = Some("q-7".to_owned());
    dispatch(&targets, &asked).await;
    let seen = receiver.seen();
    assert_eq!(seen[0].json()["meta"].get("correlation_id"), None);
    assert_eq!(seen[1].json()["meta"]["correlation_id"], "q-7");
    assert_eq!(asked.origin.calls("B").correlation_id, None, "of one call only");
}

#[tokio::test]
async fn statement_56_request_response_is_a_recognisable_not_implemented_at_once() {
    // The `relay` kind honours correlation id and time; its test uses the real program.
    let bundled = Bundled::new().await;
    let mut question = notice("cc");
    question.wait = Some(Duration::from_secs(3600));
    let targets = named(bundled.silent().into_iter().chain([bundled.ringing()]).collect());
    let dispatched = dispatch(&targets, &question).await;
    let all = shown(&dispatched)["dispatched"].clone();
    assert_eq!(all.as_array().unwrap().len(), 4);
    for to in all.as_array().unwrap() {
        assert_eq!(
            (&to["ok"], &to["route"], &to["error"]["cause_kind"]),
            (
                &json!(false),
                &json!("request_response"),
                &json!("not_implemented")
            )
        );
    }
    assert_eq!(bundled.receiver.seen().len(), 0);
}

#[tokio::test]
async fn statement_57_agent_status_is_one_of_four_words_and_blocks_no_delivery() {
    let receiver = Stub::start(|seen| match seen.path() {
        "/well" => json_reply(200, &json!({"agent_id": "cc", "status": "asleep"})),
        "/odd" => json_reply(200, &json!({"status": "on fire"})),
        _ => json_reply(200, &json!({})),
    })
    .await;
    let at = |path: &str| json!({"url": receiver.url("/cc"), "status_url": receiver.url(path)});
    let asleep = webhook(&at("/well"), credentials(Some("Bearer abc"), None));
    assert_eq!(asleep.agent_status("cc").await, AgentActivity::Asleep);
    assert_eq!(asleep.agent_status("dd").await, AgentActivity::Unknown);
    assert_eq!(receiver.only().header("authorization"), Some("Bearer abc"));
    assert!(asleep.deliver("cc", &augment("d", "x")).await.is_ok());
    let odd = webhook(&at("/odd"), credentials(None, None));
    assert_eq!(odd.agent_status("cc").await, AgentActivity::Unknown);
    for connector in Bundled::new().await.all() {
        assert_eq!(connector.agent_status("cc").await, AgentActivity::Unknown);
    }
}

#[tokio::test]
async fn statement_58_the_signature_covers_the_exact_bytes_and_is_optional() {
    let receiver = Stub::always(200, "").await;
    let agent = json!({"url": receiver.url("/cc"), "wake_url": receiver.url("/wake")});
    let odd: DeliveryPayload = augment("d", "ü \u{2028} \"\\");
    for (auth, secret) in [
        (None, None),
        (Some("Bearer abc"), None),
        (None, Some(SECRET)),
        (Some("Token t"), Some(SECRET)),
    ] {
        let connector = webhook(&agent, credentials(auth, secret));
        connector.deliver("cc", &odd).await.unwrap();
        connector.wake("cc@term", &context("wach")).await.unwrap();
        let seen = receiver.seen();
        for one in &seen[seen.len() - 2..] {
            assert_eq!(one.header("authorization"), auth);
            let signature = secret.map(|secret| format!("sha256={}", sign(&one.body, secret)));
            assert_eq!(one.header("x-signature"), signature.as_deref());
        }
    }
}
