//! Turns of an agent that answers inline end as any others do, also when one of them waits after all, or panics.

use std::sync::{Arc, Mutex};

use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::agent::{EventSink, TurnEnd};
use hermes_relay::relay::Record;
use tokio::sync::watch;

/// Keeps what it is told, panics, or says what it kept.
fn quick(inline: bool) -> ScriptedAgent {
    let agent = ScriptedAgent::new(|turn| async move {
        match turn.input.text.as_str() {
            "panic" => panic!("as asked"),
            // Has to be read from the journal: this waits.
            "recall" => {
                let kept = turn.events.load_state().await.unwrap_or_default();
                turn.events.text(String::from_utf8(kept).unwrap()).await;
            }
            text => turn.events.save_state(text.as_bytes().to_vec()).await,
        }
        TurnEnd::Completed
    });
    agent.inline(inline)
}

#[tokio::test]
async fn saved_state_is_kept_and_queued_turns_run() {
    for inline in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_with(dir.path(), quick(inline), |_| {}).await;
        for (number, text) in ["first", "second", "recall"].into_iter().enumerate() {
            relay.deliver("a", &number.to_string(), text).await;
        }
        assert_eq!(relay.replies("a", 1).await, ["second"], "{inline}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_panic_ends_its_turn_alone() {
    for inline in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_with(dir.path(), quick(inline), |_| {}).await;
        relay.deliver("a", "1", "panic").await;
        let replies = relay.replies("a", 1).await;
        assert!(replies[0].contains("went wrong"), "{inline}: {replies:?}");
        relay.deliver("a", "2", "kept").await;
        relay.deliver("a", "3", "recall").await;
        assert_eq!(relay.replies("a", 2).await[1], "kept", "{inline}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn what_a_turn_kept_of_its_channel_says_nothing_in_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let kept = Arc::new(Mutex::<Option<EventSink>>::default());
    let agent = ScriptedAgent::sharing(&kept, |turn, kept| async move {
        let before = kept.lock().unwrap().replace(turn.events.clone());
        if let Some(before) = before {
            before.text("too late, ").await;
        }
        turn.events.text(format!("to {}", turn.input.text)).await;
        if turn.input.text == "third" {
            *kept.lock().unwrap() = None;
        }
        TurnEnd::Completed
    });
    let relay = start_with(dir.path(), agent.inline(true), |_| {}).await;
    let texts = ["first", "second", "third", "fourth", "fifth"];
    for (number, text) in texts.into_iter().enumerate() {
        relay.deliver("a", &number.to_string(), text).await;
    }
    let expected = texts.map(|text| format!("to {text}"));
    assert_eq!(relay.replies("a", texts.len()).await, expected);
    relay.stop().await;
}

#[tokio::test]
async fn a_message_is_acknowledged_before_it_is_acted_on() {
    let dir = tempfile::tempdir().unwrap();
    let record = Arc::new(Mutex::<Option<watch::Receiver<Record>>>::default());
    let agent = ScriptedAgent::sharing(&record, |turn, record| async move {
        let record = record.lock().unwrap().clone().unwrap();
        let is_acked = record.borrow().acks.contains(&turn.input.text);
        turn.events.text(is_acked.to_string()).await;
        TurnEnd::Completed
    });
    let relay = start_with(dir.path(), agent.inline(true), |_| {}).await;
    *record.lock().unwrap() = Some(relay.connector.record());
    relay.deliver("a", "1", "a-1").await;
    assert_eq!(relay.replies("a", 1).await, ["true"]);
    relay.stop().await;
}
