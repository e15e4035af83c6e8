//! What others may ask of a running relay.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use serde::Serialize;
use serde_json::Value;

use super::metrics::Metrics;
use super::not_running::NotRunning;
use super::parts::handed::{HandedItem, SubmissionReply, SubmitError, TakenItem};
use super::status::{AgentStatus, HealthCheck, SessionList, Status};
use crate::access::{AccessError, AccessRequest, JobMaker};
use crate::agent_connector::contract::{AgentActivity, AgentResponse, DeliveryReceipt};
use crate::cron::chronos::ArmReport;
use crate::cron::fire::{AdmitFire, FireAdmission, FireRequest};
use crate::cron::job::JobOrigin;
use crate::store::{Item, Repair};
use crate::wire::SessionKey;

/// Requests that may wait for the relay.
pub(super) const MAX_REQUESTS: usize = 64;

/// A request to the running relay.
#[derive(Debug)]
pub(super) enum HandleRequest {
    Status(oneshot::Sender<Status>),
    StopTurn(SessionKey, oneshot::Sender<StopOutcome>),
    Sessions(usize, oneshot::Sender<SessionList>),
    Metrics(oneshot::Sender<Metrics>),
    Agents(oneshot::Sender<HealthCheck>),
    Wake(oneshot::Sender<()>),
    Send(SendTarget, String, oneshot::Sender<Result<(), SendError>>),
    Access(AccessRequest, oneshot::Sender<Result<Value, AccessError>>),
    Fire(FireRequest, oneshot::Sender<FireAdmission>),
    JobsChanged(oneshot::Sender<ArmReport>),
    TurnAuthor(Option<SessionKey>, oneshot::Sender<Option<TurnAuthor>>),
    Submit(Box<HandedItem>, SubmissionReply),
    Activity(String, oneshot::Sender<Option<AgentActivity>>),
    HandedAfter(u64, oneshot::Sender<Vec<TakenItem>>),
    Repair(Repair, Item, oneshot::Sender<Result<(), RepairError>>),
}

/// A chat by its id, on this platform or on whichever knows it.
#[derive(Debug)]
pub(super) struct SendTarget {
    pub(super) platform: Option<String>,
    pub(super) chat: String,
    /// Whether the message rings nobody.
    pub(super) silent: bool,
}

/// Whose turn it is, for a process of its agent.
#[derive(Debug, Serialize)]
pub(crate) struct TurnAuthor {
    /// Where a job is made that its agent makes.
    pub(super) origin: Option<JobOrigin>,
    /// Who lists and changes jobs then; the operator if nobody is named.
    pub(super) maker: Option<JobMaker>,
}

/// What became of a request to stop a session's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopOutcome {
    /// Its turn runs here and stops.
    Stopped,
    /// No turn of it runs here; the connector was asked to stop one that runs elsewhere.
    Elsewhere,
    /// No turn of it runs here, and there is no connection over which another instance could be asked.
    NoTurn,
}

/// Why a message was not taken for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing is known of that chat, so its tenant cannot be named.
    #[error("this relay knows no such chat: nobody has written in it yet")]
    UnknownChat,
    /// There is nothing to send.
    #[error("the text is empty")]
    Empty,
    /// The journal is behind, and enough is waiting for it.
    #[error("the journal is behind; try again later")]
    Busy,
    /// The journal cannot hold it.
    #[error("the journal refused the message")]
    Refused,
    /// The relay has ended, or it ended before the journal had the message.
    #[error(transparent)]
    NotRunning(#[from] NotRunning),
}

/// Why an entry of the journal was not repaired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RepairError {
    /// There is no such entry, or its state does not allow that.
    #[error("the state of this entry does not allow that")]
    Refused,
    /// The op is on its way.
    #[error("this op is being sent at the moment")]
    InFlight,
    /// The author of the message may not have it run any more: who, and why.
    #[error("{0}")]
    NotAllowed(String),
    /// The journal cannot be written.
    #[error("the journal cannot be written at the moment")]
    NotStored,
}

impl RepairError {
    /// The reason for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused => "wrong_state",
            Self::InFlight => "in_flight",
            Self::NotAllowed(_) => "not_allowed",
            Self::NotStored => "not_stored",
        }
    }
}

/// A running relay, for those who did not start it. Cheap to clone. Every method fails with [`NotRunning`], by itself or as a variant
/// of its own error, once the relay has ended.
#[derive(Clone, Debug)]
pub struct RelayHandle(pub(super) mpsc::Sender<HandleRequest>);

impl RelayHandle {
    /// A handle of a relay that does not run.
    #[cfg(feature = "nats")]
    pub(crate) fn of_none() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// The relay's status.
    pub async fn status(&self) -> Result<Status, NotRunning> {
        self.ask(HandleRequest::Status).await
    }

    /// The sessions that run or wait, the running ones first, at most so many.
    pub async fn sessions(&self, limit: usize) -> Result<SessionList, NotRunning> {
        self.ask(|reply| HandleRequest::Sessions(limit, reply)).await
    }

    /// What was counted and measured so far.
    pub async fn metrics(&self) -> Result<Metrics, NotRunning> {
        self.ask(HandleRequest::Metrics).await
    }

    /// The health of the agents: all checked together, and those that take longer than `within` reported as silent. The
    /// relay goes on meanwhile.
    pub async fn agents(&self, within: Duration) -> Result<Vec<AgentStatus>, NotRunning> {
        Ok(self.ask(HandleRequest::Agents).await?.run(within).await)
    }

    /// The names of the agents, without a look at their health.
    pub async fn agent_names(&self) -> Result<Vec<String>, NotRunning> {
        Ok(self.ask(HandleRequest::Agents).await?.names())
    }

    /// Dials now if there is no connection. May be called as often as anybody likes: dials keep their minimum distance.
    pub async fn wake(&self) -> Result<(), NotRunning> {
        self.ask(HandleRequest::Wake).await
    }

    /// Stops a session's turn, and no other. What waits in the session runs next. A turn that does not run here may run in
    /// another instance: the connector is asked to stop it.
    pub async fn stop_turn(&self, session: SessionKey) -> Result<StopOutcome, NotRunning> {
        self.ask(|reply| HandleRequest::StopTurn(session, reply)).await
    }

    /// Sends a message to a chat that wrote before, by its id; also before the last restart. Returns once the journal
    /// has it: it goes out when the link is up, possibly in a later run. Waits while the journal cannot be written.
    pub async fn send(&self, chat: &str, text: &str) -> Result<(), SendError> {
        self.send_to(None, chat, text, false).await
    }

    /// The same to a chat of this platform, where chats of several have the same id.
    pub async fn send_on(&self, platform: &str, chat: &str, text: &str) -> Result<(), SendError> {
        self.send_to(Some(platform.to_owned()), chat, text, false).await
    }

    /// The same to a chat of this platform, or of whichever knows it, without ringing anybody where the platform has that.
    pub async fn send_silently(
        &self,
        platform: Option<&str>,
        chat: &str,
        text: &str,
    ) -> Result<(), SendError> {
        self.send_to(platform.map(str::to_owned), chat, text, true).await
    }

    async fn send_to(
        &self,
        platform: Option<String>,
        chat: &str,
        text: &str,
        silent: bool,
    ) -> Result<(), SendError> {
        let text = text.to_owned();
        let target = SendTarget {
            platform,
            chat: chat.to_owned(),
            silent,
        };
        self.ask(|reply| HandleRequest::Send(target, text, reply)).await?
    }

    /// Lists or changes who may drive an agent; the inner error is the answer to a request that cannot be met.
    pub async fn access(&self, request: AccessRequest) -> Result<Result<Value, AccessError>, NotRunning> {
        self.ask(|reply| HandleRequest::Access(request, reply)).await
    }

    /// Scheduled jobs were changed in the journal: reads them again, and waits a while until it is known whether the managed
    /// scheduler has them. Without it the report is empty.
    pub async fn jobs_changed(&self) -> Result<ArmReport, NotRunning> {
        self.ask(HandleRequest::JobsChanged).await
    }

    /// Whose turn a session has now, or whose turns all running ones are; `None` when that cannot be told.
    pub(crate) async fn turn_author(
        &self,
        session: Option<SessionKey>,
    ) -> Result<Option<TurnAuthor>, NotRunning> {
        self.ask(|reply| HandleRequest::TurnAuthor(session, reply)).await
    }

    /// Submits an item for one of the agents. The receipt means that it is on disk; the same `dispatch_id` again gets the same
    /// receipt, and nothing happens twice.
    pub async fn submit(&self, item: HandedItem) -> Result<DeliveryReceipt, SubmitError> {
        let item = Box::new(item);
        self.ask(|reply| HandleRequest::Submit(item, SubmissionReply::Receipt(reply)))
            .await?
    }

    /// Submits an item for one of the agents, as a turn, and waits for its answer.
    pub async fn request(&self, item: HandedItem) -> Result<AgentResponse, SubmitError> {
        let item = Box::new(item);
        self.ask(|reply| HandleRequest::Submit(item, SubmissionReply::Response(reply)))
            .await?
    }

    /// Whether an agent works; `None` if there is no such agent.
    pub async fn activity(&self, agent: &str) -> Result<Option<AgentActivity>, NotRunning> {
        let agent = agent.to_owned();
        self.ask(|reply| HandleRequest::Activity(agent, reply)).await
    }

    /// What was handed to the agents after the item of this number, the oldest first, and at most the latest 100.
    pub async fn handed_after(&self, number: u64) -> Result<Vec<TakenItem>, NotRunning> {
        self.ask(|reply| HandleRequest::HandedAfter(number, reply)).await
    }

    /// Runs or sends an entry of the journal again, or drops it. Returns once that is stored.
    pub(crate) async fn repair(
        &self,
        repair: Repair,
        item: Item,
    ) -> Result<Result<(), RepairError>, NotRunning> {
        self.ask(|reply| HandleRequest::Repair(repair, item, reply)).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> HandleRequest,
    ) -> Result<T, NotRunning> {
        let (reply, answer) = oneshot::channel();
        self.0.send(request(reply)).await.map_err(|_| NotRunning)?;
        answer.await.map_err(|_| NotRunning)
    }
}

impl AdmitFire for RelayHandle {
    fn admit(&self, fire: FireRequest) -> Pin<Box<dyn Future<Output = FireAdmission> + Send + '_>> {
        Box::pin(async {
            self.ask(|reply| HandleRequest::Fire(fire, reply))
                .await
                .unwrap_or(FireAdmission::Draining)
        })
    }
}
