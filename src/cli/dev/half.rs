//! The relay half of `dev`: a real relay over a real socket, started again when its gateway is reinstated.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::cli::exit::{self, fail};
use crate::cli::run::http_client;
use crate::config::{Identity, Settings};
use crate::dev::Connector;
use crate::net::connector_http;
use crate::net::proxy::ProxyRules;
use crate::relay::{Credentials, Ended, Member, Relay, RelayHandle};
use crate::wire::Grouping;

/// How often the relay is asked how it stands.
const GLANCE: Duration = Duration::from_millis(200);
/// How long a reinstatement is waited for before looking around again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What the relay is to be.
pub(super) struct Plan {
    pub(super) settings: Settings,
    /// Who answers, by name.
    pub(super) members: Vec<(String, Member)>,
    /// The platforms that it says hello for.
    pub(super) platforms: Vec<String>,
}

impl Plan {
    /// How these settings tell conversations apart.
    pub(super) fn grouping(&self) -> Grouping {
        let sessions = &self.settings.sessions;
        Grouping {
            group_sessions_per_user: sessions.group_sessions_per_user,
            thread_sessions_per_user: sessions.thread_sessions_per_user,
        }
    }

    fn build(&self, credentials: &watch::Receiver<Option<Credentials>>) -> Result<Relay, String> {
        Relay::builder(self.settings.clone())
            .members(self.members.clone())
            .credentials(credentials.clone())
            .build()
            .map_err(|error| error.to_string())
    }
}

/// A relay that runs beside the connector.
pub(super) struct Half {
    pub(super) status: watch::Receiver<Value>,
    handle: watch::Receiver<Option<RelayHandle>>,
    stop: CancellationToken,
    running: JoinHandle<Result<Ended, String>>,
}

impl Half {
    /// Enrols with the connector and starts a relay that dials it; how it stands is put into `told`.
    pub(super) async fn start(
        connector: &Arc<Connector>,
        mut plan: Plan,
        token: &str,
        told: watch::Sender<Value>,
    ) -> Result<Self, String> {
        // Nobody could wake what sleeps here.
        plan.settings.sleep.enabled = false;
        plan.settings.connector.url = Some(connector.url());
        plan.settings.connector.identities = plan
            .platforms
            .iter()
            .map(|platform| Identity::new(platform.as_str(), "dev-bot"))
            .collect();
        let credentials = enrol(&plan.settings, connector, token).await?;
        let (keep, watched) = watch::channel(Some(credentials));
        let first = plan.build(&watched)?;
        let status = told.subscribe();
        let (hand, handle) = watch::channel(Some(first.handle()));
        let stop = CancellationToken::new();
        let (connector, asked) = (Arc::clone(connector), stop.clone());
        let running = tokio::spawn(async move {
            let _keep = keep;
            let mut relay = first;
            loop {
                let handle = relay.handle();
                hand.send_replace(Some(handle.clone()));
                let ended = tokio::select! {
                    biased;
                    ended = relay.run(asked.clone().cancelled_owned()) => ended,
                    never = glance(&handle, &told) => match never {},
                };
                let Ended::Revoked { reason } = ended else {
                    return Ok(ended);
                };
                hand.send_replace(None);
                told.send_replace(json!({ "ended": "revoked", "reason": reason }));
                let reinstated = connector.until("a reinstatement", PATIENCE, |connector| {
                    (!connector.is_revoked()).then_some(())
                });
                tokio::select! {
                    biased;
                    () = asked.cancelled() => return Ok(Ended::Asked),
                    _ = reinstated => {}
                }
                relay = plan.build(&watched)?;
            }
        });
        Ok(Self {
            status,
            handle,
            stop,
            running,
        })
    }

    /// Whether the relay has nothing left to do; also when it does not run.
    pub(super) async fn is_quiet(&self) -> bool {
        let handle = self.handle.borrow().clone();
        match handle {
            None => true,
            Some(handle) => handle
                .status()
                .await
                .is_none_or(|status| status.sessions_active + status.ends_uncommitted + status.ops_owed == 0),
        }
    }

    /// Whether a turn has failed.
    pub(super) async fn has_failed(&self) -> bool {
        let handle = self.handle.borrow().clone();
        let status = match handle {
            None => return true,
            Some(handle) => handle.status().await,
        };
        status.is_none_or(|status| status.tally.turns_failed > 0)
    }

    /// Stops the relay and says how it ended.
    pub(super) async fn stop(self, code: std::process::ExitCode) -> std::process::ExitCode {
        self.stop.cancel();
        match self.running.await {
            Ok(Ok(Ended::Asked)) => code,
            Ok(Ok(ended)) => fail(exit::OUR_FAULT, format!("the relay ended: {ended:?}"), None),
            Ok(Err(error)) => fail(exit::CONFIGURATION, error, None),
            Err(error) => fail(exit::OUR_FAULT, format!("the relay failed: {error}"), None),
        }
    }
}

/// Keeps what the relay says about itself up to date, until it is dropped.
async fn glance(handle: &RelayHandle, told: &watch::Sender<Value>) -> std::convert::Infallible {
    let mut tick = interval(GLANCE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let status = handle.status().await;
        let status = status.and_then(|status| serde_json::to_value(status).ok());
        if let Some(status) = status {
            told.send_if_modified(|last| {
                let news = *last != status;
                *last = status;
                news
            });
        }
    }
}

async fn enrol(settings: &Settings, connector: &Connector, token: &str) -> Result<Credentials, String> {
    let http = http_client(settings, &ProxyRules::none())?;
    let identity = "dev-identity".into();
    let enrolled =
        connector_http::enroll(&http, &connector.http_base(), &identity, &token.into(), "gw-dev").await;
    let enrolled = enrolled.map_err(|error| format!("cannot enrol with the embedded connector: {error}"))?;
    Ok(Credentials {
        gateway_id: enrolled.gateway_id,
        secret: enrolled.secret,
    })
}
