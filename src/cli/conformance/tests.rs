use serde_json::json;

use super::*;
use crate::cli::conformance::seen::Message;

fn closed(code: u16, reason: &str) -> SeenConnection {
    SeenConnection {
        ending: Ending::Closed {
            code: Some(code),
            reason: reason.to_owned(),
        },
        ..SeenConnection::default()
    }
}

fn open(frames: Vec<Value>) -> SeenConnection {
    SeenConnection {
        ending: Ending::Open,
        frames,
        close_answered: Some(true),
        ..SeenConnection::default()
    }
}

fn request(op: &'static str, sent: usize) -> OpRequest {
    OpRequest {
        id: op.to_owned(),
        op,
        sent,
    }
}

fn result(op: &str, result: &Value) -> Value {
    json!({"type": "outbound_result", "requestId": op, "result": result})
}

fn descriptor() -> Value {
    let fields = crate::wire::CapabilityDescriptor::placeholder("discord");
    json!({"type": "descriptor", "descriptor": fields})
}

fn message(buffer_id: &str, message_id: &str) -> Value {
    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm"});
    let event = json!({"text": "hi", "message_id": message_id, "source": source});
    json!({"type": "inbound", "event": event, "bufferId": buffer_id})
}

/// A connector that keeps to the contract.
fn good() -> Seen {
    let sent = json!({"success": true, "message_id": "m9"});
    let inbound = message("b1", "m1");
    Seen {
        platforms: vec!["discord".to_owned()],
        without_token: closed(4401, "unauthorized"),
        wrong_token: closed(4401, ""),
        expired_token: closed(4401, "expired"),
        first: open(vec![
            descriptor(),
            result("unknown", &json!({"success": false, "error": "what?"})),
            result("get_chat_info", &json!({"success": true})),
            inbound.clone(),
        ]),
        unknown_op: Some(request("unknown", 1)),
        after_unknown_frame: Some(request("get_chat_info", 1)),
        interrupted: Some("key".to_owned()),
        message: Some(Message {
            buffer_id: Some("b1".to_owned()),
            event: inbound["event"].clone(),
        }),
        second: open(vec![
            descriptor(),
            inbound,
            result("send", &sent),
            result("send", &sent),
        ]),
        send: Some(request("send", 2)),
        third: open(vec![descriptor(), json!({"type": "going_idle_ack"})]),
        wrote_while_idle: true,
        fourth: open(vec![descriptor(), message("b2", "m2")]),
        older: closed(4000, "replaced"),
        newer: open(vec![descriptor()]),
        ..Seen::default()
    }
}

/// The names of the checks that fail.
fn failed(seen: &Seen) -> Vec<&'static str> {
    let failed = CHECKS
        .iter()
        .filter(|check| matches!((check.judge)(seen), CheckOutcome::Failed(_)));
    failed.map(|check| check.name).collect()
}

#[test]
fn what_keeps_to_the_contract_passes_every_check() {
    let seen = good();
    for check in CHECKS {
        assert_eq!((check.judge)(&seen), CheckOutcome::Passed, "{}", check.name);
    }
}

#[test]
fn every_check_names_a_section_of_the_page() {
    let page = include_str!("../../../docs/wire.md");
    for check in CHECKS {
        assert!(
            page.contains(&format!("\n## {}\n", check.section)),
            "{}: {}",
            check.name,
            check.section
        );
    }
    let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len(), "a name is used twice");
}

#[test]
fn each_fault_fails_its_check() {
    type Change = fn(&mut Seen);
    let faults: [(Change, &[&str]); 12] = [
        (
            |seen| seen.wrong_token = open(vec![descriptor()]),
            &["auth.wrong"],
        ),
        (
            |seen| seen.expired_token = closed(4401, "unauthorized"),
            &["auth.expired"],
        ),
        (
            |seen| seen.first.frames[0]["descriptor"]["platform"] = json!("slack"),
            &["handshake.descriptor"],
        ),
        (
            |seen| seen.first.unreadable.push("nonsense".to_owned()),
            &["frames.fields"],
        ),
        (
            |seen| seen.first.frames[1]["result"]["success"] = json!(true),
            &["results.unknown_op"],
        ),
        (
            |seen| seen.second.frames.truncate(3),
            &["results.once", "results.repeated"],
        ),
        (
            |seen| seen.second.frames[1]["bufferId"] = json!("b7"),
            &["delivery.again"],
        ),
        (
            |seen| seen.third.frames.insert(1, message("b1", "m1")),
            &["delivery.acknowledged"],
        ),
        (
            |seen| seen.third.frames.push(message("b2", "m2")),
            &["sleep.buffered"],
        ),
        (
            |seen| {
                let back = json!({"type": "interrupt_inbound", "session_key": "key", "chat_id": ""});
                seen.first.frames.push(back);
            },
            &["interrupt.silent"],
        ),
        (
            |seen| seen.third.close_answered = Some(false),
            &["close.answered"],
        ),
        (
            |seen| seen.older = closed(4401, "unauthorized"),
            &["close.second"],
        ),
    ];
    for (change, wanted) in faults {
        let mut seen = good();
        change(&mut seen);
        assert_eq!(failed(&seen), wanted);
    }
}

#[test]
fn without_a_handshake_only_what_was_tried_fails() {
    let seen = Seen {
        platforms: vec!["discord".to_owned()],
        first: closed(1011, "no"),
        ..Seen::default()
    };
    let wanted = [
        "auth.missing",
        "auth.wrong",
        "auth.expired",
        "handshake.descriptor",
        "close.open",
    ];
    assert_eq!(failed(&seen), wanted);
}

#[test]
fn newer_frames_and_both_kinds_of_second_connections_are_allowed() {
    let mut seen = good();
    seen.first.frames.push(json!({"type": "of_next_year"}));
    (seen.older, seen.newer) = (open(vec![descriptor()]), closed(1008, "duplicate"));
    assert_eq!(failed(&seen), [""; 0]);
    seen.newer = open(vec![descriptor()]);
    assert_eq!(failed(&seen), [""; 0]);
}
