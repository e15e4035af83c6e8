//! Our own file: where it is, its shape, and the words for what is wrong with it.
//!
//! Reading is strict. An unknown key, a wrong type or a value out of bounds stops the program with the
//! file, the line and the nearest thing that would be right. A literal secret is refused.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::adapter::RateLimitSettings;
use crate::adapter::prompt::PromptSettings;
use crate::adapter::stream::StreamSettings;
use crate::agent::Route;
use crate::net::media::MediaSettings;

use super::agents::{AgentChoice, AgentEntries};
use super::log::Log;
use super::serving::Serve;
use super::settings::{Identity, Tls};
use super::telemetry::TelemetryFile;
use super::tuning::{Discord, Journal, Link, PolicyOverride, Sessions, Shutdown, Slack, Sleep};
use super::yaml::{self, Problem, YamlError};
use super::{ConfigError, limits, named};

/// Where the file is looked for last.
pub const SYSTEM_PATH: &str = "/etc/hermes-relay/config.yaml";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileTree {
    /// The other end, and who we are to it.
    #[serde(deserialize_with = "section")]
    pub connector: ConnectorFile,
    /// Whom we trust, and what we show.
    #[serde(deserialize_with = "section")]
    pub tls: Tls,
    /// Where an identity token comes from.
    #[serde(deserialize_with = "section")]
    pub idp: IdpFile,
    /// The connection.
    #[serde(deserialize_with = "section")]
    pub link: Link,
    /// Conversations.
    #[serde(deserialize_with = "section")]
    pub sessions: Sessions,
    /// The durable inbox and outbox.
    #[serde(deserialize_with = "section")]
    pub journal: Journal,
    /// What is particular to Slack.
    #[serde(deserialize_with = "section")]
    pub slack: Slack,
    /// What is particular to Discord.
    #[serde(deserialize_with = "section")]
    pub discord: Discord,
    /// How fast each chat may be spoken to.
    #[serde(deserialize_with = "section")]
    pub budget: RateLimitSettings,
    /// How answers grow in the chat, and what shows that one is coming.
    #[serde(deserialize_with = "section")]
    pub streaming: StreamSettings,
    /// Questions to people: how long they wait, and who may answer.
    #[serde(deserialize_with = "section")]
    pub prompts: PromptSettings,
    /// How attachments come in and go out.
    #[serde(deserialize_with = "section")]
    pub media: MediaSettings,
    /// Relevance by platform.
    #[serde(deserialize_with = "section")]
    pub policy: BTreeMap<String, PolicyOverride>,
    /// The agents, by name.
    #[serde(deserialize_with = "section")]
    pub agents: AgentEntries,
    /// Who answers.
    pub agent: Option<AgentChoice>,
    /// Which agent answers which message; the first that fits.
    #[serde(deserialize_with = "section")]
    pub routes: Vec<Route>,
    /// Who may ask a running relay.
    #[serde(deserialize_with = "section")]
    pub serve: Serve,
    /// The end of the process.
    #[serde(deserialize_with = "section")]
    pub shutdown: Shutdown,
    /// Scale to zero.
    #[serde(deserialize_with = "section")]
    pub sleep: Sleep,
    /// Logging.
    #[serde(deserialize_with = "section")]
    pub log: Log,
    /// Traces.
    #[serde(deserialize_with = "section")]
    pub telemetry: TelemetryFile,
    /// Where the journal lives.
    pub state_dir: Option<PathBuf>,
}

impl Default for FileTree {
    fn default() -> Self {
        Self {
            connector: ConnectorFile::default(),
            tls: Tls::default(),
            idp: IdpFile::default(),
            link: Link::default(),
            sessions: Sessions::default(),
            journal: Journal::default(),
            slack: Slack::default(),
            discord: Discord::default(),
            budget: RateLimitSettings::default(),
            streaming: StreamSettings::default(),
            prompts: PromptSettings::default(),
            media: MediaSettings::default(),
            policy: BTreeMap::new(),
            agents: AgentEntries::new(),
            agent: Some(AgentChoice::Named(super::DEFAULT_AGENT.to_owned())),
            routes: Vec::new(),
            serve: Serve::default(),
            shutdown: Shutdown::default(),
            sleep: Sleep::default(),
            log: Log::default(),
            telemetry: TelemetryFile::default(),
            state_dir: None,
        }
    }
}

/// The `connector` section; what it means is [`super::settings::Connector`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectorFile {
    /// The connector's URL.
    pub url: Option<String>,
    /// The gateway's id.
    pub gateway_id: Option<String>,
    /// The file that holds the gateway's secret.
    pub secret_file: Option<PathBuf>,
    /// Dial `ws://` to another host.
    pub allow_plaintext: bool,
    /// Who we are on the platforms.
    #[serde(deserialize_with = "section")]
    pub identities: Vec<Identity>,
    /// What the connector routes to us by.
    #[serde(deserialize_with = "section")]
    pub route_keys: Vec<String>,
    /// This instance among several.
    pub instance_id: Option<String>,
    /// Where the connector wakes us.
    pub wake_url: Option<String>,
    /// Where we ask to be put to sleep.
    pub sleep_url: Option<String>,
    /// The name people see.
    pub display_name: Option<String>,
    /// Our own inbound URL.
    pub endpoint: Option<String>,
}

/// The `idp` section; what it means is [`super::settings::Idp`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdpFile {
    /// The token endpoint.
    pub token_url: Option<String>,
    /// The client's id.
    pub client_id: Option<String>,
    /// The file that holds the client's secret.
    pub client_secret_file: Option<PathBuf>,
    /// The scope asked for.
    pub scope: Option<String>,
}

/// A section whose every line is commented out is null to YAML, and a default to us.
fn section<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Our own file as it was read.
#[derive(Debug, Clone)]
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    pub(super) tree: FileTree,
    /// The same text as plain values: what was written and what is a default differ only here.
    pub(super) raw: Value,
}

impl OwnFile {
    /// Reads the file at `path`, which must exist.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let wrong = |error: YamlError| explain(path, &text, &error);
        let tree = yaml::strict::<FileTree>(&text).map_err(wrong)?;
        let raw = yaml::lenient(&text).map_err(wrong)?;
        if let Some(broken) = limits::broken(&tree) {
            return Err(ConfigError::Wrong {
                path: path.to_owned(),
                line: line_of(&text, broken.key),
                what: format!("`{}` {}", broken.key, broken.rule),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            tree,
            raw,
        })
    }

    /// Whether the file itself says something for a dotted key.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.raw
            .pointer(&format!("/{}", key.replace('.', "/")))
            .is_some_and(|value| !value.is_null())
    }

    /// A path of the file, taken from the file's own directory where it is relative.
    pub(super) fn anchored(&self, path: &Path, user_home: Option<&Path>) -> PathBuf {
        if let (Ok(below), Some(home)) = (path.strip_prefix("~"), user_home) {
            return home.join(below);
        }
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Whether the file at `path` can be used, with what someone should look at all the same; the error says what to
/// change.
pub fn check_file(path: &Path) -> Result<Vec<String>, ConfigError> {
    let read = OwnFile::read(path)?;
    match named::missing(&read.tree) {
        None => Ok(read.tree.telemetry.warning().into_iter().collect()),
        Some((key, what)) => Err(ConfigError::Wrong {
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
    String::from_utf8(bytes).map_err(|_| ConfigError::Wrong {
        path: path.to_owned(),
        line: None,
        what: "it is not UTF-8 text".to_owned(),
    })
}

fn explain(path: &Path, text: &str, error: &YamlError) -> ConfigError {
    let what = match &error.problem {
        Problem::UnknownKey { key, known } => unknown_key(key, known),
        Problem::UnknownChoice { value, known } => match nearest(value, known.iter().copied()) {
            Some(word) => format!("{}; did you mean `{word}`?", error.problem),
            None => error.problem.to_string(),
        },
        Problem::Malformed(what) => match error.line.and_then(|line| key_on(text, line)) {
            Some(key) => format!("`{key}`: {what}"),
            None => what.clone(),
        },
        other => other.to_string(),
    };
    let line = error.line.or_else(|| match &error.problem {
        Problem::UnknownKey { key, .. } => line_of(text, key),
        _ => None,
    });
    ConfigError::Wrong {
        path: path.to_owned(),
        line,
        what,
    }
}

/// The key that a line starts with, where it is one of ours.
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
                "`{key}`: a secret does not belong in this file; put it in a file of its own and name that \
                 with `secret_file`, or set GATEWAY_RELAY_SECRET"
            );
        }
        "client_secret" => {
            return "`client_secret`: a secret does not belong in this file; put it in a file of its own and \
                    name that with `client_secret_file`, or set GATEWAY_RELAY_IDP_CLIENT_SECRET"
                .to_owned();
        }
        _ => {}
    }
    if let Some(word) = nearest(key, known.iter().copied()) {
        return format!("unknown key `{key}`; did you mean `{word}`?");
    }
    let keys = known_keys();
    if let Some(full) = keys.iter().find(|full| full.rsplit('.').next() == Some(key)) {
        return format!("unknown key `{key}` here; it is known as `{full}`");
    }
    format!("unknown key `{key}`; known here: {}", known.join(", "))
}

/// The candidate that `word` is most likely a slip of.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let slips = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Every key of the file, dotted, sections included.
pub fn known_keys() -> Vec<String> {
    let tree = serde_json::to_value(FileTree::default()).unwrap_or_default();
    let mut keys = Vec::new();
    walk(&tree, "", &mut |key, _| keys.push(key.to_owned()));
    keys
}

/// Calls `see` with every dotted key of a tree of mappings.
pub(super) fn walk(value: &Value, prefix: &str, see: &mut impl FnMut(&str, &Value)) {
    let Value::Object(map) = value else { return };
    for (name, inner) in map {
        let key = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}.{name}")
        };
        see(&key, inner);
        walk(inner, &key, see);
    }
}

/// The line on which a dotted key stands, as far as it is written one key to a line.
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
