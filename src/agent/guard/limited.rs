//! At most so many turns of an agent at a time; more wait, first come, first served.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::hand_on;
use crate::agent::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd};

/// An agent that runs at most so many turns at a time.
pub struct ConcurrencyLimit {
    inside: Arc<dyn Agent>,
    places: Semaphore,
    turns: usize,
}

impl ConcurrencyLimit {
    /// Lets `turns` through at a time, and at least one.
    pub fn new(inside: Arc<dyn Agent>, turns: usize) -> Self {
        let turns = turns.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            inside,
            places: Semaphore::new(turns),
            turns,
        }
    }
}

impl Agent for ConcurrencyLimit {
    hand_on!(inside: health, rest);

    fn info(&self) -> AgentInfo {
        let inside = self.inside.info();
        AgentInfo {
            parallel: Some(inside.parallel.map_or(self.turns, |turns| turns.min(self.turns))),
            ..inside
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            // Dropping the wait gives the place in the queue back.
            let place = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
                place = self.places.acquire() => place,
            };
            let end = self.inside.run(turn).await;
            drop(place);
            end
        })
    }
}
