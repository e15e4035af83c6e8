//! A relay inside another program. Its agent shows a plan and a tool call, asks people in the chat, and sends a picture. The
//! connector is in memory, so nothing leaves the process.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hermes_relay::agent::{
    AgentEvent, Choice, Meaning, Media, MediaLocation, PlanStep, PromptAnswer, Question, QuestionKind,
    StepState, ToolCall, ToolKind, Usage,
};
use hermes_relay::chat::CapabilityDescriptor;
use hermes_relay::handle::Status;
use hermes_relay::transport::Record;
use hermes_relay::{Agent, AgentFuture, AgentInfo, MemoryTransport, Relay, Settings, Turn, TurnEnd};
use serde_json::{Value, json};

/// Publishes a release, to a place that people choose.
struct Publisher;

impl Agent for Publisher {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "publisher".into(),
            asks: true,
            ..AgentInfo::default()
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(publish(turn))
    }
}

async fn publish(turn: Turn) -> TurnEnd {
    let events = &turn.events;
    events.emit(plan(StepState::Running, StepState::Pending)).await;
    for state in [StepState::Running, StepState::Done] {
        let build = ToolCall {
            id: "build".into(),
            title: "cargo build --release".into(),
            kind: ToolKind::Execute,
            state,
        };
        events.emit(AgentEvent::Tool(build)).await;
    }
    events.emit(plan(StepState::Done, StepState::Running)).await;

    let place = match turn.approver.ask(which_place()).await {
        PromptAnswer::Chosen(place) if place != "nowhere" => place,
        PromptAnswer::Chosen(_) | PromptAnswer::TimedOut | PromptAnswer::Cancelled => {
            events.text("Nothing was published.").await;
            return TurnEnd::Completed;
        }
    };
    events.emit(plan(StepState::Done, StepState::Done)).await;
    let picture = Media {
        location: MediaLocation::Url("https://charts.example/requests.png".into()),
        caption: "Requests per minute".into(),
        kind: Some("image".into()),
        name: None,
    };
    events.emit(AgentEvent::Media(picture)).await;
    let usage = Usage {
        input_tokens: 120,
        output_tokens: 30,
    };
    events.emit(AgentEvent::Usage(usage)).await;
    let version = &turn.input.text;
    events.text(format!("Published {version} to {place}.")).await;
    TurnEnd::Completed
}

fn plan(build: StepState, publish: StepState) -> AgentEvent {
    let step = |text: &str, state| PlanStep {
        text: text.into(),
        state,
    };
    AgentEvent::Plan(vec![step("Build", build), step("Publish", publish)])
}

fn which_place() -> Question {
    let choice = |id: &str, label: &str, meaning| Choice {
        id: id.into(),
        label: label.into(),
        meaning,
    };
    Question {
        kind: QuestionKind::Choice,
        text: "Where to?".into(),
        detail: None,
        options: vec![
            choice("staging", "Staging", Meaning::Plain),
            choice("production", "Production", Meaning::Plain),
            choice("nowhere", "Nowhere", Meaning::Deny),
        ],
        timeout: None,
        resume: None,
    }
}

/// A message in a direct chat.
fn message(id: &str, text: &str) -> Value {
    let source = json!({"platform": "discord", "chat_id": "c1", "chat_type": "dm", "user_id": "u1"});
    json!({"text": text, "message_id": id, "source": source})
}

/// One conversation; returns everything that the connector saw, and the relay's status after it.
pub(crate) async fn converse() -> Result<(Record, Status), Box<dyn Error>> {
    let state = tempfile::tempdir()?;
    let ops = ["send", "edit", "prompt", "send_media"];
    let (transport, connector) = MemoryTransport::pair([CapabilityDescriptor {
        supported_ops: ops.map(str::to_owned).into(),
        ..CapabilityDescriptor::placeholder("discord")
    }]);
    let relay = Relay::builder(Settings::embedded(state.path()))
        .agent("publisher", Publisher)
        .transport(Arc::new(transport))
        .build()?;
    let handle = relay.handle();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(relay.run(async { drop(stopped.await) }));
    let within = Duration::from_secs(20);

    connector.deliver_buffered("b1", message("m1", "1.4.0")).await?;
    // A person reads what the agent has done before they answer.
    let is_asked = |seen: &Record| {
        let shown = seen.texts("c1").iter().any(|text| text.contains("cargo build"));
        shown && seen.ops.iter().any(|op| op.kind() == Some("prompt"))
    };
    let asked = connector.wait_for(within, is_asked).await.ok_or("no question")?;
    let question = asked.ops.iter().find(|op| op.kind() == Some("prompt"));
    let question = question.ok_or("no question")?;
    let production = &question.action["options"][1]["id"];
    let mut press = message("m2", "");
    press["prompt_response"] = json!({"prompt_id": question.action["prompt_id"], "option_id": production});
    connector.deliver_buffered("b2", press).await?;
    let is_answered = |seen: &Record| seen.texts("c1").contains(&"Published 1.4.0 to production.");
    connector.wait_for(within, is_answered).await.ok_or("no answer")?;

    let status = handle.status().await?;
    drop(stop);
    running.await?;
    let seen = connector.record().borrow().clone();
    Ok((seen, status))
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (seen, status) = converse().await?;
    for op in seen.ops {
        println!("{}", op.action);
    }
    let tally = status.tally;
    println!("{} tokens in, {} out", tally.input_tokens, tally.output_tokens);
    Ok(())
}
