//! Relays inside another program: side by side, asked and told through their handles.

use crate::support::memory_relay::{SOON, event, session, start_with};
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{EchoAgent, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::relay::{BuildError, MemoryTransport, NotRunning, Relay, SendError, StopOutcome};
use hermes_relay::wire::{CapabilityDescriptor, SessionKey};
use serde_json::json;
use std::sync::Arc;

/// Answers with this name.
fn speaker(name: &'static str) -> ScriptedAgent {
    ScriptedAgent::new(move |turn| async move {
        let text = format!("{name} heard {}", turn.input.text);
        turn.events.text(text).await;
        TurnEnd::Completed
    })
}

#[tokio::test]
async fn two_relays_in_one_process_are_independent() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = start_with(dirs[0].path(), speaker("one"), |_| {}).await;
    let two = start_with(dirs[1].path(), speaker("two"), |_| {}).await;
    for id in ["1", "2", "3"] {
        one.deliver("shared", id, id).await;
        two.deliver("shared", id, id).await;
        two.deliver("only two", id, id).await;
    }
    assert_eq!(
        one.replies("shared", 3).await,
        ["one heard 1", "one heard 2", "one heard 3"]
    );
    assert_eq!(
        two.replies("shared", 3).await,
        ["two heard 1", "two heard 2", "two heard 3"]
    );
    two.replies("only two", 3).await;
    let first = one
        .wait_for_status("settled", |status| status.tally.ops_applied == 3)
        .await;
    let second = two
        .wait_for_status("settled", |status| status.tally.ops_applied == 6)
        .await;
    assert_eq!(
        (first.link.as_str(), first.platforms),
        ("live", vec!["discord".to_owned()])
    );
    assert_eq!((first.chats_known, second.chats_known), (1, 2));
    assert_eq!(
        (first.turns_running, first.messages_waiting, first.ops_durable),
        (0, 0, 0)
    );
    assert_eq!(
        (first.tally.inbound, first.tally.acks, first.tally.turns_done),
        (3, 3, 3)
    );
    assert_eq!(
        (second.tally.inbound, second.tally.acks, second.tally.turns_done),
        (6, 6, 6)
    );
    one.stop().await;
    two.deliver("shared", "4", "4").await;
    assert_eq!(two.replies("shared", 4).await[3], "two heard 4");
    two.stop().await;
}

#[tokio::test]
async fn the_settings_may_name_one_of_several_agents() {
    for (named, answer) in [
        ("", "one heard hi"),
        ("second", "two heard hi"),
        ("echo", "echo: hi"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
        let settings = Settings {
            agent: named.into(),
            ..Settings::embedded(dir.path())
        };
        let relay = Relay::builder(settings)
            .agent("first", speaker("one"))
            .agent("second", speaker("two"))
            .transport(Arc::new(transport))
            .build()
            .unwrap();
        let running = tokio::spawn(relay.run(std::future::pending()));
        connector
            .deliver_buffered("b", event("a", "1", "hi"))
            .await
            .unwrap();
        let seen = connector
            .wait_for(SOON, |seen| seen.ops.len() == 1)
            .await
            .unwrap();
        assert_eq!(seen.texts("a"), [answer]);
        running.abort();
    }
}

#[tokio::test]
async fn a_state_directory_serves_one_relay_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |_| {}).await;
    let second = Relay::builder(Settings {
        connector: hermes_relay::config::ConnectorConfig {
            url: Some("ws://127.0.0.1:9/".into()),
            ..Default::default()
        },
        ..Settings::embedded(dir.path())
    });
    assert!(matches!(second.build(), Err(BuildError::Journal(_))));
    relay.stop().await;
}

#[tokio::test]
async fn a_chat_that_spoke_before_a_restart_can_be_spoken_to_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |_| {}).await;
    relay.deliver("a", "1", "hi").await;
    relay.replies("a", 1).await;
    assert_eq!(
        relay.handle.send("b", "hello?").await,
        Err(SendError::UnknownChat)
    );
    assert_eq!(relay.handle.send("a", "  ").await, Err(SendError::Empty));
    let old = relay.handle.clone();
    relay.stop().await;
    assert_eq!(
        old.send("a", "too late").await,
        Err(SendError::NotRunning(NotRunning))
    );
    assert_eq!(old.status().await.err(), Some(NotRunning));
    let stopped = old.stop_turn(SessionKey::from_text(session("a"))).await;
    assert_eq!(stopped, Err(NotRunning));

    let relay = start_with(dir.path(), EchoAgent, |_| {}).await;
    relay.handle.send("a", "are you there?").await.unwrap();
    let seen = relay.seen("the message", |seen| seen.ops.len() == 1).await;
    let op = &seen.ops[0];
    assert_eq!((op.kind(), op.chat()), (Some("send"), Some("a")));
    assert_eq!(
        (op.text(), op.platform.as_deref()),
        (Some("are you there?"), Some("discord"))
    );
    assert_eq!(op.metadata()["scope_id"], json!("guild"));
    assert_eq!(op.metadata()["user_id"], json!("user-of-a"));
    assert_eq!(op.action["reply_to"], json!(null));
    assert_eq!(
        relay.handle.send("b", "hello?").await,
        Err(SendError::UnknownChat)
    );
    relay.stop().await;
}

#[tokio::test]
async fn stop_turn_stops_exactly_one() {
    let dir = tempfile::tempdir().unwrap();
    let relay = start_with(dir.path(), EchoAgent, |settings| settings.shutdown.drain_secs = 0).await;
    for chat in ["a", "b", "c"] {
        relay.deliver(chat, "1", "sleep=600000 late").await;
    }
    relay.wait_for_turns(3).await;
    let stop = |chat: &str| {
        let (handle, session) = (relay.handle.clone(), SessionKey::from_text(session(chat)));
        async move { handle.stop_turn(session).await }
    };
    assert_eq!(stop("b").await, Ok(StopOutcome::Stopped));
    let status = relay.wait_for_turns(2).await;
    assert_eq!(status.tally.turns_stopped, 1);
    for chat in ["b", "nobody"] {
        assert_eq!(stop(chat).await, Ok(StopOutcome::Elsewhere), "{chat}");
    }
    relay.deliver("b", "2", "again").await;
    assert_eq!(relay.replies("b", 1).await, ["echo: again"]);
    relay.wait_for_turns(2).await;
    relay.stop().await;
}
