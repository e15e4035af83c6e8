//! Sends ops as calls of a platform's API, at the pace that the server allows. Each op runs in a task of its own; the relay keeps
//! their order. Knows no platform: [`PlatformApi`] makes the calls.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::ResultSender;
use crate::direct::flood::{CallKind, FloodBudget, FloodPermit, FloodRates};
use crate::direct::{ChatBackoff, LatestReactions, is_recorded, wait_to_repeat};
use crate::link::{NotSent, Op, SendResult};
use crate::relay::clock::Clock;
use crate::store::AppliedOps;
use crate::wire::{Action, OpId, OpResult, Outcome};

/// Required calls under way; further ones wait.
const MAX_REQUIRED_CALLS: usize = 16;
/// Droppable calls under way; further ones are dropped.
const MAX_DROPPABLE_CALLS: usize = 4;

/// The next step of an op, whatever the platform.
#[allow(clippy::large_enum_variant, reason = "it is moved once")]
pub(super) enum BotStep<C> {
    /// Make this call.
    Call(C),
    /// The op has ended with this outcome.
    Done(Outcome),
    /// The op has ended early: the rest was not sent, and may be sent again.
    NotSent,
}

/// What a call says about its place in the budgets.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCost {
    /// The chat whose budget it counts against.
    pub(super) chat: i64,
    /// Whether it must arrive.
    pub(super) kind: CallKind,
}

/// A platform's API: which calls an op takes, and how they are made.
pub(super) trait PlatformApi: Send + Sync + 'static {
    /// One op as a sequence of calls.
    type Calls: Send;
    /// One call.
    type Call: Send;
    /// The answer to a call.
    type Answer: Send;

    /// Begins an op; the error is its result.
    #[allow(clippy::result_large_err, reason = "the error is the result of the op")]
    fn begin(&self, op: OpId, action: &Action) -> Result<Self::Calls, OpResult>;
    /// The chat that an op goes to.
    fn chat(calls: &Self::Calls) -> i64;
    /// The next step of an op.
    fn step(calls: &Self::Calls) -> BotStep<Self::Call>;
    /// What a call counts against.
    fn cost(call: &Self::Call) -> CallCost;
    /// Whether the server has room for a call, as far as it has said; the call is not counted.
    fn room(&self, _call: &Self::Call, _now: Duration) -> FloodPermit {
        FloodPermit::Now
    }
    /// Makes a call.
    fn make(&self, call: Self::Call) -> impl Future<Output = Self::Answer> + Send;
    /// Takes the answer to a call; returns the time to wait if the server limits the chat.
    fn answered(&self, calls: &mut Self::Calls, answer: Self::Answer) -> Option<Duration>;
    /// There was no room for a droppable call.
    fn dropped(&self, calls: &mut Self::Calls);
    /// The server limits the chat, so the call was not made.
    fn limited(&self, calls: &mut Self::Calls, retry_after: Duration);
    /// Whether the message that an edit names has buttons.
    fn edits_buttons(&self, action: &Action) -> bool;
    /// An op succeeded.
    fn succeeded(&self, action: &Action) -> impl Future<Output = ()> + Send;
}

/// The sending half of a bot.
pub(super) struct BotSender<A> {
    pub(super) api: A,
    clock: Clock,
    state: Mutex<SenderState>,
    required_calls: Semaphore,
    droppable_calls: Semaphore,
    /// Ops under way.
    under_way: watch::Sender<usize>,
    /// Cancelled when the relay ends: waits end at once.
    closing: CancellationToken,
}

impl<A> std::fmt::Debug for BotSender<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BotSender")
            .field("under_way", &*self.under_way.borrow())
            .finish_non_exhaustive()
    }
}

/// The state behind one lock, which is held briefly and never across an await.
#[derive(Debug)]
struct SenderState {
    flood: FloodBudget,
    backoff: ChatBackoff<i64>,
    reactions: LatestReactions,
    /// Ops that the platform has applied, also in earlier runs; `None` before the start, or when they cannot be recorded.
    applied: Option<AppliedOps>,
    /// Ops of which no call has been made yet.
    unsent: HashSet<OpId>,
}

impl<A: PlatformApi> BotSender<A> {
    pub(super) fn new(api: A, rates: FloodRates) -> Self {
        Self {
            api,
            clock: Clock::start(),
            state: Mutex::new(SenderState {
                flood: FloodBudget::new(rates),
                backoff: ChatBackoff::default(),
                reactions: LatestReactions::default(),
                applied: None,
                unsent: HashSet::new(),
            }),
            required_calls: Semaphore::new(MAX_REQUIRED_CALLS),
            droppable_calls: Semaphore::new(MAX_DROPPABLE_CALLS),
            under_way: watch::channel(0).0,
            closing: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs an op in a task of its own.
    pub(super) fn submit(self: &Arc<Self>, op: &Op, results: ResultSender) {
        let action = serde_json::from_str::<Action>(op.action.as_str()).ok();
        {
            let mut state = self.lock();
            state.unsent.insert(op.id);
            if let Some(action) = &action {
                state.reactions.submitted(op.id, action);
            }
        }
        self.under_way.send_modify(|count| *count += 1);
        let (sender, id, within) = (Arc::clone(self), op.id, op.timeout);
        tokio::spawn(async move {
            let performing = sender.perform(id, action);
            // Every call has a timeout; an op of many parts may take many of them.
            let result = match within {
                Some(within) => timeout(within, performing).await,
                None => Ok(performing.await),
            };
            let result = match result {
                Ok(result) => result,
                Err(_) if sender.has_left(id) => SendResult::Answered(Box::new(Outcome::Unknown)),
                Err(_) => SendResult::NotSent(NotSent::Expired),
            };
            sender.lock().unsent.remove(&id);
            let _ = results.try_send((id, result));
            sender.under_way.send_modify(|count| *count -= 1);
        });
    }

    /// Whether a call of an op has been made.
    pub(super) fn has_left(&self, op: OpId) -> bool {
        !self.lock().unsent.contains(&op)
    }

    /// Waits for the ops under way, at most this long. Ops that wait for a retry or a budget end at once.
    pub(super) async fn drain(&self, within: Duration) {
        self.closing.cancel();
        let mut under_way = self.under_way.subscribe();
        let _ = timeout(within, under_way.wait_for(|count| *count == 0)).await;
    }

    async fn perform(&self, op: OpId, action: Option<Action>) -> SendResult {
        let Some(action) = action else {
            return answered(OpResult {
                error: Some("the op cannot be read".into()),
                ..OpResult::default()
            });
        };
        if self.lock().reactions.is_superseded(op, &action) {
            return answered(OpResult {
                success: true,
                ..OpResult::default()
            });
        }
        if let Some(message) = self.lock().applied.as_ref().and_then(|applied| applied.find(op)) {
            tracing::info!(%op, "an op was applied before the restart");
            return answered(OpResult {
                success: true,
                message_id: (!message.is_empty()).then(|| message.into()),
                ..OpResult::default()
            });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let result = self.attempt(op, &action).await;
            let outcome = match &result {
                SendResult::Answered(outcome) => &**outcome,
                SendResult::Lost => &Outcome::Unknown,
                SendResult::NotSent(_) => return result,
            };
            let edits_buttons = self.api.edits_buttons(&action);
            let wait = wait_to_repeat(&action, edits_buttons, outcome, attempts);
            match wait.map(|wait| self.clock.mono() + wait) {
                Some(at) if self.wait_until(at).await => {}
                Some(_) | None => return result,
            }
        }
    }

    async fn attempt(&self, op: OpId, action: &Action) -> SendResult {
        let mut calls = match self.api.begin(op, action) {
            Ok(calls) => calls,
            Err(refused) => return answered(refused),
        };
        let mut kind = CallKind::Droppable;
        let mut limited_until = None;
        loop {
            let call = match A::step(&calls) {
                BotStep::Call(call) => call,
                BotStep::Done(Outcome::Unknown) if kind == CallKind::Required => {
                    self.wait_after_failure(A::chat(&calls)).await;
                    return SendResult::Lost;
                }
                BotStep::Done(mut outcome) => {
                    if let Some(until) = limited_until {
                        name_wait(&mut outcome, self.clock.mono(), until);
                    }
                    if let Outcome::Applied(result) = &outcome {
                        self.record(op, action, result);
                        self.succeeded(action, A::chat(&calls)).await;
                    }
                    return SendResult::Answered(Box::new(outcome));
                }
                BotStep::NotSent => {
                    if kind == CallKind::Required {
                        self.wait_after_failure(A::chat(&calls)).await;
                    }
                    return SendResult::NotSent(NotSent::NotLive);
                }
            };
            let cost = A::cost(&call);
            kind = cost.kind;
            let now = self.clock.mono();
            let permit = match self.api.room(&call, now) {
                FloodPermit::Now => self.lock().flood.admit(cost.chat, cost.kind, now),
                permit => permit,
            };
            match permit {
                FloodPermit::Now => {}
                FloodPermit::At(at) => {
                    if !self.wait_until(at).await {
                        return SendResult::NotSent(NotSent::Closing);
                    }
                    continue;
                }
                FloodPermit::Drop => {
                    self.api.dropped(&mut calls);
                    continue;
                }
                FloodPermit::Limited { retry_after } => {
                    self.api.limited(&mut calls, retry_after);
                    continue;
                }
            }
            let Some(_slot) = self.slot(cost.kind).await else {
                self.api.dropped(&mut calls);
                continue;
            };
            self.lock().unsent.remove(&op);
            let answer = self.api.make(call).await;
            if let Some(retry_after) = self.api.answered(&mut calls, answer) {
                let now = self.clock.mono();
                limited_until = Some(self.lock().flood.limited(cost.chat, retry_after, now));
            }
        }
    }

    /// A place among the calls under way; `None` for a droppable call when all are taken.
    async fn slot(&self, kind: CallKind) -> Option<SemaphorePermit<'_>> {
        match kind {
            CallKind::Droppable => self.droppable_calls.try_acquire().ok(),
            CallKind::Required => self.required_calls.acquire().await.ok(),
        }
    }

    /// Reads which ops were applied in earlier runs. The platform knows no op ids and would show an op twice that is sent twice.
    pub(super) fn load_applied(&self, path: &Path) {
        let applied = AppliedOps::open(path).inspect_err(
            |error| tracing::warn!(%error, "cannot read which answers the bot has sent; it may repeat one"),
        );
        self.lock().applied = applied.ok();
    }

    /// Records that an op was applied: the journal has its result only after the next commit.
    fn record(&self, op: OpId, action: &Action, result: &OpResult) {
        let message = result.message_id.as_ref().map_or("", |id| id.as_str());
        let mut state = self.lock();
        if let Some(applied) = state.applied.as_mut().filter(|_| is_recorded(action))
            && let Err(error) = applied.note(op, message)
        {
            tracing::warn!(%error, "cannot record what the bot sends; after a crash it may repeat an answer");
            state.applied = None;
        }
    }

    /// An op succeeded: its chat works.
    async fn succeeded(&self, action: &Action, chat: i64) {
        self.lock().backoff.succeeded(&chat);
        self.api.succeeded(action).await;
    }

    /// Delays the result of a failed op, because the relay sends the op again at once.
    async fn wait_after_failure(&self, chat: i64) {
        let wait = self.lock().backoff.failed(chat);
        self.wait_until(self.clock.mono() + wait).await;
    }

    /// The time, as budgets and waits count it.
    pub(super) fn now(&self) -> Duration {
        self.clock.mono()
    }

    /// Waits until a time; `false` if the relay ends first.
    pub(super) async fn wait_until(&self, at: Duration) -> bool {
        tokio::select! {
            () = self.closing.cancelled() => false,
            () = sleep_until(self.clock.instant(at)) => true,
        }
    }
}

/// Has the result of an op that must wait name when its chat may be called again: before that it would be refused once more.
fn name_wait(outcome: &mut Outcome, now: Duration, until: Duration) {
    if let Outcome::Refused { result, .. } = outcome
        && result.retry_after.is_some()
    {
        let wait = until.saturating_sub(now) + Duration::from_millis(1);
        result.retry_after = Some(format!("{:.3}", wait.as_secs_f64()).into());
    }
}

fn answered(result: OpResult) -> SendResult {
    SendResult::Answered(Box::new(result.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::discord::DISCORD_RATES;

    #[test]
    fn an_op_that_must_wait_is_not_refused_again_when_it_comes_back() {
        for asked in [0, 300, 999, 1000, 1500] {
            let now = Duration::from_millis(7_123);
            let mut flood = FloodBudget::new(DISCORD_RATES);
            let until = flood.limited(5, Duration::from_millis(asked), now);
            let mut outcome = Outcome::from(OpResult {
                retry_after: Some("1".into()),
                ..OpResult::default()
            });
            name_wait(&mut outcome, now, until);
            let Outcome::Refused { result, .. } = outcome else {
                panic!("{outcome:?}")
            };
            let back = now + result.rate_limited().flatten().unwrap();
            assert_eq!(
                flood.admit(5, CallKind::Required, back),
                FloodPermit::Now,
                "{asked}"
            );
        }
    }
}
