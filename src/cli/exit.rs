//! Exit codes, one meaning each, and how an error is told.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

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
