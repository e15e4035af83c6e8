//! What an agent says while it works, and where it says it.

use std::path::PathBuf;

use tokio::sync::{mpsc, oneshot};

use super::ask::{Answer, Question};
pub use crate::adapter::speech::StepState;

/// Signals that wait to be read; a full sink makes the agent wait.
const SINK_CAPACITY: usize = 64;

/// What an agent says while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentEvent {
    /// More of the answer.
    Text(String),
    /// The answer since the last [`AgentEvent::Break`] is this instead.
    Replace(String),
    /// What follows is a message of its own.
    Break,
    /// Something it thinks; not part of the answer.
    Thought(String),
    /// A tool begins, goes on or ends.
    Tool(ToolCall),
    /// Its plan, as a whole.
    Plan(Vec<PlanStep>),
    /// Something people should know that is not part of the answer.
    Notice(String),
    /// What the conversation is about.
    Title(String),
    /// What the turn has cost so far.
    Usage(Usage),
    /// A file or picture for the chat.
    Media(Media),
}

/// One use of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The agent's name for this use.
    pub id: String,
    /// What it does, in a line.
    pub title: String,
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// How far it is.
    pub state: StepState,
}

/// Sorts of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    /// Looks at something.
    Read,
    /// Changes a file.
    Edit,
    /// Takes something away.
    Delete,
    /// Looks for something.
    Search,
    /// Runs a program.
    Execute,
    /// Gets something from the network.
    Fetch,
    /// Anything else.
    #[default]
    Other,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: StepState,
}

/// What a turn has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

/// A file or picture for the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Where it is.
    pub place: MediaPlace,
    /// What is said with it; may be empty.
    pub caption: String,
    /// `image`, `voice`, `video`, `audio` or `document`; found out when not given.
    pub kind: Option<String>,
    /// The name to show; the file's own when not given.
    pub name: Option<String>,
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediaPlace {
    /// On this machine.
    File(PathBuf),
    /// On the network.
    Url(String),
}

/// What reaches the one who runs the turn.
#[derive(Debug)]
pub enum Signal {
    /// The agent says something.
    Said(AgentEvent),
    /// The agent asks something and waits.
    Asked(Box<Question>, oneshot::Sender<Answer>),
    /// The agent wants to be given this back in a later run of the program; replaces what it kept before.
    Keep(Vec<u8>),
    /// The agent wants what it kept last in this session.
    Recall(oneshot::Sender<Option<Vec<u8>>>),
}

/// Where an agent puts what it says. Bounded: a sink that is not read makes the agent wait. Text is never lost;
/// progress may be.
#[derive(Clone, Debug)]
pub struct EventSink(pub(super) mpsc::Sender<Signal>);

/// The other end of a sink.
pub type Signals = mpsc::Receiver<Signal>;

impl EventSink {
    /// A sink and its other end.
    pub fn new() -> (Self, Signals) {
        let (sender, receiver) = mpsc::channel(SINK_CAPACITY);
        (Self(sender), receiver)
    }

    /// Says more of the answer. Says nothing any more once the turn has ended.
    pub async fn text(&self, text: impl Into<String>) {
        self.say(AgentEvent::Text(text.into())).await;
    }

    /// Says something that must not be lost.
    pub async fn say(&self, event: AgentEvent) {
        // An error means that the turn was given up; its future is dropped or cancelled anyway.
        let _ = self.0.send(Signal::Said(event)).await;
    }

    /// Tells of progress, without waiting; lost when too much is waiting already.
    pub fn progress(&self, event: AgentEvent) {
        let _ = self.0.try_send(Signal::Said(event));
    }

    /// Keeps something for later runs of this session, also after a restart; empty for nothing.
    pub async fn keep(&self, memory: Vec<u8>) {
        let _ = self.0.send(Signal::Keep(memory)).await;
    }

    /// What was kept last in this session.
    pub async fn recall(&self) -> Option<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Signal::Recall(answer)).await.ok()?;
        answered.await.ok().flatten()
    }
}
