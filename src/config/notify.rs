//! The `notify` section: the targets that `hermes-relay notify` hands something to, by name.
//!
//! A target has the settings of its kind ([`NotifyTarget`]); this module reads the section and says what is wrong with an entry.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::file::nearest;
use super::layers::Layers;
use super::settings::Settings;
use super::validate::Violation;
use crate::agent_connector::NotifyTarget;
use crate::setting::section;

/// The section's former name.
pub(super) const FORMER: &str = "connectors";
/// Where the targets are.
const TARGETS: &str = "notify.targets";

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

section! {
    /// Ways to hand something to an agent.
    #[derive(PartialEq)]
    pub struct NotifyConfig {
        /// The targets by name; commands read them anew each time.
        #[serde(deserialize_with = "targets")]
        pub targets: BTreeMap<String, NotifyTarget>, live;
    }
}

impl NotifyConfig {
    /// The variables that have credentials of targets.
    pub(crate) fn auth_variables(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.values();
        targets.filter_map(|target| target.kind().auth_variable())
    }
}

/// An entry as it is written.
struct WrittenTarget(NotifyTarget);

impl<'de> Deserialize<'de> for WrittenTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::deserialize(deserializer)?;
        parse(written).map(Self).map_err(D::Error::custom)
    }
}

fn targets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, NotifyTarget>, D::Error> {
    former_targets(deserializer).map(Option::unwrap_or_default)
}

/// The targets under the section's former name, if it is there.
pub(super) fn former_targets<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, NotifyTarget>>, D::Error> {
    let entries = Option::<BTreeMap<String, WrittenTarget>>::deserialize(deserializer)?;
    let targets = |entries: BTreeMap<String, WrittenTarget>| {
        entries
            .into_iter()
            .map(|(name, WrittenTarget(target))| (name, target))
    };
    Ok(entries.map(|entries| targets(entries).collect()))
}

fn parse(written: Map<String, Value>) -> Result<NotifyTarget, String> {
    let kinds = NotifyTarget::KINDS.join(", ");
    let Some(Value::String(kind)) = written.get("kind") else {
        return Err(format!("a target needs a `kind`, one of: {kinds}"));
    };
    if !NotifyTarget::KINDS.contains(&kind.as_str()) {
        let shown: String = kind.chars().take(40).collect();
        let near = nearest(kind, NotifyTarget::KINDS.into_iter());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(format!("unknown kind `{shown}`, expected one of: {kinds}{near}"));
    }
    serde_json::from_value(Value::Object(written)).map_err(|error| explain(&error.to_string()))
}

/// Names an unknown key and the one that was meant; other errors stay as they are.
fn explain(text: &str) -> String {
    // The known keys are in the text only.
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    let (Some((&key, known)), true) = (named.split_first(), text.starts_with("unknown field")) else {
        return text.to_owned();
    };
    let shown: String = key.chars().take(40).collect();
    let synonyms = SYNONYMS.iter().filter(|(synonym, _)| *synonym == key);
    let meant = synonyms
        .map(|(_, meant)| *meant)
        .find(|meant| known.contains(meant));
    match meant.or_else(|| nearest(key, known.iter().copied())) {
        Some(near) => format!("unknown key `{shown}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown key `{shown}`; this kind has no options"),
        None => format!("unknown key `{shown}`; valid keys: {}", known.join(", ")),
    }
}

/// The first violated rule of the section.
pub(super) fn violation(settings: &Settings) -> Option<Violation> {
    let (key, targets) = match &settings.connectors {
        None => (TARGETS, &settings.notify.targets),
        Some(former) if settings.notify.targets.is_empty() => (FORMER, former),
        Some(_) => {
            let rule = format!(
                "and `{TARGETS}` are both set, and are two names for one thing; move the entries of `{FORMER}` to `{TARGETS}`, and \
                 remove `{FORMER}`"
            );
            return Some((FORMER, rule));
        }
    };
    let rule = targets.iter().find_map(|(name, target)| {
        let wrong = if name.trim().is_empty() {
            "needs a name".to_owned()
        } else {
            target.kind().violation()?
        };
        Some(format!("`{name}`: {wrong}"))
    });
    Some((key, rule?))
}

/// What to write instead of the section's former name, if the file uses it.
pub(super) fn warning(settings: &Settings) -> Option<String> {
    settings.connectors.as_ref().map(|_| {
        format!("`{FORMER}` is now called `{TARGETS}`; write `notify:`, below it `targets:`, and move the entries there")
    })
}

impl Layers<'_> {
    pub(super) fn notify(&mut self, settings: &mut Settings) {
        self.warnings.extend(warning(settings));
        if let Some(former) = settings.connectors.take() {
            settings.notify.targets = former;
            let origins = self.origins.0.iter();
            let renamed = origins.filter_map(|(key, origin)| {
                let name = key.strip_prefix(FORMER)?.strip_prefix('.')?;
                Some((format!("{TARGETS}.{name}"), origin.clone()))
            });
            let renamed: Vec<_> = renamed.collect();
            self.origins.0.extend(renamed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_home::TestHome;

    fn read(text: &str) -> Result<BTreeMap<String, NotifyTarget>, String> {
        let targets = serde_json::from_str(&format!(r#"{{"targets": {text}}}"#));
        let settings = Settings {
            notify: targets.map_err(|error: serde_json::Error| error.to_string())?,
            ..Settings::default()
        };
        match violation(&settings) {
            Some((_, rule)) => Err(rule),
            None => Ok(settings.notify.targets),
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
        let names = entries
            .values()
            .map(|target| target.kind().capabilities().implementation);
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["webhook", "file", "tmux", "command", "relay", "noop"]);
        assert!(
            names.iter().all(|name| NotifyTarget::KINDS.contains(name))
                && names.len() == NotifyTarget::KINDS.len()
        );
        let shown = serde_json::to_string(&entries).unwrap();
        assert!(shown.contains("auth") && !shown.contains("hunter2"), "{shown}");
        assert!(!format!("{entries:?}").contains("hunter2"));
        let NotifyTarget::Webhook(webhook) = &entries["a"] else {
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

    const DROP: &str = "drop: {kind: file, dir: inbox, agents: [cc]}";

    #[test]
    fn paths_are_relative_to_the_file() {
        let home = TestHome::new().file("relay.yaml", &format!("notify:\n  targets:\n    {DROP}\n"));
        let loaded = home.load();
        let NotifyTarget::File(file) = &loaded.settings.notify.targets["drop"] else {
            panic!("{:?}", loaded.settings.notify);
        };
        let folder = loaded.own_file.as_deref().and_then(std::path::Path::parent);
        assert_eq!(file.dir, folder.unwrap().join("inbox"));
        assert_eq!(loaded.warnings, Vec::<String>::new());
    }

    #[test]
    fn the_former_section_is_read_with_a_warning() {
        let home = TestHome::new().file("relay.yaml", &format!("notify:\n  targets:\n    {DROP}\n"));
        let now = home.load();
        let home = home.file("relay.yaml", &format!("connectors:\n  {DROP}\n"));
        let former = home.load();
        assert_eq!(former.settings.notify, now.settings.notify);
        assert_eq!(
            former.describe(),
            now.describe(),
            "with its origin, under its new name"
        );
        assert!(former.warnings[0].contains("`connectors` is now called `notify.targets`"));
        let path = former.own_file.unwrap();
        assert_eq!(crate::config::check_file(&path, None).unwrap(), former.warnings);
    }

    #[test]
    fn both_names_at_once_are_refused() {
        let both = format!("connectors:\n  {DROP}\nnotify:\n  targets:\n    {DROP}\n");
        let home = TestHome::new().file("relay.yaml", &both);
        let error = home.try_load().unwrap_err().to_string();
        assert!(
            error.contains("`connectors` and `notify.targets` are both set"),
            "{error}"
        );
    }
}
