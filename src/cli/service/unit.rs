//! The text of a unit: put together from the ones that are shipped, and recognised again.

use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Starts agents.
pub(super) const AGENTS: &str = include_str!("../../../systemd/hermes-relay.service");
/// Starts nothing.
pub(super) const RELAY_ONLY: &str = include_str!("../../../systemd/hermes-relay-only.service");
/// For one user's own manager.
pub(super) const USER: &str = include_str!("../../../systemd/user/hermes-relay.service");

/// How the shipped units name the program.
const SHIPPED_EXEC: &str = "ExecStart=/usr/bin/hermes-relay run";
/// How the shipped unit names the account.
const SHIPPED_USER: &str = "User=hermes-relay";
/// How the first line of an installed unit begins; the digest of all that follows it comes next.
const SEAL: &str = "# Written by `hermes-relay service install`. Digest of what follows: ";

/// What a unit is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rendering<'a> {
    /// The shipped unit.
    pub(super) template: &'a str,
    /// What it starts.
    pub(super) binary: Option<&'a Path>,
    /// Whom it runs as, instead of the shipped account.
    pub(super) run_as: Option<&'a str>,
}

/// Why a unit cannot be put together.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenderError {
    /// The program has no usable path.
    #[error("the program's path cannot stand in a unit; name another with --binary /full/path/hermes-relay")]
    Binary,
}

/// The whole text, sealed.
pub(super) fn render(rendering: &Rendering<'_>) -> Result<String, RenderError> {
    let binary = rendering
        .binary
        .and_then(Path::to_str)
        .filter(|path| path.starts_with('/') && !path.contains(char::is_control))
        .ok_or(RenderError::Binary)?;
    let exec = format!("ExecStart={} run", quoted(binary));
    let mut text = rendering.template.replace(SHIPPED_EXEC, &exec);
    if let Some(account) = rendering.run_as {
        text = text.replace(SHIPPED_USER, &format!("User={account}"));
        // That account's own files hold the secret, and a credential that is not there would keep the unit down.
        text = without(&text, "LoadCredential=");
    }
    Ok(format!("{SEAL}{}\n{text}", digest(&text)))
}

/// Leaves a setting out, with the comment above it.
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

/// A path as the first word of a command in a unit.
fn quoted(path: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "/._-+".contains(char);
    if path.chars().all(plain) {
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

/// An account's name, for the command line.
pub(super) fn account(name: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_alphanumeric() || "_-.".contains(char);
    let begins = name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_');
    if begins && name.len() <= 32 && name.chars().all(fits) {
        Ok(name.to_owned())
    } else {
        Err("not the name of an account".to_owned())
    }
}

/// Whether a unit is still what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Written here, and not changed since.
    AsWritten,
    /// Written here, and changed since.
    Changed,
    /// Not written here: a package's, or somebody's own.
    Foreign,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsWritten => "as it was installed",
            Self::Changed => "changed since it was installed",
            Self::Foreign => "not written by `hermes-relay service install`",
        })
    }
}

/// Looks at the seal.
pub(super) fn standing(text: &str) -> Standing {
    let sealed = text.strip_prefix(SEAL).and_then(|sealed| sealed.split_once('\n'));
    match sealed {
        Some((seal, rest)) if seal == digest(rest) => Standing::AsWritten,
        Some(_) => Standing::Changed,
        None => Standing::Foreign,
    }
}

fn digest(text: &str) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(text.as_bytes()) {
        // Writing into a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// What a unit starts.
pub(super) fn binary_of(text: &str) -> Option<String> {
    let command = setting(text, "ExecStart=")?;
    let path = match command.strip_prefix('"') {
        Some(quoted) => quoted.rsplit_once('"')?.0,
        None => command.split(' ').next()?,
    };
    let path = path.replace("%%", "%").replace("$$", "$");
    Some(path.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// The account that a unit names.
pub(super) fn user_of(text: &str) -> Option<&str> {
    setting(text, "User=")
}

/// The file that a unit takes the secret from.
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
        render(&Rendering {
            template: AGENTS,
            binary: Some(Path::new(binary)),
            run_as,
        })
    }

    #[test]
    fn the_program_and_the_account_are_put_in() {
        let shipped = rendered("/usr/bin/hermes-relay", None).unwrap();
        assert!(shipped.ends_with(AGENTS));
        let mine = rendered("/opt/my apps/50% \"relay\"", Some("ada")).unwrap();
        assert!(
            mine.contains("\nExecStart=\"/opt/my apps/50%% \\\"relay\\\"\" run\n"),
            "{mine}"
        );
        assert_eq!(binary_of(&mine).as_deref(), Some("/opt/my apps/50% \"relay\""));
        assert_eq!(user_of(&mine), Some("ada"));
        assert_eq!(secret_of(&mine), None, "ada's own files hold it");
        assert_eq!(secret_of(&shipped), Some("/etc/hermes-relay/secret"));
        assert!(
            !mine.contains("CREDENTIALS_DIRECTORY"),
            "its comment went with it"
        );
    }

    #[test]
    fn every_shipped_unit_has_what_is_put_in() {
        for template in [AGENTS, RELAY_ONLY, USER] {
            assert_eq!(template.matches(SHIPPED_EXEC).count(), 1);
        }
        assert_eq!(AGENTS.matches(SHIPPED_USER).count(), 1);
    }

    #[test]
    fn what_cannot_stand_in_a_unit_is_refused() {
        for bad in ["hermes-relay", "/a\nExecStartPre=/bin/evil", ""] {
            assert!(rendered(bad, None).is_err(), "{bad:?}");
        }
        for bad in ["", "ada\nRoot=1", "0ada", "a b", "-x"] {
            assert!(account(bad).is_err(), "{bad:?}");
        }
        assert!(account("ada").is_ok() && account("_relay-1").is_ok());
    }

    #[test]
    fn a_change_breaks_the_seal() {
        let text = rendered("/usr/bin/hermes-relay", None).unwrap();
        assert_eq!(standing(&text), Standing::AsWritten);
        let changed = text.replace("RestartSec=5", "RestartSec=6");
        assert_eq!(standing(&changed), Standing::Changed);
        assert_eq!(standing(AGENTS), Standing::Foreign);
    }
}
