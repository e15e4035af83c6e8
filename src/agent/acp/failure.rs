//! How trouble with an agent is told: little to the chat, everything to the log, and what to do to both.

use std::time::Duration;

use super::message::{AUTH_REQUIRED, RpcError};
use super::process::{Obituary, StartError};
use super::settings::Launch;
use crate::agent::{Failure, FailureClass};

/// Why a session could not be opened.
#[derive(Debug)]
pub(super) enum OpenError {
    /// There is no process.
    Start(std::sync::Arc<StartError>),
    /// The agent said no.
    Refused(RpcError),
    /// The agent has ended.
    Ended(Obituary),
    /// The agent took too long.
    Slow(Duration),
    /// The agent said something that makes no sense.
    Nonsense(&'static str),
    /// A mode or an option could not be set.
    Unsettable(String),
}

impl OpenError {
    /// The failure of a turn that could not begin for it. Nothing was asked of the agent yet.
    pub(super) fn failure(self, launch: &Launch, sign_in: &[String]) -> Failure {
        let name = launch.name();
        let failure = match self {
            Self::Start(error) => return start_failure(&error, launch, sign_in),
            Self::Refused(error) if error.code == AUTH_REQUIRED => {
                return credentials(&error, launch, sign_in);
            }
            Self::Refused(error) => Failure::new(
                FailureClass::Reported,
                "The agent could not begin the conversation. Its operator finds the reason in the log.",
                format!("{name} refused to open a session: {error}"),
            ),
            Self::Ended(obituary) => crashed(&obituary, launch).retryable(),
            Self::Slow(limit) => Failure::new(
                FailureClass::Timeout,
                "The agent took too long to begin. Try again later.",
                format!("{name} did not open a session within {} s", limit.as_secs()),
            )
            .retryable(),
            Self::Nonsense(what) => Failure::new(
                FailureClass::Protocol,
                "The agent answered something that cannot be understood. Its operator finds more in the log.",
                format!("{name}: {what}"),
            ),
            Self::Unsettable(what) => Failure::new(
                FailureClass::Unavailable,
                "The agent does not accept its settings. Its operator finds the reason in the log.",
                format!("{name}: {what}"),
            ),
        };
        failure.without_side_effects()
    }
}

/// The agent wants someone to sign in.
pub(super) fn credentials(error: &RpcError, launch: &Launch, sign_in: &[String]) -> Failure {
    let how = match launch.preset {
        Some(preset) => preset.sign_in.to_owned(),
        None => format!("start {} by hand once and sign in", launch.name()),
    };
    let offers = match sign_in {
        [] => String::new(),
        methods => format!("; it offers: {}", methods.join(", ")),
    };
    Failure::new(
        FailureClass::Credentials,
        "The agent is not signed in. Its operator has to sign in first.",
        format!(
            "{} wants someone to sign in: {error}; {how}{offers}",
            launch.name()
        ),
    )
    .without_side_effects()
}

/// The agent ended before its answer did.
pub(super) fn crashed(obituary: &Obituary, launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Crashed,
        "The agent ended unexpectedly. It is started again for the next message.",
        format!("{}: {obituary}", launch.name()),
    )
}

/// The agent says that it failed.
pub(super) fn reported(error: &RpcError, launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Reported,
        "The agent reported an error. Its operator finds it in the log.",
        format!("{}: {error}", launch.name()),
    )
}

/// The agent said more than can be passed on.
pub(super) fn overrun(launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Protocol,
        "The agent said more than can be passed on, and was stopped.",
        format!("{} said more at once than is taken", launch.name()),
    )
}

fn start_failure(error: &StartError, launch: &Launch, sign_in: &[String]) -> Failure {
    if let StartError::Refused(error) = error
        && error.code == AUTH_REQUIRED
    {
        return credentials(error, launch, sign_in);
    }
    let passing = match error {
        StartError::Spawn(error) => error.passing(),
        StartError::Silent(_) | StartError::Ended(_) | StartError::Resting { .. } => true,
        StartError::Version(_) | StartError::Refused(_) | StartError::Closed => false,
    };
    let class = match error {
        StartError::Version(_) => FailureClass::Protocol,
        StartError::Silent(_) => FailureClass::Timeout,
        StartError::Spawn(_)
        | StartError::Refused(_)
        | StartError::Ended(_)
        | StartError::Resting { .. }
        | StartError::Closed => FailureClass::Unavailable,
    };
    let failure = Failure::new(
        class,
        "The agent could not be started. Its operator finds the reason in the log.",
        told(error, launch),
    )
    .without_side_effects();
    if passing { failure.retryable() } else { failure }
}

/// Why there is no process, and how to get one.
pub(super) fn told(error: &StartError, launch: &Launch) -> String {
    use crate::agent::child::SpawnError;
    match (error, launch.preset) {
        (StartError::Spawn(SpawnError::NotInstalled(_)), Some(preset)) => {
            format!("{error}; to install it: {}", preset.install)
        }
        _ => error.to_string(),
    }
}
