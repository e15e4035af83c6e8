//! The `connectors` section: ways to hand something to an agent, by name. Not the chat connector, which is `connector`.
//!
//! Each substrate has its own settings struct; this module has the table of kinds. A literal `auth` is never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::file::nearest;
use super::settings::HIDDEN;
use crate::agent_connector::{
    CommandConnectorSettings, FileConnectorSettings, TmuxConnectorSettings, WebhookConnectorSettings,
};

/// Connectors by name.
pub type ConnectorEntries = BTreeMap<String, ConnectorEntry>;

/// Kinds of substrates, as written.
const SUBSTRATES: &[&str] = &["command", "file", "noop", "relay", "tmux", "webhook"];

/// Keys of other programs, and what they are called here.
const SYNONYMS: [(&str, &str); 11] = [
    ("hmac_secret", "hmac_secret_file"),
    ("secret", "hmac_secret_file"),
    ("secret_file", "hmac_secret_file"),
    ("authorization", "auth_env"),
    ("token", "auth_env"),
    ("timeout", "timeout_ms"),
    ("directory", "dir"),
    ("path", "dir"),
    ("command", "argv"),
    ("pane", "target"),
    ("session", "target"),
];

/// A connector.
#[derive(Clone)]
pub struct ConnectorEntry {
    /// The substrate with its settings.
    pub substrate: Substrate,
    /// The entry as written.
    written: Map<String, Value>,
}

/// What carries deliveries.
#[derive(Clone, Debug)]
pub enum Substrate {
    /// URLs.
    Webhook(Box<WebhookConnectorSettings>),
    /// A directory.
    File(FileConnectorSettings),
    /// Panes of tmux.
    Tmux(TmuxConnectorSettings),
    /// Programs.
    Command(CommandConnectorSettings),
    /// This relay's own agents.
    Relay,
    /// Nothing.
    Noop,
}

impl Substrate {
    /// Its kind, as written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::File(_) => "file",
            Self::Tmux(_) => "tmux",
            Self::Command(_) => "command",
            Self::Relay => "relay",
            Self::Noop => "noop",
        }
    }

    fn violation(&self) -> Option<String> {
        match self {
            Self::Webhook(settings) => settings.violation(),
            Self::File(settings) => settings.violation(),
            Self::Tmux(settings) => settings.violation(),
            Self::Command(settings) => settings.violation(),
            Self::Relay | Self::Noop => None,
        }
    }

    /// Its paths, which are relative to the settings file.
    pub(super) fn paths_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Webhook(settings) => settings.hmac_secret_file.as_mut(),
            Self::File(settings) => Some(&mut settings.dir),
            Self::Tmux(_) | Self::Command(_) | Self::Relay | Self::Noop => None,
        }
    }

    /// The variable that has its credential.
    pub fn auth_variable(&self) -> Option<&str> {
        match self {
            Self::Webhook(settings) => settings.auth_env.as_deref(),
            Self::File(_) | Self::Tmux(_) | Self::Command(_) | Self::Relay | Self::Noop => None,
        }
    }
}

impl ConnectorEntry {
    fn parse(written: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut rest = written.clone();
        let Some(Value::String(kind)) = rest.remove("kind") else {
            let kinds = SUBSTRATES.join(", ");
            return Err(serde_json::Error::custom(format!(
                "a connector needs a `kind`, one of: {kinds}"
            )));
        };
        let substrate = match kind.as_str() {
            "webhook" => Substrate::Webhook(Box::new(parse_options(rest)?)),
            "file" => Substrate::File(parse_options(rest)?),
            "tmux" => Substrate::Tmux(parse_options(rest)?),
            "command" => Substrate::Command(parse_options(rest)?),
            "relay" => parse_options::<NoOptions>(rest).map(|_| Substrate::Relay)?,
            "noop" => parse_options::<NoOptions>(rest).map(|_| Substrate::Noop)?,
            other => {
                let shown: String = other.chars().take(40).collect();
                let near = nearest(other, SUBSTRATES.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                return Err(serde_json::Error::custom(format!(
                    "unknown kind `{shown}`, expected one of: {}{near}",
                    SUBSTRATES.join(", ")
                )));
            }
        };
        Ok(Self { substrate, written })
    }
}

/// A kind without options.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoOptions {}

fn parse_options<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, serde_json::Error> {
    serde_json::from_value(Value::Object(rest)).map_err(|error| explain(&error))
}

/// Names an unknown key and the one that was meant; other errors stay as they are.
fn explain(error: &serde_json::Error) -> serde_json::Error {
    let text = error.to_string();
    // The known keys are in the text only.
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let (Some((&key, known)), true) = (named.split_first(), text.starts_with("unknown field")) else {
        return serde_json::Error::custom(text);
    };
    let shown: String = key.chars().take(40).collect();
    let synonyms = SYNONYMS.iter().filter(|(synonym, _)| *synonym == key);
    let meant = synonyms
        .map(|(_, meant)| *meant)
        .find(|meant| known.contains(meant));
    let what = match meant.or_else(|| nearest(key, known.iter().copied())) {
        Some(near) => format!("unknown key `{shown}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown key `{shown}`; this kind has no options"),
        None => format!("unknown key `{shown}`; valid keys: {}", known.join(", ")),
    };
    serde_json::Error::custom(what)
}

impl<'de> Deserialize<'de> for ConnectorEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::deserialize(deserializer)?;
        Self::parse(written).map_err(D::Error::custom)
    }
}

impl Serialize for ConnectorEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut shown = self.written.clone();
        if let Some(auth) = shown.get_mut("auth") {
            *auth = HIDDEN.into();
        }
        shown.serialize(serializer)
    }
}

impl PartialEq for ConnectorEntry {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

/// Without what was written, which may have a secret.
impl fmt::Debug for ConnectorEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.substrate.fmt(f)
    }
}

/// The first violated rule of the section.
pub(super) fn violation(entries: &ConnectorEntries) -> Option<(&'static str, String)> {
    let rule = entries.iter().find_map(|(name, entry)| {
        let wrong = if name.trim().is_empty() {
            "needs a name".to_owned()
        } else {
            entry.substrate.violation()?
        };
        Some(format!("`{name}`: {wrong}"))
    });
    Some(("connectors", rule?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_home::TestHome;

    fn read(text: &str) -> Result<ConnectorEntries, String> {
        let entries: ConnectorEntries =
            serde_json::from_str(text).map_err(|error: serde_json::Error| error.to_string())?;
        match violation(&entries) {
            Some((_, rule)) => Err(rule),
            None => Ok(entries),
        }
    }

    #[test]
    fn every_kind_is_parsed() {
        let entries = read(
            r#"{"a": {"kind": "webhook", "agents": {"cc": {"url": "https://h.example/cc"}}, "auth": "Bearer hunter2"},
                "b": {"kind": "file", "dir": "/srv/drop", "agents": ["cc"]},
                "c": {"kind": "tmux", "agents": {"cc": {"target": "work:0.0"}}},
                "d": {"kind": "command", "agents": {"cc": {"argv": ["cat"]}}},
                "e": {"kind": "relay"}, "f": {"kind": "noop"}}"#,
        )
        .unwrap();
        let kinds: Vec<_> = entries.values().map(|entry| entry.substrate.kind()).collect();
        assert_eq!(kinds, ["webhook", "file", "tmux", "command", "relay", "noop"]);
        let shown = serde_json::to_string(&entries).unwrap();
        assert!(shown.contains("auth") && !shown.contains("hunter2"), "{shown}");
        assert!(!format!("{entries:?}").contains("hunter2"));
        let Substrate::Webhook(webhook) = &entries["a"].substrate else {
            panic!("{entries:?}");
        };
        assert_eq!(webhook.timeout_ms, 5_000);
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let hook = |rest: &str| {
            format!(
                r#"{{"h": {{"kind": "webhook", "agents": {{"cc": {{"url": "https://h.example/"}}}}{rest}}}}}"#
            )
        };
        for (text, wanted) in [
            (r#"{"h": {"agents": {}}}"#.to_owned(), "needs a `kind`"),
            (r#"{"h": {"kind": "webhok"}}"#.to_owned(), "did you mean `webhook`?"),
            (hook(r#", "timout_ms": 5"#), "did you mean `timeout_ms`?"),
            (hook(r#", "hmac_secret": "x""#), "did you mean `hmac_secret_file`?"),
            (hook(r#", "timeout_ms": 0"#), "between 1 and"),
            (hook(r#", "auth": "a", "auth_env": "B""#), "exclude each other"),
            (hook(r#", "auth": "a\nb""#), "cannot travel in a header"),
            (
                r#"{"h": {"kind": "webhook", "agents": {"cc": {"url": "http://h.example/"}}}}"#.to_owned(),
                "`agents.cc.url` must be an https URL; http is allowed for loopback",
            ),
            (
                r#"{"h": {"kind": "webhook", "agents": {"cc": {"url": "https://h.example/", "wak_url": "x"}}}}"#
                    .to_owned(),
                "did you mean `wake_url`?",
            ),
            (r#"{"h": {"kind": "webhook", "agents": {}}}"#.to_owned(), "`agents` is empty"),
            (r#"{"h": {"kind": "file", "dir": "d", "agents": ["a@b"]}}"#.to_owned(), "an id has no `@`"),
            (r#"{"h": {"kind": "file", "dir": "d", "agents": [""]}}"#.to_owned(), "an empty id"),
            (r#"{"h": {"kind": "file", "agents": ["a"]}}"#.to_owned(), "missing field `dir`"),
            (
                r#"{"h": {"kind": "command", "agents": {"a": {"argv": []}}}}"#.to_owned(),
                "must start with a program",
            ),
            (
                r#"{"h": {"kind": "tmux", "agents": {"a": {"pane": "x"}}}}"#.to_owned(),
                "did you mean `target`?",
            ),
            (r#"{"h": {"kind": "relay", "agents": []}}"#.to_owned(), "this kind has no options"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let home = TestHome::new().file(
            "relay.yaml",
            "connectors:\n  drop: {kind: file, dir: inbox, agents: [cc]}\n",
        );
        let loaded = home.load();
        let Substrate::File(file) = &loaded.settings.connectors["drop"].substrate else {
            panic!("{:?}", loaded.settings.connectors);
        };
        let folder = loaded.own_file.as_deref().and_then(std::path::Path::parent);
        assert_eq!(file.dir, folder.unwrap().join("inbox"));
    }
}
