//! Sending files: one, or several as an album.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::send::{Destination, put_text};
use super::{formatted, parsed};
use crate::dev::bot_api::markup::ApiText;
use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::{ApiRefusal, ApiResult};
use crate::dev::bot_api::state::{BotApiState, MessageSender};

/// Characters of a caption, after parsing.
pub(super) const MAX_CAPTION: usize = 1024;

pub(super) fn one(state: &mut BotApiState, params: &ApiParams, kind: &str, now: i64) -> ApiResult {
    let has_caption = !matches!(kind, "video_note" | "sticker");
    let caption = if has_caption {
        formatted(params, "caption", "caption_entities")?
    } else {
        ApiText::default()
    };
    let mut to = Destination::read(state, params)?;
    check_caption(&caption)?;
    let value = params.text(kind);
    let file = state.files.resolve(kind, params, kind, value.as_deref())?;
    to.fields.extend(file.message_fields(params));
    put_text(&mut to.fields, &caption, true);
    if params.flag("has_spoiler") {
        to.fields.insert("has_media_spoiler".to_owned(), json!(true));
    }
    Ok(state.add_message(to.chat_id, &MessageSender::Bot, caption, to.fields, now))
}

fn check_caption(caption: &ApiText) -> Result<(), ApiRefusal> {
    if caption.length() > MAX_CAPTION {
        return Err(ApiRefusal::bad("message caption is too long"));
    }
    Ok(())
}

pub(super) fn group(state: &mut BotApiState, params: &ApiParams, now: i64) -> ApiResult {
    let to = Destination::read(state, params)?;
    let media = params.json("media");
    let items = media.as_array().cloned().unwrap_or_default();
    if !(2..=10).contains(&items.len()) {
        return Err(ApiRefusal::bad(
            "can't parse media: there must be from 2 to 10 media in an album",
        ));
    }
    let kind_of = |item: &Value| item["type"].as_str().unwrap_or_default().to_owned();
    let kinds: Vec<String> = items.iter().map(kind_of).collect();
    let alone =
        |kind: &str| kinds.iter().any(|other| other == kind) && kinds.iter().any(|other| other != kind);
    for kind in ["document", "audio"] {
        if alone(kind) {
            return Err(ApiRefusal::bad(format!(
                "{kind} can't be mixed with other media types"
            )));
        }
    }
    let mut ready: Vec<(Map<String, Value>, ApiText)> = Vec::new();
    for (item, kind) in items.iter().zip(&kinds) {
        if !matches!(kind.as_str(), "photo" | "video" | "document" | "audio") {
            return Err(ApiRefusal::bad("can't parse InputMedia: type must be known"));
        }
        let source = item["caption"].as_str().unwrap_or_default();
        let mode = item["parse_mode"].as_str().unwrap_or_default();
        let caption = parsed(source, mode, &item["caption_entities"])?;
        check_caption(&caption)?;
        let file = state.files.resolve(kind, params, "", item["media"].as_str())?;
        let details = Bytes::from(item.to_string());
        let details = ApiParams::read("", "application/json", &details).unwrap_or_default();
        let mut fields = to.fields.clone();
        fields.remove("reply_markup");
        fields.extend(file.message_fields(&details));
        put_text(&mut fields, &caption, true);
        ready.push((fields, caption));
    }
    let group_id = format!("{}", 13_000_000_000_000_000 + state.number());
    let mut sent = Vec::new();
    for (mut fields, caption) in ready {
        fields.insert("media_group_id".to_owned(), json!(group_id));
        sent.push(state.add_message(to.chat_id, &MessageSender::Bot, caption, fields, now));
    }
    Ok(Value::Array(sent))
}
