//! What a failed request means to a chat and to a log.
//!
//! The chat is told what failed and what to do next; what a server said goes to the log alone, shortened and without the
//! key.

use std::time::Duration;

use super::completion::error_text;
use super::{Failure, FailureClass};
use crate::net::agent_http::{AgentHttp, AgentHttpError, Reply};

/// How long the body of an error is waited for.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// What people are told about one backend.
#[derive(Debug)]
pub(super) struct Advice {
    /// Its name at the start of a sentence.
    pub(super) who: &'static str,
    /// What to do when it cannot be reached.
    pub(super) unreachable: &'static str,
    /// What to do when it does not take our key.
    pub(super) credentials: &'static str,
    /// What to do when what was asked for is not there.
    pub(super) missing: &'static str,
}

impl Advice {
    /// The network failed.
    pub(super) fn lost(&self, error: &AgentHttpError) -> Failure {
        let who = self.who;
        let detail = error.to_string();
        match error {
            AgentHttpError::Connect { .. } => {
                let public = format!("{who} cannot be reached. {}", self.unreachable);
                Failure::new(FailureClass::Unavailable, public, detail)
                    .without_side_effects()
                    .retryable()
            }
            AgentHttpError::Silent(_) => {
                let public = format!("{who} said nothing for too long. Please try again.");
                Failure::new(FailureClass::Timeout, public, detail)
            }
            AgentHttpError::Broken(_) => {
                let public = format!("{who} broke off. Please try again.");
                Failure::new(FailureClass::Crashed, public, detail)
            }
            AgentHttpError::Setup(_)
            | AgentHttpError::Address(_)
            | AgentHttpError::Plaintext { .. }
            | AgentHttpError::Header(_) => {
                let public = format!("{who} cannot be asked: its settings are wrong. See the relay's log.");
                Failure::new(FailureClass::Internal, public, detail).without_side_effects()
            }
            AgentHttpError::Redirect { .. } | AgentHttpError::TooLarge | AgentHttpError::Events(_) => {
                let public = format!("{who} gave an answer that cannot be understood. See the relay's log.");
                Failure::new(FailureClass::Protocol, public, detail)
            }
        }
    }

    /// The answer has an error status; its words are read for the log.
    pub(super) async fn refused(&self, http: &AgentHttp, reply: Reply) -> Failure {
        let (status, retry_after) = (reply.status, reply.retry_after);
        let said = match reply.short_body(BODY_PATIENCE).await {
            Ok(body) => http.redact(&error_text(&body)),
            Err(error) => error.to_string(),
        };
        self.refused_with(status, retry_after, &said)
    }

    /// As [`Advice::refused`], with the server's words at hand.
    pub(super) fn refused_with(&self, status: u16, retry_after: Option<Duration>, said: &str) -> Failure {
        let who = self.who;
        let detail = format!("HTTP {status}: {said}");
        let (class, public) = match status {
            401 | 403 => (
                FailureClass::Credentials,
                format!("{who} does not accept the key. {}", self.credentials),
            ),
            404 => (
                FailureClass::Reported,
                format!("{who} does not know what was asked for. {}", self.missing),
            ),
            408 | 504 => (
                FailureClass::Timeout,
                format!("{who} took too long. Please try again."),
            ),
            413 => (
                FailureClass::Reported,
                format!("{who} finds this conversation too long. Begin a new one, or send less."),
            ),
            429 => (
                FailureClass::Unavailable,
                format!("{who} is busy. {}", try_again(retry_after)),
            ),
            500..=599 => (
                FailureClass::Unavailable,
                format!("{who} has a problem of its own. {}", try_again(retry_after)),
            ),
            _ => (
                FailureClass::Reported,
                format!("{who} refused the request (HTTP {status}). See the relay's log."),
            ),
        };
        let failure = Failure::new(class, public, detail).without_side_effects();
        if may_pass(status) {
            failure.retryable()
        } else {
            failure
        }
    }
}

/// Whether the same request may be taken a moment later.
pub(super) fn may_pass(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

fn try_again(retry_after: Option<Duration>) -> String {
    match retry_after.map(|wait| wait.as_secs()) {
        None | Some(0) => "Please try again in a moment.".to_owned(),
        Some(secs @ 1..=90) => format!("Please try again in {secs} seconds."),
        Some(secs) => format!("Please try again in {} minutes.", secs.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_in_words() {
        assert_eq!(try_again(None), "Please try again in a moment.");
        assert_eq!(
            try_again(Some(Duration::from_secs(7))),
            "Please try again in 7 seconds."
        );
        assert_eq!(
            try_again(Some(Duration::from_secs(3601))),
            "Please try again in 61 minutes."
        );
    }
}
