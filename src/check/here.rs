//! What is wrong on this machine before anything is dialled: settings, credentials, the state directory.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use super::case::{Case, Known, Place};
use super::explain;
use super::probe::Verdict;
use crate::config::secret::SecretError;
use crate::config::{self, ConfigError, Origin, Sources};
use crate::net::identity::{IdentityError, IdentitySource};
use crate::net::steps::Steps;
use crate::relay::provisioning;
use crate::store::{InspectError, Inspector, OpenError};
use crate::wire::{ConnectorUrl, UrlError};

/// Less free space than this is worth a word: the journal and its log fit, and little else.
const LITTLE_SPACE: u64 = 256 * 1024 * 1024;
/// With less than this the journal fails soon.
const NO_SPACE: u64 = 16 * 1024 * 1024;

/// Whether the settings can be read.
pub(super) fn settings(case: &mut Case<'_>) -> Vec<Verdict> {
    let sources = Sources {
        flags: case.flags.clone(),
        env: case.env,
    };
    let loaded = match config::load(&sources) {
        Ok(loaded) => loaded,
        Err(error) => return vec![Verdict::failed(error.to_string(), settings_remedy(&error))],
    };
    let from = match &loaded.own_file {
        Some(path) => path.display().to_string(),
        None => "no file of our own; environment and Hermes' files".to_owned(),
    };
    let look =
        "correct what the warning names; `hermes-relay config show` prints every setting with its origin";
    let warnings = loaded.warnings.iter();
    let mut verdicts: Vec<Verdict> = warnings.map(|warning| Verdict::warn(warning, look)).collect();
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok(from));
    }
    case.known = Some(Known {
        tls: provisioning::tls(&loaded.settings),
        loaded,
    });
    verdicts
}

fn settings_remedy(error: &ConfigError) -> String {
    match error {
        ConfigError::Missing { .. } => "correct --config or HERMES_RELAY_CONFIG, or leave it out".to_owned(),
        ConfigError::Unreadable { path, .. } => {
            format!("let this user read {}", path.display())
        }
        ConfigError::Wrong { path, .. } => format!(
            "correct it, then check with `hermes-relay config check {}`",
            path.display()
        ),
        ConfigError::Secret(SecretError::Open { path, .. }) => format!("chmod 600 {}", path.display()),
        ConfigError::Secret(_) => "correct the secret file, or name another".to_owned(),
        ConfigError::NoStateDir => "pass --state-dir DIR, or set HERMES_RELAY_STATE_DIR".to_owned(),
    }
}

/// Whether the connector's URL can be used.
pub(super) fn url(case: &mut Case<'_>) -> Vec<Verdict> {
    let Some(known) = &case.known else {
        return Vec::new();
    };
    let connector = &known.loaded.settings.connector;
    let Some(configured) = &connector.url else {
        let what = connector
            .url_veto
            .clone()
            .unwrap_or_else(|| "no connector URL is configured".to_owned());
        let remedy = "enrol with `hermes-relay enroll --connector-url URL`, set GATEWAY_RELAY_URL, or try everything on this \
                      machine with `hermes-relay dev`";
        return vec![Verdict::failed(what, remedy)];
    };
    let origin = known.loaded.origins.of("connector.url");
    let url = match ConnectorUrl::parse(configured) {
        Ok(url) => url,
        Err(error) => return vec![Verdict::failed(error.to_string(), url_remedy(&error, origin))],
    };
    if url.is_plaintext() && !url.is_loopback() && !connector.allow_plaintext {
        let what = format!("{url} is not encrypted, and the connector is not on this machine");
        let remedy = "use wss://, or set `connector.allow_plaintext: true` if anyone on the way may take over the link";
        return vec![Verdict::failed(what, remedy)];
    }
    let steps = match Steps::toward(url.dial_url(), known.tls.clone(), &case.proxies) {
        Ok(steps) => steps,
        Err(error) => {
            let (detail, remedy) = explain::dial(&error);
            return vec![Verdict::failed(detail, remedy)];
        }
    };
    let detail = format!("{url} ({origin})");
    case.place = Some(Place { url, steps });
    vec![Verdict::ok(detail)]
}

fn url_remedy(error: &UrlError, origin: &Origin) -> String {
    let what = match error {
        UrlError::Empty => "write an address there",
        UrlError::MissingScheme | UrlError::UnsupportedScheme(_) => "begin it with wss:// or https://",
        UrlError::QueryOrFragment => "leave out the query and the fragment",
        UrlError::Whitespace => "take the white space out",
        UrlError::Invalid(_) => "write it as wss://host/relay or wss://host:port/relay",
    };
    format!("correct the URL in {origin}: {what}")
}

/// Whether there is something to sign tokens with.
pub(super) fn credentials(case: &Case<'_>) -> Vec<Verdict> {
    let Some(known) = &case.known else {
        return Vec::new();
    };
    let settings = &known.loaded.settings;
    if let Some(pinned) = provisioning::pinned_credentials(settings) {
        let origin = known.loaded.origins.of("connector.secret");
        return vec![Verdict::ok(format!(
            "gateway {}, secret from {origin}",
            pinned.gateway_id
        ))];
    }
    let missing = match (&settings.connector.gateway_id, &settings.connector.secret) {
        (Some(_), None) => "a gateway id is set, but no secret",
        (None, Some(_)) => "a secret is set, but no gateway id",
        _ => "neither a gateway id nor a secret is set",
    };
    let remedy = "enrol with `hermes-relay enroll`, or set GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET_FILE";
    vec![match identity(case) {
        Ok(Identity::AtHand) => Verdict::ok(format!(
            "{missing}: the relay asks the connector for them when it starts"
        )),
        Ok(Identity::Missing) => Verdict::warn(format!("{missing}: the relay dials without a token"), remedy),
        Err(error) => Verdict::warn(format!("{missing}, and {error}"), remedy),
    }]
}

/// Whether there is an identity to ask the connector for credentials with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identity {
    AtHand,
    Missing,
}

fn identity(case: &Case<'_>) -> Result<Identity, IdentityError> {
    let Some(settings) = case.settings() else {
        return Ok(Identity::Missing);
    };
    let home = settings.hermes_home.clone().unwrap_or_else(|| ".".into());
    let source = IdentitySource::choose(case.env, &provisioning::idp_settings(settings), &home)?;
    Ok(if source.is_at_hand() {
        Identity::AtHand
    } else {
        Identity::Missing
    })
}

/// Whether the relay would ask the connector for credentials when it starts.
pub(super) fn can_provision(case: &Case<'_>) -> bool {
    matches!(identity(case), Ok(Identity::AtHand))
}

/// Whether the journal has a place.
pub(super) fn state_dir(case: &Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    let dir = settings.state_dir.as_path();
    let shown = dir.display();
    let place = match std::fs::metadata(dir) {
        Ok(meta) if !meta.is_dir() => {
            return vec![Verdict::failed(
                format!("{shown} is not a directory"),
                "move that file away, or choose another place with --state-dir",
            )];
        }
        Ok(meta) => {
            if let Err(error) = tempfile::tempfile_in(dir) {
                let remedy = if meta.uid() == rustix::process::geteuid().as_raw() {
                    format!(
                        "make it writable (`chmod 700 {shown}`), or choose another place with --state-dir"
                    )
                } else {
                    let owner = meta.uid();
                    format!(
                        "it belongs to user {owner}: run the doctor as the user that runs the relay, or choose another place with --state-dir"
                    )
                };
                return vec![Verdict::failed(
                    format!("{shown} cannot be written: {error}"),
                    remedy,
                )];
            }
            let mode = meta.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                let what = format!("{shown} is open to other users (mode {mode:04o})");
                let remedy = format!("chmod 700 {shown}; the relay does so itself when it starts");
                return vec![Verdict::warn(what, remedy)];
            }
            dir
        }
        Err(error) => match creatable_below(dir) {
            Ok(above) => above,
            Err(why) => {
                let what = format!("{shown} cannot be made: {}", why.unwrap_or(error));
                let remedy = "make it as a user who may and give it to the relay's user, or choose another place with --state-dir";
                return vec![Verdict::failed(what, remedy)];
            }
        },
    };
    let made = if place == dir {
        ""
    } else {
        ", made when the relay starts"
    };
    let Some(free) = free_space(place) else {
        return vec![Verdict::ok(format!("{shown}{made}"))];
    };
    let detail = format!("{shown}{made}, {} MiB free", free >> 20);
    let remedy = "free some space on that disk";
    vec![match free {
        ..NO_SPACE => Verdict::failed(detail, remedy),
        NO_SPACE..LITTLE_SPACE => Verdict::warn(detail, remedy),
        LITTLE_SPACE.. => Verdict::ok(detail),
    }]
}

/// The nearest directory above that exists, when something can be made in it; else why not, where that is known.
fn creatable_below(dir: &Path) -> Result<&Path, Option<io::Error>> {
    let above = dir.ancestors().skip(1).find(|above| above.exists()).ok_or(None)?;
    let above = if above.as_os_str().is_empty() {
        Path::new(".")
    } else {
        above
    };
    let may = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if !above.is_dir() {
        return Err(Some(io::ErrorKind::NotADirectory.into()));
    }
    rustix::fs::access(above, may).map_err(|errno| Some(errno.into()))?;
    Ok(above)
}

fn free_space(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether the journal can be read, and what waits in it.
pub(super) fn journal(case: &Case<'_>) -> Vec<Verdict> {
    let Some(settings) = case.settings() else {
        return Vec::new();
    };
    let counted = Inspector::open(&settings.state_dir).and_then(|journal| journal.counts());
    vec![match counted {
        Ok(counts) => {
            let detail = format!(
                "{} waiting, {} running, {} ops owed, {} set aside",
                counts.queued, counts.running, counts.ops, counts.quarantined
            );
            if counts.quarantined == 0 {
                Verdict::ok(detail)
            } else {
                let remedy = "look at what could not be read with `hermes-relay journal list`, then drop it";
                Verdict::warn(detail, remedy)
            }
        }
        Err(InspectError::NoJournal(_)) => Verdict::ok("none yet; made when the relay starts"),
        Err(error) => {
            let remedy = match &error {
                InspectError::Open(OpenError::Corrupt { .. }) => {
                    "keep a copy of the journal, then start once with --fresh-journal-if-corrupt"
                }
                InspectError::Open(OpenError::Newer { .. }) => {
                    "run the doctor of the version that the relay has"
                }
                InspectError::Open(OpenError::Directory { .. } | OpenError::ReadOnly { .. }) => {
                    "run the doctor as the user that runs the relay"
                }
                _ => {
                    "check that this user may read it and that the disk is well; move nothing away before that"
                }
            };
            Verdict::failed(error.to_string(), remedy)
        }
    }]
}
