//! What the fake Discord keeps: people, rooms with their messages, the events of the session, commands and interactions.

use std::collections::{BTreeMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use secrecy::SecretString;
use serde_json::{Value, json};

use crate::dev::bot_api::ApiFiles;
use crate::dev::calls::CallLog;
use crate::dev::connector::random_token;

/// The bot.
pub(super) const BOT: &str = "1";
/// Its application.
pub(super) const APPLICATION: &str = "500";
/// The server that its channels are in.
pub(super) const GUILD: &str = "9";
/// The start of Discord's time, in Unix milliseconds.
const EPOCH_MS: u64 = 1_420_070_400_000;
/// Events that are kept for a bot that resumes.
const MAX_EVENTS: usize = 50_000;
/// Interactions that can be answered.
const MAX_INTERACTIONS: usize = 1_000;
/// Nonces that are recognised.
const MAX_NONCES: usize = 50_000;
/// Calls that are kept.
const MAX_CALLS: usize = 2_000;

/// How a fake Discord is set up.
#[derive(Clone, Debug)]
pub struct FakeDiscordSettings {
    /// The port of the gateway, the REST API and the page; 0 chooses a free one.
    pub port: u16,
    /// The bot's token.
    pub token: SecretString,
    /// The bot's name.
    pub username: String,
    /// How often the bot is to send heartbeats.
    pub heartbeat_ms: u64,
    /// Messages of a room that are kept.
    pub kept_messages: usize,
}

impl Default for FakeDiscordSettings {
    fn default() -> Self {
        Self {
            port: 0,
            token: format!("MQ.fake00.{}", &random_token()[..32]).into(),
            username: "relay".to_owned(),
            heartbeat_ms: 41_250,
            kept_messages: 500,
        }
    }
}

/// What goes wrong at the gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct GatewayFaults {
    /// The close code with which every connection ends.
    pub close_with: Option<u16>,
    /// Whether resuming is refused.
    pub forgets: bool,
    /// Whether heartbeats are not answered.
    pub is_mute: bool,
    /// How often all connections were cut.
    pub cuts: usize,
    /// How often the bot was asked to connect anew.
    pub reconnects: usize,
}

/// Somebody on the fake Discord.
#[derive(Clone, Debug)]
pub struct DiscordPerson {
    /// Their id.
    pub id: String,
    /// Their name.
    pub name: String,
    /// Their roles in the server.
    pub roles: Vec<String>,
}

impl DiscordPerson {
    /// As Discord describes them.
    pub fn user(&self) -> Value {
        user(&self.id, &self.name)
    }
}

/// The kind of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomKind {
    /// A person and the bot.
    Direct,
    /// A channel of the server.
    Channel,
    /// A thread of a channel.
    Thread,
}

impl RoomKind {
    /// Its name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Channel => "channel",
            Self::Thread => "thread",
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Channel => 0,
            Self::Direct => 1,
            Self::Thread => 11,
        }
    }
}

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOrigin {
    /// A person wrote it.
    Person,
    /// The bot sent it.
    Bot,
    /// It stands for the answer to a command, or has become it.
    Placeholder,
    /// The bot sent it by the token of an interaction.
    FollowUp,
}

/// A message in a room.
#[derive(Clone, Debug)]
pub struct RoomMessage {
    /// Its id.
    pub id: u64,
    /// As Discord describes it.
    pub object: Value,
    /// How it came.
    pub origin: MessageOrigin,
    /// Whether its text was changed.
    pub is_edited: bool,
    /// Whether it was deleted.
    pub is_deleted: bool,
    /// Whether only one person sees it.
    pub is_private: bool,
    /// What the bot reacted with.
    pub reactions: Vec<String>,
    /// Its files, by their ids.
    pub files: Vec<String>,
}

impl RoomMessage {
    pub(super) fn new(id: u64, object: Value, origin: MessageOrigin) -> Self {
        Self {
            id,
            object,
            origin,
            is_edited: false,
            is_deleted: false,
            is_private: false,
            reactions: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        self.object["content"].as_str().unwrap_or_default()
    }
}

/// A place where people write.
#[derive(Clone, Debug)]
pub struct DiscordRoom {
    pub(super) id: String,
    pub(super) kind: RoomKind,
    pub(super) name: String,
    /// The person of a direct chat.
    pub(super) person: Option<String>,
    /// The channel of a thread.
    pub(super) parent: Option<String>,
    pub(super) messages: VecDeque<RoomMessage>,
    /// Until when the bot is shown as writing, in Unix seconds.
    pub(super) typing_until: i64,
    /// Raised by every change.
    pub(super) version: u64,
}

impl DiscordRoom {
    /// As Discord describes it.
    pub(super) fn object(&self) -> Value {
        let mut object = json!({ "id": self.id, "type": self.kind.number(), "name": self.name });
        if self.kind != RoomKind::Direct {
            object["guild_id"] = GUILD.into();
        }
        if let Some(parent) = &self.parent {
            object["parent_id"] = parent.clone().into();
        }
        object
    }
}

/// Something that a person did by other means than a message.
#[derive(Clone, Debug)]
pub(super) struct OpenInteraction {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) room: String,
    /// The message that stands for its answer.
    pub(super) placeholder: Option<u64>,
}

/// Everything that the fake Discord knows.
pub struct FakeDiscordState {
    pub(super) settings: FakeDiscordSettings,
    /// The address of the gateway.
    pub(super) gateway: String,
    /// The people.
    pub people: Vec<DiscordPerson>,
    pub(super) rooms: BTreeMap<String, DiscordRoom>,
    /// The events of the session, and how many came before those that are kept.
    pub(super) events: VecDeque<Value>,
    pub(super) dropped_events: usize,
    pub(super) nonces: BTreeMap<String, Value>,
    pub(super) interactions: VecDeque<OpenInteraction>,
    /// The commands that the bot has registered.
    pub commands: Vec<Value>,
    /// How often it did.
    pub registrations: usize,
    /// Sessions that were begun and resumed.
    pub sessions: (usize, usize),
    /// What goes wrong at the gateway.
    pub faults: GatewayFaults,
    pub(super) connected: usize,
    pub(super) calls: CallLog,
    pub(super) files: ApiFiles,
    last_id: u64,
}

impl FakeDiscordState {
    pub(super) fn new(settings: FakeDiscordSettings, gateway: String) -> Self {
        Self {
            settings,
            gateway,
            people: Vec::new(),
            rooms: BTreeMap::new(),
            events: VecDeque::new(),
            dropped_events: 0,
            nonces: BTreeMap::new(),
            interactions: VecDeque::new(),
            commands: Vec::new(),
            registrations: 0,
            sessions: (0, 0),
            faults: GatewayFaults::default(),
            connected: 0,
            calls: CallLog::new(MAX_CALLS),
            files: ApiFiles::default(),
            last_id: 0,
        }
    }

    /// An id that says when it was made: old messages are not fetched, and late ones count in their own minute.
    pub(super) fn next_id(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.last_id = (self.last_id + 1).max(now_ms.saturating_sub(EPOCH_MS) << 22);
        self.last_id
    }

    /// The bot's own account.
    pub(super) fn bot(&self) -> Value {
        let mut bot = user(BOT, &self.settings.username);
        bot["bot"] = true.into();
        bot
    }

    /// A room; one that is not known is a direct chat.
    pub(super) fn room(&mut self, id: &str) -> &mut DiscordRoom {
        let room = self.rooms.entry(id.to_owned()).or_insert_with(|| DiscordRoom {
            id: id.to_owned(),
            kind: RoomKind::Direct,
            name: id.to_owned(),
            person: None,
            parent: None,
            messages: VecDeque::new(),
            typing_until: 0,
            version: 0,
        });
        room.version += 1;
        room
    }

    /// Adds a room.
    pub fn add_room(&mut self, id: &str, kind: RoomKind, name: &str, person: Option<&str>) {
        let room = self.room(id);
        room.kind = kind;
        name.clone_into(&mut room.name);
        room.person = person.map(str::to_owned);
    }

    /// The message that the bot or a person wrote, as Discord describes it.
    pub(super) fn message(&self, id: u64, room: &str, text: &str, author: &Value) -> Value {
        let mentions = if text.contains(&format!("<@{BOT}>")) {
            json!([self.bot()])
        } else {
            json!([])
        };
        let roles = text.split("<@&").skip(1).filter_map(|rest| rest.split_once('>'));
        let roles: Vec<&str> = roles.map(|(role, _)| role).collect();
        json!({"id": id.to_string(), "channel_id": room, "type": 0, "content": text, "mentions": mentions, "author": author,
            "timestamp": "2026-01-01T00:00:00.000000+00:00", "edited_timestamp": null, "tts": false, "pinned": false, "flags": 0,
            "mention_everyone": false, "mention_roles": roles, "attachments": [], "embeds": [], "components": []})
    }

    pub(super) fn keep(&mut self, room: &str, message: RoomMessage) {
        let most = self.settings.kept_messages;
        let room = self.room(room);
        room.typing_until = 0;
        room.messages.push_back(message);
        while room.messages.len() > most {
            room.messages.pop_front();
        }
    }

    /// The message with this id, and its room, which counts as changed.
    pub(super) fn find(&mut self, id: &str) -> Option<&mut RoomMessage> {
        let id: u64 = id.parse().ok()?;
        for room in self.rooms.values_mut() {
            if let Some(at) = room.messages.iter().rposition(|message| message.id == id) {
                room.version += 1;
                return room.messages.get_mut(at);
            }
        }
        None
    }

    /// An event of the session.
    pub fn happens(&mut self, kind: &str, data: &Value) {
        let seq = self.dropped_events + self.events.len() + 2;
        self.events
            .push_back(json!({ "op": 0, "s": seq, "t": kind, "d": data }));
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
            self.dropped_events += 1;
        }
    }

    /// A person writes; the gateway says so if it `is_seen`. Returns the id of the message.
    pub fn say(&mut self, room: &str, person: &str, text: &str, is_seen: bool) -> u64 {
        self.write(room, person, text, None, Vec::new(), is_seen)
    }

    pub(super) fn write(
        &mut self,
        room: &str,
        person: &str,
        text: &str,
        reply_to: Option<&str>,
        attachments: Vec<(String, Value)>,
        is_seen: bool,
    ) -> u64 {
        let id = self.next_id();
        let author = self.person(person);
        let mut object = self.message(id, room, text, &author.user());
        if let Some(quoted) = reply_to {
            let referenced = self.find(quoted).map(|message| message.object.clone());
            object["type"] = 19.into();
            object["message_reference"] = json!({ "type": 0, "message_id": quoted, "channel_id": room });
            object["referenced_message"] = referenced.into();
        }
        let (files, described): (Vec<String>, Vec<Value>) = attachments.into_iter().unzip();
        object["attachments"] = described.into();
        let mut message = RoomMessage::new(id, object.clone(), MessageOrigin::Person);
        message.files = files;
        self.keep(room, message);
        if self.room(room).kind != RoomKind::Direct {
            object["guild_id"] = GUILD.into();
            object["member"] = json!({ "roles": author.roles });
        }
        if is_seen {
            self.happens("MESSAGE_CREATE", &object);
        }
        id
    }

    /// A message of a person, as Discord describes it.
    #[cfg(feature = "internals")]
    pub fn message_of(&self, person: &str, id: u64, room: &str, text: &str) -> Value {
        self.message(id, room, text, &self.person(person).user())
    }

    /// Forgets the events of the session.
    #[cfg(feature = "internals")]
    pub fn forget_events(&mut self) {
        self.events.clear();
        self.dropped_events = 0;
    }

    fn person(&self, id: &str) -> DiscordPerson {
        let known = self.people.iter().find(|person| person.id == id);
        known.cloned().unwrap_or_else(|| DiscordPerson {
            id: id.to_owned(),
            name: id.to_owned(),
            roles: Vec::new(),
        })
    }

    /// A person uses a command, presses a button or sends a form.
    pub fn interact(&mut self, room: &str, person: &str, kind: u64, data: &Value, message: Option<&str>) {
        let id = self.next_id().to_string();
        let token = format!("token-{id}");
        let person = self.person(person);
        let message = message.and_then(|message| self.find(message).map(|found| found.object.clone()));
        let about = self.room(room).object();
        let mut interaction = json!({"id": id, "type": kind, "token": token, "application_id": APPLICATION, "channel_id": room,
            "data": data, "version": 1, "locale": "en-US", "attachment_size_limit": 10_485_760, "entitlements": [],
            "app_permissions": "0", "channel": about});
        if about["guild_id"].is_string() {
            interaction["guild_id"] = GUILD.into();
            interaction["member"] = json!({ "user": person.user(), "roles": person.roles });
        } else {
            interaction["user"] = person.user();
        }
        if kind == 3 {
            let question = || self.message(999, room, "a question", &self.bot());
            interaction["message"] = message.unwrap_or_else(question);
        }
        self.interactions.push_back(OpenInteraction {
            id,
            token,
            room: room.to_owned(),
            placeholder: None,
        });
        if self.interactions.len() > MAX_INTERACTIONS {
            self.interactions.pop_front();
        }
        self.happens("INTERACTION_CREATE", &interaction);
    }

    /// What the bot has written, the oldest first; what came by the tokens of interactions is not among it.
    pub fn answers(&self) -> Vec<String> {
        let messages = self.rooms.values().flat_map(|room| &room.messages);
        let mut messages: Vec<&RoomMessage> = messages
            .filter(|message| message.origin == MessageOrigin::Bot)
            .collect();
        messages.sort_by_key(|message| message.id);
        messages
            .into_iter()
            .map(|message| message.text().to_owned())
            .collect()
    }

    /// Remembers which message a nonce stands for.
    pub(super) fn remember(&mut self, nonce: String, message: Value) {
        if self.nonces.len() >= MAX_NONCES {
            self.nonces.clear();
        }
        self.nonces.insert(nonce, message);
    }
}

fn user(id: &str, name: &str) -> Value {
    json!({ "id": id, "username": name, "global_name": null, "discriminator": "0", "avatar": null })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_say_when_they_were_made() {
        let mut state = FakeDiscordState::new(FakeDiscordSettings::default(), String::new());
        let first = state.next_id();
        assert!(state.next_id() > first);
        // Some time later.
        state.last_id = 1;
        assert!(state.next_id() >= first);
    }
}
