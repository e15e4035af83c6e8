//! The open questions and the recently ended ones. A question ends in one function only, which makes its
//! [`Resolution`]: none is resolved twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smol_str::SmolStr;

use super::question::{
    EndedQuestion, OfferedOption, OpenQuestion, Presentation, PromptTarget, QuestionCode,
    RememberedQuestions, Responders, SavedQuestion, TypedAnswer, TypedMatch, TypedText, UnsaidEnd,
    Visibility,
};
use super::render::{self, MessageFormat, QuestionText};
use super::types::{
    ButtonPress, Decision, Meaning, NotOpened, OpenedQuestion, Person, PressResult, PromptId, PromptOp,
    PromptRequest, PromptSettings, PromptStep, QuestionId, QuestionKind, Resolution, TypedMessage,
};
use crate::adapter::{ChatId, RelayAdapter};
use crate::collections::BoundedCache;
use crate::wire::{Outcome, Scalar, SessionKey};
use crate::words::{Language, PhraseKey};

/// Maximum options of a question.
const MAX_OPTIONS: usize = 32;
/// Longest message id that is accepted.
const MAX_MESSAGE_ID: usize = 256;
/// Step between serial numbers: odd, so that none repeats within 2³².
const STRIDE: u32 = 0x9e37_79b9;
/// Chats whose last code is remembered; in others, codes start again at the first one that is free.
const MAX_CODED_CHATS: usize = 1024;
/// Questions that the next process remembers, the newest ones.
const MAX_REMEMBERED: usize = 64;
/// Nobody is reminded of a question that is open for less than this.
const MIN_REMINDED: Duration = Duration::from_secs(2);
/// Notice for somebody who may not answer.
const NOT_YOURS: PhraseKey = PhraseKey::NotYours;

/// The questions that are open, oldest first.
#[derive(Debug)]
pub struct Prompts {
    settings: PromptSettings,
    nonce: String,
    serial: u32,
    open: Vec<OpenQuestion>,
    ended: VecDeque<EndedQuestion>,
    /// The number of the next code of each chat. A code comes again as late as possible: somebody may type it late.
    codes: BoundedCache<ChatId, u64>,
    /// The number of the first code of a chat: no chat had it in an earlier process.
    first_code: u64,
    /// The number of the first code that no chat has had yet.
    unused_code: u64,
}

impl Prompts {
    /// No questions yet. The nonce distinguishes this process's questions from those of others and of earlier runs; serial
    /// numbers start at the seed.
    pub fn new(settings: PromptSettings, nonce: [u8; 3], seed: u32) -> Self {
        let [a, b, c] = nonce;
        Self {
            settings,
            nonce: format!("{a:02x}{b:02x}{c:02x}."),
            serial: seed,
            open: Vec::new(),
            ended: VecDeque::new(),
            codes: BoundedCache::new(MAX_CODED_CHATS),
            first_code: 0,
            unused_code: 0,
        }
    }

    /// What the next process needs to know of the questions, whether it goes on with those that are open or not.
    pub fn remembered(&self) -> RememberedQuestions {
        let open = self.open.iter().cloned();
        let open = open.map(|open| open.into_ended(Decision::Cancelled));
        let ended = self.ended.iter().cloned().chain(open);
        let too_many = (self.ended.len() + self.open.len()).saturating_sub(MAX_REMEMBERED);
        RememberedQuestions::new(self.unused_code, ended.skip(too_many).collect())
    }

    /// Takes over what an earlier process remembered: its questions have ended, and its codes are not given again.
    pub fn remember(&mut self, earlier: RememberedQuestions) {
        let (next_code, ended) = earlier.into_parts();
        self.first_code = self.first_code.max(next_code);
        self.unused_code = self.unused_code.max(next_code);
        for ended in ended {
            self.remember_ended(ended);
        }
    }

    fn remember_ended(&mut self, ended: EndedQuestion) {
        self.ended.push_back(ended);
        while self.ended.len() > self.settings.remembered {
            self.ended.pop_front();
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
        let direct = request.chat.facts.is_direct();
        let author = request.author.clone().filter(|id| !id.is_empty());
        let anyone = self.settings.anyone_may_answer();
        let who = Responders::new(author, direct && !request.named_only, anyone)
            .ok_or(NotOpened::NobodyMayAnswer)?;
        let always = direct || self.settings.allow_always_in_groups;
        let language = adapter.language(&request.chat.facts);
        let offers = offers(&request, always, language)?;
        let number = self.next_code(&request.chat.id).ok_or(NotOpened::Full)?;
        let code = QuestionCode::nth(number);
        let format = MessageFormat::new(adapter.descriptor(), language);
        let text = language.reword(&request.text);
        let wording = QuestionText::new(request.kind, &text, request.detail.as_deref(), language);
        let labels: Vec<&str> = offers.iter().map(|offer| offer.label.as_str()).collect();
        let numbered = format.numbered(&wording, request.kind, code, &labels);
        let native = adapter.supports("prompt");
        let footer = format.footer(request.kind, code);
        let head = format.head(&wording, &footer).ok_or(NotOpened::NoRoom)?;
        let wait = self.settings.wait(request.timeout);
        let target = PromptTarget {
            session: request.session,
            builder: adapter.builder(Arc::new(request.chat)),
        };
        let id = self.next_id();
        let (mut op, shape) = if native {
            let content = [head.as_str(), &footer].concat();
            let op = target.prompt(&id, request.kind, &content, &offers, wait);
            let mut fallback = numbered.map(|text| Box::new(target.question(text)));
            if let Some(fallback) = fallback.as_mut().filter(|_| request.is_silent) {
                fallback.action.silence();
            }
            (op, Presentation::Buttons { fallback })
        } else {
            (
                target.question(numbered.ok_or(NotOpened::NoRoom)?),
                Presentation::Numbered,
            )
        };
        if request.is_silent {
            op.action.silence();
        }
        self.use_code(target.chat(), number);
        self.open.push(OpenQuestion {
            id: id.clone(),
            code,
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
            deadline: wait.map(|wait| now.saturating_add(wait)),
            remind_at: wait
                .filter(|wait| *wait >= MIN_REMINDED && !request.is_list)
                .map(|wait| now.saturating_add(wait / 2)),
            strangers_notified: false,
            is_list: request.is_list,
            closing: request.closing,
        });
        Ok(OpenedQuestion {
            prompt: id,
            op,
            native,
        })
    }

    /// The outcome of the op that shows a question.
    pub fn op_finished(&mut self, prompt: &PromptId, outcome: &Outcome, now: Duration) -> PromptStep {
        let Some(at) = self.find(prompt.as_str()) else {
            return self.finished_after_end(prompt, outcome);
        };
        let open = &mut self.open[at];
        match outcome {
            Outcome::Applied(result) => {
                let id = result.message_id.as_ref().map(Scalar::as_str);
                open.showing.set_shown(id.filter(|id| is_message_id(id)), now);
                PromptStep::Nothing
            }
            Outcome::Unknown => {
                open.showing.set_uncertain(now);
                PromptStep::Nothing
            }
            Outcome::Refused { declined, result } => {
                let may_retry = !declined && !result.is_permanent;
                let fallback = open.shape.take_fallback().filter(|_| may_retry);
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
        let Some(at) = self.find(&press.prompt_id) else {
            return self.press_after_end(press);
        };
        let open = &mut self.open[at];
        if !press.is_in(open.target.chat()) {
            return PressResult::NotAllowed(None);
        }
        if !open.who.includes(&press.by) {
            let notice = if let Some(reply) = &press.private_reply {
                Some(open.target.own_notice(NOT_YOURS, Some(reply.as_str().into())))
            } else {
                // Everybody reads it, so once is enough.
                let first = !std::mem::replace(&mut open.strangers_notified, true);
                first.then(|| open.notice(NOT_YOURS))
            };
            return PressResult::NotAllowed(notice.map(Box::new));
        }
        open.showing
            .set_shown(press.message_id.as_deref().filter(|id| is_message_id(id)), now);
        if open.is_over(now) {
            let reply_to = open.showing.message().map(SmolStr::from);
            let notice = open.target.late_notice(open.closing.as_deref(), reply_to);
            let resolution = Some(self.end(at, Decision::TimedOut, None));
            if let Some(ended) = self.ended.back_mut() {
                ended.late_press_notified = true;
            }
            return PressResult::Expired {
                resolution,
                notice: Some(Box::new(notice)),
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

    /// Whether a text may be about a question: one is open or ended lately, and the words can be an answer.
    pub fn may_match(&self, text: &str) -> bool {
        let is_any = !self.open.is_empty() || !self.ended.is_empty();
        is_any && TypedText::parse(text).is_some()
    }

    /// Matches a message to a question; `None` when it is an ordinary message.
    ///
    /// | the message | the question |
    /// |---|---|
    /// | names a code | the one with that code in the chat, also when it has ended |
    /// | replies to a question's message | that one and no other, also when it has ended |
    /// | is words alone | the only one of the session, or of the chat if the message is of no session, that has been visible for two seconds; with several, or none, nothing is decided. Lists do not count, unless no question takes the words: then the newest one does |
    ///
    /// Whoever may not answer it reads that, unless it has ended; a number alone of theirs is an ordinary message.
    pub fn match_text(&self, message: &TypedMessage<'_>, now: Duration) -> Option<TypedMatch> {
        let (typed, code) = TypedText::parse(message.text)?;
        let replied = message.reply_to.and_then(|id| self.replied(message.chat, id));
        let named = code.map(|code| {
            (
                code,
                self.open.iter().find(|open| open.is_named(message.chat, code)),
            )
        });
        let late = |ended: &EndedQuestion| {
            let notice = || undecided(ended.late_notice(None));
            ended.who.includes(message.by).then(notice)
        };
        let open = match (replied, named) {
            (Some(Replied::Ended(ended)), _) => return late(ended),
            (Some(Replied::Open(open)), None) => open,
            // A code and a reply that contradict each other decide nothing.
            (Some(Replied::Open(replied)), Some((_, Some(named)))) if replied.id != named.id => {
                let text = render::undecided(&[replied, named], named.target.builder.language);
                return Some(undecided(named.target.notice(&text, None)));
            }
            (_, Some((_, Some(named)))) => named,
            (_, Some((code, None))) => {
                // A code comes again: the newest question has it.
                let mut ended = self.ended.iter().rev();
                return late(ended.find(|ended| ended.is_meant(message.chat, code, typed))?);
            }
            (None, None) => return self.match_bare(typed, message, now),
        };
        if open.is_over(now) && open.who.includes(message.by) {
            let closing = open.closing.as_deref();
            let notice = || undecided(open.target.late_notice(closing, None));
            return open.answer(typed).map(|_| notice());
        }
        let answer = open.answer(typed).filter(|_| open.takes(typed, now));
        answer.map(|answer| {
            if open.who.includes(message.by) {
                answer
            } else {
                undecided(open.notice(NOT_YOURS))
            }
        })
    }

    /// What somebody reads who types `/approve` or `/deny` to a question of somebody else.
    fn refuse_bare(&self, typed: TypedText, message: &TypedMessage<'_>, now: Duration) -> Option<TypedMatch> {
        let mut asked = self
            .open
            .iter()
            .filter(|open| open.is_asked_where(message) && *open.target.chat() == *message.chat);
        let is_number = matches!(typed, TypedText::Number(_));
        let open = asked.find(|open| !is_number && open.takes(typed, now) && open.answer(typed).is_some())?;
        Some(undecided(open.notice(NOT_YOURS)))
    }

    /// Matches words that name no question.
    fn match_bare(&self, typed: TypedText, message: &TypedMessage<'_>, now: Duration) -> Option<TypedMatch> {
        let accepting = self
            .open
            .iter()
            .filter(|open| open.is_asked_where(message))
            .filter(|open| open.accepts(typed, message.by, now));
        let (lists, mut accepting): (Vec<&OpenQuestion>, Vec<&OpenQuestion>) =
            accepting.partition(|open| open.is_list);
        if !accepting.iter().any(|open| open.answer(typed).is_some()) {
            accepting = lists.last().copied().into_iter().collect();
        }
        // Words that are no option of any are an ordinary message.
        let Some(first) = accepting
            .iter()
            .copied()
            .find(|open| open.answer(typed).is_some())
        else {
            return self.refuse_bare(typed, message, now);
        };
        // A reply to a message that is not known may be one to a question whose message is not known.
        let may_mean_another = message.reply_to.is_some()
            && self.open.iter().any(|open| {
                *open.target.chat() == *message.chat
                    && open.showing.message().is_none()
                    && (first.is_list || !open.is_list)
            });
        let mut bare = accepting.iter().filter(|open| open.takes_bare(typed, now));
        match (bare.next(), bare.next()) {
            (Some(only), None) if !may_mean_another => only.answer(typed),
            _ => {
                let text = render::undecided(&accepting, first.target.builder.language);
                Some(undecided(first.target.notice(&text, None)))
            }
        }
    }

    /// The question whose message has this id.
    fn replied(&self, chat: &ChatId, id: &str) -> Option<Replied<'_>> {
        let mut open = self.open.iter().filter(|open| *open.target.chat() == *chat);
        if let Some(open) = open.find(|open| open.showing.message() == Some(id)) {
            return Some(Replied::Open(open));
        }
        let mut ended = self.ended.iter().filter(|ended| *ended.target.chat() == *chat);
        ended
            .find(|ended| ended.message_id.as_deref() == Some(id))
            .map(Replied::Ended)
    }

    /// Takes an answer that [`Self::match_text`] found; `None` when its question has ended since.
    pub fn answer(&mut self, typed: &TypedAnswer, by: &Person, now: Duration) -> Option<Resolution> {
        let at = self.find(typed.prompt.as_str())?;
        let open = &self.open[at];
        (!open.is_over(now) && open.who.includes(by)).then(|| self.end(at, typed.decision, Some(by)))
    }

    /// What somebody reads whose typed answer comes after the end of what the relay itself asked.
    pub fn late_answer(&self, typed: &TypedAnswer) -> Option<PromptOp> {
        let mut ended = self.ended.iter();
        let ended = ended.find(|ended| ended.id == typed.prompt && ended.closing.is_some())?;
        Some(ended.late_notice(None))
    }

    /// Ends the questions whose time is up.
    pub fn expire(&mut self, now: Duration) -> Vec<Resolution> {
        self.end_where(Decision::TimedOut, |open| open.is_over(now))
    }

    /// The messages that remind of questions whose time is half over, each once.
    pub fn remind(&mut self, now: Duration) -> Vec<PromptOp> {
        let mut reminders = Vec::new();
        for open in &mut self.open {
            if open.remind_at.take_if(|at| *at <= now).is_some() {
                reminders.extend(open.reminder(now));
            }
        }
        reminders
    }

    /// When [`Self::expire`] or [`Self::remind`] has something to do.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let due = |open: &OpenQuestion| [open.deadline, open.remind_at];
        self.open.iter().flat_map(due).flatten().min()
    }

    /// Withdraws a question.
    pub fn withdraw(&mut self, id: QuestionId) -> Option<Resolution> {
        let at = self.open.iter().position(|open| open.question == id)?;
        Some(self.end(at, Decision::Cancelled, None))
    }

    /// Withdraws what the relay itself asked: its message says this, and so does whoever answers it late read.
    pub fn withdraw_saying(
        &mut self,
        id: QuestionId,
        say: impl FnOnce(Language) -> String,
    ) -> Option<Resolution> {
        let at = self.open.iter().position(|open| open.question == id)?;
        let open = &mut self.open[at];
        open.closing = Some(say(open.target.builder.language));
        Some(self.end(at, Decision::Cancelled, None))
    }

    /// The conversation in which a question is visible; `None` for a list, and for what nobody can have seen.
    pub fn visible_in(&self, id: QuestionId) -> Option<&SessionKey> {
        let open = self.open.iter().find(|open| open.question == id)?;
        let is_visible = !open.is_list && !matches!(open.showing, Visibility::Sending);
        is_visible.then_some(&open.target.session)
    }

    /// Number of open questions.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Whether no question is open.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn find(&self, prompt: &str) -> Option<usize> {
        self.open.iter().position(|open| open.id.as_str() == prompt)
    }

    /// The number of the next code of a chat that none of its open questions has.
    fn next_code(&self, chat: &ChatId) -> Option<u64> {
        let next = self.codes.peek(chat).copied().unwrap_or(self.first_code);
        let is_open = |code| self.open.iter().any(|open| open.is_named(chat, code));
        (next..)
            .take(usize::from(QuestionCode::COUNT))
            .find(|number| !is_open(QuestionCode::nth(*number)))
    }

    /// A question of a chat has the code with this number: the next one has another.
    fn use_code(&mut self, chat: &ChatId, number: u64) {
        self.codes.insert(chat.clone(), number + 1);
        self.unused_code = self.unused_code.max(number + 1);
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
                    ended.message_id = Some(id.to_owned());
                    PromptStep::Edit(ended.target.edit(id, content))
                }),
            Outcome::Refused { .. } | Outcome::Unknown => PromptStep::Nothing,
        }
    }

    fn press_after_end(&mut self, press: &ButtonPress) -> PressResult {
        let late = self.ended.iter_mut().find(|ended| {
            ended.id.as_str() == press.prompt_id
                && ended.notifies_late(&press.option_id)
                && press.is_in(ended.target.chat())
                && ended.who.includes(&press.by)
        });
        match late {
            Some(ended) if !ended.late_press_notified => {
                ended.late_press_notified = true;
                let message = press.message_id.as_deref().filter(|id| is_message_id(id));
                let notice = ended.late_notice(message.map(SmolStr::from));
                PressResult::Expired {
                    resolution: None,
                    notice: Some(Box::new(notice)),
                }
            }
            None if !press.prompt_id.starts_with(&self.nonce) => PressResult::NotOurs,
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

    /// The questions that may be visible, each with the op that writes under it that nobody is asked any more, for when this
    /// process ends before it does.
    pub fn closing(&self) -> impl Iterator<Item = (QuestionId, Option<PromptOp>)> {
        let visible = |open: &&OpenQuestion| !matches!(open.showing, Visibility::Sending);
        self.open.iter().filter(visible).map(|open| {
            let text = open.ended_text(Decision::Cancelled, None);
            let edit = open.showing.message().zip(text);
            (open.question, edit.map(|(id, text)| open.target.edit(id, text)))
        })
    }

    /// A question that is open, for a process that goes on with it; 1970 is this long before the start of this process's clock.
    pub fn save(&self, id: QuestionId, since_1970: Duration) -> Option<SavedQuestion> {
        let open = self.open.iter().find(|open| open.question == id)?;
        let time = |at: Duration| at.saturating_add(since_1970);
        Some(SavedQuestion(open.clone().on_clock(time)))
    }

    /// Goes on with a question of an earlier process under a new id of the caller's; its chat and its id on the wire, or `None` if its
    /// time is over, there is no room for it, or the settings allow it no more as it was asked.
    pub fn restore(
        &mut self,
        saved: SavedQuestion,
        id: QuestionId,
        since_1970: Duration,
        now: Duration,
    ) -> Option<(ChatId, PromptId)> {
        let mut open = saved.0.on_clock(|at| at.saturating_sub(since_1970));
        let is_known = self.find(open.id.as_str()).is_some();
        if open.is_over(now) || is_known || self.open.len() >= self.settings.max_open || !self.allows(&open) {
            return None;
        }
        open.question = id;
        let restored = (open.target.chat().clone(), open.id.clone());
        self.use_code(&restored.0, self.first_code.max(open.code.next()) - 1);
        self.ended.retain(|ended| ended.id != open.id);
        self.open.push(open);
        Some(restored)
    }

    /// Whether a question could be put now to those who may answer it, with its options.
    fn allows(&self, open: &OpenQuestion) -> bool {
        let mut meanings = open.offers.iter().map(|offer| offer.meaning);
        open.target.is_direct()
            || (self.settings.anyone_may_answer() || !matches!(open.who, Responders::Anyone))
                && (self.settings.allow_always_in_groups
                    || !meanings.any(|meaning| meaning == Meaning::AllowAlways))
    }

    /// Ends a question; the one place where that happens.
    fn end(&mut self, at: usize, decision: Decision, by: Option<&Person>) -> Resolution {
        let open = self.open.remove(at);
        let question = open.question;
        let content = open.ended_text(decision, by);
        let message_id = open.showing.message().map(str::to_owned);
        let is_unsaid = open.closing.is_some() && matches!(decision, Decision::Chosen(_));
        let unsaid = is_unsaid.then(|| {
            Box::new(UnsaidEnd {
                id: open.id.clone(),
                target: open.target.clone(),
                format: open.format,
                head: open.head.clone(),
                message_id: message_id.clone(),
                by: by.cloned(),
            })
        });
        let (edit, pending_edit) = match (&open.showing, &message_id, content) {
            (_, Some(_), Some(_)) if is_unsaid => (None, None),
            (_, Some(id), Some(content)) => (Some(Box::new(open.target.edit(id, content))), None),
            (Visibility::Sending | Visibility::Shown { .. }, None, content) => (None, content),
            (_, Some(_), None) | (Visibility::Uncertain { .. }, None, _) => (None, None),
        };
        self.remember_ended(EndedQuestion {
            pending_edit,
            ..open.into_ended(decision)
        });
        Resolution {
            id: question,
            decision,
            edit,
            unsaid,
        }
    }
}

fn is_message_id(id: &str) -> bool {
    (1..=MAX_MESSAGE_ID).contains(&id.len())
}

/// A question that a message replies to.
enum Replied<'q> {
    Open(&'q OpenQuestion),
    Ended(&'q EndedQuestion),
}

fn undecided(notice: PromptOp) -> TypedMatch {
    TypedMatch::Undecided(Box::new(notice))
}

/// The options to offer; an approval needs one that allows. Where a conversation is shared, one person must not decide for
/// the others: an approval there is for once, and an option whose meaning is not known is left out. Approvals have their
/// options in the same order, whatever the agent's is.
fn offers(
    request: &PromptRequest,
    always: bool,
    language: Language,
) -> Result<Vec<OfferedOption>, NotOpened> {
    if request.options.len() > MAX_OPTIONS {
        return Err(NotOpened::TooManyOptions);
    }
    let once_only = !request.personal && request.kind == QuestionKind::Approval;
    let is_offered = |meaning: Meaning| match meaning {
        Meaning::AllowOnce | Meaning::Deny => true,
        Meaning::AllowSession => request.personal,
        Meaning::AllowAlways => request.personal && always,
        Meaning::Plain => !once_only,
    };
    let mut offers: Vec<OfferedOption> = request
        .options
        .iter()
        .enumerate()
        .filter(|(_, option)| is_offered(option.meaning))
        .map(|(index, option)| OfferedOption {
            index,
            label: render::label(option, index, language),
            meaning: option.meaning,
        })
        .collect();
    if request.kind == QuestionKind::Approval {
        offers.sort_by_key(|offer| render::place(offer.meaning));
    }
    let is_answerable = match request.kind {
        QuestionKind::Approval => offers.iter().any(|offer| offer.meaning.allows()),
        QuestionKind::Choice => !offers.is_empty(),
    };
    is_answerable.then_some(offers).ok_or(NotOpened::NothingToChoose)
}
