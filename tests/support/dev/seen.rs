//! What can be seen of the fake Bot API: chats as a person sees them.

use hermes_relay::dev::{self, unix_now};
use serde_json::Value;

use super::html::to_html;

/// How long a draft is shown, in seconds.
const DRAFT_SECS: i64 = 30;

/// A button under a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenButton {
    pub(crate) text: String,
    /// What a press sends.
    pub(crate) data: Option<String>,
    /// Its colour, as the API names it.
    pub(crate) style: Option<String>,
}

/// A file of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenFile {
    /// `photo`, `document` and so on.
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
    pub(crate) mime: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// A message, as a person sees it.
#[derive(Clone, Debug)]
pub(crate) struct SeenMessage {
    pub(crate) message_id: i64,
    pub(crate) is_by_bot: bool,
    /// Its text or caption; of a rich message its Markdown.
    pub(crate) text: String,
    pub(crate) is_rich: bool,
    /// The same in HTML, as it was understood.
    pub(crate) html: String,
    pub(crate) entities: Vec<Value>,
    /// Its buttons, by rows.
    pub(crate) buttons: Vec<Vec<SeenButton>>,
    pub(crate) file: Option<SeenFile>,
    pub(crate) reply_to: Option<i64>,
    /// Its topic.
    pub(crate) thread_id: Option<i64>,
    /// What the bot reacted with.
    pub(crate) reactions: Vec<String>,
    pub(crate) is_edited: bool,
    /// The `Message` object.
    pub(crate) object: Value,
}

/// A draft, as a person sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenDraft {
    pub(crate) thread_id: Option<i64>,
    pub(crate) draft_id: i64,
    pub(crate) text: String,
    /// Whether it has a Stop button.
    pub(crate) can_stop: bool,
}

/// A press of a button, and what the bot answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenPress {
    pub(crate) query_id: String,
    pub(crate) chat_id: i64,
    pub(crate) message_id: i64,
    /// What the press sent.
    pub(crate) data: String,
    /// The text of the first answer; `None` while there is none.
    pub(crate) answer: Option<String>,
}

/// The messages of a chat, oldest first.
pub(crate) fn messages(api: &dev::BotApi, chat_id: i64) -> Vec<SeenMessage> {
    let state = api.hub.lock();
    let chat = state.chats.get(&chat_id);
    let messages = chat.into_iter().flat_map(|chat| chat.messages.iter());
    let seen = messages.map(|(id, message)| {
        let object = &message.object;
        let file = dev::file_id(object).and_then(|id| state.files.find(id));
        SeenMessage {
            message_id: *id,
            is_by_bot: message.is_by_bot,
            text: message.text.text(),
            is_rich: object.get("rich_message").is_some(),
            html: to_html(&message.text),
            entities: message.text.entities(),
            buttons: buttons(object),
            file: file.map(|file| SeenFile {
                kind: file.kind.clone(),
                name: file.name.clone(),
                mime: file.mime.clone(),
                bytes: file.bytes.to_vec(),
            }),
            reply_to: object["reply_to_message"]["message_id"].as_i64(),
            thread_id: object["message_thread_id"].as_i64(),
            reactions: message.reactions.get(&0).cloned().unwrap_or_default(),
            is_edited: object.get("edit_date").is_some(),
            object: object.clone(),
        }
    });
    seen.collect()
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

/// The drafts that are shown in a chat.
pub(crate) fn drafts(api: &dev::BotApi, chat_id: i64) -> Vec<SeenDraft> {
    let state = api.hub.lock();
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
