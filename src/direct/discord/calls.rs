//! One op as a sequence of requests, and what follows from each answer.
//!
//! No I/O and no clock. Every message carries a nonce that its op and part determine, so that Discord recognises a repeat. Nobody is
//! notified by a mention in an answer, and links show no preview.

#![allow(
    clippy::result_large_err,
    reason = "the error is the result of the op, which every caller passes on"
)]

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::deferred::{DeferredAnswers, DeferredCommand};
use super::plan::{CallsEnd, PlannedRequest, RequestPlanner, snowflake, thread_of};
use super::request::{DiscordFault, RestAnswer, RestMethod, RestRequest};
use crate::collections::BoundedCache;
use crate::direct::field;
use crate::direct::flood::{CallKind, FloodRate, FloodRates};
use crate::text::printable;
use crate::wire::{Action, OpId, OpResult, Outcome};

/// Discord's rates: a message per second and channel, four at once; 40 requests per second in all.
pub const DISCORD_RATES: FloodRates = FloodRates {
    of_chat: |_| FloodRate::new(1_000, 5),
    of_all: FloodRate::new(25, 40),
};

/// Messages whose further parts are remembered.
const MAX_MESSAGES: usize = 4096;
/// Texts that were not sent to their end and are remembered.
const MAX_UNFINISHED: usize = 256;
/// How often, and how long, a request that shows no message waits for a limit of its route.
const MAX_PATIENCE: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest description of an error in a result, in characters.
const MAX_ERROR_CHARS: usize = 200;

/// A message that was sent.
#[derive(Clone, Debug, Default)]
struct SentParts {
    /// The ids of its parts.
    parts: Vec<String>,
    has_buttons: bool,
    /// The command that it belongs to.
    belongs_to: Option<DeferredCommand>,
}

/// A text that was not sent to its end.
#[derive(Clone, Debug)]
struct UnfinishedText {
    /// The op whose nonces go on, if an attempt may have sent more than is known.
    nonces: Option<OpId>,
    /// The ids of the parts that were sent.
    shown: Vec<String>,
    /// Whether the files of its album are sent one after the other.
    is_apart: bool,
}

/// What is remembered of messages that were sent.
#[derive(Debug)]
pub struct SentMessages {
    /// Messages, by the id of the first part.
    messages: BoundedCache<String, SentParts>,
    /// Texts that were not sent to their end, by a hash of the op: it is repeated under another id.
    unfinished: BoundedCache<u64, UnfinishedText>,
}

impl Default for SentMessages {
    fn default() -> Self {
        Self {
            messages: BoundedCache::new(MAX_MESSAGES),
            unfinished: BoundedCache::new(MAX_UNFINISHED),
        }
    }
}

impl SentMessages {
    /// Whether the message that an edit names has buttons.
    pub fn edits_buttons(&mut self, action: &Action) -> bool {
        match action {
            Action::Edit { message_id, .. } => self
                .messages
                .get(message_id.as_str())
                .is_some_and(|sent| sent.has_buttons),
            _ => false,
        }
    }

    /// The command that a message belongs to, while its token lives.
    fn belongs_to(&mut self, id: &str, now_ms: i64) -> Option<DeferredCommand> {
        let command = self.messages.get(id)?.belongs_to.as_ref();
        command.filter(|command| command.is_alive(now_ms)).cloned()
    }

    /// The parts of a message, by the id of the first.
    pub(super) fn parts(&mut self, id: &str) -> Vec<String> {
        self.messages
            .get(id)
            .map_or_else(|| vec![id.to_owned()], |sent| sent.parts.clone())
    }
}

/// Names a text, whatever the id of the op that sends it.
fn unfinished_key(channel: u64, action: &Action) -> Option<u64> {
    let (content, source) = match action {
        Action::Send { content, .. } => (content, ""),
        Action::Prompt {
            content, prompt_id, ..
        } => (content, prompt_id.as_str()),
        Action::SendMedia {
            content, source_url, ..
        } => (content, source_url.as_str()),
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    (channel, reply_of(action), content, source).hash(&mut hasher);
    Some(hasher.finish())
}

/// The message that a new message replies to.
fn reply_of(action: &Action) -> Option<&str> {
    match action {
        Action::Send { reply_to, .. }
        | Action::Prompt { reply_to, .. }
        | Action::SendMedia { reply_to, .. } => reply_to.as_deref(),
        _ => None,
    }
}

/// The state of an op that has ended.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "there is one per op")]
enum CallsEnded {
    Done(Outcome),
    NotSent,
}

/// One op as a sequence of requests.
#[derive(Debug)]
pub struct DiscordCalls {
    /// The op whose nonces the messages have, and whether they are those of an earlier attempt.
    op: OpId,
    has_earlier_nonces: bool,
    chat: i64,
    steps: VecDeque<PlannedRequest>,
    shown: Vec<String>,
    end: CallsEnd,
    result: Value,
    /// The text in [`SentMessages`], if it is a new one.
    key: Option<u64>,
    /// The command that the op answers first.
    claimed: Option<String>,
    answered_command: Option<String>,
    released_command: Option<String>,
    belongs_to: Option<DeferredCommand>,
    /// Limits of requests for show that are still waited for.
    patience: u32,
    /// Whether the files of its album are sent one after the other, the message that it edits was sent anew, and its thread was
    /// made to take edits.
    is_apart: bool,
    is_replaced: bool,
    is_unarchived: bool,
    ended: Option<CallsEnded>,
}

impl DiscordCalls {
    /// Begins an op; the error is its result.
    pub fn new(
        op: OpId,
        action: &Action,
        sent: &mut SentMessages,
        deferred: &mut DeferredAnswers,
        now_ms: i64,
    ) -> Result<Self, OpResult> {
        let chat = action.chat_id().unwrap_or_default();
        let channel = match thread_of(action) {
            Some(thread) => snowflake(&thread)?,
            None => snowflake(chat)?,
        };
        let reply_to = reply_of(action);
        let answers = reply_to.and_then(|reply_to| deferred.claim(op, reply_to, now_ms));
        let belongs_to = match action {
            Action::Edit { message_id, .. } => sent.belongs_to(message_id, now_ms),
            _ => reply_to.and_then(|reply_to| deferred.alive(reply_to, now_ms)),
        };
        if answers.is_none()
            && belongs_to.is_none()
            && reply_to.is_some_and(|reply_to| deferred.is_for_one(reply_to))
        {
            return Err(OpResult {
                is_permanent: true,
                ..refused("gone", "what is for one person alone cannot be sent any more")
            });
        }
        let key = unfinished_key(channel, action);
        let unfinished = key.and_then(|key| sent.unfinished.get(&key)).cloned();
        let claimed = answers.as_ref().map(|command| command.id.clone());
        let nonces = unfinished.as_ref().and_then(|unfinished| unfinished.nonces);
        let op = nonces.unwrap_or(op);
        let planner = RequestPlanner {
            op,
            channel,
            answers,
            belongs_to: belongs_to.clone(),
        };
        let plan = planner.plan(action, sent);
        if let (Err(_), Some(id)) = (&plan, &claimed) {
            deferred.release(id);
        }
        let (steps, end) = plan?;
        let mut calls = Self {
            op,
            has_earlier_nonces: nonces.is_some(),
            chat: i64::try_from(channel).unwrap_or_default(),
            steps,
            shown: Vec::new(),
            end,
            result: Value::Null,
            key,
            claimed,
            answered_command: None,
            released_command: None,
            belongs_to,
            patience: MAX_PATIENCE,
            is_apart: false,
            is_replaced: false,
            is_unarchived: false,
            ended: None,
        };
        if let Some(unfinished) = unfinished {
            calls.resume(unfinished);
        }
        calls.go_on(sent);
        Ok(calls)
    }

    /// Leaves out the parts that an earlier attempt at the same text has sent.
    fn resume(&mut self, unfinished: UnfinishedText) {
        if unfinished.is_apart {
            self.take_apart();
        }
        let texts = self.steps.iter().filter(|step| step.is_text).count();
        let mut left = unfinished.shown.len();
        if left >= texts {
            return;
        }
        while left > 0
            && let Some(step) = self.steps.pop_front()
        {
            left -= usize::from(step.is_text);
        }
        self.shown = unfinished.shown;
    }

    /// The channel that the op goes to.
    pub fn chat(&self) -> i64 {
        self.chat
    }

    /// The next request; `None` once the op has ended.
    pub fn request(&self) -> Option<&RestRequest> {
        let step = self.steps.front().filter(|_| self.ended.is_none());
        step.map(|step| &step.request)
    }

    /// The outcome of an op that has ended; `None` if its rest was not sent.
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.ended {
            Some(CallsEnded::Done(outcome)) => Some(outcome.clone()),
            Some(CallsEnded::NotSent) => None,
            None => Some(Outcome::Unknown),
        }
    }

    /// There was no room for a droppable request.
    pub fn dropped(&mut self, sent: &mut SentMessages) {
        let ended = match self.end {
            CallsEnd::Text { .. } => CallsEnded::NotSent,
            _ => CallsEnded::Done(done().into()),
        };
        self.end_early(ended, sent);
    }

    /// The server limits the chat, so the request was not made.
    pub fn limited(&mut self, retry_after: Duration, sent: &mut SentMessages) {
        let secs = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        let result = OpResult {
            retry_after: Some(secs.to_string().as_str().into()),
            ..refused("rate_limited", "Discord limits what is sent to this chat")
        };
        self.end_early(CallsEnded::Done(result.into()), sent);
    }

    /// The command that needs no answer any more.
    pub fn answered_command(&mut self) -> Option<String> {
        self.answered_command.take()
    }

    /// The command that the op has claimed and not answered: another op may.
    pub fn released_command(&mut self) -> Option<String> {
        self.released_command.take()
    }

    /// Takes an answer; returns the time to wait if the server limits the chat.
    pub fn answered(&mut self, answer: RestAnswer, sent: &mut SentMessages) -> Option<Duration> {
        match answer {
            RestAnswer::Ok(result) => self.done(result, sent),
            RestAnswer::NotSent(_) => self.end_early(CallsEnded::NotSent, sent),
            RestAnswer::Unknown => self.end_early(CallsEnded::Done(Outcome::Unknown), sent),
            RestAnswer::Error { status, code, .. } if status != 429 && self.falls_back(code) => {}
            RestAnswer::Error { status, .. } if status != 429 && self.is_optional() => {
                self.done(Value::Null, sent);
            }
            RestAnswer::Error {
                status,
                code,
                message,
                retry_after,
            } => match DiscordFault::of(status, code, retry_after) {
                DiscordFault::Limited(wait) => return self.must_wait(wait, sent),
                DiscordFault::Done => self.done(Value::Null, sent),
                DiscordFault::NoMessage if self.is_deletion() => self.done(Value::Null, sent),
                DiscordFault::NoMessage if self.replaces() => {}
                DiscordFault::NoMessage => self.refuse("message_not_found", &message, false, sent),
                DiscordFault::Temporary => self.end_early(CallsEnded::NotSent, sent),
                DiscordFault::Archived if self.unarchives() => {}
                DiscordFault::Archived => self.refuse("archived", &message, false, sent),
                DiscordFault::Refused { code, is_permanent } => {
                    self.refuse(code, &message, is_permanent, sent);
                }
            },
        }
        None
    }

    /// The server limits a route. Only a limit of messages holds up the chat; what is for show waits for a moment, or not at all.
    fn must_wait(&mut self, wait: Duration, sent: &mut SentMessages) -> Option<Duration> {
        let step = self.steps.front()?;
        if step.is_text {
            self.limited(wait, sent);
            return Some(wait);
        }
        if step.request.kind == CallKind::Droppable {
            self.dropped(sent);
        } else if wait <= PATIENCE && self.patience > 0 {
            // The limits of its route hold it back.
            self.patience -= 1;
        } else if matches!(self.end, CallsEnd::Text { .. }) {
            self.limited(wait, sent);
        } else {
            self.refuse("busy", "Discord takes no more of this for now", false, sent);
        }
        None
    }

    /// Makes another request in the place of one that was refused, if there is one.
    fn falls_back(&mut self, code: i64) -> bool {
        if self.take_apart() {
            return true;
        }
        let Some(step) = self.steps.front_mut() else {
            return false;
        };
        let is_forbidden = matches!(code, 50_001 | 50_013);
        let fallback = step
            .fallback
            .take_if(|fallback| is_forbidden || !fallback.only_if_forbidden);
        let Some(fallback) = fallback else {
            return false;
        };
        self.answered_command = step.request.command.take();
        step.request = *fallback.request;
        true
    }

    /// Sends the files of the current album one after the other; `false` if it is none.
    fn take_apart(&mut self) -> bool {
        let Some(album) = self.steps.pop_front_if(|step| !step.instead.is_empty()) else {
            return false;
        };
        self.answered_command = album.request.command;
        for step in album.instead.into_iter().rev() {
            self.steps.push_front(step);
        }
        self.is_apart = true;
        true
    }

    /// The message to edit is gone: its last text is sent as new messages from here on, and what is left of the old ones is deleted.
    fn replaces(&mut self) -> bool {
        if self.steps.front().is_none_or(|step| step.if_gone.is_none()) {
            return false;
        }
        let mut left_over = VecDeque::new();
        for step in &mut self.steps {
            if let Some(replacement) = step.if_gone.take() {
                *step = replacement.message;
                left_over.push_back(replacement.deletion);
            }
        }
        left_over.pop_front();
        self.steps.append(&mut left_over);
        self.is_replaced = true;
        true
    }

    /// Nothing in an archived thread can be edited: it is taken out of the archive, once, for a text that must arrive.
    fn unarchives(&mut self) -> bool {
        let is_due = |step: &PlannedRequest| step.is_text && step.request.kind == CallKind::Required;
        if self.is_unarchived || !self.steps.front().is_some_and(is_due) {
            return false;
        }
        self.steps.push_front(RequestPlanner::unarchive(self.chat));
        self.is_unarchived = true;
        true
    }

    fn is_optional(&self) -> bool {
        self.steps.front().is_some_and(|step| step.is_optional)
    }

    fn is_deletion(&self) -> bool {
        self.steps
            .front()
            .is_some_and(|step| step.request.method == RestMethod::Delete)
    }

    fn refuse(&mut self, code: &str, message: &str, is_permanent: bool, sent: &mut SentMessages) {
        let result = OpResult {
            is_permanent,
            ..refused(code, &printable(message, MAX_ERROR_CHARS))
        };
        self.end_early(CallsEnded::Done(result.into()), sent);
    }

    /// Ends the op before all requests were made. What was sent is remembered, so that a repeat goes on from there.
    fn end_early(&mut self, ended: CallsEnded, sent: &mut SentMessages) {
        let is_unknown = ended == CallsEnded::Done(Outcome::Unknown);
        match (&self.end, self.key) {
            (CallsEnd::Text { edited: Some(id), .. }, _) => {
                // What is left of a message that was replaced is no part of the new one.
                let steps = self.steps.iter().filter(|_| !self.is_replaced);
                let left = steps.filter_map(|step| step.shows.clone());
                let parts = self.shown.iter().cloned().chain(left).collect();
                let known = sent.messages.get(id).cloned().unwrap_or_default();
                let belongs_to = self.belongs_to.clone();
                sent.messages.insert(
                    id.clone(),
                    SentParts {
                        parts,
                        belongs_to,
                        ..known
                    },
                );
            }
            (CallsEnd::Text { edited: None, .. }, Some(key)) => {
                let nonces = Some(self.op).filter(|_| is_unknown || self.has_earlier_nonces);
                let unfinished = UnfinishedText {
                    nonces,
                    shown: self.shown.clone(),
                    is_apart: self.is_apart,
                };
                if nonces.is_some() || self.is_apart || !self.shown.is_empty() {
                    sent.unfinished.insert(key, unfinished);
                }
            }
            _ => {}
        }
        if !is_unknown {
            self.released_command = self.claimed.take();
        }
        self.ended = Some(ended);
    }

    fn done(&mut self, result: Value, sent: &mut SentMessages) {
        let Some(step) = self.steps.pop_front() else {
            return;
        };
        if let Some(command) = step.request.command {
            self.answered_command = Some(command);
        }
        if step.is_text {
            let id = field::text(&result, "id").map(str::to_owned);
            self.shown.extend(step.shows.or(id));
        }
        self.result = result;
        self.go_on(sent);
    }

    fn go_on(&mut self, sent: &mut SentMessages) {
        if !self.steps.is_empty() || self.ended.is_some() {
            return;
        }
        let text = |key: &str| field::text(&self.result, key);
        let result = match &self.end {
            CallsEnd::Text { edited, has_buttons } => {
                if let Some(key) = self.key {
                    sent.unfinished.remove(&key);
                }
                let kept = edited.clone().filter(|_| !self.is_replaced);
                let id = kept.or_else(|| self.shown.first().cloned());
                if let Some(id) = &id {
                    let message = SentParts {
                        parts: self.shown.clone(),
                        has_buttons: *has_buttons,
                        belongs_to: self.belongs_to.clone(),
                    };
                    sent.messages.insert(id.clone(), message);
                }
                OpResult {
                    message_id: id.map(|id| id.as_str().into()),
                    ..done()
                }
            }
            // Discord's answer that the thread exists has no id.
            CallsEnd::Thread { under } => OpResult {
                thread_id: text("id").or(under.as_deref()).map(Into::into),
                ..done()
            },
            CallsEnd::ChatInfo => {
                let kind = match field::integer(&self.result, "type") {
                    Some(1) => "dm",
                    Some(10..=12) => "thread",
                    _ => "group",
                };
                OpResult {
                    chat_info: Some(json!({ "name": text("name").unwrap_or_default(), "type": kind })),
                    ..done()
                }
            }
            CallsEnd::Bare => done(),
        };
        self.ended = Some(CallsEnded::Done(result.into()));
    }
}

fn done() -> OpResult {
    OpResult {
        success: true,
        ..OpResult::default()
    }
}

pub(super) fn refused(code: &str, error: &str) -> OpResult {
    OpResult {
        code: Some(code.into()),
        error: Some(error.into()),
        ..OpResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::flood::CallKind;

    fn begin(op: Value, sent: &mut SentMessages) -> Result<DiscordCalls, OpResult> {
        let mut deferred = DeferredAnswers::default();
        answering(op, sent, &mut deferred)
    }

    fn answering(
        op: Value,
        sent: &mut SentMessages,
        deferred: &mut DeferredAnswers,
    ) -> Result<DiscordCalls, OpResult> {
        answering_as(7, op, sent, deferred)
    }

    /// The same as an op with this id.
    fn answering_as(
        id: u128,
        op: Value,
        sent: &mut SentMessages,
        deferred: &mut DeferredAnswers,
    ) -> Result<DiscordCalls, OpResult> {
        DiscordCalls::new(OpId(id), &serde_json::from_value(op).unwrap(), sent, deferred, 0)
    }

    fn again(id: u128, op: Value, sent: &mut SentMessages) -> DiscordCalls {
        answering_as(id, op, sent, &mut DeferredAnswers::default()).unwrap()
    }

    /// The next request, and the text in it.
    fn next(calls: &DiscordCalls) -> (RestMethod, String, String) {
        let request = calls.request().unwrap();
        let text = request
            .body
            .as_ref()
            .map(|body| body["content"].as_str().unwrap_or_default());
        (
            request.method,
            request.path.clone(),
            text.unwrap_or_default().to_owned(),
        )
    }

    fn sent_as(id: &str) -> RestAnswer {
        RestAnswer::Ok(json!({ "id": id }))
    }

    fn limit(secs: u64) -> RestAnswer {
        RestAnswer::Error {
            status: 429,
            code: 0,
            message: "slow down".to_owned(),
            retry_after: Some(Duration::from_secs(secs)),
        }
    }

    /// The result of an op that was refused.
    fn refusal(calls: &DiscordCalls) -> OpResult {
        match calls.outcome() {
            Some(Outcome::Refused { result, .. }) => result,
            other => panic!("{other:?}"),
        }
    }

    fn result(calls: &DiscordCalls) -> OpResult {
        match calls.outcome() {
            Some(Outcome::Applied(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_thread_is_opened_under_the_message_that_is_named() {
        let mut sent = SentMessages::default();
        let under = "channels/5/messages/3/threads";
        for (message, metadata, path, kind) in [
            (json!("3"), json!({}), under, Value::Null),
            (json!("3"), json!({"message_id": "4"}), under, Value::Null),
            (Value::Null, json!({"message_id": "3"}), under, Value::Null),
            (Value::Null, json!({}), "channels/5/threads", json!(11)),
        ] {
            let op = json!({"op": "thread_create", "chat_id": "5", "thread_name": "plans", "metadata": metadata,
                "message_id": message});
            let mut calls = begin(op, &mut sent).unwrap();
            let request = calls.request().unwrap().clone();
            let body = request.body.unwrap();
            assert_eq!((request.path.as_str(), &body["type"]), (path, &kind));
            assert_eq!(body["name"], "plans");
            calls.answered(RestAnswer::Ok(json!({"id": "3"})), &mut sent);
            assert_eq!(result(&calls).thread_id, Some("3".into()));
        }
    }

    #[test]
    fn a_thread_that_is_there_already_has_the_id_of_its_message() {
        let mut sent = SentMessages::default();
        let op = json!({"op": "thread_create", "chat_id": "5", "thread_name": "plans", "message_id": "3"});
        let mut calls = begin(op, &mut sent).unwrap();
        let there = RestAnswer::Error {
            status: 400,
            code: 160_004,
            message: "A thread has already been created for this message".to_owned(),
            retry_after: None,
        };
        calls.answered(there, &mut sent);
        let result = result(&calls);
        assert_eq!((result.success, result.thread_id), (true, Some("3".into())));
    }

    #[test]
    fn a_text_is_sent_in_parts_with_nonces_and_edited_as_one() {
        let mut sent = SentMessages::default();
        let long = "word ".repeat(600);
        let mut calls = begin(
            json!({"op": "send", "chat_id": "5", "content": long, "reply_to": "3"}),
            &mut sent,
        )
        .unwrap();
        let first = calls.request().unwrap().clone();
        let body = first.body.unwrap();
        assert_eq!(
            (first.path.as_str(), &body["enforce_nonce"]),
            ("channels/5/messages", &json!(true))
        );
        assert_eq!(
            (&body["allowed_mentions"], &body["flags"]),
            (&json!({"parse": []}), &json!(4))
        );
        assert_eq!(body["message_reference"]["message_id"], "3");
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        let second = calls.request().unwrap().body.clone().unwrap();
        assert_ne!(second["nonce"], body["nonce"]);
        calls.answered(RestAnswer::Ok(json!({"id": "11"})), &mut sent);
        assert_eq!(result(&calls).message_id, Some("10".into()));
        let mut calls = begin(
            json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "x"}),
            &mut sent,
        )
        .unwrap();
        assert_eq!(calls.request().unwrap().method, RestMethod::Patch);
        assert_eq!(calls.request().unwrap().kind, CallKind::Droppable);
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        assert_eq!(calls.request().unwrap().path, "channels/5/messages/11");
        assert_eq!(calls.request().unwrap().method, RestMethod::Delete);
    }

    #[test]
    fn only_an_edit_with_the_last_text_must_be_made() {
        for (metadata, kind) in [
            (json!({}), CallKind::Droppable),
            (json!({"notify": true}), CallKind::Required),
            (json!({"notify": false}), CallKind::Required),
        ] {
            let op = json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "x", "metadata": metadata});
            let calls = begin(op, &mut SentMessages::default()).unwrap();
            assert_eq!(calls.request().unwrap().kind, kind, "{metadata}");
        }
    }

    #[test]
    fn a_repeat_has_the_same_nonce() {
        let nonce = || {
            let calls = begin(
                json!({"op": "send", "chat_id": "5", "content": "x"}),
                &mut SentMessages::default(),
            );
            calls.unwrap().request().unwrap().body.clone().unwrap()["nonce"].clone()
        };
        assert_eq!(nonce(), nonce());
        assert_eq!(nonce().as_str().unwrap().len(), 24);
    }

    #[test]
    fn a_repeat_goes_on_behind_the_parts_that_were_sent() {
        for ended in [
            limit(3),
            RestAnswer::NotSent(String::new()),
            RestAnswer::Unknown,
            error(400, 0),
        ] {
            let mut sent = SentMessages::default();
            let op =
                || json!({"op": "send", "chat_id": "5", "content": "word ".repeat(600), "reply_to": "3"});
            let mut calls = begin(op(), &mut sent).unwrap();
            calls.answered(sent_as("10"), &mut sent);
            let second = calls.request().unwrap().clone();
            let is_unknown = ended == RestAnswer::Unknown;
            calls.answered(ended, &mut sent);
            let mut calls = again(8, op(), &mut sent);
            let repeated = calls.request().unwrap().clone();
            let content = |request: &RestRequest| request.body.as_ref().unwrap()["content"].clone();
            assert_eq!(content(&repeated), content(&second));
            let nonce = |request: &RestRequest| request.body.as_ref().unwrap()["nonce"].clone();
            assert_eq!(nonce(&repeated) == nonce(&second), is_unknown, "it may be there");
            calls.answered(sent_as("11"), &mut sent);
            assert_eq!(result(&calls).message_id, Some("10".into()));
            assert_eq!(sent.parts("10"), ["10", "11"]);
            // The same text once more is another one.
            let calls = again(9, op(), &mut sent);
            assert_ne!(content(calls.request().unwrap()), content(&second));
        }
    }

    #[test]
    fn files_that_were_sent_one_after_the_other_are_not_sent_again() {
        let file = |name: &str| {
            json!({"media_kind": "image", "source_url": format!("telegram://outgoing/{name}/x"), "filename": name,
                "instead": format!("(could not deliver {name})")})
        };
        let op = || {
            json!({"op": "send_media", "chat_id": "5", "media_kind": "image", "content": "look",
                "source_url": "telegram://outgoing/a/x", "filename": "a", "metadata": {"album": [file("a"), file("b")]}})
        };
        let mut sent = SentMessages::default();
        let mut calls = begin(op(), &mut sent).unwrap();
        calls.answered(error(413, 40_005), &mut sent);
        calls.answered(sent_as("10"), &mut sent);
        calls.answered(limit(3), &mut sent);
        let calls = again(8, op(), &mut sent);
        let files = &calls.request().unwrap().files;
        assert_eq!((files.len(), files[0].name.as_deref()), (1, Some("b")));
    }

    #[test]
    fn an_edit_that_ends_early_knows_its_messages() {
        let mut sent = SentMessages::default();
        let edit = |words: usize| {
            json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "word ".repeat(words),
                "metadata": {"notify": true}})
        };
        let mut calls = begin(edit(900), &mut sent).unwrap();
        calls.answered(sent_as("10"), &mut sent);
        calls.answered(sent_as("11"), &mut sent);
        calls.answered(limit(3), &mut sent);
        assert_eq!(sent.parts("10"), ["10", "11"]);
        // What was to be deleted is still there.
        let mut calls = again(8, edit(1), &mut sent);
        calls.answered(sent_as("10"), &mut sent);
        assert_eq!(calls.request().unwrap().method, RestMethod::Delete);
        calls.answered(RestAnswer::NotSent(String::new()), &mut sent);
        assert_eq!(sent.parts("10"), ["10", "11"]);
    }

    #[test]
    fn the_last_text_of_a_message_that_is_gone_is_sent_as_a_new_one() {
        let mut sent = SentMessages::default();
        let op = json!({"op": "send", "chat_id": "5", "content": "word ".repeat(600)});
        let mut calls = begin(op, &mut sent).unwrap();
        calls.answered(sent_as("10"), &mut sent);
        calls.answered(sent_as("11"), &mut sent);
        let edit = |metadata: Value| json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "done ".repeat(600), "metadata": metadata});
        let mut calls = begin(edit(json!({})), &mut sent).unwrap();
        calls.answered(error(404, 10_008), &mut sent);
        let refused = refusal(&calls);
        assert_eq!(
            (refused.code, refused.is_permanent),
            (Some("message_not_found".into()), false)
        );
        let mut calls = begin(edit(json!({"notify": true})), &mut sent).unwrap();
        calls.answered(error(404, 10_008), &mut sent);
        for id in ["20", "21"] {
            let (method, path, text) = next(&calls);
            assert_eq!((method, path.as_str()), (RestMethod::Post, "channels/5/messages"));
            assert!(text.starts_with("done"), "{text}");
            calls.answered(sent_as(id), &mut sent);
        }
        let (method, path, _) = next(&calls);
        assert_eq!(
            (method, path.as_str()),
            (RestMethod::Delete, "channels/5/messages/11")
        );
        calls.answered(error(403, 50_013), &mut sent);
        assert_eq!(result(&calls).message_id, Some("20".into()));
        assert_eq!(sent.parts("20"), ["20", "21"]);
    }

    #[test]
    fn an_archived_thread_is_opened_once_for_a_text_that_must_arrive() {
        let mut sent = SentMessages::default();
        let edit = |metadata: Value| json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "x", "metadata": metadata});
        let mut calls = begin(edit(json!({})), &mut sent).unwrap();
        calls.answered(error(400, 50_083), &mut sent);
        assert!(!refusal(&calls).is_permanent);
        let mut calls = begin(edit(json!({"notify": true})), &mut sent).unwrap();
        let first = next(&calls);
        calls.answered(error(400, 50_083), &mut sent);
        let request = calls.request().unwrap().clone();
        assert_eq!(
            (request.method, request.path.as_str()),
            (RestMethod::Patch, "channels/5")
        );
        assert_eq!(request.body, Some(json!({ "archived": false })));
        calls.answered(RestAnswer::Ok(json!({"id": "5"})), &mut sent);
        assert_eq!(next(&calls), first);
        calls.answered(error(400, 50_083), &mut sent);
        assert_eq!(refusal(&calls).code, Some("archived".into()));
    }

    #[test]
    fn a_refusal_is_not_final_unless_the_chat_is_closed() {
        let mut sent = SentMessages::default();
        for (status, code, is_permanent) in [(413, 40_005, false), (403, 50_013, false), (403, 50_007, true)]
        {
            let op = json!({"op": "send", "chat_id": "5", "content": "x"});
            let mut calls = begin(op, &mut sent).unwrap();
            calls.answered(error(status, code), &mut sent);
            assert_eq!(refusal(&calls).is_permanent, is_permanent, "{code}");
        }
        let op = json!({"op": "prompt", "chat_id": "5", "content": "ok?", "prompt_kind": "approval", "prompt_id": "abc",
            "options": []});
        assert!(!begin(op, &mut sent).unwrap_err().is_permanent);
    }

    #[test]
    fn a_limit_of_reactions_does_not_hold_up_the_chat() {
        let mut sent = SentMessages::default();
        let react =
            || json!({"op": "react", "chat_id": "5", "message_id": "3", "emoji": "x", "remove": false});
        let mut calls = begin(react(), &mut sent).unwrap();
        assert_eq!(calls.answered(limit(20), &mut sent), None);
        let refused = refusal(&calls);
        assert_eq!((refused.is_permanent, refused.rate_limited()), (false, None));
        // A short one is waited for, a few times.
        let mut calls = begin(react(), &mut sent).unwrap();
        for _ in 0..MAX_PATIENCE {
            assert_eq!(calls.answered(limit(1), &mut sent), None);
            assert!(calls.request().is_some());
        }
        calls.answered(limit(1), &mut sent);
        assert_eq!(calls.request(), None);
        let mut calls = begin(json!({"op": "typing", "chat_id": "5"}), &mut sent).unwrap();
        assert_eq!(calls.answered(limit(20), &mut sent), None);
        assert!(result(&calls).success);
    }

    #[test]
    fn a_question_has_buttons_and_its_edit_removes_them() {
        let mut sent = SentMessages::default();
        let op = json!({"op": "prompt", "chat_id": "5", "content": "ok?", "prompt_kind": "approval", "prompt_id": "abc",
            "options": [{"id": "yes", "label": "Yes", "style": "success"}, {"id": "no", "label": "No"}]});
        let mut calls = begin(op, &mut sent).unwrap();
        let rows = &calls.request().unwrap().body.as_ref().unwrap()["components"];
        assert_eq!(rows[0]["components"][0]["custom_id"], "hp1:abc:yes");
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        let edit = json!({"op": "edit", "chat_id": "5", "message_id": "10", "content": "done"});
        let calls = begin(edit, &mut sent).unwrap();
        let request = calls.request().unwrap();
        assert_eq!(
            (request.kind, &request.body.as_ref().unwrap()["components"]),
            (CallKind::Required, &json!([]))
        );
    }

    #[test]
    fn refusals_and_limits_are_results() {
        let mut sent = SentMessages::default();
        let op = || json!({"op": "send", "chat_id": "5", "content": "x"});
        let mut calls = begin(op(), &mut sent).unwrap();
        let error = |status, code, wait: Option<u64>| RestAnswer::Error {
            status,
            code,
            message: "no".to_owned(),
            retry_after: wait.map(Duration::from_secs),
        };
        assert_eq!(
            calls.answered(error(429, 0, Some(3)), &mut sent),
            Some(Duration::from_secs(3))
        );
        assert!(
            matches!(calls.outcome(), Some(Outcome::Refused { result, .. }) if result.rate_limited().is_some())
        );
        let mut calls = begin(op(), &mut sent).unwrap();
        calls.answered(error(403, 50_013, None), &mut sent);
        assert!(
            matches!(calls.outcome(), Some(Outcome::Refused { result, .. }) if result.code == Some("no_permission".into()))
        );
        let mut calls = begin(op(), &mut sent).unwrap();
        calls.answered(RestAnswer::Unknown, &mut sent);
        assert_eq!(calls.outcome(), Some(Outcome::Unknown));
        let mut calls = begin(op(), &mut sent).unwrap();
        calls.answered(RestAnswer::NotSent(String::new()), &mut sent);
        assert_eq!(calls.outcome(), None);
        assert!(
            begin(
                json!({"op": "send", "chat_id": "../x", "content": "x"}),
                &mut sent
            )
            .is_err()
        );
    }

    #[test]
    fn an_op_for_a_thread_goes_to_the_thread() {
        let op = json!({"op": "send", "chat_id": "5", "content": "x", "metadata": {"thread_id": "6"}});
        let calls = begin(op, &mut SentMessages::default()).unwrap();
        assert_eq!(calls.request().unwrap().path, "channels/6/messages");
    }

    #[test]
    fn many_answers_are_menus() {
        let options: Vec<Value> = (0..30)
            .map(|number| json!({"id": format!("o{number}"), "label": "x"}))
            .collect();
        let op = json!({"op": "prompt", "chat_id": "5", "content": "ok?", "prompt_kind": "clarify", "prompt_id": "abc",
            "options": options});
        let calls = begin(op, &mut SentMessages::default()).unwrap();
        let rows = &calls.request().unwrap().body.as_ref().unwrap()["components"];
        assert_eq!(rows.as_array().unwrap().len(), 2);
        let menu = &rows[1]["components"][0];
        assert_eq!(
            (&menu["type"], &menu["custom_id"]),
            (&json!(3), &json!("hp1:abc:menu1"))
        );
        assert_eq!(menu["options"][4]["value"], "hp1:abc:o29");
    }

    #[test]
    fn a_file_is_uploaded_with_its_caption_and_a_link_is_shown() {
        let media = |source: &str| {
            let op = json!({"op": "send_media", "chat_id": "5", "media_kind": "image", "source_url": source, "content": "look",
                "filename": "x.png", "metadata": {"thread_id": "6"}});
            let calls = begin(op, &mut SentMessages::default()).unwrap();
            calls.request().unwrap().clone()
        };
        let request = media("telegram://outgoing/abc/x.png");
        assert_eq!(request.path, "channels/6/messages");
        assert_eq!(request.files[0].name.as_deref(), Some("x.png"));
        let body = request.body.unwrap();
        assert_eq!(
            (&body["content"], &body["enforce_nonce"]),
            (&json!("look"), &json!(true))
        );
        let request = media("https://files.example/x.png");
        let body = request.body.unwrap();
        assert_eq!((request.files.len(), body.get("flags")), (0, None));
        assert!(
            body["content"]
                .as_str()
                .unwrap()
                .contains("https://files.example/x.png"),
            "{body}"
        );
    }

    #[test]
    fn an_album_is_one_message_and_falls_back_to_its_files_and_their_names() {
        let file = |name: &str| {
            json!({"media_kind": "image", "source_url": format!("telegram://outgoing/{name}/x"), "filename": name,
                "instead": format!("(could not deliver {name})")})
        };
        let op = json!({"op": "send_media", "chat_id": "5", "media_kind": "image", "content": "look", "reply_to": "3",
            "source_url": "telegram://outgoing/a/x", "filename": "a", "metadata": {"album": [file("a"), file("b")]}});
        let mut sent = SentMessages::default();
        let mut calls = begin(op, &mut sent).unwrap();
        let shown = |calls: &DiscordCalls| {
            let request = calls.request().unwrap();
            let names: Vec<_> = request
                .files
                .iter()
                .filter_map(|file| file.name.clone())
                .collect();
            let body = request.body.as_ref().unwrap();
            (names.join("+"), body["content"].as_str().unwrap().to_owned())
        };
        let refusal = || RestAnswer::Error {
            status: 413,
            code: 40_005,
            message: "too large".to_owned(),
            retry_after: None,
        };
        assert_eq!(shown(&calls), ("a+b".to_owned(), "look".to_owned()));
        calls.answered(refusal(), &mut sent);
        assert_eq!(shown(&calls), ("a".to_owned(), "look".to_owned()));
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        assert_eq!(shown(&calls), ("b".to_owned(), String::new()));
        calls.answered(refusal(), &mut sent);
        assert_eq!(shown(&calls), (String::new(), "(could not deliver b)".to_owned()));
        calls.answered(RestAnswer::Ok(json!({"id": "11"})), &mut sent);
        assert_eq!(result(&calls).message_id, Some("10".into()));
    }

    #[test]
    fn the_first_message_replaces_the_placeholder_of_a_command() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(command());
        let op = || json!({"op": "send", "chat_id": "5", "content": "x", "reply_to": "interaction-70"});
        let mut sent = SentMessages::default();
        let mut calls = answering(op(), &mut sent, &mut deferred).unwrap();
        let request = calls.request().unwrap();
        assert_eq!(
            (request.method, request.path.as_str()),
            (RestMethod::Patch, "webhooks/8/tok/messages/@original")
        );
        assert_eq!(request.body.as_ref().unwrap().get("nonce"), None);
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        assert_eq!(calls.answered_command().as_deref(), Some("70"));
        assert_eq!(result(&calls).message_id, Some("10".into()));
        // The token has died: a message of its own.
        let mut calls = answering(op(), &mut sent, &mut deferred).unwrap();
        let gone = RestAnswer::Error {
            status: 404,
            code: 10_015,
            message: "Unknown Webhook".to_owned(),
            retry_after: None,
        };
        calls.answered(gone, &mut sent);
        assert_eq!(calls.answered_command().as_deref(), Some("70"));
        let request = calls.request().unwrap();
        assert_eq!(
            (request.method, request.path.as_str()),
            (RestMethod::Post, "channels/5/messages")
        );
        assert_eq!(request.body.as_ref().unwrap()["enforce_nonce"], true);
        assert_eq!(request.body.as_ref().unwrap().get("message_reference"), None);
    }

    fn command() -> DeferredCommand {
        DeferredCommand {
            id: "70".to_owned(),
            token: "tok".to_owned(),
            application: "8".to_owned(),
            chat: "5".to_owned(),
            ..DeferredCommand::default()
        }
    }

    fn error(status: u16, code: i64) -> RestAnswer {
        RestAnswer::Error {
            status,
            code,
            message: "no".to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn where_the_bot_may_not_write_the_token_of_the_command_answers() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(command());
        deferred.over("70");
        let mut sent = SentMessages::default();
        let more = |now_ms, sent: &mut SentMessages, deferred: &mut DeferredAnswers| {
            let op = json!({"op": "send", "chat_id": "5", "content": "more", "reply_to": "interaction-70"});
            DiscordCalls::new(
                OpId(8),
                &serde_json::from_value(op).unwrap(),
                sent,
                deferred,
                now_ms,
            )
            .unwrap()
        };
        let path = |calls: &DiscordCalls| calls.request().map(|request| request.path.clone());
        let mut calls = more(0, &mut sent, &mut deferred);
        assert_eq!(path(&calls).as_deref(), Some("channels/5/messages"));
        calls.answered(error(403, 50_001), &mut sent);
        assert_eq!(path(&calls).as_deref(), Some("webhooks/8/tok"));
        assert_eq!(calls.request().unwrap().body.as_ref().unwrap().get("nonce"), None);
        calls.answered(RestAnswer::Ok(json!({"id": "11"})), &mut sent);
        let edit = json!({"op": "edit", "chat_id": "5", "message_id": "11", "content": "better"});
        let mut calls = answering(edit, &mut sent, &mut deferred).unwrap();
        calls.answered(error(403, 50_013), &mut sent);
        assert_eq!(path(&calls).as_deref(), Some("webhooks/8/tok/messages/11"));
        // Another error is one, and a token does not live for ever.
        for (now_ms, code) in [(0, 50_035), (15 * 60 * 1000, 50_001)] {
            let mut calls = more(now_ms, &mut sent, &mut deferred);
            calls.answered(error(403, code), &mut sent);
            assert_eq!(path(&calls), None);
        }
    }

    #[test]
    fn what_is_for_the_author_alone_follows_once_the_placeholder_is_gone() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(command());
        deferred.keep_private("70");
        let mut sent = SentMessages::default();
        let op = json!({"op": "send", "chat_id": "5", "content": "no", "reply_to": "interaction-70"});
        let mut calls = answering(op, &mut sent, &mut deferred).unwrap();
        let request = calls.request().unwrap().clone();
        assert_eq!(
            (request.method, request.path.as_str(), request.command.as_deref()),
            (
                RestMethod::Delete,
                "webhooks/8/tok/messages/@original",
                Some("70")
            )
        );
        // A repeat: it is gone already.
        calls.answered(error(404, 10_008), &mut sent);
        let request = calls.request().unwrap().clone();
        assert_eq!(
            (request.method, request.path.as_str()),
            (RestMethod::Post, "webhooks/8/tok")
        );
        let body = request.body.unwrap();
        assert_eq!(
            (&body["flags"], body.get("enforce_nonce"), &body["content"]),
            (&json!(68), None, &json!("no"))
        );
        calls.answered(RestAnswer::Ok(json!({"id": "12"})), &mut sent);
        assert_eq!(result(&calls).message_id, Some("12".into()));
    }

    #[test]
    fn a_repeat_under_another_id_answers_the_same_command() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(command());
        let mut sent = SentMessages::default();
        let op = || json!({"op": "send", "chat_id": "5", "content": "x", "reply_to": "interaction-70"});
        for (id, ended) in [
            (7, limit(3)),
            (8, RestAnswer::NotSent(String::new())),
            (9, limit(3)),
        ] {
            let mut calls = answering_as(id, op(), &mut sent, &mut deferred).unwrap();
            assert_eq!(next(&calls).1, "webhooks/8/tok/messages/@original", "{id}");
            calls.answered(ended, &mut sent);
            assert_eq!(calls.answered_command(), None);
            deferred.release(&calls.released_command().unwrap());
        }
        // It may be there: nothing else takes its place.
        let mut calls = answering_as(10, op(), &mut sent, &mut deferred).unwrap();
        calls.answered(RestAnswer::Unknown, &mut sent);
        assert_eq!(calls.released_command(), None);
    }

    #[test]
    fn what_is_for_the_author_alone_is_never_a_message_for_all() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(command());
        deferred.keep_private("70");
        let mut sent = SentMessages::default();
        let op = || json!({"op": "send", "chat_id": "5", "content": "no ".repeat(900), "reply_to": "interaction-70"});
        let is_private = |calls: &DiscordCalls| {
            let request = calls.request().unwrap();
            assert_eq!(
                (request.method, request.path.as_str()),
                (RestMethod::Post, "webhooks/8/tok")
            );
            request.body.as_ref().unwrap()["flags"] == 68
        };
        let mut calls = answering_as(7, op(), &mut sent, &mut deferred).unwrap();
        calls.answered(RestAnswer::Ok(Value::Null), &mut sent);
        deferred.over(&calls.answered_command().unwrap());
        assert!(is_private(&calls));
        calls.answered(limit(3), &mut sent);
        deferred.release(&calls.released_command().unwrap());
        // The placeholder is gone, and every part follows in private.
        let mut calls = answering_as(8, op(), &mut sent, &mut deferred).unwrap();
        assert!(is_private(&calls));
        calls.answered(sent_as("12"), &mut sent);
        assert!(is_private(&calls));
        // Its token has died.
        calls.answered(error(404, 10_015), &mut sent);
        assert_eq!(refusal(&calls).code, Some("refused".into()));
        let action = serde_json::from_value(op()).unwrap();
        let late = DiscordCalls::new(OpId(9), &action, &mut sent, &mut deferred, 15 * 60 * 1000);
        assert_eq!(late.unwrap_err().code, Some("gone".into()));
    }

    #[test]
    fn a_file_alone_replaces_the_placeholder_too() {
        let mut deferred = DeferredAnswers::default();
        deferred.came(DeferredCommand {
            id: "70".to_owned(),
            token: "tok".to_owned(),
            application: "8".to_owned(),
            chat: "5".to_owned(),
            ..DeferredCommand::default()
        });
        let op = json!({"op": "send_media", "chat_id": "5", "media_kind": "voice", "content": "", "filename": "a.ogg",
            "source_url": "telegram://outgoing/a/a.ogg", "reply_to": "interaction-70"});
        let mut sent = SentMessages::default();
        let mut calls = answering(op, &mut sent, &mut deferred).unwrap();
        let request = calls.request().unwrap();
        assert_eq!(
            (request.method, request.path.as_str()),
            (RestMethod::Patch, "webhooks/8/tok/messages/@original")
        );
        assert_eq!((request.files.len(), request.files[0].is_voice), (1, false));
        calls.answered(RestAnswer::Ok(json!({"id": "10"})), &mut sent);
        assert_eq!(calls.answered_command().as_deref(), Some("70"));
        assert_eq!(result(&calls).message_id, Some("10".into()));
    }

    #[test]
    fn a_command_takes_no_reaction() {
        let op = json!({"op": "react", "chat_id": "5", "message_id": "interaction-70", "emoji": "x",
            "remove": false});
        let calls = begin(op, &mut SentMessages::default()).unwrap();
        assert_eq!(calls.request(), None);
        assert!(result(&calls).message_id.is_none());
    }
}
