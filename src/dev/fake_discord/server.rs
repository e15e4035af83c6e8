//! The server: the REST API, the gateway and the page on one port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

use super::state::FakeDiscordState;
use crate::dev::bot_api::{ApiParams, UploadedFile};
use crate::dev::http::{host_name, plain, reply};
use crate::dev::page::{self, PageDoor};
use crate::dev::socket::upgraded;
use crate::wire::is_loopback_host;

/// Bytes of the largest body.
const MAX_BODY_BYTES: usize = 27 * 1024 * 1024;
/// Files of one message.
const MAX_FILES: usize = 10;

/// What every task of one server shares.
pub struct FakeDiscordHub {
    pub(super) addr: SocketAddr,
    /// The page, once it was opened.
    pub(super) page: OnceLock<PageDoor>,
    /// Notified after every change that the page may show.
    pub(super) changed: Notify,
    /// Changes with every change, for the gateway.
    pub(super) news: watch::Sender<u64>,
    pub(super) stop: CancellationToken,
    state: Mutex<FakeDiscordState>,
}

impl FakeDiscordHub {
    pub(super) fn new(addr: SocketAddr, state: FakeDiscordState) -> Self {
        Self {
            addr,
            page: OnceLock::new(),
            changed: Notify::new(),
            news: watch::channel(0).0,
            stop: CancellationToken::new(),
            state: Mutex::new(state),
        }
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, FakeDiscordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and says so to those who wait.
    pub fn change<T>(&self, change: impl FnOnce(&mut FakeDiscordState) -> T) -> T {
        let out = change(&mut self.lock());
        self.news.send_modify(|count| *count = count.wrapping_add(1));
        self.changed.notify_waiters();
        out
    }
}

pub(super) fn router(hub: &Arc<FakeDiscordHub>) -> Router {
    Router::new()
        .merge(page::routes())
        .fallback(handle)
        .with_state(Arc::clone(hub))
}

async fn handle(State(hub): State<Arc<FakeDiscordHub>>, request: Request) -> Response {
    let [host, authorization, kind] =
        [header::HOST, header::AUTHORIZATION, header::CONTENT_TYPE].map(|name| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        });
    if !is_loopback_host(host_name(&host)) {
        return plain(StatusCode::FORBIDDEN, "the request is addressed to another host");
    }
    let path = request.uri().path().to_owned();
    if path == "/gateway" || path == "/gateway/" {
        return upgraded(request, move |socket, early| async move {
            let socket = WebSocketStream::from_partially_read(socket, early, Role::Server, None).await;
            hub.gateway(socket).await;
        });
    }
    if let Some(id) = path.strip_prefix("/attachments/") {
        return attachment(&hub, id.split('/').next().unwrap_or_default());
    }
    // The token in the path of an interaction is enough.
    let is_open = path.contains("/interactions/") || path.contains("/webhooks/");
    let expected = format!("Bot {}", hub.lock().settings.token.expose_secret());
    if !is_open && authorization != expected {
        return answer(401, &json!({ "message": "401: Unauthorized", "code": 0 }));
    }
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let path = uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str);
    let Ok(bytes) = to_bytes(request.into_body(), MAX_BODY_BYTES).await else {
        return answer(
            413,
            &json!({ "message": "Request entity too large", "code": 40_005 }),
        );
    };
    let (body, files) = if kind.starts_with("multipart/") {
        let params = ApiParams::read("", &kind, &bytes).unwrap_or_default();
        let files = (0..MAX_FILES).map_while(|number| params.file(&format!("files[{number}]")).cloned());
        (params.json("payload_json"), files.collect::<Vec<UploadedFile>>())
    } else {
        (serde_json::from_slice(&bytes).unwrap_or_default(), Vec::new())
    };
    let name = format!("{method} {}", shown(uri.path()));
    let recorded = if body.is_null() { json!({}) } else { body.clone() };
    let sequence = hub.change(|state| state.calls.begin(&name, recorded));
    let (status, result) = hub.change(|state| state.rest(method.as_str(), path, &body, files));
    hub.change(|state| state.calls.end(sequence, status, result.clone()));
    answer(status, &result)
}

/// A path as it is recorded: without the tokens of interactions.
fn shown(path: &str) -> String {
    let path = path.strip_prefix("/api/v10/").unwrap_or(path);
    let parts = path
        .split('/')
        .map(|part| if part.starts_with("token-") { "TOKEN" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

fn answer(status: u16, body: &Value) -> Response {
    let mut response = reply(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

fn attachment(hub: &FakeDiscordHub, id: &str) -> Response {
    let found = hub.lock().files.find(id).map(|file| file.bytes.clone());
    match found {
        None => plain(StatusCode::NOT_FOUND, "there is no such file"),
        Some(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let kind = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
    }
}
