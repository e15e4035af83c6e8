//! Questions of agents to people, over a connector in memory with a real journal: who may answer and how, what ends
//! a question, and that nothing waits for it but the turn that asks.

mod buttons;
mod display;
mod expiry;
#[cfg(feature = "dev")]
mod process;
mod restart;
pub(crate) mod resumed;
mod typed_answers;

use crate::support::memory_relay::{Running, event, start_on};
use hermes_relay::adapter::stream::StreamMode;
use hermes_relay::agent::{
    Agent, AgentFuture, AgentInfo, Choice, EchoAgent, Meaning, PromptAnswer, Question, QuestionKind, Turn,
    TurnEnd,
};
use hermes_relay::config::Settings;
use hermes_relay::relay::SeenOp;
use hermes_relay::wire::CapabilityDescriptor;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Ops of a platform with buttons.
pub(crate) const BUTTONS: &[&str] = &["send", "edit", "prompt"];
/// Ops of a platform without.
pub(crate) const PLAIN: &[&str] = &["send", "edit"];

pub(crate) fn platform(ops: &[&str]) -> CapabilityDescriptor {
    CapabilityDescriptor {
        supports_edit: true,
        supported_ops: ops.iter().map(|&op| op.to_owned()).collect(),
        ..CapabilityDescriptor::placeholder("discord")
    }
}

/// Nothing but questions and answers is said.
pub(crate) fn terse(settings: &mut Settings) {
    settings.streaming.mode = StreamMode::Off;
    settings.streaming.typing = false;
    settings.streaming.reactions = false;
}

/// A relay whose agent echoes, and asks before it does when the text begins with `ask`.
pub(crate) async fn start(dir: &Path, ops: &[&str], adjust: impl FnOnce(&mut Settings)) -> Running {
    start_asking(dir, EchoAgent, ops, adjust).await
}

/// A relay with this agent on a platform with these ops.
pub(crate) async fn start_asking<A: Agent + Clone>(
    dir: &Path,
    agent: A,
    ops: &[&str],
    adjust: impl FnOnce(&mut Settings),
) -> Running {
    let adjust = |settings: &mut Settings| {
        terse(settings);
        adjust(settings);
    };
    start_on(dir, agent, &platform(ops), adjust).await
}

/// Has a chat ask, and gives the op that shows the question once it is settled.
pub(crate) async fn ask(relay: &Running, chat: &str, id: &str) -> SeenOp {
    let before = relay.handle.status().await.unwrap().tally.ops_applied;
    relay.deliver(chat, id, "ask hi").await;
    let shown = shown(relay, chat).await;
    relay
        .wait_for_status("the question shown", |status| status.tally.ops_applied > before)
        .await;
    shown
}

/// Waits for the op that shows a question, and gives it.
pub(crate) async fn shown(relay: &Running, chat: &str) -> SeenOp {
    let seen = relay.seen("a question", |seen| {
        seen.ops.iter().any(|op| is_question(op, chat))
    });
    let seen = seen.await;
    seen.ops
        .into_iter()
        .rev()
        .find(|op| is_question(op, chat))
        .unwrap()
}

fn is_question(op: &SeenOp, chat: &str) -> bool {
    let asks = op.text().is_some_and(|text| text.starts_with("May I"));
    asks && op.kind() != Some("edit") && op.chat() == Some(chat)
}

/// The message that a question's button sends.
pub(crate) fn press(question: &SeenOp, option: &str, by: &str) -> Value {
    let chat = question.chat().unwrap();
    let mut event = event(chat, "the question's own id", &format!("/{option}"));
    event["source"]["user_id"] = json!(by);
    event["prompt_response"] = json!({
        "prompt_id": question.action["prompt_id"],
        "option_id": option,
        "prompt_message_id": question.message_id,
    });
    event
}

/// Whose direct chat it is.
pub(crate) fn owner(chat: &str) -> String {
    format!("user-of-{chat}")
}

/// A question for a yes or a no.
pub(crate) fn question(text: &str) -> Question {
    let choice = |id: &str, meaning| Choice {
        id: id.to_owned(),
        label: id.to_owned(),
        meaning,
    };
    Question {
        kind: QuestionKind::Approval,
        text: text.to_owned(),
        detail: None,
        options: vec![choice("yes", Meaning::AllowOnce), choice("no", Meaning::Deny)],
        timeout: None,
        resume: None,
    }
}

/// Asks and hears nothing else, not even that it is to stop; keeps what it was answered.
#[derive(Clone, Default)]
pub(crate) struct Stubborn {
    pub(crate) answers: Arc<Mutex<Vec<PromptAnswer>>>,
    /// How long it waits before it gives up and goes on; without it, for ever.
    pub(crate) question_timeout: Option<Duration>,
    /// It asks only once this is cancelled.
    pub(crate) gate: Option<CancellationToken>,
}

impl Stubborn {
    pub(crate) fn answers(&self) -> Vec<PromptAnswer> {
        self.answers.lock().unwrap().clone()
    }
}

impl Agent for Stubborn {
    fn info(&self) -> AgentInfo {
        AgentInfo::default()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.cancelled().await;
            }
            let asked = turn.approver.ask(question("May I?"));
            if let Some(timeout) = self.question_timeout {
                if tokio::time::timeout(timeout, asked).await.is_err() {
                    // The question is taken back while the turn goes on.
                    turn.cancel.cancelled().await;
                }
                return TurnEnd::Cancelled { confirmed: true };
            }
            let answer = asked.await;
            self.answers.lock().unwrap().push(answer);
            if turn.cancel.is_cancelled() {
                return TurnEnd::Cancelled { confirmed: true };
            }
            turn.events.text("done").await;
            TurnEnd::Completed
        })
    }
}
