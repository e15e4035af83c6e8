//! Rest for an agent that keeps failing, so that every message does not wait for the same failure.
//!
//! After some failures in a row (the agent cannot be reached, or ended in the middle) turns fail at once for a while.
//! Then one turn looks whether the agent is well again and, when it is, runs; the others go on failing until it is
//! done. Each further failure doubles the rest, up to a bound; a success ends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::hand_on;
use super::timed::length;
use crate::agent::{Agent, AgentFuture, AgentHealth, Failure, FailureClass, Turn, TurnEnd};

/// How long a look at the agent's health may take.
const LOOK: Duration = Duration::from_secs(5);

/// When an agent rests.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Failures in a row that start a rest.
    pub failures: u32,
    /// How long the first rest is.
    pub rest: Duration,
    /// How long a rest can get.
    pub longest: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 3,
            rest: Duration::from_secs(10),
            longest: Duration::from_secs(600),
        }
    }
}

/// An agent that rests when it keeps failing.
pub struct CircuitBreaker {
    inside: Arc<dyn Agent>,
    settings: BreakerSettings,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Turns go through; so many failed in a row.
    Closed { failures: u32 },
    /// Turns fail at once until then; it is the rest of this number.
    Open { until: Instant, rests: u32 },
    /// One turn tries; the others fail at once.
    Probing { rests: u32 },
}

/// What a turn may do.
enum Entry {
    Run,
    Probe(u32),
    Refused(String),
}

impl CircuitBreaker {
    /// Watches an agent.
    pub fn new(inside: Arc<dyn Agent>, settings: BreakerSettings) -> Self {
        Self {
            inside,
            settings,
            state: Mutex::new(State::Closed { failures: 0 }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Entry {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => Entry::Run,
            State::Open { until, rests } if until <= Instant::now() => {
                *state = State::Probing { rests };
                Entry::Probe(rests)
            }
            State::Open { until, .. } => Entry::Refused(format!(
                "The agent keeps failing and rests. Try again in {}.",
                length(until - Instant::now())
            )),
            State::Probing { .. } => Entry::Refused(
                "The agent kept failing and is being tried with another message. Try again in a moment."
                    .to_owned(),
            ),
        }
    }

    /// Starts the rest of this number.
    fn rest(&self, rests: u32) {
        let longer = self
            .settings
            .rest
            .saturating_mul(2_u32.saturating_pow(rests.min(31)));
        let until = Instant::now() + longer.min(self.settings.longest);
        *self.state() = State::Open { until, rests };
        tracing::warn!(
            agent = self.inside.info().name,
            "the agent keeps failing and rests"
        );
    }

    /// What an ordinary turn's end means.
    fn ended(&self, end: &TurnEnd) {
        let mut state = self.state();
        // Others may have changed it meanwhile; then this end is old news.
        let State::Closed { failures } = &mut *state else {
            return;
        };
        match verdict(end) {
            Verdict::Well => *failures = 0,
            Verdict::Unknown => {}
            Verdict::Ill => {
                *failures += 1;
                if *failures >= self.settings.failures {
                    drop(state);
                    self.rest(0);
                }
            }
        }
    }

    async fn probe(&self, rests: u32, turn: Turn) -> TurnEnd {
        // Also when this future is dropped, the next turn may try.
        let mut probing = Probing {
            breaker: self,
            after: State::Open {
                until: Instant::now(),
                rests,
            },
        };
        let health = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return TurnEnd::Cancelled { confirmed: true },
            health = timeout(LOOK, self.inside.health()) => health,
        };
        let down = match health {
            Ok(AgentHealth::Ready | AgentHealth::Degraded(_)) => None,
            Ok(AgentHealth::Down(why)) => Some(why),
            Err(_) => Some("its health is not known".to_owned()),
        };
        if let Some(why) = down {
            drop(probing);
            self.rest(rests + 1);
            return refusal("The agent is still down. Try again later.", &why);
        }
        let end = self.inside.run(turn).await;
        match verdict(&end) {
            Verdict::Well => probing.after = State::Closed { failures: 0 },
            Verdict::Unknown => {}
            Verdict::Ill => {
                drop(probing);
                self.rest(rests + 1);
            }
        }
        end
    }
}

/// Says what comes after a try, when it ends.
struct Probing<'a> {
    breaker: &'a CircuitBreaker,
    after: State,
}

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        *self.breaker.state() = self.after;
    }
}

/// What the end of a turn tells about the agent.
enum Verdict {
    Well,
    Ill,
    Unknown,
}

fn verdict(end: &TurnEnd) -> Verdict {
    match end {
        TurnEnd::Completed | TurnEnd::Truncated(_) | TurnEnd::Refused => Verdict::Well,
        TurnEnd::Cancelled { .. } => Verdict::Unknown,
        TurnEnd::Failed(failure) => match failure.class {
            FailureClass::Unavailable | FailureClass::Crashed => Verdict::Ill,
            FailureClass::Timeout | FailureClass::Internal => Verdict::Unknown,
            FailureClass::Credentials | FailureClass::Protocol | FailureClass::Reported => Verdict::Well,
        },
    }
}

fn refusal(public: &str, detail: &str) -> TurnEnd {
    TurnEnd::Failed(Failure::new(FailureClass::Unavailable, public, detail).without_side_effects())
}

impl Agent for CircuitBreaker {
    hand_on!(inside: info, rest);

    fn health(&self) -> AgentFuture<'_, AgentHealth> {
        let state = *self.state();
        match state {
            State::Open { until, .. } if until > Instant::now() => {
                let left = length(until - Instant::now());
                let why = format!("it keeps failing and rests for another {left}");
                Box::pin(std::future::ready(AgentHealth::Down(why)))
            }
            _ => self.inside.health(),
        }
    }

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            match self.enter() {
                Entry::Refused(why) => refusal(&why, "it failed too often in a row"),
                Entry::Probe(rests) => self.probe(rests, turn).await,
                Entry::Run => {
                    let end = self.inside.run(turn).await;
                    self.ended(&end);
                    end
                }
            }
        })
    }
}
