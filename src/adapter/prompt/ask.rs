//! What is asked, what is pressed, and what comes of it: the words of [`super::Prompts`].

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::adapter::chats::{ChatFacts, ChatId};
use crate::wire::{Action, MessageEvent, Scalar, SessionKey, SessionSource, text_of};

/// The asker's name for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// A question's name on the wire: this process's nonce, a dot, and a number of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromptId(pub(super) String);

impl PromptId {
    /// As it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PromptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A question to people.
#[derive(Clone, Debug)]
pub struct PromptRequest {
    /// The caller's id of it.
    pub id: QuestionId,
    /// The conversation whose turn asks.
    pub session: SessionKey,
    /// Where it is asked.
    pub chat: ChatId,
    /// What ops to that chat are tagged with; its type tells whether it is a direct message.
    pub facts: ChatFacts,
    /// Who may answer: the id of the one whose message is being answered.
    pub author: Option<String>,
    /// Sort of question.
    pub kind: QuestionKind,
    /// What is asked.
    pub text: String,
    /// What it is about, verbatim.
    pub detail: Option<String>,
    /// What may be answered.
    pub options: Vec<PromptOption>,
    /// How long the agent itself waits, when it says.
    pub timeout: Option<Duration>,
}

/// Sorts of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionKind {
    /// May this be done?
    Approval,
    /// Which of these?
    Choice,
}

/// One possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOption {
    /// What people read.
    pub label: String,
    /// What it means.
    pub meaning: Meaning,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Yes, this time.
    AllowOnce,
    /// Yes, for this conversation.
    AllowSession,
    /// Yes, from now on.
    AllowAlways,
    /// No.
    Deny,
    /// One of several.
    Plain,
}

impl Meaning {
    /// Whether it says yes.
    pub(super) fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowSession | Self::AllowAlways)
    }
}

/// Why a question was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// The bound is reached.
    #[error("too many questions are open")]
    Full,
    /// The asker's name is in use.
    #[error("this question is open already")]
    AlreadyOpen,
    /// It is a group, its members may not answer, and the author is not known.
    #[error("nobody is known who may answer")]
    NobodyMayAnswer,
    /// No answer but a refusal is left.
    #[error("there is nothing to choose here")]
    NothingToChoose,
    /// More answers than are offered.
    #[error("there are too many answers to choose from")]
    TooManyOptions,
    /// The platform's messages are too short for it.
    #[error("it does not fit in a message")]
    NoRoom,
}

/// A question that is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Its name on the wire.
    pub prompt: PromptId,
    /// What shows it; what becomes of this op is to be told to [`super::Prompts::op_finished`].
    pub op: PromptOp,
    /// Whether it has buttons.
    pub native: bool,
}

/// An op about a question, and where it belongs.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptOp {
    /// The conversation.
    pub session: SessionKey,
    /// The chat.
    pub chat: ChatId,
    /// The op.
    pub action: Action,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This option, by its place in [`PromptRequest::options`].
    Chosen(usize),
    /// Nobody answered in time.
    TimedOut,
    /// The question is void.
    Cancelled,
}

/// The end of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Which question.
    pub id: QuestionId,
    /// What was decided.
    pub decision: Decision,
    /// Makes the shown question say what was decided, where that can be done.
    pub edit: Option<Box<PromptOp>>,
}

/// What follows from the outcome of the op that shows a question.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptStep {
    /// Nothing.
    Nothing,
    /// Show it this way instead; what becomes of this op is to be told again.
    Show(PromptOp),
    /// It had ended before it was shown: make it say so.
    Edit(PromptOp),
    /// It cannot be shown.
    Resolved(Resolution),
}

/// Someone in a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// Their id on the platform.
    pub id: Option<String>,
    /// What they call themselves.
    pub name: Option<String>,
}

impl Person {
    /// Who a message is from.
    pub fn from_source(source: &SessionSource) -> Self {
        Self {
            id: text(source.user_id.as_ref()),
            name: text(source.user_name.as_ref()),
        }
    }
}

/// A button that somebody pressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ButtonPress {
    /// The question, if it is ours.
    pub prompt_id: String,
    /// The button.
    pub option_id: String,
    /// The message that has the buttons.
    pub message_id: Option<String>,
    /// Where.
    pub chat: ChatId,
    /// Who.
    pub by: Person,
}

impl ButtonPress {
    /// The press that an event carries; `None` when it carries none, or none that names a button.
    pub fn from_event(event: &MessageEvent) -> Option<Self> {
        let response = event.prompt_response.as_ref()?;
        let field = |key: &str| {
            response
                .get(key)
                .filter(|value| matches!(value, Value::String(_) | Value::Number(_)))
                .map(text_of)
                .filter(|text| !text.is_empty())
        };
        Some(Self {
            prompt_id: field("prompt_id")?,
            option_id: field("option_id")?,
            message_id: field("prompt_message_id"),
            chat: ChatId::from_source(&event.source),
            by: Person::from_source(&event.source),
        })
    }
}

/// What a press came to. Nothing of it is ever a message for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum PressResult {
    /// It decided the question.
    Resolved(Resolution),
    /// The question is another process's.
    NotOurs,
    /// The question had been decided, or is so old that it is forgotten.
    Repeated,
    /// It was not theirs to answer, or not from there; told once per question.
    NotAllowed(Option<Box<PromptOp>>),
    /// Too late; told once per question. The resolution is there when nobody had noticed yet.
    Expired {
        /// The question's end.
        resolution: Option<Resolution>,
        /// What the chat is told.
        notice: Option<Box<PromptOp>>,
    },
    /// There is no such button, and nothing that it could safely mean: the question stays open.
    NoSuchOption,
}

fn text(field: Option<&Scalar>) -> Option<String> {
    field
        .map(|text| text.as_str().to_owned())
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_press_is_read_from_an_event() {
        let mut event = MessageEvent::from_value(&json!({
            "text": "/o0",
            "source": {"platform": "discord", "chat_id": "c", "user_id": 5, "user_name": "Ann"},
            "prompt_response": {"prompt_id": "p", "option_id": "o0", "prompt_message_id": 77},
        }))
        .unwrap();
        let chat = ChatId {
            platform: "discord".to_owned(),
            chat: "c".to_owned(),
        };
        let press = ButtonPress::from_event(&event).unwrap();
        assert_eq!((press.prompt_id.as_str(), press.option_id.as_str()), ("p", "o0"));
        assert_eq!(press.message_id.as_deref(), Some("77"));
        assert_eq!((press.chat, press.by.id.as_deref()), (chat, Some("5")));
        if let Some(response) = &mut event.prompt_response {
            response.insert("option_id".to_owned(), json!({}));
        }
        assert_eq!(ButtonPress::from_event(&event), None);
        event.prompt_response = None;
        assert_eq!(ButtonPress::from_event(&event), None);
    }
}
