//! What stands around an agent: limits on how many turns run, how long, and how much they say; rest for one that keeps
//! failing; another try where that does no harm.
//!
//! Each guard is itself an [`Agent`], so they are put around each other in any order; [`Guards`] does it in the usual
//! one. A guard never changes what is said but where it says so, and hands on questions and memory as they come.

mod breaker;
mod limited;
mod tap;
#[cfg(test)]
mod tests;
mod timed;

pub use breaker::{BreakerSettings, CircuitBreaker};
pub use limited::ConcurrencyLimit;
pub use timed::{TimeLimits, TurnTimeout};

use std::sync::Arc;

use super::Agent;

/// Hands everything but `run` on to the agent inside.
macro_rules! hand_on {
    ($inside:ident: $($method:ident),*) => {
        $(hand_on!(@ $inside $method);)*
    };
    (@ $inside:ident info) => {
        fn info(&self) -> crate::agent::AgentInfo { self.$inside.info() }
    };
    (@ $inside:ident health) => {
        fn health(&self) -> crate::agent::AgentFuture<'_, crate::agent::AgentHealth> { self.$inside.health() }
    };
    (@ $inside:ident rest) => {
        fn steer(&self, session: &crate::wire::SessionKey, input: &crate::agent::TurnInput) -> bool {
            self.$inside.steer(session, input)
        }

        fn forget<'a>(&'a self, session: &'a crate::wire::SessionKey) -> crate::agent::AgentFuture<'a, ()> {
            self.$inside.forget(session)
        }

        fn commands(&self) -> Vec<crate::agent::AgentCommand> { self.$inside.commands() }

        fn shutdown(&self) -> crate::agent::AgentFuture<'_, ()> { self.$inside.shutdown() }
    };
}
use hand_on;

/// Which guards stand around an agent; none where nothing is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards {
    /// Turns at the same time.
    pub parallel: Option<usize>,
    /// How long a turn may take and be silent.
    pub time: Option<TimeLimits>,
    /// When one that keeps failing rests.
    pub breaker: Option<BreakerSettings>,
}

impl Guards {
    /// Puts the guards around an agent. From the inside: output, time (of one try), tries, rest, number of turns; so
    /// that waiting for a free place takes nobody's time, and only turns that failed for good count as failures.
    pub fn around(&self, mut agent: Arc<dyn Agent>) -> Arc<dyn Agent> {
        if let Some(limits) = self.time {
            agent = Arc::new(TurnTimeout::new(agent, limits));
        }
        if let Some(settings) = self.breaker {
            agent = Arc::new(CircuitBreaker::new(agent, settings));
        }
        if let Some(turns) = self.parallel {
            agent = Arc::new(ConcurrencyLimit::new(agent, turns));
        }
        agent
    }
}
