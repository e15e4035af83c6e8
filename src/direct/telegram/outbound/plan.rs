//! The calls that an op begins with.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::cache::{OutboundCache, ShownPart, ShownText, hash_of};
use super::reaction::{RUNNING, allowed_reaction};
use crate::direct::flood::CallKind;
use crate::direct::telegram::callback::CallbackKey;
use crate::direct::telegram::text::{CAPTION_CHARS, MESSAGE_CHARS, rich_markdown};
use crate::direct::telegram::topics::{GENERAL_TOPIC, MAX_TOPIC_NAME};
use crate::direct::text::{Styled, render};
use crate::text::{one_line, truncate};
use crate::wire::{Action, AlbumFile, Metadata, OpResult, PromptButton, text_of};

/// The chat and place that an op goes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OpTarget {
    pub(super) chat: i64,
    pub(super) thread: Option<i64>,
    /// The message that the next message replies to.
    pub(super) reply_to: Option<i64>,
    /// Whether messages are sent without a notification.
    pub(super) silent: bool,
}

/// The method that sends a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MediaMethod {
    pub(super) name: &'static str,
    pub(super) field: &'static str,
}

pub(super) const DOCUMENT: MediaMethod = MediaMethod {
    name: "sendDocument",
    field: "document",
};

impl MediaMethod {
    pub(super) fn of(kind: &str) -> Self {
        let (name, field) = match kind {
            "image" | "photo" => ("sendPhoto", "photo"),
            "voice" => ("sendVoice", "voice"),
            "video" => ("sendVideo", "video"),
            "audio" => ("sendAudio", "audio"),
            _ => return DOCUMENT,
        };
        Self { name, field }
    }
}

/// One call to make, in a form that can still be changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlannedCall {
    /// A new message.
    Send {
        part: Styled,
        plain: bool,
        keyboard: Option<Value>,
    },
    /// A rich message, new or in place of the message with this id. It is the first step; `instead` replaces all steps if
    /// the server refuses it.
    Rich {
        id: Option<i64>,
        markdown: String,
        instead: VecDeque<PlannedCall>,
    },
    /// New text, or a new caption, of a message.
    Edit {
        id: i64,
        part: Styled,
        plain: bool,
        caption: bool,
    },
    /// A message that shows its text already: no call.
    Keep { shown: ShownPart, part: Styled },
    /// A message with a file.
    Media {
        method: MediaMethod,
        caption: Option<Styled>,
        plain: bool,
        source: String,
        name: Option<String>,
        /// The text that replaces it if the server refuses it; otherwise the op is refused.
        instead: Option<String>,
    },
    /// Several files as one message; `instead` sends them one after the other if the server refuses that.
    Album {
        files: Vec<AlbumFile>,
        caption: Option<Styled>,
        plain: bool,
        instead: VecDeque<PlannedCall>,
    },
    /// Messages to delete.
    Delete { ids: Vec<i64> },
    /// A call of any other method.
    Other {
        method: &'static str,
        body: Map<String, Value>,
        kind: CallKind,
        /// Whether the call names the topic, including General.
        in_thread: bool,
    },
}

/// The kind of op: its result and the entries in the cache depend on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum OpEnd {
    /// A text, in one or more messages.
    Text(TextEnd),
    /// A file, after the messages of its text.
    Media { resume_key: Option<u64> },
    /// A message that was deleted.
    Deleted { id: i64 },
    /// A draft.
    Draft,
    /// A question for a chat's name and type.
    ChatInfo,
    /// A new topic.
    TopicOpened { name: String },
    /// A renamed topic.
    TopicNamed { thread: i64, name: String },
    /// A call whose result does not matter.
    Bare,
}

/// What the end of a text op depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEnd {
    /// The message that the op edits.
    pub(super) edited: Option<i64>,
    /// The key under which the cache keeps the sent parts if the op ends early.
    pub(super) resume_key: Option<u64>,
    /// Whether the last message has buttons, or had them before this edit.
    pub(super) has_buttons: bool,
    /// Whether the text must be shown, as new messages if the edited ones are gone.
    pub(super) must_show: bool,
    /// Whether the calls may be dropped: an intermediate edit.
    pub(super) is_droppable: bool,
}

/// An op as planned calls.
#[derive(Debug)]
pub(super) struct OpPlan {
    pub(super) target: OpTarget,
    pub(super) steps: VecDeque<PlannedCall>,
    /// Parts that were sent by an earlier attempt.
    pub(super) shown: Vec<ShownPart>,
    pub(super) end: OpEnd,
}

/// An op that is refused without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRefusal {
    /// The code of the result.
    pub code: &'static str,
    /// The reason, for people.
    pub reason: &'static str,
}

impl OpRefusal {
    /// The answer to the op.
    pub fn result(self) -> OpResult {
        OpResult {
            error: Some(self.reason.into()),
            code: Some(self.code.into()),
            ..OpResult::default()
        }
    }
}

fn refused(code: &'static str, reason: &'static str) -> OpRefusal {
    OpRefusal { code, reason }
}

fn unsupported(what: &'static str) -> OpRefusal {
    refused("unsupported", what)
}

/// Plans an op; the error is the op's result.
pub(super) fn plan(
    action: &Action,
    keys: &CallbackKey,
    cache: &mut OutboundCache,
) -> Result<OpPlan, OpRefusal> {
    let chat_id = action
        .chat_id()
        .ok_or_else(|| unsupported("Telegram has no follow-ups"))?;
    let chat: i64 = chat_id
        .parse()
        .map_err(|_| refused("bad_chat_id", "a Telegram chat id is a whole number"))?;
    let chat = cache.chat_now(chat);
    let planner = Planner { chat, cache };
    match action {
        Action::Send {
            content,
            reply_to,
            metadata,
            ..
        } => planner.text(content, reply_to.as_deref(), metadata, None),
        Action::Draft {
            content,
            r#final: true,
            metadata,
            ..
        } => planner.text(content, None, metadata, None),
        Action::Draft {
            draft_id,
            content,
            metadata,
            ..
        } => planner.draft(*draft_id, content, metadata),
        Action::Edit {
            message_id,
            content,
            metadata,
            ..
        } => planner.edit(message_id, content, metadata),
        Action::Prompt {
            content,
            prompt_id,
            options,
            reply_to,
            metadata,
            ..
        } => planner.prompt(keys, prompt_id, options, content, reply_to.as_deref(), metadata),
        Action::SendMedia {
            media_kind,
            source_url,
            content,
            reply_to,
            metadata,
            filename,
            ..
        } => {
            let album = AlbumFile::of(action);
            if !album.is_empty() {
                return planner.album(album, content, reply_to.as_deref(), metadata);
            }
            let file = PlannedCall::Media {
                method: MediaMethod::of(media_kind),
                caption: None,
                plain: false,
                source: source_url.clone(),
                name: filename.clone(),
                instead: None,
            };
            planner.media(file, content, reply_to.as_deref(), metadata)
        }
        Action::Typing {
            metadata, content, ..
        } => planner.typing(metadata, content.as_deref()),
        Action::Delete { message_id, .. } => planner.delete(message_id),
        Action::React {
            message_id,
            emoji,
            remove,
            ..
        } => planner.react(message_id, emoji, *remove),
        Action::GetChatInfo { .. } => Ok(planner.other("getChat", Map::new(), OpEnd::ChatInfo)),
        Action::ThreadCreate { thread_name, .. } => planner.open_topic(thread_name),
        Action::ThreadRename {
            message_id,
            thread_name,
            only_if_connector_created,
            only_if_current_name,
            ..
        } => planner.rename_topic(
            message_id,
            thread_name,
            only_if_connector_created.unwrap_or(false),
            only_if_current_name.as_deref(),
        ),
        Action::TaskCard { .. } | Action::TaskCardStop { .. } => {
            Err(unsupported("Telegram has no progress cards"))
        }
        Action::FollowUp { .. } => Err(unsupported("Telegram has no follow-ups")),
    }
}

struct Planner<'s> {
    chat: i64,
    cache: &'s mut OutboundCache,
}

impl Planner<'_> {
    fn target(&self, reply_to: Option<&str>, metadata: &Metadata) -> Result<OpTarget, OpRefusal> {
        Ok(OpTarget {
            chat: self.chat,
            thread: thread_of(metadata)?,
            reply_to: reply_to.and_then(|id| message_id(id).ok()),
            silent: !is_set(metadata, "notify"),
        })
    }

    fn text(
        self,
        content: &str,
        reply_to: Option<&str>,
        metadata: &Metadata,
        keyboard: Option<Value>,
    ) -> Result<OpPlan, OpRefusal> {
        let mut target = self.target(reply_to, metadata)?;
        if keyboard.is_some() {
            // People must notice a question, unless it is not to ring.
            target.silent = metadata.get("notify").and_then(Value::as_bool) == Some(false);
        }
        let resume_key = self.resume_key(content, &target, "");
        let mut steps = sends(render(content));
        let has_buttons = keyboard.is_some();
        let Some(PlannedCall::Send { keyboard: last, .. }) = steps.back_mut() else {
            return Err(refused("empty", "there is no text to send"));
        };
        *last = keyboard;
        if !has_buttons
            && !is_set(metadata, "expect_edits")
            && let Some(markdown) = self.rich(content)
        {
            steps = VecDeque::from([PlannedCall::Rich {
                id: None,
                markdown,
                instead: steps,
            }]);
        }
        let end = OpEnd::Text(TextEnd {
            edited: None,
            resume_key: Some(resume_key),
            has_buttons,
            must_show: !target.silent,
            is_droppable: false,
        });
        Ok(self.resumed(resume_key, target, steps, end))
    }

    /// The Markdown of a complete text if it is sent as a rich message.
    fn rich(&self, content: &str) -> Option<String> {
        let markdown = self.cache.has_rich().then(|| rich_markdown(content))??;
        (!self.cache.is_rich_refused(&markdown)).then_some(markdown)
    }

    /// Leaves out the parts that an earlier attempt at the same text has sent.
    fn resumed(
        self,
        resume_key: u64,
        mut target: OpTarget,
        mut steps: VecDeque<PlannedCall>,
        end: OpEnd,
    ) -> OpPlan {
        let mut shown = self.cache.resume(resume_key);
        if shown.len() >= steps.len() {
            shown.clear();
        }
        if !shown.is_empty() {
            steps.drain(..shown.len());
            target.reply_to = None;
        }
        OpPlan {
            target,
            steps,
            shown,
            end,
        }
    }

    fn resume_key(&self, content: &str, target: &OpTarget, source: &str) -> u64 {
        hash_of(&(self.chat, target.thread, target.reply_to, content, source))
    }

    fn prompt(
        self,
        keys: &CallbackKey,
        prompt_id: &str,
        options: &[PromptButton],
        content: &str,
        reply_to: Option<&str>,
        metadata: &Metadata,
    ) -> Result<OpPlan, OpRefusal> {
        let keyboard = keys
            .keyboard(prompt_id, options)
            .ok_or_else(|| unsupported("Telegram cannot show these buttons"))?;
        self.text(content, reply_to, metadata, Some(keyboard))
    }

    fn edit(self, id: &str, content: &str, metadata: &Metadata) -> Result<OpPlan, OpRefusal> {
        let id = message_id(id)?;
        let target = self.target(None, metadata)?;
        let ShownText { parts, has_buttons } = self.cache.text(self.chat, id);
        let new = render(content).split(MESSAGE_CHARS);
        if new.is_empty() {
            return Err(refused("empty", "there is no text to show"));
        }
        let last = parts.len().min(new.len()).saturating_sub(1);
        let mut steps = VecDeque::new();
        let extra: Vec<i64> = parts.iter().skip(new.len()).map(|shown| shown.id).collect();
        for (at, part) in new.into_iter().enumerate() {
            steps.push_back(match parts.get(at) {
                // The edit of its message removes the buttons.
                Some(shown) if shown.shows(&part) && !(has_buttons && at == last) => {
                    PlannedCall::Keep { shown: *shown, part }
                }
                Some(shown) => PlannedCall::Edit {
                    id: shown.id,
                    part,
                    plain: false,
                    caption: false,
                },
                None => PlannedCall::Send {
                    part,
                    plain: false,
                    keyboard: None,
                },
            });
        }
        if !extra.is_empty() {
            steps.push_back(PlannedCall::Delete { ids: extra });
        }
        let is_last_text = metadata.has_last_text();
        if is_last_text
            && !has_buttons
            && let Some(markdown) = self.rich(content)
        {
            let left_over: Vec<i64> = parts.iter().skip(1).map(|shown| shown.id).collect();
            steps = VecDeque::from([PlannedCall::Rich {
                id: Some(parts.first().map_or(id, |shown| shown.id)),
                markdown,
                instead: steps,
            }]);
            if !left_over.is_empty() {
                steps.push_back(PlannedCall::Delete { ids: left_over });
            }
        }
        let end = OpEnd::Text(TextEnd {
            edited: Some(id),
            resume_key: None,
            has_buttons,
            must_show: is_last_text,
            is_droppable: !is_last_text && !has_buttons,
        });
        Ok(OpPlan {
            target,
            steps,
            shown: Vec::new(),
            end,
        })
    }

    fn media(
        self,
        mut file: PlannedCall,
        content: &str,
        reply_to: Option<&str>,
        metadata: &Metadata,
    ) -> Result<OpPlan, OpRefusal> {
        let target = self.target(reply_to, metadata)?;
        let text = render(content);
        let mut steps = VecDeque::new();
        let mut address = "";
        if let PlannedCall::Media { caption, source, .. } = &mut file {
            address = source;
            if text.is_blank() {
                *caption = None;
            } else if text.fits(CAPTION_CHARS) {
                *caption = Some(text);
            } else {
                steps = sends(text);
            }
        }
        let resume_key = self.resume_key(content, &target, address);
        steps.push_back(file);
        Ok(self.resumed(
            resume_key,
            target,
            steps,
            OpEnd::Media {
                resume_key: Some(resume_key),
            },
        ))
    }

    /// Several files as one message, unless an earlier attempt has begun to send them one after the other.
    fn album(
        self,
        files: Vec<AlbumFile>,
        content: &str,
        reply_to: Option<&str>,
        metadata: &Metadata,
    ) -> Result<OpPlan, OpRefusal> {
        let mut target = self.target(reply_to, metadata)?;
        let address = files.first().map_or("", |file| file.source_url.as_str());
        let resume_key = self.resume_key(content, &target, address);
        let text = render(content);
        let (mut steps, caption) = match text {
            text if text.is_blank() => (VecDeque::new(), None),
            text if text.fits(CAPTION_CHARS) => (VecDeque::new(), Some(text)),
            text => (sends(text), None),
        };
        let mut first = caption.clone();
        let singles = files.iter().map(|file| PlannedCall::Media {
            method: MediaMethod::of(&file.media_kind),
            caption: first.take(),
            plain: false,
            source: file.source_url.clone(),
            name: file.filename.clone(),
            instead: Some(file.instead.clone()),
        });
        let instead: VecDeque<PlannedCall> = singles.collect();
        let shown = self.cache.resume(resume_key);
        if shown.len() > steps.len() {
            steps.extend(instead);
        } else {
            steps.push_back(PlannedCall::Album {
                files,
                caption,
                plain: false,
                instead,
            });
        }
        if !shown.is_empty() {
            steps.drain(..shown.len().min(steps.len() - 1));
            target.reply_to = None;
        }
        Ok(OpPlan {
            target,
            steps,
            shown,
            end: OpEnd::Media {
                resume_key: Some(resume_key),
            },
        })
    }

    fn draft(self, draft_id: u64, content: &str, metadata: &Metadata) -> Result<OpPlan, OpRefusal> {
        if !self.cache.has_drafts(self.chat) {
            return Err(unsupported("Telegram shows no drafts in this chat"));
        }
        let target = self.target(None, metadata)?;
        let id = i64::try_from(draft_id & i64::MAX.unsigned_abs())
            .unwrap_or(1)
            .max(1);
        // Without formatting: text that a reader has seen must not change while the draft grows.
        let text = Styled::plain(content).text;
        let mut body = Map::new();
        body.insert("draft_id".to_owned(), id.into());
        body.insert("text".to_owned(), truncate(&text, MESSAGE_CHARS).into());
        body.insert("can_stop".to_owned(), true.into());
        if let Some(thread) = target.thread.filter(|thread| *thread != GENERAL_TOPIC) {
            body.insert("message_thread_id".to_owned(), thread.into());
        }
        let step = other("sendMessageDraft", body, CallKind::Droppable);
        Ok(single(target, step, OpEnd::Draft))
    }

    fn typing(self, metadata: &Metadata, content: Option<&str>) -> Result<OpPlan, OpRefusal> {
        let target = self.target(None, metadata)?;
        let mut body = Map::new();
        body.insert("action".to_owned(), "typing".into());
        let step = PlannedCall::Other {
            method: "sendChatAction",
            body,
            kind: CallKind::Droppable,
            in_thread: true,
        };
        let mut plan = single(target, step, OpEnd::Bare);
        if content == Some("") {
            // Telegram ends the indicator by itself.
            plan.steps.clear();
        }
        Ok(plan)
    }

    fn delete(self, id: &str) -> Result<OpPlan, OpRefusal> {
        let id = message_id(id)?;
        let parts = self.cache.text(self.chat, id).parts;
        let ids = parts.iter().map(|shown| shown.id).collect();
        let target = OpTarget {
            chat: self.chat,
            ..OpTarget::default()
        };
        Ok(single(target, PlannedCall::Delete { ids }, OpEnd::Deleted { id }))
    }

    fn react(self, id: &str, emoji: &str, remove: bool) -> Result<OpPlan, OpRefusal> {
        let id = message_id(id)?;
        let emoji = allowed_reaction(emoji);
        let reaction = match emoji {
            _ if remove => json!([]),
            Some(emoji) => json!([{ "type": "emoji", "emoji": emoji }]),
            None => {
                return Err(refused(
                    "reaction_not_allowed",
                    "Telegram does not allow this reaction",
                ));
            }
        };
        let mut body = Map::new();
        body.insert("message_id".to_owned(), id.into());
        body.insert("reaction".to_owned(), reaction);
        // The mark of a running turn may be missing, but its removal must arrive.
        let kind = if emoji == Some(RUNNING) && !remove {
            CallKind::Droppable
        } else {
            CallKind::Required
        };
        let target = OpTarget {
            chat: self.chat,
            ..OpTarget::default()
        };
        Ok(single(
            target,
            other("setMessageReaction", body, kind),
            OpEnd::Bare,
        ))
    }

    fn open_topic(self, name: &str) -> Result<OpPlan, OpRefusal> {
        let name = topic_name(name)?;
        let mut body = Map::new();
        body.insert("name".to_owned(), name.as_str().into());
        Ok(self.other("createForumTopic", body, OpEnd::TopicOpened { name }))
    }

    fn rename_topic(
        self,
        thread: &str,
        name: &str,
        only_own: bool,
        only_if: Option<&str>,
    ) -> Result<OpPlan, OpRefusal> {
        let thread = message_id(thread)?;
        let name = topic_name(name)?;
        if only_own && !self.cache.opened_topic(self.chat, thread) {
            return Err(refused("not_opened_here", "this bot did not open the topic"));
        }
        if let Some(expected) = only_if {
            let known = self.cache.topic_name(self.chat, thread);
            let known = known.ok_or_else(|| unsupported("the topic's name is not known"))?;
            if known != expected {
                return Err(refused("renamed", "the topic has another name"));
            }
        }
        let mut body = Map::new();
        body.insert("name".to_owned(), name.as_str().into());
        let method = if thread == GENERAL_TOPIC {
            "editGeneralForumTopic"
        } else {
            body.insert("message_thread_id".to_owned(), thread.into());
            "editForumTopic"
        };
        Ok(self.other(method, body, OpEnd::TopicNamed { thread, name }))
    }

    fn other(self, method: &'static str, body: Map<String, Value>, end: OpEnd) -> OpPlan {
        let target = OpTarget {
            chat: self.chat,
            ..OpTarget::default()
        };
        single(target, other(method, body, CallKind::Required), end)
    }
}

fn other(method: &'static str, body: Map<String, Value>, kind: CallKind) -> PlannedCall {
    PlannedCall::Other {
        method,
        body,
        kind,
        in_thread: false,
    }
}

fn single(target: OpTarget, step: PlannedCall, end: OpEnd) -> OpPlan {
    OpPlan {
        target,
        steps: VecDeque::from([step]),
        shown: Vec::new(),
        end,
    }
}

/// The messages of a text.
pub(super) fn sends(text: Styled) -> VecDeque<PlannedCall> {
    let parts = text.split(MESSAGE_CHARS).into_iter();
    parts
        .map(|part| PlannedCall::Send {
            part,
            plain: false,
            keyboard: None,
        })
        .collect()
}

fn topic_name(name: &str) -> Result<String, OpRefusal> {
    let name = one_line(name, MAX_TOPIC_NAME);
    if name.is_empty() {
        return Err(refused("bad_name", "a topic needs a name"));
    }
    Ok(name)
}

/// A message id, which Telegram limits to 32 bits.
fn message_id(text: &str) -> Result<i64, OpRefusal> {
    text.parse::<i32>()
        .ok()
        .filter(|id| *id > 0)
        .map(i64::from)
        .ok_or_else(|| refused("bad_message_id", "a Telegram message id is a positive number"))
}

/// The topic that an op names.
fn thread_of(metadata: &Metadata) -> Result<Option<i64>, OpRefusal> {
    let thread = match metadata.get("thread_id") {
        Some(value @ (Value::String(_) | Value::Number(_))) => text_of(value),
        Some(_) | None => return Ok(None),
    };
    if thread.is_empty() {
        return Ok(None);
    }
    // An op for a bad topic never goes to the main chat: other people may read there.
    message_id(&thread)
        .map(Some)
        .map_err(|_| refused("bad_thread_id", "a Telegram topic is a positive number"))
}

fn is_set(metadata: &Metadata, flag: &str) -> bool {
    metadata.get(flag).and_then(Value::as_bool).unwrap_or(false)
}
