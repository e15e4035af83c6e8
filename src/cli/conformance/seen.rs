//! What the driver saw: plain data, without an opinion.

use serde_json::Value;

/// How a connection ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was not dialled.
    #[default]
    NotTried,
    /// The upgrade failed, with an HTTP status if the connector answered.
    NotOpened { status: Option<u16>, error: String },
    /// It was open when the driver left it.
    Open,
    /// The connector closed it.
    Closed { code: Option<u16>, reason: String },
    /// It broke.
    Broken(String),
}

/// One connection and what came over it.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenConnection {
    pub(super) ending: Ending,
    /// Frames, in order.
    pub(super) frames: Vec<Value>,
    /// The beginnings of lines that are no JSON objects.
    pub(super) unreadable: Vec<String>,
    /// After the driver closed it with 1000: whether the connector answered the close.
    pub(super) close_answered: Option<bool>,
}

impl SeenConnection {
    /// Frames of one type.
    pub(super) fn of_type<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s Value> {
        self.frames.iter().filter(move |frame| frame["type"] == kind)
    }

    /// The platforms whose hello was answered.
    pub(super) fn described(&self) -> Vec<&str> {
        let descriptors = self.of_type("descriptor");
        descriptors
            .filter_map(|frame| frame["descriptor"]["platform"].as_str())
            .collect()
    }

    /// The results of one request.
    pub(super) fn results<'s>(&'s self, request_id: &'s str) -> impl Iterator<Item = &'s Value> {
        let results = self.of_type("outbound_result");
        results
            .filter(move |frame| frame["requestId"] == request_id)
            .map(|frame| &frame["result"])
    }

    /// Deliveries of messages with their buffer ids.
    pub(super) fn messages(&self) -> impl Iterator<Item = (Option<String>, &Value)> {
        let inbound = self.of_type("inbound");
        inbound.map(|frame| (buffer_id(frame), &frame["event"]))
    }

    pub(super) fn has_message(&self, buffer_id: &str) -> bool {
        self.messages().any(|(id, _)| id.as_deref() == Some(buffer_id))
    }

    pub(super) fn is_open(&self) -> bool {
        self.ending == Ending::Open
    }
}

/// The buffer id of a delivery, as it is acknowledged.
fn buffer_id(frame: &Value) -> Option<String> {
    match &frame["bufferId"] {
        Value::String(id) if !id.is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// A request for an op.
#[derive(Clone, Debug)]
pub(super) struct OpRequest {
    pub(super) id: String,
    pub(super) op: &'static str,
    /// How often it was sent on its connection.
    pub(super) sent: usize,
}

/// A message that a person wrote.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) buffer_id: Option<String>,
    pub(super) event: Value,
}

/// Everything that was seen, scene by scene.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The platforms of the hellos, in order.
    pub(super) platforms: Vec<String>,
    pub(super) without_token: SeenConnection,
    pub(super) wrong_token: SeenConnection,
    pub(super) expired_token: SeenConnection,
    /// A handshake, ops that need no chat, an interrupt, and a message that is not acknowledged.
    pub(super) first: SeenConnection,
    /// An op that does not exist.
    pub(super) unknown_op: Option<OpRequest>,
    /// An op after a frame of a type that does not exist.
    pub(super) after_unknown_frame: Option<OpRequest>,
    /// The session key of the interrupt.
    pub(super) interrupted: Option<String>,
    pub(super) message: Option<Message>,
    /// Why there is no message.
    pub(super) no_message: String,
    /// The message again, its acknowledgement, and a message to its chat.
    pub(super) second: SeenConnection,
    pub(super) send: Option<OpRequest>,
    /// Whether the message is there again, and going idle.
    pub(super) third: SeenConnection,
    /// Whether a message was written while the relay was idle.
    pub(super) wrote_while_idle: bool,
    /// The message that was written meanwhile.
    pub(super) fourth: SeenConnection,
    /// Two connections at once: the older, the newer.
    pub(super) older: SeenConnection,
    pub(super) newer: SeenConnection,
}

impl Seen {
    /// Connections with a good token, with names for people.
    pub(super) fn good(&self) -> [(&'static str, &SeenConnection); 4] {
        [
            ("the first connection", &self.first),
            ("the second connection", &self.second),
            ("the third connection", &self.third),
            ("the fourth connection", &self.fourth),
        ]
    }

    /// Whether there was a handshake at all.
    pub(super) fn is_connected(&self) -> bool {
        self.first.of_type("descriptor").next().is_some()
    }
}
