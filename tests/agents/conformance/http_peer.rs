//! What the scripted peers behind HTTP share: a server on loopback, bodies that come in pieces, and what is said.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::Response;
use serde_json::Value;

use crate::conformance::suite::{Act, WORD};
pub(crate) use crate::support::http_stub::egress;
use crate::support::http_stub::{Pieces, streamed_reply};

/// A stream of events, and where its pieces go.
pub(crate) fn events() -> (Pieces, Response<Body>) {
    streamed_reply(200, "text/event-stream")
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
    let contents = messages.as_array().into_iter().flatten();
    let mut contents = contents.filter_map(|message| message["content"].as_str());
    contents
        .find_map(|text| text.split("remember ").nth(1))
        .unwrap_or("nothing")
        .to_owned()
}
