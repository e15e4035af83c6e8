//! What a prompt's answer means for the turn and for the session. Pure.
//!
//! | answer | turn | session |
//! |---|---|---|
//! | anything, after a stop was asked for | cancelled | tainted when the answer is an error |
//! | an internal error at once, when the turn before was stopped | again, once | tainted |
//! | no such session, and nothing was said | again, once | begins anew |
//! | any other | ends | stays |

use std::time::Duration;

use serde_json::Value;

use super::message::{AUTH_REQUIRED, CANCELLED, INTERNAL, NOT_FOUND, RpcError};
use super::process::{Obituary, StartError};
use super::rpc::CallError;
use super::settings::Launch;
use crate::agent::{Failure, FailureClass, Truncation, TurnEnd};

/// What happened until the answer came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    /// The agent said, did or asked something.
    pub(super) said: bool,
    /// It was told to stop.
    pub(super) stopped: bool,
    /// The turn before this one was told to stop.
    pub(super) after_stop: bool,
    /// This prompt was sent for the second time.
    pub(super) again: bool,
    /// A refusal may mean that the session is not known.
    pub(super) refusal_is_unknown: bool,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The turn ends so.
    Ends(TurnEnd, Aftermath),
    /// The turn fails so.
    Fails(Trouble),
    /// The prompt was not taken up: mend the session and send it again.
    Again(Aftermath),
}

/// What becomes of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aftermath {
    /// It can be used again.
    Sound,
    /// It must not be used as it is.
    Tainted,
    /// The agent does not know it.
    Unknown,
}

/// Why a turn fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The agent wants someone to sign in.
    SignIn(RpcError),
    /// The agent says that it failed.
    Reported(RpcError),
    /// The agent has ended.
    Gone,
}

/// Decides what follows.
pub(super) fn judge(answer: &Result<Value, CallError>, course: Course) -> Verdict {
    let confirmed = TurnEnd::Cancelled { confirmed: true };
    let untouched = !course.said && !course.again;
    match answer {
        Err(CallError::Refused(_)) if course.stopped => Verdict::Ends(confirmed, Aftermath::Tainted),
        Ok(_) | Err(CallError::Gone) if course.stopped => Verdict::Ends(confirmed, Aftermath::Sound),
        Err(CallError::Gone) => Verdict::Fails(Trouble::Gone),
        Err(CallError::Refused(error)) => match error.code {
            AUTH_REQUIRED => Verdict::Fails(Trouble::SignIn(error.clone())),
            CANCELLED => Verdict::Ends(confirmed, Aftermath::Sound),
            NOT_FOUND if untouched => Verdict::Again(Aftermath::Unknown),
            INTERNAL if untouched && course.after_stop => Verdict::Again(Aftermath::Tainted),
            _ => Verdict::Fails(Trouble::Reported(error.clone())),
        },
        Ok(result) => match result["stopReason"].as_str() {
            Some("max_tokens") => Verdict::Ends(TurnEnd::Truncated(Truncation::Tokens), Aftermath::Sound),
            Some("max_turn_requests") => {
                Verdict::Ends(TurnEnd::Truncated(Truncation::Steps), Aftermath::Sound)
            }
            Some("refusal") if untouched && course.refusal_is_unknown => Verdict::Again(Aftermath::Unknown),
            Some("refusal") => Verdict::Ends(TurnEnd::Refused, Aftermath::Sound),
            Some("cancelled") => Verdict::Ends(confirmed, Aftermath::Sound),
            // A reason from the future, or none: it did answer.
            _ => Verdict::Ends(TurnEnd::Completed, Aftermath::Sound),
        },
    }
}

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
    fn reasons_to_stop_are_ends_of_turns() {
        let plain = Course::default();
        for (reason, end) in [
            ("end_turn", TurnEnd::Completed),
            ("from_the_future", TurnEnd::Completed),
            ("max_tokens", TurnEnd::Truncated(Truncation::Tokens)),
            ("max_turn_requests", TurnEnd::Truncated(Truncation::Steps)),
            ("refusal", TurnEnd::Refused),
            ("cancelled", TurnEnd::Cancelled { confirmed: true }),
        ] {
            assert_eq!(
                judge(&Ok(stops(reason)), plain),
                Verdict::Ends(end, Aftermath::Sound),
                "{reason}"
            );
        }
        assert_eq!(
            judge(&Ok(Value::Null), plain),
            Verdict::Ends(TurnEnd::Completed, Aftermath::Sound)
        );
        let unknown = Course {
            refusal_is_unknown: true,
            ..plain
        };
        assert_eq!(
            judge(&Ok(stops("refusal")), unknown),
            Verdict::Again(Aftermath::Unknown)
        );
        for course in [
            Course {
                said: true,
                ..unknown
            },
            Course {
                again: true,
                ..unknown
            },
        ] {
            assert_eq!(
                judge(&Ok(stops("refusal")), course),
                Verdict::Ends(TurnEnd::Refused, Aftermath::Sound)
            );
        }
    }

    #[test]
    fn after_a_stop_every_answer_is_cancelled_and_an_error_taints() {
        let stopped = Course {
            stopped: true,
            ..Course::default()
        };
        let cancelled = |aftermath| Verdict::Ends(TurnEnd::Cancelled { confirmed: true }, aftermath);
        for reason in ["cancelled", "end_turn", "refusal", "max_tokens"] {
            assert_eq!(judge(&Ok(stops(reason)), stopped), cancelled(Aftermath::Sound));
        }
        for code in [INTERNAL, CANCELLED, AUTH_REQUIRED] {
            assert_eq!(judge(&fails(code), stopped), cancelled(Aftermath::Tainted));
        }
        assert_eq!(judge(&Err(CallError::Gone), stopped), cancelled(Aftermath::Sound));
    }

    #[test]
    fn a_prompt_is_sent_again_only_when_nothing_happened() {
        let poisoned = Course {
            after_stop: true,
            ..Course::default()
        };
        assert_eq!(
            judge(&fails(INTERNAL), poisoned),
            Verdict::Again(Aftermath::Tainted)
        );
        assert_eq!(
            judge(&fails(NOT_FOUND), Course::default()),
            Verdict::Again(Aftermath::Unknown)
        );
        let reported = |code| Verdict::Fails(Trouble::Reported(error(code)));
        for course in [
            Course {
                said: true,
                ..poisoned
            },
            Course {
                again: true,
                ..poisoned
            },
            Course::default(),
        ] {
            assert_eq!(judge(&fails(INTERNAL), course), reported(INTERNAL));
        }
        for course in [
            Course {
                said: true,
                ..poisoned
            },
            Course {
                again: true,
                ..poisoned
            },
        ] {
            assert_eq!(judge(&fails(NOT_FOUND), course), reported(NOT_FOUND));
        }
        assert_eq!(
            judge(&Err(CallError::Gone), poisoned),
            Verdict::Fails(Trouble::Gone)
        );
        let sign_in = Verdict::Fails(Trouble::SignIn(error(AUTH_REQUIRED)));
        assert_eq!(judge(&fails(AUTH_REQUIRED), poisoned), sign_in);
    }
}
