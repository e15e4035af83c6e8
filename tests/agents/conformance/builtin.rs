//! The built-in agents.

use std::sync::Arc;

use hermes_relay::agent::{
    Agent, AgentEvent, BreakerSettings, Guards, StepState, TimeLimits, TurnEnd, built_in,
};

use crate::conformance::harness::{Chat, TURN_TIMEOUT};
use crate::conformance::suite::{ANSWER, Act, Fixture, MUCH, conform};

struct EchoFixture {
    guards: Guards,
}

impl Fixture for EchoFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        self.guards.wrap(built_in("echo").unwrap())
    }

    fn text(&self, act: Act) -> Option<String> {
        match act {
            Act::Say => Some(format!("stream=5 {ANSWER}")),
            Act::Much => Some(format!("long={MUCH} x")),
            Act::Hang => Some("sleep=600000 x".to_owned()),
            Act::SpeakAndHang => Some("stream=600000 x".to_owned()),
            Act::Ask => Some("ask x".to_owned()),
            Act::Fail => Some("fail".to_owned()),
            Act::Nothing
            | Act::Cut
            | Act::Deaf
            | Act::Crash
            | Act::Flood
            | Act::Orphan
            | Act::Endless
            | Act::Garbled
            | Act::Close
            | Act::Daemon
            | Act::Remember
            | Act::Recall => None,
        }
    }
}

struct NoopFixture;

impl Fixture for NoopFixture {
    fn agent(&self) -> Arc<dyn Agent> {
        built_in("noop").unwrap()
    }

    fn text(&self, act: Act) -> Option<String> {
        (act == Act::Nothing).then(|| "x".to_owned())
    }
}

/// What the echo cannot be brought to.
const NOT_FOR_ECHO: &[&str] = &[
    "ends_without_output",
    "puts_cut_characters_together",
    "reports_a_crash_and_keeps_the_text_so_far",
    "reports_its_health",
    "remembers_across_a_restart",
    "survives_a_flood_of_log",
    "survives_output_without_an_end",
    "survives_bytes_that_are_no_text",
    "does_not_wait_for_what_was_left_behind",
    "does_not_wait_for_a_daemon",
    "does_not_wait_for_one_that_closed_its_output",
    "stops_when_it_does_not_listen",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_echo_conforms() {
    let guards = Guards::default();
    conform("echo", &EchoFixture { guards }, NOT_FOR_ECHO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_conforms_with_every_guard_around_it() {
    let guards = Guards {
        parallel: Some(4),
        time: Some(TimeLimits {
            wall: Some(TURN_TIMEOUT * 2),
            idle: Some(TURN_TIMEOUT * 2),
            ..TimeLimits::default()
        }),
        breaker: Some(BreakerSettings::default()),
    };
    conform("echo, guarded", &EchoFixture { guards }, NOT_FOR_ECHO).await;
}

#[tokio::test]
async fn the_silent_agent_conforms() {
    let agent = NoopFixture.agent();
    assert!(agent.info().repeatable && !agent.info().asks);
    let applicable = ["ends_without_output"];
    let not_applicable: Vec<&str> = crate::conformance::suite::all()
        .map(|case| case.name)
        .filter(|name| !applicable.contains(name))
        .collect();
    conform("noop", &NoopFixture, &not_applicable).await;
}

#[tokio::test]
async fn the_echo_does_everything_that_an_adapter_can_show() {
    let guards = Guards::default();
    let agent = EchoFixture { guards }.agent();
    let record = Chat::new("show")
        .turn(
            &*agent,
            "title=Tea ask tools=2 media=https://example.com/a.png break a b",
        )
        .await;
    assert_eq!(record.end, TurnEnd::Completed);
    assert_eq!(record.text, "echo: allowedecho: once a b");
    assert_eq!(record.asked[0].options.len(), 4);
    let tools: Vec<StepState> = record
        .events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Tool(tool) => Some(tool.state),
            _ => None,
        })
        .collect();
    assert_eq!(tools, [StepState::Running, StepState::Done].repeat(2));
    assert_eq!(record.events[0], AgentEvent::Title("Tea".to_owned()));
    assert!(
        record
            .events
            .iter()
            .any(|event| matches!(event, AgentEvent::Media(_)))
    );
    assert_eq!(record.events.last(), Some(&AgentEvent::Break));
}
