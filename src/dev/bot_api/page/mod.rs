//! The page of the fake Bot API: chats as people see them, a form to write as one of them, and every call as it comes.
//!
//! It is served as the page of the connector is: on loopback, to whoever holds its token, from files in the binary.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BotApi;
use super::calls::BotApiCall;
use super::chats::{ApiChatKind, BotStanding};
use super::people::{PersonFile, PersonMessage};
use super::server::BotApiHub;
use super::view::page_chat;
use crate::dev::connector::random_token;
use crate::dev::http::{MAX_MEDIA_BYTES, is_token, plain, reply};
use crate::dev::page::assets;

/// Maximum pages open at the same time.
const MAX_LISTENERS: usize = 8;
/// Letters of the token in the address.
const TOKEN_LENGTH: usize = 32;
/// Messages of a chat that are shown.
const SHOWN_MESSAGES: usize = 200;
/// Calls that a new page is shown.
const SHOWN_CALLS: u64 = 500;
/// Letters of parameters and answers that are shown.
const SHOWN_TEXT: usize = 20_000;
/// Least time between two events.
const PACE: Duration = Duration::from_millis(80);
const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// Longest name of a chat.
const MAX_NAME_CHARS: usize = 60;

/// Files of this page; style and helpers are those of the connector's page.
const FILES: [(&str, &str, &str); 2] = [
    ("", "text/html; charset=utf-8", include_str!("index.html")),
    ("bot.js", "text/javascript; charset=utf-8", include_str!("bot.js")),
];

/// An opened page.
pub struct ApiPage {
    token: String,
    listeners: Arc<Semaphore>,
}

impl BotApi {
    /// Opens the page and returns its address, token included. A second call returns the same address.
    pub fn open_page(&self) -> String {
        let page = self.hub.page.get_or_init(|| ApiPage {
            token: random_token()[..TOKEN_LENGTH].to_owned(),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
        });
        format!("{}/dev/{}/", self.base(), page.token)
    }
}

/// Answers a request for the page.
pub(super) async fn serve(hub: &Arc<BotApiHub>, token: &str, rest: &str, request: Request) -> Response {
    let response = match hub.page.get().filter(|page| is_token(&page.token, token)) {
        None => plain(StatusCode::NOT_FOUND, "there is no such page"),
        Some(page) => match assets::check(hub.addr.port(), request.method(), rest, request.headers()) {
            Err(refusal) => plain(StatusCode::FORBIDDEN, &refusal.to_string()),
            Ok(()) => route(hub, page, rest, request).await,
        },
    };
    assets::harden(response)
}

async fn route(hub: &Arc<BotApiHub>, page: &ApiPage, rest: &str, request: Request) -> Response {
    let get = request.method() == Method::GET || request.method() == Method::HEAD;
    let post = request.method() == Method::POST;
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("", _) if get && !request.uri().path().ends_with('/') => Response::builder()
            .status(StatusCode::PERMANENT_REDIRECT)
            .header(header::LOCATION, format!("/dev/{}/", page.token))
            .body(Body::empty())
            .unwrap_or_default(),
        ("events", "") if get => events(hub, page),
        ("alive", "") if get => reply(&Value::Bool(true)),
        ("media", id) if get => medium(hub, id),
        ("upload", "") if post => upload(hub, request).await,
        (command, "") if post => {
            let command = command.to_owned();
            match to_bytes(request.into_body(), MAX_COMMAND_BYTES).await {
                Err(_) => plain(StatusCode::PAYLOAD_TOO_LARGE, "the command is too long"),
                Ok(body) => run_command(hub, &command, &serde_json::from_slice(&body).unwrap_or_default()),
            }
        }
        _ if get => match FILES.iter().find(|(name, _, _)| *name == rest) {
            None => assets::file(rest),
            Some((_, kind, content)) => Response::builder()
                .header(header::CONTENT_TYPE, *kind)
                .body(Body::from(*content))
                .unwrap_or_default(),
        },
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "this page answers GET and POST"),
    }
}

/// What a person does on the page.
fn run_command(hub: &Arc<BotApiHub>, command: &str, body: &Value) -> Response {
    let number = |name: &str| body[name].as_i64().unwrap_or(0);
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let (chat_id, person_id, message_id) = (number("chat"), number("from"), number("message"));
    let is_done = match command {
        "say" if text("text").trim().is_empty() => return plain(StatusCode::BAD_REQUEST, "there is no text"),
        "say" => {
            hub.send(
                chat_id,
                person_id,
                written(body, PersonMessage::text(text("text"))),
            ) != 0
        }
        "press" => hub.press(chat_id, message_id, person_id, text("data")).is_some(),
        "stop" => hub.press_stop(chat_id).is_some(),
        "react" => {
            hub.react(chat_id, message_id, person_id, &[text("emoji")]);
            true
        }
        "edit" => {
            hub.edit(chat_id, message_id, text("text"));
            true
        }
        "chat" => match ApiChatKind::named(text("kind")) {
            Some(kind) if !text("name").trim().is_empty() => {
                let name: String = text("name").trim().chars().take(MAX_NAME_CHARS).collect();
                hub.open_chat(kind, &name);
                true
            }
            _ => return plain(StatusCode::BAD_REQUEST, "a chat needs a kind and a name"),
        },
        "standing" => match BotStanding::named(text("standing")) {
            Some(standing) => hub.set_standing(chat_id, person_id, standing),
            None => return plain(StatusCode::BAD_REQUEST, "there is no such standing"),
        },
        _ => return plain(StatusCode::NOT_FOUND, "there is no such command"),
    };
    if is_done {
        reply(&json!({ "ok": true }))
    } else {
        plain(
            StatusCode::BAD_REQUEST,
            "there is no such chat, message, button or draft",
        )
    }
}

/// A message with the topic and the answered message that the page names.
fn written(body: &Value, message: PersonMessage) -> PersonMessage {
    let number = |name: &str| body[name].as_i64().filter(|id| *id != 0);
    PersonMessage {
        thread_id: number("thread"),
        reply_to: number("reply"),
        ..message
    }
}

/// Takes a file that a person sends: pictures as photos, everything else as documents.
async fn upload(hub: &Arc<BotApiHub>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query: BTreeMap<String, String> =
        url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let number = |name: &str| {
        query
            .get(name)
            .and_then(|value| value.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let mime = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let mime = mime.unwrap_or("application/octet-stream").to_owned();
    let Ok(bytes) = to_bytes(body, MAX_MEDIA_BYTES).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the file is larger than 25 MiB");
    };
    if bytes.is_empty() {
        return plain(StatusCode::BAD_REQUEST, "the file is empty");
    }
    let name = query.get("name").cloned().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
    let kind = if matches!(mime.as_str(), "image/png" | "image/jpeg") {
        "photo"
    } else {
        "document"
    };
    let file = PersonFile {
        mime: Some(mime),
        ..PersonFile::new(kind, &name, bytes)
    };
    let caption = query.get("caption").map_or("", String::as_str);
    let place = json!({ "thread": number("thread"), "reply": number("reply") });
    let message = written(&place, PersonMessage::file(file, caption));
    match hub.send(number("chat"), number("from"), message) {
        0 => plain(StatusCode::BAD_REQUEST, "there is no such chat"),
        _ => reply(&json!({ "ok": true })),
    }
}

/// A file of a message: pictures to be shown, everything else to be saved.
fn medium(hub: &BotApiHub, id: &str) -> Response {
    let found = hub.lock().files.find(id).cloned();
    let Some(file) = found else {
        return plain(StatusCode::NOT_FOUND, "the file is no longer kept");
    };
    let (kind, disposition) = match &file.bytes[..] {
        [0x89, b'P', b'N', b'G', ..] => ("image/png", "inline"),
        [0xff, 0xd8, ..] => ("image/jpeg", "inline"),
        _ => ("application/octet-stream", "attachment"),
    };
    Response::builder()
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONTENT_DISPOSITION, disposition)
        .body(Body::from(file.bytes))
        .unwrap_or_default()
}

/// One open page.
struct ApiEvents {
    hub: Arc<BotApiHub>,
    is_new: bool,
    /// The number of the next call, and calls that had no answer when they were shown.
    next_call: u64,
    unanswered: Vec<u64>,
    versions: BTreeMap<i64, u64>,
    status: Value,
    _permit: OwnedSemaphorePermit,
}

fn events(hub: &Arc<BotApiHub>, page: &ApiPage) -> Response {
    let Ok(permit) = Arc::clone(&page.listeners).try_acquire_owned() else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open; close another one",
        );
    };
    let listener = ApiEvents {
        next_call: (hub.lock().calls.counted() + 1).saturating_sub(SHOWN_CALLS),
        hub: Arc::clone(hub),
        is_new: true,
        unanswered: Vec::new(),
        versions: BTreeMap::new(),
        status: Value::Null,
        _permit: permit,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl ApiEvents {
    /// The next event; none when the server stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let hub = Arc::clone(&self.hub);
            let mut changed = std::pin::pin!(hub.changed.notified());
            changed.as_mut().enable();
            if let Some(batch) = self.batch() {
                // A moment's rest gathers what happens in it.
                tokio::time::sleep(PACE).await;
                return Some(Event::default().data(batch.to_string()));
            }
            tokio::select! {
                biased;
                () = hub.stop.cancelled() => return None,
                () = changed => {}
            }
        }
    }

    fn batch(&mut self) -> Option<Value> {
        let state = self.hub.lock();
        let first = self
            .unanswered
            .first()
            .copied()
            .unwrap_or(self.next_call)
            .min(self.next_call);
        let is_due = |call: &&BotApiCall| {
            call.sequence >= self.next_call
                || (call.status.is_some() && self.unanswered.contains(&call.sequence))
        };
        let calls: Vec<&BotApiCall> = state.calls.since(first).filter(is_due).collect();
        let shown: Vec<Value> = calls.iter().map(|call| shown_call(call)).collect();
        let answered: Vec<u64> = calls
            .iter()
            .filter(|call| call.status.is_some())
            .map(|call| call.sequence)
            .collect();
        let waiting: Vec<u64> = calls
            .iter()
            .filter(|call| call.status.is_none())
            .map(|call| call.sequence)
            .collect();
        let chats: Vec<Value> = state
            .chats
            .values()
            .filter(|chat| self.versions.get(&chat.id) != Some(&chat.version))
            .map(|chat| page_chat(&state, chat, SHOWN_MESSAGES))
            .collect();
        let versions = state.chats.values().map(|chat| (chat.id, chat.version)).collect();
        let status = json!({
            "polled": state.poll.is_waiting,
            "pending": state.updates.pending_count(),
            "offset": state.updates.confirmed(),
            "dropped": state.updates.dropped(),
            "calls": state.calls.counted(),
        });
        let people: Vec<Value> = state
            .people
            .values()
            .map(|person| json!({ "id": person.id, "name": person.first_name }))
            .collect();
        let bot = json!({ "name": state.bot.first_name, "username": state.settings.username });
        self.next_call = state.calls.counted() + 1;
        drop(state);
        self.versions = versions;
        self.unanswered.retain(|sequence| !answered.contains(sequence));
        self.unanswered.extend(waiting);
        if self.unanswered.len() > MAX_UNANSWERED {
            self.unanswered.drain(..self.unanswered.len() - MAX_UNANSWERED);
        }
        let mut batch = json!({});
        if std::mem::take(&mut self.is_new) {
            batch["setup"] = json!({ "version": env!("CARGO_PKG_VERSION"), "bot": bot, "people": people });
        }
        if !shown.is_empty() {
            batch["calls"] = json!(shown);
        }
        if !chats.is_empty() {
            batch["chats"] = json!(chats);
        }
        if status != self.status {
            batch["status"] = status.clone();
            self.status = status;
        }
        let is_empty = batch.as_object().is_some_and(serde_json::Map::is_empty);
        (!is_empty).then_some(batch)
    }
}

/// Calls without an answer that a page looks after.
const MAX_UNANSWERED: usize = 1_000;

fn shown_call(call: &BotApiCall) -> Value {
    let cut = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        crate::text::truncate(&text, SHOWN_TEXT).to_owned()
    };
    let date = call
        .date
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "n": call.sequence,
        "ms": u64::try_from(date.as_millis()).unwrap_or(u64::MAX),
        "method": call.method,
        "status": call.status,
        "took": call.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        "about": about(call),
        "params": cut(&call.params),
        "answer": cut(&call.answer),
    })
}

/// One line about a call.
fn about(call: &BotApiCall) -> String {
    let params = &call.params;
    let text = ["text", "caption", "action", "name", "file_path"]
        .iter()
        .find_map(|name| params[*name].as_str());
    let chat = call.chat_id().map(|id| id.to_string()).unwrap_or_default();
    let refused = call.answer["description"].as_str();
    let updates = call.answer["updates"].as_u64().filter(|count| *count > 0);
    let updates = updates.map(|count| format!("{count} updates"));
    let parts = [Some(chat.as_str()), text, updates.as_deref(), refused];
    let line = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" · ");
    crate::text::one_line(&line, 160)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_builds_no_markup_from_text_and_loads_nothing_from_outside() {
        for (name, _, content) in FILES {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "https://",
                "style=",
            ] {
                assert!(!content.contains(word), "{name} has {word}");
            }
        }
        for line in FILES[1].2.lines().filter(|line| line.starts_with("import ")) {
            let from = line.rsplit("\"./").next().and_then(|rest| rest.split('"').next());
            let response = assets::file(from.unwrap_or_default());
            assert_eq!(response.status(), StatusCode::OK, "{line}");
        }
    }
}
