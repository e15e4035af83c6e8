//! Agents: the trait, what a turn brings and takes, and how it ends.
//!
//! An [`Agent`] is handed one [`Turn`] and drives it to its [`TurnEnd`]; it never sees the connection, the
//! journal or another session. What it says goes into the turn's [`EventSink`]: text, and as [`AgentEvent`]s its tool calls,
//! plan, usage and files. It asks people through the turn's [`Approver`], and stops when the turn's
//! token is cancelled. Everything else — order, durability, limits, splitting, delivery — is done around it.

// One file per backend, and the process supervision they share: private, because the settings choose them.
pub(crate) mod acp;
mod ask;
mod builtin;
pub(crate) mod child;
pub(crate) mod command;
mod completion;
mod event;
pub(crate) mod guard;
pub(crate) mod hermes;
mod http;
pub(crate) mod openai;
pub(crate) mod pool;
mod preference;
mod prompt_text;
pub(crate) mod route;
pub(crate) mod transcript;
mod turn;
#[cfg(feature = "nats")]
pub(crate) mod worker;

#[cfg(test)]
pub(crate) use ask::tests::question;
pub use ask::{Approver, Choice, Meaning, Permission, PromptAnswer, Question, QuestionKind, ResumedTurn};
pub use builtin::{EchoAgent, UnknownAgent};
pub(crate) use event::SignalChannel;
pub use event::{
    AgentEvent, AgentSignal, EventSink, FileChange, Media, MediaLocation, PlanStep, SignalReceiver,
    StepState, ToolCall, ToolKind, Usage,
};
pub use preference::{Preference, PreferenceAnswer, PreferenceOffer, PreferenceOption, PreferenceRequest};
pub use turn::{Attachment, ChatOrigin, Failure, FailureClass, Truncation, Turn, TurnEnd, TurnInput};

pub use crate::session::TurnId;

#[cfg(feature = "internals")]
#[doc(hidden)]
pub use backends::*;
#[cfg(not(feature = "internals"))]
pub(crate) use backends::*;

/// What the relay makes agents of.
mod backends {
    pub use super::acp::{AcpAgent, AcpSettings, OptionValue, PRESETS};
    pub use super::builtin::{BUILT_IN, NoopAgent, built_in};
    pub use super::child::BaseEnv;
    pub use super::command::{
        CommandAgent, CommandInput, CommandOutput, CommandSettings, EnvAdditions, NoProgram,
    };
    pub use super::guard::{BreakerSettings, Guards, TimeLimits, check_workdir};
    pub use super::hermes::{HermesAgent, HermesMode, HermesSettings};
    pub use super::http::check_base_url;
    pub use super::openai::{OpenAiAgent, OpenAiSettings};
    pub use super::pool::PoolSettings;
    pub use super::route::{Project, Route, RouteInput, addressed, fixed_route, match_route};
    pub use super::turn::TELL_OPERATOR;
    #[cfg(feature = "nats")]
    pub use super::worker::{Worker, WorkerAgent, WorkerHub, WorkerSettings};
}

use std::borrow::Cow;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use crate::wire::SessionKey;

/// What an agent's asynchronous methods return.
pub type AgentFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Identity and capabilities of a backend; constant for its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentInfo {
    /// Name for logs and people.
    pub name: Cow<'static, str>,
    /// Backend type: `echo`, `acp`, `command` and so on.
    pub kind: &'static str,
    /// Whether a turn can be run again after a crash without repeating side effects.
    pub repeatable: bool,
    /// Whether it calls [`EventSink::mark_started`] itself, as late as it can.
    pub marks_start: bool,
    /// Whether a running turn accepts further messages through [`Agent::steer`].
    pub steers: bool,
    /// Whether it may ask people for approval or a choice.
    pub asks: bool,
    /// Whether it takes a turn up again that an earlier process left with an open question ([`Turn::resumed`]).
    pub resumes: bool,
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
    /// Its program is not on this machine: what is missing, and how to install it.
    NotInstalled(String),
}

/// A slash command that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCommand {
    /// The name without the slash.
    pub name: String,
    /// The purpose of the command, in a line.
    pub description: String,
}

/// A conversation that an agent keeps, however it was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSession {
    /// The agent's name for it.
    pub id: String,
    /// Its title; empty without one.
    pub title: String,
    /// When it was used last, in Unix milliseconds, where the agent says so.
    pub used_ms: Option<i64>,
    /// The state that a conversation goes on with it from; see [`EventSink::load_state`].
    pub state: Vec<u8>,
}

/// A process that an agent keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AgentProcess {
    /// Its id.
    pub pid: u32,
    /// Turns that it runs.
    pub turns: usize,
    /// How long it has had none.
    pub idle_secs: Option<u64>,
    /// The memory of it and of what it started, where the system says so.
    pub memory_bytes: Option<u64>,
}

/// The workers of an agent whose turns run on other machines.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AgentPool {
    /// Its name in the settings.
    pub name: String,
    /// Turns of this relay that wait for a worker.
    pub waiting: usize,
    /// The workers that are there.
    pub workers: Vec<PoolWorker>,
}

impl AgentPool {
    /// Each pool once, though several agents may use it.
    pub(crate) fn merged(pools: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut merged: Vec<Self> = Vec::new();
        for pool in pools {
            match merged.iter_mut().find(|known| known.name == pool.name) {
                Some(known) => known.waiting += pool.waiting,
                None => merged.push(pool),
            }
        }
        merged
    }
}

/// A worker of a pool.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PoolWorker {
    /// Its name: the host's, unless its settings say otherwise.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Maximum concurrent turns.
    pub slots: usize,
    /// Turns that it runs, for any relay.
    pub running: usize,
    /// Whether it takes no more turns.
    pub draining: bool,
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

    /// What it has in memory of a session is not the latest: another process had the session since. The state that was saved last
    /// counts, and is loaded before the session's next turn.
    fn reload(&self, _session: &SessionKey) {}

    /// Lists what can be chosen for a conversation, or chooses. It is asked in place of [`Agent::run`], so never while a turn of
    /// the session runs; the turn's sink keeps what must outlive the process. Confirms only what is certain.
    fn prefer(&self, _turn: Turn, _request: PreferenceRequest) -> AgentFuture<'_, PreferenceAnswer> {
        Box::pin(std::future::ready(PreferenceAnswer::Unsupported))
    }

    /// Lists the conversations in a directory that it can go on with, also those that were begun without the relay, the latest
    /// first. Callers apply a timeout.
    fn list_sessions<'a>(&'a self, _workdir: Option<&'a Path>) -> AgentFuture<'a, Vec<ListedSession>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Slash commands that it understands, as far as it knows now.
    fn commands(&self) -> Vec<AgentCommand> {
        Vec::new()
    }

    /// Whether it reports what it changes ([`AgentEvent::Changed`]).
    fn reports_changes(&self) -> bool {
        false
    }

    /// The processes that it keeps between turns.
    fn processes(&self) -> Vec<AgentProcess> {
        Vec::new()
    }

    /// The workers that its turns run on, as far as they are known now.
    fn pool(&self) -> Option<AgentPool> {
        None
    }

    /// Ends everything it started.
    fn shutdown(&self) -> AgentFuture<'_, ()> {
        Box::pin(async {})
    }
}
