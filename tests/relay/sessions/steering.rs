//! A message for a running turn is handed to it when the agent takes it, and waits otherwise.

use crate::journal::copy;
use crate::support::memory_relay::start_with;
use crate::support::scripted_agent::ScriptedAgent;
use hermes_relay::access::{ByRole, Mode, PersonRule, Role};
use hermes_relay::agent::TurnEnd;
use hermes_relay::config::{BusyMode, Settings};
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
    let status = relay
        .wait_for_status("two wait", |status| status.messages_waiting == 2)
        .await;
    assert_eq!((status.tally.steered, status.tally.turns_started), (2, 1));
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

#[tokio::test]
async fn what_a_turn_was_handed_before_a_kill_is_reported_and_does_not_run() {
    const NOTICE: &str = "cut short";
    let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (dir.path().to_owned(), killed.path().to_owned());
    let agent = ScriptedAgent::new(|turn| async move {
        turn.cancel.cancelled().await;
        TurnEnd::Cancelled { confirmed: true }
    });
    // The journal as it is when the agent is given the message.
    let agent = agent.steered(move |_| {
        copy(&from, &to);
        true
    });
    let adjust = |settings: &mut Settings| {
        settings.sessions.busy_mode = BusyMode::Steer;
        settings.sessions.interrupted_notice = Some(NOTICE.to_owned());
    };
    let relay = start_with(dir.path(), agent.clone(), adjust).await;
    relay.deliver("a", "1", "work").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "and hurry").await;
    relay
        .wait_for_status("a steered message", |status| status.tally.steered == 1)
        .await;
    relay.crash().await;

    let relay = start_with(killed.path(), agent, adjust).await;
    assert_eq!(relay.replies("a", 2).await, [NOTICE, NOTICE]);
    let tally = relay.handle.status().await.unwrap().tally;
    assert_eq!((tally.turns_interrupted, tally.turns_started), (2, 0));
    relay.stop().await;
}

#[tokio::test]
async fn what_the_agent_does_not_take_counts_as_a_turn_that_begins() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::default();
    let relay = start_with(dir.path(), listener(&told), |s| {
        s.sessions.busy_mode = BusyMode::Steer;
        s.access.mode = Mode::List;
        s.access.people = vec![PersonRule {
            platform: "discord".to_owned(),
            user: "user-of-a".to_owned(),
            role: Role::User,
            ..PersonRule::default()
        }];
        s.access.limits.turns_per_day = Some(ByRole::All(2));
    })
    .await;
    relay.deliver("a", "1", "listen").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "no thanks").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    told.end.notify_one();
    assert_eq!(relay.replies("a", 2).await, ["listen ", "no thanks "]);
    relay.deliver("a", "3", "more").await;
    let replies = relay.replies("a", 3).await;
    assert_ne!(replies[2], "more ", "that was the limit");
    assert_eq!(relay.handle.status().await.unwrap().tally.turns_started, 2);
    relay.stop().await;
}

#[tokio::test]
async fn what_the_agent_does_not_take_runs_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::default();
    let adjust = |s: &mut Settings| {
        s.sessions.busy_mode = BusyMode::Steer;
        s.sessions.grace_secs = 0;
        s.sessions.interrupted_notice = None;
        s.shutdown.drain_secs = 0;
    };
    let relay = start_with(dir.path(), listener(&told), adjust).await;
    relay.deliver("a", "1", "listen").await;
    relay.wait_for_turns(1).await;
    relay.deliver("a", "2", "no thanks").await;
    relay
        .wait_for_status("it waits", |status| status.messages_waiting == 1)
        .await;
    relay.stop().await;

    let relay = start_with(dir.path(), listener(&told), adjust).await;
    assert_eq!(relay.replies("a", 1).await, ["no thanks "]);
    relay.stop().await;
}
