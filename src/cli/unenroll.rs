//! `hermes-relay unenroll`: removes this gateway's credentials from Hermes' `.env` and lists what remains.
//!
//! Secret files, the journal and the connector's own record are kept and listed.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::exit::{self, fail, outln};
use super::format::printable;
use super::{Environment, SharedArgs};
use crate::config::dotenv_edit::{present, remove};
use crate::config::{self, LoadedConfig, Origin, Sources};

/// Variables that `enroll` writes.
const KEYS: [&str; 5] = [
    "GATEWAY_RELAY_ID",
    "GATEWAY_RELAY_SECRET",
    "GATEWAY_RELAY_DELIVERY_KEY",
    "GATEWAY_RELAY_URL",
    "GATEWAY_RELAY_WAKE_URL",
];
/// Maximum length of the confirmation.
const MAX_ANSWER_BYTES: u64 = 64;

/// Remove this gateway's credentials from the .env in Hermes' home.
///
/// Removes the variables that `enroll` wrote and keeps every other line. The connector still knows this gateway: revoke
/// it there too.
///
/// Exit codes: 0 removed or nothing to remove, 1 not removed, 78 invalid configuration.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hermes-relay unenroll --yes")]
pub(super) struct UnenrollArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
}

/// Runs the verb.
pub(super) fn run(args: &UnenrollArgs, env: Environment<'_>) -> ExitCode {
    let load = || {
        config::load(&Sources {
            flags: args.shared.flags(),
            env,
        })
    };
    let loaded = match load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    let Some(home) = loaded.settings.hermes_home.clone() else {
        let hint = Some("set HERMES_HOME, then try again");
        return fail(
            exit::CONFIGURATION,
            "there is no Hermes home to remove credentials from",
            hint,
        );
    };
    if env("HERMES_MANAGED").is_some_and(|managed| !managed.trim().is_empty())
        || home.join(".managed").exists()
    {
        let hint = Some("ask whoever hosts it to remove this gateway");
        return fail(
            exit::FAILED,
            "the hosting platform owns the credentials of a managed install",
            hint,
        );
    }
    let path = home.join(".env");
    let keys = match present(&path, &KEYS) {
        Ok(keys) => keys,
        Err(error) => return fail(exit::FAILED, error, None),
    };
    if keys.is_empty() {
        outln!(
            "Nothing to remove: {} contains no gateway credentials.",
            path.display()
        );
        list_remaining(&loaded, env);
        return ExitCode::SUCCESS;
    }
    match confirm(args.yes, &path, &keys) {
        Ok(true) => {}
        Ok(false) => return fail(exit::FAILED, "nothing was removed", None),
        Err(error) => {
            let hint = Some("pass --yes to remove them without confirmation");
            return fail(
                exit::FAILED,
                format!("cannot ask for confirmation ({error}); nothing was removed"),
                hint,
            );
        }
    }
    if let Err(error) = remove(&path, &KEYS) {
        return fail(exit::FAILED, error, None);
    }
    outln!("✓ Removed from {}: {}", path.display(), keys.join(", "));
    match load() {
        Ok(after) => list_remaining(&after, env),
        Err(error) => outln!("Cannot list what remains: {error}"),
    }
    let gateway = match &loaded.settings.connector.gateway_id {
        Some(id) => format!("the gateway `{}`", printable(id)),
        None => "this gateway".to_owned(),
    };
    outln!(
        "The connector still knows {gateway}: revoke it there. A running relay keeps its credentials until it is stopped."
    );
    ExitCode::SUCCESS
}

/// Asks for confirmation; an error without a terminal.
fn confirm(yes: bool, path: &Path, keys: &[&str]) -> io::Result<bool> {
    if yes {
        return Ok(true);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(io::Error::other("standard input is not a terminal"));
    }
    let mut err = anstream::stderr();
    write!(err, "Remove {} from {}? [y/N] ", keys.join(", "), path.display())?;
    err.flush()?;
    let mut answer = String::new();
    stdin.lock().take(MAX_ANSWER_BYTES).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Lists what still contains credentials.
fn list_remaining(loaded: &LoadedConfig, env: Environment<'_>) {
    let dotenv = loaded.settings.hermes_home.as_ref().map(|home| home.join(".env"));
    let files = loaded
        .credential_files
        .iter()
        .filter(|path| Some(*path) != dotenv.as_ref() && path.exists());
    for file in files {
        outln!(
            "Remains: the secret file {}; delete it if you do not need it any more.",
            file.display()
        );
    }
    for name in KEYS
        .iter()
        .filter(|name| env(name).is_some_and(|value| !value.trim().is_empty()))
    {
        outln!("Remains: {name} in the relay's environment.");
    }
    let connector = &loaded.settings.connector;
    let in_files = [
        ("connector.gateway_id", connector.gateway_id.is_some()),
        ("connector.secret", connector.secret.is_some()),
        ("connector.url", connector.url.is_some()),
        ("connector.wake_url", connector.wake_url.is_some()),
    ];
    for (key, set) in in_files {
        let path: Option<&PathBuf> = match loaded.origins.of(key) {
            Origin::OwnFile(path) | Origin::HermesConfig(path) | Origin::HermesEnv(path) => Some(path),
            Origin::Flag | Origin::Env(_) | Origin::Credential(_) | Origin::System(_) | Origin::Default => {
                None
            }
        };
        if let Some(path) = path.filter(|_| set) {
            outln!("Remains: `{key}` from {}.", path.display());
        }
    }
    let journal = &loaded.settings.state_dir;
    if journal.exists() {
        outln!("Remains: the journal in {}.", journal.display());
    }
}
