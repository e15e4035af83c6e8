//! What an op takes: the calls that it begins with.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::call::CallKind;
use super::callback::CallbackKey;
use super::markdown::render;
use super::reaction::{RUNNING, allowed_reaction};
use super::rich::rich_markdown;
use super::split::{CAPTION_CHARS, MESSAGE_CHARS};
use super::spoken::{ShownPart, ShownText, Spoken, hash_of};
use super::styled::Styled;
use crate::text::{one_line, truncate};
use crate::wire::{Action, Metadata, OpResult, PromptButton, text_of};

/// The topic that every forum has.
pub(super) const GENERAL: i64 = 1;
/// Longest name of a topic.
const MAX_TOPIC_NAME: usize = 128;

/// Where an op goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpeechTarget {
    pub(super) chat: i64,
    pub(super) thread: Option<i64>,
    /// The message that the next one replies to.
    pub(super) reply_to: Option<i64>,
    /// Whether nobody is notified.
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
    fn of(kind: &str) -> Self {
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
pub(super) enum Utterance {
    /// A new message.
    Send {
        part: Styled,
        plain: bool,
        keyboard: Option<Value>,
    },
    /// A rich message, new or in place of the one with this id. It is the first step, and `instead` is all that is done if
    /// the server does not take it.
    Rich {
        id: Option<i64>,
        markdown: String,
        instead: VecDeque<Utterance>,
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
    /// A file.
    Media {
        method: MediaMethod,
        caption: Option<Styled>,
        plain: bool,
        source: String,
        name: Option<String>,
    },
    /// Messages that go.
    Delete { ids: Vec<i64> },
    /// Anything else.
    Other {
        method: &'static str,
        body: Map<String, Value>,
        kind: CallKind,
        /// Whether the topic is named, and General with it.
        in_thread: bool,
    },
}

/// What the op is answered with, and what is remembered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SpeechEnd {
    /// A text in messages.
    Text(TextEnd),
    /// A file, after its text.
    Media { cut: Option<u64> },
    /// A message that is gone.
    Deleted { id: i64 },
    /// A draft that is shown.
    Draft,
    /// A chat's name and type.
    ChatInfo,
    /// A new topic.
    TopicOpened { name: String },
    /// A renamed topic.
    TopicNamed { thread: i64, name: String },
    /// Nothing more.
    Bare,
}

/// The end of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextEnd {
    /// The message id that the op named.
    pub(super) edited: Option<i64>,
    /// Under which it goes on when it is cut short.
    pub(super) cut: Option<u64>,
    /// Whether its last message has buttons, or had them before this edit.
    pub(super) has_buttons: bool,
    /// Whether it must be shown, as a new message if need be.
    pub(super) is_final: bool,
    /// Whether its calls are only for show.
    pub(super) for_show: bool,
}

/// An op as calls.
#[derive(Debug)]
pub(super) struct SpeechPlan {
    pub(super) target: SpeechTarget,
    pub(super) steps: VecDeque<Utterance>,
    /// Parts that were sent before.
    pub(super) shown: Vec<ShownPart>,
    pub(super) end: SpeechEnd,
}

/// An op that is refused without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeechRefused {
    /// The code.
    pub code: &'static str,
    /// Why, for people.
    pub reason: &'static str,
}

impl From<SpeechRefused> for OpResult {
    fn from(refused: SpeechRefused) -> Self {
        Self {
            error: Some(refused.reason.into()),
            code: Some(refused.code.into()),
            ..Self::default()
        }
    }
}

fn refused(code: &'static str, reason: &'static str) -> SpeechRefused {
    SpeechRefused { code, reason }
}

fn unsupported(what: &'static str) -> SpeechRefused {
    refused("unsupported", what)
}

/// Plans an op; the error is its answer.
pub(super) fn plan(
    action: &Action,
    keys: &CallbackKey,
    spoken: &mut Spoken,
) -> Result<SpeechPlan, SpeechRefused> {
    let chat_id = action
        .chat_id()
        .ok_or_else(|| unsupported("Telegram has no follow-ups"))?;
    let chat: i64 = chat_id
        .parse()
        .map_err(|_| refused("bad_chat_id", "a Telegram chat id is a whole number"))?;
    let chat = spoken.chat_now(chat);
    let planner = Planner { chat, spoken };
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
            let file = Utterance::Media {
                method: MediaMethod::of(media_kind),
                caption: None,
                plain: false,
                source: source_url.clone(),
                name: filename.clone(),
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
        Action::GetChatInfo { .. } => Ok(planner.other("getChat", Map::new(), SpeechEnd::ChatInfo)),
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
    spoken: &'s mut Spoken,
}

impl Planner<'_> {
    fn target(&self, reply_to: Option<&str>, metadata: &Metadata) -> Result<SpeechTarget, SpeechRefused> {
        Ok(SpeechTarget {
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
    ) -> Result<SpeechPlan, SpeechRefused> {
        let mut target = self.target(reply_to, metadata)?;
        if keyboard.is_some() {
            // Nobody answers a question that they did not notice.
            target.silent = false;
        }
        let cut = self.cut_key(content, &target, "");
        let mut steps = sends(render(content));
        let has_buttons = keyboard.is_some();
        let Some(Utterance::Send { keyboard: last, .. }) = steps.back_mut() else {
            return Err(refused("empty", "there is no text to send"));
        };
        *last = keyboard;
        if !has_buttons
            && !is_set(metadata, "expect_edits")
            && let Some(markdown) = self.rich(content)
        {
            steps = VecDeque::from([Utterance::Rich {
                id: None,
                markdown,
                instead: steps,
            }]);
        }
        let end = SpeechEnd::Text(TextEnd {
            edited: None,
            cut: Some(cut),
            has_buttons,
            is_final: !target.silent,
            for_show: false,
        });
        Ok(self.resumed(cut, target, steps, end))
    }

    /// The Markdown of a complete text that is sent as a rich message.
    fn rich(&self, content: &str) -> Option<String> {
        let markdown = self.spoken.has_rich().then(|| rich_markdown(content))??;
        (!self.spoken.is_rich_refused(&markdown)).then_some(markdown)
    }

    /// Goes on where the same text was cut short.
    fn resumed(
        self,
        cut: u64,
        mut target: SpeechTarget,
        mut steps: VecDeque<Utterance>,
        end: SpeechEnd,
    ) -> SpeechPlan {
        let mut shown = self.spoken.resume(cut);
        if shown.len() >= steps.len() {
            shown.clear();
        }
        if !shown.is_empty() {
            steps.drain(..shown.len());
            target.reply_to = None;
        }
        SpeechPlan {
            target,
            steps,
            shown,
            end,
        }
    }

    fn cut_key(&self, content: &str, target: &SpeechTarget, source: &str) -> u64 {
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
    ) -> Result<SpeechPlan, SpeechRefused> {
        let keyboard = keys
            .keyboard(prompt_id, options)
            .ok_or_else(|| unsupported("Telegram cannot show these buttons"))?;
        self.text(content, reply_to, metadata, Some(keyboard))
    }

    fn edit(self, id: &str, content: &str, metadata: &Metadata) -> Result<SpeechPlan, SpeechRefused> {
        let id = message_id(id)?;
        let target = self.target(None, metadata)?;
        let ShownText { parts, has_buttons } = self.spoken.text(self.chat, id);
        let new = render(content).split(MESSAGE_CHARS);
        if new.is_empty() {
            return Err(refused("empty", "there is no text to show"));
        }
        let last = parts.len().min(new.len()).saturating_sub(1);
        let mut steps = VecDeque::new();
        let extra: Vec<i64> = parts.iter().skip(new.len()).map(|shown| shown.id).collect();
        for (at, part) in new.into_iter().enumerate() {
            steps.push_back(match parts.get(at) {
                // Buttons go with the edit of their message.
                Some(shown) if shown.shows(&part) && !(has_buttons && at == last) => {
                    Utterance::Keep { shown: *shown, part }
                }
                Some(shown) => Utterance::Edit {
                    id: shown.id,
                    part,
                    plain: false,
                    caption: false,
                },
                None => Utterance::Send {
                    part,
                    plain: false,
                    keyboard: None,
                },
            });
        }
        if !extra.is_empty() {
            steps.push_back(Utterance::Delete { ids: extra });
        }
        let is_final = !target.silent;
        if is_final
            && !has_buttons
            && let Some(markdown) = self.rich(content)
        {
            let left_over: Vec<i64> = parts.iter().skip(1).map(|shown| shown.id).collect();
            steps = VecDeque::from([Utterance::Rich {
                id: Some(parts.first().map_or(id, |shown| shown.id)),
                markdown,
                instead: steps,
            }]);
            if !left_over.is_empty() {
                steps.push_back(Utterance::Delete { ids: left_over });
            }
        }
        let end = SpeechEnd::Text(TextEnd {
            edited: Some(id),
            cut: None,
            has_buttons,
            is_final,
            for_show: !is_final && !has_buttons,
        });
        Ok(SpeechPlan {
            target,
            steps,
            shown: Vec::new(),
            end,
        })
    }

    fn media(
        self,
        mut file: Utterance,
        content: &str,
        reply_to: Option<&str>,
        metadata: &Metadata,
    ) -> Result<SpeechPlan, SpeechRefused> {
        let target = self.target(reply_to, metadata)?;
        let text = render(content);
        let mut steps = VecDeque::new();
        let mut address = "";
        if let Utterance::Media { caption, source, .. } = &mut file {
            address = source;
            if text.is_blank() {
                *caption = None;
            } else if text.fits(CAPTION_CHARS) {
                *caption = Some(text);
            } else {
                steps = sends(text);
            }
        }
        let cut = self.cut_key(content, &target, address);
        steps.push_back(file);
        Ok(self.resumed(cut, target, steps, SpeechEnd::Media { cut: Some(cut) }))
    }

    fn draft(self, draft_id: u64, content: &str, metadata: &Metadata) -> Result<SpeechPlan, SpeechRefused> {
        if !self.spoken.has_drafts(self.chat) {
            return Err(unsupported("Telegram shows no drafts in this chat"));
        }
        let target = self.target(None, metadata)?;
        let id = i64::try_from(draft_id & i64::MAX.unsigned_abs())
            .unwrap_or(1)
            .max(1);
        // As it was written: what a reader has seen must not change while the text grows.
        let text = Styled::plain(content).text;
        let mut body = Map::new();
        body.insert("draft_id".to_owned(), id.into());
        body.insert("text".to_owned(), truncate(&text, MESSAGE_CHARS).into());
        body.insert("can_stop".to_owned(), true.into());
        if let Some(thread) = target.thread.filter(|thread| *thread != GENERAL) {
            body.insert("message_thread_id".to_owned(), thread.into());
        }
        let step = other("sendMessageDraft", body, CallKind::Show);
        Ok(single(target, step, SpeechEnd::Draft))
    }

    fn typing(self, metadata: &Metadata, content: Option<&str>) -> Result<SpeechPlan, SpeechRefused> {
        let target = self.target(None, metadata)?;
        let mut body = Map::new();
        body.insert("action".to_owned(), "typing".into());
        let step = Utterance::Other {
            method: "sendChatAction",
            body,
            kind: CallKind::Show,
            in_thread: true,
        };
        let mut plan = single(target, step, SpeechEnd::Bare);
        if content == Some("") {
            // It ends by itself.
            plan.steps.clear();
        }
        Ok(plan)
    }

    fn delete(self, id: &str) -> Result<SpeechPlan, SpeechRefused> {
        let id = message_id(id)?;
        let parts = self.spoken.text(self.chat, id).parts;
        let ids = parts.iter().map(|shown| shown.id).collect();
        let target = SpeechTarget {
            chat: self.chat,
            ..SpeechTarget::default()
        };
        Ok(single(
            target,
            Utterance::Delete { ids },
            SpeechEnd::Deleted { id },
        ))
    }

    fn react(self, id: &str, emoji: &str, remove: bool) -> Result<SpeechPlan, SpeechRefused> {
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
        // The mark of a running turn may be missing, but must not stay.
        let kind = if emoji == Some(RUNNING) && !remove {
            CallKind::Show
        } else {
            CallKind::Speak
        };
        let target = SpeechTarget {
            chat: self.chat,
            ..SpeechTarget::default()
        };
        Ok(single(
            target,
            other("setMessageReaction", body, kind),
            SpeechEnd::Bare,
        ))
    }

    fn open_topic(self, name: &str) -> Result<SpeechPlan, SpeechRefused> {
        let name = topic_name(name)?;
        let mut body = Map::new();
        body.insert("name".to_owned(), name.as_str().into());
        Ok(self.other("createForumTopic", body, SpeechEnd::TopicOpened { name }))
    }

    fn rename_topic(
        self,
        thread: &str,
        name: &str,
        only_own: bool,
        only_if: Option<&str>,
    ) -> Result<SpeechPlan, SpeechRefused> {
        let thread = message_id(thread)?;
        let name = topic_name(name)?;
        if only_own && !self.spoken.opened_topic(self.chat, thread) {
            return Err(refused("not_opened_here", "this bot did not open the topic"));
        }
        if let Some(expected) = only_if {
            let known = self.spoken.topic_name(self.chat, thread);
            let known = known.ok_or_else(|| unsupported("the topic's name is not known"))?;
            if known != expected {
                return Err(refused("renamed", "the topic has another name"));
            }
        }
        let mut body = Map::new();
        body.insert("name".to_owned(), name.as_str().into());
        let method = if thread == GENERAL {
            "editGeneralForumTopic"
        } else {
            body.insert("message_thread_id".to_owned(), thread.into());
            "editForumTopic"
        };
        Ok(self.other(method, body, SpeechEnd::TopicNamed { thread, name }))
    }

    fn other(self, method: &'static str, body: Map<String, Value>, end: SpeechEnd) -> SpeechPlan {
        let target = SpeechTarget {
            chat: self.chat,
            ..SpeechTarget::default()
        };
        single(target, other(method, body, CallKind::Speak), end)
    }
}

fn other(method: &'static str, body: Map<String, Value>, kind: CallKind) -> Utterance {
    Utterance::Other {
        method,
        body,
        kind,
        in_thread: false,
    }
}

fn single(target: SpeechTarget, step: Utterance, end: SpeechEnd) -> SpeechPlan {
    SpeechPlan {
        target,
        steps: VecDeque::from([step]),
        shown: Vec::new(),
        end,
    }
}

/// A text as messages.
pub(super) fn sends(text: Styled) -> VecDeque<Utterance> {
    let parts = text.split(MESSAGE_CHARS).into_iter();
    parts
        .map(|part| Utterance::Send {
            part,
            plain: false,
            keyboard: None,
        })
        .collect()
}

fn topic_name(name: &str) -> Result<String, SpeechRefused> {
    let name = one_line(name, MAX_TOPIC_NAME);
    if name.is_empty() {
        return Err(refused("bad_name", "a topic needs a name"));
    }
    Ok(name)
}

/// A message id of the platform.
fn message_id(text: &str) -> Result<i64, SpeechRefused> {
    text.parse::<i32>()
        .ok()
        .filter(|id| *id > 0)
        .map(i64::from)
        .ok_or_else(|| refused("bad_message_id", "a Telegram message id is a positive number"))
}

/// The topic that an op names.
fn thread_of(metadata: &Metadata) -> Result<Option<i64>, SpeechRefused> {
    let thread = match metadata.get("thread_id") {
        Some(value @ (Value::String(_) | Value::Number(_))) => text_of(value),
        Some(_) | None => return Ok(None),
    };
    if thread.is_empty() {
        return Ok(None);
    }
    // Never into the main chat instead: others may read there.
    message_id(&thread)
        .map(Some)
        .map_err(|_| refused("bad_thread_id", "a Telegram topic is a positive number"))
}

fn is_set(metadata: &Metadata, flag: &str) -> bool {
    metadata.get(flag).and_then(Value::as_bool).unwrap_or(false)
}
