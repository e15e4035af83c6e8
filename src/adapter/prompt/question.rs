//! One question: who may answer it and how, and what is kept of it after its end.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use smol_str::SmolStr;

use super::render::{self, MessageFormat};
use super::types::{Decision, Meaning, Person, PromptId, PromptOp, QuestionId, QuestionKind, TypedMessage};
use crate::adapter::action_builder::{ActionBuilder, KeptBuilder, TextKind};
use crate::adapter::chats::ChatId;
use crate::wire::{Action, PromptButton, SessionKey};
use crate::words::{ChatPhrase, Language, PhraseKey};

/// A question that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenQuestion {
    pub(super) id: PromptId,
    /// The short code that people answer with.
    pub(super) code: QuestionCode,
    #[serde(skip)]
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
    /// When its time is over; never if there is none.
    pub(super) deadline: Option<Duration>,
    /// When people are reminded of it, once.
    pub(super) remind_at: Option<Duration>,
    /// Whether somebody who may not answer was notified.
    pub(super) strangers_notified: bool,
    /// Whether it is a list that nobody waits for.
    #[serde(default)]
    pub(super) is_list: bool,
    /// What stands under it if it ends without a choice, if the relay itself asks.
    #[serde(default)]
    pub(super) closing: Option<String>,
}

/// A question that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EndedQuestion {
    pub(super) id: PromptId,
    pub(super) code: QuestionCode,
    /// How many options it had.
    pub(super) options: usize,
    pub(super) target: PromptTarget,
    pub(super) who: Responders,
    pub(super) decision: Decision,
    /// The message that showed it, if known.
    pub(super) message_id: Option<String>,
    /// Whether a late press was notified.
    pub(super) late_press_notified: bool,
    /// The text to edit into its message once the message's id is known.
    #[serde(skip)]
    pub(super) pending_edit: Option<String>,
    /// What a late answer reads, if the relay itself asked.
    pub(super) closing: Option<String>,
}

/// The end of a question that the relay itself asked, before people read what became of the choice.
#[derive(Clone, Debug)]
pub struct UnsaidEnd {
    pub(super) id: PromptId,
    pub(super) target: PromptTarget,
    pub(super) format: MessageFormat,
    /// The question above the end; `None` where messages cannot be edited.
    pub(super) head: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) by: Option<Person>,
}

impl PartialEq for UnsaidEnd {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl UnsaidEnd {
    /// The language of its readers.
    pub fn language(&self) -> Language {
        self.target.builder.language
    }

    /// Says what was done, and who chose it.
    pub fn done(self, what: &str) -> PromptOp {
        let line = render::signed(render::marked('✅', what), self.by.as_ref(), self.language());
        self.say(&line)
    }

    /// Says why nothing was done.
    pub fn not_done(self, why: &str) -> PromptOp {
        self.say(&render::marked('⏹', why))
    }

    /// Under the question where its message can be edited, else as a message.
    fn say(self, line: &str) -> PromptOp {
        match (self.head, self.message_id) {
            (Some(head), Some(id)) => self.target.edit(&id, self.format.decided(&head, line)),
            (_, id) => self.target.notice(line, id.map(SmolStr::from)),
        }
    }
}

impl EndedQuestion {
    /// The notice for an answer that comes too late.
    pub(super) fn late_notice(&self, reply_to: Option<SmolStr>) -> PromptOp {
        self.target.late_notice(self.closing.as_deref(), reply_to)
    }

    /// Whether it is the question with this code in this chat, and the words can have been meant for it.
    pub(super) fn is_meant(&self, chat: &ChatId, code: QuestionCode, typed: TypedText) -> bool {
        let fits = match typed {
            TypedText::Number(number) => (1..=self.options).contains(&number),
            TypedText::Approve(_) | TypedText::Deny => true,
        };
        fits && self.code == code && *self.target.chat() == *chat
    }

    /// Whether a late press gets a notice: also after a choice, if the relay itself asked and something else is pressed.
    pub(super) fn notifies_late(&self, option: &str) -> bool {
        match self.decision {
            Decision::TimedOut => true,
            Decision::Cancelled => self.closing.is_some(),
            Decision::Chosen(index) => self.closing.is_some() && option != option_id(index),
        }
    }
}

/// What the journal keeps for late answers, so that they mean no question of the next process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RememberedQuestions {
    /// The number of the first code that no chat has had yet.
    next_code: u64,
    /// Those that have ended and those that end with this process, oldest first.
    ended: Vec<EndedQuestion>,
}

impl RememberedQuestions {
    pub(super) fn new(next_code: u64, ended: Vec<EndedQuestion>) -> Self {
        Self { next_code, ended }
    }

    pub(super) fn into_parts(self) -> (u64, Vec<EndedQuestion>) {
        (self.next_code, self.ended)
    }

    /// Whether no question was asked yet.
    pub fn is_empty(&self) -> bool {
        self.next_code == 0 && self.ended.is_empty()
    }
}

/// A question as the journal keeps it, for the next process to go on with. Its times are counted from 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedQuestion(pub(super) OpenQuestion);

/// The chat and session of a question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PromptTarget {
    pub(super) session: SessionKey,
    #[serde(with = "KeptBuilder")]
    pub(super) builder: ActionBuilder,
}

/// An option that is offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OfferedOption {
    /// Its index in the request's options.
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) meaning: Meaning,
}

/// How a question is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Presentation {
    /// With buttons; the fallback is for platforms that refuse them.
    Buttons {
        #[serde(skip)]
        fallback: Option<Box<PromptOp>>,
    },
    /// As a numbered list.
    Numbered,
}

/// Whether a question is visible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Visibility {
    /// The op that shows the question is in flight.
    Sending,
    /// The question is visible.
    Shown {
        /// The message that shows it, if known.
        message: Option<String>,
        /// When it became visible.
        since: Duration,
    },
    /// The question may be visible: the outcome of its op is unknown.
    Uncertain {
        /// When it may have become visible.
        since: Duration,
    },
}

/// Words that name no question are not about one that is visible for less than this: nobody reads that fast.
const MIN_VISIBLE_TIME: Duration = Duration::from_secs(2);

/// Who may answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
        match self {
            Self::Anyone => true,
            Self::DirectPeer(_) if person.id.is_none() => true,
            Self::Only(author) | Self::DirectPeer(author) => person.is(author),
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
    /// It is visible, in this message if known. A known id stays, and so does the time.
    pub(super) fn set_shown(&mut self, message_id: Option<&str>, now: Duration) {
        let since = match self {
            Self::Shown { message: Some(_), .. } => return,
            Self::Shown { since, .. } | Self::Uncertain { since } => *since,
            Self::Sending => now,
        };
        let message = message_id.map(str::to_owned);
        *self = Self::Shown { message, since };
    }

    /// The outcome of its op is unknown.
    pub(super) fn set_uncertain(&mut self, now: Duration) {
        if matches!(self, Self::Sending) {
            *self = Self::Uncertain { since: now };
        }
    }

    /// The message that shows it, if known.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Self::Shown { message, .. } => message.as_deref(),
            Self::Sending | Self::Uncertain { .. } => None,
        }
    }
}

impl OfferedOption {
    /// Its id on the wire; short enough for a button's token.
    pub(super) fn id(&self) -> String {
        option_id(self.index)
    }
}

fn option_id(index: usize) -> String {
    format!("o{index}")
}

impl OpenQuestion {
    /// The same question with its times on another clock.
    pub(super) fn on_clock(mut self, time: impl Fn(Duration) -> Duration) -> Self {
        self.deadline = self.deadline.map(&time);
        self.remind_at = self.remind_at.map(&time);
        if let Visibility::Shown { since, .. } | Visibility::Uncertain { since } = &mut self.showing {
            *since = time(*since);
        }
        self
    }

    /// What is kept of it after this end.
    pub(super) fn into_ended(self, decision: Decision) -> EndedQuestion {
        EndedQuestion {
            message_id: self.showing.message().map(str::to_owned),
            id: self.id,
            code: self.code,
            options: self.offers.len(),
            target: self.target,
            who: self.who,
            decision,
            late_press_notified: false,
            pending_edit: None,
            closing: self.closing,
        }
    }

    /// What its message shows once it has ended; `None` where messages cannot be edited.
    pub(super) fn ended_text(&self, decision: Decision, by: Option<&Person>) -> Option<String> {
        let head = self.head.as_ref()?;
        let language = self.target.builder.language;
        let line = match &self.closing {
            Some(closing) => render::marked('⏹', closing),
            None => render::decision_line(self.kind, decision, self.chosen(decision), by, language),
        };
        Some(self.format.decided(head, &line))
    }

    /// Whether a typed answer of this person can be meant for it.
    pub(super) fn accepts(&self, typed: TypedText, by: &Person, now: Duration) -> bool {
        self.takes(typed, now) && self.who.includes(by)
    }

    /// Whether a typed answer can be meant for it, whoever may give it. One that nobody can have seen takes none.
    pub(super) fn takes(&self, typed: TypedText, now: Duration) -> bool {
        let fits = match typed {
            TypedText::Approve(_) => self.kind == QuestionKind::Approval,
            TypedText::Deny | TypedText::Number(_) => true,
        };
        let visible = !matches!(self.showing, Visibility::Sending);
        visible && fits && !self.is_over(now)
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The message that reminds of it, if somebody can have seen it.
    pub(super) fn reminder(&self, now: Duration) -> Option<PromptOp> {
        let left = self.deadline?.saturating_sub(now);
        // It is a little late: to the nearest second.
        let left = Duration::from_secs(left.saturating_add(Duration::from_millis(500)).as_secs().max(1));
        let is_visible = !matches!(self.showing, Visibility::Sending);
        is_visible.then(|| {
            let language = self.target.builder.language;
            let time = language.duration(left);
            let text = language.say(ChatPhrase::QuestionWaits { time: &time });
            let reply_to = self.showing.message().map(SmolStr::from);
            self.target.ringing(text, reply_to)
        })
    }

    /// Whether words that name no question may be about it.
    pub(super) fn takes_bare(&self, typed: TypedText, now: Duration) -> bool {
        // A bare number must not approve a question that nobody may have seen.
        let hidden = matches!(self.showing, Visibility::Uncertain { .. })
            && matches!(typed, TypedText::Number(_))
            && self.kind == QuestionKind::Approval;
        match self.showing {
            Visibility::Sending => false,
            Visibility::Shown { since, .. } | Visibility::Uncertain { since } => {
                !hidden && now.saturating_sub(since) >= MIN_VISIBLE_TIME
            }
        }
    }

    /// Whether it is asked in the conversation of a message or, if the message may be about any, in its chat.
    pub(super) fn is_asked_where(&self, message: &TypedMessage<'_>) -> bool {
        match message.session {
            Some(session) => self.target.session == *session,
            None => *self.target.chat() == *message.chat,
        }
    }

    /// Whether it is the question with this code in this chat.
    pub(super) fn is_named(&self, chat: &ChatId, code: QuestionCode) -> bool {
        self.code == code && *self.target.chat() == *chat
    }

    /// The answer that the words give; `None` when there is no such option.
    pub(super) fn answer(&self, typed: TypedText) -> Option<TypedMatch> {
        Some(TypedMatch::Answer(TypedAnswer {
            prompt: self.id.clone(),
            decision: self.decision(typed)?,
        }))
    }

    /// The decision of a typed answer; `None` when there is no such option.
    fn decision(&self, typed: TypedText) -> Option<Decision> {
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
    pub(super) fn notice(&self, key: PhraseKey) -> PromptOp {
        let reply_to = self.showing.message().map(SmolStr::from);
        self.target.own_notice(key, reply_to)
    }

    fn meaning(&self, meaning: Meaning) -> Option<&OfferedOption> {
        self.offers.iter().find(|offer| offer.meaning == meaning)
    }
}

impl PromptTarget {
    pub(super) fn chat(&self) -> &ChatId {
        &self.builder.chat.id
    }

    /// Whether it is a direct message.
    pub(super) fn is_direct(&self) -> bool {
        self.builder.is_direct()
    }

    pub(super) fn prompt(
        &self,
        id: &PromptId,
        kind: QuestionKind,
        content: &str,
        offers: &[OfferedOption],
        wait: Option<Duration>,
    ) -> PromptOp {
        let option = |offer: &OfferedOption| PromptButton {
            id: offer.id(),
            label: offer.label.clone(),
            style: render::style(offer.meaning).map(str::to_owned),
        };
        let mut metadata = self.builder.tags();
        metadata.insert("notify", true);
        self.op(Action::Prompt {
            chat_id: self.chat().chat.clone(),
            content: content.to_owned(),
            prompt_kind: match kind {
                QuestionKind::Approval => "approval".to_owned(),
                QuestionKind::Choice => "clarify".to_owned(),
            },
            prompt_id: id.as_str().to_owned(),
            options: offers.iter().map(option).collect(),
            reply_to: self.builder.anchor(),
            metadata,
            timeout_s: wait.map(|wait| wait.as_secs().max(1)),
        })
    }

    /// The question as a message. It rings: the turn waits for its reader.
    pub(super) fn question(&self, content: String) -> PromptOp {
        self.op(self.builder.reply(content, TextKind::Final))
    }

    /// A notice in the words of the relay.
    pub(super) fn own_notice(&self, key: PhraseKey, reply_to: Option<SmolStr>) -> PromptOp {
        self.notice(self.builder.language.plain(key), reply_to)
    }

    /// The notice for an answer that comes too late: the end of what the relay itself asked, or that a question is not open.
    pub(super) fn late_notice(&self, closing: Option<&str>, reply_to: Option<SmolStr>) -> PromptOp {
        match closing {
            Some(closing) => self.notice(closing, reply_to),
            None => self.own_notice(PhraseKey::TooLate, reply_to),
        }
    }

    pub(super) fn notice(&self, text: &str, reply_to: Option<SmolStr>) -> PromptOp {
        self.op(self.builder.send(text.to_owned(), reply_to, TextKind::Plain))
    }

    /// A notice that rings.
    fn ringing(&self, text: String, reply_to: Option<SmolStr>) -> PromptOp {
        self.op(self.builder.send(text, reply_to, TextKind::Final))
    }

    pub(super) fn edit(&self, message_id: &str, content: String) -> PromptOp {
        self.op(self.builder.edit(message_id, content, TextKind::Plain))
    }

    fn op(&self, action: Action) -> PromptOp {
        PromptOp {
            session: self.session.clone(),
            chat: self.chat().clone(),
            action,
        }
    }
}

/// A short name of a question, unique among those of its chat that are open: `A1` to `Z99`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QuestionCode(u16);

/// Codes of one letter.
const PER_LETTER: u16 = 99;

impl QuestionCode {
    /// How many there are.
    pub(super) const COUNT: u16 = 26 * PER_LETTER;

    /// The code with this number; after the last one, the codes start again.
    pub(super) fn nth(number: u64) -> Self {
        let code = number % u64::from(Self::COUNT);
        Self(u16::try_from(code).unwrap_or_default())
    }

    /// The number after this code's.
    pub(super) fn next(self) -> u64 {
        u64::from(self.0) + 1
    }

    /// Reads a code in any case, with or without the mark behind it.
    fn parse(word: &str) -> Option<Self> {
        let word = word.strip_suffix([':', '.', ')', ',']).unwrap_or(word);
        let mut points = word.chars();
        let letter = points.next()?.to_ascii_uppercase();
        let digits = points.as_str();
        let is_number = (1..=2).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0');
        if !letter.is_ascii_uppercase() || !is_number {
            return None;
        }
        let letter = u16::try_from(u32::from(letter) - u32::from('A')).ok()?;
        Some(Self(letter * PER_LETTER + digits.parse::<u16>().ok()? - 1))
    }
}

impl fmt::Display for QuestionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = char::from(b'A' + u8::try_from(self.0 / PER_LETTER).unwrap_or_default());
        write!(f, "{letter}{}", self.0 % PER_LETTER + 1)
    }
}

/// A typed message that is for a question.
#[derive(Clone, Debug, PartialEq)]
pub enum TypedMatch {
    /// It answers one, once [`Prompts::answer`](super::Prompts::answer) takes it.
    Answer(TypedAnswer),
    /// It decides nothing; the notice says why, and how to choose.
    Undecided(Box<PromptOp>),
}

/// What a typed message answers to which question.
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
    /// A number of the list, or of a button in its order, from 1.
    Number(usize),
}

impl TypedText {
    /// Reads a message that is nothing but an answer, after optional mentions; and the question that it names, if any:
    /// `/approve A1`, `/approve A1 session`, `/deny A1`, `A1 2`.
    pub(super) fn parse(text: &str) -> Option<(Self, Option<QuestionCode>)> {
        let mut words = text
            .split_whitespace()
            .skip_while(|word| word.starts_with('@') || word.starts_with("<@"));
        let (first, second, third, none) = (words.next()?, words.next(), words.next(), words.next());
        if none.is_some() {
            return None;
        }
        let Some(command) = first.strip_prefix('/') else {
            return match (second, third) {
                (None, None) => Some((Self::Number(number(first)?), None)),
                (Some(second), None) => {
                    let code = QuestionCode::parse(first)?;
                    Some((Self::Number(number(second)?), Some(code)))
                }
                (_, Some(_)) => None,
            };
        };
        let (mut code, mut scope) = (None, None);
        for word in [second, third].into_iter().flatten() {
            match (scope_of(word), QuestionCode::parse(word)) {
                (Some(meaning), _) if scope.is_none() => scope = Some(meaning),
                (None, Some(named)) if code.is_none() => code = Some(named),
                _ => return None,
            }
        }
        let command = command.split('@').next().unwrap_or_default();
        match (command.to_ascii_lowercase().as_str(), scope) {
            ("approve", scope) => Some((Self::Approve(scope.unwrap_or(Meaning::AllowOnce)), code)),
            ("deny", None) => Some((Self::Deny, code)),
            _ => None,
        }
    }
}

/// A number of the list, with or without the mark behind it.
fn number(word: &str) -> Option<usize> {
    let digits = word.trim_end_matches(['.', ')']);
    let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && word.len() - digits.len() <= 1)
        .then(|| digits.parse().ok())
        .flatten()
}

/// How much `/approve` allows.
fn scope_of(word: &str) -> Option<Meaning> {
    match word.to_ascii_lowercase().as_str() {
        "once" => Some(Meaning::AllowOnce),
        "session" => Some(Meaning::AllowSession),
        "always" => Some(Meaning::AllowAlways),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_that_is_nothing_else_is_an_answer() {
        use Meaning::{AllowAlways, AllowOnce, AllowSession};
        use TypedText::{Approve, Deny, Number};
        for (text, read) in [
            ("/approve", Some((Approve(AllowOnce), None))),
            (" /Approve@my_bot once ", Some((Approve(AllowOnce), None))),
            ("/approve session", Some((Approve(AllowSession), None))),
            ("<@42> /approve ALWAYS", Some((Approve(AllowAlways), None))),
            ("/approve A1", Some((Approve(AllowOnce), Some("A1")))),
            ("/approve a12 session", Some((Approve(AllowSession), Some("A12")))),
            (
                "@bot /approve always Z99",
                Some((Approve(AllowAlways), Some("Z99"))),
            ),
            ("/deny", Some((Deny, None))),
            ("/deny b7", Some((Deny, Some("B7")))),
            ("@bot 2", Some((Number(2), None))),
            ("2.", Some((Number(2), None))),
            ("12)", Some((Number(12), None))),
            ("0", Some((Number(0), None))),
            ("A1 2", Some((Number(2), Some("A1")))),
            ("a1: 2.", Some((Number(2), Some("A1")))),
            ("A1", None),
            ("2 A1", None),
            ("A1 2 3", None),
            ("A0 1", None),
            ("A01 1", None),
            ("A100 1", None),
            ("Ä1 1", None),
            ("AA 1", None),
            ("2..", None),
            ("2 please", None),
            ("+2", None),
            ("٢", None),
            ("99999999999999999999", None),
            ("approve", None),
            ("/approve of this", None),
            ("/approve it", None),
            ("/approve A1 A2", None),
            ("/approve once always", None),
            ("/approve A1 once now", None),
            ("/approved", None),
            ("/deny it", None),
            ("/deny A1 always", None),
            ("/", None),
            ("@bot", None),
            (".", None),
            ("", None),
        ] {
            let seen = TypedText::parse(text);
            let seen = seen.map(|(typed, code)| (typed, code.map(|code| code.to_string())));
            let read = read.map(|(typed, code)| (typed, code.map(str::to_owned)));
            assert_eq!(seen, read, "{text:?}");
        }
    }

    #[test]
    fn codes_count_from_a1_to_z99_and_start_again() {
        let mut code = QuestionCode::nth(0);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..QuestionCode::COUNT {
            let text = code.to_string();
            assert_eq!(QuestionCode::parse(&text), Some(code), "{text}");
            assert!(text.len() <= 3 && seen.insert(text));
            code = QuestionCode::nth(code.next());
        }
        assert_eq!(code.to_string(), "A1");
        assert!(seen.contains("A99") && seen.contains("B1") && seen.contains("Z99"));
    }
}
