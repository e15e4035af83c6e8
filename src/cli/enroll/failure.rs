//! The outcome of an enrollment: its exit code, and why it failed. The messages are those of `hermes gateway enroll`.
//!
//! It never contains a token or a secret.

use std::io;
use std::path::PathBuf;

use crate::config::dotenv_edit;
use crate::net::connector_http::{EnrollError, ProvisionError};
use crate::net::identity::IdentityError;
use crate::wire::UrlError;

/// The outcome of an enrollment.
#[derive(Debug)]
pub enum EnrollOutcome {
    /// The credentials are stored or printed.
    Enrolled,
    /// A dry run succeeded; the token was not used.
    Checked,
    /// It failed, completely or partly.
    Failed(EnrollFailure),
}

impl EnrollOutcome {
    /// 0 for success, 2 for an invalid option, 1 for every other failure.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Enrolled | Self::Checked => 0,
            Self::Failed(EnrollFailure::BadOption { .. } | EnrollFailure::BadUrl(_)) => 2,
            Self::Failed(_) => 1,
        }
    }
}

/// Why an enrollment failed. `Display` is the line after the cross mark.
#[derive(Debug, thiserror::Error)]
pub enum EnrollFailure {
    /// The hosting platform owns the credentials.
    #[error("`hermes gateway enroll` is not available in a managed/hosted install.")]
    Managed,
    /// No token was given.
    #[error("No enrollment token. Pass --token <token> (or set GATEWAY_RELAY_ENROLL_TOKEN).")]
    NoToken,
    /// The token could not be read.
    #[error("Could not read the enrollment token: {0}")]
    TokenInput(io::Error),
    /// Enrolled and stored, but the platforms could not be read.
    #[error("Enrolled, but the platforms could not be read: {0}")]
    PlatformInput(io::Error),
    /// No connector URL was given.
    #[error(
        "No connector URL. Pass --connector-url <url> (or set GATEWAY_RELAY_URL / gateway.relay_url in config.yaml)."
    )]
    NoUrl,
    /// The connector URL is invalid.
    #[error("The connector URL cannot be used: {0}")]
    BadUrl(UrlError),
    /// An option is invalid.
    #[error("{option} cannot be used: {reason}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// There is no portal login, or it has expired.
    #[error("You're not logged into Nous Portal.")]
    NotLoggedIn,
    /// Another reason for a missing identity token.
    #[error("Could not resolve a caller-identity token: {0}")]
    Identity(IdentityError),
    /// The file cannot be written; detected before the token was used.
    #[error("Cannot write to {}: {reason}", path.display())]
    Destination {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: io::Error,
    },
    /// The file cannot be locked; detected before the token was used.
    #[error("Cannot store credentials: {0}")]
    Locked(dotenv_edit::EditError),
    /// The connector refused, or could not be reached.
    #[error("Enrollment failed: {}", capitalised(&.0.to_string()))]
    Enroll(EnrollError),
    /// Enrolled, but the credentials could not be stored.
    #[error("Enrolled, but the credentials could not be stored: {0}")]
    Write(dotenv_edit::EditError),
    /// Enrolled and stored, but the wake URL was not registered.
    #[error("Enrolled, but the wake URL was not registered: {0}")]
    Wake(ProvisionError),
    /// Enrolled and stored, but the dial of `--check` failed.
    #[error("Enrolled, but the check failed: {0}")]
    Check(String),
}

impl EnrollFailure {
    /// What to do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Managed => "the hosting platform provisions the relay's credentials; you need not enroll",
            Self::NoToken => {
                "the connector's operator issues the token; it works once. Run this in a terminal, pipe the token in with --token -, or \
                 set GATEWAY_RELAY_ENROLL_TOKEN"
            }
            Self::TokenInput(_) => "pipe the token in with --token -, or set GATEWAY_RELAY_ENROLL_TOKEN",
            Self::PlatformInput(_) => {
                "the credentials are stored; add GATEWAY_RELAY_PLATFORMS=discord,telegram (for instance) to that file"
            }
            Self::NoUrl | Self::BadUrl(_) => "it looks like https://connector.example",
            Self::BadOption { .. } => "see --help",
            Self::NotLoggedIn => {
                "run `hermes auth add nous`, or set GATEWAY_RELAY_IDP_TOKEN_URL to your own identity provider, then retry; \
                 the enrollment token is still unused"
            }
            Self::Identity(_) => "fix that and retry; the enrollment token is still unused",
            Self::Destination { .. } => {
                "fix that, or use --output FILE or --print; the enrollment token is still unused"
            }
            Self::Locked(_) => {
                "retry when the other process has finished; the enrollment token is still unused"
            }
            Self::Enroll(EnrollError::Identity) => {
                "check which account or client the identity token belongs to"
            }
            Self::Enroll(EnrollError::Forbidden { .. }) => "ask the connector's operator for a new token",
            Self::Enroll(EnrollError::Status { status: 404, .. }) => {
                "this connector may not offer enrollment; ask its operator for an id and a secret"
            }
            Self::Enroll(EnrollError::Status { .. } | EnrollError::NoSecret) => {
                "ask the connector's operator what it logged"
            }
            Self::Enroll(EnrollError::Plaintext { .. }) => {
                "write the URL with https://, or set `connector.allow_plaintext` if the network is yours; the enrollment token is \
                 still unused"
            }
            Self::Enroll(EnrollError::Unreachable { .. }) => {
                "check the URL, the network and any proxy, then retry"
            }
            Self::Write(_) => {
                "the token is used up: make the file writable, then enroll again with a new token"
            }
            Self::Wake(_) => {
                "the credentials are stored and work; until the connector knows the URL it cannot wake this gateway"
            }
            Self::Check(_) => "the credentials are stored; run `hermes-relay doctor` to find the cause",
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_uppercase().chain(chars).collect())
        .unwrap_or_default()
}
