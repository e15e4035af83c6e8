//! Starts runs and stops abandoned ones, in tasks that outlive their turn.
//!
//! A request that is dropped before its answer may have started a run whose name nobody knows. So a start is never
//! dropped with its turn: its answer is waited for, up to [`START_TIMEOUT`], and a run that is named too late is stopped. Every
//! task ends with the backend's shutdown.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{REQUEST_TIMEOUT, event};
use crate::agent::http::{AgentHttp, AgentRequest};
use crate::net::http::{Body, HttpError, ResponseStream};

/// Timeout for the response to a start whose turn has ended.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that outlive their turn.
#[derive(Clone, Debug)]
pub(super) struct BackgroundRequests {
    http: AgentHttp,
    tasks: TaskTracker,
    /// Cancelled when the backend shuts down.
    over: CancellationToken,
}

/// Response to a request that may be rejected.
pub(super) enum Posted<T> {
    /// Hermes accepted the request.
    Accepted(T),
    /// Hermes rejected the request.
    Rejected(Box<ResponseStream>),
}

/// A started run, or why its id is unusable.
pub(super) type Started = Result<RunHandle, String>;

/// A started run. Dropping it before its end is known stops it.
#[derive(Debug)]
pub(super) struct RunHandle {
    /// The run's id.
    pub(super) id: String,
    /// Whether its end is known, or its stop was asked for.
    pub(super) settled: bool,
    background: BackgroundRequests,
}

impl BackgroundRequests {
    pub(super) fn new(http: AgentHttp) -> Self {
        Self {
            http,
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
        }
    }

    /// Starts a run, within [`REQUEST_TIMEOUT`]. Dropping the future does not take the request back; a run that it started is
    /// stopped then.
    pub(super) async fn start(&self, body: Vec<u8>, session: String) -> Result<Posted<Started>, HttpError> {
        let (report, reported) = oneshot::channel();
        let background = self.clone();
        self.tasks.spawn(async move {
            let posted = tokio::select! {
                biased;
                // The process exits; nothing can be stopped any more.
                () = background.over.cancelled() => return,
                posted = background.post(body, &session) => posted,
            };
            // An unclaimed run is dropped, which stops it.
            let _ = report.send(posted);
        });
        match tokio::time::timeout(REQUEST_TIMEOUT, reported).await {
            Ok(Ok(posted)) => posted,
            Ok(Err(_)) => Err(HttpError::Broken("the backend was shut down".to_owned())),
            Err(_) => Err(HttpError::TimedOut(REQUEST_TIMEOUT)),
        }
    }

    async fn post(&self, body: Vec<u8>, session: &str) -> Result<Posted<Started>, HttpError> {
        let request = AgentRequest {
            path: "/v1/runs",
            body: Body::Json(body),
            headers: vec![("x-hermes-session-key", session)],
            anonymous: false,
        };
        let reply = self.http.send(request, START_TIMEOUT).await?;
        if !reply.is_success() {
            return Ok(Posted::Rejected(Box::new(reply)));
        }
        let started = match reply.short_body(REQUEST_TIMEOUT).await {
            Ok(body) => event::run_id_of(&body).ok_or("the answer names no usable run_id".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Ok(Posted::Accepted(started.map(|id| self.take_up(id))))
    }

    /// A run that an earlier process started.
    pub(super) fn take_up(&self, id: String) -> RunHandle {
        RunHandle {
            id,
            settled: false,
            background: self.clone(),
        }
    }

    /// Stops an abandoned run.
    fn stop(&self, id: &str) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (http, over, path) = (
            self.http.clone(),
            self.over.clone(),
            format!("/v1/runs/{id}/stop"),
        );
        let stop = async move {
            let request = AgentRequest {
                path: &path,
                body: Body::Json(b"{}".to_vec()),
                ..AgentRequest::default()
            };
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                sent = http.send(request, REQUEST_TIMEOUT) => if let Err(error) = sent {
                    tracing::warn!(%error, "an abandoned run could not be stopped");
                }
            }
        };
        self.tasks.spawn_on(stop, &runtime);
    }

    /// Waits for what is in flight, up to a timeout; then drops it.
    pub(super) async fn end(&self) {
        let _over = self.over.clone().drop_guard();
        self.tasks.close();
        if tokio::time::timeout(3 * REQUEST_TIMEOUT, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("abandoned runs could not be stopped in time");
        }
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if !self.settled {
            self.background.stop(&self.id);
        }
    }
}
