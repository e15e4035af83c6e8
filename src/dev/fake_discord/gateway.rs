//! The gateway: sessions, heartbeats, and the events of the session in order.

use futures_util::{SinkExt as _, StreamExt as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::server::FakeDiscordHub;
use super::state::APPLICATION;

/// Discord does not accept the token.
const AUTHENTICATION_FAILED: u16 = 4004;

/// Counts a connection for as long as it is there.
struct Connected<'h>(&'h FakeDiscordHub);

impl<'h> Connected<'h> {
    fn new(hub: &'h FakeDiscordHub) -> Self {
        hub.change(|state| state.connected += 1);
        Self(hub)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.connected -= 1);
    }
}

impl FakeDiscordHub {
    /// Serves one connection of the gateway to its end.
    pub async fn gateway<S>(&self, mut socket: WebSocketStream<S>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let _connected = Connected::new(self);
        let mut news = self.news.subscribe();
        let text = |value: Value| Message::text(value.to_string());
        let interval = self.lock().settings.heartbeat_ms;
        let hello = json!({"op": 10, "d": {"heartbeat_interval": interval}});
        let _ = socket.send(text(hello)).await;
        let before = self.lock().faults;
        // How many events of the session were sent.
        let mut sent: Option<usize> = None;
        loop {
            news.mark_unchanged();
            let faults = self.lock().faults;
            if faults.reconnects > before.reconnects {
                let _ = socket.send(text(json!({"op": 7, "d": null}))).await;
            }
            if faults.cuts > before.cuts || faults.reconnects > before.reconnects {
                return;
            }
            if let Some(from) = sent {
                let events = self.events_from(from);
                sent = Some(from + events.len());
                for event in events {
                    if socket.send(text(event)).await.is_err() {
                        return;
                    }
                }
            }
            let read = tokio::select! {
                read = socket.next() => read,
                changed = news.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = self.stop.cancelled() => return,
            };
            let Some(Ok(Message::Text(read))) = read else {
                return;
            };
            let payload: Value = serde_json::from_str(&read).unwrap_or_default();
            let is_known = {
                let state = self.lock();
                let token = payload["d"]["token"].as_str();
                token.is_none_or(|token| token == state.settings.token.expose_secret())
            };
            let code = faults.close_with.or((!is_known).then_some(AUTHENTICATION_FAILED));
            if let Some(code) = code {
                let frame = CloseFrame {
                    code: code.into(),
                    reason: "".into(),
                };
                let _ = socket.close(Some(frame)).await;
                return;
            }
            match payload["op"].as_u64() {
                Some(1) if faults.is_mute => {}
                Some(1) => drop(socket.send(text(json!({"op": 11}))).await),
                Some(2) => {
                    let ready = self.ready();
                    let _ = socket.send(text(ready)).await;
                    sent = Some(0);
                }
                Some(6) if faults.forgets => {
                    let _ = socket.send(text(json!({"op": 9, "d": false}))).await;
                }
                Some(6) => {
                    let seq = payload["d"]["seq"].as_u64().unwrap_or_default();
                    let from = usize::try_from(seq).unwrap_or_default().saturating_sub(1);
                    let missed = self.events_from(from);
                    let total = from + missed.len();
                    self.change(|state| state.sessions.1 += 1);
                    for event in missed {
                        let _ = socket.send(text(event)).await;
                    }
                    let resumed = json!({"op": 0, "s": total + 1, "t": "RESUMED", "d": {}});
                    let _ = socket.send(text(resumed)).await;
                    sent = Some(total);
                }
                _ => {}
            }
        }
    }

    /// The events after so many, as far as they are kept.
    fn events_from(&self, from: usize) -> Vec<Value> {
        let state = self.lock();
        let skip = from.saturating_sub(state.dropped_events);
        state.events.iter().skip(skip).cloned().collect()
    }

    /// A session begins.
    fn ready(&self) -> Value {
        self.change(|state| {
            state.sessions.0 += 1;
            state.faults.forgets = false;
            let ready = json!({"v": 10, "session_id": "s1", "resume_gateway_url": state.gateway, "user": state.bot(), "guilds": [],
                "private_channels": [], "application": {"id": APPLICATION, "flags": 1 << 19}});
            json!({"op": 0, "s": 1, "t": "READY", "d": ready})
        })
    }
}
