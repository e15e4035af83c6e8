//! What happens on a gateway's socket: frames from the gateway, and the connector's answers to them.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::faults::{LATE, SendFault};
use super::ops::{RequestedOp, perform_op};
use super::presets::PlatformPreset;
use super::record::{Closed, ConnectionId, Direction, RecordedFrame};
use super::state::{AnnouncedIdentity, ConnectorState};
use crate::wire::{CapabilityDescriptor, GatewayFrame};

const MAX_IDENTITIES: usize = 100;
const MAX_LATER: usize = 10_000;

/// What happens on a socket.
pub enum SocketEvent<'m> {
    /// It was opened.
    Opened,
    /// The gateway sent a frame.
    Received(ReceivedFrame),
    /// A message is about to be written.
    Sending(&'m mut Message),
    /// It ended.
    Closed(Closed),
}

/// Handles what happens on sockets: [`ConnectorState::handle`], or whoever stands in front of it.
pub type SocketHandler = Arc<dyn Fn(&mut ConnectorState, ConnectionId, SocketEvent<'_>) + Send + Sync>;

/// One line from the gateway, read before the state is touched.
pub struct ReceivedFrame {
    /// The line.
    pub line: Utf8Bytes,
    kind: FrameKind,
}

/// What a frame is.
enum FrameKind {
    Hello { platform: String },
    Outbound(Box<Outbound>),
    Ack { buffer_id: String },
    GoingIdle,
    Interrupt { session_key: String },
    Undecodable,
}

/// An outbound frame.
struct Outbound {
    request_id: String,
    op: RequestedOp,
    platform: Option<String>,
}

impl ReceivedFrame {
    pub(super) fn read(line: &[u8]) -> Self {
        let kind = match GatewayFrame::decode(line) {
            Ok(GatewayFrame::Hello { platform, .. }) => FrameKind::Hello { platform },
            Ok(GatewayFrame::Outbound {
                request_id,
                action,
                platform,
                ..
            }) => FrameKind::Outbound(Box::new(Outbound {
                request_id,
                op: RequestedOp::read(action.get()),
                platform,
            })),
            Ok(GatewayFrame::InboundAck { buffer_id }) => FrameKind::Ack { buffer_id },
            Ok(GatewayFrame::GoingIdle) => FrameKind::GoingIdle,
            Ok(GatewayFrame::Interrupt { session_key, .. }) => FrameKind::Interrupt { session_key },
            // Nothing is requested here.
            Ok(GatewayFrame::LinkResult { .. }) | Err(_) => FrameKind::Undecodable,
        };
        Self {
            line: String::from_utf8_lossy(line).into_owned().into(),
            kind,
        }
    }

    /// A placeholder for a line that was too long to keep.
    pub(super) fn too_long() -> Self {
        Self {
            line: Utf8Bytes::from_static("(a line over the limit)"),
            kind: FrameKind::Undecodable,
        }
    }
}

impl ConnectorState {
    /// Handles the frames of one connection, in order.
    pub(super) fn handle_frames(&mut self, id: ConnectionId, frames: Vec<ReceivedFrame>) {
        if let Some(live) = self.connections.get_mut(&id) {
            live.last_read = Instant::now();
        }
        for frame in frames {
            self.record(id, Direction::FromGateway, frame.line.clone());
            self.on(id, SocketEvent::Received(frame));
        }
    }

    /// Hands an event to the handler of the settings.
    pub(super) fn on(&mut self, id: ConnectionId, event: SocketEvent<'_>) {
        let handler = Arc::clone(&self.handler);
        handler(self, id, event);
    }

    /// What the connector does about an event.
    pub fn handle(&mut self, id: ConnectionId, event: SocketEvent<'_>) {
        match event {
            SocketEvent::Opened => self.admit(id),
            SocketEvent::Received(ReceivedFrame { line, kind }) => match kind {
                FrameKind::Hello { platform } => self.hello(id, &platform),
                FrameKind::Outbound(outbound) => {
                    let hash = self.hasher.hash_one(line.as_str());
                    self.outbound(id, &outbound, hash);
                }
                FrameKind::Ack { buffer_id } => self.acked(id, &buffer_id),
                FrameKind::GoingIdle => self.going_idle(id),
                FrameKind::Interrupt { session_key } => self.interrupt_others(id, &session_key),
                FrameKind::Undecodable => self.undecodable += 1,
            },
            SocketEvent::Sending(message) => {
                let text = match message {
                    Message::Text(text) => text.clone(),
                    Message::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned().into(),
                    _ => return,
                };
                self.record(id, Direction::ToGateway, text);
            }
            SocketEvent::Closed(closed) => self.feed.closed(id, &closed),
        }
    }

    pub(super) fn record(&mut self, id: ConnectionId, direction: Direction, text: Utf8Bytes) {
        self.frames
            .push_with(|sequence| RecordedFrame::new(sequence, id, direction, text));
    }

    fn hello(&mut self, id: ConnectionId, platform: &str) {
        let Some(live) = self.connections.get_mut(&id) else {
            return;
        };
        if live.identities.len() >= MAX_IDENTITIES {
            return;
        }
        let wire = self
            .descriptors
            .get(platform)
            .cloned()
            .unwrap_or_else(|| PlatformPreset::named(platform).wire(platform));
        live.identities.push(AnnouncedIdentity {
            platform: platform.to_owned(),
            descriptor: CapabilityDescriptor::from_value(&wire).ok(),
        });
        live.outgoing
            .push_back(text(&json!({ "type": "descriptor", "descriptor": wire })));
        if live.identities.len() == 1
            && let Some(gateway_id) = live.gateway_id.clone()
            && let Some(gateway) = self.gateways.get_mut(&gateway_id)
        {
            if gateway.current == Some(id) {
                gateway.mailbox.rewind();
                if gateway.mailbox.is_empty() {
                    gateway.idle_since = None;
                }
            }
            self.primary = gateway_id;
        }
        self.feed.hello(id, platform);
    }

    fn acked(&mut self, id: ConnectionId, buffer_id: &str) {
        let gateway = self
            .connections
            .get(&id)
            .and_then(|live| live.gateway_id.as_ref())
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
            .filter(|gateway| gateway.current == Some(id));
        let matched = gateway.is_some_and(|gateway| {
            let matched = gateway.mailbox.ack(buffer_id);
            if gateway.mailbox.is_empty() && gateway.idle_since != Some(id) {
                gateway.idle_since = None;
            }
            matched
        });
        if matched {
            self.feed.acked(buffer_id);
        }
    }

    fn going_idle(&mut self, id: ConnectionId) {
        let Some(live) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(gateway) = live
            .gateway_id
            .as_ref()
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
        {
            gateway.idle_since = Some(id);
        }
        live.outgoing
            .push_back(text(&json!({ "type": "going_idle_ack" })));
    }

    /// Passes an interrupt on to the other gateways: one of them may run that session's turn.
    fn interrupt_others(&mut self, from: ConnectionId, session_key: &str) {
        let sender = self
            .connections
            .get(&from)
            .and_then(|live| live.gateway_id.clone());
        let others: Vec<String> = self
            .gateways
            .keys()
            .filter(|gateway_id| Some(*gateway_id) != sender.as_ref())
            .cloned()
            .collect();
        for gateway_id in others {
            if let Some(live) = self.live_connection(&gateway_id) {
                live.push(text(
                    &json!({ "type": "interrupt_inbound", "session_key": session_key, "chat_id": "" }),
                ));
            }
        }
    }

    /// Performs an op and answers it. One that comes again, because the gateway does not know its outcome, is answered with
    /// its first result.
    fn outbound(&mut self, id: ConnectionId, outbound: &Outbound, line: u64) {
        let key = (outbound.request_id.clone(), line);
        if let Some(result) = self.performed.get(&key).cloned() {
            return self.answer(id, &outbound.request_id, &result);
        }
        let fault = match outbound.op.op() {
            "send" => self.faults.next_send.take(),
            _ => None,
        };
        let performed = match fault {
            Some(SendFault::Refused) => Err("the platform said no".to_owned()),
            Some(SendFault::Late) | None => self.perform(id, outbound),
        };
        let result = performed.unwrap_or_else(|error| json!({ "success": false, "error": error }));
        self.performed.insert(key, result.clone());
        self.feed.op(&outbound.op, outbound.platform.as_deref(), &result);
        match fault {
            Some(SendFault::Late) => self.answer_later(id, &answer(&outbound.request_id, &result), LATE),
            Some(SendFault::Refused) | None => self.answer(id, &outbound.request_id, &result),
        }
    }

    fn perform(&mut self, id: ConnectionId, outbound: &Outbound) -> Result<Value, String> {
        let live = self.connections.get(&id).ok_or("the connection is gone")?;
        let fronted = |platform: &str| {
            live.identities
                .iter()
                .find(|identity| identity.platform == platform)
        };
        let identity = if let Some(platform) = outbound.platform.as_deref() {
            fronted(platform).ok_or("platform not fronted")?
        } else {
            let chat = outbound.op.chat_id();
            chat.and_then(|chat_id| self.chats.platform(chat_id))
                .and_then(fronted)
                .or(live.identities.first())
                .ok_or("this connection sent no hello")?
        };
        let descriptor = identity.descriptor.as_ref();
        perform_op(
            &outbound.op,
            &mut self.contents,
            &self.chats,
            descriptor,
            &identity.platform,
        )
    }

    fn answer(&mut self, id: ConnectionId, request_id: &str, result: &Value) {
        if let Some(live) = self.connections.get_mut(&id) {
            live.outgoing.push_back(text(&answer(request_id, result)));
        }
    }

    /// Queues an answer for later.
    pub fn answer_later(&mut self, id: ConnectionId, frame: &Value, delay: Duration) {
        let Some(live) = self.connections.get_mut(&id) else {
            return;
        };
        if live.later.len() >= MAX_LATER {
            live.outgoing.push_back(text(frame));
            return;
        }
        let due = Instant::now() + delay;
        live.deferred += 1;
        live.later.insert((due, live.deferred), text(frame));
    }

    /// Takes what is due to be written, and returns when more is due.
    pub(super) fn outgoing(&mut self, id: ConnectionId, max: usize) -> (Vec<Message>, Option<Instant>) {
        let Some(live) = self.connections.get_mut(&id) else {
            return (Vec::new(), None);
        };
        let now = Instant::now();
        while let Some(first) = live.later.first_entry().filter(|first| first.key().0 <= now) {
            live.outgoing.push_back(first.remove());
        }
        let next_due = live.later.first_key_value().map(|((due, _), _)| *due);
        let mut batch: Vec<Message> = live.outgoing.drain(..live.outgoing.len().min(max)).collect();
        let drains = live
            .gateway_id
            .as_ref()
            .filter(|_| !live.identities.is_empty())
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
            .filter(|gateway| gateway.current == Some(id) && gateway.idle_since != Some(id));
        if let Some(gateway) = drains {
            while batch.len() < max
                && let Some(line) = gateway.mailbox.next()
            {
                batch.push(Message::Text(line));
            }
        }
        for message in &mut batch {
            self.on(id, SocketEvent::Sending(message));
        }
        (batch, next_due)
    }
}

/// A frame as a message of one line.
pub(super) fn text(frame: &Value) -> Message {
    Message::text(format!("{frame}\n"))
}

/// The frame that answers a request.
pub(super) fn answer(request_id: &str, result: &Value) -> Value {
    json!({ "type": "outbound_result", "requestId": request_id, "result": result })
}
