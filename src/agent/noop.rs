//! Accepts every message and says nothing.

use super::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd};

/// The silent agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopAgent;

impl Agent for NoopAgent {
    fn info(&self) -> AgentInfo {
        AgentInfo {
            name: "noop".to_owned(),
            kind: "noop",
            repeatable: true,
            ..AgentInfo::default()
        }
    }

    fn answers_inline(&self) -> bool {
        true
    }

    fn run(&self, _turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(std::future::ready(TurnEnd::Completed))
    }
}
