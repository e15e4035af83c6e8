//! Agents from settings: builds every backend that is named, with its key, its guards and its surroundings.
//!
//! Nothing is started or dialled. Keys are read from the variable or file that the settings name, and go nowhere else:
//! those variables are withheld from every child process.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::crew::Member;
use super::live::USER_AGENT;
use crate::agent::child::BaseEnv;
use crate::agent::guard::{BreakerSettings, Guards, TimeLimits};
use crate::agent::{AcpAgent, Agent, CommandAgent, EchoAgent, HermesAgent, NoopAgent, OpenAiAgent};
use crate::config::secret::{self, SecretError};
use crate::config::{AgentEntry, Backend, Settings};
use crate::net::agent_http::HttpEgress;
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;

/// What agents find around them.
pub struct Surroundings<'e> {
    /// One variable of the environment.
    pub env: &'e dyn Fn(&str) -> Option<String>,
    /// What child processes inherit from.
    pub base: BaseEnv,
    /// Whom they trust.
    pub tls: Tls,
    /// How they get out.
    pub proxies: ProxyRules,
}

/// Why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum HireError {
    /// Its settings cannot be used.
    #[error("agent `{name}`: {reason}")]
    Settings {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The variable that holds its key is not set.
    #[error(
        "agent `{name}`: the variable {variable} is not set; set it to the key, or name a file with `api_key_file`"
    )]
    NoKey {
        /// Its name.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The file that holds its key cannot be used.
    #[error("agent `{name}`: {source}")]
    Key {
        /// Its name.
        name: String,
        /// Why not.
        source: SecretError,
    },
}

/// Builds every agent that the settings name.
pub fn hire(settings: &Settings, around: &Surroundings<'_>) -> Result<Vec<(String, Member)>, HireError> {
    hire_those(settings, around, |_| true)
}

/// The keys that agents are given, by the agents' names, as far as they can be read.
pub fn keys<'s>(
    settings: &'s Settings,
    env: &'s dyn Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (&'s str, SecretString)> {
    settings
        .agents
        .iter()
        .filter_map(move |(name, entry)| Some((name.as_str(), key(name, &entry.backend, env).ok()??)))
}

/// The environment that children inherit from, without the variables that hold agents' keys.
pub fn without_keys(settings: &Settings, base: &BaseEnv) -> BaseEnv {
    let entries = settings.agents.values();
    base.clone()
        .withhold(entries.filter_map(|entry| entry.backend.key_source().0))
}

/// Builds those of the named agents that are wanted; the keys of all are withheld from all.
pub fn hire_those(
    settings: &Settings,
    around: &Surroundings<'_>,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Member)>, HireError> {
    let base = Arc::new(without_keys(settings, &around.base));
    let egress = HttpEgress {
        tls: around.tls.clone(),
        proxies: around.proxies.clone(),
        user_agent: USER_AGENT.to_owned(),
    };
    settings
        .agents
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(|(name, entry)| {
            let key = key(name, &entry.backend, around.env)?;
            let agent = build(name, &patient(entry, settings), &base, &egress, key).map_err(|reason| {
                HireError::Settings {
                    name: name.clone(),
                    reason,
                }
            })?;
            let member = Member {
                agent: guards(entry).around(agent),
                permission: entry.permission,
                workdir: entry.works_in().cloned(),
            };
            Ok((name.clone(), member))
        })
        .collect()
}

/// A backend must have stopped, or been stopped, before the relay gives its turn up.
fn patient(entry: &AgentEntry, settings: &Settings) -> AgentEntry {
    let grace = settings.sessions.grace_secs;
    let mut entry = entry.clone();
    match &mut entry.backend {
        Backend::Acp(acp) => acp.cancel_grace_secs = acp.cancel_grace_secs.min(grace),
        Backend::Command(command) => command.kill_grace_secs = command.kill_grace_secs.min(grace),
        Backend::Hermes(hermes) => hermes.stop_grace_secs = hermes.stop_grace_secs.min(grace),
        Backend::Echo | Backend::Noop | Backend::OpenAi(_) => {}
    }
    entry
}

fn build(
    name: &str,
    entry: &AgentEntry,
    base: &Arc<BaseEnv>,
    egress: &HttpEgress,
    key: Option<SecretString>,
) -> Result<Arc<dyn Agent>, String> {
    let agent: Arc<dyn Agent> = match &entry.backend {
        Backend::Echo => Arc::new(EchoAgent),
        Backend::Noop => Arc::new(NoopAgent),
        Backend::Command(settings) => {
            CommandAgent::guarded(name, (**settings).clone(), Arc::clone(base)).map_err(said)?
        }
        Backend::Acp(settings) => Arc::new(AcpAgent::new(name, (**settings).clone(), base).map_err(said)?),
        Backend::OpenAi(settings) => {
            Arc::new(OpenAiAgent::new((**settings).clone(), key, egress).map_err(said)?)
        }
        Backend::Hermes(settings) => {
            Arc::new(HermesAgent::new((**settings).clone(), key, egress).map_err(said)?)
        }
    };
    Ok(agent)
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What stands around an agent beside its own limits. One that cannot be reached rests after a few failures.
fn guards(entry: &AgentEntry) -> Guards {
    let reached = !matches!(entry.backend, Backend::Echo | Backend::Noop);
    Guards {
        breaker: reached.then(BreakerSettings::default),
        parallel: entry.max_turns_at_once,
        time: entry
            .turn_timeout_secs
            .filter(|secs| *secs > 0)
            .map(|secs| TimeLimits {
                wall: Some(Duration::from_secs(secs)),
                ..TimeLimits::default()
            }),
    }
}

fn key(
    name: &str,
    backend: &Backend,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, HireError> {
    let (variable, file) = backend.key_source();
    if let Some(file) = file {
        let read = secret::read(file).map_err(|source| HireError::Key {
            name: name.to_owned(),
            source,
        })?;
        return Ok(Some(read));
    }
    let Some(variable) = variable else { return Ok(None) };
    match env(variable).filter(|value| !value.trim().is_empty()) {
        Some(value) => Ok(Some(SecretString::from(Zeroizing::new(value).trim()))),
        None => Err(HireError::NoKey {
            name: name.to_owned(),
            variable: variable.to_owned(),
        }),
    }
}
