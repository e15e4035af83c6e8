//! The page's jobs: what the embedded managed scheduler has armed, what became of its fires, and buttons that fire.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::dev::embedded_scheduler::{EmbeddedScheduler, FireAttempt};
use crate::dev::http::reply;
use crate::dev::page::ActionError;
use crate::dev::state::Hub;

/// Attempts that the page is shown.
const SHOWN_ATTEMPTS: usize = 20;

/// Answers `GET jobs`; `null` without a scheduler.
pub(super) fn list(hub: &Hub) -> Response {
    let Some(managed) = hub.managed.get() else {
        return reply(&Value::Null);
    };
    let view = managed.view();
    let armed = view
        .armed
        .iter()
        .map(|job| json!({"job_id": job.job_id, "fire_at": job.fire_at}));
    let latest = view.attempts.iter().rev().take(SHOWN_ATTEMPTS).map(shown);
    reply(&json!({
        "armed": armed.collect::<Vec<_>>(),
        "attempts": latest.collect::<Vec<_>>(),
    }))
}

/// Fires a job, as `{"job_id", "twice"}` says.
pub(super) async fn fire(hub: &Hub, body: &[u8]) -> Result<Value, ActionError> {
    let body: Value = serde_json::from_slice(body)?;
    let (Some(managed), Some(job_id)) = (hub.managed.get(), body["job_id"].as_str()) else {
        return Err(ActionError::bad("there is no job_id"));
    };
    let attempts = fired(managed, job_id, body["twice"] == true).await;
    let gone = || {
        ActionError::new(
            StatusCode::NOT_FOUND,
            "the scheduler does not have this job any more",
        )
    };
    let attempts: Vec<Value> = attempts.ok_or_else(gone)?.iter().map(shown).collect();
    Ok(json!({ "attempts": attempts }))
}

async fn fired(managed: &EmbeddedScheduler, job_id: &str, twice: bool) -> Option<Vec<FireAttempt>> {
    if twice {
        return managed.fire_twice(job_id).await.map(Vec::from);
    }
    managed.fire_now(job_id).await.map(|attempt| vec![attempt])
}

fn shown(attempt: &FireAttempt) -> Value {
    json!({
        "job_id": attempt.job_id,
        "fire_at": attempt.fire_at,
        "status": attempt.status,
        "answer": attempt.answer,
    })
}
