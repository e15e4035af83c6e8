//! Sending: messages, drafts, and what the bot is doing.

use serde_json::{Map, Value, json};

use super::formatted;
use super::keyboard::inline_keyboard;
use crate::dev::bot_api::chats::{ApiChatKind, ApiDraft};
use crate::dev::bot_api::markup::ApiText;
use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::{BotApiState, MessageSender};

/// Characters of a text, after parsing.
pub(super) const MAX_TEXT: usize = 4096;
/// How long an action is shown, in seconds.
const ACTION_SECS: i64 = 5;

/// Where a message goes and what it answers, checked.
pub(super) struct Destination {
    pub(super) chat_id: i64,
    pub(super) fields: Map<String, Value>,
}

impl Destination {
    /// Reads and checks the parameters that every send has.
    pub(super) fn read(state: &BotApiState, params: &ApiParams) -> Result<Self, ApiRefusal> {
        let chat_id = state.writable_chat(params)?;
        let keyboard = inline_keyboard(params)?;
        let thread_id = state.topic(chat_id, params)?;
        let chat = &state.chats[&chat_id];
        let mut fields = Map::new();
        let mut reply = params.json("reply_parameters");
        if reply.is_null() && params.has("reply_to_message_id") {
            reply = json!({
                "message_id": params.integer("reply_to_message_id"),
                "allow_sending_without_reply": params.flag("allow_sending_without_reply"),
            });
        }
        if let Some(message_id) = reply["message_id"].as_i64().filter(|id| *id != 0) {
            match chat.quoted(message_id) {
                Some(quoted) => {
                    if let Some(quote) = reply["quote"].as_str() {
                        let text = quoted["text"]
                            .as_str()
                            .or(quoted["caption"].as_str())
                            .unwrap_or_default();
                        let Some(position) = text.find(quote) else {
                            return Err(ApiRefusal::bad("QUOTE_TEXT_INVALID"));
                        };
                        let position = text[..position].encode_utf16().count();
                        fields.insert(
                            "quote".to_owned(),
                            json!({ "text": quote, "position": position, "is_manual": true }),
                        );
                    }
                    fields.insert("reply_to_message".to_owned(), quoted);
                }
                None if reply["allow_sending_without_reply"] == true => {}
                None => return Err(ApiRefusal::bad("message to be replied not found")),
            }
        }
        if thread_id != 0 {
            chat.place_in_topic(&mut fields, thread_id);
        }
        if let Some(keyboard) = keyboard {
            fields.insert("reply_markup".to_owned(), keyboard);
        }
        Ok(Self { chat_id, fields })
    }
}

/// Puts a text and its entities into a message.
pub(in crate::dev::bot_api) fn put_text(fields: &mut Map<String, Value>, text: &ApiText, is_caption: bool) {
    let (name, entities) = if is_caption {
        ("caption", "caption_entities")
    } else {
        ("text", "entities")
    };
    fields.remove(name);
    fields.remove(entities);
    if text.length() == 0 {
        return;
    }
    fields.insert(name.to_owned(), json!(text.text()));
    let found = text.entities();
    if !found.is_empty() {
        fields.insert(entities.to_owned(), Value::Array(found));
    }
}

pub(super) fn message(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let text = formatted(params, "text", "entities")?;
    if text.length() == 0 {
        return Err(ApiRefusal::bad("message text is empty"));
    }
    let mut to = Destination::read(state, params)?;
    if text.length() > MAX_TEXT {
        return Err(ApiRefusal::bad("message is too long"));
    }
    put_text(&mut to.fields, &text, false);
    let preview = params.json("link_preview_options");
    if preview.is_object() {
        to.fields.insert("link_preview_options".to_owned(), preview);
    }
    Ok(state.add_message(to.chat_id, &MessageSender::Bot, text, to.fields, now))
}

pub(super) fn draft(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let text = formatted(params, "text", "entities")?;
    let chat_id = state.writable_chat(params)?;
    if state.chats[&chat_id].kind != ApiChatKind::Private {
        return Err(ApiRefusal::bad("TEXTDRAFT_PEER_INVALID"));
    }
    let thread_id = state.topic(chat_id, params)?;
    let Some(draft_id) = params.integer("draft_id").filter(|id| *id != 0) else {
        return Err(ApiRefusal::bad("draft_id must be a non-zero number"));
    };
    if text.length() > MAX_TEXT {
        return Err(ApiRefusal::bad("message is too long"));
    }
    let draft = ApiDraft {
        draft_id,
        text,
        can_stop: params.flag("can_stop"),
        shown_at: now,
    };
    if let Some(chat) = state.touch(chat_id) {
        chat.drafts.insert(thread_id, draft);
    }
    Ok(json!(true))
}

pub(super) fn action(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    const ACTIONS: [&str; 11] = [
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    ];
    let chat_id = state.writable_chat(params)?;
    let action = params.text("action").unwrap_or_default();
    if !ACTIONS.contains(&action.as_str()) {
        return Err(ApiRefusal::bad("wrong parameter action in request"));
    }
    // In the General topic of a forum an action is shown under the id 1, which no message may name.
    let named = params.integer("message_thread_id").unwrap_or(0);
    let is_general = named == 1 && state.chats[&chat_id].kind == ApiChatKind::Forum;
    let thread_id = if is_general {
        1
    } else {
        state.topic(chat_id, params)?
    };
    if let Some(chat) = state.touch(chat_id) {
        chat.action = Some((action, thread_id, now + ACTION_SECS));
    }
    Ok(json!(true))
}
