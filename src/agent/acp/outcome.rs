//! What the response to a prompt means for the turn and the session, and failures as turn failures.
//!
//! | response | turn | session |
//! |---|---|---|
//! | anything, after a stop was asked for | cancelled | tainted when the answer is an error |
//! | an internal error without output, after a stopped turn | sent again, once | tainted |
//! | unknown session, without output | sent again, once | starts anew |
//! | any other | ends | stays |

use std::time::Duration;

use serde_json::Value;

use super::message::{AUTH_REQUIRED, CANCELLED, INTERNAL, NOT_FOUND, RpcError};
use super::process::{ExitReport, StartError};
use super::rpc::CallError;
use super::settings::Launch;
use crate::agent::{Failure, FailureClass, TELL_OPERATOR, Truncation, TurnEnd};

/// Context of a response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PromptContext {
    /// Whether the agent sent anything.
    pub(super) responded: bool,
    /// Whether a stop was requested.
    pub(super) stopped: bool,
    /// Whether the previous turn was stopped.
    pub(super) after_stop: bool,
    /// Whether this prompt was sent before.
    pub(super) retried: bool,
    /// A refusal may mean that the session is not known.
    pub(super) refusal_is_unknown: bool,
}

/// Outcome of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptOutcome {
    /// The turn ends this way.
    Ended(TurnEnd, SessionEffect),
    /// The turn fails with this error.
    Failed(PromptError),
    /// The prompt was not processed: repair the session and send it again.
    Retry(SessionEffect),
}

/// Effect on the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionEffect {
    /// The session stays usable.
    Usable,
    /// The session must not be used as it is.
    Tainted,
    /// The agent does not know the session.
    Unknown,
}

/// Why a turn fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptError {
    /// A sign-in is required.
    SignIn(RpcError),
    /// The agent reported an error.
    Reported(RpcError),
    /// The response cannot be read.
    Unread,
    /// The agent has ended.
    Exited,
}

/// Evaluates a response.
pub(super) fn evaluate(answer: &Result<Value, CallError>, context: PromptContext) -> PromptOutcome {
    let confirmed = TurnEnd::Cancelled { confirmed: true };
    let untouched = !context.responded && !context.retried;
    match answer {
        Err(CallError::Refused(_)) if context.stopped => {
            PromptOutcome::Ended(confirmed, SessionEffect::Tainted)
        }
        Ok(_) | Err(CallError::Gone | CallError::Unread | CallError::MaybeUnread) if context.stopped => {
            PromptOutcome::Ended(confirmed, SessionEffect::Usable)
        }
        Err(CallError::Gone) => PromptOutcome::Failed(PromptError::Exited),
        Err(CallError::Unread | CallError::MaybeUnread) => PromptOutcome::Failed(PromptError::Unread),
        Err(CallError::Refused(error)) => match error.code {
            AUTH_REQUIRED => PromptOutcome::Failed(PromptError::SignIn(error.clone())),
            CANCELLED => PromptOutcome::Ended(confirmed, SessionEffect::Usable),
            NOT_FOUND if untouched => PromptOutcome::Retry(SessionEffect::Unknown),
            INTERNAL if untouched && context.after_stop => PromptOutcome::Retry(SessionEffect::Tainted),
            _ => PromptOutcome::Failed(PromptError::Reported(error.clone())),
        },
        Ok(result) => match result["stopReason"].as_str() {
            Some("max_tokens") => {
                PromptOutcome::Ended(TurnEnd::Truncated(Truncation::Tokens), SessionEffect::Usable)
            }
            Some("max_turn_requests") => {
                PromptOutcome::Ended(TurnEnd::Truncated(Truncation::Steps), SessionEffect::Usable)
            }
            Some("refusal") if untouched && context.refusal_is_unknown => {
                PromptOutcome::Retry(SessionEffect::Unknown)
            }
            Some("refusal") => PromptOutcome::Ended(TurnEnd::Refused, SessionEffect::Usable),
            Some("cancelled") => PromptOutcome::Ended(confirmed, SessionEffect::Usable),
            // A reason from the future, or none: it did answer.
            _ => PromptOutcome::Ended(TurnEnd::Completed, SessionEffect::Usable),
        },
    }
}

/// Why a session could not be opened.
#[derive(Debug)]
pub(super) enum SessionError {
    /// No process could be started.
    Start(std::sync::Arc<StartError>),
    /// The agent rejected it.
    Refused(RpcError),
    /// The agent has ended.
    Ended(ExitReport),
    /// The response cannot be read.
    Unread,
    /// A line that cannot be read may have been the response.
    MaybeUnread,
    /// The agent timed out.
    TimedOut(Duration),
    /// The response is invalid.
    InvalidResponse(&'static str),
    /// A mode or an option could not be set.
    Configuration(String),
}

impl SessionError {
    /// Whether an agent that was to continue a session cannot: the conversation starts anew. `was_slow`: it did not in time
    /// the last time either.
    pub(super) fn is_lost_session(&self, was_slow: bool) -> bool {
        match self {
            Self::Refused(error) => error.code != AUTH_REQUIRED,
            Self::Unread => true,
            Self::TimedOut(_) | Self::MaybeUnread => was_slow,
            Self::Start(_) | Self::Ended(_) | Self::InvalidResponse(_) | Self::Configuration(_) => false,
        }
    }

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
                format!("The agent could not start the conversation. {TELL_OPERATOR}"),
                format!("{name} refused to open a session: {error}"),
            ),
            Self::Unread => unread(launch),
            Self::MaybeUnread => unread(launch).retryable(),
            Self::Ended(exit_report) => crashed(&exit_report, launch).retryable(),
            Self::TimedOut(limit) => Failure::new(
                FailureClass::Timeout,
                "The agent timed out at start. Try again later.",
                format!("{name} did not open a session within {} s", limit.as_secs()),
            )
            .retryable(),
            Self::InvalidResponse(what) => Failure::new(
                FailureClass::Protocol,
                format!("The agent sent an invalid response. {TELL_OPERATOR}"),
                format!("{name}: {what}"),
            ),
            Self::Configuration(what) => Failure::new(
                FailureClass::Unavailable,
                format!("The agent is not set up correctly. {TELL_OPERATOR}"),
                format!("{name}: {what}"),
            ),
        };
        failure.without_side_effects()
    }
}

/// A sign-in is required.
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
        format!("The agent is not signed in. {TELL_OPERATOR}"),
        format!(
            "{} wants someone to sign in: {error}; {how}{offers}",
            launch.name()
        ),
    )
    .without_side_effects()
}

/// The agent ended before its answer did.
pub(super) fn crashed(exit_report: &ExitReport, launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Crashed,
        "The agent exited unexpectedly. It restarts with the next message.",
        format!("{}: {exit_report}", launch.name()),
    )
}

/// The agent reported an error.
pub(super) fn reported(error: &RpcError, launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Reported,
        "The agent reported an error. Please try again.",
        format!("{}: {error}", launch.name()),
    )
}

/// The failure of a turn whose output overflowed.
pub(super) fn overflow(launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Protocol,
        "The agent produced too much output and was stopped.",
        format!("{} overflowed the output queue", launch.name()),
    )
}

/// The failure of a turn for which the agent wrote something that cannot be read.
pub(super) fn unread(launch: &Launch) -> Failure {
    Failure::new(
        FailureClass::Protocol,
        format!("The agent sent something that cannot be read. {TELL_OPERATOR}"),
        format!(
            "{} wrote a line that is too long or not valid JSON",
            launch.name()
        ),
    )
}

fn start_failure(error: &StartError, launch: &Launch, sign_in: &[String]) -> Failure {
    if let StartError::Refused(error) = error
        && error.code == AUTH_REQUIRED
    {
        return credentials(error, launch, sign_in);
    }
    let passing = match error {
        StartError::Spawn(error) => error.is_transient(),
        StartError::TimedOut(_) | StartError::Ended(_) | StartError::BackingOff { .. } => true,
        StartError::Version(_) | StartError::Refused(_) | StartError::Unread | StartError::Closed => false,
    };
    let class = match error {
        StartError::Version(_) | StartError::Unread => FailureClass::Protocol,
        StartError::TimedOut(_) => FailureClass::Timeout,
        StartError::Spawn(_)
        | StartError::Refused(_)
        | StartError::Ended(_)
        | StartError::BackingOff { .. }
        | StartError::Closed => FailureClass::Unavailable,
    };
    let failure = Failure::new(
        class,
        format!("The agent could not be started. {TELL_OPERATOR}"),
        detail_of(error, launch),
    )
    .without_side_effects();
    if passing { failure.retryable() } else { failure }
}

/// The start error with a remedy.
pub(super) fn detail_of(error: &StartError, launch: &Launch) -> String {
    use crate::agent::child::SpawnError;
    match (error, launch.preset) {
        (StartError::Spawn(SpawnError::NotInstalled(_)), Some(preset)) => {
            format!("{error}; to install it: {}", preset.install)
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stops(reason: &str) -> Value {
        json!({"stopReason": reason})
    }

    fn error(code: i64) -> RpcError {
        RpcError {
            code,
            message: "why".to_owned(),
        }
    }

    fn fails(code: i64) -> Result<Value, CallError> {
        Err(CallError::Refused(error(code)))
    }

    #[test]
    fn a_session_that_cannot_be_continued_the_next_time_either_is_lost() {
        let second = Duration::from_secs(1);
        for (error, was_slow, is_lost) in [
            (SessionError::Refused(error(NOT_FOUND)), false, true),
            (SessionError::Refused(error(AUTH_REQUIRED)), true, false),
            (SessionError::TimedOut(second), false, false),
            (SessionError::TimedOut(second), true, true),
            (SessionError::Unread, false, true),
            (SessionError::MaybeUnread, false, false),
            (SessionError::MaybeUnread, true, true),
            (
                SessionError::Start(std::sync::Arc::new(StartError::TimedOut(second))),
                true,
                false,
            ),
        ] {
            assert_eq!(error.is_lost_session(was_slow), is_lost, "{error:?}");
        }
    }

    #[test]
    fn reasons_to_stop_are_ends_of_turns() {
        let plain = PromptContext::default();
        for (reason, end) in [
            ("end_turn", TurnEnd::Completed),
            ("from_the_future", TurnEnd::Completed),
            ("max_tokens", TurnEnd::Truncated(Truncation::Tokens)),
            ("max_turn_requests", TurnEnd::Truncated(Truncation::Steps)),
            ("refusal", TurnEnd::Refused),
            ("cancelled", TurnEnd::Cancelled { confirmed: true }),
        ] {
            assert_eq!(
                evaluate(&Ok(stops(reason)), plain),
                PromptOutcome::Ended(end, SessionEffect::Usable),
                "{reason}"
            );
        }
        assert_eq!(
            evaluate(&Ok(Value::Null), plain),
            PromptOutcome::Ended(TurnEnd::Completed, SessionEffect::Usable)
        );
        let unknown = PromptContext {
            refusal_is_unknown: true,
            ..plain
        };
        assert_eq!(
            evaluate(&Ok(stops("refusal")), unknown),
            PromptOutcome::Retry(SessionEffect::Unknown)
        );
        for context in [
            PromptContext {
                responded: true,
                ..unknown
            },
            PromptContext {
                retried: true,
                ..unknown
            },
        ] {
            assert_eq!(
                evaluate(&Ok(stops("refusal")), context),
                PromptOutcome::Ended(TurnEnd::Refused, SessionEffect::Usable)
            );
        }
    }

    #[test]
    fn after_a_stop_every_answer_is_cancelled_and_an_error_taints() {
        let stopped = PromptContext {
            stopped: true,
            ..PromptContext::default()
        };
        let cancelled = |effect| PromptOutcome::Ended(TurnEnd::Cancelled { confirmed: true }, effect);
        for reason in ["cancelled", "end_turn", "refusal", "max_tokens"] {
            assert_eq!(
                evaluate(&Ok(stops(reason)), stopped),
                cancelled(SessionEffect::Usable)
            );
        }
        for code in [INTERNAL, CANCELLED, AUTH_REQUIRED] {
            assert_eq!(evaluate(&fails(code), stopped), cancelled(SessionEffect::Tainted));
        }
        assert_eq!(
            evaluate(&Err(CallError::Gone), stopped),
            cancelled(SessionEffect::Usable)
        );
    }

    #[test]
    fn a_prompt_is_sent_again_only_when_nothing_happened() {
        let poisoned = PromptContext {
            after_stop: true,
            ..PromptContext::default()
        };
        assert_eq!(
            evaluate(&fails(INTERNAL), poisoned),
            PromptOutcome::Retry(SessionEffect::Tainted)
        );
        assert_eq!(
            evaluate(&fails(NOT_FOUND), PromptContext::default()),
            PromptOutcome::Retry(SessionEffect::Unknown)
        );
        let reported = |code| PromptOutcome::Failed(PromptError::Reported(error(code)));
        for context in [
            PromptContext {
                responded: true,
                ..poisoned
            },
            PromptContext {
                retried: true,
                ..poisoned
            },
            PromptContext::default(),
        ] {
            assert_eq!(evaluate(&fails(INTERNAL), context), reported(INTERNAL));
        }
        for context in [
            PromptContext {
                responded: true,
                ..poisoned
            },
            PromptContext {
                retried: true,
                ..poisoned
            },
        ] {
            assert_eq!(evaluate(&fails(NOT_FOUND), context), reported(NOT_FOUND));
        }
        assert_eq!(
            evaluate(&Err(CallError::Gone), poisoned),
            PromptOutcome::Failed(PromptError::Exited)
        );
        let sign_in = PromptOutcome::Failed(PromptError::SignIn(error(AUTH_REQUIRED)));
        assert_eq!(evaluate(&fails(AUTH_REQUIRED), poisoned), sign_in);
    }
}
