//! A relay inside another program: an agent of one's own, answering a chat without a network.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hermes_relay::{
    Agent, AgentFuture, AgentInfo, CapabilityDescriptor, MemoryTransport, Relay, Settings, Turn, TurnEnd,
};
use serde_json::json;

/// Says everything louder.
struct Shout;

impl Agent for Shout {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "shout".into(),
            repeatable: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            turn.events.text(turn.input.text.to_uppercase()).await;
            TurnEnd::Completed
        })
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let state = tempfile::tempdir()?;
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
    let relay = Relay::builder(Settings::embedded(state.path()))
        .agent("shout", Shout)
        .transport(Arc::new(transport))
        .build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));

    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"});
    let event = json!({"text": "hello", "message_id": "m1", "source": source});
    connector.deliver_buffered("b1", event).await?;
    let within = Duration::from_secs(10);
    let seen = connector.wait_for(within, |seen| !seen.ops.is_empty()).await;
    println!("{}", seen.ok_or("no answer")?.texts("c1").join("\n"));

    drop(stop);
    running.await?;
    Ok(())
}
