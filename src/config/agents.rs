//! The agents that our own file names: which backend each is, and what is set about it.
//!
//! What a backend understands is its own settings struct; here is only what holds for all of them, and the table of
//! kinds. Values of `env` are never shown.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::settings::HIDDEN;
use crate::agent::{AcpSettings, CommandSettings, HermesSettings, OpenAiSettings, Permission};

/// The agents of a file, by name.
pub type AgentEntries = BTreeMap<String, AgentEntry>;

/// The kinds of agents, as they are written.
pub const KINDS: &[&str] = &["acp", "command", "echo", "hermes", "noop", "openai"];

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentEntry {
    /// What it is, and what is set about that.
    pub backend: Backend,
    /// Who decides what it asks, where no route says otherwise.
    pub permission: Permission,
    /// Where it works, where no route says otherwise.
    pub workdir: Option<PathBuf>,
    /// The longest that one turn may take; 0 or unset for any time.
    pub turn_timeout_secs: Option<u64>,
    /// Turns of it at the same time; more wait.
    pub max_turns_at_once: Option<usize>,
    /// What was written.
    written: Map<String, Value>,
}

/// What sort of agent it is.
#[derive(Clone, Debug)]
pub enum Backend {
    /// Says back what it hears.
    Echo,
    /// Says nothing.
    Noop,
    /// A program, started for each turn.
    Command(Box<CommandSettings>),
    /// A program that speaks the Agent Client Protocol.
    Acp(Box<AcpSettings>),
    /// An OpenAI-compatible chat endpoint.
    OpenAi(Box<OpenAiSettings>),
    /// A Hermes API server.
    Hermes(Box<HermesSettings>),
}

impl Backend {
    /// Its kind, as it is written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Noop => "noop",
            Self::Command(_) => "command",
            Self::Acp(_) => "acp",
            Self::OpenAi(_) => "openai",
            Self::Hermes(_) => "hermes",
        }
    }

    /// The paths that are set about it; they are taken from the file's directory.
    pub(super) fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        let paths = match self {
            Self::Echo | Self::Noop => Vec::new(),
            Self::Command(settings) => vec![&mut settings.cwd],
            Self::Acp(settings) => vec![&mut settings.cwd],
            Self::OpenAi(settings) => vec![&mut settings.api_key_file, &mut settings.system_prompt_file],
            Self::Hermes(settings) => vec![&mut settings.api_key_file],
        };
        paths.into_iter().flatten().collect()
    }

    /// The files whose content is read when the agent is built, by the keys that name them.
    pub fn files(&self) -> Vec<(&'static str, &PathBuf)> {
        let files = match self {
            Self::Echo | Self::Noop | Self::Command(_) | Self::Acp(_) => Vec::new(),
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

    /// The directory that its program is started in, where it is one.
    fn cwd(&self) -> Option<&PathBuf> {
        match self {
            Self::Command(settings) => settings.cwd.as_ref(),
            Self::Acp(settings) => settings.cwd.as_ref(),
            Self::Echo | Self::Noop | Self::OpenAi(_) | Self::Hermes(_) => None,
        }
    }

    /// Where its key is read from: the variable, and the file.
    pub fn key_source(&self) -> (Option<&str>, Option<&PathBuf>) {
        match self {
            Self::OpenAi(settings) => (settings.api_key_env.as_deref(), settings.api_key_file.as_ref()),
            Self::Hermes(settings) => (settings.api_key_env.as_deref(), settings.api_key_file.as_ref()),
            Self::Echo | Self::Noop | Self::Command(_) | Self::Acp(_) => (None, None),
        }
    }
}

impl AgentEntry {
    /// A name for an agent that was given none: its preset, else its kind.
    pub fn usual_name(&self) -> String {
        match &self.backend {
            Backend::Acp(settings) => settings.preset.clone(),
            _ => None,
        }
        .unwrap_or_else(|| self.backend.kind().to_owned())
    }

    /// The keys under which something else is written here than there; the values stay hidden.
    pub fn differs_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let (new, old) = (&self.written, &other.written);
        let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
        let gone = old.iter().filter(|(key, _)| !new.contains_key(*key));
        changed.chain(gone).map(|(key, _)| key.as_str())
    }

    /// The directory that it works in, where no route says otherwise: its `workdir`, else its program's `cwd`.
    pub fn works_in(&self) -> Option<&PathBuf> {
        self.workdir.as_ref().or_else(|| self.backend.cwd())
    }

    fn read(written: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut rest = written.clone();
        let kind = match rest.remove("kind") {
            Some(Value::String(kind)) => kind,
            // A preset says enough.
            None if rest.contains_key("preset") => "acp".to_owned(),
            Some(_) | None => {
                let kinds = KINDS.join(", ");
                return Err(serde_json::Error::custom(format!(
                    "an agent needs a `kind`, one of: {kinds}"
                )));
            }
        };
        let permission = taken(&mut rest, "permission")?.unwrap_or_default();
        let workdir = taken(&mut rest, "workdir")?;
        let turn_timeout_secs = taken(&mut rest, "turn_timeout_secs")?;
        let max_turns_at_once = taken(&mut rest, "max_turns_at_once")?;
        let backend = match kind.as_str() {
            "echo" => nothing_else(&rest, Backend::Echo)?,
            "noop" => nothing_else(&rest, Backend::Noop)?,
            "command" => Backend::Command(Box::new(all(rest)?)),
            "acp" => Backend::Acp(Box::new(all(rest)?)),
            "openai" => Backend::OpenAi(Box::new(all(rest)?)),
            "hermes" => Backend::Hermes(Box::new(all(rest)?)),
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(serde_json::Error::unknown_variant(&shown, KINDS));
            }
        };
        Ok(Self {
            backend,
            permission,
            workdir,
            turn_timeout_secs,
            max_turns_at_once,
            written,
        })
    }
}

fn taken<T: DeserializeOwned>(
    rest: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<T>, serde_json::Error> {
    rest.remove(key)
        .map(serde_json::from_value::<Option<T>>)
        .transpose()
        .map(Option::flatten)
}

fn all<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(rest))
}

fn nothing_else(rest: &Map<String, Value>, backend: Backend) -> Result<Backend, serde_json::Error> {
    match rest.keys().next() {
        None => Ok(backend),
        Some(key) => Err(serde_json::Error::unknown_field(
            key,
            &["kind", "permission", "workdir"],
        )),
    }
}

impl<'de> Deserialize<'de> for AgentEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::deserialize(deserializer)?;
        Self::read(written).map_err(D::Error::custom)
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

/// Who answers: an agent's name, or an agent on the spot.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentChoice {
    /// By name.
    Named(String),
    /// On the spot.
    Inline(Box<AgentEntry>),
}

impl<'de> Deserialize<'de> for AgentChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) => Ok(Self::Named(name)),
            Value::Object(written) => {
                let entry = AgentEntry::read(written).map_err(D::Error::custom)?;
                Ok(Self::Inline(Box::new(entry)))
            }
            _ => Err(D::Error::custom(
                "`agent` is an agent's name, or a mapping with its `kind`",
            )),
        }
    }
}

impl Serialize for AgentChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => name.serialize(serializer),
            Self::Inline(entry) => entry.serialize(serializer),
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
    fn every_kind_is_read_with_what_holds_for_all() {
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
            (preset.backend.kind(), preset.usual_name().as_str()),
            ("acp", "gemini")
        );
    }

    #[test]
    fn an_agent_works_in_its_workdir_else_where_its_program_is_started() {
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
                entry.works_in().map(PathBuf::as_path),
                wanted.map(std::path::Path::new),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        for (text, wanted) in [
            (r#"{"argv": ["cat"]}"#, "needs a `kind`"),
            (r#"{"kind": "comand"}"#, "expected one of"),
            (r#"{"kind": "command", "args": ["cat"]}"#, "unknown field `args`"),
            (r#"{"kind": "echo", "argv": ["cat"]}"#, "unknown field `argv`"),
            (r#"{"kind": "echo", "permission": "maybe"}"#, "expected one of"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(wanted), "{text}: {said}");
        }
    }
}
