//! How long the ops of a chat wait after a failure, so that an outage does not use up the attempts of an answer. Knows no
//! platform: a chat is any key.

use std::hash::Hash;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::collections::BoundedCache;

/// The first and the longest wait.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Chats whose failures are counted; the least recently used chat makes room.
const MAX_CHATS: usize = 1024;

/// A backoff per chat.
#[derive(Debug)]
pub struct ChatBackoff<C> {
    chats: BoundedCache<C, Backoff>,
}

impl<C: Clone + Eq + Hash> Default for ChatBackoff<C> {
    fn default() -> Self {
        Self {
            chats: BoundedCache::new(MAX_CHATS),
        }
    }
}

impl<C: Clone + Eq + Hash> ChatBackoff<C> {
    /// A call to a chat failed: returns the wait before the failure is reported, which grows with every failure in a row.
    pub fn failed(&mut self, chat: C) -> Duration {
        let first = Backoff::new(WAITS.0, WAITS.1);
        let mut backoff = self.chats.get(&chat).copied().unwrap_or(first);
        let wait = backoff.next_delay();
        self.chats.insert(chat, backoff);
        wait
    }

    /// A call to a chat succeeded.
    pub fn succeeded(&mut self, chat: &C) {
        self.chats.remove(chat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_waits_longer_after_each_failure_in_a_row() {
        let mut backoff = ChatBackoff::default();
        let waits: Vec<u64> = (0..7).map(|_| backoff.failed(1).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.failed(2), WAITS.0, "another chat");
        backoff.succeeded(&1);
        assert_eq!(backoff.failed(1), WAITS.0);
    }
}
