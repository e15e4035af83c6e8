//! Typed answers, where there are no buttons and where there are.

use super::{BUTTONS, PLAIN, ask, start};
use crate::support::memory_relay::event;
use hermes_relay::store::{Inspector, Section};
use serde_json::json;

#[tokio::test]
async fn without_buttons_a_number_or_a_command_answers_and_is_no_message() {
    for (reply, expected) in [
        ("/approve", "echo: allowed once hi"),
        ("/approve session", "echo: allowed for this conversation hi"),
        ("/deny", "echo: denied hi"),
        ("2", "echo: allowed for this conversation hi"),
        ("4.", "echo: denied hi"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), PLAIN, |_| {}).await;
        let question = ask(&relay, "a", "1").await;
        assert_eq!(question.kind(), Some("send"));
        assert!(question.text().unwrap().contains("1. Allow once"), "{question:?}");
        relay.deliver("a", "2", reply).await;
        let replies = relay.replies("a", 3).await;
        assert_eq!(replies[2], expected, "{reply}");
        let status = relay.wait_for_turns(0).await;
        assert_eq!((status.tally.turns_started, status.messages_waiting), (1, 0));
        assert_eq!(relay.stop().await.acked("a-2"), 1);
        let rows = Inspector::open(dir.path()).unwrap();
        let rows = rows.list(Section::Finished, 0, 10).unwrap();
        assert!(
            rows.len() == 2 && rows.iter().all(|row| row.state == "done"),
            "{rows:?}"
        );
    }
}

#[tokio::test]
async fn with_buttons_a_command_answers_and_a_number_is_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    ask(&relay, "a", "1").await;
    relay.deliver("a", "2", "1").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    relay.deliver("a", "3", "/approve").await;
    let replies = relay.replies("a", 4).await;
    assert_eq!(replies[2..], ["echo: allowed once hi", "echo: 1"]);
    relay.stop().await;
}

#[tokio::test]
async fn text_of_others_and_text_that_is_no_option_are_messages() {
    let dir = tempfile::tempdir().unwrap();
    // One session for the whole group, so that only the person tells an answer from a message.
    let relay = start(dir.path(), PLAIN, |settings| {
        settings.sessions.group_sessions_per_user = false;
    })
    .await;
    let in_group = |id: &str, by: &str, text: &str| {
        let mut event = event("a", id, text);
        event["source"]["chat_type"] = json!("group");
        event["source"]["user_id"] = json!(by);
        event
    };
    relay
        .connector
        .deliver(in_group("1", "ann", "ask hi"))
        .await
        .unwrap();
    super::shown(&relay, "a").await;
    relay
        .wait_for_status("it is shown", |status| status.tally.ops_applied == 1)
        .await;
    for (id, by, text) in [
        ("2", "bob", "/approve"),
        ("3", "ann", "9"),
        ("4", "ann", "fine with me"),
    ] {
        relay.connector.deliver(in_group(id, by, text)).await.unwrap();
    }
    let mut picture = in_group("5", "ann", "1");
    picture["media_urls"] = json!(["https://media.example/1"]);
    relay.connector.deliver(picture).await.unwrap();
    relay
        .wait_for_status("four wait", |status| status.messages_waiting == 4)
        .await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    relay.connector.deliver(in_group("6", "ann", "1")).await.unwrap();
    let replies = relay.replies("a", 7).await;
    assert_eq!(
        replies[2..],
        [
            "echo: allowed once hi",
            "echo: /approve",
            "echo: 9",
            "echo: fine with me",
            "echo: 1"
        ]
    );
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_comes_before_the_relay_s_own_commands_and_neither_waits() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), PLAIN, |settings| {
        settings.sessions.max_concurrent_turns = 1;
    })
    .await;
    ask(&relay, "a", "1").await;
    relay.deliver("a", "2", "/status").await;
    let replies = relay.replies("a", 2).await;
    assert!(replies[1].contains("working on a message"), "{replies:?}");
    relay.deliver("a", "3", "later").await;
    relay.deliver("a", "4", "/deny").await;
    let replies = relay.replies("a", 5).await;
    assert_eq!(replies[3..], ["echo: denied hi", "echo: later"]);
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_that_waited_in_the_journal_over_a_restart_answers_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), PLAIN, |settings| settings.shutdown.drain_secs = 0).await;
    // Before anything is asked it is a message, and waits its turn.
    relay.deliver("a", "1", "sleep=600000 x").await;
    relay.deliver("a", "2", "/approve").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    relay.stop().await;
    let relay = start(dir.path(), PLAIN, |_| {}).await;
    assert_eq!(relay.replies("a", 1).await, ["echo: /approve"]);
    let status = relay.wait_for_turns(0).await;
    assert_eq!(status.tally.prompts_answered, 0);
    relay.stop().await;
}
