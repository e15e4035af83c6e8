//! Whether a question can be shown at all: refused, declined, put off, unknown, without a connection.

use super::{BUTTONS, PLAIN, Stubborn, ask, owner, press, shown, start, start_asking};
use crate::support::memory_relay::{Running, event};
use hermes_relay::agent::PromptAnswer;
use hermes_relay::relay::{ReplyMode, SeenOp, StopOutcome};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Has a chat ask a connector that does not answer, and gives the op.
async fn asked(relay: &Running) -> SeenOp {
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "1", "ask hi").await;
    shown(relay, "a").await
}

fn answered(relay: &Running, op: &SeenOp, result: &Value) {
    relay.connector.set_reply_mode(ReplyMode::Apply);
    assert!(relay.connector.answer(op.id, result));
}

#[tokio::test]
async fn refused_buttons_become_a_list_that_numbers_answer() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = asked(&relay).await;
    answered(
        &relay,
        &question,
        &json!({"success": false, "error": "no buttons here"}),
    );
    let replies = relay.replies("a", 2).await;
    assert!(replies[1].contains("1. Allow once"), "{replies:?}");
    relay
        .wait_for_status("it is shown", |status| status.tally.ops_applied == 1)
        .await;
    relay.deliver("a", "2", "A1 1").await;
    assert_eq!(relay.replies("a", 4).await[3], "echo: allowed once hi");
    relay.stop().await;
}

#[tokio::test]
async fn a_question_that_cannot_be_shown_is_void_and_what_comes_next_is_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), PLAIN, |_| {}).await;
    let question = asked(&relay).await;
    // Nobody has seen it: this is no answer, whatever becomes of the op.
    relay.deliver("a", "2", "1").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    answered(&relay, &question, &json!({"success": false, "error": "no"}));
    let replies = relay.replies("a", 3).await;
    assert_eq!(replies[1..], ["echo: the question was taken back hi", "echo: 1"]);
    relay.deliver("a", "3", "/approve").await;
    assert_eq!(relay.replies("a", 4).await[3], "echo: /approve");
    let status = relay.wait_for_turns(0).await;
    assert_eq!((status.prompts_open, status.tally.prompts_answered), (0, 0));
    relay.stop().await;
}

#[tokio::test]
async fn a_declined_question_is_void_and_not_shown_another_way() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = asked(&relay).await;
    let declined = json!({"success": false, "error": "egress declined", "code": "egress_declined"});
    answered(&relay, &question, &declined);
    let replies = relay.replies("a", 2).await;
    assert_eq!(replies[1], "echo: the question was taken back hi");
    relay.wait_for_turns(0).await;
    assert_eq!(relay.stop().await.ops.len(), 2);
}

#[tokio::test]
async fn a_question_that_is_too_much_is_tried_again_and_keeps_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = asked(&relay).await;
    relay.handle.send("a", "after it").await.unwrap();
    let too_much = json!({"success": false, "code": "rate_limited", "retry_after": 0.01});
    answered(&relay, &question, &too_much);
    let seen = relay.seen("three ops", |seen| seen.texts("a").len() == 3).await;
    let kinds: Vec<_> = seen.ops.iter().filter_map(SeenOp::kind).collect();
    assert_eq!(kinds, ["prompt", "prompt", "send"]);
    assert_eq!(relay.handle.status().await.unwrap().tally.ops_limited, 1);
    let again = &seen.ops[1];
    assert_eq!(again.action["prompt_id"], question.action["prompt_id"]);
    let answer = press(again, "o0", &owner("a"));
    relay.connector.deliver(answer).await.unwrap();
    assert_eq!(relay.replies("a", 5).await[4], "echo: allowed once hi");
    relay.stop().await;
}

#[tokio::test]
async fn a_question_that_is_always_rate_limited_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |settings| {
        settings.budget.max_retry_after_secs = 0;
    })
    .await;
    relay.connector.set_reply_mode(ReplyMode::Hold);
    relay.deliver("a", "1", "ask hi").await;
    for tried in 1..=6 {
        let seen = relay.seen("a try", |seen| seen.ops.len() == tried).await;
        let op = seen.ops.back().unwrap();
        assert_eq!(op.kind(), Some("prompt"), "never as text");
        let too_much = json!({"success": false, "code": "rate_limited", "retry_after": 0});
        assert!(relay.connector.answer(op.id, &too_much));
    }
    let seen = relay.seen("the answer", |seen| seen.ops.len() == 7).await;
    let last = seen.ops.back().unwrap();
    assert_eq!(last.text(), Some("echo: the question was taken back hi"));
    assert!(relay.connector.answer(last.id, &json!({"success": true})));
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_question_waits_for_the_connection_and_is_forgotten_with_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let gate = CancellationToken::new();
    let agent = Stubborn {
        gate: Some(gate.clone()),
        ..Stubborn::default()
    };
    let relay = start_asking(dir.path(), agent.clone(), BUTTONS, |_| {}).await;
    for chat in ["a", "b"] {
        relay.deliver(chat, "1", "hi").await;
    }
    relay.wait_for_turns(2).await;
    relay.connector.drop_connection();
    relay
        .wait_for_status("no connection", |status| status.link == "waiting")
        .await;
    gate.cancel();
    relay
        .wait_for_status("two questions", |status| status.prompts_open == 2)
        .await;
    let key = hermes_relay::wire::SessionKey::from_text(crate::support::memory_relay::session("b"));
    assert_eq!(relay.handle.stop_turn(key).await, Ok(StopOutcome::Stopped));
    relay.wait_for_turns(1).await;
    relay.connector.restore();
    let question = shown(&relay, "a").await;
    let answer = press(&question, "o0", &owner("a"));
    relay.connector.deliver(answer).await.unwrap();
    assert_eq!(relay.replies("a", 3).await[2], "done");
    assert_eq!(
        agent.answers(),
        [PromptAnswer::Cancelled, PromptAnswer::Chosen("yes".to_owned())]
    );
    assert!(
        relay.stop().await.texts("b").is_empty(),
        "a void question is not shown"
    );
}

#[tokio::test]
async fn a_question_that_may_have_been_shown_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = asked(&relay).await;
    relay.connector.drop_connection();
    relay.connector.set_reply_mode(ReplyMode::Apply);
    relay.connector.restore();
    let answer = press(&question, "o3", &owner("a"));
    relay.connector.deliver_buffered("p1", answer).await.unwrap();
    let seen = relay.seen("the answer", |seen| {
        seen.texts("a").last() == Some(&"echo: denied hi")
    });
    let seen = seen.await;
    let questions = seen.ops.iter().filter(|op| op.kind() == Some("prompt"));
    assert_eq!(questions.count(), 1, "never shown twice");
    relay.stop().await;
}

#[tokio::test]
async fn a_question_withdrawn_while_in_flight_is_marked_once_it_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = asked(&relay).await;
    relay.interrupt("a").await;
    relay.wait_for_turns(0).await;
    answered(&relay, &question, &json!({"success": true, "message_id": "77"}));
    let seen = relay.seen("an edit", |seen| {
        seen.ops.iter().any(|op| op.kind() == Some("edit"))
    });
    let seen = seen.await;
    let edit = seen.ops.iter().find(|op| op.kind() == Some("edit")).unwrap();
    assert_eq!(edit.action["message_id"], json!("77"));
    assert!(edit.text().unwrap().ends_with("⏹ No longer asked"), "{edit:?}");
    relay.connector.deliver(event("a", "2", "on")).await.unwrap();
    relay
        .seen("the next", |seen| seen.texts("a").last() == Some(&"echo: on"))
        .await;
    assert_eq!(ask(&relay, "b", "1").await.kind(), Some("prompt"));
    relay.interrupt("b").await;
    relay.wait_for_turns(0).await;
    relay.stop().await;
}
