//! What an embedder can do with the public names alone.

mod adapter;
mod own_transport;
mod steering;

#[path = "../../examples/dial.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod dial;
#[path = "../../examples/embed.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod embed;

use std::time::Duration;

use hermes_relay::{ExitReason, MemoryTransport, NotRunning, Relay, Settings};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A message in a direct chat.
fn message(id: &str, text: &str) -> Value {
    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"});
    json!({"text": text, "message_id": id, "source": source})
}

#[tokio::test]
async fn an_agent_shows_its_work_asks_and_sends_a_picture() {
    let (seen, status) = embed::converse().await.unwrap();
    let ops: Vec<(&str, &Value)> = (seen.ops.iter())
        .filter_map(|op| Some((op.kind()?, &op.action)))
        .collect();
    let all = |kind: &'static str| {
        ops.iter()
            .filter(move |(of, _)| *of == kind)
            .map(|(_, action)| *action)
    };
    let texts: Vec<&str> = seen.texts("c1");
    assert!(
        texts.iter().any(|text| text.contains("cargo build --release")),
        "the tool call: {texts:?}"
    );
    assert!(
        texts
            .iter()
            .any(|text| text.contains("Build") && text.contains("Publish")),
        "the plan: {texts:?}"
    );
    let prompt = all("prompt").next().expect("the question");
    assert!(
        prompt["content"].as_str().unwrap().contains("Where to?"),
        "{prompt}"
    );
    let labels: Vec<&Value> = (prompt["options"].as_array().unwrap().iter())
        .map(|option| &option["label"])
        .collect();
    assert_eq!(labels, ["Staging", "Production", "Nowhere"]);
    let picture = all("send_media").next().expect("the picture");
    assert_eq!(picture["source_url"], "https://charts.example/requests.png");
    assert_eq!(picture["content"], "Requests per minute");
    assert!(texts.contains(&"Published 1.4.0 to production."), "{texts:?}");
    assert_eq!((status.tally.input_tokens, status.tally.output_tokens), (120, 30));
    assert_eq!(seen.acks, ["b1", "b2"]);
}

#[tokio::test]
async fn a_relay_dials_the_url_of_its_settings() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/relay", listener.local_addr().unwrap());
    let state = tempfile::tempdir().unwrap();
    let dialled = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = socket.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
        assert!(
            request.starts_with("get /relay") && request.contains("upgrade: websocket"),
            "{request}"
        );
    };
    let serving = dial::serve(&url, state.path(), dialled);
    let ended = tokio::time::timeout(SOON, serving).await.unwrap().unwrap();
    assert_eq!(ended, ExitReason::Shutdown);
}

#[tokio::test]
async fn a_relay_that_has_ended_says_so_with_one_error() {
    let state = tempfile::tempdir().unwrap();
    let (transport, _connector) = MemoryTransport::pair([]);
    let relay = Relay::builder(Settings::embedded(state.path()))
        .transport(std::sync::Arc::new(transport))
        .build()
        .unwrap();
    let handle = relay.handle();
    relay.run(std::future::ready(())).await;
    assert_eq!(handle.status().await.err(), Some(NotRunning));
    assert_eq!(handle.wake().await, Err(NotRunning));
    assert_eq!(handle.send("c1", "hello?").await, Err(NotRunning.into()));
}
