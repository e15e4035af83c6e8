//! What happened, in bounded rings that drop their oldest entry, and how the handle waits for it.
//!
//! Bearers are kept as secrets, so that printing a record never shows one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::timeout_at;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::chat_contents::{OpenedThread, SentMessage};
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

/// A dial: a request for an upgrade.
#[derive(Clone, Debug)]
pub struct Dial {
    /// When.
    pub at: Instant,
    /// Whose token it showed, when that is genuine.
    pub gateway_id: Option<String>,
    /// What the token was found to be.
    pub token: TokenCheck,
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
    /// Neither: the socket was lost.
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
    /// Close code, if any.
    pub code: Option<u16>,
    /// The reason sent with it.
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
pub struct RecordedRequest {
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
pub(super) struct BoundedLog<T> {
    items: VecDeque<T>,
    capacity: usize,
    pushed: u64,
}

impl<T> BoundedLog<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            items: VecDeque::new(),
            capacity: capacity.max(1),
            pushed: 0,
        }
    }

    /// Adds an item made from its sequence number.
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
    pub(super) frames: BoundedLog<RecordedFrame>,
    pub(super) dials: BoundedLog<Dial>,
    pub(super) closed: BoundedLog<Closed>,
    pub(super) acks: BoundedLog<Ack>,
    pub(super) requests: BoundedLog<RecordedRequest>,
    pub(super) accepted: u64,
}

impl Log {
    const EVENTS: usize = 10_000;

    pub(super) fn new(recording: bool, frames: usize) -> Self {
        Self {
            recording,
            frames: BoundedLog::new(frames),
            dials: BoundedLog::new(Self::EVENTS),
            closed: BoundedLog::new(Self::EVENTS),
            acks: BoundedLog::new(frames),
            requests: BoundedLog::new(Self::EVENTS),
            accepted: 0,
        }
    }

    pub(super) fn frame(&mut self, connection: ConnectionId, direction: Direction, text: Utf8Bytes) {
        if self.recording {
            let at = Instant::now();
            self.frames.push_with(|sequence| RecordedFrame {
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

/// A moment on the record; what was recorded before it can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

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
        self.hub.lock().log.frames.iter().cloned().collect()
    }

    /// The recorded frames since a mark.
    pub fn frames_since(&self, mark: Mark) -> Vec<RecordedFrame> {
        self.hub.lock().log.frames.since(mark.0).cloned().collect()
    }

    /// Now.
    pub fn mark(&self) -> Mark {
        Mark(self.hub.lock().log.frames.pushed())
    }

    /// Switches the recording of frames and acknowledgements on or off.
    pub fn set_recording(&self, recording: bool) {
        self.hub.lock().log.recording = recording;
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

    /// The first recorded frame that is as wanted, waiting for it if it has not come yet.
    pub async fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&RecordedFrame) -> bool,
    ) -> Result<RecordedFrame, NotSeen> {
        self.wait_after(Mark(0), what, deadline, wanted).await
    }

    /// The same for frames since a mark.
    pub async fn wait_after(
        &self,
        mark: Mark,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&RecordedFrame) -> bool,
    ) -> Result<RecordedFrame, NotSeen> {
        let mut looked = mark.0;
        self.until(what, deadline, |connector| {
            let state = connector.hub.lock();
            let found = state.log.frames.since(looked).find(|record| wanted(record));
            looked = state.log.frames.pushed();
            found.cloned()
        })
        .await
    }

    /// Waits for a message in a chat that is as wanted, and returns it.
    pub async fn wait_for_sent(
        &self,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&SentMessage) -> bool,
    ) -> Result<SentMessage, NotSeen> {
        self.until(what, deadline, |connector| {
            let state = connector.hub.lock();
            state.contents.messages.iter().find(|sent| wanted(sent)).cloned()
        })
        .await
    }

    /// The first message that answers `message_id`.
    pub async fn reply_to(&self, deadline: Duration, message_id: &str) -> Result<SentMessage, NotSeen> {
        let what = format!("a reply to {message_id}");
        self.wait_for_sent(&what, deadline, |sent| {
            sent.reply_to.as_deref() == Some(message_id)
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

    /// Every message in the chats, in order, as they are now.
    pub fn sent_messages(&self) -> Vec<SentMessage> {
        self.hub.lock().contents.messages.iter().cloned().collect()
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

    /// The reactions on a message now.
    pub fn reactions(&self, chat_id: &str, message_id: &str) -> Vec<String> {
        self.hub.lock().contents.reactions(chat_id, message_id)
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

    /// The threads that the gateway opened.
    pub fn threads(&self) -> Vec<OpenedThread> {
        self.hub.lock().contents.threads.iter().cloned().collect()
    }

    /// Every dial, accepted or not.
    pub fn dials(&self) -> Vec<Dial> {
        self.hub.lock().log.dials.iter().cloned().collect()
    }

    /// Connections that are open now.
    pub fn open_connections(&self) -> Vec<ConnectionId> {
        self.hub.lock().connections.keys().copied().collect()
    }

    /// Sockets that were opened since the start.
    pub fn accepted(&self) -> u64 {
        self.hub.lock().log.accepted
    }

    /// Whether the gateway that deliveries go to is connected and sent its hello.
    pub fn is_connected(&self) -> bool {
        let mut state = self.hub.lock();
        let primary = state.primary.clone();
        state.live_connection(&primary).is_some()
    }

    /// Connections that ended, and how.
    pub fn closed(&self) -> Vec<Closed> {
        self.hub.lock().log.closed.iter().cloned().collect()
    }

    /// Acknowledgements, while recording is on.
    pub fn acks(&self) -> Vec<Ack> {
        self.hub.lock().log.acks.iter().cloned().collect()
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

    /// Requests to the HTTP routes.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.hub.lock().log.requests.iter().cloned().collect()
    }

    /// Lines from gateways that were no frame.
    pub fn undecodable(&self) -> u64 {
        self.hub.lock().undecodable
    }

    fn not_seen(&self, what: &str, waited: Duration) -> NotSeen {
        let state = self.hub.lock();
        let mut last: Vec<String> = state
            .log
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
