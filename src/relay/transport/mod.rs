//! The contract's transport: what the relay needs of a connection, whoever provides it.
//!
//! [`WebSocketTransport`] drives the link over the network; [`TelegramTransport`] and [`DiscordTransport`] are bots of one's
//! own, without a connector, and [`TransportGroup`] is several of them;
//! [`MemoryTransport`] connects two parts of one process, for tests and embedders. A transport never looks into a message and never waits for application work.

mod bot_sender;
mod connection;
mod discord;
mod driver;
mod group;
mod memory;
mod telegram;
mod websocket;

pub use discord::DiscordTransport;
pub use group::{MemberKind, TransportGroup};
pub use memory::{DeliverError, MemoryConnector, MemoryTransport, Record, ReplyMode, SeenOp};
pub use telegram::TelegramTransport;
pub use websocket::{Credentials, USER_AGENT, WebSocketSettings, WebSocketTransport};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use smol_str::SmolStr;

use super::clock::Clock;
use super::metrics::{LabelCounts, LinkMetrics};
use super::not_running::NotRunning;
use crate::adapter::stream::ShownDraft;
use crate::link::{Descriptors, DormancyRefused, End, Generation, NotSent, Op, SendResult};
use crate::text::truncate;
use crate::wire::{
    Action, ActionText, CapabilityDescriptor, ConnectorFrame, DecodeError, GatewayFrame, MessageEvent,
    Metadata, OpId, OpIds, Outcome, OwnPlatforms, PassthroughForward, Scalar, Undecodable,
};

/// Batches of frames that may wait for the relay.
const MAX_FRAME_BATCHES: usize = 4;
/// Interrupts that may wait for the relay.
const MAX_INTERRUPTS: usize = 1024;
/// Longest unknown type of a frame that is shown, in characters.
const MAX_KIND: usize = 40;

/// What a transport's asynchronous methods return.
pub type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that arrived for the relay.
#[derive(Debug)]
pub struct InboundFrame {
    /// The connection that brought it. It is acknowledged on that connection or not at all.
    pub generation: Generation,
    /// What it is.
    pub body: FrameBody,
    /// The line exactly as it came; empty where the journal does not keep it.
    pub line: Arc<[u8]>,
}

/// What arrived.
#[derive(Debug)]
pub enum FrameBody {
    /// A message.
    Message {
        /// The message.
        event: Box<MessageEvent>,
        /// The connector's name for the frame.
        buffer_id: Option<String>,
    },
    /// A forwarded provider request.
    Forward {
        /// The request.
        forward: Box<PassthroughForward>,
        /// The connector's name for the frame.
        buffer_id: Option<String>,
    },
    /// A line that cannot be decoded, or several in a row that need no acknowledgement.
    Undecodable {
        /// What is wrong with the first of them.
        first: Undecodable,
        /// How many there are.
        lines: u64,
    },
}

impl FrameBody {
    /// Whether the journal keeps the line.
    fn keeps_line(&self) -> bool {
        match self {
            Self::Message { .. } | Self::Forward { .. } => true,
            Self::Undecodable { first, .. } => first.buffer_id.is_some(),
        }
    }
}

/// What an interrupt is to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterruptTarget {
    /// Whichever turn runs in the session with this key.
    Session(String),
    /// The turn that shows this draft, and no other.
    Draft(ShownDraft),
}

/// A request to stop a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptRequest {
    /// The connection that brought it.
    pub generation: Generation,
    /// Deliveries that this connection brought before it.
    pub after: u64,
    /// What it is to stop.
    pub target: InterruptTarget,
}

/// A frame that is the relay's business.
enum RelayFrame {
    Inbound(InboundFrame),
    Interrupt(InterruptRequest),
}

/// Sorts what one connection brings, counting frames so that interrupts know what came before them.
#[derive(Debug)]
struct FrameSorter {
    generation: Generation,
    frames: u64,
    /// Platforms that this connection declared.
    declared: OwnPlatforms,
}

impl FrameSorter {
    fn new(generation: Generation) -> Self {
        Self {
            generation,
            frames: 0,
            declared: OwnPlatforms::default(),
        }
    }

    /// A descriptor came.
    fn declare(&mut self, descriptor: &CapabilityDescriptor) {
        self.declared.add(&descriptor.platform);
    }

    /// What a frame means to the relay; nothing for frames that are the link's business.
    fn sort(&mut self, frame: ConnectorFrame, line: &[u8]) -> Option<RelayFrame> {
        let body = match frame {
            ConnectorFrame::Inbound { mut event, buffer_id } => {
                event.source.platform.adopt(&self.declared);
                FrameBody::Message { event, buffer_id }
            }
            ConnectorFrame::PassthroughForward { forward, buffer_id } => {
                FrameBody::Forward { forward, buffer_id }
            }
            ConnectorFrame::InterruptInbound { session_key, .. } => {
                let target = InterruptTarget::Session(session_key);
                return Some(RelayFrame::Interrupt(self.interrupt(target)));
            }
            ConnectorFrame::Unknown {
                kind,
                buffer_id: buffer_id @ Some(_),
            } => {
                let first = Undecodable {
                    kind: kind.map(|kind| truncate(&kind, MAX_KIND).to_owned()),
                    buffer_id,
                    error: DecodeError::UnknownType,
                };
                FrameBody::Undecodable { first, lines: 1 }
            }
            ConnectorFrame::Descriptor(_)
            | ConnectorFrame::OutboundResult { .. }
            | ConnectorFrame::GoingIdleAck
            | ConnectorFrame::LinkRequest { .. }
            | ConnectorFrame::Unknown { buffer_id: None, .. } => return None,
        };
        Some(RelayFrame::Inbound(self.frame(body, line)))
    }

    /// An interrupt, after the frames so far.
    fn interrupt(&self, target: InterruptTarget) -> InterruptRequest {
        InterruptRequest {
            generation: self.generation,
            after: self.frames,
            target,
        }
    }

    /// The frame of a line that a bot wrote as a connector would have sent it.
    fn delivery(&mut self, line: &[u8], counters: &FrameCounters) -> Option<InboundFrame> {
        match ConnectorFrame::decode(line) {
            Ok(frame) => {
                counters.received(Some(&frame));
                match self.sort(frame, line)? {
                    RelayFrame::Inbound(delivery) => Some(delivery),
                    RelayFrame::Interrupt(_) => None,
                }
            }
            Err(error) => {
                counters.received(None);
                Some(self.undecodable(error, line))
            }
        }
    }

    /// A line that cannot be decoded.
    fn undecodable(&mut self, first: Undecodable, line: &[u8]) -> InboundFrame {
        self.frame(FrameBody::Undecodable { first, lines: 1 }, line)
    }

    fn frame(&mut self, body: FrameBody, line: &[u8]) -> InboundFrame {
        self.frames += 1;
        let line = if body.keeps_line() {
            line.into()
        } else {
            Arc::default()
        };
        InboundFrame {
            generation: self.generation,
            body,
            line,
        }
    }
}

/// Where a transport puts what arrives: frames in order, and interrupts past them.
#[derive(Clone, Debug)]
pub struct InboundSender {
    frames: mpsc::Sender<Vec<InboundFrame>>,
    interrupts: mpsc::Sender<InterruptRequest>,
}

/// Where the relay takes what arrived.
#[derive(Debug)]
pub struct InboundReceiver {
    /// Deliveries, in order.
    pub frames: mpsc::Receiver<Vec<InboundFrame>>,
    /// Interrupts; taken before other frames.
    pub interrupts: mpsc::Receiver<InterruptRequest>,
}

/// Both ends of the way from a transport to its relay.
pub fn inbound_channel() -> (InboundSender, InboundReceiver) {
    let (frame_sender, frames) = mpsc::channel(MAX_FRAME_BATCHES);
    let (interrupt_sender, interrupts) = mpsc::channel(MAX_INTERRUPTS);
    let sender = InboundSender {
        frames: frame_sender,
        interrupts: interrupt_sender,
    };
    let receiver = InboundReceiver { frames, interrupts };
    (sender, receiver)
}

impl InboundSender {
    /// Forwards frames, in order. Waits while the relay is behind, which slows the connector down.
    pub async fn forward(&self, frames: Vec<InboundFrame>) -> Result<(), NotRunning> {
        self.frames.send(frames).await.map_err(|_| NotRunning)
    }

    /// Forwards an interrupt, past all other frames.
    pub async fn interrupt(&self, interrupt: InterruptRequest) -> Result<(), NotRunning> {
        self.interrupts.send(interrupt).await.map_err(|_| NotRunning)
    }
}

/// Where the results of ops go. The sender of ops keeps no more of them in flight than the channel holds, so that
/// reporting never waits.
pub type ResultSender = mpsc::Sender<(OpId, SendResult)>;

/// The state of a connection, for whoever watches it.
#[derive(Clone, Debug, Default)]
pub struct LinkStatus {
    /// The live connection, when there is one.
    pub live: Option<Generation>,
    /// What the connector declared at the last handshake.
    pub descriptors: Descriptors,
    /// Platforms of a group's members of which nothing is known yet: what `descriptors` says of them only stands in.
    pub undescribed: Vec<String>,
    /// State, for people.
    pub state: String,
    /// Why the last connection was lost, for people.
    pub last_loss: Option<String>,
    /// When the next dial is due, in Unix milliseconds, while there is no connection.
    pub retry_at_ms: Option<i64>,
    /// Over, and why.
    pub ended: Option<End>,
    /// How far the connector's clock is ahead, in milliseconds.
    pub clock_skew_ms: Option<i64>,
    /// What has happened so far.
    pub counters: crate::link::Counters,
    /// What was measured so far.
    pub metrics: LinkMetrics,
}

impl LinkStatus {
    fn starting() -> Self {
        Self {
            state: "starting".to_owned(),
            ..Self::default()
        }
    }

    /// A handshake is complete, and this is what it declared.
    pub fn went_live(
        &mut self,
        generation: Generation,
        descriptors: impl IntoIterator<Item = CapabilityDescriptor>,
    ) {
        self.live = Some(generation);
        self.descriptors = Descriptors::new(generation, descriptors);
        "live".clone_into(&mut self.state);
        self.retry_at_ms = None;
        self.ended = None;
        self.counters.handshakes += 1;
    }

    /// Something failed, for this reason, and is tried again at this time.
    pub fn failed(&mut self, why: String, retry_at_ms: i64) {
        self.last_loss = Some(why);
        self.retry_at_ms = Some(retry_at_ms);
    }

    /// There is no connection any more, or still none, for this reason; the next dial is at this time.
    pub fn lost(&mut self, why: String, retry_at_ms: i64) {
        self.disconnected("waiting");
        self.failed(why, retry_at_ms);
    }

    /// The credentials are not accepted: somebody has to mend the settings. What is lost by it was reported by [`Self::lost`].
    pub fn revoked(&mut self, reason: String) {
        "revoked".clone_into(&mut self.state);
        self.ended = Some(End::Revoked { reason });
    }

    /// The relay closed the connection for good.
    pub fn closed(&mut self) {
        self.live = None;
        "closed".clone_into(&mut self.state);
        self.ended = Some(End::Closed);
    }

    /// There is no connection any more, or still none; `state` says for people what there is.
    fn disconnected(&mut self, state: &str) {
        self.counters.losses += u64::from(self.live.take().is_some());
        state.clone_into(&mut self.state);
    }
}

/// A connection to a connector.
///
/// | the contract | here |
/// |---|---|
/// | `connect` | [`connect`](Self::connect): dials and keeps dialling |
/// | `disconnect` | [`disconnect`](Self::disconnect) |
/// | `handshake` | [`handshake`](Self::handshake): the primary descriptor |
/// | `set_inbound_handler`, `set_interrupt_inbound_handler` | the [`InboundSender`] given to `connect` |
/// | `send_outbound` | [`send_outbound`](Self::send_outbound), or [`submit`](Self::submit) without waiting |
/// | `get_chat_info`, `send_follow_up`, `send_interrupt`, `go_idle` | the same names |
pub trait RelayTransport: Send + Sync + 'static {
    /// Starts dialling and keeps doing so. What arrives goes into `inbound`.
    fn connect(&self, inbound: InboundSender);

    /// The state of the connection; watchers are notified of changes.
    fn status(&self) -> watch::Receiver<LinkStatus>;

    /// Sends an op; its result goes to `results` under the op's id.
    fn submit(&self, op: Op, results: ResultSender);

    /// Whether the bytes of an op in flight to this platform have left this process. A transport that cannot tell says that they have.
    fn has_left(&self, _op: OpId, _platform: Option<&str>) -> bool {
        true
    }

    /// How many frames came and went so far, by type; a transport that has none counts none.
    fn frames(&self) -> (LabelCounts, LabelCounts) {
        FrameCounters::default().counts()
    }

    /// Confirms a frame, on the connection that brought it.
    fn acknowledge(&self, generation: Generation, buffer_id: String);

    /// The name that a frame has at whoever sent it: the same when it comes again.
    fn own_name<'n>(&self, buffer_id: &'n str) -> &'n str {
        buffer_id
    }

    /// The bot that sent a frame, if others send frames here, too: their names for frames may be the same as its own.
    fn bot_of(&self, _buffer_id: &str) -> Option<&'static str> {
        None
    }

    /// Asks the connector to stop a session's turn, wherever it runs.
    fn send_interrupt(&self, session_key: String, reason: Option<String>);

    /// Offers these slash commands on a platform from the next handshake on.
    fn offer_commands(&self, _platform: &'static str, _manifest: Vec<Value>) {}

    /// Nobody answers this message of a platform: whoever shows that it is being answered stops.
    fn leave_unanswered(&self, _platform: &str, _message_id: &str) {}

    /// What answers this message of a platform is for its author alone, if the platform can do that.
    fn answer_privately(&self, _platform: &str, _message_id: &str) {}

    /// A question of an earlier process is still open on a platform: presses of its buttons count.
    fn expect_press(&self, _platform: &str, _prompt_id: &str) {}

    /// Asks the connector to buffer while everything goes on; `true` once it confirms.
    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool>;

    /// Closes the socket to sleep; only after [`Self::go_idle`] returned `true`.
    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>>;

    /// Dials now if there is no connection.
    fn wake(&self);

    /// Reconnects, so that the connector delivers again what was not acknowledged.
    fn reconnect(&self);

    /// Ends the connection for good. Waits at most `within` for the results of ops in flight.
    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()>;

    /// Waits for a handshake and returns the primary descriptor; the end, if that comes first.
    fn handshake(&self) -> TransportFuture<'_, Result<Arc<CapabilityDescriptor>, End>> {
        Box::pin(async {
            let mut status = self.status();
            let seen = status
                .wait_for(|status| status.live.is_some() || status.ended.is_some())
                .await;
            let Ok(seen) = seen else { return Err(End::Closed) };
            match (seen.descriptors.primary(), &seen.ended) {
                (Some(primary), None) => Ok(Arc::clone(primary)),
                (_, ended) => Err(ended.clone().unwrap_or(End::Closed)),
            }
        })
    }

    /// Sends an op and waits for its result.
    fn send_outbound(
        &self,
        action: &Action,
        platform: Option<SmolStr>,
        bot_id: Option<SmolStr>,
    ) -> TransportFuture<'_, SendResult> {
        let action = ActionText::from(action);
        Box::pin(async move {
            let (results, mut result) = mpsc::channel(1);
            let op = Op {
                id: OpIds::new(Clock::start().seed()).next(),
                action,
                platform,
                bot_id,
                timeout: None,
            };
            self.submit(op, results);
            result
                .recv()
                .await
                .map_or(SendResult::NotSent(NotSent::Closing), |(_, result)| result)
        })
    }

    /// A chat's name and type; its id and `dm` when the connector does not know.
    fn get_chat_info(&self, chat_id: String) -> TransportFuture<'_, ChatInfo> {
        Box::pin(async move {
            let action = Action::GetChatInfo {
                chat_id: chat_id.as_str().into(),
            };
            let result = self.send_outbound(&action, None, None).await;
            ChatInfo::from_result(&chat_id, &result)
        })
    }

    /// Sends through a capability that the connector holds for a session.
    fn send_follow_up(
        &self,
        session_key: String,
        kind: String,
        content: String,
        metadata: Metadata,
    ) -> TransportFuture<'_, SendResult> {
        let platform = kind.split_once('.').map(|(platform, _)| SmolStr::from(platform));
        Box::pin(async move {
            let action = Action::FollowUp {
                session_key,
                kind,
                content,
                metadata,
            };
            self.send_outbound(&action, platform, None).await
        })
    }
}

/// A chat's name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatInfo {
    /// Its name.
    pub name: String,
    /// `dm`, `group` and so on.
    pub chat_type: String,
}

impl ChatInfo {
    fn from_result(chat_id: &str, result: &SendResult) -> Self {
        let applied = match result {
            SendResult::Answered(outcome) => match &**outcome {
                Outcome::Applied(result) => Some(result),
                Outcome::Refused { .. } | Outcome::Unknown => None,
            },
            SendResult::Lost | SendResult::NotSent(_) => None,
        };
        let nested = |name: &str| {
            let field = applied?.chat_info.as_ref()?.get(name)?.as_str()?;
            Some(field.to_owned())
        };
        let flat = |field: Option<&Scalar>| field.map(|text| text.as_str().to_owned());
        Self {
            name: nested("name")
                .or_else(|| flat(applied?.name.as_ref()))
                .unwrap_or_else(|| chat_id.to_owned()),
            chat_type: nested("type")
                .or_else(|| flat(applied?.chat_type.as_ref()))
                .unwrap_or_else(|| "dm".to_owned()),
        }
    }
}

/// Types of frames that arrive, and lines that cannot be decoded.
const RECEIVED: [&str; 9] = [
    "descriptor",
    "inbound",
    "outbound_result",
    "interrupt_inbound",
    "passthrough_forward",
    "going_idle_ack",
    "undecodable",
    "unknown",
    "link_request",
];

/// How many frames of each type passed: plain counters that several tasks raise.
#[derive(Debug, Default)]
struct FrameCounters {
    received: [AtomicU64; RECEIVED.len()],
    sent: [AtomicU64; GatewayFrame::KINDS.len()],
}

impl FrameCounters {
    /// Counts a line that arrived; `None` when it could not be decoded.
    fn received(&self, frame: Option<&ConnectorFrame>) {
        let index = match frame {
            Some(ConnectorFrame::Descriptor(_)) => 0,
            Some(ConnectorFrame::Inbound { .. }) => 1,
            Some(ConnectorFrame::OutboundResult { .. }) => 2,
            Some(ConnectorFrame::InterruptInbound { .. }) => 3,
            Some(ConnectorFrame::PassthroughForward { .. }) => 4,
            Some(ConnectorFrame::GoingIdleAck) => 5,
            None => 6,
            Some(ConnectorFrame::Unknown { .. }) => 7,
            Some(ConnectorFrame::LinkRequest { .. }) => 8,
        };
        self.received[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a frame of this type that goes out.
    fn sent(&self, kind: &str) {
        if let Some(index) = GatewayFrame::KINDS.iter().position(|known| *known == kind) {
            self.sent[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What came and what went so far.
    fn counts(&self) -> (LabelCounts, LabelCounts) {
        let read = |names: &'static [&'static str], counters: &[AtomicU64]| {
            let mut counts = LabelCounts::new(names);
            for (name, counter) in names.iter().zip(counters) {
                counts.add(name, counter.load(Ordering::Relaxed));
            }
            counts
        };
        (
            read(&RECEIVED, &self.received),
            read(&GatewayFrame::KINDS, &self.sent),
        )
    }
}
