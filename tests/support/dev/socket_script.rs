//! What goes wrong on the connector's sockets, and what the connector does not keep: acknowledgements, ends, and where messages
//! came from.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use hermes_relay::dev::{
    Closed, ClosedBy, ConnectionId, ConnectorState, ReceivedFrame, SocketEnd, SocketEvent,
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::rules::{Rule, Rules};

/// What becomes of an op that a rule matches.
#[derive(Clone, Debug)]
pub(crate) enum OpAnswer {
    /// Performed, answered after this long.
    Delay(Duration),
    /// Not performed.
    Refuse {
        /// Why, for people.
        error: String,
        /// Why, for programs.
        code: Option<String>,
    },
    /// Performed, never answered.
    Never,
    /// Performed, answered twice.
    Twice,
    /// Performed, and the socket is reset instead of an answer.
    DropSocket,
    /// Performed, answered with something that is not JSON.
    Malformed,
    /// Performed, answered with this result, whatever it is.
    Result(Value),
}

/// A rule for ops.
pub(crate) type ResultRule = Rule<OpAnswer>;

/// When a connection is closed with 4401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Right after the upgrade.
    AtOnce,
    /// When the first hello comes; it is not answered.
    AfterHello,
    /// After the first descriptor.
    AfterDescriptor,
}

/// An acknowledgement.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    /// Under which name.
    pub(crate) buffer_id: String,
    /// Whether that was on its way and not yet acknowledged.
    pub(crate) matched: bool,
}

/// The end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct ClosedConnection {
    pub(crate) at: Instant,
    pub(crate) by: ClosedBy,
    pub(crate) code: Option<u16>,
    pub(crate) reason: String,
}

/// Where a message came from.
#[derive(Clone, Debug)]
pub(crate) struct MessageOrigin {
    pub(crate) at: Instant,
    pub(crate) connection: ConnectionId,
    pub(crate) bot_id: Option<String>,
}

/// The script of one connector's sockets.
#[derive(Default)]
pub(crate) struct SocketScript {
    pub(crate) rules: Rules<OpAnswer>,
    pub(crate) denials: VecDeque<(When, String)>,
    pub(crate) denied: BTreeMap<ConnectionId, (When, String)>,
    pub(crate) mute_hello: bool,
    pub(crate) mute_idle: bool,
    pub(crate) refuse_second: bool,
    /// Acknowledgements are not handled.
    pub(crate) ignore_acks: bool,
    /// Tokens are refused with this close code.
    pub(crate) denial_code: Option<u16>,
    /// Frames to the gateway that are still torn in half.
    pub(crate) corrupt: usize,
    pub(crate) keeps_acks: bool,
    pub(crate) acks: Vec<Ack>,
    pub(crate) closed: Vec<ClosedConnection>,
    /// By message, in order.
    pub(crate) origins: Vec<MessageOrigin>,
}

impl SocketScript {
    /// Handles what happens on a socket, in front of the connector.
    pub(crate) fn handle(&mut self, state: &mut ConnectorState, id: ConnectionId, event: SocketEvent<'_>) {
        match event {
            SocketEvent::Opened => self.opened(state, id),
            SocketEvent::Received(frame) => self.received(state, id, frame),
            SocketEvent::Sending(message) => {
                if self.corrupt > 0
                    && let Message::Text(whole) = &*message
                {
                    self.corrupt -= 1;
                    *message = Message::text(truncated(whole));
                }
                state.handle(id, SocketEvent::Sending(message));
            }
            SocketEvent::Closed(closed) => {
                let Closed { by, code, reason } = closed.clone();
                self.closed.push(ClosedConnection {
                    at: Instant::now(),
                    by,
                    code,
                    reason,
                });
                state.handle(id, SocketEvent::Closed(closed));
            }
        }
    }

    fn opened(&mut self, state: &mut ConnectorState, id: ConnectionId) {
        let Some(live) = state.connections.get_mut(&id) else {
            return;
        };
        if live.denial.is_none() {
            match self.denials.pop_front() {
                Some((When::AtOnce, reason)) => live.denial = Some(reason),
                Some(later) => {
                    self.denied.insert(id, later);
                }
                None => {}
            }
        }
        if let (Some(code), Some(reason)) = (self.denial_code, live.denial.clone()) {
            return live.end(SocketEnd::Close { code, reason });
        }
        let gateway = live
            .gateway_id
            .clone()
            .filter(|_| self.refuse_second && live.denial.is_none());
        let current = gateway
            .and_then(|gateway_id| state.gateways.get(&gateway_id))
            .and_then(|gateway| gateway.current);
        if current.is_some_and(|current| state.connections.contains_key(&current)) {
            return end(
                state,
                id,
                SocketEnd::Close {
                    code: 1008,
                    reason: "duplicate session".to_owned(),
                },
            );
        }
        state.handle(id, SocketEvent::Opened);
    }

    fn received(&mut self, state: &mut ConnectorState, id: ConnectionId, frame: ReceivedFrame) {
        let line = frame.line.clone();
        let is = |kind: &str| line.contains(kind);
        if is("\"hello\"") && kind(&line) == "hello" {
            let denied = self.denied.get(&id).cloned();
            if let Some((When::AfterHello, reason)) = &denied {
                return end(state, id, unauthorized(reason));
            }
            if self.mute_hello {
                return;
            }
            state.handle(id, SocketEvent::Received(frame));
            if let Some((_, reason)) = &denied {
                end(state, id, unauthorized(reason));
            }
        } else if self.mute_idle && is("\"going_idle\"") && kind(&line) == "going_idle" {
            state.handle(id, SocketEvent::Received(frame));
            drop(last_answer(state, id));
        } else if self.ignore_acks && is("\"inbound_ack\"") && kind(&line) == "inbound_ack" {
            // Lost.
        } else if self.keeps_acks && is("\"inbound_ack\"") && kind(&line) == "inbound_ack" {
            let before = acked(state);
            state.handle(id, SocketEvent::Received(frame));
            let json: Value = serde_json::from_str(&line).unwrap_or_default();
            self.acks.push(Ack {
                buffer_id: json["bufferId"]
                    .as_str()
                    .map_or_else(|| json["bufferId"].to_string(), str::to_owned),
                matched: acked(state) > before,
            });
        } else if is("\"outbound\"") && kind(&line) == "outbound" {
            self.outbound(state, id, frame);
        } else {
            state.handle(id, SocketEvent::Received(frame));
        }
    }

    fn outbound(&mut self, state: &mut ConnectorState, id: ConnectionId, frame: ReceivedFrame) {
        let line = frame.line.clone();
        let json: Value = serde_json::from_str(&line).unwrap_or_default();
        let request_id = json["requestId"].as_str().unwrap_or_default();
        let key = (request_id.to_owned(), state.hasher.hash_one(line.as_str()));
        let is_new = state.performed.get(&key).is_none();
        let op = json["action"]["op"].as_str().unwrap_or_default();
        let rule = if is_new { self.rules.take(op, None) } else { None };
        if let Some(OpAnswer::Refuse { error, code }) = &rule {
            let mut result = json!({ "success": false, "error": error });
            if let Some(code) = code {
                result["code"] = json!(code);
            }
            push(state, id, answer(request_id, &result));
            state.performed.insert(key, result);
            return;
        }
        let before = state.contents.messages.pushed();
        state.handle(id, SocketEvent::Received(frame));
        if state.contents.messages.pushed() > before {
            self.origins.push(MessageOrigin {
                at: Instant::now(),
                connection: id,
                bot_id: json["botId"].as_str().map(str::to_owned),
            });
        }
        let Some(rule) = rule else {
            return;
        };
        let Some(usual) = last_answer(state, id) else {
            return;
        };
        match rule {
            OpAnswer::Refuse { .. } | OpAnswer::Never => {}
            OpAnswer::Twice => {
                push(state, id, usual.clone());
                push(state, id, usual);
            }
            OpAnswer::Result(result) => {
                push(state, id, answer(request_id, &result));
                state.performed.insert(key, result);
            }
            OpAnswer::Delay(delay) => {
                let frame: Value = match &usual {
                    Message::Text(text) => serde_json::from_str(text).unwrap_or_default(),
                    _ => Value::Null,
                };
                state.answer_later(id, &frame, delay);
            }
            OpAnswer::Malformed => {
                if let Message::Text(whole) = &usual {
                    push(state, id, Message::text(truncated(whole)));
                }
            }
            OpAnswer::DropSocket => end(state, id, SocketEnd::Abort),
        }
    }
}

fn kind(line: &str) -> String {
    let json: Value = serde_json::from_str(line).unwrap_or_default();
    json["type"].as_str().unwrap_or_default().to_owned()
}

fn acked(state: &ConnectorState) -> u64 {
    state
        .gateways
        .values()
        .map(|gateway| gateway.mailbox.acked())
        .sum()
}

/// Takes the answer back that was queued last.
fn last_answer(state: &mut ConnectorState, id: ConnectionId) -> Option<Message> {
    state.connections.get_mut(&id)?.outgoing.pop_back()
}

fn push(state: &mut ConnectorState, id: ConnectionId, message: Message) {
    if let Some(live) = state.connections.get_mut(&id) {
        live.outgoing.push_back(message);
    }
}

fn end(state: &mut ConnectorState, id: ConnectionId, ending: SocketEnd) {
    if let Some(live) = state.connections.get(&id) {
        live.end(ending);
    }
}

pub(crate) fn unauthorized(reason: &str) -> SocketEnd {
    SocketEnd::Close {
        code: 4401,
        reason: reason.to_owned(),
    }
}

/// The frame that answers a request.
pub(crate) fn answer(request_id: &str, result: &Value) -> Message {
    let frame = json!({ "type": "outbound_result", "requestId": request_id, "result": result });
    Message::text(format!("{frame}\n"))
}

/// The first half of a line, ended as if it were whole.
fn truncated(whole: &str) -> String {
    let half: String = whole.chars().take(whole.chars().count() / 2).collect();
    half + "\n"
}
