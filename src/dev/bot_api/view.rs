//! What can be seen: chats as a person sees them, calls, updates, and how to wait for any of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::BotApi;
use super::calls::BotApiCall;
use super::chats::{ApiChat, ApiMessage};
use super::flood_control::FloodViolation;
use super::server::unix_now;
use super::state::BotApiState;

/// How long a draft is shown, in seconds.
const DRAFT_SECS: i64 = 30;

/// A button under a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenButton {
    /// Its label.
    pub text: String,
    /// What a press sends.
    pub data: Option<String>,
    /// Its colour, as the API names it.
    pub style: Option<String>,
}

/// A file of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// `photo`, `document` and so on.
    pub kind: String,
    /// Its name.
    pub name: Option<String>,
    /// Its type.
    pub mime: Option<String>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A message, as a person sees it.
#[derive(Clone, Debug)]
pub struct SeenMessage {
    /// Its id.
    pub message_id: i64,
    /// Whether the bot wrote it.
    pub is_by_bot: bool,
    /// Its text or caption; of a rich message its Markdown.
    pub text: String,
    /// Whether it is a rich message.
    pub is_rich: bool,
    /// The same in HTML, as it was understood.
    pub html: String,
    /// Its entities.
    pub entities: Vec<Value>,
    /// Its buttons, by rows.
    pub buttons: Vec<Vec<SeenButton>>,
    /// Its file.
    pub file: Option<SeenFile>,
    /// The message that it answers.
    pub reply_to: Option<i64>,
    /// Its topic.
    pub thread_id: Option<i64>,
    /// What the bot reacted with.
    pub reactions: Vec<String>,
    /// Whether it was edited.
    pub is_edited: bool,
    /// The `Message` object.
    pub object: Value,
}

/// A draft, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenDraft {
    /// The topic; `None` is none.
    pub thread_id: Option<i64>,
    /// Its id.
    pub draft_id: i64,
    /// Its text.
    pub text: String,
    /// Whether it has a Stop button.
    pub can_stop: bool,
}

/// A press of a button, and what the bot answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPress {
    /// The id of the query.
    pub query_id: String,
    /// The chat.
    pub chat_id: i64,
    /// The message with the button.
    pub message_id: i64,
    /// What the press sent.
    pub data: String,
    /// The text of the first answer; `None` while there is none.
    pub answer: Option<String>,
}

/// Something that was waited for did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not seen within {waited:?}; last calls: {last}")]
pub struct BotApiNotSeen {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    last: String,
}

/// Observations. Lists are bounded: the oldest entries go first.
impl BotApi {
    /// The messages of a chat, oldest first.
    pub fn messages(&self, chat_id: i64) -> Vec<SeenMessage> {
        let state = self.hub.lock();
        let chat = state.chats.get(&chat_id);
        let messages = chat.into_iter().flat_map(|chat| chat.messages.iter());
        messages.map(|(id, message)| seen(&state, *id, message)).collect()
    }

    /// The bot's messages of a chat, oldest first.
    pub fn answers(&self, chat_id: i64) -> Vec<SeenMessage> {
        let mut messages = self.messages(chat_id);
        messages.retain(|message| message.is_by_bot);
        messages
    }

    /// The drafts that are shown in a chat.
    pub fn drafts(&self, chat_id: i64) -> Vec<SeenDraft> {
        let state = self.hub.lock();
        let drafts = state
            .chats
            .get(&chat_id)
            .into_iter()
            .flat_map(|chat| &chat.drafts);
        let shown = drafts.filter(|(_, draft)| unix_now() - draft.shown_at <= DRAFT_SECS);
        let seen = shown.map(|(thread_id, draft)| SeenDraft {
            thread_id: (*thread_id != 0).then_some(*thread_id),
            draft_id: draft.draft_id,
            text: draft.text.text(),
            can_stop: draft.can_stop,
        });
        seen.collect()
    }

    /// What the bot is doing in a chat, like `typing`.
    pub fn action(&self, chat_id: i64) -> Option<String> {
        let state = self.hub.lock();
        let (action, _, until) = state.chats.get(&chat_id)?.action.as_ref()?;
        (unix_now() < *until).then(|| action.clone())
    }

    /// The name of a topic.
    pub fn topic_name(&self, chat_id: i64, thread_id: i64) -> Option<String> {
        let state = self.hub.lock();
        let topic = state.chats.get(&chat_id)?.topics.get(&thread_id)?;
        Some(topic.name.clone())
    }

    /// Every call on record.
    pub fn calls(&self) -> Vec<BotApiCall> {
        self.hub.lock().calls.since(0).cloned().collect()
    }

    /// The calls of one method.
    pub fn calls_of(&self, method: &str) -> Vec<BotApiCall> {
        let state = self.hub.lock();
        let calls = state
            .calls
            .since(0)
            .filter(|call| call.method.eq_ignore_ascii_case(method));
        calls.cloned().collect()
    }

    /// How many calls there were, on record or not.
    pub fn call_count(&self) -> u64 {
        self.hub.lock().calls.counted()
    }

    /// Forgets the calls on record.
    pub fn forget_calls(&self) {
        self.hub.change(|state| state.calls.clear());
    }

    /// The updates that wait, oldest first.
    pub fn pending_updates(&self) -> Vec<Value> {
        self.hub.lock().updates.pending().cloned().collect()
    }

    /// How many updates wait.
    pub fn pending_count(&self) -> usize {
        self.hub.lock().updates.pending_count()
    }

    /// The last offset that confirmed something or could have.
    pub fn confirmed_offset(&self) -> Option<i64> {
        self.hub.lock().updates.confirmed()
    }

    /// How many updates were dropped: not wanted, expired, or one too many.
    pub fn dropped_updates(&self) -> u64 {
        self.hub.lock().updates.dropped()
    }

    /// Whether a poll waits for updates.
    pub fn is_polled(&self) -> bool {
        self.hub.lock().poll.is_waiting
    }

    /// The presses, oldest first.
    pub fn presses(&self) -> Vec<SeenPress> {
        let state = self.hub.lock();
        let presses = state.presses.iter().map(|press| SeenPress {
            query_id: press.query_id.clone(),
            chat_id: press.chat_id,
            message_id: press.message_id,
            data: press.data.clone(),
            answer: press.answer.clone(),
        });
        presses.collect()
    }

    /// The calls that exceeded a limit.
    pub fn violations(&self) -> Vec<FloodViolation> {
        self.hub.lock().flood.violations().cloned().collect()
    }

    /// Waits until something is so, and gives what `look` found. It looks again after every change, so
    /// `look` should change nothing itself.
    pub async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, BotApiNotSeen> {
        let end = Instant::now() + deadline;
        loop {
            let mut changed = std::pin::pin!(self.hub.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            // Others first: a look that changes something would otherwise keep the thread to itself.
            tokio::task::yield_now().await;
            if Instant::now() >= end || timeout_at(end, changed).await.is_err() {
                return Err(self.not_seen(what, deadline));
            }
        }
    }

    /// Waits for a message of the bot that is as wanted.
    pub async fn wait_for_answer(
        &self,
        chat_id: i64,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&SeenMessage) -> bool,
    ) -> Result<SeenMessage, BotApiNotSeen> {
        self.until(what, deadline, |api| {
            api.answers(chat_id).into_iter().find(&mut wanted)
        })
        .await
    }

    /// Waits until a poll waits for updates.
    pub async fn wait_polled(&self, deadline: Duration) -> Result<(), BotApiNotSeen> {
        self.until("a poll that waits", deadline, |api| api.is_polled().then_some(()))
            .await
    }

    fn not_seen(&self, what: &str, waited: Duration) -> BotApiNotSeen {
        let calls = self.calls();
        let last = calls.iter().rev().take(8).rev().map(|call| {
            let params = call.params.to_string();
            let status = call
                .status
                .map_or("no answer".to_owned(), |status| status.to_string());
            format!("{} {} {status}", call.method, crate::text::truncate(&params, 200))
        });
        BotApiNotSeen {
            what: what.to_owned(),
            waited,
            last: last.collect::<Vec<_>>().join("; "),
        }
    }
}

fn seen(state: &BotApiState, message_id: i64, message: &ApiMessage) -> SeenMessage {
    let object = &message.object;
    SeenMessage {
        message_id,
        is_by_bot: message.is_by_bot,
        text: message.text.text(),
        is_rich: object.get("rich_message").is_some(),
        html: message.text.to_html(),
        entities: message.text.entities(),
        buttons: buttons(object),
        file: file_of(state, object),
        reply_to: object["reply_to_message"]["message_id"].as_i64(),
        thread_id: object["message_thread_id"].as_i64(),
        reactions: message.reactions.get(&0).cloned().unwrap_or_default(),
        is_edited: object.get("edit_date").is_some(),
        object: object.clone(),
    }
}

fn buttons(object: &Value) -> Vec<Vec<SeenButton>> {
    let rows = object["reply_markup"]["inline_keyboard"].as_array();
    let text = |button: &Value, name: &str| button[name].as_str().map(str::to_owned);
    let rows = rows.into_iter().flatten().map(|row| {
        let buttons = row.as_array().into_iter().flatten().map(|button| SeenButton {
            text: text(button, "text").unwrap_or_default(),
            data: text(button, "callback_data"),
            style: text(button, "style"),
        });
        buttons.collect()
    });
    rows.collect()
}

/// The id of the file that a message has.
pub(super) fn file_id(object: &Value) -> Option<&str> {
    if let Some(sizes) = object["photo"].as_array() {
        return sizes.last()?["file_id"].as_str();
    }
    [
        "animation",
        "document",
        "voice",
        "video",
        "audio",
        "video_note",
        "sticker",
    ]
    .iter()
    .find_map(|kind| object[*kind]["file_id"].as_str())
}

fn file_of(state: &BotApiState, object: &Value) -> Option<SeenFile> {
    let file = state.files.find(file_id(object)?)?;
    Some(SeenFile {
        kind: file.kind.clone(),
        name: file.name.clone(),
        mime: file.mime.clone(),
        bytes: file.bytes.to_vec(),
    })
}

/// A chat for the page, with its latest messages.
pub(super) fn page_chat(state: &BotApiState, chat: &ApiChat, shown: usize) -> Value {
    let skipped = chat.messages.len().saturating_sub(shown);
    let messages = chat.messages.iter().skip(skipped).map(|(id, message)| {
        let object = &message.object;
        let file = file_id(object).and_then(|id| state.files.find(id));
        let file = file.map(|file| {
            let has_picture = file.kind == "photo" && !file.bytes.is_empty();
            json!({ "id": file.id, "kind": file.kind, "name": file.name, "bytes": file.size, "picture": has_picture })
        });
        let rows = buttons(object).into_iter().map(|row| {
            let row = row.into_iter().map(|button| {
                json!({ "text": button.text, "data": button.data, "style": button.style })
            });
            row.collect::<Vec<_>>()
        });
        json!({
            "id": id,
            "bot": message.is_by_bot,
            "from": object["from"]["first_name"].as_str().or(object["sender_chat"]["title"].as_str()),
            "date": object["date"],
            "runs": message.text.runs(),
            "buttons": rows.collect::<Vec<_>>(),
            "file": file,
            "reply": object["reply_to_message"]["message_id"],
            "thread": object["message_thread_id"],
            "service": service(object),
            "edited": object.get("edit_date").is_some(),
            "rich": object.get("rich_message").is_some(),
            "reactions": message.reactions.values().flatten().collect::<Vec<_>>(),
        })
    });
    let now = unix_now();
    let drafts = chat
        .drafts
        .iter()
        .filter(|(_, draft)| now - draft.shown_at <= DRAFT_SECS);
    let drafts = drafts.map(|(thread_id, draft)| {
        json!({ "thread": thread_id, "runs": draft.text.runs(), "can_stop": draft.can_stop })
    });
    let topics = chat
        .topics
        .iter()
        .map(|(id, topic)| json!({ "id": id, "name": topic.name }));
    json!({
        "id": chat.id,
        "kind": chat.kind.name(),
        "title": chat.title,
        "standing": chat.standing.status(),
        "topics": topics.collect::<Vec<_>>(),
        "messages": messages.collect::<Vec<_>>(),
        "drafts": drafts.collect::<Vec<_>>(),
        "action": chat.action.as_ref().filter(|(_, _, until)| now < *until).map(|(action, _, _)| action),
    })
}

/// What a message without text says.
fn service(object: &Value) -> Option<String> {
    for name in ["forum_topic_created", "forum_topic_edited"] {
        if let Some(topic) = object.get(name) {
            return Some(format!(
                "{}: {}",
                name.replace('_', " "),
                topic["name"].as_str().unwrap_or_default()
            ));
        }
    }
    for name in ["migrate_to_chat_id", "migrate_from_chat_id"] {
        if let Some(id) = object.get(name) {
            return Some(format!("{}: {id}", name.replace('_', " ")));
        }
    }
    None
}
