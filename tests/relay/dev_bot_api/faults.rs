//! What goes wrong, on request.

use std::time::Duration;

use crate::support::dev::{BotApiAnswer, BotApiRule, BotApiSettings, FloodLimits};
use serde_json::json;

use super::{ADA, GROUP, SOON, Stage};

#[tokio::test]
async fn calls_are_refused_cut_or_answered_with_nonsense() {
    let stage = Stage::new().await;
    let send = json!({ "chat_id": ADA, "text": "x" });
    let on = |answer: BotApiAnswer| stage.api.script(BotApiRule::on("sendMessage", answer).once());
    let raw = async || {
        let url = format!("{}/sendMessage", stage.url);
        stage.http.post(url).json(&send).send().await
    };
    on(BotApiAnswer::too_many(7));
    let answer = raw().await.unwrap();
    assert_eq!(
        (
            answer.status().as_u16(),
            answer.headers()["retry-after"].to_str().unwrap()
        ),
        (429, "7")
    );
    let body: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(body["parameters"]["retry_after"], 7);
    on(BotApiAnswer::BadGateway);
    let answer = raw().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert!(answer.text().await.unwrap().starts_with("<html>"));
    on(BotApiAnswer::CutBefore);
    assert!(raw().await.is_err());
    assert!(stage.api.answers(ADA).is_empty(), "none of these was carried out");
    on(BotApiAnswer::CutAfter);
    assert!(raw().await.is_err());
    assert_eq!(stage.api.answers(ADA).len(), 1, "carried out, and nobody knows");
    on(BotApiAnswer::Garbage);
    assert!(raw().await.unwrap().json::<serde_json::Value>().await.is_err());
    for (answer, sent) in [(BotApiAnswer::HangBefore, 2), (BotApiAnswer::HangAfter, 3)] {
        on(answer);
        let hanging = stage
            .http
            .post(format!("{}/sendMessage", stage.url))
            .json(&send)
            .timeout(Duration::from_secs(2));
        assert!(hanging.send().await.unwrap_err().is_timeout());
        assert_eq!(stage.api.answers(ADA).len(), sent);
    }
    assert_eq!(stage.api.calls().last().unwrap().status, None);
    stage.ok("sendMessage", send.clone()).await;
    // By chat, until it is taken back.
    stage
        .api
        .script(BotApiRule::on("sendMessage", BotApiAnswer::refuse(403, "Forbidden: no")).in_chat(GROUP));
    stage.ok("sendMessage", send).await;
    for _ in 0..2 {
        let refused = stage
            .refused("sendMessage", json!({ "chat_id": GROUP, "text": "x" }))
            .await;
        assert_eq!(refused, (403, "Forbidden: no".to_owned()));
    }
    stage.api.clear_script();
    stage
        .ok("sendMessage", json!({ "chat_id": GROUP, "text": "x" }))
        .await;
}

#[tokio::test]
async fn an_offset_counts_although_the_answer_is_lost() {
    let stage = Stage::set(BotApiSettings {
        hot_loop_guard: false,
        ..BotApiSettings::default()
    })
    .await;
    for text in ["a", "b"] {
        stage.api.say(ADA, ADA, text);
    }
    let first = stage.ok("getUpdates", json!({ "limit": 1 })).await;
    let next = first[0]["update_id"].as_i64().unwrap() + 1;
    stage
        .api
        .script(BotApiRule::on("getUpdates", BotApiAnswer::CutAfter).once());
    let lost = stage
        .http
        .post(format!("{}/getUpdates", stage.url))
        .json(&json!({ "offset": next }));
    assert!(lost.send().await.is_err());
    assert_eq!(
        (stage.api.pending_count(), stage.api.confirmed_offset()),
        (1, Some(next))
    );
    stage.api.repeat_updates(5);
    let again = stage.ok("getUpdates", json!({ "offset": next })).await;
    assert_eq!(again.as_array().unwrap().len(), 2, "a confirmed one came again");
    stage.api.say(ADA, ADA, "c");
    stage.api.reverse_batches(1);
    let turned = stage.ok("getUpdates", json!({ "offset": next })).await;
    assert!(turned[0]["update_id"].as_i64() > turned[1]["update_id"].as_i64());
}

#[tokio::test]
async fn another_poller_steals_the_poll() {
    let stage = Stage::new().await;
    assert!(!stage.api.steal_poll());
    let poll = stage.refused("getUpdates", json!({ "timeout": 50 }));
    let steal = async {
        stage.api.wait_polled(SOON).await.unwrap();
        stage.api.steal_poll()
    };
    let (poll, stolen) = tokio::join!(poll, steal);
    assert!(stolen && poll.0 == 409 && poll.1.contains("only one bot instance"));
}

#[tokio::test]
async fn the_server_goes_away_and_comes_back() {
    let stage = Stage::new().await;
    stage.api.say(ADA, ADA, "hello");
    stage.api.take_down().await;
    let gone = stage.http.post(format!("{}/getMe", stage.url)).send().await;
    assert!(gone.unwrap_err().is_connect());
    stage.api.bring_up().await.unwrap();
    assert_eq!(
        stage.ok("getUpdates", json!({})).await.as_array().unwrap().len(),
        1
    );
}

#[tokio::test]
async fn calls_beyond_the_limits_are_refused_and_on_record() {
    let stage = Stage::new().await;
    stage.api.set_flood_limits(Some(FloodLimits::default()));
    let send = json!({ "chat_id": GROUP, "text": "x" });
    for _ in 0..20 {
        stage.ok("sendMessage", send.clone()).await;
    }
    let (status, body) = stage.call("sendMessage", send.clone()).await;
    assert_eq!(status, 429);
    assert!((50..=61).contains(&body["parameters"]["retry_after"].as_i64().unwrap()));
    assert_eq!(stage.api.violations()[0].chat_id, GROUP);
    stage
        .ok("sendMessage", json!({ "chat_id": ADA, "text": "x" }))
        .await;
    stage.api.set_flood_limits(None);
    stage.ok("sendMessage", send).await;
}
