//! The dial: who may have a WebSocket.
//!
//! As real connectors do, a bad token is not refused at the upgrade: the upgrade is completed and the socket
//! closed with 4401, because that is the only refusal that a gateway understands as one.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{self, Request};
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::faults::{Denial, DialRule, When};
use super::http::{bearer, plain};
use super::record::{Dial, TokenVerdict};
use super::session;
use super::state::{Hub, MAX_CONNECTIONS};
use crate::wire::UpgradeToken;

/// Answers `/relay`.
pub(super) async fn dial(extract::State(hub): extract::State<Arc<Hub>>, request: Request) -> Response {
    let shown = bearer(request.headers());
    let (token, gateway_id) = hub.verify(shown.as_deref());
    let mut headers = request.headers().clone();
    headers.remove(header::AUTHORIZATION);
    let mut dial = Dial {
        at: Instant::now(),
        gateway_id: gateway_id.clone(),
        token,
        expires_at: shown.as_deref().and_then(UpgradeToken::expiry),
        bearer: shown.map(SecretString::from),
        headers,
        answered: None,
    };
    let rule = hub.lock().faults.dial();
    let response = match rule {
        DialRule::Accept => accept(&hub, request, token, gateway_id),
        DialRule::Refuse { status, retry_after } => with(
            plain(status, "dials are refused"),
            header::RETRY_AFTER,
            retry_after.map(|secs| secs.to_string()),
        ),
        DialRule::Redirect { location } => with(
            plain(StatusCode::FOUND, "elsewhere"),
            header::LOCATION,
            Some(location),
        ),
        DialRule::Hang => {
            remember(&hub, dial);
            hub.stop.cancelled().await;
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the connector stops");
        }
    };
    dial.answered = Some(response.status());
    remember(&hub, dial);
    response
}

fn remember(hub: &Hub, dial: Dial) {
    hub.change(|state| {
        state.feed.dial(dial.token, dial.answered);
        state.log.dials.push(dial);
    });
}

fn with(mut response: Response, name: header::HeaderName, value: Option<String>) -> Response {
    if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn accept(hub: &Arc<Hub>, mut request: Request, token: TokenVerdict, gateway_id: Option<String>) -> Response {
    let key = match websocket_key(&request) {
        Ok(key) => key,
        Err(response) => return *response,
    };
    let denial = {
        let mut state = hub.lock();
        if state.connections.len() >= MAX_CONNECTIONS {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open");
        }
        match token {
            TokenVerdict::Valid => state.faults.denials.pop_front(),
            TokenVerdict::Expired => Some(denied("expired")),
            TokenVerdict::Unauthorized | TokenVerdict::Missing => Some(denied("unauthorized")),
        }
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let task = Arc::clone(hub);
    hub.runtime.spawn(async move {
        let Ok(upgraded) = upgrade.await else {
            return;
        };
        if let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() {
            let early = parts.read_buf.to_vec();
            session::serve(task, parts.io.into_inner(), early, gateway_id, denial).await;
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
        .body(Body::empty())
        .expect("the headers are ASCII")
}

fn denied(reason: &str) -> Denial {
    Denial {
        when: When::AtOnce,
        reason: reason.to_owned(),
    }
}

fn websocket_key(request: &Request) -> Result<HeaderValue, Box<Response>> {
    let headers = request.headers();
    let lists = |name: header::HeaderName, wanted: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(wanted))
    };
    let refuse = |status, why| Err(Box::new(plain(status, why)));
    if request.method() != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "dial with GET");
    }
    if !lists(header::CONNECTION, "upgrade") || !lists(header::UPGRADE, "websocket") {
        return refuse(StatusCode::UPGRADE_REQUIRED, "this is a WebSocket endpoint");
    }
    if !lists(header::SEC_WEBSOCKET_VERSION, "13") {
        return refuse(
            StatusCode::UPGRADE_REQUIRED,
            "WebSocket version 13 is spoken here",
        );
    }
    match headers.get(header::SEC_WEBSOCKET_KEY) {
        Some(key) => Ok(key.clone()),
        None => refuse(StatusCode::BAD_REQUEST, "there is no Sec-WebSocket-Key"),
    }
}
