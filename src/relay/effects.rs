//! What parts ask of each other: plain data that the event loop carries from one part to the next.
//!
//! A part takes an event and pushes effects; it never calls another part. [`Effects`] also numbers the journal's requests, so
//! that whoever waits for a completion stands in one table ([`Pending`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use smol_str::SmolStr;
use tokio::sync::oneshot;

use super::handle::{RepairError, SendError};
use super::ops::{EphemeralOp, OpGroup};
use super::origin::TurnOrigin;
use super::parts::handed::{HandedItem, SubmissionReply};
use super::parts::messages::{MessageKey, MessageLine, WaitingMessage};
use super::parts::quiet::QuietKey;
use super::parts::slash_commands::SlashCommand;
use crate::access::{AccessError, EventKind, JobMaker, KeptMessage, PendingPairing, PersonId, Role, Verdict};
use crate::adapter::prompt::{ButtonPress, Person, PromptId, PromptOp, QuestionId, TypedAnswer, UnsaidEnd};
use crate::agent::{Agent, ListedSession, Permission};
use crate::cron::chat::JobCommand;
use crate::cron::fire::FireAdmission;
use crate::link::{Generation, Op, SendResult};
use crate::session::{Admission, TurnId};
use crate::store::{Command, DedupeKey, InboxKind, InboxSeq, OpSeq, StartMark};
use crate::wire::{MessageEvent, OpId, SessionKey};

/// Whose conversations: a person's, or those of a chat that several people share.
pub(super) type OwnerKey = Arc<str>;

/// A chat, or a thread in it.
pub(super) type PlaceKey = Arc<str>;

/// What the parts want done, in order.
#[derive(Debug, Default)]
pub(super) struct Effects {
    queue: VecDeque<Effect>,
    commands: Vec<Command>,
    pending: Vec<(u64, Pending)>,
    last_token: u64,
}

/// Something for another part, or for the transport.
#[derive(Debug)]
pub(super) enum Effect {
    /// Send this op to the connector.
    Send(Op),
    /// Confirm this delivery, on the connection that brought it.
    Acknowledge(Generation, String),
    /// Give this op its place in its chat's lane.
    Queue(EphemeralOp),
    /// Write this op to the journal, and send it after that.
    Deliver(Box<PromptOp>),
    /// Take this op back, unless it is in flight.
    Withdraw(OpId),
    /// The op that shows a question has a result.
    QuestionOp(QuestionId, PromptId, SendResult),
    /// The op that shows a question goes out under another id.
    QuestionOpRenamed(QuestionId, OpId),
    /// The connector declined an op: nothing else of its group is sent.
    Declined(OpGroup),
    /// Part of an answer could not be delivered to this chat.
    Undelivered {
        /// The chat's key.
        chat: Arc<str>,
        /// The thread there.
        thread: Option<SmolStr>,
        /// The session.
        session: Arc<str>,
        /// Why.
        reason: String,
        /// Whether the chat is notified: it was to be answered, and still takes messages.
        notify: bool,
    },
    /// The connector declined text of a running turn: nothing else of the turn's answer is sent.
    TurnDeclined(TurnId),
    /// Somebody wants a message that waits not to run.
    DropWaiting {
        /// Its session.
        session: SessionKey,
        /// The message.
        row: InboxSeq,
        /// What they read if it is dropped.
        done: String,
        /// Where they read it, or that it did not wait.
        end: Box<UnsaidEnd>,
    },
    /// An owner decided about somebody's code.
    PairingDecided {
        /// The code.
        code: String,
        /// Whether they are let in.
        approved: bool,
        /// Where the owner reads what became of it.
        end: Box<UnsaidEnd>,
    },
    /// The connector opened a thread for something that was sent to a chat.
    ThreadOpened {
        /// The chat's key.
        chat: Arc<str>,
        /// The thread.
        thread: String,
        /// Its name, when the connector gives it.
        name: Option<String>,
    },
    /// The thread that the message with this key starts is there, or cannot be opened.
    GroupThread(Arc<str>, Option<String>),
}

/// Who waits for the completion of a journal command.
#[derive(Debug)]
pub(super) enum Pending {
    /// A message, a run of a job or a handed-over item is being accepted.
    Accept(Box<Accepting>),
    /// A line that nobody can use is being quarantined.
    Quarantine(Generation),
    /// Rows of a session are being read.
    SessionRows(SessionKey),
    /// Waiting rows of sessions that are not in memory are being read, after this one.
    WaitingRows(InboxSeq),
    /// The rows of a session are being read, because a message of an earlier process may be among them that was changed.
    ChangedMessage(SessionKey, Box<MessageChange>),
    /// Ops outside a turn's end are being committed; the outbox holds them.
    Ops(Option<oneshot::Sender<Result<(), SendError>>>),
    /// Somebody's quiet hours are being read.
    Quiet(QuietKey, QuietWaiter),
    /// Which agent was chosen for a session is being read.
    AgentChoice(SessionKey, AgentWaiter),
    /// Which project a chat or a thread has is being read.
    Project(PlaceKey, AgentWaiter),
    /// A turn waits to learn the conversations of this owner.
    Conversations(TurnId, OwnerKey),
    /// One of the relay's own commands waits to learn them.
    CommandConversations(OwnerKey, Box<CommandCall>),
    /// A command waits to learn which of the sessions that an agent lists are conversations of the relay.
    ListedSessions(Box<Listing>, Vec<ListedSession>),
    /// A command line waits until its change of the rules is stored; then it gets this answer.
    Access(oneshot::Sender<Result<Value, AccessError>>, Value),
    /// A command line waits until an entry of the journal is repaired, which keeps this op back.
    Repair(Option<OpSeq>, oneshot::Sender<Result<(), RepairError>>),
    /// An agent waits for its saved state.
    AgentState(oneshot::Sender<Option<Vec<u8>>>),
    /// A turn waits to learn whether its conversation wants spoken answers.
    Voice(Vec<Arc<str>>, oneshot::Sender<Option<Vec<u8>>>),
    /// A step of scheduled jobs.
    Job(JobStep),
    /// The context that waits for turns is being read, or a change of handed-over items is being stored.
    Handed,
}

/// What waits to learn which agent answers somewhere, or on which terms.
#[derive(Debug)]
pub(super) enum AgentWaiter {
    /// A turn.
    Turn(TurnId),
    /// One of the relay's own commands.
    Command(Box<CommandCall>),
    /// The message with this key, which waits for a thread whose name begins with the project of its group.
    Thread(Arc<str>),
}

/// What waits for somebody's quiet hours.
#[derive(Debug)]
pub(super) enum QuietWaiter {
    /// A message of theirs, which does not wait for them: they are read before it is written.
    Message,
    /// A turn of theirs.
    Turn(TurnId),
    /// `/quiet`, which shows them.
    Command(Box<CommandCall>),
}

impl Pending {
    /// What is waited for, for the log, which must not show any text of people.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Accept(_) => "accept",
            Self::Quarantine(_) => "quarantine",
            Self::SessionRows(_) | Self::WaitingRows(_) | Self::ChangedMessage(..) => "rows",
            Self::Ops(_) => "ops",
            Self::AgentChoice(..)
            | Self::AgentState(_)
            | Self::Voice(..)
            | Self::Project(..)
            | Self::Conversations(..)
            | Self::CommandConversations(..)
            | Self::ListedSessions(..)
            | Self::Quiet(..) => "state",
            Self::Access(..) => "access",
            Self::Repair(..) => "repair",
            Self::Job(_) => "job",
            Self::Handed => "handed",
        }
    }
}

/// A question to the journal about scheduled jobs.
#[derive(Debug)]
pub(super) enum JobStep {
    /// The runs that an earlier process left.
    Recover,
    /// The jobs.
    Jobs,
    /// Runs that people asked for.
    Requested,
    /// Claim an occurrence of this job; a fire may wait for that.
    Claim(String, Option<oneshot::Sender<FireAdmission>>),
    /// Mark a run as begun before its agent starts.
    Begin(TurnId, RunSeq),
    /// Store how a run ended.
    Finished,
    /// Change a job, as somebody asked in a chat.
    Change(Box<ChatJobRequest>),
    /// A note that nobody waits for.
    Noted,
}

/// A change of a job that somebody asked for in a chat, and where the answer goes.
#[derive(Debug)]
pub(super) struct ChatJobRequest {
    pub(super) command: JobCommand,
    pub(super) call: CommandCall,
    pub(super) maker: JobMaker,
}

/// One of the relay's own commands that is committed as this row: who wrote it, and where its answer goes.
#[derive(Clone, Debug)]
pub(super) struct CommandCall {
    pub(super) command: SlashCommand,
    pub(super) about: AboutTurn,
    pub(super) row: InboxSeq,
    pub(super) origin: Arc<TurnOrigin>,
}

/// One of the relay's own commands that waits for an agent's list of sessions, and whose conversations it is about.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) owner: OwnerKey,
    pub(super) call: Box<CommandCall>,
}

/// The number of a run of a job, as the journal keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RunSeq(pub(super) i64);

/// The task of a turn. Accepting, loading, beginning, interrupting and finishing a turn is the same for all three, except
/// where they match on it.
#[derive(Debug)]
pub(super) enum Task {
    /// Answer a message. The message is here until the agent has it.
    Message(Option<Box<MessageEvent>>),
    /// Run a scheduled job.
    Job(JobTask),
    /// Work on an item that a program handed over.
    Handed(Box<HandedTask>),
}

/// A run of a job, as a turn knows it; the scheduler has the rest.
#[derive(Debug)]
pub(super) struct JobTask {
    pub(super) run: RunSeq,
    /// The texts of its skills and its own, once they are read.
    pub(super) prompt: String,
}

/// An item that a program handed over, as a turn of its own.
#[derive(Debug)]
pub(super) struct HandedTask {
    pub(super) agent: String,
    pub(super) text: String,
    /// Where the answer goes if the session has no chat.
    pub(super) deliver: Option<String>,
    /// Whether the answer is collected for the end of the turn.
    pub(super) is_collected: bool,
    /// Whether the agent was given the item; none if that is not known.
    pub(super) mark: Option<StartMark>,
}

impl HandedTask {
    /// Whether the agent was surely not given the item.
    pub(super) fn is_unbegun(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| !mark.is_given())
    }
}

/// A message, a run of a job or a handed-over item on its way into the journal.
#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) session: SessionKey,
    pub(super) place: Place,
    pub(super) work: Work,
}

/// The place in its session that work holds until it is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A turn, which begins once the work is committed.
    Turn(TurnId),
    /// The end of the queue, behind the turn that ran when the work came.
    Queue(Option<TurnId>),
    /// An edit or a deletion: until it is applied, the turn of its session does not begin, as it may change the message of that turn.
    Change,
    /// None: the work is no turn.
    None,
}

impl From<Admission> for Place {
    fn from(admission: Admission) -> Self {
        match admission {
            Admission::Start(turn) => Self::Turn(turn),
            Admission::Wait { behind } => Self::Queue(behind),
        }
    }
}

/// The work that is being accepted.
#[derive(Debug)]
pub(super) enum Work {
    /// A message, from the connection that brought it.
    Message(Generation, Arrival),
    /// A run of a job.
    Job(RunSeq),
    /// An item that a program handed over.
    Handed(Box<Submission>),
}

impl Work {
    /// Whether it is a message whose turn can begin: nothing but that is about to happen in its session.
    pub(super) fn starts_turn(&self) -> bool {
        matches!(self, Self::Message(_, arrival) if matches!(arrival.intent, Intent::Start { .. }))
    }
}

/// An item that a program handed over, and who waits for its receipt.
#[derive(Debug)]
pub(super) struct Submission {
    pub(super) item: HandedItem,
    pub(super) reply: SubmissionReply,
    pub(super) received_at: i64,
}

/// A message that is about to be journaled.
pub(super) struct NewMessage {
    pub(super) kind: InboxKind,
    pub(super) buffer_id: Option<String>,
    pub(super) line: Arc<[u8]>,
    pub(super) dedupe: Option<DedupeKey>,
    /// Its turn starts as soon as it is committed.
    pub(super) start: bool,
    /// Whether its turn can be run again after a crash, whichever agent it starts.
    pub(super) repeatable: bool,
    pub(super) now_ms: i64,
}

/// A message that is not journaled yet, from the connection that brought it.
pub(super) struct HeldMessage {
    pub(super) generation: Generation,
    pub(super) session: SessionKey,
    pub(super) event: Box<MessageEvent>,
    pub(super) message: NewMessage,
    /// Set if it came in no frame: even if it is an edit, it runs by itself.
    pub(super) own: Option<OwnMessage>,
}

/// A message that comes from the relay itself.
#[derive(Debug)]
pub(super) enum OwnMessage {
    /// The last message of somebody, once more.
    Retried,
    /// What somebody wrote before their code was approved.
    Kept(Box<(PersonId, PendingPairing)>),
}

/// What happened to a message after it came.
#[derive(Debug)]
pub(super) enum MessageChange {
    /// It was edited; the edit is committed as this row.
    Edit {
        row: InboxSeq,
        event: Box<MessageEvent>,
        message: MessageLine,
    },
    /// It was deleted.
    Deletion(Box<MessageEvent>),
}

impl MessageChange {
    /// An edit that says nothing.
    #[cfg(test)]
    pub(super) fn empty_edit(row: InboxSeq) -> Self {
        Self::Edit {
            row,
            event: Box::default(),
            message: MessageLine {
                kind: InboxKind::Inbound,
                line: Vec::new().into(),
            },
        }
    }

    /// The message as it is now.
    pub(super) fn event(&self) -> &MessageEvent {
        match self {
            Self::Edit { event, .. } | Self::Deletion(event) => event,
        }
    }
}

/// A message that waits, and is handed to the turn that it met once the journal has written that it runs.
#[derive(Debug)]
pub(super) struct Steering {
    pub(super) session: SessionKey,
    /// The turn.
    pub(super) met: TurnId,
    pub(super) key: MessageKey,
    pub(super) event: Box<MessageEvent>,
    pub(super) kind: SteeringKind,
}

impl Steering {
    /// An edit that says nothing.
    #[cfg(test)]
    pub(super) fn empty_edit(session: SessionKey, met: TurnId) -> Self {
        let event = Box::<MessageEvent>::default();
        Self {
            session,
            met,
            key: super::parts::messages::Messages::new().key(&event),
            event,
            kind: SteeringKind::Edit(InboxSeq(1)),
        }
    }
}

/// What is handed to a turn that runs.
#[derive(Debug)]
pub(super) enum SteeringKind {
    /// A new message, as it came.
    Message(Arc<TurnOrigin>, MessageLine),
    /// An edit of the message with this row, which the turn answers.
    Edit(InboxSeq),
}

/// A message that arrives: who wrote it, where, and whether they may.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) origin: Arc<TurnOrigin>,
    pub(super) kind: EventKind,
    /// The name of the relay's own command that it is.
    pub(super) command: Option<&'static str>,
    /// What the rules said when it came; limits are looked at once it is committed.
    pub(super) verdict: Verdict,
    /// When it was written, in Unix milliseconds, where that is known.
    pub(super) written_ms: Option<i64>,
    /// As it came.
    pub(super) message: MessageLine,
    /// Set if it came in no frame.
    pub(super) own: Option<OwnMessage>,
    pub(super) intent: Intent,
}

/// What a message does once it is committed.
#[derive(Debug)]
pub(super) enum Intent {
    /// Start the turn whose place it holds; known by this later.
    Start { key: MessageKey },
    /// Replace what it said before.
    Edit(Box<MessageEvent>),
    /// Withdraw a message.
    Delete(Box<MessageEvent>),
    /// Wait behind a turn, possibly stop it, or be handed to it; known by this later.
    Wait {
        key: MessageKey,
        waiting: WaitingMessage,
        /// The message, when the running turn may take it or be stopped for it.
        event: Option<Box<MessageEvent>>,
    },
    /// Run one of the relay's own commands.
    Command { command: SlashCommand, about: AboutTurn },
    /// Answer a question, or nothing; never the agent's.
    Answer(Box<QuestionResponse>),
    /// Nothing: the rules refuse it. A stranger may have a name, and what they wrote may be kept.
    Refused {
        name: Option<String>,
        message: Option<KeptMessage>,
    },
    /// Nothing: there is nothing to act on.
    Empty,
}

/// What one of the relay's own commands is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AboutTurn {
    /// What ran here when it came: the turn of its session; for a session of its own, the author's turns in the chat.
    Running(Vec<(TurnId, SessionKey)>),
    /// It came before a restart: what ran then is over.
    Forgotten,
}

/// What a message says to a question instead of to the agent.
#[derive(Debug)]
pub(super) enum QuestionResponse {
    /// A button was pressed.
    Press(ButtonPress),
    /// An answer was typed by this person.
    Typed(TypedAnswer, Person),
    /// It was meant for a question, and it is not clear for which: the chat gets this notice.
    Undecided(Box<PromptOp>),
    /// It is for a question and cannot be read.
    Unreadable,
}

/// The agent that answers a message, and on which terms.
#[derive(Clone)]
pub(super) struct SelectedAgent {
    pub(super) name: Arc<str>,
    pub(super) agent: Arc<dyn Agent>,
    pub(super) permission: Permission,
    /// The permission that the settings give it here, whoever writes.
    pub(super) set_permission: Permission,
    pub(super) workdir: Option<PathBuf>,
}

impl SelectedAgent {
    /// A guest's agent asks nobody: what it asks for is denied.
    pub(super) fn restrict(&mut self, role: Option<Role>) {
        if role == Some(Role::Guest) {
            self.permission = Permission::Deny;
        }
    }

    /// Whether this is the same agent with the same options. Only a message for such an agent is handed to a running turn, or
    /// stops it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.set_permission == other.set_permission
            && self.workdir == other.workdir
    }
}

/// Commands that there is room for between rounds.
const KEPT_COMMANDS: usize = 512;

impl Effects {
    /// Something for another part.
    pub(super) fn push(&mut self, effect: Effect) {
        self.queue.push_back(effect);
    }

    /// The next effect to carry out.
    pub(super) fn next(&mut self) -> Option<Effect> {
        self.queue.pop_front()
    }

    /// A journal command whose completion nobody waits for, or that is named by its message.
    pub(super) fn write(&mut self, command: Command) {
        self.commands.push(command);
    }

    /// A journal command under a token of its own, which is returned, and who waits for its completion.
    pub(super) fn request(&mut self, pending: Pending, command: impl FnOnce(u64) -> Command) -> u64 {
        let token = self.token();
        self.commands.push(command(token));
        self.pending.push((token, pending));
        token
    }

    /// A token that no other command has.
    pub(super) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// The commands that the journal does not have yet, in order, to be taken out, and who waits for those with a token.
    pub(super) fn outgoing(&mut self) -> (&mut Vec<Command>, std::vec::Drain<'_, (u64, Pending)>) {
        (&mut self.commands, self.pending.drain(..))
    }

    /// The commands were taken: gives back the memory of an unusual number of them.
    pub(super) fn shrink(&mut self) {
        self.commands.shrink_to(KEPT_COMMANDS);
        self.pending.shrink_to(KEPT_COMMANDS);
    }

    /// The commands since the last call, in order, and who waits for those with a token.
    pub(super) fn take_commands(&mut self) -> (Vec<Command>, Vec<(u64, Pending)>) {
        (
            std::mem::take(&mut self.commands),
            std::mem::take(&mut self.pending),
        )
    }

    /// Commands that the journal does not have yet.
    pub(super) fn commands(&self) -> usize {
        self.commands.len()
    }
}
