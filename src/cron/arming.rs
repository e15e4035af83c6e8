//! Keeps the managed scheduler in step with the jobs: makes the calls that [`ArmPlan`] decides on.

use std::time::Duration;

use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::chronos::{ArmPlan, ArmReport, CallFailure, CallOutcome, PortalCall};
use crate::net::chronos::{ArmedJob, ChronosClient, PortalCallError};
use crate::net::portal_login::{PortalError, PortalLogin};

/// What should be armed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredArms {
    /// The jobs.
    pub jobs: Vec<ArmedJob>,
    /// Another number than before: ask the scheduler what it has, since it may have lost something.
    pub relist: u64,
    /// The jobs have not been read yet, so that nothing may be armed or cancelled.
    pub is_unread: bool,
}

/// Arms jobs with the managed scheduler.
#[derive(Debug)]
pub struct Arming {
    client: ChronosClient,
    login: PortalLogin,
    plan: ArmPlan,
    relisted: u64,
    /// Retries go by elapsed time: the time of day may be set.
    since: Instant,
}

impl Arming {
    /// Arms jobs through `client` with the token of `login`.
    pub fn new(client: ChronosClient, login: PortalLogin) -> Self {
        Self {
            client,
            login,
            plan: ArmPlan::default(),
            relisted: 0,
            since: Instant::now(),
        }
    }

    /// The login that it uses.
    pub fn login(&self) -> PortalLogin {
        self.login.clone()
    }

    /// Arms what `desired` says, reports after every change, and ends when nobody says any more what is desired.
    pub async fn run(mut self, mut desired: watch::Receiver<DesiredArms>, report: watch::Sender<ArmReport>) {
        if desired.wait_for(|desired| !desired.is_unread).await.is_err() {
            return;
        }
        loop {
            self.take(&desired.borrow_and_update().clone());
            report.send_replace(self.plan.report());
            // Dropping a call that is under way is harmless: the next start lists first, and a refresh of the login goes on.
            if let Some(call) = self.plan.next_call(self.now_ms()) {
                let outcome = self.perform(&call).await;
                log(&call, &outcome);
                self.plan.on_outcome(&call, outcome, self.now_ms(), random());
                report.send_replace(self.plan.report());
                if desired.has_changed().is_err() {
                    return;
                }
                continue;
            }
            let now = self.now_ms();
            let wait = self.plan.next_retry().map(|at| at.saturating_sub(now));
            let retry = async {
                match wait {
                    Some(ms) => sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = desired.changed() => if changed.is_err() { return },
                () = retry => {}
            }
        }
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.since.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn take(&mut self, desired: &DesiredArms) {
        self.plan.set_desired(desired.jobs.iter().cloned());
        if desired.relist != self.relisted {
            self.relisted = desired.relist;
            self.plan.relist();
        }
    }

    async fn perform(&self, call: &PortalCall) -> CallOutcome {
        let token = match self.login.session_token(self.client.http(), None).await {
            Ok(token) => token,
            Err(error) => return CallOutcome::Failed(login_failure(&error)),
        };
        match self.send(call, &token).await {
            Err(error) if error.is_unauthorized() => {
                let again = self.login.session_token(self.client.http(), Some(&token)).await;
                match again {
                    Ok(token) => self.send(call, &token).await.unwrap_or_else(failed),
                    Err(error) => CallOutcome::Failed(login_failure(&error)),
                }
            }
            outcome => outcome.unwrap_or_else(failed),
        }
    }

    async fn send(&self, call: &PortalCall, token: &SecretString) -> Result<CallOutcome, PortalCallError> {
        match call {
            PortalCall::List => self.client.list(token).await.map(CallOutcome::Listed),
            PortalCall::Provision(job) => {
                self.client.provision(token, &job.job_id, &job.fire_at).await?;
                Ok(CallOutcome::Done)
            }
            PortalCall::Cancel(job_id) => {
                self.client.cancel(token, job_id).await?;
                Ok(CallOutcome::Done)
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn failed(error: PortalCallError) -> CallOutcome {
    let why = error.to_string();
    CallOutcome::Failed(match error {
        _ if error.is_identity_rejected() => CallFailure::IdentityRejected(why),
        PortalCallError::Unreachable { .. } => CallFailure::Unreachable(why),
        PortalCallError::Status { .. } => CallFailure::Refused(why),
    })
}

fn login_failure(error: &PortalError) -> CallFailure {
    let why = error.to_string();
    match error {
        PortalError::Unreachable(_) | PortalError::Locked { .. } => CallFailure::Unreachable(why),
        _ if error.needs_login() => CallFailure::LoggedOut(why),
        PortalError::ForeignPortal { .. } | PortalError::Store(_) => CallFailure::LoggedOut(why),
        _ => CallFailure::Unreachable(why),
    }
}

/// Zero where the system has no randomness: retries come a little sooner then.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

fn log(call: &PortalCall, outcome: &CallOutcome) {
    match (call, outcome) {
        (_, CallOutcome::Failed(CallFailure::IdentityRejected(why))) => tracing::error!(
            %why,
            "the managed scheduler does not know this login; the relay runs jobs with its own timer until it restarts"
        ),
        (_, CallOutcome::Failed(CallFailure::LoggedOut(why))) => tracing::warn!(
            %why,
            "no login for the managed scheduler; the relay runs jobs with its own timer"
        ),
        (_, CallOutcome::Failed(CallFailure::Refused(why) | CallFailure::Unreachable(why))) => {
            tracing::warn!(%why, "the managed scheduler did not take a request; retrying with backoff");
        }
        (PortalCall::Provision(job), _) => {
            tracing::info!(
                job = job.job_id,
                fire_at = job.fire_at,
                "the managed scheduler has taken a job"
            );
        }
        (PortalCall::Cancel(job), _) => tracing::info!(job, "cancelled a job"),
        (PortalCall::List, CallOutcome::Listed(armed)) => {
            tracing::debug!(armed = armed.len(), "the managed scheduler listed its jobs");
        }
        (PortalCall::List, CallOutcome::Done) => {}
    }
}
