//! The connector's half: delivers, drops, restores, answers, and records what it saw.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Keep, MemoryConnection, Pipe};
use crate::wire::OpId;

/// Entries of one kind that a record keeps; the oldest go first.
const MAX_RECORDED: usize = 65_536;

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

/// How ops are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Each succeeds immediately.
    #[default]
    Apply,
    /// Each is refused immediately, with this error.
    Refuse(String),
    /// None is answered until [`MemoryConnector::answer`] is called for it.
    Hold,
}

/// Everything the relay sent, in order. Of each kind the newest 65,536 are kept.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Ops, answered or not.
    pub ops: VecDeque<SeenOp>,
    /// Deliveries acknowledged on the connection that brought them, by buffer id.
    pub acks: VecDeque<String>,
    /// Sessions that the relay wants stopped elsewhere.
    pub interrupts: VecDeque<String>,
    /// Ops that are not answered yet.
    pub in_flight: usize,
    /// Buffered deliveries that are not acknowledged yet.
    pub unacknowledged: usize,
    /// Whether there is a connection.
    pub connected: bool,
    /// Whether the connector has confirmed on it that it buffers.
    pub buffering: bool,
    /// Connections so far.
    pub connections: u64,
    /// Times that the relay asked the connector to buffer.
    pub idles: u64,
    /// Whether the relay has ended the connection for good.
    pub closed: bool,
}

impl Record {
    /// The texts of all ops to a chat, in order.
    pub fn texts(&self, chat: &str) -> Vec<&str> {
        let to_chat = self.ops.iter().filter(|op| op.chat() == Some(chat));
        to_chat.filter_map(SeenOp::text).collect()
    }

    /// How often a delivery was acknowledged.
    pub fn acked(&self, buffer_id: &str) -> usize {
        self.acks.iter().filter(|ack| *ack == buffer_id).count()
    }

    pub(super) fn keep<T>(kept: &mut VecDeque<T>, entry: T) {
        if kept.len() >= MAX_RECORDED {
            kept.pop_front();
        }
        kept.push_back(entry);
    }
}

/// An op as the connector saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenOp {
    /// Its id.
    pub id: OpId,
    /// The id of the message that it makes, when it is applied.
    pub message_id: String,
    /// The platform it is for.
    pub platform: Option<String>,
    /// The bot that fronts it.
    pub bot_id: Option<String>,
    /// The action, as it is on the wire.
    pub action: Value,
}

impl SeenOp {
    /// Its wire name.
    pub fn kind(&self) -> Option<&str> {
        self.action["op"].as_str()
    }

    /// The chat it acts on.
    pub fn chat(&self) -> Option<&str> {
        self.action["chat_id"].as_str()
    }

    /// Its text.
    pub fn text(&self) -> Option<&str> {
        self.action["content"].as_str()
    }

    /// Its metadata.
    pub fn metadata(&self) -> &Value {
        &self.action["metadata"]
    }
}

/// The connector's half of a connection inside one process. Cheap to clone; clones are the same connector.
#[derive(Clone, Debug)]
pub struct MemoryConnector(Arc<Pipe>);

impl MemoryConnector {
    pub(super) fn new(pipe: Arc<Pipe>) -> Self {
        Self(pipe)
    }

    /// Delivers a message that is not buffered: a lost connection loses it. Waits while the relay is behind.
    pub async fn deliver(&self, event: Value) -> Result<(), DeliverError> {
        let line = json!({"type": "inbound", "event": event});
        self.deliver_line(line.to_string()).await
    }

    /// Delivers a message under a buffer id: now, or at the next connection, and again at every new one until
    /// it is acknowledged.
    pub async fn deliver_buffered(&self, buffer_id: &str, event: Value) -> Result<(), DeliverError> {
        let line = json!({"type": "inbound", "event": event, "bufferId": buffer_id});
        self.deliver_line_buffered(buffer_id, line.to_string()).await
    }

    /// Delivers one line as it is, whether it is a frame or not; not buffered.
    pub async fn deliver_line(&self, line: impl Into<Vec<u8>>) -> Result<(), DeliverError> {
        self.0.deliver(line.into(), Keep::No).await
    }

    /// The same, kept under a buffer id until it is acknowledged. The line has to carry the id itself.
    pub async fn deliver_line_buffered(
        &self,
        buffer_id: &str,
        line: impl Into<Vec<u8>>,
    ) -> Result<(), DeliverError> {
        self.0
            .deliver(line.into(), Keep::Until(buffer_id.to_owned()))
            .await
    }

    /// Asks for a session's turn to be stopped.
    pub async fn interrupt(&self, session_key: &str, chat_id: &str) -> Result<(), DeliverError> {
        let frame = json!({"type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id});
        self.deliver_line(frame.to_string()).await
    }

    /// Loses the connection: the outcome of ops in flight is unknown. No new one until [`Self::restore`].
    pub fn drop_connection(&self) {
        self.0.drop_connection();
    }

    /// Lets the relay connect again, which it does immediately.
    pub fn restore(&self) {
        self.0
            .reopen(|connection| matches!(connection, MemoryConnection::Down));
    }

    /// How ops are answered from now on.
    pub fn set_reply_mode(&self, mode: ReplyMode) {
        self.0.lock().reply_mode = mode;
    }

    /// Answers an op that is held with a result as it is on the wire
    /// (`{"success": true, "message_id": "7"}`); `false` when it is not held.
    pub fn answer(&self, op: OpId, result: &Value) -> bool {
        self.0.answer(op, result)
    }

    /// From now on does not confirm that it buffers until [`Self::answer_idle`].
    pub fn hold_idle(&self) {
        self.0.hold_idle(true);
    }

    /// Confirms that it buffers, now and from now on.
    pub fn answer_idle(&self) {
        self.0.hold_idle(false);
    }

    /// What it saw so far; watchers are notified of changes.
    pub fn record(&self) -> watch::Receiver<Record> {
        self.0.record.subscribe()
    }

    /// Waits until the record is as wanted and returns it; `None` after a timeout. `wanted` looks at the record only: a
    /// call of the connector from inside it would deadlock.
    pub async fn wait_for(&self, within: Duration, wanted: impl FnMut(&Record) -> bool) -> Option<Record> {
        let mut record = self.record();
        let seen = timeout(within, record.wait_for(wanted)).await.ok()?;
        seen.ok().map(|record| record.clone())
    }
}
