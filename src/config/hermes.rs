//! Hermes' `config.yaml`: the few keys that concern a relay.
//!
//! Parsing is lenient. Invalid values are ignored with a warning, invalid YAML counts as empty, and the file is never
//! written. It may contain secrets of Hermes: its text and values are wiped when they are dropped.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{env, secret, yaml};
use crate::adapter::SlackReplyMode;

/// Keys of the relevance policy, in any mapping.
const RELEVANCE: [&str; 2] = ["require_mention", "free_response_channels"];

/// Hermes' configuration; wiped when dropped.
pub(super) struct HermesConfig {
    pub(super) path: PathBuf,
    value: Value,
}

impl Drop for HermesConfig {
    fn drop(&mut self) {
        secret::wipe(&mut self.value);
    }
}

impl HermesConfig {
    /// Reads `config.yaml` in Hermes' home; empty if there is none, with a warning if it is invalid.
    pub(super) fn read(home: Option<&Path>, warnings: &mut Vec<String>) -> Self {
        let path = home.unwrap_or(Path::new("")).join("config.yaml");
        let empty = Value::Object(Map::new());
        let Some(text) = home.and_then(|_| text_of(&path, warnings)) else {
            return Self { path, value: empty };
        };
        let value = match yaml::lenient(&text) {
            Ok(value @ Value::Object(_)) => value,
            Ok(Value::Null) => empty,
            Ok(_) => {
                warn(warnings, &path, "not a mapping; ignored");
                empty
            }
            Err(error) => {
                let at = error
                    .line
                    .map(|line| format!(" from line {line} on"))
                    .unwrap_or_default();
                warn(warnings, &path, format!("invalid YAML{at}; ignored"));
                empty
            }
        };
        Self { path, value }
    }

    /// Only the keys of the relevance policy, in their mappings.
    pub(super) fn relevance(&self) -> Value {
        relevant(&self.value).unwrap_or_else(|| Value::Object(Map::new()))
    }

    pub(super) fn at(&self, dotted: &str) -> Option<&Value> {
        dotted
            .split('.')
            .try_fold(&self.value, |value, part| value.get(part))
            .filter(|value| !value.is_null())
    }

    /// A text or number, trimmed; `None` if empty.
    pub(super) fn text(&self, dotted: &str) -> Option<String> {
        self.at(dotted).and_then(plain)
    }

    /// A YAML list or a comma-separated text.
    pub(super) fn list(&self, dotted: &str) -> Option<Vec<String>> {
        let items = match self.at(dotted)? {
            Value::Array(items) => items.iter().filter_map(plain).collect(),
            Value::String(text) => env::comma_list(text),
            other => plain(other).into_iter().collect(),
        };
        Some(items).filter(|items: &Vec<String>| !items.is_empty())
    }

    /// A switch at the top level, else below `gateway`.
    pub(super) fn switch(&self, name: &str, warnings: &mut Vec<String>) -> Option<bool> {
        let value = self.at(name).or_else(|| self.at(&format!("gateway.{name}")))?;
        let read = boolean(value);
        if read.is_none() {
            warn(
                warnings,
                &self.path,
                format!("`{name}` is neither true nor false; ignored"),
            );
        }
        read
    }

    /// True or false at a dotted key; `None` if it is neither.
    pub(super) fn flag(&self, dotted: &str) -> Option<bool> {
        self.at(dotted).and_then(boolean)
    }

    /// A Slack setting of the relay platform: in the `slack` mapping, else beside it.
    fn slack(&self, name: &str) -> Option<&Value> {
        let nested = self.at(&format!("platforms.relay.extra.slack.{name}"));
        nested.or_else(|| self.at(&format!("platforms.relay.extra.{name}")))
    }

    /// The Slack chats with a reply mode of their own. Modes that the relay does not have are left out.
    pub(super) fn slack_reply_modes(&self) -> Option<BTreeMap<String, SlackReplyMode>> {
        let modes = self.slack("channel_reply_modes")?.as_object()?.iter();
        let known = modes.filter_map(|(chat, mode)| {
            let mode = match plain(mode)?.to_ascii_lowercase().as_str() {
                "channel" => SlackReplyMode::Channel,
                "thread" => SlackReplyMode::Thread,
                _ => return None,
            };
            Some((chat.clone(), mode))
        });
        Some(known.collect())
    }

    /// A Slack switch of the relay platform.
    pub(super) fn slack_switch(&self, name: &str) -> Option<bool> {
        Some(match self.slack(name)? {
            Value::Bool(flag) => *flag,
            other => plain(other).is_some_and(|text| {
                matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
            }),
        })
    }

    /// Whether the relay platform is explicitly disabled.
    pub(super) fn vetoes_relay(&self) -> bool {
        match self.at("platforms.relay.enabled") {
            Some(Value::Bool(enabled)) => !enabled,
            Some(Value::String(text)) => text.trim().eq_ignore_ascii_case("false"),
            _ => false,
        }
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        other => plain(other).and_then(|text| match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => None,
        }),
    }
}

/// Keeps the keys of [`RELEVANCE`] and their mappings.
fn relevant(value: &Value) -> Option<Value> {
    let kept = value.as_object()?.iter().filter_map(|(key, value)| {
        let kept = if RELEVANCE.contains(&key.as_str()) {
            Some(value.clone())
        } else {
            relevant(value)
        };
        Some((key.clone(), kept?))
    });
    Some(Value::Object(kept.collect()))
}

fn text_of(path: &Path, warnings: &mut Vec<String>) -> Option<Zeroizing<String>> {
    let read = std::fs::File::open(path).and_then(|file| secret::read_all(file, yaml::MAX_BYTES as u64));
    let mut bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn(warnings, path, format!("cannot be read ({error}); ignored"));
            return None;
        }
    };
    match String::from_utf8(std::mem::take(&mut *bytes)) {
        Ok(text) => Some(Zeroizing::new(text)),
        Err(error) => {
            drop(Zeroizing::new(error.into_bytes()));
            warn(warnings, path, "not UTF-8 text; ignored");
            None
        }
    }
}

fn warn(warnings: &mut Vec<String>, path: &Path, what: impl Display) {
    warnings.push(format!("{}: {what}", path.display()));
}

fn plain(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hermes(text: &str) -> (HermesConfig, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.yaml"), text).unwrap();
        let mut warnings = Vec::new();
        let read = HermesConfig::read(Some(dir.path()), &mut warnings);
        (read, warnings)
    }

    #[test]
    fn invalid_files_are_ignored_with_a_warning() {
        for text in ["discord: [\n", "- a\n- b\n", "just text\n"] {
            let (read, warnings) = hermes(text);
            assert_eq!(read.value, serde_json::json!({}));
            assert_eq!(warnings.len(), 1, "{text}");
        }
        let (_, warnings) = hermes("# empty\n");
        assert!(warnings.is_empty());
        let mut none = Vec::new();
        HermesConfig::read(Some(Path::new("/nonexistent")), &mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn only_the_relevance_policy_is_kept() {
        let (read, _) = hermes(
            "token: s3cret\nrequire_mention: true\ndiscord: {}\nslack: {token: s3cret, require_mention: false}\n\
             gateway: {relay_secret: s3cret, platforms: {telegram: {free_response_channels: [a, 7], keys: [s3cret]}}}\n",
        );
        let want = serde_json::json!({
            "require_mention": true, "discord": {}, "slack": {"require_mention": false},
            "gateway": {"platforms": {"telegram": {"free_response_channels": ["a", 7]}}},
        });
        assert_eq!(read.relevance(), want);
    }

    #[test]
    fn texts_and_lists_are_lenient() {
        let (read, _) = hermes(
            "gateway:\n  relay_id: 42\n  relay_url: '  '\n  relay_route_keys: a, ,b\n  other: [1, x, '']\n",
        );
        assert_eq!(read.text("gateway.relay_id").as_deref(), Some("42"));
        assert_eq!(read.text("gateway.relay_url"), None);
        assert_eq!(read.list("gateway.relay_route_keys").unwrap(), ["a", "b"]);
        assert_eq!(read.list("gateway.other").unwrap(), ["1", "x"]);
    }

    #[test]
    fn switches_are_at_the_top_or_below_gateway() {
        let mut warnings = Vec::new();
        let (read, _) = hermes("a: no\ngateway: {a: yes, b: 'on', c: perhaps}\n");
        assert_eq!(read.switch("a", &mut warnings), Some(false));
        assert_eq!(read.switch("b", &mut warnings), Some(true));
        assert_eq!(read.switch("d", &mut warnings), None);
        assert!(warnings.is_empty());
        assert_eq!(read.switch("c", &mut warnings), None);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn slack_switches_are_off_unless_explicitly_on() {
        let (read, _) = hermes(
            "platforms: {relay: {extra: {reply_in_thread: true, flat: 'YES', slack: {reply_in_thread: 'nope'}}}}\n",
        );
        assert_eq!(read.slack_switch("reply_in_thread"), Some(false));
        assert_eq!(read.slack_switch("flat"), Some(true));
        assert_eq!(read.slack_switch("absent"), None);
    }

    #[test]
    fn only_an_explicit_false_vetoes() {
        for (text, veto) in [
            ("platforms: {relay: {enabled: false}}", true),
            ("platforms: {relay: {enabled: no}}", true),
            ("platforms: {relay: {enabled: ' False '}}", true),
            ("platforms: {relay: {enabled: 0}}", false),
            ("platforms: {relay: {enabled: true}}", false),
            ("platforms: {relay: }", false),
            ("platforms: relay", false),
        ] {
            assert_eq!(hermes(text).0.vetoes_relay(), veto, "{text}");
        }
    }
}
