//! How one turn speaks in its chat: which ops show its text while it grows, and what is owed when it ends.
//!
//! It never sends anything and reads no clock: `now` is the time since some start that the caller chose.

mod exchange;
mod settings;

pub use exchange::{
    Ending, Farewell, Fate, LineState, Mark, OwedAction, Place, PlanLine, SpeechCounters, Ticket, ToolLine,
    Utterance, Weight,
};
pub use settings::{SpeechSettings, StreamMode};

use std::sync::Arc;
use std::time::Duration;

use crate::adapter::reply;

/// One turn's speech.
///
/// Tell it what the agent says; call [`poll`](Self::poll) until it has nothing, after everything that was told or
/// settled and at [`poll_timeout`](Self::poll_timeout); settle every ticket; then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Speech {
    settings: Arc<SpeechSettings>,
    place: Place,
    text: String,
    counters: SpeechCounters,
}

impl Speech {
    /// Ids of drafts that one speech may use, from the one it is given on.
    pub const DRAFT_IDS: u64 = 1024;

    /// A turn that begins `now`. It may use [`Self::DRAFT_IDS`] ids of drafts from `draft_id` on.
    pub fn new(settings: Arc<SpeechSettings>, place: Place, draft_id: u64, now: Duration) -> Self {
        let _ = (draft_id, now);
        Self {
            settings,
            place,
            text: String::new(),
            counters: SpeechCounters::default(),
        }
    }

    /// More of the answer.
    pub fn say(&mut self, text: &str, now: Duration) {
        let _ = (now, &self.settings);
        self.text.push_str(text);
    }

    /// The answer since the last [`Self::break_off`] is this instead.
    pub fn replace(&mut self, text: &str, now: Duration) {
        let _ = now;
        text.clone_into(&mut self.text);
    }

    /// What follows is a message of its own.
    pub fn break_off(&mut self, now: Duration) {
        let _ = now;
    }

    /// Breaks off and marks the point, for something that comes between what was said and what will be.
    pub fn mark(&mut self, now: Duration) -> Mark {
        self.break_off(now);
        Mark(u64::try_from(self.text.len()).unwrap_or(u64::MAX))
    }

    /// Whether the chat has been shown everything that was said before the mark. What is only shown at the end is
    /// never shown before it.
    pub fn is_shown(&self, mark: Mark) -> bool {
        mark.0 == 0 || self.text.trim().is_empty()
    }

    /// A tool begins, goes on or ends. One that begins ends the segment of text before it.
    pub fn tool(&mut self, line: &ToolLine, now: Duration) {
        let _ = (line, now);
    }

    /// The agent's plan, as a whole.
    pub fn plan(&mut self, steps: &[PlanLine], now: Duration) {
        let _ = (steps, now);
    }

    /// Something people should know that is not part of the answer: a message of its own that answers nothing.
    pub fn notice(&mut self, text: &str, now: Duration) {
        let _ = (text, now);
    }

    /// The next op to send, if there is one.
    pub fn poll(&mut self, now: Duration) -> Option<Utterance> {
        let _ = now;
        None
    }

    /// When to poll again although nothing was told or settled.
    pub fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    /// What became of an op. A ticket that is not out any more is ignored.
    pub fn settled(&mut self, ticket: Ticket, fate: &Fate, now: Duration) {
        let _ = (ticket, fate, now);
    }

    /// Whether [`Self::finish`] should wait, for a bounded time, because an op of text is out: its message id
    /// decides how the end is told, and an edit that lands after the last one would undo it.
    pub fn awaits_id(&self) -> bool {
        false
    }

    /// What became of the ops so far.
    pub fn counters(&self) -> SpeechCounters {
        self.counters
    }

    /// The end of the turn. An op that is still out counts as one whose fate is not known.
    pub fn finish(self, end: Ending, now: Duration) -> Farewell {
        let _ = (end, now);
        let place = &self.place;
        let owed = reply(&self.text, &place.chat, &place.facts, place.descriptor.as_deref());
        Farewell {
            owed: owed.into_iter().map(OwedAction::from).collect(),
            after: Vec::new(),
        }
    }
}
