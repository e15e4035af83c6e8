//! Why a relay cannot start, with the exit code of each reason and what to do about it.

use std::io::ErrorKind;
use std::process::ExitCode;

use crate::cli::exit;
use crate::cli::logging::Complaints;
use crate::relay::BuildError;
use crate::serve::ServeError;
use crate::store::OpenError;

/// What to do without a connector's URL.
pub(super) const NO_URL: &str = "enrol with `hermes-relay enroll --connector-url URL`, set GATEWAY_RELAY_URL, \
                                 or try everything on this machine with `hermes-relay dev`";

/// Why nobody answers.
pub(in crate::cli) struct Unstaffed {
    pub(in crate::cli) what: String,
    pub(in crate::cli) hint: Option<&'static str>,
}

/// Why there is no relay.
pub(super) enum Unbuilt {
    /// What would suspend the machine cannot be used.
    Lever(String),
    /// It could not be put together.
    Relay(BuildError),
}

impl Unbuilt {
    /// Tells it.
    pub(super) fn told(&self, complaints: &Complaints) -> ExitCode {
        match self {
            Self::Lever(error) => complaints.fail(exit::CONFIGURATION, error, None),
            Self::Relay(error) => build_failure(error, complaints),
        }
    }
}

fn build_failure(error: &BuildError, complaints: &Complaints) -> ExitCode {
    match error {
        BuildError::NoUrl => complaints.fail(exit::CONFIGURATION, error, Some(NO_URL)),
        BuildError::Journal(OpenError::InUse { .. }) => complaints.fail(
            exit::TRY_AGAIN,
            error,
            Some("stop the other relay, or give this one its own --state-dir"),
        ),
        BuildError::Journal(OpenError::Corrupt { .. }) => complaints.fail(
            exit::CONFIGURATION,
            error,
            Some("keep a copy of the file, then start once with --fresh-journal-if-corrupt"),
        ),
        BuildError::Journal(OpenError::Directory { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            complaints.fail(exit::OUR_FAULT, error, Some("free some space on that disk"))
        }
        BuildError::Journal(OpenError::Directory { .. }) => {
            let who = rustix::process::geteuid().as_raw();
            let hint = format!(
                "give the state directory, or a container's volume for it, to the account that runs this \
                 (`chown -R {who}`), or name another with --state-dir or HERMES_RELAY_STATE_DIR"
            );
            complaints.fail(exit::CONFIGURATION, error, Some(&hint))
        }
        // The disk may have room again, or the lock be gone, when it is tried again.
        BuildError::Journal(OpenError::Database { .. } | OpenError::Thread(_)) => {
            complaints.fail(exit::OUR_FAULT, error, None)
        }
        BuildError::Agent(_)
        | BuildError::Url(_)
        | BuildError::Plaintext(_)
        | BuildError::Tls(_)
        | BuildError::Journal(_) => complaints.fail(exit::CONFIGURATION, error, None),
    }
}

/// Tells why nothing can be served.
pub(super) fn serve_failure(error: &ServeError, complaints: &Complaints) -> ExitCode {
    match error {
        ServeError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => complaints.fail(
            exit::TRY_AGAIN,
            error,
            Some("end what listens there, or give `serve.http` another port"),
        ),
        ServeError::Listen { .. } | ServeError::Address(_) => {
            complaints.fail(exit::CONFIGURATION, error, None)
        }
    }
}
