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
    /// The ids and texts of the messages that the bot has sent.
    shown: Vec<(String, String)>,
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
    /// Messages that are refused because of a limit.
    limited: usize,
    /// The commands that the bot has registered, and how often it did.
    commands: Vec<Value>,
    registrations: usize,
    /// The answers to interactions.
    callbacks: Vec<Value>,
    /// The texts that took the place of placeholders.
    replaced: Vec<String>,
    /// Uploaded files: names and bytes.
    uploads: Vec<(String, Vec<u8>)>,
    /// Every message that the bot has sent, as it was sent.
    sent: Vec<Value>,
    /// Placeholders that the bot has taken away.
    discarded: usize,
    /// How often all connections to the gateway were cut.
    cuts: usize,
    /// Files that a message may have, and whether it may be a voice message.
    max_files: usize,
    takes_voice: bool,
    /// Messages that were refused for that.
    refused: Vec<Value>,
}

/// The application that the bot belongs to.
const APPLICATION: &str = "500";

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
        fake.allow(10, true);
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

    /// Takes so many files in a message, and voice messages or none.
    pub(super) fn allow(&self, max_files: usize, takes_voice: bool) {
        let mut state = self.lock();
        (state.max_files, state.takes_voice) = (max_files, takes_voice);
    }

    /// Messages that were refused because of their files.
    pub(super) fn refused(&self) -> Vec<Value> {
        self.lock().refused.clone()
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

    /// Ada writes to the bot; returns the id of her message.
    pub(super) fn say(&self, text: &str) -> u64 {
        self.say_in(DIRECT, text)
    }

    /// Ada changes a message that she wrote to the bot; without a time of the edit, Discord changed something about it.
    pub(super) fn change(&self, id: u64, text: &str, edited: Option<&str>) {
        let mut message = Self::message(id, DIRECT, text);
        message["edited_timestamp"] = edited.into();
        self.happens("MESSAGE_UPDATE", &message);
    }

    /// Messages to the bot are deleted, at once if there are several.
    pub(super) fn delete(&self, ids: &[u64]) {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        match &ids[..] {
            [id] => self.happens("MESSAGE_DELETE", &json!({"id": id, "channel_id": DIRECT})),
            ids => self.happens("MESSAGE_DELETE_BULK", &json!({"ids": ids, "channel_id": DIRECT})),
        }
    }

    /// Cuts every connection to the gateway.
    pub(super) fn cut(&self) {
        self.lock().cuts += 1;
        let _ = self.news.send(());
    }

    /// How many placeholders the bot has taken away.
    pub(super) fn discarded(&self) -> usize {
        self.lock().discarded
    }

    /// Ada writes into a chat; returns the id of her message.
    pub(super) fn say_in(&self, chat: &str, text: &str) -> u64 {
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        let mut message = Self::message(id, chat, text);
        state.history.push(message.clone());
        if chat == CHANNEL {
            message["guild_id"] = "9".into();
        }
        drop(state);
        self.happens("MESSAGE_CREATE", &message);
        id
    }

    fn happens(&self, kind: &str, data: &Value) {
        let mut state = self.lock();
        let seq = state.events.len() + 2;
        state
            .events
            .push(json!({"op": 0, "s": seq, "t": kind, "d": data}));
        drop(state);
        let _ = self.news.send(());
    }

    /// Ada does something by other means than a message, in her direct chat.
    pub(super) fn interacts(&self, kind: u64, data: &Value) {
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        drop(state);
        let mut interaction = json!({"id": id.to_string(), "type": kind, "token": format!("token-{id}"), "application_id": APPLICATION,
            "channel_id": DIRECT, "user": {"id": "2", "username": "ada"}, "data": data});
        if kind == 3 {
            interaction["message"] = json!({"id": "999"});
        }
        self.happens("INTERACTION_CREATE", &interaction);
    }

    /// Refuses this many messages because of a limit.
    pub(super) fn limit(&self, messages: usize) {
        self.lock().limited = messages;
    }

    /// The names of the registered commands, and how often they were registered.
    pub(super) fn commands(&self) -> (Vec<String>, usize) {
        let state = self.lock();
        let names = state
            .commands
            .iter()
            .map(|command| command["name"].as_str().unwrap().to_owned());
        (names.collect(), state.registrations)
    }

    /// The answers to interactions.
    pub(super) fn callbacks(&self) -> Vec<Value> {
        self.lock().callbacks.clone()
    }

    /// The texts that took the place of placeholders.
    pub(super) fn replaced(&self) -> Vec<String> {
        self.lock().replaced.clone()
    }

    /// The files that the bot has uploaded.
    pub(super) fn uploads(&self) -> Vec<(String, Vec<u8>)> {
        self.lock().uploads.clone()
    }

    /// Every message that the bot has sent, as it was sent.
    pub(super) fn sent(&self) -> Vec<Value> {
        self.lock().sent.clone()
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
        self.lock().shown.iter().map(|(_, text)| text.clone()).collect()
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
        let cuts = self.lock().cuts;
        loop {
            if self.lock().cuts > cuts {
                return;
            }
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
                    let ready = json!({"session_id": "s1", "resume_gateway_url": url, "user": user,
                        "application": {"id": APPLICATION}});
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
            let raw: Vec<u8> = bytes[end + 4..end + 4 + length].to_vec();
            bytes.drain(..end + 4 + length);
            let (body, files) = content(&raw);
            assert!(head.contains(&format!("Bot {TOKEN}")), "{head}");
            let mut words = head.split_whitespace();
            let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
            let (status, answer) = self.answer(&method, &path, &body, files);
            let answer = answer.to_string();
            let limits = "x-ratelimit-remaining: 4\r\nx-ratelimit-reset-after: 1.0\r\n";
            let answer = format!(
                "HTTP/1.1 {status} X\r\n{limits}content-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, method: &str, path: &str, body: &Value, files: Vec<(String, Vec<u8>)>) -> (u16, Value) {
        let mut state = self.lock();
        let commands = format!("/applications/{APPLICATION}/commands");
        let answer = match method {
            "GET" if path.contains("/messages?after=") => {
                let after = path.split("after=").nth(1).unwrap().split('&').next().unwrap();
                let after: u64 = after.parse().unwrap();
                let id = |message: &Value| message["id"].as_str().unwrap().parse::<u64>().unwrap();
                let chat = path.split('/').rev().nth(1).unwrap();
                let listed = state.history.iter().rev();
                let listed = listed.filter(|message| message["channel_id"] == chat);
                listed.filter(|message| id(message) > after).cloned().collect()
            }
            "GET" if path.ends_with(&format!("/channels/{CHANNEL}")) => {
                json!({"id": CHANNEL, "type": 0, "name": "talk", "guild_id": "9"})
            }
            "GET" if path.ends_with(&commands) => state.commands.clone().into(),
            "PUT" if path.ends_with(&commands) => {
                state.registrations += 1;
                state.commands.clone_from(body.as_array().unwrap());
                for command in &mut state.commands {
                    command["id"] = "1".into();
                }
                state.commands.clone().into()
            }
            "POST" if path.ends_with("/callback") => {
                state.callbacks.push(body.clone());
                Value::Null
            }
            "DELETE" if path.ends_with("/messages/@original") => {
                assert!(!state.callbacks.is_empty(), "there is no placeholder");
                state.discarded += 1;
                Value::Null
            }
            "PATCH" if path.ends_with("/messages/@original") => {
                if state.callbacks.is_empty() {
                    return (404, json!({"code": 10_015, "message": "Unknown Webhook"}));
                }
                state.replaced.push(body["content"].as_str().unwrap().to_owned());
                state.uploads.extend(files);
                state.next_id += 1;
                json!({"id": state.next_id.to_string()})
            }
            "PATCH" if path.contains("/channels/") && path.contains("/messages/") => {
                let edited = path.rsplit('/').next().unwrap();
                if let Some((_, text)) = state.shown.iter_mut().find(|(id, _)| id == edited) {
                    body["content"].as_str().unwrap().clone_into(text);
                }
                json!({"id": edited})
            }
            "POST" if path.ends_with("/messages") => {
                if state.limited > 0 {
                    state.limited -= 1;
                    return (
                        429,
                        json!({"message": "slow down", "retry_after": 0.3, "global": false}),
                    );
                }
                if files.len() > state.max_files || (body["flags"] == 8192 && !state.takes_voice) {
                    state.refused.push(body.clone());
                    return (400, json!({"code": 50_035, "message": "Invalid Form Body"}));
                }
                let nonce = body["nonce"].as_str().unwrap().to_owned();
                assert_eq!(body["enforce_nonce"], true);
                if let Some(known) = state.nonces.get(&nonce) {
                    return (200, known.clone());
                }
                state.next_id += 1;
                let message = json!({"id": state.next_id.to_string()});
                state.nonces.insert(nonce, message.clone());
                let text = body["content"].as_str().unwrap_or_default().to_owned();
                let id = state.next_id.to_string();
                state.shown.push((id, text));
                state.sent.push(body.clone());
                state.uploads.extend(files);
                message
            }
            _ => json!({"id": "1"}),
        };
        (200, answer)
    }
}

/// The JSON of a request, and the files that it uploads.
fn content(raw: &[u8]) -> (Value, Vec<(String, Vec<u8>)>) {
    if let Ok(json) = serde_json::from_slice(raw) {
        return (json, Vec::new());
    }
    let text = String::from_utf8_lossy(raw);
    let part = |name: &str| {
        let at = text.find(&format!("name=\"{name}\""))?;
        let start = at + text[at..].find("\r\n\r\n")? + 4;
        Some((at, start, start + text[start..].find("\r\n--")?))
    };
    let Some((_, start, end)) = part("payload_json") else {
        return (Value::Null, Vec::new());
    };
    let json = serde_json::from_str(&text[start..end]).unwrap();
    let files = (0..).map_while(|number| part(&format!("files[{number}]")));
    let files = files.map(|(at, start, end)| {
        let name = text[at..].split("filename=\"").nth(1).unwrap().split('"').next();
        (name.unwrap().to_owned(), text[start..end].as_bytes().to_vec())
    });
    (json, files.collect())
}
