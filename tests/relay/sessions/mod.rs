//! Whole conversations over a connector in memory, with a real journal: what is acknowledged when, who is
//! answered in which order, what stops, what is pending, and what the end and a crash leave behind.

mod accepting;
mod declined;
mod half_written;
mod inline;
mod interrupt;
mod left_shown;
mod memory_transport;
pub(crate) mod pending_ops;
mod queue;
mod shutdown;
mod steering;

use crate::support::memory_relay::{Running, start_with};
use hermes_relay::agent::{Agent, AgentFuture, AgentInfo, EchoAgent, Turn, TurnEnd};
use hermes_relay::config::Settings;
use hermes_relay::wire::SessionKey;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The echo, with a memory of what it was asked.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    /// Texts, in the order in which their turns began.
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
    /// Sessions it was told to forget.
    pub(crate) forgot: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }
}

impl Agent for Witness {
    fn info(&self) -> AgentInfo {
        EchoAgent.info()
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        self.ran.lock().unwrap().push(turn.input.text.clone());
        EchoAgent.run(turn)
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> AgentFuture<'a, ()> {
        self.forgot.lock().unwrap().push(session.as_str().to_owned());
        Box::pin(async {})
    }
}

/// A relay whose agent echoes.
pub(crate) async fn start(dir: &Path, adjust: impl FnOnce(&mut Settings)) -> Running {
    start_with(dir, EchoAgent, adjust).await
}

/// A text that takes longer than any test.
pub(crate) const HANG: &str = "sleep=600000 late";
