//! A turn takes only so long, and is silent only so long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::hand_on;
use super::tap::{GRACE, Tap, Watched, pass, watch};
use crate::agent::{Agent, AgentFuture, AgentSignal, Failure, FailureClass, PromptAnswer, Turn, TurnEnd};

/// How long a turn may take.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// In all.
    pub wall: Option<Duration>,
    /// Without a sign of life. Waiting for a person's answer does not count.
    pub idle: Option<Duration>,
    /// How long it may take to stop.
    pub grace: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            wall: None,
            idle: None,
            grace: GRACE,
        }
    }
}

/// An agent whose turns end in time.
pub struct TurnTimeout {
    inside: Arc<dyn Agent>,
    limits: TimeLimits,
}

impl TurnTimeout {
    /// Stops turns that take longer.
    pub fn new(inside: Arc<dyn Agent>, limits: TimeLimits) -> Self {
        Self { inside, limits }
    }
}

impl Agent for TurnTimeout {
    hand_on!(inside: info, health, rest);

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(async move {
            let (tapped, tap) = Tap::on(&turn);
            let activity = Activity::new();
            let over = Mutex::new(None);
            let trigger = async {
                let which = tokio::select! {
                    biased;
                    // The one who stopped the turn watches how long that takes.
                    () = turn.cancel.cancelled() => std::future::pending().await,
                    limit = wall(self.limits.wall) => Over::Wall(limit),
                    limit = activity.idle(self.limits.idle) => Over::Idle(limit),
                };
                *over.lock().unwrap_or_else(PoisonError::into_inner) = Some(which);
            };
            let forward = forward(tap, &activity);
            let watched = watch(&*self.inside, tapped, forward, trigger, self.limits.grace).await;
            match watched {
                Watched::Ended(end) | Watched::Stopped(Some(end @ TurnEnd::Completed)) => end,
                Watched::Stopped(end) => {
                    let over = over.lock().unwrap_or_else(PoisonError::into_inner).take();
                    TurnEnd::Failed(failure(over.as_ref(), end.is_some()))
                }
            }
        })
    }
}

/// Which limit was passed.
enum Over {
    Wall(Duration),
    Idle(Duration),
}

fn failure(over: Option<&Over>, stopped: bool) -> Failure {
    let (public, what) = match over {
        Some(Over::Idle(limit)) => (
            format!("The agent said nothing for {} and was stopped.", length(*limit)),
            "silent for too long",
        ),
        Some(Over::Wall(limit)) => (
            format!("The agent took longer than {} and was stopped.", length(*limit)),
            "took too long",
        ),
        None => (
            "The agent took too long and was stopped.".to_owned(),
            "took too long",
        ),
    };
    let how = if stopped {
        "stopped when asked"
    } else {
        "did not stop when asked"
    };
    Failure::new(FailureClass::Timeout, public, format!("{what}; {how}"))
}

/// A time in words.
pub(super) fn length(time: Duration) -> String {
    match time.as_secs() {
        0 => "a second".to_owned(),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

async fn wall(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

/// When something was last heard, and how many questions are open.
struct Activity(Mutex<(Instant, usize)>);

impl Activity {
    fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    fn note(&self, questions: isize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Instant::now();
        state.1 = state.1.saturating_add_signed(questions);
    }

    /// When the silence is too long, as things stand.
    fn deadline(&self, limit: Duration) -> Instant {
        let (last, questions) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = if questions > 0 { Instant::now() } else { last };
        last + limit
    }

    async fn idle(&self, limit: Option<Duration>) -> Duration {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        loop {
            let deadline = self.deadline(limit);
            if deadline <= Instant::now() {
                return limit;
            }
            sleep_until(deadline).await;
        }
    }
}

/// Hands signals on and notes them; stands between a question and its answer, to know when it is answered.
async fn forward(mut tap: Tap, activity: &Activity) {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = open.next(), if !open.is_empty() => activity.note(-1),
            signal = tap.next() => match signal {
                None => return,
                Some(AgentSignal::Question(question, answer)) => {
                    let (sender, answered) = oneshot::channel();
                    activity.note(1);
                    open.push(relay(answered, answer));
                    pass(&tap.outside, AgentSignal::Question(question, sender)).await;
                }
                Some(signal) => {
                    activity.note(0);
                    pass(&tap.outside, signal).await;
                    activity.note(0);
                }
            },
        }
    }
}

/// Hands an answer on; takes the question back when the agent no longer waits for it.
async fn relay(answered: oneshot::Receiver<PromptAnswer>, mut answer: oneshot::Sender<PromptAnswer>) {
    tokio::select! {
        biased;
        () = answer.closed() => {}
        given = answered => {
            // The agent may have gone in this moment; then nobody waits.
            let _ = answer.send(given.unwrap_or(PromptAnswer::Cancelled));
        }
    }
}
