//! Questions of agents to people: asked, shown, answered, withdrawn.
//!
//! What a question looks like, who may answer it and when it expires is decided in [`Prompts`]; here its ops are planned, and
//! its end goes to the agent that waits. A question does not outlive the turn that asks it. No turn outlives its process, unless its
//! agent goes on without the relay and can be taken up again. The journal keeps a [`LeftQuestion`] for each one that is shown: the
//! next start goes on with it, or writes under it that nobody is asked any more. A question to an owner about somebody's code lives on
//! with the code. The journal also keeps what late answers may be meant for, so that they mean no question of the next process.
//!
//! | the op that shows a question | the question |
//! |---|---|
//! | is applied | waits for an answer |
//! | finds no connection, or is rate limited | keeps its place in the chat and is sent later (see the outbox) |
//! | is refused | is tried once more as text; then it is cancelled |
//! | is declined, or rate limited too often | is cancelled |
//! | has an unknown outcome | waits: somebody may have seen it |
//!
//! Its time runs from the moment it is asked; one that ends before its op went out is never shown.

mod asking;
mod keeping;

use keeping::RestoredTurn;
pub use keeping::{ClosingEdit, KeptTurn, LeftQuestion, LeftQuestions};

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::access::Author;
use crate::adapter::prompt::{
    Approvers, ButtonPress, Decision, Person, PressResult, PromptId, PromptOp, PromptSettings, PromptStep,
    Prompts, QuestionId, Resolution, TypedMatch, TypedMessage,
};
use crate::adapter::stream::Priority;
use crate::adapter::{Adapters, Chat, ChatId};
use crate::agent::PromptAnswer;
use crate::collections::IdMap;
use crate::link::SendResult;
use crate::relay::effects::{Effect, Effects, QuestionResponse, RunSeq, Task};
use crate::relay::ops::{EphemeralOp, OpBody, OpOwner};
use crate::session::TurnId;
use crate::store::InboxSeq;
use crate::wire::{MessageEvent, OpId, OpIds, Outcome, Scalar, SessionKey};
use crate::words::{ChatPhrase, Language};

/// Length of what a question is about, in the audit log.
const MAX_TITLE_CHARS: usize = 120;
/// Length of a person's name in a question.
pub const MAX_PERSON_CHARS: usize = 120;
/// How often closed questions of agents are looked for.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What has happened to questions so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApprovalCounters {
    pub opened: u64,
    pub answered: u64,
    pub expired: u64,
}

/// The direct message of an owner.
#[derive(Debug)]
pub struct OwnerChat {
    pub session: SessionKey,
    pub chat: Chat,
    /// Whether nothing rings there now.
    pub is_quiet: bool,
}

impl OwnerChat {
    /// The owner to ask about something on this platform: one who wrote there, else whoever wrote last.
    pub fn best(owners: impl Iterator<Item = Chat>, platform: &str) -> Option<Chat> {
        let mut elsewhere = None;
        for owner in owners {
            if owner.id.platform == platform {
                return Some(owner);
            }
            elsewhere.get_or_insert(owner);
        }
        elsewhere
    }
}

/// What waits, for somebody who may drop some of it.
#[derive(Debug)]
pub struct QueueQuestion {
    /// Where it is asked.
    pub session: SessionKey,
    pub chat: Chat,
    pub text: String,
    pub entries: Vec<QueueEntry>,
    /// Whether nothing rings there now.
    pub is_quiet: bool,
}

/// A message that waits.
#[derive(Debug)]
pub struct QueueEntry {
    /// Its session.
    pub session: SessionKey,
    pub row: InboxSeq,
    /// What it is about, in a few words.
    pub gist: String,
}

/// The author of a turn that asks, as far as it matters who decides.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    pub is_owner: bool,
    /// Whether the author may answer questions at all: guests may not.
    pub may_answer: bool,
    /// Whether the author wrote in a direct message.
    pub is_direct: bool,
    /// Whether anybody wrote access rules.
    pub has_rules: bool,
}

/// Whose question an owner is asked.
#[derive(Clone, Copy, Debug)]
pub enum Questioner<'a> {
    /// A person's.
    Person(&'a Author),
    /// A job's of the operator, by its name.
    Job(&'a str),
    /// One about an item that a program handed to this agent.
    Handed(&'a str),
}

impl<'a> Questioner<'a> {
    /// Whose question it is in the turn of this author for this task; `job` has the names of jobs.
    pub fn of(
        author: &'a Author,
        task: Option<&'a Task>,
        job: impl FnOnce(RunSeq) -> Option<&'a str>,
    ) -> Self {
        match task.filter(|_| author.is_operator()) {
            Some(Task::Job(task)) => Self::Job(job(task.run).unwrap_or_default()),
            Some(Task::Handed(item)) => Self::Handed(&item.agent),
            Some(Task::Message(_)) | None => Self::Person(author),
        }
    }
}

/// What the author of a turn may decide of what it asks, the least first. A question that was put to somebody with one standing is
/// withdrawn once they have less: nobody decides what they would not be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskerStanding {
    /// Nothing, and nobody else is asked: it is denied.
    Denied,
    /// Nothing: an owner is asked in their place.
    OwnerDecides,
    /// Anything but "always"; others in the chat may answer, too.
    Once,
    /// Everything.
    Always,
}

/// What became of a question to an owner.
#[derive(Debug)]
pub struct OwnerAsked {
    /// What the author's chat reads.
    pub notice: &'static str,
    /// What the question is about, for the audit log.
    pub title: String,
    /// The decision and its reason, for the audit log.
    pub recorded: (&'static str, &'static str),
}

/// Where a turn asks.
#[derive(Clone, Debug)]
pub struct Asking {
    pub turn: TurnId,
    pub session: SessionKey,
    pub chat: Arc<Chat>,
    /// Whether the session belongs to one person.
    pub personal: bool,
    /// Whether nothing rings there now.
    pub is_quiet: bool,
    /// What the next process takes the turn up from, if its agent can.
    pub kept: Option<KeptTurn>,
}

/// The open questions and the agents that wait for their answers.
#[derive(Debug)]
pub struct Approvals {
    prompts: Prompts,
    approvers: Approvers,
    /// Whether anyone in a group may answer.
    anyone_may_answer: bool,
    waiting: IdMap<QuestionId, Waiting>,
    last_question: u64,
    /// When closed questions of agents are looked for next.
    check_at: Duration,
    ids: OpIds,
    /// Who shows the questions, for the log.
    peer: &'static str,
    counters: ApprovalCounters,
    /// Whether something else is to be kept of the questions than the last time.
    is_changed: bool,
    /// Turns whose questions were restored and that have yet to begin.
    restored: IdMap<InboxSeq, RestoredTurn>,
    /// Whether this process ends.
    is_leaving: bool,
}

/// An agent that waits.
#[derive(Debug)]
struct Waiting {
    recipient: Recipient,
    /// What it is about, for the audit log.
    title: String,
    /// The owner who was asked in place of the author.
    owner: Option<Chat>,
    /// The least standing of its turn's author with which it would be asked so; none if no turn asks.
    needs: Option<AskerStanding>,
    /// The op that shows the question, until it has a result.
    op: Option<OpId>,
    /// What the next process takes its turn up from, if its agent can.
    kept: Option<KeptTurn>,
}

/// Who gets the answer.
#[derive(Debug)]
enum Recipient {
    /// The agent of a turn.
    Agent {
        /// The turn, once it has begun.
        turn: Option<TurnId>,
        /// The agent's names for the options, in their order.
        choices: Vec<String>,
        reply: oneshot::Sender<PromptAnswer>,
    },
    /// Whoever lets people in; by this code.
    Pairing(String),
    /// These messages, which wait, may be dropped.
    Queue(Vec<QueueEntry>),
}

impl Recipient {
    /// The turn whose agent it is, once it has begun.
    fn turn(&self) -> Option<TurnId> {
        match self {
            Self::Agent { turn, .. } => *turn,
            Self::Pairing(_) | Self::Queue(_) => None,
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Agent { reply, .. } if reply.is_closed())
    }
}

/// A question that a person decided.
#[derive(Debug)]
pub struct DecidedQuestion {
    /// What it is about.
    pub title: String,
    /// The name of the answer.
    pub answer: String,
}

impl Approvals {
    /// No questions yet. The seed tells those of this process from those of others and of earlier ones.
    pub fn new(settings: &PromptSettings, seed: u64, ids: OpIds, peer: &'static str) -> Self {
        let [first, second, third, ..] = seed.to_le_bytes();
        let number = u32::try_from(seed >> 32).unwrap_or_default();
        Self {
            prompts: Prompts::new(settings.clone(), [first, second, third], number),
            approvers: settings.approvers,
            anyone_may_answer: settings.anyone_may_answer(),
            waiting: IdMap::default(),
            last_question: 0,
            check_at: Duration::ZERO,
            ids,
            peer,
            counters: ApprovalCounters::default(),
            is_changed: false,
            restored: IdMap::default(),
            is_leaving: false,
        }
    }

    /// Questions that are open.
    pub fn count(&self) -> usize {
        self.prompts.count()
    }

    pub fn counters(&self) -> ApprovalCounters {
        self.counters
    }

    /// When [`Self::expire`] is due: agents may close a question at any time.
    pub fn deadline(&self) -> Option<Duration> {
        let due = self.prompts.poll_timeout();
        let check = (self.prompts.count() > 0).then_some(self.check_at);
        due.into_iter().chain(check).min()
    }

    /// The op that shows a question goes out under another id.
    pub fn op_renamed(&mut self, question: QuestionId, op: OpId) {
        if let Some(waiting) = self.waiting.get_mut(&question) {
            waiting.op = Some(op);
        }
    }

    /// The op that shows a question has a result.
    pub fn op_finished(
        &mut self,
        question: QuestionId,
        prompt: PromptId,
        result: &SendResult,
        adapters: &Adapters,
        now: Duration,
        effects: &mut Effects,
    ) {
        self.is_changed = true;
        if let Some(waiting) = self.waiting.get_mut(&question) {
            waiting.op = None;
        }
        let cancel = |prompts: &mut Prompts| {
            prompts
                .op_not_sent(&prompt)
                .map_or(PromptStep::Nothing, PromptStep::Resolved)
        };
        let step = match result {
            SendResult::NotSent(_) => cancel(&mut self.prompts),
            SendResult::Lost => self.prompts.op_finished(&prompt, &Outcome::Unknown, now),
            SendResult::Answered(outcome) => {
                if let Outcome::Refused { result, declined } = &**outcome {
                    tracing::warn!(declined, code = ?result.code, "{} refused to show a question", self.peer);
                    // As text it would be rate limited as well.
                    if result.rate_limited().is_some() && !declined {
                        cancel(&mut self.prompts)
                    } else {
                        self.prompts.op_finished(&prompt, outcome, now)
                    }
                } else {
                    self.prompts.op_finished(&prompt, outcome, now)
                }
            }
        };
        match step {
            PromptStep::Nothing => {}
            PromptStep::Show(op) => {
                let adapter = adapters.get(&op.chat.platform);
                self.show(question, prompt, &op, &adapter, effects);
            }
            PromptStep::Edit(op) => effects.push(Effect::Deliver(Box::new(op))),
            PromptStep::Resolved(resolution) => self.resolve(resolution, effects),
        }
    }

    /// The conversation in which a question is visible; `None` for a list, and for what nobody can have seen.
    pub fn visible_in(&self, question: QuestionId) -> Option<&SessionKey> {
        self.prompts.visible_in(question)
    }

    /// What a message of this author says to a question, if it is not for the agent or the relay: to one of its session, or of its chat
    /// if it may be about any session there.
    pub fn match_response(
        &self,
        session: Option<&SessionKey>,
        (event, author): (&MessageEvent, &Author),
        now: Duration,
    ) -> Option<QuestionResponse> {
        if event.prompt_response.is_some() {
            let press = ButtonPress::from_event(event).map(|press| ButtonPress {
                by: person(event, author),
                ..press
            });
            return Some(press.map_or(QuestionResponse::Unreadable, QuestionResponse::Press));
        }
        if !event.media_urls.is_empty() {
            return None;
        }
        let reply_to = event.reply_to_message_id.as_ref().map(Scalar::as_str);
        if !self.prompts.may_match(event.text()) {
            return None;
        }
        let person = person(event, author);
        let message = TypedMessage {
            session,
            chat: &ChatId::from_source(&event.source),
            by: &person,
            text: event.text(),
            reply_to,
        };
        Some(match self.prompts.match_text(&message, now)? {
            TypedMatch::Answer(typed) => QuestionResponse::Typed(typed, person),
            TypedMatch::Undecided(notice) => QuestionResponse::Undecided(notice),
        })
    }

    /// Takes a committed response; returns the question that it decided, which may have ended meanwhile.
    pub fn respond(
        &mut self,
        response: &QuestionResponse,
        adapters: &Adapters,
        now: Duration,
        effects: &mut Effects,
    ) -> Option<DecidedQuestion> {
        let (resolution, notice) = match response {
            // The next process goes on with the question.
            _ if self.is_leaving => (None, None),
            QuestionResponse::Unreadable => (None, None),
            QuestionResponse::Undecided(notice) => (None, Some(notice.clone())),
            QuestionResponse::Typed(typed, person) => match self.prompts.answer(typed, person, now) {
                None => (None, self.prompts.late_answer(typed).map(Box::new)),
                answered => (answered, None),
            },
            QuestionResponse::Press(press) => match self.prompts.press(press, now) {
                PressResult::Resolved(resolution) => (Some(resolution), None),
                PressResult::Expired { resolution, notice } => (resolution, notice),
                PressResult::NotAllowed(notice) => (None, notice),
                PressResult::NotOurs | PressResult::Repeated | PressResult::NoSuchOption => (None, None),
            },
        };
        let decided = resolution
            .as_ref()
            .and_then(|resolution| self.decided(resolution));
        if let Some(resolution) = resolution {
            self.resolve(resolution, effects);
        }
        if let Some(notice) = notice {
            self.send_about(&notice, adapters, effects);
        }
        decided
    }

    fn decided(&self, resolution: &Resolution) -> Option<DecidedQuestion> {
        let waiting = self.waiting.get(&resolution.id);
        let answer = match (resolution.decision, waiting.map(|waiting| &waiting.recipient)) {
            (Decision::TimedOut, _) => return None,
            (Decision::Chosen(index), Some(Recipient::Agent { choices, .. })) => choices.get(index).cloned(),
            (Decision::Chosen(0), Some(Recipient::Pairing(_))) => Some("let in".to_owned()),
            (Decision::Chosen(_), Some(Recipient::Pairing(_))) => Some("ignore".to_owned()),
            (Decision::Chosen(_), Some(Recipient::Queue(..))) => Some("drop".to_owned()),
            (Decision::Cancelled, _) | (_, None) => None,
        };
        Some(DecidedQuestion {
            title: waiting.map(|waiting| waiting.title.clone()).unwrap_or_default(),
            answer: answer.unwrap_or_else(|| "cancelled".to_owned()),
        })
    }

    /// A turn stops or is over: its questions are withdrawn.
    pub fn withdraw_turn(&mut self, turn: TurnId, effects: &mut Effects) {
        if !self.waiting.is_empty() {
            self.withdraw_where(effects, |waiting| waiting.recipient.turn() == Some(turn));
        }
    }

    /// Closes the lists of `/queue` whose messages no longer wait.
    pub fn end_lists(&mut self, waits: impl Fn(&SessionKey, InboxSeq) -> bool, effects: &mut Effects) {
        if self.waiting.is_empty() {
            return;
        }
        self.withdraw_where(effects, |waiting| match &waiting.recipient {
            Recipient::Queue(entries) => !entries.iter().any(|entry| waits(&entry.session, entry.row)),
            Recipient::Agent { .. } | Recipient::Pairing(_) => false,
        });
    }

    /// The codes that owners are asked about.
    pub fn codes(&self) -> impl Iterator<Item = &str> {
        self.waiting
            .values()
            .filter_map(|waiting| match &waiting.recipient {
                Recipient::Pairing(code) => Some(code.as_str()),
                Recipient::Agent { .. } | Recipient::Queue(..) => None,
            })
    }

    /// A code does not wait any more: the questions about it end, and say what became of it.
    pub fn end_pairing(&mut self, code: &str, say: impl Fn(Language) -> String, effects: &mut Effects) {
        let is_it = |waiting: &Waiting| matches!(&waiting.recipient, Recipient::Pairing(of) if of == code);
        for question in self.questions(is_it) {
            if let Some(resolution) = self.prompts.withdraw_saying(question, &say) {
                self.resolve(resolution, effects);
            }
        }
    }

    /// Withdraws the questions that were put to owners who are none any more.
    pub fn withdraw_from_owners(&mut self, is_gone: impl Fn(&Chat) -> bool, effects: &mut Effects) {
        self.withdraw_where(effects, |waiting| waiting.owner.as_ref().is_some_and(&is_gone));
    }

    /// Withdraws the questions of turns whose authors may decide less now than when they were asked; `asker` knows the authors of
    /// turns that run.
    pub fn withdraw_from_askers(&mut self, asker: impl Fn(TurnId) -> Option<Asker>, effects: &mut Effects) {
        let is_gone = |waiting: &Waiting| {
            let asker = waiting.recipient.turn().and_then(&asker);
            asker.is_some_and(|asker| Some(self.standing(asker)) < waiting.needs)
        };
        let gone = self.questions(is_gone);
        self.withdraw(gone, effects);
    }

    /// Ends the questions whose time is over, and those that no agent waits for any more.
    pub fn expire(&mut self, now: Duration, effects: &mut Effects) {
        if self.deadline().is_none_or(|at| at > now) {
            return;
        }
        for resolution in self.prompts.expire(now) {
            self.resolve(resolution, effects);
        }
        self.withdraw_where(effects, |waiting| waiting.recipient.is_gone());
        self.check_at = now.saturating_add(CHECK_INTERVAL);
    }

    /// The messages that remind of questions whose time is half over.
    pub fn reminders(&mut self, now: Duration) -> Vec<PromptOp> {
        self.prompts.remind(now)
    }

    fn questions(&self, which: impl Fn(&Waiting) -> bool) -> Vec<QuestionId> {
        let waiting = self.waiting.iter().filter(|(_, waiting)| which(waiting));
        waiting.map(|(question, _)| *question).collect()
    }

    fn withdraw_where(&mut self, effects: &mut Effects, which: impl Fn(&Waiting) -> bool) {
        let questions = self.questions(which);
        self.withdraw(questions, effects);
    }

    fn withdraw(&mut self, questions: Vec<QuestionId>, effects: &mut Effects) {
        for question in questions {
            if let Some(resolution) = self.prompts.withdraw(question) {
                self.resolve(resolution, effects);
            }
        }
    }

    /// A question has ended: its agent gets the answer, and its message shows it.
    fn resolve(&mut self, resolution: Resolution, effects: &mut Effects) {
        self.is_changed = true;
        if let Some(waiting) = self.waiting.remove(&resolution.id) {
            if let Some(op) = waiting.op {
                effects.push(Effect::Withdraw(op));
            }
            match waiting.recipient {
                Recipient::Agent { choices, reply, .. } => {
                    let answer = self.answer(resolution.decision, choices);
                    // An agent that stopped waiting gets nothing.
                    let _ = reply.send(answer);
                }
                Recipient::Pairing(code) => match resolution.decision {
                    Decision::Chosen(index) => {
                        if let Some(end) = resolution.unsaid {
                            let approved = index == 0;
                            effects.push(Effect::PairingDecided { code, approved, end });
                        }
                    }
                    // The code can still be approved on the command line.
                    Decision::TimedOut | Decision::Cancelled => {}
                },
                Recipient::Queue(mut entries) => {
                    if let Decision::Chosen(index) = resolution.decision
                        && index < entries.len()
                        && let Some(end) = resolution.unsaid
                    {
                        let QueueEntry { session, row, gist } = entries.swap_remove(index);
                        let (number, text) = (index as u64 + 1, gist.as_str());
                        let done = end.language().say(ChatPhrase::Dropped { number, text });
                        effects.push(Effect::DropWaiting {
                            session,
                            row,
                            done,
                            end,
                        });
                    }
                }
            }
        }
        if let Some(edit) = resolution.edit {
            effects.push(Effect::Deliver(edit));
        }
    }

    fn answer(&mut self, decision: Decision, choices: Vec<String>) -> PromptAnswer {
        match decision {
            Decision::Chosen(index) => {
                self.counters.answered += 1;
                let chosen = choices.into_iter().nth(index);
                chosen.map_or(PromptAnswer::Cancelled, PromptAnswer::Chosen)
            }
            Decision::TimedOut => {
                self.counters.expired += 1;
                PromptAnswer::TimedOut
            }
            Decision::Cancelled => PromptAnswer::Cancelled,
        }
    }

    /// Sends something about a question; without a connection it is not sent.
    pub fn send_about(&mut self, op: &PromptOp, adapters: &Adapters, effects: &mut Effects) {
        let adapter = adapters.get(&op.chat.platform);
        effects.push(Effect::Queue(EphemeralOp {
            id: self.ids.next(),
            body: OpBody::new(&adapter, op.chat.key().into(), &op.action),
            priority: Priority::Text,
            timeout: None,
            owner: OpOwner::Nobody,
        }));
    }
}

/// The author of a message, by every id that they are known by.
fn person(event: &MessageEvent, author: &Author) -> Person {
    let known_as = author.people().iter().map(|person| person.user().to_owned());
    Person {
        known_as: known_as.collect(),
        ..Person::from_source(&event.source)
    }
}

#[cfg(test)]
mod tests;
