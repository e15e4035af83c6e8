//! One poller: conflicts, webhooks, stalled polls, and updates that repeat, come in disorder, start over or cannot be read.

use std::time::{Duration, Instant};

use crate::support::dev::{BotApiAnswer, BotApiRule};
use hermes_relay::config::Settings;
use hermes_relay::store::{Inspector, Section};
use serde_json::{Value, json};

use super::{ADA, BOB, Noting, SOON, World, number};

#[tokio::test]
async fn a_conflict_is_retried_slowly_while_answers_still_go_out() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.api.say(ADA, ADA, "sleep=1500 still");
    agent.turns(1).await;
    world.api.wait_polled(SOON).await.unwrap();
    let conflict = BotApiAnswer::refuse(409, "Conflict: terminated by other getUpdates request");
    world.api.script(BotApiRule::on("getUpdates", conflict));
    let begun = Instant::now();
    assert!(world.api.steal_poll());
    world.answer(ADA, "echo: still").await;
    tokio::time::sleep(Duration::from_secs(10).saturating_sub(begun.elapsed())).await;
    let polls = world.api.calls_of("getUpdates");
    let within = polls
        .iter()
        .filter(|call| call.at >= begun && call.at < begun + Duration::from_secs(10))
        .count();
    assert!((1..=5).contains(&within), "{within} polls in 10 s");
    let status = relay.status().await;
    assert!(
        status
            .last_loss
            .unwrap_or_default()
            .contains("another program polls")
    );
    world.api.clear_script();
    world.settle("after").await;
    relay.stop().await;
}

#[tokio::test]
async fn a_webhook_is_removed_and_what_waits_for_it_is_kept() {
    let world = World::new().await;
    world.api.say(ADA, ADA, "waiting");
    world.api.set_webhook(Some("https://elsewhere.example/hook"));
    let relay = world.start().await;
    world.answer(ADA, "echo: waiting").await;
    assert_eq!(world.api.webhook(), None);
    // One that is set later, too.
    world.confirmed().await;
    world.api.wait_polled(SOON).await.unwrap();
    world.api.set_webhook(Some("https://elsewhere.example/hook"));
    world.settle("again").await;
    assert_eq!(world.api.webhook(), None);
    for call in world.api.calls_of("deleteWebhook") {
        assert_ne!(call.params["drop_pending_updates"], json!(true));
    }
    relay.stop().await;
}

#[tokio::test]
async fn a_stalled_poll_is_cut_and_redone() {
    let world = World::new().await;
    let relay = world
        .start_with(Noting::default(), |settings| {
            settings.direct.telegram.as_mut().unwrap().poll_timeout_secs = 1;
        })
        .await;
    world.settle("before").await;
    world
        .api
        .script(BotApiRule::on("getUpdates", BotApiAnswer::HangBefore).once());
    world
        .until("a poll that hangs", |api| {
            let polls = api.calls_of("getUpdates");
            (polls.last()?.status.is_none() && !api.is_polled()).then_some(())
        })
        .await;
    world.settle("after").await;
    relay.stop().await;
}

#[tokio::test]
async fn polls_that_fail_are_repeated_and_lose_nothing() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    for fate in [
        BotApiAnswer::BadGateway,
        BotApiAnswer::CutBefore,
        BotApiAnswer::CutAfter,
        BotApiAnswer::Garbage,
        BotApiAnswer::refuse(500, "Internal Server Error"),
    ] {
        world.api.script(BotApiRule::on("getUpdates", fate).once());
    }
    for text in ["one", "two", "three"] {
        world.settle(text).await;
    }
    world.confirmed().await;
    assert_eq!(agent.texts(), ["one", "two", "three"]);
    relay.stop().await;
}

#[tokio::test]
async fn updates_that_cannot_be_read_are_quarantined_and_passed() {
    let world = World::new().await;
    let relay = world.start().await;
    let deep = (0..300).fold(json!(1), |inner, _| json!([inner]));
    let poison = [
        json!({"message": {"chat": {"id": ADA, "type": "private"}, "text": "deep", "x": deep}}),
        json!({"message": {"text": "no chat"}}),
        json!({"message": 7}),
        json!({"message": {"chat": "nowhere", "text": [1]}}),
        json!({"callback_query": {"data": {}}}),
        json!({"my_chat_member": []}),
        json!({"stopped_message_generation": "now"}),
    ];
    let harmless = [
        json!({"something_new": {"a": [{}]}}),
        json!({"message": {"chat": {"id": ADA, "type": "private"}, "message_id": 1, "date": 0}}),
        json!({"update_id": "x"}),
        json!(null),
        json!([]),
    ];
    for update in poison.iter().chain(&harmless) {
        world.api.push_update(update.clone());
    }
    world.settle("after").await;
    world.confirmed().await;
    let status = relay
        .until("all quarantined", |status| status.tally.quarantined >= 7)
        .await;
    assert_eq!(status.tally.quarantined, 7);
    relay.stop().await;
    let journal = Inspector::open(world.state.path()).unwrap();
    assert_eq!(journal.latest(Section::Quarantine, 20).unwrap().len(), 7);
}

#[tokio::test]
async fn repeated_and_reordered_updates_are_each_answered_once() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.settle("one").await;
    world.api.repeat_updates(1);
    world.api.reverse_batches(3);
    for text in ["two", "three", "four"] {
        world.api.say(BOB, BOB, text);
    }
    world.answer(BOB, "echo: four").await;
    world.api.repeat_updates(4);
    world.settle("five").await;
    world.confirmed().await;
    let mut texts = agent.texts();
    assert_eq!(texts.len(), 5, "{texts:?}");
    texts.sort();
    assert_eq!(texts, ["five", "four", "one", "three", "two"]);
    assert_eq!(world.texts(BOB), ["echo: two", "echo: three", "echo: four"]);
    relay.stop().await;
}

#[tokio::test]
async fn ids_that_start_over_lower_are_taken() {
    let world = World::new().await;
    let relay = world.start().await;
    world.settle("high").await;
    world.confirmed().await;
    assert!(world.api.restart_update_ids(911_978));
    world.settle("low").await;
    world.settle("and on").await;
    world.confirmed().await;
    assert_eq!(world.api.confirmed_offset(), Some(911_980));
    relay.stop().await;
}

#[tokio::test]
async fn the_same_update_in_another_run_is_no_second_turn() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_| {}).await;
    let id = world.api.say(ADA, ADA, "only once");
    world.answer(ADA, "echo: only once").await;
    relay.crash().await;
    world.api.push_update(json!({"message": {
        "message_id": id, "date": 1, "text": "only once",
        "chat": {"id": ADA, "type": "private", "first_name": "Ada"},
        "from": {"id": ADA, "is_bot": false, "first_name": "Ada"},
    }}));
    let relay = world.start_with(agent.clone(), |_| {}).await;
    world.settle("after").await;
    world.confirmed().await;
    assert_eq!(agent.texts(), ["only once", "after"]);
    relay.stop().await;
}

#[tokio::test]
async fn every_poll_names_the_wanted_kinds_and_the_offset_only_moves_on() {
    let world = World::new().await;
    let relay = world.start().await;
    for text in ["one", "two"] {
        world.settle(text).await;
    }
    world.confirmed().await;
    let polls = world.api.calls_of("getUpdates");
    let kinds: Vec<&Value> = polls.iter().map(|poll| &poll.params["allowed_updates"]).collect();
    assert!(
        kinds
            .iter()
            .all(|kinds| kinds.to_string().contains("callback_query")),
        "{kinds:?}"
    );
    let offsets: Vec<i64> = polls.iter().filter_map(|poll| number(poll, "offset")).collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    relay.stop().await;
}

#[tokio::test]
async fn group_chatter_is_confirmed_without_a_turn() {
    let world = World::new().await;
    let agent = Noting::default();
    let relay = world.start_with(agent.clone(), |_: &mut Settings| {}).await;
    for number in 0..250 {
        world.api.say(super::GROUP, BOB, &format!("chatter {number}"));
    }
    world.settle("after").await;
    world.confirmed().await;
    assert_eq!(agent.texts(), ["after"]);
    relay.stop().await;
}
