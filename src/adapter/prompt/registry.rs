//! The open questions and the recently ended ones. A question ends in one function only, which makes its
//! [`Resolution`]: none is resolved twice.

use std::collections::VecDeque;
use std::time::Duration;

use super::question::{
    EndedQuestion, OfferedOption, OpenQuestion, Presentation, PromptTarget, Responders, TypedAnswer,
    TypedText, Visibility,
};
use super::render::{self, MessageFormat, QuestionText};
use super::types::{
    ButtonPress, Decision, Meaning, NotOpened, OpenedQuestion, Person, PressResult, PromptId, PromptOption,
    PromptRequest, PromptSettings, PromptStep, QuestionId, QuestionKind, Resolution,
};
use crate::adapter::RelayAdapter;
use crate::wire::{Outcome, Scalar, SessionKey};

/// Maximum options of a question.
const MAX_OPTIONS: usize = 32;
/// Longest message id that is accepted.
const MAX_MESSAGE_ID: usize = 256;
/// Step between serial numbers: odd, so that none repeats within 2³².
const STRIDE: u32 = 0x9e37_79b9;
/// Notice for a late press.
const TOO_LATE: &str = "That question is no longer open.";
/// Notice for somebody who may not answer.
const NOT_YOURS: &str = "Only the person whose message is being answered can decide this.";

/// The questions that are open, oldest first.
#[derive(Debug)]
pub struct Prompts {
    settings: PromptSettings,
    nonce: String,
    serial: u32,
    open: Vec<OpenQuestion>,
    ended: VecDeque<EndedQuestion>,
}

impl Prompts {
    /// No questions yet. The nonce tells this process's questions from those of others and of earlier runs; serial
    /// numbers start at the seed.
    pub fn new(settings: PromptSettings, nonce: [u8; 3], seed: u32) -> Self {
        let [a, b, c] = nonce;
        Self {
            settings,
            nonce: format!("{a:02x}{b:02x}{c:02x}."),
            serial: seed,
            open: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    /// Opens a question and returns the op that shows it. One that is not opened counts as withdrawn.
    pub fn open(
        &mut self,
        request: PromptRequest,
        adapter: &RelayAdapter,
        now: Duration,
    ) -> Result<OpenedQuestion, NotOpened> {
        if self.open.iter().any(|open| open.question == request.id) {
            return Err(NotOpened::AlreadyOpen);
        }
        if self.open.len() >= self.settings.max_open {
            return Err(NotOpened::Full);
        }
        let direct = request.facts.chat_type.as_deref() == Some("dm");
        let author = request.author.filter(|id| !id.is_empty());
        let who = Responders::new(author, direct, self.settings.anyone_in_group)
            .ok_or(NotOpened::NobodyMayAnswer)?;
        let offers = offers(
            &request.options,
            request.kind,
            direct || self.settings.allow_always_in_groups,
        )?;
        let format = MessageFormat::new(adapter.descriptor());
        let wording = QuestionText::new(request.kind, &request.text, request.detail.as_deref());
        let labels: Vec<&str> = offers.iter().map(|offer| offer.label.as_str()).collect();
        let numbered = format.numbered(&wording, request.kind, &labels);
        let native = adapter.supports("prompt");
        let head = format.head(&wording).ok_or(NotOpened::NoRoom)?;
        let wait = self.settings.wait(request.timeout);
        let target = PromptTarget {
            session: request.session,
            chat: request.chat,
            facts: request.facts,
        };
        let id = self.next_id();
        let (op, shape) = if native {
            let op = target.prompt(&id, request.kind, &head, &offers, wait);
            let fallback = numbered.map(|text| Box::new(target.question(text)));
            (op, Presentation::Buttons { fallback })
        } else {
            (
                target.question(numbered.ok_or(NotOpened::NoRoom)?),
                Presentation::Numbered,
            )
        };
        self.open.push(OpenQuestion {
            id: id.clone(),
            question: request.id,
            kind: request.kind,
            target,
            who,
            offers,
            shape,
            showing: Visibility::Sending,
            format,
            head: adapter
                .descriptor()
                .is_some_and(|descriptor| descriptor.supports_edit)
                .then_some(head),
            deadline: now.saturating_add(wait),
            strangers_notified: false,
        });
        Ok(OpenedQuestion {
            prompt: id,
            op,
            native,
        })
    }

    /// The outcome of the op that shows a question.
    pub fn op_finished(&mut self, prompt: &PromptId, outcome: &Outcome) -> PromptStep {
        let Some(at) = self.find(prompt.as_str()) else {
            return self.finished_after_end(prompt, outcome);
        };
        let open = &mut self.open[at];
        match outcome {
            Outcome::Applied(result) => {
                let id = result.message_id.as_ref().map(Scalar::as_str);
                open.showing.set_shown(id.filter(|id| is_message_id(id)));
                PromptStep::Nothing
            }
            Outcome::Unknown => {
                open.showing.set_uncertain();
                PromptStep::Nothing
            }
            Outcome::Refused { declined, .. } => {
                let fallback = open.shape.take_fallback().filter(|_| !declined);
                open.showing = Visibility::Sending;
                fallback.map_or_else(|| PromptStep::Resolved(self.end_unshown(at)), PromptStep::Show)
            }
        }
    }

    /// The op that shows a question was not sent, and will not be.
    pub fn op_not_sent(&mut self, prompt: &PromptId) -> Option<Resolution> {
        self.find(prompt.as_str()).map(|at| self.end_unshown(at))
    }

    /// A button was pressed.
    pub fn press(&mut self, press: &ButtonPress, now: Duration) -> PressResult {
        if !press.prompt_id.starts_with(&self.nonce) {
            return PressResult::NotOurs;
        }
        let Some(at) = self.find(&press.prompt_id) else {
            return self.press_after_end(press);
        };
        let open = &mut self.open[at];
        if open.target.chat != press.chat {
            return PressResult::NotAllowed(None);
        }
        if !open.who.includes(&press.by) {
            let first = !std::mem::replace(&mut open.strangers_notified, true);
            return PressResult::NotAllowed(first.then(|| Box::new(open.notice(NOT_YOURS))));
        }
        open.showing
            .set_shown(press.message_id.as_deref().filter(|id| is_message_id(id)));
        if open.deadline <= now {
            let notice = Box::new(open.notice(TOO_LATE));
            let resolution = Some(self.end(at, Decision::TimedOut, None));
            if let Some(ended) = self.ended.back_mut() {
                ended.late_press_notified = true;
            }
            return PressResult::Expired {
                resolution,
                notice: Some(notice),
            };
        }
        let chosen = open.offers.iter().find(|offer| offer.id() == press.option_id);
        let decision = match (chosen, open.kind) {
            (Some(offer), _) => Decision::Chosen(offer.index),
            (None, QuestionKind::Approval) => open.denial(),
            (None, QuestionKind::Choice) => return PressResult::NoSuchOption,
        };
        PressResult::Resolved(self.end(at, decision, Some(&press.by)))
    }

    /// Matches a message of a session to a question; `None` when it is an ordinary message.
    ///
    /// A question that may not have been sent takes no answer: the message is about something else. Among several the
    /// newest question that fits is meant.
    pub fn match_text(
        &self,
        session: &SessionKey,
        by: &Person,
        text: &str,
        now: Duration,
    ) -> Option<TypedAnswer> {
        let typed = TypedText::parse(text)?;
        let open = self
            .open
            .iter()
            .rev()
            .find(|open| open.target.session == *session && open.accepts(typed, by, now))?;
        Some(TypedAnswer {
            prompt: open.id.clone(),
            decision: open.decision(typed)?,
        })
    }

    /// Takes an answer that [`Self::match_text`] found; `None` when its question has ended since.
    pub fn answer(&mut self, typed: &TypedAnswer, by: &Person, now: Duration) -> Option<Resolution> {
        let at = self.find(typed.prompt.as_str())?;
        let open = &self.open[at];
        (open.deadline > now && open.who.includes(by)).then(|| self.end(at, typed.decision, Some(by)))
    }

    /// Ends the questions whose time is up.
    pub fn expire(&mut self, now: Duration) -> Vec<Resolution> {
        self.end_where(Decision::TimedOut, |open| open.deadline <= now)
    }

    /// When [`Self::expire`] has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.open.iter().map(|open| open.deadline).min()
    }

    /// Withdraws a question.
    pub fn withdraw(&mut self, id: QuestionId) -> Option<Resolution> {
        let at = self.open.iter().position(|open| open.question == id)?;
        Some(self.end(at, Decision::Cancelled, None))
    }

    /// Number of open questions.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no question is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn find(&self, prompt: &str) -> Option<usize> {
        self.open.iter().position(|open| open.id.as_str() == prompt)
    }

    fn next_id(&mut self) -> PromptId {
        self.serial = self.serial.wrapping_add(STRIDE);
        PromptId(format!("{}{:08x}", self.nonce, self.serial))
    }

    fn finished_after_end(&mut self, prompt: &PromptId, outcome: &Outcome) -> PromptStep {
        let Some(ended) = self.ended.iter_mut().find(|ended| ended.id == *prompt) else {
            return PromptStep::Nothing;
        };
        let Some(content) = ended.pending_edit.take() else {
            return PromptStep::Nothing;
        };
        match outcome {
            Outcome::Applied(result) => result
                .message_id
                .as_ref()
                .map(Scalar::as_str)
                .filter(|id| is_message_id(id))
                .map_or(PromptStep::Nothing, |id| {
                    PromptStep::Edit(ended.target.edit(id, content))
                }),
            Outcome::Refused { .. } | Outcome::Unknown => PromptStep::Nothing,
        }
    }

    fn press_after_end(&mut self, press: &ButtonPress) -> PressResult {
        let late = self.ended.iter_mut().find(|ended| {
            ended.id.as_str() == press.prompt_id
                && ended.decision == Decision::TimedOut
                && ended.target.chat == press.chat
                && ended.who.includes(&press.by)
        });
        match late {
            Some(ended) if !ended.late_press_notified => {
                ended.late_press_notified = true;
                let notice = ended
                    .target
                    .notice(TOO_LATE, press.message_id.clone().filter(|id| is_message_id(id)));
                PressResult::Expired {
                    resolution: None,
                    notice: Some(Box::new(notice)),
                }
            }
            Some(_) | None => PressResult::Repeated,
        }
    }

    fn end_where(
        &mut self,
        decision: Decision,
        mut which: impl FnMut(&OpenQuestion) -> bool,
    ) -> Vec<Resolution> {
        let mut closed = Vec::new();
        while let Some(at) = self.open.iter().position(&mut which) {
            closed.push(self.end(at, decision, None));
        }
        closed
    }

    /// Ends a question that nobody can have seen.
    fn end_unshown(&mut self, at: usize) -> Resolution {
        self.open[at].head = None;
        self.end(at, Decision::Cancelled, None)
    }

    /// Ends a question; the one place where that happens.
    fn end(&mut self, at: usize, decision: Decision, by: Option<&Person>) -> Resolution {
        let open = self.open.remove(at);
        let content = open.head.as_ref().map(|head| {
            let line = render::decision_line(open.kind, decision, open.chosen(decision), by);
            open.format.decided(head, &line)
        });
        let (edit, pending_edit) = match (open.showing, content) {
            (Visibility::Shown(Some(id)), Some(content)) => {
                (Some(Box::new(open.target.edit(&id, content))), None)
            }
            (Visibility::Sending | Visibility::Shown(None), content) => (None, content),
            (Visibility::Shown(Some(_)) | Visibility::Uncertain, _) => (None, None),
        };
        self.ended.push_back(EndedQuestion {
            id: open.id,
            target: open.target,
            who: open.who,
            decision,
            late_press_notified: false,
            pending_edit,
        });
        while self.ended.len() > self.settings.remembered {
            self.ended.pop_front();
        }
        Resolution {
            id: open.question,
            decision,
            edit,
        }
    }
}

fn is_message_id(id: &str) -> bool {
    (1..=MAX_MESSAGE_ID).contains(&id.len())
}

/// The options to offer; an approval needs one that allows.
fn offers(
    options: &[PromptOption],
    kind: QuestionKind,
    always: bool,
) -> Result<Vec<OfferedOption>, NotOpened> {
    if options.len() > MAX_OPTIONS {
        return Err(NotOpened::TooManyOptions);
    }
    let offers: Vec<OfferedOption> = options
        .iter()
        .enumerate()
        .filter(|(_, option)| always || option.meaning != Meaning::AllowAlways)
        .map(|(index, option)| OfferedOption {
            index,
            label: render::label(option, index),
            meaning: option.meaning,
        })
        .collect();
    let is_answerable = match kind {
        QuestionKind::Approval => offers.iter().any(|offer| offer.meaning.allows()),
        QuestionKind::Choice => !offers.is_empty(),
    };
    is_answerable.then_some(offers).ok_or(NotOpened::NothingToChoose)
}
