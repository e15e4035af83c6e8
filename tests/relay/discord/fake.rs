//! A fake Discord: the gateway and the REST API on loopback, on two ports.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

pub(super) const TOKEN: &str = "MTIz.abc.def-secret";
/// A direct chat, and a channel of a server.
pub(super) const DIRECT: &str = "77";
pub(super) const CHANNEL: &str = "88";

#[derive(Default)]
struct State {
    /// The events of the session, with their numbers.
    events: Vec<Value>,
    /// The texts of the messages that the bot has sent.
    shown: Vec<String>,
    /// Messages by their nonce.
    nonces: HashMap<String, Value>,
    /// Messages that the REST API lists.
    history: Vec<Value>,
    next_id: u64,
    unseen: u64,
    identifies: usize,
    resumes: usize,
    /// The close code with which every connection ends.
    refuse: Option<u16>,
    /// Whether resuming is refused.
    forgets: bool,
}

/// A fake Discord.
#[derive(Clone)]
pub(super) struct FakeDiscord {
    pub(super) rest: SocketAddr,
    pub(super) gateway: SocketAddr,
    state: Arc<Mutex<State>>,
    news: broadcast::Sender<()>,
}

impl FakeDiscord {
    pub(super) async fn start() -> Self {
        let rest = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            rest: rest.local_addr().unwrap(),
            gateway: gateway.local_addr().unwrap(),
            state: Arc::default(),
            news: broadcast::channel(64).0,
        };
        fake.lock().next_id = 1000;
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = rest.accept().await {
                tokio::spawn(server.clone().http(stream));
            }
        });
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = gateway.accept().await {
                tokio::spawn(server.clone().socket(stream));
            }
        });
        fake
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Closes every connection with this code.
    pub(super) fn refuse(&self, code: u16) {
        self.lock().refuse = Some(code);
    }

    /// Forgets the session: its events are not sent any more.
    pub(super) fn forget_session(&self) {
        let mut state = self.lock();
        state.forgets = true;
        state.events.clear();
    }

    fn begin_session(&self) {
        let mut state = self.lock();
        state.identifies += 1;
        state.forgets = false;
    }

    pub(super) fn sessions(&self) -> (usize, usize) {
        let state = self.lock();
        (state.identifies, state.resumes)
    }

    fn message(id: u64, chat: &str, text: &str) -> Value {
        let mentions = if text.contains("<@1>") {
            json!([{"id": "1"}])
        } else {
            json!([])
        };
        json!({"id": id.to_string(), "channel_id": chat, "type": 0, "content": text, "mentions": mentions,
            "author": {"id": "2", "username": "ada"}})
    }

    /// Ada writes to the bot.
    pub(super) fn say(&self, text: &str) {
        self.say_in(DIRECT, text);
    }

    /// Ada writes into a chat.
    pub(super) fn say_in(&self, chat: &str, text: &str) {
        let mut state = self.lock();
        state.next_id += 1;
        let mut message = Self::message(state.next_id, chat, text);
        state.history.push(message.clone());
        if chat == CHANNEL {
            message["guild_id"] = "9".into();
        }
        let seq = state.events.len() + 2;
        state
            .events
            .push(json!({"op": 0, "s": seq, "t": "MESSAGE_CREATE", "d": message}));
        drop(state);
        let _ = self.news.send(());
    }

    /// Ada writes while the session is lost: only the REST API knows of it.
    pub(super) fn say_unseen(&self, chat: &str, text: &str) {
        let mut state = self.lock();
        // A recent id: older messages are not fetched.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        state.unseen += 1;
        let id = ((u64::try_from(now.as_millis()).unwrap() - 1_420_070_400_000) << 22) + state.unseen;
        state.history.push(Self::message(id, chat, text));
    }

    /// The texts of the bot's messages, as people see them: a repeated nonce shows nothing.
    pub(super) fn answers(&self) -> Vec<String> {
        self.lock().shown.clone()
    }

    async fn socket(self, stream: TcpStream) {
        let mut news = self.news.subscribe();
        let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
            return;
        };
        let text = |value: Value| Message::text(value.to_string());
        let hello = json!({"op": 10, "d": {"heartbeat_interval": 500}});
        let _ = socket.send(text(hello)).await;
        let mut sent: Option<usize> = None;
        loop {
            if let Some(from) = sent {
                let events: Vec<Value> = self.lock().events.iter().skip(from).cloned().collect();
                sent = Some(from + events.len());
                for event in events {
                    let _ = socket.send(text(event)).await;
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
                    let user = json!({"id": "1", "username": "relay", "bot": true});
                    let ready = json!({"session_id": "s1", "resume_gateway_url": url, "user": user});
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

    async fn http(self, mut stream: TcpStream) {
        let mut bytes = Vec::new();
        loop {
            let (end, length) = loop {
                let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
                if let Some(end) = head {
                    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                    let length = head
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: "));
                    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                    if bytes.len() >= end + 4 + length {
                        break (end, length);
                    }
                }
                let mut buffer = [0; 8192];
                match stream.read(&mut buffer).await {
                    Ok(read) if read > 0 => bytes.extend_from_slice(&buffer[..read]),
                    _ => return,
                }
            };
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let body: Value = serde_json::from_slice(&bytes[end + 4..end + 4 + length]).unwrap_or_default();
            bytes.drain(..end + 4 + length);
            assert!(head.contains(&format!("Bot {TOKEN}")), "{head}");
            let mut words = head.split_whitespace();
            let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
            let answer = self.answer(&method, &path, &body).to_string();
            let limits = "x-ratelimit-remaining: 4\r\nx-ratelimit-reset-after: 1.0\r\n";
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{limits}content-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut state = self.lock();
        if method == "GET" && path.contains("/messages?after=") {
            let after: u64 = path
                .split("after=")
                .nth(1)
                .unwrap()
                .split('&')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let id = |message: &Value| message["id"].as_str().unwrap().parse::<u64>().unwrap();
            let chat = path.split('/').rev().nth(1).unwrap();
            let listed = state
                .history
                .iter()
                .rev()
                .filter(|message| message["channel_id"] == chat);
            return listed.filter(|message| id(message) > after).cloned().collect();
        }
        if method == "GET" && path.ends_with(&format!("/channels/{CHANNEL}")) {
            return json!({"id": CHANNEL, "type": 0, "name": "talk", "guild_id": "9"});
        }
        if method == "POST" && path.ends_with("/messages") {
            let nonce = body["nonce"].as_str().unwrap().to_owned();
            if let Some(known) = state.nonces.get(&nonce) {
                return known.clone();
            }
            state.next_id += 1;
            let message = json!({"id": state.next_id.to_string()});
            state.nonces.insert(nonce, message.clone());
            state.shown.push(body["content"].as_str().unwrap().to_owned());
            return message;
        }
        json!({"id": "1"})
    }
}
