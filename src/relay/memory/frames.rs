//! Lines and results between the halves, read as they would be from a socket.

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::link::Generation;
use crate::relay::transport::{Cargo, Delivery};
use crate::wire::{ConnectorFrame, Outcome};

/// Deliveries handed on together.
const BATCH: usize = 256;

/// Hands lines to the relay in batches, at the relay's pace.
pub(super) async fn pump(mut heard: mpsc::Receiver<Delivery>, deliveries: mpsc::Sender<Vec<Delivery>>) {
    let mut batch = Vec::new();
    while heard.recv_many(&mut batch, BATCH).await > 0 {
        if deliveries.send(std::mem::take(&mut batch)).await.is_err() {
            return;
        }
    }
}

/// A line as the relay gets it; nothing for frames that are the transport's own business.
pub(super) fn delivery(generation: Generation, line: Vec<u8>) -> Option<Delivery> {
    let cargo = match ConnectorFrame::decode(&line) {
        Ok(frame) => Cargo::of(frame)?,
        Err(unusable) => Cargo::Unusable { unusable, lines: 1 },
    };
    let line = if cargo.is_kept() { line } else { Vec::new() };
    Some(Delivery {
        generation,
        cargo,
        line,
    })
}

/// What a result on the wire means; an unreadable one means nothing.
pub(super) fn outcome(number: u64, result: &Value) -> Outcome {
    let frame = json!({"type": "outbound_result", "requestId": number.to_string(), "result": result});
    match ConnectorFrame::decode(frame.to_string().as_bytes()) {
        Ok(ConnectorFrame::OutboundResult {
            result: Some(result), ..
        }) => Outcome::from(*result),
        _ => Outcome::Unknown,
    }
}
