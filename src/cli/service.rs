//! `hermes-relay service`: writes the systemd unit, takes it away, tells how it stands.
//!
//! It writes one file and runs no `systemctl` that changes anything: it prints those commands instead. A file that
//! somebody changed since it was written is neither overwritten nor removed without `--force`.

mod unit;

use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand, ValueEnum};

use super::Environment;
use super::exit::{self, fail, say};
use unit::{Rendering, Standing, binary_of, secret_of, standing, user_of};

/// Run the relay as a systemd service: write its unit, take it away, tell how it stands.
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
    /// Write the unit, check it, and print the commands that start it.
    ///
    /// Exit codes: 0 written, 1 not written or not sound, 2 options that do not go together, 78 the program or the account
    /// cannot be used.
    #[command(
        after_help = "Examples:\n  hermes-relay service install --user               # beside your own Hermes and agents\n  sudo hermes-relay service install --run-as $USER  # the same, started with the machine\n  sudo hermes-relay service install --profile relay # agents over HTTP only, tightly locked in\n  hermes-relay service install --dry-run            # shows the unit, writes nothing"
    )]
    Install {
        #[command(flatten)]
        place: PlaceArgs,
        /// What the unit allows: agents (programs are started) or relay (none are).
        #[arg(long, value_enum, default_value_t = Profile::Agents)]
        profile: Profile,
        /// The account that the relay and its agents run as; its own ~/.hermes is read [default: hermes-relay].
        #[arg(long, value_name = "ACCOUNT", value_parser = unit::account, conflicts_with = "user")]
        run_as: Option<String>,
        /// The program that the unit starts [default: this one].
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        #[command(flatten)]
        care: CareArgs,
    },
    /// Remove the unit, and print the commands that go with it.
    ///
    /// Exit codes: 0 removed or none there, 1 not removed, 78 there is no home directory.
    #[command(
        after_help = "Examples:\n  hermes-relay service uninstall --user\n  sudo hermes-relay service uninstall"
    )]
    Uninstall {
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        care: CareArgs,
    },
    /// Tell which unit is installed, whether it is sound, and what systemd says of it.
    ///
    /// Exit codes: 0 a unit is installed and sound, 1 not.
    #[command(after_help = "Examples:\n  hermes-relay service status --user\n  hermes-relay service status")]
    Status {
        #[command(flatten)]
        place: PlaceArgs,
    },
}

#[derive(Args, Debug)]
struct PlaceArgs {
    /// For your own account, under your own systemd, instead of the machine's.
    #[arg(long)]
    user: bool,
    /// Where units are [default: /etc/systemd/system, or ~/.config/systemd/user with --user].
    #[arg(long, value_name = "DIR")]
    unit_dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct CareArgs {
    /// Tell what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also when somebody has changed the file since it was written.
    #[arg(long)]
    force: bool,
}

/// What a unit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    Agents,
    Relay,
}

/// The names under which units are installed.
const UNITS: [&str; 2] = ["hermes-relay.service", "hermes-relay-only.service"];

/// Runs the verb.
pub(super) fn run(args: &ServiceArgs, env: Environment<'_>) -> ExitCode {
    match &args.verb {
        ServiceVerb::Install {
            place,
            profile,
            run_as,
            binary,
            care,
        } => install(place, *profile, run_as.as_deref(), binary.as_deref(), care, env),
        ServiceVerb::Uninstall { place, care } => uninstall(place, care, env),
        ServiceVerb::Status { place } => status(place, env),
    }
}

fn install(
    place: &PlaceArgs,
    profile: Profile,
    run_as: Option<&str>,
    binary: Option<&Path>,
    care: &CareArgs,
    env: Environment<'_>,
) -> ExitCode {
    let (template, name) = match (place.user, profile) {
        (false, Profile::Agents) => (unit::AGENTS, UNITS[0]),
        (false, Profile::Relay) => (unit::RELAY_ONLY, UNITS[1]),
        (true, Profile::Agents) => (unit::USER, UNITS[0]),
        (true, Profile::Relay) => {
            let what = "a user's own systemd cannot lock a service in as the relay profile does";
            return fail(exit::USAGE, what, Some("leave out --user, or --profile relay"));
        }
    };
    if run_as.is_some() && profile == Profile::Relay {
        let what = "the relay profile has an account of its own, which exists only while it runs";
        return fail(exit::USAGE, what, Some("leave out --run-as, or --profile relay"));
    }
    let Some(file) = directory(place, env).map(|dir| dir.join(name)) else {
        return fail(exit::CONFIGURATION, NO_HOME, None);
    };
    let binary = binary
        .map(Path::to_owned)
        .or_else(|| std::env::current_exe().ok());
    let rendered = match unit::render(&Rendering {
        template,
        binary: binary.as_deref(),
        run_as,
    }) {
        Ok(rendered) => rendered,
        Err(error) => return fail(exit::CONFIGURATION, error, None),
    };
    if care.dry_run {
        say!("{} would be:\n\n{rendered}", file.display());
        tell_next(place.user, name, &rendered);
        return ExitCode::SUCCESS;
    }
    match read(&file) {
        Ok(Some(before)) if before == rendered => {
            say!("{} is there already, as it should be.", file.display());
            return checked(place.user, &file, || tell_next(place.user, name, &rendered));
        }
        Ok(Some(before)) if !care.force && standing(&before) != Standing::AsWritten => {
            let what = format!("{} is not as it was installed", file.display());
            return fail(
                exit::FAILED,
                what,
                Some("keep your changes in a drop-in (`systemctl edit`), or replace the file with --force"),
            );
        }
        Ok(_) => {}
        Err(error) => return fail(exit::FAILED, error, None),
    }
    if let Err(error) = write(&file, &rendered) {
        let what = format!("cannot write {}: {error}", file.display());
        return fail(exit::FAILED, what, denied(&error, place.user));
    }
    say!("Wrote {}.", file.display());
    checked(place.user, &file, || tell_next(place.user, name, &rendered))
}

fn uninstall(place: &PlaceArgs, care: &CareArgs, env: Environment<'_>) -> ExitCode {
    let Some(dir) = directory(place, env) else {
        return fail(exit::CONFIGURATION, NO_HOME, None);
    };
    let mut found = false;
    for name in UNITS {
        let file = dir.join(name);
        let text = match read(&file) {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            Err(error) => return fail(exit::FAILED, error, None),
        };
        found = true;
        if standing(&text) != Standing::AsWritten && !care.force {
            let what = format!("{} is not as it was installed", file.display());
            return fail(exit::FAILED, what, Some("remove it all the same with --force"));
        }
        let systemctl = systemctl(place.user);
        if care.dry_run {
            say!("{} would be removed.", file.display());
        } else if let Err(error) = std::fs::remove_file(&file) {
            let what = format!("cannot remove {}: {error}", file.display());
            return fail(exit::FAILED, what, denied(&error, place.user));
        } else {
            say!("Removed {}.", file.display());
        }
        say!("Next:\n  {systemctl} disable --now {name}\n  {systemctl} daemon-reload");
    }
    if !found {
        say!("No unit is installed in {}.", dir.display());
    } else if !place.user {
        say!("The journal in /var/lib/hermes-relay and /etc/hermes-relay are left as they are.");
    }
    ExitCode::SUCCESS
}

fn status(place: &PlaceArgs, env: Environment<'_>) -> ExitCode {
    let Some(dir) = directory(place, env) else {
        return fail(exit::CONFIGURATION, NO_HOME, None);
    };
    // A package's units are as good as installed ones.
    let dirs = if place.user || place.unit_dir.is_some() {
        vec![dir]
    } else {
        vec![dir, PathBuf::from("/usr/lib/systemd/system")]
    };
    let files: Vec<_> = dirs
        .iter()
        .flat_map(|dir| UNITS.map(|name| dir.join(name)))
        .collect();
    let (mut found, mut sound) = (false, true);
    for file in &files {
        let text = match read(file) {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            Err(error) => return fail(exit::FAILED, error, None),
        };
        found = true;
        say!("{}: {}", file.display(), standing(&text));
        let binary = binary_of(&text);
        if !binary
            .as_deref()
            .is_some_and(|binary| Path::new(binary).is_file())
        {
            say!("  it starts {}, which is not there", binary.unwrap_or_default());
            sound = false;
        }
        if let Some(complaint) = verify(place.user, file) {
            say!("  {}", complaint.replace('\n', "\n  "));
            sound = false;
        }
        show(place.user, file);
    }
    if !found {
        say!("No unit is installed in {}.", dirs[0].display());
    }
    if found && sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    }
}

const NO_HOME: &str = "there is no home directory; set HOME, or name the place with --unit-dir";

fn directory(place: &PlaceArgs, env: Environment<'_>) -> Option<PathBuf> {
    let set = |name: &str| {
        env(name)
            .filter(|value| value.starts_with('/'))
            .map(PathBuf::from)
    };
    match (&place.unit_dir, place.user) {
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

/// Whole or not at all.
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

fn denied(error: &std::io::Error, user: bool) -> Option<&'static str> {
    let denied = error.kind() == ErrorKind::PermissionDenied;
    (denied && !user).then_some("run it with sudo, or install for your own account with --user")
}

/// Says what is wrong with the unit, or goes on.
fn checked(user: bool, file: &Path, next: impl FnOnce()) -> ExitCode {
    if let Some(complaint) = verify(user, file) {
        return fail(
            exit::FAILED,
            format!("systemd finds fault with {}:\n{complaint}", file.display()),
            None,
        );
    }
    next();
    ExitCode::SUCCESS
}

/// What `systemd-analyze verify` finds wrong; nothing where it is not installed or cannot look.
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
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Without a session of the user there is nothing to look with, which is no fault of the unit.
    let blind = said.contains("Failed to initialize manager");
    (!output.status.success() && !blind).then_some(said)
}

/// What systemd says of the unit, where one is there to be asked.
fn show(user: bool, file: &Path) {
    let name = file.file_name().unwrap_or_default();
    let mut command = Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    let properties = "--property=ActiveState,SubState,UnitFileState,MainPID,NRestarts,StatusText";
    let Ok(output) = command.args(["show", properties]).arg(name).output() else {
        return;
    };
    if output.status.success() {
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            say!("  {line}");
        }
    } else {
        say!("  systemd does not run here, or cannot be asked");
    }
}

fn systemctl(user: bool) -> &'static str {
    if user { "systemctl --user" } else { "systemctl" }
}

fn tell_next(user: bool, name: &str, rendered: &str) {
    let systemctl = systemctl(user);
    say!("Next:");
    if let Some(account) = user_of(rendered).filter(|account| !has_account(account)) {
        say!(
            "  useradd --system --user-group --home-dir /var/lib/hermes-relay --shell /usr/sbin/nologin {account}"
        );
    }
    if let Some(secret) = secret_of(rendered).filter(|secret| !Path::new(secret).exists()) {
        say!(
            "  install -d /etc/hermes-relay\n  install -m 600 /dev/stdin {secret}          # type or pipe the gateway's secret\n  editor /etc/hermes-relay/config.yaml        # connector.url, connector.gateway_id, agents"
        );
    } else if user {
        say!("  hermes-relay enroll --connector-url URL     # unless ~/.hermes/.env holds credentials");
    }
    say!("  {systemctl} daemon-reload\n  {systemctl} enable --now {name}\n  {systemctl} status {name}");
    if user {
        say!("  loginctl enable-linger                      # to keep it running while you are away");
    }
}

fn has_account(name: &str) -> bool {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    accounts.lines().any(|line| line.split(':').next() == Some(name))
}
