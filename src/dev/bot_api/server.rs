//! The HTTP side: who calls which method with what.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::files::MAX_UPLOAD_BYTES;
use super::methods::{method_named, perform};
use super::params::ApiParams;
use super::polling::get_updates;
use super::refusal::ApiRefusal;
use super::state::BotApiState;
use crate::dev::http::{host_name, is_token, plain, reply};
use crate::dev::page::{self, PageDoor};
use crate::wire::is_loopback_host;

/// Bytes of the largest body: the largest file, and room for the parameters.
const MAX_BODY_BYTES: usize = MAX_UPLOAD_BYTES + 2 * 1024 * 1024;

/// What every task of one server shares.
pub struct BotApiHub {
    pub addr: SocketAddr,
    /// The page, once it was opened.
    pub page: OnceLock<PageDoor>,
    /// Notified after every change that someone may wait for.
    pub changed: Notify,
    pub stop: CancellationToken,
    state: Mutex<BotApiState>,
}

impl BotApiHub {
    pub fn new(addr: SocketAddr, state: BotApiState) -> Self {
        Self {
            addr,
            page: OnceLock::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            state: Mutex::new(state),
        }
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, BotApiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies those who wait.
    pub fn change<T>(&self, change: impl FnOnce(&mut BotApiState) -> T) -> T {
        let out = change(&mut self.lock());
        self.changed.notify_waiters();
        out
    }
}

/// Seconds since 1970.
pub fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

pub fn router(hub: &Arc<BotApiHub>) -> Router {
    Router::new()
        .merge(page::routes())
        .fallback(handle)
        .with_state(Arc::clone(hub))
}

/// What a path asks for.
enum Asked<'a> {
    Method { token: String, name: &'a str },
    File { token: String, path: &'a str },
    Nothing,
}

impl<'a> Asked<'a> {
    fn read(path: &'a str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        if let Some((token, path)) = path
            .strip_prefix("file/bot")
            .and_then(|rest| rest.split_once('/'))
        {
            let token = decoded(token);
            return Self::File { token, path };
        }
        match path.strip_prefix("bot").and_then(|rest| rest.split_once('/')) {
            Some((token, name)) => Self::Method {
                token: decoded(token),
                name,
            },
            None => Self::Nothing,
        }
    }
}

/// A part of a path without its percent signs.
fn decoded(part: &str) -> String {
    // As in a form, where a plus sign is a space.
    let pair = format!("x={}", part.replace('+', "%2B"));
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

async fn handle(State(hub): State<Arc<BotApiHub>>, request: Request) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    if !host.map(host_name).is_some_and(is_loopback_host) {
        return plain(StatusCode::FORBIDDEN, "the request is addressed to another host");
    }
    let path = request.uri().path().to_owned();
    match Asked::read(&path) {
        Asked::Method { token, name } => match refused_token(&hub, &token) {
            Some(refusal) => refuse_caller(&hub, name, &refusal),
            None => call(&hub, name, request).await,
        },
        Asked::File { token, path } => match refused_token(&hub, &token) {
            Some(refusal) => refuse_caller(&hub, "file", &refusal),
            None => download(&hub, path),
        },
        Asked::Nothing => refuse(&ApiRefusal::new(404, "Not Found")),
    }
}

/// The refusal of a token that is not the bot's: malformed ones lead nowhere.
fn refused_token(hub: &BotApiHub, shown: &str) -> Option<ApiRefusal> {
    let state = hub.lock();
    if is_token(state.settings.token.expose_secret(), shown) {
        return None;
    }
    let is_formed = shown.split_once(':').is_some_and(|(id, secret)| {
        !id.starts_with('0') && id.parse::<u64>().is_ok() && !secret.is_empty() && shown.len() <= 80
    });
    Some(if is_formed {
        ApiRefusal::new(401, "Unauthorized")
    } else {
        ApiRefusal::new(404, "Not Found")
    })
}

/// Answers a caller who is not the bot; that it called is on record.
fn refuse_caller(hub: &BotApiHub, method: &str, refusal: &ApiRefusal) -> Response {
    let method = crate::text::truncate(method, 64);
    hub.change(|state| {
        let sequence = state.calls.begin(method, json!({}));
        state.calls.end(sequence, refusal.code, refusal.body());
    });
    refuse(refusal)
}

fn refuse(refusal: &ApiRefusal) -> Response {
    let mut response = reply(&refusal.body());
    *response.status_mut() = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

async fn call(hub: &Arc<BotApiHub>, name: &str, request: Request) -> Response {
    let known = method_named(name, &hub.lock());
    let method = known.unwrap_or_else(|| crate::text::truncate(name, 64));
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return refuse(&ApiRefusal::new(413, "Request Entity Too Large"));
    };
    let params = parameters(&head, &body);
    drop(body);
    let recorded = params.as_ref().map(ApiParams::recorded).unwrap_or_default();
    let sequence = hub.change(|state| state.calls.begin(method, recorded));
    let result = match (known, params) {
        (None, _) => Err(ApiRefusal::new(404, "Not Found: method not found")),
        (_, None) => Err(ApiRefusal::new(413, "Request Entity Too Large")),
        (Some("getUpdates"), Some(params)) => get_updates(hub, &params).await,
        (Some(method), Some(params)) => hub.change(|state| perform(state, method, &params, unix_now())),
    };
    let (status, recorded) = match &result {
        Ok(Value::Array(updates)) if method == "getUpdates" => {
            (200, json!({ "ok": true, "updates": updates.len() }))
        }
        Ok(value) => (200, json!({ "ok": true, "result": value })),
        Err(refusal) => (refusal.code, refusal.body()),
    };
    hub.change(|state| state.calls.end(sequence, status, recorded));
    match result {
        Ok(value) => reply(&json!({ "ok": true, "result": value })),
        Err(refusal) => refuse(&refusal),
    }
}

fn parameters(head: &http::request::Parts, body: &Bytes) -> Option<ApiParams> {
    let kind = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    ApiParams::read(
        head.uri.query().unwrap_or_default(),
        kind.unwrap_or_default(),
        body,
    )
}

fn download(hub: &BotApiHub, path: &str) -> Response {
    let shown = crate::text::truncate(path, 200);
    let found = hub.lock().files.at(path).map(|file| file.bytes.clone());
    let result = found.ok_or_else(|| ApiRefusal::new(404, "Not Found"));
    let (status, answer) = match &result {
        Ok(bytes) => (200, json!({ "ok": true, "bytes": bytes.len() })),
        Err(refusal) => (refusal.code, refusal.body()),
    };
    hub.change(|state| {
        let sequence = state.calls.begin("file", json!({ "file_path": shown }));
        state.calls.end(sequence, status, answer);
    });
    match result {
        Err(refusal) => refuse(&refusal),
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let kind = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
    }
}
