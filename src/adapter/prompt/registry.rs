//! The open questions, and the ends of those that were.
//!
//! A question leaves the list in one place only, and that place makes its [`Resolution`]: nothing is resolved twice.

use std::collections::VecDeque;
use std::time::Duration;

use super::answer::{TypedAnswer, Words};
use super::ask::{
    ButtonPress, Decision, Meaning, NotOpened, Opened, Person, PressResult, PromptId, PromptRequest,
    PromptStep, QuestionId, QuestionKind, Resolution,
};
use super::open::{Ended, Offer, Open, PromptTarget, Shape, Showing, Who};
use super::render::{self, Paper, Wording};
use super::settings::PromptSettings;
use crate::adapter::RelayAdapter;
use crate::wire::{Outcome, Scalar, SessionKey};

/// The most answers that are offered.
const MOST_OPTIONS: usize = 32;
/// Longest message id that is kept.
const LONGEST_MESSAGE_ID: usize = 256;
/// From one question's number to the next: odd, so that none comes twice in 2³².
const STRIDE: u32 = 0x9e37_79b9;
/// What a late press is told.
const TOO_LATE: &str = "That question is no longer open.";
/// What a stranger's press is told.
const NOT_YOURS: &str = "Only the person whose message is being answered can decide this.";

/// The questions that wait for people, oldest first.
#[derive(Debug)]
pub struct Prompts {
    settings: PromptSettings,
    nonce: String,
    serial: u32,
    open: Vec<Open>,
    ended: VecDeque<Ended>,
}

impl Prompts {
    /// No questions yet. The nonce tells this process's questions from those of its siblings and predecessors; the
    /// seed is where numbering begins.
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

    /// Takes a question in, and says how it is shown. One that is not opened is void.
    pub fn open(
        &mut self,
        request: PromptRequest,
        adapter: &RelayAdapter,
        now: Duration,
    ) -> Result<Opened, NotOpened> {
        if self.open.iter().any(|open| open.question == request.id) {
            return Err(NotOpened::AlreadyOpen);
        }
        if self.open.len() >= self.settings.max_open {
            return Err(NotOpened::Full);
        }
        let direct = request.facts.chat_type.as_deref() == Some("dm");
        let author = request.author.filter(|id| !id.is_empty());
        let who = Who::of(author, direct, self.settings.anyone_in_group).ok_or(NotOpened::NobodyMayAnswer)?;
        let offers = offers(
            &request.options,
            request.kind,
            direct || self.settings.allow_always_in_groups,
        )?;
        let paper = Paper::of(adapter.descriptor());
        let wording = Wording::new(request.kind, &request.text, request.detail.as_deref());
        let labels: Vec<&str> = offers.iter().map(|offer| offer.label.as_str()).collect();
        let numbered = paper.numbered(&wording, request.kind, &labels);
        let native = adapter.supports("prompt");
        let head = paper.head(&wording).ok_or(NotOpened::NoRoom)?;
        let wait = self.settings.wait(request.timeout);
        let place = PromptTarget {
            session: request.session,
            chat: request.chat,
            facts: request.facts,
        };
        let id = self.next_id();
        let (op, shape) = if native {
            let op = place.prompt(&id, request.kind, &head, &offers, wait);
            let fallback = numbered.map(|text| Box::new(place.question(text)));
            (op, Shape::Buttons { fallback })
        } else {
            (
                place.question(numbered.ok_or(NotOpened::NoRoom)?),
                Shape::Numbered,
            )
        };
        self.open.push(Open {
            id: id.clone(),
            question: request.id,
            kind: request.kind,
            place,
            who,
            offers,
            shape,
            showing: Showing::Sending,
            paper,
            head: adapter
                .descriptor()
                .is_some_and(|descriptor| descriptor.supports_edit)
                .then_some(head),
            deadline: now.saturating_add(wait),
            strangers_told: false,
        });
        Ok(Opened {
            prompt: id,
            op,
            native,
        })
    }

    /// Tells what became of the op that shows a question.
    pub fn op_finished(&mut self, prompt: &PromptId, outcome: &Outcome) -> PromptStep {
        let Some(at) = self.find(prompt.as_str()) else {
            return self.finished_late(prompt, outcome);
        };
        let open = &mut self.open[at];
        match outcome {
            Outcome::Applied(result) => {
                let id = result.message_id.as_ref().map(Scalar::as_str);
                open.showing.appear(id.filter(|id| is_message_id(id)));
                PromptStep::Nothing
            }
            Outcome::Unknown => {
                open.showing.doubt();
                PromptStep::Nothing
            }
            Outcome::Refused { declined, .. } => {
                let fallback = open.shape.take_fallback().filter(|_| !declined);
                open.showing = Showing::Sending;
                fallback.map_or_else(|| PromptStep::Resolved(self.unshown(at)), PromptStep::Show)
            }
        }
    }

    /// The op that shows a question never went out, and will not.
    pub fn op_not_sent(&mut self, prompt: &PromptId) -> Option<Resolution> {
        self.find(prompt.as_str()).map(|at| self.unshown(at))
    }

    /// Somebody pressed a button.
    pub fn press(&mut self, press: &ButtonPress, now: Duration) -> PressResult {
        if !press.prompt_id.starts_with(&self.nonce) {
            return PressResult::NotOurs;
        }
        let Some(at) = self.find(&press.prompt_id) else {
            return self.press_again(press);
        };
        let open = &mut self.open[at];
        if open.place.chat != press.chat {
            return PressResult::NotAllowed(None);
        }
        if !open.who.includes(&press.by) {
            let first = !std::mem::replace(&mut open.strangers_told, true);
            return PressResult::NotAllowed(first.then(|| Box::new(open.notice(NOT_YOURS))));
        }
        open.showing
            .appear(press.message_id.as_deref().filter(|id| is_message_id(id)));
        if open.deadline <= now {
            let notice = Box::new(open.notice(TOO_LATE));
            let resolution = Some(self.close(at, Decision::TimedOut, None));
            if let Some(ended) = self.ended.back_mut() {
                ended.late_told = true;
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
        PressResult::Resolved(self.close(at, decision, Some(&press.by)))
    }

    /// What a message of a session would answer, if it is an answer; otherwise it is an ordinary message.
    ///
    /// A question that is not known to have been sent takes none: what people write then is about something else.
    /// The newest question that the words fit is the one that is meant.
    pub fn match_text(
        &self,
        session: &SessionKey,
        by: &Person,
        text: &str,
        now: Duration,
    ) -> Option<TypedAnswer> {
        let words = Words::read(text)?;
        let open = self
            .open
            .iter()
            .rev()
            .find(|open| open.place.session == *session && open.takes(words, by, now))?;
        Some(TypedAnswer {
            prompt: open.id.clone(),
            decision: open.decision(words)?,
        })
    }

    /// Takes an answer that was found before; `None` when its question has ended since.
    pub fn answer(&mut self, typed: &TypedAnswer, by: &Person, now: Duration) -> Option<Resolution> {
        let at = self.find(typed.prompt.as_str())?;
        let open = &self.open[at];
        (open.deadline > now && open.who.includes(by)).then(|| self.close(at, typed.decision, Some(by)))
    }

    /// Ends the questions whose time is over.
    pub fn expire(&mut self, now: Duration) -> Vec<Resolution> {
        self.close_where(Decision::TimedOut, |open| open.deadline <= now)
    }

    /// When [`Self::expire`] has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.open.iter().map(|open| open.deadline).min()
    }

    /// The asker does not ask any more.
    pub fn withdraw(&mut self, id: QuestionId) -> Option<Resolution> {
        let at = self.open.iter().position(|open| open.question == id)?;
        Some(self.close(at, Decision::Cancelled, None))
    }

    /// Questions that are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether nothing is asked.
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

    fn finished_late(&mut self, prompt: &PromptId, outcome: &Outcome) -> PromptStep {
        let Some(ended) = self.ended.iter_mut().find(|ended| ended.id == *prompt) else {
            return PromptStep::Nothing;
        };
        let Some(content) = ended.unsaid.take() else {
            return PromptStep::Nothing;
        };
        match outcome {
            Outcome::Applied(result) => result
                .message_id
                .as_ref()
                .map(Scalar::as_str)
                .filter(|id| is_message_id(id))
                .map_or(PromptStep::Nothing, |id| {
                    PromptStep::Edit(ended.place.edit(id, content))
                }),
            Outcome::Refused { .. } | Outcome::Unknown => PromptStep::Nothing,
        }
    }

    fn press_again(&mut self, press: &ButtonPress) -> PressResult {
        let late = self.ended.iter_mut().find(|ended| {
            ended.id.as_str() == press.prompt_id
                && ended.decision == Decision::TimedOut
                && ended.place.chat == press.chat
                && ended.who.includes(&press.by)
        });
        match late {
            Some(ended) if !ended.late_told => {
                ended.late_told = true;
                let notice = ended
                    .place
                    .notice(TOO_LATE, press.message_id.clone().filter(|id| is_message_id(id)));
                PressResult::Expired {
                    resolution: None,
                    notice: Some(Box::new(notice)),
                }
            }
            Some(_) | None => PressResult::Repeated,
        }
    }

    fn close_where(&mut self, decision: Decision, mut which: impl FnMut(&Open) -> bool) -> Vec<Resolution> {
        let mut closed = Vec::new();
        while let Some(at) = self.open.iter().position(&mut which) {
            closed.push(self.close(at, decision, None));
        }
        closed
    }

    /// Ends a question that nobody can have seen.
    fn unshown(&mut self, at: usize) -> Resolution {
        self.open[at].head = None;
        self.close(at, Decision::Cancelled, None)
    }

    /// The one place where a question ends.
    fn close(&mut self, at: usize, decision: Decision, by: Option<&Person>) -> Resolution {
        let open = self.open.remove(at);
        let content = open.head.as_ref().map(|head| {
            let ending = render::ending(open.kind, decision, open.chosen(decision), by);
            open.paper.ended(head, &ending)
        });
        let (edit, unsaid) = match (open.showing, content) {
            (Showing::Shown(Some(id)), Some(content)) => {
                (Some(Box::new(open.place.edit(&id, content))), None)
            }
            (Showing::Sending | Showing::Shown(None), content) => (None, content),
            (Showing::Shown(Some(_)) | Showing::Uncertain, _) => (None, None),
        };
        self.ended.push_back(Ended {
            id: open.id,
            place: open.place,
            who: open.who,
            decision,
            late_told: false,
            unsaid,
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
    (1..=LONGEST_MESSAGE_ID).contains(&id.len())
}

/// The options that are offered here; an approval needs one that allows.
fn offers(
    options: &[super::PromptOption],
    kind: QuestionKind,
    always: bool,
) -> Result<Vec<Offer>, NotOpened> {
    if options.len() > MOST_OPTIONS {
        return Err(NotOpened::TooManyOptions);
    }
    let offers: Vec<Offer> = options
        .iter()
        .enumerate()
        .filter(|(_, option)| always || option.meaning != Meaning::AllowAlways)
        .map(|(index, option)| Offer {
            index,
            label: render::label(option, index),
            meaning: option.meaning,
        })
        .collect();
    let sensible = match kind {
        QuestionKind::Approval => offers.iter().any(|offer| offer.meaning.allows()),
        QuestionKind::Choice => !offers.is_empty(),
    };
    sensible.then_some(offers).ok_or(NotOpened::NothingToChoose)
}
