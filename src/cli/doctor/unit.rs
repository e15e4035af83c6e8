//! Checks the service's unit: its stop timeout is longer than the relay's shutdown, and its PATH has the agents' programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::context::CheckContext;
use super::probe::ProbeResult;
use crate::agent::child::program_exists;
use crate::config::Settings;

/// Directories of system units: local ones, which take precedence, then those of packages.
const SYSTEM: [&str; 2] = ["/etc/systemd/system", "/usr/lib/systemd/system"];
/// Directory of packaged user units.
const PACKAGED_USER: &str = "/usr/lib/systemd/user";
/// Names of the relay's units.
const UNITS: [&str; 2] = ["hermes-relay.service", "hermes-relay-only.service"];
/// systemd's default stop timeout.
const DEFAULT_STOP: Duration = Duration::from_secs(90);
/// Maximum size of a unit file.
const MAX_BYTES: u64 = 256 * 1024;
/// Maximum number of drop-in files.
const MAX_DROP_INS: usize = 64;

/// Checks the system's and the user's unit.
pub(super) fn unit(context: &CheckContext<'_>) -> Vec<ProbeResult> {
    let Some(settings) = context.settings() else {
        return Vec::new();
    };
    let budget = Duration::from_secs(settings.shutdown.budget_secs);
    let mut results = Vec::new();
    for folders in managers(context.env) {
        for name in UNITS {
            let Some((path, text)) = read_unit(&folders, name) else {
                continue;
            };
            results.push(check_stop(&path, name, &text, budget));
            results.extend(missing_programs(&path, &text, settings, context.env));
        }
    }
    if results.is_empty() {
        results.push(ProbeResult::ok("none installed"));
    }
    results
}

/// The unit directories of the system and the user, by precedence.
fn managers(env: &dyn Fn(&str) -> Option<String>) -> [Vec<PathBuf>; 2] {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let user = config.map(|config| config.join("systemd/user"));
    [
        SYSTEM.map(PathBuf::from).into(),
        user.into_iter().chain([PathBuf::from(PACKAGED_USER)]).collect(),
    ]
}

/// A unit with its drop-ins.
fn read_unit(folders: &[PathBuf], name: &str) -> Option<(PathBuf, String)> {
    let (path, mut text) = folders.iter().find_map(|folder| {
        let path = folder.join(name);
        read(&path).map(|text| (path, text))
    })?;
    let mut drop_ins: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder.join(format!("{name}.d"))))
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .take(MAX_DROP_INS)
        .collect();
    drop_ins.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    for more in drop_ins.iter().filter_map(|path| read(path)) {
        text.push('\n');
        text.push_str(&more);
    }
    Some((path, text))
}

fn check_stop(path: &Path, name: &str, text: &str, budget: Duration) -> ProbeResult {
    let shown = path.display();
    let needed = budget.as_secs();
    let remedy = format!(
        "set TimeoutStopSec={} in the [Service] section: `systemctl edit {name}`, with --user for a user's unit",
        needed + 10
    );
    match stop_timeout(text) {
        StopTimeout::Never => ProbeResult::ok(format!("{shown} has no stop timeout")),
        StopTimeout::After(time) if time > budget => ProbeResult::ok(format!(
            "{shown} waits {} s, the shutdown takes at most {needed} s",
            time.as_secs()
        )),
        StopTimeout::After(time) => ProbeResult::failed(
            format!(
                "{shown} kills the relay after {} s, its shutdown takes up to {needed} s",
                time.as_secs()
            ),
            remedy,
        ),
        StopTimeout::Invalid(value) => {
            ProbeResult::warn(format!("{shown} has an invalid TimeoutStopSec: {value}"), remedy)
        }
    }
}

/// Programs of agents that this shell finds and the service does not.
fn missing_programs(
    path: &Path,
    text: &str,
    settings: &Settings,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<ProbeResult> {
    let home = env("HOME").unwrap_or_default();
    let search = search_path(text)?.replace("%h", &home).replace("%%", "%");
    let here = env("PATH");
    let is_found = |program: &str, search: Option<&str>| {
        program_exists(OsStr::new(program), search.map(OsStr::new)).is_ok()
    };
    let programs = settings
        .agents
        .values()
        .filter_map(|entry| entry.backend.program());
    let missing: Vec<&str> = programs
        .filter(|program| !program.contains('/') && is_found(program, here.as_deref()))
        .filter(|program| !is_found(program, Some(&search)))
        .collect();
    (!missing.is_empty()).then(|| {
        ProbeResult::warn(
            format!(
                "the PATH of {} does not have {}, which this shell finds",
                path.display(),
                missing.join(", ")
            ),
            "run `hermes-relay service install --user` again, which writes the PATH of this shell; or write the program's full path",
        )
    })
}

/// The last `PATH` of a unit's environment.
fn search_path(unit: &str) -> Option<&str> {
    unit.lines().rev().find_map(|line| {
        let value = line.strip_prefix("Environment=")?.trim();
        value.trim_matches('"').strip_prefix("PATH=")
    })
}

fn read(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

/// The stop timeout of a unit.
#[derive(Debug, PartialEq, Eq)]
enum StopTimeout {
    Never,
    After(Duration),
    Invalid(String),
}

/// The last stop timeout in a unit.
fn stop_timeout(unit: &str) -> StopTimeout {
    let mut stop = StopTimeout::After(DEFAULT_STOP);
    for line in unit.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        if !matches!(key.trim(), "TimeoutStopSec" | "TimeoutSec") {
            continue;
        }
        let value = value.trim();
        stop = match value {
            "" => StopTimeout::After(DEFAULT_STOP),
            "infinity" | "0" => StopTimeout::Never,
            written => parse_duration(written).map_or_else(
                || StopTimeout::Invalid(written.chars().take(64).collect()),
                StopTimeout::After,
            ),
        };
    }
    stop
}

/// Parses systemd's time format: numbers with units, added up.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let part = match &rest[..letters] {
            "" | "s" | "sec" | "second" | "seconds" => Duration::from_secs(number),
            "ms" | "msec" => Duration::from_millis(number),
            "m" | "min" | "minute" | "minutes" => Duration::from_secs(number.checked_mul(60)?),
            "h" | "hr" | "hour" | "hours" => Duration::from_secs(number.checked_mul(3600)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = rest[letters..].trim_start();
    }
    (text.trim() != "").then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::ProbeOutcome;

    #[test]
    fn systemd_durations_are_parsed() {
        for (text, secs) in [
            ("40", 40),
            ("1min 30s", 90),
            ("2m", 120),
            ("1h", 3600),
            ("5 s", 5),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(secs)), "{text}");
        }
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for text in ["", "soon", "3 fortnights", "-1", "99999999999999999999"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        assert_eq!(stop_timeout("[Service]\n"), StopTimeout::After(DEFAULT_STOP));
        assert_eq!(
            stop_timeout("TimeoutStopSec=5\n# TimeoutStopSec=9\nTimeoutStopSec = 7s\n"),
            StopTimeout::After(Duration::from_secs(7))
        );
        assert_eq!(stop_timeout("TimeoutStopSec=infinity"), StopTimeout::Never);
        assert_eq!(
            stop_timeout("TimeoutStopSec=ages"),
            StopTimeout::Invalid("ages".to_owned())
        );
    }

    #[test]
    fn a_short_stop_timeout_fails_unless_it_is_overridden() {
        let folder = tempfile::tempdir().expect("a folder");
        let [own, packaged] = ["own", "packaged"].map(|name| folder.path().join(name));
        for place in [&own, &packaged] {
            std::fs::create_dir(place).expect("a folder");
        }
        let folders = [own.clone(), packaged.clone()];
        let checked = |name| {
            let (path, text) = read_unit(&folders, name)?;
            Some(check_stop(&path, name, &text, Duration::from_secs(30)))
        };
        let name = UNITS[1];
        assert_eq!(checked(name), None);
        std::fs::write(packaged.join(name), "[Service]\nTimeoutStopSec=20\n").expect("a unit");
        let short = checked(name).expect("a result");
        assert_eq!(short.outcome, ProbeOutcome::Failed);
        assert!(
            short
                .remedy
                .is_some_and(|remedy| remedy.contains("TimeoutStopSec=40"))
        );
        let more = own.join(format!("{name}.d"));
        std::fs::create_dir(&more).expect("a folder");
        std::fs::write(more.join("stop.conf"), "[Service]\nTimeoutStopSec=2min\n").expect("a drop-in");
        let overridden = checked(name).expect("a result");
        assert_eq!(overridden.outcome, ProbeOutcome::Ok);
        std::fs::remove_file(more.join("stop.conf")).expect("no drop-in");
        std::fs::write(own.join(name), "[Service]\nTimeoutStopSec=50\n").expect("a unit");
        let hidden = checked(name).expect("a result");
        assert_eq!(hidden.outcome, ProbeOutcome::Ok, "overrides the package's");
    }

    #[test]
    fn a_program_that_only_the_shell_finds_is_a_warning() {
        let folder = tempfile::tempdir().expect("a folder");
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).expect("a folder");
        std::os::unix::fs::symlink("/bin/sh", bin.join("my-agent")).expect("a program");
        let mut settings = Settings::embedded(".");
        let entry = serde_json::json!({"kind": "acp", "argv": ["my-agent"]});
        let entry = serde_json::from_value(entry).expect("an agent");
        settings.agents.insert("code".to_owned(), entry);
        let shell = format!("{}:/bin", bin.display());
        let home = folder.path().display().to_string();
        let env = |name: &str| match name {
            "PATH" => Some(shell.clone()),
            "HOME" => Some(home.clone()),
            _ => None,
        };
        let warned = |unit: &str| missing_programs(Path::new("/u/x.service"), unit, &settings, &env);
        let warning = warned("Environment=PATH=/bin:/usr/bin\n").expect("a warning");
        assert!(warning.detail.contains("my-agent"), "{warning:?}");
        assert_eq!(
            warned("Environment=PATH=/bin\nEnvironment=\"PATH=%h/bin:/bin\"\n"),
            None
        );
        assert_eq!(
            warned("[Service]\n"),
            None,
            "systemd's own PATH is not known here"
        );
    }
}
