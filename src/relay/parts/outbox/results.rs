//! The results of ops: what each outcome means for the op, its answer and its chat.

use std::sync::Arc;
use std::time::Duration;

use super::{OpKind, OpPhase, Outbox, QueuedOp, durable, report};
use crate::adapter::stream::{OpOutcome, Priority};
use crate::link::{Moment, NotSent, SendResult};
use crate::relay::effects::{Effect, Effects};
use crate::relay::ops::{OpGroup, OpOwner};
use crate::relay::status::RefusedOp;
use crate::store::Command;
use crate::text::printable;
use crate::wire::{ActionText, OpId, OpResult, Outcome, Scalar};

/// Times that an op is sent on connections that stay, without an answer. A connector that is merely slow must not show it
/// many times.
const MAX_TIMEOUTS: u32 = 2;
/// The delay after the first refusal; it doubles from there.
const FIRST_REFUSAL_DELAY: Duration = Duration::from_secs(1);
/// Times that a durable op waits for a rate limit: hours, at the longest waits.
const MAX_DEFERRALS: u32 = 400;
/// Times that an op which shows a question waits for a rate limit.
const MAX_QUESTION_DEFERRALS: u32 = 5;
/// How often an op that puts away what a turn has left is sent again because the connection ended before an answer.
const MAX_LOST: u32 = 3;
/// The first wait when the platform does not name one; it doubles from there.
const FIRST_DEFERRAL: Duration = Duration::from_secs(1);
/// How long to wait before retrying what the link would not take.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How much of a refusal's error is logged, in characters.
const MAX_LOGGED_ERROR: usize = 200;

impl Outbox {
    /// The transport has a result for an op.
    pub fn on_result(
        &mut self,
        id: OpId,
        result: SendResult,
        live: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(queued) = self.ops.get_mut(&id) else {
            return;
        };
        let OpPhase::InFlight(span) = std::mem::replace(&mut queued.state, OpPhase::Waiting) else {
            return;
        };
        self.in_flight -= 1;
        self.metrics.finished(&queued.kind.body().name, &result);
        span.record("outcome", crate::relay::metrics::outcome_label(&result));
        drop(span);
        learn_thread(&queued.kind.body().lane, &result, effects);
        match &queued.kind {
            OpKind::Durable(..) => self.durable_result(id, result, live, now, effects),
            OpKind::Ephemeral { .. } => self.ephemeral_result(id, result, live, now.mono, effects),
        }
    }

    pub(super) fn durable_result(
        &mut self,
        id: OpId,
        result: SendResult,
        live: bool,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some((row, op)) = durable(&mut self.ops, id) else {
            return;
        };
        let outcome = match result {
            SendResult::Answered(outcome) => *outcome,
            SendResult::NotSent(reason) => {
                return self.put_back(id, live && reason != NotSent::Closing, now.mono);
            }
            SendResult::Lost => {
                op.attempts += 1;
                self.unknown_outcome(id, now, effects);
                return self.put_back(id, live, now.mono);
            }
        };
        match outcome {
            Outcome::Applied(_) => {
                self.counters.applied += 1;
                let next = std::mem::take(&mut op.then);
                self.go_on(id, next, effects);
            }
            Outcome::Refused { result, declined } => {
                let rate_limit = result.rate_limited().filter(|_| !declined);
                if let Some(retry_after) = rate_limit
                    && op.deferrals < MAX_DEFERRALS
                {
                    self.counters.rate_limited += 1;
                    op.deferrals += 1;
                    let growing = FIRST_DEFERRAL * 2_u32.pow(op.deferrals.min(8) - 1);
                    return self.defer(id, retry_after.or(Some(growing)), now.mono, effects);
                }
                self.counters.refused += 1;
                let error = result
                    .error
                    .as_ref()
                    .map(|error| printable(error.as_str(), MAX_LOGGED_ERROR));
                let (kind, peer) = (&*op.body.name, self.peer);
                if result.is_permanent {
                    // The transport has reported the chat, once.
                    tracing::debug!(parent: op.span(), op = row.0, kind, error, "{peer} refused an op for good");
                } else {
                    tracing::warn!(parent: op.span(), op = row.0, kind, declined, error, "{peer} refused an op");
                }
                self.last_refusal = Some(RefusedOp {
                    op: kind.to_owned(),
                    error: error.clone().unwrap_or_default(),
                    at_ms: now.unix_ms,
                });
                if op.is_cleanup() {
                    return self.settle(id, effects);
                }
                if declined {
                    op.span().record("outcome", "declined");
                    let group = op.group;
                    self.settle(id, effects);
                    return effects.push(Effect::Declined(group));
                }
                let error = error.as_deref().unwrap_or("no reason given");
                if result.is_permanent {
                    let reason = format!("{peer} refused it: {error}");
                    return self.drop_answer(id, &reason, true, now.unix_ms, effects);
                }
                self.refused(id, error, now, effects);
            }
            Outcome::Unknown => {
                op.attempts += 1;
                op.timeouts += 1;
                self.unknown_outcome(id, now, effects);
                self.put_back(id, live, now.mono);
            }
        }
    }

    /// The outcome of an op is unknown. It keeps its place and its id if it is to be sent again; `false` if it is dropped.
    pub(super) fn unknown_outcome(&mut self, id: OpId, now: Moment, effects: &mut Effects) -> bool {
        let retry = self.retry;
        let Some((row, op)) = durable(&mut self.ops, id) else {
            return false;
        };
        let may_resend = op.may_resend(retry.resend);
        if may_resend && op.attempts < retry.max_attempts && op.timeouts < MAX_TIMEOUTS {
            self.counters.resent += 1;
            let kind = &*op.body.name;
            tracing::info!(parent: op.span(), op = row.0, kind, "outcome of an op unknown; sending it again");
            effects.write(Command::OpChanged {
                op: row,
                body: op.encode(),
            });
            return true;
        }
        self.counters.unknown += 1;
        let kind = &*op.body.name;
        tracing::warn!(parent: op.span(), op = row.0, kind, "outcome of an op unknown; not sent again");
        if op.is_cleanup() {
            self.settle(id, effects);
        } else if may_resend {
            self.drop_answer(id, "its outcome stayed unknown", false, now.unix_ms, effects);
        } else if op.then.is_empty() {
            // It may well have arrived: nothing behind it has to stop.
            self.drop_op(id, "its outcome is unknown", false, now.unix_ms, effects);
        } else {
            let next = std::mem::take(&mut op.then);
            self.go_on(id, next, effects);
        }
        false
    }

    /// An op was refused: its fallback takes its place, or it is tried again a few times.
    pub(super) fn refused(&mut self, id: OpId, error: &str, now: Moment, effects: &mut Effects) {
        let fresh = self.ids.next();
        let Some((row, op)) = durable(&mut self.ops, id) else {
            return;
        };
        if !op.fallback.is_empty() {
            // What was to follow in its place still does.
            let mut next = std::mem::take(&mut op.fallback);
            next.append(&mut op.then);
            return self.go_on(id, next, effects);
        }
        // The first one was answered, so a connector that remembers requestIds would answer it the same way again.
        op.id = fresh;
        let (body, refusals) = (op.encode(), op.refusals);
        op.refusals += 1;
        self.rename(id, fresh);
        if refusals >= self.retry.refused_retries {
            let reason = format!("{} refused it: {error}", self.peer);
            return self.drop_answer(fresh, &reason, false, now.unix_ms, effects);
        }
        effects.write(Command::OpChanged { op: row, body });
        let delay = FIRST_REFUSAL_DELAY * 2_u32.pow(refusals.min(8));
        self.hold(fresh, now.mono + delay);
    }

    /// Gives an op that was in flight another id, at the front of its lane.
    pub(super) fn rename(&mut self, id: OpId, fresh: OpId) {
        if let Some(queued) = self.ops.remove(&id) {
            self.lanes.replace(id, fresh);
            self.ops.insert(fresh, queued);
        }
    }

    /// An op cannot be delivered: it and the rest of its answer are dropped, and the chat is notified unless it `is_closed`.
    pub(super) fn drop_answer(
        &mut self,
        id: OpId,
        reason: &str,
        is_closed: bool,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        let Some((_, op)) = durable(&mut self.ops, id) else {
            return;
        };
        let group = op.group;
        effects.push(Effect::Undelivered {
            chat: Arc::clone(&op.body.lane),
            thread: op.body.thread(),
            session: Arc::clone(&op.session),
            reason: reason.to_owned(),
            notify: matches!(group, OpGroup::Message(_)) && !is_closed,
        });
        self.drop_op(id, reason, is_closed, now_ms, effects);
        for id in self.waiting_ops_of(group) {
            self.drop_op(
                id,
                "an earlier part of the answer was not delivered",
                is_closed,
                now_ms,
                effects,
            );
        }
    }

    /// Removes an op that is not in flight; the journal keeps it for people. If its chat is closed, the log says so already.
    pub(super) fn drop_op(
        &mut self,
        id: OpId,
        reason: &str,
        is_closed: bool,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        self.lanes.put_back(id);
        if let Some(OpKind::Durable(row, mut op)) = self.take_waiting(id) {
            self.durable -= 1;
            self.counters.dropped += 1;
            let (row_id, kind) = (row.0, &*op.body.name);
            if is_closed {
                tracing::debug!(parent: op.span(), op = row_id, kind, reason, "dropped an op");
            } else {
                tracing::warn!(parent: op.span(), op = row_id, kind, reason, "dropped an op");
            }
            op.attempts = 0;
            effects.write(Command::OpDropped {
                op: row,
                body: op.encode(),
                reason: reason.to_owned(),
                now_ms,
            });
        }
    }

    pub(super) fn ephemeral_result(
        &mut self,
        id: OpId,
        result: SendResult,
        live: bool,
        now: Duration,
        effects: &mut Effects,
    ) {
        let Some(QueuedOp {
            kind: OpKind::Ephemeral { op, deferrals },
            ..
        }) = self.ops.get_mut(&id)
        else {
            return;
        };
        let lane = Arc::clone(&op.body.lane);
        let rate_limit = rate_limit_of(&result);
        if op.owner.keeps_place()
            && let SendResult::NotSent(reason) = &result
            && *reason != NotSent::Closing
        {
            return self.put_back(id, live, now);
        }
        // Twice does no harm, unlike a question that is asked twice.
        if matches!((&op.owner, &result), (OpOwner::LeftTurn, SendResult::Lost)) && *deferrals < MAX_LOST {
            *deferrals += 1;
            return self.put_back(id, live, now);
        }
        // A message does not wait for that.
        if let Some(retry_after) = rate_limit
            && matches!(op.owner, OpOwner::Question(..))
            && *deferrals < MAX_QUESTION_DEFERRALS
        {
            *deferrals += 1;
            self.counters.rate_limited += 1;
            return self.defer(id, retry_after, now, effects);
        }
        self.lanes.complete(id);
        let Some(QueuedOp {
            kind: OpKind::Ephemeral { op, .. },
            ..
        }) = self.ops.remove(&id)
        else {
            return;
        };
        match &result {
            SendResult::Answered(outcome) => match &**outcome {
                Outcome::Applied(_) => self.counters.applied += 1,
                Outcome::Refused { .. } => self.counters.refused += 1,
                Outcome::Unknown => {}
            },
            SendResult::Lost | SendResult::NotSent(_) => {}
        }
        let limited_until =
            rate_limit.map(|retry_after| self.limiter.on_rate_limited(&lane, retry_after, now));
        let turn = match op.owner {
            OpOwner::Question(question, prompt) => {
                return effects.push(Effect::QuestionOp(question, prompt, result));
            }
            OpOwner::GroupThread(key) => {
                return effects.push(Effect::GroupThread(key, thread_of(&result).map(str::to_owned)));
            }
            OpOwner::Turn(turn, _) => Some(turn),
            OpOwner::LeftTurn | OpOwner::Nobody => None,
        };
        let outcome = outcome_of(result, limited_until.map(|until| until.saturating_sub(now)));
        let applied = matches!(outcome, OpOutcome::Applied { .. });
        self.counters.indicators_failed += u64::from(op.priority != Priority::Text && !applied);
        if let Some(turn) = turn
            && outcome == OpOutcome::Declined
            && op.priority == Priority::Text
        {
            effects.push(Effect::TurnDeclined(turn));
        }
        report(*op, outcome);
    }

    /// The op keeps its place and is tried again.
    pub(super) fn put_back(&mut self, id: OpId, soon: bool, now: Duration) {
        self.lanes.put_back(id);
        if soon {
            self.retry_at.get_or_insert(now + RETRY_AFTER);
        }
    }

    /// The platform limits the chat's rate: the op keeps its place and goes out later, with a new id, because this one was
    /// answered.
    pub(super) fn defer(
        &mut self,
        id: OpId,
        retry_after: Option<Duration>,
        now: Duration,
        effects: &mut Effects,
    ) {
        let fresh = self.ids.next();
        let Some(queued) = self.ops.get_mut(&id) else {
            return;
        };
        let until = self
            .limiter
            .on_rate_limited(&queued.kind.body().lane, retry_after, now);
        match &mut queued.kind {
            OpKind::Durable(row, op) => {
                op.id = fresh;
                effects.write(Command::OpChanged {
                    op: *row,
                    body: op.encode(),
                });
            }
            OpKind::Ephemeral { op, .. } => {
                op.id = fresh;
                if let OpOwner::Question(question, _) = op.owner {
                    effects.push(Effect::QuestionOpRenamed(question, fresh));
                }
            }
        }
        self.rename(id, fresh);
        self.hold(fresh, until);
    }

    /// The op becomes what comes next in its place, if anything; else it is settled.
    pub(super) fn go_on(&mut self, id: OpId, next: Vec<ActionText>, effects: &mut Effects) {
        let fresh = self.ids.next();
        let Some((row, op)) = durable(&mut self.ops, id) else {
            return;
        };
        if !op.replace(next, fresh) {
            return self.settle(id, effects);
        }
        effects.write(Command::OpChanged {
            op: row,
            body: op.encode(),
        });
        let lane = Arc::clone(&op.body.lane);
        self.rename(id, fresh);
        self.lanes.retry(&lane);
    }

    pub(super) fn settle(&mut self, id: OpId, effects: &mut Effects) {
        if let Some(QueuedOp {
            kind: OpKind::Durable(row, _),
            ..
        }) = self.ops.remove(&id)
        {
            self.durable -= 1;
            effects.write(Command::OpSettled { op: row });
        }
        self.lanes.complete(id);
    }
}

/// The rate limit that a platform reported, and how long to wait when it says.
#[expect(
    clippy::option_option,
    reason = "a rate limit, and whether the platform names a wait, are two questions"
)]
fn rate_limit_of(result: &SendResult) -> Option<Option<Duration>> {
    match result {
        SendResult::Answered(outcome) => match &**outcome {
            Outcome::Refused {
                result,
                declined: false,
            } => result.rate_limited(),
            Outcome::Refused { .. } | Outcome::Applied(_) | Outcome::Unknown => None,
        },
        SendResult::Lost | SendResult::NotSent(_) => None,
    }
}

/// An op's outcome, as planners of streams know it.
fn outcome_of(result: SendResult, limited_for: Option<Duration>) -> OpOutcome {
    let outcome = match result {
        SendResult::Answered(outcome) => *outcome,
        SendResult::Lost => return OpOutcome::Unknown,
        SendResult::NotSent(_) => return OpOutcome::NotSent,
    };
    match outcome {
        Outcome::Applied(result) => OpOutcome::Applied {
            message_id: result
                .message_id
                .map(Scalar::into_string)
                .filter(|id| !id.is_empty()),
        },
        Outcome::Refused { declined: true, .. } => OpOutcome::Declined,
        Outcome::Refused { .. } => match limited_for {
            Some(wait) => OpOutcome::RateLimited {
                retry_after: Some(wait),
            },
            None => OpOutcome::Refused,
        },
        Outcome::Unknown => OpOutcome::Unknown,
    }
}

/// The connector may say that it opened a thread for what was sent.
fn learn_thread(lane: &Arc<str>, result: &SendResult, effects: &mut Effects) {
    if let Some(OpResult {
        thread_id: Some(thread),
        auto_thread_name,
        ..
    }) = applied(result)
    {
        effects.push(Effect::ThreadOpened {
            chat: Arc::clone(lane),
            thread: thread.as_str().to_owned(),
            name: auto_thread_name.as_ref().map(|name| name.as_str().to_owned()),
        });
    }
}

/// The thread that an op opened.
fn thread_of(result: &SendResult) -> Option<&str> {
    let thread = applied(result)?.thread_id.as_ref()?.as_str();
    (!thread.is_empty()).then_some(thread)
}

fn applied(result: &SendResult) -> Option<&OpResult> {
    match result {
        SendResult::Answered(outcome) => match &**outcome {
            Outcome::Applied(result) => Some(result),
            Outcome::Refused { .. } | Outcome::Unknown => None,
        },
        SendResult::Lost | SendResult::NotSent(_) => None,
    }
}
