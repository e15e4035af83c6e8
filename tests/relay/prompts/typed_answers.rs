//! Typed answers, where there are no buttons and where there are.

use super::{BUTTONS, PLAIN, ask, question, start};
use crate::support::memory_relay::event;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::TurnEnd;
use hermes_relay::store::{Inspector, Section};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn without_buttons_a_number_or_a_command_answers_and_is_no_message() {
    for (reply, expected) in [
        ("/approve A1", "echo: allowed once hi"),
        ("/approve session a1", "echo: allowed for this conversation hi"),
        ("/deny A1", "echo: denied hi"),
        ("A1 2", "echo: allowed for this conversation hi"),
        ("a1 4.", "echo: denied hi"),
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
async fn with_buttons_a_number_or_a_command_answers_and_what_is_no_option_is_a_message() {
    for (reply, expected) in [
        ("/approve A1", "echo: allowed once hi"),
        ("A1 2", "echo: allowed for this conversation hi"),
        ("A1 4", "echo: denied hi"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), BUTTONS, |_| {}).await;
        let question = ask(&relay, "a", "1").await;
        assert_eq!(question.kind(), Some("prompt"));
        relay.deliver("a", "2", "9").await;
        relay
            .wait_for_status("it waits", |status| status.messages_waiting == 1)
            .await;
        relay.deliver("a", "3", reply).await;
        let replies = relay.replies("a", 4).await;
        assert_eq!(replies[2..], [expected, "echo: 9"]);
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_word_of_others_decides_nothing_and_what_is_no_answer_is_a_message() {
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
    let question = super::shown(&relay, "a").await;
    let list = question.text().unwrap();
    assert!(
        list.contains("1. Allow once\n2. Deny\n"),
        "nothing that holds for the others: {list}"
    );
    relay
        .wait_for_status("it is shown", |status| status.tally.ops_applied == 1)
        .await;
    relay
        .connector
        .deliver(in_group("0", "bob", "/approve"))
        .await
        .unwrap();
    let notice = &relay.replies("a", 2).await[1];
    assert_eq!(
        notice,
        "Only the person whose message is being answered can decide this."
    );
    for (id, by, text) in [("2", "bob", "1"), ("3", "ann", "9"), ("4", "ann", "fine with me")] {
        relay.connector.deliver(in_group(id, by, text)).await.unwrap();
    }
    let mut picture = in_group("5", "ann", "1");
    picture["media_urls"] = json!(["https://media.example/1"]);
    relay.connector.deliver(picture).await.unwrap();
    relay
        .wait_for_status("four wait", |status| status.messages_waiting == 4)
        .await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    let answer = in_group("6", "ann", "A1 1");
    relay.connector.deliver(answer).await.unwrap();
    let replies = relay.replies("a", 8).await;
    assert_eq!(
        replies[3..],
        [
            "echo: allowed once hi",
            "echo: 1",
            "echo: 9",
            "echo: fine with me",
            "echo: 1"
        ]
    );
    relay.stop().await;
}

#[tokio::test]
async fn words_without_a_code_decide_nothing_in_the_first_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    ask(&relay, "a", "1").await;
    for (id, words) in [("2", "/approve"), ("3", "1")] {
        relay.deliver("a", id, words).await;
    }
    let replies = relay.replies("a", 3).await;
    for notice in &replies[1..] {
        assert!(notice.starts_with("This was only just asked"), "{replies:?}");
        assert!(notice.contains("/approve A1 or /deny A1"), "{replies:?}");
    }
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.prompts_open, status.messages_waiting), (1, 0));
    tokio::time::sleep(Duration::from_secs(2)).await;
    relay.deliver("a", "4", "1").await;
    assert_eq!(relay.replies("a", 5).await[4], "echo: allowed once hi");
    relay.stop().await;
}

/// Asks two questions at the same time, and says what was answered.
fn asking_twice() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        let ask = |text: &str| turn.approver.ask(question(text));
        let (first, second) = tokio::join!(ask("May I one?"), ask("May I two?"));
        turn.events.text(format!("{first:?}, {second:?}")).await;
        TurnEnd::Completed
    })
}

#[tokio::test]
async fn with_several_questions_words_alone_decide_nothing_and_a_reply_and_a_code_each_decide_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let relay = super::start_asking(dir.path(), asking_twice(), BUTTONS, |_| {}).await;
    relay.deliver("a", "1", "go").await;
    let seen = relay
        .seen("two questions", |seen| seen.texts("a").len() == 2)
        .await;
    let text = |at: usize| seen.ops[at].text().unwrap();
    assert!(
        text(0).starts_with("May I one?") && text(0).contains("/approve A1"),
        "{seen:?}"
    );
    assert!(
        text(1).starts_with("May I two?") && text(1).contains("/approve A2"),
        "{seen:?}"
    );
    relay
        .wait_for_status("both shown", |status| status.tally.ops_applied == 2)
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    relay.deliver("a", "2", "/approve").await;
    let replies = relay.replies("a", 3).await;
    let how = "/approve A1 or /deny A1, /approve A2 or /deny A2";
    assert!(
        replies[2].starts_with("Several questions are open") && replies[2].contains(how),
        "{replies:?}"
    );
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 2);

    let mut reply = event("a", "3", "/deny");
    reply["reply_to_message_id"] = json!(seen.ops[1].message_id);
    relay.connector.deliver(reply.clone()).await.unwrap();
    relay
        .wait_for_status("one is left", |status| status.prompts_open == 1)
        .await;
    // It has ended: replying to it again decides it no more, and no other.
    reply["message_id"] = json!("4");
    reply["text"] = json!("/approve");
    relay.connector.deliver(reply).await.unwrap();
    let replies = relay.replies("a", 5).await;
    assert!(
        replies.contains(&"That question is no longer open.".to_owned()),
        "{replies:?}"
    );
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);
    relay.deliver("a", "5", "/approve A1").await;
    relay
        .seen("the answer", |seen| {
            seen.texts("a").last() == Some(&"Chosen(\"yes\"), Chosen(\"no\")")
        })
        .await;
    relay.stop().await;
}

#[tokio::test]
async fn what_would_hold_for_others_is_not_offered_where_a_session_is_shared() {
    // group sessions per person, in a thread, how many buttons
    for (per_person, thread, offered) in [(true, false, 3), (true, true, 2), (false, false, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), BUTTONS, |settings| {
            settings.sessions.group_sessions_per_user = per_person;
            settings.shutdown.drain_secs = 0;
        })
        .await;
        let mut asked = event("a", "1", "ask hi");
        asked["source"]["chat_type"] = json!("group");
        if thread {
            asked["source"]["thread_id"] = json!("t1");
        }
        relay.connector.deliver(asked.clone()).await.unwrap();
        let question = super::shown(&relay, "a").await;
        let options = question.action["options"].as_array().unwrap();
        assert_eq!(options.len(), offered, "{per_person} {thread}: {options:?}");
        // Nor is it taken when it is typed.
        let words = "/approve A1 session";
        asked["message_id"] = json!("2");
        asked["text"] = json!(words);
        relay
            .wait_for_status("it is shown", |status| status.tally.ops_applied == 1)
            .await;
        relay.connector.deliver(asked).await.unwrap();
        if offered == 2 {
            let status = relay
                .wait_for_status("it waits", |status| status.messages_waiting == 1)
                .await;
            assert_eq!(status.prompts_open, 1);
        } else {
            let replies = relay.replies("a", 3).await;
            assert_eq!(replies[2], "echo: allowed for this conversation hi");
        }
        relay.stop().await;
    }
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
    relay.deliver("a", "4", "/deny A1").await;
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
