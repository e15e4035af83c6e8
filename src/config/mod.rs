//! What was written, and what it means: flags, environment, files, and where each value came from.
//!
//! [`load`] asks every layer once and gives typed [`Settings`]. The order is flags, process environment,
//! our own file, Hermes' `.env`, Hermes' `config.yaml`, default. It never reads the process environment
//! itself, never writes a setting back, and never shows a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

mod agents;
mod credentials;
mod describe;
pub mod dotenv;
pub mod dotenv_remove;
pub mod dotenv_write;
pub mod env;
pub mod file;
mod hermes;
mod layers;
mod limits;
mod log;
mod named;
mod reference;
mod resolve;
pub mod secret;
mod serving;
pub mod settings;
mod sleep;
#[cfg(test)]
mod stage;
mod telemetry;
pub mod tuning;
mod whatsapp;
pub mod yaml;

pub use agents::{AgentChoice, AgentEntries, AgentEntry, Backend, KINDS};
pub use describe::Row;
pub use file::check_file;
pub use log::{Log, LogFormat, LogLevel};
pub use reference::reference;
pub use resolve::load;
pub use serving::Serve;
pub use settings::{Connector, Identity, Idp, Settings, Tls};
pub use telemetry::Telemetry;
pub use tuning::{
    BusyMode, Durability, Journal, Link, OnRevoked, PolicyOverride, Sessions, Shutdown, Slack, Sleep,
    SleepAction,
};
pub use whatsapp::AliasFiles;

/// Who answers when nothing says otherwise.
pub const DEFAULT_AGENT: &str = "echo";

/// What was typed on the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Our own file.
    pub config: Option<PathBuf>,
    /// Where the journal lives.
    pub state_dir: Option<PathBuf>,
    /// The connector's URL.
    pub url: Option<String>,
    /// Who answers.
    pub agent: Option<String>,
    /// How much is logged.
    pub log_level: Option<LogLevel>,
    /// How a log line looks.
    pub log_format: Option<LogFormat>,
}

/// Everything that settings can come from, apart from files.
pub struct Sources<'a> {
    /// The command line.
    pub flags: Flags,
    /// The process environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

/// Settings, and what is known about them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Where each came from.
    pub origins: Origins,
    /// What someone should look at; no secret is in it.
    pub warnings: Vec<String>,
    /// What Hermes' `config.yaml` says about when messages concern us, in the mappings that it stands in; an empty mapping
    /// where there is none. Nothing else of it is kept.
    pub hermes_yaml: Value,
    /// Our own file, where there is one.
    pub own_file: Option<PathBuf>,
    /// The files that credentials are read from, or would be: Hermes' `.env`, and the secret's own file.
    pub credential_files: Vec<PathBuf>,
    allow_bots: BTreeMap<String, String>,
}

impl Loaded {
    /// What `<PLATFORM>_ALLOW_BOTS` says for an identity's platform: our own file's word, else the process
    /// environment, else Hermes' `.env`.
    pub fn allow_bots(&self, platform: &str) -> Option<String> {
        let own = self
            .settings
            .policy
            .get(platform)
            .and_then(|policy| policy.allow_other_bots);
        match own {
            Some(true) => Some("all".to_owned()),
            Some(false) => Some("none".to_owned()),
            None => self.allow_bots.get(platform).cloned(),
        }
    }

    /// Hermes' `config.yaml` with what our own file says about `platform` laid over the block that counts.
    pub fn policy_yaml(&self, platform: &str) -> Value {
        let mut yaml = self.hermes_yaml.clone();
        let Some(own) = self.settings.policy.get(platform) else {
            return yaml;
        };
        let places = [
            yaml.get(platform),
            yaml.pointer(&format!("/gateway/platforms/{platform}")),
            yaml.pointer(&format!("/platforms/{platform}")),
        ];
        let mut block = places
            .into_iter()
            .flatten()
            .find_map(Value::as_object)
            .cloned()
            .unwrap_or_default();
        if let Some(required) = own.require_mention {
            block.insert("require_mention".to_owned(), required.into());
        }
        if let Some(channels) = &own.free_response_channels {
            block.insert("free_response_channels".to_owned(), channels.clone().into());
        }
        if let Value::Object(top) = &mut yaml {
            top.insert(platform.to_owned(), Value::Object(block));
        }
        yaml
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// The process environment, by this variable.
    Env(String),
    /// Our own file.
    OwnFile(PathBuf),
    /// Hermes' `.env`.
    HermesEnv(PathBuf),
    /// Hermes' `config.yaml`.
    HermesConfig(PathBuf),
    /// A credential that the service manager handed over.
    Credential(PathBuf),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::OwnFile(path) | Self::HermesEnv(path) | Self::HermesConfig(path) => path.display().fmt(f),
            Self::Credential(path) => write!(f, "credential {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Where each value came from, by dotted key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// The origin of a dotted key.
    pub fn of(&self, key: &str) -> &Origin {
        self.0.get(key).unwrap_or(&Origin::Default)
    }

    fn set(&mut self, key: &str, origin: Origin) {
        self.0.insert(key.to_owned(), origin);
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that was named is not there.
    #[error("{path}: there is no such file; correct the path, or leave it out to use the default places", path = .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file is there and cannot be read.
    #[error("{path}: cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Something in our own file is wrong.
    #[error("{path}{at}: {what}", path = .path.display(), at = .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, where it is known.
        line: Option<u64>,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A secret file was refused.
    #[error("{0}")]
    Secret(#[from] secret::SecretError),
    /// No layer says where the journal goes.
    #[error("no place for the journal: set HERMES_RELAY_STATE_DIR, pass --state-dir, or set HERMES_HOME")]
    NoStateDir,
}
