//! What the connector does on request of its handle or its page: deliver, interrupt, close, wake a sleeping gateway.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use url::Url;

use super::buffer::{BufferId, BufferedDelivery, NotBuffered};
use super::gateway_frames::text;
use super::state::{Hub, SocketEnd};
use crate::wire::{Action, is_loopback_host};

impl Hub {
    /// Buffers a delivery for the primary gateway, and wakes it when that is due.
    pub(super) fn buffer(self: &Arc<Self>, delivery: BufferedDelivery<'_>) -> Result<BufferId, NotBuffered> {
        let cooldown = self.settings.wake_cooldown;
        let (id, wake_url) = self.change(|state| {
            let gateway_id = state.primary.clone();
            state.buffer(&gateway_id, delivery, cooldown)
        })?;
        if let Some(url) = wake_url {
            wake(self, url);
        }
        Ok(id)
    }

    /// Sends a delivery once; returns whether a gateway is connected and not idle.
    pub(super) fn send_live(&self, delivery: BufferedDelivery<'_>) -> bool {
        let idle = {
            let state = self.lock();
            let gateway = state.gateways.get(&state.primary);
            gateway.is_some_and(|gateway| gateway.idle_since.is_some())
        };
        let sent = !idle && self.send(Message::text(delivery.live()));
        if sent {
            self.change(|state| state.feed.delivery(delivery, None));
        }
        sent
    }

    /// Sends a message; returns whether a gateway is connected.
    pub fn send(&self, message: Message) -> bool {
        self.change(|state| {
            let primary = state.primary.clone();
            state
                .live_connection(&primary)
                .is_some_and(|live| live.push(message))
        })
    }

    /// Interrupts a session's turn; returns whether a gateway is connected.
    pub(super) fn interrupt(&self, session_key: &str, chat_id: &str) -> bool {
        let frame = json!({ "type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id });
        // In one step, so that the page learns of it before what the gateway does about it.
        self.change(|state| {
            let primary = state.primary.clone();
            let sent = state
                .live_connection(&primary)
                .is_some_and(|live| live.push(text(&frame)));
            if sent {
                state.feed.interrupted(session_key, chat_id);
            }
            sent
        })
    }

    /// Ends every open socket.
    pub fn end_all(&self, ending: &SocketEnd) {
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
        let (sent, label) = state.contents.messages.iter().rev().find_map(|sent| {
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

const WAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends one GET to a sleeping gateway's wake URL, in the background, on loopback only; failures are ignored, as real
/// connectors do.
fn wake(hub: &Arc<Hub>, url: Url) {
    let stop = hub.stop.clone();
    hub.runtime.spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = timeout(WAKE_TIMEOUT, fetch(&url)) => {}
        }
    });
}

async fn fetch(url: &Url) -> Option<()> {
    let host = url.host_str().filter(|host| is_loopback_host(host))?;
    if url.scheme() != "http" {
        return None;
    }
    let port = url.port_or_known_default()?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let socket = TcpStream::connect((bare, port)).await.ok()?;
    if !socket.peer_addr().ok()?.ip().is_loopback() {
        return None;
    }
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(socket))
        .await
        .ok()?;
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let request = Request::builder()
        .method(Method::GET)
        .uri(target)
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONNECTION, "close")
        .body(Body::empty())
        .ok()?;
    let exchange = async {
        sender.send_request(request).await.ok()?;
        drop(sender);
        Some(())
    };
    let (_, answered) = tokio::join!(connection, exchange);
    answered
}
