//! An agent that takes messages while its turn runs.

use std::sync::Arc;

use hermes_relay::agent::TurnInput;
use hermes_relay::chat::{CapabilityDescriptor, SessionKey};
use hermes_relay::handle::Status;
use hermes_relay::settings::{BusyMode, Durability, StreamMode};
use hermes_relay::{Agent, AgentFuture, AgentInfo, MemoryTransport, Relay, Settings, Turn, TurnEnd};
use tokio::sync::{Mutex, mpsc};

use crate::{SOON, message};

/// Adds up numbers until it is told `sum`.
struct Adder {
    told: mpsc::Sender<String>,
    heard: Mutex<mpsc::Receiver<String>>,
}

impl Agent for Adder {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "adder".into(),
            steers: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let mut sum: u32 = turn.input.text.parse().unwrap_or_default();
            let mut heard = self.heard.lock().await;
            while let Some(text) = heard.recv().await {
                match text.parse::<u32>() {
                    Ok(number) => sum += number,
                    Err(_) => break,
                }
            }
            turn.events.text(sum.to_string()).await;
            TurnEnd::Completed
        })
    }

    fn steer(&self, session: &SessionKey, input: &TurnInput) -> bool {
        session.as_str().contains("c1") && self.told.try_send(input.text.clone()).is_ok()
    }
}

#[tokio::test]
async fn messages_steer_a_running_turn() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings::embedded(state.path());
    settings.sessions.busy_mode = BusyMode::Steer;
    settings.streaming.mode = StreamMode::Off;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
    settings.journal.durability = Durability::Process;
    let (told, heard) = mpsc::channel(8);
    let adder = Adder {
        told,
        heard: Mutex::new(heard),
    };
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let relay = Relay::builder(settings)
        .agent("adder", adder)
        .transport(Arc::new(transport))
        .build()
        .unwrap();
    let handle = relay.handle();
    let running = tokio::spawn(relay.run(std::future::pending()));
    for (id, text) in [("m1", "40"), ("m2", "2"), ("m3", "sum")] {
        connector.deliver_buffered(id, message(id, text)).await.unwrap();
        let acked = connector.wait_for(SOON, |seen| seen.acked(id) == 1);
        acked.await.expect("an acknowledgement");
    }
    let seen = connector.wait_for(SOON, |seen| !seen.ops.is_empty()).await;
    assert_eq!(seen.unwrap().texts("c1"), ["42"]);
    let Status { tally, .. } = handle.status().await.unwrap();
    assert_eq!((tally.turns_started, tally.steered), (1, 2));
    running.abort();
}
