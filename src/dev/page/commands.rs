//! What a person does on the page: messages, buttons, chats and faults.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::Page;
use super::personas::{ChatKind, PersonaChat, Personas};
use crate::adapter::{SessionNames, prompt_token};
use crate::dev::buffer::{BufferedDelivery, NotBuffered};
use crate::dev::faults::SendFault;
use crate::dev::http::{MAX_MEDIA_BYTES, StoredMedia, plain, reply};
use crate::dev::presets::PlatformPreset;
use crate::dev::state::{Hub, SocketEnd, unauthorized};
use crate::wire::{MessageEvent, NoAliases};

/// Longest body of a command.
const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// Attachments of one message.
const MAX_ATTACHMENTS: usize = 10;
/// Types that are shown in the page; everything else is offered as a download.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The capability that answers an interaction.
const INTERACTION: &str = "discord.interaction_token";

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// It cannot be read.
    #[error("the command cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// There is none of this name.
    #[error("there is no command {0:?}")]
    Unknown(String),
    /// It names something that is not there.
    #[error("there is no such {0}")]
    Missing(&'static str),
    /// The personas do not take it.
    #[error("{0}")]
    Personas(&'static str),
    /// The mailbox does not take it.
    #[error(transparent)]
    NotBuffered(#[from] NotBuffered),
    /// Nobody listens.
    #[error("no relay is connected")]
    NobodyListens,
}

/// The author of a message, and the chat.
#[derive(Debug, Deserialize)]
struct Speaker {
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
    speaker: Speaker,
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
    speaker: Speaker,
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

/// Carries a command out and answers it.
pub(super) async fn run_command(hub: &Arc<Hub>, page: &Page, command: &str, request: Request) -> Response {
    let Ok(body) = to_bytes(request.into_body(), MAX_COMMAND_BYTES).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the command is too long");
    };
    match perform(hub, page, command, &body) {
        Ok(answer) => reply(&answer),
        Err(refused @ CommandError::Unknown(_)) => plain(StatusCode::NOT_FOUND, &refused.to_string()),
        Err(refused) => plain(StatusCode::BAD_REQUEST, &refused.to_string()),
    }
}

fn perform(hub: &Arc<Hub>, page: &Page, command: &str, body: &[u8]) -> Result<Value, CommandError> {
    match command {
        "say" => say(hub, page, &serde_json::from_slice(body)?),
        "press" => press(hub, page, &serde_json::from_slice(body)?),
        "stop" => stop(hub, &serde_json::from_slice(body)?),
        "chat" => {
            let Named { name, kind } = serde_json::from_slice(body)?;
            let kind = ChatKind::named(&kind).ok_or(CommandError::Missing("kind of chat"))?;
            let chat = page
                .personas()
                .open(kind, &name)
                .map_err(CommandError::Personas)?;
            hub.change(|state| state.feed.publish("chat", json!({ "chat": chat })));
            Ok(chat)
        }
        "person" => {
            let Named { name, .. } = serde_json::from_slice(body)?;
            let person = page.personas().join(&name).map_err(CommandError::Personas)?;
            hub.change(|state| state.feed.publish("person", json!({ "person": person })));
            Ok(person)
        }
        "fault" => {
            let Named { name, .. } = serde_json::from_slice(body)?;
            fault(hub, &name)
        }
        _ => Err(CommandError::Unknown(command.to_owned())),
    }
}

fn say(hub: &Arc<Hub>, page: &Page, say: &Say) -> Result<Value, CommandError> {
    let message_id = page.message_id();
    let personas = page.personas();
    let chat = &chat(hub, &personas, &say.speaker)?;
    let person = personas
        .person(&say.speaker.who)
        .ok_or(CommandError::Missing("person"))?;
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
    let mut buffer = hub.buffer(BufferedDelivery::Event(&event))?;
    if say.twice {
        buffer = hub.buffer(BufferedDelivery::Event(&event))?;
    }
    Ok(json!({ "message_id": message_id, "buffer": buffer.to_string() }))
}

/// The chat that is meant: one of the page's own, a thread that the gateway opened, or one of others.
fn chat(hub: &Hub, personas: &Personas, speaker: &Speaker) -> Result<PersonaChat, CommandError> {
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
    let source = state
        .chats
        .source(&speaker.chat)
        .ok_or(CommandError::Missing("chat"))?;
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

fn attach(hub: &Hub, event: &mut Value, media: &[String]) -> Result<(), CommandError> {
    let state = hub.lock();
    let (mut urls, mut listed) = (Vec::new(), Vec::new());
    for id in media.iter().take(MAX_ATTACHMENTS) {
        let medium = state.media.find(id).ok_or(CommandError::Missing("file"))?;
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

fn press(hub: &Arc<Hub>, page: &Page, press: &Press) -> Result<Value, CommandError> {
    let message_id = page.message_id();
    let personas = page.personas();
    let chat = &chat(hub, &personas, &press.speaker)?;
    let person = personas
        .person(&press.speaker.who)
        .ok_or(CommandError::Missing("person"))?;
    let source = personas.source(chat, person, press.message.as_deref());
    let event = hub
        .press(&press.prompt, &press.option, Some(&source))
        .ok_or(CommandError::Missing("button"))?;
    if press.lane == MessageLane::Interaction && page.preset() == PlatformPreset::Discord {
        let token = format!("hp1:{}:{}", press.prompt, press.option);
        prompt_token(&token).ok_or(CommandError::Missing("button"))?;
        let data = json!({ "custom_id": token, "component_type": 2 });
        let body = chat.interaction(person, &message_id, 3, &data, press.message.as_deref());
        drop(personas);
        return forward(hub, page, &body, &source, &message_id);
    }
    let buffer = hub.buffer(BufferedDelivery::Event(&event))?;
    Ok(json!({ "buffer": buffer.to_string() }))
}

fn forward(
    hub: &Arc<Hub>,
    page: &Page,
    body: &Value,
    source: &Value,
    id: &str,
) -> Result<Value, CommandError> {
    let session = session_key(source, &page.settings.sessions);
    hub.change(|state| state.contents.grant(&session, INTERACTION));
    let buffer = hub.buffer(BufferedDelivery::Forward(&json!({
        "platform": page.settings.platform,
        "botId": "dev-bot",
        "method": "POST",
        "path": "/interactions",
        "headers": [["content-type", "application/json"]],
        "bodyB64": STANDARD.encode(body.to_string()),
    })))?;
    Ok(json!({ "message_id": id, "buffer": buffer.to_string() }))
}

fn session_key(source: &Value, sessions: &SessionNames) -> String {
    let mut event = MessageEvent::from_value(&json!({ "source": source })).unwrap_or_default();
    sessions.name(&mut event, &NoAliases).as_str().to_owned()
}

fn stop(hub: &Hub, stop: &StopCommand) -> Result<Value, CommandError> {
    let thread = stop.thread.as_deref().unwrap_or_default();
    let sessions = hub.lock().feed.sessions_in(&stop.chat, thread);
    for session in &sessions {
        if !hub.interrupt(session, &stop.chat) {
            return Err(CommandError::NobodyListens);
        }
    }
    Ok(json!({ "sessions": sessions.len() }))
}

/// Answers `POST upload`: keeps a file for the gateway to fetch.
pub(super) async fn upload(hub: &Hub, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let mime = text("content-type")
        .unwrap_or("application/octet-stream")
        .to_owned();
    let filename = text("x-filename").map(|name| {
        let decoded = url::form_urlencoded::parse(format!("n={name}").as_bytes())
            .next()
            .map(|(_, name)| name.into_owned());
        let decoded = decoded.unwrap_or_default();
        decoded
            .chars()
            .filter(|c| !c.is_control())
            .take(200)
            .collect::<String>()
    });
    let Ok(bytes) = to_bytes(body, MAX_MEDIA_BYTES).await else {
        return plain(
            StatusCode::PAYLOAD_TOO_LARGE,
            "the file is larger than 25 MiB, which no connector takes",
        );
    };
    if bytes.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "the file is empty");
    }
    let id = hub.change(|state| {
        let owner = state.primary.clone();
        state.media.put(&owner, &mime, filename.as_deref(), bytes)
    });
    reply(&json!({ "id": id, "mime": mime, "filename": filename }))
}

/// Answers `GET media/{id}`: pictures to be shown, everything else to be saved.
pub(super) fn medium(hub: &Hub, id: &str) -> Response {
    let found = hub.lock().media.find(id).cloned();
    let Some(medium) = found else {
        return plain(StatusCode::NOT_FOUND, "the file is no longer kept");
    };
    let picture = SHOWN.contains(&medium.mime.as_str());
    let (kind, disposition) = if picture {
        (medium.mime.as_str(), "inline")
    } else {
        ("application/octet-stream", "attachment")
    };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_DISPOSITION, disposition)
        .body(Body::from(medium.bytes))
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be sent"))
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
pub(super) fn fault(hub: &Arc<Hub>, name: &str) -> Result<Value, CommandError> {
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
                return Err(CommandError::NobodyListens);
            }
        }
        "poison" => {
            for line in POISON {
                if !hub.send(Message::text(line)) {
                    return Err(CommandError::NobodyListens);
                }
            }
        }
        _ => return Err(CommandError::Missing("fault")),
    }
    Ok(json!({ "ok": true, "poison": POISON.len() }))
}
