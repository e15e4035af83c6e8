//! Who answers: one trait, one file per backend.
//!
//! An agent is handed one [`Turn`] and drives it to its [`TurnEnd`]; it never sees the connection, the
//! journal or another session. What it says goes into the turn's [`EventSink`]; it stops when the turn's
//! token is cancelled. Everything else — order, durability, limits, splitting, delivery — is done around it.

mod echo;
mod noop;
mod turn;

pub use echo::Echo;
pub use noop::Noop;
pub use turn::{AgentEvent, EventSink, Events, Failure, Turn, TurnEnd, TurnInput};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What an agent's asynchronous methods return.
pub type AgentFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a backend is and can do; fixed for its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Name for logs and people.
    pub name: String,
    /// Whether running a turn again after a crash does no harm.
    pub repeatable: bool,
    /// Whether a running turn can take another message.
    pub steers: bool,
}

/// One backend. Shared by all sessions, so it keeps what it needs per session itself.
pub trait Agent: Send + Sync + 'static {
    /// What it is and can do.
    fn describe(&self) -> Description;

    /// Drives one turn to its end. Must return soon after the turn's token is cancelled; the relay drops the
    /// future when it does not.
    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd>;

    /// Hands a message to a session's running turn, without waiting; `false` when it cannot be taken. Asked only
    /// of agents that say they can, and only while nothing older waits.
    fn steer(&self, _session: &crate::wire::SessionKey, _input: &TurnInput) -> bool {
        false
    }

    /// Forgets what it remembers of a session.
    fn forget<'a>(&'a self, _session: &'a crate::wire::SessionKey) -> AgentFuture<'a, ()> {
        Box::pin(async {})
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
