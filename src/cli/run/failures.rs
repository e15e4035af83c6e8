//! Why a relay cannot start, with the exit code of each reason and what to do about it.

use std::io::ErrorKind;
use std::process::ExitCode;

use crate::cli::exit::{self, fail};
use crate::relay::BuildError;
use crate::serve::ServeError;
use crate::store::OpenError;

/// What to do without a connector's URL.
pub(super) const NO_URL: &str = "enrol with `hermes-relay enroll --connector-url URL`, set GATEWAY_RELAY_URL, \
                                 or try everything on this machine with `hermes-relay dev`";

/// Tells why the relay could not be put together.
pub(super) fn build_failure(error: &BuildError) -> ExitCode {
    match error {
        BuildError::NoUrl => fail(exit::CONFIGURATION, error, Some(NO_URL)),
        BuildError::Journal(OpenError::InUse { .. }) => fail(
            exit::TRY_AGAIN,
            error,
            Some("stop the other relay, or give this one its own --state-dir"),
        ),
        BuildError::Journal(OpenError::Corrupt { .. }) => fail(
            exit::CONFIGURATION,
            error,
            Some("keep a copy of the file, then start once with --fresh-journal-if-corrupt"),
        ),
        BuildError::Journal(OpenError::Directory { source, .. })
            if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            fail(exit::OUR_FAULT, error, Some("free some space on that disk"))
        }
        BuildError::Journal(OpenError::Directory { .. }) => {
            let who = rustix::process::geteuid().as_raw();
            let hint = format!(
                "give the state directory, or a container's volume for it, to the account that runs this \
                 (`chown -R {who}`), or name another with --state-dir or HERMES_RELAY_STATE_DIR"
            );
            fail(exit::CONFIGURATION, error, Some(&hint))
        }
        // The disk may have room again, or the lock be gone, when it is tried again.
        BuildError::Journal(OpenError::Database { .. } | OpenError::Thread(_)) => {
            fail(exit::OUR_FAULT, error, None)
        }
        BuildError::Agent(_)
        | BuildError::Url(_)
        | BuildError::Plaintext(_)
        | BuildError::Tls(_)
        | BuildError::Journal(_) => fail(exit::CONFIGURATION, error, None),
    }
}

/// Tells why nothing can be served.
pub(super) fn serve_failure(error: &ServeError) -> ExitCode {
    match error {
        ServeError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => fail(
            exit::TRY_AGAIN,
            error,
            Some("end what listens there, or give `serve.http` another port"),
        ),
        ServeError::Listen { .. } | ServeError::Address(_) => fail(exit::CONFIGURATION, error, None),
    }
}
