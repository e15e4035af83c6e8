//! Questions of turns to people: asked, shown, answered, taken back.
//!
//! What a question looks like, who may answer it and when it ends is decided in [`Prompts`]; here its ops take their
//! place in their chats' lanes, and its end goes to the agent that waits. Nothing of it is journaled: a question does
//! not outlive the turn that asks it, and no turn outlives its process. An answer found in the journal at the next
//! start therefore answers nothing.
//!
//! | the op that shows a question | the question |
//! |---|---|
//! | is done | waits for an answer |
//! | finds no connection | keeps its place in the chat and goes out with the next connection |
//! | is too much for the platform | keeps its place and is tried again [`MOST_TRIES`] times; then it is void |
//! | is refused | is tried once more as text; then it is void |
//! | is declined | is void |
//! | may or may not have been done | waits: somebody may have seen it |
//!
//! Its time runs from the moment it is asked, whatever becomes of the op; one that ends before its op went out is
//! never shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::core::Core;
use super::egress::{Listener, PassingOp, lane_op};
use crate::adapter::prompt::{
    ButtonPress, Decision, Person, PressResult, PromptId, PromptOp, PromptOption, PromptRequest,
    PromptSettings, PromptStep, Prompts, QuestionId, Resolution, TypedAnswer,
};
use crate::adapter::stream::Priority;
use crate::agent::{Choice, PromptAnswer, Question};
use crate::link::{NotSent, SendResult};
use crate::session::TurnId;
use crate::store::TurnState;
use crate::wire::{MessageEvent, Outcome, SessionKey};

/// Times that a question which is too much for the platform is tried again.
const MOST_TRIES: u32 = 5;
/// How often it is looked whether agents still wait.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The open questions and the agents that wait for their answers.
#[derive(Debug)]
pub(super) struct Questions {
    prompts: Prompts,
    waiting: HashMap<QuestionId, Waiting>,
    /// When it is next looked whether agents still wait.
    look_at: Duration,
}

/// An agent that waits.
#[derive(Debug)]
struct Waiting {
    turn: TurnId,
    /// The agent's names for the options, in their order.
    choices: Vec<String>,
    answer: oneshot::Sender<PromptAnswer>,
    /// The op that shows the question, until something is known of it.
    op: Option<i64>,
}

/// The question that an op shows.
#[derive(Debug)]
pub(super) struct Showing {
    ask: QuestionId,
    prompt: PromptId,
    /// How often it was too much.
    tries: u32,
}

/// What a message says to a question instead of to the agent.
#[derive(Debug)]
pub(super) enum Response {
    /// A button was pressed.
    Press(ButtonPress),
    /// An answer was typed, by this person.
    Typed(TypedAnswer, Person),
    /// It is for a question, and cannot be read.
    Unreadable,
}

impl Questions {
    /// No questions yet. The seed tells those of this process from those of others, and of earlier ones.
    pub(super) fn new(settings: &PromptSettings, seed: u64) -> Self {
        let [first, second, third, ..] = seed.to_le_bytes();
        let number = u32::try_from(seed >> 32).unwrap_or_default();
        Self {
            prompts: Prompts::new(settings.clone(), [first, second, third], number),
            waiting: HashMap::new(),
            look_at: Duration::ZERO,
        }
    }

    /// Questions that are open.
    pub(super) fn open(&self) -> usize {
        self.prompts.len()
    }

    fn deadline(&self) -> Option<Duration> {
        self.prompts.poll_timeout().map(|at| at.min(self.look_at))
    }
}

impl Core {
    /// Asks people what a turn wants to know. A turn that was told to stop asks nothing any more.
    pub(super) fn ask(&mut self, turn: TurnId, question: Question, answer: oneshot::Sender<PromptAnswer>) {
        let key = QuestionId(self.token());
        let live = self.turns.get(&turn).filter(|live| live.stop.is_none());
        let Some(live) = live.filter(|_| !answer.is_closed()) else {
            return drop(answer.send(PromptAnswer::Cancelled));
        };
        let option = |choice: &Choice| PromptOption {
            label: choice.label.clone(),
            meaning: choice.meaning,
        };
        let adapter = self.adapter(&live.chat.platform);
        let ask = PromptRequest {
            id: key,
            session: live.key.clone(),
            chat: (*live.chat).clone(),
            facts: (*live.facts).clone(),
            author: live.facts.user_id.clone(),
            kind: question.kind,
            options: question.options.iter().map(option).collect(),
            text: question.text,
            detail: question.detail,
            timeout: question.timeout,
        };
        let now = self.clock.mono();
        let opened = match self.questions.prompts.open(ask, &adapter, now) {
            Ok(opened) => opened,
            Err(why) => {
                tracing::debug!(turn = turn.0, %why, "a question is not asked");
                return drop(answer.send(PromptAnswer::Cancelled));
            }
        };
        self.tally.prompts_opened += 1;
        let waiting = Waiting {
            turn,
            choices: question.options.into_iter().map(|choice| choice.id).collect(),
            answer,
            op: None,
        };
        self.questions.waiting.insert(key, waiting);
        let showing = Showing {
            ask: key,
            prompt: opened.prompt,
            tries: 0,
        };
        self.show_question(&opened.op, showing);
    }

    /// Gives the op that shows a question its place, be there a connection or not.
    fn show_question(&mut self, op: &PromptOp, showing: Showing) {
        let (platform, bot_id) = self.envelope(&op.chat);
        let ask = showing.ask;
        let number = self.queue_passing(PassingOp {
            lane: op.chat.key().into(),
            platform,
            bot_id,
            op: op.action.op(),
            action: (&op.action).into(),
            timeout: None,
            weight: Priority::Text,
            listener: Listener::Question(showing),
        });
        if let Some(waiting) = self.questions.waiting.get_mut(&ask) {
            waiting.op = Some(number);
        }
    }

    /// What became of an op that shows a question.
    pub(super) fn take_shown(&mut self, number: i64, outcome: &SendResult) {
        if self.is_shown_later(number, outcome) {
            return;
        }
        self.lanes.complete(lane_op(number));
        let Some(op) = self.egress.passing.remove(&number) else {
            return;
        };
        let Listener::Question(Showing { ask, prompt, .. }) = op.listener else {
            return;
        };
        if let Some(waiting) = self.questions.waiting.get_mut(&ask) {
            waiting.op = None;
        }
        self.learn_of_thread(&op.lane, outcome);
        let prompts = &mut self.questions.prompts;
        let void = |prompts: &mut Prompts| {
            prompts
                .op_not_sent(&prompt)
                .map_or(PromptStep::Nothing, PromptStep::Resolved)
        };
        let then = match outcome {
            SendResult::NotSent(_) => void(prompts),
            SendResult::Answered(outcome) => match &**outcome {
                Outcome::Refused { result, declined } => {
                    self.tally.ops_refused += 1;
                    tracing::warn!(declined, code = ?result.code, "the connector refused to show a question");
                    // As text it would be too much as well.
                    if result.rate_limited().is_some() && !declined {
                        void(prompts)
                    } else {
                        prompts.op_finished(&prompt, outcome)
                    }
                }
                Outcome::Applied(_) => {
                    self.tally.ops_applied += 1;
                    prompts.op_finished(&prompt, outcome)
                }
                Outcome::Unknown => prompts.op_finished(&prompt, outcome),
            },
        };
        match then {
            PromptStep::Nothing => {}
            PromptStep::Show(op) => self.show_question(
                &op,
                Showing {
                    ask,
                    prompt,
                    tries: 0,
                },
            ),
            PromptStep::Edit(op) => self.pass_about_question(&op),
            PromptStep::Resolved(resolution) => self.resolve(resolution),
        }
    }

    /// Whether an op that did not show its question keeps its place, because it may yet.
    fn is_shown_later(&mut self, number: i64, outcome: &SendResult) -> bool {
        let Some(op) = self.egress.passing.get_mut(&number) else {
            return false;
        };
        let Listener::Question(showing) = &mut op.listener else {
            return false;
        };
        if !self.questions.waiting.contains_key(&showing.ask) {
            return false;
        }
        match outcome {
            SendResult::NotSent(NotSent::Closing) => false,
            SendResult::NotSent(_) => {
                self.lanes.put_back(lane_op(number));
                if self.is_live() {
                    self.retry_soon();
                }
                true
            }
            SendResult::Answered(outcome) => {
                let too_much = match &**outcome {
                    Outcome::Refused {
                        result,
                        declined: false,
                    } => result.rate_limited(),
                    _ => None,
                };
                let Some(retry_after) = too_much.filter(|_| showing.tries < MOST_TRIES) else {
                    return false;
                };
                showing.tries += 1;
                let (lane, now) = (Arc::clone(&op.lane), self.clock.mono());
                self.tally.ops_limited += 1;
                let until = self.egress.budgets.on_rate_limited(&lane, retry_after, now);
                self.lanes.put_back(lane_op(number));
                self.egress.hold(lane, until);
                true
            }
        }
    }

    /// What a message says to a question, if it is not for the agent or the relay.
    pub(super) fn response_in(&self, key: &SessionKey, event: &MessageEvent) -> Option<Response> {
        if event.prompt_response.is_some() {
            return Some(ButtonPress::from_event(event).map_or(Response::Unreadable, Response::Press));
        }
        if self.questions.prompts.is_empty() || !event.media_urls.is_empty() {
            return None;
        }
        let (by, now) = (Person::from_source(&event.source), self.clock.mono());
        let typed = self.questions.prompts.match_text(key, &by, event.text(), now)?;
        Some(Response::Typed(typed, by))
    }

    /// Takes a response, now that it is committed; tells how its row ends. Its question may have ended meanwhile.
    pub(super) fn take_response(&mut self, response: &Response) -> TurnState {
        let now = self.clock.mono();
        let prompts = &mut self.questions.prompts;
        let (resolution, notice) = match response {
            Response::Unreadable => (None, None),
            Response::Typed(typed, by) => (prompts.answer(typed, by, now), None),
            Response::Press(press) => match prompts.press(press, now) {
                PressResult::Resolved(resolution) => (Some(resolution), None),
                PressResult::Expired { resolution, notice } => (resolution, notice),
                PressResult::NotAllowed(notice) => (None, notice),
                PressResult::NotOurs | PressResult::Repeated | PressResult::NoSuchOption => (None, None),
            },
        };
        let decided = resolution
            .as_ref()
            .is_some_and(|resolution| resolution.decision != Decision::TimedOut);
        if let Some(resolution) = resolution {
            self.resolve(resolution);
        }
        if let Some(notice) = notice {
            self.pass_about_question(&notice);
        }
        if decided {
            TurnState::Done
        } else {
            TurnState::Ignored
        }
    }

    /// A turn stops or is over: it asks nothing any more.
    pub(super) fn withdraw_questions(&mut self, turn: TurnId) {
        self.withdraw_where(|waiting| waiting.turn == turn);
    }

    /// Ends the questions whose time is over, and those that no agent waits for any more.
    pub(super) fn look_after_questions(&mut self) {
        let now = self.clock.mono();
        if self.questions.deadline().is_none_or(|at| at > now) {
            return;
        }
        for resolution in self.questions.prompts.expire(now) {
            self.resolve(resolution);
        }
        self.withdraw_where(|waiting| waiting.answer.is_closed());
        self.questions.look_at = now.saturating_add(LOOK_EVERY);
    }

    /// When [`Self::look_after_questions`] is due.
    pub(super) fn questions_deadline(&self) -> Option<Instant> {
        self.questions.deadline().map(|at| self.clock.instant(at))
    }

    fn withdraw_where(&mut self, which: impl Fn(&Waiting) -> bool) {
        let waiting = self.questions.waiting.iter();
        let asked: Vec<QuestionId> = waiting
            .filter(|(_, waiting)| which(waiting))
            .map(|(ask, _)| *ask)
            .collect();
        for ask in asked {
            if let Some(resolution) = self.questions.prompts.withdraw(ask) {
                self.resolve(resolution);
            }
        }
    }

    /// A question is at its end: its agent is told, and its message says so.
    fn resolve(&mut self, resolution: Resolution) {
        if let Some(waiting) = self.questions.waiting.remove(&resolution.id) {
            if let Some(number) = waiting.op
                && self.lanes.remove(lane_op(number))
                && let Some(op) = self.egress.passing.remove(&number)
            {
                self.lanes.retry(&op.lane);
            }
            let answer = match resolution.decision {
                Decision::Chosen(index) => {
                    self.tally.prompts_answered += 1;
                    let chosen = waiting.choices.into_iter().nth(index);
                    chosen.map_or(PromptAnswer::Cancelled, PromptAnswer::Chosen)
                }
                Decision::TimedOut => {
                    self.tally.prompts_expired += 1;
                    PromptAnswer::TimedOut
                }
                Decision::Cancelled => PromptAnswer::Cancelled,
            };
            // An agent that gave up waiting hears nothing.
            let _ = waiting.answer.send(answer);
        }
        if let Some(edit) = resolution.edit {
            self.pass_about_question(&edit);
        }
    }

    /// Says something about a question; when it cannot be said now, it is not said.
    fn pass_about_question(&mut self, op: &PromptOp) {
        let lane = op.chat.key().into();
        self.pass(
            &op.chat,
            &lane,
            &op.action,
            Priority::Text,
            None,
            Listener::Nobody,
        );
    }
}
