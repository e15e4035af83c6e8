//! Exit codes and output: results on standard output, errors on standard error, with `--json` also on standard output.
//! Text from outside is escaped here, at the way out.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

use super::format::{stderr, stdout};

/// The answer is no, or it failed.
pub(super) const FAILED: u8 = 1;
/// The command line is invalid.
pub(super) const USAGE: u8 = 2;
/// No relay is running, or it does not answer.
pub(super) const UNAVAILABLE: u8 = 69;
/// An internal error, or a failure that a restart may solve.
pub(super) const INTERNAL: u8 = 70;
/// Try again: another process is in the way, or a restart was requested.
pub(super) const TRY_AGAIN: u8 = 75;
/// Refused or revoked: enroll again, or get a new token for the bot.
pub(super) const REFUSED: u8 = 77;
/// The configuration is invalid.
pub(super) const CONFIGURATION: u8 = 78;

/// Every exit code and its meaning, for the help, the manual page and `docs/operations.md`.
pub(super) const CODES: [(u8, &str); 8] = [
    (0, "success; for `run`: stopped on request, or gone to sleep"),
    (
        FAILED,
        "the answer is no: not ready, not found, not accepted, failed; for `run`: stopped twice",
    ),
    (USAGE, "invalid command line"),
    (UNAVAILABLE, "no relay is running here, or it does not answer"),
    (
        INTERNAL,
        "an internal error, or one that may be temporary: start it again",
    ),
    (
        TRY_AGAIN,
        "the state directory or the port is in use, or a restart was requested",
    ),
    (
        REFUSED,
        "the connector has revoked this gateway (enroll again), or Telegram refuses the bot's token",
    ),
    (
        CONFIGURATION,
        "the settings, or a file or address on the command line, cannot be used",
    ),
];

/// The exit codes as a list for people.
pub(super) fn codes() -> String {
    let mut list = "Exit codes:".to_owned();
    for (code, meaning) in CODES {
        // Writing to a String does not fail.
        let _ = write!(list, "\n  {code:<2}  {meaning}");
    }
    list
}

/// How a verb reports errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorFormat {
    /// On standard error.
    Text,
    /// Also as one JSON document on standard output.
    Json,
}

impl ErrorFormat {
    pub(super) fn new(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }

    /// Prints the error and the hint; returns the exit code.
    pub(super) fn fail(self, code: u8, error: impl Display, hint: Option<&str>) -> ExitCode {
        if self == Self::Json {
            print_error(code, &error.to_string(), hint);
        }
        fail(code, error, hint)
    }
}

/// Prints an error as the JSON document of a verb that failed.
pub(super) fn print_error(code: u8, error: &str, hint: Option<&str>) {
    let json = json!({"error": {"exit_code": code, "message": error, "hint": hint}});
    // Ignore a closed standard output: the exit code still reports the failure.
    let _ = writeln!(stdout(), "{json}");
}

/// Prints the error and the hint; returns the exit code.
pub(super) fn fail(code: u8, error: impl Display, hint: Option<&str>) -> ExitCode {
    let mut err = stderr();
    // Ignore a closed standard error: the exit code still reports the failure.
    let _ = writeln!(err, "error: {error}");
    if let Some(hint) = hint {
        let _ = writeln!(err, "hint: {hint}");
    }
    ExitCode::from(code)
}

/// Prints a line as the result of a verb.
pub(super) fn print(line: impl Display) -> ExitCode {
    let mut out = stdout();
    finish(writeln!(out, "{line}").and_then(|()| out.flush()))
}

/// The exit code of a verb that has printed its result. A reader that went away is no failure.
pub(super) fn finish(written: io::Result<()>) -> ExitCode {
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot write: {error}"), None),
    }
}

/// Prints a line on standard output. Unlike `println!` it ignores a reader that went away and a full disk.
macro_rules! outln {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut $crate::cli::format::stdout(),
            format_args!("{}\n", format_args!($($text)*)),
        );
    }};
}

/// [`outln!`] on standard error.
macro_rules! errln {
    ($($text:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut $crate::cli::format::stderr(),
            format_args!("{}\n", format_args!($($text)*)),
        );
    }};
}

pub(super) use {errln, outln};
