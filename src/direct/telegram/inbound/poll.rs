//! What follows the answer to a poll: when to poll next, and whether to report an error.
//!
//! A bot has one poller. A conflict means that another program polled after us, and fast retries would end each other's polls
//! for ever; so a conflict is reported once, and retried slowly. Answers can still be sent meanwhile.

use std::time::Duration;

use serde_json::Value;

use crate::backoff::{Backoff, jitter};
use crate::direct::telegram::call::ApiAnswer;

/// The first and the longest delay after a failure.
const FAILURE_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Delay after each of the first conflicts: a program that is being replaced is gone soon.
const CONFLICT_DELAY: Duration = Duration::from_secs(3);
/// The number of these first conflicts.
const FIRST_CONFLICTS: u32 = 3;
/// The first and the longest delay after further conflicts.
const CONFLICT_DELAYS: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(30));
/// Failures in a row after which the bot counts as offline.
const OFFLINE_AFTER: u32 = 2;
/// Delay before a refused token is tried again.
const REFUSED_DELAY: Duration = Duration::from_secs(300);
/// Longest wait that the server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Why a poll brought no updates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PollTrouble {
    /// Telegram cannot be reached.
    #[error("cannot reach Telegram: {0}")]
    Unreachable(String),
    /// The connection broke, or the server answered with an error of its own.
    #[error("Telegram gave no usable answer")]
    NoAnswer,
    /// Another program polls the same bot.
    #[error("another program polls this bot; stop it, or give this relay a bot of its own")]
    Conflict,
    /// A webhook is set, which excludes polling. It is removed; updates that wait for it stay.
    #[error("a webhook is set for this bot, so another program may own it; removing it")]
    Webhook,
    /// The server asks to wait.
    #[error("Telegram asks to poll less often")]
    RateLimited,
    /// The token is not accepted.
    #[error("Telegram does not accept the bot's token: {0}")]
    Refused(String),
    /// Any other error.
    #[error("Telegram refused the poll: {0}")]
    Other(String),
}

/// What follows an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum PollStep {
    /// The poll succeeded with these updates, perhaps none.
    Updates(Value),
    /// Poll again after a while.
    Retry(PollRetry),
}

/// The next attempt after a poll that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollRetry {
    /// The delay before the next poll.
    pub after: Duration,
    /// The reason for the delay.
    pub trouble: PollTrouble,
    /// Whether this trouble is the first of its kind in an outage, and so is reported.
    pub is_news: bool,
    /// Whether answers cannot be sent either.
    pub is_offline: bool,
}

/// The state of polling.
#[derive(Debug)]
pub struct Polling {
    failure: Backoff,
    conflict: Backoff,
    conflicts: u32,
    failures: u32,
    /// The kinds of trouble that were reported in this outage.
    reported: Vec<std::mem::Discriminant<PollTrouble>>,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            failure: Backoff::new(FAILURE_DELAYS.0, FAILURE_DELAYS.1),
            conflict: Backoff::new(CONFLICT_DELAYS.0, CONFLICT_DELAYS.1),
            conflicts: 0,
            failures: 0,
            reported: Vec::new(),
        }
    }
}

impl Polling {
    /// Takes the answer to a poll. `random` spreads the retries.
    pub fn answered(&mut self, answer: ApiAnswer, random: u64) -> PollStep {
        let trouble = match answer {
            ApiAnswer::Ok(updates) => {
                *self = Self::default();
                return PollStep::Updates(updates);
            }
            ApiAnswer::NotSent(why) => PollTrouble::Unreachable(why),
            ApiAnswer::Unknown => PollTrouble::NoAnswer,
            ApiAnswer::Error {
                code,
                description,
                retry_after,
                ..
            } => match code {
                401 | 404 => PollTrouble::Refused(description),
                409 if description.to_ascii_lowercase().contains("webhook") => PollTrouble::Webhook,
                409 => PollTrouble::Conflict,
                429 => return self.limited(retry_after),
                _ => PollTrouble::Other(description),
            },
        };
        let after = match &trouble {
            PollTrouble::Conflict | PollTrouble::Webhook => {
                self.conflicts = self.conflicts.saturating_add(1);
                let delay = if self.conflicts <= FIRST_CONFLICTS {
                    CONFLICT_DELAY
                } else {
                    self.conflict.next_delay()
                };
                delay + jitter(delay / 4, random)
            }
            PollTrouble::Refused(_) => REFUSED_DELAY,
            _ => {
                let delay = self.failure.next_delay();
                delay / 2 + jitter(delay / 2, random)
            }
        };
        self.failures += u32::from(!matches!(
            trouble,
            PollTrouble::Conflict | PollTrouble::Webhook | PollTrouble::RateLimited
        ));
        self.retry(after, trouble)
    }

    fn limited(&mut self, retry_after: Option<u64>) -> PollStep {
        let asked = Duration::from_secs(retry_after.unwrap_or(1)).min(MAX_RETRY_AFTER);
        self.retry(asked + Duration::from_secs(1), PollTrouble::RateLimited)
    }

    fn retry(&mut self, after: Duration, trouble: PollTrouble) -> PollStep {
        let kind = std::mem::discriminant(&trouble);
        let is_news = !self.reported.contains(&kind);
        if is_news {
            self.reported.push(kind);
        }
        PollStep::Retry(PollRetry {
            after,
            is_news,
            is_offline: self.failures >= OFFLINE_AFTER || matches!(trouble, PollTrouble::Refused(_)),
            trouble,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i64, description: &str) -> ApiAnswer {
        ApiAnswer::Error {
            code,
            description: description.to_owned(),
            retry_after: None,
            migrate_to: None,
        }
    }

    fn retry(polling: &mut Polling, answer: ApiAnswer) -> PollRetry {
        match polling.answered(answer, 0) {
            PollStep::Retry(retry) => retry,
            PollStep::Updates(_) => panic!("an error is no update"),
        }
    }

    #[test]
    fn a_conflict_is_reported_once_per_outage_and_retried_slowly() {
        let conflict = || error(409, "Conflict: terminated by other getUpdates request");
        let mut polling = Polling::default();
        let mut elapsed = Duration::ZERO;
        let mut polls_in_10_s = 0;
        for number in 0..20 {
            let retry = retry(&mut polling, conflict());
            assert_eq!(retry.is_news, number == 0, "{number}");
            assert!(!retry.is_offline);
            polls_in_10_s += u32::from(elapsed < Duration::from_secs(10));
            elapsed += retry.after;
        }
        assert!(polls_in_10_s <= 4, "{polls_in_10_s}");
        assert!(elapsed > Duration::from_secs(300), "slowly: {elapsed:?}");
        assert!(matches!(
            polling.answered(ApiAnswer::Ok(Value::Array(Vec::new())), 0),
            PollStep::Updates(_)
        ));
        assert!(retry(&mut polling, conflict()).is_news);
    }

    #[test]
    fn a_webhook_is_told_from_another_poller() {
        let mut polling = Polling::default();
        let webhook = error(
            409,
            "Conflict: can't use getUpdates method while webhook is active",
        );
        assert_eq!(retry(&mut polling, webhook).trouble, PollTrouble::Webhook);
        let set = error(409, "Conflict: terminated by setWebhook request");
        assert_eq!(retry(&mut polling, set).trouble, PollTrouble::Webhook);
    }

    #[test]
    fn failures_back_off_to_half_a_minute_and_the_second_means_offline() {
        let mut polling = Polling::default();
        let first = retry(&mut polling, ApiAnswer::Unknown);
        assert!(!first.is_offline && first.is_news && first.after < Duration::from_secs(1));
        let second = retry(&mut polling, ApiAnswer::Unknown);
        assert!(second.is_offline && !second.is_news);
        for _ in 0..10 {
            assert!(retry(&mut polling, ApiAnswer::Unknown).after <= Duration::from_secs(30));
        }
        let other = retry(&mut polling, ApiAnswer::NotSent("refused".to_owned()));
        assert!(other.is_news, "another cause is news");
    }

    #[test]
    fn a_wait_that_is_asked_for_is_kept() {
        let mut polling = Polling::default();
        let limited = |secs| ApiAnswer::Error {
            code: 429,
            description: "Too Many Requests".to_owned(),
            retry_after: Some(secs),
            migrate_to: None,
        };
        assert_eq!(retry(&mut polling, limited(7)).after, Duration::from_secs(8));
        let longest = retry(&mut polling, limited(u64::MAX)).after;
        assert_eq!(longest, MAX_RETRY_AFTER + Duration::from_secs(1));
    }

    #[test]
    fn a_token_that_is_not_accepted_is_tried_again_after_minutes() {
        for code in [401, 404] {
            let refused = retry(&mut Polling::default(), error(code, "Unauthorized"));
            assert_eq!(refused.after, REFUSED_DELAY);
            assert!(refused.is_offline && matches!(refused.trouble, PollTrouble::Refused(_)));
        }
    }
}
