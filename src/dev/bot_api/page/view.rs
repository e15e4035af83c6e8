//! Chats and calls of the fake Bot API as the page shows them.

use serde_json::{Value, json};

use crate::dev::bot_api::chats::{ApiChat, ApiChatKind, ApiMessage};
use crate::dev::bot_api::server::unix_now;
use crate::dev::bot_api::state::BotApiState;
use crate::dev::bot_api::view::file_id;
use crate::dev::calls::BotApiCall;

/// Messages of a chat or topic that are shown.
const SHOWN_MESSAGES: usize = 200;
/// How long a draft is shown, in seconds.
const DRAFT_SECS: i64 = 30;

/// A chat for the page, and each of its topics as one of its own.
pub(super) fn shown_chats(state: &BotApiState, chat: &ApiChat) -> Vec<Value> {
    let topics = chat.topics.iter();
    let topics = topics.map(|(id, topic)| {
        let about = format!("topic of {}, id {}/{id}", chat.title, chat.id);
        shown_chat(state, chat, *id, &topic.name, &about)
    });
    let about = format!("{}, id {}", chat.kind.label(), chat.id);
    let mut chats = vec![shown_chat(state, chat, 0, &chat.title, &about)];
    chats.extend(topics);
    chats
}

fn shown_chat(state: &BotApiState, chat: &ApiChat, topic: i64, name: &str, about: &str) -> Value {
    let topic_of = |message: &ApiMessage| {
        let thread = message.object["message_thread_id"].as_i64().unwrap_or(0);
        if chat.topics.contains_key(&thread) {
            thread
        } else {
            0
        }
    };
    let messages = chat.messages.iter().rev();
    let messages = messages.filter(|(_, message)| topic_of(message) == topic);
    let mut messages: Vec<Value> = messages
        .take(SHOWN_MESSAGES)
        .map(|(id, message)| shown_message(state, *id, message))
        .collect();
    messages.reverse();
    let now = unix_now();
    let draft = chat.drafts.get(&topic);
    let draft = draft.filter(|draft| now - draft.shown_at <= DRAFT_SECS);
    let draft = draft
        .map(|draft| json!({ "id": draft.draft_id, "runs": draft.text.runs(), "can_stop": draft.can_stop }));
    let action = chat.action.as_ref();
    let action = action.filter(|(_, thread, until)| *thread == topic && now < *until);
    json!({
        "kind": if topic == 0 { chat.kind.label() } else { "topic" },
        "name": name,
        "about": about,
        "chat": chat.id.to_string(),
        "thread": (topic != 0).then(|| topic.to_string()),
        "person": (chat.kind == ApiChatKind::Private).then(|| chat.id.to_string()),
        "standing": chat.standing.status(),
        "messages": messages,
        "drafts": draft.into_iter().collect::<Vec<_>>(),
        "action": action.map(|(action, _, _)| action.replace('_', " ")),
    })
}

fn shown_message(state: &BotApiState, id: i64, message: &ApiMessage) -> Value {
    let object = &message.object;
    let t = object["date"].as_u64().unwrap_or(0).saturating_mul(1_000_000);
    if let Some(text) = service(object) {
        return json!({ "id": id.to_string(), "from": "note", "text": text, "t": t, "reactions": [] });
    }
    let file = file_id(object).and_then(|id| state.files.find(id));
    let media = file.map(|file| {
        let kind = if file.kind == "photo" && !file.bytes.is_empty() {
            "image"
        } else {
            file.kind.as_str()
        };
        json!({ "file": file.id, "kind": kind, "name": file.name, "bytes": file.size })
    });
    let tags = [
        message.is_by_bot.then(|| "bot".to_owned()),
        object.get("rich_message").map(|_| "rich".to_owned()),
        Some(format!("#{id}")),
    ];
    let rows = object["reply_markup"]["inline_keyboard"].as_array();
    let rows = rows.map(|rows| rows.iter().map(shown_buttons).collect::<Vec<_>>());
    json!({
        "id": id.to_string(),
        "from": if message.is_by_bot { "bot" } else { "person" },
        "who": object["from"]["first_name"].as_str().or(object["sender_chat"]["title"].as_str()),
        "t": t,
        "text": message.text.text(),
        "runs": message.text.runs(),
        "replyTo": object["reply_to_message"]["message_id"].as_i64().map(|id| id.to_string()),
        "media": media.into_iter().collect::<Vec<_>>(),
        "prompt": rows.map(|rows| json!({ "rows": rows, "pressed": null })),
        "tags": tags.into_iter().flatten().collect::<Vec<_>>(),
        "edits": u8::from(object.get("edit_date").is_some()),
        "reactions": message.reactions.values().flatten().collect::<Vec<_>>(),
    })
}

fn shown_buttons(row: &Value) -> Vec<Value> {
    let buttons = row.as_array().into_iter().flatten();
    let buttons = buttons.map(
        |button| json!({ "id": button["callback_data"], "label": button["text"], "style": button["style"] }),
    );
    buttons.collect()
}

/// One line about a call.
pub(super) fn about(call: &BotApiCall) -> String {
    let params = &call.params;
    let text = ["text", "caption", "action", "name", "file_path"]
        .iter()
        .find_map(|name| params[*name].as_str());
    let chat = call.chat_id().map(|id| id.to_string()).unwrap_or_default();
    let refused = call.answer["description"].as_str();
    let updates = call.answer["updates"].as_u64().filter(|count| *count > 0);
    let updates = updates.map(|count| format!("{count} updates"));
    let parts = [Some(chat.as_str()), text, updates.as_deref(), refused];
    let line = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" · ");
    crate::text::one_line(&line, 160)
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
