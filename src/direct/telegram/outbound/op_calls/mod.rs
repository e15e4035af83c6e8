//! One op as a sequence of calls, and what follows from each answer.
//!
//! No I/O and no clock. The driver asks for the next step, makes the call when the flood budget admits it, and reports the
//! answer. An answer that names a fixable fault changes the call and repeats it; every fix is applied once.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::cache::{OutboundCache, ShownPart, ShownText, content_hash};
use super::fault::ApiFault;
use super::plan::{
    DOCUMENT, MediaMethod, OpEnd, OpPlan, OpRefusal, OpTarget, PlannedCall, TextEnd, plan, sends,
};
use crate::direct::flood::CallKind;
use crate::direct::telegram::call::{ApiAnswer, Call, CallFile};
use crate::direct::telegram::callback::CallbackKey;
use crate::direct::telegram::chat::{chat_name, chat_type};
use crate::direct::telegram::text::{CAPTION_CHARS, MESSAGE_CHARS, RichMessages};
use crate::direct::telegram::topics::GENERAL_TOPIC;
use crate::direct::text::{Styled, render};
use crate::text::printable;
use crate::wire::{Action, AlbumFile, OpResult, Outcome};

/// Longest description of an error in a result, in characters.
const MAX_ERROR_CHARS: usize = 200;
/// Shortest part that a text which is too long for the server is cut into.
const SHORTEST_PART: usize = 128;

/// The next step of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum OpStep {
    /// Make this call.
    Call(Call),
    /// The op has ended with this outcome.
    Done(Outcome),
    /// The op has ended early: the rest was not sent, and may be sent again.
    NotSent,
}

/// A fact that an answer reveals beside the outcome of its op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A group became a supergroup.
    Migrated {
        /// The id of the group.
        from: i64,
        /// The id of the supergroup.
        to: i64,
    },
    /// The server limits the rate of calls to a chat.
    Limited {
        /// The limited chat.
        chat: i64,
        /// The time that the server asks to wait.
        retry_after: Duration,
    },
    /// The bot cannot send to a chat any more. Once for each reason, until something reaches the chat again.
    Closed {
        /// The closed chat.
        chat: i64,
        /// The code of the reason.
        reason: &'static str,
    },
    /// The server did not understand our markup: our own fault.
    MarkupRefused,
    /// The server refused a rich message; its text is sent as formatted text.
    RichRefused,
    /// The server has no rich messages.
    NoRich,
}

/// Fixes that were applied to the current call.
#[derive(Clone, Copy, Debug, Default)]
struct Fixes {
    repeated_for_thread: bool,
    redirected: bool,
}

/// One op as a sequence of calls.
#[derive(Debug)]
pub struct OpCalls {
    target: OpTarget,
    steps: VecDeque<PlannedCall>,
    shown: Vec<ShownPart>,
    end: OpEnd,
    fixes: Fixes,
    migrated: bool,
    /// Whether messages were sent in place of some that were gone.
    replaced: bool,
    /// The latest result of the server.
    result: Value,
    finished: Option<OpStep>,
}

impl OpCalls {
    /// Begins an op. The error is the op's result: it is refused without a call.
    pub fn new(action: &Action, keys: &CallbackKey, cache: &mut OutboundCache) -> Result<Self, OpRefusal> {
        let OpPlan {
            target,
            steps,
            shown,
            end,
        } = plan(action, keys, cache)?;
        let mut calls = Self {
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
        calls.go_on(cache);
        Ok(calls)
    }

    /// The chat that the op goes to.
    pub fn chat(&self) -> i64 {
        self.target.chat
    }

    /// The next step. It stays the same until an answer is reported.
    pub fn step(&self) -> OpStep {
        if let Some(finished) = &self.finished {
            return finished.clone();
        }
        let call = self.steps.front().and_then(|planned| self.call(planned));
        call.map_or(OpStep::Done(Outcome::Unknown), OpStep::Call)
    }

    /// The flood budget has no room for a droppable call. An indicator counts as done, a text as not sent.
    pub fn dropped(&mut self, cache: &mut OutboundCache) {
        if let OpEnd::Text(_) | OpEnd::Media { .. } = self.end {
            return self.end_early(OpStep::NotSent, cache);
        }
        let done = OpResult {
            success: true,
            ..OpResult::default()
        };
        self.end_early(OpStep::Done(done.into()), cache);
    }

    /// The server limits the chat, so the call was not made.
    pub fn limited(&mut self, retry_after: Duration, cache: &mut OutboundCache) {
        let result = rate_limited(retry_after);
        self.end_early(OpStep::Done(result.into()), cache);
    }

    /// Takes the answer to the call.
    pub fn answered(&mut self, answer: ApiAnswer, cache: &mut OutboundCache) -> Option<Observation> {
        if self.finished.is_some() {
            return None;
        }
        match answer {
            ApiAnswer::Ok(result) => {
                self.done(result, cache);
                None
            }
            ApiAnswer::NotSent(_) => {
                self.end_early(OpStep::NotSent, cache);
                None
            }
            ApiAnswer::Unknown => {
                self.end_early(OpStep::Done(Outcome::Unknown), cache);
                None
            }
            ApiAnswer::Error {
                code,
                description,
                retry_after,
                migrate_to,
            } => {
                let fault = ApiFault::of(code, &description, retry_after, migrate_to);
                self.fault(fault, &description, cache)
            }
        }
    }

    /// The call succeeded: goes on to the next one.
    fn done(&mut self, result: Value, cache: &mut OutboundCache) {
        self.fixes = Fixes::default();
        cache.chat_open(self.target.chat);
        let id = result
            .get("message_id")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        self.result = result;
        match self.steps.pop_front() {
            Some(PlannedCall::Send { part, plain, .. }) => {
                self.target.reply_to = None;
                let content = (!plain).then(|| content_hash(&part));
                self.shown.push(ShownPart { id, content });
            }
            Some(PlannedCall::Media { .. }) => self.shown.push(ShownPart::known(id)),
            Some(PlannedCall::Album { .. }) => {
                let sent = self.result.as_array().map_or(&[][..], Vec::as_slice);
                let ids = sent
                    .iter()
                    .filter_map(|message| message.get("message_id")?.as_i64());
                self.shown.extend(ids.map(ShownPart::known));
            }
            Some(PlannedCall::Rich { id: edited, .. }) => {
                self.target.reply_to = None;
                self.shown.push(ShownPart::known(edited.unwrap_or(id)));
            }
            Some(PlannedCall::Edit { id, part, plain, .. }) => {
                let content = (!plain).then(|| content_hash(&part));
                self.shown.push(ShownPart { id, content });
            }
            Some(PlannedCall::Keep { .. } | PlannedCall::Delete { .. } | PlannedCall::Other { .. })
            | None => {}
        }
        self.go_on(cache);
    }

    /// Skips messages that stay as they are, and ends the op when no call is left.
    fn go_on(&mut self, cache: &mut OutboundCache) {
        while let Some(PlannedCall::Keep { shown, .. }) = self.steps.front() {
            self.shown.push(*shown);
            self.steps.pop_front();
        }
        if self.steps.is_empty() && self.finished.is_none() {
            let result = self.succeed(cache);
            self.finished = Some(OpStep::Done(result.into()));
        }
    }

    fn fault(
        &mut self,
        fault: ApiFault,
        description: &str,
        cache: &mut OutboundCache,
    ) -> Option<Observation> {
        let chat = self.target.chat;
        match fault {
            ApiFault::Done => self.done(Value::Null, cache),
            ApiFault::Limited(retry_after) => {
                self.limited(retry_after, cache);
                return Some(Observation::Limited { chat, retry_after });
            }
            ApiFault::Unknown => self.end_early(OpStep::Done(Outcome::Unknown), cache),
            ApiFault::Misdirected if !self.fixes.redirected => self.fixes.redirected = true,
            ApiFault::Misdirected => self.end_early(OpStep::NotSent, cache),
            ApiFault::Migrated(to) if !self.migrated => {
                self.migrated = true;
                cache.chat_moved(chat, to);
                self.target.chat = to;
                return Some(Observation::Migrated { from: chat, to });
            }
            fault if fault.is_about_rich() && self.without_rich(cache) => {
                if fault == ApiFault::NoMethod {
                    cache.use_rich(RichMessages::Never);
                    return Some(Observation::NoRich);
                }
                return Some(Observation::RichRefused);
            }
            fault if fault.is_about_files() && self.without_album() => {}
            ApiFault::Markup => {
                if !self.without_markup() {
                    let result = refused("bad_markup", &printable(description, MAX_ERROR_CHARS));
                    self.end_early(OpStep::Done(result.into()), cache);
                }
                return Some(Observation::MarkupRefused);
            }
            ApiFault::NoThread if self.fix_thread() => {}
            ApiFault::NoAnchor if self.target.reply_to.take().is_some() => {}
            ApiFault::NoText if self.as_caption() => {}
            ApiFault::TooLong if self.shorten() => {}
            ApiFault::AsDocument if self.as_document() => {}
            ApiFault::NoMessage if self.replace() => {}
            fault if fault.is_about_files() && self.without_file() => {}
            fault => {
                let code = code_of(fault);
                match (&self.end, fault) {
                    (OpEnd::Draft, ApiFault::NoMethod) => cache.no_drafts(),
                    (OpEnd::Draft, ApiFault::NoDrafts) => cache.no_drafts_in(chat),
                    _ => {}
                }
                let result = OpResult {
                    is_permanent: fault.is_permanent(),
                    ..refused(code, &printable(description, MAX_ERROR_CHARS))
                };
                self.end_early(OpStep::Done(result.into()), cache);
                if let (OpEnd::Text(TextEnd { edited: Some(id), .. }), ApiFault::NoMessage) =
                    (&self.end, fault)
                {
                    cache.forget(chat, *id);
                }
                if fault.closes_chat() && cache.chat_closed(chat, code) {
                    return Some(Observation::Closed { chat, reason: code });
                }
            }
        }
        None
    }

    /// Sends the current rich message as formatted text; `false` if the current call sends no rich message.
    fn without_rich(&mut self, cache: &mut OutboundCache) -> bool {
        let Some(PlannedCall::Rich {
            markdown, instead, ..
        }) = self.steps.front_mut()
        else {
            return false;
        };
        cache.rich_refused(markdown);
        self.steps = std::mem::take(instead);
        self.go_on(cache);
        true
    }

    /// Sends the files of the current album one after the other; `false` if the current call sends no album.
    fn without_album(&mut self) -> bool {
        let Some(PlannedCall::Album { instead, .. }) = self.steps.front_mut() else {
            return false;
        };
        let mut singles = std::mem::take(instead);
        self.steps.pop_front();
        singles.append(&mut self.steps);
        self.steps = singles;
        true
    }

    /// Tells of a file of an album that cannot be sent, and goes on with the next one.
    fn without_file(&mut self) -> bool {
        let Some(PlannedCall::Media { instead, .. }) = self.steps.front_mut() else {
            return false;
        };
        // It is one short message, so that a repeated attempt still counts what was sent.
        let mut notice = sends(render(&instead.take().unwrap_or_default()));
        let Some(notice) = notice.pop_front() else {
            return false;
        };
        self.steps.pop_front();
        self.steps.push_front(notice);
        true
    }

    /// Sends the current text without markup; `false` if it has none.
    fn without_markup(&mut self) -> bool {
        match self.steps.front_mut() {
            Some(
                PlannedCall::Send { plain, .. }
                | PlannedCall::Edit { plain, .. }
                | PlannedCall::Media { plain, .. }
                | PlannedCall::Album { plain, .. },
            ) => !std::mem::replace(plain, true),
            _ => false,
        }
    }

    /// The topic was not found. General is the chat itself; any other topic is tried once more, because servers err here.
    fn fix_thread(&mut self) -> bool {
        if self.target.thread == Some(GENERAL_TOPIC) {
            self.target.thread = None;
            return true;
        }
        self.target.thread.is_some() && !std::mem::replace(&mut self.fixes.repeated_for_thread, true)
    }

    /// Edits the caption instead; text beyond its limit follows as messages.
    fn as_caption(&mut self) -> bool {
        let Some(PlannedCall::Edit {
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
            self.steps.push_front(PlannedCall::Send {
                part: rest,
                plain,
                keyboard: None,
            });
        }
        self.steps.push_front(PlannedCall::Edit {
            id,
            part,
            plain,
            caption: true,
        });
        true
    }

    /// Cuts the current text into smaller parts. A caption that is too long goes before its file.
    fn shorten(&mut self) -> bool {
        let part = match self.steps.front_mut() {
            Some(PlannedCall::Send { part, .. } | PlannedCall::Edit { part, .. }) => part,
            Some(PlannedCall::Media { caption, .. }) => {
                let Some(caption) = caption.take() else {
                    return false;
                };
                for send in sends(caption).into_iter().rev() {
                    self.steps.push_front(send);
                }
                self.forbid_resume();
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
        self.forbid_resume();
        let Some(mut front) = self.steps.pop_front() else {
            return false;
        };
        let mut last = match &mut front {
            PlannedCall::Send { keyboard, .. } => keyboard.take(),
            _ => None,
        };
        for part in parts.rev() {
            self.steps.push_front(PlannedCall::Send {
                part,
                plain: false,
                keyboard: last.take(),
            });
        }
        self.steps.push_front(front);
        true
    }

    /// A repeated attempt would plan another number of parts, so it must not resume this one.
    fn forbid_resume(&mut self) {
        match &mut self.end {
            OpEnd::Text(TextEnd { resume_key, .. }) | OpEnd::Media { resume_key } => *resume_key = None,
            _ => {}
        }
    }

    fn as_document(&mut self) -> bool {
        match self.steps.front_mut() {
            Some(PlannedCall::Media { method, .. }) if *method != DOCUMENT => {
                *method = DOCUMENT;
                true
            }
            _ => false,
        }
    }

    /// A message to edit is gone. The last text is sent as new messages, from this part on.
    fn replace(&mut self) -> bool {
        let OpEnd::Text(TextEnd { must_show: true, .. }) = self.end else {
            return false;
        };
        let Some(PlannedCall::Edit { id: gone, .. }) = self.steps.front() else {
            return false;
        };
        let gone = *gone;
        self.replaced = true;
        let mut left_over = Vec::new();
        for step in &mut self.steps {
            let part = match step {
                PlannedCall::Edit { id, part, .. } => {
                    left_over.push(*id);
                    part
                }
                PlannedCall::Keep { shown, part } => {
                    left_over.push(shown.id);
                    part
                }
                _ => continue,
            };
            *step = PlannedCall::Send {
                part: std::mem::take(part),
                plain: false,
                keyboard: None,
            };
        }
        left_over.retain(|id| *id != gone);
        if !left_over.is_empty() {
            self.steps.push_back(PlannedCall::Delete { ids: left_over });
        }
        true
    }

    /// Ends the op before all calls were made; the cache keeps the parts that were sent.
    fn end_early(&mut self, finished: OpStep, cache: &mut OutboundCache) {
        let chat = self.target.chat;
        match &self.end {
            OpEnd::Text(TextEnd {
                edited: None,
                resume_key: Some(key),
                ..
            })
            | OpEnd::Media {
                resume_key: Some(key),
            } => {
                cache.sent_in_part(*key, std::mem::take(&mut self.shown));
            }
            OpEnd::Text(TextEnd {
                edited: Some(id),
                has_buttons,
                ..
            }) => {
                let mut parts = std::mem::take(&mut self.shown);
                for step in &self.steps {
                    match step {
                        PlannedCall::Edit { id, .. } | PlannedCall::Rich { id: Some(id), .. } => {
                            parts.push(ShownPart::known(*id));
                        }
                        PlannedCall::Keep { shown, .. } => parts.push(*shown),
                        PlannedCall::Delete { ids } if !self.replaced => {
                            parts.extend(ids.iter().copied().map(ShownPart::known));
                        }
                        _ => {}
                    }
                }
                let has_buttons = *has_buttons;
                cache.remember(chat, *id, ShownText { parts, has_buttons });
            }
            _ => {}
        }
        self.finished = Some(finished);
    }

    /// All calls succeeded: the result of the op.
    fn succeed(&mut self, cache: &mut OutboundCache) -> OpResult {
        let mut result = OpResult {
            success: true,
            ..OpResult::default()
        };
        let chat = self.target.chat;
        let parts = std::mem::take(&mut self.shown);
        match &self.end {
            OpEnd::Text(end) => {
                let first = parts.first().map(|shown| shown.id);
                let last = parts.last().map(|shown| shown.id);
                let id = match end.edited {
                    Some(id) if self.replaced => {
                        cache.forget(chat, id);
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
                    cache.remember(chat, id, ShownText { parts, has_buttons });
                }
            }
            OpEnd::Media { .. } => {
                let id = parts.last().map(|shown| shown.id).filter(|id| *id > 0);
                result.message_id = id.map(|id| id.to_string().into());
            }
            OpEnd::Deleted { id } => {
                cache.forget(chat, *id);
                result.message_id = Some(id.to_string().into());
            }
            OpEnd::ChatInfo => result.chat_info = Some(chat_info(&self.result)),
            OpEnd::TopicOpened { name } => {
                let thread = self.result.get("message_thread_id").and_then(Value::as_i64);
                if let Some(thread) = thread {
                    cache.topic_opened(chat, thread, name);
                    result.thread_id = Some(thread.to_string().into());
                }
            }
            OpEnd::TopicNamed { thread, name } => cache.topic_named(chat, *thread, name),
            OpEnd::Draft | OpEnd::Bare => {}
        }
        result
    }

    /// The call of a step, with the target and fixes as they are now.
    fn call(&self, planned: &PlannedCall) -> Option<Call> {
        let mut body = Map::new();
        body.insert("chat_id".to_owned(), self.target.chat.into());
        let mut files = Vec::new();
        let mut kind = CallKind::Required;
        let method = match planned {
            PlannedCall::Send {
                part,
                plain,
                keyboard,
            } => {
                put_message_text(&mut body, part, *plain);
                self.put_place(&mut body);
                if let Some(keyboard) = keyboard {
                    body.insert("reply_markup".to_owned(), keyboard.clone());
                }
                "sendMessage"
            }
            PlannedCall::Edit {
                id,
                part,
                plain,
                caption,
            } => {
                body.insert("message_id".to_owned(), (*id).into());
                if let OpEnd::Text(TextEnd {
                    is_droppable: true, ..
                }) = self.end
                {
                    kind = CallKind::Droppable;
                }
                if *caption {
                    put_text(&mut body, "caption", part, *plain, CAPTION_CHARS);
                    "editMessageCaption"
                } else {
                    put_message_text(&mut body, part, *plain);
                    "editMessageText"
                }
            }
            PlannedCall::Rich { id, markdown, .. } => {
                body.insert("rich_message".to_owned(), json!({ "markdown": markdown }));
                if let Some(id) = id {
                    body.insert("message_id".to_owned(), (*id).into());
                    "editMessageText"
                } else {
                    self.put_place(&mut body);
                    "sendRichMessage"
                }
            }
            PlannedCall::Media {
                method,
                caption,
                plain,
                source,
                name,
                ..
            } => {
                put_caption(&mut body, *method, caption.as_ref(), *plain);
                self.put_place(&mut body);
                files.push(CallFile {
                    field: method.field,
                    source: source.clone(),
                    name: name.clone(),
                });
                method.name
            }
            PlannedCall::Album {
                files: album,
                caption,
                plain,
                ..
            } => {
                let list = put_album(album, caption.as_ref(), *plain, &mut files);
                body.insert("media".to_owned(), list.into());
                self.put_place(&mut body);
                "sendMediaGroup"
            }
            PlannedCall::Delete { ids } => put_deleted(&mut body, ids),
            PlannedCall::Other {
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
            PlannedCall::Keep { .. } => return None,
        };
        Some(Call {
            method,
            body,
            files,
            chat: self.target.chat,
            kind,
        })
    }

    /// Adds topic, reply and notification of a new message. A message to General names no topic.
    fn put_place(&self, body: &mut Map<String, Value>) {
        if let Some(thread) = self.target.thread.filter(|thread| *thread != GENERAL_TOPIC) {
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

/// Adds the text of a message, without a preview of its links.
fn put_message_text(body: &mut Map<String, Value>, part: &Styled, plain: bool) {
    put_text(body, "text", part, plain, MESSAGE_CHARS);
    body.insert("link_preview_options".to_owned(), json!({ "is_disabled": true }));
}

/// Adds the caption of a file.
fn put_caption(body: &mut Map<String, Value>, method: MediaMethod, caption: Option<&Styled>, plain: bool) {
    if let Some(caption) = caption {
        put_text(body, "caption", caption, plain, CAPTION_CHARS);
    }
    if method.field == "video" {
        body.insert("supports_streaming".to_owned(), true.into());
    }
}

/// Adds the files of an album; returns how they are shown. The first one has the caption.
fn put_album(
    album: &[AlbumFile],
    caption: Option<&Styled>,
    plain: bool,
    files: &mut Vec<CallFile>,
) -> Vec<Value> {
    let mut list = Vec::new();
    for file in album {
        let mut item = Map::new();
        let kind = MediaMethod::of(&file.media_kind).field;
        item.insert("type".to_owned(), kind.into());
        if let Some(caption) = caption.filter(|_| list.is_empty()) {
            put_text(&mut item, "caption", caption, plain, CAPTION_CHARS);
        }
        list.push(Value::Object(item));
        files.push(CallFile {
            field: "media",
            source: file.source_url.clone(),
            name: file.filename.clone(),
        });
    }
    list
}

/// Adds the messages to delete; returns the method.
fn put_deleted(body: &mut Map<String, Value>, ids: &[i64]) -> &'static str {
    match ids {
        [id] => {
            body.insert("message_id".to_owned(), (*id).into());
            "deleteMessage"
        }
        ids => {
            body.insert("message_ids".to_owned(), ids.into());
            "deleteMessages"
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

/// The result of an op that the server refused.
fn refused(code: &str, error: &str) -> OpResult {
    OpResult {
        error: Some(error.into()),
        code: Some(code.into()),
        ..OpResult::default()
    }
}

/// The result of an op that has to wait.
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

/// A chat's name and its type in the contract's words.
fn chat_info(chat: &Value) -> Value {
    json!({ "name": chat_name(chat), "type": chat_type(chat) })
}

#[cfg(test)]
mod tests;
