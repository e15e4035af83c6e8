//! What the page is sent: frames, happenings and the state, gathered into few events.
//!
//! A page that lost its connection sends its cursor and gets what it missed, as far as that is kept.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Page;
use crate::dev::feed::micros;
use crate::dev::http::plain;
use crate::dev::record::{Direction, RecordedFrame};
use crate::dev::state::{ConnectorState, Hub};
use crate::relay::command_names;

/// Frames that a new page is shown.
const SHOWN_FRAMES: u64 = 2_000;
/// Frames or happenings in one event.
const BATCH: usize = 400;
/// Longest text of a frame in an event; the whole one is asked for.
const SHOWN_TEXT: usize = 600;
/// Least time between two events.
const PACE: Duration = Duration::from_millis(40);

/// Where a page is: the frames and happenings that it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FeedCursor {
    frames: u64,
    happenings: u64,
}

impl FeedCursor {
    fn parse(text: &str) -> Option<Self> {
        let (frames, happenings) = text.split_once('.')?;
        Some(Self {
            frames: frames.parse().ok()?,
            happenings: happenings.parse().ok()?,
        })
    }
}

struct EventStream {
    hub: Arc<Hub>,
    cursor: FeedCursor,
    setup: Option<Value>,
    relay: Option<watch::Receiver<Value>>,
    sent: (Value, Value),
    _permit: OwnedSemaphorePermit,
}

/// Answers `GET events`. A page that opens a further connection names its cursor as `?after=`.
pub(super) fn stream(hub: &Arc<Hub>, page: &Page, request: &Request) -> Response {
    let Ok(permit) = Arc::clone(&page.listeners).try_acquire_owned() else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open; close another one",
        );
    };
    let header = request.headers().get("last-event-id");
    let header = header.and_then(|id| id.to_str().ok());
    let asked = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("after="));
    let seen = header.or(asked).and_then(FeedCursor::parse);
    let cursor = seen.unwrap_or_else(|| FeedCursor {
        frames: hub.lock().frames.pushed().saturating_sub(SHOWN_FRAMES),
        happenings: 0,
    });
    let listener = EventStream {
        hub: Arc::clone(hub),
        cursor,
        setup: Some(setup(hub, page)),
        relay: page.settings.relay.clone(),
        sent: (Value::Null, Value::Null),
        _permit: permit,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl EventStream {
    /// The next event; none when the connector stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let hub = Arc::clone(&self.hub);
            let mut changed = std::pin::pin!(hub.changed.notified());
            changed.as_mut().enable();
            if let Some(event) = self.batch() {
                // A moment's rest gathers what happens in it; a page that goes away meanwhile misses nothing.
                tokio::time::sleep(PACE).await;
                return Some(event);
            }
            tokio::select! {
                biased;
                () = hub.stop.cancelled() => return None,
                () = changed => {}
                () = relay_changed(&mut self.relay) => {}
            }
        }
    }

    fn batch(&mut self) -> Option<Event> {
        let mut batch = json!({});
        if let Some(setup) = self.setup.take() {
            batch["setup"] = setup;
        }
        let (frames, happenings, link) = {
            let state = self.hub.lock();
            let frames: Vec<Value> = state
                .frames
                .since(self.cursor.frames)
                .take(BATCH)
                .map(|record| shown(&state, record, SHOWN_TEXT))
                .collect();
            let happenings = state.feed.since(self.cursor.happenings, BATCH);
            self.cursor = FeedCursor {
                frames: state.frames.begin(self.cursor.frames) + frames.len() as u64,
                happenings: state.feed.begin(self.cursor.happenings) + happenings.len() as u64,
            };
            (frames, happenings, link(&state))
        };
        let relay = self
            .relay
            .as_mut()
            .map(|relay| relay.borrow_and_update().clone())
            .unwrap_or_default();
        if relay != self.sent.0 {
            batch["relay"] = relay.clone();
            self.sent.0 = relay;
        }
        if link != self.sent.1 {
            batch["link"] = link.clone();
            self.sent.1 = link;
        }
        let quiet = frames.is_empty() && happenings.is_empty();
        if quiet && batch.as_object().is_some_and(serde_json::Map::is_empty) {
            return None;
        }
        batch["frames"] = Value::Array(frames);
        let mut data = batch.to_string();
        // Happenings are JSON already: put in as they are, not read again.
        data.pop();
        let _ = write!(data, ",\"happenings\":[{}]}}", happenings.join(","));
        let id = format!("{}.{}", self.cursor.frames, self.cursor.happenings);
        Some(Event::default().id(id).data(data))
    }
}

async fn relay_changed(relay: &mut Option<watch::Receiver<Value>>) {
    let Some(seen) = relay else {
        return std::future::pending().await;
    };
    if seen.changed().await.is_err() {
        *relay = None;
    }
}

fn setup(hub: &Hub, page: &Page) -> Value {
    let preset = page.preset();
    let hints = page.settings.hints.iter();
    let hints: Vec<_> = hints
        .map(|hint| json!({ "say": hint.say, "shows": hint.shows }))
        .collect();
    let commands: Vec<_> = command_names()
        .map(|(name, what)| json!({ "name": name, "what": what }))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "began": micros(hub.lock().feed.began_unix()),
        "commands": commands,
        "platform": page.settings.platform,
        "agent": page.settings.agent,
        "inProcess": page.settings.relay.is_some(),
        "descriptor": preset.wire(&page.settings.platform),
        "chats": page.personas().chats(),
        "people": page.personas().people(),
        "hints": hints,
    })
}

/// The link's state, as the connector sees it.
fn link(state: &ConnectorState) -> Value {
    let gateway = state.gateways.get(&state.primary);
    let connected = gateway
        .and_then(|gateway| gateway.current)
        .and_then(|id| state.connections.get(&id))
        .is_some_and(|live| !live.identities.is_empty());
    json!({
        "connected": connected,
        "held": gateway.is_some_and(|gateway| gateway.idle_since.is_some()),
        "waiting": gateway.map_or(0, |gateway| gateway.mailbox.waiting()),
        "acked": gateway.map_or(0, |gateway| gateway.mailbox.acked()),
        "revoked": state.faults.revoked,
        "refusing": state.faults.refused_dials > 0,
        "undecodable": state.undecodable,
    })
}

fn shown(state: &ConnectorState, record: &RecordedFrame, max_chars: usize) -> Value {
    let text = record.text().trim_end_matches('\n');
    let json = record.json();
    let cut: String = text.chars().take(max_chars).collect();
    json!({
        "n": record.sequence,
        "t": micros(state.feed.since_start(record.at)),
        "c": record.connection.0,
        "to": match record.direction {
            Direction::ToGateway => "relay",
            Direction::FromGateway => "connector",
        },
        "type": record.kind(),
        "op": json["action"]["op"].as_str(),
        "request": json["requestId"].as_str(),
        "buffer": match &json["bufferId"] {
            Value::String(id) => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        },
        "ok": json["result"]["success"].as_bool(),
        "bytes": text.len(),
        "whole": cut.len() == text.len(),
        "text": cut,
    })
}

/// Answers `GET frame/{n}`: one frame as it stood on the wire.
pub(super) fn frame(hub: &Hub, number: &str) -> Response {
    let state = hub.lock();
    let found = number
        .parse::<u64>()
        .ok()
        .and_then(|number| state.frames.since(number).next().filter(|f| f.sequence == number));
    match found {
        None => plain(StatusCode::NOT_FOUND, "the frame is no longer kept"),
        Some(record) => {
            let whole = shown(&state, record, usize::MAX);
            crate::dev::http::reply(&whole)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_parsed_as_it_was_written() {
        let cursor = FeedCursor {
            frames: 12,
            happenings: 7,
        };
        assert_eq!(FeedCursor::parse("12.7"), Some(cursor));
        for bad in ["", "12", "a.b", "1.-2", "99999999999999999999.1"] {
            assert_eq!(FeedCursor::parse(bad), None, "{bad}");
        }
    }
}
