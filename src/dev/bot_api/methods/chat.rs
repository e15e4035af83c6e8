//! Methods about chats: what they are, their topics, reactions, and presses of buttons.

use serde_json::{Map, Value, json};

use crate::dev::bot_api::chats::{ApiChatKind, ApiPerson, ApiTopic, BotStanding};
use crate::dev::bot_api::markup::ApiText;
use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::{BotApiState, MessageSender};
use crate::direct::telegram::ALLOWED_REACTIONS;

/// Characters of a topic's name.
const MAX_TOPIC_NAME: usize = 128;
/// Topics of one chat.
const MAX_TOPICS: usize = 10_000;
const ICON_COLOR: i64 = 7_322_096;

pub(super) fn react(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let message_id = params.integer("message_id").unwrap_or(0);
    let given = params.json("reaction");
    let given = given.as_array().cloned().unwrap_or_default();
    if given.len() > 1 {
        return Err(ApiRefusal::bad("REACTIONS_TOO_MANY"));
    }
    let mut emoji = Vec::new();
    for reaction in &given {
        let shown = reaction["emoji"].as_str().unwrap_or_default();
        if reaction["type"] != "emoji" || !ALLOWED_REACTIONS.contains(&shown) {
            return Err(ApiRefusal::bad("REACTION_INVALID"));
        }
        emoji.push(shown.to_owned());
    }
    let chat = state
        .touch(chat_id)
        .ok_or_else(|| ApiRefusal::bad("chat not found"))?;
    let Some(message) = chat.messages.get_mut(&message_id) else {
        return Err(ApiRefusal::bad("message to react not found"));
    };
    if emoji.is_empty() {
        message.reactions.remove(&0);
    } else {
        message.reactions.insert(0, emoji);
    }
    Ok(json!(true))
}

pub(super) fn answer_press(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    let query_id = params.text("callback_query_id").unwrap_or_default();
    let text = params.text("text").unwrap_or_default();
    if text.chars().count() > 200 {
        return Err(ApiRefusal::bad("MESSAGE_TOO_LONG"));
    }
    let deadline = state.settings.press_deadline;
    let press = state
        .presses
        .iter_mut()
        .rev()
        .find(|press| press.query_id == query_id);
    match press {
        Some(press) if press.pressed_at.elapsed() <= deadline => {
            // Only the first answer is shown.
            press.answer.get_or_insert(text);
            let chat_id = press.chat_id;
            state.touch(chat_id);
            Ok(json!(true))
        }
        _ => Err(ApiRefusal::bad(
            "query is too old and response timeout expired or query ID is invalid",
        )),
    }
}

/// The chat, if the bot may manage its topics.
fn managed_forum(state: &BotApiState, params: &ApiParams, what: &str) -> Result<i64, ApiRefusal> {
    let chat_id = state.writable_chat(params)?;
    let chat = &state.chats[&chat_id];
    match chat.kind {
        ApiChatKind::Private if state.settings.has_topics => Ok(chat_id),
        ApiChatKind::Forum if chat.standing == BotStanding::Administrator => Ok(chat_id),
        ApiChatKind::Forum => Err(ApiRefusal::bad(format!("not enough rights to {what}"))),
        _ => Err(ApiRefusal::bad("the chat is not a forum")),
    }
}

pub(super) fn create_topic(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let chat_id = managed_forum(state, params, "create a topic")?;
    let name = params.text("name").unwrap_or_default();
    if name.trim().is_empty() || name.chars().count() > MAX_TOPIC_NAME {
        return Err(ApiRefusal::bad("TOPIC_TITLE_EMPTY"));
    }
    let thread_id = open_topic(state, chat_id, &MessageSender::Bot, &name, now);
    Ok(json!({ "message_thread_id": thread_id, "name": name, "icon_color": ICON_COLOR }))
}

/// Opens a topic; its id is that of the service message that says so.
pub(in crate::dev::bot_api) fn open_topic(
    state: &mut BotApiState,
    chat_id: i64,
    author: &MessageSender,
    name: &str,
    now: i64,
) -> i64 {
    let mut fields = Map::new();
    let created = json!({ "name": name, "icon_color": ICON_COLOR });
    fields.insert("forum_topic_created".to_owned(), created);
    fields.insert("is_topic_message".to_owned(), json!(true));
    let mut message = state.add_message(chat_id, author, ApiText::default(), fields, now);
    let thread_id = message["message_id"].as_i64().unwrap_or(0);
    message["message_thread_id"] = json!(thread_id);
    if let Some(chat) = state.chats.get_mut(&chat_id) {
        if chat.topics.len() >= MAX_TOPICS {
            chat.topics.pop_first();
        }
        let name = name.to_owned();
        chat.topics.insert(
            thread_id,
            ApiTopic {
                name,
                is_closed: false,
            },
        );
        if let Some(kept) = chat.messages.get_mut(&thread_id) {
            kept.object = message.clone();
        }
    }
    state.updates.push("message", message, now);
    thread_id
}

pub(super) fn edit_topic(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let chat_id = managed_forum(state, params, "edit the topic")?;
    let thread_id = params.integer("message_thread_id").unwrap_or(0);
    let name = params.text("name");
    let chat = state
        .touch(chat_id)
        .ok_or_else(|| ApiRefusal::bad("chat not found"))?;
    let Some(topic) = chat.topics.get_mut(&thread_id) else {
        return Err(ApiRefusal::bad("TOPIC_ID_INVALID"));
    };
    let Some(name) = name.filter(|name| *name != topic.name) else {
        return Err(ApiRefusal::bad("TOPIC_NOT_MODIFIED"));
    };
    if name.chars().count() > MAX_TOPIC_NAME {
        return Err(ApiRefusal::bad("TOPIC_TITLE_EMPTY"));
    }
    topic.name.clone_from(&name);
    let mut fields = Map::new();
    chat.place_in_topic(&mut fields, thread_id);
    fields.insert("forum_topic_edited".to_owned(), json!({ "name": name }));
    let message = state.add_message(chat_id, &MessageSender::Bot, ApiText::default(), fields, now);
    state.updates.push("message", message, now);
    Ok(json!(true))
}

/// Closes or reopens a topic; `None` deletes it.
pub(super) fn set_topic(state: &mut BotApiState, params: &ApiParams, closed: Option<bool>) -> ApiResult {
    let chat_id = managed_forum(state, params, "manage topics")?;
    let thread_id = params.integer("message_thread_id").unwrap_or(0);
    let chat = state
        .touch(chat_id)
        .ok_or_else(|| ApiRefusal::bad("chat not found"))?;
    let Some(topic) = chat.topics.get_mut(&thread_id) else {
        return Err(ApiRefusal::bad("TOPIC_ID_INVALID"));
    };
    match closed {
        Some(closed) if topic.is_closed == closed => return Err(ApiRefusal::bad("TOPIC_NOT_MODIFIED")),
        Some(closed) => topic.is_closed = closed,
        None => {
            chat.topics.remove(&thread_id);
        }
    }
    Ok(json!(true))
}

pub(super) fn info(state: &BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let chat = &state.chats[&chat_id];
    let mut info = chat.object();
    info["accent_color_id"] = json!(0);
    info["max_reaction_count"] = json!(11);
    info["accepted_gift_types"] = json!({
        "unlimited_gifts": false,
        "limited_gifts": false,
        "unique_gifts": false,
        "premium_subscription": false,
        "gifts_from_channels": false,
    });
    if matches!(
        chat.kind,
        ApiChatKind::Group | ApiChatKind::Supergroup | ApiChatKind::Forum
    ) {
        info["permissions"] = json!({ "can_send_messages": true, "can_invite_users": true });
    }
    Ok(info)
}

fn member_object(state: &BotApiState, chat_id: i64, person: &ApiPerson) -> Value {
    let chat = &state.chats[&chat_id];
    let is_us = person.id == state.bot.id;
    let status = if is_us { chat.standing.status() } else { "member" };
    member_of(&person.user(), status)
}

/// A `ChatMember` with the fields that its status has.
pub(in crate::dev::bot_api) fn member_of(user: &Value, status: &str) -> Value {
    let mut member = json!({ "user": user, "status": status });
    let rights: &[&str] = match status {
        "administrator" => &[
            "can_be_edited",
            "is_anonymous",
            "can_manage_chat",
            "can_delete_messages",
            "can_manage_video_chats",
            "can_restrict_members",
            "can_promote_members",
            "can_change_info",
            "can_invite_users",
            "can_post_stories",
            "can_edit_stories",
            "can_delete_stories",
            "can_manage_topics",
        ],
        "restricted" => &[
            "can_send_messages",
            "can_send_audios",
            "can_send_documents",
            "can_send_photos",
            "can_send_videos",
            "can_send_video_notes",
            "can_send_voice_notes",
            "can_send_polls",
            "can_send_other_messages",
            "can_add_web_page_previews",
            "can_change_info",
            "can_invite_users",
            "can_pin_messages",
            "can_manage_topics",
        ],
        _ => &[],
    };
    for right in rights {
        let is_given = status == "administrator" && !matches!(*right, "can_be_edited" | "is_anonymous");
        member[*right] = json!(is_given);
    }
    if matches!(status, "restricted" | "kicked") {
        member["until_date"] = json!(0);
    }
    if status == "restricted" {
        member["is_member"] = json!(true);
    }
    member
}

pub(super) fn member(state: &BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let user_id = params.integer("user_id").unwrap_or(0);
    let person = if user_id == state.bot.id {
        Some(&state.bot)
    } else {
        state.people.get(&user_id)
    };
    match person {
        Some(person) => Ok(member_object(state, chat_id, person)),
        None => Err(ApiRefusal::bad("PARTICIPANT_ID_INVALID")),
    }
}

pub(super) fn administrators(state: &BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let chat = &state.chats[&chat_id];
    if chat.kind == ApiChatKind::Private {
        return Err(ApiRefusal::bad("there are no administrators in the private chat"));
    }
    let is_one = chat.standing == BotStanding::Administrator;
    let ours = is_one.then(|| member_object(state, chat_id, &state.bot));
    Ok(Value::Array(ours.into_iter().collect()))
}

pub(super) fn member_count(state: &BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let is_private = state.chats[&chat_id].kind == ApiChatKind::Private;
    Ok(json!(if is_private { 2 } else { state.people.len() + 1 }))
}

pub(super) fn leave(state: &mut BotApiState, params: &ApiParams) -> ApiResult {
    let chat_id = state.joined_chat(params)?;
    let chat = state
        .touch(chat_id)
        .ok_or_else(|| ApiRefusal::bad("chat not found"))?;
    if chat.kind == ApiChatKind::Private {
        return Err(ApiRefusal::bad("chat is not a group, supergroup or channel"));
    }
    chat.standing = BotStanding::Left;
    Ok(json!(true))
}
