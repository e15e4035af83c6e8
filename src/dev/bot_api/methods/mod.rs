//! What each method does to the state. Only `getUpdates` is elsewhere: it waits.

mod bot;
mod chat;
mod edit;
mod keyboard;
mod media;
mod rich;
mod send;

pub(super) use chat::{member_of, open_topic};
pub(super) use send::put_text;

use serde_json::Value;

use super::markup::ApiText;
use super::params::ApiParams;
use super::refusal::{ApiRefusal, ApiResult};
use super::state::BotApiState;

/// Every method, as the documentation writes it.
const METHODS: [&str; 39] = [
    "getMe",
    "getUpdates",
    "getWebhookInfo",
    "setWebhook",
    "deleteWebhook",
    "getFile",
    "setMyCommands",
    "getMyCommands",
    "deleteMyCommands",
    "sendMessage",
    "sendRichMessage",
    "sendMessageDraft",
    "sendChatAction",
    "sendPhoto",
    "sendDocument",
    "sendVoice",
    "sendVideo",
    "sendAudio",
    "sendAnimation",
    "sendVideoNote",
    "sendSticker",
    "sendMediaGroup",
    "editMessageText",
    "editMessageCaption",
    "editMessageReplyMarkup",
    "deleteMessage",
    "deleteMessages",
    "setMessageReaction",
    "answerCallbackQuery",
    "createForumTopic",
    "editForumTopic",
    "closeForumTopic",
    "reopenForumTopic",
    "deleteForumTopic",
    "getChat",
    "getChatMember",
    "getChatAdministrators",
    "getChatMemberCount",
    "leaveChat",
];

/// The method of this name, whatever its case.
pub fn method_named(name: &str, state: &BotApiState) -> Option<&'static str> {
    let found = METHODS
        .into_iter()
        .find(|method| method.eq_ignore_ascii_case(name))?;
    let is_there = match found {
        "sendMessageDraft" => state.settings.drafts,
        "sendRichMessage" => state.settings.rich_messages,
        _ => true,
    };
    is_there.then_some(found)
}

/// Carries out a call.
pub(super) fn perform(state: &mut BotApiState, method: &str, params: &ApiParams, now: i64) -> ApiResult {
    match method {
        "getMe" => Ok(bot::me(state)),
        "getWebhookInfo" => Ok(bot::webhook_info(state)),
        "setWebhook" => bot::set_webhook(state, params),
        "deleteWebhook" => Ok(bot::delete_webhook(state, params)),
        "getFile" => bot::file(state, params),
        "setMyCommands" => bot::set_commands(state, params),
        "getMyCommands" => Ok(bot::commands(state, params)),
        "deleteMyCommands" => Ok(bot::delete_commands(state, params)),
        "sendMessage" => send::message(state, params, now),
        "sendRichMessage" => rich::send(state, params, now),
        "sendMessageDraft" => send::draft(state, params, now),
        "sendChatAction" => send::action(state, params, now),
        "sendMediaGroup" => media::group(state, params, now),
        "sendPhoto" => media::one(state, params, "photo", now),
        "sendDocument" => media::one(state, params, "document", now),
        "sendVoice" => media::one(state, params, "voice", now),
        "sendVideo" => media::one(state, params, "video", now),
        "sendAudio" => media::one(state, params, "audio", now),
        "sendAnimation" => media::one(state, params, "animation", now),
        "sendVideoNote" => media::one(state, params, "video_note", now),
        "sendSticker" => media::one(state, params, "sticker", now),
        "editMessageText" => edit::text(state, params, now),
        "editMessageCaption" => edit::caption(state, params, now),
        "editMessageReplyMarkup" => edit::markup(state, params, now),
        "deleteMessage" => edit::delete(state, params, now),
        "deleteMessages" => edit::delete_several(state, params, now),
        "setMessageReaction" => chat::react(state, params),
        "answerCallbackQuery" => chat::answer_press(state, params),
        "createForumTopic" => chat::create_topic(state, params, now),
        "editForumTopic" => chat::edit_topic(state, params, now),
        "closeForumTopic" => chat::set_topic(state, params, Some(true)),
        "reopenForumTopic" => chat::set_topic(state, params, Some(false)),
        "deleteForumTopic" => chat::set_topic(state, params, None),
        "getChat" => chat::info(state, params),
        "getChatMember" => chat::member(state, params),
        "getChatAdministrators" => chat::administrators(state, params),
        "getChatMemberCount" => chat::member_count(state, params),
        "leaveChat" => chat::leave(state, params),
        _ => Err(ApiRefusal::new(404, "Not Found: method not found")),
    }
}

/// The text or caption of a call, with its formatting. Markdown is taken as it stands: only HTML is parsed here.
fn formatted(params: &ApiParams, name: &str, entities: &str) -> Result<ApiText, ApiRefusal> {
    let source = params.text(name).unwrap_or_default();
    let mode = params.text("parse_mode").unwrap_or_default();
    parsed(&source, &mode, &params.json(entities))
}

fn parsed(source: &str, mode: &str, entities: &Value) -> Result<ApiText, ApiRefusal> {
    match mode.to_ascii_lowercase().as_str() {
        "html" => {
            ApiText::html(source).map_err(|why| ApiRefusal::bad(format!("can't parse entities: {why}")))
        }
        "" | "none" if entities.is_array() => Ok(ApiText::with_entities(source, entities)),
        "" | "none" | "markdown" | "markdownv2" => Ok(ApiText::plain(source)),
        _ => Err(ApiRefusal::bad("unsupported parse_mode")),
    }
}
