//! Fatal errors of a verb that logs: redacted on standard error, and marked as errors where journald reads it.

use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::process::ExitCode;

use super::journald::is_journal_stream;
use super::redacting::LogRedactor;
use crate::cli::format::stderr;
use crate::cli::log::redact::{Redactor, known_without_settings};
use crate::cli::{Environment, ProcessEnv};

/// Marks a line as an error for journald.
const ERROR_PREFIX: &str = "<3>";

/// Reports why the program ends.
#[derive(Clone)]
pub(in crate::cli) struct FatalErrors {
    redactor: LogRedactor,
    prefix: &'static str,
}

impl FatalErrors {
    /// For use before the settings are loaded.
    pub(in crate::cli) fn without_settings(process: &ProcessEnv<'_>) -> Self {
        Self::new(LogRedactor::new(known_without_settings(process)), process.env)
    }

    pub(super) fn new(redactor: LogRedactor, env: Environment<'_>) -> Self {
        let is_journal = env("JOURNAL_STREAM").is_some_and(|stream| is_journal_stream(&stream, io::stderr()));
        let prefix = if is_journal { ERROR_PREFIX } else { "" };
        Self { redactor, prefix }
    }

    /// Prints the error and the hint; returns the exit code.
    pub(in crate::cli) fn fail(&self, code: u8, error: impl Display, hint: Option<&str>) -> ExitCode {
        let lines = lines(&self.redactor.current(), self.prefix, &error.to_string(), hint);
        // Ignore a closed standard error: the exit code still reports the failure.
        let _ = stderr().write_all(lines.as_bytes());
        ExitCode::from(code)
    }
}

fn lines(redactor: &Redactor, prefix: &str, error: &str, hint: Option<&str>) -> String {
    let mut text = format!("error: {error}");
    if let Some(hint) = hint {
        // Writing to a String does not fail.
        let _ = write!(text, "\nhint: {hint}");
    }
    let redacted = redactor.redact_str(&text);
    redacted.lines().flat_map(|line| [prefix, line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::log::redact::KnownSecret;

    #[test]
    fn every_line_is_redacted_and_marked_as_an_error() {
        let redactor = Redactor::exact(vec![KnownSecret::new("secret", "hush-hush-hush")]);
        let error = "`hush-hush-hush` is not a level\nnor is this";
        assert_eq!(
            lines(&redactor, ERROR_PREFIX, error, Some("not hush-hush-hush")),
            "<3>error: `<hidden>` is not a level\n<3>nor is this\n<3>hint: not <hidden>\n"
        );
        assert_eq!(lines(&redactor, "", "plain", None), "error: plain\n");
    }
}
