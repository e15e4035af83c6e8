//! Up to where the events of a session were committed, the last committed message of each chat, and the chats whose missed messages
//! are still to be fetched. The journal knows messages that it has, so a stored state that lags behind only makes Discord send some of
//! them again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::request::FetchFailure;
use crate::collections::BoundedCache;
use crate::direct::field;

/// Chats whose last message is remembered; the least recently used makes room.
const MAX_CHATS: usize = 512;
/// Chats whose missed messages are to be fetched; further ones are left out.
const MAX_MISSED: usize = 512;
/// Events that wait for the missed messages of their chats, and the longest time. Beyond either all of them go on.
const MAX_HELD: usize = 256;
const HOLD: Duration = Duration::from_secs(10);

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

/// How far the missed messages of a chat are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchState {
    /// To be fetched, or being fetched.
    Waiting,
    /// All were read; the chat is done once they are committed.
    Read,
    /// They could not be fetched yet: events wait no more for them.
    Failed,
}

/// A chat whose messages were missed.
#[derive(Clone, Copy, Debug)]
struct MissedChat {
    /// The last message before those.
    after: u64,
    state: FetchState,
}

/// An event of the gateway that waits for the missed messages of its chat.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldEvent {
    /// The number of the event in its session.
    pub seq: u64,
    /// The kind of the event.
    pub kind: String,
    /// The content of the event.
    pub data: Value,
}

impl HeldEvent {
    fn chat(&self) -> &str {
        field::text(&self.data, "channel_id").unwrap_or_default()
    }
}

/// What was taken from the gateway.
#[derive(Debug)]
pub struct TakenEvents {
    /// The number of the last event that was read.
    read: u64,
    /// Forwarded events, by their buffer id.
    in_flight: HashMap<String, EventInFlight>,
    chats: BoundedCache<String, u64>,
    missed: BTreeMap<String, MissedChat>,
    /// Events that wait, in order.
    held: VecDeque<HeldEvent>,
    /// By when the first of them goes on.
    hold_until: Option<Duration>,
    /// Whether events of this connection wait no more.
    holds_none: bool,
}

impl TakenEvents {
    /// Goes on after the event with this number, with the last message of each chat, and with the chats whose messages after one
    /// were missed.
    pub fn new(
        seq: u64,
        chats: impl IntoIterator<Item = (String, u64)>,
        missed: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        let mut known = BoundedCache::new(MAX_CHATS);
        for (chat, message) in chats {
            known.insert(chat, message);
        }
        let mut taken = Self {
            read: seq,
            in_flight: HashMap::new(),
            chats: known,
            missed: BTreeMap::new(),
            held: VecDeque::new(),
            hold_until: None,
            holds_none: false,
        };
        for (chat, after) in missed {
            taken.miss(chat, after);
        }
        taken
    }

    /// A session has begun: the numbers start over, and every chat has missed what came after its last message. A chat whose missed
    /// messages are not committed yet keeps the older start of those, so that nothing of either outage is left out.
    pub fn begin(&mut self, seq: u64) {
        self.read = seq;
        for event in self.in_flight.values_mut() {
            event.seq = None;
        }
        self.wait_again();
        let recent: Vec<String> = self.chats.recent_keys().cloned().collect();
        for chat in recent {
            if let Some(last) = self.chats.peek(&chat).copied() {
                self.miss(chat, last);
            }
        }
    }

    fn miss(&mut self, chat: String, after: u64) {
        if self.missed.len() < MAX_MISSED {
            let state = FetchState::Waiting;
            self.missed.entry(chat).or_insert(MissedChat { after, state });
        }
    }

    /// Everything that was missed is to be fetched, and events wait for it anew.
    fn wait_again(&mut self) {
        self.held.clear();
        (self.hold_until, self.holds_none) = (None, false);
        for missed in self.missed.values_mut() {
            missed.state = FetchState::Waiting;
        }
    }

    /// An event was read.
    pub fn read(&mut self, seq: u64) {
        self.read = self.read.max(seq);
    }

    /// Keeps an event of a chat whose missed messages come first; returns one that need not wait.
    pub fn hold(&mut self, event: HeldEvent, now: Duration) -> Option<HeldEvent> {
        let is_message = matches!(
            event.kind.as_str(),
            "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK"
        );
        if !is_message || self.held.len() >= MAX_HELD || !self.comes_later(event.chat()) {
            return Some(event);
        }
        self.hold_until.get_or_insert(now + HOLD);
        self.holds_none |= self.held.len() + 1 >= MAX_HELD;
        self.read(event.seq);
        self.held.push_back(event);
        None
    }

    /// Whether missed messages of a chat come before its next event, or events of it that wait.
    fn comes_later(&self, chat: &str) -> bool {
        self.waits(chat) || self.held.iter().any(|event| event.chat() == chat)
    }

    fn waits(&self, chat: &str) -> bool {
        let missed = self.missed.get(chat);
        !self.holds_none && missed.is_some_and(|missed| missed.state == FetchState::Waiting)
    }

    /// When events that wait go on at the latest.
    pub fn hold_deadline(&self) -> Option<Duration> {
        self.hold_until
    }

    /// Whether there is an event that waits no more.
    pub fn has_free(&self) -> bool {
        self.held.iter().any(|event| !self.waits(event.chat()))
    }

    /// The first event that waits no more.
    pub fn next_free(&mut self, now: Duration) -> Option<HeldEvent> {
        if self.hold_deadline().is_some_and(|until| now >= until) {
            self.holds_none = true;
        }
        let free = self.held.iter().position(|event| !self.waits(event.chat()))?;
        let event = self.held.remove(free);
        if self.held.is_empty() {
            self.hold_until = None;
        }
        event
    }

    /// An event that waited cannot be taken now: it is not committed.
    pub fn put_back(&mut self, event: HeldEvent) {
        self.held.push_front(event);
    }

    /// The missed messages of a chat were forwarded: it is done once they are committed.
    pub fn fetched(&mut self, chat: &str) {
        if let Some(missed) = self.missed.get_mut(chat) {
            missed.state = FetchState::Read;
        }
        self.settle(chat);
    }

    /// The missed messages of a chat could not be fetched.
    pub fn not_fetched(&mut self, chat: &str, failure: FetchFailure) {
        match failure {
            FetchFailure::ForGood => {
                self.missed.remove(chat);
            }
            FetchFailure::ForNow => {
                if let Some(missed) = self.missed.get_mut(chat) {
                    missed.state = FetchState::Failed;
                }
            }
        }
    }

    /// Forgets that a chat missed messages once all of them are committed. Those have no number.
    fn settle(&mut self, chat: &str) {
        let is_read = |missed: &MissedChat| missed.state == FetchState::Read;
        let mut events = self.in_flight.values();
        if self.missed.get(chat).is_some_and(is_read)
            && !events.any(|event| event.seq.is_none() && event.chat == chat)
        {
            self.missed.remove(chat);
        }
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
        self.settle(&event.chat);
        true
    }

    /// Nothing that was forwarded will be acknowledged any more.
    pub fn forget(&mut self) {
        let committed = self.committed();
        self.in_flight.clear();
        self.wait_again();
        self.read = committed;
    }

    /// The number of the last event that is committed with all before it.
    pub fn committed(&self) -> u64 {
        let held = self.held.iter().map(|event| event.seq);
        let in_flight = self.in_flight.values().filter_map(|event| event.seq);
        let lowest = in_flight.chain(held).min();
        lowest.map_or(self.read, |seq| seq.saturating_sub(1).min(self.read))
    }

    /// The last message of each chat.
    pub fn chats(&self) -> BTreeMap<String, u64> {
        let keys = self.chats.recent_keys();
        keys.filter_map(|chat| Some((chat.clone(), *self.chats.peek(chat)?)))
            .collect()
    }

    /// The chats whose missed messages are to be fetched, each with the last message before those.
    pub fn missed(&self) -> BTreeMap<String, u64> {
        let missed = self.missed.iter();
        missed
            .map(|(chat, missed)| (chat.clone(), missed.after))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The chats whose messages are to be fetched.
    fn missed(taken: &TakenEvents) -> Vec<(String, u64)> {
        taken.missed().into_iter().collect()
    }

    fn live(seq: u64, kind: &str, chat: &str) -> HeldEvent {
        HeldEvent {
            seq,
            kind: kind.to_owned(),
            data: json!({ "channel_id": chat }),
        }
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn only_what_is_committed_with_all_before_it_counts() {
        let mut taken = TakenEvents::new(3, [], []);
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
        let mut taken = TakenEvents::new(0, [], []);
        taken.read(9);
        taken.forwarded("a", Some(8), "c", 1);
        taken.forget();
        assert_eq!((taken.committed(), taken.in_flight.len()), (7, 0));
    }

    #[test]
    fn a_chat_is_to_be_fetched_until_its_missed_messages_are_committed() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40), ("d".to_owned(), 30)], []);
        assert_eq!(missed(&taken), []);
        taken.begin(1);
        let both = [("c".to_owned(), 40), ("d".to_owned(), 30)];
        assert_eq!(missed(&taken), both);
        taken.forwarded("50", None, "c", 50);
        assert!(taken.acknowledged("50"));
        assert_eq!(missed(&taken), both, "more may follow");
        taken.forwarded("60", None, "c", 60);
        taken.fetched("c");
        assert_eq!(missed(&taken), both, "one is not committed");
        let again = TakenEvents::new(1, taken.chats(), taken.missed());
        assert_eq!(missed(&again), both, "a restart fetches it again");
        assert!(taken.acknowledged("60"));
        assert_eq!(missed(&taken), both[1..]);
        taken.fetched("d");
        assert_eq!(missed(&taken), [], "there was none");
    }

    #[test]
    fn a_second_lost_session_fetches_what_the_first_one_did_not() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40)], []);
        taken.begin(1);
        taken.forwarded("90", Some(2), "c", 90);
        assert!(taken.acknowledged("90"));
        assert_eq!(taken.chats().get("c"), Some(&90));
        taken.forget();
        taken.begin(1);
        assert_eq!(missed(&taken), [("c".to_owned(), 40)]);
    }

    #[test]
    fn what_was_read_and_not_committed_is_fetched_again() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40)], []);
        taken.begin(1);
        taken.forwarded("50", None, "c", 50);
        taken.fetched("c");
        taken.forget();
        assert!(!taken.acknowledged("50"));
        taken.fetched("d");
        assert_eq!(missed(&taken), [("c".to_owned(), 40)]);
        assert_eq!(taken.hold(live(2, "MESSAGE_CREATE", "c"), secs(0)), None);
    }

    #[test]
    fn a_chat_that_cannot_be_fetched_now_is_later_and_one_that_never_can_is_not() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40), ("d".to_owned(), 30)], []);
        taken.begin(1);
        taken.not_fetched("c", FetchFailure::ForNow);
        taken.not_fetched("d", FetchFailure::ForGood);
        assert_eq!(missed(&taken), [("c".to_owned(), 40)]);
        for chat in ["c", "d"] {
            let event = live(2, "MESSAGE_CREATE", chat);
            assert_eq!(taken.hold(event.clone(), secs(0)), Some(event));
        }
        taken.fetched("c");
        assert_eq!(missed(&taken), [], "it was tried again");
    }

    #[test]
    fn live_messages_wait_for_the_missed_ones_of_their_chat_and_are_not_committed_meanwhile() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40), ("d".to_owned(), 30)], []);
        taken.begin(1);
        let kinds = [
            "MESSAGE_CREATE",
            "MESSAGE_UPDATE",
            "MESSAGE_DELETE",
            "MESSAGE_DELETE_BULK",
        ];
        for (seq, kind) in (2..).zip(kinds) {
            assert_eq!(taken.hold(live(seq, kind, "c"), secs(0)), None);
        }
        assert_eq!(taken.hold(live(6, "MESSAGE_CREATE", "d"), secs(0)), None);
        for (kind, chat) in [("MESSAGE_CREATE", "e"), ("INTERACTION_CREATE", "c")] {
            let event = live(7, kind, chat);
            assert_eq!(taken.hold(event.clone(), secs(0)), Some(event));
        }
        taken.read(7);
        assert_eq!((taken.committed(), taken.next_free(secs(9))), (1, None));
        taken.fetched("c");
        let free: Vec<u64> = std::iter::from_fn(|| taken.next_free(secs(9)))
            .map(|event| event.seq)
            .collect();
        assert_eq!(free, [2, 3, 4, 5]);
        assert_eq!(taken.committed(), 5);
        taken.put_back(live(5, "MESSAGE_DELETE_BULK", "c"));
        assert_eq!(taken.committed(), 4, "it comes again");
        taken.forget();
        assert_eq!((taken.committed(), taken.next_free(secs(99))), (4, None));
    }

    #[test]
    fn live_messages_wait_for_a_while_and_up_to_a_number() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40)], []);
        taken.begin(1);
        assert_eq!(taken.hold_deadline(), None);
        taken.hold(live(2, "MESSAGE_CREATE", "c"), secs(5));
        taken.hold(live(3, "MESSAGE_CREATE", "c"), secs(9));
        assert_eq!(taken.hold_deadline(), Some(secs(15)));
        assert_eq!(taken.next_free(secs(14)), None);
        assert_eq!(taken.next_free(secs(15)).map(|event| event.seq), Some(2));
        assert_eq!(taken.next_free(secs(15)).map(|event| event.seq), Some(3));
        assert_eq!((taken.next_free(secs(15)), taken.hold_deadline()), (None, None));
        let late = live(4, "MESSAGE_CREATE", "c");
        assert_eq!(taken.hold(late.clone(), secs(16)), Some(late));
        taken.begin(1);
        let mut seq = 1;
        let mut free = None;
        while free.is_none() && seq < 1000 {
            seq += 1;
            assert_eq!(taken.hold(live(seq, "MESSAGE_CREATE", "c"), secs(20)), None);
            free = taken.next_free(secs(20));
        }
        assert_eq!((seq, free.map(|event| event.seq)), (257, Some(2)));
    }

    #[test]
    fn an_event_waits_behind_those_of_its_chat_that_are_free() {
        let mut taken = TakenEvents::new(7, [("c".to_owned(), 40)], []);
        taken.begin(1);
        taken.hold(live(2, "MESSAGE_CREATE", "c"), secs(0));
        taken.hold(live(3, "MESSAGE_UPDATE", "c"), secs(0));
        assert!(!taken.has_free());
        taken.fetched("c");
        assert_eq!(taken.next_free(secs(0)).map(|event| event.seq), Some(2));
        assert!(taken.has_free());
        assert_eq!(taken.hold(live(4, "MESSAGE_DELETE", "c"), secs(0)), None);
        let elsewhere = live(5, "MESSAGE_CREATE", "d");
        assert_eq!(taken.hold(elsewhere.clone(), secs(0)), Some(elsewhere));
        let rest = [taken.next_free(secs(0)), taken.next_free(secs(0))];
        assert_eq!(rest.map(|event| event.map(|event| event.seq)), [Some(3), Some(4)]);
        assert!(!taken.has_free());
        let late = live(6, "MESSAGE_CREATE", "c");
        assert_eq!(taken.hold(late.clone(), secs(0)), Some(late));
    }

    #[test]
    fn the_chats_to_be_fetched_are_bounded() {
        let many = |from: usize| (from..from + 400).map(|chat| (chat.to_string(), 1));
        let mut taken = TakenEvents::new(0, many(0), many(1000));
        taken.begin(1);
        assert_eq!(taken.missed().len(), 512);
    }
}
