//! Limits around an agent: how many turns run, how long they take, a cooldown for an agent that keeps failing, and a check of
//! its working directory.
//!
//! Each guard is itself an [`Agent`], so that they nest in any order; [`Guards`] nests them in the usual one. A guard
//! never changes events, and passes questions and state on.

mod breaker;
#[cfg(test)]
mod tests;
mod timeout;
mod workdir;

pub use breaker::{BreakerSettings, CircuitBreaker};
pub use timeout::{TimeLimits, TurnTimeout};
pub use workdir::{WorkdirCheck, check_workdir};

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{Agent, AgentFuture, AgentInfo, Turn, TurnEnd};

/// Delegates methods to the inner agent; `rest` is everything but `info`, `health` and `run`.
macro_rules! delegate {
    ($inner:ident: $($method:ident),*) => {
        $(delegate!(@ $inner $method);)*
    };
    (@ $inner:ident info) => {
        fn info(&self) -> crate::agent::AgentInfo { self.$inner.info() }
    };
    (@ $inner:ident health) => {
        fn health(&self) -> crate::agent::AgentFuture<'_, crate::agent::AgentHealth> { self.$inner.health() }
    };
    (@ $inner:ident rest) => {
        fn steer(&self, session: &crate::wire::SessionKey, input: &crate::agent::TurnInput) -> bool {
            self.$inner.steer(session, input)
        }

        fn forget<'a>(&'a self, session: &'a crate::wire::SessionKey) -> crate::agent::AgentFuture<'a, ()> {
            self.$inner.forget(session)
        }

        fn reload(&self, session: &crate::wire::SessionKey) { self.$inner.reload(session); }

        fn prefer(
            &self,
            turn: crate::agent::Turn,
            request: crate::agent::PreferenceRequest,
        ) -> crate::agent::AgentFuture<'_, crate::agent::PreferenceAnswer> {
            self.$inner.prefer(turn, request)
        }

        fn list_sessions<'a>(
            &'a self,
            workdir: Option<&'a std::path::Path>,
        ) -> crate::agent::AgentFuture<'a, Vec<crate::agent::ListedSession>> {
            self.$inner.list_sessions(workdir)
        }

        fn commands(&self) -> Vec<crate::agent::AgentCommand> { self.$inner.commands() }

        fn reports_changes(&self) -> bool { self.$inner.reports_changes() }

        fn processes(&self) -> Vec<crate::agent::AgentProcess> { self.$inner.processes() }

        fn pool(&self) -> Option<crate::agent::AgentPool> { self.$inner.pool() }

        fn shutdown(&self) -> crate::agent::AgentFuture<'_, ()> { self.$inner.shutdown() }
    };
}
use delegate;

/// Which guards an agent gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards {
    /// Maximum concurrent turns.
    pub parallel: Option<usize>,
    /// Time limits of a turn.
    pub time: Option<TimeLimits>,
    /// Cooldown for an agent that keeps failing.
    pub breaker: Option<BreakerSettings>,
}

impl Guards {
    /// Wraps an agent. From the inside: timeout, circuit breaker, concurrency limit; so the wait for a free slot does not
    /// count as time of the turn.
    pub fn wrap(&self, mut agent: Arc<dyn Agent>) -> Arc<dyn Agent> {
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

/// Limits the concurrent turns of an agent; further turns wait in order.
pub struct ConcurrencyLimit {
    inner: Arc<dyn Agent>,
    permits: Semaphore,
    turns: usize,
}

impl ConcurrencyLimit {
    /// Runs at most `turns` at a time, and at least one.
    pub fn new(inner: Arc<dyn Agent>, turns: usize) -> Self {
        let turns = turns.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            inner,
            permits: Semaphore::new(turns),
            turns,
        }
    }
}

impl Agent for ConcurrencyLimit {
    delegate!(inner: health, rest);

    fn info(&self) -> AgentInfo {
        let inner = self.inner.info();
        AgentInfo {
            parallel: Some(inner.parallel.map_or(self.turns, |turns| turns.min(self.turns))),
            ..inner
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let permit = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
                permit = self.permits.acquire() => permit,
            };
            let end = self.inner.run(turn).await;
            drop(permit);
            end
        })
    }
}
