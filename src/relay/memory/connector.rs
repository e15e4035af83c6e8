//! The connector's half: delivers, drops, restores, answers, and tells what it saw.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::record::{Answering, Record};
use super::wire_side::{Kept, Wire};

/// Why something was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliverError {
    /// There is no connection, and without a buffer id nothing is kept for the next one.
    #[error("the relay is not connected")]
    NotConnected,
    /// Too many deliveries are not acknowledged.
    #[error("too many deliveries are not acknowledged")]
    Full,
    /// The relay has ended the connection for good.
    #[error("the relay has ended the connection")]
    Closed,
}

/// The connector's half of a connection inside one process. Cheap to clone; clones are the same connector.
#[derive(Clone, Debug)]
pub struct MemoryConnector(Arc<Wire>);

impl MemoryConnector {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        Self(wire)
    }

    /// Delivers a message that is not buffered: a lost connection loses it. Waits while the relay is behind.
    pub async fn deliver(&self, event: Value) -> Result<(), DeliverError> {
        let line = json!({"type": "inbound", "event": event});
        self.0.deliver(line.to_string().into_bytes(), Kept::No).await
    }

    /// Delivers a message under a buffer id: now, or at the next connection, and again at every new one until
    /// it is acknowledged.
    pub async fn deliver_buffered(&self, buffer_id: &str, event: Value) -> Result<(), DeliverError> {
        let line = json!({"type": "inbound", "event": event, "bufferId": buffer_id});
        self.deliver_line_buffered(buffer_id, line.to_string()).await
    }

    /// Delivers one line exactly as it stands, be it a frame or not; not buffered.
    pub async fn deliver_line(&self, line: impl Into<Vec<u8>>) -> Result<(), DeliverError> {
        self.0.deliver(line.into(), Kept::No).await
    }

    /// The same, kept under a buffer id until it is acknowledged. The line has to carry the id itself.
    pub async fn deliver_line_buffered(
        &self,
        buffer_id: &str,
        line: impl Into<Vec<u8>>,
    ) -> Result<(), DeliverError> {
        self.0
            .deliver(line.into(), Kept::Until(buffer_id.to_owned()))
            .await
    }

    /// Asks for a session's turn to be stopped.
    pub async fn interrupt(&self, session_key: &str, chat_id: &str) -> Result<(), DeliverError> {
        let frame = json!({"type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id});
        self.0.deliver(frame.to_string().into_bytes(), Kept::No).await
    }

    /// Loses the connection: what was sent and not answered stays unknown. No new one until
    /// [`Self::restore`].
    pub fn drop_connection(&self) {
        self.0.lose();
    }

    /// Lets the relay connect again, which it does at once.
    pub fn restore(&self) {
        self.0.restore();
    }

    /// How ops are answered from now on.
    pub fn answering(&self, answering: Answering) {
        self.0.answering(answering);
    }

    /// Answers an op that is held, by its number, with a result as it stands on the wire
    /// (`{"success": true, "message_id": "7"}`); `false` when it is not held.
    pub fn answer(&self, number: u64, result: &Value) -> bool {
        self.0.answer(number, result)
    }

    /// From now on does not say that it buffers until it is told to.
    pub fn hold_idle(&self) {
        self.0.hold_idle(true);
    }

    /// Says that it buffers, now and from now on.
    pub fn answer_idle(&self) {
        self.0.hold_idle(false);
    }

    /// What it saw so far; changes are told.
    pub fn record(&self) -> watch::Receiver<Record> {
        self.0.record()
    }

    /// Waits until the record is as wanted and gives it; nothing when that takes too long. `wanted` looks at
    /// the record only: a call of the connector from inside it would wait for ever.
    pub async fn wait_for(&self, within: Duration, wanted: impl FnMut(&Record) -> bool) -> Option<Record> {
        let mut record = self.0.record();
        let seen = timeout(within, record.wait_for(wanted)).await.ok()?;
        seen.ok().map(|record| record.clone())
    }
}
