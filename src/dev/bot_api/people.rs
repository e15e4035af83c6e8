//! The people's side: they write, edit, press, react, block and leave, and the bot gets updates.

use std::time::Instant;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::BotApi;
use super::chats::{ApiChat, ApiChatKind, ApiPerson, BotStanding};
use super::markup::ApiText;
use super::methods::{member_of, open_topic, put_text};
use super::params::{ApiParams, UploadedFile};
use super::server::{BotApiHub, unix_now};
use super::state::{ApiPress, BotApiState, MessageSender};
use crate::dev::page::MAX_PAGE_PEOPLE;

/// Chats that are opened on the page have ids below this.
const FIRST_CHAT: i64 = -1_001_000_000_000;

/// A file that a person sends.
#[derive(Clone, Debug)]
pub struct PersonFile {
    /// `photo`, `document`, `voice`, `video`, `audio`, `animation`, `video_note` or `sticker`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its type; `None` is the usual one of its kind.
    pub mime: Option<String>,
    /// Its content.
    pub bytes: Vec<u8>,
    /// The size that is stated instead of the content's, for files that are only claimed to be large.
    pub stated_size: Option<u64>,
}

#[cfg(feature = "internals")]
impl PersonFile {
    /// A file of a kind.
    pub fn new(kind: &str, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            mime: None,
            bytes: bytes.into(),
            stated_size: None,
        }
    }
}

/// A message that a person sends.
#[derive(Clone, Debug, Default)]
pub struct PersonMessage {
    /// Its text, or the caption of its file.
    pub text: String,
    /// Its file.
    pub file: Option<PersonFile>,
    /// A file that is kept already, by its id.
    pub kept_file: Option<String>,
    /// The message that it answers.
    pub reply_to: Option<i64>,
    /// The topic that it is written in.
    pub thread_id: Option<i64>,
    /// Whether an administrator writes it as the group.
    pub is_anonymous: bool,
    /// Further fields of the `Message`, which replace those of the same name.
    pub extra: Map<String, Value>,
}

impl PersonMessage {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..Self::default()
        }
    }

    /// A file with a caption, which may be empty.
    #[cfg(feature = "internals")]
    pub fn file(file: PersonFile, caption: &str) -> Self {
        Self {
            file: Some(file),
            ..Self::text(caption)
        }
    }
}

/// What people do. Whatever names a chat or message that is not there does nothing.
impl BotApi {
    /// Somebody who has started the bot: a person and the private chat.
    pub fn add_person(&self, person: ApiPerson) {
        self.hub.change(|state| add_person(state, person));
    }

    /// A group or channel that the bot is in; channels have it as an administrator.
    pub fn add_chat(&self, chat_id: i64, kind: ApiChatKind, title: &str) {
        self.hub.change(|state| add_chat(state, chat_id, kind, title));
    }

    /// A text; returns its message id.
    pub fn say(&self, chat_id: i64, person_id: i64, text: &str) -> i64 {
        self.hub.send(chat_id, person_id, PersonMessage::text(text))
    }

    /// Changes what the bot is in a chat, and sends the update: blocked, removed, promoted, back again.
    pub fn set_standing(&self, chat_id: i64, person_id: i64, standing: BotStanding) {
        self.hub.set_standing(chat_id, person_id, standing);
    }

    /// Opens a topic; returns its id.
    pub fn open_topic(&self, chat_id: i64, person_id: i64, name: &str) -> i64 {
        self.hub.change(|state| {
            open_topic(
                state,
                chat_id,
                &MessageSender::Person(person_id),
                name,
                unix_now(),
            )
        })
    }
}

/// What the page does for people, too.
impl BotApiHub {
    /// Opens a group or channel with an id of its own.
    pub fn open_chat(&self, kind: ApiChatKind, title: &str) {
        self.change(|state| {
            let lowest = state.chats.keys().next().copied().unwrap_or(0);
            add_chat(state, lowest.min(FIRST_CHAT) - 1, kind, title);
        });
    }

    /// Somebody with an id of their own starts the bot. Returns whether there is room.
    pub fn join(&self, name: &str) -> bool {
        self.change(|state| {
            let id = state.people.keys().next_back().map_or(1, |last| last + 1);
            let username = None;
            let has_room = state.people.len() < MAX_PAGE_PEOPLE;
            if has_room {
                let person = ApiPerson {
                    username,
                    ..ApiPerson::named(id, name)
                };
                add_person(state, person);
            }
            has_room
        })
    }

    /// Returns whether there is such a chat.
    pub fn set_standing(&self, chat_id: i64, person_id: i64, standing: BotStanding) -> bool {
        self.change(|state| {
            let now = unix_now();
            let bot = state.bot.user();
            let user = state.people.get(&person_id).map(ApiPerson::user);
            let Some(chat) = state.touch(chat_id) else {
                return false;
            };
            let old = std::mem::replace(&mut chat.standing, standing);
            let update = json!({
                "chat": chat.object(),
                "from": user,
                "date": now,
                "old_chat_member": member_of(&bot, old.status()),
                "new_chat_member": member_of(&bot, standing.status()),
            });
            state.updates.push("my_chat_member", update, now);
            true
        })
    }

    pub fn send(&self, chat_id: i64, person_id: i64, message: PersonMessage) -> i64 {
        self.change(|state| write(state, chat_id, person_id, message))
    }

    /// Replaces the text of a person's message.
    #[cfg(feature = "internals")]
    pub fn edit(&self, chat_id: i64, message_id: i64, text: &str) {
        self.change(|state| {
            let now = unix_now();
            let Some(chat) = state.touch(chat_id) else {
                return;
            };
            let is_channel = chat.kind == ApiChatKind::Channel;
            let Some(message) = chat.messages.get_mut(&message_id) else {
                return;
            };
            message.text = ApiText::plain(text);
            let is_caption = message.has_media();
            if let Some(fields) = message.object.as_object_mut() {
                put_text(fields, &message.text, is_caption);
                fields.insert("edit_date".to_owned(), json!(now));
            }
            let object = message.object.clone();
            if state.is_visible_to_bot(chat_id, &object) {
                let kind = if is_channel {
                    "edited_channel_post"
                } else {
                    "edited_message"
                };
                state.updates.push(kind, object, now);
            }
        });
    }

    pub fn press(&self, chat_id: i64, message_id: i64, person_id: i64, button: &str) -> Option<String> {
        self.change(|state| {
            let message = state.chats.get(&chat_id)?.messages.get(&message_id)?;
            let rows = message.object["reply_markup"]["inline_keyboard"].as_array()?;
            let mut buttons = rows.iter().filter_map(Value::as_array).flatten();
            let found = buttons.find(|found| found["callback_data"] == button || found["text"] == button)?;
            let data = found["callback_data"].as_str()?.to_owned();
            Some(state.press(chat_id, message_id, person_id, &data))
        })
    }

    pub fn react(&self, chat_id: i64, message_id: i64, person_id: i64, emoji: &[&str]) {
        self.change(|state| {
            let now = unix_now();
            let user = state.people.get(&person_id).map(ApiPerson::user);
            let Some(chat) = state.touch(chat_id) else {
                return;
            };
            let is_told = chat.standing == BotStanding::Administrator || chat.kind == ApiChatKind::Private;
            let chat_object = chat.object();
            let Some(message) = chat.messages.get_mut(&message_id) else {
                return;
            };
            let new: Vec<String> = emoji.iter().map(|emoji| (*emoji).to_owned()).collect();
            let objects = |emoji: &[String]| -> Vec<Value> {
                emoji
                    .iter()
                    .map(|emoji| json!({ "type": "emoji", "emoji": emoji }))
                    .collect()
            };
            let new_objects = objects(&new);
            let old = message.reactions.insert(person_id, new).unwrap_or_default();
            let update = json!({
                "chat": chat_object,
                "message_id": message_id,
                "user": user,
                "date": now,
                "old_reaction": objects(&old),
                "new_reaction": new_objects,
            });
            if is_told {
                state.updates.push("message_reaction", update, now);
            }
        });
    }

    pub fn press_stop(&self, chat_id: i64) -> Option<i64> {
        self.change(|state| {
            let now = unix_now();
            let chat = state.touch(chat_id)?;
            let (thread_id, draft) = chat.drafts.iter().find(|(_, draft)| draft.can_stop)?;
            let (thread_id, draft_id) = (*thread_id, draft.draft_id);
            chat.drafts.remove(&thread_id);
            // The id is text here, as it was seen.
            let mut update = json!({ "chat": chat.object(), "draft_id": draft_id.to_string() });
            if thread_id != 0 {
                update["message_thread_id"] = json!(thread_id);
            }
            state.updates.push("stopped_message_generation", update, now);
            Some(draft_id)
        })
    }
}

fn add_person(state: &mut BotApiState, person: ApiPerson) {
    let (name, username) = (&person.first_name, person.username.clone());
    state.add_chat(ApiChat::new(person.id, ApiChatKind::Private, name, username));
    state.people.insert(person.id, person);
}

fn add_chat(state: &mut BotApiState, chat_id: i64, kind: ApiChatKind, title: &str) {
    let mut chat = ApiChat::new(chat_id, kind, title, None);
    if kind == ApiChatKind::Channel {
        chat.standing = BotStanding::Administrator;
    }
    state.add_chat(chat);
}

fn write(state: &mut BotApiState, chat_id: i64, person_id: i64, message: PersonMessage) -> i64 {
    let now = unix_now();
    if !state.chats.contains_key(&chat_id) {
        return 0;
    }
    let text = ApiText::plain(&message.text);
    let mut fields = Map::new();
    let file = match message.file {
        None => message.kept_file.and_then(|id| state.files.find(&id).cloned()),
        Some(file) => {
            let uploaded = UploadedFile {
                name: file.name,
                mime: file.mime,
                bytes: Bytes::from(file.bytes),
            };
            Some(state.files.put(&file.kind, uploaded, file.stated_size))
        }
    };
    if let Some(file) = &file {
        fields.extend(file.message_fields(&ApiParams::default()));
    }
    put_text(&mut fields, &text, file.is_some());
    let chat = &state.chats[&chat_id];
    if let Some(quoted) = message.reply_to.and_then(|id| chat.quoted(id)) {
        fields.insert("reply_to_message".to_owned(), quoted);
    }
    if let Some(thread_id) = message.thread_id {
        chat.place_in_topic(&mut fields, thread_id);
    }
    let is_channel = chat.kind == ApiChatKind::Channel;
    fields.extend(message.extra);
    let author = if is_channel || message.is_anonymous {
        MessageSender::Chat
    } else {
        MessageSender::Person(person_id)
    };
    let object = state.add_message(chat_id, &author, text, fields, now);
    let message_id = object["message_id"].as_i64().unwrap_or(0);
    if state.is_visible_to_bot(chat_id, &object) {
        let kind = if is_channel { "channel_post" } else { "message" };
        state.updates.push(kind, object, now);
    }
    message_id
}

impl BotApiState {
    /// Sends the press of a button with this data, whether there is such a button or not. Returns the id of the query.
    pub fn press(&mut self, chat_id: i64, message_id: i64, person_id: i64, data: &str) -> String {
        let query_id = format!("{}", 4_382_000_000_000_000_000_u64 + self.number());
        let user = self.people.get(&person_id).map(ApiPerson::user);
        let user = user.unwrap_or_else(|| ApiPerson::named(person_id, "Somebody").user());
        let chat = self.chats.get(&chat_id);
        let message = chat
            .and_then(|chat| chat.messages.get(&message_id))
            .map(|message| message.object.clone());
        let message = message.unwrap_or_else(|| {
            let chat = chat.map_or_else(|| json!({ "id": chat_id, "type": "private" }), ApiChat::object);
            json!({ "chat": chat, "message_id": message_id, "date": 0 })
        });
        let update = json!({
            "id": query_id,
            "from": user,
            "message": message,
            "chat_instance": format!("{}", chat_id.wrapping_mul(31)),
            "data": data,
        });
        self.updates.push("callback_query", update, unix_now());
        self.remember_press(ApiPress {
            query_id: query_id.clone(),
            chat_id,
            pressed_at: Instant::now(),
            answer: None,
        });
        query_id
    }
}
