//! The open questions, and the ends of those that were.
//!
//! A question leaves the list in one place only, and that place makes its [`Resolution`]: nothing is resolved twice.

use std::collections::VecDeque;
use std::time::Duration;

use super::answer::{Typed, Words};
use super::ask::{
    Ask, AskId, Meaning, NotOpened, Opened, Person, Press, Pressed, PromptId, QuestionKind, Resolution, Then,
    Verdict,
};
use super::open::{Ended, Offer, Open, Place, Shape, Showing, Who};
use super::render::{self, Paper, Wording};
use super::settings::PromptSettings;
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
    pub fn open(&mut self, ask: Ask<'_>, now: Duration) -> Result<Opened, NotOpened> {
        if self.open.iter().any(|open| open.key == ask.key) {
            return Err(NotOpened::AlreadyOpen);
        }
        if self.open.len() >= self.settings.max_open {
            return Err(NotOpened::Full);
        }
        let direct = ask.facts.chat_type.as_deref() == Some("dm");
        let author = ask.author.filter(|id| !id.is_empty());
        let who = Who::of(author, direct, self.settings.anyone_in_group).ok_or(NotOpened::NobodyMayAnswer)?;
        let offers = offers(
            &ask.options,
            ask.kind,
            direct || self.settings.allow_always_in_groups,
        )?;
        let paper = Paper::of(ask.descriptor);
        let wording = Wording::new(ask.kind, &ask.text, ask.detail.as_deref());
        let labels: Vec<&str> = offers.iter().map(|offer| offer.label.as_str()).collect();
        let numbered = paper.numbered(&wording, ask.kind, &labels);
        let native = ask
            .descriptor
            .is_some_and(|descriptor| descriptor.supports_op("prompt"));
        let head = paper.head(&wording).ok_or(NotOpened::NoRoom)?;
        let wait = self.settings.wait(ask.patience);
        let place = Place {
            session: ask.session,
            chat: ask.chat,
            facts: ask.facts,
        };
        let id = self.next_id();
        let (op, shape) = if native {
            let op = place.prompt(&id, ask.kind, &head, &offers, wait);
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
            key: ask.key,
            kind: ask.kind,
            place,
            who,
            offers,
            shape,
            showing: Showing::Sending,
            paper,
            head: ask
                .descriptor
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
    pub fn settled(&mut self, prompt: &PromptId, outcome: &Outcome) -> Then {
        let Some(at) = self.find(prompt.as_str()) else {
            return self.settled_late(prompt, outcome);
        };
        let open = &mut self.open[at];
        match outcome {
            Outcome::Applied(result) => {
                let id = result.message_id.as_ref().map(Scalar::as_str);
                open.showing.appear(id.filter(|id| is_message_id(id)));
                Then::Nothing
            }
            Outcome::Unknown => {
                open.showing.doubt();
                Then::Nothing
            }
            Outcome::Refused { declined, .. } => {
                let fallback = open.shape.take_fallback().filter(|_| !declined);
                open.showing = Showing::Sending;
                fallback.map_or_else(|| Then::Resolved(self.unshown(at)), Then::Show)
            }
        }
    }

    /// The op that shows a question never went out, and will not.
    pub fn unsent(&mut self, prompt: &PromptId) -> Option<Resolution> {
        self.find(prompt.as_str()).map(|at| self.unshown(at))
    }

    /// Somebody pressed a button.
    pub fn press(&mut self, press: &Press, now: Duration) -> Pressed {
        if !press.prompt_id.starts_with(&self.nonce) {
            return Pressed::NotOurs;
        }
        let Some(at) = self.find(&press.prompt_id) else {
            return self.press_again(press);
        };
        let open = &mut self.open[at];
        if open.place.chat != press.chat {
            return Pressed::NotAllowed(None);
        }
        if !open.who.includes(&press.by) {
            let first = !std::mem::replace(&mut open.strangers_told, true);
            return Pressed::NotAllowed(first.then(|| Box::new(open.notice(NOT_YOURS))));
        }
        open.showing
            .appear(press.message_id.as_deref().filter(|id| is_message_id(id)));
        if open.deadline <= now {
            let notice = Box::new(open.notice(TOO_LATE));
            let resolution = Some(self.close(at, Verdict::TimedOut, None));
            if let Some(ended) = self.ended.back_mut() {
                ended.late_told = true;
            }
            return Pressed::Expired {
                resolution,
                notice: Some(notice),
            };
        }
        let chosen = open.offers.iter().find(|offer| offer.id() == press.option_id);
        let verdict = match (chosen, open.kind) {
            (Some(offer), _) => Verdict::Chosen(offer.index),
            (None, QuestionKind::Approval) => open.denial(),
            (None, QuestionKind::Choice) => return Pressed::NoSuchOption,
        };
        Pressed::Resolved(self.close(at, verdict, Some(&press.by)))
    }

    /// What a message of a session would answer, if it is an answer; otherwise it is an ordinary message.
    ///
    /// A question that is not known to have been sent takes none: what people write then is about something else.
    /// The newest question that the words fit is the one that is meant.
    pub fn typed(&self, session: &SessionKey, by: &Person, text: &str, now: Duration) -> Option<Typed> {
        let words = Words::read(text)?;
        let open = self
            .open
            .iter()
            .rev()
            .find(|open| open.place.session == *session && open.takes(words, by, now))?;
        Some(Typed {
            prompt: open.id.clone(),
            verdict: open.verdict(words)?,
        })
    }

    /// Takes an answer that was found before; `None` when its question has ended since.
    pub fn answer(&mut self, typed: &Typed, by: &Person, now: Duration) -> Option<Resolution> {
        let at = self.find(typed.prompt.as_str())?;
        let open = &self.open[at];
        (open.deadline > now && open.who.includes(by)).then(|| self.close(at, typed.verdict, Some(by)))
    }

    /// [`Self::typed`] and [`Self::answer`] at once.
    pub fn text_answer(
        &mut self,
        session: &SessionKey,
        by: &Person,
        text: &str,
        now: Duration,
    ) -> Option<Resolution> {
        let typed = self.typed(session, by, text, now)?;
        self.answer(&typed, by, now)
    }

    /// Ends the questions whose time is over.
    pub fn expire(&mut self, now: Duration) -> Vec<Resolution> {
        self.close_where(Verdict::TimedOut, |open| open.deadline <= now)
    }

    /// When [`Self::expire`] has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.open.iter().map(|open| open.deadline).min()
    }

    /// The asker does not ask any more.
    pub fn withdraw(&mut self, key: AskId) -> Option<Resolution> {
        let at = self.open.iter().position(|open| open.key == key)?;
        Some(self.close(at, Verdict::Cancelled, None))
    }

    /// The session's turn was stopped: none of its questions is asked any more.
    pub fn withdraw_session(&mut self, session: &SessionKey) -> Vec<Resolution> {
        self.close_where(Verdict::Cancelled, |open| open.place.session == *session)
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

    fn settled_late(&mut self, prompt: &PromptId, outcome: &Outcome) -> Then {
        let Some(ended) = self.ended.iter_mut().find(|ended| ended.id == *prompt) else {
            return Then::Nothing;
        };
        let Some(content) = ended.unsaid.take() else {
            return Then::Nothing;
        };
        match outcome {
            Outcome::Applied(result) => result
                .message_id
                .as_ref()
                .map(Scalar::as_str)
                .filter(|id| is_message_id(id))
                .map_or(Then::Nothing, |id| Then::Edit(ended.place.edit(id, content))),
            Outcome::Refused { .. } | Outcome::Unknown => Then::Nothing,
        }
    }

    fn press_again(&mut self, press: &Press) -> Pressed {
        let late = self.ended.iter_mut().find(|ended| {
            ended.id.as_str() == press.prompt_id
                && ended.verdict == Verdict::TimedOut
                && ended.place.chat == press.chat
                && ended.who.includes(&press.by)
        });
        match late {
            Some(ended) if !ended.late_told => {
                ended.late_told = true;
                let notice = ended
                    .place
                    .notice(TOO_LATE, press.message_id.clone().filter(|id| is_message_id(id)));
                Pressed::Expired {
                    resolution: None,
                    notice: Some(Box::new(notice)),
                }
            }
            Some(_) | None => Pressed::Repeated,
        }
    }

    fn close_where(&mut self, verdict: Verdict, mut which: impl FnMut(&Open) -> bool) -> Vec<Resolution> {
        let mut closed = Vec::new();
        while let Some(at) = self.open.iter().position(&mut which) {
            closed.push(self.close(at, verdict, None));
        }
        closed
    }

    /// Ends a question that nobody can have seen.
    fn unshown(&mut self, at: usize) -> Resolution {
        self.open[at].head = None;
        self.close(at, Verdict::Cancelled, None)
    }

    /// The one place where a question ends.
    fn close(&mut self, at: usize, verdict: Verdict, by: Option<&Person>) -> Resolution {
        let open = self.open.remove(at);
        let content = open.head.as_ref().map(|head| {
            let ending = render::ending(open.kind, verdict, open.chosen(verdict), by);
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
            verdict,
            late_told: false,
            unsaid,
        });
        while self.ended.len() > self.settings.remembered {
            self.ended.pop_front();
        }
        Resolution {
            key: open.key,
            verdict,
            edit,
        }
    }
}

fn is_message_id(id: &str) -> bool {
    (1..=LONGEST_MESSAGE_ID).contains(&id.len())
}

/// The options that are offered here; an approval needs one that allows.
fn offers(options: &[super::AskOption], kind: QuestionKind, always: bool) -> Result<Vec<Offer>, NotOpened> {
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
