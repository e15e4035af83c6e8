//! The agents of the relay that runs here, through its control socket: the connector behind targets of the kind `relay`.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ControlRequest;
use super::client::{self, ClientError};
use crate::agent_connector::contract::{
    AgentActivity, AgentAddress, AgentDescriptor, AgentResponse, CauseKind, DeliveryFailure, DeliveryPayload,
    DeliveryReceipt, StaticCapabilities, TriggerKind, WakeOpts, WakeReceipt,
};
use crate::agent_connector::{
    AgentConnector, Delivering, RelayTarget, descriptor, wake_payload, wake_receipt,
};
use crate::config::Settings;

/// Timeout of a call; longer than the relay itself takes.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer than the agent's time a call may take that waits for an answer.
const WAIT_MARGIN: Duration = Duration::from_secs(10);

/// Hands everything to the relay that runs with these settings.
#[derive(Debug)]
pub(super) struct RelayConnector {
    state_dir: PathBuf,
    has_socket: bool,
    /// The agents of the relay.
    agents: Vec<String>,
}

impl RelayConnector {
    pub(super) fn new(settings: &Settings, agents: Vec<String>) -> Self {
        Self {
            state_dir: settings.state_dir.clone(),
            has_socket: settings.serve.control,
            agents,
        }
    }

    /// Calls the relay beside whatever else is sent.
    async fn call(&self, request: ControlRequest, within: Duration) -> Result<Value, ClientError> {
        let dir = self.state_dir.clone();
        let calling = tokio::task::spawn_blocking(move || client::call_within(&dir, &request, within));
        calling.await.unwrap_or_else(|error| {
            Err(ClientError::NoResponse {
                path: self.state_dir.clone(),
                source: std::io::Error::other(error),
            })
        })
    }

    async fn hand<T: DeserializeOwned>(
        &self,
        agent_id: &str,
        session: Option<&str>,
        payload: &DeliveryPayload,
        (wake, wait): (bool, Option<Duration>),
    ) -> Result<T, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id).with_session(session);
        if !self.agents.contains(&address.agent) {
            return Err(DeliveryFailure::unknown_agent(&address.agent));
        }
        let request = ControlRequest::Hand {
            body: payload.to_body(&address.agent),
            agent: address.agent,
            session: address.session,
            wake,
            wait_ms: wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        };
        let within = wait.map_or(CALL_TIMEOUT, |wait| wait.saturating_add(WAIT_MARGIN));
        let answer = self.call(request, within).await;
        let answer = answer.map_err(|error| self.failure(agent_id, &error))?;
        serde_json::from_value(answer).map_err(|error| {
            let what = format!("invalid response of the relay: {error}; is it another version?");
            DeliveryFailure::new(CauseKind::MalformedResponse, agent_id, what)
        })
    }

    fn failure(&self, agent_id: &str, error: &ClientError) -> DeliveryFailure {
        let cause = match error {
            ClientError::NotRunning(_) if !self.has_socket => {
                let what = "the control socket is disabled (`serve.control: false`); set it to true and restart the relay";
                return DeliveryFailure::new(CauseKind::ClientValidation, agent_id, what);
            }
            ClientError::NotRunning(_) => {
                let what =
                    format!("{error}; this target needs a running relay: start one with `hermes-relay run`");
                return DeliveryFailure::new(CauseKind::Network, agent_id, what);
            }
            ClientError::Denied { .. } | ClientError::TooLong(..) => CauseKind::ClientValidation,
            ClientError::Silent { .. } => CauseKind::Timeout,
            ClientError::NoResponse { .. } => CauseKind::Network,
            ClientError::InvalidResponse(_) => CauseKind::MalformedResponse,
            ClientError::Refused(refused) => match refused.code.as_str() {
                "unknown_agent" | "bad_request" | "version" | "too_long" | "too_large" => {
                    CauseKind::ClientValidation
                }
                "timeout" | "busy" | "silent" => CauseKind::Timeout,
                "no_answer" => CauseKind::MalformedResponse,
                _ => CauseKind::Network,
            },
        };
        DeliveryFailure::new(cause, agent_id, error.to_string())
    }
}

impl AgentConnector for RelayConnector {
    fn capabilities(&self) -> StaticCapabilities {
        RelayTarget::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        self.agents.iter().map(|id| descriptor(id, true)).collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(self.hand(agent_id, None, payload, (false, None)))
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(async move {
            let payload = wake_payload(opts, TriggerKind::Cli).map_err(|error| {
                DeliveryFailure::new(CauseKind::ClientValidation, agent_id, error.to_string())
            })?;
            let session = opts.session_id.as_deref();
            let receipt = self.hand(agent_id, session, &payload, (true, None)).await?;
            Ok(wake_receipt(receipt))
        })
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async move { self.call(ControlRequest::Health, CALL_TIMEOUT).await.is_ok() })
    }

    fn request_response<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
        timeout: Duration,
    ) -> Delivering<'c, AgentResponse> {
        Box::pin(self.hand(agent_id, None, payload, (false, Some(timeout))))
    }

    fn agent_status<'c>(
        &'c self,
        agent_id: &'c str,
    ) -> Pin<Box<dyn Future<Output = AgentActivity> + Send + 'c>> {
        let agent = AgentAddress::parse(agent_id).agent;
        Box::pin(async move {
            let answer = self.call(ControlRequest::Activity { agent }, CALL_TIMEOUT).await;
            let status = answer
                .map(|mut answer| answer["status"].take())
                .unwrap_or_default();
            serde_json::from_value(status).unwrap_or(AgentActivity::Unknown)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;
    use tokio::sync::oneshot;

    use super::*;
    use crate::agent::EchoAgent;
    use crate::relay::{MemoryTransport, Relay};
    use crate::serve::{ControlService, Serving};
    use crate::wire::CapabilityDescriptor;

    /// A relay in memory with a control socket, and the connector to it.
    struct Rig {
        connector: RelayConnector,
        serving: Serving,
        _stop: oneshot::Sender<()>,
        _dir: TempDir,
    }

    fn start() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::embedded(dir.path());
        settings.agent = "echo".to_owned();
        let (transport, _) = MemoryTransport::pair([CapabilityDescriptor::placeholder("discord")]);
        let relay = Relay::builder(settings.clone())
            .agent("echo", EchoAgent)
            .transport(Arc::new(transport))
            .build()
            .unwrap();
        let service = ControlService::new(relay.handle(), dir.path());
        let serving = Serving::start(&settings.serve, service, None).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(relay.run(async { drop(stopped.await) }));
        Rig {
            connector: RelayConnector::new(&settings, vec![settings.agent.clone()]),
            serving,
            _stop: stop,
            _dir: dir,
        }
    }

    #[cfg(feature = "conformance")]
    #[tokio::test]
    async fn it_conforms() {
        let rig = start();
        let checks = crate::agent_connector::conformance::check_connector(&rig.connector).await;
        let broken: Vec<_> = checks.iter().filter(|check| check.outcome.is_err()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
        let woken = checks.iter().filter(|check| check.statement == 39).count();
        assert!(woken > 0 && checks.len() > 15, "{checks:?}");
    }

    #[tokio::test]
    async fn the_status_of_an_agent_is_the_relays() {
        let rig = start();
        let status = async |agent: &'static str| rig.connector.agent_status(agent).await;
        assert_eq!(status("echo@any").await, AgentActivity::Idle);
        assert_eq!(status("nobody").await, AgentActivity::Unknown);
        let opts = WakeOpts {
            context: Some("sleep=60000 slow".to_owned()),
            session_id: Some("s".to_owned()),
            ..WakeOpts::default()
        };
        let until = async |wanted: AgentActivity| {
            let began = std::time::Instant::now();
            while status("echo").await != wanted {
                assert!(began.elapsed() < Duration::from_secs(20), "it is not {wanted:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let woken = rig.connector.wake("echo", &opts).await.unwrap();
        assert_eq!((woken.woken, woken.session_id.as_deref()), (true, Some("s")));
        until(AgentActivity::Active).await;
        // It is woken again, and the turn before is stopped.
        let next = WakeOpts {
            context: Some("short".to_owned()),
            ..opts
        };
        assert!(rig.connector.wake("echo", &next).await.unwrap().woken);
        until(AgentActivity::Idle).await;
    }

    #[tokio::test]
    async fn without_a_relay_it_is_unhealthy_and_says_what_to_start() {
        let Rig {
            connector, serving, ..
        } = start();
        drop(serving);
        assert!(!connector.health_check().await);
        assert_eq!(connector.agent_status("echo").await, AgentActivity::Unknown);
        let failure = connector.wake("echo", &WakeOpts::default()).await.unwrap_err();
        assert_eq!(failure.cause_kind, CauseKind::Network);
        assert!(failure.message.contains("hermes-relay run"), "{failure}");
    }
}
