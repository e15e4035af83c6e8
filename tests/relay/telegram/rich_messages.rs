//! Rich messages: off unless they are asked for, and then only for answers that gain by them.

use std::sync::Arc;

use crate::support::dev::{BotApiAnswer, BotApiRule, BotApiSettings, SeenMessage};
use hermes_relay::agent::TurnEnd;
use hermes_relay::config::{RichMessages, Settings};
use tokio::sync::Notify;

use super::{ADA, GROUP, Noting, World};
use crate::support::scripted_agent::ScriptedAgent;

const TABLE: &str =
    "Sizes:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n![cat](https://a.example/cat.png) <img src=x>";

fn rich(settings: &mut Settings) {
    let bot = settings.direct.telegram.as_mut().unwrap();
    bot.rich_messages = RichMessages::Tables;
    bot.require_mention = false;
}

/// The answer that has the table.
async fn table(world: &World, chat: i64, is_rich: bool) -> SeenMessage {
    world
        .until("the table", |api| {
            let mut answers = api.answers(chat).into_iter();
            answers.find(|answer| answer.is_rich == is_rich && answer.text.contains("1 | 2"))
        })
        .await
}

#[tokio::test]
async fn an_answer_with_a_table_is_one_and_nothing_in_it_is_fetched() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), rich).await;
    let asked = world.api.say(ADA, ADA, TABLE);
    let answer = table(&world, ADA, true).await;
    assert!(answer.text.contains("| --- | --- |"), "{}", answer.text);
    assert!(
        answer
            .text
            .contains("[cat](https://a.example/cat.png) &lt;img src=x&gt;")
    );
    assert!(
        answer.object["rich_message"]["fetched"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(answer.reply_to, Some(asked));
    world.api.say(ADA, ADA, "plain **text**");
    let plain = world.answer(ADA, "echo: plain text").await;
    assert!(!plain.is_rich);
    // Once to find out whether the server has them, once to send.
    assert_eq!(world.api.calls_of("sendRichMessage").len(), 2);
    assert!(world.api.violations().is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn by_default_there_are_none() {
    let world = World::new().await;
    let relay = world.start().await;
    world.api.say(ADA, ADA, TABLE);
    table(&world, ADA, false).await;
    assert!(world.api.calls_of("sendRichMessage").is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn in_a_group_the_text_that_grew_becomes_one_at_the_end() {
    let world = World::new().await;
    let go_on = Arc::<Notify>::default();
    let agent = ScriptedAgent::sharing(&go_on, |turn, go_on| async move {
        turn.events.text("The plan is as follows.").await;
        go_on.notified().await;
        turn.events.text("\n\n- [x] done\n- [ ] open").await;
        TurnEnd::Completed
    });
    let relay = world
        .start_with(agent, |settings| {
            rich(settings);
            settings.streaming.interval_ms = 100;
            settings.streaming.first_chars = 1;
            settings.streaming.buffer_chars = 1;
        })
        .await;
    world.api.say(GROUP, ADA, "plan");
    let growing = world
        .until("a text that grows", |api| api.answers(GROUP).into_iter().next())
        .await;
    assert!(!growing.is_rich);
    go_on.notify_one();
    let answer = world
        .until("a rich message", |api| {
            api.answers(GROUP).into_iter().find(|answer| answer.is_rich)
        })
        .await;
    assert_eq!(answer.text, "The plan is as follows.\n\n- [x] done\n- [ ] open");
    assert_eq!(answer.message_id, growing.message_id);
    assert_eq!(world.api.answers(GROUP).len(), 1);
    relay.stop().await;
}

#[tokio::test]
async fn an_older_server_gets_text_and_is_asked_once() {
    let world = World::with(BotApiSettings {
        rich_messages: false,
        ..BotApiSettings::default()
    })
    .await;
    let relay = world.start_with(Noting::default(), rich).await;
    for chat in [ADA, GROUP] {
        world.api.say(chat, ADA, TABLE);
        table(&world, chat, false).await;
    }
    assert_eq!(world.api.calls_of("sendRichMessage").len(), 1, "the question");
    relay.stop().await;
}

#[tokio::test]
async fn one_that_is_refused_goes_out_as_text_and_the_next_one_is_rich() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), rich).await;
    let refusal = BotApiAnswer::refuse(400, "Bad Request: RICH_MESSAGE_INVALID");
    world
        .api
        .script(BotApiRule::on("sendRichMessage", refusal).in_chat(ADA).once());
    world.api.say(ADA, ADA, TABLE);
    table(&world, ADA, false).await;
    world.api.say(ADA, ADA, &format!("again {TABLE}"));
    table(&world, ADA, true).await;
    assert_eq!(world.api.answers(ADA).len(), 2);
    relay.stop().await;
}

#[tokio::test]
async fn one_whose_outcome_is_unknown_is_sent_again_as_one() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), rich).await;
    world.api.script(
        BotApiRule::on("sendRichMessage", BotApiAnswer::BadGateway)
            .in_chat(ADA)
            .once(),
    );
    world.api.say(ADA, ADA, TABLE);
    table(&world, ADA, true).await;
    assert!(world.calls("sendMessage", ADA).is_empty());
    assert_eq!(world.calls("sendRichMessage", ADA).len(), 2);
    relay.stop().await;
}
