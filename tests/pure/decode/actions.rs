//! Ops as they go out, and what their answers mean.

use std::collections::BTreeSet;

use hermes_relay::wire::{Action, ConnectorFrame, Outcome};
use serde_json::{Value, json};

/// The contract's ops: always present, and optional.
const OPS: &[(&str, &[&str], &[&str])] = &[
    ("send", &["chat_id", "content", "reply_to", "metadata"], &[]),
    ("get_chat_info", &["chat_id"], &[]),
    ("follow_up", &["session_key", "kind", "content", "metadata"], &[]),
    ("edit", &["chat_id", "message_id", "content", "metadata"], &[]),
    ("typing", &["chat_id", "metadata"], &["content"]),
    ("delete", &["chat_id", "message_id", "metadata"], &[]),
    (
        "draft",
        &["chat_id", "draft_id", "content", "final", "metadata"],
        &[],
    ),
    ("task_card", &["chat_id", "card_id", "chunks", "metadata"], &[]),
    ("task_card_stop", &["chat_id", "card_id", "metadata"], &[]),
    (
        "send_media",
        &[
            "chat_id",
            "media_kind",
            "source_url",
            "content",
            "reply_to",
            "metadata",
        ],
        &["filename"],
    ),
    (
        "prompt",
        &[
            "chat_id",
            "content",
            "prompt_kind",
            "prompt_id",
            "options",
            "reply_to",
            "metadata",
        ],
        &["timeout_s"],
    ),
    (
        "react",
        &["chat_id", "message_id", "emoji", "remove", "metadata"],
        &[],
    ),
    (
        "thread_create",
        &["chat_id", "thread_name", "metadata"],
        &["message_id"],
    ),
    (
        "thread_rename",
        &["chat_id", "message_id", "thread_name", "metadata"],
        &["only_if_connector_created", "only_if_current_name"],
    ),
];

/// Fails to compile when an op is added, so that the golden file and [`OPS`] get it too.
fn position(action: &Action) -> usize {
    match action {
        Action::Send { .. } => 0,
        Action::GetChatInfo { .. } => 1,
        Action::FollowUp { .. } => 2,
        Action::Edit { .. } => 3,
        Action::Typing { .. } => 4,
        Action::Delete { .. } => 5,
        Action::Draft { .. } => 6,
        Action::TaskCard { .. } => 7,
        Action::TaskCardStop { .. } => 8,
        Action::SendMedia { .. } => 9,
        Action::Prompt { .. } => 10,
        Action::React { .. } => 11,
        Action::ThreadCreate { .. } => 12,
        Action::ThreadRename { .. } => 13,
    }
}

fn golden() -> Vec<(Value, Value)> {
    let file: Value = serde_json::from_str(include_str!("../../vectors/actions.json")).unwrap();
    let actions = file["actions"].as_array().unwrap();
    actions
        .iter()
        .map(|entry| (entry["full"].clone(), entry["bare"].clone()))
        .collect()
}

fn fields(action: &Value) -> BTreeSet<&str> {
    action.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_op_is_written_with_exactly_the_contracts_fields() {
    let mut seen = BTreeSet::new();
    for (full, bare) in golden() {
        for wire in [&full, &bare] {
            let action: Action = serde_json::from_value(wire.clone()).unwrap();
            assert_eq!(serde_json::to_value(&action).unwrap(), *wire);
            let text = serde_json::to_string(&action).unwrap();
            assert_eq!(serde_json::from_str::<Action>(&text).unwrap(), action);
            assert_eq!(wire["op"], action.op());
            assert_eq!(wire["chat_id"].as_str(), action.chat_id());
            let (op, always, optional) = OPS[position(&action)];
            assert_eq!(action.op(), op);
            let always: BTreeSet<&str> = always.iter().copied().chain(["op"]).collect();
            let every = always.iter().copied().chain(optional.iter().copied()).collect();
            assert_eq!(fields(wire), if wire == &full { every } else { always }, "{op}");
            seen.insert(op);
        }
    }
    assert_eq!(
        seen,
        OPS.iter().map(|(op, ..)| *op).collect(),
        "one golden entry for each op"
    );
}

#[test]
fn an_op_that_is_not_the_contracts_is_refused() {
    for wire in [
        json!({"op": "sing", "chat_id": "c"}),
        json!({"chat_id": "c"}),
        json!({"op": "send"}),
        json!(7),
    ] {
        assert!(serde_json::from_value::<Action>(wire).is_err());
    }
}

fn outcome(result: &Value) -> Outcome {
    let line = json!({"type": "outbound_result", "requestId": "r1", "result": result}).to_string();
    match ConnectorFrame::decode(line.as_bytes()) {
        Ok(ConnectorFrame::OutboundResult {
            request_id,
            result: Some(result),
        }) => {
            assert_eq!(request_id, "r1");
            Outcome::from(*result)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_is_applied_refused_or_declined() {
    #[derive(Debug, PartialEq)]
    enum Class {
        Applied,
        Refused,
        Declined,
    }
    use Class::{Applied, Declined, Refused};
    for (result, class) in [
        (json!({"success": true, "message_id": "m"}), Applied),
        (json!({"success": 1}), Applied),
        (json!({"success": "yes"}), Applied),
        (json!({"success": true, "code": "egress_declined"}), Applied),
        (json!({"success": true, "error": "egress declined: no"}), Applied),
        (json!({}), Refused),
        (json!({"success": false}), Refused),
        (json!({"success": null, "error": "rate limited"}), Refused),
        (json!({"success": 0, "error": "egress declined"}), Refused),
        (json!({"success": "", "code": "not_found"}), Refused),
        (json!({"success": false, "code": "EGRESS_DECLINED"}), Refused),
        (json!({"success": false, "code": ["egress_declined"]}), Refused),
        (
            json!({"success": false, "error": {"text": "egress declined: no"}}),
            Refused,
        ),
        (json!({"success": false, "code": "egress_declined"}), Declined),
        (
            json!({"code": "egress_declined", "error": "rate limited"}),
            Declined,
        ),
        (
            json!({"success": false, "error": "egress declined: not yours"}),
            Declined,
        ),
        (
            json!({"success": false, "error": "Egress Declined: not yours"}),
            Declined,
        ),
        (
            json!({"success": false, "error": "send failed (EGRESS DECLINED: x)", "code": "other"}),
            Declined,
        ),
    ] {
        let found = match outcome(&result) {
            Outcome::Applied(_) => Applied,
            Outcome::Refused { declined: false, .. } => Refused,
            Outcome::Refused { declined: true, .. } => Declined,
            Outcome::Unknown => panic!("{result} is an answer"),
        };
        assert_eq!(found, class, "{result}");
    }
}

#[test]
fn an_answers_fields_are_kept_and_wrong_types_are_absent() {
    let Outcome::Applied(result) = outcome(&json!({
        "success": true, "message_id": 42, "thread_id": "t", "auto_thread_name": ["n"], "name": "general",
        "type": "group", "chat_info": {"name": "general"}, "extra": 1,
    })) else {
        panic!("success is success");
    };
    assert_eq!(result.message_id, Some("42".into()));
    assert_eq!(result.thread_id, Some("t".into()));
    assert_eq!(result.auto_thread_name, None);
    assert_eq!(
        (result.name, result.chat_type),
        (Some("general".into()), Some("group".into()))
    );
    assert_eq!(result.chat_info, Some(json!({"name": "general"})));
}
