//! One op as a sequence of requests, and what follows from each answer.
//!
//! No I/O and no clock. Every message carries a nonce that its op and part determine, so that Discord recognises a repeat. Nobody is
//! notified by a mention in an answer, and links show no preview.

#![allow(
    clippy::result_large_err,
    reason = "the error is the result of the op, which every caller passes on"
)]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::markup::discord_parts;
use super::request::{DiscordFault, RestAnswer, RestMethod, RestRequest};
use crate::collections::BoundedCache;
use crate::direct::field;
use crate::direct::flood::{CallKind, FloodRate, FloodRates};
use crate::text::{one_line, printable, truncate};
use crate::wire::{Action, Metadata, OpId, OpResult, Outcome, PromptButton};

/// Discord's rates: a message per second and channel, four at once; 40 requests per second in all.
pub const DISCORD_RATES: FloodRates = FloodRates {
    of_chat: |_| FloodRate::new(1_000, 5),
    of_all: FloodRate::new(25, 40),
};

/// Messages whose further parts are remembered.
const MAX_MESSAGES: usize = 4096;
/// Longest name of a thread, and longest label of a button, in characters.
const MAX_THREAD_NAME: usize = 100;
const MAX_LABEL: usize = 80;
/// Buttons of a message, and of a row.
const MAX_BUTTONS: usize = 25;
const ROW: usize = 5;
/// Longest `custom_id`.
const MAX_CUSTOM_ID: usize = 100;
/// Links show no preview.
const SUPPRESS_EMBEDS: u64 = 4;
/// Longest description of an error in a result, in characters.
const MAX_ERROR_CHARS: usize = 200;
/// The mark of a running turn: it may be missing.
const RUNNING: &str = "\u{1f440}";

/// A message that was sent.
#[derive(Clone, Debug, Default)]
struct SentParts {
    /// The ids of its parts.
    parts: Vec<String>,
    has_buttons: bool,
}

/// What is remembered of messages that were sent, by the id of the first part.
#[derive(Debug)]
pub struct SentMessages(BoundedCache<String, SentParts>);

impl Default for SentMessages {
    fn default() -> Self {
        Self(BoundedCache::new(MAX_MESSAGES))
    }
}

impl SentMessages {
    /// Whether the message that an edit names has buttons.
    pub fn edits_buttons(&mut self, action: &Action) -> bool {
        match action {
            Action::Edit { message_id, .. } => self.0.get(message_id).is_some_and(|sent| sent.has_buttons),
            _ => false,
        }
    }

    fn parts(&mut self, id: &str) -> Vec<String> {
        self.0
            .get(&id.to_owned())
            .map_or_else(|| vec![id.to_owned()], |sent| sent.parts.clone())
    }
}

/// What the result of the op is made of.
#[derive(Clone, Debug, PartialEq)]
enum CallsEnd {
    /// A text with the ids of its parts; the message that is edited, if it is an edit.
    Text {
        edited: Option<String>,
        has_buttons: bool,
    },
    /// A thread was opened.
    Thread,
    /// The chat was described.
    ChatInfo,
    /// Nothing else.
    Bare,
}

#[derive(Clone, Debug, PartialEq)]
struct PlannedRequest {
    request: RestRequest,
    /// The message that it shows, if it is known before.
    shows: Option<String>,
    /// Whether it shows a message.
    is_text: bool,
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
    chat: i64,
    steps: VecDeque<PlannedRequest>,
    shown: Vec<String>,
    end: CallsEnd,
    result: Value,
    ended: Option<CallsEnded>,
}

impl DiscordCalls {
    /// Begins an op; the error is its result.
    pub fn new(op: OpId, action: &Action, sent: &mut SentMessages) -> Result<Self, OpResult> {
        let chat = action.chat_id().unwrap_or_default();
        let channel = match thread_of(action) {
            Some(thread) => snowflake(&thread)?,
            None => snowflake(chat)?,
        };
        let planner = RequestPlanner { op, channel };
        let (steps, end) = planner.plan(action, sent)?;
        let mut calls = Self {
            chat: i64::try_from(channel).unwrap_or_default(),
            steps,
            shown: Vec::new(),
            end,
            result: Value::Null,
            ended: None,
        };
        calls.go_on(sent);
        Ok(calls)
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
    pub fn dropped(&mut self) {
        self.ended = Some(match self.end {
            CallsEnd::Text { .. } => CallsEnded::NotSent,
            _ => CallsEnded::Done(done().into()),
        });
    }

    /// The server limits the chat, so the request was not made.
    pub fn limited(&mut self, retry_after: Duration) {
        let secs = retry_after.as_secs() + 1;
        let result = OpResult {
            retry_after: Some(secs.to_string().as_str().into()),
            ..refused("rate_limited", "Discord limits what is sent to this chat")
        };
        self.ended = Some(CallsEnded::Done(result.into()));
    }

    /// Takes an answer; returns the time to wait if the server limits the chat.
    pub fn answered(&mut self, answer: RestAnswer, sent: &mut SentMessages) -> Option<Duration> {
        match answer {
            RestAnswer::Ok(result) => self.done(result, sent),
            RestAnswer::NotSent(_) => self.ended = Some(CallsEnded::NotSent),
            RestAnswer::Unknown => self.ended = Some(CallsEnded::Done(Outcome::Unknown)),
            RestAnswer::Error {
                status,
                code,
                message,
                retry_after,
            } => match DiscordFault::of(status, code, retry_after) {
                DiscordFault::Limited(wait) => {
                    self.limited(wait);
                    return Some(wait);
                }
                DiscordFault::Done => self.done(Value::Null, sent),
                DiscordFault::NoMessage if self.is_deletion() => self.done(Value::Null, sent),
                DiscordFault::NoMessage => self.refuse("message_not_found", &message, true),
                DiscordFault::Temporary => self.ended = Some(CallsEnded::NotSent),
                DiscordFault::Archived => self.refuse("archived", &message, true),
                DiscordFault::Refused { code, is_final } => self.refuse(code, &message, is_final),
            },
        }
        None
    }

    fn is_deletion(&self) -> bool {
        self.steps
            .front()
            .is_some_and(|step| step.request.method == RestMethod::Delete)
    }

    fn refuse(&mut self, code: &str, message: &str, is_final: bool) {
        let result = OpResult {
            is_final,
            ..refused(code, &printable(message, MAX_ERROR_CHARS))
        };
        self.ended = Some(CallsEnded::Done(result.into()));
    }

    fn done(&mut self, result: Value, sent: &mut SentMessages) {
        let Some(step) = self.steps.pop_front() else {
            return;
        };
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
                let id = edited.clone().or_else(|| self.shown.first().cloned());
                if let Some(id) = &id {
                    let message = SentParts {
                        parts: self.shown.clone(),
                        has_buttons: *has_buttons,
                    };
                    sent.0.insert(id.clone(), message);
                }
                OpResult {
                    message_id: id.map(|id| id.as_str().into()),
                    ..done()
                }
            }
            CallsEnd::Thread => OpResult {
                thread_id: text("id").map(Into::into),
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

type RequestPlan = (VecDeque<PlannedRequest>, CallsEnd);

struct RequestPlanner {
    op: OpId,
    channel: u64,
}

impl RequestPlanner {
    fn plan(&self, action: &Action, sent: &mut SentMessages) -> Result<RequestPlan, OpResult> {
        match action {
            Action::Send {
                content, reply_to, ..
            } => self.text(content, reply_to.as_deref(), None),
            Action::Prompt {
                content,
                prompt_id,
                options,
                reply_to,
                ..
            } => self.text(content, reply_to.as_deref(), Some(&buttons(prompt_id, options)?)),
            Action::Edit {
                message_id,
                content,
                metadata,
                ..
            } => {
                let buttons = sent.edits_buttons(action);
                self.edit(
                    message_id,
                    &sent.parts(message_id),
                    content,
                    is_final(metadata) || buttons,
                )
            }
            Action::Typing { content, .. } => {
                if content.as_deref() == Some("") {
                    // Discord ends the indicator by itself.
                    return Ok((VecDeque::new(), CallsEnd::Bare));
                }
                Ok(self.single(RestMethod::Post, "typing", "typing", None, CallKind::Droppable))
            }
            Action::Delete { message_id, .. } => {
                let parts = sent.parts(message_id);
                let steps = parts.iter().map(|id| self.delete(id)).collect::<Result<_, _>>()?;
                Ok((steps, CallsEnd::Bare))
            }
            Action::React {
                message_id,
                emoji,
                remove,
                ..
            } => {
                let method = if *remove {
                    RestMethod::Delete
                } else {
                    RestMethod::Put
                };
                let id = snowflake(message_id)?;
                let path = format!("messages/{id}/reactions/{}/@me", percent(emoji));
                let kind = if emoji == RUNNING && !remove {
                    CallKind::Droppable
                } else {
                    CallKind::Required
                };
                Ok(self.single(method, &path, "reactions", None, kind))
            }
            Action::GetChatInfo { .. } => {
                let (steps, _) = self.single(RestMethod::Get, "", "channel", None, CallKind::Required);
                Ok((steps, CallsEnd::ChatInfo))
            }
            Action::ThreadCreate { thread_name, .. } => {
                let body =
                    json!({ "name": thread_title(thread_name)?, "type": 11, "auto_archive_duration": 1440 });
                let (steps, _) = self.single(
                    RestMethod::Post,
                    "threads",
                    "threads",
                    Some(body),
                    CallKind::Required,
                );
                Ok((steps, CallsEnd::Thread))
            }
            Action::ThreadRename {
                message_id,
                thread_name,
                only_if_connector_created,
                only_if_current_name,
                ..
            } => {
                if only_if_connector_created == &Some(true) || only_if_current_name.is_some() {
                    return Err(refused(
                        "unsupported",
                        "this bot does not know who named the thread",
                    ));
                }
                let body = json!({ "name": thread_title(thread_name)? });
                let thread = Self {
                    op: self.op,
                    channel: snowflake(message_id)?,
                };
                Ok(thread.single(RestMethod::Patch, "", "channel", Some(body), CallKind::Required))
            }
            Action::SendMedia { .. } => Err(refused("unsupported", "this bot sends no files")),
            Action::Draft { .. } => Err(refused("unsupported", "Discord has no drafts")),
            Action::TaskCard { .. } | Action::TaskCardStop { .. } => {
                Err(refused("unsupported", "Discord has no progress cards"))
            }
            Action::FollowUp { .. } => Err(refused("unsupported", "this bot keeps no interactions")),
        }
    }

    fn request(
        &self,
        method: RestMethod,
        rest: &str,
        route: &str,
        body: Option<Value>,
        kind: CallKind,
    ) -> RestRequest {
        let slash = if rest.is_empty() { "" } else { "/" };
        RestRequest {
            method,
            path: format!("channels/{}{slash}{rest}", self.channel),
            route: format!("{method:?} {route} {}", self.channel),
            body,
            chat: i64::try_from(self.channel).unwrap_or_default(),
            kind,
        }
    }

    fn single(
        &self,
        method: RestMethod,
        rest: &str,
        route: &str,
        body: Option<Value>,
        kind: CallKind,
    ) -> RequestPlan {
        let step = PlannedRequest {
            request: self.request(method, rest, route, body, kind),
            shows: None,
            is_text: false,
        };
        (VecDeque::from([step]), CallsEnd::Bare)
    }

    fn delete(&self, id: &str) -> Result<PlannedRequest, OpResult> {
        let rest = format!("messages/{}", snowflake(id)?);
        Ok(PlannedRequest {
            request: self.request(RestMethod::Delete, &rest, "delete", None, CallKind::Required),
            shows: None,
            is_text: false,
        })
    }

    fn send(&self, part: &str, number: usize) -> Map<String, Value> {
        let digest = Sha256::digest(format!("{}:{number}", self.op));
        let nonce = in_hex("", digest.into_iter().take(12));
        let body = json!({
            "content": part,
            "nonce": nonce,
            "enforce_nonce": true,
            "flags": SUPPRESS_EMBEDS,
            "allowed_mentions": { "parse": [] },
        });
        body.as_object().cloned().unwrap_or_default()
    }

    fn text(
        &self,
        content: &str,
        reply_to: Option<&str>,
        buttons: Option<&Value>,
    ) -> Result<RequestPlan, OpResult> {
        let parts = discord_parts(content);
        let last = parts.len().saturating_sub(1);
        let has_buttons = buttons.is_some();
        let mut steps = VecDeque::new();
        for (at, part) in parts.iter().enumerate() {
            let mut body = self.send(part, at);
            if let (0, Some(Ok(id))) = (at, reply_to.map(str::parse::<u64>)) {
                let reference = json!({ "message_id": id.to_string(), "fail_if_not_exists": false });
                body.insert("message_reference".to_owned(), reference);
            }
            if let Some(rows) = buttons.filter(|_| at == last) {
                body.insert("components".to_owned(), rows.clone());
            }
            steps.push_back(PlannedRequest {
                request: self.request(
                    RestMethod::Post,
                    "messages",
                    "messages",
                    Some(body.into()),
                    CallKind::Required,
                ),
                shows: None,
                is_text: true,
            });
        }
        if steps.is_empty() {
            return Err(refused("empty", "there is no text to send"));
        }
        let end = CallsEnd::Text {
            edited: None,
            has_buttons,
        };
        Ok((steps, end))
    }

    fn edit(
        &self,
        id: &str,
        known: &[String],
        content: &str,
        is_final: bool,
    ) -> Result<RequestPlan, OpResult> {
        let parts = discord_parts(content);
        if parts.is_empty() {
            return Err(refused("empty", "there is no text to show"));
        }
        let kind = if is_final {
            CallKind::Required
        } else {
            CallKind::Droppable
        };
        let mut steps = VecDeque::new();
        for (at, part) in parts.iter().enumerate() {
            let step = if let Some(shown) = known.get(at) {
                let body = json!({ "content": part, "components": [], "flags": SUPPRESS_EMBEDS, "allowed_mentions": { "parse": [] } });
                let rest = format!("messages/{}", snowflake(shown)?);
                PlannedRequest {
                    request: self.request(RestMethod::Patch, &rest, "edit", Some(body), kind),
                    shows: Some(shown.clone()),
                    is_text: true,
                }
            } else {
                let body = self.send(part, at).into();
                PlannedRequest {
                    request: self.request(
                        RestMethod::Post,
                        "messages",
                        "messages",
                        Some(body),
                        CallKind::Required,
                    ),
                    shows: None,
                    is_text: true,
                }
            };
            steps.push_back(step);
        }
        for extra in known.iter().skip(parts.len()) {
            steps.push_back(self.delete(extra)?);
        }
        let end = CallsEnd::Text {
            edited: Some(id.to_owned()),
            has_buttons: false,
        };
        Ok((steps, end))
    }
}

/// The buttons of a question, five to a row.
fn buttons(prompt_id: &str, options: &[PromptButton]) -> Result<Value, OpResult> {
    let cannot = || refused("unsupported", "Discord cannot show these buttons");
    if options.is_empty() || options.len() > MAX_BUTTONS || prompt_id.contains(':') {
        return Err(cannot());
    }
    let mut shown = Vec::new();
    for option in options {
        let custom_id = format!("p:{prompt_id}:{}", option.id);
        if custom_id.chars().count() > MAX_CUSTOM_ID {
            return Err(cannot());
        }
        let style = match option.style.as_deref() {
            Some("primary") => 1,
            Some("success") => 3,
            Some("danger") => 4,
            _ => 2,
        };
        shown.push(json!({ "type": 2, "style": style, "label": truncate(&option.label, MAX_LABEL), "custom_id": custom_id }));
    }
    let rows = shown
        .chunks(ROW)
        .map(|row| json!({ "type": 1, "components": row }));
    Ok(rows.collect())
}

fn thread_title(name: &str) -> Result<String, OpResult> {
    let name = one_line(name, MAX_THREAD_NAME);
    if name.is_empty() {
        return Err(refused("bad_name", "a thread needs a name"));
    }
    Ok(name)
}

/// The thread that an op names.
fn thread_of(action: &Action) -> Option<String> {
    let (Action::Send { metadata, .. }
    | Action::Edit { metadata, .. }
    | Action::Typing { metadata, .. }
    | Action::Prompt { metadata, .. }
    | Action::Delete { metadata, .. }
    | Action::React { metadata, .. }) = action
    else {
        return None;
    };
    match metadata.get("thread_id") {
        Some(Value::String(thread)) if !thread.is_empty() => Some(thread.clone()),
        Some(Value::Number(thread)) => Some(thread.to_string()),
        _ => None,
    }
}

fn is_final(metadata: &Metadata) -> bool {
    metadata.get("notify") == Some(&Value::Bool(true))
}

/// An id of Discord: it becomes a part of a path.
fn snowflake(text: &str) -> Result<u64, OpResult> {
    let number = text
        .parse::<u64>()
        .ok()
        .filter(|id| *id > 0 && i64::try_from(*id).is_ok());
    number.ok_or_else(|| refused("bad_id", "an id of Discord is a positive number"))
}

fn percent(text: &str) -> String {
    in_hex("%", text.bytes())
}

/// Bytes in hexadecimal, each after a mark.
fn in_hex(mark: &str, bytes: impl Iterator<Item = u8>) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(text, "{mark}{byte:02X}");
    }
    text
}

fn done() -> OpResult {
    OpResult {
        success: true,
        ..OpResult::default()
    }
}

fn refused(code: &str, error: &str) -> OpResult {
    OpResult {
        code: Some(code.into()),
        error: Some(error.into()),
        is_final: true,
        ..OpResult::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(op: Value, sent: &mut SentMessages) -> Result<DiscordCalls, OpResult> {
        DiscordCalls::new(OpId(7), &serde_json::from_value(op).unwrap(), sent)
    }

    fn result(calls: &DiscordCalls) -> OpResult {
        match calls.outcome() {
            Some(Outcome::Applied(result)) => result,
            other => panic!("{other:?}"),
        }
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
    fn a_question_has_buttons_and_its_edit_removes_them() {
        let mut sent = SentMessages::default();
        let op = json!({"op": "prompt", "chat_id": "5", "content": "ok?", "prompt_kind": "approval", "prompt_id": "abc",
            "options": [{"id": "yes", "label": "Yes", "style": "success"}, {"id": "no", "label": "No"}]});
        let mut calls = begin(op, &mut sent).unwrap();
        let rows = &calls.request().unwrap().body.as_ref().unwrap()["components"];
        assert_eq!(rows[0]["components"][0]["custom_id"], "p:abc:yes");
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
}
