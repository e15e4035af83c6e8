//! A message for a running turn is handed to it when the agent takes it, and waits otherwise.

use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::access::Mode;
use hermes_relay::agent::TurnEnd;
use hermes_relay::config::BusyMode;
use hermes_relay::store::AuditFile;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What it was told, and what ends its turn.
#[derive(Default)]
struct Told {
    steered: Mutex<Vec<String>>,
    end: Notify,
}

/// Runs until it is told `end`, and then says everything it was told. Takes nothing that starts with `no`.
fn listener(told: &Arc<Told>) -> ScriptedAgent {
    let agent = ScriptedAgent::sharing(told, |turn, told| async move {
        if turn.input.text == "listen" {
            told.end.notified().await;
        }
        let steered = std::mem::take(&mut *told.steered.lock().unwrap()).join(" ");
        turn.events.text(format!("{} {steered}", turn.input.text)).await;
        TurnEnd::Completed
    });
    let told = Arc::clone(told);
    agent.steered(move |input| {
        match input.text.as_str() {
            "end" => told.end.notify_one(),
            text if text.starts_with("no") => return false,
            text => told.steered.lock().unwrap().push(text.to_owned()),
        }
        true
    })
}

#[tokio::test]
async fn the_audit_log_says_who_wrote_what_joined_a_turn() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::default();
    let relay = start_with(dir.path(), listener(&told), |s| {
        s.sessions.busy_mode = BusyMode::Steer;
        s.access.mode = Mode::Open;
        s.access.is_set = true;
    })
    .await;
    relay.deliver("a", "1", "listen").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "end").await;
    relay.replies("a", 1).await;
    relay.stop().await;
    let mut written = Vec::new();
    let read = AuditFile::read(dir.path(), |line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["agent"] == "tested" {
            let text = |key: &str| entry[key].as_str().unwrap().to_owned();
            written.push((text("event"), text("person"), entry["turn"].clone()));
        }
    });
    read.unwrap();
    let (event, person, turn) = &written[0];
    assert_eq!((event.as_str(), person.as_str()), ("turn", "discord:user-of-a"));
    let message = ("message".to_owned(), person.clone(), turn.clone());
    assert_eq!(written[1..], [message]);
}

#[tokio::test]
async fn what_the_agent_takes_joins_the_turn_and_what_it_does_not_take_waits_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::default();
    let relay = start_with(dir.path(), listener(&told), |s| {
        s.sessions.busy_mode = BusyMode::Steer;
    })
    .await;
    for (id, text) in [("1", "listen"), ("2", "left"), ("3", "right")] {
        relay.deliver("a", id, text).await;
    }
    relay.deliver("a", "4", "no thanks").await;
    relay.deliver("a", "5", "later").await;
    relay
        .seen("five acknowledgements", |seen| seen.acks.len() == 5)
        .await;
    // Messages are acknowledged before they are acted on, and that is done before anybody is answered.
    let tally = relay.handle.status().await.unwrap().tally;
    assert_eq!((tally.steered, tally.turns_started), (2, 1));
    assert_eq!(
        *told.steered.lock().unwrap(),
        ["left", "right"],
        "nothing jumps over what waits"
    );
    told.end.notify_one();
    assert_eq!(
        relay.replies("a", 3).await,
        ["listen left right", "no thanks ", "later "]
    );
    let tally = relay.handle.status().await.unwrap().tally;
    assert_eq!((tally.steered, tally.turns_done), (2, 3));
    relay.stop().await;
}
