//! The REST API: what a request changes, and what it is answered.

use serde_json::{Value, json};

use super::state::{APPLICATION, FakeDiscordState, GUILD, MessageOrigin, RoomKind, RoomMessage};
use crate::dev::bot_api::{UploadedFile, unix_now};

/// How long the bot is shown as writing, in seconds.
const TYPING_SECS: i64 = 10;
/// Only one person sees a message with this flag.
const EPHEMERAL: u64 = 64;

type RestReply = (u16, Value);

impl FakeDiscordState {
    /// Performs a request.
    pub fn rest(&mut self, method: &str, path: &str, body: &Value, files: Vec<UploadedFile>) -> RestReply {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = path.trim_start_matches('/');
        let path = path.strip_prefix("api/v10/").unwrap_or(path);
        let parts: Vec<&str> = path.split('/').collect();
        let answer = match (method, &parts[..]) {
            ("GET", _) => return self.read(&parts, query),
            ("PUT", ["applications", _, "commands"]) => self.register(body),
            ("POST", ["interactions", id, _, "callback"]) => return self.callback(id, query, body),
            ("POST", ["webhooks", _, token]) => return self.follow_up(token, body, files),
            ("PATCH", ["webhooks", _, token, "messages", "@original"]) => {
                return self.replace(token, body, files);
            }
            ("DELETE", ["webhooks", _, token, "messages", "@original"]) => return self.discard(token),
            ("PATCH", ["channels", _, "messages", id] | ["webhooks", _, _, "messages", id]) => {
                return self.edit(id, body);
            }
            ("DELETE", ["channels", _, "messages", id] | ["webhooks", _, _, "messages", id]) => {
                if let Some(message) = self.find(id) {
                    message.is_deleted = true;
                }
                Value::Null
            }
            ("POST", ["channels", room, "messages"]) => self.post(room, body, files),
            ("POST", ["channels", room, "typing"]) => {
                self.room(room).typing_until = unix_now() + TYPING_SECS;
                Value::Null
            }
            ("PUT" | "DELETE", ["channels", _, "messages", id, "reactions", emoji, "@me"]) => {
                self.react(id, emoji, method == "PUT");
                Value::Null
            }
            ("POST", ["channels", room, "messages", id, "threads"]) => self.open_thread(room, id, body),
            ("POST", ["channels", room, "threads"]) => {
                let id = self.next_id().to_string();
                self.open_thread(room, &id, body)
            }
            ("PATCH", ["channels", room]) => {
                if let Some(name) = body["name"].as_str() {
                    name.clone_into(&mut self.room(room).name);
                }
                self.room(room).object()
            }
            ("POST", ["users", "@me", "channels"]) => {
                let person = body["recipient_id"].as_str().unwrap_or_default().to_owned();
                let known = self.rooms.values();
                let known = known.filter(|room| room.kind == RoomKind::Direct);
                let known = known.filter(|room| room.person.as_deref() == Some(&person));
                let known = known.map(super::state::DiscordRoom::object).next();
                known.unwrap_or_else(|| json!({ "id": "1", "type": 1 }))
            }
            _ => json!({ "id": "1" }),
        };
        (200, answer)
    }

    /// What is at a path.
    fn read(&mut self, parts: &[&str], query: &str) -> RestReply {
        let answer = match parts {
            ["users", "@me"] => self.bot(),
            ["applications", "@me"] | ["oauth2", "applications", "@me"] => {
                json!({"id": APPLICATION, "name": self.settings.username, "description": "", "icon": null, "bot_public": true,
                    "bot_require_code_grant": false, "owner": self.bot(), "verify_key": "", "flags": 1 << 19})
            }
            ["applications", _, "commands"] => self.commands.clone().into(),
            ["gateway", "bot"] => {
                let limit = json!({"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1});
                json!({"url": self.gateway, "shards": 1, "session_start_limit": limit})
            }
            ["channels", room, "messages"] => self.list(room, query),
            ["channels", room] => match self.rooms.get(*room) {
                Some(room) => room.object(),
                None => json!({ "id": "1" }),
            },
            ["guilds", _, "members", person] => {
                let known = self.people.iter().find(|known| known.id == *person);
                match known {
                    Some(known) => json!({ "user": known.user(), "roles": known.roles }),
                    None => return (404, json!({ "code": 10_007, "message": "Unknown Member" })),
                }
            }
            ["guilds", _] => json!({ "id": GUILD, "name": "A server" }),
            _ => json!({ "id": "1" }),
        };
        (200, answer)
    }

    /// The first messages that people wrote after one, the newest first.
    fn list(&self, room: &str, query: &str) -> Value {
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name)?.1.parse::<u64>().ok()
        };
        let (after, most) = (number("after").unwrap_or_default(), number("limit").unwrap_or(50));
        let room = self.rooms.get(room).into_iter();
        let messages = room.flat_map(|room| &room.messages);
        let messages = messages.filter(|message| message.origin == MessageOrigin::Person);
        let messages = messages.filter(|message| message.id > after && !message.is_deleted);
        let first = messages.take(usize::try_from(most.min(100)).unwrap_or_default());
        let mut first: Vec<Value> = first.map(|message| message.object.clone()).collect();
        first.reverse();
        first.into()
    }

    fn register(&mut self, body: &Value) -> Value {
        self.registrations += 1;
        self.commands = body.as_array().cloned().unwrap_or_default();
        for command in self.commands.iter_mut().filter(|command| command.is_object()) {
            command["id"] = "1".into();
            command["application_id"] = APPLICATION.into();
            command["version"] = "1".into();
        }
        self.commands.clone().into()
    }

    fn post(&mut self, room: &str, body: &Value, files: Vec<UploadedFile>) -> Value {
        let nonce = body["nonce"].to_string();
        if let Some(known) = self.nonces.get(&nonce).filter(|_| body["enforce_nonce"] == true) {
            return known.clone();
        }
        let object = self.show(room, body, files, MessageOrigin::Bot);
        if body["nonce"].is_string() {
            self.remember(nonce, object.clone());
        }
        object
    }

    /// Shows a message of the bot.
    fn show(&mut self, room: &str, body: &Value, files: Vec<UploadedFile>, origin: MessageOrigin) -> Value {
        let id = self.next_id();
        let object = self.described(id, room, body);
        let mut message = RoomMessage::new(id, object.clone(), origin);
        message.files = self.keep_files(files);
        message.is_private = is_private(&body["flags"]);
        self.keep(room, message);
        object
    }

    fn described(&self, id: u64, room: &str, body: &Value) -> Value {
        let mut object = self.message(id, room, text_of(body), &self.bot());
        for key in ["components", "message_reference"] {
            if let Some(value) = body.get(key) {
                object[key] = value.clone();
            }
        }
        object
    }

    fn keep_files(&mut self, files: Vec<UploadedFile>) -> Vec<String> {
        let mut ids = Vec::new();
        for file in files {
            let is_picture = matches!(&file.bytes[..], [0x89, b'P', b'N', b'G', ..] | [0xff, 0xd8, ..]);
            let kind = if is_picture { "photo" } else { "document" };
            ids.push(self.files.put(kind, file, None).id);
        }
        ids
    }

    fn edit(&mut self, id: &str, body: &Value) -> RestReply {
        let (text, components) = (text_of(body).to_owned(), body.get("components").cloned());
        match self.find(id) {
            Some(message) => {
                message.object["content"] = text.into();
                if let Some(components) = components {
                    message.object["components"] = components;
                }
                message.is_edited = true;
                (200, message.object.clone())
            }
            None => (404, json!({ "code": 10_008, "message": "Unknown Message" })),
        }
    }

    fn react(&mut self, id: &str, emoji: &str, is_there: bool) {
        let pair = format!("e={emoji}");
        let emoji = url::form_urlencoded::parse(pair.as_bytes()).next();
        let emoji = emoji.map(|(_, emoji)| emoji.into_owned()).unwrap_or_default();
        if let Some(message) = self.find(id) {
            message.reactions.retain(|known| *known != emoji);
            if is_there {
                message.reactions.push(emoji);
            }
        }
    }

    fn open_thread(&mut self, room: &str, id: &str, body: &Value) -> Value {
        let name = body["name"].as_str().unwrap_or("thread").to_owned();
        self.add_room(id, RoomKind::Thread, &name, None);
        let thread = self.room(id);
        thread.parent = Some(room.to_owned());
        thread.object()
    }

    fn callback(&mut self, id: &str, query: &str, body: &Value) -> RestReply {
        let Some(at) = self.interactions.iter().position(|known| known.id == id) else {
            return (404, json!({ "code": 10_062, "message": "Unknown interaction" }));
        };
        let room = self.interactions[at].room.clone();
        let is_private = is_private(&body["data"]["flags"]);
        let shown = match body["type"].as_u64() {
            Some(5) => Some(json!({ "content": "" })),
            Some(4) => Some(body["data"].clone()),
            _ => None,
        };
        if let Some(shown) = shown {
            let object = self.show(&room, &shown, Vec::new(), MessageOrigin::Placeholder);
            self.interactions[at].placeholder = object["id"].as_str().and_then(|id| id.parse().ok());
        }
        let interaction = json!({"id": id, "type": 2, "response_message_ephemeral": is_private});
        let answer = if query.contains("with_response") {
            json!({ "interaction": interaction })
        } else {
            Value::Null
        };
        (200, answer)
    }

    fn placeholder(&self, token: &str) -> Option<String> {
        let known = self.interactions.iter().find(|known| known.token == token)?;
        known.placeholder.map(|id| id.to_string())
    }

    fn replace(&mut self, token: &str, body: &Value, files: Vec<UploadedFile>) -> RestReply {
        let files = self.keep_files(files);
        match self.placeholder(token).and_then(|id| self.find(&id)) {
            Some(message) => {
                message.object["content"] = text_of(body).into();
                if let Some(components) = body.get("components") {
                    message.object["components"] = components.clone();
                }
                message.files.extend(files);
                (200, message.object.clone())
            }
            None => (404, unknown_webhook()),
        }
    }

    fn discard(&mut self, token: &str) -> RestReply {
        match self.placeholder(token).and_then(|id| self.find(&id)) {
            Some(message) => {
                message.is_deleted = true;
                (200, Value::Null)
            }
            None => (404, unknown_webhook()),
        }
    }

    fn follow_up(&mut self, token: &str, body: &Value, files: Vec<UploadedFile>) -> RestReply {
        let known = self.interactions.iter().find(|known| known.token == token);
        match known.map(|known| known.room.clone()) {
            Some(room) => (200, self.show(&room, body, files, MessageOrigin::FollowUp)),
            None => (404, unknown_webhook()),
        }
    }
}

fn unknown_webhook() -> Value {
    json!({ "code": 10_015, "message": "Unknown Webhook" })
}

fn is_private(flags: &Value) -> bool {
    flags.as_u64().unwrap_or_default() & EPHEMERAL != 0
}

/// The text of a message that is sent.
fn text_of(body: &Value) -> &str {
    body["content"].as_str().unwrap_or_default()
}
