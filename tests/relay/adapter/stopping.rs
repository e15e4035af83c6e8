//! Stop on the page stops what runs, on every platform that is simulated.

use hermes_relay::adapter::SessionNames;
use serde_json::{Value, json};

use super::rig::{Rig, start};
use crate::support::dev::{Hint, PageSettings};
use crate::support::http_stub::plain_http;
use crate::support::scripted_agent::ScriptedAgent;
use crate::support::wait::eventually;
use hermes_relay::agent::TurnEnd;

fn hanging() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        turn.cancel.cancelled().await;
        TurnEnd::Cancelled { confirmed: true }
    })
}

/// What a person does on the page.
async fn act(rig: &Rig, page: &str, command: &str, body: &Value) -> Value {
    let request = plain_http()
        .post(format!("{page}{command}"))
        .header("origin", rig.connector.http_base())
        .body(body.to_string());
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200, "{command}");
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn the_pages_stop_reaches_the_turns_of_its_chat_on_every_platform() {
    for platform in ["discord", "telegram", "slack", "whatsapp", "plain", "legacy"] {
        let rig = start(platform, hanging(), |_| {}).await;
        let page = rig.connector.open_page(PageSettings {
            platform: platform.to_owned(),
            agent: "player".to_owned(),
            hints: Hint::for_agent(""),
            sessions: SessionNames::default(),
            relay: None,
        });
        let running = async |count: usize| {
            eventually(&format!("{count} turns on {platform}"), async || {
                let status = rig.handle.status().await.expect("the relay runs");
                if status.turns_running == count {
                    Ok(status)
                } else {
                    Err(status)
                }
            })
            .await
        };
        // On Slack each of them is a turn; elsewhere the second waits.
        let turns = if platform == "slack" { 2 } else { 1 };
        for text in ["one", "two"] {
            act(
                &rig,
                &page,
                "say",
                &json!({"chat": "dm-1", "who": "u1", "text": text}),
            )
            .await;
        }
        act(
            &rig,
            &page,
            "say",
            &json!({"chat": "group-2", "who": "u2", "text": "beside"}),
        )
        .await;
        running(turns + 1).await;
        // Until nothing of the chat is left: what waited runs after the first.
        let stopped = act(&rig, &page, "stop", &json!({"chat": "dm-1"})).await;
        assert_eq!(stopped["sessions"], turns, "{platform}");
        eventually("a stopped turn", async || {
            let status = rig.handle.status().await.expect("the relay runs");
            status.tally.turns_stopped == turns as u64
        })
        .await;
        if platform != "slack" {
            running(2).await;
            act(&rig, &page, "stop", &json!({"chat": "dm-1"})).await;
        }
        let status = running(1).await;
        assert_eq!(status.tally.turns_stopped, 2, "{platform}");
        act(&rig, &page, "stop", &json!({"chat": "group-2"})).await;
        running(0).await;
        rig.stop().await;
    }
}
