//! What happened, in bounded rings: the oldest goes when a new one comes.
//!
//! Bearers are kept as secrets, so that printing a record never shows one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use http::{HeaderMap, Method, StatusCode};
use secrecy::SecretString;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// One socket, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) u64);

impl fmt::Display for ConnectionId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "connection {}", self.0)
    }
}

/// Which way something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the connector.
    ToGateway,
    /// From the gateway.
    FromGateway,
}

/// One frame: a line from the gateway, or a WebSocket message to it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its place among all frames since the start.
    pub sequence: u64,
    /// When it was read, or handed over to be written.
    pub at: Instant,
    /// The socket.
    pub connection: ConnectionId,
    /// Which way it went.
    pub direction: Direction,
    text: Utf8Bytes,
    json: OnceLock<Value>,
}

impl Record {
    /// As it stood on the wire.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As JSON; `null` when it is none.
    pub fn json(&self) -> &Value {
        self.json
            .get_or_init(|| serde_json::from_str(&self.text).unwrap_or_default())
    }

    /// The frame's `type`, or `""`.
    pub fn kind(&self) -> &str {
        self.json()["type"].as_str().unwrap_or_default()
    }

    /// Whether this came from the gateway and has the given type.
    pub fn from_gateway(&self, kind: &str) -> bool {
        self.direction == Direction::FromGateway && self.kind() == kind
    }

    /// Whether this went to the gateway and has the given type.
    pub fn to_gateway(&self, kind: &str) -> bool {
        self.direction == Direction::ToGateway && self.kind() == kind
    }

    /// Whether this is an outbound frame that asks for `op`.
    pub fn asks_for(&self, op: &str) -> bool {
        self.from_gateway("outbound") && self.json()["action"]["op"] == op
    }
}

/// What a bearer was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenVerdict {
    /// Signed by a known gateway, and in time.
    Valid,
    /// Signed by a known gateway, too late.
    Expired,
    /// Not signed by anyone known.
    Unauthorized,
    /// There was none.
    Missing,
}

/// A dial: a request for an upgrade.
#[derive(Clone, Debug)]
pub struct Dial {
    /// When.
    pub at: Instant,
    /// Whose token it showed, when that is genuine.
    pub gateway_id: Option<String>,
    /// What the token was found to be.
    pub token: TokenVerdict,
    /// The bearer itself.
    pub bearer: Option<SecretString>,
    /// When the token stops being valid.
    pub expires_at: Option<i64>,
    /// Every header but `Authorization`.
    pub headers: HeaderMap,
    /// The answer; `None` when the dial was left hanging.
    pub answered: Option<StatusCode>,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The gateway, with a close frame.
    Gateway,
    /// The connector, with a close frame.
    Connector,
    /// Nobody said: the socket went.
    Nobody,
}

/// The end of a connection.
#[derive(Clone, Debug)]
pub struct Closed {
    /// When.
    pub at: Instant,
    /// Which.
    pub connection: ConnectionId,
    /// Who ended it.
    pub by: ClosedBy,
    /// Close code, when one was said.
    pub code: Option<u16>,
    /// What was said with it.
    pub reason: String,
}

/// An acknowledgement.
#[derive(Clone, Debug)]
pub struct Ack {
    /// When.
    pub at: Instant,
    /// On which connection.
    pub connection: ConnectionId,
    /// Under which name.
    pub buffer_id: String,
    /// Whether that was on its way and not yet acknowledged.
    pub matched: bool,
}

/// A request to one of the HTTP routes.
#[derive(Clone, Debug)]
pub struct Request {
    /// When.
    pub at: Instant,
    /// Method.
    pub method: Method,
    /// Path.
    pub path: String,
    /// Every header but `Authorization`.
    pub headers: HeaderMap,
    /// The bearer.
    pub bearer: Option<SecretString>,
    /// The gateway whose upgrade token the bearer is.
    pub gateway_id: Option<String>,
    /// The body, when it is JSON.
    pub json: Value,
    /// Length of the body.
    pub body_bytes: usize,
    /// The answer.
    pub answered: StatusCode,
}

/// A list that forgets its oldest entry when it is full.
pub(super) struct Ring<T> {
    items: VecDeque<T>,
    capacity: usize,
    pushed: u64,
}

impl<T> Ring<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            items: VecDeque::new(),
            capacity: capacity.max(1),
            pushed: 0,
        }
    }

    /// Adds an item that is told its sequence number.
    pub(super) fn push_with(&mut self, item: impl FnOnce(u64) -> T) {
        if self.items.len() == self.capacity {
            self.items.pop_front();
        }
        self.items.push_back(item(self.pushed));
        self.pushed += 1;
    }

    pub(super) fn push(&mut self, item: T) {
        self.push_with(|_| item);
    }

    /// Takes the oldest item out.
    pub(super) fn forget_oldest(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Items that are kept.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Items pushed since the start.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The kept items that were pushed at or after `sequence`.
    pub(super) fn since(&self, sequence: u64) -> impl DoubleEndedIterator<Item = &T> {
        let oldest = self.pushed - self.items.len() as u64;
        let skip = sequence.saturating_sub(oldest);
        self.items
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
    }

    /// Where [`since`](Self::since) begins: `sequence`, or the oldest kept item when that is forgotten.
    pub(super) fn begin(&self, sequence: u64) -> u64 {
        sequence
            .max(self.pushed - self.items.len() as u64)
            .min(self.pushed)
    }

    /// The item that was pushed as number `sequence`, if it is still kept.
    pub(super) fn get_mut(&mut self, sequence: u64) -> Option<&mut T> {
        let oldest = self.pushed - self.items.len() as u64;
        let index = usize::try_from(sequence.checked_sub(oldest)?).ok()?;
        self.items.get_mut(index)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}

/// Everything on record.
pub(super) struct Log {
    pub(super) recording: bool,
    pub(super) frames: Ring<Record>,
    pub(super) dials: Ring<Dial>,
    pub(super) closed: Ring<Closed>,
    pub(super) acks: Ring<Ack>,
    pub(super) requests: Ring<Request>,
    pub(super) accepted: u64,
}

impl Log {
    const EVENTS: usize = 10_000;

    pub(super) fn new(recording: bool, frames: usize) -> Self {
        Self {
            recording,
            frames: Ring::new(frames),
            dials: Ring::new(Self::EVENTS),
            closed: Ring::new(Self::EVENTS),
            acks: Ring::new(frames),
            requests: Ring::new(Self::EVENTS),
            accepted: 0,
        }
    }

    pub(super) fn frame(&mut self, connection: ConnectionId, direction: Direction, text: Utf8Bytes) {
        if self.recording {
            let at = Instant::now();
            self.frames.push_with(|sequence| Record {
                sequence,
                at,
                connection,
                direction,
                text,
                json: OnceLock::new(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_forgets_the_oldest_and_keeps_its_numbers() {
        let mut ring = Ring::new(3);
        for n in 0..5 {
            ring.push(n);
        }
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(ring.since(3).copied().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(ring.since(0).count(), 3);
        assert_eq!((ring.begin(0), ring.begin(3), ring.begin(9)), (2, 3, 5));
        assert_eq!(ring.get_mut(1), None);
        assert_eq!(ring.get_mut(4), Some(&mut 4));
        assert_eq!(ring.pushed(), 5);
    }
}
