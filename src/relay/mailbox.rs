//! What others hand to this relay's agents: context for a session's next turn, and who waits for an answer.
//!
//! The journal holds every delivery under its `dispatch_id` ([`DeliveryCommand`](crate::store::DeliveryCommand)); this part holds what
//! the turns need of them.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::oneshot;

use crate::agent_connector::contract::{AgentActivity, AgentResponse, DeliveryPayload, DeliveryReceipt};
use crate::store::{InboxSeq, PendingContext};

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

/// Contexts that wait for a turn, and answers that people wait for.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// By session, the oldest first.
    contexts: BTreeMap<String, Vec<PendingContext>>,
    /// By the row of the turn.
    waiters: HashMap<InboxSeq, ResponseWaiter>,
    /// Turns of deliveries that run, by their row: whether their text is collected for the end.
    running: HashMap<InboxSeq, bool>,
}

impl Mailbox {
    /// Adds context that is stored.
    pub(super) fn add(&mut self, context: PendingContext) {
        self.contexts
            .entry(context.session.clone())
            .or_default()
            .push(context);
    }

    /// Takes what waits for an agent's turn in a session.
    pub(super) fn take(&mut self, session: &str, agent: &str) -> Vec<PendingContext> {
        let Some(waiting) = self.contexts.get_mut(session) else {
            return Vec::new();
        };
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(waiting)
            .into_iter()
            .partition(|context| context.agent == agent);
        *waiting = left;
        if waiting.is_empty() {
            self.contexts.remove(session);
        }
        taken
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
    pub(super) fn begun(&mut self, row: InboxSeq, is_collected: bool) {
        self.running.insert(row, is_collected);
    }

    /// The turn of a delivery is over: whether its text was collected; `None` if it was none.
    pub(super) fn finished(&mut self, row: InboxSeq) -> Option<bool> {
        self.running.remove(&row)
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
        let texts = |taken: Vec<PendingContext>| taken.into_iter().map(|one| one.text).collect::<Vec<_>>();
        assert_eq!(texts(mailbox.take("s", "a")), ["1", "4"]);
        assert_eq!(mailbox.take("s", "a"), []);
        assert_eq!(texts(mailbox.take("s", "b")), ["2"]);
        assert_eq!(texts(mailbox.take("t", "a")), ["3"]);
        assert!(mailbox.contexts.is_empty());
    }
}
