//! Probes of this machine: settings, credentials, the state directory, the journal, the agents.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use super::super::access::stored;
use super::super::format::shell_word;
use super::super::run::NO_URL;
use super::context::{CheckContext, LoadedSettings, Peer, PeerTarget, is_workers_file};
use super::network::explain_dial;
use super::probe::ProbeResult;
use crate::access::Gate;
use crate::agent::{AgentHealth, BUILT_IN};
use crate::config::secret::SecretError;
use crate::config::{self, AgentEntry, ConfigError, Origin, Settings, Sources};
use crate::net::http::excerpt;
use crate::net::identity::{IdentityError, IdentitySource};
use crate::net::steps::Steps;
use crate::relay::provisioning;
use crate::relay::{AgentEnvironment, build_agents};
use crate::store::{InspectError, Inspector, OpenError, check_state_dir};
use crate::wire::{ConnectorUrl, UrlError};

/// Free space below which a warning is reported.
const LOW_SPACE: u64 = 256 * 1024 * 1024;
/// Free space below which the journal fails soon.
const MIN_SPACE: u64 = 16 * 1024 * 1024;

/// Checks whether the settings can be loaded.
pub(super) fn settings(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let sources = Sources {
        flags: context.flags.clone(),
        env: context.env,
    };
    let loaded = match config::load(&sources) {
        Ok(loaded) => loaded,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), settings_remedy(&error))],
    };
    let from = match &loaded.own_file {
        Some(path) => path.display().to_string(),
        None => "no settings file; environment and Hermes' files".to_owned(),
    };
    let remedy =
        "correct what the warning names; `hermes-relay config show` prints every setting with its origin";
    let warnings = loaded.warnings.iter();
    let mut results: Vec<ProbeResult> = warnings
        .map(|warning| ProbeResult::warn(warning, remedy))
        .collect();
    if results.is_empty() {
        results.push(ProbeResult::ok(from));
    }
    context.loaded = Some(LoadedSettings {
        tls: provisioning::tls(&loaded.settings),
        loaded,
    });
    results
}

fn settings_remedy(error: &ConfigError) -> String {
    match error {
        ConfigError::Missing { .. } => "correct --config or HERMES_RELAY_CONFIG, or omit it".to_owned(),
        ConfigError::Unreadable { path, .. } | ConfigError::UnreadableRules { path, .. } => {
            format!("let this user read {}", path.display())
        }
        ConfigError::UnreadRule { path, line } => {
            format!("write line {line} of {} as NAME=value", path.display())
        }
        ConfigError::Invalid { path, .. } => format!(
            "correct it, then check with `hermes-relay config check {}`",
            shell_word(path)
        ),
        ConfigError::Secret(SecretError::Open { path, .. }) => format!("chmod 600 {}", path.display()),
        ConfigError::Secret(_) => "correct the secret file, or name another".to_owned(),
        ConfigError::Exclusive { .. } => {
            "leave each platform to one of them: remove it from GATEWAY_RELAY_PLATFORMS or `connector.identities`, or remove the bot \
             from `direct` and omit --telegram and --discord"
                .to_owned()
        }
        ConfigError::NoAccessMode { path, .. } => {
            format!(
                "add the line `  mode: pair` below `access:` in {}",
                path.display()
            )
        }
        ConfigError::NoStateDir => "pass --state-dir DIR, or set HERMES_RELAY_STATE_DIR".to_owned(),
    }
}

/// Checks the connector URL.
pub(super) fn url(context: &mut CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let connector = &known.loaded.settings.connector;
    let Some(configured) = &connector.url else {
        let what = connector
            .url_veto
            .clone()
            .unwrap_or_else(|| "no connector URL is configured".to_owned());
        return vec![ProbeResult::failed(what, NO_URL)];
    };
    let origin = known.loaded.origins.of("connector.url");
    let url = match ConnectorUrl::parse(configured) {
        Ok(url) => url,
        Err(error) => return vec![ProbeResult::failed(error.to_string(), url_remedy(&error, origin))],
    };
    if url.is_plaintext() && !url.is_loopback() && !connector.allow_plaintext {
        let what = format!("{url} is not encrypted, and the connector is not on this machine");
        let remedy = "use wss://, or set `connector.allow_plaintext: true` if you accept that anyone on the network can take over the link";
        return vec![ProbeResult::failed(what, remedy)];
    }
    let steps = match Steps::toward(url.dial_url(), known.tls.clone(), &context.proxies) {
        Ok(steps) => steps,
        Err(error) => {
            let (detail, remedy) = explain_dial(&error, Peer::Connector);
            return vec![ProbeResult::failed(detail, remedy)];
        }
    };
    let detail = format!("{url} ({origin})");
    context.target = Some(PeerTarget {
        peer: Peer::Connector,
        host: url.host().to_owned(),
        is_loopback: url.is_loopback(),
        is_plaintext: url.is_plaintext(),
        http_base: url.http_base().to_owned(),
        steps,
    });
    context.connector = Some(url);
    vec![ProbeResult::ok(detail)]
}

fn url_remedy(error: &UrlError, origin: &Origin) -> String {
    let what = match error {
        UrlError::Empty => "enter a URL",
        UrlError::MissingScheme | UrlError::UnsupportedScheme(_) => "start it with wss:// or https://",
        UrlError::QueryOrFragment => "remove the query and the fragment",
        UrlError::Whitespace => "remove the white space",
        UrlError::Invalid(_) => "write it as wss://host/relay or wss://host:port/relay",
    };
    format!("correct the URL in {origin}: {what}")
}

/// Checks whether there are credentials.
pub(super) fn credentials(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let settings = &known.loaded.settings;
    if let Some(pinned) = provisioning::pinned_credentials(settings) {
        let origin = known.loaded.origins.of("connector.secret");
        return vec![ProbeResult::ok(format!(
            "gateway {}, secret from {origin}",
            pinned.gateway_id
        ))];
    }
    let missing = match (&settings.connector.gateway_id, &settings.connector.secret) {
        (Some(_), None) => "a gateway id is set, but no secret",
        (None, Some(_)) => "a secret is set, but no gateway id",
        _ => "neither a gateway id nor a secret is set",
    };
    let remedy = "enroll with `hermes-relay enroll`, or set GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET_FILE";
    vec![match identity(context) {
        Ok(IdentityState::Available) => ProbeResult::ok(format!(
            "{missing}: the relay requests them from the connector at its start"
        )),
        Ok(IdentityState::Missing) => {
            ProbeResult::warn(format!("{missing}: the relay dials without a token"), remedy)
        }
        Err(error) => ProbeResult::warn(format!("{missing}, and {error}"), remedy),
    }]
}

/// Whether there is an identity to request credentials with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IdentityState {
    Available,
    Missing,
}

fn identity(context: &CheckContext<'_>) -> Result<IdentityState, IdentityError> {
    let Some(settings) = context.settings() else {
        return Ok(IdentityState::Missing);
    };
    let home = settings.hermes_home.clone().unwrap_or_else(|| ".".into());
    let source = IdentitySource::choose(context.env, &provisioning::idp_settings(settings), &home)?;
    Ok(if source.is_at_hand() {
        IdentityState::Available
    } else {
        IdentityState::Missing
    })
}

/// Whether the relay would request credentials at its start.
pub(super) fn can_provision(context: &CheckContext<'_>) -> bool {
    matches!(identity(context), Ok(IdentityState::Available))
}

/// Checks the state directory.
pub(super) fn state_dir(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let dir = settings.state_dir.as_path();
    let shown = dir.display();
    let existing = match std::fs::metadata(dir) {
        Ok(meta) if !meta.is_dir() => {
            return vec![ProbeResult::failed(
                format!("{shown} is not a directory"),
                "move that file, or choose another directory with --state-dir",
            )];
        }
        Ok(meta) => {
            if let Err(error) = tempfile::tempfile_in(dir) {
                let remedy = if meta.uid() == rustix::process::geteuid().as_raw() {
                    format!(
                        "make it writable (`chmod 700 {shown}`), or choose another directory with --state-dir"
                    )
                } else {
                    let owner = meta.uid();
                    format!(
                        "it belongs to user {owner}: run the doctor as the user that runs the relay, or choose another directory with --state-dir"
                    )
                };
                return vec![ProbeResult::failed(
                    format!("{shown} cannot be written: {error}"),
                    remedy,
                )];
            }
            if let Err(error) = check_state_dir(dir, settings.state_dir_assigned) {
                let what = error.to_string();
                return vec![match error {
                    OpenError::OtherUser { owner, .. } => {
                        ProbeResult::warn(what, format!("run the relay, and this doctor, as user {owner}"))
                    }
                    _ => ProbeResult::failed(what, "choose an empty directory with --state-dir"),
                }];
            }
            let mode = meta.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                let what = format!("{shown} is open to other users (mode {mode:04o})");
                let remedy = format!("chmod 700 {shown}; the relay does so itself when it starts");
                return vec![ProbeResult::warn(what, remedy)];
            }
            dir
        }
        Err(error) => match writable_ancestor(dir) {
            Ok(above) => above,
            Err(why) => {
                let what = format!("{shown} cannot be created: {}", why.unwrap_or(error));
                let remedy =
                    "create it and give it to the relay's user, or choose another directory with --state-dir";
                return vec![ProbeResult::failed(what, remedy)];
            }
        },
    };
    let created = if existing == dir {
        ""
    } else {
        ", created at the relay's start"
    };
    let Some(free) = free_space(existing) else {
        return vec![ProbeResult::ok(format!("{shown}{created}"))];
    };
    let detail = format!("{shown}{created}, {} MiB free", free >> 20);
    let remedy = "free some space on that disk";
    vec![match free {
        ..MIN_SPACE => ProbeResult::failed(detail, remedy),
        MIN_SPACE..LOW_SPACE => ProbeResult::warn(detail, remedy),
        LOW_SPACE.. => ProbeResult::ok(detail),
    }]
}

/// The nearest existing directory above, if it is writable; else the cause, if known.
fn writable_ancestor(dir: &Path) -> Result<&Path, Option<io::Error>> {
    let above = dir.ancestors().skip(1).find(|above| above.exists()).ok_or(None)?;
    let above = if above.as_os_str().is_empty() {
        Path::new(".")
    } else {
        above
    };
    let mode = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if !above.is_dir() {
        return Err(Some(io::ErrorKind::NotADirectory.into()));
    }
    rustix::fs::access(above, mode).map_err(|errno| Some(errno.into()))?;
    Ok(above)
}

fn free_space(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Checks whether the journal can be read, and counts its entries.
pub(super) fn journal(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let counted = Inspector::open(&settings.state_dir).and_then(|journal| journal.counts());
    vec![match counted {
        Ok(counts) => {
            let detail = format!(
                "{} waiting, {} running, {} ops to send, {} quarantined",
                counts.queued, counts.running, counts.ops, counts.quarantined
            );
            if counts.quarantined == 0 {
                ProbeResult::ok(detail)
            } else {
                let remedy = "list the quarantined frames with `hermes-relay journal list`, then drop them";
                ProbeResult::warn(detail, remedy)
            }
        }
        Err(InspectError::NoJournal(_)) => ProbeResult::ok("none yet; created at the relay's start"),
        Err(error) => {
            let remedy = match &error {
                InspectError::Open(OpenError::Corrupt { .. }) => {
                    "copy the journal, then start once with --fresh-journal-if-corrupt"
                }
                InspectError::Open(OpenError::Newer { .. } | OpenError::NewerLog { .. }) => {
                    "run the doctor of the relay's version"
                }
                InspectError::Open(OpenError::Directory { .. } | OpenError::ReadOnly { .. }) => {
                    "run the doctor as the user that runs the relay"
                }
                _ => "check the permissions and the disk before you move anything",
            };
            ProbeResult::failed(error.to_string(), remedy)
        }
    }]
}

/// Checks the platforms that the relay announces.
pub(super) fn platforms(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(known) = &context.loaded else {
        return Vec::new();
    };
    let warnings = known.loaded.settings.platform_warnings();
    if !warnings.is_empty() {
        let remedy = "write the names that the connector uses, for instance GATEWAY_RELAY_PLATFORMS=discord,telegram in the .env of \
                      Hermes' home, then restart the relay";
        let warn = |warning| ProbeResult::warn(warning, remedy);
        return warnings.into_iter().map(warn).collect();
    }
    let bots: Vec<ProbeResult> = [
        (Peer::Telegram, "telegram", "direct.telegram"),
        (Peer::Discord, "discord", "direct.discord"),
    ]
    .into_iter()
    .filter(|(peer, ..)| context.has_peer(*peer))
    .map(|(_, platform, key)| {
        let origin = known.loaded.origins.of(key);
        ProbeResult::ok(format!("{platform}, without a connector ({origin})"))
    })
    .collect();
    if !context.has_peer(Peer::Connector) {
        return bots;
    }
    let identities = known.loaded.settings.connector.identities.iter();
    let names: Vec<String> = identities.map(|identity| excerpt(&identity.platform)).collect();
    let origin = known.loaded.origins.of("connector.identities");
    let announced = ProbeResult::ok(format!("{} ({origin})", names.join(", ")));
    std::iter::once(announced).chain(bots).collect()
}

/// Checks whether everybody may drive an agent that can act, and whether somebody can approve those who ask.
pub(super) fn access(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let remedy = "set `access.mode: pair` and make yourself the owner with `hermes-relay access owner PLATFORM:ID`, or list people \
                  with `access.mode: list`";
    if let Some(warning) = settings.access_warning() {
        return vec![ProbeResult::warn(warning, remedy)];
    }
    let rows = match Inspector::open(&settings.state_dir).and_then(|journal| journal.access()) {
        Ok(rows) => rows,
        Err(InspectError::NoJournal(_)) => Vec::new(),
        Err(error) => {
            return vec![ProbeResult::warn(
                error.to_string(),
                "see the check of the journal",
            )];
        }
    };
    let gate = Gate::new(settings.access.clone(), rows.into_iter().map(stored));
    vec![match gate.owner_warning() {
        Some(warning) => ProbeResult::warn(
            warning,
            "make yourself the owner with `hermes-relay access owner PLATFORM:ID`",
        ),
        None => ProbeResult::ok(format!("mode {}", settings.access.mode)),
    }]
}

/// Timeout of an agent's shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks every configured agent, all concurrently.
pub(super) async fn agents(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let mut results: Vec<ProbeResult> = used_agents(settings)
        .into_iter()
        .filter(|name| !settings.agents.contains_key(*name))
        .map(|name| unlisted(name).about(name))
        .collect();
    let checks = settings
        .agents
        .iter()
        .map(|(name, entry)| async move { check_agent(context, settings, name, entry).await.about(name) });
    results.extend(join_all(checks).await);
    results
}

/// The agents that receive messages, each once.
fn used_agents(settings: &Settings) -> Vec<&str> {
    if let Some(worker) = settings.worker.as_ref().filter(|_| is_workers_file(settings)) {
        return vec![&worker.agent];
    }
    settings.answering_agents()
}

fn unlisted(name: &str) -> ProbeResult {
    if BUILT_IN.contains(&name) {
        return ProbeResult::ok("built in");
    }
    let what = format!("there is no agent named `{name}`");
    let remedy =
        "name one from `agents:` in the settings or a built-in one; `hermes-relay agents list` lists all";
    ProbeResult::failed(what, remedy)
}

async fn check_agent(
    context: &CheckContext<'_>,
    settings: &Settings,
    name: &str,
    entry: &AgentEntry,
) -> ProbeResult {
    let Some(known) = &context.loaded else {
        return ProbeResult::skipped("there are no settings");
    };
    let mut alone = settings.clone();
    alone.agents = [(name.to_owned(), entry.clone())].into();
    let environment = AgentEnvironment {
        env: context.env,
        base: context.base.clone(),
        tls: known.tls.clone(),
        proxies: context.proxies.clone(),
    };
    let problem = if used_agents(settings).contains(&name) {
        ProbeResult::failed
    } else {
        ProbeResult::warn
    };
    let remedy = |first: &str| format!("{first}, then try `hermes-relay agents test {name}`");
    let corrected = if entry.backend.starts_program() {
        remedy("correct its settings")
    } else {
        remedy("start its server, or correct its settings")
    };
    let slot = match build_agents(&alone, &environment, |_| true) {
        Ok(agents) => agents.into_iter().next(),
        Err(error) => return problem(error.to_string(), remedy("correct its settings")),
    };
    let Some((_, slot)) = slot else {
        return ProbeResult::skipped("it was not built");
    };
    let health = context.step(slot.agent.health()).await;
    let deadline = context.step_deadline().min(Instant::now() + SHUTDOWN_TIMEOUT);
    let _ = timeout_at(deadline, slot.agent.shutdown()).await;
    match health {
        Some(AgentHealth::Ready) => ProbeResult::ok("ready"),
        Some(AgentHealth::Degraded(why)) => ProbeResult::warn(why, corrected),
        Some(AgentHealth::Down(why)) => problem(why, corrected),
        Some(AgentHealth::NotInstalled(why)) => problem(why, remedy("install its program")),
        None => problem("the health check timed out".to_owned(), corrected),
    }
}
