//! The file of `doctor --bundle`: what a bug report needs, without secrets and ids.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value;

use super::probe::Finding;
use crate::cli::exit::{self, fail, outln};
use crate::cli::log::redact::{Redactor, known_secrets, known_without_settings};
use crate::cli::logs;
use crate::cli::{ProcessEnv, VERSION};
use crate::config::{self, ConfigError, Flags, LoadedConfig, Origin, Sources};
use crate::serve::ControlRequest;
use crate::serve::client;
use crate::text::escape_lines;

/// The name without one.
pub(super) const FILE: &str = "hermes-relay-report.txt";
/// How many lines of the log are in it.
const LOG_LINES: usize = 2000;

/// Writes the file; an existing one is kept.
pub(super) fn write(file: &Path, findings: &[Finding], flags: Flags, process: &ProcessEnv<'_>) -> ExitCode {
    let env = process.env;
    let loaded = config::load(&Sources { flags, env });
    let secrets = match &loaded {
        Ok(loaded) => known_secrets(loaded, process),
        Err(_) => known_without_settings(process),
    };
    let redactor = Redactor::thorough(secrets, false);
    let mut text = format!("hermes-relay {}\n", *VERSION);
    for (title, part) in [
        ("doctor", report(findings)),
        ("settings", settings(&loaded)),
        ("status", loaded.as_ref().map_or_else(|_| String::new(), status)),
        ("log", log(&loaded, process)),
    ] {
        // Writing to a String does not fail.
        let _ = write!(text, "\n== {title} ==\n{}\n", part.trim_end());
    }
    let mut redacted = String::new();
    for line in text.lines() {
        let _ = writeln!(redacted, "{}", redactor.redact_str(line));
    }
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(file);
    match created.and_then(|mut out| out.write_all(escape_lines(&redacted).as_bytes())) {
        Ok(()) => {
            outln!(
                "Wrote {}: version, findings, settings, status and the end of the log, without secrets and ids. Read it before you post it.",
                file.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => fail(
            exit::FAILED,
            format!("{} exists already", file.display()),
            Some("name another file: `hermes-relay doctor --bundle FILE`"),
        ),
        Err(error) => fail(
            exit::FAILED,
            format!("cannot write {}: {error}", file.display()),
            None,
        ),
    }
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let subject = finding.subject.as_ref();
        let subject = subject.map(|subject| format!(" {subject}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{:<8} {}{subject}: {}",
            finding.outcome.as_str(),
            finding.id,
            finding.detail
        );
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "         -> {remedy}");
        }
    }
    text
}

/// What is set, with its origin.
fn settings(loaded: &Result<LoadedConfig, ConfigError>) -> String {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return format!("cannot be used: {error}"),
    };
    let mut text = String::new();
    let rows = loaded.describe();
    for row in rows.iter().filter(|row| row.origin != Origin::Default) {
        let _ = writeln!(text, "{}: {}  ({})", row.key, row.value_shown, row.origin);
    }
    for warning in &loaded.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// What the running relay says of itself.
fn status(loaded: &LoadedConfig) -> String {
    match client::call(&loaded.settings.state_dir, &ControlRequest::Status) {
        Ok(status) => {
            let mut text = String::new();
            write_value(&mut text, "", &status);
            text
        }
        Err(error) => error.to_string(),
    }
}

/// A line per value, so that what stands for itself is found by its name.
fn write_value(text: &mut String, path: &str, value: &Value) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                write_value(text, &below(name), value);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                write_value(text, &below(&at.to_string()), value);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = writeln!(text, "{path}={value}");
        }
    }
}

fn log(loaded: &Result<LoadedConfig, ConfigError>, process: &ProcessEnv<'_>) -> String {
    let Ok(loaded) = loaded else {
        return String::new();
    };
    let lines = logs::last_lines(&loaded.settings, LOG_LINES, process.env);
    lines.unwrap_or_else(|why| why)
}
