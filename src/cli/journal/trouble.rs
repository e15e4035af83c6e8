//! What can go wrong with the journal, and how a person is told.

use std::io;
use std::process::ExitCode;

use crate::cli::exit::{self, Voice};
use crate::config::Loaded;
use crate::store::{InspectError, OpenError};

/// Why the verb ends early.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Someone is to be told.
    Told {
        code: u8,
        what: String,
        hint: Option<String>,
    },
    /// The output cannot be written.
    Output(io::Error),
    /// The journal cannot be read.
    Journal(InspectError),
}

impl Trouble {
    pub(super) fn told(code: u8, what: impl Into<String>, hint: &str) -> Self {
        Self::Told {
            code,
            what: what.into(),
            hint: Some(hint.to_owned()),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<InspectError> for Trouble {
    fn from(error: InspectError) -> Self {
        Self::Journal(error)
    }
}

/// Tells what went wrong, unless only the reader of a pipe has gone.
pub(super) fn tell(trouble: Trouble, loaded: &Loaded, voice: Voice) -> ExitCode {
    let dir = loaded.settings.state_dir.display();
    match trouble {
        Trouble::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Trouble::Output(error) => voice.fail(exit::FAILED, format!("cannot write: {error}"), None),
        Trouble::Told { code, what, hint } => voice.fail(code, what, hint.as_deref()),
        Trouble::Journal(InspectError::NoJournal(path)) => {
            let origin = loaded.origins.of("state_dir");
            let hint = format!(
                "the state directory is {dir} ({origin}); name the relay's with --state-dir DIR, or the file that does with --config FILE"
            );
            voice.fail(exit::FAILED, InspectError::NoJournal(path), Some(&hint))
        }
        Trouble::Journal(InspectError::Open(error @ OpenError::InUse { .. })) => {
            let stop = match &error {
                OpenError::InUse { pid, .. } => pid.pid().map(|pid| format!(" (kill -TERM {pid})")),
                _ => None,
            };
            let hint = format!(
                "stop that relay{}, do this, and start it again; list, show and export work meanwhile",
                stop.unwrap_or_default()
            );
            voice.fail(exit::TRY_AGAIN, error, Some(&hint))
        }
        Trouble::Journal(InspectError::Open(error @ OpenError::Directory { .. })) => voice.fail(
            exit::CONFIGURATION,
            error,
            Some("run this as the user that runs the relay"),
        ),
        Trouble::Journal(InspectError::Open(error)) => voice.fail(exit::CONFIGURATION, error, None),
        Trouble::Journal(
            error @ (InspectError::Fault(_) | InspectError::NoSuchItem | InspectError::NotRetryable),
        ) => voice.fail(exit::FAILED, error, None),
    }
}
