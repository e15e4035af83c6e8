//! `getUpdates`: waiting, confirming, and who may.

use std::time::{Duration, Instant};

use crate::support::dev::BotApiSettings;
use serde_json::{Value, json};

use super::{ADA, SOON, Stage};

fn quick() -> BotApiSettings {
    BotApiSettings {
        hot_loop_guard: false,
        first_update_id: 1_000,
        ..BotApiSettings::default()
    }
}

fn ids(updates: &Value) -> Vec<i64> {
    updates
        .as_array()
        .unwrap()
        .iter()
        .map(|update| update["update_id"].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn a_poll_waits_for_an_update_and_its_successor_confirms_it() {
    let stage = Stage::set(quick()).await;
    let first = stage.api.confirmed_offset();
    assert_eq!(first, None);
    let poll = stage.ok("getUpdates", json!({ "timeout": 30 }));
    let say = async {
        stage.api.wait_polled(SOON).await.unwrap();
        stage.api.say(ADA, ADA, "hello /start");
    };
    let (updates, ()) = tokio::join!(poll, say);
    assert_eq!(updates.as_array().unwrap().len(), 1);
    let message = &updates[0]["message"];
    assert_eq!(
        (&message["text"], &message["entities"][0]["type"]),
        (&json!("hello /start"), &json!("bot_command"))
    );
    assert!(!stage.api.is_polled());
    let id = updates[0]["update_id"].as_i64().unwrap();
    assert_eq!(
        ids(&stage.ok("getUpdates", json!({})).await),
        [id],
        "not confirmed: it comes again"
    );
    let info = stage.ok("getWebhookInfo", json!({})).await;
    assert_eq!(info["pending_update_count"], 1);
    assert_eq!(
        stage.ok("getUpdates", json!({ "offset": id + 1 })).await,
        json!([])
    );
    assert_eq!(
        (stage.api.pending_count(), stage.api.confirmed_offset()),
        (0, Some(id + 1))
    );
    // Far ahead: ignored, and the next update comes all the same.
    stage.api.say(ADA, ADA, "again");
    assert_eq!(
        ids(&stage.ok("getUpdates", json!({ "offset": id + 1_000 })).await),
        [id + 1]
    );
}

#[tokio::test]
async fn the_older_poll_is_ended_by_the_newer_one() {
    let stage = Stage::set(quick()).await;
    let older = stage.refused("getUpdates", json!({ "timeout": 50 }));
    let newer = async {
        stage.api.wait_polled(SOON).await.unwrap();
        let newer = stage.ok("getUpdates", json!({ "timeout": 50 }));
        let say = async {
            let two = |api: &crate::support::dev::BotApi| {
                (api.calls_of("getUpdates").len() == 2 && api.is_polled()).then_some(())
            };
            stage.api.until("two polls", SOON, two).await.unwrap();
            stage.api.say(ADA, ADA, "hello");
        };
        tokio::join!(newer, say).0
    };
    let (older, newer) = tokio::join!(older, newer);
    assert_eq!(older.0, 409);
    assert!(
        older
            .1
            .starts_with("Conflict: terminated by other getUpdates request")
    );
    assert_eq!(newer.as_array().unwrap().len(), 1);
    // A webhook ends polling until it is taken away.
    let ended = stage.refused(
        "getUpdates",
        json!({ "offset": ids(&newer)[0] + 1, "timeout": 50 }),
    );
    let hook = async {
        stage.api.wait_polled(SOON).await.unwrap();
        stage
            .ok("setWebhook", json!({ "url": "https://hook.example/" }))
            .await;
    };
    let (ended, ()) = tokio::join!(ended, hook);
    assert_eq!(
        ended,
        (409, "Conflict: terminated by setWebhook request".to_owned())
    );
    let active = stage.refused("getUpdates", json!({})).await;
    assert!(active.0 == 409 && active.1.contains("webhook is active"));
    stage
        .ok("deleteWebhook", json!({ "drop_pending_updates": false }))
        .await;
    stage.ok("getUpdates", json!({})).await;
}

#[tokio::test]
async fn a_client_that_went_away_holds_no_place() {
    let stage = Stage::set(quick()).await;
    let gone = stage
        .http
        .post(format!("{}/getUpdates", stage.url))
        .json(&json!({ "timeout": 50 }));
    let gone = tokio::spawn(gone.send());
    stage.api.wait_polled(SOON).await.unwrap();
    gone.abort();
    stage
        .api
        .until("the place is free", SOON, |api| (!api.is_polled()).then_some(()))
        .await
        .unwrap();
    stage.api.say(ADA, ADA, "hello");
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 1);
}

#[tokio::test]
async fn a_poll_that_repeats_its_offset_at_once_is_slowed_down() {
    let stage = Stage::new().await;
    for text in ["a", "b", "c"] {
        stage.api.say(ADA, ADA, text);
    }
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 3);
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 1);
    stage.api.forget_updates();
    let began = Instant::now();
    assert_eq!(stage.ok("getUpdates", json!({})).await, json!([]));
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn updates_are_lost_after_a_day_and_presses_after_minutes() {
    let stage = Stage::set(quick()).await;
    stage.api.say(ADA, ADA, "old");
    let keyboard = json!({ "inline_keyboard": [[{ "text": "Go", "callback_data": "go" }]] });
    let sent = stage
        .ok(
            "sendMessage",
            json!({ "chat_id": ADA, "text": "?", "reply_markup": keyboard }),
        )
        .await;
    let message_id = sent["message_id"].as_i64().unwrap();
    stage.api.press(ADA, message_id, ADA, "Go").unwrap();
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 2);
    stage.api.age(Duration::from_secs(200));
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 1);
    stage.api.age(Duration::from_secs(24 * 60 * 60));
    assert_eq!(ids(&stage.ok("getUpdates", json!({})).await).len(), 0);
    assert_eq!(stage.api.dropped_updates(), 2);
    // Ids may start over lower.
    assert!(stage.api.restart_update_ids(5));
    stage.api.say(ADA, ADA, "new");
    assert_eq!(
        ids(&stage.ok("getUpdates", json!({ "offset": 1_002 })).await),
        [5]
    );
}

#[tokio::test]
async fn only_wanted_kinds_are_queued() {
    let stage = Stage::set(quick()).await;
    let id = stage.api.say(ADA, ADA, "hello");
    stage.api.react(ADA, id, ADA, &["👍"]);
    assert_eq!(
        stage.api.pending_count(),
        1,
        "reactions only come to those who ask"
    );
    let asked = json!({ "allowed_updates": ["message", "message_reaction"] });
    stage.ok("getUpdates", asked).await;
    stage.api.react(ADA, id, ADA, &["🔥"]);
    stage.api.edit(ADA, id, "changed");
    let pending = stage.api.pending_updates();
    assert_eq!(pending.len(), 2);
    assert_eq!(pending[1]["message_reaction"]["old_reaction"][0]["emoji"], "👍");
}

#[tokio::test]
async fn many_updates_pass_through_bounded_records() {
    let stage = Stage::set(BotApiSettings {
        call_limit: 50,
        message_limit: 20,
        ..quick()
    })
    .await;
    let mut offset = 0;
    let mut read = 0;
    for batch in 0..200 {
        for number in 0..100 {
            stage.api.say(ADA, ADA, &format!("message {batch} {number}"));
        }
        let updates = ids(&stage.ok("getUpdates", json!({ "offset": offset })).await);
        read += updates.len();
        offset = updates.last().unwrap() + 1;
    }
    assert_eq!(read, 20_000);
    assert_eq!(stage.api.calls_on_the_page(), 50);
    assert_eq!(stage.api.call_count(), 200);
    assert_eq!(stage.api.messages(ADA).len(), 20);
    assert_eq!(stage.api.dropped_updates(), 0);
}
