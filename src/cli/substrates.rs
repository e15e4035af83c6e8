//! The connectors of the settings as [`AgentConnector`]s: their secrets are read here, and nowhere else.

use std::pin::Pin;
use std::time::Duration;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::ProcessEnv;
use super::relay_connector::RelayConnector;
use super::remote::RemoteRelay;
use crate::agent::child::EnvPolicy;
use crate::agent_connector::contract::{
    AgentDescriptor, AgentResponse, CauseKind, DeliveryFailure, DeliveryPayload, DeliveryReceipt,
    StaticCapabilities, WakeOpts, WakeReceipt,
};
use crate::agent_connector::{
    AgentConnector, CommandConnector, Delivering, FileConnector, NamedConnector, NoopConnector,
    TmuxConnector, WebhookConnector, WebhookConnectorSettings, WebhookCredentials,
};
use crate::config::{Settings, Substrate, secret};
use crate::net::http::HttpEgress;
use crate::net::proxy::ProxyRules;
use crate::relay::{USER_AGENT, provisioning, without_keys};

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
    let env = || {
        let variables = settings.connectors.values();
        let variables = variables.filter_map(|entry| entry.substrate.auth_variable());
        EnvPolicy::default().apply(&without_keys(settings, &process.base).withhold(variables))
    };
    Ok(match substrate {
        Substrate::Webhook(webhook) => {
            let egress = HttpEgress {
                tls: provisioning::tls(settings),
                proxies: ProxyRules::from_env(process.env),
                user_agent: USER_AGENT.to_owned(),
            };
            let credentials = credentials(webhook, process)?;
            let connector = WebhookConnector::through((**webhook).clone(), credentials, &egress);
            Box::new(connector.map_err(|error| error.to_string())?)
        }
        Substrate::File(file) => Box::new(FileConnector::new(file.clone())),
        Substrate::Tmux(tmux) => Box::new(TmuxConnector::new(tmux.clone(), env())),
        Substrate::Command(command) => Box::new(CommandConnector::new(command.clone(), env())),
        Substrate::Relay => Box::new(RelayConnector::new(settings)),
        Substrate::Noop => Box::new(NoopConnector),
    })
}

fn credentials(
    webhook: &WebhookConnectorSettings,
    process: &ProcessEnv<'_>,
) -> Result<WebhookCredentials, String> {
    let auth = match &webhook.auth_env {
        None => webhook.auth.clone(),
        Some(name) => {
            let value = (process.env)(name).map(Zeroizing::new);
            let value = value.filter(|value| !value.trim().is_empty());
            let value = value.ok_or_else(|| {
                format!("the variable {name} is not set; set it to the value of `Authorization`")
            })?;
            Some(SecretString::from(value.trim()))
        }
    };
    let file = webhook.hmac_secret_file.as_deref();
    let hmac_secret = file.map(secret::read).transpose();
    Ok(WebhookCredentials {
        auth,
        hmac_secret: hmac_secret.map_err(|error| error.to_string())?,
    })
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
