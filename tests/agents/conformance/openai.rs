//! A model behind an OpenAI-style address. Its peer is a server that plays the model.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::http::Response;
use hermes_relay::agent::{Agent, OpenAiAgent, OpenAiSettings};
use serde_json::json;

use crate::conformance::http_peer::{
    cut, egress, events, remembered, send, send_cut, send_endless, send_garbled, wanted, word,
};
use crate::conformance::suite::{Act, CUT, Fixture, MUCH, conform};
use crate::support::http_stub::{Pieces, Seen, json_reply as reply, serve};

struct OpenAiFixture {
    address: SocketAddr,
    broken: Arc<AtomicBool>,
}

impl OpenAiFixture {
    async fn start() -> Self {
        let broken = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&broken);
        let address = serve("127.0.0.1:0", move |asked| {
            std::future::ready(answer(asked, state.load(Ordering::Relaxed)))
        })
        .await;
        Self { address, broken }
    }
}

impl Fixture for OpenAiFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        let settings = OpenAiSettings {
            base_url: format!("http://{}/v1", self.address),
            model: "peer".to_owned(),
            retries: 0,
            ..OpenAiSettings::default()
        };
        Arc::new(OpenAiAgent::new(settings, None, &egress()).unwrap())
    }

    fn text(&self, act: Act) -> Option<String> {
        word(act).filter(|_| act != Act::Ask)
    }

    fn silence(&self) -> &'static str {
        "(no reply)"
    }

    fn break_down(&self, broken: bool) -> bool {
        self.broken.store(broken, Ordering::Relaxed);
        true
    }
}

fn answer(asked: Seen, broken: bool) -> Response<Body> {
    if broken {
        return reply(503, &json!({"error": "loading"}));
    }
    if asked.path() == "/v1/models" {
        return reply(200, &json!({"data": [{"id": "peer"}]}));
    }
    assert_eq!(
        (asked.method.as_str(), asked.path()),
        ("POST", "/v1/chat/completions")
    );
    let (pieces, response) = events();
    tokio::spawn(play(asked, pieces));
    response
}

fn delta(text: &str) -> String {
    json!({"choices": [{"delta": {"role": "assistant", "content": text}}]}).to_string()
}

async fn play(asked: Seen, pieces: Pieces) {
    let body = asked.json();
    let messages = &body["messages"];
    let last = messages.as_array().and_then(|all| all.last()).unwrap();
    let wanted = wanted(last["content"].as_str().unwrap());
    match wanted.as_str() {
        "say" => {
            for text in ["one ", "two ", "three"] {
                send(&pieces, &delta(text)).await;
            }
        }
        "much" => {
            for _ in 0..MUCH / 1000 {
                send(&pieces, &delta(&"x".repeat(1000))).await;
            }
        }
        "cut" => send_cut(&pieces, &delta(CUT)).await,
        "endless" => return send_endless(&pieces).await,
        "garbled" => send_garbled(&pieces, &delta("? survived")).await,
        "hang" => return pieces.closed().await,
        "speakandhang" => {
            send(&pieces, &delta("one")).await;
            return pieces.closed().await;
        }
        "deaf" => {
            send(&pieces, &delta("one")).await;
            return std::future::pending().await;
        }
        "crash" => {
            send(&pieces, &delta("half")).await;
            return cut(pieces).await;
        }
        "fail" => return send(&pieces, r#"{"error":{"message":"it does not work"}}"#).await,
        note if note.starts_with("remember") => send(&pieces, &delta("noted")).await,
        "recall" => send(&pieces, &delta(&remembered(messages))).await,
        _ => {}
    }
    send(&pieces, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#).await;
    send(&pieces, "[DONE]").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_openai_style_model_conforms() {
    let not_applicable = [
        "takes_an_answer",
        "takes_a_refusal",
        "takes_a_late_answer",
        "goes_on_when_nobody_answers",
        "survives_a_flood_of_log",
        "does_not_wait_for_what_was_left_behind",
        "does_not_wait_for_a_daemon",
        "does_not_wait_for_one_that_closed_its_output",
        "stops_while_it_asks",
    ];
    conform("openai", &OpenAiFixture::start().await, &not_applicable).await;
}
