//! Hermes in `mode: runs`: what it is told and what it says.

use hermes_relay::agent::{
    AgentEvent, ChatOrigin, HermesAgent, HermesSettings, StepState, ToolKind, TurnInput, Usage,
};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::http_agents::chat::{Chat, Running};
use crate::http_agents::server::{Server, Stream};
use crate::http_agents::{KEY, egress};

pub(crate) fn settings(base: &str) -> HermesSettings {
    HermesSettings {
        base_url: base.to_owned(),
        // Long enough for a busy machine; what must run out is shorter.
        stop_grace_secs: 15,
        ..HermesSettings::default()
    }
}

pub(crate) fn agent(settings: HermesSettings) -> HermesAgent {
    let agent = HermesAgent::new(settings, Some(SecretString::from(KEY)), &egress()).unwrap();
    assert!(!format!("{agent:?}").contains(KEY));
    agent
}

pub(crate) async fn start() -> (Server, Chat) {
    let server = Server::start().await;
    let chat = Chat::new(agent(settings(&server.base())));
    (server, chat)
}

/// Accepts the run that a turn starts, and opens its stream.
pub(crate) async fn accept(server: &mut Server) -> (Value, Stream) {
    let asked = server.expect("POST", "/v1/runs").await;
    let body = asked.json();
    asked.reply_json(202, &json!({"run_id": "run_1", "status": "started"}));
    let asked = server.expect("GET", "/v1/runs/run_1/events").await;
    assert_eq!(
        asked.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );
    (body, asked.stream())
}

pub(crate) async fn send_event(stream: &Stream, event: &str, mut fields: Value) {
    fields["event"] = json!(event);
    fields["run_id"] = json!("run_1");
    stream.data(&fields.to_string()).await;
}

pub(crate) async fn completes(stream: Stream, output: &str) {
    send_event(&stream, "run.completed", json!({"output": output})).await;
    stream.raw(": stream closed\n\n").await;
}

#[tokio::test]
async fn a_run_gets_the_conversation_and_the_chat() {
    let mut server = Server::start().await;
    let mut own = settings(&server.base());
    own.instructions = Some("Be kind.".to_owned());
    own.model = Some("big".to_owned());
    let chat = Chat::new(agent(own));
    assert!(chat.agent().info().asks && !chat.agent().info().repeatable);
    let input = |text: &str| TurnInput {
        text: text.to_owned(),
        origin: ChatOrigin {
            hint: "This is Slack.".into(),
            ..ChatOrigin::default()
        },
        ..TurnInput::default()
    };
    let turn = chat.start_with("agent:main:slack:dm:7", input("one"));
    let asked = server.expect("POST", "/v1/runs").await;
    assert_eq!(
        asked.header("x-hermes-session-key"),
        Some("agent:main:slack:dm:7")
    );
    assert_eq!(asked.header("origin"), None);
    let want = json!({
        "input": "one",
        "session_id": "agent:main:slack:dm:7",
        "instructions": "Be kind.\n\nThis is Slack.",
        "model": "big",
    });
    assert_eq!(asked.json(), want);
    asked.reply_json(202, &json!({"run_id": "r", "status": "started"}));
    let stream = server.expect("GET", "/v1/runs/r/events").await.stream();
    send_event(&stream, "message.delta", json!({"delta": "1"})).await;
    completes(stream, "1").await;
    assert_eq!(turn.over().await.completed(), "1");
    // The next one, also after a restart.
    let chat = chat.restarted(agent(settings(&server.base())));
    let turn = chat.start_with("agent:main:slack:dm:7", input("two"));
    let (body, stream) = accept(&mut server).await;
    let history = json!([{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]);
    assert_eq!(body["conversation_history"], history);
    assert_eq!(body["input"], "two");
    completes(stream, "2").await;
    // Nothing was streamed: the run's own answer is said.
    assert_eq!(turn.over().await.completed(), "2");
}

#[tokio::test]
async fn odd_session_keys_and_profiles_travel_safely() {
    let mut server = Server::start().await;
    let mut own = settings(&server.base());
    own.profile = Some("work".to_owned());
    let chat = Chat::new(agent(own));
    let turn = chat.start_with("agent:main:matrix:../room/ü", TurnInput::default());
    let asked = server.expect("POST", "/p/work/v1/runs").await;
    let name = asked.json()["session_id"].as_str().unwrap().to_owned();
    assert!(name.starts_with("relay-"), "{name}");
    assert_eq!(asked.header("x-hermes-session-key"), Some(name.as_str()));
    asked.reply(401, &[], "");
    turn.over().await.failure();
    for profile in ["", "a/b", ".."] {
        let own = HermesSettings {
            profile: Some(profile.to_owned()),
            ..HermesSettings::default()
        };
        assert!(HermesAgent::new(own, Some(SecretString::from(KEY)), &egress()).is_err());
    }
    assert!(HermesAgent::new(HermesSettings::default(), None, &egress()).is_err());
}

#[tokio::test]
async fn a_run_streams_its_text_and_its_tools_and_not_its_reasoning() {
    let (mut server, chat) = start().await;
    let mut turn = chat.start("what is 2+2?");
    let (_, stream) = accept(&mut server).await;
    stream.raw(": keepalive\n\n").await;
    send_event(&stream, "message.delta", json!({"delta": "Let me "})).await;
    turn.expect_text("Let me ").await;
    send_event(&stream, "message.delta", json!({"delta": "see."})).await;
    send_event(
        &stream,
        "tool.started",
        json!({"tool": "terminal", "preview": "bc"}),
    )
    .await;
    send_event(
        &stream,
        "tool.completed",
        json!({"tool": "terminal", "duration": 0.1, "error": true}),
    )
    .await;
    send_event(&stream, "message.delta", json!({"delta": "It is 4."})).await;
    send_event(&stream, "reasoning.available", json!({"text": "It is 4."})).await;
    send_event(&stream, "something.new", json!({"delta": "x"})).await;
    let usage = json!({"input_tokens": 3, "output_tokens": 9});
    send_event(
        &stream,
        "run.completed",
        json!({"output": "It is 4.", "usage": usage}),
    )
    .await;
    let over = turn.over().await;
    assert_eq!(over.completed(), "Let me see.\n\nIt is 4.");
    let tools: Vec<_> = over
        .events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Tool(tool) => Some((tool.id.as_str(), tool.title.as_str(), tool.kind, tool.state)),
            _ => None,
        })
        .collect();
    let want = [
        ("tool-1", "terminal: bc", ToolKind::Execute, StepState::Running),
        ("tool-1", "terminal: bc", ToolKind::Execute, StepState::Failed),
    ];
    assert_eq!(tools, want);
    let cost = Usage {
        input_tokens: 3,
        output_tokens: 9,
    };
    assert!(over.events.contains(&AgentEvent::Usage(cost)));
}

#[tokio::test]
async fn a_failed_turn_is_not_sent_again_and_neither_is_a_forgotten_session() {
    let (mut server, chat) = start().await;
    let run = async |server: &mut Server, turn: Running| {
        let (body, stream) = accept(server).await;
        completes(stream, "ok").await;
        turn.over().await.completed();
        body
    };
    let turn = chat.start("lost");
    server.asked().await.reply(500, &[], "");
    turn.over().await.failure();
    let body = run(&mut server, chat.start("one")).await;
    assert_eq!(body["input"], "one");
    assert!(body.get("conversation_history").is_none());
    let key = hermes_relay::wire::SessionKey::from_text("agent:main:discord:dm:1".to_owned());
    chat.agent().forget(&key).await;
    let body = run(&mut server, chat.start("two")).await;
    assert!(body.get("conversation_history").is_none());
}

#[tokio::test]
async fn an_answer_without_text_is_reported_and_its_request_is_not_sent_again() {
    let (mut server, chat) = start().await;
    let turn = chat.start("tidy up");
    let (_, stream) = accept(&mut server).await;
    send_event(&stream, "tool.started", json!({"tool": "terminal"})).await;
    completes(stream, "").await;
    assert_eq!(turn.over().await.completed(), "(no reply)");
    let _turn = chat.start("thanks");
    let (body, _stream) = accept(&mut server).await;
    assert_eq!(body["input"], "thanks");
    assert_eq!(body["conversation_history"][0]["content"], "tidy up");
}
