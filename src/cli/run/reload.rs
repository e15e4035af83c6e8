//! Reloading the settings of a running relay: which changes apply immediately, and which need a restart.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::cli::ProcessEnv;
use crate::cli::log::LogHandle;
use crate::cli::sd_notify::{Notification, ServiceManager};
use crate::config::{self, ConfigError, Flags, LoadedConfig, Settings, Sources};
use crate::relay::{Credentials, provisioning};
use crate::serve::Reload;

/// The result of a reload.
pub(super) struct Reloaded {
    pub(super) loaded: LoadedConfig,
    /// Dotted keys of changes that need a restart.
    pub(super) needs_restart: Vec<String>,
}

/// What the relay was started with, for comparison.
pub(super) struct StartSettings {
    pub(super) settings: Settings,
    files: AgentFiles,
}

impl StartSettings {
    pub(super) fn new(settings: Settings) -> Self {
        let files = agent_files(&settings);
        Self { settings, files }
    }
}

/// Digests of the files that agents use, by dotted key; `None` for an unreadable file.
type AgentFiles = BTreeMap<String, Option<[u8; 32]>>;

fn agent_files(settings: &Settings) -> AgentFiles {
    let mut files = AgentFiles::new();
    for (name, entry) in &settings.agents {
        for (key, path) in entry.backend.files() {
            files.insert(format!("agents.{name}.{key}"), digest(path));
        }
    }
    for source in [settings.transcribe.source(), settings.speak.source()] {
        if let (_, Some(path)) = source.key {
            files.insert(format!("{}.api_key_file", source.section), digest(path));
        }
    }
    files
}

/// Maximum size of an agent's file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

fn digest(path: &Path) -> Option<[u8; 32]> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Zeroizing::new(Vec::new());
    let file = File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(Sha256::digest(&*bytes).into())
}

/// Reloads the settings, applies what can be applied, and reports what cannot.
pub(super) fn reload(
    flags: Flags,
    before: &StartSettings,
    process: &ProcessEnv<'_>,
    log: &LogHandle,
) -> Result<Reloaded, ConfigError> {
    let env = process.env;
    let checked = |loaded: LoadedConfig| loaded.check_names().map(|()| loaded);
    let loaded = match config::load(&Sources { flags, env }).and_then(checked) {
        Ok(loaded) => loaded,
        Err(error) => {
            tracing::error!(%error, "cannot reload the settings; keeping the old ones");
            return Err(error);
        }
    };
    log.reload(&loaded, process);
    let needs_restart = needs_restart(before, &loaded.settings);
    if needs_restart.is_empty() {
        tracing::info!(
            "settings reloaded: log level, rate limit, credentials and relevance policy are applied"
        );
    } else {
        tracing::warn!(?needs_restart, "settings reloaded; these changes need a restart");
    }
    Ok(Reloaded {
        loaded,
        needs_restart,
    })
}

/// Reloads for a signal, or for somebody who waits for the answer, and applies what was loaded.
pub(super) async fn reload_for(
    asker: Option<Reload>,
    manager: &ServiceManager,
    reload: impl FnOnce() -> Result<Reloaded, ConfigError>,
    apply: impl FnOnce(LoadedConfig),
) {
    manager.notify(&Notification::Reloading).await;
    let answer = reload().map(|reloaded| {
        apply(reloaded.loaded);
        reloaded.needs_restart
    });
    if let Some(asker) = asker {
        let _ = asker.send(answer.map_err(|error| error.to_string()));
    }
    manager.notify(&Notification::Ready).await;
}

/// Dotted keys of changes that need a restart.
fn needs_restart(before: &StartSettings, after: &Settings) -> Vec<String> {
    let mut changed = visible_changes(&before.settings, after);
    let of_agents = agent_changes(before, after);
    let is_detailed = |key: &String| {
        of_agents
            .iter()
            .any(|known| known.starts_with(&format!("{key}.")))
    };
    changed.retain(|key| !is_detailed(key));
    changed.extend(of_agents);
    changed.extend(secret_changes(&before.settings, after));
    changed.sort_unstable();
    changed.dedup();
    changed
}

/// Changed secrets, except those that are applied: serialized settings do not show secrets.
fn secret_changes(before: &Settings, after: &Settings) -> Vec<String> {
    let exposed = |(key, secret): (&'static str, &'_ SecretString)| {
        (key, Zeroizing::new(secret.expose_secret().to_owned()))
    };
    let held: [BTreeMap<_, _>; 2] = [before, after].map(|settings| settings.secrets().map(exposed).collect());
    let keys = held[0].keys().chain(held[1].keys());
    keys.filter(|key| !Settings::is_live(key) && held[0].get(*key) != held[1].get(*key))
        .map(|key| (*key).to_owned())
        .collect()
}

/// Changes of existing agents: their settings and their files.
fn agent_changes(before: &StartSettings, after: &Settings) -> Vec<String> {
    let mut changed = Vec::new();
    for (name, entry) in &after.agents {
        let old = before.settings.agents.get(name);
        let keys = old.into_iter().flat_map(|old| entry.changed_keys(old));
        changed.extend(keys.map(|key| format!("agents.{name}.{key}")));
    }
    for (key, digest) in agent_files(after) {
        if before.files.get(&key).is_some_and(|old| *old != digest) {
            changed.push(key);
        }
    }
    changed
}

/// Changes that are visible in the serialized settings.
fn visible_changes(before: &Settings, after: &Settings) -> Vec<String> {
    let shown = |settings: &Settings| serde_json::to_value(settings).unwrap_or_default();
    let (before, after) = (shown(before), shown(after));
    let mut changed = Vec::new();
    for (section, new) in after.as_object().into_iter().flatten() {
        let old = &before[section];
        let removed = old.as_object().into_iter().flatten().map(|(key, _)| key);
        let removed = removed.filter(|key| new.get(key.as_str()).is_none());
        changed.extend(
            removed
                .map(|key| format!("{section}.{key}"))
                .filter(|key| !Settings::is_live(key)),
        );
        match new.as_object() {
            _ if Settings::is_live(section) || old == new => {}
            Some(keys) => changed.extend(
                keys.iter()
                    .filter(|(key, new)| old[key.as_str()] != **new)
                    .map(|(key, _)| format!("{section}.{key}"))
                    .filter(|key| !Settings::is_live(key)),
            ),
            None => changed.push(section.clone()),
        }
    }
    changed
}

/// Uses the loaded credentials if they differ from the current ones; returns whether they do.
pub(super) fn rotate(credentials: &watch::Sender<Option<Credentials>>, loaded: &LoadedConfig) -> bool {
    let Some(new) = provisioning::pinned_credentials(&loaded.settings) else {
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
        needs_restart(&StartSettings::new(before), after)
    }

    #[test]
    fn secrets_are_compared_by_value() {
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
        assert_eq!(changes(before.clone(), &after), changed, "removed");
        assert_eq!(changes(after, &before), changed);
    }

    #[test]
    fn a_removed_policy_needs_no_restart() {
        let after = Settings::embedded("/nowhere");
        let mut before = after.clone();
        let policy = PolicyOverride::default();
        before.policy.insert("discord".to_owned(), policy);
        assert!(changes(before.clone(), &after).is_empty());
        assert!(changes(after, &before).is_empty());
    }
}
