//! The bare client that the relay is measured against: parses, acknowledges, echoes, and keeps nothing.
//!
//! It is what the WebSocket and JSON crates cost by themselves; nothing that connects to a connector the same way can
//! be much faster. It writes a file only where it is told to sync.

use std::fs::File;
use std::io::Write as _;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

/// What the client does with a message besides acknowledging it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Echo,
    Noop,
    /// Appends 4 KiB to a file in its directory, and waits for the disk, before it acknowledges what came together.
    Sync,
}

#[derive(Serialize)]
struct Ack<'a> {
    r#type: &'static str,
    #[serde(rename = "bufferId")]
    buffer_id: &'a str,
}

#[derive(Serialize)]
struct Outbound<'a> {
    r#type: &'static str,
    #[serde(rename = "requestId")]
    request_id: String,
    action: Send<'a>,
    platform: &'static str,
}

#[derive(Serialize)]
struct Send<'a> {
    op: &'static str,
    chat_id: &'a str,
    content: String,
    reply_to: &'a str,
    metadata: serde_json::Map<String, Value>,
}

/// Runs until the connector closes. `address` is `host:port`.
pub(crate) fn run(address: &str, mode: &str) {
    let mode = match mode {
        "echo" => Mode::Echo,
        "sync" => Mode::Sync,
        _ => Mode::Noop,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(address, mode));
}

async fn serve(address: &str, mode: Mode) {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let url = format!("ws://{address}/relay");
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let hello = "{\"type\":\"hello\",\"platform\":\"discord\",\"botId\":\"bot\"}\n";
    socket.send(Message::text(hello)).await.unwrap();
    let mut requests = 0u128;
    let mut file = (mode == Mode::Sync).then(|| File::create("synced").unwrap());
    while let Some(Ok(first)) = socket.next().await {
        let mut next = Some(first);
        while let Some(message) = next {
            if let Message::Text(text) = message {
                let frame: Value = serde_json::from_str(&text).unwrap();
                for answer in answers(&frame, mode, &mut requests) {
                    socket.feed(Message::text(answer)).await.unwrap();
                }
            }
            next = match socket.next().now_or_never() {
                Some(Some(Ok(message))) => Some(message),
                Some(_) => return,
                None => None,
            };
        }
        if let Some(file) = &mut file {
            append_synced(file);
        }
        socket.flush().await.unwrap();
    }
}

/// Appends 4 KiB, and waits for the disk.
pub(crate) fn append_synced(file: &mut File) {
    file.write_all(&[0x5a; 4096]).unwrap();
    file.sync_data().unwrap();
}

fn answers(frame: &Value, mode: Mode, requests: &mut u128) -> impl Iterator<Item = String> + use<> {
    let line = |answer: String| answer + "\n";
    let (mut ack, mut reply) = (None, None);
    if frame["type"] == "inbound" {
        let event = &frame["event"];
        ack = frame["bufferId"].as_str().map(|buffer_id| {
            let ack = Ack {
                r#type: "inbound_ack",
                buffer_id,
            };
            line(serde_json::to_string(&ack).unwrap())
        });
        if mode == Mode::Echo {
            *requests += 1;
            let outbound = Outbound {
                r#type: "outbound",
                request_id: format!("{requests:032x}"),
                action: Send {
                    op: "send",
                    chat_id: event["source"]["chat_id"].as_str().unwrap_or_default(),
                    content: format!("echo: {}", event["text"].as_str().unwrap_or_default()),
                    reply_to: event["message_id"].as_str().unwrap_or_default(),
                    metadata: serde_json::Map::new(),
                },
                platform: "discord",
            };
            reply = Some(line(serde_json::to_string(&outbound).unwrap()));
        }
    }
    ack.into_iter().chain(reply)
}
