//! Traces of turns whose files go out while they run, and of answers that the connector will not have.

use std::sync::Arc;

use hermes_relay::agent::{Agent, AgentEvent, AgentFuture, AgentInfo, Media, MediaLocation, Turn, TurnEnd};
use hermes_relay::config::{Durability, Settings};
use hermes_relay::relay::{Answering, SeenOp};
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::json;
use tokio::sync::Notify;

use crate::support::memory_relay::{Running, start_answering};
use crate::traces::{about, named, to, traced, willing};

/// Sends a picture, waits for the word, and says two.
#[derive(Clone, Default)]
struct Painter(Arc<Notify>);

impl Agent for Painter {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "painter".into(),
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            turn.events.emit(picture()).await;
            self.0.notified().await;
            turn.events.text("two words").await;
            TurnEnd::Completed
        })
    }
}

fn picture() -> AgentEvent {
    AgentEvent::Media(Media {
        location: MediaLocation::Url("https://files.example/cat.png".to_owned()),
        caption: String::new(),
        kind: None,
        name: None,
    })
}

async fn start(dir: &std::path::Path, agent: &Painter, answering: Answering, base: &str) -> Running {
    let platform = CapabilityDescriptor {
        supported_ops: ["send", "send_media"].map(str::to_owned).to_vec(),
        ..CapabilityDescriptor::placeholder("discord")
    };
    let adjust = |settings: &mut Settings| {
        to(base)(settings);
        settings.journal.durability = Durability::Full;
    };
    start_answering(dir, agent.clone(), &platform, answering, adjust).await
}

/// Waits for a chat's op of this kind, and gives its number.
async fn op(relay: &Running, chat: &str, kind: &str) -> u64 {
    let is_it = |op: &&SeenOp| op.chat() == Some(chat) && op.kind() == Some(kind);
    let seen = relay
        .seen(kind, |seen| seen.ops.iter().any(|op| is_it(&op)))
        .await;
    seen.ops.iter().find(is_it).unwrap().number
}

fn declined() -> serde_json::Value {
    json!({"success": false, "code": "egress_declined", "error": "not here"})
}

#[tokio::test]
async fn a_file_that_went_out_in_between_does_not_finish_the_trace() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let agent = Painter::default();
    let relay = start(dir.path(), &agent, Answering::Hold, &collector.base()).await;
    relay.hears("a", "1", "go").await;
    let file = op(&relay, "a", "send_media").await;
    agent.0.notify_one();
    relay
        .stands("its end", |status| {
            status.tally.turns_done == 1 && status.ops_owed == 2
        })
        .await;
    assert!(relay.connector.answer(file, &json!({"success": true})));
    let text = op(&relay, "a", "send").await;
    assert!(relay.connector.answer(text, &json!({"success": true})));
    let trace = traced(&collector, 1).await.remove(0);
    assert_eq!(about(&trace[0], "relay.ops").as_deref(), Some("1"));
    let ops: Vec<_> = named(&trace, "op")
        .into_iter()
        .map(|op| about(op, "relay.op"))
        .collect();
    assert_eq!(ops, [Some("send".to_owned())]);
    relay.stop().await;
}

#[tokio::test]
async fn a_turn_that_is_declined_while_it_runs_is_told_so() {
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let agent = Painter::default();
    let relay = start(dir.path(), &agent, Answering::Hold, &collector.base()).await;
    relay.hears("a", "1", "go").await;
    let file = op(&relay, "a", "send_media").await;
    assert!(relay.connector.answer(file, &declined()));
    relay
        .stands("a refusal", |status| status.tally.ops_refused == 1)
        .await;
    agent.0.notify_one();
    let trace = traced(&collector, 1).await.remove(0);
    assert_eq!(about(&trace[0], "relay.outcome").as_deref(), Some("declined"));
    assert_eq!(about(&trace[0], "relay.ops").as_deref(), Some("0"));
    relay.stop().await;
}

#[tokio::test]
async fn no_trace_stays_open_whenever_its_answer_is_declined() {
    const TURNS: usize = 60;
    let (dir, collector) = (tempfile::tempdir().unwrap(), willing().await);
    let agent = Painter::default();
    let relay = start(dir.path(), &agent, Answering::Hold, &collector.base()).await;
    // The refusal of the file meets the end of its turn before its commit, in it and after it.
    for turn in 0..TURNS {
        let chat = format!("chat-{turn}");
        relay.hears(&chat, "1", "go").await;
        let file = op(&relay, &chat, "send_media").await;
        agent.0.notify_one();
        if turn % 3 > 0 {
            // As soon as its end is decided; the journal takes longer.
            while relay.handle.status().await.unwrap().tally.turns_done <= turn as u64 {}
        }
        assert!(relay.connector.answer(file, &declined()));
        relay
            .stands("its end", |status| {
                status.turns_running == 0 && status.ops_owed == 0
            })
            .await;
    }
    assert_eq!(traced(&collector, TURNS).await.len(), TURNS);
    relay.stop().await;
}
