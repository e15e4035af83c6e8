//! The settings, read again while the relay runs: what takes effect at once, and what needs a restart.

use tokio::sync::watch;

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

/// Reads the settings again, applies what can be applied, and says what cannot.
pub(super) fn reread(
    flags: Flags,
    before: &Settings,
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
fn needs_restart(before: &Settings, after: &Settings) -> Vec<String> {
    let shown = |settings: &Settings| serde_json::to_value(settings).unwrap_or_default();
    let (before, after) = (shown(before), shown(after));
    let mut changed = Vec::new();
    for (section, new) in after.as_object().into_iter().flatten() {
        let old = &before[section];
        let gone = old.as_object().into_iter().flatten().map(|(key, _)| key);
        let gone = gone.filter(|key| new.get(key.as_str()).is_none());
        changed.extend(gone.map(|key| format!("{section}.{key}")));
        match new.as_object() {
            _ if APPLIED.contains(&section.as_str()) || old == new => {}
            Some(keys) => changed.extend(
                keys.iter()
                    .filter(|(key, new)| old[key.as_str()] != **new)
                    .map(|(key, _)| format!("{section}.{key}"))
                    .filter(|key| !APPLIED.contains(&key.as_str())),
            ),
            None => changed.push(section.clone()),
        }
    }
    changed
}

/// Puts credentials in force that differ from the present ones.
pub(super) fn rotate(credentials: &watch::Sender<Option<Credentials>>, loaded: &Loaded) -> bool {
    use secrecy::ExposeSecret as _;
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
