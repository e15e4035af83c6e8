//! Agents: one trait, one module per backend.
//!
//! An agent is handed one [`Turn`] and drives it to its [`TurnEnd`]; it never sees the connection, the
//! journal or another session. What it says goes into the turn's [`EventSink`]; it stops when the turn's
//! token is cancelled. Everything else — order, durability, limits, splitting, delivery — is done around it.

pub mod acp;
mod ask;
mod builtin;
pub mod child;
mod command;
mod completion;
mod event;
pub mod guard;
pub mod hermes;
mod http;
pub mod openai;
mod prompt_text;
mod route;
pub mod transcript;
mod turn;

pub use acp::{AcpAgent, AcpSettings, PRESETS};
pub use ask::{Approver, Choice, Meaning, Permission, PromptAnswer, Question, QuestionKind};
pub use builtin::EchoAgent;
pub use builtin::NoopAgent;
pub use command::{CommandAgent, CommandInput, CommandOutput, CommandSettings, EnvAdditions, NoProgram};
pub use event::{
    AgentEvent, AgentSignal, EventSink, Media, MediaLocation, PlanStep, SignalReceiver, StepState, ToolCall,
    ToolKind, Usage,
};
pub use hermes::{HermesAgent, HermesMode, HermesSettings};
pub use http::check_base_url;
pub use openai::{OpenAiAgent, OpenAiSettings};
pub use route::{Route, RouteInput, fixed_route, match_route};
pub use turn::{
    Attachment, ChatOrigin, Failure, FailureClass, TELL_OPERATOR, Truncation, Turn, TurnEnd, TurnInput,
};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::wire::SessionKey;

/// What an agent's asynchronous methods return.
pub type AgentFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Identity and capabilities of a backend; constant for its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// Name for logs and people.
    pub name: String,
    /// Backend type: `echo`, `acp`, `command` and so on.
    pub kind: &'static str,
    /// Whether a turn can be run again after a crash without repeating side effects.
    pub repeatable: bool,
    /// Whether it calls [`EventSink::handing_over`] itself, as late as it can.
    pub hands_over: bool,
    /// Whether a running turn accepts further messages through [`Agent::steer`].
    pub steers: bool,
    /// Whether it may ask people for approval or a choice.
    pub asks: bool,
    /// Whether it keeps conversation state that [`Agent::forget`] clears.
    pub remembers: bool,
    /// Whether it accepts images.
    pub sees_images: bool,
    /// Maximum concurrent turns over all sessions; `None` for no limit.
    pub parallel: Option<usize>,
}

/// Health of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentHealth {
    /// The backend accepts turns.
    Ready,
    /// The backend accepts turns, with this problem.
    Degraded(String),
    /// The backend accepts no turns, for this reason.
    Down(String),
}

/// A slash command that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// The name without the slash.
    pub name: String,
    /// The purpose of the command, in a line.
    pub description: String,
}

/// One backend. Shared by all sessions, so it keeps what it needs per session itself. What must outlive the
/// process it hands to the turn's sink ([`EventSink::save_state`]) and asks back ([`EventSink::load_state`]).
pub trait Agent: Send + Sync + 'static {
    /// Its identity and capabilities.
    fn info(&self) -> AgentInfo;

    /// Checks its health. Callers apply a timeout; must not start a turn.
    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        Box::pin(std::future::ready(AgentHealth::Ready))
    }

    /// Drives one turn to its end. Must return soon after the turn's token is cancelled; the relay drops the
    /// future when it does not. Never called twice at a time for one session.
    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd>;

    /// Whether its turns mostly end without waiting for anything. They are tried without a task of their own, between
    /// everything else that the relay does: only for agents that neither block nor compute for long.
    fn answers_inline(&self) -> bool {
        false
    }

    /// Hands a message to a session's running turn, without waiting; `false` when it cannot be taken. Asked only
    /// if [`AgentInfo::steers`] is set, and only while nothing older waits.
    fn steer(&self, _session: &SessionKey, _input: &TurnInput) -> bool {
        false
    }

    /// Forgets what it remembers of a session.
    fn forget<'a>(&'a self, _session: &'a SessionKey) -> AgentFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Slash commands that it understands, as far as it knows now.
    fn commands(&self) -> Vec<AgentCommand> {
        Vec::new()
    }

    /// Ends everything it started.
    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A name that is neither a built-in agent nor a configured one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent named \"{name}\"; built in are: {}", BUILT_IN.join(", "))]
pub struct UnknownAgent {
    /// The name that no agent has.
    pub name: String,
}

/// Names of the agents that need no settings.
pub const BUILT_IN: &[&str] = &["echo", "noop"];

/// The built-in agent of that name.
pub fn built_in(name: &str) -> Result<Arc<dyn Agent>, UnknownAgent> {
    match name {
        "echo" => Ok(Arc::new(EchoAgent)),
        "noop" => Ok(Arc::new(NoopAgent)),
        _ => Err(UnknownAgent {
            name: name.to_owned(),
        }),
    }
}
