//! The notify targets of the settings as connectors: their secrets are read here, and this relay's own agents are reached through
//! the control socket of the relay that runs.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::relay_connector::RelayConnector;
use crate::agent::child::{BaseEnv, EnvPolicy};
use crate::agent_connector::{
    AgentConnector, NamedTarget, NotifyTarget, SecretSources, TargetContext, TargetSetupError,
    UnusableConnector,
};
use crate::config::{Settings, secret};
use crate::net::http::HttpEgress;
use crate::net::proxy::ProxyRules;
use crate::relay::{USER_AGENT, provisioning, without_keys};

/// The targets of the settings, and what their connectors are made with.
pub struct Targets<'s> {
    settings: &'s Settings,
    env: &'s dyn Fn(&str) -> Option<String>,
    programs: BTreeMap<OsString, OsString>,
    egress: HttpEgress,
    /// The agents of this relay.
    own_agents: Vec<String>,
}

impl<'s> Targets<'s> {
    /// `base` is what programs inherit, apart from the variables with credentials.
    pub fn new(settings: &'s Settings, env: &'s dyn Fn(&str) -> Option<String>, base: &BaseEnv) -> Self {
        let base = without_keys(settings, base);
        let mut own_agents: Vec<String> = settings.agents.keys().cloned().collect();
        if !own_agents.contains(&settings.agent) {
            own_agents.push(settings.agent.clone());
        }
        Self {
            settings,
            env,
            programs: EnvPolicy::default().apply(&base),
            egress: HttpEgress {
                tls: provisioning::tls(settings),
                proxies: ProxyRules::from_env(env),
                user_agent: USER_AGENT.to_owned(),
                lease: None,
            },
            own_agents,
        }
    }

    /// The ids of a target's agents.
    pub fn agents(&self, target: &NotifyTarget) -> Vec<String> {
        target.kind().agents(&self.own_agents)
    }

    /// The connector of a target; else why it cannot be used.
    pub fn connect(&self, target: &NotifyTarget) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        target.kind().connect(&TargetContext {
            secrets: secret_sources(self.env),
            programs: &self.programs,
            egress: &self.egress,
            relay: &|| Box::new(RelayConnector::new(self.settings, self.own_agents.clone())),
        })
    }

    /// All of them. One that cannot be used refuses everything, and says why.
    pub fn connect_all(&self) -> Vec<NamedTarget> {
        let targets = self.settings.notify.targets.iter();
        targets
            .map(|(name, target)| {
                let connector = self.connect(target).unwrap_or_else(|error| {
                    Box::new(UnusableConnector {
                        capabilities: target.kind().capabilities(),
                        agents: self.agents(target),
                        reason: error.to_string(),
                    })
                });
                (name.clone(), connector)
            })
            .collect()
    }
}

/// Where the secrets of targets are: in variables and in files that only their owner can read.
pub(crate) fn secret_sources(env: &dyn Fn(&str) -> Option<String>) -> SecretSources<'_> {
    SecretSources {
        env,
        file: |path| secret::read(path).map_err(|error| error.to_string()),
    }
}
