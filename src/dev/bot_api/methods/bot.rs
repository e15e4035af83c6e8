//! Methods about the bot itself: who it is, its webhook, its commands, its files.

use serde_json::{Value, json};

use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::BotApiState;

/// Commands of one list.
const MAX_COMMANDS: usize = 100;
/// Lists of commands that are kept.
const MAX_LISTS: usize = 1_000;

pub(super) fn me(state: &BotApiState) -> Value {
    let mut me = state.bot.user();
    me["can_join_groups"] = json!(true);
    me["can_read_all_group_messages"] = json!(state.settings.reads_all_group_messages);
    me["supports_inline_queries"] = json!(false);
    me["can_connect_to_business"] = json!(false);
    me["has_main_web_app"] = json!(false);
    me["has_topics_enabled"] = json!(state.settings.has_topics);
    me["allows_users_to_create_topics"] = json!(state.settings.has_topics);
    me
}

pub(super) fn webhook_info(state: &BotApiState) -> Value {
    json!({
        "url": state.webhook.clone().unwrap_or_default(),
        "has_custom_certificate": false,
        "pending_update_count": state.updates.pending_count(),
        "allowed_updates": state.updates.allowed(),
    })
}

/// Remembers a webhook. Nothing is ever sent to it.
pub(super) fn set_webhook(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    let url = params.text("url").unwrap_or_default();
    if !url.is_empty() && !url.starts_with("https://") {
        return Err(ApiRefusal::bad(
            "bad webhook: An HTTPS URL must be provided for webhook",
        ));
    }
    state.updates.allow(&params.json("allowed_updates"));
    if params.flag("drop_pending_updates") {
        state.updates.clear();
    }
    if url.is_empty() {
        state.webhook = None;
    } else {
        state.webhook = Some(url);
        state.end_poll("terminated by setWebhook request");
    }
    Ok(json!(true))
}

pub(super) fn delete_webhook(state: &mut BotApiState, params: &ApiParams) -> Value {
    state.webhook = None;
    if params.flag("drop_pending_updates") {
        state.updates.clear();
    }
    json!(true)
}

pub(super) fn file(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    match params.text("file_id") {
        Some(id) => state.files.offer(&id),
        None => Err(ApiRefusal::bad("file_id not specified")),
    }
}

/// The list that a call is about: its scope and its language.
fn list(params: &ApiParams) -> (String, String) {
    let scope = params.json("scope");
    let kind = scope["type"].as_str().unwrap_or("default");
    let part = |name: &str| scope[name].to_string();
    let scope = format!("{kind} {} {}", part("chat_id"), part("user_id"));
    (scope, params.text("language_code").unwrap_or_default())
}

pub(super) fn set_commands(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    let given = params.json("commands");
    let Some(commands) = given.as_array() else {
        return Err(ApiRefusal::bad(
            "can't parse commands: expected an Array of BotCommand",
        ));
    };
    if commands.len() > MAX_COMMANDS {
        return Err(ApiRefusal::bad("BOT_COMMANDS_TOO_MUCH"));
    }
    for command in commands {
        let name = command["command"].as_str().unwrap_or_default();
        let name = name.strip_prefix('/').unwrap_or(name);
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=32).contains(&name.len()) || !name.bytes().all(is_name) {
            return Err(ApiRefusal::bad("BOT_COMMAND_INVALID"));
        }
        let description = command["description"].as_str().unwrap_or_default();
        if !(1..=256).contains(&description.chars().count()) {
            return Err(ApiRefusal::bad("BOT_COMMAND_DESCRIPTION_INVALID"));
        }
    }
    if state.commands.len() >= MAX_LISTS {
        state.commands.pop_first();
    }
    state.commands.insert(list(params), given);
    Ok(json!(true))
}

pub(super) fn commands(state: &BotApiState, params: &ApiParams) -> Value {
    state
        .commands
        .get(&list(params))
        .cloned()
        .unwrap_or_else(|| json!([]))
}

pub(super) fn delete_commands(state: &mut BotApiState, params: &ApiParams) -> Value {
    state.commands.remove(&list(params));
    json!(true)
}
