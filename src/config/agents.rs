//! Agent entries of the settings file: their backend and options.
//!
//! Each backend has its own settings struct; this module has the options of all of them and the table of kinds. Values of
//! `env` are never shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::file::nearest;
use super::settings::HIDDEN;
use crate::agent::{
    AcpSettings, CommandSettings, HermesSettings, OpenAiSettings, PRESETS, Permission, PoolSettings,
};

/// Agents by name.
pub type AgentEntries = BTreeMap<String, AgentEntry>;

/// Kinds of agents, as written.
pub const KINDS: &[&str] = &["acp", "command", "echo", "hermes", "noop", "openai", "worker"];

/// An agent.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// The backend with its settings.
    pub backend: Backend,
    /// How approval requests are answered, unless a route overrides it.
    pub permission: Permission,
    /// Working directory, unless a route overrides it.
    pub workdir: Option<PathBuf>,
    /// Timeout of a turn; 0 or unset for none.
    pub turn_timeout_secs: Option<u64>,
    /// Maximum concurrent turns; more wait.
    pub max_turns_at_once: Option<usize>,
    /// Whether people may choose it with `/agent`.
    pub choosable: bool,
    /// The entry as written.
    written: Map<String, Value>,
}

/// The backend of an agent.
#[derive(Clone, Debug)]
pub enum Backend {
    /// Repeats every message.
    Echo,
    /// Does not answer.
    Noop,
    /// A program, started for each turn.
    Command(Box<CommandSettings>),
    /// A program with the Agent Client Protocol.
    Acp(Box<AcpSettings>),
    /// An OpenAI-compatible chat endpoint.
    OpenAi(Box<OpenAiSettings>),
    /// A Hermes API server.
    Hermes(Box<HermesSettings>),
    /// A pool of workers on other machines.
    Worker(Box<PoolSettings>),
}

impl Backend {
    /// Its kind, as written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Noop => "noop",
            Self::Command(_) => "command",
            Self::Acp(_) => "acp",
            Self::OpenAi(_) => "openai",
            Self::Hermes(_) => "hermes",
            Self::Worker(_) => "worker",
        }
    }

    /// Whether it can act on the machine or beyond: run programs, change files, use tools.
    pub fn acts(&self) -> bool {
        match self {
            Self::Command(_) | Self::Acp(_) | Self::Hermes(_) | Self::Worker(_) => true,
            Self::Echo | Self::Noop | Self::OpenAi(_) => false,
        }
    }

    /// Whether it starts a program on this machine.
    pub fn starts_program(&self) -> bool {
        match self {
            Self::Command(_) | Self::Acp(_) => true,
            Self::Echo | Self::Noop | Self::OpenAi(_) | Self::Hermes(_) | Self::Worker(_) => false,
        }
    }

    /// The program that it starts, as written or as its preset has it.
    pub fn program(&self) -> Option<&str> {
        match self {
            Self::Command(settings) => settings.argv.first().map(String::as_str),
            Self::Acp(settings) => settings.argv.first().map(String::as_str).or_else(|| {
                let preset = settings.preset.as_deref()?;
                let preset = PRESETS.iter().find(|known| known.name == preset)?;
                preset.argv.first().copied()
            }),
            Self::Echo | Self::Noop | Self::OpenAi(_) | Self::Hermes(_) | Self::Worker(_) => None,
        }
    }

    /// Its command line, in which paths are relative to the settings file.
    pub(super) fn argv_mut(&mut self) -> Option<&mut Vec<String>> {
        match self {
            Self::Command(settings) => Some(&mut settings.argv),
            Self::Acp(settings) => Some(&mut settings.argv),
            Self::Echo | Self::Noop | Self::OpenAi(_) | Self::Hermes(_) | Self::Worker(_) => None,
        }
    }

    /// Its paths, which are relative to the settings file.
    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let paths = match self {
            Self::Echo | Self::Noop | Self::Worker(_) => Vec::new(),
            Self::Command(settings) => vec![&mut settings.cwd],
            Self::Acp(settings) => vec![&mut settings.cwd],
            Self::OpenAi(settings) => vec![&mut settings.api_key_file, &mut settings.system_prompt_file],
            Self::Hermes(settings) => vec![&mut settings.api_key_file],
        };
        paths.into_iter().flatten().collect()
    }

    /// The files that are read when the agent is built, by key.
    pub fn files(&self) -> Vec<(&'static str, &PathBuf)> {
        let files = match self {
            Self::Echo | Self::Noop | Self::Command(_) | Self::Acp(_) | Self::Worker(_) => Vec::new(),
            Self::OpenAi(settings) => vec![
                ("api_key_file", settings.api_key_file.as_ref()),
                ("system_prompt_file", settings.system_prompt_file.as_ref()),
            ],
            Self::Hermes(settings) => vec![("api_key_file", settings.api_key_file.as_ref())],
        };
        files
            .into_iter()
            .filter_map(|(key, path)| Some((key, path?)))
            .collect()
    }

    /// The directory that its program is started in.
    fn cwd(&self) -> Option<&PathBuf> {
        match self {
            Self::Command(settings) => settings.cwd.as_ref(),
            Self::Acp(settings) => settings.cwd.as_ref(),
            Self::Echo | Self::Noop | Self::OpenAi(_) | Self::Hermes(_) | Self::Worker(_) => None,
        }
    }

    /// The variable and the file of its API key.
    pub fn key_source(&self) -> (Option<&str>, Option<&PathBuf>) {
        match self {
            Self::OpenAi(settings) => (settings.api_key_env.as_deref(), settings.api_key_file.as_ref()),
            Self::Hermes(settings) => (settings.api_key_env.as_deref(), settings.api_key_file.as_ref()),
            Self::Echo | Self::Noop | Self::Command(_) | Self::Acp(_) | Self::Worker(_) => (None, None),
        }
    }
}

impl AgentEntry {
    /// The name of an inline agent: its preset, else its kind.
    pub fn default_name(&self) -> String {
        match &self.backend {
            Backend::Acp(settings) => settings.preset.clone(),
            _ => None,
        }
        .unwrap_or_else(|| self.backend.kind().to_owned())
    }

    /// The keys whose values differ; the values stay hidden.
    pub fn changed_keys<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let (new, old) = (&self.written, &other.written);
        let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
        let removed = old.iter().filter(|(key, _)| !new.contains_key(*key));
        changed.chain(removed).map(|(key, _)| key.as_str())
    }

    /// Its paths, which are relative to the settings file.
    pub(super) fn paths_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        self.workdir.iter_mut().chain(self.backend.paths_mut())
    }

    /// Its working directory, unless a route overrides it: its `workdir`, else its program's `cwd`.
    pub fn working_dir(&self) -> Option<&PathBuf> {
        self.workdir.as_ref().or_else(|| self.backend.cwd())
    }

    fn parse(written: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut rest = written.clone();
        let kind = match rest.remove("kind") {
            Some(Value::String(kind)) => kind,
            // A preset implies the kind.
            None if rest.contains_key("preset") => "acp".to_owned(),
            Some(_) | None => {
                let kinds = KINDS.join(", ");
                return Err(serde_json::Error::custom(format!(
                    "an agent needs a `kind`, one of: {kinds}"
                )));
            }
        };
        let permission = take(&mut rest, "permission")?.unwrap_or_default();
        let workdir = take(&mut rest, "workdir")?;
        let turn_timeout_secs = take(&mut rest, "turn_timeout_secs")?;
        let max_turns_at_once = take(&mut rest, "max_turns_at_once")?;
        let choosable = take(&mut rest, "choosable")?.unwrap_or(true);
        let backend = match kind.as_str() {
            "echo" => no_options(&rest, Backend::Echo)?,
            "noop" => no_options(&rest, Backend::Noop)?,
            "command" => Backend::Command(Box::new(parse_options(rest)?)),
            "acp" => Backend::Acp(Box::new(parse_options(rest)?)),
            "openai" => Backend::OpenAi(Box::new(parse_options(rest)?)),
            "hermes" => Backend::Hermes(Box::new(parse_options(rest)?)),
            "worker" => Backend::Worker(Box::new(parse_options(rest)?)),
            other => {
                let shown: String = other.chars().take(40).collect();
                let near = nearest(other, KINDS.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(serde_json::Error::custom(format!(
                    "unknown kind `{shown}`, expected one of: {}{near}",
                    KINDS.join(", ")
                )));
            }
        };
        Ok(Self {
            backend,
            permission,
            workdir,
            turn_timeout_secs,
            max_turns_at_once,
            choosable,
            written,
        })
    }
}

fn take<T: DeserializeOwned>(
    rest: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<T>, serde_json::Error> {
    rest.remove(key)
        .map(serde_json::from_value::<Option<T>>)
        .transpose()
        .map(Option::flatten)
}

fn parse_options<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, serde_json::Error> {
    let keys: Vec<String> = rest.keys().cloned().collect();
    serde_json::from_value(Value::Object(rest)).map_err(|error| explain(&error, &keys))
}

/// Keys of every kind of agent.
const COMMON_KEYS: [&str; 6] = [
    "kind",
    "permission",
    "workdir",
    "turn_timeout_secs",
    "max_turns_at_once",
    "choosable",
];

/// Keys of other programs, and what they are called here; the first that the kind of agent has is named.
const SYNONYMS: [(&str, &[&str]); 11] = [
    ("url", &["base_url"]),
    ("endpoint", &["base_url"]),
    ("command", &["argv"]),
    ("cmd", &["argv"]),
    ("args", &["argv"]),
    ("program", &["argv"]),
    ("cwd", &["workdir"]),
    ("dir", &["workdir"]),
    ("timeout", &["turn_timeout_secs"]),
    ("timeout_secs", &["turn_timeout_secs"]),
    ("system", &["system_prompt"]),
];

/// Names the unknown key of an agent and the one that was meant; other errors stay as they are.
fn explain(error: &serde_json::Error, keys: &[String]) -> serde_json::Error {
    let text = error.to_string();
    // The known keys are in the text only.
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let (Some((&key, known)), true) = (named.split_first(), text.starts_with("unknown field")) else {
        return serde_json::Error::custom(text);
    };
    if !keys.iter().any(|written| written == key) {
        return serde_json::Error::custom(text);
    }
    let known = || known.iter().copied().chain(COMMON_KEYS);
    let shown: String = key.chars().take(40).collect();
    let secret = ["api_key", "key", "token", "secret", "password"].contains(&key);
    let what = if secret && known().any(|known| known == "api_key_env") {
        format!(
            "unknown key `{shown}`: this file must not contain secrets; name a variable with `api_key_env`, or a file with \
             `api_key_file`"
        )
    } else {
        let synonyms = SYNONYMS.iter().filter(|(synonym, _)| *synonym == key);
        let meant = synonyms
            .flat_map(|(_, meant)| meant.iter().copied())
            .find(|meant| known().any(|known| known == *meant));
        if let Some(near) = meant.or_else(|| nearest(key, known())) {
            format!("unknown key `{shown}`; did you mean `{near}`?")
        } else {
            let all: Vec<&str> = known().collect();
            format!("unknown key `{shown}`; valid keys: {}", all.join(", "))
        }
    };
    serde_json::Error::custom(what)
}

fn no_options(rest: &Map<String, Value>, backend: Backend) -> Result<Backend, serde_json::Error> {
    match rest.keys().next() {
        None => Ok(backend),
        Some(key) => {
            let error = serde_json::Error::unknown_field(key, &COMMON_KEYS);
            Err(explain(&error, std::slice::from_ref(key)))
        }
    }
}

impl<'de> Deserialize<'de> for AgentEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::deserialize(deserializer)?;
        Self::parse(written).map_err(D::Error::custom)
    }
}

impl Serialize for AgentEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = self.written.clone();
        shown.insert("kind".to_owned(), self.backend.kind().into());
        if let Some(Value::Object(env)) = shown.get_mut("env") {
            env.values_mut().for_each(|value| *value = HIDDEN.into());
        }
        shown.serialize(serializer)
    }
}

impl PartialEq for AgentEntry {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

/// The default agent: a name, or an inline agent.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentChoice {
    /// By name.
    Named(String),
    /// Inline.
    Inline(Box<AgentEntry>),
}

impl AgentChoice {
    /// The inline agent.
    pub(super) fn inline_mut(&mut self) -> Option<&mut AgentEntry> {
        match self {
            Self::Named(_) => None,
            Self::Inline(entry) => Some(entry),
        }
    }
}

impl Default for AgentChoice {
    fn default() -> Self {
        Self::Named(super::DEFAULT_AGENT.to_owned())
    }
}

impl<'de> Deserialize<'de> for AgentChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::Named(name)),
            Value::Object(written) => {
                let entry = AgentEntry::parse(written).map_err(D::Error::custom)?;
                Ok(Self::Inline(Box::new(entry)))
            }
            _ => Err(D::Error::custom(
                "`agent` must be the name of an agent, or a mapping with a `kind`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<AgentEntry, String> {
        serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn every_kind_is_parsed_with_the_common_options() {
        let entry = read(
            r#"{"kind": "command", "argv": ["cat"], "permission": "deny", "workdir": "/srv", "env": {"KEY": "hunter2"}}"#,
        )
        .unwrap();
        assert_eq!(
            (entry.backend.kind(), entry.permission),
            ("command", Permission::Deny)
        );
        let shown = serde_json::to_string(&entry).unwrap();
        assert!(shown.contains("KEY") && !shown.contains("hunter2"), "{shown}");
        assert!(!format!("{:?}", entry.backend).contains("hunter2"));
        for kind in ["echo", "noop"] {
            assert_eq!(
                read(&format!(r#"{{"kind": "{kind}"}}"#)).unwrap().backend.kind(),
                kind
            );
        }
        let preset = read(r#"{"preset": "gemini"}"#).unwrap();
        assert_eq!(
            (preset.backend.kind(), preset.default_name().as_str()),
            ("acp", "gemini")
        );
    }

    #[test]
    fn the_working_directory_is_the_workdir_or_the_cwd() {
        for (text, wanted) in [
            (
                r#"{"kind": "command", "argv": ["cat"], "cwd": "/in", "workdir": "/srv"}"#,
                Some("/srv"),
            ),
            (
                r#"{"kind": "command", "argv": ["cat"], "cwd": "/in"}"#,
                Some("/in"),
            ),
            (r#"{"preset": "gemini", "cwd": "/in"}"#, Some("/in")),
            (r#"{"kind": "command", "argv": ["cat"]}"#, None),
            (r#"{"kind": "echo", "workdir": "/srv"}"#, Some("/srv")),
            (r#"{"kind": "openai", "model": "x"}"#, None),
        ] {
            let entry = read(text).unwrap();
            assert_eq!(
                entry.working_dir().map(PathBuf::as_path),
                wanted.map(std::path::Path::new),
                "{text}"
            );
        }
    }

    #[test]
    fn errors_name_the_valid_choices() {
        for (text, wanted) in [
            (r#"{"argv": ["cat"]}"#, "needs a `kind`"),
            (r#"{"kind": "comand"}"#, "did you mean `command`?"),
            (
                r#"{"kind": "command", "args": ["cat"]}"#,
                "unknown key `args`; did you mean `argv`?",
            ),
            (
                r#"{"kind": "echo", "argv": ["cat"]}"#,
                "unknown key `argv`; valid keys",
            ),
            (r#"{"kind": "echo", "permission": "maybe"}"#, "expected one of"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
