//! The real binary against the embedded connector: a button and a word, from end to end.

use crate::support::dev::{Connector, ConnectorSettings, PlatformPreset, SentMessage, text_event};
use crate::support::http_stub::{Pieces, Seen, Stub, json_reply, streamed_reply};
use crate::support::relay_process::{SOON, Setup};
use crate::support::wait::eventually;
use hermes_relay::wire::Action;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn a_pressed_button_and_typed_text_answer_the_question() {
    let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
    connector.set_descriptor("discord", PlatformPreset::Discord.wire("discord"));
    let relay = Setup::for_connector(&connector).start();
    connector.wait_connected(SOON).await.unwrap();
    for (chat, button) in [("c1", true), ("c2", false)] {
        let event = text_event("discord", chat, &format!("ask-{chat}"), "ask hi");
        connector.deliver(&event).unwrap();
        let question = connector
            .wait_for_sent("a question", SOON, |sent| {
                sent.op == "prompt" && sent.chat_id == chat
            })
            .await
            .unwrap();
        let Action::Prompt { prompt_id, .. } = &question.action else {
            panic!("{question:?}");
        };
        if button {
            connector.press(prompt_id, "o0").expect("a button").unwrap();
        } else {
            let mut typed = text_event("discord", chat, "typed", "/approve");
            typed["reply_to_message_id"] = question.message_id.clone().into();
            connector.deliver(&typed).unwrap();
        }
        connector
            .wait_for_sent("the answer", SOON, |sent| {
                sent.chat_id == chat && sent.text == "echo: allowed once hi"
            })
            .await
            .unwrap();
        connector
            .wait_for_sent("what was decided", SOON, |sent| {
                sent.message_id == question.message_id && sent.text.contains("✅")
            })
            .await
            .unwrap();
    }
    relay.stop().await;
}

/// A Hermes with one run, which waits for an approval whoever watches it.
struct Hermes {
    stub: Stub,
    run: Arc<Mutex<HermesRun>>,
}

#[derive(Default)]
struct HermesRun {
    /// Its stream, which is read once.
    events: Option<Pieces>,
    approvals: Vec<Value>,
    is_forgotten: bool,
}

impl Hermes {
    async fn start() -> Self {
        let run = Arc::new(Mutex::new(HermesRun::default()));
        let state = Arc::clone(&run);
        let stub = Stub::start(move |asked| {
            let mut run = state.lock().unwrap();
            match (asked.method.as_str(), asked.path()) {
                ("POST", "/v1/runs") => json_reply(202, &json!({"run_id": "run_1", "status": "started"})),
                ("GET", "/v1/runs/run_1/events") if run.events.is_none() => {
                    let (pieces, reply) = streamed_reply(200, "text/event-stream");
                    for event in [
                        json!({"event": "message.delta", "delta": "Let me see.", "timestamp": 99.5}),
                        json!({"event": "approval.request", "command": "rm -r a", "timestamp": 100.0}),
                    ] {
                        pieces.try_send(Ok(format!("data: {event}\n\n").into())).unwrap();
                    }
                    run.events = Some(pieces);
                    reply
                }
                ("GET", "/v1/runs/run_1") if !run.is_forgotten => json_reply(
                    200,
                    &match run.approvals.len() {
                        0 => json!({"status": "waiting_for_approval", "updated_at": 100.0}),
                        _ => json!({"status": "completed", "output": "Cleaned.", "updated_at": 200.0}),
                    },
                ),
                ("POST", "/v1/runs/run_1/approval") => {
                    run.approvals.push(asked.json());
                    json_reply(200, &json!({"resolved": 1}))
                }
                _ => json_reply(404, &json!({"error": "not found"})),
            }
        });
        Self {
            stub: stub.await,
            run,
        }
    }

    /// How often this was asked.
    fn asked(&self, method: &str, path: &str) -> usize {
        let seen = self.stub.seen();
        let is_meant = |asked: &&Seen| asked.method == method && asked.path() == path;
        seen.iter().filter(is_meant).count()
    }
}

#[tokio::test]
async fn a_killed_relay_goes_on_with_the_run_of_hermes_that_waits() {
    for is_forgotten in [false, true] {
        let hermes = Hermes::start().await;
        let connector = Connector::start(ConnectorSettings::default()).await.unwrap();
        connector.set_descriptor("discord", PlatformPreset::Discord.wire("discord"));
        let agent = format!("{{kind: hermes, base_url: \"{}\"}}", hermes.stub.base());
        let setup = Setup::for_connector(&connector)
            .args(&["run", "--agent", "gateway"])
            .env("API_SERVER_KEY", "a key that is long enough")
            .setting("agents.gateway", &agent);
        let mut relay = setup.start();
        connector.wait_connected(SOON).await.unwrap();
        connector
            .deliver(&text_event("discord", "c1", "m1", "clean up"))
            .unwrap();
        let is_question = |sent: &SentMessage| sent.op == "prompt";
        let question = connector
            .wait_for_sent("a question", SOON, is_question)
            .await
            .unwrap();
        let Action::Prompt { prompt_id, .. } = &question.action else {
            panic!("{question:?}");
        };
        // What is answered after it is committed after it.
        connector
            .deliver(&text_event("discord", "c2", "m2", "/status"))
            .unwrap();
        connector
            .wait_for_sent("a status", SOON, |sent| sent.chat_id == "c2")
            .await
            .unwrap();
        relay.kill().await;
        hermes.run.lock().unwrap().is_forgotten = is_forgotten;
        let relay = setup.start();
        let said =
            |text: &'static str| move |sent: &SentMessage| sent.chat_id == "c1" && sent.text.contains(text);
        if is_forgotten {
            for text in ["No longer asked", "I was restarted"] {
                connector.wait_for_sent(text, SOON, said(text)).await.unwrap();
            }
            assert_eq!(hermes.asked("POST", "/v1/runs/run_1/approval"), 0);
        } else {
            eventually("the run is looked at", async || {
                hermes.asked("GET", "/v1/runs/run_1") > 0
            })
            .await;
            connector.press(prompt_id, "o0").expect("a button").unwrap();
            connector
                .wait_for_sent("the rest", SOON, said("Cleaned."))
                .await
                .unwrap();
            connector
                .wait_for_sent("the decision", SOON, said("✅"))
                .await
                .unwrap();
            assert_eq!(hermes.run.lock().unwrap().approvals, [json!({"choice": "once"})]);
        }
        relay.stop().await;
        let messages = connector.messages_in("c1");
        for text in ["Let me see.", "Cleaned."] {
            let count = messages.iter().filter(|sent| sent.text.contains(text)).count();
            assert_eq!(
                count,
                usize::from(text != "Cleaned." || !is_forgotten),
                "{messages:?}"
            );
        }
        assert_eq!(hermes.asked("POST", "/v1/runs"), 1);
        assert_eq!(hermes.asked("POST", "/v1/runs/run_1/stop"), 0);
    }
}
