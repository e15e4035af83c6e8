//! How long the ops of a chat wait after a failure, so that an outage does not use up the attempts of an answer.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::collections::BoundedCache;

/// First and longest wait.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Chats whose failures are counted.
const MAX_CHATS: usize = 1024;

/// Failures in a row, by chat.
#[derive(Debug)]
pub struct ChatFailures {
    chats: BoundedCache<i64, Backoff>,
}

impl Default for ChatFailures {
    fn default() -> Self {
        Self {
            chats: BoundedCache::new(MAX_CHATS),
        }
    }
}

impl ChatFailures {
    /// A call to a chat failed: how long to wait before that is reported. Longer after each in a row.
    pub fn failed(&mut self, chat: i64) -> Duration {
        let first = Backoff::new(WAITS.0, WAITS.1);
        let mut backoff = self.chats.get(&chat).copied().unwrap_or(first);
        let wait = backoff.next_delay();
        self.chats.insert(chat, backoff);
        wait
    }

    /// A call to a chat was done.
    pub fn succeeded(&mut self, chat: i64) {
        self.chats.remove(&chat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_waits_longer_after_each_failure_in_a_row() {
        let mut failures = ChatFailures::default();
        let waits: Vec<u64> = (0..7).map(|_| failures.failed(1).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(failures.failed(2), WAITS.0, "another chat");
        failures.succeeded(1);
        assert_eq!(failures.failed(1), WAITS.0);
    }
}
