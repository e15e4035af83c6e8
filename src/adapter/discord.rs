//! Discord: interactions as messages, and the slash commands that a bot registers there.
//!
//! A slash command, a button or a form reaches the same session as what the same person types in the same chat.
//! Interactions arrive as forwarded requests that the connector verified and answered.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::labels::LabelMemory;
use crate::text::one_line_utf16;

use crate::wire::{
    MessageEvent, MessageType, PRIVATE_REPLY, PROMPT_TOKEN, PassthroughForward, Platform, Scalar,
    SessionSource, is_truthy, role_ids, text_of,
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
    labelled_interaction(forward, &LabelMemory::default())
}

/// [`interaction_event`], with names and topics from memory where the interaction leaves them out.
pub fn labelled_interaction(forward: &PassthroughForward, labels: &LabelMemory) -> Option<MessageEvent> {
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
        source: source(&body, forward.profile.as_deref(), labels),
        message_id: id,
        metadata,
        ..MessageEvent::default()
    })
}

/// A channel that is no thread may have a category as its parent. Messages and interactions name only the channel that a thread
/// belongs to, so that a rule about a chat holds for both.
pub(super) fn keep_parent_of_threads(source: &mut SessionSource) {
    let is_thread =
        source.thread().is_some() || source.chat_type.as_ref().map(Scalar::as_str) == Some("thread");
    if source.platform == Platform::DISCORD && !is_thread {
        source.parent_chat_id = None;
    }
}

fn source(body: &Map<String, Value>, profile: Option<&str>, labels: &LabelMemory) -> SessionSource {
    let object = |parent: Option<&Value>, key: &str| parent.and_then(|parent| parent.get(key)).cloned();
    let member = body.get("member");
    let user = object(member, "user")
        .filter(Value::is_object)
        .or_else(|| body.get("user").cloned());
    let user = user.as_ref().and_then(Value::as_object);
    let guild = text(body, "guild_id");
    let channel = body.get("channel").and_then(Value::as_object);
    let of_channel = |key: &str| channel.and_then(|channel| text(channel, key));
    let is_thread = guild.is_some()
        && channel
            .and_then(|channel| channel.get("type")?.as_u64())
            .is_some_and(|kind| matches!(kind, 10..=12));
    let chat_id = text(body, "channel_id").or_else(|| of_channel("id"));
    let chat_id = chat_id.unwrap_or_else(|| "".into());
    let scope = guild.as_ref().map_or("", Scalar::as_str);
    let known = labels.channel(scope, chat_id.as_str());
    let user_id = user.and_then(|user| text(user, "id"));
    // `null` means that the nickname was removed; an absent field, that it is unchanged.
    let nick = match guild.as_ref().and(member).map(|member| member.get("nick")) {
        None => None,
        Some(Some(nick)) => is_truthy(nick).then(|| text_of(nick)),
        Some(None) => user_id
            .as_ref()
            .and_then(|user| labels.person(scope, user.as_str()))
            .map(str::to_owned),
    };
    let named = |key: &str| user.and_then(|user| text(user, key));
    let mut source = SessionSource {
        platform: Platform::DISCORD,
        language_code: text(body, "locale"),
        chat_type: Some(match (&guild, is_thread) {
            (Some(_), true) => "thread".into(),
            (Some(_), false) => "group".into(),
            (None, _) => "dm".into(),
        }),
        thread_id: is_thread.then(|| chat_id.clone()),
        chat_id: Some(chat_id),
        chat_name: of_channel("name").or_else(|| known.name.map(Into::into)),
        // A topic that is null was removed, too.
        chat_topic: match channel.and_then(|channel| channel.get("topic")) {
            Some(_) => of_channel("topic"),
            None => known.topic.map(Into::into),
        },
        parent_chat_id: of_channel("parent_id").or_else(|| known.parent.map(Into::into)),
        user_id,
        user_name: nick
            .map(Into::into)
            .or_else(|| named("global_name"))
            .or_else(|| named("username")),
        scope_id: guild,
        message_id: body
            .get("message")
            .and_then(Value::as_object)
            .and_then(|message| text(message, "id")),
        profile: profile.map(Into::into),
        user_roles: object(member, "roles").map_or_else(Vec::new, |roles| role_ids(&roles)),
        ..SessionSource::default()
    };
    keep_parent_of_threads(&mut source);
    source
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
            (Some(3), Some(data)) => Self::component(data, body),
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

    fn component(data: &Map<String, Value>, body: &Map<String, Value>) -> Self {
        let message = body.get("message").and_then(Value::as_object);
        let custom_id = name_of(data, "custom_id");
        let selected = values(data).unwrap_or_default();
        let Some((prompt_id, option_id)) = answer(&custom_id, &selected) else {
            let words = std::iter::once(custom_id.as_str()).chain(selected.iter().map(String::as_str));
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            return Self {
                text: words.join(" "),
                ..Self::default()
            };
        };
        let mut response = Map::new();
        response.insert("prompt_id".to_owned(), json!(prompt_id));
        response.insert("option_id".to_owned(), json!(option_id));
        if let Some(id) = message.and_then(|message| text(message, "id")) {
            response.insert("prompt_message_id".to_owned(), json!(id.as_str()));
        }
        if let Some(reply) = text(body, PRIVATE_REPLY) {
            response.insert(PRIVATE_REPLY.to_owned(), json!(reply.as_str()));
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

/// The values that a person selected; `None` where nothing can be selected.
fn values(data: &Map<String, Value>) -> Option<Vec<String>> {
    let values = data.get("values")?.as_array()?.iter();
    Some(values.filter(|value| !value.is_null()).map(text_of).collect())
}

/// The question that a component answers, and the answer: in one of the selected values, else in the component's own id.
fn answer<'c>(custom_id: &'c str, selected: &'c [String]) -> Option<(&'c str, &'c str)> {
    let in_values = selected.iter().find_map(|value| prompt_token(value));
    in_values.or_else(|| {
        let (prompt_id, option_id) = prompt_token(custom_id)?;
        let chosen = selected.iter().find(|value| is_token_part(value));
        Some((prompt_id, chosen.map_or(option_id, String::as_str)))
    })
}

/// The prompt id and option id in the token of one of our buttons: `hp1:<prompt id>:<option id>`.
pub fn prompt_token(custom_id: &str) -> Option<(&str, &str)> {
    let (prompt_id, option_id) = custom_id.strip_prefix(PROMPT_TOKEN)?.split_once(':')?;
    (custom_id.len() <= MAX_TOKEN && is_token_part(prompt_id) && is_token_part(option_id))
        .then_some((prompt_id, option_id))
}

fn is_token_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=MAX_TOKEN_PART).contains(&part.len()) && part.bytes().all(is_plain)
}

/// Sub-commands and groups (types 1 and 2) add their name and go deeper; values add their text.
fn collect_options(options: Option<&Value>, words: &mut Vec<String>) {
    let options = options.and_then(Value::as_array).into_iter().flatten();
    for option in options.filter_map(Value::as_object) {
        let is_command = matches!(option.get("type").and_then(Value::as_u64), Some(1 | 2));
        let word = if is_command {
            name_of(option, "name")
        } else {
            let value = option.get("value").filter(|value| !value.is_null());
            value.map(text_of).unwrap_or_default()
        };
        words.extend(Some(word.trim().to_owned()).filter(|word| !word.is_empty()));
        if is_command {
            collect_options(option.get("options"), words);
        }
    }
}

fn collect_fields(components: Option<&Value>, fields: &mut Vec<(String, String)>) {
    for component in components.and_then(Value::as_array).into_iter().flatten() {
        collect_field(component, fields);
    }
}

fn collect_field(component: &Value, fields: &mut Vec<(String, String)>) {
    let Some(component) = component.as_object() else {
        return;
    };
    let value = match component.get("value") {
        Some(Value::Null) => Some(String::new()),
        Some(value) => Some(text_of(value)),
        None => values(component).map(|selected| selected.join(", ")),
    };
    if let Some(value) = value.filter(|_| component.contains_key("custom_id")) {
        fields.push((name_of(component, "custom_id"), value));
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

/// [`text`], empty when there is none.
fn name_of(object: &Map<String, Value>, key: &str) -> String {
    text(object, key).map_or_else(String::new, Scalar::into_string)
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

    /// Reads an interaction of Ann in a guild: these fields besides the usual ones.
    fn read(fields: &Value, labels: &LabelMemory) -> MessageEvent {
        let mut body = json!({"id": "i1", "guild_id": "g1", "channel_id": "c1", "type": 2, "data": {"name": "new"},
            "member": {"user": {"id": "u1", "username": "ann", "global_name": "Ann"}}});
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        let forward = PassthroughForward {
            platform: "discord".to_owned(),
            body: body.to_string().into_bytes(),
            ..PassthroughForward::default()
        };
        labelled_interaction(&forward, labels).unwrap()
    }

    #[test]
    fn what_was_selected_is_said_and_may_answer_a_question() {
        for (data, text, answer) in [
            (json!({"custom_id": "menu"}), "menu", None),
            (json!({"custom_id": "menu", "values": []}), "menu", None),
            (
                json!({"custom_id": "menu", "values": ["low", 7, "", null]}),
                "menu low 7",
                None,
            ),
            (json!({"custom_id": "menu", "values": "no list"}), "menu", None),
            (json!({"custom_id": null}), "", None),
            (json!({"custom_id": null, "values": ["low"]}), "low", None),
            (
                json!({"custom_id": "menu", "values": ["hp1:q1:o2"]}),
                "/o2",
                Some(("q1", "o2")),
            ),
            (
                json!({"custom_id": "menu", "values": ["other", "hp1:q1:o2"]}),
                "/o2",
                Some(("q1", "o2")),
            ),
            (
                json!({"custom_id": "hp1:q1:pick", "values": ["o2"]}),
                "/o2",
                Some(("q1", "o2")),
            ),
            (
                json!({"custom_id": "hp1:q1:o0", "values": []}),
                "/o0",
                Some(("q1", "o0")),
            ),
            (
                json!({"custom_id": "hp1:q1:o0", "values": ["hp1:q2:o1"]}),
                "/o1",
                Some(("q2", "o1")),
            ),
            (
                json!({"custom_id": "hp1:q1:o0", "values": ["no option"]}),
                "/o0",
                Some(("q1", "o0")),
            ),
        ] {
            let fields = json!({"type": 3, "data": data, "message": {"id": "pm1"}});
            let event = read(&fields, &LabelMemory::default());
            assert_eq!(event.text(), text, "{data}");
            let response = answer.map(|(prompt, option)| {
                json!({"prompt_id": prompt, "option_id": option, "prompt_message_id": "pm1"})
            });
            assert_eq!(event.prompt_response.map(Value::Object), response, "{data}");
        }
    }

    #[test]
    fn a_name_that_is_null_is_no_word_of_a_command() {
        let inner =
            json!([{"name": " run ", "type": 1, "options": [{"name": null, "type": 3, "value": " x "}]}]);
        let options = json!([{"name": null, "type": 2, "options": inner}, {"type": 1}, null, 7]);
        let event = read(
            &json!({"data": {"name": "skill", "options": options}}),
            &LabelMemory::default(),
        );
        assert_eq!(event.text(), "/skill run x");
    }

    #[test]
    fn a_modal_field_has_a_value_or_several() {
        let components = json!([
            {"type": 18, "component": {"type": 3, "custom_id": "team", "values": ["red", "blue"]}},
            {"type": 1, "components": [{"type": 4, "custom_id": "why", "value": "because"}]},
            {"type": 18, "component": {"type": 3, "custom_id": "none", "values": []}},
            {"type": 18, "component": {"type": 4, "custom_id": null, "value": "unnamed"}},
            {"type": 10, "content": "no field"},
        ]);
        let event = read(
            &json!({"type": 5, "data": {"custom_id": "m", "components": components}}),
            &LabelMemory::default(),
        );
        assert_eq!(event.text(), "team=red, blue\nwhy=because\nnone=\n=unnamed");
        assert_eq!(
            event.metadata["discord_modal_fields"].as_array().unwrap().len(),
            4
        );
    }

    #[test]
    fn the_channel_is_as_the_interaction_has_it() {
        let channel = json!({"id": "t5", "type": 11, "name": "plans", "topic": "May", "parent_id": "c1"});
        let source = read(
            &json!({"channel_id": null, "channel": channel}),
            &LabelMemory::default(),
        )
        .source;
        let text = |field: Option<Scalar>| field.map(|field| field.as_str().to_owned());
        assert_eq!(text(source.chat_id).as_deref(), Some("t5"));
        assert_eq!(text(source.thread_id).as_deref(), Some("t5"));
        assert_eq!(text(source.chat_name).as_deref(), Some("plans"));
        assert_eq!(text(source.chat_topic).as_deref(), Some("May"));
        assert_eq!(text(source.parent_chat_id).as_deref(), Some("c1"));
        let channel = json!({"id": "c1", "type": 0, "parent_id": "category"});
        let source = read(&json!({"channel": channel}), &LabelMemory::default()).source;
        assert_eq!(
            source.parent_chat_id, None,
            "a category is no chat that it belongs to"
        );
    }

    #[test]
    fn what_an_interaction_leaves_out_is_remembered_and_what_was_taken_off_is_not() {
        let mut labels = LabelMemory::default();
        let said = json!({"platform": "discord", "chat_id": "c1", "chat_type": "group", "scope_id": "g1",
            "chat_name": "general", "chat_topic": "old", "user_id": "u1", "user_name": "Nicky"});
        labels.learn(&SessionSource::from_value(&said).unwrap());
        let told = |labels: &LabelMemory, channel: Value, member: Value| {
            let source = read(&json!({"channel": channel, "member": member}), labels).source;
            let text = |field: &Option<Scalar>| field.as_ref().map(|field| field.as_str().to_owned());
            let told = [&source.chat_name, &source.chat_topic, &source.user_name].map(text);
            (told.map(Option::unwrap_or_default), source)
        };
        let user = json!({"id": "u1", "username": "ann", "global_name": "Ann"});
        let (kept, _) = told(&labels, json!({"id": "c1"}), json!({"user": user}));
        assert_eq!(kept, ["general", "old", "Nicky"]);
        let (elsewhere, _) = told(&LabelMemory::default(), json!({}), json!({"user": user}));
        assert_eq!(elsewhere, ["", "", "Ann"]);
        let (cleared, source) = told(
            &labels,
            json!({"id": "c1", "topic": null, "name": "lobby"}),
            json!({"user": user, "nick": null}),
        );
        assert_eq!(cleared, ["lobby", "", "Ann"]);
        labels.learn(&source);
        let (after, _) = told(&labels, json!({"id": "c1"}), json!({"user": user}));
        assert_eq!(after, ["lobby", "", "Ann"], "neither comes back");
    }

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
