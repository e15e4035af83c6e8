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

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::{Core, MOST_OUT};
use super::handle::SendError;
use crate::adapter::{ChatFacts, ChatId, egress_platform, reply};
use crate::link::{NotSent, Op, Settled};
use crate::store::{NewOp, OpRow, OpSeq, OpState, Write};
use crate::wire::{Action, ActionText, Outcome, SessionKey};

/// Times that an op which is safe to repeat is sent without anything becoming known of it. One that breaks the
/// connection each time must not do so for ever.
const MOST_ATTEMPTS: u32 = 8;

/// An op that is owed.
#[derive(Debug)]
pub(super) struct OwedOp {
    session: Arc<str>,
    lane: Arc<str>,
    platform: Option<String>,
    bot_id: Option<String>,
    op: Cow<'static, str>,
    action: ActionText,
    attempts: u32,
}

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

/// The part of an op that the journal keeps.
#[derive(Debug, Deserialize)]
struct Body {
    platform: Option<String>,
    bot_id: Option<String>,
    op: String,
    action: Box<RawValue>,
}

/// What to do with an op of which nothing is known.
#[derive(Debug, PartialEq, Eq)]
enum WhenUnknown {
    /// Doing it twice is the same as once.
    Repeat,
    /// Doing it twice would be seen.
    GiveUp,
}

impl OwedOp {
    fn new(
        session: &SessionKey,
        lane: Arc<str>,
        action: &Action,
        platform: Option<String>,
        bot_id: Option<String>,
    ) -> Self {
        Self {
            session: session.shared(),
            lane,
            platform,
            bot_id,
            op: action.op().into(),
            action: action.into(),
            attempts: 0,
        }
    }

    /// The op as the journal keeps it.
    pub(super) fn to_row(&self) -> NewOp {
        let body = self.action.beside(&[
            ("platform", self.platform.as_deref()),
            ("bot_id", self.bot_id.as_deref()),
            ("op", Some(&self.op)),
        ]);
        NewOp {
            session: Arc::clone(&self.session),
            chat: Arc::clone(&self.lane),
            op: body.into_bytes(),
        }
    }

    pub(super) fn from_row(row: &OpRow) -> Option<Self> {
        let body: Body = serde_json::from_slice(&row.op).ok()?;
        Some(Self {
            session: Arc::clone(&row.session),
            lane: Arc::clone(&row.chat),
            platform: body.platform,
            bot_id: body.bot_id,
            op: body.op.into(),
            action: body.action.into(),
            attempts: 0,
        })
    }

    fn when_unknown(&self, resend: bool) -> WhenUnknown {
        match &*self.op {
            "edit" | "draft" => WhenUnknown::Repeat,
            "send" | "send_media" | "follow_up" if resend => WhenUnknown::Repeat,
            _ => WhenUnknown::GiveUp,
        }
    }
}

impl Core {
    /// Plans what delivers a text to a chat.
    pub(super) fn plan(&self, said: &str, key: &SessionKey, chat: &ChatId, facts: &ChatFacts) -> Vec<OwedOp> {
        let descriptor = self.view.descriptors.for_platform(&chat.platform);
        let actions = reply(said, chat, facts, descriptor.map(|descriptor| &**descriptor));
        if actions.is_empty() {
            return Vec::new();
        }
        let lane: Arc<str> = chat.lane().into();
        let platform = egress_platform(&chat.platform);
        let bot_id = platform
            .as_deref()
            .and_then(|platform| self.settings.bot_on(platform));
        actions
            .iter()
            .map(|action| OwedOp::new(key, Arc::clone(&lane), action, platform.clone(), bot_id.clone()))
            .collect()
    }

    /// Owes ops outside a turn's end; the asker is told once they are committed.
    pub(super) fn owe(&mut self, ops: Vec<OwedOp>, asker: Option<oneshot::Sender<Result<(), SendError>>>) {
        let (token, now_ms) = (self.token(), self.now_ms());
        let rows = ops.iter().map(OwedOp::to_row).collect();
        self.adding.insert(token, Adding { ops, asker });
        self.writes.push(Write::AddOps {
            token,
            inbox: None,
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

    /// Committed ops take their place in their chats' lanes.
    pub(super) fn take_owed(&mut self, seqs: impl Iterator<Item = OpSeq>, ops: Vec<OwedOp>) {
        for (seq, op) in seqs.zip(ops) {
            self.lanes.push(Arc::clone(&op.lane), seq.0);
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
            return self.writes.push(Write::OpSettled { op: row.seq });
        };
        let was_out = row.state == OpState::Sent;
        if was_out && op.when_unknown(self.settings.resend_unknown) == WhenUnknown::GiveUp {
            self.tally.ops_unknown += 1;
            tracing::warn!(
                op = row.seq.0,
                kind = &*op.op,
                "it is not known whether this was delivered before the restart; not repeated"
            );
            return self.writes.push(Write::OpSettled { op: row.seq });
        }
        self.tally.ops_recovered += 1;
        self.take_owed(std::iter::once(row.seq), vec![op]);
    }

    /// Hands to the link what may go out.
    pub(super) fn hand_out_ops(&mut self) {
        let now = Instant::now();
        while self.is_live() && self.out.len() < MOST_OUT {
            let Some(seq) = self.lanes.next_out() else { return };
            let Some(op) = self.owed.get(&seq) else {
                self.lanes.settle(seq);
                continue;
            };
            let request = Op {
                lane: None,
                action: op.action.clone(),
                platform: op.platform.clone(),
                bot_id: op.bot_id.clone(),
                timeout: None,
                token: self.next_token + 1,
            };
            self.next_token += 1;
            self.out.insert(request.token, seq);
            self.lately_out.push_back((now, request.token));
            self.transport.submit(request, self.settlements.clone());
        }
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
                Some(seq) if token <= written => self.writes.push(Write::OpSent { op: OpSeq(*seq) }),
                Some(_) => self.lately_out.push_back((now, token)),
                None => {}
            }
        }
    }

    pub(super) fn take_outcome(&mut self, token: u64, outcome: Settled) {
        let Some(seq) = self.out.remove(&token) else {
            return;
        };
        let Some(op) = self.owed.get(&seq) else { return };
        match outcome {
            Settled::Sent(outcome) => match *outcome {
                Outcome::Applied(_) => {
                    self.tally.ops_applied += 1;
                    self.settle(seq);
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
                    self.settle(seq);
                }
                Outcome::Unknown => self.take_unknown(seq),
            },
            Settled::NotSent(why) => {
                self.lanes.put_back(seq);
                if self.is_live() && !matches!(why, NotSent::Closing) {
                    self.retry_soon();
                }
            }
        }
    }

    fn take_unknown(&mut self, seq: i64) {
        let Some(op) = self.owed.get_mut(&seq) else {
            return;
        };
        op.attempts += 1;
        let repeat = op.when_unknown(self.settings.resend_unknown) == WhenUnknown::Repeat;
        if repeat && op.attempts < MOST_ATTEMPTS {
            self.lanes.put_back(seq);
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
        self.settle(seq);
    }

    fn settle(&mut self, seq: i64) {
        self.owed.remove(&seq);
        self.lanes.settle(seq);
        self.writes.push(Write::OpSettled { op: OpSeq(seq) });
    }
}
