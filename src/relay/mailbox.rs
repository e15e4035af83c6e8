//! What others hand to this relay's agents: context for a session's next turn, and who waits for an answer.
//!
//! The journal holds every delivery under its `dispatch_id` ([`DeliveryCommand`](crate::store::DeliveryCommand)); this part holds what
//! the turns need of them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;
use tokio::sync::oneshot;

use crate::agent_connector::DispatchRoute;
use crate::agent_connector::contract::{
    AgentActivity, AgentResponse, DeliveryKind, DeliveryPayload, DeliveryReceipt,
};
use crate::session::TurnId;
use crate::store::{HandoverMark, InboxSeq, PendingContext};

/// Deliveries that are remembered for those who look.
const MAX_RECENT: usize = 100;
/// Characters of their texts that are remembered.
const MAX_SHOWN_CHARS: usize = 200;
/// How many turns are given the same context. One that as many turns ended with before they said anything may be why they ended.
const MAX_GIVEN: u8 = 3;

/// Something for one of this relay's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedDelivery {
    /// The agent's name.
    pub agent: String,
    /// The session; without one, the agent's own session for deliveries.
    pub session: Option<String>,
    /// What it is.
    pub payload: DeliveryPayload,
    /// Whether it interrupts the session's turn and runs at once, whatever its kind.
    pub wake: bool,
}

/// Why a delivery was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandRefusal {
    /// There is no such agent.
    #[error("there is no such agent")]
    UnknownAgent,
    /// The session is one of the relay's own.
    #[error("sessions that begin with `cron:` are those of scheduled jobs")]
    ReservedSession,
    /// Another agent was given a delivery with this id.
    #[error(
        "another agent was given a delivery with this `dispatch_id`; every delivery needs one of its own"
    )]
    OtherAgent,
    /// Too much waits for the session's next turn, or for all of them.
    #[error("too much waits for the next turn of this session, or of all sessions together")]
    Full,
    /// It is larger than everything that may wait for one turn.
    #[error("context for a turn has at most {} KiB", crate::store::MAX_CONTEXT_BYTES >> 10)]
    TooLarge,
    /// The relay is shutting down.
    #[error("the relay is shutting down")]
    Draining,
    /// The journal could not store it.
    #[error("the journal could not store it")]
    NotStored,
    /// The turn ended without an answer.
    #[error("the turn ended without an answer")]
    NoAnswer,
}

/// Who waits for what became of a delivery.
#[derive(Debug)]
pub(super) enum HandReply {
    /// For its receipt.
    Receipt(oneshot::Sender<Result<DeliveryReceipt, HandRefusal>>),
    /// For the agent's answer.
    Response(oneshot::Sender<Result<AgentResponse, HandRefusal>>),
}

impl HandReply {
    pub(super) fn refuse(self, refusal: HandRefusal) {
        match self {
            Self::Receipt(reply) => drop(reply.send(Err(refusal))),
            Self::Response(reply) => drop(reply.send(Err(refusal))),
        }
    }
}

/// Somebody who waits for the answer of a delivery's turn.
#[derive(Debug)]
pub(super) struct ResponseWaiter {
    pub(super) correlation_id: String,
    pub(super) reply: oneshot::Sender<Result<AgentResponse, HandRefusal>>,
}

/// A delivery whose turn runs.
#[derive(Debug)]
pub(super) struct RunningDelivery {
    pub(super) row: InboxSeq,
    /// Whether the turn's text is collected for its end.
    pub(super) is_collected: bool,
    /// Where the answer goes if the session has no chat.
    pub(super) deliver: Option<String>,
    /// Whether its agent was given it; none if that is not known.
    pub(super) handover: Option<HandoverMark>,
}

impl RunningDelivery {
    /// Whether its agent was surely not given it.
    pub(super) fn is_unbegun(&self) -> bool {
        self.handover.as_ref().is_some_and(|mark| !mark.is_given())
    }
}

/// What a turn has of others: context, and the delivery that it is itself, if it is one.
#[derive(Debug, Default)]
pub(super) struct GivenTurn {
    pub(super) delivery: Option<RunningDelivery>,
    pub(super) contexts: Vec<GivenContext>,
}

/// Context, and how many turns were given it.
#[derive(Debug, Clone)]
pub(super) struct GivenContext {
    context: PendingContext,
    given: u8,
}

/// Something that was handed to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenDelivery {
    /// Its place among all of this run, from 1 on.
    pub number: u64,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: String,
    /// How it came.
    pub route: DispatchRoute,
    /// What it is for.
    pub kind: DeliveryKind,
    /// Its id.
    pub dispatch_id: String,
    /// It came before, so nothing happened.
    pub is_duplicate: bool,
    /// The beginning of its text.
    pub text: String,
}

/// What was taken so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Deliveries.
    pub delivered: u64,
    /// Wakes.
    pub woken: u64,
    /// Requests for an answer.
    pub requested: u64,
    /// Deliveries that came before under the same id.
    pub duplicates: u64,
}

impl DeliveryCounts {
    fn total(self) -> u64 {
        self.delivered + self.woken + self.requested + self.duplicates
    }
}

/// Contexts that wait for a turn, and answers that people wait for.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// By session, the oldest first.
    contexts: BTreeMap<String, Vec<GivenContext>>,
    /// By the row of the turn.
    waiters: HashMap<InboxSeq, ResponseWaiter>,
    /// Turns that run.
    running: HashMap<TurnId, GivenTurn>,
    counts: DeliveryCounts,
    /// The latest, the oldest first.
    recent: VecDeque<TakenDelivery>,
}

impl Mailbox {
    /// Notes a delivery that is stored, or that came before.
    pub(super) fn note(
        &mut self,
        delivery: &HandedDelivery,
        session: &str,
        route: DispatchRoute,
        (at_ms, is_duplicate): (i64, bool),
    ) {
        let count = match route {
            _ if is_duplicate => &mut self.counts.duplicates,
            DispatchRoute::Deliver => &mut self.counts.delivered,
            DispatchRoute::Wake => &mut self.counts.woken,
            DispatchRoute::RequestResponse => &mut self.counts.requested,
        };
        *count += 1;
        if self.recent.len() == MAX_RECENT {
            self.recent.pop_front();
        }
        let payload = &delivery.payload;
        self.recent.push_back(TakenDelivery {
            number: self.counts.total(),
            at_ms,
            agent: delivery.agent.clone(),
            session: session.to_owned(),
            route,
            kind: payload.kind,
            dispatch_id: payload.meta.dispatch_id().to_owned(),
            is_duplicate,
            text: payload.text.chars().take(MAX_SHOWN_CHARS).collect(),
        });
    }

    /// What was taken so far.
    pub(super) fn counts(&self) -> DeliveryCounts {
        self.counts
    }

    /// The latest deliveries after this number, the oldest first.
    pub(super) fn after(&self, number: u64) -> Vec<TakenDelivery> {
        let recent = self.recent.iter();
        recent.filter(|taken| taken.number > number).cloned().collect()
    }

    /// Adds context that is stored.
    pub(super) fn add(&mut self, context: PendingContext) {
        self.contexts
            .entry(context.session.clone())
            .or_default()
            .push(GivenContext { context, given: 0 });
    }

    /// Gives a turn what waits for its agent in its session: the texts.
    pub(super) fn give(&mut self, turn: TurnId, session: &str, agent: &str) -> Vec<&str> {
        let Some(waiting) = self.contexts.get_mut(session) else {
            return Vec::new();
        };
        let (mut taken, left): (Vec<_>, Vec<_>) = std::mem::take(waiting)
            .into_iter()
            .partition(|waiting| waiting.context.agent == agent);
        *waiting = left;
        if waiting.is_empty() {
            self.contexts.remove(session);
        }
        for given in &mut taken {
            given.given += 1;
        }
        let running = self.running.entry(turn).or_default();
        running.contexts = taken;
        let texts = running.contexts.iter().map(|given| given.context.text.as_str());
        texts.collect()
    }

    /// A turn that was given context has ended: the ids of what has reached the agent. If the agent has not said anything, the
    /// context waits for the session's next turn, a few times.
    pub(super) fn settle(&mut self, contexts: Vec<GivenContext>, has_answered: bool) -> Vec<String> {
        let (back, done): (Vec<_>, Vec<_>) = contexts
            .into_iter()
            .partition(|given| !has_answered && given.given < MAX_GIVEN);
        if let Some(first) = back.first() {
            let waiting = self.contexts.entry(first.context.session.clone()).or_default();
            waiting.splice(..0, back);
        }
        if !has_answered && !done.is_empty() {
            tracing::warn!(
                contexts = done.len(),
                "dropped context that {MAX_GIVEN} turns were given and did not answer"
            );
        }
        let ids = done.into_iter().map(|given| given.context.dispatch_id);
        ids.collect()
    }

    /// Notes who waits for a turn's answer.
    pub(super) fn wait(&mut self, row: InboxSeq, waiter: ResponseWaiter) {
        self.waiters.insert(row, waiter);
    }

    /// Whether somebody waits for a turn's answer.
    pub(super) fn is_awaited(&self, row: InboxSeq) -> bool {
        self.waiters.contains_key(&row)
    }

    /// The turn of a delivery begins.
    pub(super) fn begun(&mut self, turn: TurnId, delivery: RunningDelivery) {
        self.running.entry(turn).or_default().delivery = Some(delivery);
    }

    /// A turn is over: what it had of others.
    pub(super) fn finished(&mut self, turn: TurnId) -> GivenTurn {
        self.running.remove(&turn).unwrap_or_default()
    }

    /// A turn is over: who waits for its answer.
    pub(super) fn ended(&mut self, row: InboxSeq) -> Option<ResponseWaiter> {
        self.waiters.remove(&row)
    }
}

/// Whether an agent works, for those who ask.
pub(super) fn activity(is_running: bool) -> AgentActivity {
    if is_running {
        AgentActivity::Active
    } else {
        AgentActivity::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_connector::contract::{DeliveryMeta, DeliveryOrigin};

    fn context(session: &str, agent: &str, text: &str) -> PendingContext {
        PendingContext {
            dispatch_id: text.to_owned(),
            session: session.to_owned(),
            agent: agent.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn context_is_for_one_agent_in_one_session_once_and_in_order() {
        let mut mailbox = Mailbox::default();
        for (session, agent, text) in [("s", "a", "1"), ("s", "b", "2"), ("t", "a", "3"), ("s", "a", "4")] {
            mailbox.add(context(session, agent, text));
        }
        let nothing: [&str; 0] = [];
        assert_eq!(mailbox.give(TurnId(1), "s", "a"), ["1", "4"]);
        assert_eq!(mailbox.give(TurnId(2), "s", "a"), nothing);
        assert_eq!(mailbox.give(TurnId(3), "s", "b"), ["2"]);
        assert_eq!(mailbox.give(TurnId(4), "t", "a"), ["3"]);
        assert!(mailbox.contexts.is_empty());
        for turn in 1..=4 {
            mailbox.finished(TurnId(turn));
        }
        assert!(mailbox.running.is_empty());
    }

    #[test]
    fn the_latest_deliveries_are_numbered_and_counted_and_few_are_remembered() {
        let meta = DeliveryMeta::new("d", 1, &DeliveryOrigin::default());
        let delivery = HandedDelivery {
            agent: "a".to_owned(),
            session: None,
            payload: DeliveryPayload {
                kind: DeliveryKind::Augment,
                text: "x".repeat(10_000),
                meta,
            },
            wake: false,
        };
        let mut mailbox = Mailbox::default();
        for at in 0..150 {
            mailbox.note(&delivery, "s", DispatchRoute::Wake, (at, at % 50 == 0));
        }
        let counts = mailbox.counts();
        assert_eq!((counts.woken, counts.duplicates), (147, 3));
        let all = mailbox.after(0);
        assert_eq!((all.len(), all[0].number, all[99].number), (100, 51, 150));
        assert_eq!(all[0].text.len(), MAX_SHOWN_CHARS);
        assert_eq!(mailbox.after(149).len(), 1);
        assert_eq!(mailbox.after(150), []);
    }

    #[test]
    fn context_of_a_turn_that_said_nothing_waits_again_before_the_newer_and_not_for_ever() {
        let mut mailbox = Mailbox::default();
        mailbox.add(context("s", "a", "1"));
        for turn in 1..MAX_GIVEN {
            let turn = TurnId(u64::from(turn));
            assert_eq!(mailbox.give(turn, "s", "a"), ["1"]);
            let given = mailbox.finished(turn);
            assert!(mailbox.settle(given.contexts, false).is_empty());
        }
        mailbox.add(context("s", "a", "2"));
        assert_eq!(mailbox.give(TurnId(9), "s", "a"), ["1", "2"]);
        let given = mailbox.finished(TurnId(9));
        assert_eq!(
            mailbox.settle(given.contexts, false),
            ["1"],
            "it may be the cause"
        );
        assert_eq!(mailbox.give(TurnId(10), "s", "a"), ["2"]);
        let given = mailbox.finished(TurnId(10));
        assert_eq!(mailbox.settle(given.contexts, true), ["2"]);
        assert!(mailbox.contexts.is_empty());
    }
}
