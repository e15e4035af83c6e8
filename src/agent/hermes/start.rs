//! The start of a run, and the stop of one that nobody follows any more: tasks that outlive the turn they belong to.
//!
//! A request that is dropped before its answer may have started a run whose name nobody knows. So a start is never
//! dropped with its turn: its answer is waited for, up to [`LATE`], and a run that is named too late is stopped. Every
//! task ends with the backend's shutdown.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{SHORT, event};
use crate::agent::http::{AgentHttp, AgentRequest};
use crate::net::http::{Body, HttpError, ResponseStream};

/// How long the answer to a start is waited for when its turn does not wait any more.
const LATE: Duration = Duration::from_secs(60);

/// What is done for runs beside their turns.
#[derive(Clone, Debug)]
pub(super) struct Errands {
    http: AgentHttp,
    tasks: TaskTracker,
    /// Cancelled when nothing is waited for any more.
    over: CancellationToken,
}

/// What became of a request that may be refused.
pub(super) enum Posted<T> {
    /// It was taken.
    Taken(T),
    /// It was refused.
    Refused(Box<ResponseStream>),
}

/// A run that was started, or why it has no name that can be used.
pub(super) type Started = Result<Leash, String>;

/// The hold on a run. Dropped while the run may still go on, it has it stopped.
#[derive(Debug)]
pub(super) struct Leash {
    /// The run's name.
    pub(super) id: String,
    /// Whether its end is known, or its stop was asked for.
    pub(super) settled: bool,
    errands: Errands,
}

impl Errands {
    pub(super) fn new(http: AgentHttp) -> Self {
        Self {
            http,
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
        }
    }

    /// Starts a run, within [`SHORT`]. Dropping the future does not take the request back; a run that it started is
    /// stopped then.
    pub(super) async fn start(&self, body: Vec<u8>, session: String) -> Result<Posted<Started>, HttpError> {
        let (tell, told) = oneshot::channel();
        let errands = self.clone();
        self.tasks.spawn(async move {
            let posted = tokio::select! {
                biased;
                // The backend is shut down, and the process with it: nobody is left to stop anything.
                () = errands.over.cancelled() => return,
                posted = errands.post(body, &session) => posted,
            };
            // What nobody takes is dropped, and a run with it stopped.
            let _ = tell.send(posted);
        });
        match tokio::time::timeout(SHORT, told).await {
            Ok(Ok(posted)) => posted,
            Ok(Err(_)) => Err(HttpError::Broken("the backend was shut down".to_owned())),
            Err(_) => Err(HttpError::TimedOut(SHORT)),
        }
    }

    async fn post(&self, body: Vec<u8>, session: &str) -> Result<Posted<Started>, HttpError> {
        let request = AgentRequest {
            path: "/v1/runs",
            body: Body::Json(body),
            headers: vec![("x-hermes-session-key", session)],
            anonymous: false,
        };
        let reply = self.http.send(request, LATE).await?;
        if !reply.is_success() {
            return Ok(Posted::Refused(Box::new(reply)));
        }
        let started = match reply.short_body(SHORT).await {
            Ok(body) => event::run_id_of(&body).ok_or("the answer names no usable run_id".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Ok(Posted::Taken(started.map(|id| Leash {
            id,
            settled: false,
            errands: self.clone(),
        })))
    }

    /// Stops a run that nobody follows any more.
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
                sent = http.send(request, SHORT) => if let Err(error) = sent {
                    tracing::warn!(%error, "a run that was given up could not be stopped");
                }
            }
        };
        self.tasks.spawn_on(stop, &runtime);
    }

    /// Waits for everything that is under way, but not for long; what is left then is given up, as it is when the wait
    /// is.
    pub(super) async fn end(&self) {
        let _over = self.over.clone().drop_guard();
        self.tasks.close();
        if tokio::time::timeout(3 * SHORT, self.tasks.wait()).await.is_err() {
            tracing::warn!("runs that were given up could not be stopped in time");
        }
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if !self.settled {
            self.errands.stop(&self.id);
        }
    }
}
