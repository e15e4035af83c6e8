//! One op on its way: its calls one by one, and what follows from each answer.
//!
//! No I/O and no clock. The driver asks for the next step, makes the call when the flood budget admits it, and reports
//! what came back. An answer that names a fixable fault changes the call and repeats it; every fix is applied once.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::call::{ApiAnswer, Call, CallFile, CallKind};
use super::callback::CallbackKey;
use super::fault::ApiFault;
use super::plan::{
    DOCUMENT, GENERAL, SpeechEnd, SpeechPlan, SpeechRefused, SpeechTarget, TextEnd, Utterance, plan, sends,
};
use super::rich::RichMessages;
use super::split::{CAPTION_CHARS, MESSAGE_CHARS};
use super::spoken::{ShownPart, ShownText, Spoken, content_hash};
use super::styled::Styled;
use crate::text::printable;
use crate::wire::{Action, OpResult, Outcome};

/// Characters of the server's words that are passed on.
const MAX_ERROR_CHARS: usize = 200;
/// A text that is too long for the server in parts of this length stays too long.
const SHORTEST_PART: usize = 128;

/// What to do next for an op.
#[derive(Clone, Debug, PartialEq)]
pub enum SpeechStep {
    /// Make this call.
    Call(Call),
    /// Nothing: this is its outcome.
    Done(Outcome),
    /// Nothing: what is left of it was not sent, and may be sent again.
    NotSent,
}

/// What an answer told beside the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// A group became a supergroup.
    Migrated {
        /// Its old id.
        from: i64,
        /// Its new id.
        to: i64,
    },
    /// The server limits a chat.
    Limited {
        /// Which one.
        chat: i64,
        /// For how long.
        retry_after: Duration,
    },
    /// Nothing can be said in a chat for now.
    Closed {
        /// Which one.
        chat: i64,
        /// Why, as a code.
        reason: &'static str,
    },
    /// The server did not understand our markup: a fault of ours, to be counted.
    MarkupRefused,
    /// The server did not take a rich message; its text goes out another way.
    RichRefused,
    /// The server has no rich messages.
    NoRich,
}

/// Fixes that were applied to the call at hand.
#[derive(Clone, Copy, Debug, Default)]
struct Fixes {
    repeated_for_thread: bool,
    redirected: bool,
}

/// One op on its way.
#[derive(Debug)]
pub struct Speech {
    target: SpeechTarget,
    steps: VecDeque<Utterance>,
    shown: Vec<ShownPart>,
    end: SpeechEnd,
    fixes: Fixes,
    migrated: bool,
    /// Whether messages were sent in place of some that were gone.
    replaced: bool,
    /// What the server returned last.
    result: Value,
    finished: Option<SpeechStep>,
}

impl Speech {
    /// An op that begins. The error is its answer: it is refused without a call.
    pub fn new(action: &Action, keys: &CallbackKey, spoken: &mut Spoken) -> Result<Self, SpeechRefused> {
        let SpeechPlan {
            target,
            steps,
            shown,
            end,
        } = plan(action, keys, spoken)?;
        let mut speech = Self {
            target,
            steps,
            shown,
            end,
            fixes: Fixes::default(),
            migrated: false,
            replaced: false,
            result: Value::Null,
            finished: None,
        };
        speech.go_on(spoken);
        Ok(speech)
    }

    /// The chat it goes to.
    pub fn chat(&self) -> i64 {
        self.target.chat
    }

    /// What to do next. The same until something is reported.
    pub fn step(&self) -> SpeechStep {
        if let Some(finished) = &self.finished {
            return finished.clone();
        }
        let call = self.steps.front().and_then(|utterance| self.call(utterance));
        call.map_or(SpeechStep::Done(Outcome::Unknown), SpeechStep::Call)
    }

    /// The flood budget has no room for a call that is only for show. What nobody would miss counts as done.
    pub fn dropped(&mut self, spoken: &mut Spoken) {
        if let SpeechEnd::Text(_) | SpeechEnd::Media { .. } = self.end {
            return self.cut(SpeechStep::NotSent, spoken);
        }
        let done = OpResult {
            success: true,
            ..OpResult::default()
        };
        self.cut(SpeechStep::Done(done.into()), spoken);
    }

    /// The server limits the chat: the call was not made.
    pub fn limited(&mut self, retry_after: Duration, spoken: &mut Spoken) {
        let result = rate_limited(retry_after);
        self.cut(SpeechStep::Done(result.into()), spoken);
    }

    /// What came back of the call.
    pub fn answered(&mut self, answer: ApiAnswer, spoken: &mut Spoken) -> Option<Learnt> {
        if self.finished.is_some() {
            return None;
        }
        match answer {
            ApiAnswer::Ok(result) => {
                self.done(result, spoken);
                None
            }
            ApiAnswer::NotSent(_) => {
                self.cut(SpeechStep::NotSent, spoken);
                None
            }
            ApiAnswer::Unknown => {
                self.cut(SpeechStep::Done(Outcome::Unknown), spoken);
                None
            }
            ApiAnswer::Error {
                code,
                description,
                retry_after,
                migrate_to,
            } => {
                let fault = ApiFault::of(code, &description, retry_after, migrate_to);
                self.fault(fault, &description, spoken)
            }
        }
    }

    /// The call was done: on to the next one.
    fn done(&mut self, result: Value, spoken: &mut Spoken) {
        self.fixes = Fixes::default();
        let id = result
            .get("message_id")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        self.result = result;
        match self.steps.pop_front() {
            Some(Utterance::Send { part, plain, .. }) => {
                self.target.reply_to = None;
                let content = (!plain).then(|| content_hash(&part));
                self.shown.push(ShownPart { id, content });
            }
            Some(Utterance::Media { .. }) => self.shown.push(ShownPart::known(id)),
            Some(Utterance::Rich { id: edited, .. }) => {
                self.target.reply_to = None;
                self.shown.push(ShownPart::known(edited.unwrap_or(id)));
            }
            Some(Utterance::Edit { id, part, plain, .. }) => {
                let content = (!plain).then(|| content_hash(&part));
                self.shown.push(ShownPart { id, content });
            }
            Some(Utterance::Keep { .. } | Utterance::Delete { .. } | Utterance::Other { .. }) | None => {}
        }
        self.go_on(spoken);
    }

    /// Passes over messages that stay as they are, and ends when nothing is left.
    fn go_on(&mut self, spoken: &mut Spoken) {
        while let Some(Utterance::Keep { shown, .. }) = self.steps.front() {
            self.shown.push(*shown);
            self.steps.pop_front();
        }
        if self.steps.is_empty() && self.finished.is_none() {
            let result = self.succeed(spoken);
            self.finished = Some(SpeechStep::Done(result.into()));
        }
    }

    fn fault(&mut self, fault: ApiFault, description: &str, spoken: &mut Spoken) -> Option<Learnt> {
        let chat = self.target.chat;
        match fault {
            ApiFault::Done => self.done(Value::Null, spoken),
            ApiFault::Limited(retry_after) => {
                self.limited(retry_after, spoken);
                return Some(Learnt::Limited { chat, retry_after });
            }
            ApiFault::Unknown => self.cut(SpeechStep::Done(Outcome::Unknown), spoken),
            ApiFault::Misdirected if !self.fixes.redirected => self.fixes.redirected = true,
            ApiFault::Misdirected => self.cut(SpeechStep::NotSent, spoken),
            ApiFault::Migrated(to) if !self.migrated => {
                self.migrated = true;
                spoken.chat_moved(chat, to);
                self.target.chat = to;
                return Some(Learnt::Migrated { from: chat, to });
            }
            fault if fault.is_about_rich() && self.without_rich(spoken) => {
                if fault == ApiFault::NoMethod {
                    spoken.use_rich(RichMessages::Never);
                    return Some(Learnt::NoRich);
                }
                return Some(Learnt::RichRefused);
            }
            ApiFault::Markup => {
                if !self.without_markup() {
                    self.refuse("bad_markup", description, spoken);
                }
                return Some(Learnt::MarkupRefused);
            }
            ApiFault::NoThread if self.fix_thread() => {}
            ApiFault::NoAnchor if self.target.reply_to.take().is_some() => {}
            ApiFault::NoText if self.as_caption() => {}
            ApiFault::TooLong if self.shorten() => {}
            ApiFault::AsDocument if self.as_document() => {}
            ApiFault::NoMessage if self.replace() => {}
            fault => {
                let code = code_of(fault);
                match (&self.end, fault) {
                    (SpeechEnd::Draft, ApiFault::NoMethod) => spoken.no_drafts(),
                    (SpeechEnd::Draft, ApiFault::NoDrafts) => spoken.no_drafts_in(chat),
                    _ => {}
                }
                self.refuse(code, description, spoken);
                if let (SpeechEnd::Text(TextEnd { edited: Some(id), .. }), ApiFault::NoMessage) =
                    (&self.end, fault)
                {
                    spoken.forget(chat, *id);
                }
                if fault.closes_chat() {
                    return Some(Learnt::Closed { chat, reason: code });
                }
            }
        }
        None
    }

    fn refuse(&mut self, code: &str, description: &str, spoken: &mut Spoken) {
        let result = refused(code, &printable(description, MAX_ERROR_CHARS));
        self.cut(SpeechStep::Done(result.into()), spoken);
    }

    /// Sends a rich message the other way; `false` if there is none at hand.
    fn without_rich(&mut self, spoken: &mut Spoken) -> bool {
        let Some(Utterance::Rich {
            markdown, instead, ..
        }) = self.steps.front_mut()
        else {
            return false;
        };
        spoken.rich_refused(markdown);
        self.steps = std::mem::take(instead);
        self.go_on(spoken);
        true
    }

    /// Sends the text at hand without markup; `false` if it has none.
    fn without_markup(&mut self) -> bool {
        match self.steps.front_mut() {
            Some(
                Utterance::Send { plain, .. }
                | Utterance::Edit { plain, .. }
                | Utterance::Media { plain, .. },
            ) => !std::mem::replace(plain, true),
            _ => false,
        }
    }

    /// The topic is not there. General is the chat itself; any other is tried once more, because servers err here.
    fn fix_thread(&mut self) -> bool {
        if self.target.thread == Some(GENERAL) {
            self.target.thread = None;
            return true;
        }
        self.target.thread.is_some() && !std::mem::replace(&mut self.fixes.repeated_for_thread, true)
    }

    /// Edits the caption instead; what does not fit in it follows as messages.
    fn as_caption(&mut self) -> bool {
        let Some(Utterance::Edit {
            id,
            part,
            plain,
            caption: false,
        }) = self.steps.front()
        else {
            return false;
        };
        let (id, plain) = (*id, *plain);
        let mut parts = part.clone().split(CAPTION_CHARS).into_iter();
        let Some(part) = parts.next() else {
            return false;
        };
        self.steps.pop_front();
        for rest in parts.rev() {
            self.steps.push_front(Utterance::Send {
                part: rest,
                plain,
                keyboard: None,
            });
        }
        self.steps.push_front(Utterance::Edit {
            id,
            part,
            plain,
            caption: true,
        });
        true
    }

    /// Cuts the text at hand into smaller parts. A caption that is too long goes before its file.
    fn shorten(&mut self) -> bool {
        let part = match self.steps.front_mut() {
            Some(Utterance::Send { part, .. } | Utterance::Edit { part, .. }) => part,
            Some(Utterance::Media { caption, .. }) => {
                let Some(caption) = caption.take() else {
                    return false;
                };
                for send in sends(caption).into_iter().rev() {
                    self.steps.push_front(send);
                }
                self.forget_cut();
                return true;
            }
            _ => return false,
        };
        let limit = part.chars() / 2 + 1;
        let mut parts = part.clone().split(limit).into_iter();
        let first = parts.next().filter(|_| limit >= SHORTEST_PART && parts.len() > 0);
        let Some(first) = first else {
            return false;
        };
        *part = first;
        self.forget_cut();
        let Some(mut front) = self.steps.pop_front() else {
            return false;
        };
        let mut last = match &mut front {
            Utterance::Send { keyboard, .. } => keyboard.take(),
            _ => None,
        };
        for part in parts.rev() {
            self.steps.push_front(Utterance::Send {
                part,
                plain: false,
                keyboard: last.take(),
            });
        }
        self.steps.push_front(front);
        true
    }

    /// The number of parts differs from what a repetition would expect: it begins anew.
    fn forget_cut(&mut self) {
        match &mut self.end {
            SpeechEnd::Text(TextEnd { cut, .. }) | SpeechEnd::Media { cut } => *cut = None,
            _ => {}
        }
    }

    fn as_document(&mut self) -> bool {
        match self.steps.front_mut() {
            Some(Utterance::Media { method, .. }) if *method != DOCUMENT => {
                *method = DOCUMENT;
                true
            }
            _ => false,
        }
    }

    /// A message to edit is gone. A final text goes out as new messages, from this part on.
    fn replace(&mut self) -> bool {
        let SpeechEnd::Text(TextEnd { is_final: true, .. }) = self.end else {
            return false;
        };
        let Some(Utterance::Edit { id: gone, .. }) = self.steps.front() else {
            return false;
        };
        let gone = *gone;
        self.replaced = true;
        let mut left_over = Vec::new();
        for step in &mut self.steps {
            let part = match step {
                Utterance::Edit { id, part, .. } => {
                    left_over.push(*id);
                    part
                }
                Utterance::Keep { shown, part } => {
                    left_over.push(shown.id);
                    part
                }
                _ => continue,
            };
            *step = Utterance::Send {
                part: std::mem::take(part),
                plain: false,
                keyboard: None,
            };
        }
        left_over.retain(|id| *id != gone);
        if !left_over.is_empty() {
            self.steps.push_back(Utterance::Delete { ids: left_over });
        }
        true
    }

    /// Ends before everything was done; what was done is remembered.
    fn cut(&mut self, finished: SpeechStep, spoken: &mut Spoken) {
        let chat = self.target.chat;
        match &self.end {
            SpeechEnd::Text(TextEnd {
                edited: None,
                cut: Some(key),
                ..
            })
            | SpeechEnd::Media { cut: Some(key) } => {
                spoken.cut_short(*key, std::mem::take(&mut self.shown));
            }
            SpeechEnd::Text(TextEnd {
                edited: Some(id),
                has_buttons,
                ..
            }) => {
                let mut parts = std::mem::take(&mut self.shown);
                for step in &self.steps {
                    match step {
                        Utterance::Edit { id, .. } | Utterance::Rich { id: Some(id), .. } => {
                            parts.push(ShownPart::known(*id));
                        }
                        Utterance::Keep { shown, .. } => parts.push(*shown),
                        Utterance::Delete { ids } if !self.replaced => {
                            parts.extend(ids.iter().copied().map(ShownPart::known));
                        }
                        _ => {}
                    }
                }
                let has_buttons = *has_buttons;
                spoken.remember(chat, *id, ShownText { parts, has_buttons });
            }
            _ => {}
        }
        self.finished = Some(finished);
    }

    /// Everything was done.
    fn succeed(&mut self, spoken: &mut Spoken) -> OpResult {
        let mut result = OpResult {
            success: true,
            ..OpResult::default()
        };
        let chat = self.target.chat;
        let parts = std::mem::take(&mut self.shown);
        match &self.end {
            SpeechEnd::Text(end) => {
                let first = parts.first().map(|shown| shown.id);
                let last = parts.last().map(|shown| shown.id);
                let id = match end.edited {
                    Some(id) if self.replaced => {
                        spoken.forget(chat, id);
                        first
                    }
                    Some(id) => Some(id),
                    // A press names the message that has the buttons.
                    None if end.has_buttons => last,
                    None => first,
                };
                if let Some(id) = id.filter(|id| *id > 0) {
                    result.message_id = Some(id.to_string().into());
                    // An edit takes the buttons away.
                    let has_buttons = end.has_buttons && end.edited.is_none();
                    spoken.remember(chat, id, ShownText { parts, has_buttons });
                }
            }
            SpeechEnd::Media { .. } => {
                let id = parts.last().map(|shown| shown.id).filter(|id| *id > 0);
                result.message_id = id.map(|id| id.to_string().into());
            }
            SpeechEnd::Deleted { id } => {
                spoken.forget(chat, *id);
                result.message_id = Some(id.to_string().into());
            }
            SpeechEnd::ChatInfo => result.chat_info = Some(chat_info(&self.result)),
            SpeechEnd::TopicOpened { name } => {
                let thread = self.result.get("message_thread_id").and_then(Value::as_i64);
                if let Some(thread) = thread {
                    spoken.topic_opened(chat, thread, name);
                    result.thread_id = Some(thread.to_string().into());
                }
            }
            SpeechEnd::TopicNamed { thread, name } => spoken.topic_named(chat, *thread, name),
            SpeechEnd::Draft | SpeechEnd::Bare => {}
        }
        result
    }

    /// The call of a step, as things stand.
    fn call(&self, utterance: &Utterance) -> Option<Call> {
        let mut body = Map::new();
        body.insert("chat_id".to_owned(), self.target.chat.into());
        let mut file = None;
        let mut kind = CallKind::Speak;
        let method = match utterance {
            Utterance::Send {
                part,
                plain,
                keyboard,
            } => {
                put_text(&mut body, "text", part, *plain, MESSAGE_CHARS);
                body.insert("link_preview_options".to_owned(), json!({ "is_disabled": true }));
                self.put_place(&mut body);
                if let Some(keyboard) = keyboard {
                    body.insert("reply_markup".to_owned(), keyboard.clone());
                }
                "sendMessage"
            }
            Utterance::Edit {
                id,
                part,
                plain,
                caption,
            } => {
                body.insert("message_id".to_owned(), (*id).into());
                if let SpeechEnd::Text(TextEnd { for_show: true, .. }) = self.end {
                    kind = CallKind::Show;
                }
                if *caption {
                    put_text(&mut body, "caption", part, *plain, CAPTION_CHARS);
                    "editMessageCaption"
                } else {
                    put_text(&mut body, "text", part, *plain, MESSAGE_CHARS);
                    body.insert("link_preview_options".to_owned(), json!({ "is_disabled": true }));
                    "editMessageText"
                }
            }
            Utterance::Rich { id, markdown, .. } => {
                body.insert("rich_message".to_owned(), json!({ "markdown": markdown }));
                if let Some(id) = id {
                    body.insert("message_id".to_owned(), (*id).into());
                    "editMessageText"
                } else {
                    self.put_place(&mut body);
                    "sendRichMessage"
                }
            }
            Utterance::Media {
                method,
                caption,
                plain,
                source,
                name,
            } => {
                if let Some(caption) = caption {
                    put_text(&mut body, "caption", caption, *plain, CAPTION_CHARS);
                }
                if method.field == "video" {
                    body.insert("supports_streaming".to_owned(), true.into());
                }
                self.put_place(&mut body);
                file = Some(CallFile {
                    field: method.field,
                    source: source.clone(),
                    name: name.clone(),
                });
                method.name
            }
            Utterance::Delete { ids } => match ids.as_slice() {
                [id] => {
                    body.insert("message_id".to_owned(), (*id).into());
                    "deleteMessage"
                }
                ids => {
                    body.insert("message_ids".to_owned(), ids.into());
                    "deleteMessages"
                }
            },
            Utterance::Other {
                method,
                body: given,
                kind: own,
                in_thread,
            } => {
                body.extend(given.clone());
                if let Some(thread) = self.target.thread.filter(|_| *in_thread) {
                    body.insert("message_thread_id".to_owned(), thread.into());
                }
                kind = *own;
                method
            }
            Utterance::Keep { .. } => return None,
        };
        Some(Call {
            method,
            body,
            file,
            chat: self.target.chat,
            kind,
        })
    }

    /// Topic, anchor and notification of a new message. General is named by naming no topic.
    fn put_place(&self, body: &mut Map<String, Value>) {
        if let Some(thread) = self.target.thread.filter(|thread| *thread != GENERAL) {
            body.insert("message_thread_id".to_owned(), thread.into());
        }
        if let Some(anchor) = self.target.reply_to {
            let reply = json!({ "message_id": anchor, "allow_sending_without_reply": true });
            body.insert("reply_parameters".to_owned(), reply);
        }
        if self.target.silent {
            body.insert("disable_notification".to_owned(), true.into());
        }
    }
}

fn put_text(body: &mut Map<String, Value>, field: &str, part: &Styled, plain: bool, limit: usize) {
    if plain {
        body.insert(field.to_owned(), part.plain_text(limit).into());
    } else {
        body.insert(field.to_owned(), part.html().into());
        body.insert("parse_mode".to_owned(), "HTML".into());
    }
}

/// The answer to an op that the server refused.
fn refused(code: &str, error: &str) -> OpResult {
    OpResult {
        error: Some(error.into()),
        code: Some(code.into()),
        ..OpResult::default()
    }
}

/// The answer to an op that has to wait.
fn rate_limited(retry_after: Duration) -> OpResult {
    let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
    let error = format!("Too Many Requests: retry after {seconds}");
    OpResult {
        retry_after: Some(seconds.to_string().into()),
        ..refused("rate_limited", &error)
    }
}

/// The code of a fault that could not be fixed.
fn code_of(fault: ApiFault) -> &'static str {
    match fault {
        ApiFault::Refused(code) => code,
        ApiFault::NoThread => "topic_not_found",
        ApiFault::NoAnchor => "reply_not_found",
        ApiFault::NoMessage | ApiFault::NoText => "message_gone",
        ApiFault::Markup => "bad_markup",
        ApiFault::TooLong => "too_long",
        ApiFault::AsDocument => "bad_file",
        ApiFault::NoMethod | ApiFault::NoDrafts => "unsupported",
        ApiFault::Migrated(_) => "chat_moved",
        ApiFault::Later | ApiFault::Misdirected => "unavailable",
        ApiFault::Conflict => "conflict",
        ApiFault::Limited(_) => "rate_limited",
        ApiFault::Done | ApiFault::Unknown => "refused",
    }
}

/// A chat's name and the contract's type of it.
fn chat_info(chat: &Value) -> Value {
    let text = |key: &str| chat.get(key).and_then(Value::as_str).unwrap_or_default();
    let person = format!("{} {}", text("first_name"), text("last_name"));
    let name = [text("title"), person.trim(), text("username")]
        .into_iter()
        .find(|name| !name.is_empty());
    let is_forum = chat.get("is_forum").and_then(Value::as_bool) == Some(true);
    let kind = match text("type") {
        "private" => "dm",
        "supergroup" if is_forum => "forum",
        "channel" => "channel",
        _ => "group",
    };
    json!({ "name": name.unwrap_or_default(), "type": kind })
}

#[cfg(test)]
mod tests;
