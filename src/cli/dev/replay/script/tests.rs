use super::*;
use serde_json::json;

fn trace(lines: &[Value]) -> Trace {
    let head = json!({ "trace": "hermes-relay", "version": 1, "platform": "slack" });
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    Trace::parse(&format!("{head}\n{}", lines.join("\n"))).unwrap()
}

#[test]
fn deliveries_are_sent_once_and_results_not_at_all() {
    let event = json!({ "text": "hi" });
    let trace = trace(&[
        json!({ "t": 0, "to": "connector", "frame": { "type": "hello", "platform": "telegram" } }),
        json!({ "t": 0.1, "to": "relay", "frame": { "type": "descriptor", "descriptor": { "platform": "telegram", "label": "T" } } }),
        json!({ "t": 0.2, "to": "relay", "frame": { "type": "inbound", "event": event, "bufferId": "b1" } }),
        json!({ "t": 0.3, "to": "relay", "frame": { "type": "inbound", "event": event, "bufferId": "b1" } }),
        json!({ "t": 0.4, "to": "relay", "frame": { "type": "inbound", "event": event } }),
        json!({ "t": 0.5, "to": "relay", "raw": "{half" }),
        json!({ "t": 0.6, "to": "relay", "frame": { "type": "interrupt_inbound", "session_key": "s", "chat_id": "c" } }),
        json!({ "t": 0.7, "to": "relay", "frame": { "type": "outbound_result", "requestId": "r", "result": {} } }),
    ]);
    let sent: Vec<ReplayStep> = steps(&trace).into_iter().map(|(_, step)| step).collect();
    assert_eq!(
        sent,
        [
            ReplayStep::Event(event.clone(), true),
            ReplayStep::Event(event, false),
            ReplayStep::Raw("{half".to_owned()),
            ReplayStep::Interrupt {
                session: "s".to_owned(),
                chat: "c".to_owned()
            },
        ]
    );
    assert_eq!(platforms(&trace), ["telegram"]);
    assert_eq!(descriptors(&trace)["telegram"]["label"], "T");
}

#[test]
fn replies_include_edits_and_omit_refused_ops() {
    let op =
        |request: &str, action: Value| json!({ "type": "outbound", "requestId": request, "action": action });
    let result = |request: &str, result: Value| json!({ "type": "outbound_result", "requestId": request, "result": result });
    let frames = [
        op("1", json!({ "op": "send", "content": "hel", "reply_to": "p1" })),
        result("1", json!({ "success": true, "message_id": "m1" })),
        op(
            "2",
            json!({ "op": "edit", "message_id": "m1", "content": "hello" }),
        ),
        result("2", json!({ "success": true })),
        op("3", json!({ "op": "send", "content": "refused" })),
        result("3", json!({ "success": false })),
        op("4", json!({ "op": "draft", "content": "x", "final": false })),
        result("4", json!({ "success": true })),
    ];
    let then = Replies::from_frames(frames.iter());
    assert_eq!(then.texts().collect::<Vec<_>>(), ["hello"]);
    assert!(then.differences(&then).is_empty());
    let other = Replies::from_frames(frames[..2].iter());
    assert_eq!(
        then.differences(&other),
        ["only recorded: hello", "only now:      hel"]
    );
}

#[test]
fn a_button_press_names_its_prompt_in_both_forms() {
    let event = json!({ "prompt_response": { "prompt_id": "aa.1", "option_id": "once" } });
    assert_eq!(prompt_of(&event).as_deref(), Some("aa.1"));
    assert_eq!(
        prompt_of(&with_prompt(event, "aa.1", "bb.2")).as_deref(),
        Some("bb.2")
    );
    let body = json!({ "data": { "custom_id": "hp1:aa.1:once" } }).to_string();
    let forward = json!({ "bodyB64": STANDARD.encode(body) });
    assert_eq!(prompt_of(&forward).as_deref(), Some("aa.1"));
    assert_eq!(
        prompt_of(&with_prompt(forward, "aa.1", "bb.2")).as_deref(),
        Some("bb.2")
    );
    assert_eq!(prompt_of(&json!({ "text": "x" })), None);
}
