//! WebSocket connections: who may have one, and serving it to its end.
//!
//! As real connectors do, a bad token is not refused at the upgrade: the upgrade is completed and the socket
//! closed with 4401, because that is the only refusal that a gateway understands as one.
//!
//! Reading and writing run side by side, so that a gateway which does not read is still read from. Whatever is ready
//! is handled together: one lock for many frames, one flush for many messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{self, Request};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, Method, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::gateway_frames::{ReceivedFrame, SocketEvent};
use super::http::{bearer, plain};
use super::record::{Closed, ClosedBy, TokenCheck};
use super::state::{Hub, MAX_CONNECTIONS, MAX_OUTGOING, SocketEnd, SocketHandle};
use crate::wire::{Line, LineFramer, close_code};

/// Answers `/relay`.
pub(super) async fn dial(extract::State(hub): extract::State<Arc<Hub>>, request: Request) -> Response {
    let (token, gateway_id) = hub.verify(bearer(request.headers()).as_deref());
    let response = if hub.change(|state| state.faults.refuse_dial()) {
        plain(StatusCode::SERVICE_UNAVAILABLE, "dials are refused")
    } else {
        accept(&hub, request, token, gateway_id)
    };
    hub.change(|state| state.feed.dial(token, response.status()));
    response
}

fn accept(hub: &Arc<Hub>, mut request: Request, token: TokenCheck, gateway_id: Option<String>) -> Response {
    let key = match websocket_key(&request) {
        Ok(key) => key,
        Err(response) => return *response,
    };
    if hub.lock().connections.len() >= MAX_CONNECTIONS {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many connections are open");
    }
    let denial = match token {
        TokenCheck::Valid => None,
        TokenCheck::Expired => Some("expired".to_owned()),
        TokenCheck::Unauthorized | TokenCheck::Missing => Some("unauthorized".to_owned()),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let task = Arc::clone(hub);
    hub.runtime.spawn(async move {
        if let Some((socket, early)) = taken_over(upgrade).await {
            serve(task, socket, early, gateway_id, denial).await;
        }
    });
    switching(&key)
}

/// Answers a request with a WebSocket, and serves that: the socket, and what was read from it already.
pub(super) fn upgraded<F>(
    mut request: Request,
    run: impl FnOnce(TcpStream, Vec<u8>) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let key = match websocket_key(&request) {
        Ok(key) => key,
        Err(response) => return *response,
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Some((socket, early)) = taken_over(upgrade).await {
            run(socket, early).await;
        }
    });
    switching(&key)
}

async fn taken_over(upgrade: hyper::upgrade::OnUpgrade) -> Option<(TcpStream, Vec<u8>)> {
    let parts = upgrade.await.ok()?.downcast::<TokioIo<TcpStream>>().ok()?;
    Some((parts.io.into_inner(), parts.read_buf.to_vec()))
}

fn switching(key: &HeaderValue) -> Response {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
        .body(Body::empty())
        .expect("the headers are ASCII")
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
            "only WebSocket version 13 is supported",
        );
    }
    match headers.get(header::SEC_WEBSOCKET_KEY) {
        Some(key) => Ok(key.clone()),
        None => refuse(StatusCode::BAD_REQUEST, "there is no Sec-WebSocket-Key"),
    }
}

type Socket = WebSocketStream<TcpStream>;

const READ_BATCH: usize = 256;
const WRITE_BATCH: usize = 1_024;
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ended.
enum Disconnect {
    Requested(SocketEnd),
    ByGateway(Option<CloseFrame>),
    Lost,
    Stopped,
}

/// Serves one accepted socket to its end.
pub(super) async fn serve(
    hub: Arc<Hub>,
    socket: TcpStream,
    early: Vec<u8>,
    gateway_id: Option<String>,
    denial: Option<String>,
) {
    let limit = hub.settings.max_message_bytes;
    let config = WebSocketConfig::default()
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let socket = Socket::from_partially_read(socket, early, Role::Server, Some(config)).await;
    let handle = hub.change(|state| state.open_connection(gateway_id, denial));
    let (mut sink, mut stream) = socket.split();
    let mut ending = handle.ending.clone();
    let end = tokio::select! {
        biased;
        () = hub.stop.cancelled() => Disconnect::Stopped,
        requested = ending.wait_for(Option::is_some) => {
            let requested = requested.ok().and_then(|end| end.clone());
            Disconnect::Requested(requested.unwrap_or(SocketEnd::Abort))
        }
        end = read(&hub, &handle, &mut stream) => end,
        end = write(&hub, &handle, &mut sink) => end,
    };
    if let Ok(socket) = sink.reunite(stream) {
        finish(&hub, &handle, socket, end).await;
    }
}

async fn finish(hub: &Hub, handle: &SocketHandle, mut socket: Socket, end: Disconnect) {
    let (by, code, reason) = match &end {
        Disconnect::Requested(SocketEnd::Close { code, reason }) => {
            (ClosedBy::Connector, Some(*code), reason.clone())
        }
        Disconnect::ByGateway(frame) => (
            ClosedBy::Gateway,
            frame.as_ref().map(|frame| frame.code.into()),
            frame
                .as_ref()
                .map(|frame| frame.reason.as_str().to_owned())
                .unwrap_or_default(),
        ),
        Disconnect::Requested(SocketEnd::Abort) | Disconnect::Lost | Disconnect::Stopped => {
            (ClosedBy::Nobody, None, String::new())
        }
    };
    let queued = hub.change(|state| {
        state.on(handle.id, SocketEvent::Closed(Closed { by, code, reason }));
        state.close_connection(handle.id)
    });
    let closing = async {
        match end {
            Disconnect::Requested(SocketEnd::Close { code, reason }) => {
                for message in queued {
                    if socket.feed(message).await.is_err() {
                        return;
                    }
                }
                let frame = CloseFrame {
                    code: CloseCode::from(code),
                    reason: reason.into(),
                };
                if socket.close(Some(frame)).await.is_ok() {
                    while let Some(Ok(_)) = socket.next().await {}
                }
            }
            Disconnect::ByGateway(_) => while let Some(Ok(_)) = socket.next().await {},
            Disconnect::Requested(SocketEnd::Abort) => {
                // Without lingering, the close is a reset, as when a machine or a middlebox dies.
                let _ = socket.get_ref().set_zero_linger();
            }
            Disconnect::Lost | Disconnect::Stopped => {}
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

async fn read(hub: &Hub, handle: &SocketHandle, stream: &mut SplitStream<Socket>) -> Disconnect {
    let mut framer = LineFramer::new(hub.settings.max_message_bytes);
    let mut messages = stream.ready_chunks(READ_BATCH);
    loop {
        wait_for_room(hub, handle).await;
        let Some(ready) = messages.next().await else {
            return Disconnect::Lost;
        };
        let mut received = Vec::with_capacity(ready.len());
        let mut end = None;
        for message in ready {
            let mut feed = |bytes: &[u8]| {
                framer.feed(bytes, |line| match line {
                    Line::Whole(line) => received.push(ReceivedFrame::read(line)),
                    Line::TooLong { .. } => received.push(ReceivedFrame::too_long()),
                });
            };
            match message {
                Ok(Message::Text(text)) => feed(text.as_bytes()),
                Ok(Message::Binary(bytes)) => feed(&bytes),
                Ok(Message::Close(frame)) => end = Some(Disconnect::ByGateway(frame)),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(error) => {
                    end.get_or_insert(after_error(&error));
                }
            }
        }
        hub.change(|state| state.handle_frames(handle.id, received));
        handle.wake.notify_one();
        if let Some(end) = end {
            return end;
        }
    }
}

/// Waits until the queue of outgoing messages has room.
async fn wait_for_room(hub: &Hub, handle: &SocketHandle) {
    loop {
        let changed = hub.changed.notified();
        let queued = hub
            .lock()
            .connections
            .get(&handle.id)
            .map_or(0, |live| live.outgoing.len());
        if queued < MAX_OUTGOING {
            return;
        }
        changed.await;
    }
}

fn after_error(error: &Error) -> Disconnect {
    match error {
        Error::Capacity(_) => Disconnect::Requested(SocketEnd::Close {
            code: close_code::TOO_LARGE,
            reason: "message too big".to_owned(),
        }),
        _ => Disconnect::Lost,
    }
}

async fn write(hub: &Hub, handle: &SocketHandle, sink: &mut SplitSink<Socket, Message>) -> Disconnect {
    let quiet = hub.settings.ping_interval.filter(|every| !every.is_zero());
    let every = quiet.unwrap_or(Duration::from_secs(3_600));
    let mut ping = interval_at(tokio::time::Instant::now() + every, every);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (batch, next_due) = hub.change(|state| state.outgoing(handle.id, WRITE_BATCH));
        if batch.is_empty() {
            tokio::select! {
                biased;
                () = handle.wake.notified() => {}
                () = until(next_due) => {}
                _ = ping.tick(), if quiet.is_some() => {
                    if silent_for(hub, handle) > every * 2 {
                        return Disconnect::Requested(SocketEnd::Close {
                            code: close_code::SILENT,
                            reason: "keepalive ping timeout".to_owned(),
                        });
                    }
                    if sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                        return Disconnect::Lost;
                    }
                }
            }
            continue;
        }
        for message in batch {
            if sink.feed(message).await.is_err() {
                return Disconnect::Lost;
            }
        }
        if sink.flush().await.is_err() {
            return Disconnect::Lost;
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn silent_for(hub: &Hub, handle: &SocketHandle) -> Duration {
    let state = hub.lock();
    let live = state.connections.get(&handle.id);
    live.map(|live| live.last_read.elapsed()).unwrap_or_default()
}
