//! Events of a running agent, and the sink for them.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::ask::{PromptAnswer, Question};
pub use crate::adapter::stream::StepState;

/// Capacity of a sink; a full sink makes the agent wait.
const SINK_CAPACITY: usize = 64;

/// Output or progress of a running agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AgentEvent {
    /// Text to append to the answer.
    Text(String),
    /// Replaces the answer since the last [`AgentEvent::Break`].
    Replace(String),
    /// Starts a new message.
    Break,
    /// A thought; not part of the answer.
    Thought(String),
    /// A tool call starts, continues or ends.
    Tool(ToolCall),
    /// The plan with all its steps; replaces an earlier one.
    Plan(Vec<PlanStep>),
    /// A notice to people; not part of the answer.
    Notice(String),
    /// Title of the conversation.
    Title(String),
    /// Usage of the turn so far.
    Usage(Usage),
    /// A file or picture for the chat.
    Media(Media),
    /// A file was changed, by a tool that has ended.
    Changed(FileChange),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The agent's id of the call.
    pub id: String,
    /// One-line title.
    pub title: String,
    /// The kind of tool.
    pub kind: ToolKind,
    /// The progress of the call.
    pub state: StepState,
}

/// Kinds of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolKind {
    /// Reads files or data.
    Read,
    /// Changes a file.
    Edit,
    /// Deletes files or data.
    Delete,
    /// Searches files or data.
    Search,
    /// Runs a program.
    Execute,
    /// Fetches from the network.
    Fetch,
    /// Any other tool.
    #[default]
    Other,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanStep {
    /// The step in a few words.
    pub text: String,
    /// The progress of the step.
    pub state: StepState,
}

/// Token usage of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

impl Usage {
    /// No turn uses more tokens than this: an agent that reports more is wrong.
    const MAX_TOKENS: u64 = 1_000_000_000_000;

    /// What may be true of it, so that sums of it stay numbers.
    pub(crate) fn capped(self) -> Self {
        Self {
            input_tokens: self.input_tokens.min(Self::MAX_TOKENS),
            output_tokens: self.output_tokens.min(Self::MAX_TOKENS),
        }
    }
}

/// A file or picture for the chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The path or the address of the file.
    pub location: MediaLocation,
    /// The caption; may be empty.
    pub caption: String,
    /// `image`, `voice`, `video`, `audio` or `document`; detected if it is not given.
    pub kind: Option<String>,
    /// The file name to show; the file's own if it is not given.
    pub name: Option<String>,
}

/// A change of a file: of all of it, or of a passage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Its path.
    pub path: String,
    /// The text before; `None` for a new file.
    pub old: Option<String>,
    /// The text after; `None` if it is too large to report.
    pub new: Option<String>,
}

/// The place of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaLocation {
    /// A path on this machine.
    File(PathBuf),
    /// An address on the network.
    Url(String),
}

/// A message from a running agent to the relay.
#[derive(Debug)]
pub enum AgentSignal {
    /// Output or progress.
    Event(AgentEvent),
    /// A question; the agent waits for the answer.
    Question(Box<Question>, oneshot::Sender<PromptAnswer>),
    /// State to persist for this session; replaces what was saved before.
    SaveState(Vec<u8>),
    /// A request for the state saved last in this session.
    LoadState(oneshot::Sender<Option<Vec<u8>>>),
}

/// Sends an agent's events to the relay. Bounded: a full sink makes the agent wait. Text is never dropped; progress
/// may be.
#[derive(Clone, Debug)]
pub struct EventSink {
    pub(super) signals: mpsc::Sender<Box<AgentSignal>>,
    start_mark: Option<StartNote>,
}

/// What is done right before an agent is given the text of a turn.
#[derive(Clone)]
struct StartNote(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for StartNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StartNote")
    }
}

/// Receiving end of an [`EventSink`]. A channel makes room for many signals at once, and most turns have one: boxed, they
/// need a ninth of it.
#[derive(Debug)]
pub struct SignalReceiver(mpsc::Receiver<Box<AgentSignal>>);

impl SignalReceiver {
    /// The next signal; nothing when every sink is gone, or after [`Self::close`] when none is left. Cancel-safe.
    pub async fn recv(&mut self) -> Option<AgentSignal> {
        self.0.recv().await.map(|signal| *signal)
    }

    /// A signal that is there already.
    pub fn try_recv(&mut self) -> Result<AgentSignal, mpsc::error::TryRecvError> {
        self.0.try_recv().map(|signal| *signal)
    }

    /// Takes no more signals.
    pub fn close(&mut self) {
        self.0.close();
    }

    /// Whether it takes no more signals.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// A sink and its receiver, for one turn and then for another: making a channel costs more than what a short turn sends
/// through it.
#[derive(Debug)]
pub(crate) struct SignalChannel {
    sink: EventSink,
    pub(crate) signals: SignalReceiver,
}

impl SignalChannel {
    pub(crate) fn new() -> Self {
        let (sink, signals) = EventSink::new();
        Self { sink, signals }
    }

    /// A sink for the next turn.
    pub(crate) fn sink(&self) -> EventSink {
        self.sink.clone()
    }

    /// The turn is over. Takes no more signals if a sink of it is still there, whose signals another turn must not get.
    pub(crate) fn end_turn(&mut self) {
        if self.signals.0.sender_strong_count() > 1 {
            self.signals.close();
        }
    }

    /// Whether another turn may use it: nobody can send anything, and nothing is left.
    pub(crate) fn is_reusable(&self) -> bool {
        !self.signals.is_closed() && self.signals.0.is_empty()
    }
}

impl EventSink {
    /// Creates a sink and its receiver.
    pub fn new() -> (Self, SignalReceiver) {
        let (sender, receiver) = mpsc::channel(SINK_CAPACITY);
        let sink = Self {
            signals: sender,
            start_mark: None,
        };
        (sink, SignalReceiver(receiver))
    }

    /// The same sink, which calls `start_mark` in [`EventSink::mark_started`].
    pub(crate) fn with_start_mark(self, start_mark: impl Fn() + Send + Sync + 'static) -> Self {
        let start_mark = Some(StartNote(Arc::new(start_mark)));
        Self { start_mark, ..self }
    }

    /// A sink of its own for the same turn, and its receiver.
    pub(super) fn nested(&self) -> (Self, SignalReceiver) {
        let (mut sink, receiver) = Self::new();
        sink.start_mark.clone_from(&self.start_mark);
        (sink, receiver)
    }

    /// Whether the relay wants to know when the agent is given the text of the turn.
    pub(crate) fn awaits_start_mark(&self) -> bool {
        self.start_mark.is_some()
    }

    /// Marks the moment right before a program or a model is given the text of the turn. A crash before it leaves a turn that can
    /// run again; after it, the turn is reported as interrupted. Agents with [`AgentInfo::marks_start`](super::AgentInfo::marks_start)
    /// call it; for others the relay does, before they run.
    pub fn mark_started(&self) {
        if let Some(StartNote(start_mark)) = &self.start_mark {
            start_mark();
        }
    }

    /// Appends text to the answer. No effect after the turn has ended.
    pub async fn text(&self, text: impl Into<String>) {
        self.emit(AgentEvent::Text(text.into())).await;
    }

    /// Sends an event that must not be dropped.
    pub async fn emit(&self, event: AgentEvent) {
        // An error means that the turn was abandoned; its future is dropped or cancelled anyway.
        let _ = self.signals.send(Box::new(AgentSignal::Event(event))).await;
    }

    /// Sends progress without waiting; dropped when the sink is full.
    pub fn progress(&self, event: AgentEvent) {
        let _ = self.signals.try_send(Box::new(AgentSignal::Event(event)));
    }

    /// Persists state for later turns of this session, across restarts; empty clears it.
    pub async fn save_state(&self, memory: Vec<u8>) {
        let signal = AgentSignal::SaveState(memory);
        let _ = self.signals.send(Box::new(signal)).await;
    }

    /// Loads the state saved last in this session.
    pub async fn load_state(&self) -> Option<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        let signal = AgentSignal::LoadState(answer);
        self.signals.send(Box::new(signal)).await.ok()?;
        answered.await.ok().flatten()
    }
}
