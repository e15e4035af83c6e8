//! The contract's transport: what the relay needs of a connection, whoever provides it.
//!
//! [`LiveTransport`](super::LiveTransport) drives the link over the network;
//! [`MemoryTransport`](super::MemoryTransport) connects two parts of one process, for tests and embedders.
//! A transport never looks into a message and never waits for application work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::frames;
use super::metrics::{Counts, LinkMeasures};
use crate::link::{Descriptors, DormancyRefused, End, Generation, NotSent, Op, SendResult};
use crate::wire::{
    Action, ActionText, CapabilityDescriptor, ConnectorFrame, MessageEvent, Metadata, OpId, Outcome,
    PassthroughForward, Undecodable,
};

/// What a transport's asynchronous methods return.
pub type TransportFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that arrived for the relay.
#[derive(Debug)]
pub struct Delivery {
    /// The connection that brought it; acknowledgements go back the same way or not at all.
    pub generation: Generation,
    /// What it is.
    pub cargo: Cargo,
    /// The line exactly as it came; empty where nothing needs it.
    pub line: Vec<u8>,
}

/// What arrived.
#[derive(Debug)]
pub enum Cargo {
    /// A message.
    Inbound {
        /// The message.
        event: Box<MessageEvent>,
        /// The connector's name for the delivery.
        buffer_id: Option<String>,
    },
    /// A forwarded provider request.
    Forward {
        /// The request.
        forward: Box<PassthroughForward>,
        /// The connector's name for the delivery.
        buffer_id: Option<String>,
    },
    /// Stop this session's turn.
    Interrupt {
        /// The session.
        session_key: String,
        /// The chat it is about.
        chat_id: String,
    },
    /// A line that nobody can use, or several on end that nobody waits to have acknowledged.
    Unusable {
        /// What is wrong with the first of them.
        unusable: Undecodable,
        /// How many there were.
        lines: u64,
    },
}

impl Cargo {
    /// The frames that are the relay's business; none for the others.
    pub(super) fn of(frame: ConnectorFrame) -> Option<Self> {
        match frame {
            ConnectorFrame::Inbound { event, buffer_id } => Some(Self::Inbound { event, buffer_id }),
            ConnectorFrame::PassthroughForward { forward, buffer_id } => {
                Some(Self::Forward { forward, buffer_id })
            }
            ConnectorFrame::InterruptInbound { session_key, chat_id } => {
                Some(Self::Interrupt { session_key, chat_id })
            }
            ConnectorFrame::Descriptor(_)
            | ConnectorFrame::OutboundResult { .. }
            | ConnectorFrame::GoingIdleAck
            | ConnectorFrame::Unknown { .. } => None,
        }
    }

    /// Whether the journal keeps its line.
    pub(super) fn is_kept(&self) -> bool {
        match self {
            Self::Inbound { .. } | Self::Forward { .. } => true,
            Self::Unusable { unusable, .. } => unusable.buffer_id.is_some(),
            Self::Interrupt { .. } => false,
        }
    }

    /// Counts one more line that nobody can use, where neither it nor this has a name; tells whether it did.
    pub(super) fn takes_in(&mut self, next: &Undecodable) -> bool {
        match self {
            Self::Unusable { unusable, lines }
                if unusable.buffer_id.is_none() && next.buffer_id.is_none() =>
            {
                *lines += 1;
                true
            }
            _ => false,
        }
    }
}

/// Where the answers to ops go. The asker keeps no more ops in flight than the channel holds, so that
/// telling never waits.
pub type Settlements = mpsc::Sender<(u64, SendResult)>;

/// How a connection stands, for whoever watches.
#[derive(Clone, Debug, Default)]
pub struct LinkView {
    /// The live connection, when there is one.
    pub live: Option<Generation>,
    /// What the connector declared at the last handshake.
    pub descriptors: Descriptors,
    /// State, for people.
    pub state: String,
    /// Why the last connection went, for people.
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
    pub measures: LinkMeasures,
}

/// A connection to a connector.
pub trait RelayTransport: Send + Sync + 'static {
    /// Starts dialling and keeps doing so. What arrives goes into `deliveries`, in order; a full channel slows
    /// the connector down.
    fn connect(&self, deliveries: mpsc::Sender<Vec<Delivery>>);

    /// How the connection stands; changes are told.
    fn view(&self) -> watch::Receiver<LinkView>;

    /// Asks for an op; the answer goes to `settlements` under the op's token.
    fn submit(&self, op: Op, settlements: Settlements);

    /// The largest token among the ops that have left this process, for an asker whose tokens grow. A
    /// transport that cannot tell says that all have.
    fn written(&self) -> u64 {
        u64::MAX
    }

    /// How many frames came and went so far, by type; a transport that has none says none.
    fn frames(&self) -> (Counts, Counts) {
        frames::none()
    }

    /// Says that a delivery is safe, on the connection that brought it.
    fn acknowledge(&self, generation: Generation, buffer_id: String);

    /// Tells the connector to stop a session's turn, wherever it runs.
    fn send_interrupt(&self, session_key: String, reason: Option<String>);

    /// Offers these slash commands on a platform from the next handshake on.
    fn offer_commands(&self, _platform: &'static str, _manifest: Vec<Value>) {}

    /// Asks the connector to buffer while everything goes on; `true` once it says that it does.
    fn go_idle(&self, within: Duration) -> TransportFuture<'_, bool>;

    /// Closes the socket to sleep; only after [`Self::go_idle`] said `true`.
    fn go_dormant(&self) -> TransportFuture<'_, Result<(), DormancyRefused>>;

    /// Dials at once if there is no connection.
    fn wake(&self);

    /// Dials anew, so that the connector delivers again what was not acknowledged.
    fn renew(&self);

    /// Ends the connection for good, settling what is in flight for so long at most.
    fn disconnect(&self, within: Duration) -> TransportFuture<'_, ()>;

    /// Waits for a handshake and gives the primary descriptor; the end, if that comes first.
    fn handshake(&self) -> TransportFuture<'_, Result<Arc<CapabilityDescriptor>, End>> {
        Box::pin(async {
            let mut view = self.view();
            let seen = view
                .wait_for(|view| view.live.is_some() || view.ended.is_some())
                .await;
            let Ok(seen) = seen else { return Err(End::Closed) };
            match (seen.descriptors.primary(), &seen.ended) {
                (Some(primary), None) => Ok(Arc::clone(primary)),
                (_, ended) => Err(ended.clone().unwrap_or(End::Closed)),
            }
        })
    }

    /// Asks for an op and waits for what becomes of it.
    fn send_outbound(
        &self,
        action: &Action,
        platform: Option<String>,
        bot_id: Option<String>,
    ) -> TransportFuture<'_, SendResult> {
        let action = ActionText::from(action);
        Box::pin(async move {
            let (settlements, mut settled) = mpsc::channel(1);
            let op = Op {
                id: random_op_id(),
                action,
                platform,
                bot_id,
                timeout: None,
            };
            self.submit(op, settlements);
            settled
                .recv()
                .await
                .map_or(SendResult::NotSent(NotSent::Closing), |(_, outcome)| outcome)
        })
    }

    /// A chat's name and type; its id and `dm` when the connector cannot tell.
    fn get_chat_info(&self, chat_id: String) -> TransportFuture<'_, ChatInfo> {
        Box::pin(async move {
            let asked = self
                .send_outbound(
                    &Action::GetChatInfo {
                        chat_id: chat_id.clone(),
                    },
                    None,
                    None,
                )
                .await;
            ChatInfo::read(&chat_id, &asked)
        })
    }

    /// Speaks through a capability that the connector holds for a session.
    fn send_follow_up(
        &self,
        session_key: String,
        kind: String,
        content: String,
        metadata: Metadata,
    ) -> TransportFuture<'_, SendResult> {
        let platform = kind.split_once('.').map(|(platform, _)| platform.to_owned());
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
    /// What is said of a chat that nobody can tell about.
    pub(super) fn unknown(chat_id: &str) -> Self {
        Self {
            name: chat_id.to_owned(),
            chat_type: "dm".to_owned(),
        }
    }

    pub(super) fn read(chat_id: &str, asked: &SendResult) -> Self {
        let result = match asked {
            SendResult::Answered(outcome) => match &**outcome {
                Outcome::Applied(result) => Some(result),
                Outcome::Refused { .. } | Outcome::Unknown => None,
            },
            SendResult::NotSent(_) => None,
        };
        let field = |name: &str| {
            let info = result?.chat_info.as_ref()?.get(name)?.as_str()?;
            Some(info.to_owned())
        };
        let flat = |scalar: Option<&crate::wire::Scalar>| scalar.map(|text| text.as_str().to_owned());
        Self {
            name: field("name")
                .or_else(|| flat(result?.name.as_ref()))
                .unwrap_or_else(|| chat_id.to_owned()),
            chat_type: field("type")
                .or_else(|| flat(result?.chat_type.as_ref()))
                .unwrap_or_else(|| "dm".to_owned()),
        }
    }
}

/// An answer that is waited for once.
pub(super) type Answer<T> = oneshot::Sender<T>;

/// The asker's number, which an op id carries in its low half.
pub(super) fn token_of(id: OpId) -> u64 {
    u64::try_from(id.0 & u128::from(u64::MAX)).unwrap_or_default()
}

fn random_op_id() -> OpId {
    let seed = || super::clock::Clock::start().seed();
    OpId((u128::from(seed()) << 64) | u128::from(seed()))
}
