//! Looking at what happened, and waiting for it.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::connector::Connector;
use super::ledger::{Sent, Thread};
use super::record::{Ack, Closed, ConnectionId, Dial, Direction, Record, Request};

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
    pub fn frames(&self) -> Vec<Record> {
        self.hub.lock().log.frames.iter().cloned().collect()
    }

    /// The recorded frames since a mark.
    pub fn frames_since(&self, mark: Mark) -> Vec<Record> {
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
        let end = Instant::now() + deadline;
        loop {
            let mut changed = std::pin::pin!(self.hub.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return Ok(found);
            }
            // Others first: a look that changes something would otherwise keep the thread to itself.
            tokio::task::yield_now().await;
            if Instant::now() >= end || timeout_at(end, changed).await.is_err() {
                return Err(self.not_seen(what, deadline));
            }
        }
    }

    /// The first recorded frame that is as wanted, waiting for it if it has not come yet.
    pub async fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&Record) -> bool,
    ) -> Result<Record, NotSeen> {
        self.wait_after(Mark(0), what, deadline, wanted).await
    }

    /// The same for frames since a mark.
    pub async fn wait_after(
        &self,
        mark: Mark,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&Record) -> bool,
    ) -> Result<Record, NotSeen> {
        let mut looked = mark.0;
        self.until(what, deadline, |connector| {
            let state = connector.hub.lock();
            let found = state.log.frames.since(looked).find(|record| wanted(record));
            looked = state.log.frames.pushed();
            found.cloned()
        })
        .await
    }

    /// The first message in a chat that is as wanted, as it stands when it first is.
    pub async fn wait_for_sent(
        &self,
        what: &str,
        deadline: Duration,
        mut wanted: impl FnMut(&Sent) -> bool,
    ) -> Result<Sent, NotSeen> {
        self.until(what, deadline, |connector| {
            let state = connector.hub.lock();
            state.ledger.messages.iter().find(|sent| wanted(sent)).cloned()
        })
        .await
    }

    /// The first message that answers `message_id`.
    pub async fn reply_to(&self, deadline: Duration, message_id: &str) -> Result<Sent, NotSeen> {
        let what = format!("a reply to {message_id}");
        self.wait_for_sent(&what, deadline, |sent| {
            sent.reply_to.as_deref() == Some(message_id)
        })
        .await
    }

    /// Waits until a gateway has said hello and listens.
    pub async fn wait_connected(&self, deadline: Duration) -> Result<(), NotSeen> {
        self.until("a gateway that said hello", deadline, |connector| {
            connector.is_connected().then_some(())
        })
        .await
    }

    /// Every message in the chats, in the order they were made, as they stand now.
    pub fn sent_messages(&self) -> Vec<Sent> {
        self.hub.lock().ledger.messages.iter().cloned().collect()
    }

    /// The reactions on a message now.
    pub fn reactions(&self, chat_id: &str, message_id: &str) -> Vec<String> {
        self.hub.lock().ledger.reactions(chat_id, message_id)
    }

    /// The open drafts in a chat: their ids and texts.
    pub fn drafts(&self, chat_id: &str) -> Vec<(u64, String)> {
        let state = self.hub.lock();
        let here = state
            .ledger
            .drafts
            .iter()
            .filter(|((chat, _), _)| chat == chat_id);
        here.map(|((_, draft_id), text)| (*draft_id, text.clone()))
            .collect()
    }

    /// The threads that the gateway opened.
    pub fn threads(&self) -> Vec<Thread> {
        self.hub.lock().ledger.threads.iter().cloned().collect()
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

    /// Whether the gateway that deliveries go to has said hello and listens.
    pub fn is_connected(&self) -> bool {
        let mut state = self.hub.lock();
        let primary = state.primary.clone();
        state.listening(&primary).is_some()
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
    pub fn requests(&self) -> Vec<Request> {
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
