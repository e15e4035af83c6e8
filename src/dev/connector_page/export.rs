//! The kept frames as a file to save: the same lines, without secrets, as `dev --record` writes, for `dev replay`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use http::{StatusCode, header};

use super::Page;
use crate::dev::http::plain;
use crate::dev::state::Hub;
use crate::dev::trace;

/// Answers `GET export`. Frames that come while it is sent are left out.
pub(super) fn recording(hub: &Arc<Hub>, page: &Page) -> Response {
    let end = hub.lock().frames.pushed();
    let begin = (Arc::clone(hub), 0, trace::head(&page.settings.platform));
    let pieces = stream::unfold(begin, move |(hub, mut seen, mut text)| async move {
        if seen < end {
            trace::take(&hub.lock(), &mut seen, &mut text);
        }
        (!text.is_empty()).then(|| (Ok::<_, Infallible>(text), (hub, seen, String::new())))
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "application/jsonl")
        .header(
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"hermes-relay-wire.jsonl\"",
        )
        .body(Body::from_stream(pieces))
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be sent"))
}
