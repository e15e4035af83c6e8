//! Exit codes, one meaning each, and how an error is told: to people on standard error, and to programs that asked for
//! JSON also on standard output.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

/// The answer is no, or it failed.
pub(super) const FAILED: u8 = 1;
/// There is no relay to ask.
pub(super) const UNAVAILABLE: u8 = 69;
/// What was typed makes no sense.
pub(super) const USAGE: u8 = 2;
/// A bug of ours, or a fault that we could not survive.
pub(super) const OUR_FAULT: u8 = 70;
/// Try again: another process is still in the way, or a restart was asked for.
pub(super) const TRY_AGAIN: u8 = 75;
/// Refused or revoked: enrol again.
pub(super) const REFUSED: u8 = 77;
/// The configuration cannot be used.
pub(super) const CONFIGURATION: u8 = 78;

/// Every exit code and what it means, for the help, the manual page and `docs/operations.md`.
pub(super) const CODES: [(u8, &str); 8] = [
    (0, "done; for `run`: asked to stop, or gone to sleep"),
    (
        FAILED,
        "the answer is no: not ready, not found, not accepted, failed; for `run`: stopped twice",
    ),
    (USAGE, "what was typed makes no sense"),
    (UNAVAILABLE, "no relay is running here that could be asked"),
    (OUR_FAULT, "a fault of ours, or one that may pass: start it again"),
    (
        TRY_AGAIN,
        "the state directory or the port is in use, or a restart was asked for",
    ),
    (REFUSED, "the connector has revoked this gateway: enrol again"),
    (
        CONFIGURATION,
        "the settings, or a file or address that was named, cannot be used",
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

/// Whom a verb speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    /// People: errors on standard error.
    People,
    /// Programs, which asked for JSON: errors also as one JSON document on standard output.
    Programs,
}

impl Voice {
    /// The voice of a verb with a switch for JSON.
    pub(super) fn of(json: bool) -> Self {
        if json { Self::Programs } else { Self::People }
    }

    /// Tells what failed and what to do, and gives the exit code back.
    pub(super) fn fail(self, code: u8, what: impl Display, hint: Option<&str>) -> ExitCode {
        if self == Self::Programs {
            let told = json!({"error": {"exit_code": code, "message": what.to_string(), "hint": hint}});
            // Nobody reads it any more: the exit code still tells.
            let _ = writeln!(anstream::stdout(), "{told}");
        }
        fail(code, what, hint)
    }
}

/// Tells a person what failed and what to do, and gives the exit code back.
pub(super) fn fail(code: u8, what: impl Display, hint: Option<&str>) -> ExitCode {
    let mut err = anstream::stderr().lock();
    // Nobody reads it any more: the exit code still tells.
    let _ = writeln!(err, "error: {what}");
    if let Some(hint) = hint {
        let _ = writeln!(err, "hint: {hint}");
    }
    ExitCode::from(code)
}

/// The exit code of a verb that has printed what it had to say. A reader that has gone is no fault.
pub(super) fn printed(written: io::Result<()>) -> ExitCode {
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, format!("cannot write: {error}"), None),
    }
}

/// Prints a line on standard output. Unlike `println!` it outlives a reader that has gone and a disk that is full: what
/// was done stays done, and the exit code tells.
macro_rules! say {
    ($($words:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut anstream::stdout(),
            format_args!("{}\n", format_args!($($words)*)),
        );
    }};
}

/// The same on standard error.
macro_rules! note {
    ($($words:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(
            &mut anstream::stderr(),
            format_args!("{}\n", format_args!($($words)*)),
        );
    }};
}

pub(super) use {note, say};
