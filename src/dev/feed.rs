//! What the page is sent: everything that happened in the chats and to the link, in order.
//!
//! Closed until a page is opened, and then costs nothing but a bounded list: the oldest entries go first. It
//! never holds a bearer or a secret.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use serde_json::{Value, json};

use super::buffer::{BufferId, BufferedDelivery};
use super::ops::RequestedOp;
use super::record::{BoundedLog, Closed, ClosedBy, ConnectionId, TokenCheck};
use crate::adapter::{SessionNames, interaction_event};
use crate::wire::{MessageEvent, NoAliases, PassthroughForward};

/// Entries that are kept, and bytes of all of them together.
const MAX_EVENTS: usize = 4_000;
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Sessions that are remembered by key, for a Stop in their chat.
const SESSIONS: usize = 1_000;

/// One thing that happened, as JSON text.
pub(super) struct Happening {
    pub(super) json: Arc<str>,
}

/// The list, once someone looks.
pub struct Feed {
    began: Instant,
    began_unix: Duration,
    open: Option<RecordedFeed>,
}

struct RecordedFeed {
    ring: BoundedLog<Happening>,
    bytes: usize,
    names: SessionNames,
    /// Session keys with their chat and thread.
    sessions: BoundedLog<(String, String, String)>,
}

impl RecordedFeed {
    fn keep(&mut self, json: Arc<str>) {
        self.bytes += json.len();
        while self.ring.len() >= MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.ring.forget_oldest() else {
                break;
            };
            self.bytes -= oldest.json.len();
        }
        self.ring.push(Happening { json });
    }
}

impl Feed {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            began_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            open: None,
        }
    }

    /// Begins to keep what happens.
    pub(super) fn open(&mut self, names: SessionNames) {
        self.open.get_or_insert_with(|| RecordedFeed {
            ring: BoundedLog::new(MAX_EVENTS),
            bytes: 0,
            names,
            sessions: BoundedLog::new(SESSIONS),
        });
    }

    /// How long after the start an instant was.
    pub(super) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.began)
    }

    /// When an instant was, in microseconds since 1970.
    pub(super) fn unix_micros(&self, at: Instant) -> u64 {
        micros(self.began_unix + self.since_start(at))
    }

    /// Where the kept entries from `sequence` on begin.
    pub(super) fn begin(&self, sequence: u64) -> u64 {
        self.open.as_ref().map_or(0, |open| open.ring.begin(sequence))
    }

    /// The kept entries from `sequence` on, at most `limit`.
    pub(super) fn since(&self, sequence: u64, limit: usize) -> Vec<Arc<str>> {
        let open = self.open.iter();
        open.flat_map(|open| open.ring.since(sequence))
            .take(limit)
            .map(|happening| Arc::clone(&happening.json))
            .collect()
    }

    /// The sessions of a chat and thread.
    pub(super) fn sessions_in(&self, chat: &str, thread: &str) -> Vec<String> {
        let sessions = self.open.iter().flat_map(|open| open.sessions.iter());
        sessions
            .filter(|(_, at, inside)| at == chat && inside == thread)
            .map(|(session, _, _)| session.clone())
            .collect()
    }

    /// Emits an event that has no method of its own.
    pub(super) fn publish(&mut self, kind: &str, mut what: Value) {
        let at = self.unix_micros(Instant::now());
        if let Some(open) = &mut self.open
            && let Some(fields) = what.as_object_mut()
        {
            fields.insert("k".to_owned(), kind.into());
            fields.insert("t".to_owned(), at.into());
            open.keep(what.to_string().into());
        }
    }

    /// A delivery; with its buffer id, if it is buffered.
    pub(super) fn delivery(&mut self, delivery: BufferedDelivery<'_>, buffer: Option<BufferId>) {
        let Some(open) = &mut self.open else {
            return;
        };
        let buffer = buffer.map(|buffer| buffer.to_string());
        let read = match delivery {
            BufferedDelivery::Event(event) => MessageEvent::from_value(event).ok(),
            BufferedDelivery::Forward(forward) => PassthroughForward::from_value(forward)
                .ok()
                .and_then(|forward| interaction_event(&forward)),
        };
        let session = read.map(|mut event| {
            let text =
                |id: Option<&crate::wire::Scalar>| id.map(|id| id.as_str().to_owned()).unwrap_or_default();
            let chat = text(event.source.chat_id.as_ref());
            // As people see it: a message that the relay makes a thread of its own stands in the chat.
            let thread = text(event.source.thread_id.as_ref());
            let key = open.names.name(&mut event, &NoAliases);
            let place = (key.as_str().to_owned(), chat, thread);
            if !open.sessions.iter().any(|known| *known == place) {
                open.sessions.push(place);
            }
            key.as_str().to_owned()
        });
        let (kind, what) = match delivery {
            BufferedDelivery::Event(event) => (
                "in",
                json!({ "event": event, "buffer": buffer, "session": session }),
            ),
            BufferedDelivery::Forward(forward) => {
                let body = PassthroughForward::from_value(forward).unwrap_or_default().body;
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                (
                    "forward",
                    json!({ "body": body, "buffer": buffer, "session": session }),
                )
            }
        };
        self.publish(kind, what);
    }

    /// A person stopped the turn of a session.
    pub(super) fn interrupted(&mut self, session_key: &str, chat_id: &str) {
        if self.open.is_some() {
            self.publish("stop", json!({ "session": session_key, "chat": chat_id }));
        }
    }

    /// The gateway acknowledged something.
    pub(super) fn acked(&mut self, buffer: &str) {
        if self.open.is_some() {
            self.publish("ack", json!({ "buffer": buffer }));
        }
    }

    /// The gateway asked for an op; what became of it.
    pub(super) fn op(&mut self, requested: &RequestedOp, platform: Option<&str>, result: &Value) {
        if self.open.is_some() {
            let action = match requested {
                RequestedOp::Known(action) => serde_json::to_value(action).unwrap_or_default(),
                RequestedOp::Invalid { op, .. } => json!({ "op": op }),
            };
            self.publish(
                "op",
                json!({ "action": action, "result": result, "platform": platform }),
            );
        }
    }

    /// A dial came and was answered.
    pub(super) fn dial(&mut self, token: TokenCheck, answered: StatusCode) {
        if self.open.is_some() {
            let token = match token {
                TokenCheck::Valid => "valid",
                TokenCheck::Expired => "expired",
                TokenCheck::Unauthorized => "unauthorized",
                TokenCheck::Missing => "missing",
            };
            self.publish(
                "link",
                json!({ "what": "dial", "token": token, "status": answered.as_u16() }),
            );
        }
    }

    /// A connection sent a hello.
    pub(super) fn hello(&mut self, connection: ConnectionId, platform: &str) {
        if self.open.is_some() {
            self.publish(
                "link",
                json!({ "what": "hello", "connection": connection.0, "platform": platform }),
            );
        }
    }

    /// A connection ended.
    pub(super) fn closed(&mut self, connection: ConnectionId, closed: &Closed) {
        if self.open.is_some() {
            let by = match closed.by {
                ClosedBy::Gateway => "relay",
                ClosedBy::Connector => "connector",
                ClosedBy::Nobody => "nobody",
            };
            self.publish(
                "link",
                json!({
                    "what": "close",
                    "connection": connection.0,
                    "by": by,
                    "code": closed.code,
                    "reason": closed.reason,
                }),
            );
        }
    }
}

/// Whole microseconds, as the page counts time.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::text_event;

    #[test]
    fn a_closed_feed_keeps_nothing_and_an_open_one_no_more_than_it_may() {
        let mut feed = Feed::new();
        let event = text_event("discord", "c", "m", "hi");
        feed.delivery(BufferedDelivery::Event(&event), None);
        assert!(feed.since(0, 10).is_empty());
        feed.open(SessionNames::default());
        for _ in 0..MAX_EVENTS + 5 {
            feed.delivery(BufferedDelivery::Event(&event), None);
        }
        assert_eq!(feed.since(0, usize::MAX).len(), MAX_EVENTS);
        assert_eq!(feed.begin(0), 5);
        assert_eq!(feed.since(MAX_EVENTS as u64 + 3, 10).len(), 2);
        for _ in 0..MAX_BYTES / 1_000_000 + 5 {
            feed.publish("big", json!({ "text": "x".repeat(1_000_000) }));
        }
        let kept: usize = feed.since(0, usize::MAX).iter().map(|json| json.len()).sum();
        assert!((MAX_BYTES - 2_000_000..=MAX_BYTES).contains(&kept), "{kept}");
        assert_eq!(feed.sessions_in("c", ""), ["agent:main:discord:dm:c"]);
        assert!(feed.sessions_in("other", "").is_empty());
    }
}
