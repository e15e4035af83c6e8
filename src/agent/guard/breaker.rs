//! Circuit breaker for an agent that keeps failing.
//!
//! After some failures in a row (the agent cannot be reached, or crashed) turns fail immediately during a cooldown. Then
//! one turn checks the agent's health and, if it is up, runs; the others keep failing until it is done. Each further
//! failure doubles the cooldown, up to a maximum; a success closes the circuit.
//!
//! Turns that ran when a failure was counted do not count as further ones: they may have shared what failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::delegate;
use super::timeout::display;
use crate::agent::{Agent, AgentFuture, AgentHealth, Failure, FailureClass, Turn, TurnEnd};

/// Timeout of a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// When the circuit opens.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Consecutive failures that open it.
    pub failures: u32,
    /// The wait after the circuit opens for the first time.
    pub cooldown: Duration,
    /// The longest wait after repeated failures.
    pub max_cooldown: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            cooldown: Duration::from_secs(10),
            max_cooldown: Duration::from_secs(600),
        }
    }
}

/// Stops sending turns to an agent that keeps failing.
pub struct CircuitBreaker {
    inner: Arc<dyn Agent>,
    settings: BreakerSettings,
    state: Mutex<BreakerState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    /// Turns run; this many failures were counted in a row, the last of them then.
    Closed { failures: u32, last: Option<Instant> },
    /// Turns fail immediately until then; earlier cooldowns in a row.
    Open { until: Instant, earlier: u32 },
    /// One turn probes; the others fail immediately.
    Probing { earlier: u32 },
}

/// Whether a turn may start.
enum BreakerDecision {
    Run,
    Probe(u32),
    Refused(String),
}

impl CircuitBreaker {
    /// Wraps an agent.
    pub fn new(inner: Arc<dyn Agent>, settings: BreakerSettings) -> Self {
        Self {
            inner,
            settings,
            state: Mutex::new(BreakerState::Closed {
                failures: 0,
                last: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, now: Instant) -> BreakerDecision {
        let mut state = self.state();
        match *state {
            BreakerState::Closed { .. } => BreakerDecision::Run,
            BreakerState::Open { until, earlier } if until <= now => {
                *state = BreakerState::Probing { earlier };
                BreakerDecision::Probe(earlier)
            }
            BreakerState::Open { until, .. } => BreakerDecision::Refused(format!(
                "The agent keeps failing and is paused. Try again in {}.",
                display(until - now)
            )),
            BreakerState::Probing { .. } => BreakerDecision::Refused(
                "The agent kept failing and is being tested with another message. Try again in a moment."
                    .to_owned(),
            ),
        }
    }

    /// Starts a cooldown.
    fn open(&self, earlier: u32, now: Instant) {
        let cooldown = self
            .settings
            .cooldown
            .saturating_mul(2_u32.saturating_pow(earlier.min(31)))
            .min(self.settings.max_cooldown);
        let until = now + cooldown;
        *self.state() = BreakerState::Open { until, earlier };
        tracing::warn!(
            agent = &*self.inner.info().name,
            "the agent keeps failing; turns fail immediately during a cooldown"
        );
    }

    /// Counts the end of an ordinary turn that began then.
    fn record(&self, end: &TurnEnd, began: Instant, now: Instant) {
        let mut state = self.state();
        // Another turn may have opened the circuit meanwhile.
        let BreakerState::Closed { failures, last } = &mut *state else {
            return;
        };
        match evidence(end) {
            Evidence::Up => *failures = 0,
            Evidence::None => {}
            Evidence::Down if last.is_some_and(|last| began < last) => {}
            Evidence::Down => {
                *failures += 1;
                *last = Some(now);
                if *failures >= self.settings.failures {
                    drop(state);
                    self.open(0, now);
                }
            }
        }
    }

    async fn probe(&self, earlier: u32, turn: Turn, began: Instant) -> TurnEnd {
        // If this future is dropped, the next turn may probe.
        let mut probing = ProbeGuard {
            breaker: self,
            after: BreakerState::Open {
                until: began,
                earlier,
            },
        };
        let health = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            health = timeout(HEALTH_TIMEOUT, self.inner.health()) => health,
        };
        let down = match health {
            Ok(AgentHealth::Ready | AgentHealth::Degraded(_)) => None,
            Ok(AgentHealth::Down(why) | AgentHealth::NotInstalled(why)) => Some(why),
            Err(_) => Some("the health check timed out".to_owned()),
        };
        if let Some(why) = down {
            drop(probing);
            self.open(earlier + 1, Instant::now());
            return refusal("The agent is still down. Try again later.", &why);
        }
        let end = self.inner.run(turn).await;
        match evidence(&end) {
            Evidence::Up => {
                probing.after = BreakerState::Closed {
                    failures: 0,
                    last: Some(began),
                }
            }
            Evidence::None => {}
            Evidence::Down => {
                drop(probing);
                self.open(earlier + 1, Instant::now());
            }
        }
        end
    }
}

/// Sets the state after a probe.
struct ProbeGuard<'a> {
    breaker: &'a CircuitBreaker,
    after: BreakerState,
}

impl Drop for ProbeGuard<'_> {
    fn drop(&mut self) {
        *self.breaker.state() = self.after;
    }
}

/// Health of the agent, judged by the end of a turn.
enum Evidence {
    Up,
    Down,
    None,
}

fn evidence(end: &TurnEnd) -> Evidence {
    match end {
        TurnEnd::Completed | TurnEnd::Truncated(_) | TurnEnd::Refused => Evidence::Up,
        TurnEnd::Cancelled { .. } => Evidence::None,
        TurnEnd::Failed(failure) => match failure.class {
            FailureClass::Unavailable | FailureClass::Crashed => Evidence::Down,
            FailureClass::Timeout | FailureClass::Internal | FailureClass::Lost => Evidence::None,
            FailureClass::Credentials | FailureClass::Protocol | FailureClass::Reported => Evidence::Up,
        },
    }
}

fn refusal(public: &str, detail: &str) -> TurnEnd {
    TurnEnd::Failed(Failure::new(FailureClass::Unavailable, public, detail).without_side_effects())
}

impl Agent for CircuitBreaker {
    delegate!(inner: info, rest);

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        let state = *self.state();
        match state {
            BreakerState::Open { until, .. } if until > Instant::now() => {
                let left = display(until - Instant::now());
                let why = format!("it keeps failing and is paused for another {left}");
                Box::pin(std::future::ready(AgentHealth::Down(why)))
            }
            _ => self.inner.health(),
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let began = Instant::now();
            match self.enter(began) {
                BreakerDecision::Refused(why) => refusal(&why, "too many failures in a row"),
                BreakerDecision::Probe(earlier) => self.probe(earlier, turn, began).await,
                BreakerDecision::Run => {
                    let end = self.inner.run(turn).await;
                    self.record(&end, began, Instant::now());
                    end
                }
            }
        })
    }
}
