//! Editing and deleting messages.

use serde_json::{Value, json};

use super::formatted;
use super::keyboard::inline_keyboard;
use super::media::MAX_CAPTION;
use super::rich::RichContent;
use super::send::{MAX_TEXT, put_text};
use crate::dev::bot_api::chats::{ApiChatKind, ApiMessage, BotStanding};
use crate::dev::bot_api::markup::ApiText;
use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::BotApiState;

/// How long a message can be deleted, in seconds.
const DELETABLE_SECS: i64 = 48 * 60 * 60;

/// What an edit changes.
enum Edit {
    Text(ApiText),
    Rich(RichContent),
    Caption(ApiText),
    Keyboard,
}

pub(super) fn text(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    if state.settings.rich_messages
        && let Some(content) = RichContent::read(params)?
    {
        return edit(state, params, Edit::Rich(content), now);
    }
    let text = formatted(params, "text", "entities")?;
    if text.length() == 0 {
        return Err(ApiRefusal::bad("message text is empty"));
    }
    if text.length() > MAX_TEXT {
        return Err(ApiRefusal::bad("MESSAGE_TOO_LONG"));
    }
    edit(state, params, Edit::Text(text), now)
}

pub(super) fn caption(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let caption = formatted(params, "caption", "caption_entities")?;
    if caption.length() > MAX_CAPTION {
        return Err(ApiRefusal::bad("MEDIA_CAPTION_TOO_LONG"));
    }
    edit(state, params, Edit::Caption(caption), now)
}

pub(super) fn markup(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    edit(state, params, Edit::Keyboard, now)
}

fn edit(state: &mut BotApiState, params: &ApiParams, edit: Edit, now: i64) -> ApiResult {
    let keyboard = inline_keyboard(params)?;
    let chat_id = state.joined_chat(params)?;
    let Some(message_id) = params.integer("message_id") else {
        return Err(ApiRefusal::bad("message identifier is not specified"));
    };
    let Some(chat) = state.chats.get_mut(&chat_id) else {
        return Err(ApiRefusal::bad("chat not found"));
    };
    let Some(message) = chat.messages.get_mut(&message_id) else {
        return Err(ApiRefusal::bad("message to edit not found"));
    };
    if !message.is_by_bot {
        return Err(ApiRefusal::bad("message can't be edited"));
    }
    let mut object = message.object.as_object().cloned().unwrap_or_default();
    let mut text = message.text.clone();
    match edit {
        Edit::Text(_) | Edit::Rich(_) if message.has_media() => {
            return Err(ApiRefusal::bad("there is no text in the message to edit"));
        }
        Edit::Caption(_) if !message.has_media() => {
            return Err(ApiRefusal::bad("there is no caption in the message to edit"));
        }
        Edit::Text(new) => {
            put_text(&mut object, &new, false);
            object.remove("rich_message");
            text = new;
        }
        Edit::Rich(new) => {
            put_text(&mut object, &ApiText::default(), false);
            object.insert("rich_message".to_owned(), new.object);
            text = new.text;
        }
        Edit::Caption(new) => {
            put_text(&mut object, &new, true);
            text = new;
        }
        Edit::Keyboard => {}
    }
    // A keyboard that is not given again is gone.
    object.remove("reply_markup");
    if let Some(keyboard) = keyboard {
        object.insert("reply_markup".to_owned(), keyboard);
    }
    let object = Value::Object(object);
    if object == message.object {
        return Err(ApiRefusal::bad(
            "message is not modified: specified new message content and reply markup are exactly the same as a current \
             content and reply markup of the message",
        ));
    }
    *message = ApiMessage {
        object,
        text,
        ..message.clone()
    };
    message.object["edit_date"] = json!(now);
    let edited = message.object.clone();
    chat.version += 1;
    Ok(edited)
}

/// Why a message cannot be deleted.
fn undeletable(state: &BotApiState, chat_id: i64, message_id: i64, now: i64) -> Option<&'static str> {
    let chat = &state.chats[&chat_id];
    let Some(message) = chat.messages.get(&message_id) else {
        return Some("message to delete not found");
    };
    let has_rights = chat.standing == BotStanding::Administrator || chat.kind == ApiChatKind::Private;
    let is_root = message.object.get("forum_topic_created").is_some();
    let is_too_old = now - message.sent_at > DELETABLE_SECS;
    if is_root || (!message.is_by_bot && !has_rights) {
        return Some("message can't be deleted");
    }
    is_too_old.then_some("message can't be deleted for everyone")
}

fn remove(state: &mut BotApiState, chat_id: i64, message_id: i64) {
    if let Some(chat) = state.touch(chat_id) {
        chat.messages.remove(&message_id);
    }
}

pub(super) fn delete(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let Some(message_id) = params.integer("message_id") else {
        return Err(ApiRefusal::bad("message identifier is not specified"));
    };
    if let Some(why) = undeletable(state, chat_id, message_id, now) {
        return Err(ApiRefusal::bad(why));
    }
    remove(state, chat_id, message_id);
    Ok(json!(true))
}

pub(super) fn delete_several(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let ids = params.json("message_ids");
    let ids: Vec<i64> = ids
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_i64)
        .collect();
    if !(1..=100).contains(&ids.len()) {
        return Err(ApiRefusal::bad("there must be from 1 to 100 message identifiers"));
    }
    for message_id in ids {
        if undeletable(state, chat_id, message_id, now).is_none() {
            remove(state, chat_id, message_id);
        }
    }
    Ok(json!(true))
}
