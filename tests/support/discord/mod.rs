//! The fake Discord of `dev` with faults in front of it: the gateway and the REST API on loopback, on two ports.
//! `tests/agents/discord_library.rs` lets a client library from its registry take it for the real one.

mod cut;
mod rest;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use hermes_relay::dev::{self, FakeDiscordSettings, RoomKind};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use cut::CutStream;

pub(crate) const TOKEN: &str = "MTIz.abc.def-secret";
/// A direct chat, and a channel of a server.
pub(crate) const DIRECT: &str = "77";
pub(crate) const CHANNEL: &str = "88";
const ADA: &str = "2";
const BOB: &str = "3";

/// What goes wrong, and what was seen.
#[derive(Default)]
struct Front {
    /// Requests that are refused.
    refusals: Vec<Refusal>,
    /// Messages that are refused because of a limit.
    limited: usize,
    /// Reads of a chat's messages that fail.
    unreadable: usize,
    /// The answers to interactions.
    callbacks: Vec<Value>,
    /// The texts that took the place of placeholders, and the buttons with them.
    replaced: Vec<String>,
    buttons: Vec<Value>,
    /// Uploaded files: names and bytes.
    uploads: Vec<(String, Vec<u8>)>,
    /// Every message that the bot has sent, as it was sent.
    sent: Vec<Value>,
    /// Their ids: a repeated nonce shows nothing.
    ids: HashSet<u64>,
    /// Placeholders that the bot has taken away.
    discarded: usize,
    /// Further messages by the tokens of commands.
    follow_ups: Vec<Value>,
    /// Whether the bot may not write in the channel, and whether the tokens of commands have died.
    forbids: bool,
    has_expired: bool,
    /// After how many bytes the next connection to the gateway ends, and the next answer to a message.
    gateway_ends_after: Option<usize>,
    answer_ends_after: Option<usize>,
    /// Files that a message may have, and whether it may be a voice message.
    max_files: usize,
    takes_voice: bool,
    /// Messages that were refused for that.
    refused: Vec<Value>,
    /// The names of the threads that the bot has opened.
    threads: Vec<String>,
}

/// Requests that are refused, and how.
struct Refusal {
    /// How many.
    left: usize,
    /// Their method, and a part of their path.
    method: &'static str,
    path: String,
    status: u16,
    answer: Value,
}

/// A fake Discord.
#[derive(Clone)]
pub(crate) struct FakeDiscord {
    pub(crate) rest: SocketAddr,
    pub(crate) gateway: SocketAddr,
    inner: Arc<dev::FakeDiscord>,
    front: Arc<Mutex<Front>>,
}

impl FakeDiscord {
    pub(crate) async fn start() -> Self {
        Self::with_heartbeats_every(500).await
    }

    pub(crate) async fn with_heartbeats_every(heartbeat_ms: u64) -> Self {
        let rest = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (rest_at, gateway_at) = (rest.local_addr().unwrap(), gateway.local_addr().unwrap());
        let settings = FakeDiscordSettings {
            token: TOKEN.into(),
            heartbeat_ms,
            kept_messages: 100_000,
            ..FakeDiscordSettings::default()
        };
        let fake = Self {
            rest: rest_at,
            gateway: gateway_at,
            inner: Arc::new(dev::FakeDiscord::new(
                settings,
                rest_at,
                format!("ws://{gateway_at}"),
            )),
            front: Arc::default(),
        };
        fake.inner.hub.change(|state| {
            state.add_person(ADA, "ada", DIRECT);
            state.add_person(BOB, "bob", "78");
            state.add_room(CHANNEL, RoomKind::Channel, "talk", None);
        });
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
                let ends_after = server.lock().gateway_ends_after.take();
                let hub = Arc::clone(&server.inner.hub);
                tokio::spawn(async move {
                    let stream = CutStream { stream, ends_after };
                    if let Ok(socket) = tokio_tungstenite::accept_async(stream).await {
                        hub.gateway(socket).await;
                    }
                });
            }
        });
        fake
    }

    fn lock(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap()
    }

    /// Takes so many files in a message, and voice messages or none.
    pub(crate) fn allow(&self, max_files: usize, takes_voice: bool) {
        let mut front = self.lock();
        (front.max_files, front.takes_voice) = (max_files, takes_voice);
    }

    /// Messages that were refused because of their files.
    pub(crate) fn refused(&self) -> Vec<Value> {
        self.lock().refused.clone()
    }

    /// Closes every connection with this code.
    pub(crate) fn refuse(&self, code: u16) {
        self.inner
            .hub
            .change(|state| state.faults.close_with = Some(code));
    }

    /// Forgets the session: its events are not sent any more.
    pub(crate) fn forget_session(&self) {
        self.inner.hub.change(|state| {
            state.faults.forgets = true;
            state.forget_events();
        });
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.is_connected()
    }

    pub(crate) fn sessions(&self) -> (usize, usize) {
        self.inner.hub.lock().sessions
    }

    /// Ada gets these roles in the server, and loses others.
    pub(crate) fn give_roles(&self, roles: &[&str]) {
        let roles: Vec<String> = roles.iter().map(|role| (*role).to_owned()).collect();
        self.inner.hub.change(|state| {
            let ada = state.people.iter_mut().find(|person| person.id == ADA);
            ada.unwrap().roles = roles;
        });
    }

    /// Ada writes to the bot; returns the id of her message.
    pub(crate) fn say(&self, text: &str) -> u64 {
        self.say_in(DIRECT, text)
    }

    /// Ada changes a message that she wrote to the bot; without a time of the edit, Discord changed something about it.
    pub(crate) fn change(&self, id: u64, text: &str, edited: Option<&str>) {
        self.inner.hub.change(|state| {
            let mut message = state.message_of(ADA, id, DIRECT, text);
            message["edited_timestamp"] = edited.into();
            state.happens("MESSAGE_UPDATE", &message);
        });
    }

    /// Messages to the bot are deleted, at once if there are several.
    pub(crate) fn delete(&self, ids: &[u64]) {
        let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
        let (kind, deleted) = match &ids[..] {
            [id] => ("MESSAGE_DELETE", json!({"id": id, "channel_id": DIRECT})),
            ids => ("MESSAGE_DELETE_BULK", json!({"ids": ids, "channel_id": DIRECT})),
        };
        self.inner.hub.change(|state| state.happens(kind, &deleted));
    }

    /// Something happens in the server.
    pub(crate) fn happens(&self, kind: &str, data: &Value) {
        self.inner.hub.change(|state| state.happens(kind, data));
    }

    /// Answers no heartbeats from now on, or answers them again.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.inner.hub.change(|state| state.faults.is_mute = is_mute);
    }

    /// Cuts every connection to the gateway.
    pub(crate) fn cut(&self) {
        self.inner.hub.change(|state| state.faults.cuts += 1);
    }

    /// Asks the bot to connect anew, and to resume its session.
    pub(crate) fn ask_to_reconnect(&self) {
        self.inner.hub.change(|state| state.faults.reconnects += 1);
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
        self.inner.hub.change(|state| state.say(chat, ADA, text, true))
    }

    /// Ada does something by other means than a message, in her direct chat.
    pub(crate) fn interacts(&self, kind: u64, data: &Value) {
        self.interacts_in(DIRECT, kind, data);
    }

    /// Ada does something by other means than a message.
    pub(crate) fn interacts_in(&self, chat: &str, kind: u64, data: &Value) {
        self.inner
            .hub
            .change(|state| state.interact(chat, ADA, kind, data, None));
    }

    /// Bob does something by other means than a message.
    pub(crate) fn bob_interacts_in(&self, chat: &str, kind: u64, data: &Value) {
        self.inner
            .hub
            .change(|state| state.interact(chat, BOB, kind, data, None));
    }

    /// Refuses this many messages because of a limit.
    pub(crate) fn limit(&self, messages: usize) {
        self.lock().limited = messages;
    }

    /// Refuses so many requests with this method and this in their path.
    pub(crate) fn refuse_requests(
        &self,
        count: usize,
        method: &'static str,
        path: &str,
        status: u16,
        answer: &Value,
    ) {
        self.lock().refusals.push(Refusal {
            left: count,
            method,
            path: path.to_owned(),
            status,
            answer: answer.clone(),
        });
    }

    /// How many requests are still to be refused.
    pub(crate) fn refusals_left(&self) -> usize {
        self.lock().refusals.iter().map(|refusal| refusal.left).sum()
    }

    /// Fails this many reads of a chat's messages.
    pub(crate) fn fail_reads(&self, reads: usize) {
        self.lock().unreadable = reads;
    }

    /// The names of the registered commands, and how often they were registered.
    pub(crate) fn commands(&self) -> (Vec<String>, usize) {
        let state = self.inner.hub.lock();
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

    /// The buttons of the last text that took the place of a placeholder.
    pub(crate) fn buttons(&self) -> Value {
        self.lock().buttons.last().cloned().unwrap_or_default()
    }

    /// The names of the threads that the bot has opened.
    pub(crate) fn threads(&self) -> Vec<String> {
        self.lock().threads.clone()
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
        self.inner.hub.change(|state| state.say(chat, ADA, text, false));
    }

    /// The texts of the bot's messages, as people see them: a repeated nonce shows nothing.
    pub(crate) fn answers(&self) -> Vec<String> {
        self.inner.hub.lock().answers()
    }
}
