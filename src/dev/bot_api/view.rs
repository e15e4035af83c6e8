//! Chats as the page shows them, and how the handle waits for what happens in them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::BotApi;
use super::chats::ApiChat;
use super::server::unix_now;
use super::state::BotApiState;

/// How long a draft is shown, in seconds.
const DRAFT_SECS: i64 = 30;

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

/// How the handle waits.
impl BotApi {
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

    /// The text of the first message of the bot in a chat.
    pub async fn wait_for_answer(&self, chat_id: i64, deadline: Duration) -> Result<String, BotApiNotSeen> {
        self.until("an answer", deadline, |api| {
            let state = api.hub.lock();
            let mut messages = state.chats.get(&chat_id)?.messages.values();
            messages
                .find(|message| message.is_by_bot)
                .map(|message| message.text.text())
        })
        .await
    }

    /// Waits until a poll waits for updates.
    pub async fn wait_polled(&self, deadline: Duration) -> Result<(), BotApiNotSeen> {
        self.until("a poll that waits", deadline, |api| {
            api.hub.lock().poll.is_waiting.then_some(())
        })
        .await
    }

    fn not_seen(&self, what: &str, waited: Duration) -> BotApiNotSeen {
        let state = self.hub.lock();
        let calls: Vec<_> = state.calls.since(0).collect();
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

fn buttons(object: &Value) -> Vec<Vec<Value>> {
    let rows = object["reply_markup"]["inline_keyboard"].as_array();
    let rows = rows.into_iter().flatten().map(|row| {
        let buttons = row.as_array().into_iter().flatten();
        let buttons = buttons.map(|button| {
            json!({ "text": button["text"], "data": button["callback_data"], "style": button["style"] })
        });
        buttons.collect()
    });
    rows.collect()
}

/// The id of the file that a message has.
pub fn file_id(object: &Value) -> Option<&str> {
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
        json!({
            "id": id,
            "bot": message.is_by_bot,
            "from": object["from"]["first_name"].as_str().or(object["sender_chat"]["title"].as_str()),
            "date": object["date"],
            "runs": message.text.runs(),
            "buttons": buttons(object),
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
