//! What [`Prompts`](super::Prompts) takes and returns: plain data, and its settings.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::question::UnsaidEnd;
use crate::adapter::chats::{Chat, ChatId};
use crate::setting::{MAX_SECS, section};
use crate::wire::{Action, MessageEvent, PRIVATE_REPLY, Scalar, SessionKey, SessionSource, text_of};

/// The caller's id of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuestionId(pub u64);

/// A question's id on the wire: this process's nonce, a dot, and a serial number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PromptId(pub(super) String);

impl PromptId {
    /// The id as text.
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
    /// The caller's id of the question.
    pub id: QuestionId,
    /// The conversation whose turn asks.
    pub session: SessionKey,
    /// The chat to ask in; its type says whether it is a direct message.
    pub chat: Chat,
    /// Who may answer: the author of the message that the turn answers.
    pub author: Option<String>,
    /// Whether an answer without a person's id counts for nothing, also in a direct message.
    pub named_only: bool,
    /// Whether the conversation belongs to one person. In a shared one, nothing that outlasts the question is offered.
    pub personal: bool,
    /// Whether the question is an approval or a choice.
    pub kind: QuestionKind,
    /// The text of the question.
    pub text: String,
    /// The subject, such as a command; shown verbatim.
    pub detail: Option<String>,
    /// The answers that people can choose from.
    pub options: Vec<PromptOption>,
    /// How long the agent itself waits, if known.
    pub timeout: Option<Duration>,
    /// Whether it rings nobody.
    pub is_silent: bool,
    /// Whether it is a list that nobody waits for: it reminds nobody, and words that name no question mean it only where no question
    /// takes them.
    pub is_list: bool,
    /// For what the relay itself asks: what stands under it if it ends without a choice. What became of a choice is said by whoever
    /// gets the [`UnsaidEnd`].
    pub closing: Option<String>,
}

/// Kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionKind {
    /// May this be done?
    Approval,
    /// Which of these?
    Choice,
}

/// One possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOption {
    /// The text of the answer.
    pub label: String,
    /// What choosing it decides.
    pub meaning: Meaning,
}

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Meaning {
    /// Yes, this time.
    AllowOnce,
    /// Yes, for this conversation.
    AllowSession,
    /// Yes, from now on.
    AllowAlways,
    /// No, this must not be done.
    Deny,
    /// One of several.
    Plain,
}

impl Meaning {
    /// Whether the answer allows the action.
    pub(super) fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowSession | Self::AllowAlways)
    }
}

/// Why a question was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// The maximum of open questions is reached.
    #[error("too many questions are open")]
    Full,
    /// A question with this id is open.
    #[error("this question is open already")]
    AlreadyOpen,
    /// The chat is a group whose members may not answer, and the author is unknown.
    #[error("nobody is known who may answer")]
    NobodyMayAnswer,
    /// There is no answer but a denial.
    #[error("there is nothing to choose here")]
    NothingToChoose,
    /// There are more answers than can be offered.
    #[error("there are too many answers to choose from")]
    TooManyOptions,
    /// The question does not fit in a message of the platform.
    #[error("it does not fit in a message")]
    NoRoom,
}

/// A question that was opened and is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedQuestion {
    /// The question's id on the wire.
    pub prompt: PromptId,
    /// The op that shows the question; report its outcome to [`Prompts::op_finished`](super::Prompts::op_finished).
    pub op: PromptOp,
    /// Whether the question has buttons.
    pub native: bool,
}

/// An op about a question.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptOp {
    /// The conversation of the question.
    pub session: SessionKey,
    /// The chat that the op goes to.
    pub chat: ChatId,
    /// The op itself.
    pub action: Action,
}

/// The decision about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// This option, by its index in [`PromptRequest::options`].
    Chosen(usize),
    /// Nobody answered in time.
    TimedOut,
    /// The question was withdrawn, or could not be shown.
    Cancelled,
}

/// The end of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// The question that ended.
    pub id: QuestionId,
    /// The decision, or that there is none.
    pub decision: Decision,
    /// Writes the decision under the shown question, where messages can be edited.
    pub edit: Option<Box<PromptOp>>,
    /// The choice of a question that the relay itself asks: people have yet to read what became of it.
    pub unsaid: Option<Box<UnsaidEnd>>,
}

/// What to do after the op that shows a question.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptStep {
    /// No further step.
    Nothing,
    /// Show the question with this op instead, and report its outcome too.
    Show(PromptOp),
    /// The question ended before it was shown: write the decision under it.
    Edit(PromptOp),
    /// The question cannot be shown.
    Resolved(Resolution),
}

/// A person in a chat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Person {
    /// The person's id on the platform.
    pub id: Option<String>,
    /// The person's display name.
    pub name: Option<String>,
    /// Every id that the person is known by, in the form that ids are compared in.
    pub known_as: Vec<String>,
}

impl Person {
    /// The author of a message, by the id that it names.
    pub fn from_source(source: &SessionSource) -> Self {
        Self {
            id: text(source.user_id.as_ref()),
            name: text(source.user_name.as_ref()),
            known_as: Vec::new(),
        }
    }

    /// Whether this is an id of the person.
    pub(super) fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id) || self.known_as.iter().any(|known| known == id)
    }
}

/// A message that may answer a question.
#[derive(Clone, Copy, Debug)]
pub struct TypedMessage<'m> {
    /// The message's conversation; none if it may be about any of its chat.
    pub session: Option<&'m SessionKey>,
    /// The message's chat.
    pub chat: &'m ChatId,
    /// The message's author.
    pub by: &'m Person,
    /// The message's text.
    pub text: &'m str,
    /// The message that it replies to.
    pub reply_to: Option<&'m str>,
}

/// A button press.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ButtonPress {
    /// The question's id, if it is ours.
    pub prompt_id: String,
    /// The button's id.
    pub option_id: String,
    /// The message that has the buttons.
    pub message_id: Option<String>,
    /// What a text replies to that only the person who pressed it reads, where the platform has that.
    pub private_reply: Option<String>,
    /// The chat that has the button.
    pub chat: ChatId,
    /// The chat that this one is a thread of, if it is one.
    pub parent: Option<ChatId>,
    /// The person who pressed it.
    pub by: Person,
}

impl ButtonPress {
    /// The press that an event carries, if it names a button.
    pub fn from_event(event: &MessageEvent) -> Option<Self> {
        let response = event.prompt_response.as_ref()?;
        let field = |key: &str| {
            response
                .get(key)
                .filter(|value| matches!(value, Value::String(_) | Value::Number(_)))
                .map(text_of)
                .filter(|text| !text.is_empty())
        };
        let chat = ChatId::from_source(&event.source);
        let thread = event.source.thread_id.as_ref();
        let parent = thread.and(event.source.parent_chat_id.as_ref());
        Some(Self {
            prompt_id: field("prompt_id")?,
            option_id: field("option_id")?,
            message_id: field("prompt_message_id"),
            private_reply: field(PRIVATE_REPLY),
            parent: parent.map(|parent| ChatId {
                platform: chat.platform.clone(),
                chat: parent.to_smolstr(),
            }),
            chat,
            by: Person::from_source(&event.source),
        })
    }

    /// Whether it is of a message in this chat. A message in a thread may name the thread as its chat, or the chat of the thread.
    pub(crate) fn is_in(&self, chat: &ChatId) -> bool {
        self.chat == *chat || self.parent.as_ref() == Some(chat)
    }
}

/// The result of a press. A press is never a message for the agent.
#[derive(Clone, Debug, PartialEq)]
pub enum PressResult {
    /// The press answered the question.
    Resolved(Resolution),
    /// The question belongs to another process.
    NotOurs,
    /// The question was answered before, or is too old to be remembered.
    Repeated,
    /// This person may not answer, or not from this chat. The notice comes once per question.
    NotAllowed(Option<Box<PromptOp>>),
    /// Too late. The notice comes once per question.
    Expired {
        /// The question's end, if it was not resolved yet.
        resolution: Option<Resolution>,
        /// The notice for the chat.
        notice: Option<Box<PromptOp>>,
    },
    /// There is no such button; the question stays open.
    NoSuchOption,
}

fn text(field: Option<&Scalar>) -> Option<String> {
    field
        .map(|text| text.as_str().to_owned())
        .filter(|text| !text.is_empty())
}

/// An agent with a timeout of its own is answered this much earlier.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// Who may answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approvers {
    /// The author of the answered message.
    #[default]
    Author,
    /// Owners: the question of somebody else goes to one of them.
    Owners,
}

section! {
    /// Settings of questions: how long they stay open, and who may answer.
    #[derive(PartialEq, Eq)]
    pub struct PromptSettings {
        /// How long a question stays open; an unanswered approval counts as denied. 0 waits for ever.
        pub timeout_secs: u64 = 300, range(0..=MAX_SECS);
        /// Who may answer: the author of the answered message, or owners alone.
        pub approvers: Approvers = Approvers::Author;
        /// In a group, anyone may answer, not only the author of the answered message.
        pub anyone_in_group: bool;
        /// Offer "always allow" in groups too, where each person has a conversation of their own.
        pub allow_always_in_groups: bool;
        /// Maximum open questions; one more counts as withdrawn.
        pub max_open: usize = 256, range(1..=1 << 14);
        /// Ended questions remembered, to recognize late presses.
        pub remembered: usize = 256, range(0..=1 << 14);
    }
}

impl PromptSettings {
    /// Whether anyone in a group may answer.
    pub(crate) fn anyone_may_answer(&self) -> bool {
        self.anyone_in_group && self.approvers == Approvers::Author
    }

    /// How long a question stays open if the agent has this timeout; `None` for ever.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        let max = (self.timeout_secs > 0).then(|| Duration::from_secs(self.timeout_secs));
        let timeout = timeout.map(|timeout| timeout.saturating_sub(TIMEOUT_MARGIN).max(timeout / 2));
        max.into_iter().chain(timeout).min()
    }
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
            platform: "discord".into(),
            chat: "c".into(),
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

    #[test]
    fn an_agent_with_a_timeout_is_answered_before_it() {
        let wait = |timeout: Option<u64>| {
            let timeout = timeout.map(Duration::from_secs);
            let wait = PromptSettings::default().wait(timeout);
            wait.map(|wait| wait.as_millis())
        };
        let seen = [None, Some(60), Some(4), Some(0), Some(9_999)].map(wait);
        assert_eq!(seen, [300_000, 55_000, 2_000, 0, 300_000].map(Some));
        let for_ever = PromptSettings {
            timeout_secs: 0,
            ..PromptSettings::default()
        };
        assert_eq!(for_ever.wait(None), None);
        let own = for_ever.wait(Some(Duration::from_secs(60)));
        assert_eq!(own, Some(Duration::from_secs(55)));
    }

    #[test]
    fn missing_keys_have_defaults_and_unknown_keys_are_errors() {
        let read = |text| serde_json::from_str::<PromptSettings>(text);
        assert_eq!(read("{}").unwrap(), PromptSettings::default());
        assert!(read(r#"{"anyone_in_group": true}"#).unwrap().anyone_in_group);
        assert!(read(r#"{"timeout": 3}"#).is_err());
    }
}
