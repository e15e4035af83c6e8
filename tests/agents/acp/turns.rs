//! Turns that go well: what is said, shown and handed over.

use hermes_relay::agent::{
    Agent, AgentEvent, Attachment, FailureClass, MediaLocation, OptionValue, Permission, StepState, ToolKind,
    Truncation, TurnEnd, TurnInput, Usage,
};

use crate::acp::rig::{People, Rig, SOON};

#[tokio::test]
async fn an_answer_streams_in_order_and_is_whole() {
    let rig = Rig::new("");
    let (end, reply) = rig.turn("a", "stream 2000").await;
    assert_eq!(end, TurnEnd::Completed);
    let numbers: Vec<usize> = reply
        .text
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    let usage = Usage {
        input_tokens: 3,
        output_tokens: 4,
    };
    assert!(reply.events.contains(&AgentEvent::Usage(usage)));
    assert_eq!(rig.agent.commands()[0].name, "compact");
}

#[tokio::test]
async fn messages_and_tools_cut_the_answer() {
    let rig = Rig::new("");
    assert_eq!(rig.ask("a", "messages").await, "one, still one|two");
    let (_, reply) = rig.turn("a", "tool").await;
    assert_eq!(reply.text, "looking|found");
    let tools: Vec<_> = reply
        .events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Tool(tool) => Some((tool.title.as_str(), tool.kind, tool.state)),
            _ => None,
        })
        .collect();
    assert_eq!(
        tools,
        [
            ("ls -l", ToolKind::Execute, StepState::Running),
            ("ls -l", ToolKind::Execute, StepState::Done)
        ]
    );
    let (_, reply) = rig.turn("a", "think").await;
    assert!(reply.events.contains(&AgentEvent::Thought("hm".to_owned())));
    assert!(reply.events.contains(&AgentEvent::Title("Of mice".to_owned())));
    assert!(
        reply
            .events
            .iter()
            .any(|event| matches!(event, AgentEvent::Plan(steps) if steps.len() == 1))
    );
}

#[tokio::test]
async fn junk_on_either_output_harms_nothing() {
    let rig = Rig::new("");
    assert_eq!(rig.ask("a", "garbage").await, "fine");
    assert_eq!(rig.ask("a", "flood").await, "survived");
    assert_eq!(rig.ask("a", "long").await, "short again");
    assert_eq!(rig.ask("a", "hello").await, "heard: hello");
}

#[tokio::test]
async fn reasons_to_stop_are_distinguished() {
    let rig = Rig::new("");
    assert_eq!(
        rig.turn("a", "stop tokens").await.0,
        TurnEnd::Truncated(Truncation::Tokens)
    );
    assert_eq!(
        rig.turn("a", "stop steps").await.0,
        TurnEnd::Truncated(Truncation::Steps)
    );
    assert_eq!(rig.turn("a", "stop refusal").await.0, TurnEnd::Refused);
    let failure = rig.fails("a", "stop error").await;
    assert!(
        failure.detail.contains("boom") && !failure.public_text.contains("boom"),
        "{failure:?}"
    );
}

#[tokio::test]
async fn one_session_per_conversation_in_one_process() {
    let rig = Rig::new("");
    let first = rig.ask("a", "history").await;
    assert!(first.starts_with("1 in s-"), "{first}");
    let second = rig.ask("a", "history").await;
    assert_eq!(second, first.replacen('1', "2", 1));
    let other = rig.ask("b", "history").await;
    assert!(other.starts_with("1 in s-") && other != first, "{other}");
    let process = |answer: &str| answer.split('-').nth(1).map(str::to_owned);
    assert_eq!(process(&other), process(&first));
}

#[tokio::test]
async fn pictures_are_handed_over_when_the_agent_looks_at_them() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"png").unwrap();
    let input = || TurnInput {
        text: "blocks".to_owned(),
        attachments: ["image/png", "text/plain"]
            .map(|mime| Attachment {
                location: MediaLocation::File(file.path().to_owned()),
                mime: mime.to_owned(),
                name: "file".to_owned(),
            })
            .to_vec(),
        ..TurnInput::default()
    };
    let seeing = Rig::new("image")
        .start_with("a", input(), Permission::Ask)
        .end()
        .await;
    assert_eq!(seeing.1.text, "text image resource_link");
    let blind = Rig::new("").start_with("a", input(), Permission::Ask).end().await;
    assert_eq!(blind.1.text, "text resource_link resource_link");
}

#[tokio::test]
async fn a_slash_is_harmless_where_it_would_command_the_program() {
    let escaping = Rig::with("", |settings| settings.preset = Some("hermes".to_owned()));
    let refusing = Rig::with("", |settings| settings.slash_commands = Some(false));
    for rig in [escaping, refusing] {
        assert_eq!(rig.ask("a", "/steer on").await, "heard: \u{200B}/steer on");
        assert_eq!(
            rig.ask("a", "/compact").await,
            "heard: \u{200B}/compact",
            "also what the agent offers"
        );
        assert!(rig.agent.commands().is_empty());
    }
    assert_eq!(Rig::new("").ask("a", "/compact").await, "heard: /compact");
}

#[tokio::test]
async fn a_new_session_gets_its_platform_once() {
    let rig = Rig::new("");
    let say = async |chat: &str, text: &str| {
        let mut input = TurnInput {
            text: text.to_owned(),
            ..TurnInput::default()
        };
        input.origin.hint = "No tables.".into();
        rig.start_with(chat, input, Permission::Ask).end().await.1.text
    };
    assert!(say("a", "hi").await.contains("No tables."));
    assert_eq!(say("a", "hi").await, "heard: hi");
    assert_eq!(
        say("b", "/compact").await,
        "heard: /compact",
        "a command goes alone"
    );
    assert!(say("b", "hi").await.contains("No tables."));
    assert_eq!(say("b", "hi").await, "heard: hi");
}

#[tokio::test]
async fn modes_and_options_are_set_before_the_first_prompt() {
    let rig = Rig::with("", |settings| {
        settings.mode = Some("plan".to_owned());
        settings
            .options
            .insert("fast".to_owned(), OptionValue::Flag(true));
        settings
            .options
            .insert("model".to_owned(), OptionValue::Value("m".to_owned()));
    });
    assert_eq!(rig.ask("a", "mode").await, "plan \"fast\"=true \"model\"=\"m\"");
    let rig = Rig::with("", |settings| settings.mode = Some("yolo".to_owned()));
    let failure = rig.fails("a", "hello").await;
    assert!(
        failure.detail.contains("mode `yolo`") && !failure.side_effects_possible,
        "{failure:?}"
    );
    assert_eq!(rig.log(), "", "nothing was asked of an agent that is not set up");
}

#[tokio::test]
async fn the_agent_sees_only_what_it_may() {
    let rig = Rig::with("", |settings| {
        settings.env.0.insert("ADDED".to_owned(), "set".to_owned());
    });
    assert_eq!(rig.ask("a", "env PLAIN").await, "seen");
    assert_eq!(rig.ask("a", "env ADDED").await, "set");
    assert_eq!(rig.ask("a", "env SOME_API_KEY").await, "unset");
    assert_eq!(rig.ask("a", "env GATEWAY_RELAY_URL").await, "unset");
}

#[tokio::test]
async fn a_turn_that_nobody_listens_to_does_not_fill_the_memory() {
    let mut rig = Rig::new("");
    rig.people = People::Sleep;
    let running = rig.start("a", "babble");
    let end = tokio::time::timeout(SOON, running.task)
        .await
        .expect("the turn ends")
        .unwrap();
    assert!(
        matches!(&end, TurnEnd::Failed(failure) if failure.class == FailureClass::Protocol),
        "{end:?}"
    );
}
