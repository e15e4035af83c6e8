//! The gateway: sessions, heartbeats, and the events of the session in order.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::cut::CutStream;
use super::{APPLICATION, FakeDiscord, TOKEN, bot};

impl FakeDiscord {
    pub(super) async fn socket(self, stream: TcpStream) {
        let mut news = self.news.subscribe();
        let ends_after = self.lock().gateway_ends_after.take();
        let stream = CutStream { stream, ends_after };
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
            return;
        };
        let text = |value: Value| Message::text(value.to_string());
        let hello = json!({"op": 10, "d": {"heartbeat_interval": 500}});
        let _ = socket.send(text(hello)).await;
        let mut sent: Option<usize> = None;
        let asked = |fake: &Self| {
            let state = fake.lock();
            (state.cuts, state.reconnects)
        };
        let (cuts, reconnects) = asked(&self);
        loop {
            let (now_cut, now_asked) = asked(&self);
            if now_asked > reconnects {
                let _ = socket.send(text(json!({"op": 7, "d": null}))).await;
            }
            if now_cut > cuts || now_asked > reconnects {
                return;
            }
            if let Some(from) = sent {
                let events: Vec<Value> = self.lock().events.iter().skip(from).cloned().collect();
                sent = Some(from + events.len());
                for event in events {
                    if socket.send(text(event)).await.is_err() {
                        return;
                    }
                }
            }
            let read = tokio::select! {
                read = socket.next() => read,
                _ = news.recv() => continue,
            };
            let Some(Ok(Message::Text(read))) = read else {
                return;
            };
            let payload: Value = serde_json::from_str(&read).unwrap();
            let refused = self.lock().refuse;
            if let Some(code) = refused {
                let frame = CloseFrame {
                    code: code.into(),
                    reason: "".into(),
                };
                let _ = socket.close(Some(frame)).await;
                return;
            }
            match payload["op"].as_u64() {
                Some(1) => drop(socket.send(text(json!({"op": 11}))).await),
                Some(2) => {
                    assert_eq!(payload["d"]["token"], TOKEN);
                    self.begin_session();
                    let url = format!("ws://{}", self.gateway);
                    let ready = json!({"v": 10, "session_id": "s1", "resume_gateway_url": url, "user": bot(), "guilds": [],
                        "private_channels": [], "application": {"id": APPLICATION, "flags": 1 << 19}});
                    let _ = socket
                        .send(text(json!({"op": 0, "s": 1, "t": "READY", "d": ready})))
                        .await;
                    sent = Some(0);
                }
                Some(6) if self.lock().forgets => {
                    let _ = socket.send(text(json!({"op": 9, "d": false}))).await;
                }
                Some(6) => {
                    self.lock().resumes += 1;
                    let from = usize::try_from(payload["d"]["seq"].as_u64().unwrap()).unwrap();
                    let missed: Vec<Value> = self
                        .lock()
                        .events
                        .iter()
                        .skip(from.saturating_sub(1))
                        .cloned()
                        .collect();
                    let total = self.lock().events.len();
                    for event in missed {
                        let _ = socket.send(text(event)).await;
                    }
                    let _ = socket
                        .send(text(json!({"op": 0, "s": total + 1, "t": "RESUMED", "d": {}})))
                        .await;
                    sent = Some(total);
                }
                _ => {}
            }
        }
    }
}
