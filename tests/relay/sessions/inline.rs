//! Turns of an agent that answers at once end as any others do, also when one of them waits after all, or panics.

use crate::support::memory_relay::start_with;
use hermes_relay::agent::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd};

/// Keeps what it is told, panics, or says what it kept.
#[derive(Clone)]
struct Quick {
    at_once: bool,
}

impl Agent for Quick {
    fn info(&self) -> AgentInfo {
        AgentInfo::default()
    }

    fn answers_inline(&self) -> bool {
        self.at_once
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
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
        })
    }
}

#[tokio::test]
async fn what_was_wished_for_counts_and_what_waits_goes_on() {
    for at_once in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_with(dir.path(), Quick { at_once }, |_| {}).await;
        for (number, text) in ["first", "second", "recall"].into_iter().enumerate() {
            relay.deliver("a", &number.to_string(), text).await;
        }
        assert_eq!(relay.replies("a", 1).await, ["second"], "{at_once}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_panic_ends_its_turn_alone() {
    for at_once in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let relay = start_with(dir.path(), Quick { at_once }, |_| {}).await;
        relay.deliver("a", "1", "panic").await;
        let told = relay.replies("a", 1).await;
        assert!(told[0].contains("went wrong"), "{at_once}: {told:?}");
        relay.deliver("a", "2", "kept").await;
        relay.deliver("a", "3", "recall").await;
        assert_eq!(relay.replies("a", 2).await[1], "kept", "{at_once}");
        relay.stop().await;
    }
}
