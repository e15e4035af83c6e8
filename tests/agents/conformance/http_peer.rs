//! What the scripted peers behind HTTP share: a server on loopback, bodies that come in pieces, and what is said.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::Response;
use serde_json::Value;
use tokio::sync::mpsc;

use hermes_relay::net::agent_http::HttpEgress;
use hermes_relay::net::proxy::ProxyRules;
use hermes_relay::net::tls::{Tls, TlsSettings};

use crate::conformance::suite::{Act, WORD};

/// One request.
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// Where the pieces of a body go; dropping it ends the body.
pub(crate) type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Serves until the test's runtime ends.
pub(crate) async fn serve<F, R>(answer: F) -> SocketAddr
where
    F: Fn(Asked) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback(move |request: Request| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, 8 << 20).await.unwrap();
            let asked = Asked {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            Ok::<_, Infallible>(answer(asked).await)
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub(crate) fn json(status: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// A stream of events, and where its pieces go.
pub(crate) fn events() -> (Pieces, Response<Body>) {
    let (sender, receiver) = mpsc::channel(16);
    let pieces = futures_util::stream::unfold(receiver, async |mut receiver: mpsc::Receiver<_>| {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let response = Response::builder()
        .header("content-type", "text/event-stream")
        .body(Body::from_stream(pieces))
        .unwrap();
    (sender, response)
}

/// Sends one event; a client that has gone does not mind.
pub(crate) async fn send(pieces: &Pieces, data: &str) {
    let _ = pieces.send(Ok(format!("data: {data}\n\n").into())).await;
}

/// Sends one event byte by byte, so that every character is cut.
pub(crate) async fn send_cut(pieces: &Pieces, data: &str) {
    for byte in format!("data: {data}\n\n").bytes() {
        let _ = pieces.send(Ok(Bytes::from(vec![byte]))).await;
    }
}

/// Sends an event that does not end, until it is not wanted any more.
pub(crate) async fn send_endless(pieces: &Pieces) {
    let _ = pieces.send(Ok("data: ".into())).await;
    while pieces.send(Ok("x".repeat(64 * 1024).into())).await.is_ok() {}
}

/// Sends bytes that are no text: in a comment, and in place of `?` in an event.
pub(crate) async fn send_garbled(pieces: &Pieces, data: &str) {
    let mut bytes = b": \xff\xc3\n\ndata: ".to_vec();
    bytes.extend(data.bytes().map(|byte| if byte == b'?' { 0xfe } else { byte }));
    bytes.extend(b"\n\n");
    let _ = pieces.send(Ok(bytes.into())).await;
}

/// Breaks the connection, when what was sent before has gone out: a server drops what it still holds.
pub(crate) async fn cut(pieces: Pieces) {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let _ = pieces.send(Err(io::Error::other("cut"))).await;
}

/// The message that brings a peer behind HTTP to do something.
pub(crate) fn word(act: Act) -> Option<String> {
    Some(match act {
        Act::Remember => format!("remember {WORD}"),
        Act::Flood | Act::Orphan | Act::Close | Act::Daemon => return None,
        act => format!("{act:?}").to_ascii_lowercase(),
    })
}

/// What the last message wants: a message that got no answer is told together with the next.
pub(crate) fn wanted(message: &str) -> String {
    message.rsplit("\n\n").next().unwrap_or_default().to_owned()
}

/// What was to be remembered, in a list of messages.
pub(crate) fn remembered(messages: &Value) -> String {
    let told = messages.as_array().into_iter().flatten();
    let mut told = told.filter_map(|message| message["content"].as_str());
    told.find_map(|text| text.split("remember ").nth(1))
        .unwrap_or("nothing")
        .to_owned()
}

pub(crate) fn egress() -> HttpEgress {
    HttpEgress {
        tls: Tls::new(TlsSettings::default()),
        proxies: ProxyRules::none(),
        user_agent: "hermes-relay/test".to_owned(),
    }
}
