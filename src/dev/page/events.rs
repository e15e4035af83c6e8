//! What the page is sent, gathered into few events.
//!
//! A page that lost its connection names the last event that it has, and gets what it missed, as far as that is kept.

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
use tokio::sync::OwnedSemaphorePermit;

use super::{PageBackend, PageDoor};
use crate::dev::http::plain;

/// Least time between two events.
const PACE: Duration = Duration::from_millis(40);

struct EventStream<B: PageBackend> {
    backend: Arc<B>,
    cursor: B::Cursor,
    /// What was sent last.
    setup: Value,
    status: Value,
    _permit: OwnedSemaphorePermit,
}

/// Answers `GET events`. A page that opens a further connection names its last event as `?after=`.
pub(super) fn stream<B: PageBackend>(backend: &Arc<B>, door: &PageDoor, request: &Request) -> Response {
    let Ok(permit) = Arc::clone(&door.listeners).try_acquire_owned() else {
        return plain(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many pages are open; close another one",
        );
    };
    let asked = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("after="));
    let after = super::text(request.headers(), "last-event-id").or(asked);
    let listener = EventStream {
        cursor: backend.cursor(after),
        backend: Arc::clone(backend),
        setup: Value::Null,
        status: Value::Null,
        _permit: permit,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl<B: PageBackend> EventStream<B> {
    /// The next event; none when the backend stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let backend = Arc::clone(&self.backend);
            let mut changed = std::pin::pin!(backend.changed().notified());
            changed.as_mut().enable();
            if let Some(event) = self.batch() {
                // A moment's rest gathers what happens in it; a page that goes away meanwhile misses nothing.
                tokio::time::sleep(PACE).await;
                return Some(event);
            }
            tokio::select! {
                biased;
                () = backend.stop().cancelled() => return None,
                () = changed => {}
            }
        }
    }

    fn batch(&mut self) -> Option<Event> {
        let news = self.backend.news(&mut self.cursor);
        let mut batch = json!({});
        let now = [
            ("setup", self.backend.setup(), &mut self.setup),
            ("status", self.backend.status(), &mut self.status),
        ];
        for (name, value, sent) in now {
            if value != *sent {
                batch[name] = value.clone();
                *sent = value;
            }
        }
        let quiet = news.rows.is_empty() && news.happenings.is_empty();
        if quiet && batch.as_object().is_some_and(serde_json::Map::is_empty) {
            return None;
        }
        batch["rows"] = Value::Array(news.rows);
        let mut data = batch.to_string();
        // Happenings are JSON already: put in as they are, not read again.
        data.pop();
        let _ = write!(data, ",\"happenings\":[{}]}}", news.happenings.join(","));
        let event = Event::default().data(data);
        Some(match news.id {
            Some(id) => event.id(id),
            None => event,
        })
    }
}
