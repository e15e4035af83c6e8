//! The settings file: how it is read into [`Settings`], and its error messages.
//!
//! Parsing is strict. An unknown key, a wrong type or a value out of range is an error with the file, the line and the
//! nearest valid choice. A literal secret is refused.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::notify;
use super::settings::{Settings, misspelt_platform};
use super::yaml::{self, YamlError, YamlProblem};
use super::{ConfigError, env, validate};
use crate::agent::check_workdir;
use crate::setting;

/// The system-wide settings file, used last.
pub const SYSTEM_PATH: &str = "/etc/hermes-relay/config.yaml";

/// Mistakes that are reported at once.
const MAX_MISTAKES: usize = 20;

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
        let own = Self::parse(path, &text)?;
        match validate::violations(&own.settings).into_iter().next() {
            None => Ok(own),
            Some((key, rule)) => Err(ConfigError::Invalid {
                path: path.to_owned(),
                line: line_of(&text, &key),
                what: format!("`{key}` {rule}"),
            }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let wrong = |error: YamlError| explain(path, text, &error);
        Ok(Self {
            path: path.to_owned(),
            settings: yaml::strict::<Settings>(text).map_err(wrong)?,
            raw: yaml::lenient(text).map_err(wrong)?,
        })
    }

    /// Reads no more of the file at `path` than where the state is.
    pub(super) fn read_place(path: &Path) -> Result<Self, ConfigError> {
        let text = text_of(path)?;
        let raw = yaml::lenient(&text).map_err(|error| explain(path, &text, &error))?;
        let mut settings = Settings::default();
        match &raw["state_dir"] {
            Value::Null => {}
            Value::String(place) => settings.state_dir = place.into(),
            _ => {
                return Err(ConfigError::Invalid {
                    path: path.to_owned(),
                    line: line_of(&text, "state_dir"),
                    what: "`state_dir` is no path".to_owned(),
                });
            }
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

    /// Makes the paths of a command line relative to the file's directory: a program with a slash, and arguments that start
    /// with `./`, `../` or `~/`.
    pub(super) fn resolve_argv(&self, argv: &mut [String], user_home: Option<&Path>) {
        for (at, word) in argv.iter_mut().enumerate() {
            let is_path = ["./", "../", "~/"].iter().any(|start| word.starts_with(start));
            if is_path || (at == 0 && word.contains('/')) {
                let file = self.resolve_path(Path::new(word), user_home);
                *word = file.to_string_lossy().into_owned();
            }
        }
    }

    /// What is wrong with the certificates on this machine.
    fn unusable_certificates(&self, user_home: Option<&Path>) -> Option<String> {
        let mut tls = self.settings.tls.clone();
        let files = [&mut tls.ca_file, &mut tls.client_cert, &mut tls.client_key];
        for file in files.into_iter().flatten() {
            *file = self.resolve_path(file, user_home);
        }
        let (key, what) = tls.unusable_file()?;
        Some(format!("`{key}`: {what}"))
    }

    /// Agents and routes whose working directory does not exist on this machine.
    fn missing_workdirs(&self, user_home: Option<&Path>) -> Vec<String> {
        let agents = self.settings.agents.iter().map(|(name, entry)| {
            let starts = entry.backend.starts_program();
            (format!("agents.{name}"), entry.working_dir().filter(|_| starts))
        });
        let routes = (1..).zip(&self.settings.routes);
        let routes =
            routes.map(|(number, route)| (format!("routes: entry {number}"), route.workdir.as_ref()));
        agents
            .chain(routes)
            .filter_map(|(key, path)| {
                let error = check_workdir(&self.resolve_path(path?, user_home)).err()?;
                Some(format!("`{key}`: {error}"))
            })
            .collect()
    }
}

/// Checks the file at `path`; returns warnings, or every mistake that was found. What can be read only once others are mended
/// is not reported.
pub fn check_file(path: &Path, user_home: Option<&Path>) -> Result<Vec<String>, Vec<ConfigError>> {
    let text = text_of(path).map_err(|error| vec![error])?;
    let mistakes = unreadable_entries(path, &text);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let own = OwnFile::parse(path, &text).map_err(|error| vec![error])?;
    let invalid = |(key, what): (String, String)| ConfigError::Invalid {
        path: path.to_owned(),
        line: line_of(&text, &key),
        what,
    };
    let rules = validate::violations(&own.settings)
        .into_iter()
        .map(|(key, rule)| (key.clone(), format!("`{key}` {rule}")));
    let names = validate::missing_names(&own.settings)
        .into_iter()
        .map(|(key, what)| (key.to_owned(), format!("`{key}`: {what}")));
    let twice = own.settings.connector.identities.iter().filter_map(|identity| {
        let platform = identity.platform.trim();
        let is_bot = ["telegram", "discord"].contains(&platform) && own.names(&format!("direct.{platform}"));
        (own.sets("connector.url") && is_bot).then(|| {
            let what = format!(
                "`connector.identities` and `direct.{platform}` both name {platform}, and every message would come twice: remove one of \
                 them"
            );
            ("connector.identities".to_owned(), what)
        })
    });
    let mistakes: Vec<_> = rules.chain(names).chain(twice).map(invalid).collect();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let settings = &own.settings;
    let identities = settings.connector.identities.iter();
    let misspelt = identities.filter_map(|identity| misspelt_platform(identity.platform.trim()));
    let warnings = misspelt.chain(settings.telemetry.warning());
    let warnings = warnings.chain(notify::warning(settings));
    let warnings = warnings.chain(settings.access.name_warnings());
    // The bots may be chosen on the command line; what names a connector has none, unless it names them, too.
    let has_bot = own.names("direct.telegram") || own.names("direct.discord");
    let is_useless = settings.chat.group_context > 0 && own.sets("connector.url") && !has_bot;
    let useless = is_useless.then(|| {
        "`chat.group_context` has no effect with a connector, which sends context of its own; it is for bots of your own (`direct`)"
            .to_owned()
    });
    let warnings = warnings.chain(useless);
    let warnings = warnings.chain(own.unusable_certificates(user_home));
    Ok(warnings.chain(own.missing_workdirs(user_home)).collect())
}

/// Entries that cannot be read, each once: a parser stops at the first, so it is asked again without the entries it complained
/// about.
fn unreadable_entries(path: &Path, text: &str) -> Vec<ConfigError> {
    let mut rest: Vec<&str> = text.lines().collect();
    let mut mistakes = Vec::new();
    while mistakes.len() < MAX_MISTAKES {
        let Err(error) = yaml::strict::<Settings>(&rest.join("\n")) else {
            break;
        };
        let mistake = explain(path, text, &error);
        let line = match &mistake {
            ConfigError::Invalid { line, .. } => *line,
            _ => None,
        };
        mistakes.push(mistake);
        let number = line.and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
        if !number.is_some_and(|number| leave_out_entry(&mut rest, number)) {
            break;
        }
    }
    mistakes
}

/// Empties the lines of the entry that a line belongs to: a setting of a section, or a whole agent, target or route, which would
/// lack something without that line. Returns whether there was anything.
fn leave_out_entry(lines: &mut [&str], number: usize) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(line) = lines.get(number).filter(|line| !line.trim().is_empty()) else {
        return false;
    };
    // The entry and what it is in, outermost last.
    let mut nested = vec![(number, indent(line))];
    for (above, line) in lines[..number].iter().enumerate().rev() {
        let inner = nested.last().map_or(0, |(_, indent)| *indent);
        if !line.trim().is_empty() && indent(line) < inner {
            nested.push((above, indent(line)));
        }
    }
    let (first, own) = nested[nested.len().saturating_sub(2)];
    lines[first] = "";
    for line in &mut lines[first + 1..] {
        if !line.trim().is_empty() && indent(line) <= own {
            break;
        }
        *line = "";
    }
    true
}

/// Opens a file; `None` if there is none. A link to nothing is an error, as is a path that cannot be followed: whatever the file
/// forbids would be allowed without it.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(_) if !is_there(path)? => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = "it is a link to a file that does not exist";
            Err(io::Error::new(error.kind(), text))
        }
        Err(error) => Err(error),
    }
}

/// Whether there is something at `path`, be it a link to nothing.
pub(super) fn is_there(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = open(path).map_err(unreadable)?;
    let file = file.ok_or_else(|| ConfigError::Missing {
        path: path.to_owned(),
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
            let file = format!(
                "`{key}`: this file must not contain secrets; put it in a separate file and name that with `token_file`"
            );
            // The other keys tell the sections apart; a token for NATS has no variable.
            let variable = if known.contains(&"allowed_updates") {
                Some(env::TELEGRAM_BOT_TOKEN)
            } else if known.contains(&"gateway_url") {
                Some(env::DISCORD_BOT_TOKEN)
            } else {
                None
            };
            return match variable {
                Some(variable) => format!("{file}, or set {variable}"),
                None => file,
            };
        }
        _ => {}
    }
    if let Some(near) = nearest(key, known.iter().copied()) {
        return format!("unknown key `{key}`; did you mean `{near}`?");
    }
    let keys = known_keys();
    if let Some(full) = keys.iter().find(|full| full.rsplit('.').next() == Some(key)) {
        return if full == key {
            format!("unknown key `{key}` here; it belongs to the top level of the file")
        } else {
            format!("unknown key `{key}` here; use `{full}`")
        };
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
