//! Hermes in `mode: chat`: chat completions with the conversation kept by Hermes.

use hermes_relay::agent::{
    AgentEvent, ChatOrigin, FailureClass, HermesMode, HermesSettings, StepState, TurnEnd, TurnInput,
};
use hermes_relay::wire::SessionKey;
use serde_json::json;

use crate::http_agents::chat::Chat;
use crate::http_agents::hermes_runs::{agent, settings};
use crate::http_agents::server::{Server, delta, finish};

const CHAT: &str = "/v1/chat/completions";

async fn start() -> (Server, Chat) {
    let server = Server::start().await;
    let own = HermesSettings {
        mode: HermesMode::Chat,
        ..settings(&server.base())
    };
    let chat = Chat::new(agent(own));
    assert!(!chat.agent().info().asks);
    (server, chat)
}

#[tokio::test]
async fn a_turn_names_its_session_and_sends_only_itself() {
    let (mut server, chat) = start().await;
    for text in ["one", "two"] {
        let input = TurnInput {
            text: text.to_owned(),
            origin: ChatOrigin {
                hint: "This is Slack.".into(),
                ..ChatOrigin::default()
            },
            ..TurnInput::default()
        };
        let turn = chat.start_with("agent:main:slack:dm:7", input);
        let asked = server.expect("POST", CHAT).await;
        for header in ["x-hermes-session-id", "x-hermes-session-key"] {
            assert_eq!(asked.header(header), Some("agent:main:slack:dm:7"));
        }
        let system = json!({"role": "system", "content": "This is Slack."});
        let user = json!({"role": "user", "content": text});
        assert_eq!(asked.json(), json!({"stream": true, "messages": [system, user]}));
        let stream = asked.stream();
        stream
            .raw("event: hermes.tool.progress\ndata: {\"tool\":\"terminal\",\"label\":\"ls\",\"toolCallId\":\"c1\",\"status\":\"running\"}\n\n")
            .await;
        stream
            .raw("event: hermes.tool.progress\ndata: {\"tool\":\"terminal\",\"toolCallId\":\"c1\",\"status\":\"completed\"}\n\n")
            .await;
        stream.delta(text).await;
        stream.data(&finish("stop")).await;
        stream.data("[DONE]").await;
        let over = turn.over().await;
        assert_eq!(over.completed(), text);
        let states: Vec<StepState> = over
            .events
            .iter()
            .filter_map(|event| match event {
                AgentEvent::Tool(tool) if tool.id == "c1" => Some(tool.state),
                _ => None,
            })
            .collect();
        assert_eq!(states, [StepState::Running, StepState::Done]);
    }
    // Hermes keeps the conversation, so nothing is kept here.
    assert!(chat.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_busy_gateway_is_waited_for() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    server
        .expect("POST", CHAT)
        .await
        .reply(429, &[("retry-after", "0")], "");
    server
        .expect("POST", CHAT)
        .await
        .events(&[&delta("ok"), "[DONE]"])
        .await;
    assert_eq!(turn.over().await.completed(), "ok");
}

#[tokio::test]
async fn a_stop_closes_the_connection_and_is_not_confirmed() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("hi");
    let stream = server.asked().await.stream();
    stream.delta("one").await;
    turn.expect_text("one").await;
    turn.cancel.cancel();
    let over = turn.over().await;
    assert_eq!(over.end, TurnEnd::Cancelled { confirmed: false });
    stream.abandoned().await;
}

#[tokio::test]
async fn a_failure_in_the_stream_may_have_left_traces() {
    let (mut server, chat) = start().await;
    let turn = chat.start("hi");
    let failed = json!({
        "choices": [{"delta": {}, "finish_reason": "error"}],
        "error": {"message": "model gone", "type": "x"},
        "hermes": {"completed": false, "failed": true},
    });
    server
        .asked()
        .await
        .events(&[&delta("a"), &failed.to_string(), "[DONE]"])
        .await;
    let over = turn.over().await;
    assert_eq!(over.failure().class, FailureClass::Reported);
    assert!(over.failure().side_effects_possible && !over.failure().retryable);
    assert_eq!(over.text, "a");
}

#[tokio::test]
async fn forgetting_deletes_the_session_at_hermes() {
    let (mut server, chat) = start().await;
    let key = SessionKey::from_text("agent:main:slack:dm:7".to_owned());
    let forgotten = tokio::spawn(async move { chat.agent().forget(&key).await });
    let asked = server
        .expect("DELETE", "/api/sessions/agent%3Amain%3Aslack%3Adm%3A7")
        .await;
    assert!(asked.header("authorization").is_some());
    asked.reply(204, &[], "");
    crate::http_agents::soon("it is forgotten", forgotten)
        .await
        .unwrap();
}
