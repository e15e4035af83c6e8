//! The page of the fake Discord: rooms as people see them, and every request of the bot.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::server::FakeDiscordHub;
use super::state::{DiscordPerson, DiscordRoom, FakeDiscordState, MessageOrigin, RoomKind, RoomMessage};
use crate::dev::bot_api::unix_now;
use crate::dev::calls::{BotApiCall, CallCursor};
use crate::dev::page::{ActionError, MAX_PAGE_PEOPLE, PageBackend, PageDoor, PageFile, PageNews, given_name};

/// Messages of a room that are shown.
const SHOWN_MESSAGES: usize = 200;
/// Rooms that people may open.
const MAX_ROOMS: usize = 64;
/// The start of Discord's time, in Unix microseconds.
const EPOCH_MICROS: u64 = 1_420_070_400_000_000;
/// Buttons and menus, as Discord numbers them.
const BUTTON: u64 = 2;
const MENU: u64 = 3;

/// What a page has seen.
pub struct RoomCursor {
    calls: CallCursor,
    /// Of each room.
    versions: BTreeMap<String, u64>,
}

impl PageBackend for FakeDiscordHub {
    type Cursor = RoomCursor;

    fn door(&self) -> Option<&PageDoor> {
        self.page.get()
    }

    fn port(&self) -> u16 {
        self.addr.port()
    }

    fn changed(&self) -> &Notify {
        &self.changed
    }

    fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    fn setup(&self) -> Value {
        let state = self.lock();
        let people = state.people.iter();
        let people = people.map(|person| json!({ "id": person.id, "name": person.name }));
        let commands = state.commands.iter();
        let commands =
            commands.map(|command| json!({ "name": command["name"], "what": command["description"] }));
        let name = format!("@{}", state.settings.username);
        json!({
            "title": "Discord",
            "platform": "discord",
            "agent": name,
            "can": [],
            "kinds": [RoomKind::Channel.label()],
            "people": people.collect::<Vec<_>>(),
            "commands": commands.collect::<Vec<_>>(),
            "welcome": "Messages go to the bot as events of the gateway; in a channel, mention it with <@1>. What it sends appears here.",
            "about": { "title": name, "text": "Talks to a fake Discord on this machine." },
            "wire": {
                "title": "Requests",
                "unit": "request",
                "server": "Discord",
                "empty": "No requests yet. Start a bot with the token and the addresses that `hermes-relay dev` printed.",
                "minor": { "label": "typing", "types": [], "shown": false },
            },
        })
    }

    fn status(&self) -> Value {
        let state = self.lock();
        let (link, text) = match state.sessions.0 {
            _ if state.connected > 0 => ("live", "bot is connected"),
            0 => ("waiting", "no bot yet"),
            _ => ("waiting", "bot is not connected"),
        };
        let fact = |id: &str, about: &str, value: Value| json!({ "id": id, "about": about, "value": value });
        json!({
            "link": { "state": link, "text": text },
            "facts": [
                fact("sessions", "Sessions that the bot has begun", json!(state.sessions.0)),
                fact("resumed", "Sessions that it has resumed", json!(state.sessions.1)),
                fact("requests", "Requests since the start", json!(state.calls.counted())),
            ],
        })
    }

    /// A page that lost its connection gets everything again: rooms and requests replace those that it shows.
    fn cursor(&self, _after: Option<&str>) -> RoomCursor {
        RoomCursor {
            calls: self.lock().calls.cursor(),
            versions: BTreeMap::new(),
        }
    }

    fn news(&self, cursor: &mut RoomCursor) -> PageNews {
        let state = self.lock();
        let rows = state.calls.news(&mut cursor.calls, "Discord", about);
        let seen = &mut cursor.versions;
        let rooms = state.rooms.values();
        let changed = rooms.filter(|room| seen.insert(room.id.clone(), room.version) != Some(room.version));
        let mut changed: Vec<&DiscordRoom> = changed.collect();
        changed.sort_by_key(|room| (room.kind != RoomKind::Direct, room.id.clone()));
        let shown = changed.into_iter().map(|room| shown_room(&state, room));
        PageNews {
            id: None,
            rows,
            happenings: shown
                .map(|chat| json!({ "k": "chat", "chat": chat }).to_string().into())
                .collect(),
        }
    }

    fn row(&self, number: u64) -> Option<Value> {
        self.lock().calls.details(number)
    }

    fn file(&self, id: &str) -> Option<PageFile> {
        self.lock().files.for_page(id)
    }

    fn keep(&self, file: PageFile) -> String {
        self.change(|state| state.files.keep_from_page(file))
    }

    async fn act(self: &Arc<Self>, action: &str, body: &[u8]) -> Result<Value, ActionError> {
        let asked: RoomAction = serde_json::from_slice(body)?;
        let host = self.addr.to_string();
        self.change(|state| state.act(action, &asked, &host))?;
        Ok(json!({ "sessions": 1 }))
    }
}

/// What a person asks for on the page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RoomAction {
    chat: String,
    thread: Option<String>,
    who: String,
    message: String,
    option: String,
    text: String,
    media: Vec<String>,
    reply_to: Option<QuotedMessage>,
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct QuotedMessage {
    id: String,
}

impl FakeDiscordState {
    fn act(&mut self, action: &str, asked: &RoomAction, host: &str) -> Result<(), ActionError> {
        let room = asked.thread.as_ref().unwrap_or(&asked.chat);
        let is_there = self.rooms.contains_key(room) && self.people.iter().any(|known| known.id == asked.who);
        match action {
            "say" if asked.text.trim().is_empty() && asked.media.is_empty() => {
                Err(ActionError::bad("there is no text"))
            }
            "say" if is_there => {
                self.said(room, asked, host);
                Ok(())
            }
            "press" if is_there => self.pressed(room, asked),
            "stop" if is_there => {
                self.interact(room, &asked.who, 2, &json!({ "name": "stop" }), None);
                Ok(())
            }
            "person" => {
                let name = given_name(&asked.name).map_err(ActionError::bad)?;
                self.join(&name);
                Ok(())
            }
            "chat" if self.rooms.len() >= MAX_ROOMS => Err(ActionError::bad("there are too many rooms")),
            "chat" => {
                let name = given_name(&asked.name).map_err(ActionError::bad)?;
                let id = self.next_id().to_string();
                self.add_room(&id, RoomKind::Channel, &name, None);
                Ok(())
            }
            "say" | "press" | "stop" => Err(ActionError::bad("there is no such room or person")),
            _ => Err(ActionError::unknown(action)),
        }
    }

    /// A message, or a command that the bot has registered.
    fn said(&mut self, room: &str, asked: &RoomAction, host: &str) {
        let (name, rest) = asked
            .text
            .trim()
            .split_once(' ')
            .unwrap_or((asked.text.trim(), ""));
        let name = name.strip_prefix('/');
        let command = name.filter(|name| self.commands.iter().any(|known| known["name"] == *name));
        if let Some(name) = command {
            let mut data = json!({ "name": name });
            if !rest.is_empty() {
                data["options"] = json!([{ "type": 3, "name": "text", "value": rest }]);
            }
            return self.interact(room, &asked.who, 2, &data, None);
        }
        let files = asked.media.iter().filter_map(|id| {
            let file = self.files.find(id)?;
            let name = file.name.clone().unwrap_or_else(|| "file".to_owned());
            let described = json!({ "id": "1", "filename": name, "content_type": file.mime, "size": file.size,
                "url": format!("http://{host}/attachments/{}/{name}", file.id) });
            Some((file.id.clone(), described))
        });
        let files = files.collect();
        let quoted = asked.reply_to.as_ref().map(|quoted| quoted.id.as_str());
        self.write(room, &asked.who, &asked.text, quoted, files, true);
    }

    /// A press of a button, or a choice from a menu.
    fn pressed(&mut self, room: &str, asked: &RoomAction) -> Result<(), ActionError> {
        let found = self.find(&asked.message).map(|message| buttons(&message.object));
        let button = found.into_iter().flatten().flatten();
        let mut button = button.filter(|button| button.id == asked.option);
        let Some(button) = button.next() else {
            return Err(ActionError::bad("there is no such message or button"));
        };
        let mut data = json!({ "custom_id": button.custom_id, "component_type": BUTTON });
        if let Some(value) = button.value {
            data["component_type"] = MENU.into();
            data["values"] = json!([value]);
        }
        self.interact(room, &asked.who, 3, &data, Some(&asked.message));
        Ok(())
    }

    /// Somebody joins, with a direct chat.
    fn join(&mut self, name: &str) {
        if self.people.len() < MAX_PAGE_PEOPLE {
            let id = (self.people.len() + 2).to_string();
            self.add_person(&id, name, &format!("7{id}"));
        }
    }

    /// Adds a person with a direct chat.
    pub fn add_person(&mut self, id: &str, name: &str, room: &str) {
        self.people.push(DiscordPerson {
            id: id.to_owned(),
            name: name.to_owned(),
            roles: Vec::new(),
        });
        self.add_room(room, RoomKind::Direct, name, Some(id));
    }
}

/// A button, or an entry of a menu.
struct ShownButton {
    /// Its name on the page.
    id: String,
    label: Value,
    custom_id: Value,
    /// What is chosen, in a menu.
    value: Option<Value>,
}

/// The buttons of a message by rows; each entry of a menu is one.
fn buttons(object: &Value) -> Vec<Vec<ShownButton>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rows = list(&object["components"]).into_iter().enumerate();
    let rows = rows.map(|(at, row)| {
        let components = list(&row["components"]).into_iter().enumerate();
        let shown = components.flat_map(|(place, component)| {
            let entries = list(&component["options"]).into_iter().enumerate();
            let mut entries: Vec<ShownButton> = entries
                .map(|(entry, option)| ShownButton {
                    id: format!("{at}.{place}.{entry}"),
                    label: option["label"].clone(),
                    custom_id: component["custom_id"].clone(),
                    value: Some(option["value"].clone()),
                })
                .collect();
            if entries.is_empty() {
                entries.push(ShownButton {
                    id: format!("{at}.{place}"),
                    label: component["label"].clone(),
                    custom_id: component["custom_id"].clone(),
                    value: None,
                });
            }
            entries
        });
        shown.collect()
    });
    rows.collect()
}

fn shown_room(state: &FakeDiscordState, room: &DiscordRoom) -> Value {
    let messages = room.messages.iter().rev().filter(|message| !message.is_deleted);
    let mut messages: Vec<Value> = messages
        .take(SHOWN_MESSAGES)
        .map(|message| shown_message(state, message))
        .collect();
    messages.reverse();
    json!({
        "kind": room.kind.label(),
        "name": room.name,
        "about": format!("{}, id {}", room.kind.label(), room.id),
        "chat": room.id,
        "thread": null,
        "person": room.person,
        "messages": messages,
        "drafts": [],
        "action": (unix_now() < room.typing_until).then_some("typing"),
    })
}

fn shown_message(state: &FakeDiscordState, message: &RoomMessage) -> Value {
    let is_by_bot = message.origin != MessageOrigin::Person;
    let files = message.files.iter().filter_map(|id| state.files.find(id));
    let media = files.map(|file| {
        let kind = if file.kind == "photo" { "image" } else { "document" };
        json!({ "file": file.id, "kind": kind, "name": file.name, "bytes": file.size })
    });
    let tags = [
        is_by_bot.then_some("bot"),
        message.is_private.then_some("only one person sees this"),
    ];
    let rows = buttons(&message.object).into_iter();
    let rows = rows.map(|row| {
        let row = row
            .into_iter()
            .map(|button| json!({ "id": button.id, "label": button.label }));
        row.collect::<Vec<_>>()
    });
    let rows: Vec<Vec<Value>> = rows.collect();
    let text = match (message.origin, message.text()) {
        (MessageOrigin::Placeholder, "") if message.files.is_empty() => "thinking...",
        (_, text) => text,
    };
    json!({
        "id": message.id.to_string(),
        "from": if is_by_bot { "bot" } else { "person" },
        "who": message.object["author"]["username"],
        "t": (message.id >> 22).saturating_mul(1000).saturating_add(EPOCH_MICROS),
        "text": text,
        "replyTo": message.object["message_reference"]["message_id"],
        "media": media.collect::<Vec<_>>(),
        "prompt": (!rows.is_empty()).then(|| json!({ "rows": rows, "pressed": null })),
        "tags": tags.into_iter().flatten().collect::<Vec<_>>(),
        "edits": u8::from(message.is_edited),
        "reactions": message.reactions,
    })
}

/// One line about a request.
fn about(call: &BotApiCall) -> String {
    let text = call.params["content"].as_str();
    let refused = call.answer["message"]
        .as_str()
        .filter(|_| call.status >= Some(400));
    let parts = [text, refused].into_iter().flatten().collect::<Vec<_>>();
    parts.join(" · ").lines().next().unwrap_or_default().to_owned()
}
