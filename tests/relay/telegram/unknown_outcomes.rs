//! Nobody knows whether a call was carried out: a final answer is sent again.

use std::time::Duration;

use crate::support::dev::{BotApiAnswer, BotApiRule};
use hermes_relay::config::Settings;

use super::{ADA, BOB, Noting, World};

fn quiet(settings: &mut Settings) {
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

/// A final answer whose first call fares like this: how often the chat shows it in the end.
async fn shown_after(fate: BotApiAnswer) -> usize {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), quiet).await;
    world.api.script(BotApiRule::on("sendMessage", fate).once());
    world.api.say(ADA, ADA, "sure");
    world
        .until("a second call", |api| {
            let calls = api.calls_of("sendMessage");
            (calls.len() == 2 && calls[1].is_ok()).then_some(())
        })
        .await;
    let status = relay
        .until("nothing owed", |status| status.ops_durable == 0)
        .await;
    assert_eq!((status.tally.ops_dropped, status.tally.turns_started), (0, 1));
    world.settle("after").await;
    let shown = world
        .texts(ADA)
        .iter()
        .filter(|text| *text == "echo: sure")
        .count();
    relay.stop().await;
    shown
}

#[tokio::test]
async fn an_answer_is_sent_again_after_a_bad_gateway() {
    assert_eq!(shown_after(BotApiAnswer::BadGateway).await, 1);
}

#[tokio::test]
async fn an_answer_is_sent_again_when_the_connection_is_cut_before_it_is_carried_out() {
    assert_eq!(shown_after(BotApiAnswer::CutBefore).await, 1);
}

#[tokio::test]
async fn an_answer_is_sent_again_when_the_connection_is_cut_after_it_is_carried_out() {
    assert_eq!(shown_after(BotApiAnswer::CutAfter).await, 2);
}

#[tokio::test]
async fn an_answer_is_sent_again_after_an_answer_that_cannot_be_read() {
    assert_eq!(shown_after(BotApiAnswer::Garbage).await, 2);
}

#[tokio::test]
async fn an_answer_that_hangs_is_sent_again_and_holds_up_no_other_chat() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), quiet).await;
    world.api.script(
        BotApiRule::on("sendMessage", BotApiAnswer::HangBefore)
            .in_chat(ADA)
            .once(),
    );
    world.api.say(ADA, ADA, "sure");
    world
        .until("a call that hangs", |api| {
            (!api.calls_of("sendMessage").is_empty()).then_some(())
        })
        .await;
    world.api.say(BOB, BOB, "meanwhile");
    world.answer(BOB, "echo: meanwhile").await;
    assert!(world.texts(ADA).is_empty());
    let again = world
        .api
        .wait_for_answer(ADA, "the answer", Duration::from_secs(100), |seen| {
            seen.text == "echo: sure"
        })
        .await;
    again.unwrap();
    relay.stop().await;
}

#[tokio::test]
async fn an_outage_of_the_server_delays_answers_and_loses_none() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), quiet).await;
    world.api.say(ADA, ADA, "sleep=300 long way");
    agent.turns(1).await;
    world.api.take_down().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.api.bring_up().await.unwrap();
    world.answer(ADA, "echo: long way").await;
    world.settle("after").await;
    assert_eq!(world.texts(ADA), ["echo: long way", "echo: after"]);
    world.confirmed().await;
    relay.stop().await;
}
