//! `hermes-relay service`: installs, removes and checks the systemd unit.
//!
//! Installing writes one file and prints the commands that start it, or runs them with `--now`. Removing disables and stops
//! the service first, while systemd knows its unit. A unit file that was edited is neither overwritten nor removed without
//! `--force`.

mod running;
mod status;
mod unit;

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand, ValueEnum};

use super::Environment;
use super::exit::{self, errln, fail, outln};
pub(super) use running::ServiceUnit;
use unit::{UnitOptions, UnitState, secret_of, state_of, unit_state, user_of};

/// Run the relay as a systemd service: install, remove or check its unit.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  hermes-relay service install --user --dry-run\n  hermes-relay service status --user"
)]
pub(super) struct ServiceArgs {
    #[command(subcommand)]
    verb: ServiceVerb,
}

#[derive(Subcommand, Debug)]
enum ServiceVerb {
    /// Write the unit, verify it, and print the commands that start it; --now runs them.
    ///
    /// With --user or --run-as, the unit keeps `HERMES_HOME`, `HERMES_RELAY_CONFIG` and `HERMES_RELAY_STATE_DIR` of this shell, and with
    /// --user also its PATH, so that the service finds the agents that you find.
    ///
    /// Exit codes: 0 written, 1 not written, invalid or not started, 2 conflicting options, 78 the program or the account cannot
    /// be used, or with --now the account or the gateway's secret is missing.
    #[command(
        after_help = "Examples:\n  hermes-relay service install --user               # with your own Hermes and agents\n  sudo hermes-relay service install --run-as $USER  # the same, started at boot\n  sudo hermes-relay service install --profile relay # agents over HTTP only, sandboxed\n  hermes-relay service install --user --now         # and start it\n  hermes-relay service install --user --worker --config worker.yaml   # a worker of a pool\n  hermes-relay service install --dry-run            # print the unit, write nothing"
    )]
    Install(InstallArgs),
    /// Stop and disable the service, and remove the unit.
    ///
    /// Exit codes: 0 removed or not installed, 1 not removed, 78 there is no home directory.
    #[command(
        after_help = "Examples:\n  hermes-relay service uninstall --user\n  sudo hermes-relay service uninstall"
    )]
    Uninstall {
        #[command(flatten)]
        location: LocationArgs,
        #[command(flatten)]
        safety: SafetyArgs,
    },
    /// Show which unit is installed, whether it is valid, and its state in systemd.
    ///
    /// Exit codes: 0 a valid unit is installed, 1 otherwise.
    #[command(
        after_help = "Examples:\n  hermes-relay service status --user\n  hermes-relay service status --json"
    )]
    Status {
        #[command(flatten)]
        location: LocationArgs,
        /// Print a JSON object on one line, errors included.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
struct InstallArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// Sandbox profile: agents (may start programs) or relay (may not).
    #[arg(long, value_enum, default_value_t = Profile::Agents)]
    profile: Profile,
    /// Account of the relay and its agents; uses that account's ~/.hermes [default: hermes-relay].
    #[arg(long, value_name = "ACCOUNT", value_parser = unit::account, conflicts_with = "user")]
    run_as: Option<String>,
    /// Program that the unit starts [default: this one].
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Settings file that the service uses [default: as `run` finds it].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(from_global)]
    state_dir: Option<PathBuf>,
    /// Enable the service and start it, or restart it.
    #[arg(long, conflicts_with = "unit_dir")]
    now: bool,
    #[command(flatten)]
    safety: SafetyArgs,
}

#[derive(Args, Debug)]
struct LocationArgs {
    /// Use your own user's systemd instead of the system's.
    #[arg(long)]
    user: bool,
    /// Directory of units [default: /etc/systemd/system, or ~/.config/systemd/user with --user].
    #[arg(long, value_name = "DIR")]
    unit_dir: Option<PathBuf>,
    /// The service of a worker, instead of the relay's.
    #[arg(long)]
    worker: bool,
}

impl LocationArgs {
    /// The names of the units that this is about.
    fn units(&self) -> &'static [&'static str] {
        if self.worker { &[WORKER_UNIT] } else { &UNITS }
    }
}

#[derive(Args, Debug)]
struct SafetyArgs {
    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Overwrite or remove the file even if it was edited.
    #[arg(long)]
    force: bool,
}

/// The sandbox profile of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    Agents,
    Relay,
}

/// The name under which the unit of a worker is installed.
const WORKER_UNIT: &str = "hermes-relay-worker.service";
/// The names under which units of a relay are installed.
const UNITS: [&str; 2] = ["hermes-relay.service", "hermes-relay-only.service"];

/// Runs the verb.
pub(super) fn run(args: &ServiceArgs, env: Environment<'_>) -> ExitCode {
    match &args.verb {
        ServiceVerb::Install(args) => install(args, env),
        ServiceVerb::Uninstall { location, safety } => uninstall(location, safety, env),
        ServiceVerb::Status { location, json } => status::status(location, *json, env),
    }
}

/// Whether systemd runs this machine.
pub(super) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Installs the service of this user and starts it.
pub(super) fn install_for_user(config: Option<&Path>, env: Environment<'_>) -> ExitCode {
    let args = InstallArgs {
        location: LocationArgs {
            user: true,
            unit_dir: None,
            worker: false,
        },
        profile: Profile::Agents,
        run_as: None,
        binary: None,
        config: config.map(Path::to_owned),
        state_dir: None,
        now: true,
        safety: SafetyArgs {
            dry_run: false,
            force: false,
        },
    };
    install(&args, env)
}

fn install(args: &InstallArgs, env: Environment<'_>) -> ExitCode {
    let InstallArgs {
        location,
        profile,
        safety,
        ..
    } = args;
    let run_as = args.run_as.as_deref();
    let (template, name) = match (location.user, profile) {
        (false, Profile::Agents) => (unit::AGENTS, UNITS[0]),
        (false, Profile::Relay) => (unit::RELAY_ONLY, UNITS[1]),
        (true, Profile::Agents) => (unit::USER, UNITS[0]),
        (true, Profile::Relay) => {
            let what = "a user's systemd does not support the sandbox of the relay profile";
            return fail(exit::USAGE, what, Some("omit --user or --profile relay"));
        }
    };
    let name = if location.worker { WORKER_UNIT } else { name };
    if location.worker && *profile == Profile::Relay {
        let what = "a worker starts agents, which the relay profile forbids";
        return fail(exit::USAGE, what, Some("omit --profile relay"));
    }
    if location.worker && args.config.is_none() {
        let what = "a worker has a settings file of its own";
        let hint = "name it: --worker --config worker.yaml; docs/scaling.md has an example";
        return fail(exit::USAGE, what, Some(hint));
    }
    if run_as.is_some() && *profile == Profile::Relay {
        let what = "the relay profile has a dynamic account of its own";
        return fail(exit::USAGE, what, Some("omit --run-as or --profile relay"));
    }
    let Some(file) = directory(location, env).map(|dir| dir.join(name)) else {
        return fail(exit::CONFIGURATION, NO_HOME, None);
    };
    let binary = args.binary.clone().or_else(|| std::env::current_exe().ok());
    if let Some(config) = args.config.as_deref().filter(|config| !config.is_file()) {
        let what = format!("there is no settings file at {}", config.display());
        return fail(
            exit::CONFIGURATION,
            what,
            Some("write one with `hermes-relay init`, or correct --config"),
        );
    }
    let variables = variables(args, env);
    let rendered = match unit::render(&UnitOptions {
        template,
        binary: binary.as_deref(),
        run_as,
        variables: &variables,
        worker: location.worker,
    }) {
        Ok(rendered) => rendered,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    if let Some(folder) = binary.as_deref().and_then(build_folder) {
        errln!(
            "warning: the unit starts a program in a build folder ({}): the next build replaces it, and `cargo clean` removes it\n\
             hint: install the program (`cargo install --path .`) and run this again with the installed one, or name one with --binary",
            folder.display()
        );
    }
    if safety.dry_run {
        outln!("{} would be:\n\n{rendered}", file.display());
        print_next_steps(location.user, name, &rendered);
        return ExitCode::SUCCESS;
    }
    let next = || {
        if args.now {
            if let Some(missing) = missing(&rendered, &file) {
                print_next_steps(location.user, name, &rendered);
                let what = format!("the service cannot start yet: {missing}");
                return fail(exit::CONFIGURATION, what, Some("do what is listed under Next"));
            }
            return start_now(location.user, name);
        }
        print_next_steps(location.user, name, &rendered);
        ExitCode::SUCCESS
    };
    match read(&file) {
        Ok(Some(before)) if before == rendered => {
            outln!("{} is already installed and up to date.", file.display());
            return verify_and(location.user, &file, next);
        }
        Ok(Some(before)) if !safety.force && unit_state(&before) != UnitState::Unchanged => {
            let what = format!("{} was edited or not installed by this program", file.display());
            return fail(
                exit::FAILED,
                what,
                Some("move your changes to a drop-in (`systemctl edit`), or replace the file with --force"),
            );
        }
        Ok(_) => {}
        Err(error) => return fail(exit::FAILED, error, None),
    }
    if let Err(error) = write(&file, &rendered) {
        let what = format!("cannot write {}: {error}", file.display());
        return fail(exit::FAILED, what, permission_hint(&error, location.user));
    }
    outln!("Wrote {}.", file.display());
    verify_and(location.user, &file, next)
}

/// What a unit needs and does not find: systemd would start it again and again.
fn missing(rendered: &str, file: &Path) -> Option<String> {
    if let Some(account) = user_of(rendered).filter(|account| !has_account(account)) {
        return Some(format!("there is no account `{account}`"));
    }
    let secret = secret_of(rendered).filter(|secret| !Path::new(secret).exists())?;
    (!is_replaced(file, "LoadCredential=")).then(|| format!("there is no {secret}"))
}

/// Whether a drop-in of a unit has a setting of its own.
fn is_replaced(file: &Path, setting: &str) -> bool {
    let mut folder = file.as_os_str().to_owned();
    folder.push(".d");
    let drop_ins = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut texts = drop_ins.filter_map(|drop_in| std::fs::read_to_string(drop_in.path()).ok());
    texts.any(|text| text.lines().any(|line| line.trim_start().starts_with(setting)))
}

/// Enables the service and starts it, or restarts it with a new unit.
fn start_now(user: bool, name: &str) -> ExitCode {
    for args in [&["daemon-reload"][..], &["enable", name], &["restart", name]] {
        if let Err(failure) = systemctl_run(user, args) {
            let hint = format!(
                "read the log with `journalctl {}-u {name}`",
                if user { "--user " } else { "" }
            );
            return fail(exit::FAILED, failure, Some(&hint));
        }
    }
    outln!("{name} is enabled and started.");
    if user {
        outln!("Next:\n  loginctl enable-linger                      # keep it running after logout");
    }
    ExitCode::SUCCESS
}

/// Runs `systemctl`; the error is for people.
pub(super) fn systemctl_run(user: bool, args: &[&str]) -> Result<(), String> {
    let shown = format!("{} {}", systemctl(user), args.join(" "));
    let mut command = Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    match command.args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("`{shown}` failed: {why}"))
        }
        Err(error) => Err(format!("cannot run `{shown}`: {error}")),
    }
}

/// The variables of this command that the service would not have by itself. Paths become absolute.
fn variables(args: &InstallArgs, env: Environment<'_>) -> Vec<(&'static str, String)> {
    let is_personal = args.location.user || args.run_as.is_some();
    let absolute = |path: &Path| Some(std::path::absolute(path).ok()?.to_str()?.to_owned());
    let set = |name: &str| {
        let value = env(name).filter(|_| is_personal)?;
        absolute(Path::new(Some(value.trim()).filter(|value| !value.is_empty())?))
    };
    let default_home = env("HOME").and_then(|home| absolute(&Path::new(&home).join(".hermes")));
    let home = set("HERMES_HOME").filter(|home| default_home.as_ref() != Some(home));
    let named = args.config.as_deref().and_then(absolute);
    // With sudo, PATH is root's.
    let path = env("PATH").filter(|path| args.location.user && !path.is_empty());
    let variables = [
        ("HERMES_HOME", home),
        (
            "HERMES_RELAY_CONFIG",
            named.or_else(|| set("HERMES_RELAY_CONFIG")),
        ),
        (
            "HERMES_RELAY_STATE_DIR",
            (args.state_dir.as_deref().and_then(absolute)).or_else(|| set("HERMES_RELAY_STATE_DIR")),
        ),
        ("PATH", path),
    ];
    let set = variables.into_iter();
    set.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The folder of cargo's builds that a program is in.
fn build_folder(program: &Path) -> Option<&Path> {
    let mut folders = program.ancestors().skip(1);
    folders.find(|folder| folder.join(".rustc_info.json").is_file() || folder.join("CACHEDIR.TAG").is_file())
}

fn uninstall(location: &LocationArgs, safety: &SafetyArgs, env: Environment<'_>) -> ExitCode {
    let Some(dir) = directory(location, env) else {
        return fail(exit::CONFIGURATION, NO_HOME, None);
    };
    let mut found = false;
    for &name in location.units() {
        let file = dir.join(name);
        let text = match read(&file) {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            Err(error) => return fail(exit::FAILED, error, None),
        };
        found = true;
        if unit_state(&text) != UnitState::Unchanged && !safety.force {
            let what = format!("{} was edited or not installed by this program", file.display());
            return fail(exit::FAILED, what, Some("remove it anyway with --force"));
        }
        if safety.dry_run {
            outln!(
                "{name} would be stopped and disabled, and {} removed.",
                file.display()
            );
            continue;
        }
        // In another directory it is not the unit that systemd knows by this name.
        if location.unit_dir.is_none()
            && let Err(failure) = systemctl_run(location.user, &["disable", "--now", name])
        {
            if !safety.force && has_systemd() {
                let hint = "the unit is kept, because systemd could not stop its service without it; remove it anyway with --force";
                return fail(exit::FAILED, failure, Some(hint));
            }
            errln!("warning: {failure}");
        }
        if let Err(error) = std::fs::remove_file(&file) {
            let what = format!("cannot remove {}: {error}", file.display());
            return fail(exit::FAILED, what, permission_hint(&error, location.user));
        }
        outln!("Removed {}.", file.display());
        if location.unit_dir.is_none() {
            // Without systemd there is nothing to reload.
            let _ = systemctl_run(location.user, &["daemon-reload"]);
        }
    }
    if !found {
        outln!("No unit is installed in {}.", dir.display());
    } else if !location.user && !location.worker {
        outln!("/var/lib/hermes-relay (the journal) and /etc/hermes-relay are kept.");
    }
    ExitCode::SUCCESS
}

const NO_HOME: &str = "there is no home directory; set HOME, or pass --unit-dir";

fn directory(location: &LocationArgs, env: Environment<'_>) -> Option<PathBuf> {
    let set = |name: &str| {
        env(name)
            .filter(|value| value.starts_with('/'))
            .map(PathBuf::from)
    };
    match (&location.unit_dir, location.user) {
        (Some(dir), _) => Some(dir.clone()),
        (None, false) => Some(PathBuf::from("/etc/systemd/system")),
        (None, true) => set("XDG_CONFIG_HOME")
            .or_else(|| Some(set("HOME")?.join(".config")))
            .map(|config| config.join("systemd/user")),
    }
}

fn read(file: &Path) -> Result<Option<String>, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", file.display())),
    }
}

/// Writes the file atomically.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir)?;
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(text.as_bytes())?;
    new.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))?;
    new.as_file().sync_all()?;
    new.persist(file)?;
    Ok(())
}

fn permission_hint(error: &std::io::Error, user: bool) -> Option<&'static str> {
    let is_denied = error.kind() == ErrorKind::PermissionDenied;
    (is_denied && !user).then_some("run it with sudo, or install for your own account with --user")
}

/// Verifies the unit; reports a problem, or continues with `next`.
fn verify_and(user: bool, file: &Path, next: impl FnOnce() -> ExitCode) -> ExitCode {
    if let Some(problem) = verify(user, file) {
        return fail(
            exit::FAILED,
            format!("systemd rejects {}:\n{problem}", file.display()),
            None,
        );
    }
    next()
}

/// The output of a failed `systemd-analyze verify`; `None` if it is not installed or cannot run.
fn verify(user: bool, file: &Path) -> Option<String> {
    let mut command = Command::new("systemd-analyze");
    if user {
        command.arg("--user");
    }
    let output = command
        .args(["--man=no", "--recursive-errors=no", "verify"])
        .arg(file)
        .output()
        .ok()?;
    let output_text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Without a user session it cannot verify; the unit may still be valid.
    let cannot_run = output_text.contains("Failed to initialize manager");
    (!output.status.success() && !cannot_run).then_some(output_text)
}

fn systemctl(user: bool) -> &'static str {
    if user { "systemctl --user" } else { "systemctl" }
}

fn print_next_steps(user: bool, name: &str, rendered: &str) {
    let systemctl = systemctl(user);
    outln!("Next:");
    if let Some(account) = user_of(rendered).filter(|account| !has_account(account)) {
        let home = state_of(rendered).unwrap_or("hermes-relay");
        outln!(
            "  useradd --system --user-group --home-dir /var/lib/{home} --shell /usr/sbin/nologin {account}"
        );
    }
    if let Some(secret) = secret_of(rendered).filter(|secret| !Path::new(secret).exists()) {
        outln!(
            "  install -d /etc/hermes-relay\n  install -m 600 /dev/stdin {secret}          # enter or pipe the gateway's secret\n  editor /etc/hermes-relay/config.yaml        # connector.url, connector.gateway_id, agents\n  # with a Telegram bot of your own: docs/telegram.md, \"The token\", says what to store instead of the secret"
        );
    } else if user && name != WORKER_UNIT {
        outln!(
            "  hermes-relay enroll --connector-url URL     # unless ~/.hermes/.env contains credentials, or you have a bot of your own"
        );
    }
    outln!("  {systemctl} daemon-reload\n  {systemctl} enable --now {name}\n  {systemctl} status {name}");
    if user {
        outln!("  loginctl enable-linger                      # keep it running after logout");
    }
}

fn has_account(name: &str) -> bool {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_local = accounts.lines().any(|line| line.split(':').next() == Some(name));
    // It knows accounts of a directory server, too.
    is_local
        || Command::new("id")
            .args(["-u", "--", name])
            .output()
            .is_ok_and(|id| id.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_whose_account_or_secret_is_missing_is_not_started() {
        let folder = tempfile::tempdir().unwrap();
        let (file, secret) = (folder.path().join("mine.service"), folder.path().join("secret"));
        let unit = |account: &str| {
            format!(
                "User={account}\nLoadCredential=relay-secret:{}\n",
                secret.display()
            )
        };
        let named = |unit: &str| missing(unit, &file).unwrap_or_default();
        assert_eq!(
            named(&unit("no-such-account")),
            "there is no account `no-such-account`"
        );
        assert_eq!(named(&unit("root")), format!("there is no {}", secret.display()));
        let drop_ins = folder.path().join("mine.service.d");
        std::fs::create_dir(&drop_ins).unwrap();
        let own = drop_ins.join("override.conf");
        std::fs::write(
            &own,
            "[Service]\nLoadCredential=\nLoadCredential=telegram-token:/x\n",
        )
        .unwrap();
        assert_eq!(named(&unit("root")), "", "a bot of one's own needs no secret");
        std::fs::remove_file(own).unwrap();
        std::fs::write(&secret, "s").unwrap();
        assert_eq!(named(&unit("root")), "");
        assert_eq!(named("[Service]\n"), "", "a unit of a user");
    }
}
