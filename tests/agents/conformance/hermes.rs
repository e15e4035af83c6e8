//! Hermes in `mode: runs`. Its peer is a server that plays the gateway.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Response;
use hermes_relay::agent::{Agent, HermesAgent, HermesSettings};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::conformance::http_peer::{
    cut, egress, events, remembered, send, send_cut, send_endless, send_garbled, wanted, word,
};
use crate::conformance::suite::{Act, CUT, Fixture, MUCH, conform};
use crate::support::http_stub::{Pieces, Seen, json_reply as reply, serve};

#[derive(Default)]
struct Gateway {
    broken: AtomicBool,
    runs: Mutex<HashMap<String, Arc<Run>>>,
}

struct Run {
    body: Value,
    stop: CancellationToken,
    choices: mpsc::Sender<String>,
    chosen: Mutex<Option<mpsc::Receiver<String>>>,
}

struct HermesFixture {
    address: SocketAddr,
    gateway: Arc<Gateway>,
}

impl HermesFixture {
    async fn start() -> Self {
        let gateway = Arc::new(Gateway::default());
        let state = Arc::clone(&gateway);
        let address = serve("127.0.0.1:0", move |asked| answer(Arc::clone(&state), asked)).await;
        Self { address, gateway }
    }
}

impl Fixture for HermesFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        let settings = HermesSettings {
            base_url: format!("http://{}", self.address),
            busy_wait_secs: 0,
            stop_grace_secs: 3,
            ..HermesSettings::default()
        };
        let key = SecretString::from("0123456789abcdef");
        Arc::new(HermesAgent::new(settings, Some(key), &egress()).unwrap())
    }

    fn text(&self, act: Act) -> Option<String> {
        word(act)
    }

    fn silence(&self) -> &'static str {
        "(no reply)"
    }

    fn break_down(&self, broken: bool) -> bool {
        self.gateway.broken.store(broken, Ordering::Relaxed);
        true
    }
}

async fn answer(gateway: Arc<Gateway>, asked: Seen) -> Response<Body> {
    if gateway.broken.load(Ordering::Relaxed) {
        return reply(503, &json!({"error": {"code": "gateway_draining"}}));
    }
    let parts: Vec<&str> = asked.path().trim_start_matches('/').split('/').collect();
    match (asked.method.as_str(), parts.as_slice()) {
        ("GET", ["health"] | ["v1", "capabilities"]) => reply(200, &json!({"status": "ok"})),
        ("POST", ["v1", "runs"]) => {
            let (choices, chosen) = mpsc::channel(1);
            let run = Arc::new(Run {
                body: asked.json(),
                stop: CancellationToken::new(),
                choices,
                chosen: Mutex::new(Some(chosen)),
            });
            let mut runs = gateway.runs.lock().unwrap();
            let id = format!("run_{}", runs.len());
            runs.insert(id.clone(), run);
            reply(202, &json!({"run_id": id, "status": "started"}))
        }
        (method, ["v1", "runs", id, rest @ ..]) => {
            let run = gateway.runs.lock().unwrap().get(*id).cloned();
            match run {
                Some(run) => control(run, method, rest, &asked.json()).await,
                None => reply(404, &json!({"error": {"code": "run_not_found"}})),
            }
        }
        (method, path) => panic!("{method} {path:?}"),
    }
}

async fn control(run: Arc<Run>, method: &str, what: &[&str], body: &Value) -> Response<Body> {
    match (method, what) {
        ("GET", ["events"]) => {
            let (pieces, response) = events();
            tokio::spawn(play(run, pieces));
            response
        }
        ("POST", ["stop"]) => {
            run.stop.cancel();
            reply(200, &json!({"status": "stopping"}))
        }
        ("POST", ["approval"]) => {
            let choice = body["choice"].as_str().unwrap().to_owned();
            run.choices.send(choice).await.unwrap();
            reply(200, &json!({"resolved": 1}))
        }
        ("GET", []) => match run.wanted().as_str() {
            "crash" => reply(404, &json!({"error": {"code": "run_not_found"}})),
            _ if run.stop.is_cancelled() => reply(200, &json!({"status": "cancelled"})),
            "endless" => reply(200, &json!({"status": "completed", "output": "enough"})),
            "ask" => reply(200, &json!({"status": "waiting_for_approval"})),
            _ => reply(200, &json!({"status": "running"})),
        },
        (method, what) => panic!("{method} {what:?}"),
    }
}

impl Run {
    fn wanted(&self) -> String {
        wanted(self.body["input"].as_str().unwrap())
    }
}

fn delta(text: &str) -> String {
    json!({"event": "message.delta", "delta": text}).to_string()
}

async fn play(run: Arc<Run>, pieces: Pieces) {
    let mut output = String::new();
    match run.wanted().as_str() {
        "say" => {
            for text in ["one ", "two ", "three"] {
                output.push_str(text);
                send(&pieces, &delta(text)).await;
            }
        }
        "much" => {
            for _ in 0..MUCH / 1000 {
                send(&pieces, &delta(&"x".repeat(1000))).await;
            }
            output = "x".repeat(MUCH);
        }
        "cut" => {
            CUT.clone_into(&mut output);
            send_cut(&pieces, &delta(CUT)).await;
        }
        "endless" => return send_endless(&pieces).await,
        "garbled" => {
            "\u{fffd} survived".clone_into(&mut output);
            send_garbled(&pieces, &delta("? survived")).await;
        }
        "hang" => return stopped(&run, &pieces).await,
        "speakandhang" => {
            send(&pieces, &delta("one")).await;
            return stopped(&run, &pieces).await;
        }
        "deaf" => {
            send(&pieces, &delta("one")).await;
            return std::future::pending().await;
        }
        "ask" => {
            let request =
                json!({"event": "approval.request", "command": "rm -r x", "description": "deletes"});
            send(&pieces, &request.to_string()).await;
            let mut chosen = run.chosen.lock().unwrap().take().unwrap();
            let choice = tokio::select! {
                () = run.stop.cancelled() => return stopped(&run, &pieces).await,
                choice = chosen.recv() => choice.unwrap(),
            };
            let responded = json!({"event": "approval.responded", "choice": choice});
            send(&pieces, &responded.to_string()).await;
            output = format!("chosen {choice}");
        }
        "crash" => {
            send(&pieces, &delta("half")).await;
            return cut(pieces).await;
        }
        "fail" => return send(&pieces, r#"{"event":"run.failed","error":"it does not work"}"#).await,
        note if note.starts_with("remember") => "noted".clone_into(&mut output),
        "recall" => output = remembered(&run.body["conversation_history"]),
        _ => {}
    }
    let completed = json!({"event": "run.completed", "output": output});
    send(&pieces, &completed.to_string()).await;
}

async fn stopped(run: &Run, pieces: &Pieces) {
    run.stop.cancelled().await;
    send(pieces, r#"{"event":"run.cancelled"}"#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hermes_runs_conform() {
    let not_applicable = [
        "survives_a_flood_of_log",
        "does_not_wait_for_what_was_left_behind",
        "does_not_wait_for_a_daemon",
        "does_not_wait_for_one_that_closed_its_output",
    ];
    conform("hermes", &HermesFixture::start().await, &not_applicable).await;
}
