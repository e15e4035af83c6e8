//! Answers to commands: in the place of their placeholders, by their tokens, by messages, and for their authors alone.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{answered, setup, started};
use crate::support::discord::{CHANNEL, FakeDiscord};
use crate::support::wait::eventually;

/// A command of the agent with this text behind it.
fn asked(text: &str) -> Value {
    json!({"name": "ask-me", "options": [{"type": 3, "name": "text", "value": text}]})
}

#[tokio::test]
async fn a_refusal_is_for_the_author_alone() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: '2', role: guest}]");
    let relay = started(&setup).await;
    fake.interacts_in(CHANNEL, 2, &json!({"name": "new"}));
    eventually("the refusal", async || fake.follow_ups().len() == 1).await;
    let refusal = &fake.follow_ups()[0];
    assert_eq!(refusal["flags"], 68, "{refusal}");
    assert_eq!(fake.discarded(), 1, "nobody else sees a placeholder");
    assert!(fake.replaced().is_empty() && fake.answers().is_empty());
    // What is allowed is for everybody.
    fake.interacts_in(CHANNEL, 2, &json!({"name": "whoami"}));
    eventually("the answer", async || fake.replaced().len() == 1).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_limit_changes_neither_where_a_command_is_answered_nor_who_reads_it() {
    let limit = json!({"message": "slow down", "retry_after": 0.2, "global": false});
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake)
        .setting("access.mode", "list")
        .setting("access.people", "[{platform: discord, user: '2', role: guest}]");
    let relay = started(&setup).await;
    // What is shown to its author alone follows when its placeholder is gone.
    fake.refuse_requests(2, "POST", "/webhooks/", 429, &limit);
    fake.interacts_in(CHANNEL, 2, &json!({"name": "new"}));
    eventually("the refusal", async || fake.follow_ups().len() == 1).await;
    assert_eq!(fake.follow_ups()[0]["flags"], 68, "{:?}", fake.follow_ups());
    assert_eq!((fake.discarded(), fake.refusals_left()), (1, 0));
    fake.refuse_requests(2, "PATCH", "/messages/@original", 429, &limit);
    fake.interacts_in(CHANNEL, 2, &json!({"name": "whoami"}));
    eventually("the answer", async || fake.replaced().len() == 1).await;
    assert_eq!(fake.refusals_left(), 0);
    assert!(fake.answers().is_empty(), "{:?}", fake.answers());
    relay.stop().await;
}

#[tokio::test]
async fn a_restart_answers_in_the_place_of_the_command_and_by_a_message_once_its_token_has_died() {
    for has_expired in [false, true] {
        let fake = FakeDiscord::start().await;
        let setup = setup(&fake);
        let mut relay = started(&setup).await;
        fake.say("sleep=60000 one");
        fake.interacts(2, &asked("later"));
        eventually("the placeholder", async || fake.callbacks().len() == 1).await;
        // The command is stored shortly after the commit.
        sleep(Duration::from_millis(600)).await;
        relay.kill().await;
        if has_expired {
            fake.expire_tokens();
        }
        let relay = started(&setup).await;
        let answer = "echo: /ask-me later";
        if has_expired {
            answered(&fake, answer).await;
            assert!(fake.replaced().is_empty());
        } else {
            eventually("the answer", async || fake.replaced() == [answer]).await;
            assert!(!fake.answers().contains(&answer.to_owned()));
        }
        relay.stop().await;
    }
}

#[tokio::test]
async fn where_the_bot_may_not_write_a_command_is_answered_by_its_token() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.forbid();
    fake.interacts_in(CHANNEL, 2, &asked(&"word ".repeat(600)));
    eventually("both parts", async || {
        fake.replaced().len() == 1 && fake.follow_ups().len() == 1
    })
    .await;
    let rest = fake.follow_ups()[0].clone();
    assert!(rest["content"].as_str().unwrap().contains("(2/2)"), "{rest}");
    assert_eq!(rest["flags"], 4, "everybody sees it");
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_may_be_selected_in_a_menu() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake);
    let relay = started(&setup).await;
    fake.say("ask hello");
    let question = || {
        fake.sent()
            .into_iter()
            .find(|message| message.get("components").is_some())
    };
    eventually("the question", async || question().is_some()).await;
    let id = question().unwrap()["components"][0]["components"][0]["custom_id"].clone();
    let prompt = id.as_str().unwrap().rsplit_once(':').unwrap().0.to_owned();
    let menu = json!({"custom_id": format!("{prompt}:menu0"), "component_type": 3, "values": [id]});
    fake.interacts(3, &menu);
    eventually("the answer", async || {
        let answers = fake.answers();
        answers
            .iter()
            .any(|answer| answer.starts_with("echo") && answer.contains("hello"))
    })
    .await;
    assert_eq!(fake.callbacks(), [json!({"type": 6})]);
    relay.stop().await;
}

#[tokio::test]
async fn a_button_of_a_list_chooses_from_it() {
    let fake = FakeDiscord::start().await;
    let setup = setup(&fake).setting("agents.other", "{kind: noop}");
    let relay = started(&setup).await;
    fake.interacts(2, &json!({"name": "agent"}));
    eventually("the list", async || fake.buttons().as_array().is_some()).await;
    let buttons = fake.buttons();
    let other = (buttons.as_array().unwrap().iter())
        .flat_map(|row| row["components"].as_array().unwrap())
        .find(|button| button["label"].as_str().unwrap().contains("other"));
    let id = &other.unwrap()["custom_id"];
    fake.interacts(3, &json!({"custom_id": id, "component_type": 2}));
    answered(&fake, "other answers from now on.").await;
    assert_eq!(fake.callbacks(), [json!({"type": 5}), json!({"type": 6})]);
    fake.say("hello");
    fake.interacts(2, &json!({"name": "whoami"}));
    eventually("the last answer", async || fake.replaced().len() == 2).await;
    assert_eq!(fake.answers().len(), 1, "{:?}", fake.answers());
    relay.stop().await;
}
