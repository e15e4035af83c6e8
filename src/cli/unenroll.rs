//! `hermes-relay unenroll`: takes this gateway's credentials out of Hermes' `.env`, and says what remains.
//!
//! It touches nothing else: secret files, the journal and the connector's own record stay, and are named.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::exit::{self, fail};
use super::{Environment, SharedArgs};
use crate::config::dotenv_remove::{present, remove};
use crate::config::{self, Loaded, Origin, Sources};

/// What enrolment writes.
const KEYS: [&str; 5] = [
    "GATEWAY_RELAY_ID",
    "GATEWAY_RELAY_SECRET",
    "GATEWAY_RELAY_DELIVERY_KEY",
    "GATEWAY_RELAY_URL",
    "GATEWAY_RELAY_WAKE_URL",
];
/// Longest answer to the question.
const MOST_ANSWER: u64 = 64;

/// Remove this gateway's credentials from the .env in Hermes' home.
///
/// Takes out what `enroll` wrote and leaves every other line as it stands. The connector still knows this gateway: revoke
/// it there too.
///
/// Exit codes: 0 removed or nothing to remove, 1 not removed, 78 the configuration cannot be used.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  hermes-relay unenroll --yes")]
pub(super) struct UnenrollArgs {
    #[command(flatten)]
    shared: SharedArgs,
    /// Do not ask.
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
            "the credentials of a managed install are not ours to remove",
            hint,
        );
    }
    let path = home.join(".env");
    let keys = match present(&path, &KEYS) {
        Ok(keys) => keys,
        Err(error) => return fail(exit::FAILED, error, None),
    };
    if keys.is_empty() {
        say(&format!(
            "Nothing to remove: {} holds no credentials of a gateway.",
            path.display()
        ));
        tell_rest(&loaded, env);
        return ExitCode::SUCCESS;
    }
    match agreed(args.yes, &path, &keys) {
        Ok(true) => {}
        Ok(false) => return fail(exit::FAILED, "nothing was removed", None),
        Err(error) => {
            let hint = Some("pass --yes to remove them without a question");
            return fail(
                exit::FAILED,
                format!("nobody can be asked ({error}); nothing was removed"),
                hint,
            );
        }
    }
    if let Err(error) = remove(&path, &KEYS) {
        return fail(exit::FAILED, error, None);
    }
    say(&format!("✓ Removed from {}: {}", path.display(), keys.join(", ")));
    match load() {
        Ok(after) => tell_rest(&after, env),
        Err(error) => say(&format!("What remains cannot be told: {error}")),
    }
    say(&format!(
        "The connector still knows {}: revoke it there. A relay that runs keeps its credentials until it is stopped.",
        loaded.settings.connector.gateway_id.as_deref().map_or_else(
            || "this gateway".to_owned(),
            |id| format!("the gateway \"{}\"", printable(id))
        )
    ));
    ExitCode::SUCCESS
}

/// Whether a person agrees; an error when there is nobody to ask.
fn agreed(yes: bool, path: &Path, keys: &[&str]) -> io::Result<bool> {
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
    stdin.lock().take(MOST_ANSWER).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Names what still holds a credential, or would.
fn tell_rest(loaded: &Loaded, env: Environment<'_>) {
    let dotenv = loaded.settings.hermes_home.as_ref().map(|home| home.join(".env"));
    let files = loaded
        .credential_files
        .iter()
        .filter(|path| Some(*path) != dotenv.as_ref() && path.exists());
    for file in files {
        say(&format!(
            "Remains: the secret file {}; delete it if it is no longer needed.",
            file.display()
        ));
    }
    for name in KEYS
        .iter()
        .filter(|name| env(name).is_some_and(|value| !value.trim().is_empty()))
    {
        say(&format!(
            "Remains: {name} in the environment of whoever starts the relay."
        ));
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
            Origin::Flag | Origin::Env(_) | Origin::Credential(_) | Origin::Default => None,
        };
        if let Some(path) = path.filter(|_| set) {
            say(&format!("Remains: `{key}` from {}.", path.display()));
        }
    }
    let journal = &loaded.settings.state_dir;
    if journal.exists() {
        say(&format!("Remains: the journal in {}.", journal.display()));
    }
}

fn printable(id: &str) -> String {
    id.chars().filter(|c| !c.is_control()).take(80).collect()
}

fn say(line: &str) {
    // Nobody reads it any more: the exit code still tells.
    let _ = writeln!(anstream::stdout(), "{line}");
}
