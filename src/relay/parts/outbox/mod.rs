//! Ops on their way to the connector: one at a time per chat, in order, each with one outcome.
//!
//! A durable op is journaled first and stays until it is settled; an ephemeral one (a growing message, typing, a reaction, a
//! question) is not journaled. Text keeps its place in its chat's lane; an indicator goes beside the lane, and is dropped when
//! the chat's rate limit or the link has no room. The owner of an op learns its outcome once.
//!
//! | state of an op | next |
//! |---|---|
//! | uncommitted | waiting, once the journal has it |
//! | waiting in its lane | in flight, or held |
//! | held until a time, by a rate limit or after a refusal | waiting |
//! | kept back while the journal is asked to drop it | gone; or waiting, when it could not be dropped |
//! | in flight | done; waiting again when it was not sent or its outcome is unknown; held; or dropped |
//!
//! | outcome of a durable op | what follows |
//! |---|---|
//! | not sent | sent again, with the same id |
//! | unknown | the same for text, up to a number of attempts and an age; else dropped |
//! | refused | its fallback; else sent again, with a new id, a few times; then dropped |
//! | rate limited | sent again later, with a new id |
//! | declined | settled, with the rest of its answer |
//!
//! An op that is dropped is kept in the journal for people. What was to follow it in the same answer is dropped with it, so
//! that no answer has a hole, and the chat is notified.
//!
//! When the process is killed, the row of a durable op shows what is known of it:
//!
//! | the row is | because | at the next start |
//! |---|---|---|
//! | gone | its outcome was committed | nothing |
//! | *sent* | it was in flight for a while without an outcome | outcome unknown |
//! | *pending* | it never went out, or went out in the last moments | sent, and counted as recovered |
//!
//! A row is marked as sent only after its bytes have left the process, and a mark or an outcome rides in the next commit: only
//! what went out or was answered just before a kill can be sent twice.

mod committing;
mod dropping;
mod results;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::adapter::stream::{OpOutcome, Priority};
use crate::adapter::{Chat, Permit, RateLimiter};
use crate::collections::IdMap;
use crate::config::{ResendUnknown, SessionsConfig};
use crate::link::{Moment, Op};
use crate::relay::effects::{Effect, Effects};
use crate::relay::metrics::OpMetrics;
use crate::relay::ops::{DurableOp, DurableOps, EphemeralOp, OpBody, OpGroup, OpOwner};
use crate::relay::status::RefusedOp;
use crate::session::Lanes;
use crate::store::{Command, InboxSeq, OpSeq};
use crate::wire::{Action, OpId, OpIds};

/// Ops that may be in flight.
pub const MAX_IN_FLIGHT: usize = 2048;
/// Ops in flight that only text may use.
const RESERVED_FOR_TEXT: usize = 256;
/// Durable ops at which no further turns are started.
const MAX_DURABLE: usize = 20_000;
/// How long an op may be in flight before its row is marked as sent; a shorter life is not worth a write.
const MARK_AFTER: Duration = Duration::from_millis(5);
/// Checks of whether an op has left, each after twice the time of the one before; the last delay repeats.
const SENT_CHECKS: usize = 6;

/// What has happened to ops so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutboxCounters {
    pub applied: u64,
    pub refused: u64,
    pub unknown: u64,
    pub resent: u64,
    pub dropped: u64,
    pub rate_limited: u64,
    pub recovered: u64,
    pub indicators_dropped: u64,
    pub indicators_failed: u64,
}

/// When an op is sent again.
#[derive(Clone, Copy, Debug)]
pub struct RetrySettings {
    resend: ResendUnknown,
    max_attempts: u32,
    max_age: Duration,
    refused_retries: u32,
}

impl RetrySettings {
    pub fn new(sessions: &SessionsConfig) -> Self {
        Self {
            resend: sessions.resend_unknown,
            max_attempts: sessions.resend_max_attempts,
            max_age: Duration::from_secs(sessions.resend_max_age_secs),
            refused_retries: sessions.refused_retries,
        }
    }
}

/// The commit that ops wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpsCommit {
    /// The end of this message's turn.
    End(InboxSeq),
    /// The command with this token.
    Token(u64),
}

/// Indicators that follow the ops of an answer.
pub type FinalIndicators = (Arc<Chat>, Vec<Action>);

/// Ops that wait for their commit.
#[derive(Debug)]
struct Uncommitted {
    ops: DurableOps,
    indicators: Option<FinalIndicators>,
    /// The connector declined another op of their group.
    declined: bool,
}

/// All ops that wait or are in flight.
#[derive(Debug)]
pub struct Outbox {
    uncommitted: IdMap<OpsCommit, Uncommitted>,
    ops: IdMap<OpId, QueuedOp>,
    lanes: Lanes,
    limiter: RateLimiter,
    /// Ops held by a rate limit, by when they may go on.
    held: BTreeSet<(Duration, OpId)>,
    durable: usize,
    in_flight: usize,
    /// Durable ops that went out and whose rows are not marked as sent, by their next look, with when they went out or were looked at last.
    unmarked: [VecDeque<(Duration, OpId)>; SENT_CHECKS],
    /// When lanes retry what the link would not take.
    retry_at: Option<Duration>,
    ids: OpIds,
    retry: RetrySettings,
    /// Who performs the ops, for the log.
    peer: &'static str,
    counters: OutboxCounters,
    metrics: OpMetrics,
    last_refusal: Option<RefusedOp>,
}

#[derive(Debug)]
struct QueuedOp {
    state: OpPhase,
    kind: OpKind,
}

#[derive(Debug)]
enum OpPhase {
    /// It waits in its lane.
    Waiting,
    /// It waits in its lane for a rate limit.
    Held(Duration),
    /// It waits in its lane until the journal has dropped it, or has not.
    BeingDropped,
    /// The transport has it.
    InFlight(tracing::Span),
}

#[derive(Debug)]
enum OpKind {
    Durable(OpSeq, Box<DurableOp>),
    Ephemeral {
        op: Box<EphemeralOp>,
        /// Times that it was put off, or lost with its connection.
        deferrals: u32,
    },
}

impl OpKind {
    fn body(&self) -> &OpBody {
        match self {
            Self::Durable(_, op) => &op.body,
            Self::Ephemeral { op, .. } => &op.body,
        }
    }
}

impl Outbox {
    /// Nothing to send yet.
    pub fn new(limiter: RateLimiter, ids: OpIds, retry: RetrySettings, peer: &'static str) -> Self {
        Self {
            uncommitted: IdMap::default(),
            ops: IdMap::default(),
            lanes: Lanes::new(),
            limiter,
            held: BTreeSet::new(),
            durable: 0,
            in_flight: 0,
            unmarked: Default::default(),
            retry_at: None,
            ids,
            retry,
            peer,
            counters: OutboxCounters::default(),
            metrics: OpMetrics::default(),
            last_refusal: None,
        }
    }

    /// Durable ops that are not settled.
    pub fn durable(&self) -> usize {
        self.durable
    }

    /// Whether durable ops are left that a shutdown should wait for. What waits for a retry after a refusal is left to the
    /// next start.
    pub fn is_busy(&self) -> bool {
        let refused = |id: &OpId| match self.ops.get(id).map(|queued| &queued.kind) {
            Some(OpKind::Durable(_, op)) if op.refusals > 0 => Some(&op.body.lane),
            _ => None,
        };
        let refused: HashSet<&Arc<str>> = self.held.iter().filter_map(|(_, id)| refused(id)).collect();
        let waits =
            |kind: &OpKind| matches!(kind, OpKind::Durable(_, op) if !refused.contains(&op.body.lane));
        self.ops.values().any(|queued| waits(&queued.kind))
    }

    /// Whether the last indicators of turns wait or are in flight.
    pub fn has_final_indicators(&self) -> bool {
        self.ops.values().any(|queued| match &queued.kind {
            OpKind::Ephemeral { op, .. } => {
                op.priority == Priority::Indicator && matches!(op.owner, OpOwner::Nobody | OpOwner::LeftTurn)
            }
            OpKind::Durable(..) => false,
        })
    }

    /// Ephemeral ops that wait or are in flight.
    pub fn ephemeral(&self) -> usize {
        self.ops.len() - self.durable
    }

    /// Ops in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Everything that is still to be done: ops, and rows that are still to be marked.
    pub fn outstanding(&self) -> usize {
        self.ops.len() + self.unmarked.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Whether so much waits that no further turn should start.
    pub fn is_full(&self) -> bool {
        self.durable >= MAX_DURABLE
    }

    pub fn counters(&self) -> OutboxCounters {
        self.counters
    }

    /// The op that the connector refused last.
    pub fn last_refusal(&self) -> Option<&RefusedOp> {
        self.last_refusal.as_ref()
    }

    pub fn metrics(&self) -> &OpMetrics {
        &self.metrics
    }

    /// When the next timer is due.
    pub fn deadline(&self) -> Option<Duration> {
        let held = self.held.first().map(|(until, _)| *until);
        let fronts = self.unmarked.iter().map(VecDeque::front).enumerate();
        let looks = fronts.filter_map(|(look, front)| Some(front?.0 + look_after(look)));
        [held, self.retry_at, looks.min()].into_iter().flatten().min()
    }

    /// A group for ops that answer no message.
    pub fn notice_group(&mut self) -> OpGroup {
        OpGroup::Notice(u64::try_from(self.ids.next().0 >> 64).unwrap_or_default())
    }

    /// An id for an op that somebody else plans.
    pub fn next_id(&mut self) -> OpId {
        self.ids.next()
    }

    /// A generator of ids for somebody else's ops.
    pub fn split_ids(&mut self) -> OpIds {
        self.ids.split()
    }

    /// Queues an ephemeral op: text in its chat's order, an indicator immediately or not at all.
    pub fn queue(&mut self, op: EphemeralOp, live: bool, now: Duration, effects: &mut Effects) {
        match op.priority {
            _ if op.owner.keeps_place() => self.push(op),
            _ if !live => report(op, OpOutcome::NotSent),
            Priority::Activity | Priority::Indicator => self.send_indicator(op, now, effects),
            Priority::Text => self.push(op),
        }
    }

    /// Queues an ephemeral op in its chat's order, whatever its priority.
    pub fn queue_in_order(&mut self, op: EphemeralOp, live: bool) {
        if live || op.owner.keeps_place() {
            self.push(op);
        } else {
            report(op, OpOutcome::NotSent);
        }
    }

    /// Sends an indicator beside its lane, or drops it.
    fn send_indicator(&mut self, op: EphemeralOp, now: Duration, effects: &mut Effects) {
        let crowded =
            self.in_flight + RESERVED_FOR_TEXT >= MAX_IN_FLIGHT || self.lanes.is_waiting(&op.body.lane);
        if crowded || self.limiter.acquire(&op.body.lane, op.priority, now) != Permit::Now {
            self.counters.indicators_dropped += 1;
            self.metrics.dropped(&op.body.name);
            return report(op, OpOutcome::Dropped);
        }
        let id = op.id;
        let queued = QueuedOp {
            state: OpPhase::Waiting,
            kind: OpKind::Ephemeral {
                op: Box::new(op),
                deferrals: 0,
            },
        };
        self.ops.insert(id, queued);
        self.send(id, effects);
    }

    fn push(&mut self, op: EphemeralOp) {
        self.lanes.push(Arc::clone(&op.body.lane), op.id);
        let id = op.id;
        let kind = OpKind::Ephemeral {
            op: Box::new(op),
            deferrals: 0,
        };
        let state = OpPhase::Waiting;
        self.ops.insert(id, QueuedOp { state, kind });
    }

    /// Hands to the transport what may go out now.
    pub fn hand_out(&mut self, now: Moment, effects: &mut Effects) {
        while self.in_flight < MAX_IN_FLIGHT {
            let Some(id) = self.lanes.next_ready() else { return };
            let Some(queued) = self.ops.get_mut(&id) else {
                self.lanes.complete(id);
                continue;
            };
            let waits = match queued.state {
                OpPhase::Held(until) => until > now.mono,
                OpPhase::BeingDropped => true,
                OpPhase::Waiting | OpPhase::InFlight(_) => false,
            };
            if waits {
                self.lanes.put_back(id);
                continue;
            }
            if is_too_old(&mut queued.kind, self.retry.max_age, now.mono) {
                self.counters.unknown += 1;
                self.drop_answer(id, "its outcome stayed unknown", false, now.unix_ms, effects);
                continue;
            }
            let lane = &queued.kind.body().lane;
            if let Permit::At(until) = self.limiter.acquire(lane, Priority::Text, now.mono) {
                self.lanes.put_back(id);
                self.hold(id, until);
                continue;
            }
            let durable = matches!(queued.kind, OpKind::Durable(..));
            self.send(id, effects);
            if durable {
                self.unmarked[0].push_back((now.mono, id));
            }
        }
    }

    fn send(&mut self, id: OpId, effects: &mut Effects) {
        let Some(queued) = self.ops.get_mut(&id) else {
            return;
        };
        if let OpPhase::Held(until) = queued.state {
            self.held.remove(&(until, id));
        }
        let body = queued.kind.body();
        let (span, timeout) = match &queued.kind {
            OpKind::Ephemeral { op, .. } => (tracing::Span::none(), op.timeout),
            OpKind::Durable(_, op) => (op.send_span(), None),
        };
        effects.push(Effect::Send(Op {
            id,
            action: body.action.clone(),
            platform: body.platform.clone(),
            bot_id: body.bot_id.clone(),
            timeout,
        }));
        queued.state = OpPhase::InFlight(span);
        self.in_flight += 1;
    }

    /// Marks the rows of ops that are still in flight after a while; one that is settled sooner is not worth a write.
    pub fn mark_sent(
        &mut self,
        now: Duration,
        all: bool,
        has_left: impl Fn(OpId, Option<&str>) -> bool,
        effects: &mut Effects,
    ) {
        for look in 0..SENT_CHECKS {
            let due = |(since, _): &mut (Duration, OpId)| all || *since + look_after(look) <= now;
            for _ in 0..self.unmarked[look].len() {
                let Some((_, id)) = self.unmarked[look].pop_front_if(due) else {
                    break;
                };
                let Some(QueuedOp {
                    state: OpPhase::InFlight(_),
                    kind: OpKind::Durable(row, op),
                }) = self.ops.get(&id)
                else {
                    continue;
                };
                if has_left(id, op.body.platform.as_deref()) {
                    effects.write(Command::OpSent { op: *row });
                } else if !all {
                    self.unmarked[(look + 1).min(SENT_CHECKS - 1)].push_back((now, id));
                }
            }
        }
    }

    /// Lanes whose wait is over go on.
    pub fn release(&mut self, now: Duration) {
        while let Some((until, id)) = self.held.first().copied().filter(|(until, _)| *until <= now) {
            self.held.remove(&(until, id));
            if let Some(queued) = self.ops.get_mut(&id) {
                queued.state = OpPhase::Waiting;
                self.lanes.retry(&queued.kind.body().lane);
            }
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.lanes.retry_all();
        }
    }

    /// The link is up: every lane may hand out its first op.
    pub fn connected(&mut self) {
        self.lanes.retry_all();
    }

    /// The link is down: ephemeral ops that have not gone out are dropped, but for those that keep their place.
    pub fn disconnected(&mut self) {
        self.drop_waiting(&OpOutcome::NotSent, |op| !op.owner.keeps_place());
    }

    /// Holds the first op of a lane, and with it the lane; once, however often that is asked for.
    fn hold(&mut self, id: OpId, until: Duration) {
        let Some(queued) = self.ops.get_mut(&id) else {
            return;
        };
        if let OpPhase::Held(before) = std::mem::replace(&mut queued.state, OpPhase::Held(until)) {
            self.held.remove(&(before, id));
        }
        self.held.insert((until, id));
    }
}

/// How long an op is left alone before this look.
fn look_after(look: usize) -> Duration {
    MARK_AFTER * (1 << look)
}

/// Whether an op of unknown outcome is too old to be sent again. Its age counts from its first attempt.
fn is_too_old(kind: &mut OpKind, max_age: Duration, now: Duration) -> bool {
    let OpKind::Durable(_, op) = kind else {
        return false;
    };
    let until = *op.resend_until.get_or_insert(now + max_age);
    op.attempts > 0 && until < now
}

/// A durable op, and its row.
fn durable(ops: &mut IdMap<OpId, QueuedOp>, id: OpId) -> Option<(OpSeq, &mut DurableOp)> {
    match &mut ops.get_mut(&id)?.kind {
        OpKind::Durable(row, op) => Some((*row, op)),
        OpKind::Ephemeral { .. } => None,
    }
}

fn queued_id(kind: &OpKind) -> OpId {
    match kind {
        OpKind::Durable(_, op) => op.id,
        OpKind::Ephemeral { op, .. } => op.id,
    }
}

/// Reports an outcome to a turn's task. The channel is full or closed only when the turn does not care any more.
fn report(op: EphemeralOp, outcome: OpOutcome) {
    if let OpOwner::Turn(_, outcomes) = op.owner {
        let _ = outcomes.try_send((op.id, outcome));
    }
}

#[cfg(test)]
mod tests;
