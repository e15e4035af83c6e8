//! Builds agents from the settings.
//!
//! Building starts and dials nothing. Keys are read from the variable or file that the settings name, and go nowhere else:
//! those variables are withheld from every child process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use zeroize::Zeroizing;

use super::parts::agents::AgentSlot;
use super::transport::USER_AGENT;
use crate::agent::child::BaseEnv;
use crate::agent::guard::{BreakerSettings, Guards, TimeLimits, WorkdirCheck};
use crate::agent::{AcpAgent, Agent, CommandAgent, EchoAgent, HermesAgent, NoopAgent, OpenAiAgent};
use crate::config::env::{DISCORD_BOT_TOKEN, PARENT_STATE_DIR, TELEGRAM_BOT_TOKEN};
use crate::config::secret::{self, SecretError};
use crate::config::{AgentEntry, Backend, Settings};
use crate::net::http::HttpEgress;
use crate::net::proxy::ProxyRules;
use crate::net::tls::Tls;

/// Where files of workers are kept until they are sent, below the state directory.
const WORKER_FILES: &str = "from-workers";

/// What agents are built with.
pub struct AgentEnvironment<'e> {
    /// One variable of the environment.
    pub env: &'e dyn Fn(&str) -> Option<String>,
    /// What child processes inherit.
    pub base: BaseEnv,
    /// The certificates that they trust.
    pub tls: Tls,
    /// The proxies that they go through.
    pub proxies: ProxyRules,
}

/// Why an agent cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum AgentBuildError {
    /// Its settings cannot be used.
    #[error("agent `{name}`: {reason}")]
    Settings {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Its key cannot be read.
    #[error("agent `{name}`: {source}")]
    Key {
        /// Its name.
        name: String,
        /// Why not.
        source: KeyError,
    },
}

/// Why a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The variable that holds it is not set.
    #[error("the variable {0} is not set; set it to the key, or name a file with `api_key_file`")]
    NotSet(String),
    /// The file that holds it cannot be used.
    #[error(transparent)]
    File(#[from] SecretError),
}

/// Builds the agents that the settings name, as far as they are wanted. The keys of all are withheld from all.
pub fn build_agents(
    settings: &Settings,
    environment: &AgentEnvironment<'_>,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<(String, AgentSlot)>, AgentBuildError> {
    let state_dir = std::path::absolute(&settings.state_dir).unwrap_or_else(|_| settings.state_dir.clone());
    let base = without_keys(settings, &environment.base).provide(PARENT_STATE_DIR, state_dir.clone());
    let base = Arc::new(base);
    let egress = HttpEgress {
        tls: environment.tls.clone(),
        proxies: environment.proxies.clone(),
        user_agent: USER_AGENT.to_owned(),
        lease: None,
    };
    let hub = LazyHub::new(settings, &environment.tls);
    let build_slot = |(name, entry): (&String, &AgentEntry)| {
        let key = read_key(name, &entry.backend, environment.env)?;
        let entry = &with_grace(entry, settings);
        let mut workdir = entry.working_dir().cloned();
        let agent = match &entry.backend {
            Backend::Worker(pool) => {
                let files = state_dir.join(WORKER_FILES);
                workdir = Some(files.clone());
                pool_agent(name, pool, &hub, files)
            }
            _ => build_agent(name, entry, &base, &egress, key),
        };
        let agent = agent.map_err(|reason| AgentBuildError::Settings {
            name: name.clone(),
            reason,
        })?;
        let mut agent = guards(entry).wrap(agent);
        if entry.backend.starts_program() {
            agent = Arc::new(WorkdirCheck::new(agent, workdir.clone()));
        }
        let slot = AgentSlot {
            agent,
            permission: entry.permission,
            workdir,
            choosable: entry.choosable,
        };
        Ok((name.clone(), slot))
    };
    settings
        .agents
        .iter()
        .filter(|(name, _)| wanted(name))
        .map(build_slot)
        .collect()
}

/// The agents' keys by the agents' names, as far as they can be read.
pub fn agent_keys<'s>(
    settings: &'s Settings,
    env: &'s dyn Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (&'s str, SecretString)> {
    settings
        .agents
        .iter()
        .filter_map(move |(name, entry)| Some((name.as_str(), read_key(name, &entry.backend, env).ok()??)))
}

/// The environment that children inherit, without the variables that hold agents' keys, the bots' tokens and what targets of
/// notices are called with.
pub fn without_keys(settings: &Settings, base: &BaseEnv) -> BaseEnv {
    let entries = settings.agents.values();
    base.clone()
        .withhold(entries.filter_map(|entry| entry.backend.key_source().0))
        .withhold(settings.notify.auth_variables())
        .withhold(&settings.transcribe.api_key_env)
        .withhold(&settings.speak.api_key_env)
        .withhold([TELEGRAM_BOT_TOKEN, DISCORD_BOT_TOKEN])
        .withhold(
            settings
                .direct
                .discord
                .iter()
                .filter_map(|bot| bot.token_env.as_ref()),
        )
}

/// A backend must have stopped, or been stopped, before the relay drops its turn.
fn with_grace(entry: &AgentEntry, settings: &Settings) -> AgentEntry {
    let grace = settings.sessions.grace_secs;
    let mut entry = entry.clone();
    match &mut entry.backend {
        Backend::Acp(acp) => acp.cancel_grace_secs = acp.cancel_grace_secs.min(grace),
        Backend::Command(command) => command.kill_grace_secs = command.kill_grace_secs.min(grace),
        Backend::Hermes(hermes) => hermes.stop_grace_secs = hermes.stop_grace_secs.min(grace),
        Backend::Echo | Backend::Noop | Backend::OpenAi(_) | Backend::Worker(_) => {}
    }
    entry
}

fn build_agent(
    name: &str,
    entry: &AgentEntry,
    base: &Arc<BaseEnv>,
    egress: &HttpEgress,
    key: Option<SecretString>,
) -> Result<Arc<dyn Agent>, String> {
    fn reason(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let agent: Arc<dyn Agent> = match &entry.backend {
        Backend::Echo => Arc::new(EchoAgent),
        Backend::Noop => Arc::new(NoopAgent),
        Backend::Command(settings) => {
            CommandAgent::guarded(name, (**settings).clone(), Arc::clone(base)).map_err(reason)?
        }
        Backend::Acp(settings) => Arc::new(AcpAgent::new(name, (**settings).clone(), base).map_err(reason)?),
        Backend::OpenAi(settings) => {
            Arc::new(OpenAiAgent::new((**settings).clone(), key, egress).map_err(reason)?)
        }
        Backend::Worker(_) => return Err("a worker runs no turns of a pool".to_owned()),
        Backend::Hermes(settings) => {
            Arc::new(HermesAgent::new((**settings).clone(), key, egress).map_err(reason)?)
        }
    };
    Ok(agent)
}

/// The agent of a pool. All pools share one connection.
#[cfg(feature = "nats")]
#[expect(clippy::unnecessary_wraps, reason = "a build without NATS has an error here")]
fn pool_agent(
    name: &str,
    pool: &crate::agent::PoolSettings,
    hub: &LazyHub<'_>,
    files: PathBuf,
) -> Result<Arc<dyn Agent>, String> {
    let agent = crate::agent::WorkerAgent::new(name, pool.clone(), hub.get(), files);
    Ok(Arc::new(agent))
}

#[cfg(not(feature = "nats"))]
fn pool_agent(
    _name: &str,
    _pool: &crate::agent::PoolSettings,
    _hub: &LazyHub<'_>,
    _files: PathBuf,
) -> Result<Arc<dyn Agent>, String> {
    Err(
        "this program was built without `nats`; build it with `cargo build --profile dist --features nats`"
            .to_owned(),
    )
}

/// The relay's connection to its workers, once a pool needs it.
struct LazyHub<'a> {
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "only pools use it"))]
    settings: &'a Settings,
    #[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "only pools use it"))]
    tls: &'a Tls,
    #[cfg(feature = "nats")]
    hub: std::cell::OnceCell<Arc<crate::agent::WorkerHub>>,
}

impl<'a> LazyHub<'a> {
    fn new(settings: &'a Settings, tls: &'a Tls) -> Self {
        Self {
            settings,
            tls,
            #[cfg(feature = "nats")]
            hub: std::cell::OnceCell::new(),
        }
    }

    #[cfg(feature = "nats")]
    fn get(&self) -> Arc<crate::agent::WorkerHub> {
        let new = || {
            let nats = &self.settings.nats;
            crate::agent::WorkerHub::new(nats_settings(self.settings), self.tls.clone(), &nats.prefix)
        };
        Arc::clone(self.hub.get_or_init(new))
    }
}

/// How to reach the NATS server.
#[cfg(feature = "nats")]
pub fn nats_settings(settings: &Settings) -> crate::net::nats::NatsSettings {
    let nats = &settings.nats;
    crate::net::nats::NatsSettings {
        urls: nats.url.0.clone(),
        token: nats.token.clone(),
        credentials: nats.credentials.clone(),
        nkey: nats.nkey.clone(),
    }
}

/// What stands around an agent beside its own limits. One that cannot be reached rests after a few failures.
fn guards(entry: &AgentEntry) -> Guards {
    // A pool has waiting turns of its own.
    let remote = !matches!(entry.backend, Backend::Echo | Backend::Noop | Backend::Worker(_));
    Guards {
        breaker: remote.then(BreakerSettings::default),
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

fn read_key(
    name: &str,
    backend: &Backend,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, AgentBuildError> {
    find_key(backend.key_source(), env).map_err(|source| AgentBuildError::Key {
        name: name.to_owned(),
        source,
    })
}

/// The key in the file, else in the variable that the settings name.
pub fn find_key(
    (variable, file): (Option<&str>, Option<&PathBuf>),
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>, KeyError> {
    if let Some(file) = file {
        return Ok(Some(secret::read(file)?));
    }
    let Some(variable) = variable else { return Ok(None) };
    match env(variable).filter(|value| !value.trim().is_empty()) {
        Some(value) => Ok(Some(SecretString::from(Zeroizing::new(value).trim()))),
        None => Err(KeyError::NotSet(variable.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::child::EnvPolicy;

    #[test]
    fn no_child_inherits_what_a_key_or_a_token_is_read_from() {
        let mut settings = Settings::embedded("/nowhere");
        settings.speak.api_key_env = Some("VOICE".to_owned());
        settings.direct.discord.get_or_insert_default().token_env = Some("MY_BOT".to_owned());
        let names = [TELEGRAM_BOT_TOKEN, DISCORD_BOT_TOKEN, "MY_BOT", "VOICE", "PLAIN"];
        let base = BaseEnv::new(names.map(|name| (name.into(), "x".into())));
        let policy = EnvPolicy {
            pass: vec!["*".to_owned()],
            ..EnvPolicy::default()
        };
        let inherited = policy.apply(&without_keys(&settings, &base));
        assert_eq!(inherited.keys().collect::<Vec<_>>(), ["PLAIN"]);
    }
}
