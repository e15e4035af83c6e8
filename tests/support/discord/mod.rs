//! A fake Discord: the gateway and the REST API on loopback, on two ports. `tests/agents/discord_library.rs` lets a client library
//! from its registry take it for the real one.

mod cut;
mod gateway;
mod rest;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;

pub(crate) const TOKEN: &str = "MTIz.abc.def-secret";
/// A direct chat, and a channel of a server.
pub(crate) const DIRECT: &str = "77";
pub(crate) const CHANNEL: &str = "88";

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
    /// Further messages by the tokens of commands.
    follow_ups: Vec<Value>,
    /// Whether the bot may not write in the channel, and whether the tokens of commands have died.
    forbids: bool,
    has_expired: bool,
    /// Ada's roles in the server.
    roles: Vec<String>,
    /// How often all connections to the gateway were cut.
    cuts: usize,
    /// How often the bot was asked to connect anew.
    reconnects: usize,
    /// After how many bytes the next connection to the gateway ends, and the next answer to a message.
    gateway_ends_after: Option<usize>,
    answer_ends_after: Option<usize>,
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
pub(crate) struct FakeDiscord {
    pub(crate) rest: SocketAddr,
    pub(crate) gateway: SocketAddr,
    state: Arc<Mutex<State>>,
    news: broadcast::Sender<()>,
}

impl FakeDiscord {
    pub(crate) async fn start() -> Self {
        let rest = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            rest: rest.local_addr().unwrap(),
            gateway: gateway.local_addr().unwrap(),
            state: Arc::default(),
            news: broadcast::channel(64).0,
        };
        // Recent ids: older messages are not fetched.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        fake.lock().next_id = (u64::try_from(now.as_millis()).unwrap() - 1_420_070_400_000) << 22;
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
    pub(crate) fn allow(&self, max_files: usize, takes_voice: bool) {
        let mut state = self.lock();
        (state.max_files, state.takes_voice) = (max_files, takes_voice);
    }

    /// Messages that were refused because of their files.
    pub(crate) fn refused(&self) -> Vec<Value> {
        self.lock().refused.clone()
    }

    /// Closes every connection with this code.
    pub(crate) fn refuse(&self, code: u16) {
        self.lock().refuse = Some(code);
    }

    /// Forgets the session: its events are not sent any more.
    pub(crate) fn forget_session(&self) {
        let mut state = self.lock();
        state.forgets = true;
        state.events.clear();
    }

    fn begin_session(&self) {
        let mut state = self.lock();
        state.identifies += 1;
        state.forgets = false;
    }

    pub(crate) fn sessions(&self) -> (usize, usize) {
        let state = self.lock();
        (state.identifies, state.resumes)
    }

    /// Ada gets these roles in the server, and loses others.
    pub(crate) fn give_roles(&self, roles: &[&str]) {
        self.lock().roles = roles.iter().map(|role| (*role).to_owned()).collect();
    }

    fn message(id: u64, chat: &str, text: &str) -> Value {
        let mentions = if text.contains("<@1>") {
            json!([bot()])
        } else {
            json!([])
        };
        message(id, chat, text, &ada(), &mentions)
    }

    /// Ada writes to the bot; returns the id of her message.
    pub(crate) fn say(&self, text: &str) -> u64 {
        self.say_in(DIRECT, text)
    }

    /// Ada changes a message that she wrote to the bot; without a time of the edit, Discord changed something about it.
    pub(crate) fn change(&self, id: u64, text: &str, edited: Option<&str>) {
        let mut message = Self::message(id, DIRECT, text);
        message["edited_timestamp"] = edited.into();
        self.happens("MESSAGE_UPDATE", &message);
    }

    /// Messages to the bot are deleted, at once if there are several.
    pub(crate) fn delete(&self, ids: &[u64]) {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        match &ids[..] {
            [id] => self.happens("MESSAGE_DELETE", &json!({"id": id, "channel_id": DIRECT})),
            ids => self.happens("MESSAGE_DELETE_BULK", &json!({"ids": ids, "channel_id": DIRECT})),
        }
    }

    /// Cuts every connection to the gateway.
    pub(crate) fn cut(&self) {
        self.lock().cuts += 1;
        let _ = self.news.send(());
    }

    /// Asks the bot to connect anew, and to resume its session.
    pub(crate) fn ask_to_reconnect(&self) {
        self.lock().reconnects += 1;
        let _ = self.news.send(());
    }

    /// Ends the next connection to the gateway after so many bytes.
    pub(crate) fn end_gateway_after(&self, bytes: usize) {
        self.lock().gateway_ends_after = Some(bytes);
    }

    /// Ends the connection of the next answer to a message of the bot after so many bytes; the message is shown.
    pub(crate) fn end_answer_after(&self, bytes: usize) {
        self.lock().answer_ends_after = Some(bytes);
    }

    /// How many placeholders the bot has taken away.
    pub(crate) fn discarded(&self) -> usize {
        self.lock().discarded
    }

    /// Ada writes into a chat; returns the id of her message.
    pub(crate) fn say_in(&self, chat: &str, text: &str) -> u64 {
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        let mut message = Self::message(id, chat, text);
        state.history.push(message.clone());
        if chat == CHANNEL {
            message["guild_id"] = "9".into();
            message["member"] = json!({ "roles": state.roles });
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
    pub(crate) fn interacts(&self, kind: u64, data: &Value) {
        self.interacts_in(DIRECT, kind, data);
    }

    /// Ada does something by other means than a message.
    pub(crate) fn interacts_in(&self, chat: &str, kind: u64, data: &Value) {
        self.interacts_by(ada(), chat, kind, data);
    }

    /// Bob does something by other means than a message.
    pub(crate) fn bob_interacts_in(&self, chat: &str, kind: u64, data: &Value) {
        let bob =
            json!({"id": "3", "username": "bob", "global_name": null, "discriminator": "0", "avatar": null});
        self.interacts_by(bob, chat, kind, data);
    }

    fn interacts_by(&self, user: Value, chat: &str, kind: u64, data: &Value) {
        let mut state = self.lock();
        state.next_id += 1;
        let (id, roles) = (state.next_id, state.roles.clone());
        drop(state);
        let mut interaction = json!({"id": id.to_string(), "type": kind, "token": format!("token-{id}"), "application_id": APPLICATION,
            "channel_id": chat, "data": data, "version": 1, "locale": "en-US", "attachment_size_limit": 10_485_760,
            "entitlements": [], "app_permissions": "0", "channel": {"id": chat, "type": u64::from(chat != CHANNEL)}});
        if chat == CHANNEL {
            interaction["guild_id"] = "9".into();
            interaction["member"] = json!({ "user": user, "roles": roles });
        } else {
            interaction["user"] = user;
        }
        if kind == 3 {
            interaction["message"] = message(999, chat, "a question", &bot(), &json!([]));
        }
        self.happens("INTERACTION_CREATE", &interaction);
    }

    /// Refuses this many messages because of a limit.
    pub(crate) fn limit(&self, messages: usize) {
        self.lock().limited = messages;
    }

    /// The names of the registered commands, and how often they were registered.
    pub(crate) fn commands(&self) -> (Vec<String>, usize) {
        let state = self.lock();
        let names = state
            .commands
            .iter()
            .map(|command| command["name"].as_str().unwrap().to_owned());
        (names.collect(), state.registrations)
    }

    /// The answers to interactions.
    pub(crate) fn callbacks(&self) -> Vec<Value> {
        self.lock().callbacks.clone()
    }

    /// The texts that took the place of placeholders.
    pub(crate) fn replaced(&self) -> Vec<String> {
        self.lock().replaced.clone()
    }

    /// The messages that came by the tokens of commands after the first.
    pub(crate) fn follow_ups(&self) -> Vec<Value> {
        self.lock().follow_ups.clone()
    }

    /// The bot may not write in the channel any more.
    pub(crate) fn forbid(&self) {
        self.lock().forbids = true;
    }

    /// The tokens of commands die.
    pub(crate) fn expire_tokens(&self) {
        self.lock().has_expired = true;
    }

    /// The files that the bot has uploaded.
    pub(crate) fn uploads(&self) -> Vec<(String, Vec<u8>)> {
        self.lock().uploads.clone()
    }

    /// Every message that the bot has sent, as it was sent.
    pub(crate) fn sent(&self) -> Vec<Value> {
        self.lock().sent.clone()
    }

    /// Ada writes while the session is lost: only the REST API knows of it.
    pub(crate) fn say_unseen(&self, chat: &str, text: &str) {
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        state.history.push(Self::message(id, chat, text));
    }

    /// The texts of the bot's messages, as people see them: a repeated nonce shows nothing.
    pub(crate) fn answers(&self) -> Vec<String> {
        self.lock().shown.iter().map(|(_, text)| text.clone()).collect()
    }
}

/// Ada, as Discord describes her.
fn ada() -> Value {
    json!({"id": "2", "username": "ada", "global_name": null, "discriminator": "0", "avatar": null})
}

/// The bot's own account.
fn bot() -> Value {
    json!({"id": "1", "username": "relay", "global_name": null, "discriminator": "0", "avatar": null, "bot": true})
}

/// A whole message.
fn message(id: u64, chat: &str, text: &str, author: &Value, mentions: &Value) -> Value {
    json!({"id": id.to_string(), "channel_id": chat, "type": 0, "content": text, "mentions": mentions, "author": author,
        "timestamp": "2026-01-01T00:00:00.000000+00:00", "edited_timestamp": null, "tts": false, "pinned": false, "flags": 0,
        "mention_everyone": false, "mention_roles": [], "attachments": [], "embeds": [], "components": []})
}
