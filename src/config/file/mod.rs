//! The settings file: how it is read into [`Settings`], and its error messages.
//!
//! Parsing is strict. An unknown key, a wrong type or a value out of range is an error with the file, the line and the
//! nearest valid choice. A literal secret is refused.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::notify;
use super::settings::{Settings, misspelt_platform};
use super::yaml::{self, YamlError, YamlProblem};
use super::{ConfigError, validate};
use crate::setting;

/// The system-wide settings file, used last.
pub const SYSTEM_PATH: &str = "/etc/hermes-relay/config.yaml";

/// The parsed settings file.
#[derive(Debug, Clone)]
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    pub(super) settings: Settings,
    /// The same as plain values, to distinguish written values from defaults.
    pub(super) raw: Value,
}

impl OwnFile {
    /// Reads the file at `path`, which must exist.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let wrong = |error: YamlError| explain(path, &text, &error);
        let settings = yaml::strict::<Settings>(&text).map_err(wrong)?;
        let raw = yaml::lenient(&text).map_err(wrong)?;
        if let Some((key, rule)) = validate::violation(&settings) {
            return Err(ConfigError::Invalid {
                path: path.to_owned(),
                line: line_of(&text, &key),
                what: format!("`{key}` {rule}"),
            });
        }
        Ok(Self {
            path: path.to_owned(),
            settings,
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
    let settings = OwnFile::read(path)?.settings;
    match validate::missing_name(&settings) {
        None => {
            let identities = settings.connector.identities.iter();
            let misspelt = identities.filter_map(|identity| misspelt_platform(identity.platform.trim()));
            let warnings = misspelt.chain(settings.telemetry.warning());
            Ok(warnings.chain(notify::warning(&settings)).collect())
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
    let mut keys = Vec::new();
    setting::walk(Settings::FIELDS, "", &mut |key, field| {
        if field.in_file && key != notify::FORMER {
            keys.push(key.to_owned());
        }
    });
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
