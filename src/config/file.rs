//! The settings file: its structure, and its error messages.
//!
//! Parsing is strict. An unknown key, a wrong type or a value out of range is an error with the file, the line and the
//! nearest valid choice. A literal secret is refused.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::access::AccessSettings;
use crate::adapter::RateLimitSettings;
use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::agent::Route;
use crate::net::media::MediaSettings;

use super::agents::{AgentChoice, AgentEntries};
use super::connectors::ConnectorEntries;
use super::cron::CronConfig;
use super::direct::DirectFile;
use super::sections::LogConfig;
use super::sections::ServeConfig;
use super::sections::{
    AuditConfig, DiscordConfig, JournalConfig, LinkConfig, PolicyOverride, SessionsConfig, ShutdownConfig,
    SlackConfig, SleepConfig,
};
use super::settings::{BotIdentity, TlsConfig, misspelt_platform};
use super::skills::SkillsConfig;
use super::telemetry::TelemetryFile;
use super::yaml::{self, YamlError, YamlProblem};
use super::{ConfigError, validate};

/// The system-wide settings file, used last.
pub const SYSTEM_PATH: &str = "/etc/hermes-relay/config.yaml";

/// The structure of the file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileTree {
    /// The connector and this gateway's identity.
    #[serde(deserialize_with = "section")]
    pub connector: ConnectorFile,
    /// Platforms that the relay talks to itself.
    #[serde(deserialize_with = "section")]
    pub direct: DirectFile,
    /// TLS certificates.
    #[serde(deserialize_with = "section")]
    pub tls: TlsConfig,
    /// Identity provider.
    #[serde(deserialize_with = "section")]
    pub idp: IdpFile,
    /// The connection to the connector.
    #[serde(deserialize_with = "section")]
    pub link: LinkConfig,
    /// Sessions.
    #[serde(deserialize_with = "section")]
    pub sessions: SessionsConfig,
    /// The durable inbox and outbox.
    #[serde(deserialize_with = "section")]
    pub journal: JournalConfig,
    /// Slack.
    #[serde(deserialize_with = "section")]
    pub slack: SlackConfig,
    /// Discord.
    #[serde(deserialize_with = "section")]
    pub discord: DiscordConfig,
    /// Rate limit per chat.
    #[serde(deserialize_with = "section")]
    pub budget: RateLimitSettings,
    /// Streaming of replies, and indicators.
    #[serde(deserialize_with = "section")]
    pub streaming: StreamSettings,
    /// Who may drive an agent.
    #[serde(deserialize_with = "section")]
    pub access: AccessSettings,
    /// The audit log.
    #[serde(deserialize_with = "section")]
    pub audit: AuditConfig,
    /// Approvals.
    #[serde(deserialize_with = "section")]
    pub prompts: PromptSettings,
    /// Attachments.
    #[serde(deserialize_with = "section")]
    pub media: MediaSettings,
    /// Relevance policy per platform.
    #[serde(deserialize_with = "section")]
    pub policy: BTreeMap<String, PolicyOverride>,
    /// Agents by name.
    #[serde(deserialize_with = "section")]
    pub agents: AgentEntries,
    /// Default agent.
    #[serde(deserialize_with = "section")]
    pub agent: AgentChoice,
    /// Routes; the first match wins.
    #[serde(deserialize_with = "section")]
    pub routes: Vec<Route>,
    /// Ways to hand something to an agent, by name.
    #[serde(deserialize_with = "section")]
    pub connectors: ConnectorEntries,
    /// Scheduled jobs.
    #[serde(deserialize_with = "section")]
    pub cron: CronConfig,
    /// Skills.
    #[serde(deserialize_with = "section")]
    pub skills: SkillsConfig,
    /// Control and monitoring.
    #[serde(deserialize_with = "section")]
    pub serve: ServeConfig,
    /// Shutdown.
    #[serde(deserialize_with = "section")]
    pub shutdown: ShutdownConfig,
    /// Scale to zero.
    #[serde(deserialize_with = "section")]
    pub sleep: SleepConfig,
    /// Logging.
    #[serde(deserialize_with = "section")]
    pub log: LogConfig,
    /// Traces.
    #[serde(deserialize_with = "section")]
    pub telemetry: TelemetryFile,
    /// Time zone of schedules, by Hermes' name for it; `cron.timezone` wins.
    pub timezone: Option<String>,
    /// Directory of the journal.
    pub state_dir: Option<PathBuf>,
}

/// The `connector` section; resolved to [`super::settings::ConnectorConfig`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectorFile {
    /// Connector URL.
    pub url: Option<String>,
    /// Gateway id.
    pub gateway_id: Option<String>,
    /// File with the gateway's secret.
    pub secret_file: Option<PathBuf>,
    /// Allow `ws://` to another host.
    pub allow_plaintext: bool,
    /// Identities on the platforms.
    #[serde(deserialize_with = "section")]
    pub identities: Vec<BotIdentity>,
    /// Route keys.
    #[serde(deserialize_with = "section")]
    pub route_keys: Vec<String>,
    /// Id of this instance.
    pub instance_id: Option<String>,
    /// URL that the connector calls to wake the relay.
    pub wake_url: Option<String>,
    /// URL that the relay calls to be suspended.
    pub sleep_url: Option<String>,
    /// Display name.
    pub display_name: Option<String>,
    /// Inbound URL of this gateway.
    pub endpoint: Option<String>,
}

/// The `idp` section; resolved to [`super::settings::IdpConfig`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdpFile {
    /// Token endpoint.
    pub token_url: Option<String>,
    /// Client id.
    pub client_id: Option<String>,
    /// File with the client secret.
    pub client_secret_file: Option<PathBuf>,
    /// Requested scope.
    pub scope: Option<String>,
}

/// A section without any value is null in YAML; it becomes the default.
pub(super) fn section<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The parsed settings file.
#[derive(Debug, Clone)]
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    pub(super) tree: FileTree,
    /// The same as plain values, to distinguish written values from defaults.
    pub(super) raw: Value,
}

impl OwnFile {
    /// Reads the file at `path`, which must exist.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let wrong = |error: YamlError| explain(path, &text, &error);
        let tree = yaml::strict::<FileTree>(&text).map_err(wrong)?;
        let raw = yaml::lenient(&text).map_err(wrong)?;
        if let Some(violation) = validate::violation(&tree) {
            return Err(ConfigError::Invalid {
                path: path.to_owned(),
                line: line_of(&text, violation.key),
                what: format!("`{}` {}", violation.key, violation.rule),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            tree,
            raw,
        })
    }

    /// Whether the file sets a dotted key.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.raw
            .pointer(&format!("/{}", key.replace('.', "/")))
            .is_some_and(|value| !value.is_null())
    }

    /// Whether the file has a dotted key, with or without a value.
    pub(super) fn names(&self, key: &str) -> bool {
        let pointer = format!("/{}", key.replace('.', "/"));
        self.raw.pointer(&pointer).is_some()
    }

    /// A path relative to the file's directory.
    pub(super) fn resolve_path(&self, path: &Path, user_home: Option<&Path>) -> PathBuf {
        if let (Ok(below), Some(home)) = (path.strip_prefix("~"), user_home) {
            return home.join(below);
        }
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Checks the file at `path`; returns warnings.
pub fn check_file(path: &Path) -> Result<Vec<String>, ConfigError> {
    let read = OwnFile::read(path)?;
    match validate::missing_name(&read.tree) {
        None => {
            let identities = read.tree.connector.identities.iter();
            let misspelt = identities.filter_map(|identity| misspelt_platform(identity.platform.trim()));
            Ok(misspelt.chain(read.tree.telemetry.warning()).collect())
        }
        Some((key, what)) => Err(ConfigError::Invalid {
            path: path.to_owned(),
            line: line_of(&text_of(path)?, key),
            what: format!("`{key}`: {what}"),
        }),
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => ConfigError::Missing {
            path: path.to_owned(),
        },
        _ => unreadable(source),
    })?;
    let mut bytes = Vec::new();
    file.take(yaml::MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| ConfigError::Invalid {
        path: path.to_owned(),
        line: None,
        what: "the file is not UTF-8 text".to_owned(),
    })
}

fn explain(path: &Path, text: &str, error: &YamlError) -> ConfigError {
    let what = match &error.problem {
        YamlProblem::UnknownKey { key, known } => unknown_key(key, known),
        YamlProblem::UnknownChoice { value, known } => match nearest(value, known.iter().copied()) {
            Some(near) => format!("{}; did you mean `{near}`?", error.problem),
            None => error.problem.to_string(),
        },
        YamlProblem::Malformed(what) => match error.line.and_then(|line| key_on(text, line)) {
            Some(key) => format!("`{key}`: {what}"),
            None => what.clone(),
        },
        other => other.to_string(),
    };
    let line = error.line.or_else(|| match &error.problem {
        YamlProblem::UnknownKey { key, .. } => line_of(text, key),
        _ => None,
    });
    ConfigError::Invalid {
        path: path.to_owned(),
        line,
        what,
    }
}

/// The known key that a line starts with.
fn key_on(text: &str, line: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let word = line.split(':').next()?.trim().trim_start_matches("- ");
    known_keys()
        .into_iter()
        .find(|key| key.rsplit('.').next() == Some(word))
        .map(|_| word.to_owned())
}

fn unknown_key(key: &str, known: &[&'static str]) -> String {
    match key {
        "secret" | "relay_secret" => {
            return format!(
                "`{key}`: this file must not contain secrets; put it in a separate file and name that \
                 with `secret_file`, or set GATEWAY_RELAY_SECRET"
            );
        }
        "client_secret" => {
            return "`client_secret`: this file must not contain secrets; put it in a separate file and \
                    name that with `client_secret_file`, or set GATEWAY_RELAY_IDP_CLIENT_SECRET"
                .to_owned();
        }
        "token" | "bot_token" if known.contains(&"token_file") => {
            return format!(
                "`{key}`: this file must not contain secrets; put it in a separate file and name that with `token_file`, or \
                 set TELEGRAM_BOT_TOKEN"
            );
        }
        _ => {}
    }
    if let Some(near) = nearest(key, known.iter().copied()) {
        return format!("unknown key `{key}`; did you mean `{near}`?");
    }
    let keys = known_keys();
    if let Some(full) = keys.iter().find(|full| full.rsplit('.').next() == Some(key)) {
        return format!("unknown key `{key}` here; use `{full}`");
    }
    format!("unknown key `{key}`; valid keys: {}", known.join(", "))
}

/// The candidate that `word` is most likely a typo of.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// All dotted keys of the file, sections included.
pub fn known_keys() -> Vec<String> {
    let tree = serde_json::to_value(FileTree::default()).unwrap_or_default();
    let mut keys = Vec::new();
    walk(&tree, "", &mut |key, _| keys.push(key.to_owned()));
    keys
}

/// Calls `visit` with every dotted key of a tree of mappings.
pub(super) fn walk(value: &Value, prefix: &str, visit: &mut impl FnMut(&str, &Value)) {
    let Value::Object(map) = value else { return };
    for (name, inner) in map {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        visit(&key, inner);
        walk(inner, &key, visit);
    }
}

/// The line of a dotted key, if the file has one key per line.
fn line_of(text: &str, key: &str) -> Option<u64> {
    let mut found = None;
    let mut lines = (1_u64..).zip(text.lines());
    for part in key.split('.') {
        found = lines.find(|(_, line)| {
            let rest = line.trim_start().strip_prefix(part);
            rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
        });
        found?;
    }
    found.map(|(number, _)| number)
}

#[cfg(test)]
mod tests;
