//! One run of an agent: what goes in, and how it ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use smol_str::SmolStr;

use super::ask::{Approver, ResumedTurn};
use super::event::EventSink;
use crate::session::TurnId;
use crate::wire::{MessageEvent, Scalar, SessionKey};

/// Input of a turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TurnInput {
    /// The text of the message.
    pub text: String,
    /// The author's name.
    pub author: Option<SmolStr>,
    /// The author's id on the platform.
    pub author_id: Option<SmolStr>,
    /// Surrounding messages, as a quotation.
    pub channel_context: Option<String>,
    /// The message that is replied to, as a quotation.
    pub reply_to_text: Option<String>,
    /// The author of the message that is replied to, unless it is the relay.
    pub reply_to_author: Option<SmolStr>,
    /// Files of the message.
    pub attachments: Vec<Attachment>,
    /// Notes of the relay, such as a failed download. Not written by anyone in the chat.
    pub notes: Vec<String>,
    /// The chat that the message was written in.
    pub origin: ChatOrigin,
}

/// A file that came with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The path of a downloaded file, else its address.
    pub location: super::MediaLocation,
    /// The MIME type; empty if it is unknown.
    pub mime: String,
    /// A safe file name.
    pub name: String,
}

/// The chat that a message was written in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatOrigin {
    /// The platform's name.
    pub platform: SmolStr,
    /// The chat's id.
    pub chat_id: SmolStr,
    /// `dm`, `group`, `thread` and so on.
    pub chat_type: SmolStr,
    /// The chat's name.
    pub chat_name: Option<SmolStr>,
    /// The id of the thread in that chat.
    pub thread_id: Option<SmolStr>,
    /// The id of the message.
    pub message_id: Option<SmolStr>,
    /// The profile that the connector routed the message to.
    pub profile: Option<SmolStr>,
    /// The platform's hint for agents.
    pub hint: SmolStr,
    /// Which markdown it shows; `plain` for none.
    pub markdown: SmolStr,
}

impl TurnInput {
    /// Extracts what an agent may see from a message.
    pub fn from_event(event: MessageEvent) -> Self {
        let text = |field: Option<Scalar>| field.map(Scalar::into_string).filter(|text| !text.is_empty());
        let attachment = |(url, mime): (Value, String)| match url {
            Value::String(url) if !url.is_empty() => Some(Attachment {
                location: super::MediaLocation::Url(url),
                mime,
                name: String::new(),
            }),
            _ => None,
        };
        let short = |field: Option<Scalar>| field.map(Scalar::into_smolstr).filter(|text| !text.is_empty());
        let source = event.source;
        Self {
            text: text(event.text).unwrap_or_default(),
            author: short(source.user_name),
            author_id: short(source.user_id),
            channel_context: event.channel_context,
            reply_to_text: text(event.reply_to_text),
            reply_to_author: short(event.reply_to_author_name).filter(|_| !event.reply_to_is_own_message),
            attachments: event
                .media_urls
                .into_iter()
                .zip(event.media_types)
                .filter_map(attachment)
                .collect(),
            notes: Vec::new(),
            origin: ChatOrigin {
                platform: source.platform.as_str().into(),
                chat_id: short(source.chat_id).unwrap_or_default(),
                chat_type: short(source.chat_type).unwrap_or_default(),
                chat_name: short(source.chat_name),
                thread_id: short(source.thread_id),
                message_id: short(source.message_id),
                profile: short(source.profile),
                ..ChatOrigin::default()
            },
        }
    }
}

impl TurnInput {
    /// Replaces ids that may identify a person, such as phone numbers, by stable pseudonyms.
    pub fn hide_people(&mut self) {
        let hide = |id: &mut SmolStr, sort: &str| {
            if !id.is_empty() {
                let digest = Sha256::digest(id.as_bytes());
                let short = digest[..8]
                    .iter()
                    .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
                *id = format!("{sort}_{short:016x}").into();
            }
        };
        if let Some(id) = &mut self.author_id {
            hide(id, "user");
        }
        hide(&mut self.origin.chat_id, "chat");
    }
}

/// One turn, as an agent gets it.
#[derive(Debug)]
pub struct Turn {
    /// The turn's id in this process.
    pub id: TurnId,
    /// The conversation that the turn belongs to.
    pub session: SessionKey,
    /// The message to answer.
    pub input: TurnInput,
    /// Sink for output.
    pub events: EventSink,
    /// Asks people for approval.
    pub approver: Approver,
    /// Cancelled when the turn is to stop.
    pub cancel: CancellationToken,
    /// The directory to work in, where the route names one.
    pub workdir: Option<PathBuf>,
    /// The turn was begun by an earlier process and goes on: only for agents with [`AgentInfo::resumes`].
    ///
    /// [`AgentInfo::resumes`]: super::AgentInfo::resumes
    pub resumed: Option<ResumedTurn>,
}

/// What an agent says that has nothing to say.
pub(super) const NO_REPLY: &str = "(no reply)";

impl Turn {
    /// Says that there is no answer. A scheduled job without one has failed, and its relay says so.
    pub(super) async fn say_no_reply(&self) {
        if !self.session.is_job() {
            self.events.text(NO_REPLY).await;
        }
    }
}

#[cfg(test)]
impl Turn {
    /// A turn of a session on its own.
    pub fn alone(input: TurnInput, events: EventSink, cancel: CancellationToken) -> Self {
        Self {
            id: TurnId(7),
            session: SessionKey::from_text("s"),
            input,
            approver: Approver::new(&events, super::Permission::Ask),
            events,
            cancel,
            workdir: None,
            resumed: None,
        }
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TurnEnd {
    /// The answer is complete.
    Completed,
    /// The answer is incomplete.
    Truncated(Truncation),
    /// The agent will not answer this.
    Refused,
    /// Somebody stopped the turn.
    Cancelled {
        /// Whether the agent is known to have stopped working.
        confirmed: bool,
    },
    /// The turn failed.
    Failed(Failure),
}

/// Why an answer is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truncation {
    /// The model's token limit.
    Tokens,
    /// The step limit of a turn.
    Steps,
    /// The provider's filter.
    Filter,
    /// The output limit of a turn.
    Size,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class of the failure.
    pub class: FailureClass,
    /// The message for the chat.
    pub public_text: String,
    /// The detail for the log; never shown in the chat.
    pub detail: String,
    /// Whether a retry may succeed.
    pub retryable: bool,
    /// Whether the agent may have had side effects.
    pub side_effects_possible: bool,
}

/// Classes of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// The agent cannot be reached or started.
    Unavailable,
    /// The agent does not accept our credentials.
    Credentials,
    /// The agent took too long.
    Timeout,
    /// An invalid response.
    Protocol,
    /// The agent ended early.
    Crashed,
    /// What a resumed turn was to go on with is gone.
    Lost,
    /// The agent reported an error.
    Reported,
    /// An internal error.
    Internal,
}

impl FailureClass {
    /// The name of the class in traces.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Credentials => "credentials",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Crashed => "crashed",
            Self::Lost => "lost",
            Self::Reported => "reported",
            Self::Internal => "internal",
        }
    }
}

/// What a chat reads when nobody in it can do anything. The cause and the remedy are in the log.
pub const TELL_OPERATOR: &str = "Please tell whoever runs it.";

impl Failure {
    /// A failure with possible side effects that is not retryable.
    pub fn new(class: FailureClass, public_text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            class,
            public_text: public_text.into(),
            detail: detail.into(),
            retryable: false,
            side_effects_possible: true,
        }
    }

    /// Marks the failure as free of side effects.
    #[must_use]
    pub fn without_side_effects(mut self) -> Self {
        self.side_effects_possible = false;
        self
    }

    /// Marks the failure as retryable.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}
