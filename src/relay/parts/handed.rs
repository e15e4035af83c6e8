//! Items that programs hand to this relay's agents: context for a session's next turn, and who waits for an answer.
//!
//! The journal holds every item under its `dispatch_id` ([`HandedCommand`](crate::store::HandedCommand)); this part holds what
//! the turns need of them.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use tokio::sync::oneshot;

use crate::agent_connector::DispatchRoute;
use crate::agent_connector::contract::{
    AgentActivity, AgentResponse, DeliveryKind, DeliveryPayload, DeliveryReceipt,
};
use crate::collections::IdMap;
use crate::relay::not_running::NotRunning;
use crate::session::TurnId;
use crate::store::{InboxSeq, PendingContext, StartMark, StartMarks};

/// Items that are remembered for `status` and the page of `dev`.
const MAX_RECENT: usize = 100;
/// Characters of their texts that are remembered.
const MAX_SHOWN_CHARS: usize = 200;
/// How many turns are given the same context. One that as many turns ended with before they said anything may be why they ended.
const MAX_GIVEN: u8 = 3;

/// An item for one of this relay's agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedItem {
    /// The agent's name.
    pub agent: String,
    /// The session; without one, the agent's own session for such items.
    pub session: Option<String>,
    /// The contract's payload.
    pub payload: DeliveryPayload,
    /// Whether the item interrupts the session's turn and runs at once, whatever its kind.
    pub wake: bool,
}

/// Why an item was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// There is no such agent.
    #[error("there is no such agent")]
    UnknownAgent,
    /// Another agent was given an item with this id.
    #[error("another agent was given an item with this `dispatch_id`; every item needs one of its own")]
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
    /// The relay has ended.
    #[error(transparent)]
    NotRunning(#[from] NotRunning),
}

/// Who waits for the outcome of a submission.
#[derive(Debug)]
pub enum SubmissionReply {
    /// For its receipt.
    Receipt(oneshot::Sender<Result<DeliveryReceipt, SubmitError>>),
    /// For the agent's answer.
    Response(oneshot::Sender<Result<AgentResponse, SubmitError>>),
}

impl SubmissionReply {
    pub fn refuse(self, refusal: SubmitError) {
        match self {
            Self::Receipt(reply) => drop(reply.send(Err(refusal))),
            Self::Response(reply) => drop(reply.send(Err(refusal))),
        }
    }
}

/// A program that waits for the answer of its item's turn.
#[derive(Debug)]
pub struct ResponseWaiter {
    pub correlation_id: String,
    pub reply: oneshot::Sender<Result<AgentResponse, SubmitError>>,
}

/// Context, and how many turns were given it.
#[derive(Debug, Clone)]
pub struct GivenContext {
    context: PendingContext,
    given: u8,
}

/// An item that was handed to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TakenItem {
    /// Its place among all of this process, from 1 on.
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

/// Counters of handed-over items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandedCounts {
    /// Items that interrupt nothing.
    pub delivered: u64,
    /// Wakes.
    pub woken: u64,
    /// Requests for an answer.
    pub requested: u64,
    /// Items that came before under the same id.
    pub duplicates: u64,
}

impl HandedCounts {
    fn total(self) -> u64 {
        self.delivered + self.woken + self.requested + self.duplicates
    }
}

/// Contexts that wait for a turn, and answers that programs wait for.
#[derive(Debug)]
pub struct Handed {
    /// By session, the oldest first.
    contexts: BTreeMap<String, Vec<GivenContext>>,
    /// Contexts that running turns were given.
    given: IdMap<TurnId, Vec<GivenContext>>,
    /// By the row of the turn.
    waiters: IdMap<InboxSeq, ResponseWaiter>,
    /// Which items no agent has been given yet.
    start_marks: StartMarks,
    counts: HandedCounts,
    /// The latest, the oldest first.
    recent: VecDeque<TakenItem>,
}

impl Handed {
    /// Nothing waits yet. `start_marks` is left from an earlier process.
    pub fn new(start_marks: StartMarks) -> Self {
        Self {
            contexts: BTreeMap::new(),
            given: IdMap::default(),
            waiters: IdMap::default(),
            start_marks,
            counts: HandedCounts::default(),
            recent: VecDeque::new(),
        }
    }

    /// Notes an item that is stored, or that came before.
    pub fn note(
        &mut self,
        item: &HandedItem,
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
        let payload = &item.payload;
        self.recent.push_back(TakenItem {
            number: self.counts.total(),
            at_ms,
            agent: item.agent.clone(),
            session: session.to_owned(),
            route,
            kind: payload.kind,
            dispatch_id: payload.meta.dispatch_id().to_owned(),
            is_duplicate,
            text: payload.text.chars().take(MAX_SHOWN_CHARS).collect(),
        });
    }

    pub fn counts(&self) -> HandedCounts {
        self.counts
    }

    /// The latest items after this number, the oldest first.
    pub fn after(&self, number: u64) -> Vec<TakenItem> {
        let recent = self.recent.iter();
        recent.filter(|taken| taken.number > number).cloned().collect()
    }

    /// Adds context that is stored.
    pub fn add(&mut self, context: PendingContext) {
        self.contexts
            .entry(context.session.clone())
            .or_default()
            .push(GivenContext { context, given: 0 });
    }

    /// Gives a turn what waits for its agent in its session: the texts.
    pub fn give(&mut self, turn: TurnId, session: &str, agent: &str) -> Vec<&str> {
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
        if taken.is_empty() {
            return Vec::new();
        }
        for given in &mut taken {
            given.given += 1;
        }
        let given = self.given.entry(turn).insert_entry(taken).into_mut();
        given.iter().map(|given| given.context.text.as_str()).collect()
    }

    /// A turn is over that may have been given context: the ids of what has reached the agent. If the agent has not said
    /// anything, the context waits for the session's next turn, a few times.
    pub fn settle(&mut self, turn: TurnId, has_answered: bool) -> Vec<String> {
        let Some(contexts) = self.given.remove(&turn) else {
            return Vec::new();
        };
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

    /// Notes that the turn of this row is still to be handed to its agent, before anybody has a receipt.
    pub fn expect(&mut self, row: InboxSeq) {
        self.start_marks.expect(row);
    }

    /// The mark that the agent of this row's turn sets when it gets the text.
    pub fn mark(&self, row: InboxSeq) -> Option<StartMark> {
        self.start_marks.mark(row)
    }

    /// Whether an earlier process surely did not give this row to an agent.
    pub fn is_left(&self, row: InboxSeq) -> bool {
        self.start_marks.is_left(row)
    }

    /// The end of a row is committed.
    pub fn forget(&mut self, row: InboxSeq) {
        self.start_marks.forget(row);
    }

    /// Notes who waits for a turn's answer.
    pub fn wait(&mut self, row: InboxSeq, waiter: ResponseWaiter) {
        self.waiters.insert(row, waiter);
    }

    /// Whether a program waits for a turn's answer.
    pub fn is_awaited(&self, row: InboxSeq) -> bool {
        self.waiters.contains_key(&row)
    }

    /// Answers the program that waits for a turn's answer, with the agent and its text if there is one; `false` if none does.
    pub fn answer(&mut self, row: InboxSeq, answer: Option<(&str, &str)>, now_ms: i64) -> bool {
        let Some(waiter) = self.waiters.remove(&row) else {
            return false;
        };
        let response = answer.map(|(agent, text)| AgentResponse {
            correlation_id: waiter.correlation_id,
            content: text.to_owned(),
            sent_at: now_ms,
            agent_id: agent.to_owned(),
        });
        waiter.reply.send(response.ok_or(SubmitError::NoAnswer)).is_ok()
    }
}

/// Whether an agent works.
pub fn activity(is_running: bool) -> AgentActivity {
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
        let mut handed = Handed::new(StartMarks::default());
        for (session, agent, text) in [("s", "a", "1"), ("s", "b", "2"), ("t", "a", "3"), ("s", "a", "4")] {
            handed.add(context(session, agent, text));
        }
        let nothing: [&str; 0] = [];
        assert_eq!(handed.give(TurnId(1), "s", "a"), ["1", "4"]);
        assert_eq!(handed.give(TurnId(2), "s", "a"), nothing);
        assert_eq!(handed.give(TurnId(3), "s", "b"), ["2"]);
        assert_eq!(handed.give(TurnId(4), "t", "a"), ["3"]);
        assert!(handed.contexts.is_empty());
        for turn in 1..=4 {
            handed.settle(TurnId(turn), true);
        }
        assert!(handed.given.is_empty());
    }

    #[test]
    fn the_latest_deliveries_are_numbered_and_counted_and_few_are_remembered() {
        let meta = DeliveryMeta::new("d", 1, &DeliveryOrigin::default());
        let delivery = HandedItem {
            agent: "a".to_owned(),
            session: None,
            payload: DeliveryPayload {
                kind: DeliveryKind::Augment,
                text: "x".repeat(10_000),
                meta,
            },
            wake: false,
        };
        let mut handed = Handed::new(StartMarks::default());
        for at in 0..150 {
            handed.note(&delivery, "s", DispatchRoute::Wake, (at, at % 50 == 0));
        }
        let counts = handed.counts();
        assert_eq!((counts.woken, counts.duplicates), (147, 3));
        let all = handed.after(0);
        assert_eq!((all.len(), all[0].number, all[99].number), (100, 51, 150));
        assert_eq!(all[0].text.len(), MAX_SHOWN_CHARS);
        assert_eq!(handed.after(149).len(), 1);
        assert_eq!(handed.after(150), []);
    }

    #[test]
    fn context_of_a_turn_that_said_nothing_waits_again_before_the_newer_and_not_for_ever() {
        let mut handed = Handed::new(StartMarks::default());
        handed.add(context("s", "a", "1"));
        for turn in 1..MAX_GIVEN {
            let turn = TurnId(u64::from(turn));
            assert_eq!(handed.give(turn, "s", "a"), ["1"]);
            assert!(handed.settle(turn, false).is_empty());
        }
        handed.add(context("s", "a", "2"));
        assert_eq!(handed.give(TurnId(9), "s", "a"), ["1", "2"]);
        assert_eq!(handed.settle(TurnId(9), false), ["1"], "it may be the cause");
        assert_eq!(handed.give(TurnId(10), "s", "a"), ["2"]);
        assert_eq!(handed.settle(TurnId(10), true), ["2"]);
        assert!(handed.contexts.is_empty());
    }
}
