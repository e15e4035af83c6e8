//! A message for a running turn is handed to it when the agent takes it, and waits otherwise.

use crate::support::memory_relay::start_with;
use hermes_relay::agent::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd, TurnInput};
use hermes_relay::config::BusyMode;
use hermes_relay::wire::SessionKey;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Runs until it is told `end`, and then says everything it was told. Takes nothing that starts with `no`.
#[derive(Clone, Default)]
struct Listener {
    steered: Arc<Mutex<Vec<String>>>,
    end: Arc<Notify>,
}

impl Agent for Listener {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "listener".into(),
            steers: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            if turn.input.text == "listen" {
                self.end.notified().await;
            }
            let steered = self
                .steered
                .lock()
                .unwrap()
                .drain(..)
                .collect::<Vec<_>>()
                .join(" ");
            turn.events.text(format!("{} {steered}", turn.input.text)).await;
            TurnEnd::Completed
        })
    }

    fn steer(&self, _session: &SessionKey, input: &TurnInput) -> bool {
        if input.text == "end" {
            self.end.notify_one();
        } else if input.text.starts_with("no") {
            return false;
        } else {
            self.steered.lock().unwrap().push(input.text.clone());
        }
        true
    }
}

#[tokio::test]
async fn what_the_agent_takes_joins_the_turn_and_what_it_does_not_take_waits_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Listener::default();
    let relay = start_with(dir.path(), agent.clone(), |s| {
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
    assert_eq!(
        *agent.steered.lock().unwrap(),
        ["left", "right"],
        "nothing jumps over what waits"
    );
    agent.end.notify_one();
    assert_eq!(
        relay.replies("a", 3).await,
        ["listen left right", "no thanks ", "later "]
    );
    let tally = relay.handle.status().await.unwrap().tally;
    assert_eq!((tally.steered, tally.turns_done), (2, 3));
    relay.stop().await;
}
