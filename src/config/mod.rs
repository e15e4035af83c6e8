//! The settings: flags, environment and files, and the origin of each value.
//!
//! [`load`] reads every layer and returns typed [`Settings`]. The order is flags, process environment, our own file,
//! Hermes' `.env`, Hermes' `config.yaml`, default. The process environment comes in as a closure; secrets are never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde_json::Value;

mod agent_options;
mod agents;
mod cron;
mod describe;
mod direct;
pub mod dotenv;
pub mod dotenv_edit;
pub mod env;
pub mod file;
mod hermes;
mod layers;
mod machine_zone;
mod nats;
mod notify;
mod resolve;
pub mod secret;
mod sections;
pub mod settings;
mod shown_argv;
mod skills;
mod telemetry;
#[cfg(test)]
mod test_home;
mod validate;
mod voice;
mod whatsapp;
pub mod yaml;

pub use agents::{AgentChoice, AgentEntries, AgentEntry, Backend, KINDS};
pub use cron::{ChronosConfig, CronConfig, CronProvider};
pub use describe::{SettingRow, reference};
pub use direct::{DirectConfig, DiscordBotConfig, TelegramConfig, check_bot_token, check_discord_token};
pub use file::{check_file, nearest};
pub use layers::settings_file;
pub use nats::{ClusterConfig, NatsConfig, ServerAbsence, ServerList, WorkerConfig};
pub use notify::NotifyConfig;
pub use resolve::{load, load_place};
pub use sections::{
    AuditConfig, BusyMode, DiscordConfig, Durability, JournalConfig, LinkConfig, LogConfig, LogFormat,
    LogLevel, OnRevoked, PolicyOverride, ReceiverConfig, ResendUnknown, ServeConfig, SessionsConfig,
    ShutdownConfig, SleepAction, SleepConfig, UnknownChoice,
};
pub use settings::{BotIdentity, ConnectorConfig, IdpConfig, Settings, TlsConfig};
pub use skills::{SkillStoreKind, SkillsConfig};
pub use telemetry::TelemetryConfig;
pub use voice::{SpeakConfig, SpeechSource, TranscribeConfig};
pub use whatsapp::AliasFiles;

pub use crate::direct::telegram::RichMessages;

/// The default agent.
pub const DEFAULT_AGENT: &str = "echo";

/// Options of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Settings file.
    pub config: Option<PathBuf>,
    /// Directory of the journal.
    pub state_dir: Option<PathBuf>,
    /// Connector URL.
    pub url: Option<String>,
    /// Default agent.
    pub agent: Option<String>,
    /// Talk to Telegram without a connector.
    pub telegram: bool,
    /// Talk to Discord without a connector.
    pub discord: bool,
    /// Log level.
    pub log_level: Option<LogLevel>,
    /// Log format.
    pub log_format: Option<LogFormat>,
    /// Whether this looks for a relay that is there already: in an agent's shell, the one that started the agent, unless the
    /// command line names a file or a directory.
    pub finds_relay: bool,
}

impl Flags {
    /// The relay with this settings file and this state directory; see [`Self::finds_relay`].
    pub fn of_relay(config: Option<PathBuf>, state_dir: Option<PathBuf>) -> Self {
        Self {
            config,
            state_dir,
            finds_relay: true,
            ..Self::default()
        }
    }

    /// What the relay that started this process says in this variable, where that relay is looked for.
    fn in_parent(&self, env: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<PathBuf> {
        let is_sought = self.finds_relay && self.config.is_none() && self.state_dir.is_none();
        let value = is_sought.then(|| env(name)).flatten();
        value.filter(|value| !value.is_empty()).map(PathBuf::from)
    }
}

/// The sources of settings, besides files.
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

/// The settings with their origins and warnings.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The settings.
    pub settings: Settings,
    /// The origin of each.
    pub origins: Origins,
    /// Warnings, without secrets.
    pub warnings: Vec<String>,
    /// The relevance policy in Hermes' `config.yaml`; nothing else of it is kept.
    pub hermes_yaml: Value,
    /// The settings file, if there is one.
    pub own_file: Option<PathBuf>,
    /// Files that credentials are or would be read from: Hermes' `.env`, and the secret file.
    pub credential_files: Vec<PathBuf>,
    allow_bots: BTreeMap<String, String>,
}

impl LoadedConfig {
    /// Checks that there is whatever the settings name: agents, presets, projects, addresses, certificates. A start fails without
    /// it.
    pub fn check_names(&self) -> Result<(), ConfigError> {
        let missing = validate::missing_names(&self.settings).into_iter().next();
        match missing.or_else(|| self.settings.tls.unusable_file()) {
            None => Ok(()),
            Some((key, what)) => Err(ConfigError::Invalid {
                path: self.own_file.clone().unwrap_or_default(),
                line: None,
                what: format!("`{key}`: {what}"),
            }),
        }
    }

    /// The value of `<PLATFORM>_ALLOW_BOTS`: from our own file, else the process environment, else Hermes' `.env`.
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

    /// Hermes' `config.yaml` with our own policy of `platform` merged in.
    pub fn policy_yaml(&self, platform: &str) -> Value {
        let mut yaml = self.hermes_yaml.clone();
        let Some(own) = self.settings.policy.get(platform) else {
            return yaml;
        };
        let candidates = [
            yaml.get(platform),
            yaml.pointer(&format!("/gateway/platforms/{platform}")),
            yaml.pointer(&format!("/platforms/{platform}")),
        ];
        let mut block = candidates
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

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The command line.
    Flag,
    /// This variable of the process environment.
    Env(String),
    /// Settings file.
    OwnFile(PathBuf),
    /// Hermes' `.env`.
    HermesEnv(PathBuf),
    /// Hermes' `config.yaml`.
    HermesConfig(PathBuf),
    /// A credential of the service manager.
    Credential(PathBuf),
    /// What this file says about the machine.
    System(PathBuf),
    /// The default.
    Default,
}

impl Origin {
    /// Whether a value from here is used in place of one in Hermes' `.env`.
    pub fn is_before_dotenv(&self) -> bool {
        match self {
            Self::Flag | Self::Env(_) | Self::OwnFile(_) | Self::Credential(_) => true,
            Self::HermesEnv(_) | Self::HermesConfig(_) | Self::System(_) | Self::Default => false,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::OwnFile(path) | Self::HermesEnv(path) | Self::HermesConfig(path) | Self::System(path) => {
                path.display().fmt(f)
            }
            Self::Credential(path) => write!(f, "credential {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The origin of each value, by dotted key.
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

/// Why the settings cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named file does not exist.
    #[error("{path}: there is no such file; correct the path, or omit it to use the default", path = .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{path}: cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The settings file is invalid.
    #[error("{path}{at}: {what}", path = .path.display(), at = .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, if known.
        line: Option<u64>,
        /// The error, with a valid choice.
        what: String,
    },
    /// A connector and a bot of one's own have the same platform.
    #[error(
        "the connector ({url}) and `direct.{platform}` ({origin}) both serve {platform}, and every message would come twice: remove \
         {platform} from GATEWAY_RELAY_PLATFORMS or `connector.identities`, or remove `direct.{platform}`"
    )]
    Exclusive {
        /// Where the URL was set.
        url: Origin,
        /// The platform that both have.
        platform: &'static str,
        /// Where the bot was set.
        origin: Origin,
    },
    /// There are access rules without a mode, and Hermes' variables list who may write.
    #[error(
        "{path}: `access` has no `mode`, and {variable} lists who may write: beside `access` it does not count, so everybody could \
         write. Add the line `  mode: pair` below `access:` to approve people one by one, or `  mode: list` and those people in \
         `access.people`, or `  mode: upstream` if everybody may write whom the connector lets through",
        path = .path.display()
    )]
    NoAccessMode {
        /// The settings file.
        path: PathBuf,
        /// The variable.
        variable: String,
    },
    /// Hermes' `.env` cannot be read, and it may say who may write.
    #[error(
        "{path}: cannot be read ({source}), and it may say who may write: let this user read it, name another directory with \
         HERMES_HOME, or say in the settings file who may write (`access.mode`)",
        path = .path.display()
    )]
    UnreadableRules {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line of Hermes' `.env` about who may write says nothing.
    #[error(
        "{path}:{line}: this line names who may write, and is no `NAME=value`: correct it, or say in the settings file who may \
         write (`access.mode`)",
        path = .path.display()
    )]
    UnreadRule {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A secret file was refused.
    #[error("{0}")]
    Secret(#[from] secret::SecretError),
    /// There is no state directory.
    #[error("no state directory: set HERMES_RELAY_STATE_DIR, pass --state-dir, or set HERMES_HOME")]
    NoStateDir,
}
