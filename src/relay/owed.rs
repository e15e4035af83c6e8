//! What is owed to chats: committed first, sent in order, settled once.
//!
//! When the process is killed, an op's row says what is known of it:
//!
//! | the row is | because | at the next start |
//! |---|---|---|
//! | gone | its outcome was committed | nothing |
//! | *sent* | it was on the wire for a while without an outcome | unknown: not repeated unless that is safe or wanted |
//! | *pending* | it never went out, or went out in the last moments | sent, and counted as recovered |
//!
//! A row is marked as sent only after its bytes have left the process, so what is not repeated was not merely
//! meant to be sent; and a mark or an outcome rides in the next commit, so only what went out or was answered
//! just before the kill can come twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::{Core, MOST_OUT};
use super::egress::{lane_op, lane_row};
use super::handle::SendError;
use super::owed_op::{OwedOp, WhenUnknown};
use crate::adapter::stream::{DurableAction, Priority};
use crate::adapter::{ChatFacts, ChatId, Permit};
use crate::link::{NotSent, SendResult};
use crate::store::{Command, OpRow, OpSeq, OpState};
use crate::wire::{ActionText, Outcome, SessionKey};

/// Times that an op which is safe to repeat is sent without anything becoming known of it. One that breaks the
/// connection each time must not do so for ever.
const MOST_ATTEMPTS: u32 = 8;
/// Times that an op waits because its chat was spoken to too fast: hours, at the longest waits.
const MOST_WAITS: u32 = 400;
/// The first wait when the platform does not say how long; it grows from there.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// An op as it is handed to the link: lane, action, platform, bot, and how long to wait for its answer.
type Request = (
    Arc<str>,
    ActionText,
    Option<String>,
    Option<String>,
    Option<Duration>,
);

/// Ops on their way into the journal, and who waits for that.
#[derive(Debug)]
pub(super) struct Adding {
    ops: Vec<OwedOp>,
    asker: Option<oneshot::Sender<Result<(), SendError>>>,
}

impl Adding {
    /// Tells the asker what became of them, and gives them back.
    pub(super) fn tell(self, outcome: Result<(), SendError>) -> Vec<OwedOp> {
        if let Some(asker) = self.asker {
            let _ = asker.send(outcome);
        }
        self.ops
    }
}

impl Core {
    /// Plans what delivers a text to a chat.
    pub(super) fn plan(&self, said: &str, key: &SessionKey, chat: &ChatId, facts: &ChatFacts) -> Vec<OwedOp> {
        let actions = self.adapter(&chat.platform).reply(said, chat, facts);
        self.to_owe(key, chat, &chat.key().into(), &actions)
    }

    /// Actions for a chat as ops that are owed to it.
    pub(super) fn to_owe(
        &self,
        key: &SessionKey,
        chat: &ChatId,
        lane: &Arc<str>,
        actions: &[DurableAction],
    ) -> Vec<OwedOp> {
        if actions.is_empty() {
            return Vec::new();
        }
        let envelope = self.envelope(chat);
        let owe = |action: &DurableAction| OwedOp::new(key, Arc::clone(lane), action, envelope.clone());
        actions.iter().map(owe).collect()
    }

    /// Owes ops outside a turn's end; the asker is told once they are committed.
    pub(super) fn owe(
        &mut self,
        mut ops: Vec<OwedOp>,
        asker: Option<oneshot::Sender<Result<(), SendError>>>,
    ) {
        let (token, now_ms) = (self.token(), self.now_ms());
        if ops.len() > 1 {
            name_delivery(&mut ops, token, now_ms);
        }
        let inbox = ops.first().and_then(OwedOp::answers);
        let rows = ops.iter().map(OwedOp::to_row).collect();
        self.adding.insert(token, Adding { ops, asker });
        self.writes.push(Command::AddOps {
            token,
            inbox,
            ops: rows,
            now_ms,
        });
    }

    pub(super) fn tell_overflow(&mut self, key: &SessionKey, chat: &ChatId, facts: &ChatFacts) {
        self.tally.overflows += 1;
        if let Some(notice) = self.settings.overflow_notice.clone() {
            let ops = self.plan(&notice, key, chat, facts);
            self.owe(ops, None);
        }
    }

    /// Committed ops take their place in their chats' lanes, unless the connector will not have them any more.
    pub(super) fn take_owed(&mut self, seqs: impl Iterator<Item = OpSeq>, ops: Vec<OwedOp>) {
        for (seq, op) in seqs.zip(ops) {
            if self.declined.contains(&op.delivery) {
                self.writes.push(Command::OpSettled { op: seq });
                continue;
            }
            self.lanes.push(Arc::clone(&op.lane), lane_op(seq.0));
            self.owed.insert(seq.0, op);
        }
    }

    /// An op found in the journal at the start. One that was out when the process ended is not sent again
    /// unless that is safe or wanted.
    pub(super) fn take_recovered_op(&mut self, row: &OpRow) {
        let Some(op) = OwedOp::from_row(row) else {
            tracing::error!(
                op = row.seq.0,
                "a journaled op cannot be read back and is given up"
            );
            return self.writes.push(Command::OpSettled { op: row.seq });
        };
        let was_out = row.state == OpState::Sent;
        if was_out && op.when_unknown(self.settings.resend_unknown) == WhenUnknown::GiveUp {
            self.tally.ops_unknown += 1;
            tracing::warn!(
                op = row.seq.0,
                kind = &*op.op,
                "it is not known whether this was delivered before the restart; not repeated"
            );
            let mut op = op;
            let rest = std::mem::take(&mut op.then);
            if !op.turn_to(rest) {
                return self.writes.push(Command::OpSettled { op: row.seq });
            }
            self.writes.push(Command::OpChanged {
                op: row.seq,
                body: op.body(),
            });
            return self.take_owed(std::iter::once(row.seq), vec![op]);
        }
        self.tally.ops_recovered += 1;
        self.take_owed(std::iter::once(row.seq), vec![op]);
    }

    /// Hands to the link what may go out.
    pub(super) fn hand_out_ops(&mut self) {
        let (now, at) = (Instant::now(), self.clock.mono());
        while self.is_live() && self.out.len() < MOST_OUT {
            let Some(seq) = self.lanes.next_ready().map(lane_row) else {
                return;
            };
            let Some((lane, action, platform, bot_id, timeout)) = self.next_request(seq) else {
                self.lanes.complete(lane_op(seq));
                continue;
            };
            if let Permit::At(until) = self.egress.budgets.acquire(&lane, Priority::Text, at) {
                self.lanes.put_back(lane_op(seq));
                self.egress.hold(lane, until);
                continue;
            }
            let token = self.submit_op(seq, action, platform, bot_id, timeout);
            if seq > 0 {
                self.lately_out.push_back((now, token));
                self.traces.op_out(seq);
            }
        }
    }

    /// What the op with this number asks of the connector: one that is owed, or one that passes.
    fn next_request(&self, number: i64) -> Option<Request> {
        if let Some(op) = self.owed.get(&number) {
            let (platform, bot_id) = (op.platform.clone(), op.bot_id.clone());
            return Some((Arc::clone(&op.lane), op.action.clone(), platform, bot_id, None));
        }
        let op = self.egress.passing.get(&number)?;
        let (platform, bot_id) = (op.platform.clone(), op.bot_id.clone());
        Some((
            Arc::clone(&op.lane),
            op.action.clone(),
            platform,
            bot_id,
            op.timeout,
        ))
    }

    /// Tells the journal which ops are still out after a while; one that is settled sooner is not worth it.
    pub(super) fn tell_journal_of_ops(&mut self, now: Instant, after: Duration) {
        let written = self.transport.written();
        for _ in 0..self.lately_out.len() {
            let due = |(since, _): &(Instant, u64)| now.duration_since(*since) >= after;
            let Some((_, token)) = self.lately_out.front().copied().filter(due) else {
                return;
            };
            self.lately_out.pop_front();
            match self.out.get(&token) {
                Some(seq) if token <= written => self.writes.push(Command::OpSent { op: OpSeq(*seq) }),
                Some(_) => self.lately_out.push_back((now, token)),
                None => {}
            }
        }
    }

    pub(super) fn take_outcome(&mut self, token: u64, outcome: SendResult) {
        let Some(seq) = self.out.remove(&token) else {
            return;
        };
        if seq < 0 {
            return self.take_passing_outcome(seq, outcome);
        }
        let Some(op) = self.owed.get(&seq) else { return };
        let lane = Arc::clone(&op.lane);
        self.measures.op_settled(&op.op, &outcome);
        self.traces.op_settled(seq, &op.op, op.attempts, &outcome);
        self.learn_of_thread(&lane, &outcome);
        let Some(op) = self.owed.get(&seq) else { return };
        match outcome {
            SendResult::Answered(outcome) => match *outcome {
                Outcome::Applied(_) => {
                    self.tally.ops_applied += 1;
                    self.go_on(seq, |op| std::mem::take(&mut op.then));
                }
                Outcome::Refused {
                    result,
                    declined: false,
                } if result.rate_limited().is_some() && op.waits < MOST_WAITS => {
                    self.tally.ops_limited += 1;
                    self.wait_for_room(seq, result.rate_limited().flatten());
                }
                Outcome::Refused { result, declined } => {
                    self.tally.ops_refused += 1;
                    let why = result
                        .error
                        .as_ref()
                        .map(|error| error.as_str().chars().take(200).collect::<String>());
                    tracing::warn!(
                        op = seq,
                        kind = &*op.op,
                        declined,
                        why,
                        "the connector refused an op"
                    );
                    if declined {
                        let delivery = op.delivery;
                        self.settle(seq);
                        return self.end_delivery(delivery);
                    }
                    // What was to follow in its place still does.
                    self.go_on(seq, |op| {
                        let mut next = std::mem::take(&mut op.otherwise);
                        next.append(&mut op.then);
                        next
                    });
                }
                Outcome::Unknown => self.take_unknown(seq),
            },
            SendResult::NotSent(why) => {
                self.lanes.put_back(lane_op(seq));
                if self.is_live() && !matches!(why, NotSent::Closing) {
                    self.retry_soon();
                }
            }
        }
    }

    /// What comes next in an op's place, if anything; else it is settled.
    fn go_on(&mut self, seq: i64, next: impl FnOnce(&mut OwedOp) -> Vec<ActionText>) {
        let Some(op) = self.owed.get_mut(&seq) else {
            return;
        };
        let actions = next(op);
        if !op.turn_to(actions) {
            return self.settle(seq);
        }
        let (lane, body) = (Arc::clone(&op.lane), op.body());
        self.writes.push(Command::OpChanged { op: OpSeq(seq), body });
        self.lanes.put_back(lane_op(seq));
        self.lanes.retry(&lane);
    }

    /// The chat was spoken to too fast: the op keeps its place and goes out later.
    fn wait_for_room(&mut self, seq: i64, retry_after: Option<Duration>) {
        let now = self.clock.mono();
        if let Some(op) = self.owed.get_mut(&seq) {
            op.waits += 1;
            let lane = Arc::clone(&op.lane);
            let growing = FIRST_WAIT * 2_u32.pow(op.waits.min(8) - 1);
            let until = self
                .egress
                .budgets
                .on_rate_limited(&lane, retry_after.or(Some(growing)), now);
            self.lanes.put_back(lane_op(seq));
            self.egress.hold(lane, until);
        }
    }

    fn take_unknown(&mut self, seq: i64) {
        let Some(op) = self.owed.get_mut(&seq) else {
            return;
        };
        op.attempts += 1;
        let repeat = op.when_unknown(self.settings.resend_unknown) == WhenUnknown::Repeat;
        if repeat && op.attempts < MOST_ATTEMPTS {
            self.lanes.put_back(lane_op(seq));
            if self.is_live() {
                self.retry_soon();
            }
            return;
        }
        self.tally.ops_unknown += 1;
        tracing::warn!(
            op = seq,
            kind = &*op.op,
            "it is not known whether an op was done; not repeated"
        );
        self.go_on(seq, |op| std::mem::take(&mut op.then));
    }

    pub(super) fn settle(&mut self, seq: i64) {
        self.owed.remove(&seq);
        self.traces.op_over(seq);
        self.lanes.complete(lane_op(seq));
        self.writes.push(Command::OpSettled { op: OpSeq(seq) });
    }
}

/// Ops that are owed together and answer nothing are one delivery all the same.
fn name_delivery(ops: &mut [OwedOp], token: u64, now_ms: i64) {
    const TOKENS: u64 = 4096;
    let nth = i64::try_from(token % TOKENS).unwrap_or(0);
    let name = -(now_ms.max(1).saturating_mul(4096).saturating_add(nth));
    for op in ops.iter_mut().filter(|op| op.delivery == 0) {
        op.delivery = name;
    }
}
