//! What the connector does of its own, for its handle and its page alike.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::buffer::{BufferId, NotBuffered, Parcel};
use super::hear::text;
use super::state::{Ending, Hub};
use super::wake;
use crate::wire::Action;

impl Hub {
    /// Buffers something for a gateway, else for the primary one, and wakes it when that is due.
    pub(super) fn buffer(
        self: &Arc<Self>,
        gateway_id: Option<&str>,
        parcel: Parcel<'_>,
    ) -> Result<BufferId, NotBuffered> {
        let cooldown = self.settings.wake_cooldown;
        let (id, poke) = self.change(|state| {
            let gateway_id = gateway_id.map_or_else(|| state.primary.clone(), str::to_owned);
            state.buffer(&gateway_id, parcel, cooldown)
        })?;
        if let Some(url) = poke {
            wake::poke(self, url);
        }
        Ok(id)
    }

    /// Sends something once; tells whether a gateway listens that has not gone idle.
    pub(super) fn send_live(&self, parcel: Parcel<'_>) -> bool {
        let idle = {
            let state = self.lock();
            let gateway = state.gateways.get(&state.primary);
            gateway.is_some_and(|gateway| gateway.idle_since.is_some())
        };
        let sent = !idle && self.send(Message::text(parcel.live()));
        if sent {
            self.change(|state| state.feed.parcel(parcel, None));
        }
        sent
    }

    /// Sends a message; tells whether a gateway listens.
    pub(super) fn send(&self, message: Message) -> bool {
        self.change(|state| {
            let primary = state.primary.clone();
            state.listening(&primary).is_some_and(|live| live.push(message))
        })
    }

    /// Asks for a session's turn to stop; tells whether a gateway listens.
    pub(super) fn interrupt(&self, session_key: &str, chat_id: &str) -> bool {
        self.send(text(
            &json!({ "type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id }),
        ))
    }

    /// Ends every open socket.
    pub(super) fn end_all(&self, ending: &Ending) {
        for live in self.lock().connections.values() {
            live.end(ending.clone());
        }
    }

    /// Delivers nothing more on the connection that the primary gateway has now, as if it had gone idle.
    pub(super) fn hold(&self) -> bool {
        self.change(|state| {
            let primary = state.primary.clone();
            let gateway = state.gateways.get_mut(&primary);
            gateway.is_some_and(|gateway| {
                gateway.idle_since = gateway.current.or(gateway.idle_since);
                gateway.current.is_some()
            })
        })
    }

    /// The press of a prompt's button as an event, from `who` or whoever spoke last in the chat. `None` when
    /// there is no such button.
    pub(super) fn press(&self, prompt_id: &str, option_id: &str, who: Option<&Value>) -> Option<Value> {
        let state = self.lock();
        let (sent, label) = state.ledger.messages.iter().rev().find_map(|sent| {
            let Action::Prompt {
                prompt_id: minted,
                options,
                ..
            } = &sent.action
            else {
                return None;
            };
            let option = options.iter().find(|option| option.id == option_id)?;
            (minted == prompt_id).then_some((sent, &option.label))
        })?;
        let source = who.or_else(|| state.chats.source(&sent.chat_id)).cloned();
        let source = source.unwrap_or_else(
            || json!({ "platform": sent.platform, "chat_id": sent.chat_id, "chat_type": "dm", "user_id": "u1" }),
        );
        Some(json!({
            "text": format!("/{option_id}"),
            "message_type": "command",
            "source": source,
            "prompt_response": {
                "prompt_id": prompt_id,
                "option_id": option_id,
                "label": label,
                "prompt_message_id": sent.message_id,
            },
        }))
    }
}
