//! What people do on the page of the connector: messages, buttons, chats and faults.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::Page;
use super::personas::{ChatKind, PersonaChat, Personas};
use crate::adapter::{SessionNames, prompt_token};
use crate::dev::buffer::{BufferId, BufferedDelivery};
use crate::dev::faults::SendFault;
use crate::dev::http::StoredMedia;
use crate::dev::page::ActionError;
use crate::dev::presets::PlatformPreset;
use crate::dev::state::{Hub, SocketEnd, unauthorized};
use crate::wire::{MessageEvent, NoAliases};

/// Attachments of one message.
const MAX_ATTACHMENTS: usize = 10;
/// The capability that answers an interaction.
const INTERACTION: &str = "discord.interaction_token";

fn missing(what: &str) -> ActionError {
    ActionError::bad(format!("there is no such {what}"))
}

fn nobody_listens() -> ActionError {
    ActionError::bad("no relay is connected")
}

fn deliver(hub: &Arc<Hub>, delivery: BufferedDelivery<'_>) -> Result<BufferId, ActionError> {
    hub.buffer(delivery)
        .map_err(|error| ActionError::bad(error.to_string()))
}

/// The author of a message, and the chat.
#[derive(Debug, Deserialize)]
struct SpeakingPersona {
    chat: String,
    thread: Option<String>,
    who: String,
}

/// The way a message takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MessageLane {
    /// As an event.
    #[default]
    Message,
    /// As a forwarded Discord interaction.
    Interaction,
}

#[derive(Debug, Deserialize)]
struct Say {
    #[serde(flatten)]
    speaker: SpeakingPersona,
    text: String,
    #[serde(default)]
    reply_to: Option<Value>,
    #[serde(default)]
    media: Vec<String>,
    #[serde(default)]
    lane: MessageLane,
    /// How often the same message is delivered.
    #[serde(default)]
    twice: bool,
}

#[derive(Debug, Deserialize)]
struct Press {
    #[serde(flatten)]
    speaker: SpeakingPersona,
    prompt: String,
    option: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    lane: MessageLane,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct StopCommand {
    chat: String,
    thread: Option<String>,
}

/// Does what a person asks for.
pub(super) fn perform(hub: &Arc<Hub>, page: &Page, action: &str, body: &[u8]) -> Result<Value, ActionError> {
    match action {
        "say" => say(hub, page, &serde_json::from_slice(body)?),
        "press" => press(hub, page, &serde_json::from_slice(body)?),
        "stop" => stop(hub, &serde_json::from_slice(body)?),
        "chat" => {
            let Named { name, kind } = serde_json::from_slice(body)?;
            let kind = ChatKind::named(&kind).ok_or_else(|| missing("kind of chat"))?;
            add(hub, page.personas().open(kind, &name))
        }
        "person" => {
            let Named { name, .. } = serde_json::from_slice(body)?;
            add(hub, page.personas().join(&name))
        }
        "fault" => {
            let Named { name, .. } = serde_json::from_slice(body)?;
            fault(hub, &name)
        }
        _ => Err(ActionError::unknown(action)),
    }
}

/// Answers with what was added, which every page shows from now on.
fn add(hub: &Hub, added: Result<Value, &'static str>) -> Result<Value, ActionError> {
    hub.changed.notify_waiters();
    added.map_err(ActionError::bad)
}

fn say(hub: &Arc<Hub>, page: &Page, say: &Say) -> Result<Value, ActionError> {
    let message_id = page.message_id();
    let personas = page.personas();
    let chat = &chat(hub, &personas, &say.speaker)?;
    let person = personas
        .person(&say.speaker.who)
        .ok_or_else(|| missing("person"))?;
    if say.lane == MessageLane::Interaction
        && page.preset() == PlatformPreset::Discord
        && let Some(typed) = say.text.strip_prefix('/')
    {
        let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
        let mut data = json!({ "name": name });
        if !rest.trim().is_empty() {
            data["options"] = json!([{ "name": "text", "type": 3, "value": rest.trim() }]);
        }
        let body = chat.interaction(person, &message_id, 2, &data, None);
        let source = personas.source(chat, person, None);
        drop(personas);
        return forward(hub, page, &body, &source, &message_id);
    }
    let mut event = json!({
        "text": say.text,
        "message_type": if say.text.starts_with('/') { "command" } else { "text" },
        "message_id": message_id,
        "source": personas.source(chat, person, Some(&message_id)),
    });
    drop(personas);
    if let Some(quoted) = &say.reply_to {
        event["reply_to_message_id"] = quoted["id"].clone();
        event["reply_to"] =
            json!({ "text": quoted["text"], "author": quoted["author"], "is_own": quoted["is_own"] });
    }
    attach(hub, &mut event, &say.media)?;
    let mut buffer = deliver(hub, BufferedDelivery::Event(&event))?;
    if say.twice {
        buffer = deliver(hub, BufferedDelivery::Event(&event))?;
    }
    Ok(json!({ "message_id": message_id, "buffer": buffer.to_string() }))
}

/// The chat that is meant: one of the page's own, a thread that the gateway opened, or one of others.
fn chat(hub: &Hub, personas: &Personas, speaker: &SpeakingPersona) -> Result<PersonaChat, ActionError> {
    let thread = speaker.thread.as_deref();
    if let Some(chat) = personas.chat(&speaker.chat, thread) {
        return Ok(chat.clone());
    }
    let state = hub.lock();
    let opened = state
        .contents
        .threads
        .iter()
        .find(|opened| Some(opened.thread_id.as_str()) == thread);
    if let Some(opened) = opened {
        let parent = (opened.chat_id != speaker.chat).then_some(opened.chat_id.as_str());
        return Ok(PersonaChat::elsewhere(
            ChatKind::Thread,
            &opened.name,
            &speaker.chat,
            thread,
            parent,
        ));
    }
    let source = state.chats.source(&speaker.chat).ok_or_else(|| missing("chat"))?;
    let kind = match source["chat_type"].as_str() {
        Some("dm") => ChatKind::Dm,
        Some("thread") => ChatKind::Thread,
        Some("forum") => ChatKind::Topic,
        _ => ChatKind::Group,
    };
    let name = source["chat_name"].as_str().unwrap_or(&speaker.chat);
    let parent = source["parent_chat_id"].as_str();
    Ok(PersonaChat::elsewhere(kind, name, &speaker.chat, thread, parent))
}

fn attach(hub: &Hub, event: &mut Value, media: &[String]) -> Result<(), ActionError> {
    let state = hub.lock();
    let (mut urls, mut listed) = (Vec::new(), Vec::new());
    for id in media.iter().take(MAX_ATTACHMENTS) {
        let medium = state.media.find(id).ok_or_else(|| missing("file"))?;
        let url = format!("{}/relay/media/{id}", hub.http_base());
        let kind = kind_of(medium);
        if urls.is_empty() && event["message_type"] == "text" {
            event["message_type"] = match kind {
                "image" => "photo",
                kind => kind,
            }
            .into();
        }
        listed.push(json!({
            "url": url,
            "kind": kind,
            "mime": medium.mime,
            "size": medium.bytes.len(),
            "filename": medium.filename,
        }));
        urls.push(url);
    }
    if !urls.is_empty() {
        event["media_urls"] = json!(urls);
        event["media"] = json!(listed);
    }
    Ok(())
}

fn kind_of(medium: &StoredMedia) -> &'static str {
    match medium.mime.split('/').next() {
        Some("image") => "image",
        Some("video") => "video",
        Some("audio") => "audio",
        _ => "document",
    }
}

fn press(hub: &Arc<Hub>, page: &Page, press: &Press) -> Result<Value, ActionError> {
    let message_id = page.message_id();
    let personas = page.personas();
    let chat = &chat(hub, &personas, &press.speaker)?;
    let person = personas
        .person(&press.speaker.who)
        .ok_or_else(|| missing("person"))?;
    let source = personas.source(chat, person, press.message.as_deref());
    let event = hub
        .press(&press.prompt, &press.option, Some(&source))
        .ok_or_else(|| missing("button"))?;
    if press.lane == MessageLane::Interaction && page.preset() == PlatformPreset::Discord {
        let token = format!("hp1:{}:{}", press.prompt, press.option);
        prompt_token(&token).ok_or_else(|| missing("button"))?;
        let data = json!({ "custom_id": token, "component_type": 2 });
        let body = chat.interaction(person, &message_id, 3, &data, press.message.as_deref());
        drop(personas);
        return forward(hub, page, &body, &source, &message_id);
    }
    let buffer = deliver(hub, BufferedDelivery::Event(&event))?;
    Ok(json!({ "buffer": buffer.to_string() }))
}

fn forward(
    hub: &Arc<Hub>,
    page: &Page,
    body: &Value,
    source: &Value,
    id: &str,
) -> Result<Value, ActionError> {
    let session = session_key(source, &page.settings.sessions);
    hub.change(|state| state.contents.grant(&session, INTERACTION));
    let buffer = deliver(
        hub,
        BufferedDelivery::Forward(&json!({
            "platform": page.settings.platform,
            "botId": "dev-bot",
            "method": "POST",
            "path": "/interactions",
            "headers": [["content-type", "application/json"]],
            "bodyB64": STANDARD.encode(body.to_string()),
        })),
    )?;
    Ok(json!({ "message_id": id, "buffer": buffer.to_string() }))
}

fn session_key(source: &Value, sessions: &SessionNames) -> String {
    let mut event = MessageEvent::from_value(&json!({ "source": source })).unwrap_or_default();
    sessions.name(&mut event, &NoAliases).as_str().to_owned()
}

fn stop(hub: &Hub, stop: &StopCommand) -> Result<Value, ActionError> {
    let thread = stop.thread.as_deref().unwrap_or_default();
    let sessions = hub.lock().feed.sessions_in(&stop.chat, thread);
    for session in &sessions {
        if !hub.interrupt(session, &stop.chat) {
            return Err(nobody_listens());
        }
    }
    Ok(json!({ "sessions": sessions.len() }))
}

/// Dials that are refused in a row.
const REFUSED_DIALS: usize = 2;
/// Frames that no relay can use: no JSON, no object, no type, an unknown one, a delivery without an event.
const POISON: [&str; 6] = [
    "{\"type\":\"inbound\",\"event\":{\"text\":\n",
    "[1,2,3]\n",
    "{\"event\":{}}\n",
    "{\"type\":\"no_such_frame\",\"x\":1}\n",
    "{\"type\":\"inbound\",\"event\":7,\"bufferId\":\"poison-1\"}\n",
    "\u{feff}\n",
];

/// Causes the fault of this name.
fn fault(hub: &Arc<Hub>, name: &str) -> Result<Value, ActionError> {
    match name {
        "drop" => hub.end_all(&SocketEnd::Abort),
        "refuse_dials" => {
            hub.change(|state| state.faults.refused_dials = REFUSED_DIALS);
            hub.end_all(&SocketEnd::Abort);
        }
        "expire" => hub.end_all(&unauthorized("expired")),
        "revoke" => {
            hub.change(|state| state.faults.revoked = true);
            hub.end_all(&unauthorized("unauthorized"));
        }
        "reinstate" => hub.change(|state| state.faults.revoked = false),
        "delay_result" => hub.change(|state| state.faults.next_send = Some(SendFault::Late)),
        "refuse_result" => hub.change(|state| state.faults.next_send = Some(SendFault::Refused)),
        "hold" => {
            if !hub.hold() {
                return Err(nobody_listens());
            }
        }
        "poison" => {
            for line in POISON {
                if !hub.send(Message::text(line)) {
                    return Err(nobody_listens());
                }
            }
        }
        _ => return Err(missing("fault")),
    }
    Ok(json!({ "ok": true, "poison": POISON.len() }))
}
