//! The HTTP side: who calls which method with what, and what goes wrong on the way.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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
use super::page::{self, ApiPage};
use super::params::ApiParams;
use super::polling::get_updates;
use super::refusal::{ApiRefusal, ApiResult};
use super::rules::BotApiAnswer;
use super::state::BotApiState;
use crate::dev::http::{host_name, is_token, plain, reply};
use crate::dev::listener::CutConnection;
use crate::wire::is_loopback_host;

/// Bytes of the largest body: the largest file, and room for the parameters.
const MAX_BODY_BYTES: usize = MAX_UPLOAD_BYTES + 2 * 1024 * 1024;

/// What every task of one server shares.
pub(super) struct BotApiHub {
    pub(super) addr: SocketAddr,
    /// The page, once it was opened.
    pub(super) page: OnceLock<ApiPage>,
    /// Notified after every change that someone may wait for.
    pub(super) changed: Notify,
    pub(super) stop: CancellationToken,
    state: Mutex<BotApiState>,
}

impl BotApiHub {
    pub(super) fn new(addr: SocketAddr, state: BotApiState) -> Self {
        Self {
            addr,
            page: OnceLock::new(),
            changed: Notify::new(),
            stop: CancellationToken::new(),
            state: Mutex::new(state),
        }
    }

    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, BotApiState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and notifies those who wait.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BotApiState) -> T) -> T {
        let out = change(&mut self.lock());
        self.changed.notify_waiters();
        out
    }
}

/// Seconds since 1970.
pub(super) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

pub(super) fn router(hub: &Arc<BotApiHub>) -> Router {
    Router::new().fallback(handle).with_state(Arc::clone(hub))
}

/// What a path asks for.
enum Asked<'a> {
    Method { token: String, name: &'a str },
    File { token: String, path: &'a str },
    Page { token: &'a str, rest: &'a str },
    Nothing,
}

impl<'a> Asked<'a> {
    fn read(path: &'a str) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        if let Some(rest) = path.strip_prefix("dev/") {
            let (token, rest) = rest.split_once('/').unwrap_or((rest, ""));
            return Self::Page { token, rest };
        }
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
        Asked::Page { token, rest } => page::serve(&hub, token, rest, request).await,
        Asked::Method { token, name } => match refused_token(&hub, &token) {
            Some(refusal) => refuse_caller(&hub, name, &refusal),
            None => call(&hub, name, request).await,
        },
        Asked::File { token, path } => match refused_token(&hub, &token) {
            Some(refusal) => refuse_caller(&hub, "file", &refusal),
            None => download(&hub, path).await,
        },
        Asked::Nothing => refuse(&ApiRefusal::new(404, "Not Found")),
    }
}

/// The refusal of a token that is not the bot's: malformed ones lead nowhere.
fn refused_token(hub: &BotApiHub, shown: &str) -> Option<ApiRefusal> {
    let state = hub.lock();
    if is_token(state.settings.token.expose_secret(), shown) && !state.is_revoked {
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
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// No answer: the connection is closed.
fn cut() -> Response {
    let mut response = Response::new(Body::empty());
    response.extensions_mut().insert(CutConnection);
    response
}

async fn call(hub: &Arc<BotApiHub>, name: &str, request: Request) -> Response {
    let known = method_named(name, &hub.lock());
    let method = known.unwrap_or_else(|| crate::text::truncate(name, 64));
    if hub.change(|state| state.rules.cuts_unread(method)) {
        hub.change(|state| state.calls.begin(method, Value::Null));
        return cut();
    }
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return refuse(&ApiRefusal::new(413, "Request Entity Too Large"));
    };
    let params = parameters(&head, &body);
    drop(body);
    let recorded = params.as_ref().map(ApiParams::recorded).unwrap_or_default();
    let chat_id = params.as_ref().and_then(|params| params.integer("chat_id"));
    let (sequence, rule) = hub.change(|state| {
        (
            state.calls.begin(method, recorded),
            state.rules.answer(method, chat_id),
        )
    });
    match &rule {
        Some(BotApiAnswer::CutBefore) => return cut(),
        Some(BotApiAnswer::HangBefore) => return hang(hub).await,
        Some(BotApiAnswer::BadGateway) => {
            hub.change(|state| state.calls.end(sequence, 502, Value::Null));
            return bad_gateway();
        }
        _ => {}
    }
    let refusal = rule.as_ref().and_then(BotApiAnswer::refusal);
    let result = match (refusal, known, params) {
        (Some(refusal), _, _) => Err(refusal),
        (None, None, _) => Err(ApiRefusal::new(404, "Not Found: method not found")),
        (None, _, None) => Err(ApiRefusal::new(413, "Request Entity Too Large")),
        (None, Some("getUpdates"), Some(params)) => get_updates(hub, &params).await,
        (None, Some(method), Some(params)) => hub.change(|state| {
            let waits = chat_id.and_then(|chat_id| state.flood.admit(method, chat_id, Instant::now()));
            match waits {
                Some(seconds) => Err(ApiRefusal::too_many(seconds)),
                None => perform(state, method, &params, unix_now()),
            }
        }),
    };
    finish(hub, sequence, method, rule, result).await
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

/// Answers a call that was carried out, or not, as the rule says.
async fn finish(
    hub: &BotApiHub,
    sequence: u64,
    method: &str,
    rule: Option<BotApiAnswer>,
    result: ApiResult,
) -> Response {
    match rule {
        Some(BotApiAnswer::CutAfter) => return cut(),
        Some(BotApiAnswer::HangAfter) => return hang(hub).await,
        Some(BotApiAnswer::Delay(delay)) => tokio::time::sleep(delay).await,
        _ => {}
    }
    let (status, recorded) = match &result {
        Ok(Value::Array(updates)) if method == "getUpdates" => {
            (200, json!({ "ok": true, "updates": updates.len() }))
        }
        Ok(value) => (200, json!({ "ok": true, "result": value })),
        Err(refusal) => (refusal.code, refusal.body()),
    };
    hub.change(|state| state.calls.end(sequence, status, recorded));
    match result {
        _ if matches!(rule, Some(BotApiAnswer::Garbage)) => Response::new(Body::from("{\"ok\":tru")),
        Ok(value) => reply(&json!({ "ok": true, "result": value })),
        Err(refusal) => refuse(&refusal),
    }
}

/// Never answers; the server's end ends it.
async fn hang(hub: &BotApiHub) -> Response {
    hub.stop.cancelled().await;
    cut()
}

fn bad_gateway() -> Response {
    let page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1>\
                </center>\r\n<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n";
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let html = HeaderValue::from_static("text/html");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

async fn download(hub: &BotApiHub, path: &str) -> Response {
    let (sequence, rule) = hub.change(|state| {
        let shown = crate::text::truncate(path, 200);
        (
            state.calls.begin("file", json!({ "file_path": shown })),
            state.rules.answer("file", None),
        )
    });
    match &rule {
        Some(BotApiAnswer::CutBefore | BotApiAnswer::CutAfter) => return cut(),
        Some(BotApiAnswer::HangBefore | BotApiAnswer::HangAfter) => return hang(hub).await,
        Some(BotApiAnswer::BadGateway) => return bad_gateway(),
        Some(BotApiAnswer::Delay(delay)) => tokio::time::sleep(*delay).await,
        _ => {}
    }
    let found = hub.lock().files.at(path).map(|file| file.bytes.clone());
    let refusal = rule.as_ref().and_then(BotApiAnswer::refusal);
    let result = match (refusal, found) {
        (Some(refusal), _) => Err(refusal),
        (None, Some(bytes)) => Ok(bytes),
        (None, None) => Err(ApiRefusal::new(404, "Not Found")),
    };
    let (status, answer) = match &result {
        Ok(bytes) => (200, json!({ "ok": true, "bytes": bytes.len() })),
        Err(refusal) => (refusal.code, refusal.body()),
    };
    hub.change(|state| state.calls.end(sequence, status, answer));
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
