//! One prompt, from request to response: events go out in order, questions to people, a stop to the agent.
//!
//! `session/cancel` is sent only while the prompt is in flight. Dropping the future in flight cancels the prompt, answers open
//! questions with "cancelled" and taints the session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::message::{CANCELLED, RpcError};
use super::permission::{PermissionRequest, cancelled};
use super::process::Process;
use super::rpc::{CallError, RpcPeer};
use super::sessions::AgentSessions;
use super::turn_queue::{Lost, QueuedItem, is_progress};
use crate::agent::{AgentEvent, AgentFuture, AgentSignal, PromptAnswer, Turn};
use crate::wire::SessionKey;

/// Maximum open questions of a turn; further ones are cancelled.
const MAX_QUESTIONS: usize = 16;

/// How a prompt is sent.
#[derive(Debug)]
pub(super) struct Prompt<'a> {
    /// The turn that it is for.
    pub(super) turn: &'a Turn,
    /// The process that it goes to.
    pub(super) process: &'a Process,
    /// The session that it goes to.
    pub(super) id: &'a str,
    /// The conversations, in which a dropped prompt is noted.
    pub(super) sessions: &'a Arc<Mutex<AgentSessions>>,
    /// How long a stop may take.
    pub(super) grace: Duration,
    /// How long the agent waits for an answer; for ever if there is none.
    pub(super) question_timeout: Option<Duration>,
    /// Whether an option's meaning is in its id.
    pub(super) by_option_id: bool,
}

/// Result of a prompt.
#[derive(Debug)]
pub(super) struct PromptResult {
    /// The answer; `None` when a stop was asked for and did not come in time.
    pub(super) answer: Option<Result<Value, CallError>>,
    /// Whether the agent sent anything.
    pub(super) responded: bool,
    /// Whether and why the agent was stopped.
    pub(super) stop: StopCause,
    /// Whether some of the answer could not be read.
    pub(super) has_lost_text: bool,
}

/// Whether and why the agent was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopCause {
    /// The agent was not stopped.
    None,
    /// The turn was cancelled.
    Requested,
    /// The queue of the turn overflowed.
    Overflow,
    /// Something could not be read that may have been for the turn.
    Unread,
}

/// A prompt that is not answered yet.
struct RunningPrompt<'a> {
    peer: &'a RpcPeer,
    id: &'a str,
    key: &'a SessionKey,
    sessions: &'a Arc<Mutex<AgentSessions>>,
    /// Questions that are not answered yet, by the agent's names for them, and what withdraws them.
    open: Vec<(Value, CancellationToken)>,
    answered: bool,
}

type PendingPermissions<'a> = FuturesUnordered<AgentFuture<'a, (Value, Result<Value, RpcError>)>>;

impl Prompt<'_> {
    /// Sends the prompt and waits for its response. `None` when the turn was cancelled before.
    pub(super) async fn run(&self, blocks: Vec<Value>) -> Option<PromptResult> {
        let peer = self.process.peer();
        let (_routed, queue) = self.process.routes.turn(self.id);
        let params = json!({"sessionId": self.id, "prompt": blocks});
        self.turn.events.mark_started();
        let begun = tokio::select! {
            biased;
            () = self.turn.cancel.cancelled() => return None,
            // Dropped, it has not been sent.
            begun = peer.start_call("session/prompt", &params) => begun,
        };
        drop(params);
        let mut outcome = PromptResult {
            answer: None,
            responded: false,
            stop: StopCause::None,
            has_lost_text: false,
        };
        let mut pending = match begun {
            Ok(pending) => pending,
            Err(error) => {
                outcome.answer = Some(Err(error));
                return Some(outcome);
            }
        };
        let mut flight = RunningPrompt {
            peer,
            id: self.id,
            key: &self.turn.session,
            sessions: self.sessions,
            open: Vec::new(),
            answered: false,
        };
        let mut asking = PendingPermissions::new();
        let mut held: Option<AgentEvent> = None;
        let mut deadline = Instant::now();
        let sink = &self.turn.events.signals;
        loop {
            tokio::select! {
                biased;
                () = self.turn.cancel.cancelled(), if outcome.stop == StopCause::None => {
                    outcome.stop = StopCause::Requested;
                    deadline = Instant::now() + self.grace;
                    asking.clear();
                    flight.stop();
                }
                cause = queue.broken(), if outcome.stop == StopCause::None => {
                    outcome.stop = cause;
                    deadline = Instant::now() + self.grace;
                    asking.clear();
                    flight.stop();
                }
                () = sleep_until(deadline), if outcome.stop != StopCause::None => break,
                // Each yields the agent's name for the question and what to answer.
                Some((id, answer)) = asking.next(), if !asking.is_empty() => flight.settle(&id, answer),
                // Cancel-safe: what is held stays held.
                place = sink.reserve(), if held.is_some() => {
                    // An error means that the turn was abandoned.
                    if let (Ok(place), Some(event)) = (place, held.take()) {
                        place.send(Box::new(AgentSignal::Event(event)));
                    }
                }
                item = queue.next(), if held.is_none() => match item {
                    QueuedItem::Permission(id, params) => {
                        outcome.responded = true;
                        let withdrawn = CancellationToken::new();
                        flight.open.push((id.clone(), withdrawn.clone()));
                        if outcome.stop == StopCause::None && asking.len() < MAX_QUESTIONS {
                            asking.push(self.ask(id, &params, withdrawn));
                        } else {
                            flight.settle(&id, Ok(cancelled()));
                        }
                    }
                    QueuedItem::Withdrawn(id) => flight.withdraw(&id),
                    QueuedItem::Event(event) => {
                        outcome.responded |= counts(&event);
                        held = self.pass(event);
                    }
                },
                answer = &mut pending => {
                    outcome.answer = Some(answer);
                    flight.answered = true;
                    break;
                }
            }
        }
        asking.clear();
        flight.cancel_questions();
        if outcome.answer.is_some() {
            self.drain(&queue, held, &mut outcome, &mut flight).await;
        } else {
            // The caller handles the session.
            flight.answered = true;
        }
        let lost = queue.lost();
        outcome.responded |= lost != Lost::Nothing;
        outcome.has_lost_text = lost == Lost::Text;
        Some(outcome)
    }

    /// Forwards what was queued before the response.
    async fn drain(
        &self,
        queue: &super::turn_queue::TurnQueue,
        mut held: Option<AgentEvent>,
        outcome: &mut PromptResult,
        flight: &mut RunningPrompt<'_>,
    ) {
        let grace = async {
            if outcome.stop == StopCause::None {
                self.turn.cancel.cancelled().await;
            }
            sleep(self.grace).await;
        };
        let passing = async {
            loop {
                if let Some(event) = held.take() {
                    self.turn.events.emit(event).await;
                }
                match queue.take() {
                    None => return,
                    Some(QueuedItem::Event(event)) => {
                        outcome.responded |= counts(&event);
                        held = self.pass(event);
                    }
                    Some(QueuedItem::Permission(id, _)) => {
                        flight.open.push((id, CancellationToken::new()));
                        flight.cancel_questions();
                    }
                    Some(QueuedItem::Withdrawn(_)) => {}
                }
            }
        };
        tokio::select! {
            // Output is preferred to the timeout; neither loses what was forwarded.
            biased;
            () = passing => {}
            () = grace => {}
        }
        if let Some(Ok(answer)) = &outcome.answer
            && let Some(usage) = super::update::usage(answer)
        {
            self.turn.events.progress(usage);
        }
    }

    /// Forwards or drops progress; returns other events.
    fn pass(&self, event: AgentEvent) -> Option<AgentEvent> {
        let item = QueuedItem::Event(event);
        let progress = is_progress(&item);
        match item {
            QueuedItem::Event(event) if progress => {
                self.turn.events.progress(event);
                None
            }
            QueuedItem::Event(event) => Some(event),
            QueuedItem::Permission(..) | QueuedItem::Withdrawn(_) => None,
        }
    }

    fn ask<'a>(
        &'a self,
        id: Value,
        params: &Value,
        withdrawn: CancellationToken,
    ) -> AgentFuture<'a, (Value, Result<Value, RpcError>)> {
        let asked = PermissionRequest::read(params, self.by_option_id, self.question_timeout);
        let people = self.turn.approver.clone();
        Box::pin(async move {
            let answer = people.ask(asked.question.clone());
            let answer = async {
                match self.question_timeout {
                    Some(limit) => (timeout(limit, answer).await).unwrap_or(PromptAnswer::TimedOut),
                    None => answer.await,
                }
            };
            let outcome = tokio::select! {
                biased;
                () = withdrawn.cancelled() => Err(RpcError {
                    code: CANCELLED,
                    message: "the request was cancelled".to_owned(),
                }),
                answer = answer => Ok(asked.outcome(&answer)),
            };
            (id, outcome)
        })
    }
}

/// Whether an event shows that the prompt is being processed.
fn counts(event: &AgentEvent) -> bool {
    !matches!(
        event,
        AgentEvent::Title(_) | AgentEvent::Usage(_) | AgentEvent::Notice(_)
    )
}

impl RunningPrompt<'_> {
    /// Stops the agent. Questions are answered first, as the protocol requires.
    fn stop(&mut self) {
        self.cancel_questions();
        let _ = self.peer.notify("session/cancel", &json!({"sessionId": self.id}));
    }

    /// Answers a question.
    fn settle(&mut self, id: &Value, answer: Result<Value, RpcError>) {
        self.open.retain(|(open, _)| open != id);
        let _ = self.peer.answer(id, answer);
    }

    /// Ends a question that the agent does not wait for any more.
    fn withdraw(&self, id: &Value) {
        for (_, withdrawn) in self.open.iter().filter(|(open, _)| open == id) {
            withdrawn.cancel();
        }
    }

    /// Answers what is open: the questions are void.
    fn cancel_questions(&mut self) {
        for (id, _) in self.open.drain(..) {
            let _ = self.peer.answer(&id, Ok(cancelled()));
        }
    }
}

impl Drop for RunningPrompt<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.stop();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.taint(self.key);
        sessions.set_stopped(self.key, true);
    }
}
