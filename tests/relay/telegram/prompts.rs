//! Questions with buttons: signed, answered at once, gone after the decision.

use std::time::Duration;

use crate::support::dev::{BotApi, SeenMessage, SeenPress};

use super::{ADA, BOB, Noting, Running, World};
use crate::prompts::resumed::Keeper;

/// Has a chat ask; the message with the buttons.
async fn asked(world: &World, chat: i64, person: i64) -> SeenMessage {
    let text = if chat < 0 {
        "@relay_dev_bot ask hi"
    } else {
        "ask hi"
    };
    world.api.say(chat, person, text);
    world
        .until("a question", |api| {
            api.answers(chat)
                .into_iter()
                .rev()
                .find(|answer| !answer.buttons.is_empty())
        })
        .await
}

fn press_of(api: &BotApi, query: &str) -> Option<SeenPress> {
    api.presses().into_iter().find(|press| press.query_id == query)
}

/// Telegram forgets a press for which it got no answer in about this time.
const IN_TIME: Duration = Duration::from_secs(15);

/// Waits for the answer to a press, and checks that it came in time.
async fn press_answered(world: &World, query: &str) -> String {
    let answer = world
        .api
        .until("an answer to the press", IN_TIME, |api| {
            press_of(api, query).and_then(|press| press.answer)
        })
        .await;
    answer.unwrap()
}

async fn without_buttons(world: &World, chat: i64, message: i64) -> SeenMessage {
    world
        .until("the buttons gone", |api| {
            let shown = api
                .messages(chat)
                .into_iter()
                .find(|shown| shown.message_id == message);
            shown.filter(|shown| shown.buttons.is_empty())
        })
        .await
}

async fn started(world: &World) -> Running {
    world.start_with(Noting::default(), |_| {}).await
}

#[tokio::test]
async fn a_press_decides_and_the_buttons_go() {
    let world = World::new().await;
    let relay = started(&world).await;
    let question = asked(&world, ADA, ADA).await;
    let buttons: Vec<_> = question.buttons.iter().flatten().collect();
    assert_eq!(buttons.len(), 4, "{buttons:?}");
    for button in &buttons {
        let data = button.data.as_deref().unwrap();
        assert!(data.len() <= 64 && data.starts_with("hp1:"), "{data}");
    }
    let query = world
        .api
        .press(ADA, question.message_id, ADA, "Allow once")
        .unwrap();
    press_answered(&world, &query).await;
    world.answer(ADA, "echo: allowed once hi").await;
    let shown = without_buttons(&world, ADA, question.message_id).await;
    assert!(shown.text.contains("May I echo this?"), "{}", shown.text);
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_strangers_press_is_answered_and_decides_nothing() {
    let world = World::new().await;
    let relay = started(&world).await;
    let question = asked(&world, super::GROUP, ADA).await;
    let query = world
        .api
        .press(super::GROUP, question.message_id, BOB, "Allow once")
        .unwrap();
    press_answered(&world, &query).await;
    let status = relay.status().await;
    assert_eq!((status.prompts_open, status.turns_running), (1, 1));
    let query = world
        .api
        .press(super::GROUP, question.message_id, ADA, "Deny")
        .unwrap();
    press_answered(&world, &query).await;
    world
        .until("the decision", |api| {
            api.answers(super::GROUP)
                .into_iter()
                .find(|answer| answer.text.starts_with("echo: denied"))
        })
        .await;
    without_buttons(&world, super::GROUP, question.message_id).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_hundred_presses_at_once_are_all_answered() {
    let world = World::new().await;
    let message = world.api.say(ADA, ADA, "hi");
    let queries: Vec<String> = (0..99)
        .map(|number| world.api.press_forged(ADA, message, ADA, &format!("x{number}")))
        .collect();
    let relay = started(&world).await;
    for query in &queries {
        assert_eq!(
            press_answered(&world, query).await,
            "This button is not in use any more."
        );
    }
    assert_eq!(world.api.calls_of("answerCallbackQuery").len(), 99, "each once");
    relay.stop().await;
}

#[tokio::test]
async fn an_altered_press_is_answered_and_decides_nothing() {
    let world = World::new().await;
    let relay = started(&world).await;
    let question = asked(&world, ADA, ADA).await;
    let genuine = question.buttons[0][0].data.clone().unwrap();
    let mut altered = genuine.clone();
    altered.replace_range(4..5, if &genuine[4..5] == "0" { "1" } else { "0" });
    let option = genuine.replace(":o0:", ":o1:");
    assert_ne!(option, genuine);
    for data in [altered.as_str(), option.as_str(), "approve", "", &"x".repeat(64)] {
        let query = world.api.press_forged(ADA, question.message_id, ADA, data);
        press_answered(&world, &query).await;
    }
    let status = relay.status().await;
    assert_eq!((status.prompts_open, status.tally.prompts_answered), (1, 0));
    assert!(!world.texts(ADA).iter().any(|text| text.starts_with("echo")));
    world
        .api
        .press(ADA, question.message_id, ADA, "Allow once")
        .unwrap();
    world.answer(ADA, "echo: allowed once hi").await;
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_press_that_is_given_twice_decides_once() {
    let world = World::new().await;
    let relay = started(&world).await;
    let question = asked(&world, ADA, ADA).await;
    world
        .api
        .press(ADA, question.message_id, ADA, "Allow once")
        .unwrap();
    world.answer(ADA, "echo: allowed once hi").await;
    world.api.repeat_updates(1);
    let again = asked(&world, ADA, ADA).await;
    assert_ne!(again.message_id, question.message_id);
    world.confirmed().await;
    let status = relay
        .until("the second question", |status| status.prompts_open == 1)
        .await;
    assert_eq!(status.tally.prompts_answered, 1);
    relay.stop().await;
}

#[tokio::test]
async fn a_press_on_a_question_from_before_a_restart_is_answered_and_harmless() {
    let world = World::new().await;
    let relay = started(&world).await;
    let question = asked(&world, ADA, ADA).await;
    world.confirmed().await;
    relay.crash().await;
    // While the relay is down, and after it is back.
    let early = world
        .api
        .press(ADA, question.message_id, ADA, "Allow once")
        .unwrap();
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    press_answered(&world, &early).await;
    let still = world
        .api
        .answers(ADA)
        .into_iter()
        .any(|answer| !answer.buttons.is_empty());
    if still {
        let late = world
            .api
            .press(ADA, question.message_id, ADA, "Allow once")
            .unwrap();
        press_answered(&world, &late).await;
    }
    world.settle("after").await;
    assert_eq!(agent.texts(), ["after"], "no press is a message");
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_press_after_a_restart_answers_a_question_that_is_still_open() {
    let world = World::new().await;
    let agent = Keeper::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let question = asked(&world, ADA, ADA).await;
    // What comes after it is committed after it.
    world.api.say(BOB, BOB, "/status");
    world
        .until("a status", |api| api.answers(BOB).into_iter().next())
        .await;
    relay.crash().await;
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let query = world.api.press(ADA, question.message_id, ADA, "yes").unwrap();
    assert_eq!(press_answered(&world, &query).await, "");
    world.answer(ADA, "went on").await;
    let shown = without_buttons(&world, ADA, question.message_id).await;
    assert!(!shown.text.contains("No longer asked"), "{}", shown.text);
    assert_eq!(agent.answers.lock().unwrap().len(), 1);
    relay.stop().await;
}
