//! What a link asks of its driver, and what it tells.

use std::sync::Arc;
use std::time::Duration;

use super::close_reason::{End, Loss};
use super::state::Generation;
use crate::wire::{CapabilityDescriptor, ConnectorFrame, OpId, OpResult, Outcome};

/// Something for the driver to do.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkAction {
    /// Open a socket, with a token minted for this dial alone.
    Dial {
        /// What the dial and all its events are called.
        generation: Generation,
        /// Unix seconds to mint the token at: now, on the connector's clock.
        mint_at_unix: i64,
    },
    /// Write one line as one WebSocket message.
    Write {
        /// On this socket.
        generation: Generation,
        /// The line, newline included.
        line: String,
        /// The frame's wire name.
        kind: &'static str,
        /// The op that the line requests, if it requests one.
        op: Option<OpId>,
    },
    /// Send a WebSocket ping.
    Ping {
        /// On this socket.
        generation: Generation,
    },
    /// End a socket, or give up a dial. Comes once for every generation that was opened or given up, also
    /// when the other end closed first.
    CloseSocket {
        /// Which one.
        generation: Generation,
        /// Close code, should it still be possible to send one.
        code: u16,
        /// Close reason.
        reason: &'static str,
    },
    /// Report the result of an op.
    Completed {
        /// The op.
        id: OpId,
        /// Its result.
        result: SendResult,
    },
    /// Report a change to people and to the rest of the relay.
    Event(LinkEvent),
}

/// The result of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum SendResult {
    /// It was written; this is what is known about it.
    Answered(Box<Outcome>),
    /// It was never written: sending it again is safe.
    NotSent(NotSent),
}

/// Why an op was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotSent {
    /// There is no connection.
    #[error("the relay is not connected")]
    NotLive,
    /// The connection was lost while the op waited its turn.
    #[error("the connection was lost before it was its turn")]
    Lost,
    /// Too many ops wait.
    #[error("too many ops are waiting")]
    Full,
    /// It was not its turn in time.
    #[error("it was not its turn in time")]
    Expired,
    /// An op with this id is pending already.
    #[error("an op with this id is already in flight")]
    AlreadyInFlight,
    /// The link is being closed.
    #[error("the relay is closing")]
    Closing,
}

/// A change that a person or the rest of the relay would ask about.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// A dial begins.
    Dialing {
        /// Its name.
        generation: Generation,
    },
    /// The handshake is complete.
    Live {
        /// On this socket.
        generation: Generation,
        /// The first descriptor of the connection.
        primary: Arc<CapabilityDescriptor>,
    },
    /// A further descriptor has come or an old one has gone: what is made from them is to be made again.
    Described {
        /// On this socket.
        generation: Generation,
    },
    /// The connection is gone, or did not come about.
    Lost {
        /// Why.
        loss: Loss,
        /// When the next dial is due, from now.
        retry_in: Duration,
    },
    /// This machine's clock and the connector's differ; told once.
    SkewWarning {
        /// How far the connector's is ahead, in milliseconds.
        ms: i64,
    },
    /// The machine slept, or its clock was set ahead.
    Thawed,
    /// The connector buffers from now on.
    IdleAcked {
        /// The answer came after [`LinkEvent::IdleUnanswered`] was told.
        late: bool,
    },
    /// The connector did not say in time that it buffers.
    IdleUnanswered,
    /// The socket was closed to sleep.
    Dormant,
    /// It is over.
    Ended(End),
}

/// A frame that is the link's own business; all others are routed past it.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlFrame {
    /// Answers a hello.
    Descriptor(Box<CapabilityDescriptor>),
    /// Answers an op.
    OutboundResult {
        /// Which one.
        request_id: String,
        /// The answer; `None` when it cannot be used.
        result: Option<Box<OpResult>>,
    },
    /// The connector buffers from now on.
    GoingIdleAck,
}

/// Gives every other frame back.
impl TryFrom<ConnectorFrame> for ControlFrame {
    type Error = ConnectorFrame;

    fn try_from(frame: ConnectorFrame) -> Result<Self, ConnectorFrame> {
        match frame {
            ConnectorFrame::Descriptor(descriptor) => Ok(Self::Descriptor(descriptor)),
            ConnectorFrame::OutboundResult { request_id, result } => {
                Ok(Self::OutboundResult { request_id, result })
            }
            ConnectorFrame::GoingIdleAck => Ok(Self::GoingIdleAck),
            other @ (ConnectorFrame::Inbound { .. }
            | ConnectorFrame::InterruptInbound { .. }
            | ConnectorFrame::PassthroughForward { .. }
            | ConnectorFrame::Unknown { .. }) => Err(other),
        }
    }
}

/// What has happened since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Dials begun.
    pub dials: u64,
    /// Handshakes completed.
    pub handshakes: u64,
    /// Connections and dials lost.
    pub losses: u64,
    /// Pings sent.
    pub pings: u64,
    /// Sleeps noticed.
    pub thaws: u64,
    /// Ops asked for.
    pub requests: u64,
    /// Ops that the connector did.
    pub applied: u64,
    /// Ops that the connector refused.
    pub refused: u64,
    /// Ops that were written and of which nothing is known.
    pub unknown: u64,
    /// Ops that were never written.
    pub not_sent: u64,
    /// Answers that nobody waited for, or waited for any longer.
    pub late_results: u64,
    /// Descriptors and acknowledgements that were not asked for or not kept.
    pub unexpected_frames: u64,
    /// Events of a generation that is gone.
    pub stale_events: u64,
    /// Acknowledgements written.
    pub acks_sent: u64,
    /// Acknowledgements dropped because their connection is gone.
    pub acks_dropped: u64,
}
