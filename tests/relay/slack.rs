//! Slack in a running relay: where replies go, and what `/stop` stops where each message is a session of its own.

use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::adapter::{SlackConfig, SlackReplyMode};
use hermes_relay::agent::{AgentEvent, EchoAgent, Media, MediaLocation, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};

use crate::sessions::HANG;
use crate::support::memory_relay::{Running, event, start_on};
use crate::support::scripted_agent::ScriptedAgent;

fn platform(ops: &[&str]) -> CapabilityDescriptor {
    CapabilityDescriptor {
        supports_edit: ops.contains(&"edit"),
        supported_ops: ops.iter().map(|&op| op.to_owned()).collect(),
        ..CapabilityDescriptor::placeholder("slack")
    }
}

async fn say(relay: &Running, chat: &str, chat_type: &str, id: &str, user: &str, text: &str) {
    let mut said = event(chat, id, text);
    said["source"]["platform"] = json!("slack");
    said["source"]["chat_type"] = json!(chat_type);
    said["source"]["user_id"] = json!(user);
    let buffer_id = format!("{chat}-{id}");
    relay.connector.deliver_buffered(&buffer_id, said).await.unwrap();
}

/// Answers with a picture and a text.
fn painter() -> ScriptedAgent {
    ScriptedAgent::new(|turn| async move {
        let picture = AgentEvent::Media(Media {
            location: MediaLocation::Url("https://files.example/cat.png".to_owned()),
            caption: String::new(),
            kind: None,
            name: None,
        });
        turn.events.emit(picture).await;
        turn.events.text("a cat").await;
        TurnEnd::Completed
    })
}

fn quiet(settings: &mut Settings) {
    settings.streaming.mode = StreamMode::Off;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

#[tokio::test]
async fn text_and_files_go_into_the_chat_or_into_a_thread_as_the_settings_say() {
    let modes = [
        ("C_FLAT".to_owned(), SlackReplyMode::Channel),
        ("D_THREAD".to_owned(), SlackReplyMode::Thread),
    ];
    for (reply_in_thread, chat, chat_type, anchored) in [
        (true, "D1", "dm", true),
        (false, "D1", "dm", false),
        (false, "C1", "channel", true),
        (true, "C_FLAT", "channel", false),
        (false, "D_THREAD", "dm", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_on(
            dir.path(),
            painter(),
            &platform(&["send", "send_media"]),
            |settings| {
                quiet(settings);
                settings.slack = SlackConfig {
                    reply_in_thread,
                    channel_reply_modes: modes.clone().into(),
                    ..SlackConfig::default()
                };
            },
        )
        .await;
        say(&relay, chat, chat_type, "17.1", "u1", "a cat, please").await;
        relay.seen("both", |seen| seen.ops.len() == 2).await;
        let seen = relay.stop().await;
        for (op, kind) in seen.ops.iter().zip(["send_media", "send"]) {
            assert_eq!(op.kind(), Some(kind));
            let wanted = if anchored { json!("17.1") } else { Value::Null };
            let what = format!("{reply_in_thread} {chat}: {op:?}");
            assert_eq!(op.action["reply_to"], wanted, "{what}");
            assert_eq!(op.metadata()["thread_id"], wanted, "{what}");
        }
    }
}

#[tokio::test]
async fn a_link_that_came_late_is_posted_anew_and_the_message_that_grew_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let agent = ScriptedAgent::new(|turn| async move {
        turn.events.text("See this: ").await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        turn.events.text("https://example.com/x").await;
        TurnEnd::Completed
    });
    let ops = ["send", "edit", "delete"];
    let relay = start_on(dir.path(), agent, &platform(&ops), |settings| {
        quiet(settings);
        settings.streaming.mode = StreamMode::Edit;
        settings.streaming.interval_ms = 10;
        settings.streaming.unfurl_links = Some(true);
    })
    .await;
    say(&relay, "D1", "dm", "17.1", "u1", "a link, please").await;
    let removed = |op: &hermes_relay::relay::SeenOp| op.kind() == Some("delete");
    let seen = relay.seen("a removal", |seen| seen.ops.iter().any(removed)).await;
    let kinds: Vec<_> = seen.ops.iter().filter_map(|op| op.kind()).collect();
    let ops: Vec<_> = seen.ops.iter().collect();
    let [first, .., last, delete] = ops[..] else {
        panic!("{kinds:?}")
    };
    assert_eq!(
        (first.kind(), last.kind()),
        (Some("send"), Some("send")),
        "{kinds:?}"
    );
    assert_eq!(last.text(), Some("See this: https://example.com/x"));
    assert_eq!(delete.action["message_id"], json!(first.message_id));
    assert!(
        kinds.iter().filter(|kind| **kind == "send").count() == 2,
        "{kinds:?}"
    );
    relay.wait_for_turns(0).await;
    relay.stop().await;
}

#[tokio::test]
async fn stop_stops_the_turns_of_whoever_asks_in_that_chat_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_on(dir.path(), EchoAgent, &platform(&["send"]), |settings| {
        quiet(settings);
        settings.shutdown.drain_secs = 0;
    })
    .await;
    for (chat, chat_type, id, user) in [
        ("D1", "dm", "1", "u1"),
        ("D1", "dm", "2", "u1"),
        ("C1", "channel", "3", "u1"),
        ("C1", "channel", "4", "u2"),
    ] {
        say(&relay, chat, chat_type, id, user, HANG).await;
    }
    relay.wait_for_turns(4).await;
    say(&relay, "D1", "dm", "5", "u1", "/stop").await;
    relay
        .seen("an answer", |seen| seen.texts("D1").contains(&"Stopped."))
        .await;
    let status = relay.wait_for_turns(2).await;
    assert_eq!(status.tally.turns_stopped, 2);
    // As Slack's own command.
    say(&relay, "C1", "channel", "6", "u2", "/hermes stop").await;
    relay.wait_for_turns(1).await;
    let sessions = relay.handle.sessions(10).await.unwrap().sessions;
    let left: Vec<_> = sessions.iter().map(|session| session.session.as_str()).collect();
    assert_eq!(left, ["agent:main:slack:channel:guild:C1:3"]);
    // Nothing of theirs runs there any more.
    say(&relay, "D1", "dm", "7", "u1", "/stop").await;
    let nothing = |text: &&str| text.starts_with("Nothing is running");
    relay
        .seen("an answer", |seen| seen.texts("D1").iter().any(nothing))
        .await;
    assert_eq!(relay.wait_for_turns(1).await.tally.turns_stopped, 3);
    relay.stop().await;
}
