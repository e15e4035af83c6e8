//! What a connector in memory saw and how it answers.

use std::collections::VecDeque;

use serde_json::Value;

/// Entries of one kind that a record keeps; the oldest go first.
const MOST_KEPT: usize = 65_536;

/// How ops are answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Answering {
    /// Each is done at once.
    #[default]
    Apply,
    /// Each is refused at once, with these words.
    Refuse(String),
    /// None is answered until [`MemoryConnector::answer`](super::MemoryConnector::answer) is called for it.
    Hold,
}

/// Everything the relay said, in order. Of each kind the newest 65,536 are kept.
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
    /// Whether the connector has said on it that it buffers.
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
        if kept.len() >= MOST_KEPT {
            kept.pop_front();
        }
        kept.push_back(entry);
    }
}

/// An op as the connector saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenOp {
    /// The connector's number for it, from 1.
    pub number: u64,
    /// The platform it is for.
    pub platform: Option<String>,
    /// The bot that fronts it.
    pub bot_id: Option<String>,
    /// What is asked, as it stands on the wire.
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

    /// What it says.
    pub fn text(&self) -> Option<&str> {
        self.action["content"].as_str()
    }

    /// What it is tagged with.
    pub fn metadata(&self) -> &Value {
        &self.action["metadata"]
    }
}
