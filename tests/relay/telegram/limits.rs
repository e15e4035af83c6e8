//! 429: what is only for show is dropped, what says something waits, other chats go on.

use std::time::{Duration, Instant};

use crate::support::dev::{ApiPerson, BotApiAnswer, BotApiRule, BotApiSettings, FloodLimits};
use hermes_relay::config::Settings;

use super::{ADA, BOB, Noting, World};

fn quiet(settings: &mut Settings) {
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

#[tokio::test]
async fn during_a_limit_what_is_for_show_is_dropped_and_the_answer_arrives_after_it() {
    let world = World::new().await;
    let relay = world
        .start_with(Noting::default(), |settings| {
            settings.streaming.interval_ms = 100;
            settings.streaming.buffer_chars = 1;
            settings.streaming.typing_every_ms = 300;
            settings.streaming.typing_after_ms = 100;
        })
        .await;
    world.api.script(
        BotApiRule::on("sendMessageDraft", BotApiAnswer::too_many(4))
            .in_chat(ADA)
            .once(),
    );
    let words: Vec<String> = (0..30).map(|number| format!("w{number}")).collect();
    world
        .api
        .say(ADA, ADA, &format!("stream=100 {}", words.join(" ")));
    let limited = world
        .until("a limit", |api| {
            let mut calls = api.calls_of("sendMessageDraft").into_iter();
            calls.find(|call| call.status == Some(429))
        })
        .await;
    world.api.say(BOB, BOB, "meanwhile");
    world.answer(BOB, "echo: meanwhile").await;
    let is_over = limited.at.elapsed() >= Duration::from_secs(4);
    let answer = world.answer_ending(ADA, "w29").await;
    assert!(answer.text.starts_with("echo: w0"));
    let calls = world.api.calls();
    let during = calls.iter().filter(|call| {
        call.chat_id() == Some(ADA)
            && call.sequence > limited.sequence
            && call.at < limited.at + Duration::from_secs(4)
    });
    let during: Vec<&str> = during.map(|call| call.method.as_str()).collect();
    assert!(during.is_empty(), "calls during the limit: {during:?}");
    assert!(!is_over, "the other chat did not wait for it");
    relay.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_limited_arrives_after_the_time_and_once() {
    let world = World::new().await;
    let relay = world.start_with(Noting::default(), quiet).await;
    world.api.script(
        BotApiRule::on("sendMessage", BotApiAnswer::too_many(3))
            .in_chat(ADA)
            .once(),
    );
    let begun = Instant::now();
    world.api.say(ADA, ADA, "patience");
    world
        .until("a limit", |api| {
            (api.calls_of("sendMessage").len() == 1).then_some(())
        })
        .await;
    world.api.say(BOB, BOB, "meanwhile");
    world.answer(BOB, "echo: meanwhile").await;
    assert!(world.texts(ADA).is_empty());
    world.answer(ADA, "echo: patience").await;
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert_eq!(world.calls("sendMessage", ADA).len(), 2);
    let status = relay.status().await;
    assert_eq!((status.tally.ops_refused, status.tally.ops_dropped), (0, 0));
    relay.stop().await;
}

#[tokio::test]
async fn three_limited_chats_mean_the_bot() {
    let world = World::new().await;
    for id in 110..114 {
        world.api.add_person(ApiPerson::named(id, "Somebody"));
    }
    let relay = world.start_with(Noting::default(), quiet).await;
    for id in 110..113 {
        world.api.script(
            BotApiRule::on("sendMessage", BotApiAnswer::too_many(5))
                .in_chat(id)
                .once(),
        );
        world.api.say(id, id, "hi");
    }
    let limited = world
        .until("three limits", |api| {
            let mut calls = api.calls_of("sendMessage");
            calls.retain(|call| call.status == Some(429));
            (calls.len() == 3).then(|| calls.pop()).flatten()
        })
        .await;
    world.api.say(113, 113, "me too");
    world.answer(113, "echo: me too").await;
    let sent = &world.calls("sendMessage", 113)[0];
    assert!(
        sent.at >= limited.at + Duration::from_secs(5),
        "a fourth chat waits, too: {:?}",
        sent.at - limited.at
    );
    for id in 110..113 {
        world.answer(id, "echo: hi").await;
    }
    relay.stop().await;
}

#[tokio::test]
async fn the_relay_keeps_within_the_limits_by_itself() {
    let world = World::with(BotApiSettings::default()).await;
    world.api.set_flood_limits(Some(FloodLimits::default()));
    let relay = world
        .start_with(Noting::default(), |settings| {
            settings.streaming.interval_ms = 50;
            settings.streaming.buffer_chars = 1;
        })
        .await;
    let words: Vec<String> = (0..40).map(|number| format!("w{number}")).collect();
    for person in [ADA, BOB] {
        world
            .api
            .say(person, person, &format!("stream=100 {}", words.join(" ")));
        for number in 0..4 {
            world.api.say(person, person, &format!("m{number}"));
        }
    }
    for person in [ADA, BOB] {
        world.answer(person, "echo: m3").await;
    }
    assert!(world.api.violations().is_empty(), "{:?}", world.api.violations());
    relay.stop().await;
}
