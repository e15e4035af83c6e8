//! One prompt, from sending it to its answer: what is said goes out in order, questions go to people, a stop goes to the
//! agent.
//!
//! `session/cancel` is sent only between the prompt and its answer. Dropping the future in between tells the agent to
//! stop, answers its open questions with "cancelled" and taints the session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::mailbox::{Mail, is_progress};
use super::permission::{PermissionAsked, cancelled};
use super::process::Process;
use super::rpc::{CallError, Peer};
use super::sessions::Sessions;
use crate::agent::{AgentEvent, AgentFuture, AgentSignal, PromptAnswer, Turn};
use crate::wire::SessionKey;

/// Questions that one turn may have open; more are void.
const QUESTIONS: usize = 16;

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
    pub(super) sessions: &'a Arc<Mutex<Sessions>>,
    /// How long a stop may take.
    pub(super) grace: Duration,
    /// How long a question may take.
    pub(super) patience: Duration,
    /// What options mean stands in their ids.
    pub(super) by_option_id: bool,
}

/// What came of a prompt.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The answer; `None` when a stop was asked for and did not come in time.
    pub(super) answer: Option<Result<Value, CallError>>,
    /// The agent said, did or asked something.
    pub(super) said: bool,
    /// Why it was told to stop, if it was.
    pub(super) stop: Stop,
}

/// Whether, and why, the agent was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It was not.
    No,
    /// The turn was cancelled.
    Asked,
    /// It said too much.
    Overrun,
}

/// A prompt that is not answered yet.
struct InFlight<'a> {
    peer: &'a Peer,
    id: &'a str,
    key: &'a SessionKey,
    sessions: &'a Arc<Mutex<Sessions>>,
    /// Questions that are not answered yet, by the agent's names for them.
    open: Vec<Value>,
    answered: bool,
}

type Asking<'a> = FuturesUnordered<AgentFuture<'a, (Value, Value)>>;

impl Prompt<'_> {
    /// Sends the prompt and sees it through. `None` when the turn was cancelled before it was sent.
    pub(super) async fn run(&self, blocks: Vec<Value>) -> Option<Outcome> {
        let peer = self.process.peer();
        let (_routed, mailbox) = self.process.routes.turn(self.id);
        let params = json!({"sessionId": self.id, "prompt": blocks});
        let begun = tokio::select! {
            biased;
            () = self.turn.cancel.cancelled() => return None,
            // Dropped, it has not been sent.
            begun = peer.begin("session/prompt", &params) => begun,
        };
        drop(params);
        let mut outcome = Outcome {
            answer: None,
            said: false,
            stop: Stop::No,
        };
        let mut pending = match begun {
            Ok(pending) => pending,
            Err(error) => {
                outcome.answer = Some(Err(error));
                return Some(outcome);
            }
        };
        let mut flight = InFlight {
            peer,
            id: self.id,
            key: &self.turn.session,
            sessions: self.sessions,
            open: Vec::new(),
            answered: false,
        };
        let mut asking = Asking::new();
        let mut held: Option<AgentEvent> = None;
        let mut deadline = Instant::now();
        let sink = &self.turn.events.0;
        loop {
            tokio::select! {
                biased;
                () = self.turn.cancel.cancelled(), if outcome.stop == Stop::No => {
                    outcome.stop = Stop::Asked;
                    deadline = Instant::now() + self.grace;
                    asking.clear();
                    flight.stop();
                }
                () = mailbox.overrun(), if outcome.stop == Stop::No => {
                    outcome.stop = Stop::Overrun;
                    deadline = Instant::now() + self.grace;
                    asking.clear();
                    flight.stop();
                }
                () = sleep_until(deadline), if outcome.stop != Stop::No => break,
                // Each yields the agent's name for the question and what to answer.
                Some((id, answer)) = asking.next(), if !asking.is_empty() => flight.settle(&id, answer),
                // Cancel-safe: what is held stays held.
                place = sink.reserve(), if held.is_some() => {
                    // An error means that nobody listens any more: the turn is about to be dropped or cancelled.
                    if let (Ok(place), Some(event)) = (place, held.take()) {
                        place.send(AgentSignal::Event(event));
                    }
                }
                mail = mailbox.next(), if held.is_none() => match mail {
                    Mail::Asked(id, params) => {
                        outcome.said = true;
                        flight.open.push(id.clone());
                        if outcome.stop == Stop::No && asking.len() < QUESTIONS {
                            asking.push(self.ask(id, &params));
                        } else {
                            flight.settle(&id, cancelled());
                        }
                    }
                    Mail::Said(event) => {
                        outcome.said |= counts(&event);
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
        flight.void();
        if outcome.answer.is_some() {
            self.rest(&mailbox, held, &mut outcome, &mut flight).await;
        } else {
            // Given up by the caller, who knows what to do about the session.
            flight.answered = true;
        }
        Some(outcome)
    }

    /// Passes on what waits when the answer is there: it was said before.
    async fn rest(
        &self,
        mailbox: &super::mailbox::Mailbox,
        mut held: Option<AgentEvent>,
        outcome: &mut Outcome,
        flight: &mut InFlight<'_>,
    ) {
        let patience = async {
            if outcome.stop == Stop::No {
                self.turn.cancel.cancelled().await;
            }
            sleep(self.grace).await;
        };
        let passing = async {
            loop {
                if let Some(event) = held.take() {
                    self.turn.events.emit(event).await;
                }
                match mailbox.take() {
                    None => return,
                    Some(Mail::Said(event)) => {
                        outcome.said |= counts(&event);
                        held = self.pass(event);
                    }
                    Some(Mail::Asked(id, _)) => {
                        flight.open.push(id);
                        flight.void();
                    }
                }
            }
        };
        tokio::select! {
            // What is said is preferred to the end of patience; both lose nothing that was passed on.
            biased;
            () = passing => {}
            () = patience => {}
        }
        if let Some(Ok(answer)) = &outcome.answer
            && let Some(usage) = super::update::usage(answer)
        {
            self.turn.events.progress(usage);
        }
    }

    /// Passes on progress at once, or drops it; gives back what must not be lost.
    fn pass(&self, event: AgentEvent) -> Option<AgentEvent> {
        let mail = Mail::Said(event);
        let progress = is_progress(&mail);
        match mail {
            Mail::Said(event) if progress => {
                self.turn.events.progress(event);
                None
            }
            Mail::Said(event) => Some(event),
            Mail::Asked(..) => None,
        }
    }

    fn ask<'a>(&'a self, id: Value, params: &Value) -> AgentFuture<'a, (Value, Value)> {
        let asked = PermissionAsked::read(params, self.by_option_id, self.patience);
        let people = self.turn.approver.clone();
        Box::pin(async move {
            let answer = timeout(self.patience, people.ask(asked.question.clone())).await;
            let answer = answer.unwrap_or(PromptAnswer::TimedOut);
            (id, asked.outcome(&answer))
        })
    }
}

/// Whether something that the agent says shows that it has taken up the prompt.
fn counts(event: &AgentEvent) -> bool {
    !matches!(
        event,
        AgentEvent::Title(_) | AgentEvent::Usage(_) | AgentEvent::Notice(_)
    )
}

impl InFlight<'_> {
    /// Tells the agent to stop. Questions are settled first, as the protocol wants it.
    fn stop(&mut self) {
        self.void();
        let _ = self.peer.tell("session/cancel", &json!({"sessionId": self.id}));
    }

    /// Answers a question.
    fn settle(&mut self, id: &Value, answer: Value) {
        self.open.retain(|open| open != id);
        let _ = self.peer.answer(id, Ok(answer));
    }

    /// Answers what is open: the questions are void.
    fn void(&mut self) {
        for id in self.open.drain(..) {
            let _ = self.peer.answer(&id, Ok(cancelled()));
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.stop();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.taint(self.key);
        sessions.note_stopped(self.key, true);
    }
}
