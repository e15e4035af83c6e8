//! Keyboards under messages: what is accepted.

use serde_json::{Value, json};

use crate::dev::bot_api::params::ApiParams;
use crate::dev::bot_api::refusal::ApiRefusal;

/// Buttons of one keyboard.
const MAX_BUTTONS: usize = 100;
/// What a button can do; it does exactly one.
const ACTIONS: [&str; 9] = [
    "callback_data",
    "url",
    "copy_text",
    "web_app",
    "login_url",
    "switch_inline_query",
    "switch_inline_query_current_chat",
    "callback_game",
    "pay",
];

/// The keyboard of a call: `None` is none, and other kinds than inline ones are accepted and not kept.
pub(super) fn inline_keyboard(params: &ApiParams) -> Result<Option<Value>, ApiRefusal> {
    if !params.has("reply_markup") {
        return Ok(None);
    }
    let markup = params.json("reply_markup");
    if !markup.is_object() {
        return Err(ApiRefusal::bad("object expected as reply markup"));
    }
    let Some(rows) = markup.get("inline_keyboard") else {
        let known = ["keyboard", "remove_keyboard", "force_reply"]
            .iter()
            .any(|name| markup.get(name).is_some());
        return if known {
            Ok(None)
        } else {
            Err(ApiRefusal::bad("reply markup must be of a known type"))
        };
    };
    let Some(rows) = rows.as_array() else {
        return Err(ApiRefusal::bad(
            "field \"inline_keyboard\" of the InlineKeyboardMarkup must be an Array of Arrays",
        ));
    };
    let mut count = 0;
    for row in rows {
        let Some(row) = row.as_array() else {
            return Err(ApiRefusal::bad(
                "field \"inline_keyboard\" of the InlineKeyboardMarkup must be an Array of Arrays",
            ));
        };
        for button in row {
            check(button)?;
            count += 1;
        }
    }
    if count > MAX_BUTTONS {
        return Err(ApiRefusal::bad("reply markup is too long"));
    }
    let rows: Vec<&Value> = rows
        .iter()
        .filter(|row| row.as_array().is_some_and(|row| !row.is_empty()))
        .collect();
    Ok((count > 0).then(|| json!({ "inline_keyboard": rows })))
}

fn check(button: &Value) -> Result<(), ApiRefusal> {
    let wrong = |why: &str| {
        Err(ApiRefusal::bad(format!(
            "can't parse inline keyboard button: {why}"
        )))
    };
    if !button.is_object() {
        return wrong("InlineKeyboardButton must be an Object");
    }
    if button["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
        return wrong("Can't find field \"text\"");
    }
    let actions = ACTIONS.iter().filter(|name| button.get(**name).is_some()).count();
    if actions == 0 {
        return wrong("Text buttons are unallowed in the inline keyboard");
    }
    if actions > 1 {
        return wrong("Exactly one of the optional fields must be used");
    }
    if let Some(data) = button.get("callback_data") {
        let length = data.as_str().unwrap_or_default().len();
        if !(1..=64).contains(&length) {
            return Err(ApiRefusal::bad("BUTTON_DATA_INVALID"));
        }
    }
    if let Some(target) = button.get("url") {
        let parsed = url::Url::parse(target.as_str().unwrap_or_default());
        if !parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https" | "tg")) {
            return Err(ApiRefusal::bad(format!(
                "inline keyboard button URL {target} is invalid: unsupported URL protocol"
            )));
        }
    }
    match button
        .get("style")
        .map(|style| style.as_str().unwrap_or_default())
    {
        None | Some("primary" | "success" | "danger") => Ok(()),
        Some(_) => wrong("invalid button style specified"),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;

    use super::*;

    fn checked(markup: &Value) -> Result<Option<Value>, ApiRefusal> {
        let body = Bytes::from(json!({ "reply_markup": markup }).to_string());
        inline_keyboard(&ApiParams::read("", "application/json", &body).unwrap())
    }

    #[test]
    fn buttons_are_checked() {
        let with = |button: Value| checked(&json!({ "inline_keyboard": [[button]] }));
        assert!(with(json!({ "text": "a", "callback_data": "x".repeat(64), "style": "danger" })).is_ok());
        for (button, says) in [
            (
                json!({ "text": "a", "callback_data": "x".repeat(65) }),
                "BUTTON_DATA_INVALID",
            ),
            (json!({ "text": "a", "callback_data": "" }), "BUTTON_DATA_INVALID"),
            (json!({ "text": "a" }), "Text buttons are unallowed"),
            (
                json!({ "text": "a", "callback_data": "x", "url": "https://a" }),
                "Exactly one",
            ),
            (json!({ "callback_data": "x" }), "Can't find field"),
            (json!({ "text": "a", "url": "file:///x" }), "invalid"),
            (
                json!({ "text": "a", "callback_data": "x", "style": "pink" }),
                "style",
            ),
        ] {
            let refusal = with(button.clone()).unwrap_err();
            assert!(
                refusal.description.contains(says),
                "{button}: {}",
                refusal.description
            );
        }
        assert_eq!(checked(&json!({ "inline_keyboard": [] })), Ok(None));
        assert_eq!(checked(&json!({ "remove_keyboard": true })), Ok(None));
        assert!(checked(&json!({ "nonsense": true })).is_err() && checked(&json!("x")).is_err());
    }
}
