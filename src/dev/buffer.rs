//! Messages that wait for a gateway until it acknowledges them.
//!
//! In order, at most a window of them in flight, and all of them again on every new connection. It
//! never forgets a message that was not acknowledged, and refuses new ones when it is full.

use std::collections::VecDeque;
use std::fmt;

use serde_json::Value;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// A buffered message's name; displayed as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u64);

impl fmt::Display for BufferId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "b{}", self.0)
    }
}

impl BufferId {
    fn from_wire(text: &str) -> Option<Self> {
        text.strip_prefix('b').unwrap_or(text).parse().ok().map(Self)
    }
}

/// Why nothing was buffered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotBuffered {
    /// Nobody of this name may dial.
    #[error("no gateway is called {0:?}; enroll it or name it in the settings")]
    UnknownGateway(String),
    /// As many messages wait as may.
    #[error("the gateway's buffer is full: {0} messages wait for it")]
    Full(usize),
}

/// What is buffered.
#[derive(Clone, Copy)]
pub enum BufferedDelivery<'a> {
    /// An event, delivered as `inbound`.
    Event(&'a Value),
    /// A provider request, delivered as `passthrough_forward`.
    Forward(&'a Value),
}

impl BufferedDelivery<'_> {
    /// The frame without its closing brace.
    fn open(self) -> String {
        let (kind, key, value) = match self {
            Self::Event(event) => ("inbound", "event", event),
            Self::Forward(forward) => ("passthrough_forward", "forward", forward),
        };
        format!(r#"{{"type":"{kind}","{key}":{value}"#)
    }

    /// The frame as a line without a buffer id.
    pub fn live(self) -> String {
        self.open() + "}\n"
    }
}

/// One gateway's buffer.
pub struct DeliveryBuffer {
    entries: VecDeque<BufferedLine>,
    /// The name of `entries[0]`.
    first: u64,
    /// Entries before this one were sent on the present connection.
    cursor: usize,
    in_flight: usize,
    acked: u64,
    window: usize,
    limit: usize,
    numeric: bool,
}

struct BufferedLine {
    line: Utf8Bytes,
    acked: bool,
}

impl DeliveryBuffer {
    pub fn new(window: usize, limit: usize, numeric: bool) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 1,
            cursor: 0,
            in_flight: 0,
            acked: 0,
            window: window.max(1),
            limit,
            numeric,
        }
    }

    pub fn push(&mut self, delivery: BufferedDelivery<'_>) -> Result<BufferId, NotBuffered> {
        if self.entries.len() >= self.limit {
            return Err(NotBuffered::Full(self.limit));
        }
        let id = BufferId(self.first + self.entries.len() as u64);
        let frame = delivery.open();
        let line = if self.numeric {
            format!("{frame},\"bufferId\":{}}}\n", id.0)
        } else {
            format!("{frame},\"bufferId\":\"{id}\"}}\n")
        };
        self.entries.push_back(BufferedLine {
            line: line.into(),
            acked: false,
        });
        Ok(id)
    }

    /// A new connection: everything that is not acknowledged goes out again.
    pub fn rewind(&mut self) {
        self.cursor = 0;
        self.in_flight = 0;
    }

    /// The next frame to send, if the window allows one.
    pub fn next(&mut self) -> Option<Utf8Bytes> {
        while self.in_flight < self.window {
            let entry = self.entries.get(self.cursor)?;
            self.cursor += 1;
            if !entry.acked {
                self.in_flight += 1;
                return Some(entry.line.clone());
            }
        }
        None
    }

    /// Takes an acknowledgement; returns whether it was for a delivery in flight.
    pub fn ack(&mut self, text: &str) -> bool {
        let index = BufferId::from_wire(text)
            .and_then(|id| id.0.checked_sub(self.first))
            .and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index
            .filter(|index| *index < self.cursor)
            .and_then(|index| self.entries.get_mut(index))
            .filter(|entry| !entry.acked)
        else {
            return false;
        };
        entry.acked = true;
        self.in_flight -= 1;
        self.acked += 1;
        while self.entries.front().is_some_and(|entry| entry.acked) {
            self.entries.pop_front();
            self.first += 1;
            self.cursor -= 1;
        }
        true
    }

    /// Messages not acknowledged yet.
    pub fn waiting(&self) -> usize {
        let pushed = self.first - 1 + self.entries.len() as u64;
        usize::try_from(pushed - self.acked).unwrap_or(usize::MAX)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages acknowledged since the start.
    pub fn acked(&self) -> u64 {
        self.acked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filled(window: usize, count: u64) -> DeliveryBuffer {
        let mut mailbox = DeliveryBuffer::new(window, 1000, false);
        for n in 0..count {
            mailbox.push(BufferedDelivery::Event(&json!({ "n": n }))).unwrap();
        }
        mailbox
    }

    #[test]
    fn one_at_a_time_in_order_and_stale_acks_change_nothing() {
        let mut mailbox = filled(1, 3);
        assert_eq!(
            mailbox.next().unwrap().as_str(),
            "{\"type\":\"inbound\",\"event\":{\"n\":0},\"bufferId\":\"b1\"}\n"
        );
        assert!(mailbox.next().is_none());
        assert!(!mailbox.ack("b2"), "not sent yet");
        assert!(!mailbox.ack("nonsense") && !mailbox.ack("") && !mailbox.ack("b0"));
        assert!(mailbox.ack("b1"));
        assert!(!mailbox.ack("b1"), "once");
        assert!(mailbox.next().unwrap().contains("b2"));
        assert_eq!((mailbox.waiting(), mailbox.acked()), (2, 1));
    }

    #[test]
    fn what_was_not_acknowledged_goes_out_again() {
        let mut mailbox = filled(3, 4);
        (0..3).for_each(|_| drop(mailbox.next().unwrap()));
        assert!(mailbox.next().is_none());
        assert!(mailbox.ack("b2"), "acks come in any order");
        mailbox.rewind();
        let again: Vec<_> = std::iter::from_fn(|| mailbox.next()).collect();
        assert_eq!(again.len(), 3);
        assert!(again[0].contains("b1") && again[1].contains("b3") && again[2].contains("b4"));
        for id in ["b4", "b3", "b1"] {
            assert!(mailbox.ack(id));
        }
        assert!(mailbox.is_empty());
        mailbox.push(BufferedDelivery::Event(&json!({}))).unwrap();
        assert!(mailbox.next().unwrap().contains("b5"), "names are never reused");
    }

    #[test]
    fn a_full_buffer_says_so() {
        let mut mailbox = DeliveryBuffer::new(1, 1, true);
        mailbox.push(BufferedDelivery::Forward(&json!({}))).unwrap();
        assert_eq!(
            mailbox.push(BufferedDelivery::Forward(&json!({}))),
            Err(NotBuffered::Full(1))
        );
        assert!(mailbox.next().unwrap().contains("\"bufferId\":1}"));
        assert!(mailbox.ack("1"));
    }
}
