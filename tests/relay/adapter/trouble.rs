//! Whatever goes wrong while an answer grows, the person has the whole of it in the end, once.

use std::time::Duration;

use crate::support::dev::{OpAnswer, ResultRule};
use serde_json::json;

use super::rig::{Rig, start, streams};
use crate::support::dev::FrameKinds as _;

const PAUSE: Duration = Duration::from_millis(10);

fn pieces() -> Vec<String> {
    (0..60).map(|word| format!("word{word} ")).collect()
}

fn whole() -> String {
    pieces().concat().trim_end().to_owned()
}

async fn replied(platform: &str, rules: Vec<ResultRule>) -> Rig {
    let rig = start(platform, streams(pieces(), PAUSE), |_| {}).await;
    for rule in rules {
        rig.connector.script(rule);
    }
    rig.deliver("c1", "m1", "speak");
    rig.is_quiet(1).await;
    rig
}

/// What a person reads from top to bottom, without cursors and the breaks between messages.
fn read(rig: &Rig) -> String {
    let texts = rig.texts("c1");
    let bare = texts
        .iter()
        .map(|text| text.replace('\u{2589}', "").trim().to_owned());
    bare.collect::<Vec<_>>().join(" ")
}

fn refuse(error: &str) -> OpAnswer {
    OpAnswer::Refuse {
        error: error.to_owned(),
        code: None,
    }
}

#[tokio::test]
async fn a_refused_edit_is_followed_by_the_rest_and_nothing_is_sent_twice() {
    let rig = replied(
        "discord",
        vec![ResultRule::on("edit", refuse("message is too old"))],
    )
    .await;
    assert_eq!(read(&rig), whole());
    rig.stop().await;
}

#[tokio::test]
async fn a_send_without_a_message_id_is_followed_by_the_rest() {
    let nameless = OpAnswer::Result(json!({"success": true}));
    let rig = replied("discord", vec![ResultRule::on("send", nameless).once()]).await;
    assert!(rig.ops("edit").is_empty());
    assert_eq!(read(&rig), whole());
    rig.stop().await;
}

#[tokio::test]
async fn a_declined_delivery_ends_and_becomes_no_other_op() {
    for platform in ["discord", "slack", "plain"] {
        let declined = OpAnswer::Refuse {
            error: "egress declined: not routed".to_owned(),
            code: Some("egress_declined".to_owned()),
        };
        let rules = ["send", "draft", "edit"].map(|op| ResultRule::on(op, declined.clone()));
        let rig = replied(platform, rules.into()).await;
        let text_ops: Vec<String> = rig
            .asked_for()
            .into_iter()
            .map(|(op, _)| op)
            .filter(|op| ["send", "draft", "edit", "follow_up"].contains(&op.as_str()))
            .collect();
        assert_eq!(text_ops.len(), 1, "{platform}: {text_ops:?}");
        assert!(rig.texts("c1").is_empty());
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_connection_lost_in_mid_stream_loses_and_doubles_nothing() {
    for platform in ["discord", "telegram", "slack", "plain"] {
        let rig = start(platform, streams(pieces(), Duration::from_millis(20)), |_| {}).await;
        rig.deliver("c1", "m1", "speak");
        tokio::time::sleep(Duration::from_millis(300)).await;
        rig.connector.drop_sockets();
        rig.is_quiet(1).await;
        let texts = rig.texts("c1");
        let last = texts.last().unwrap().trim_end();
        let complete = texts.iter().filter(|text| text.trim_end() == whole()).count();
        assert!(complete == 1 || read(&rig) == whole(), "{platform}: {texts:?}");
        assert!(!last.ends_with('\u{2589}'), "{platform}: {last}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_rate_limited_platform_is_slowed_down_and_still_gets_everything() {
    let rig = replied(
        "discord",
        vec![ResultRule::on("edit", refuse("rate limited: retry after 0.05")).times(3)],
    )
    .await;
    assert_eq!(
        rig.texts("c1")
            .iter()
            .map(|text| text.trim_end())
            .collect::<Vec<_>>(),
        [whole()]
    );
    rig.stop().await;
    let rig = start("plain", streams(vec!["short".to_owned()], Duration::ZERO), |_| {}).await;
    rig.connector
        .script(ResultRule::on("send", refuse("Too Many Requests: retry after 0.1")).times(2));
    rig.deliver("c1", "m1", "speak");
    rig.is_quiet(1).await;
    assert_eq!(rig.texts("c1"), ["short"]);
    assert_eq!(rig.ops("send").len(), 3);
    assert_eq!(rig.handle.status().await.unwrap().tally.ops_limited, 2);
    rig.stop().await;
}

#[tokio::test]
async fn a_chat_that_is_held_up_holds_up_no_other() {
    let rig = start("plain", streams(vec!["short".to_owned()], Duration::ZERO), |_| {}).await;
    rig.connector
        .script(ResultRule::on("send", refuse("Too Many Requests: retry after 6")).once());
    rig.deliver("slow", "m1", "speak");
    let began = tokio::time::Instant::now();
    rig.connector
        .wait_for("the refused send", super::rig::SOON, |frame| {
            frame.asks_for("send")
        })
        .await
        .unwrap();
    rig.deliver("quick", "m2", "speak");
    rig.connector.reply_to(super::rig::SOON, "m2").await.unwrap();
    assert!(rig.texts("slow").is_empty(), "the other one still waits");
    rig.is_quiet(2).await;
    assert_eq!(rig.texts("slow"), ["short"]);
    assert!(began.elapsed() >= Duration::from_millis(5900));
    rig.stop().await;
}

#[tokio::test]
async fn an_interaction_is_answered_through_its_own_door_and_else_through_the_chat() {
    for granted in [true, false] {
        let rig = start(
            "discord",
            streams(vec!["done".to_owned()], Duration::ZERO),
            |_| {},
        )
        .await;
        if granted {
            rig.connector
                .grant_follow_up("agent:main:discord:group:c1:u1", "discord.interaction_token");
        }
        let interaction = json!({
            "id": "i1", "type": 2, "guild_id": "g1", "channel_id": "c1",
            "member": {"user": {"id": "u1", "username": "ann"}}, "data": {"name": "ask"},
        });
        let body = base64(&interaction.to_string());
        rig.connector
            .forward(&json!({"platform": "discord", "botId": "bot-1", "method": "POST", "path": "/", "headers": [], "bodyB64": body}))
            .unwrap();
        rig.is_quiet(1).await;
        assert_eq!(rig.ops("follow_up").len(), 1);
        assert_eq!(rig.ops("send").len(), usize::from(!granted), "granted: {granted}");
        rig.stop().await;
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
