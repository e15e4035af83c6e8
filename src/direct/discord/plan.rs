//! Which requests an op becomes.

#![allow(
    clippy::result_large_err,
    reason = "the error is the result of the op, which every caller passes on"
)]

use std::collections::VecDeque;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::calls::{SentMessages, refused};
use super::deferred::{DeferredCommand, interaction_of};
use super::markup::discord_parts;
use super::request::{RestFile, RestMethod, RestRequest};
use crate::direct::flood::CallKind;
use crate::text::{one_line, truncate};
use crate::wire::{Action, AlbumFile, MAX_ALBUM, Metadata, OpId, OpResult, PROMPT_TOKEN, PromptButton};

/// Longest name of a thread, and longest label of a button, in characters.
const MAX_THREAD_NAME: usize = 100;
const MAX_LABEL: usize = 80;
/// Buttons of a message, and of a row; rows of a message.
const MAX_BUTTONS: usize = 25;
const ROW: usize = 5;
const ROWS: usize = 5;
/// Answers in a menu, and the longest label of one, in characters.
const MAX_OPTIONS: usize = 25;
const MAX_OPTION_LABEL: usize = 100;
/// Longest `custom_id`.
const MAX_CUSTOM_ID: usize = 100;
/// Links show no preview.
const SUPPRESS_EMBEDS: u64 = 4;
/// The message is a voice message.
const VOICE_MESSAGE: u64 = 1 << 13;
/// The number of the first part that sends a file of an album alone.
const ALONE: usize = 1000;
/// Only one person sees it.
const EPHEMERAL: u64 = 64;
/// The mark of a running turn: it may be missing.
const RUNNING: &str = "\u{1f440}";

/// What the result of the op is made of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallsEnd {
    /// A text with the ids of its parts; the message that is edited, if it is an edit.
    Text {
        edited: Option<String>,
        has_buttons: bool,
    },
    /// A thread was opened; the message that it is under, whose id it has.
    Thread { under: Option<String> },
    /// The chat was described.
    ChatInfo,
    /// Nothing else.
    Bare,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedRequest {
    pub(super) request: RestRequest,
    /// The message that it shows or deletes, if it is known before.
    pub(super) shows: Option<String>,
    /// Whether it shows a message.
    pub(super) is_text: bool,
    /// The request to make if this one is refused.
    pub(super) fallback: Option<RequestFallback>,
    /// The same as several requests: the files of an album, one after the other.
    pub(super) instead: Vec<PlannedRequest>,
    /// Whether a refusal changes nothing.
    pub(super) is_optional: bool,
    /// What to do if the message that it edits is gone.
    pub(super) if_gone: Option<Box<TextReplacement>>,
}

/// A message in the place of one that is gone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TextReplacement {
    /// The message.
    pub(super) message: PlannedRequest,
    /// Deletes the one that it replaces, if it is there although one before it is gone.
    pub(super) deletion: PlannedRequest,
}

/// Another request in the place of one that was refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestFallback {
    pub(super) request: Box<RestRequest>,
    /// Whether it is made only if the bot may not write there.
    pub(super) only_if_forbidden: bool,
}

impl PlannedRequest {
    fn new(request: RestRequest) -> Self {
        Self {
            request,
            shows: None,
            is_text: false,
            fallback: None,
            instead: Vec::new(),
            is_optional: false,
            if_gone: None,
        }
    }

    /// Answers by the token of a command where the bot may not write messages.
    fn or_by_token(mut self, request: Option<RestRequest>) -> Self {
        self.fallback = request.map(|request| RequestFallback {
            request: Box::new(request),
            only_if_forbidden: true,
        });
        self
    }

    /// Makes another request if this one is refused, whatever for.
    fn or_else(mut self, request: RestRequest) -> Self {
        self.fallback = Some(RequestFallback {
            request: Box::new(request),
            only_if_forbidden: false,
        });
        self
    }

    fn of_text(request: RestRequest, shows: Option<String>) -> Self {
        Self {
            shows,
            is_text: true,
            ..Self::new(request)
        }
    }
}

pub(super) type RequestPlan = (VecDeque<PlannedRequest>, CallsEnd);

pub(super) struct RequestPlanner {
    pub(super) op: OpId,
    pub(super) channel: u64,
    /// The command that the op answers.
    pub(super) answers: Option<DeferredCommand>,
    /// The command that the op belongs to, while its token lives.
    pub(super) belongs_to: Option<DeferredCommand>,
}

impl RequestPlanner {
    /// The requests of an op, and what its result is made of.
    pub(super) fn plan(&self, action: &Action, sent: &mut SentMessages) -> Result<RequestPlan, OpResult> {
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
            } => self.text(
                content,
                reply_to.as_deref(),
                Some(&components(prompt_id, options)?),
            ),
            Action::Edit {
                message_id,
                content,
                metadata,
                ..
            } => {
                let is_last_text = metadata.has_last_text();
                let kind = if is_last_text || sent.edits_buttons(action) {
                    CallKind::Required
                } else {
                    CallKind::Droppable
                };
                self.edit(message_id, &sent.parts(message_id), content, kind, is_last_text)
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
            // There is no message to put it on.
            Action::React { message_id, .. } if interaction_of(message_id).is_some() => {
                Ok((VecDeque::new(), CallsEnd::Bare))
            }
            Action::React {
                message_id,
                emoji,
                remove,
                ..
            } => self.react(message_id, emoji, *remove),
            Action::GetChatInfo { .. } => {
                let (steps, _) = self.single(RestMethod::Get, "", "channel", None, CallKind::Required);
                Ok((steps, CallsEnd::ChatInfo))
            }
            Action::ThreadCreate {
                thread_name,
                metadata,
                message_id,
                ..
            } => self.open_thread(thread_name, message_id.as_deref(), metadata),
            Action::ThreadRename {
                only_if_connector_created: Some(true),
                ..
            }
            | Action::ThreadRename {
                only_if_current_name: Some(_),
                ..
            } => Err(refused(
                "unsupported",
                "this bot does not know who named the thread",
            )),
            Action::ThreadRename {
                message_id,
                thread_name,
                ..
            } => self.rename_thread(message_id, thread_name),
            Action::SendMedia {
                media_kind,
                source_url,
                content,
                reply_to,
                filename,
                ..
            } => {
                let album = AlbumFile::of(action);
                if !album.is_empty() {
                    return Ok(self.album(&album, content, reply_to.as_deref()));
                }
                let file = RestFile {
                    source: source_url.clone(),
                    name: filename.clone(),
                    is_voice: media_kind == "voice" && filename.as_deref().is_some_and(is_ogg),
                };
                Ok(self.media(file, content, reply_to.as_deref()))
            }
            Action::Draft { .. } => Err(refused("unsupported", "Discord has no drafts")),
            Action::TaskCard { .. } | Action::TaskCardStop { .. } => {
                Err(refused("unsupported", "Discord has no progress cards"))
            }
            // The first message that replies to the command answers it.
            Action::FollowUp { .. } => Err(refused("unsupported", "this bot answers commands by messages")),
        }
    }

    /// Puts a reaction on a message, or takes it back.
    fn react(&self, message_id: &str, emoji: &str, remove: bool) -> Result<RequestPlan, OpResult> {
        let method = if remove {
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

    /// Opens a thread, under a message if one is named.
    fn open_thread(
        &self,
        name: &str,
        under: Option<&str>,
        hints: &Metadata,
    ) -> Result<RequestPlan, OpResult> {
        // Ops of earlier versions name it in the hints.
        let under = under.or_else(|| hints.get("message_id")?.as_str());
        let mut body = json!({ "name": thread_title(name)?, "auto_archive_duration": 1440 });
        let path = if let Some(id) = under {
            format!("messages/{}/threads", snowflake(id)?)
        } else {
            body["type"] = 11.into();
            "threads".to_owned()
        };
        let (method, kind) = (RestMethod::Post, CallKind::Required);
        let (steps, _) = self.single(method, &path, "threads", Some(body), kind);
        let under = under.map(snowflake).transpose()?.map(|id| id.to_string());
        Ok((steps, CallsEnd::Thread { under }))
    }

    fn rename_thread(&self, thread: &str, name: &str) -> Result<RequestPlan, OpResult> {
        let body = json!({ "name": thread_title(name)? });
        let thread = Self {
            op: self.op,
            channel: snowflake(thread)?,
            answers: None,
            belongs_to: None,
        };
        Ok(thread.single(RestMethod::Patch, "", "channel", Some(body), CallKind::Required))
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
            files: Vec::new(),
            command: None,
        }
    }

    fn post(&self, body: Map<String, Value>) -> RestRequest {
        let kind = CallKind::Required;
        self.request(RestMethod::Post, "messages", "messages", Some(body.into()), kind)
    }

    /// The message in the place of a command's placeholder; a message of its own if that cannot be replaced any more. The request
    /// may be repeated: it shows the same text in the same place.
    fn replace_placeholder(&self, command: &DeferredCommand, body: Map<String, Value>) -> PlannedRequest {
        let request = RestRequest {
            command: Some(command.id.clone()),
            ..self.by_token(command, RestMethod::Patch, "messages/@original", Some(&body))
        };
        PlannedRequest::of_text(request, None).or_else(self.post(body))
    }

    /// A text for the person alone who pressed a button; for nobody if that fails.
    fn whisper(&self, press: &DeferredCommand, body: &Map<String, Value>) -> PlannedRequest {
        let request = RestRequest {
            command: Some(press.id.clone()),
            ..privately(self.follow_up(press, body))
        };
        PlannedRequest::of_text(request, None)
    }

    /// A text for the author of a command alone. Everybody sees the placeholder, so it must be gone first.
    fn answer_privately(&self, command: &DeferredCommand, body: Map<String, Value>) -> [PlannedRequest; 2] {
        let gone = RestRequest {
            command: Some(command.id.clone()),
            ..self.by_token(command, RestMethod::Delete, "messages/@original", None)
        };
        let gone = PlannedRequest {
            is_optional: true,
            ..PlannedRequest::new(gone)
        };
        [gone, self.message(body, Vec::new())]
    }

    /// A further message by the token of a command.
    fn follow_up(&self, command: &DeferredCommand, body: &Map<String, Value>) -> RestRequest {
        self.by_token(command, RestMethod::Post, "", Some(body))
    }

    /// A request by the token of a command. It needs no access to the channel, and knows no nonces and no replies.
    fn by_token(
        &self,
        command: &DeferredCommand,
        method: RestMethod,
        rest: &str,
        body: Option<&Map<String, Value>>,
    ) -> RestRequest {
        let DeferredCommand {
            id,
            token,
            application,
            ..
        } = command;
        let mut body = body.cloned();
        for sent_only in ["nonce", "enforce_nonce", "message_reference"] {
            body.as_mut().map(|body| body.remove(sent_only));
        }
        let slash = if rest.is_empty() { "" } else { "/" };
        RestRequest {
            path: format!("webhooks/{application}/{token}{slash}{rest}"),
            route: format!("{method:?} command {id}"),
            ..self.request(method, "", "", body.map(Value::from), CallKind::Required)
        }
    }

    /// Files in the place of a command's placeholder; in a message of their own if that cannot be replaced any more.
    fn fill_placeholder(
        &self,
        command: &DeferredCommand,
        body: Map<String, Value>,
        files: Vec<RestFile>,
    ) -> PlannedRequest {
        // Discord makes no voice message of a placeholder.
        let files: Vec<RestFile> = files
            .into_iter()
            .map(|file| RestFile {
                is_voice: false,
                ..file
            })
            .collect();
        let mut replaced = self.replace_placeholder(command, body);
        if let Some(alone) = &mut replaced.fallback {
            alone.request.files.clone_from(&files);
        }
        replaced.request.files = files;
        replaced
    }

    /// A message in the channel; by the token of the command that it belongs to where the bot may not write, or where only its author
    /// may read it.
    fn message(&self, body: Map<String, Value>, files: Vec<RestFile>) -> PlannedRequest {
        let command = self.belongs_to.as_ref();
        let by_token = command.map(|command| RestRequest {
            files: files.clone(),
            ..self.follow_up(command, &body)
        });
        if let (Some(DeferredCommand { is_private: true, .. }), Some(by_token)) = (command, &by_token) {
            return PlannedRequest::of_text(privately(by_token.clone()), None);
        }
        let request = RestRequest {
            files,
            ..self.post(body)
        };
        PlannedRequest::of_text(request, None).or_by_token(by_token)
    }

    /// A file with its caption; a file at a public address is a link, which Discord shows.
    fn media(&self, file: RestFile, caption: &str, reply_to: Option<&str>) -> RequestPlan {
        let source = file.source.as_str();
        let is_link = source.starts_with("https://") || source.starts_with("http://");
        let caption = match (is_link, caption) {
            (true, "") => source.to_owned(),
            (true, caption) => format!("{caption}\n{source}"),
            (false, caption) => caption.to_owned(),
        };
        let mut parts = discord_parts(&caption).into_iter();
        let mut body = self.send(&parts.next().unwrap_or_default(), 0);
        refer(&mut body, reply_to);
        if is_link {
            body.remove("flags");
        }
        let first = match (is_link, &self.answers) {
            (true, Some(command)) => self.replace_placeholder(command, body),
            (true, None) => self.message(body, Vec::new()),
            (false, Some(command)) => self.fill_placeholder(command, body, vec![file]),
            (false, None) => self.upload(body, file),
        };
        self.with_rest(first, parts)
    }

    /// Several files in one message; one after the other if Discord refuses that, and a text for each that it refuses alone.
    fn album(&self, album: &[AlbumFile], caption: &str, reply_to: Option<&str>) -> RequestPlan {
        let files = album.iter().map(|file| RestFile {
            source: file.source_url.clone(),
            name: file.filename.clone(),
            is_voice: false,
        });
        let files: Vec<RestFile> = files.collect();
        let mut parts = discord_parts(caption).into_iter();
        let first = parts.next().unwrap_or_default();
        let mut body = self.send(&first, 0);
        refer(&mut body, reply_to);
        let mut instead = Vec::new();
        for (at, (file, named)) in files.iter().zip(album).enumerate() {
            // Numbers of their own: a repeat of the album is none of these.
            let mut alone = self.send(if at == 0 { &first } else { "" }, ALONE + at);
            refer(&mut alone, reply_to.filter(|_| at == 0));
            let notice = discord_parts(&named.instead)
                .into_iter()
                .next()
                .unwrap_or_default();
            let notice = self.post(self.send(&notice, ALONE + MAX_ALBUM + at));
            instead.push(self.message(alone, vec![file.clone()]).or_else(notice));
        }
        let together = match &self.answers {
            Some(command) => self.fill_placeholder(command, body, files),
            None => self.message(body, files),
        };
        let together = PlannedRequest {
            instead,
            fallback: None,
            ..together
        };
        self.with_rest(together, parts)
    }

    /// A message with files, and what is left of its caption.
    fn with_rest(&self, first: PlannedRequest, parts: impl Iterator<Item = String>) -> RequestPlan {
        let rest = parts
            .enumerate()
            .map(|(at, part)| self.message(self.send(&part, at + 1), Vec::new()));
        let end = CallsEnd::Text {
            edited: None,
            has_buttons: false,
        };
        (std::iter::once(first).chain(rest).collect(), end)
    }

    /// A message with a file. A voice message is an ordinary file where Discord does not take it, and has no text.
    fn upload(&self, body: Map<String, Value>, file: RestFile) -> PlannedRequest {
        let is_voice = file.is_voice && body.get("content") == Some(&"".into());
        let plain = RestFile {
            is_voice: false,
            ..file.clone()
        };
        if !is_voice {
            return self.message(body, vec![plain]);
        }
        let plain = RestRequest {
            files: vec![plain],
            ..self.post(body.clone())
        };
        let mut voice = body;
        voice.remove("content");
        voice.insert("flags".to_owned(), VOICE_MESSAGE.into());
        let request = RestRequest {
            files: vec![file],
            ..self.post(voice)
        };
        PlannedRequest::of_text(request, None).or_else(plain)
    }

    fn single(
        &self,
        method: RestMethod,
        rest: &str,
        route: &str,
        body: Option<Value>,
        kind: CallKind,
    ) -> RequestPlan {
        let step = PlannedRequest::new(self.request(method, rest, route, body, kind));
        (VecDeque::from([step]), CallsEnd::Bare)
    }

    fn delete(&self, id: &str) -> Result<PlannedRequest, OpResult> {
        let rest = format!("messages/{}", snowflake(id)?);
        let request = self.request(RestMethod::Delete, &rest, "delete", None, CallKind::Required);
        Ok(PlannedRequest {
            shows: Some(id.to_owned()),
            ..PlannedRequest::new(request)
        })
    }

    /// Makes the thread take edits again.
    pub(super) fn unarchive(channel: i64) -> PlannedRequest {
        let request = RestRequest {
            chat: channel,
            ..RestRequest::with_body(
                RestMethod::Patch,
                format!("channels/{channel}"),
                &format!("channel {channel}"),
                json!({ "archived": false }),
            )
        };
        PlannedRequest {
            is_optional: true,
            ..PlannedRequest::new(request)
        }
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
            refer(&mut body, reply_to.filter(|_| at == 0));
            if let Some(rows) = buttons.filter(|_| at == last) {
                body.insert("components".to_owned(), rows.clone());
            }
            match self.answers.as_ref().filter(|_| at == 0) {
                Some(press) if press.is_press() => steps.push_back(self.whisper(press, &body)),
                Some(command) if command.is_private => steps.extend(self.answer_privately(command, body)),
                Some(command) => steps.push_back(self.replace_placeholder(command, body)),
                None => steps.push_back(self.message(body, Vec::new())),
            }
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
        kind: CallKind,
        is_last_text: bool,
    ) -> Result<RequestPlan, OpResult> {
        let parts = discord_parts(content);
        if parts.is_empty() {
            return Err(refused("empty", "there is no text to show"));
        }
        let mut steps = VecDeque::new();
        for (at, part) in parts.iter().enumerate() {
            let step = if let Some(shown) = known.get(at) {
                let body = json!({ "content": part, "components": [], "flags": SUPPRESS_EMBEDS, "allowed_mentions": { "parse": [] } });
                let rest = format!("messages/{}", snowflake(shown)?);
                let by_token = self.belongs_to.as_ref().map(|command| RestRequest {
                    kind,
                    ..self.by_token(command, RestMethod::Patch, &rest, body.as_object())
                });
                let request = self.request(RestMethod::Patch, &rest, "edit", Some(body), kind);
                let replacement = TextReplacement {
                    message: self.message(self.send(part, at), Vec::new()),
                    deletion: PlannedRequest {
                        is_optional: true,
                        ..self.delete(shown)?
                    },
                };
                PlannedRequest {
                    if_gone: is_last_text.then(|| Box::new(replacement)),
                    ..PlannedRequest::of_text(request, Some(shown.clone())).or_by_token(by_token)
                }
            } else {
                self.message(self.send(part, at), Vec::new())
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

/// A message that only the person of its interaction sees.
fn privately(mut request: RestRequest) -> RestRequest {
    if let Some(body) = &mut request.body {
        body["flags"] = (SUPPRESS_EMBEDS | EPHEMERAL).into();
    }
    request
}

/// Whether a file is in the format of voice messages, by its name.
fn is_ogg(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".ogg")
}

/// Makes a message a reply to another one, if there still is one.
fn refer(body: &mut Map<String, Value>, reply_to: Option<&str>) {
    if let Some(Ok(id)) = reply_to.map(str::parse::<u64>) {
        let reference = json!({ "message_id": id.to_string(), "fail_if_not_exists": false });
        body.insert("message_reference".to_owned(), reference);
    }
}

/// The answers of a question: buttons, five to a row; menus if there are more than Discord shows as buttons.
fn components(prompt_id: &str, options: &[PromptButton]) -> Result<Value, OpResult> {
    let cannot = || refused("unsupported", "Discord cannot show these answers");
    let token = |option: &str| {
        let token = format!("{PROMPT_TOKEN}{prompt_id}:{option}");
        (token.chars().count() <= MAX_CUSTOM_ID)
            .then_some(token)
            .ok_or_else(cannot)
    };
    if options.is_empty() || options.len() > MAX_OPTIONS * ROWS || prompt_id.contains(':') {
        return Err(cannot());
    }
    let mut shown = Vec::new();
    if options.len() > MAX_BUTTONS {
        for (at, options) in options.chunks(MAX_OPTIONS).enumerate() {
            let mut choices = Vec::new();
            for option in options {
                choices.push(json!({ "label": truncate(&option.label, MAX_OPTION_LABEL), "value": token(&option.id)? }));
            }
            let menu = json!({ "type": 3, "custom_id": token(&format!("menu{at}"))?, "options": choices });
            shown.push(json!({ "type": 1, "components": [menu] }));
        }
        return Ok(shown.into());
    }
    for option in options {
        let style = match option.style.as_deref() {
            Some("primary") => 1,
            Some("success") => 3,
            Some("danger") => 4,
            _ => 2,
        };
        let label = truncate(&option.label, MAX_LABEL);
        shown.push(json!({ "type": 2, "style": style, "label": label, "custom_id": token(&option.id)? }));
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
pub(super) fn thread_of(action: &Action) -> Option<String> {
    let (Action::Send { metadata, .. }
    | Action::Edit { metadata, .. }
    | Action::Typing { metadata, .. }
    | Action::Prompt { metadata, .. }
    | Action::Delete { metadata, .. }
    | Action::SendMedia { metadata, .. }
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

/// An id of Discord: it becomes a part of a path.
pub(super) fn snowflake(text: &str) -> Result<u64, OpResult> {
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
