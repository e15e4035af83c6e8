//! A transport of one's own, as small as one can be.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_relay::chat::CapabilityDescriptor;
use hermes_relay::transport::{
    DormancyRefused, FrameBody, Generation, InboundFrame, InboundSender, LinkStatus, MessageEvent, Op,
    OpResult, Outcome, RelayTransport, ResultSender, SendResult, TransportFuture,
};
use hermes_relay::{EchoAgent, Relay, Settings};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::{SOON, message};

/// Brings one message as soon as there is a connection, and applies every op.
struct OneMessage {
    event: Value,
    status: watch::Sender<LinkStatus>,
    applied: mpsc::Sender<Value>,
    acknowledged: Mutex<Vec<String>>,
}

impl RelayTransport for OneMessage {
    fn connect(&self, inbound: InboundSender) {
        let generation = Generation::first();
        let descriptor = CapabilityDescriptor::placeholder("discord");
        self.status
            .send_modify(|status| status.went_live(generation, [descriptor]));
        let line = json!({"type": "inbound", "event": self.event, "bufferId": "b1"});
        let frame = InboundFrame {
            generation,
            body: FrameBody::Message {
                event: Box::new(MessageEvent::from_value(&self.event).unwrap()),
                buffer_id: Some("b1".to_owned()),
            },
            line: line.to_string().into_bytes().into(),
        };
        tokio::spawn(async move { inbound.forward(vec![frame]).await });
    }

    fn status(&self) -> watch::Receiver<LinkStatus> {
        self.status.subscribe()
    }

    fn submit(&self, op: Op, results: ResultSender) {
        let action = serde_json::from_str(op.action.as_str()).unwrap();
        let result = OpResult {
            success: true,
            ..OpResult::default()
        };
        let result = SendResult::Answered(Box::new(Outcome::Applied(result)));
        assert!(results.try_send((op.id, result)).is_ok() && self.applied.try_send(action).is_ok());
    }

    fn acknowledge(&self, _generation: Generation, buffer_id: String) {
        self.acknowledged.lock().unwrap().push(buffer_id);
    }

    fn send_interrupt(&self, _session_key: String, _reason: Option<String>) {}

    fn go_idle(&self, _within: Duration) -> TransportFuture<'_, bool> {
        Box::pin(async { false })
    }

    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>> {
        Box::pin(async { Err(DormancyRefused::NotBuffering) })
    }

    fn wake(&self) {}

    fn reconnect(&self) {}

    fn disconnect(&self, _within: Duration) -> TransportFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test]
async fn a_transport_of_ones_own_brings_messages_and_takes_ops() {
    let state = tempfile::tempdir().unwrap();
    let (applied, mut ops) = mpsc::channel(64);
    let transport = Arc::new(OneMessage {
        event: message("m1", "hello"),
        status: watch::Sender::default(),
        applied,
        acknowledged: Mutex::default(),
    });
    let relay = Relay::builder(Settings::embedded(state.path()))
        .agent("echo", EchoAgent)
        .transport(Arc::clone(&transport) as Arc<dyn RelayTransport>)
        .build()
        .unwrap();
    let running = tokio::spawn(relay.run(std::future::pending()));
    let answer = async {
        while let Some(op) = ops.recv().await {
            if op["op"] == "send" {
                return op["content"].clone();
            }
        }
        Value::Null
    };
    assert_eq!(tokio::time::timeout(SOON, answer).await.unwrap(), "echo: hello");
    assert_eq!(*transport.acknowledged.lock().unwrap(), ["b1"]);
    running.abort();
}
