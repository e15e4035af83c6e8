//! Discord: interactions as messages, and the slash commands that a bot registers there.
//!
//! A slash command, a button or a form reaches the same session as what the same person types in the same chat.
//! Interactions arrive as forwarded requests that the connector verified and answered.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::text::one_line_utf16;

use crate::wire::{
    MessageEvent, MessageType, PassthroughForward, Platform, Scalar, SessionSource, is_truthy, text_of,
};

/// Longest prompt id or option id in a button's token.
const MAX_TOKEN_PART: usize = 32;
/// Longest token that every platform accepts.
const MAX_TOKEN: usize = 64;
/// The platform whose slash commands are registered at the handshake.
pub const MANIFEST_PLATFORM: &str = "discord";
/// Maximum slash commands of one bot.
const MAX_COMMANDS: usize = 100;
/// Longest name of a slash command.
const MAX_COMMAND_NAME: usize = 32;
/// Longest description of a slash command and of each of its options, in UTF-16 units. One that is longer fails the registration of
/// all of them.
const MAX_DESCRIPTION: usize = 100;
/// How deep options are nested: a group, its commands, and theirs.
const MAX_OPTION_DEPTH: usize = 3;

/// Reads a forwarded Discord interaction; `None` when it is not one or its body cannot be read.
pub fn interaction_event(forward: &PassthroughForward) -> Option<MessageEvent> {
    if forward.platform != Platform::DISCORD.as_str() {
        return None;
    }
    let Ok(Value::Object(body)) = serde_json::from_slice(&forward.body) else {
        return None;
    };
    let content = InteractionContent::parse(&body);
    let id = text(&body, "id");
    let mut metadata = Map::new();
    if let Some(id) = &id {
        metadata.insert("discord_interaction_id".to_owned(), json!(id.as_str()));
    }
    if let Some(fields) = content.fields {
        metadata.insert("discord_modal_fields".to_owned(), fields);
    }
    Some(MessageEvent {
        message_type: content.message_type,
        text: Some(content.text.into()),
        prompt_response: content.prompt_response,
        source: source(&body, forward.profile.as_deref()),
        message_id: id,
        metadata,
        ..MessageEvent::default()
    })
}

fn source(body: &Map<String, Value>, profile: Option<&str>) -> SessionSource {
    let object = |parent: Option<&Value>, key: &str| parent.and_then(|parent| parent.get(key)).cloned();
    let member = body.get("member");
    let user = object(member, "user")
        .filter(Value::is_object)
        .or_else(|| body.get("user").cloned());
    let user = user.as_ref().and_then(Value::as_object);
    let guild = text(body, "guild_id");
    let channel = body.get("channel");
    let is_thread = guild.is_some()
        && channel
            .and_then(|channel| channel.get("type")?.as_u64())
            .is_some_and(|kind| matches!(kind, 10..=12));
    let chat_id = text(body, "channel_id").unwrap_or_else(|| "".into());
    let nick = guild
        .as_ref()
        .and(member)
        .and_then(|member| member.get("nick"))
        .filter(|nick| is_truthy(nick));
    let named = |key: &str| user.and_then(|user| user.get(key)).filter(|name| is_truthy(name));
    SessionSource {
        platform: Platform::DISCORD,
        chat_type: Some(match (&guild, is_thread) {
            (Some(_), true) => "thread".into(),
            (Some(_), false) => "group".into(),
            (None, _) => "dm".into(),
        }),
        thread_id: is_thread.then(|| chat_id.clone()),
        chat_id: Some(chat_id),
        parent_chat_id: channel
            .and_then(Value::as_object)
            .and_then(|channel| text(channel, "parent_id")),
        user_id: user.and_then(|user| text(user, "id")),
        user_name: nick
            .or_else(|| named("global_name"))
            .or_else(|| named("username"))
            .map(|name| text_of(name).into()),
        scope_id: guild,
        message_id: body
            .get("message")
            .and_then(Value::as_object)
            .and_then(|message| text(message, "id")),
        profile: profile.map(Into::into),
        ..SessionSource::default()
    }
}

/// The content of an interaction, by its type.
#[derive(Default)]
struct InteractionContent {
    text: String,
    message_type: MessageType,
    prompt_response: Option<Map<String, Value>>,
    fields: Option<Value>,
}

impl InteractionContent {
    fn parse(body: &Map<String, Value>) -> Self {
        let data = body.get("data").and_then(Value::as_object);
        match (body.get("type").and_then(Value::as_u64), data) {
            (Some(2), Some(data)) => Self::slash_command(data),
            (Some(3), Some(data)) => Self::component(data, body.get("message").and_then(Value::as_object)),
            (Some(5), Some(data)) => Self::modal(data),
            _ => Self::default(),
        }
    }

    fn slash_command(data: &Map<String, Value>) -> Self {
        let Some(name) = text(data, "name") else {
            return Self::default();
        };
        let mut words = vec![format!("/{name}")];
        collect_options(data.get("options"), &mut words);
        Self {
            text: words.join(" "),
            message_type: MessageType::Command,
            ..Self::default()
        }
    }

    fn component(data: &Map<String, Value>, message: Option<&Map<String, Value>>) -> Self {
        let custom_id = data.get("custom_id").map(text_of).unwrap_or_default();
        let Some((prompt_id, option_id)) = prompt_token(&custom_id) else {
            return Self {
                text: custom_id,
                ..Self::default()
            };
        };
        let mut response = Map::new();
        response.insert("prompt_id".to_owned(), json!(prompt_id));
        response.insert("option_id".to_owned(), json!(option_id));
        if let Some(id) = message.and_then(|message| text(message, "id")) {
            response.insert("prompt_message_id".to_owned(), json!(id.as_str()));
        }
        Self {
            text: format!("/{option_id}"),
            message_type: MessageType::Command,
            prompt_response: Some(response),
            fields: None,
        }
    }

    fn modal(data: &Map<String, Value>) -> Self {
        let mut fields = Vec::new();
        collect_fields(data.get("components"), &mut fields);
        let lines: Vec<String> = fields.iter().map(|(id, value)| format!("{id}={value}")).collect();
        let fields = fields
            .iter()
            .map(|(id, value)| json!({"custom_id": id, "value": value}))
            .collect();
        Self {
            text: lines.join("\n"),
            fields: Some(Value::Array(fields)),
            ..Self::default()
        }
    }
}

/// The prompt id and option id in the token of one of our buttons: `hp1:<prompt id>:<option id>`.
pub fn prompt_token(custom_id: &str) -> Option<(&str, &str)> {
    let (prompt_id, option_id) = custom_id.strip_prefix("hp1:")?.split_once(':')?;
    let is_valid = |part: &str| {
        (1..=MAX_TOKEN_PART).contains(&part.len())
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    };
    (custom_id.len() <= MAX_TOKEN && is_valid(prompt_id) && is_valid(option_id))
        .then_some((prompt_id, option_id))
}

/// Sub-commands and groups (types 1 and 2) add their name and go deeper; values add their text.
fn collect_options(options: Option<&Value>, words: &mut Vec<String>) {
    for option in options.and_then(Value::as_array).into_iter().flatten() {
        if let Some(1 | 2) = option.get("type").and_then(Value::as_u64) {
            words.extend(option.get("name").map(text_of).filter(|name| !name.is_empty()));
            collect_options(option.get("options"), words);
        } else {
            let value = option.get("value").filter(|value| !value.is_null()).map(text_of);
            words.extend(
                value
                    .map(|value| value.trim().to_owned())
                    .filter(|value| !value.is_empty()),
            );
        }
    }
}

fn collect_fields(components: Option<&Value>, fields: &mut Vec<(String, String)>) {
    for component in components.and_then(Value::as_array).into_iter().flatten() {
        collect_field(component, fields);
    }
}

fn collect_field(component: &Value, fields: &mut Vec<(String, String)>) {
    if let (Some(id), Some(value)) = (component.get("custom_id"), component.get("value")) {
        let value = if value.is_null() {
            String::new()
        } else {
            text_of(value)
        };
        fields.push((text_of(id), value));
    }
    collect_fields(component.get("components"), fields);
    if let Some(inner) = component.get("component") {
        collect_field(inner, fields);
    }
}

/// A field as text; `None` when it is absent, `null` or empty.
fn text(object: &Map<String, Value>, key: &str) -> Option<Scalar> {
    object
        .get(key)
        .filter(|value| is_truthy(value))
        .map(|value| text_of(value).into())
}

/// A slash command to offer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OfferedCommand {
    /// Its name without the slash: up to 32 lower-case letters, digits, `-` and `_`.
    pub name: String,
    /// What it does, in up to 100 characters.
    pub description: String,
    /// Its options, as Discord defines them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// The slash commands as Discord registers them: without duplicates and invalid names, descriptions truncated, at most
/// 100.
pub fn manifest(commands: impl IntoIterator<Item = OfferedCommand>) -> Vec<Value> {
    let mut offered: Vec<Value> = Vec::new();
    for command in commands {
        let name = command.name.trim_start_matches('/').to_lowercase();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let usable = (1..=MAX_COMMAND_NAME).contains(&name.len()) && name.chars().all(plain);
        if !usable || offered.len() >= MAX_COMMANDS || offered.iter().any(|known| known["name"] == name) {
            continue;
        }
        let mut entry = json!({ "name": name, "description": described(&command.description, &name) });
        if let Some(mut options) = command.options.filter(Value::is_array) {
            describe_options(&mut options, MAX_OPTION_DEPTH);
            entry["options"] = options;
        }
        offered.push(entry);
    }
    offered
}

/// A description as long as Discord takes it; an empty one is replaced by the name.
fn described(description: &str, name: &str) -> String {
    let description = one_line_utf16(description, MAX_DESCRIPTION);
    if description.is_empty() {
        return name.to_owned();
    }
    description
}

/// Cuts the descriptions of options, and of the options in them.
fn describe_options(options: &mut Value, depth: usize) {
    for option in options.as_array_mut().into_iter().flatten() {
        let name = option.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(description) = option.get("description").and_then(Value::as_str) {
            option["description"] = described(description, name).into();
        }
        if let Some(inner) = option.get_mut("options").filter(|_| depth > 1) {
            describe_options(inner, depth - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(name: &str, description: &str) -> OfferedCommand {
        OfferedCommand {
            name: name.to_owned(),
            description: description.to_owned(),
            options: None,
        }
    }

    #[test]
    fn the_manifest_holds_what_discord_accepts() {
        let offered = manifest([
            command("/Stop", "stop it"),
            command("stop", "another"),
            command("bad name", "x"),
            command("", "x"),
            command(&"x".repeat(33), "x"),
            command("long", &"word ".repeat(50)),
            command("plain", "  "),
        ]);
        let names: Vec<_> = offered
            .iter()
            .map(|entry| entry["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["stop", "long", "plain"]);
        assert_eq!(offered[0]["description"], "stop it");
        assert!(offered[1]["description"].as_str().unwrap().chars().count() <= 100);
        assert_eq!(offered[2]["description"], "plain");
        assert_eq!(
            manifest((0..300).map(|number| command(&format!("c{number}"), "x"))).len(),
            100
        );
    }

    #[test]
    fn descriptions_are_cut_to_a_hundred_utf16_units_also_those_of_options() {
        let astral = "🦀".repeat(80);
        let options = json!([
            {"name": "mode", "type": 3, "description": astral, "choices": [{"name": "a", "value": "b"}]},
            {"name": "group", "type": 2, "description": "x".repeat(101), "options": [
                {"name": "inner", "type": 1, "description": format!("é{astral}"), "options": [
                    {"name": "deep", "type": 3, "description": astral}, {"name": "empty", "description": " "}]}]},
            7,
        ]);
        let offered = manifest([OfferedCommand {
            options: Some(options),
            ..command("paint", &astral)
        }]);
        let units = |pointer: &str| {
            let text = offered[0].pointer(pointer).and_then(Value::as_str).unwrap();
            text.encode_utf16().count()
        };
        assert_eq!(units("/description"), 100);
        assert_eq!(units("/options/0/description"), 100);
        assert_eq!(units("/options/1/description"), 100);
        assert_eq!(
            units("/options/1/options/0/description"),
            99,
            "never half a character"
        );
        assert_eq!(units("/options/1/options/0/options/0/description"), 100);
        assert_eq!(
            offered[0].pointer("/options/1/options/0/options/1/description"),
            Some(&json!("empty"))
        );
        assert_eq!(
            offered[0].pointer("/options/0/choices/0/value"),
            Some(&json!("b"))
        );
    }
}
