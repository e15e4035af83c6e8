//! What goes out beside what is owed: a turn's growing message, typing, reactions, questions.
//!
//! Nothing of it is journaled. Text keeps its place in the chat's lane between what is owed; what is only for show
//! goes beside the lane, and is dropped when the chat's budget or the link has no room. Whoever wanted an op is told
//! once what became of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::{Core, MOST_OUT};
use super::prompts::Showing;
use super::transport::ChatInfo;
use super::turn_task::FateSender;
use crate::adapter::stream::{OpOutcome, Priority};
use crate::adapter::{ChatId, Permit, RateLimiter, RelayAdapter};
use crate::collections::IdMap;
use crate::link::{Op, SendResult};
use crate::session::TurnId;
use crate::wire::{Action, ActionText, OpId, Outcome};

/// Ops that are left for text when many are out.
const RESERVED: usize = 256;

/// Who is told what became of an op.
#[derive(Debug)]
pub(super) enum Listener {
    /// The task of a turn.
    Turn(TurnId, OpId, FateSender),
    /// Someone who wants a thread opened.
    Opener(oneshot::Sender<Option<String>>),
    /// Someone who wants to know about a chat.
    Inquirer(ChatId, oneshot::Sender<ChatInfo>),
    /// The question that it shows.
    Question(Showing),
    /// Nobody.
    Nobody,
}

/// An op that is not owed.
#[derive(Debug)]
pub(super) struct PassingOp {
    pub(super) lane: Arc<str>,
    pub(super) platform: Option<String>,
    pub(super) bot_id: Option<String>,
    /// The action's wire name.
    pub(super) op: &'static str,
    pub(super) action: ActionText,
    pub(super) timeout: Option<Duration>,
    pub(super) weight: Priority,
    pub(super) listener: Listener,
}

/// What passes, and how fast each chat may be spoken to.
#[derive(Debug)]
pub(super) struct Egress {
    /// By numbers below zero, which no row has.
    pub(super) passing: IdMap<i64, PassingOp>,
    pub(super) budgets: RateLimiter,
    /// Lanes that wait for their budget, by when.
    held: BTreeMap<(Duration, u64), Arc<str>>,
    numbers: i64,
}

impl Egress {
    pub(super) fn new(budgets: RateLimiter) -> Self {
        Self {
            passing: IdMap::default(),
            budgets,
            held: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// When the first lane that waits for its budget may go on.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.held.first_key_value().map(|((until, _), _)| *until)
    }

    fn number(&mut self) -> i64 {
        self.numbers -= 1;
        self.numbers
    }

    /// A lane waits until then.
    pub(super) fn hold(&mut self, lane: Arc<str>, until: Duration) {
        let number = self.number().unsigned_abs();
        self.held.insert((until, number), lane);
    }
}

impl Listener {
    pub(super) fn hear(self, fate: OpOutcome) {
        match self {
            // Full or closed only when the turn is past caring.
            Self::Turn(_, ticket, fates) => drop(fates.try_send((ticket, fate))),
            // Dropped: whoever waits is told by being let go.
            Self::Opener(_) | Self::Inquirer(..) | Self::Question(_) | Self::Nobody => {}
        }
    }
}

impl Core {
    /// The platform and bot to name on an op for a chat.
    pub(super) fn envelope(&self, chat: &ChatId) -> (Option<String>, Option<String>) {
        self.adapter(&chat.platform).tags()
    }

    /// The adapter of a platform.
    pub(super) fn adapter(&self, platform: &str) -> RelayAdapter {
        let descriptor = self.view.descriptors.for_platform(platform).cloned();
        let settings = Arc::clone(&self.settings.speech);
        RelayAdapter::new(platform, self.settings.bot_on(platform), descriptor, settings)
    }

    /// Sends an op that is not owed; text in its chat's order.
    pub(super) fn pass(
        &mut self,
        chat: &ChatId,
        lane: &Arc<str>,
        action: &Action,
        weight: Priority,
        timeout: Option<Duration>,
        listener: Listener,
    ) {
        if !self.is_live() {
            return listener.hear(OpOutcome::NotSent);
        }
        let (platform, bot_id) = match action {
            // The contract has no tags on this one.
            Action::GetChatInfo { .. } => (None, None),
            _ => self.envelope(chat),
        };
        let op = PassingOp {
            lane: Arc::clone(lane),
            platform,
            bot_id,
            op: action.op(),
            action: action.into(),
            timeout,
            weight,
            listener,
        };
        match weight {
            Priority::Text => drop(self.queue_passing(op)),
            Priority::Indicator => self.show(op),
        }
    }

    /// Takes its place at the end of the lane, and gives its number.
    pub(super) fn queue_passing(&mut self, op: PassingOp) -> i64 {
        let number = self.egress.number();
        self.lanes.push(Arc::clone(&op.lane), lane_op(number));
        self.egress.passing.insert(number, op);
        number
    }

    fn show(&mut self, op: PassingOp) {
        let crowded = self.out.len() + RESERVED >= MOST_OUT || self.lanes.is_waiting(&op.lane);
        let now = self.clock.mono();
        if crowded || self.egress.budgets.acquire(&op.lane, Priority::Indicator, now) != Permit::Now {
            self.tally.cosmetics_shed += 1;
            self.measures.op_shed(op.op);
            return op.listener.hear(OpOutcome::Dropped);
        }
        let number = self.egress.number();
        self.submit_op(
            number,
            op.action.clone(),
            op.platform.clone(),
            op.bot_id.clone(),
            op.timeout,
        );
        self.egress.passing.insert(number, op);
    }

    /// Hands an op to the link under a name of its own, and gives that name.
    pub(super) fn submit_op(
        &mut self,
        number: i64,
        action: ActionText,
        platform: Option<String>,
        bot_id: Option<String>,
        timeout: Option<Duration>,
    ) -> u64 {
        let token = self.token();
        self.out.insert(token, number);
        let op = Op {
            id: OpId((u128::from(self.op_seed) << 64) | u128::from(token)),
            action,
            platform,
            bot_id,
            timeout,
        };
        self.transport.submit(op, self.settlements.clone());
        token
    }

    /// Lanes whose budget has room again hand out their next op.
    pub(super) fn release_held(&mut self) {
        let now = self.clock.mono();
        while let Some(first) = self.egress.held.first_entry()
            && first.key().0 <= now
        {
            let lane = first.remove();
            self.lanes.retry(&lane);
        }
    }

    /// When [`Self::release_held`] is due.
    pub(super) fn held_deadline(&self) -> Option<Instant> {
        self.egress.deadline().map(|until| self.clock.instant(until))
    }

    pub(super) fn take_passing_outcome(&mut self, number: i64, outcome: SendResult) {
        let passing = &mut self.egress.passing;
        if matches!(passing.get(&number), Some(op) if matches!(op.listener, Listener::Question(_))) {
            return self.take_shown(number, &outcome);
        }
        let Some(op) = passing.remove(&number) else {
            return;
        };
        self.lanes.complete(lane_op(number));
        self.measures.op_settled(op.op, &outcome);
        let Some(op) = self.tell_asker(op, &outcome) else {
            return;
        };
        self.learn_of_thread(&op.lane, &outcome);
        let fate = self.fate(&op.lane, outcome);
        let missed = !matches!(fate, OpOutcome::Applied { .. });
        self.tally.cosmetics_failed += u64::from(missed && op.weight == Priority::Indicator);
        let declined = match &op.listener {
            Listener::Turn(turn, ..) if fate == OpOutcome::Declined && op.weight == Priority::Text => {
                Some(*turn)
            }
            _ => None,
        };
        op.listener.hear(fate);
        if let Some(delivery) = declined.and_then(|turn| self.turns.get(&turn)?.seq) {
            self.end_delivery(delivery);
        }
    }

    /// What became of an op, for planners; a chat that was spoken to too fast is held.
    fn fate(&mut self, lane: &Arc<str>, outcome: SendResult) -> OpOutcome {
        let outcome = match outcome {
            SendResult::Answered(outcome) => *outcome,
            SendResult::NotSent(_) => return OpOutcome::NotSent,
        };
        match outcome {
            Outcome::Applied(result) => {
                self.tally.ops_applied += 1;
                let text = |field: Option<crate::wire::Scalar>| {
                    field
                        .map(crate::wire::Scalar::into_string)
                        .filter(|id| !id.is_empty())
                };
                OpOutcome::Applied {
                    message_id: text(result.message_id),
                }
            }
            Outcome::Refused { result, declined } => {
                self.tally.ops_refused += 1;
                match result.rate_limited() {
                    _ if declined => OpOutcome::Declined,
                    None => OpOutcome::Refused,
                    Some(retry_after) => {
                        let now = self.clock.mono();
                        let until = self.egress.budgets.on_rate_limited(lane, retry_after, now);
                        OpOutcome::RateLimited {
                            retry_after: Some(until.saturating_sub(now)),
                        }
                    }
                }
            }
            Outcome::Unknown => OpOutcome::Unknown,
        }
    }

    /// The connector may say that it opened a thread for what was sent.
    pub(super) fn learn_of_thread(&mut self, lane: &str, outcome: &SendResult) {
        let SendResult::Answered(outcome) = outcome else {
            return;
        };
        let Outcome::Applied(result) = &**outcome else {
            return;
        };
        if let (Some(thread), Some((platform, chat))) = (&result.thread_id, lane.split_once(':')) {
            let name = result
                .auto_thread_name
                .as_ref()
                .map(|name| name.as_str().to_owned());
            self.own_threads
                .opened(platform, thread.as_str().to_owned(), chat.to_owned(), name);
        }
    }

    /// A turn is over: what it wanted shown and has not gone out is not shown any more.
    pub(super) fn withdraw_passing(&mut self, fates: &FateSender) {
        let of_it =
            |op: &PassingOp| matches!(&op.listener, Listener::Turn(_, _, own) if own.same_channel(fates));
        let waiting: Vec<i64> = self
            .egress
            .passing
            .iter()
            .filter(|(_, op)| of_it(op))
            .map(|(number, _)| *number)
            .collect();
        self.drop_unsent(waiting);
    }

    /// The link is gone: what has not gone out is not waited for, but for questions, which have their own time.
    pub(super) fn drop_passing(&mut self) {
        let waiting = self.egress.passing.iter();
        let waiting: Vec<i64> = waiting
            .filter(|(_, op)| !matches!(op.listener, Listener::Question(_)))
            .map(|(number, _)| *number)
            .collect();
        self.drop_unsent(waiting);
    }

    fn drop_unsent(&mut self, numbers: Vec<i64>) {
        for number in numbers {
            if self.lanes.remove(lane_op(number))
                && let Some(op) = self.egress.passing.remove(&number)
            {
                op.listener.hear(OpOutcome::NotSent);
            }
        }
    }
}

/// The lanes' name for the op with this number.
pub(super) fn lane_op(number: i64) -> OpId {
    OpId(u128::from(number.cast_unsigned()))
}

/// The number that [`lane_op`] was given.
pub(super) fn lane_row(op: OpId) -> i64 {
    super::transport::token_of(op).cast_signed()
}
