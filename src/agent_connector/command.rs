//! A program as a mailbox: started for each notice without a shell, with the body of a webhook on its standard input.
//!
//! Exit code 0 means accepted. A JSON object on its standard output is read like a webhook's answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::contract::{
    AgentAddress, AgentDescriptor, DeliveryFailure, DeliveryPayload, DeliveryReceipt, StaticCapabilities,
    WakeOpts, WakeReceipt,
};
use super::degraded::deliver_instead;
use super::receipt::Answer;
use super::subprocess::{self, ProgramEnv};
use super::target::{TargetContext, TargetFault, TargetKind, wrong_ids};
use super::{AgentConnector, Delivering, TargetSetupError, bundled, descriptor, now_ms};

/// Maximum time of the program.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `{kind: command, agents: {ID: {argv}}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTarget {
    /// The agents and their programs.
    pub agents: BTreeMap<String, ProgramAgent>,
}

/// The program of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramAgent {
    /// The program and its arguments; no shell reads them.
    pub argv: Vec<String>,
}

impl TargetKind for CommandTarget {
    fn capabilities(&self) -> StaticCapabilities {
        CommandConnector::CAPABILITIES
    }

    fn agents(&self, _own: &[String]) -> Vec<String> {
        self.agents.keys().cloned().collect()
    }

    fn violation(&self) -> Option<String> {
        wrong_ids(self.agents.keys()).or_else(|| {
            self.agents.iter().find_map(|(id, agent)| {
                let is_named = agent
                    .argv
                    .first()
                    .is_some_and(|program| !program.trim().is_empty());
                let is_usable = is_named && agent.argv.iter().all(|part| !part.contains('\0'));
                (!is_usable).then(|| {
                    format!("`agents.{id}.argv` must start with a program and contain no NUL character")
                })
            })
        })
    }

    fn argvs_mut(&mut self) -> Vec<&mut Vec<String>> {
        self.agents.values_mut().map(|agent| &mut agent.argv).collect()
    }

    fn connect(&self, with: &TargetContext<'_>) -> Result<Box<dyn AgentConnector>, TargetSetupError> {
        Ok(Box::new(CommandConnector::new(
            self.clone(),
            with.programs.clone(),
        )))
    }

    fn fault(&self) -> TargetFault {
        TargetFault {
            what: "a program is not installed or cannot be run",
            remedy: "install the program, or correct `argv`".to_owned(),
        }
    }
}

/// Starts programs.
#[derive(Debug)]
pub struct CommandConnector {
    settings: CommandTarget,
    env: ProgramEnv,
}

impl CommandConnector {
    /// What it can do.
    pub const CAPABILITIES: StaticCapabilities = bundled("command", false, false);

    /// A connector for these agents; `env` is the whole environment of their programs.
    pub fn new(settings: CommandTarget, env: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self {
            settings,
            env: env.into_iter().collect(),
        }
    }

    async fn start(
        &self,
        agent_id: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, DeliveryFailure> {
        let address = AgentAddress::parse(agent_id);
        let agent = self.settings.agents.get(&address.agent);
        let agent = agent.ok_or_else(|| DeliveryFailure::unknown_agent(agent_id))?;
        let mut body = payload.to_body(agent_id).to_string().into_bytes();
        body.push(b'\n');
        let output = subprocess::run(agent_id, &agent.argv, &self.env, body, TIMEOUT).await?;
        Ok(Answer::read(&output).delivered(now_ms()))
    }
}

impl AgentConnector for CommandConnector {
    fn capabilities(&self) -> StaticCapabilities {
        Self::CAPABILITIES
    }

    fn list_agents(&self) -> Vec<AgentDescriptor> {
        let ids = self.settings.agents.keys();
        ids.map(|id| descriptor(id, false)).collect()
    }

    fn deliver<'c>(
        &'c self,
        agent_id: &'c str,
        payload: &'c DeliveryPayload,
    ) -> Delivering<'c, DeliveryReceipt> {
        Box::pin(self.start(agent_id, payload))
    }

    fn wake<'c>(&'c self, agent_id: &'c str, opts: &'c WakeOpts) -> Delivering<'c, WakeReceipt> {
        Box::pin(deliver_instead(self, agent_id, opts))
    }

    fn health_check(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        let mut agents = self.settings.agents.values();
        let found = agents.all(|agent| subprocess::program(&agent.argv, &self.env).find().is_ok());
        Box::pin(async move { found })
    }
}
