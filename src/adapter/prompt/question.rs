//! One question: who may answer it and how, and what is kept of it after its end.

use std::time::Duration;

use super::render::{self, MessageFormat};
use super::types::{Decision, Meaning, Person, PromptId, PromptOp, QuestionId, QuestionKind};
use crate::adapter::chats::{ChatFacts, ChatId};
use crate::wire::{Action, PromptButton, SessionKey};

/// A question that is open.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) id: PromptId,
    pub(super) question: QuestionId,
    pub(super) kind: QuestionKind,
    pub(super) target: PromptTarget,
    pub(super) who: Responders,
    pub(super) offers: Vec<OfferedOption>,
    pub(super) shape: Presentation,
    pub(super) showing: Visibility,
    pub(super) format: MessageFormat,
    /// The question as it is kept when the decision is written under it; `None` where messages cannot be edited.
    pub(super) head: Option<String>,
    pub(super) deadline: Duration,
    /// Whether somebody who may not answer was notified.
    pub(super) strangers_notified: bool,
}

/// A question that has ended.
#[derive(Debug)]
pub(super) struct EndedQuestion {
    pub(super) id: PromptId,
    pub(super) target: PromptTarget,
    pub(super) who: Responders,
    pub(super) decision: Decision,
    /// Whether a late press was notified.
    pub(super) late_press_notified: bool,
    /// The text to edit into its message once the message's id is known.
    pub(super) pending_edit: Option<String>,
}

/// The chat and session of a question.
#[derive(Clone, Debug)]
pub(super) struct PromptTarget {
    pub(super) session: SessionKey,
    pub(super) chat: ChatId,
    pub(super) facts: ChatFacts,
}

/// An option that is offered.
#[derive(Debug)]
pub(super) struct OfferedOption {
    /// Its index in the request's options.
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) meaning: Meaning,
}

/// How a question is shown.
#[derive(Debug)]
pub(super) enum Presentation {
    /// With buttons; the fallback is for platforms that refuse them.
    Buttons { fallback: Option<Box<PromptOp>> },
    /// As a numbered list.
    Numbered,
}

/// Whether a question is visible.
#[derive(Debug)]
pub(super) enum Visibility {
    /// Its op is in flight.
    Sending,
    /// It is, in this message if known.
    Shown(Option<String>),
    /// It may be: the outcome of its op is unknown.
    Uncertain,
}

/// Who may answer.
#[derive(Debug)]
pub(super) enum Responders {
    /// Anyone in the chat.
    Anyone,
    /// This person.
    Only(String),
    /// This person, in a direct message: somebody without an id can be nobody else.
    DirectPeer(String),
}

impl Responders {
    /// Who may answer in a chat; `None` when nobody may.
    pub(super) fn new(author: Option<String>, direct: bool, anyone_in_group: bool) -> Option<Self> {
        match (author, direct) {
            (Some(author), true) => Some(Self::DirectPeer(author)),
            (None, true) => Some(Self::Anyone),
            (_, false) if anyone_in_group => Some(Self::Anyone),
            (author, false) => author.map(Self::Only),
        }
    }

    pub(super) fn includes(&self, person: &Person) -> bool {
        match (self, person.id.as_deref()) {
            (Self::Anyone, _) | (Self::DirectPeer(_), None) => true,
            (Self::Only(author) | Self::DirectPeer(author), Some(id)) => author == id,
            (Self::Only(_), None) => false,
        }
    }
}

impl Presentation {
    /// The fallback, once.
    pub(super) fn take_fallback(&mut self) -> Option<PromptOp> {
        match std::mem::replace(self, Self::Numbered) {
            Self::Buttons { fallback } => fallback.map(|op| *op),
            Self::Numbered => None,
        }
    }
}

impl Visibility {
    /// It is visible, in this message if known. A known id stays.
    pub(super) fn set_shown(&mut self, message_id: Option<&str>) {
        if !matches!(self, Self::Shown(Some(_))) {
            *self = Self::Shown(message_id.map(str::to_owned));
        }
    }

    /// The outcome of its op is unknown.
    pub(super) fn set_uncertain(&mut self) {
        if matches!(self, Self::Sending) {
            *self = Self::Uncertain;
        }
    }
}

impl OfferedOption {
    /// Its id on the wire; short enough for a button's token.
    pub(super) fn id(&self) -> String {
        format!("o{}", self.index)
    }
}

impl OpenQuestion {
    /// Whether a typed answer of this person is meant for it.
    pub(super) fn accepts(&self, typed: TypedText, by: &Person, now: Duration) -> bool {
        let seen = match (&self.showing, typed) {
            (Visibility::Sending, _) => false,
            // A bare number must not approve a question that nobody may have seen.
            (Visibility::Uncertain, TypedText::Number(_)) => self.kind == QuestionKind::Choice,
            (Visibility::Shown(_) | Visibility::Uncertain, _) => true,
        };
        let fits = match typed {
            TypedText::Approve(_) => self.kind == QuestionKind::Approval,
            TypedText::Deny => true,
            TypedText::Number(_) => matches!(self.shape, Presentation::Numbered),
        };
        seen && fits && self.deadline > now && self.who.includes(by)
    }

    /// The decision of a typed answer; `None` when there is no such option.
    pub(super) fn decision(&self, typed: TypedText) -> Option<Decision> {
        let chosen = |offer: &OfferedOption| Decision::Chosen(offer.index);
        match typed {
            TypedText::Deny => Some(self.denial()),
            TypedText::Number(number) => self.offers.get(number.checked_sub(1)?).map(chosen),
            TypedText::Approve(meaning) => {
                let mut allowing = self.offers.iter().filter(|offer| offer.meaning.allows());
                let only = allowing.next().filter(|_| allowing.next().is_none());
                let plain = only.filter(|_| meaning == Meaning::AllowOnce);
                self.meaning(meaning).or(plain).map(chosen)
            }
        }
    }

    /// The decision that denies.
    pub(super) fn denial(&self) -> Decision {
        self.meaning(Meaning::Deny)
            .map_or(Decision::Cancelled, |offer| Decision::Chosen(offer.index))
    }

    /// Label and meaning of the chosen option.
    pub(super) fn chosen(&self, decision: Decision) -> Option<(&str, Meaning)> {
        let Decision::Chosen(index) = decision else {
            return None;
        };
        let offer = self.offers.iter().find(|offer| offer.index == index)?;
        Some((&offer.label, offer.meaning))
    }

    /// A notice that replies to the question.
    pub(super) fn notice(&self, text: &str) -> PromptOp {
        let reply_to = match &self.showing {
            Visibility::Shown(id) => id.clone(),
            Visibility::Sending | Visibility::Uncertain => None,
        };
        self.target.notice(text, reply_to)
    }

    fn meaning(&self, meaning: Meaning) -> Option<&OfferedOption> {
        self.offers.iter().find(|offer| offer.meaning == meaning)
    }
}

impl PromptTarget {
    pub(super) fn prompt(
        &self,
        id: &PromptId,
        kind: QuestionKind,
        content: &str,
        offers: &[OfferedOption],
        wait: Duration,
    ) -> PromptOp {
        let option = |offer: &OfferedOption| PromptButton {
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

    /// The question as a message, not marked as the final reply of the turn.
    pub(super) fn question(&self, content: String) -> PromptOp {
        self.send(content, self.facts.message_id.clone())
    }

    pub(super) fn notice(&self, text: &str, reply_to: Option<String>) -> PromptOp {
        self.send(text.to_owned(), reply_to)
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

/// A typed message that answers a question, once [`Prompts::answer`](super::Prompts::answer) takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedAnswer {
    pub(super) prompt: PromptId,
    pub(super) decision: Decision,
}

/// What people type instead of pressing a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypedText {
    /// `/approve`, `/approve once`, `/approve session`, `/approve always`.
    Approve(Meaning),
    /// `/deny`.
    Deny,
    /// A number of the list, from 1.
    Number(usize),
}

impl TypedText {
    /// Reads a message that is nothing but an answer, after optional mentions.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text
            .split_whitespace()
            .skip_while(|word| word.starts_with('@') || word.starts_with("<@"));
        let (first, second, none) = (words.next()?, words.next(), words.next());
        if none.is_some() {
            return None;
        }
        let Some(command) = first.strip_prefix('/') else {
            let digits = first.trim_end_matches(['.', ')']);
            let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            return (second.is_none() && is_number && first.len() - digits.len() <= 1)
                .then(|| digits.parse().ok().map(Self::Number))
                .flatten();
        };
        let command = command.split('@').next().unwrap_or_default();
        match (
            command.to_ascii_lowercase().as_str(),
            second.map(str::to_ascii_lowercase).as_deref(),
        ) {
            ("approve", None | Some("once")) => Some(Self::Approve(Meaning::AllowOnce)),
            ("approve", Some("session")) => Some(Self::Approve(Meaning::AllowSession)),
            ("approve", Some("always")) => Some(Self::Approve(Meaning::AllowAlways)),
            ("deny", None) => Some(Self::Deny),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_that_is_nothing_else_is_an_answer() {
        use Meaning::{AllowAlways, AllowOnce, AllowSession};
        for (text, read) in [
            ("/approve", Some(TypedText::Approve(AllowOnce))),
            (" /Approve@my_bot once ", Some(TypedText::Approve(AllowOnce))),
            ("/approve session", Some(TypedText::Approve(AllowSession))),
            ("<@42> /approve ALWAYS", Some(TypedText::Approve(AllowAlways))),
            ("/deny", Some(TypedText::Deny)),
            ("@bot 2", Some(TypedText::Number(2))),
            ("2.", Some(TypedText::Number(2))),
            ("12)", Some(TypedText::Number(12))),
            ("0", Some(TypedText::Number(0))),
            ("2..", None),
            ("2 please", None),
            ("+2", None),
            ("٢", None),
            ("99999999999999999999", None),
            ("approve", None),
            ("/approve of this", None),
            ("/approve it", None),
            ("/approved", None),
            ("/deny it", None),
            ("/", None),
            ("@bot", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(TypedText::parse(text), read, "{text:?}");
        }
    }
}
