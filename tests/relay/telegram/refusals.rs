//! Chats that do not take answers any more, and chats that moved.

use crate::support::dev::{BotApiAnswer, BotApiRule, BotStanding};
use hermes_relay::config::Settings;
use hermes_relay::store::{Inspector, Section};

use super::{ADA, BOB, GROUP, Noting, World};

fn stubborn(settings: &mut Settings) {
    settings.sessions.refused_retries = 0;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
    settings.direct.telegram.as_mut().unwrap().require_mention = false;
}

#[tokio::test]
async fn a_blocked_bot_is_refused_with_the_reason_and_other_chats_go_on() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), stubborn).await;
    world.api.say(BOB, BOB, "sleep=1500 bye");
    agent.turns(1).await;
    world.api.block(BOB);
    let status = relay
        .until("a refusal", |status| status.last_refusal.is_some())
        .await;
    let refusal = status.last_refusal.unwrap();
    assert!(refusal.error.contains("blocked by the user"), "{refusal:?}");
    world.settle("still here").await;
    world.confirmed().await;
    world.api.unblock(BOB);
    world.api.say(BOB, BOB, "back again");
    world.answer(BOB, "echo: back again").await;
    relay.stop().await;
    let ops = Inspector::open(world.state.path())
        .unwrap()
        .list(Section::Ops, 0, 10)
        .unwrap();
    let dropped = ops.into_iter().find(|op| op.state == "dropped").unwrap();
    let reason = dropped.reason.unwrap();
    assert!(reason.starts_with("Telegram refused it: Forbidden"), "{reason}");
}

#[tokio::test]
async fn a_final_refusal_is_tried_once_and_its_reason_is_logged_once() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world
        .start_with(agent.clone(), |settings| {
            stubborn(settings);
            settings.sessions.refused_retries = 3;
            settings.streaming.mode = hermes_relay::adapter::stream::StreamMode::Off;
        })
        .await;
    world.api.say(BOB, BOB, "sleep=1500 bye");
    agent.turns(1).await;
    world.api.block(BOB);
    let status = relay
        .until("an undelivered answer", |status| status.tally.ops_dropped > 0)
        .await;
    assert!(
        status.last_refusal.unwrap().error.contains("blocked by the user"),
        "`status` shows the reason"
    );
    assert_eq!(world.calls("sendMessage", BOB).len(), 1, "one try");
    world.settle("still here").await;
    assert_eq!(world.calls("sendMessage", BOB).len(), 1, "and no notice");
    relay.stop().await;
    let ops = Inspector::open(world.state.path())
        .unwrap()
        .list(Section::Ops, 0, 10)
        .unwrap();
    assert!(ops.iter().any(|op| op.state == "dropped"), "the journal keeps it");
}

#[tokio::test]
async fn kicked_and_muted_bots_are_refused_with_the_reason() {
    for (standing, reason) in [
        (BotStanding::Kicked, "kicked"),
        (BotStanding::Left, "not a member"),
        (BotStanding::Muted, "not enough rights"),
    ] {
        let world = World::new().await;
        let agent = Noting::default();
        let relay = world.start_with(agent.clone(), stubborn).await;
        world.api.say(GROUP, BOB, "sleep=1500 bye");
        agent.turns(1).await;
        world.api.set_standing(GROUP, ADA, standing);
        let status = relay
            .until("a refusal", |status| status.last_refusal.is_some())
            .await;
        let refusal = status.last_refusal.unwrap();
        assert!(refusal.error.contains(reason), "{standing:?}: {refusal:?}");
        assert!(world.texts(GROUP).is_empty());
        world.settle("still here").await;
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_group_that_became_a_supergroup_gets_its_answers_under_the_new_id() {
    const NEW: i64 = -1_000_777;
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), stubborn).await;
    world.api.say(GROUP, BOB, "sleep=700 moving");
    agent.turns(1).await;
    world.api.migrate(GROUP, NEW, ADA);
    world.answer(NEW, "echo: moving").await;
    world.api.say(NEW, BOB, "here now");
    world.answer(NEW, "echo: here now").await;
    assert!(world.texts(GROUP).is_empty());
    world.confirmed().await;
    relay.stop().await;
}

#[tokio::test]
async fn a_move_that_only_the_refusal_tells_is_followed() {
    const NEW: i64 = -1_000_778;
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), stubborn).await;
    world.api.say(GROUP, BOB, "sleep=700 moving");
    agent.turns(1).await;
    world.api.migrate(GROUP, NEW, ADA);
    world.api.forget_updates();
    world.answer(NEW, "echo: moving").await;
    relay.stop().await;
}

#[tokio::test]
async fn markup_that_telegram_refuses_goes_out_as_plain_text() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), stubborn).await;
    world.api.script(
        BotApiRule::on(
            "sendMessage",
            BotApiAnswer::refuse(400, "Bad Request: can't parse entities: Unsupported start tag"),
        )
        .once(),
    );
    world.api.say(ADA, ADA, "**bold**");
    let answer = world.answer(ADA, "echo: bold").await;
    assert!(answer.entities.is_empty());
    relay.stop().await;
}
