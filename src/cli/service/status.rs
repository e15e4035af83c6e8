//! `service status`: which unit is installed, whether it is valid, and what systemd says of it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{LocationArgs, NO_HOME, directory, read, verify};
use crate::cli::Environment;
use crate::cli::exit::{self, ErrorFormat};
use crate::cli::service::unit::{binary_of, unit_state};

/// One installed unit.
#[derive(Debug, Serialize)]
struct InstalledUnit {
    file: PathBuf,
    /// Whether it is as it was installed.
    state: String,
    /// The program that it starts.
    binary: Option<String>,
    /// Why it cannot be used.
    problems: Vec<String>,
    /// Its properties in systemd; `None` if that cannot be asked.
    systemd: Option<Map<String, Value>>,
}

impl InstalledUnit {
    fn new(user: bool, file: &Path, text: &str) -> Self {
        let binary = binary_of(text);
        let mut problems = Vec::new();
        if !binary
            .as_deref()
            .is_some_and(|binary| Path::new(binary).is_file())
        {
            let binary = binary.as_deref().unwrap_or_default();
            problems.push(format!("it starts {binary}, which does not exist"));
        }
        problems.extend(verify(user, file));
        Self {
            file: file.to_owned(),
            state: unit_state(text).to_string(),
            binary,
            problems,
            systemd: properties(user, file),
        }
    }

    /// For people.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}: {}", self.file.display(), self.state)];
        let problems = self.problems.iter();
        lines.extend(problems.map(|problem| format!("  {}", problem.replace('\n', "\n  "))));
        match &self.systemd {
            Some(properties) => lines.extend(properties.iter().map(|(name, value)| {
                let value = value.as_str().unwrap_or_default();
                format!("  {name}={value}")
            })),
            None => lines.push("  systemd does not run here, or cannot be queried".to_owned()),
        }
        lines
    }
}

/// Shows the units that are installed.
pub(super) fn status(location: &LocationArgs, json: bool, env: Environment<'_>) -> ExitCode {
    let errors = ErrorFormat::new(json);
    let Some(dir) = directory(location, env) else {
        return errors.fail(exit::CONFIGURATION, NO_HOME, None);
    };
    // Units of a package count as installed.
    let dirs = if location.user || location.unit_dir.is_some() {
        vec![dir]
    } else {
        vec![dir, PathBuf::from("/usr/lib/systemd/system")]
    };
    let mut units = Vec::new();
    for file in dirs
        .iter()
        .flat_map(|dir| location.units().iter().map(move |name| dir.join(name)))
    {
        match read(&file) {
            Ok(None) => {}
            Ok(Some(text)) => units.push(InstalledUnit::new(location.user, &file, &text)),
            Err(error) => return errors.fail(exit::FAILED, error, None),
        }
    }
    let is_valid = !units.is_empty() && units.iter().all(|unit| unit.problems.is_empty());
    let text = if json {
        json!({"valid": is_valid, "units": units}).to_string()
    } else if units.is_empty() {
        format!("No unit is installed in {}.", dirs[0].display())
    } else {
        let lines: Vec<String> = units.iter().flat_map(InstalledUnit::lines).collect();
        lines.join("\n")
    };
    let printed = exit::print(text);
    if is_valid {
        printed
    } else {
        ExitCode::from(exit::FAILED)
    }
}

/// The unit's state in systemd.
fn properties(user: bool, file: &Path) -> Option<Map<String, Value>> {
    let mut command = Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    let properties = "--property=ActiveState,SubState,UnitFileState,MainPID,NRestarts,StatusText";
    let output = (command.args(["show", properties]).arg(file.file_name()?))
        .output()
        .ok()?;
    output.status.success().then(|| {
        let text = String::from_utf8_lossy(&output.stdout);
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect()
    })
}
