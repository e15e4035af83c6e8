//! What the gateway says, and what the connector answers to it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::faults::When;
use super::ledger::Origin;
use super::ops::{Asked, carry_out};
use super::presets::Preset;
use super::record::{Ack, ConnectionId, Direction};
use super::script::Answer;
use super::state::{Ending, Identity, State, unauthorized};
use crate::wire::{CapabilityDescriptor, GatewayFrame};

const MAX_IDENTITIES: usize = 100;
const MAX_LATER: usize = 10_000;

/// One line from the gateway, read before the state is touched.
pub(super) struct Heard {
    line: Utf8Bytes,
    said: Said,
}

/// What a line says.
enum Said {
    Hello { platform: String },
    Outbound(Box<Outbound>),
    Acked { buffer_id: String },
    GoingIdle,
    Interrupt,
    Nonsense,
}

/// An outbound frame.
struct Outbound {
    request_id: String,
    asked: Asked,
    platform: Option<String>,
    bot_id: Option<String>,
}

impl Heard {
    pub(super) fn read(line: &[u8]) -> Self {
        let said = match GatewayFrame::decode(line) {
            Ok(GatewayFrame::Hello { platform, .. }) => Said::Hello { platform },
            Ok(GatewayFrame::Outbound {
                request_id,
                action,
                platform,
                bot_id,
            }) => Said::Outbound(Box::new(Outbound {
                request_id,
                asked: Asked::read(action.get()),
                platform,
                bot_id,
            })),
            Ok(GatewayFrame::InboundAck { buffer_id }) => Said::Acked { buffer_id },
            Ok(GatewayFrame::GoingIdle) => Said::GoingIdle,
            Ok(GatewayFrame::Interrupt { .. }) => Said::Interrupt,
            Err(_) => Said::Nonsense,
        };
        Self {
            line: String::from_utf8_lossy(line).into_owned().into(),
            said,
        }
    }

    /// Stands for a line that was too long to keep.
    pub(super) fn too_long() -> Self {
        Self {
            line: Utf8Bytes::from_static("(a line over the limit)"),
            said: Said::Nonsense,
        }
    }
}

impl State {
    /// Takes what one connection said, in order.
    pub(super) fn hear(&mut self, id: ConnectionId, heard: Vec<Heard>, auto_answer: bool) {
        if let Some(live) = self.connections.get_mut(&id) {
            live.heard = Instant::now();
        }
        for Heard { line, said } in heard {
            self.log.frame(id, Direction::FromGateway, line);
            match said {
                Said::Hello { platform } => self.hello(id, &platform),
                Said::Outbound(outbound) => self.outbound(id, &outbound, auto_answer),
                Said::Acked { buffer_id } => self.acked(id, buffer_id),
                Said::GoingIdle => self.going_idle(id),
                Said::Interrupt => {}
                Said::Nonsense => self.undecodable += 1,
            }
        }
    }

    fn hello(&mut self, id: ConnectionId, platform: &str) {
        let Some(live) = self.connections.get_mut(&id) else {
            return;
        };
        let denial = live.denial.clone();
        if let Some(denial) = denial.as_ref().filter(|denial| denial.when == When::AfterHello) {
            live.end(unauthorized(&denial.reason));
            return;
        }
        if self.faults.mute_hello || live.identities.len() >= MAX_IDENTITIES {
            return;
        }
        let wire = self
            .descriptors
            .get(platform)
            .cloned()
            .unwrap_or_else(|| Preset::named(platform).wire(platform));
        live.identities.push(Identity {
            platform: platform.to_owned(),
            descriptor: CapabilityDescriptor::from_value(&wire).ok(),
        });
        live.outgoing
            .push_back(text(&json!({ "type": "descriptor", "descriptor": wire })));
        if let Some(denial) = denial.filter(|denial| denial.when == When::AfterDescriptor) {
            live.end(unauthorized(&denial.reason));
        }
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

    fn acked(&mut self, id: ConnectionId, buffer_id: String) {
        let gateway = self
            .connections
            .get(&id)
            .and_then(|live| live.gateway_id.as_ref())
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
            .filter(|gateway| gateway.current == Some(id));
        let matched = gateway.is_some_and(|gateway| {
            let matched = gateway.mailbox.ack(&buffer_id);
            if gateway.mailbox.is_empty() && gateway.idle_since != Some(id) {
                gateway.idle_since = None;
            }
            matched
        });
        if matched {
            self.feed.acked(&buffer_id);
        }
        if self.log.recording {
            self.log.acks.push(Ack {
                at: Instant::now(),
                connection: id,
                buffer_id,
                matched,
            });
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
        if !self.faults.mute_idle {
            live.outgoing
                .push_back(text(&json!({ "type": "going_idle_ack" })));
        }
    }

    fn outbound(&mut self, id: ConnectionId, outbound: &Outbound, auto_answer: bool) {
        let scripted = self.script.answer(outbound.asked.op());
        if let Some(Answer::Refuse { error, code }) = &scripted {
            let mut result = json!({ "success": false, "error": error });
            if let Some(code) = code {
                result["code"] = json!(code);
            }
            self.feed
                .op(&outbound.asked, outbound.platform.as_deref(), &result);
            self.answer(id, &outbound.request_id, &result);
            return;
        }
        let result = self
            .perform(id, outbound)
            .unwrap_or_else(|error| json!({ "success": false, "error": error }));
        self.feed
            .op(&outbound.asked, outbound.platform.as_deref(), &result);
        let request_id = &outbound.request_id;
        match scripted {
            None if !auto_answer => {}
            None | Some(Answer::Usual | Answer::Refuse { .. }) => self.answer(id, request_id, &result),
            Some(Answer::Never) => {}
            Some(Answer::Twice) => {
                self.answer(id, request_id, &result);
                self.answer(id, request_id, &result);
            }
            Some(Answer::Result(result)) => self.answer(id, request_id, &result),
            Some(Answer::Delay(delay)) => self.answer_later(id, &answer(request_id, &result), delay),
            Some(Answer::Malformed) => {
                let whole = answer(request_id, &result).to_string();
                if let Some(live) = self.connections.get_mut(&id) {
                    live.outgoing.push_back(Message::text(torn(&whole)));
                }
            }
            Some(Answer::DropSocket) => {
                if let Some(live) = self.connections.get(&id) {
                    live.end(Ending::Abort);
                }
            }
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
            let chat = outbound.asked.chat_id();
            chat.and_then(|chat_id| self.chats.platform(chat_id))
                .and_then(fronted)
                .or(live.identities.first())
                .ok_or("no hello was said on this connection")?
        };
        let origin = Origin {
            platform: &identity.platform,
            bot_id: outbound.bot_id.as_deref(),
            connection: id,
        };
        let descriptor = identity.descriptor.as_ref();
        carry_out(
            &outbound.asked,
            &mut self.ledger,
            &self.chats,
            descriptor,
            &origin,
        )
    }

    fn answer(&mut self, id: ConnectionId, request_id: &str, result: &Value) {
        if let Some(live) = self.connections.get_mut(&id) {
            live.outgoing.push_back(text(&answer(request_id, result)));
        }
    }

    fn answer_later(&mut self, id: ConnectionId, frame: &Value, delay: Duration) {
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

    /// Takes what is to be written now, and tells when there will be more at the earliest.
    pub(super) fn outgoing(&mut self, id: ConnectionId, most: usize) -> (Vec<Message>, Option<Instant>) {
        let Some(live) = self.connections.get_mut(&id) else {
            return (Vec::new(), None);
        };
        let now = Instant::now();
        while let Some(first) = live.later.first_entry().filter(|first| first.key().0 <= now) {
            live.outgoing.push_back(first.remove());
        }
        let next_due = live.later.first_key_value().map(|((due, _), _)| *due);
        let mut batch: Vec<Message> = live.outgoing.drain(..live.outgoing.len().min(most)).collect();
        let drains = live
            .gateway_id
            .as_ref()
            .filter(|_| !live.identities.is_empty())
            .and_then(|gateway_id| self.gateways.get_mut(gateway_id))
            .filter(|gateway| gateway.current == Some(id) && gateway.idle_since != Some(id));
        if let Some(gateway) = drains {
            while batch.len() < most
                && let Some(line) = gateway.mailbox.next()
            {
                batch.push(Message::Text(line));
            }
        }
        for message in &mut batch {
            if self.faults.corrupt > 0
                && let Message::Text(whole) = message
            {
                self.faults.corrupt -= 1;
                *message = Message::text(torn(whole));
            }
            let text = match message {
                Message::Text(text) => text.clone(),
                Message::Binary(bytes) => String::from_utf8_lossy(bytes).into_owned().into(),
                _ => continue,
            };
            self.log.frame(id, Direction::ToGateway, text);
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

/// The first half of a line, ended as if it were whole.
fn torn(whole: &str) -> String {
    let half: String = whole.chars().take(whole.chars().count() / 2).collect();
    half + "\n"
}
