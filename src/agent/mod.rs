//! Who answers: one trait, one file per backend.
//!
//! An agent is handed one [`Turn`] and drives it to its [`TurnEnd`]; it never sees the connection, the
//! journal or another session. What it says goes into the turn's [`EventSink`]; it stops when the turn's
//! token is cancelled. Everything else — order, durability, limits, splitting, delivery — is done around it.

pub mod acp;
mod ask;
mod briefing;
pub mod child;
mod command;
mod completion;
mod echo;
mod event;
pub mod guard;
pub mod hermes;
mod http_failure;
mod noop;
pub mod openai;
mod prompt_text;
mod route;
pub mod transcript;
mod transcripts;
mod turn;

pub use acp::{Acp, AcpSettings, PRESETS};
pub use ask::{Answer, Asker, Choice, Meaning, Permission, Question, QuestionKind};
pub use command::{Command, CommandInput, CommandOutput, CommandSettings, EnvAdditions, NoProgram};
pub use echo::Echo;
pub use event::{
    AgentEvent, EventSink, Media, MediaPlace, PlanStep, Signal, Signals, StepState, ToolCall, ToolKind, Usage,
};
pub use hermes::{Hermes, HermesMode, HermesSettings};
pub use noop::Noop;
pub use openai::{OpenAi, OpenAiSettings};
pub use route::{Letterhead, Route, first_taken};
pub use turn::{Attachment, Failure, FailureClass, Place, Truncation, Turn, TurnEnd, TurnInput};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::wire::SessionKey;

/// What an agent's asynchronous methods return.
pub type AgentFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a backend is and can do; fixed for its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name for logs and people.
    pub name: String,
    /// What sort of backend it is: `echo`, `acp`, `command` and so on.
    pub kind: &'static str,
    /// Whether running a turn again after a crash does no harm.
    pub repeatable: bool,
    /// Whether a running turn can take another message.
    pub steers: bool,
    /// Whether it may ask people.
    pub asks: bool,
    /// Whether it keeps the conversation itself, so that there is something to forget.
    pub remembers: bool,
    /// Whether it can look at pictures.
    pub sees_images: bool,
    /// Turns that it runs at once, over all sessions; any number when not given.
    pub parallel: Option<usize>,
}

/// How a backend stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It can take turns.
    Ready,
    /// It can, but something is not as it should be.
    Degraded(String),
    /// It cannot, and why.
    Down(String),
}

/// A slash command that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// Its name, without the slash.
    pub name: String,
    /// What it does, in a line.
    pub description: String,
}

/// One backend. Shared by all sessions, so it keeps what it needs per session itself. What must outlive the
/// process it hands to the turn's sink ([`EventSink::keep`]) and asks back ([`EventSink::recall`]).
pub trait Agent: Send + Sync + 'static {
    /// What it is and can do.
    fn describe(&self) -> Description;

    /// How it stands. Bounded by the asker's patience; must not start a turn.
    fn health(&self) -> AgentFuture<'_, Health> {
        Box::pin(std::future::ready(Health::Ready))
    }

    /// Drives one turn to its end. Must return soon after the turn's token is cancelled; the relay drops the
    /// future when it does not. Never called twice at a time for one session.
    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd>;

    /// Whether its turns mostly end without waiting for anything. They are tried without a task of their own, between
    /// everything else that the relay does: only for agents that neither block nor compute for long.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Hands a message to a session's running turn, without waiting; `false` when it cannot be taken. Asked only
    /// of agents that say they can, and only while nothing older waits.
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
    /// The name that was asked for.
    pub name: String,
}

/// Names of the agents that need no settings.
pub const BUILT_IN: &[&str] = &["echo", "noop"];

/// The built-in agent of that name.
pub fn built_in(name: &str) -> Result<Arc<dyn Agent>, UnknownAgent> {
    match name {
        "echo" => Ok(Arc::new(Echo)),
        "noop" => Ok(Arc::new(Noop)),
        _ => Err(UnknownAgent {
            name: name.to_owned(),
        }),
    }
}
