//! One question while it is open, and what is kept of it afterwards.

use std::time::Duration;

use super::answer::Words;
use super::ask::{Decision, Meaning, Person, PromptId, PromptOp, QuestionId, QuestionKind};
use super::render::{self, Paper};
use crate::adapter::chats::{ChatFacts, ChatId};
use crate::wire::{self, Action, SessionKey};

/// A question that waits.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: PromptId,
    pub(super) question: QuestionId,
    pub(super) kind: QuestionKind,
    pub(super) place: PromptTarget,
    pub(super) who: Who,
    pub(super) offers: Vec<Offer>,
    pub(super) shape: Shape,
    pub(super) showing: Showing,
    pub(super) paper: Paper,
    /// The question as its end is written under it; nothing where messages cannot be edited.
    pub(super) head: Option<String>,
    pub(super) deadline: Duration,
    /// Whether somebody who may not answer has been told so.
    pub(super) strangers_told: bool,
}

/// A question that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) id: PromptId,
    pub(super) place: PromptTarget,
    pub(super) who: Who,
    pub(super) decision: Decision,
    /// Whether a late press has been told so.
    pub(super) late_told: bool,
    /// What its message is to say once it is known which message that is.
    pub(super) unsaid: Option<String>,
}

/// Where a question is asked.
#[derive(Clone, Debug)]
pub(super) struct PromptTarget {
    pub(super) session: SessionKey,
    pub(super) chat: ChatId,
    pub(super) facts: ChatFacts,
}

/// An option that is offered.
#[derive(Debug)]
pub(super) struct Offer {
    /// Its place among the asker's options.
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) meaning: Meaning,
}

/// How a question looks.
#[derive(Debug)]
pub(super) enum Shape {
    /// With buttons, and with another way to show it where they are refused.
    Buttons { fallback: Option<Box<PromptOp>> },
    /// As a list.
    Numbered,
}

/// What is known of the message that shows a question.
#[derive(Debug)]
pub(super) enum Showing {
    /// It is on its way.
    Sending,
    /// It is there, with this id when the connector told it.
    Shown(Option<String>),
    /// It may be there.
    Uncertain,
}

/// Who may answer.
#[derive(Debug)]
pub(super) enum Who {
    /// Anyone in the chat.
    Anyone,
    /// This person.
    Only(String),
    /// This person, in a direct message: somebody without an id can be nobody else.
    Counterpart(String),
}

impl Who {
    /// Who may answer in a chat; `None` when nobody may.
    pub(super) fn of(author: Option<String>, direct: bool, anyone_in_group: bool) -> Option<Self> {
        match (author, direct) {
            (Some(author), true) => Some(Self::Counterpart(author)),
            (None, true) => Some(Self::Anyone),
            (_, false) if anyone_in_group => Some(Self::Anyone),
            (author, false) => author.map(Self::Only),
        }
    }

    pub(super) fn includes(&self, person: &Person) -> bool {
        match (self, person.id.as_deref()) {
            (Self::Anyone, _) | (Self::Counterpart(_), None) => true,
            (Self::Only(author) | Self::Counterpart(author), Some(id)) => author == id,
            (Self::Only(_), None) => false,
        }
    }
}

impl Shape {
    /// The other way to show it, once.
    pub(super) fn take_fallback(&mut self) -> Option<PromptOp> {
        match std::mem::replace(self, Self::Numbered) {
            Self::Buttons { fallback } => fallback.map(|op| *op),
            Self::Numbered => None,
        }
    }
}

impl Showing {
    /// It is there, perhaps in this message. An id that was known stays.
    pub(super) fn appear(&mut self, message_id: Option<&str>) {
        if !matches!(self, Self::Shown(Some(_))) {
            *self = Self::Shown(message_id.map(str::to_owned));
        }
    }

    /// It may be there; whoever has seen it knows better.
    pub(super) fn doubt(&mut self) {
        if matches!(self, Self::Sending) {
            *self = Self::Uncertain;
        }
    }
}

impl Offer {
    /// Its name on the wire. Fits a button's token whatever the asker calls it.
    pub(super) fn id(&self) -> String {
        format!("o{}", self.index)
    }
}

impl Open {
    /// Whether words of this person are meant for it.
    pub(super) fn takes(&self, words: Words, by: &Person, now: Duration) -> bool {
        let seen = match (&self.showing, words) {
            (Showing::Sending, _) => false,
            // A bare number that met nothing must not allow anything.
            (Showing::Uncertain, Words::Number(_)) => self.kind == QuestionKind::Choice,
            (Showing::Shown(_) | Showing::Uncertain, _) => true,
        };
        let fits = match words {
            Words::Approve(_) => self.kind == QuestionKind::Approval,
            Words::Deny => true,
            Words::Number(_) => matches!(self.shape, Shape::Numbered),
        };
        seen && fits && self.deadline > now && self.who.includes(by)
    }

    /// What the words decide; `None` when there is no such answer.
    pub(super) fn decision(&self, words: Words) -> Option<Decision> {
        let chosen = |offer: &Offer| Decision::Chosen(offer.index);
        match words {
            Words::Deny => Some(self.denial()),
            Words::Number(number) => self.offers.get(number.checked_sub(1)?).map(chosen),
            Words::Approve(meaning) => {
                let mut allowing = self.offers.iter().filter(|offer| offer.meaning.allows());
                let only = allowing.next().filter(|_| allowing.next().is_none());
                let plain = only.filter(|_| meaning == Meaning::AllowOnce);
                self.meaning(meaning).or(plain).map(chosen)
            }
        }
    }

    /// What no means here.
    pub(super) fn denial(&self) -> Decision {
        self.meaning(Meaning::Deny)
            .map_or(Decision::Cancelled, |offer| Decision::Chosen(offer.index))
    }

    /// What the option that was decided for is called, and what it means.
    pub(super) fn chosen(&self, decision: Decision) -> Option<(&str, Meaning)> {
        let Decision::Chosen(index) = decision else {
            return None;
        };
        let offer = self.offers.iter().find(|offer| offer.index == index)?;
        Some((&offer.label, offer.meaning))
    }

    /// A short word beside it.
    pub(super) fn notice(&self, said: &str) -> PromptOp {
        let beside = match &self.showing {
            Showing::Shown(id) => id.clone(),
            Showing::Sending | Showing::Uncertain => None,
        };
        self.place.notice(said, beside)
    }

    fn meaning(&self, meaning: Meaning) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.meaning == meaning)
    }
}

impl PromptTarget {
    pub(super) fn prompt(
        &self,
        id: &PromptId,
        kind: QuestionKind,
        content: &str,
        offers: &[Offer],
        wait: Duration,
    ) -> PromptOp {
        let option = |offer: &Offer| wire::PromptOption {
            id: offer.id(),
            label: offer.label.clone(),
            style: render::style(offer.meaning).map(str::to_owned),
        };
        self.op(Action::Prompt {
            chat_id: self.chat.chat.clone(),
            content: content.to_owned(),
            prompt_kind: match kind {
                QuestionKind::Approval => "approval".to_owned(),
                QuestionKind::Choice => "clarify".to_owned(),
            },
            prompt_id: id.as_str().to_owned(),
            options: offers.iter().map(option).collect(),
            reply_to: self.facts.message_id.clone(),
            metadata: self.facts.tags(),
            timeout_s: Some(wait.as_secs().max(1)),
        })
    }

    /// The question as a message. It is not marked as a reply that ends the turn.
    pub(super) fn question(&self, content: String) -> PromptOp {
        self.send(content, self.facts.message_id.clone())
    }

    pub(super) fn notice(&self, said: &str, beside: Option<String>) -> PromptOp {
        self.send(said.to_owned(), beside)
    }

    pub(super) fn edit(&self, message_id: &str, content: String) -> PromptOp {
        self.op(Action::Edit {
            chat_id: self.chat.chat.clone(),
            message_id: message_id.to_owned(),
            content,
            metadata: self.facts.tags(),
        })
    }

    fn send(&self, content: String, reply_to: Option<String>) -> PromptOp {
        self.op(Action::Send {
            chat_id: self.chat.chat.clone(),
            content,
            reply_to,
            metadata: self.facts.tags(),
        })
    }

    fn op(&self, action: Action) -> PromptOp {
        PromptOp {
            session: self.session.clone(),
            chat: self.chat.clone(),
            action,
        }
    }
}
