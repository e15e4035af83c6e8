use std::time::{Duration, Instant};

use crate::support::dev::{OpAnswer, ResultRule, text_event};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::dev_connector::client::{SOON, connector, dial, greeted};
use crate::support::dev::FrameKinds as _;

fn send(text: &str) -> Value {
    json!({ "op": "send", "chat_id": "c1", "content": text, "reply_to": null, "metadata": {} })
}

#[tokio::test]
async fn a_conversation_is_kept_as_people_would_see_it() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    let event = text_event("discord", "c1", "u1", "hi");
    connector.deliver(&event).unwrap();
    assert_eq!(client.line().await["event"], event);
    let react = |remove: bool| json!({ "op": "react", "chat_id": "c1", "message_id": "u1", "emoji": "👀", "remove": remove });
    assert_eq!(client.asked("r1", react(false)).await, json!({ "success": true }));
    assert_eq!(connector.reactions("c1", "u1"), ["👀"]);
    let reply =
        json!({ "op": "send", "chat_id": "c1", "content": "he", "reply_to": "u1", "metadata": { "a": 1 } });
    assert_eq!(
        client.asked("r2", reply).await,
        json!({ "success": true, "message_id": "m1" })
    );
    let edit =
        json!({ "op": "edit", "chat_id": "c1", "message_id": "m1", "content": "hello", "metadata": {} });
    assert_eq!(client.asked("r3", edit).await["message_id"], "m1");
    client.asked("r4", react(true)).await;
    assert!(connector.reactions("c1", "u1").is_empty());
    let sent = connector.reply_to(SOON, "u1").await.unwrap();
    assert_eq!(
        (&*sent.text, sent.edits, &*sent.platform, &sent.metadata["a"]),
        ("hello", 1, "discord", &json!(1))
    );
    let info = client
        .asked("r5", json!({ "op": "get_chat_info", "chat_id": "c1" }))
        .await;
    assert_eq!(info["chat_info"], json!({ "name": "c1", "type": "dm" }));
    let typing = json!({ "op": "typing", "chat_id": "c1", "metadata": {} });
    assert_eq!(client.asked("r6", typing).await, json!({ "success": true }));
}

#[tokio::test]
async fn ops_are_judged_by_the_identity_they_are_for() {
    let connector = connector().await;
    let mut client = dial(&connector).await;
    client.ask("early", send("x")).await;
    assert_eq!(client.line().await["result"]["success"], false);
    client.hello("plain").await;
    client.hello("telegram").await;
    client.line().await;
    client.line().await;
    let long = "x".repeat(4_097);
    let refused = client.asked("r1", send(&long)).await;
    assert_eq!(
        refused,
        json!({ "success": false, "error": "message too long: 4097 of 4096" })
    );
    let typing = json!({ "op": "typing", "chat_id": "c1" });
    let refused = client.asked("r2", typing.clone()).await;
    assert_eq!(refused["error"], "unsupported op: typing");
    client
        .say(json!({ "type": "outbound", "requestId": "r3", "action": typing, "platform": "telegram" }))
        .await;
    assert_eq!(client.line().await["result"]["success"], true);
    client
        .say(json!({ "type": "outbound", "requestId": "r4", "action": typing, "platform": "slack" }))
        .await;
    assert_eq!(client.line().await["result"]["error"], "platform not fronted");
    let refused = client.asked("r5", json!({ "op": "dance" })).await;
    assert_eq!(refused["error"], "unsupported op: dance");
    connector.deliver_live(&text_event("telegram", "tg", "u1", "hi"));
    client.line().await;
    let info = client
        .asked("r6", json!({ "op": "get_chat_info", "chat_id": "tg" }))
        .await;
    assert_eq!(info["success"], true, "the chat is known to be Telegram's");
}

#[tokio::test]
async fn answers_follow_the_script() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    let rule = |answer| connector.script(ResultRule::on("send", answer).once());
    rule(OpAnswer::Refuse {
        error: "egress declined: no".into(),
        code: Some("egress_declined".into()),
    });
    rule(OpAnswer::Twice);
    rule(OpAnswer::Malformed);
    rule(OpAnswer::Result(Value::Null));
    rule(OpAnswer::Never);
    rule(OpAnswer::Delay(Duration::from_secs(2)));
    assert_eq!(
        client.asked("r1", send("refused")).await,
        json!({ "success": false, "error": "egress declined: no", "code": "egress_declined" })
    );
    let first = client.asked("r2", send("twice")).await;
    assert_eq!(client.line().await["result"], first);
    client.ask("r3", send("malformed")).await;
    let torn = client.text().await;
    assert!(torn.ends_with('\n') && serde_json::from_str::<Value>(&torn).is_err());
    assert_eq!(client.asked("r4", send("null")).await, Value::Null);
    client.ask("r5", send("never")).await;
    let asked = Instant::now();
    client.ask("r6", send("late")).await;
    assert_eq!(
        client.asked("r7", send("usual")).await["message_id"],
        "m6",
        "overtakes"
    );
    let late = client.line().await;
    assert!(late["requestId"] == "r6" && asked.elapsed() >= Duration::from_secs(2));
    let texts: Vec<_> = connector
        .sent_messages()
        .into_iter()
        .map(|sent| sent.text)
        .collect();
    assert_eq!(texts, ["twice", "malformed", "null", "never", "late", "usual"]);
}

#[tokio::test]
async fn a_rule_for_all_ops_lasts_until_it_is_cleared_and_can_take_the_socket() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    connector.script(ResultRule::on_all(OpAnswer::Never));
    client.ask("r1", send("a")).await;
    client.ask("r2", json!({ "op": "typing", "chat_id": "c1" })).await;
    client.quiet().await;
    connector.clear_script();
    connector.script(ResultRule::on("send", OpAnswer::DropSocket));
    client.ask("r3", send("b")).await;
    assert!(!matches!(client.message().await, Some(Ok(Message::Text(_)))));
    assert_eq!(connector.sent_messages().len(), 2);
}

#[tokio::test]
async fn results_that_are_never_given_can_be_given_by_hand() {
    let connector = connector().await;
    connector.script(ResultRule::on_all(OpAnswer::Never));
    let mut client = greeted(&connector, "discord").await;
    client.ask("r1", send("a")).await;
    let asked = connector
        .wait_for("the send", SOON, |record| record.asks_for("send"))
        .await
        .unwrap();
    client.quiet().await;
    let request_id = asked.json()["requestId"].as_str().unwrap();
    assert!(connector.answer(request_id, &json!({ "success": true })));
    assert_eq!(
        client.line().await,
        json!({ "type": "outbound_result", "requestId": "r1", "result": { "success": true } })
    );
}

#[tokio::test]
async fn a_prompt_is_answered_by_pressing_it() {
    let connector = connector().await;
    let mut client = greeted(&connector, "discord").await;
    let prompt = json!({ "op": "prompt", "chat_id": "c1", "content": "Run it?", "prompt_kind": "approval",
        "prompt_id": "abc.1", "options": [{ "id": "once", "label": "Once" }, { "id": "deny", "label": "No" }] });
    assert_eq!(client.asked("r1", prompt).await["message_id"], "m1");
    assert!(connector.press("abc.1", "always").is_none());
    connector.press("abc.1", "deny").unwrap().unwrap();
    assert_eq!(
        client.line().await["event"]["prompt_response"],
        json!({ "prompt_id": "abc.1", "option_id": "deny", "label": "No", "prompt_message_id": "m1" })
    );
}
