//! The relay of `dev`: a real relay over a real socket, restarted when its gateway is reinstated; or the bot of a fake Bot API.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::scheduler::DevScheduler;
use crate::cli::exit::{self, fail};
use crate::cli::run::http_client;
use crate::config::{BotIdentity, DirectConfig, ServeConfig, Settings};
use crate::dev::{Connector, ConnectorSettings, random_token};
use crate::net::connector_http;
use crate::net::proxy::ProxyRules;
use crate::relay::{AgentSlot, Credentials, ExitReason, Relay, RelayHandle, Voice};
use crate::serve::{ControlService, FireEndpoint, Fires, Serving};
use crate::wire::SessionKey;

/// Interval of status updates.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of looks at the one turn of a smoke test.
const TURN_INTERVAL: Duration = Duration::from_millis(10);
/// Timeout of a wait for a reinstatement, which is then repeated.
const REINSTATEMENT_TIMEOUT: Duration = Duration::from_secs(3600);

/// Sessions that are looked at.
const MAX_SESSIONS: usize = 1_000;

/// What one run makes up, so that no other user of this machine can enroll with its connector.
pub(super) struct RunSecrets {
    identity: String,
    identity_key: String,
    enrol_token: String,
}

impl RunSecrets {
    pub(super) fn new() -> Self {
        Self {
            identity: random_token(),
            identity_key: random_token(),
            enrol_token: random_token(),
        }
    }

    /// The identity token that enrolment and provisioning accept.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The token that enrolls once.
    pub(super) fn enrol_token(&self) -> &str {
        &self.enrol_token
    }

    /// Settings of a connector that knows no gateway yet and lets only this run enroll one.
    pub(super) fn connector_settings(&self) -> ConnectorSettings {
        ConnectorSettings {
            gateways: Vec::new(),
            enrol_tokens: vec![self.enrol_token.clone()],
            identity_tokens: Some(vec![self.identity.clone()]),
            identity_key: Some(self.identity_key.clone()),
            ..ConnectorSettings::default()
        }
    }
}

/// How to build the relay.
pub(super) struct RelayPlan {
    pub(super) settings: Settings,
    /// Agents by name.
    pub(super) agents: Vec<(String, AgentSlot)>,
    /// What transcribes recordings and speaks answers.
    pub(super) voice: Voice,
    /// Platforms of the handshake.
    pub(super) platforms: Vec<String>,
}

impl RelayPlan {
    /// The kind of the agent that answers by default.
    pub(super) fn agent_kind(&self) -> &'static str {
        let slot = self.agents.iter().find(|(name, _)| *name == self.settings.agent);
        match slot {
            Some((_, slot)) => slot.agent.info().kind,
            // Built-in agents have no slot.
            None if self.settings.agent == "echo" => "echo",
            None => "",
        }
    }

    /// The relay, with what it serves: its control socket, and fires of the embedded scheduler.
    fn build(
        &self,
        credentials: &watch::Receiver<Option<Credentials>>,
        scheduler: Option<&mut DevScheduler>,
    ) -> Result<(Relay, Serving), String> {
        let mut settings = self.settings.clone();
        let attached = scheduler
            .map(|scheduler| scheduler.attach(&mut settings))
            .transpose()?;
        let state_dir = settings.state_dir.clone();
        let direct = settings.direct.clone();
        let builder = Relay::builder(settings)
            .agents(self.agents.clone())
            .voice(self.voice.clone())
            .credentials(credentials.clone());
        let (builder, fires) = match attached {
            None => (builder, None),
            Some((managed, listener)) => (builder.arming(managed.arming), Some((managed.verifier, listener))),
        };
        let relay = builder.build().map_err(|error| error.to_string())?;
        let fires = fires.map(|(verifier, listener)| Fires {
            endpoint: Arc::new(FireEndpoint::new(Some(verifier), Box::new(relay.handle()))),
            listener: Some(listener),
        });
        let mut service = ControlService::new(relay.handle(), state_dir);
        if let Some(bot) = &direct.telegram {
            service = service.telegram(bot);
        }
        if let Some(bot) = &direct.discord {
            service = service.discord(bot);
        }
        let serving = Serving::start(&ServeConfig::default(), service, fires);
        Ok((relay, serving.map_err(|error| error.to_string())?))
    }
}

/// The state of the terminal's session.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatSession {
    /// Whether a turn of it runs or waits.
    pub(super) has_turn: bool,
    /// Whether the relay has something left to store or to send.
    pub(super) has_rest: bool,
    /// Turns that were stopped so far.
    pub(super) turns_stopped: u64,
    /// Who answers, while a turn runs.
    pub(super) agent: Option<String>,
}

/// A relay that runs in a background task.
pub(super) struct DevRelay {
    handle: watch::Receiver<Option<RelayHandle>>,
    stop: CancellationToken,
    running: JoinHandle<Result<ExitReason, String>>,
}

impl DevRelay {
    /// Enrolls with the connector and starts a relay that dials it; its status goes to `status_sender`.
    pub(super) async fn start(
        connector: &Arc<Connector>,
        mut plan: RelayPlan,
        secrets: &RunSecrets,
        mut scheduler: Option<DevScheduler>,
        status_sender: watch::Sender<Value>,
    ) -> Result<Self, String> {
        // Nobody could wake it.
        plan.settings.sleep.enabled = false;
        // Not the bot of the settings: everything stays on this machine.
        plan.settings.direct = DirectConfig::default();
        plan.settings.connector.url = Some(connector.url());
        plan.settings.connector.identities = plan
            .platforms
            .iter()
            .map(|platform| BotIdentity::new(platform.as_str(), "dev-bot"))
            .collect();
        let credentials = enroll(&plan.settings, connector, secrets).await?;
        let (keep, watched) = watch::channel(Some(credentials));
        let first = plan.build(&watched, scheduler.as_mut())?;
        let (handle_sender, handle) = watch::channel(Some(first.0.handle()));
        connector.show_agents_of(handle.clone());
        let stop = CancellationToken::new();
        let (connector, stopped) = (Arc::clone(connector), stop.clone());
        let running = tokio::spawn(async move {
            let _keep = keep;
            let (mut relay, mut serving) = first;
            loop {
                let handle = relay.handle();
                handle_sender.send_replace(Some(handle.clone()));
                let ended = tokio::select! {
                    biased;
                    ended = relay.run(stopped.clone().cancelled_owned()) => ended,
                    never = update_status(&handle, &status_sender) => match never {},
                    never = show_deliveries(&handle, &connector) => match never {},
                };
                // Another relay listens where this one did.
                drop(serving);
                let ExitReason::Revoked { reason } = ended else {
                    return Ok(ended);
                };
                handle_sender.send_replace(None);
                status_sender.send_replace(json!({ "ended": "revoked", "reason": reason }));
                let reinstated = connector.until("a reinstatement", REINSTATEMENT_TIMEOUT, |connector| {
                    (!connector.is_revoked()).then_some(())
                });
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => return Ok(ExitReason::Shutdown),
                    _ = reinstated => {}
                }
                (relay, serving) = plan.build(&watched, scheduler.as_mut())?;
            }
        });
        Ok(Self {
            handle,
            stop,
            running,
        })
    }

    /// Starts a relay that is the bot of a fake platform.
    pub(super) fn start_bot(
        mut plan: RelayPlan,
        configure: impl FnOnce(&mut Settings),
    ) -> Result<Self, String> {
        // Nobody could wake it.
        plan.settings.sleep.enabled = false;
        plan.settings.connector.url = None;
        plan.settings.connector.identities = plan
            .platforms
            .iter()
            .map(|platform| BotIdentity::new(platform.as_str(), ""))
            .collect();
        configure(&mut plan.settings);
        let (keep, watched) = watch::channel(None);
        let (relay, serving) = plan.build(&watched, None)?;
        let (handle_sender, handle) = watch::channel(Some(relay.handle()));
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            let _keep = (keep, handle_sender);
            let ended = Box::pin(relay.run(stopped.cancelled_owned())).await;
            drop(serving);
            Ok(ended)
        });
        Ok(Self {
            handle,
            stop,
            running,
        })
    }

    /// Whether the relay has no work left, or does not run.
    pub(super) async fn is_idle(&self) -> bool {
        let handle = self.handle.borrow().clone();
        match handle {
            None => true,
            Some(handle) => handle.status().await.map_or(true, |status| {
                status.sessions_active + status.ends_uncommitted + status.ops_durable == 0
            }),
        }
    }

    /// The state of these sessions together.
    pub(super) async fn session_state(&self, sessions: &VecDeque<SessionKey>) -> ChatSession {
        let handle = self.handle.borrow().clone();
        let Some(handle) = handle else {
            return ChatSession::default();
        };
        // In this order: a session that is over has been counted.
        let list = handle.sessions(MAX_SESSIONS).await;
        let status = handle.status().await;
        let listed = list.ok().and_then(|list| {
            let mut listed = list.sessions.into_iter();
            listed.find(|listed| sessions.iter().any(|session| session.as_str() == listed.session))
        });
        status.map_or_else(
            |_| ChatSession::default(),
            |status| ChatSession {
                has_turn: listed.is_some(),
                has_rest: status.ends_uncommitted + status.ops_durable > 0,
                turns_stopped: status.tally.turns_stopped,
                agent: listed.and_then(|listed| listed.agent),
            },
        )
    }

    /// Waits until the first turn is over and all that it wrote is sent; returns whether it is done, or nothing in time.
    pub(super) async fn first_turn(&self, deadline: Duration) -> Option<bool> {
        let over = async {
            loop {
                let handle = self.handle.borrow().clone();
                if let Some(handle) = handle
                    && let Ok(status) = handle.status().await
                {
                    let tally = &status.tally;
                    let others = tally.turns_failed + tally.turns_stopped + tally.turns_interrupted;
                    if tally.turns_done + others > 0 && status.ends_uncommitted + status.ops_durable == 0 {
                        return others == 0;
                    }
                }
                tokio::time::sleep(TURN_INTERVAL).await;
            }
        };
        tokio::time::timeout(deadline, over).await.ok()
    }

    /// Stops the relay; returns `code` unless the relay failed.
    pub(super) async fn stop(self, code: std::process::ExitCode) -> std::process::ExitCode {
        self.stop.cancel();
        match self.running.await {
            Ok(Ok(ExitReason::Shutdown)) => code,
            Ok(Ok(ended)) => fail(exit::INTERNAL, format!("the relay ended: {ended:?}"), None),
            Ok(Err(error)) => fail(exit::CONFIGURATION, error, None),
            Err(error) => fail(exit::INTERNAL, format!("the relay failed: {error}"), None),
        }
    }
}

/// Updates the status until dropped.
async fn update_status(handle: &RelayHandle, sender: &watch::Sender<Value>) -> std::convert::Infallible {
    let mut tick = interval(STATUS_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let status = handle.status().await.ok();
        let status = status.and_then(|status| serde_json::to_value(status).ok());
        if let Some(status) = status {
            sender.send_if_modified(|last| {
                let is_new = *last != status;
                *last = status;
                is_new
            });
        }
    }
}

/// Shows on the page what is handed to the agents, until dropped.
async fn show_deliveries(handle: &RelayHandle, connector: &Connector) -> std::convert::Infallible {
    let mut tick = interval(STATUS_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = 0;
    loop {
        tick.tick().await;
        for taken in handle.handed_after(shown).await.unwrap_or_default() {
            connector.show_delivery(&taken);
            shown = taken.number;
        }
    }
}

async fn enroll(
    settings: &Settings,
    connector: &Connector,
    secrets: &RunSecrets,
) -> Result<Credentials, String> {
    let http = http_client(settings, &ProxyRules::none())?;
    let (identity, token) = (
        secrets.identity.as_str().into(),
        secrets.enrol_token.as_str().into(),
    );
    let enrolled = connector_http::enroll(&http, &connector.http_base(), &identity, &token, "gw-dev").await;
    let enrolled = enrolled.map_err(|error| format!("cannot enroll with the embedded connector: {error}"))?;
    Ok(Credentials {
        gateway_id: enrolled.gateway_id,
        secret: enrolled.secret,
    })
}
