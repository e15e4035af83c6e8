//! Accepts every message and says nothing.

use super::{Agent, AgentFuture, Description, Turn, TurnEnd};

/// The silent agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Agent for Noop {
    fn describe(&self) -> Description {
        Description {
            name: "noop".to_owned(),
            kind: "noop",
            repeatable: true,
            ..Description::default()
        }
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn run(&self, _turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(std::future::ready(TurnEnd::Completed))
    }
}
