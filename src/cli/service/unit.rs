//! The text of a unit: rendered from the shipped units, and parsed again.

use std::fmt;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::text::hex;

/// May start agents.
pub(super) const AGENTS: &str = include_str!("../../../systemd/hermes-relay.service");
/// May not start programs.
pub(super) const RELAY_ONLY: &str = include_str!("../../../systemd/hermes-relay-only.service");
/// For a user's systemd.
pub(super) const USER: &str = include_str!("../../../systemd/user/hermes-relay.service");

/// The command in the shipped units.
const SHIPPED_EXEC: &str = "ExecStart=/usr/bin/hermes-relay run";
/// The account in the shipped unit.
const SHIPPED_USER: &str = "User=hermes-relay";
/// Start of an installed unit's first line; a digest of the rest follows.
const DIGEST_PREFIX: &str = "# Written by `hermes-relay service install`. Digest of what follows: ";

/// How to render a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnitOptions<'a> {
    /// The shipped unit.
    pub(super) template: &'a str,
    /// The program.
    pub(super) binary: Option<&'a Path>,
    /// Another account than the shipped one.
    pub(super) run_as: Option<&'a str>,
    /// Variables that the service has besides.
    pub(super) variables: &'a [(&'a str, String)],
    /// Whether it runs a worker instead of a relay.
    pub(super) worker: bool,
}

/// Why a unit cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenderError {
    /// The program's path is invalid in a unit.
    #[error("the program's path is not valid in a unit; name another with --binary /full/path/hermes-relay")]
    Binary,
    /// The value of a variable is invalid in a unit.
    #[error("the value of {0} is not valid in a unit; rename that path, or unset the variable")]
    Variable(String),
}

/// The text of a unit, with its digest.
pub(super) fn render(options: &UnitOptions<'_>) -> Result<String, RenderError> {
    let binary = options
        .binary
        .and_then(Path::to_str)
        .filter(|path| path.starts_with('/') && !path.contains(char::is_control))
        .ok_or(RenderError::Binary)?;
    let verb = if options.worker { "worker" } else { "run" };
    let mut exec = format!("ExecStart={} {verb}", quoted(binary));
    if !options.variables.is_empty() {
        exec.push_str("\n# As they were for the command that installed this unit.");
    }
    for (name, value) in options.variables {
        if value.contains(char::is_control) {
            return Err(RenderError::Variable((*name).to_owned()));
        }
        exec.push_str("\nEnvironment=");
        exec.push_str(&quoted_value(&format!("{name}={value}")));
    }
    let mut text = options.template.replace(SHIPPED_EXEC, &exec);
    if options.variables.iter().any(|(name, _)| *name == "PATH") {
        text = without(&text, "Environment=PATH=");
    }
    if options.worker {
        text = of_worker(&text);
    }
    if let Some(account) = options.run_as {
        text = text.replace(SHIPPED_USER, &format!("User={account}"));
        // That account's own files contain the secret, and a missing credential would keep the unit from starting.
        text = without(&text, "LoadCredential=");
    }
    Ok(format!("{DIGEST_PREFIX}{}\n{text}", digest(&text)))
}

/// The unit of a relay as that of a worker: directories of its own, no secret of a gateway, nothing to reload.
fn of_worker(text: &str) -> String {
    let text = text.lines().map(|line| match line.split_once('=') {
        Some(("Description", _)) => "Description=Worker that runs an AI agent for a Hermes relay".to_owned(),
        Some((name @ ("StateDirectory" | "RuntimeDirectory" | "WorkingDirectory"), value)) => {
            format!("{name}={value}-worker")
        }
        _ => line.to_owned(),
    });
    let text = text.collect::<Vec<_>>().join("\n") + "\n";
    let text = text.replace("/var/lib/hermes-relay.", "/var/lib/hermes-relay-worker.");
    ["Conflicts=", "ExecReload=", "LoadCredential="]
        .iter()
        .fold(text, |text, setting| without(&text, setting))
}

/// Removes a setting with the comment above it.
fn without(text: &str, start: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in text.lines() {
        if line.starts_with(start) {
            while kept.last().is_some_and(|line| line.starts_with('#')) {
                kept.pop();
            }
        } else {
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

/// Quotes a path for a command in a unit.
fn quoted(path: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+".contains(char);
    if path.chars().all(is_plain) {
        return path.to_owned();
    }
    let mut quoted = String::from("\"");
    for char in path.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '%' | '$' => quoted.extend([char, char]),
            _ => quoted.push(char),
        }
    }
    quoted + "\""
}

/// Quotes a variable for `Environment=`, where a dollar sign has no meaning.
fn quoted_value(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

/// Parses an account name.
pub(super) fn account(name: &str) -> Result<String, String> {
    let is_valid = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
    let has_valid_start = name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
    if has_valid_start && name.len() <= 32 && name.chars().all(is_valid) {
        Ok(name.to_owned())
    } else {
        Err("not a valid account name".to_owned())
    }
}

/// Whether a unit was edited since it was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    /// Installed by us and not edited.
    Unchanged,
    /// Installed by us and edited since.
    Changed,
    /// Not installed by us.
    Foreign,
}

impl fmt::Display for UnitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "as installed",
            Self::Changed => "edited since it was installed",
            Self::Foreign => "not written by `hermes-relay service install`",
        })
    }
}

/// Checks the digest.
pub(super) fn unit_state(text: &str) -> UnitState {
    let parts = text
        .strip_prefix(DIGEST_PREFIX)
        .and_then(|rest| rest.split_once('\n'));
    match parts {
        Some((expected, rest)) if expected == digest(rest) => UnitState::Unchanged,
        Some(_) => UnitState::Changed,
        None => UnitState::Foreign,
    }
}

fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// The program that a unit starts.
pub(super) fn binary_of(text: &str) -> Option<String> {
    let command = setting(text, "ExecStart=")?;
    let path = match command.strip_prefix('"') {
        Some(quoted) => quoted.rsplit_once('"')?.0,
        None => command.split(' ').next()?,
    };
    let path = path.replace("%%", "%").replace("$$", "$");
    Some(path.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// The account of a unit.
pub(super) fn user_of(text: &str) -> Option<&str> {
    setting(text, "User=")
}

/// The name of a unit's state directory.
pub(super) fn state_of(text: &str) -> Option<&str> {
    setting(text, "StateDirectory=")
}

/// The secret file of a unit.
pub(super) fn secret_of(text: &str) -> Option<&str> {
    setting(text, "LoadCredential=relay-secret:")
}

fn setting<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(binary: &str, run_as: Option<&str>) -> Result<String, RenderError> {
        render(&UnitOptions {
            template: AGENTS,
            binary: Some(Path::new(binary)),
            run_as,
            variables: &[],
            worker: false,
        })
    }

    #[test]
    fn program_and_account_are_rendered() {
        let shipped = rendered("/usr/bin/hermes-relay", None).unwrap();
        assert!(shipped.ends_with(AGENTS));
        let mine = rendered("/opt/my apps/50% \"relay\"", Some("ada")).unwrap();
        assert!(
            mine.contains("\nExecStart=\"/opt/my apps/50%% \\\"relay\\\"\" run\n"),
            "{mine}"
        );
        assert_eq!(binary_of(&mine).as_deref(), Some("/opt/my apps/50% \"relay\""));
        assert_eq!(user_of(&mine), Some("ada"));
        assert_eq!(secret_of(&mine), None, "it is in ada's own files");
        assert_eq!(secret_of(&shipped), Some("/etc/hermes-relay/secret"));
        assert!(
            !mine.contains("CREDENTIALS_DIRECTORY"),
            "its comment is removed too"
        );
    }

    #[test]
    fn variables_are_kept_and_quoted() {
        let with_home = |home: &str| {
            render(&UnitOptions {
                template: USER,
                binary: Some(Path::new("/usr/bin/hermes-relay")),
                run_as: None,
                variables: &[
                    ("HERMES_HOME", home.to_owned()),
                    ("PATH", "/opt/bin:/bin".to_owned()),
                ],
                worker: false,
            })
        };
        let unit = with_home("/srv/my $hermes 50% \"x\"").unwrap();
        let line = "\nEnvironment=\"HERMES_HOME=/srv/my $hermes 50%% \\\"x\\\"\"\n";
        assert!(unit.contains(line), "{unit}");
        let paths: Vec<&str> = unit.lines().filter(|line| line.contains("PATH=")).collect();
        assert_eq!(
            paths,
            ["Environment=\"PATH=/opt/bin:/bin\""],
            "instead of the shipped one"
        );
        assert_eq!(unit_state(&unit), UnitState::Unchanged);
        assert!(with_home("/srv/a\nExecStartPre=/bin/evil").is_err());
    }

    #[test]
    fn a_worker_has_directories_of_its_own_and_no_secret() {
        for template in [AGENTS, USER] {
            let unit = render(&UnitOptions {
                template,
                binary: Some(Path::new("/usr/bin/hermes-relay")),
                run_as: None,
                variables: &[("HERMES_RELAY_CONFIG", "/etc/worker.yaml".to_owned())],
                worker: true,
            })
            .unwrap();
            assert!(
                unit.contains("\nExecStart=/usr/bin/hermes-relay worker\n"),
                "{unit}"
            );
            assert!(
                unit.contains("\nRuntimeDirectory=hermes-relay-worker\n"),
                "{unit}"
            );
            assert_eq!(binary_of(&unit).as_deref(), Some("/usr/bin/hermes-relay"));
            assert_eq!(secret_of(&unit), None);
            for gone in ["Conflicts=", "ExecReload=", "HUP"] {
                assert!(!unit.contains(gone), "{gone}: {unit}");
            }
            if template == AGENTS {
                assert_eq!(state_of(&unit), Some("hermes-relay-worker"));
                assert!(
                    unit.contains("\nWorkingDirectory=%S/hermes-relay-worker\n"),
                    "{unit}"
                );
                assert_eq!(user_of(&unit), Some("hermes-relay"));
            }
        }
    }

    #[test]
    fn every_shipped_unit_has_the_replaced_lines() {
        for template in [AGENTS, RELAY_ONLY, USER] {
            assert_eq!(template.matches(SHIPPED_EXEC).count(), 1);
        }
        assert_eq!(AGENTS.matches(SHIPPED_USER).count(), 1);
    }

    #[test]
    fn invalid_values_are_refused() {
        for bad in ["hermes-relay", "/a\nExecStartPre=/bin/evil", ""] {
            assert!(rendered(bad, None).is_err(), "{bad:?}");
        }
        for bad in ["", "ada\nRoot=1", "0ada", "a b", "-x"] {
            assert!(account(bad).is_err(), "{bad:?}");
        }
        assert!(account("ada").is_ok() && account("_relay-1").is_ok());
    }

    #[test]
    fn an_edit_breaks_the_digest() {
        let text = rendered("/usr/bin/hermes-relay", None).unwrap();
        assert_eq!(unit_state(&text), UnitState::Unchanged);
        let changed = text.replace("RestartSec=5", "RestartSec=6");
        assert_eq!(unit_state(&changed), UnitState::Changed);
        assert_eq!(unit_state(AGENTS), UnitState::Foreign);
    }
}
