//! Actions and events of a link: what its driver must do, and what it reports.

use std::sync::Arc;
use std::time::Duration;

use super::close_reason::{End, Loss};
use super::state::Generation;
use crate::wire::{CapabilityDescriptor, ConnectorFrame, OpId, OpResult, Outcome};

/// An action for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkAction {
    /// Open a socket, with a token minted for this dial alone.
    Dial {
        /// Names the dial and all its events.
        generation: Generation,
        /// Unix seconds to mint the token at: now, on the connector's clock.
        mint_at_unix: i64,
    },
    /// Write one line as one WebSocket message.
    Write {
        /// The socket's generation.
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
        /// The socket's generation.
        generation: Generation,
    },
    /// Close a socket or cancel a dial. Comes once per generation, also when the other end closed first.
    CloseSocket {
        /// The socket to close.
        generation: Generation,
        /// The close code, if one can still be sent.
        code: u16,
        /// The close reason, for the connector's log.
        reason: &'static str,
    },
    /// Report the result of an op.
    Completed {
        /// The op's id.
        id: OpId,
        /// What became of the op.
        result: SendResult,
    },
    /// Report a change.
    Event(LinkEvent),
}

/// The result of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum SendResult {
    /// The op was written, and has this outcome.
    Answered(Box<Outcome>),
    /// The op was written, and the connection ended before an answer came: it may have arrived.
    Lost,
    /// The op was never written: sending it again is safe.
    NotSent(NotSent),
}

/// Why an op was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotSent {
    /// There is no connection.
    #[error("the relay is not connected")]
    NotLive,
    /// The connection was lost while the op waited.
    #[error("the connection was lost before the op was sent")]
    Lost,
    /// Too many ops wait.
    #[error("too many ops are waiting")]
    Full,
    /// The op timed out while it waited.
    #[error("the op timed out before it was sent")]
    Expired,
    /// An op with this id is pending already.
    #[error("an op with this id is already in flight")]
    AlreadyInFlight,
    /// The link is being closed.
    #[error("the relay is closing")]
    Closing,
}

/// A change of the link's state.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkEvent {
    /// A dial begins.
    Dialing {
        /// The generation of the new socket.
        generation: Generation,
    },
    /// The handshake is complete.
    Live {
        /// The socket's generation.
        generation: Generation,
        /// The first descriptor of the connection.
        primary: Arc<CapabilityDescriptor>,
    },
    /// The set of descriptors changed.
    Described {
        /// The socket's generation.
        generation: Generation,
    },
    /// The connection was lost or could not be made.
    Lost {
        /// How the connection was lost.
        loss: Loss,
        /// The time until the next dial.
        retry_in: Duration,
    },
    /// This machine's clock and the connector's differ. Reported once.
    SkewWarning {
        /// How far the connector's clock is ahead, in milliseconds.
        ms: i64,
    },
    /// The machine was suspended, or its clock was set ahead.
    Thawed,
    /// The connector buffers deliveries from now on.
    IdleAcked {
        /// It came after [`LinkEvent::IdleUnanswered`].
        late: bool,
    },
    /// The connector did not acknowledge `going_idle` in time.
    IdleUnanswered,
    /// The socket was closed for sleep.
    Dormant,
    /// The link has ended.
    Ended(End),
}

/// A frame for the link itself. All others bypass it.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlFrame {
    /// The answer to a hello.
    Descriptor(Box<CapabilityDescriptor>),
    /// The answer to an op.
    OutboundResult {
        /// The id of the op.
        request_id: String,
        /// The answer; `None` when it cannot be used.
        result: Option<Box<OpResult>>,
    },
    /// The connector buffers deliveries from now on.
    GoingIdleAck,
    /// A request to something that this relay does not serve.
    LinkRequest {
        /// The id of the request.
        request_id: String,
    },
}

/// Returns every other frame.
impl TryFrom<ConnectorFrame> for ControlFrame {
    type Error = ConnectorFrame;

    fn try_from(frame: ConnectorFrame) -> Result<Self, ConnectorFrame> {
        match frame {
            ConnectorFrame::Descriptor(descriptor) => Ok(Self::Descriptor(descriptor)),
            ConnectorFrame::OutboundResult { request_id, result } => {
                Ok(Self::OutboundResult { request_id, result })
            }
            ConnectorFrame::GoingIdleAck => Ok(Self::GoingIdleAck),
            ConnectorFrame::LinkRequest { request_id } => Ok(Self::LinkRequest { request_id }),
            other @ (ConnectorFrame::Inbound { .. }
            | ConnectorFrame::InterruptInbound { .. }
            | ConnectorFrame::PassthroughForward { .. }
            | ConnectorFrame::Unknown { .. }) => Err(other),
        }
    }
}

/// Counts since the process started.
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
    /// Suspends detected.
    pub thaws: u64,
    /// Ops requested.
    pub requests: u64,
    /// Ops that the connector applied.
    pub applied: u64,
    /// Ops that the connector refused.
    pub refused: u64,
    /// Ops that were written and whose outcome is unknown.
    pub unknown: u64,
    /// Ops that were never written.
    pub not_sent: u64,
    /// Results of ops that were not in flight.
    pub late_results: u64,
    /// Descriptors and acknowledgements that were not expected.
    pub unexpected_frames: u64,
    /// Events of an old generation.
    pub stale_events: u64,
    /// Acknowledgements written.
    pub acks_sent: u64,
    /// Acknowledgements dropped because their connection is gone or too slow.
    pub acks_dropped: u64,
}

impl std::ops::Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            dials: self.dials + other.dials,
            handshakes: self.handshakes + other.handshakes,
            losses: self.losses + other.losses,
            pings: self.pings + other.pings,
            thaws: self.thaws + other.thaws,
            requests: self.requests + other.requests,
            applied: self.applied + other.applied,
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
            not_sent: self.not_sent + other.not_sent,
            late_results: self.late_results + other.late_results,
            unexpected_frames: self.unexpected_frames + other.unexpected_frames,
            stale_events: self.stale_events + other.stale_events,
            acks_sent: self.acks_sent + other.acks_sent,
            acks_dropped: self.acks_dropped + other.acks_dropped,
        }
    }
}
