//! Ends turns that take too long or are silent too long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::delegate;
use crate::agent::{
    Agent, AgentFuture, AgentSignal, EventSink, Failure, FailureClass, PromptAnswer, SignalReceiver, Turn,
    TurnEnd,
};

/// Time limits of a turn. Waiting for a person's answer does not count: a question has a timeout of its own.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// Maximum duration.
    pub wall: Option<Duration>,
    /// Maximum time without an event.
    pub idle: Option<Duration>,
    /// Time to stop after a limit was reached; then the turn is dropped.
    pub grace: Duration,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            wall: None,
            idle: None,
            grace: Duration::from_secs(10),
        }
    }
}

/// Applies [`TimeLimits`] to the turns of an agent.
pub struct TurnTimeout {
    inner: Arc<dyn Agent>,
    limits: TimeLimits,
}

impl TurnTimeout {
    /// Limits the turns of `inner`.
    pub fn new(inner: Arc<dyn Agent>, limits: TimeLimits) -> Self {
        Self { inner, limits }
    }

    async fn run_limited(&self, mut turn: Turn) -> TurnEnd {
        let (events, inside) = turn.events.nested();
        let activity = Activity::new();
        let asked = turn.resumed.as_mut().map(|resumed| {
            let (sender, answer) = oneshot::channel();
            (std::mem::replace(&mut resumed.answer, answer), sender)
        });
        let over = CancellationToken::new();
        let inner = Turn {
            id: turn.id,
            session: turn.session.clone(),
            input: turn.input.clone(),
            approver: turn.approver.through(&events),
            events,
            cancel: turn.cancel.child_token(),
            workdir: turn.workdir.clone(),
            resumed: turn.resumed.take(),
        };
        let cancel = inner.cancel.clone();
        let mut run = self.inner.run(inner);
        let forward = forward(inside, asked, &turn.events, &over, &activity);
        let limit = async {
            tokio::select! {
                biased;
                // Whoever stopped the turn applies a timeout of its own.
                () = turn.cancel.cancelled() => std::future::pending().await,
                limit = activity.wall(self.limits.wall) => Limit::Wall(limit),
                limit = activity.idle(self.limits.idle) => Limit::Idle(limit),
            }
        };
        tokio::pin!(forward, limit);
        let mut forwarding = true;
        let reached = loop {
            tokio::select! {
                biased;
                end = &mut run => {
                    over.cancel();
                    if forwarding {
                        forward.await;
                    }
                    return end;
                }
                reached = &mut limit => break reached,
                () = &mut forward, if forwarding => forwarding = false,
            }
        };
        cancel.cancel();
        let stopped = timeout(self.limits.grace, async {
            let end = loop {
                tokio::select! {
                    biased;
                    end = &mut run => break end,
                    () = &mut forward, if forwarding => forwarding = false,
                }
            };
            over.cancel();
            if forwarding {
                forward.await;
            }
            end
        })
        .await;
        match stopped {
            Ok(TurnEnd::Completed) => TurnEnd::Completed,
            stopped => TurnEnd::Failed(reached.failure(stopped.is_ok())),
        }
    }
}

impl Agent for TurnTimeout {
    delegate!(inner: info, health, rest);

    fn run(&self, turn: Turn) -> AgentFuture<'_, TurnEnd> {
        Box::pin(self.run_limited(turn))
    }
}

/// The limit that was reached.
enum Limit {
    Wall(Duration),
    Idle(Duration),
}

impl Limit {
    fn failure(&self, stopped: bool) -> Failure {
        let (public, what) = match self {
            Self::Idle(limit) => (
                format!("The agent was silent for {} and was stopped.", display(*limit)),
                "idle timeout",
            ),
            Self::Wall(limit) => (
                format!("The agent took longer than {} and was stopped.", display(*limit)),
                "turn timeout",
            ),
        };
        let how = if stopped {
            "stopped when cancelled"
        } else {
            "did not stop when cancelled"
        };
        Failure::new(FailureClass::Timeout, public, format!("{what}; {how}"))
    }
}

/// A duration for people.
pub(super) fn display(time: Duration) -> String {
    match time.as_secs() {
        0 => "a second".to_owned(),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

/// What the agent does, and whether it waits for a person.
struct Activity {
    state: Mutex<ActivityState>,
    /// The last open question has ended.
    resumed: Notify,
}

struct ActivityState {
    /// Time of the last event.
    last: Instant,
    /// Number of open questions.
    questions: usize,
    /// Since when there is one.
    asked: Instant,
    /// When the turn began, later by the time that it waited for people.
    begun: Instant,
}

impl Activity {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            state: Mutex::new(ActivityState {
                last: now,
                questions: 0,
                asked: now,
                begun: now,
            }),
            resumed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened.
    fn note(&self) {
        self.state().last = Instant::now();
    }

    /// A question is open.
    fn question_opened(&self) {
        self.note();
        let mut state = self.state();
        if state.questions == 0 {
            state.asked = state.last;
        }
        state.questions += 1;
    }

    /// A question has ended.
    fn question_ended(&self) {
        self.note();
        let mut state = self.state();
        state.questions = state.questions.saturating_sub(1);
        if state.questions == 0 {
            let waited = state.last.duration_since(state.asked);
            state.begun += waited;
            self.resumed.notify_waiters();
        }
    }

    /// Waits until the turn has taken so long.
    async fn wall(&self, limit: Option<Duration>) -> Duration {
        self.reach(limit, |state| state.begun).await
    }

    /// Waits until there was no event for so long.
    async fn idle(&self, limit: Option<Duration>) -> Duration {
        self.reach(limit, |state| state.last).await
    }

    /// Waits until so much time has passed since then in which no question was open.
    async fn reach(&self, limit: Option<Duration>, since: fn(&ActivityState) -> Instant) -> Duration {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        loop {
            let (is_asking, deadline) = {
                let state = self.state();
                (state.questions > 0, since(&state).checked_add(limit))
            };
            match deadline {
                None => std::future::pending().await,
                Some(_) if is_asking => self.resumed.notified().await,
                Some(deadline) if deadline <= Instant::now() => return limit,
                Some(deadline) => sleep_until(deadline).await,
            }
        }
    }
}

/// Forwards signals and notes them, until the run is over and everything it sent was forwarded, whoever still holds its
/// sink. Questions get a channel in between, to see when they are answered.
async fn forward(
    mut inside: SignalReceiver,
    asked: Option<(oneshot::Receiver<PromptAnswer>, oneshot::Sender<PromptAnswer>)>,
    outside: &EventSink,
    over: &CancellationToken,
    activity: &Activity,
) {
    let mut open = FuturesUnordered::new();
    if let Some((answered, answer)) = asked {
        activity.question_opened();
        open.push(forward_answer(answered, answer));
    }
    loop {
        tokio::select! {
            biased;
            Some(()) = open.next(), if !open.is_empty() => activity.question_ended(),
            () = over.cancelled(), if !inside.is_closed() => inside.close(),
            signal = inside.recv() => match signal {
                None => return,
                Some(AgentSignal::Question(question, answer)) => {
                    let (sender, answered) = oneshot::channel();
                    activity.question_opened();
                    open.push(forward_answer(answered, answer));
                    // An error means that the turn was abandoned.
                    let signal = AgentSignal::Question(question, sender);
                    let _ = outside.signals.send(Box::new(signal)).await;
                }
                Some(signal) => {
                    activity.note();
                    let _ = outside.signals.send(Box::new(signal)).await;
                    activity.note();
                }
            },
        }
    }
}

/// Forwards an answer; withdraws the question when the agent stops waiting for it.
async fn forward_answer(
    answered: oneshot::Receiver<PromptAnswer>,
    mut answer: oneshot::Sender<PromptAnswer>,
) {
    tokio::select! {
        biased;
        () = answer.closed() => {}
        given = answered => {
            // Fails when the agent has just stopped waiting.
            let _ = answer.send(given.unwrap_or(PromptAnswer::Cancelled));
        }
    }
}
