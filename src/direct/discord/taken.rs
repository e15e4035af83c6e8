//! Up to where the events of a session were committed, and the last committed message of each chat. The journal knows messages that
//! it has, so a stored state that lags behind only makes Discord send some of them again.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::collections::BoundedCache;

/// Chats whose last message is remembered; the least recently used makes room.
const MAX_CHATS: usize = 512;

/// A session that can be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSession {
    /// The session's id.
    pub id: String,
    /// The address for resuming.
    pub resume_url: String,
    /// The number of the last event that is committed with all before it.
    pub seq: u64,
}

/// An event that was forwarded and is not committed.
#[derive(Clone, Debug)]
struct EventInFlight {
    seq: Option<u64>,
    chat: String,
    message: u64,
}

/// What was taken from the gateway.
#[derive(Debug)]
pub struct TakenEvents {
    /// The number of the last event that was read.
    read: u64,
    /// Forwarded events, by their buffer id.
    in_flight: HashMap<String, EventInFlight>,
    chats: BoundedCache<String, u64>,
}

impl TakenEvents {
    /// Goes on after the event with this number, with the last message of each chat.
    pub fn new(seq: u64, chats: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut known = BoundedCache::new(MAX_CHATS);
        for (chat, message) in chats {
            known.insert(chat, message);
        }
        Self {
            read: seq,
            in_flight: HashMap::new(),
            chats: known,
        }
    }

    /// A session has begun: the numbers start over.
    pub fn begin(&mut self, seq: u64) {
        self.read = seq;
        for event in self.in_flight.values_mut() {
            event.seq = None;
        }
    }

    /// An event was read.
    pub fn read(&mut self, seq: u64) {
        self.read = self.read.max(seq);
    }

    /// An event is forwarded under this buffer id; without a number it was fetched.
    pub fn forwarded(&mut self, buffer_id: &str, seq: Option<u64>, chat: &str, message: u64) {
        self.in_flight.insert(
            buffer_id.to_owned(),
            EventInFlight {
                seq,
                chat: chat.to_owned(),
                message,
            },
        );
    }

    /// A message that is not for the agent was read.
    pub fn passed(&mut self, chat: &str, message: u64) {
        if !self.in_flight.values().any(|event| event.chat == chat) {
            self.seen(chat, message);
        }
    }

    fn seen(&mut self, chat: &str, message: u64) {
        let last = self.chats.get(&chat.to_owned()).copied().unwrap_or_default();
        self.chats.insert(chat.to_owned(), last.max(message));
    }

    /// The relay has committed an event; `false` if it is not known.
    pub fn acknowledged(&mut self, buffer_id: &str) -> bool {
        let Some(event) = self.in_flight.remove(buffer_id) else {
            return false;
        };
        if event.message > 0 {
            self.seen(&event.chat, event.message);
        }
        true
    }

    /// Nothing that was forwarded will be acknowledged any more.
    pub fn forget(&mut self) {
        let committed = self.committed();
        self.in_flight.clear();
        self.read = committed;
    }

    /// The number of the last event that is committed with all before it.
    pub fn committed(&self) -> u64 {
        let lowest = self.in_flight.values().filter_map(|event| event.seq).min();
        lowest.map_or(self.read, |seq| seq.saturating_sub(1).min(self.read))
    }

    /// The last message of each chat.
    pub fn chats(&self) -> BTreeMap<String, u64> {
        let keys = self.chats.recent_keys();
        keys.filter_map(|chat| Some((chat.clone(), *self.chats.peek(chat)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_committed_with_all_before_it_counts() {
        let mut taken = TakenEvents::new(3, []);
        taken.read(4);
        taken.forwarded("a", Some(4), "c", 40);
        taken.read(5);
        taken.forwarded("b", Some(5), "c", 50);
        taken.read(6);
        taken.passed("c", 60);
        assert_eq!(taken.committed(), 3);
        assert!(taken.acknowledged("b"));
        assert_eq!((taken.committed(), taken.chats().get("c")), (3, Some(&50)));
        assert!(taken.acknowledged("a") && !taken.acknowledged("a"));
        assert_eq!((taken.committed(), taken.chats().get("c")), (6, Some(&50)));
        taken.passed("c", 70);
        assert_eq!(taken.chats().get("c"), Some(&70));
    }

    #[test]
    fn what_is_forgotten_comes_again() {
        let mut taken = TakenEvents::new(0, []);
        taken.read(9);
        taken.forwarded("a", Some(8), "c", 1);
        taken.forget();
        assert_eq!((taken.committed(), taken.in_flight.len()), (7, 0));
    }
}
