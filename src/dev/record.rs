//! What happened, in bounded rings that drop their oldest entry, and how the handle waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::timeout_at;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::chat_contents::SentMessage;
use super::connector::Connector;

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
pub struct RecordedFrame {
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

impl RecordedFrame {
    pub fn new(sequence: u64, connection: ConnectionId, direction: Direction, text: Utf8Bytes) -> Self {
        Self {
            sequence,
            at: Instant::now(),
            connection,
            direction,
            text,
            json: OnceLock::new(),
        }
    }

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
}

/// What a bearer was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCheck {
    /// Signed by a known gateway, and in time.
    Valid,
    /// Signed by a known gateway, too late.
    Expired,
    /// Not signed by anyone known.
    Unauthorized,
    /// There was none.
    Missing,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The gateway, with a close frame.
    Gateway,
    /// The connector, with a close frame.
    Connector,
    /// Neither: the socket was lost.
    Nobody,
}

/// The end of a connection.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Who ended it.
    pub by: ClosedBy,
    /// Close code, if any.
    pub code: Option<u16>,
    /// The reason sent with it.
    pub reason: String,
}

/// A list that forgets its oldest entry when it is full.
pub struct BoundedLog<T> {
    items: VecDeque<T>,
    capacity: usize,
    pushed: u64,
}

impl<T> BoundedLog<T> {
    pub fn new(capacity: usize) -> Self {
        Self {
            items: VecDeque::new(),
            capacity,
            pushed: 0,
        }
    }

    /// Adds an item made from its sequence number.
    pub fn push_with(&mut self, item: impl FnOnce(u64) -> T) {
        if self.items.len() == self.capacity {
            self.items.pop_front();
        }
        if self.capacity > 0 {
            self.items.push_back(item(self.pushed));
        }
        self.pushed += 1;
    }

    pub fn push(&mut self, item: T) {
        self.push_with(|_| item);
    }

    /// Takes the oldest item out.
    pub fn forget_oldest(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Items that are kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Items pushed since the start.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The kept items that were pushed at or after `sequence`.
    pub fn since(&self, sequence: u64) -> impl DoubleEndedIterator<Item = &T> {
        let oldest = self.pushed - self.items.len() as u64;
        let skip = sequence.saturating_sub(oldest);
        self.items
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
    }

    /// Where [`since`](Self::since) begins: `sequence`, or the oldest kept item when that is forgotten.
    pub fn begin(&self, sequence: u64) -> u64 {
        sequence
            .max(self.pushed - self.items.len() as u64)
            .min(self.pushed)
    }

    /// The item that was pushed as number `sequence`, if it is still kept.
    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut T> {
        let oldest = self.pushed - self.items.len() as u64;
        let index = usize::try_from(sequence.checked_sub(oldest)?).ok()?;
        self.items.get_mut(index)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items.iter()
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.items.iter_mut()
    }
}

/// A moment on the record; what was recorded before it can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub u64);

/// Something that was waited for did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not seen within {waited:?}; {connections} connections are open, last frames: {last}")]
pub struct NotSeen {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    connections: usize,
    last: String,
}

/// Observations. Lists are bounded: the oldest entries go first.
impl Connector {
    /// Every recorded frame.
    pub fn frames(&self) -> Vec<RecordedFrame> {
        self.hub.lock().frames.iter().cloned().collect()
    }

    /// Now.
    pub fn mark(&self) -> Mark {
        Mark(self.hub.lock().frames.pushed())
    }

    /// Waits until something is so, and gives what `look` found. It looks again after every change, so
    /// `look` should change nothing itself.
    pub async fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, NotSeen> {
        let end = tokio::time::Instant::now() + deadline;
        loop {
            let mut changed = std::pin::pin!(self.hub.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            // Others first: a look that changes something would otherwise keep the thread to itself.
            tokio::task::yield_now().await;
            if tokio::time::Instant::now() >= end || timeout_at(end, changed).await.is_err() {
                return Err(self.not_seen(what, deadline));
            }
        }
    }

    /// The first message that answers `message_id`.
    #[cfg(feature = "internals")]
    pub async fn reply_to(&self, deadline: Duration, message_id: &str) -> Result<SentMessage, NotSeen> {
        let what = format!("a reply to {message_id}");
        self.until(&what, deadline, |connector| {
            let state = connector.hub.lock();
            let mut sent = state.contents.messages.iter();
            sent.find(|sent| sent.reply_to.as_deref() == Some(message_id))
                .cloned()
        })
        .await
    }

    /// Waits until a gateway is connected and sent its hello.
    pub async fn wait_connected(&self, deadline: Duration) -> Result<(), NotSeen> {
        self.until("a gateway that said hello", deadline, |connector| {
            connector.is_connected().then_some(())
        })
        .await
    }

    /// The messages in one chat, in order, as they are now.
    pub fn messages_in(&self, chat_id: &str) -> Vec<SentMessage> {
        let state = self.hub.lock();
        let here = state
            .contents
            .messages
            .iter()
            .filter(|sent| sent.chat_id == chat_id);
        here.cloned().collect()
    }

    /// When the gateway last showed typing in a chat.
    pub fn typing_at(&self, chat_id: &str) -> Option<Instant> {
        self.hub.lock().contents.typed_in(chat_id)
    }

    /// The open drafts in a chat: their ids and texts.
    pub fn drafts(&self, chat_id: &str) -> Vec<(u64, String)> {
        let state = self.hub.lock();
        let here = state
            .contents
            .drafts
            .iter()
            .filter(|((chat, _), _)| chat == chat_id);
        here.map(|((_, draft_id), text)| (*draft_id, text.clone()))
            .collect()
    }

    /// Whether the gateway that deliveries go to is connected and sent its hello.
    pub fn is_connected(&self) -> bool {
        let mut state = self.hub.lock();
        let primary = state.primary.clone();
        state.live_connection(&primary).is_some()
    }

    /// Buffered messages that were acknowledged, of every gateway.
    pub fn acked(&self) -> u64 {
        let state = self.hub.lock();
        state
            .gateways
            .values()
            .map(|gateway| gateway.mailbox.acked())
            .sum()
    }

    /// Buffered messages that wait to be acknowledged, of every gateway.
    pub fn waiting(&self) -> usize {
        let state = self.hub.lock();
        state
            .gateways
            .values()
            .map(|gateway| gateway.mailbox.waiting())
            .sum()
    }

    fn not_seen(&self, what: &str, waited: Duration) -> NotSeen {
        let state = self.hub.lock();
        let mut last: Vec<String> = state
            .frames
            .iter()
            .rev()
            .take(8)
            .map(|record| match record.direction {
                Direction::ToGateway => format!("-> {}", record.kind()),
                Direction::FromGateway => format!("<- {}", record.kind()),
            })
            .collect();
        last.reverse();
        NotSeen {
            what: what.to_owned(),
            waited,
            connections: state.connections.len(),
            last: last.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_forgets_the_oldest_and_keeps_its_numbers() {
        let mut ring = BoundedLog::new(3);
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
