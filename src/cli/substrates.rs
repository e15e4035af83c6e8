//! The connectors of the settings as [`AgentConnector`]s.

use std::pin::Pin;
use std::time::Duration;

use super::ProcessEnv;
use super::relay_connector::RelayConnector;
use super::remote::RemoteRelay;
use crate::agent_connector::contract::{
    AgentDescriptor, AgentResponse, CauseKind, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};
use crate::agent_connector::{
    AgentConnector, CommandConnector, Delivering, FileConnector, NamedConnector, NoopConnector,
    TmuxConnector, WebhookConnector,
};
use crate::config::{Settings, Substrate};
use crate::net::http::HttpEgress;
use crate::net::proxy::ProxyRules;
use crate::relay::{SubstrateContext, USER_AGENT, build_connector, provisioning};

/// All connectors of the settings. One that cannot be used refuses everything, and says why.
pub(super) fn build_all(relay: &RemoteRelay, process: &ProcessEnv<'_>) -> Vec<NamedConnector> {
    let settings = relay.settings();
    let entries = settings.connectors.iter();
    entries
        .map(|(name, entry)| {
            let substrate = &entry.substrate;
            let built = build(substrate, settings, process);
            let built = built.unwrap_or_else(|reason| {
                Box::new(UnusableConnector {
                    capabilities: capabilities(substrate),
                    agents: agents(substrate, settings),
                    reason,
                })
            });
            (name.clone(), built)
        })
        .collect()
}

/// A connector of its settings; else why it cannot be used.
pub(super) fn build(
    substrate: &Substrate,
    settings: &Settings,
    process: &ProcessEnv<'_>,
) -> Result<Box<dyn AgentConnector>, String> {
    let egress = HttpEgress {
        tls: provisioning::tls(settings),
        proxies: ProxyRules::from_env(process.env),
        user_agent: USER_AGENT.to_owned(),
    };
    let context = SubstrateContext {
        settings,
        env: process.env,
        base: &process.base,
        egress: &egress,
    };
    let built = build_connector(substrate, context)?;
    Ok(built.unwrap_or_else(|| Box::new(RelayConnector::new(settings))))
}

/// What a kind can do, without a connector.
pub(super) fn capabilities(substrate: &Substrate) -> StaticCapabilities {
    match substrate {
        Substrate::Webhook(_) => WebhookConnector::CAPABILITIES,
        Substrate::File(_) => FileConnector::CAPABILITIES,
        Substrate::Tmux(_) => TmuxConnector::CAPABILITIES,
        Substrate::Command(_) => CommandConnector::CAPABILITIES,
        Substrate::Relay => RelayConnector::CAPABILITIES,
        Substrate::Noop => NoopConnector::CAPABILITIES,
    }
}

/// The ids of its agents: of the `relay` kind those under `agents`, and the default agent.
pub(super) fn agents(substrate: &Substrate, settings: &Settings) -> Vec<String> {
    match substrate {
        Substrate::Webhook(webhook) => webhook.agents.keys().cloned().collect(),
        Substrate::File(file) => file.agents.clone(),
        Substrate::Tmux(tmux) => tmux.agents.keys().cloned().collect(),
        Substrate::Command(command) => command.agents.keys().cloned().collect(),
        Substrate::Relay => {
            let mut names: Vec<String> = settings.agents.keys().cloned().collect();
            if !names.contains(&settings.agent) {
                names.push(settings.agent.clone());
            }
            names
        }
        Substrate::Noop => Vec::new(),
    }
}

/// A connector whose settings or secrets cannot be used.
#[derive(Debug)]
struct UnusableConnector {
    capabilities: StaticCapabilities,
    agents: Vec<String>,
    reason: String,
}

impl UnusableConnector {
    fn refuse<T: Send + 'static>(&self, agent_id: &str) -> Delivering<'_, T> {
        let reason = self.reason.clone();
        let failure = DeliveryFailure::new(CauseKind::ClientValidation, agent_id, reason);
        Box::pin(std::future::ready(Err(failure)))
    }
}

impl AgentConnector for UnusableConnector {
    fn capabilities(&self) -> StaticCapabilities {
        self.capabilities
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        let ids = self.agents.iter();
        ids.map(|id| AgentDescriptor {
            agent_id: id.clone(),
            agent_name: None,
            capabilities: None,
        })
        .collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        _payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        self.refuse(agent_id)
    }

    fn wake<'c>(&'c self, agent_id: &'c str, _opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        self.refuse(agent_id)
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(std::future::ready(false))
    }

    fn request_response<'c>(
        &'c self,
        agent_id: &'c str,
        _payload: &'c DeliveryPayload,
        _timeout: Duration,
    ) -> Delivering<'c, AgentResponse> {
        self.refuse(agent_id)
    }
}
