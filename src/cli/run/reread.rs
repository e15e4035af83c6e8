//! The settings, read again while the relay runs: what takes effect at once, and what needs a restart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::cli::Surround;
use crate::cli::logging::LogHandle;
use crate::config::{self, ConfigError, Flags, Loaded, Settings, Sources};
use crate::relay::{Credentials, boot};

/// What was read.
pub(super) struct Reread {
    pub(super) loaded: Loaded,
    /// The dotted keys of changes that wait for a restart.
    pub(super) needs_restart: Vec<String>,
}

/// What the relay was started with, to tell what has changed since.
pub(super) struct Started {
    pub(super) settings: Settings,
    files: AgentFiles,
}

impl Started {
    pub(super) fn with(settings: Settings) -> Self {
        let files = agent_files(&settings);
        Self { settings, files }
    }
}

/// Digests of the files that agents were built from, by the dotted keys that name them; nothing for one that cannot
/// be read.
type AgentFiles = BTreeMap<String, Option<[u8; 32]>>;

fn agent_files(settings: &Settings) -> AgentFiles {
    let mut files = AgentFiles::new();
    for (name, entry) in &settings.agents {
        for (key, path) in entry.backend.files() {
            files.insert(format!("agents.{name}.{key}"), digest(path));
        }
    }
    files
}

/// Larger files than this are of no use to an agent.
const MOST_READ: u64 = 1024 * 1024;

fn digest(path: &Path) -> Option<[u8; 32]> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Zeroizing::new(Vec::new());
    let file = File::open(path).ok()?;
    file.take(MOST_READ).read_to_end(&mut bytes).ok()?;
    Some(Sha256::digest(&*bytes).into())
}

/// Reads the settings again, applies what can be applied, and says what cannot.
pub(super) fn reread(
    flags: Flags,
    before: &Started,
    surround: &Surround<'_>,
    log: &LogHandle,
) -> Result<Reread, ConfigError> {
    let env = surround.env;
    let loaded = match config::load(&Sources { flags, env }) {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(%error, "the settings cannot be read again; going on with the old ones");
            return Err(error);
        }
    };
    log.reload(&loaded, surround);
    let needs_restart = needs_restart(before, &loaded.settings);
    if needs_restart.is_empty() {
        tracing::info!(
            "settings read again: log level and repetition, credentials and relevance policy are in force"
        );
    } else {
        tracing::warn!(
            ?needs_restart,
            "settings read again; these changes need a restart"
        );
    }
    Ok(Reread {
        loaded,
        needs_restart,
    })
}

/// What takes effect while running, and is not named when it changes.
const APPLIED: [&str; 7] = [
    "log.level",
    "log.repeat_burst",
    "log.repeat_window_secs",
    "policy",
    "connector.gateway_id",
    "connector.secret",
    "connector.delivery_key",
];

/// The dotted keys of changes that a running relay cannot take on.
fn needs_restart(before: &Started, after: &Settings) -> Vec<String> {
    let mut changed = shown_changes(&before.settings, after);
    let hidden = agent_changes(before, after);
    let of_agents = |key: &String| hidden.iter().any(|known| known.starts_with(&format!("{key}.")));
    changed.retain(|key| !of_agents(key));
    changed.extend(hidden);
    changed.extend(secret_changes(&before.settings, after));
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Secrets that are others now, but for those that are applied; what is shown of a secret is always the same.
fn secret_changes(before: &Settings, after: &Settings) -> Vec<String> {
    let exposed = |(key, secret): (&'static str, &'_ SecretString)| {
        (key, Zeroizing::new(secret.expose_secret().to_owned()))
    };
    let held: [BTreeMap<_, _>; 2] = [before, after].map(|settings| settings.secrets().map(exposed).collect());
    let keys = held[0].keys().chain(held[1].keys());
    keys.filter(|key| !is_applied(key) && held[0].get(*key) != held[1].get(*key))
        .map(|key| (*key).to_owned())
        .collect()
}

/// Whether a change of this key, or of the section that it stands in, takes effect while running.
fn is_applied(key: &str) -> bool {
    let section = key.split('.').next().unwrap_or(key);
    APPLIED.contains(&key) || APPLIED.contains(&section)
}

/// What has changed about agents that were there before: what is written of them, shown or not, and their files.
fn agent_changes(before: &Started, after: &Settings) -> Vec<String> {
    let mut changed = Vec::new();
    for (name, entry) in &after.agents {
        let old = before.settings.agents.get(name);
        let keys = old.into_iter().flat_map(|old| entry.differs_in(old));
        changed.extend(keys.map(|key| format!("agents.{name}.{key}")));
    }
    for (key, digest) in agent_files(after) {
        if before.files.get(&key).is_some_and(|old| *old != digest) {
            changed.push(key);
        }
    }
    changed
}

/// What has changed of what can be shown.
fn shown_changes(before: &Settings, after: &Settings) -> Vec<String> {
    let shown = |settings: &Settings| serde_json::to_value(settings).unwrap_or_default();
    let (before, after) = (shown(before), shown(after));
    let mut changed = Vec::new();
    for (section, new) in after.as_object().into_iter().flatten() {
        let old = &before[section];
        let gone = old.as_object().into_iter().flatten().map(|(key, _)| key);
        let gone = gone.filter(|key| new.get(key.as_str()).is_none());
        changed.extend(
            gone.map(|key| format!("{section}.{key}"))
                .filter(|key| !is_applied(key)),
        );
        match new.as_object() {
            _ if is_applied(section) || old == new => {}
            Some(keys) => changed.extend(
                keys.iter()
                    .filter(|(key, new)| old[key.as_str()] != **new)
                    .map(|(key, _)| format!("{section}.{key}"))
                    .filter(|key| !is_applied(key)),
            ),
            None => changed.push(section.clone()),
        }
    }
    changed
}

/// Puts credentials in force that differ from the present ones.
pub(super) fn rotate(credentials: &watch::Sender<Option<Credentials>>, loaded: &Loaded) -> bool {
    let Some(new) = boot::pinned_credentials(&loaded.settings) else {
        return false;
    };
    credentials.send_if_modified(|now| {
        let same = now.as_ref().is_some_and(|now| {
            now.gateway_id == new.gateway_id && now.secret.expose_secret() == new.secret.expose_secret()
        });
        if !same {
            *now = Some(new);
        }
        !same
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PolicyOverride;

    fn changes(before: Settings, after: &Settings) -> Vec<String> {
        needs_restart(&Started::with(before), after)
    }

    #[test]
    fn every_secret_but_the_applied_ones_is_compared_by_its_value() {
        let mut before = Settings::embedded("/nowhere");
        before.connector.secret = Some("one".into());
        before.connector.delivery_key = Some("one".into());
        before.idp.client_secret = Some("one".into());
        before.telemetry.headers = Some("one".into());
        assert!(changes(before.clone(), &before).is_empty());
        let mut after = before.clone();
        after.connector.secret = Some("two".into());
        after.connector.delivery_key = Some("two".into());
        after.idp.client_secret = Some("two".into());
        after.telemetry.headers = Some("two".into());
        let changed = ["idp.client_secret", "telemetry.headers"];
        assert_eq!(changes(before.clone(), &after), changed);
        after.telemetry.headers = None;
        assert_eq!(changes(before.clone(), &after), changed, "gone is a change too");
        assert_eq!(changes(after, &before), changed);
    }

    #[test]
    fn a_policy_that_was_taken_away_needs_no_restart() {
        let after = Settings::embedded("/nowhere");
        let mut before = after.clone();
        let policy = PolicyOverride::default();
        before.policy.insert("discord".to_owned(), policy);
        assert!(changes(before.clone(), &after).is_empty());
        assert!(changes(after, &before).is_empty());
    }
}
