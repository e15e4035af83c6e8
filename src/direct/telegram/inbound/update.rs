//! The updates of a poll. Each is read separately from its raw JSON, starting with its id.

use serde_json::{Value, json};

use super::RecentInTopics;
use super::entity::CommandAddressee;
use super::event::{MessageReading, press_event, root_name};
use super::relevance::Relevance;
use super::sender::Sender;
use super::taken::TakenMessages;
use crate::direct::field;
use crate::direct::telegram::bot::Bot;
use crate::direct::telegram::call::{MAX_UNREADABLE_BYTES, UNREADABLE};
use crate::direct::telegram::callback::PressedButton;
use crate::direct::telegram::chat::ChatPlace;
use crate::direct::telegram::topics::TopicNames;
use crate::text::truncate_bytes;

/// The kinds of updates to ask for, on every poll: the server remembers the last list it was given.
pub const ALLOWED_UPDATES: &[&str] = &[
    "message",
    "edited_message",
    "channel_post",
    "callback_query",
    "my_chat_member",
    "stopped_message_generation",
];

/// Why an update is not for the agent; for the log.
pub(super) type Ignored = &'static str;

/// One update: its id, and its meaning to the relay.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// The update's id; for an album, the id of its first item.
    pub update_id: i64,
    /// What the relay does with the update.
    pub meaning: UpdateMeaning,
}

/// The meaning of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateMeaning {
    /// A message, or an album as one message.
    Message(Box<IncomingMessage>),
    /// Somebody pressed a button. The press is answered in any case.
    Press {
        /// The id of the press, which the answer names.
        query_id: String,
        /// The contract's event; `None` if the callback data is forged or of another bot.
        event: Option<Value>,
        /// The chat that has the button.
        chat_id: Option<i64>,
        /// The message that has the button.
        message_id: Option<i64>,
        /// The language of the person's client.
        language: Option<String>,
    },
    /// Somebody stopped a draft.
    Stop {
        /// The chat that shows the draft.
        chat_id: i64,
        /// The id that the relay gave the draft.
        draft_id: u64,
    },
    /// A group became a supergroup and has a new id.
    Migrated {
        /// The id of the group.
        from: i64,
        /// The id of the supergroup.
        to: i64,
    },
    /// The bot's membership or its rights in a chat changed.
    Member {
        /// The chat that the bot is or was a member of.
        chat_id: i64,
        /// Whether the bot can write there now.
        can_write: bool,
    },
    /// A topic was created or renamed.
    Topic {
        /// The chat of the topic.
        chat_id: i64,
        /// The topic's thread id.
        thread_id: i64,
        /// The topic's name now.
        name: String,
    },
    /// Not for the agent, for this reason.
    Ignored(&'static str),
    /// An unreadable update, to be quarantined.
    Poison {
        /// The fault that was found.
        reason: &'static str,
        /// The update as it came, truncated.
        update: String,
    },
}

/// A message, or an album as one message.
#[derive(Clone, Debug, PartialEq)]
pub struct IncomingMessage {
    /// The contract's event.
    pub event: Value,
    /// The chat that the message is in.
    pub chat_id: i64,
    /// The message's id; 0 if it has none yet.
    pub message_id: i64,
    /// When it was written: Unix seconds.
    pub written_at: Option<i64>,
    /// The author: a person, or the chat that somebody writes as.
    pub sender: Option<i64>,
    /// The album that the message is an item of.
    pub album: Option<String>,
    /// Whether the message is for the agent. Only an album's item may not be: another item may make the album relevant.
    pub is_relevant: bool,
}

impl IncomingMessage {
    /// Whether it is an edit of a message that came before.
    pub(super) fn is_edit(&self) -> bool {
        self.event["message_is_edit"] == true
    }
}

impl Incoming {
    /// Whether the update is confirmed to Telegram only once the relay acknowledges it. Others are confirmed at once.
    pub fn needs_acknowledgement(&self) -> bool {
        match &self.meaning {
            UpdateMeaning::Message(_)
            | UpdateMeaning::Press { event: Some(_), .. }
            | UpdateMeaning::Poison { .. } => true,
            UpdateMeaning::Press { event: None, .. }
            | UpdateMeaning::Stop { .. }
            | UpdateMeaning::Migrated { .. }
            | UpdateMeaning::Member { .. }
            | UpdateMeaning::Topic { .. }
            | UpdateMeaning::Ignored(_) => false,
        }
    }

    /// The frame that a connector would send, as a line without its end; `None` for an update that is no message and no press.
    /// The relay cannot decode the frame of an unreadable update, so it quarantines and acknowledges the update.
    pub fn to_line(&self) -> Option<String> {
        let buffer_id = self.update_id.to_string();
        let frame = match &self.meaning {
            UpdateMeaning::Message(message) => {
                let mut frame = frame(&message.event, &buffer_id);
                if let Some(written_at) = message.written_at {
                    frame["writtenAt"] = written_at.into();
                }
                frame
            }
            UpdateMeaning::Press {
                event: Some(event), ..
            } => frame(event, &buffer_id),
            UpdateMeaning::Poison { reason, update } => {
                json!({ "type": "inbound", "event": reason, "update": update, "bufferId": buffer_id })
            }
            _ => return None,
        };
        Some(frame.to_string())
    }
}

fn frame(event: &Value, buffer_id: &str) -> Value {
    json!({ "type": "inbound", "event": event, "bufferId": buffer_id })
}

/// The context in which updates are read.
pub struct BatchReader<'a> {
    /// The bot's own account.
    pub bot: &'a Bot,
    /// Which messages are for the agent.
    pub relevance: &'a Relevance,
    /// Reads callback data that is authentic.
    pub open_callback: &'a dyn Fn(&str) -> Option<PressedButton>,
    /// The names of known topics; the updates add further ones.
    pub topics: &'a mut TopicNames,
    /// What was said in groups before; the updates add to it.
    pub recent: &'a mut RecentInTopics,
    /// What was for the agent before; the updates add to it.
    pub taken: &'a mut TakenMessages,
}

/// The updates of a `getUpdates` result, by ascending id. An entry without an id is dropped: the next id passes it. An
/// unreadable update harms no other.
pub fn read_batch(result: &Value, reader: &mut BatchReader<'_>) -> Vec<Incoming> {
    let mut updates: Vec<(i64, &Value)> = result
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(|update| Some((update_id(update)?, update)))
        .collect();
    updates.sort_by_key(|(id, _)| *id);
    updates
        .into_iter()
        .map(|(update_id, update)| Incoming {
            update_id,
            meaning: reader
                .read(update)
                .unwrap_or_else(|reason| poison(reason, update)),
        })
        .collect()
}

/// The update's id. A number beyond 52 bits is no id: no offset could pass it.
fn update_id(update: &Value) -> Option<i64> {
    field::integer(update, "update_id").filter(|id| (0..1 << 52).contains(id))
}

fn poison(reason: &'static str, update: &Value) -> UpdateMeaning {
    let update = update.to_string();
    UpdateMeaning::Poison {
        reason,
        update: truncate_bytes(&update, MAX_UNREADABLE_BYTES).to_owned(),
    }
}

impl BatchReader<'_> {
    /// The meaning of one update, or the fault that makes it unreadable.
    fn read(&mut self, update: &Value) -> Result<UpdateMeaning, &'static str> {
        let part = |key| update.get(key).filter(|value| !value.is_null());
        if part(UNREADABLE).is_some() {
            return Err("nested too deep, or no valid JSON");
        }
        if let Some(message) = part("message") {
            return self.message(message, false);
        }
        if let Some(message) = part("edited_message") {
            return self.edit(message);
        }
        if let Some(post) = part("channel_post") {
            return self.message(post, false);
        }
        if let Some(query) = part("callback_query") {
            return self.press(query);
        }
        if let Some(change) = part("my_chat_member") {
            return member(change).ok_or("a change of membership without its chat or status");
        }
        if let Some(stop) = part("stopped_message_generation") {
            return stopped(stop).ok_or("a stop without its chat or draft");
        }
        Ok(UpdateMeaning::Ignored(match part("edited_channel_post") {
            Some(_) => "an edit of a channel's post",
            None => "a kind of update that is not used",
        }))
    }

    /// A message that was edited: the same event under the same id, marked. An item of an album is not collected again: the edit is
    /// one of the whole album.
    fn edit(&mut self, message: &Value) -> Result<UpdateMeaning, &'static str> {
        let edited = match self.message(message, true)? {
            UpdateMeaning::Message(edited) => edited,
            meaning => return Ok(meaning),
        };
        if !edited.is_relevant {
            return Ok(UpdateMeaning::Ignored(
                "an edit of a message that is not for the bot",
            ));
        }
        let mut edited = self.taken.edited(*edited);
        edited.event["message_is_edit"] = true.into();
        Ok(UpdateMeaning::Message(Box::new(edited)))
    }

    /// A message, or an edit of one: if that was for the agent before, it still is.
    fn message(&mut self, message: &Value, is_edit: bool) -> Result<UpdateMeaning, &'static str> {
        let reading = MessageReading::new(message, self.bot).ok_or("a message without a chat")?;
        if let Some(meaning) = self.service(message, &reading) {
            return Ok(meaning);
        }
        let ignored = |reason| Ok(UpdateMeaning::Ignored(reason));
        if Sender::is_own(message, self.bot) {
            return ignored("a message of the bot itself");
        }
        if field::flag(message, "is_automatic_forward") {
            return ignored("a post that Telegram copied from the linked channel");
        }
        if reading.is_empty() {
            return ignored("a service message");
        }
        let group = (reading.chat_id, reading.thread_id);
        if is_edit {
            self.recent
                .edited(&group, reading.message_id, &reading.event_text());
        }
        if reading.command == CommandAddressee::Another {
            return ignored("a command for another bot");
        }
        if let (Some(thread), Some(name)) = (reading.thread_id, root_name(message))
            && self.topics.name_of(reading.chat_id, thread).is_none()
        {
            self.topics.learn(reading.chat_id, thread, name);
        }
        let album = field::text(message, "media_group_id").map(str::to_owned);
        let mut judged = self.relevance.judge(&reading.addressing());
        if is_edit && (self.taken).is_taken(reading.chat_id, reading.message_id, album.as_deref()) {
            judged = Ok(());
        }
        let mut event = reading.event(self.topics);
        if let (Err(reason), None) = (judged, &album) {
            if reading.place == ChatPlace::Group && !reading.sender.is_bot && !is_edit {
                let text = event["text"].as_str().unwrap_or_default();
                self.recent
                    .note(&group, reading.message_id, &reading.sender.name, text);
            }
            return ignored(reason);
        }
        if judged.is_ok()
            && !is_edit
            && let Some(context) = self.recent.take(&group)
        {
            event["context"] = context;
        }
        let incoming = IncomingMessage {
            event,
            chat_id: reading.chat_id,
            message_id: reading.message_id,
            written_at: field::integer(message, "date"),
            sender: reading.sender.id,
            album,
            is_relevant: judged.is_ok(),
        };
        if !is_edit {
            self.taken.note(&incoming);
        }
        Ok(UpdateMeaning::Message(Box::new(incoming)))
    }

    /// The meaning of a service message that the relay uses.
    fn service(&mut self, message: &Value, reading: &MessageReading<'_>) -> Option<UpdateMeaning> {
        let chat_id = reading.chat_id;
        if let Some(to) = field::integer(message, "migrate_to_chat_id") {
            return Some(UpdateMeaning::Migrated { from: chat_id, to });
        }
        if let Some(from) = field::integer(message, "migrate_from_chat_id") {
            return Some(UpdateMeaning::Migrated { from, to: chat_id });
        }
        let named = ["forum_topic_created", "forum_topic_edited"]
            .into_iter()
            .find_map(|key| field::object(message, key))?;
        let thread_id = field::integer(message, "message_thread_id").or(reading.thread_id)?;
        let name = field::text(named, "name")?;
        self.topics.learn(chat_id, thread_id, name);
        let name = self.topics.name_of(chat_id, thread_id)?.to_owned();
        Some(UpdateMeaning::Topic {
            chat_id,
            thread_id,
            name,
        })
    }

    fn press(&self, query: &Value) -> Result<UpdateMeaning, &'static str> {
        let query_id = field::text(query, "id").ok_or("a press without an id")?;
        let message = field::object(query, "message");
        let chat_id = message
            .and_then(|message| field::object(message, "chat"))
            .and_then(|chat| field::integer(chat, "id"));
        let opened = field::text(query, "data").and_then(self.open_callback);
        Ok(UpdateMeaning::Press {
            query_id: query_id.to_owned(),
            event: opened.and_then(|pressed| press_event(query, query_id, &pressed, self.topics)),
            chat_id,
            message_id: message.and_then(|message| field::integer(message, "message_id")),
            language: field::object(query, "from")
                .and_then(|person| field::text(person, "language_code"))
                .map(str::to_owned),
        })
    }
}

fn member(change: &Value) -> Option<UpdateMeaning> {
    let now = field::object(change, "new_chat_member")?;
    let can_write = match field::text(now, "status")? {
        "left" | "kicked" => false,
        "restricted" => field::flag(now, "can_send_messages"),
        _ => true,
    };
    Some(UpdateMeaning::Member {
        chat_id: field::integer(field::object(change, "chat")?, "id")?,
        can_write,
    })
}

fn stopped(stop: &Value) -> Option<UpdateMeaning> {
    Some(UpdateMeaning::Stop {
        chat_id: field::integer(field::object(stop, "chat")?, "id")?,
        draft_id: u64::try_from(field::integer(stop, "draft_id")?).ok()?,
    })
}
