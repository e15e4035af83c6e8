//! Presses: whose count, whose do not, and that none of them is a message.

use super::{BUTTONS, ask, owner, press, start};
use crate::support::memory_relay::{Running, event};
use base64::Engine as _;
use hermes_relay::relay::SeenOp;
use hermes_relay::store::{Inspector, Section};
use serde_json::{Value, json};

async fn delivered(relay: &Running, buffer_id: &str, event: Value) {
    relay.connector.deliver_buffered(buffer_id, event).await.unwrap();
    let seen = relay.seen("an acknowledgement", |seen| seen.acked(buffer_id) == 1);
    seen.await;
}

fn kinds<'a>(ops: impl IntoIterator<Item = &'a SeenOp>) -> Vec<&'a str> {
    ops.into_iter().filter_map(SeenOp::kind).collect()
}

#[tokio::test]
async fn the_authors_press_answers_and_the_message_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    assert_eq!(question.kind(), Some("prompt"));
    assert_eq!(question.action["reply_to"], json!("1"));
    let labels: Vec<_> = question.action["options"].as_array().unwrap().iter().collect();
    assert_eq!(labels.len(), 4, "{labels:?}");
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);

    delivered(&relay, "p1", press(&question, "o0", &owner("a"))).await;
    let replies = relay.replies("a", 3).await;
    assert_eq!(replies[2], "echo: allowed once hi");
    assert!(
        replies[1].contains("✅") && replies[1].starts_with("May I"),
        "{replies:?}"
    );
    let status = relay.wait_for_turns(0).await;
    assert_eq!(status.prompts_open, 0);
    assert_eq!(
        (
            status.tally.prompts_opened,
            status.tally.prompts_answered,
            status.tally.prompts_expired
        ),
        (1, 1, 0)
    );
    let seen = relay.stop().await;
    assert_eq!(kinds(&seen.ops), ["prompt", "edit", "send"]);
    assert_eq!(seen.ops[1].action["message_id"], json!("out-1"));
}

#[tokio::test]
async fn a_strangers_press_decides_nothing_and_is_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    delivered(&relay, "p1", press(&question, "o0", "mallory")).await;
    let replies = relay.replies("a", 2).await;
    assert!(replies[1].starts_with("Only the person"), "{replies:?}");
    delivered(&relay, "p2", press(&question, "o1", "mallory")).await;
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.prompts_open, status.turns_running), (1, 1));
    // The same message id as the stranger's press, and not a duplicate of it.
    delivered(&relay, "p3", press(&question, "o3", &owner("a"))).await;
    let replies = relay.replies("a", 4).await;
    assert_eq!(replies[3], "echo: denied hi");
    let status = relay.wait_for_turns(0).await;
    assert_eq!((status.tally.turns_started, status.tally.duplicates), (1, 0));
    assert_eq!(relay.stop().await.texts("a").len(), 4);
}

#[tokio::test]
async fn presses_that_come_again_or_are_not_ours_are_acknowledged_and_swallowed() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    let mut foreign = press(&question, "o0", &owner("a"));
    foreign["prompt_response"]["prompt_id"] = json!("000000.00000001");
    delivered(&relay, "foreign", foreign).await;
    let mut unreadable = press(&question, "o0", &owner("a"));
    unreadable["prompt_response"] = json!({"label": "Allow"});
    unreadable["message_id"] = json!("unreadable");
    delivered(&relay, "unreadable", unreadable).await;
    assert_eq!(relay.handle.status().await.unwrap().prompts_open, 1);

    let answer = press(&question, "o0", &owner("a"));
    delivered(&relay, "p1", answer.clone()).await;
    relay.replies("a", 3).await;
    delivered(&relay, "p1 again", answer).await;
    delivered(&relay, "too late", press(&question, "o3", &owner("a"))).await;
    delivered(&relay, "a-2", event("a", "2", "still here")).await;
    let replies = relay.replies("a", 4).await;
    assert_eq!(replies[2..], ["echo: allowed once hi", "echo: still here"]);
    let status = relay
        .wait_for_status("two turns", |status| status.tally.turns_done == 2)
        .await;
    assert_eq!((status.tally.turns_started, status.tally.duplicates), (2, 1));
    assert_eq!(relay.stop().await.texts("a").len(), 4);
    let rows = Inspector::open(dir.path())
        .unwrap()
        .list(Section::Finished, 0, 10)
        .unwrap();
    let ends: Vec<_> = rows.iter().map(|row| row.state).collect();
    assert_eq!(
        ends.iter().filter(|end| **end == "ignored").count(),
        3,
        "{ends:?}"
    );
    assert!(
        ends.iter().all(|end| matches!(*end, "done" | "ignored")),
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_discord_component_is_a_press() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let question = ask(&relay, "a", "1").await;
    let id = question.action["prompt_id"].as_str().unwrap();
    let interaction = json!({
        "type": 3,
        "id": "interaction",
        "channel_id": "a",
        "user": {"id": owner("a"), "username": "ann"},
        "message": {"id": "out-1"},
        "data": {"custom_id": format!("hp1:{id}:o1")},
    });
    let body = base64::engine::general_purpose::STANDARD.encode(interaction.to_string());
    let line = json!({
        "type": "passthrough_forward",
        "bufferId": "f1",
        "forward": {
            "platform": "discord", "method": "POST", "path": "/", "headers": [], "bodyB64": body,
        },
    });
    let forwarded = relay.connector.deliver_line_buffered("f1", line.to_string());
    forwarded.await.unwrap();
    let replies = relay.replies("a", 3).await;
    assert_eq!(replies[2], "echo: allowed for this conversation hi");
    let status = relay.wait_for_turns(0).await;
    assert_eq!((status.tally.forwards, status.tally.turns_started), (1, 1));
    relay.stop().await;
}

#[tokio::test]
async fn in_a_group_others_may_answer_only_where_that_is_set() {
    for anyone in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start(dir.path(), BUTTONS, |settings| {
            settings.prompts.anyone_in_group = anyone;
        })
        .await;
        let mut asked = event("a", "1", "ask hi");
        asked["source"]["chat_type"] = json!("group");
        delivered(&relay, "a-1", asked).await;
        let question = super::shown(&relay, "a").await;
        assert_eq!(
            question.action["options"].as_array().unwrap().len(),
            3,
            "nothing for ever"
        );
        let mut by_bob = press(&question, "o0", "bob");
        by_bob["source"]["chat_type"] = json!("group");
        delivered(&relay, "p1", by_bob).await;
        let replies = relay.replies("a", 2).await;
        assert_eq!(replies[1].starts_with("Only the person"), !anyone, "{replies:?}");
        if anyone {
            assert_eq!(relay.replies("a", 3).await[2], "echo: allowed once hi");
        } else {
            relay.wait_for_turns(1).await;
            let key = format!("agent:main:discord:group:a:{}", owner("a"));
            relay.connector.interrupt(&key, "a").await.unwrap();
        }
        relay.wait_for_turns(0).await;
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_press_from_before_a_restart_does_nothing_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start(dir.path(), BUTTONS, |_| {}).await;
    let old = ask(&relay, "a", "1").await;
    relay.crash().await;
    let relay = start(dir.path(), BUTTONS, |settings| {
        settings.sessions.interrupted_notice = None;
    })
    .await;
    let question = ask(&relay, "a", "2").await;
    assert_ne!(question.action["prompt_id"], old.action["prompt_id"]);
    delivered(&relay, "old", press(&old, "o0", &owner("a"))).await;
    let status = relay.handle.status().await.unwrap();
    assert_eq!((status.prompts_open, status.turns_running), (1, 1));
    relay.interrupt("a").await;
    relay.wait_for_turns(0).await;
    let replies = relay.stop().await;
    assert!(
        replies.texts("a").iter().all(|text| !text.starts_with("echo")),
        "{replies:?}"
    );
}
