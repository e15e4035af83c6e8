//! One run of an agent: what goes in, what comes out, and how it ends.

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::session::TurnId;
use crate::wire::{MessageEvent, Scalar, SessionKey};

/// Events that wait to be read; a full sink makes the agent wait.
const SINK_CAPACITY: usize = 64;

/// What the agent is asked.
#[derive(Clone, Debug, Default)]
pub struct TurnInput {
    /// What was written.
    pub text: String,
    /// Who wrote it, by name.
    pub author: Option<String>,
    /// Who wrote it, by id.
    pub author_id: Option<String>,
    /// Surrounding messages, as quotation.
    pub channel_context: Option<String>,
    /// The message that was answered, as quotation.
    pub reply_to_text: Option<String>,
    /// Attachments by reference, with their mime type (`""` when unknown).
    pub media: Vec<(String, String)>,
}

impl TurnInput {
    /// Takes what an agent may see out of a message.
    pub fn of(event: MessageEvent) -> Self {
        let text = |field: Option<Scalar>| field.map(Scalar::into_string);
        let url = |url: Value| match url {
            Value::String(url) => url,
            _ => String::new(),
        };
        Self {
            text: text(event.text).unwrap_or_default(),
            author: text(event.source.user_name),
            author_id: text(event.source.user_id),
            channel_context: event.channel_context,
            reply_to_text: text(event.reply_to_text),
            media: event
                .media_urls
                .into_iter()
                .map(url)
                .zip(event.media_types)
                .filter(|(url, _)| !url.is_empty())
                .collect(),
        }
    }
}

/// One turn, as an agent gets it.
#[derive(Debug)]
pub struct Turn {
    /// Its name in this process.
    pub id: TurnId,
    /// The conversation it belongs to.
    pub session: SessionKey,
    /// What is asked.
    pub input: TurnInput,
    /// Where the answer goes.
    pub events: EventSink,
    /// Cancelled when the turn is to stop.
    pub cancel: CancellationToken,
}

/// What an agent says while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentEvent {
    /// More of the answer.
    Text(String),
}

/// Where an agent puts what it says. Bounded: a sink that is not read makes the agent wait, and nothing is
/// lost.
#[derive(Clone, Debug)]
pub struct EventSink(mpsc::Sender<AgentEvent>);

/// The other end of a sink.
pub type Events = mpsc::Receiver<AgentEvent>;

impl EventSink {
    /// A sink and its other end.
    pub fn new() -> (Self, Events) {
        let (sender, receiver) = mpsc::channel(SINK_CAPACITY);
        (Self(sender), receiver)
    }

    /// Says more of the answer. Says nothing any more once the turn has ended.
    pub async fn text(&self, text: impl Into<String>) {
        // An error means that the turn was given up; its future is dropped or cancelled anyway.
        let _ = self.0.send(AgentEvent::Text(text.into())).await;
    }
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The answer is complete.
    Completed,
    /// It was stopped.
    Cancelled {
        /// Whether the agent is known to have stopped working.
        confirmed: bool,
    },
    /// It failed.
    Failed(Failure),
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the chat is told.
    pub public_text: String,
    /// What the log is told; never shown in the chat.
    pub detail: String,
    /// Whether the agent may have acted on the world before it failed.
    pub side_effects_possible: bool,
}
