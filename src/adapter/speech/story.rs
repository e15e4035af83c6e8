//! Everything a turn says that has not been delivered, in order.
//!
//! The first segment is the one being delivered, the last the one being said; often they are the same.

use std::collections::VecDeque;

use super::segment::{Segment, Shown, State};
use crate::wire::LenUnit;

/// Segments that wait; at the bound, the newest ones become one.
const MOST_WAITING: usize = 16;
/// What stands between segments that became one.
const GAP: &str = "\n\n";

/// What ends a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boundary {
    /// A tool: the answer goes on after it.
    Tool,
    /// The agent wants a message of its own.
    Break,
}

/// What a turn says.
#[derive(Debug)]
pub(super) struct Story {
    segments: VecDeque<Segment>,
    /// What was delivered of the current stretch, to know it when it is said again.
    told: String,
    /// Counts the breaks.
    stretch: u64,
    /// Whether anything was said yet.
    begun: bool,
    unit: LenUnit,
}

impl Story {
    pub(super) fn new(unit: LenUnit) -> Self {
        Self {
            segments: VecDeque::new(),
            told: String::new(),
            stretch: 0,
            begun: false,
            unit,
        }
    }

    pub(super) fn front(&self) -> Option<&Segment> {
        self.segments.front()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Segment> {
        self.segments.front_mut()
    }

    /// How many breaks there were.
    pub(super) fn stretch(&self) -> u64 {
        self.stretch
    }

    fn open(&mut self) -> &mut Segment {
        let open = self.segments.back().is_some_and(|last| last.state == State::Open);
        if !open {
            self.segments
                .push_back(Segment::new(self.stretch, self.begun, self.unit));
        }
        self.segments.back_mut().expect("one was pushed")
    }

    pub(super) fn say(&mut self, text: &str) {
        if !text.is_empty() {
            self.open().push(text);
        }
    }

    /// Takes `text` for everything since the last break. What of it was said in messages that are complete is not
    /// said again when `text` begins with it.
    pub(super) fn replace(&mut self, text: &str) {
        let open = self.open();
        let (touched, current) = (open.touched, self.segments.len() - 1);
        let closed = self.segments.iter().take(current);
        let closed = closed.filter(|segment| segment.stretch == self.stretch);
        let said = std::iter::once(self.told.as_str()).chain(closed.map(Segment::rest));
        let rest = after_words(text, said.flat_map(str::chars));
        let (rest, goes_on) = rest.map_or((text, false), |rest| (rest, true));
        if !goes_on {
            let stretch = self.stretch;
            self.segments.retain(|segment| {
                segment.stretch != stretch || segment.state == State::Open || !segment.is_untouched()
            });
        }
        // A message on the screen cannot become empty.
        if !(touched && rest.trim().is_empty()) {
            self.open().rewrite(rest, goes_on);
        }
    }

    /// Ends the segment that is being said.
    pub(super) fn close(&mut self, boundary: Boundary) {
        if let Some(last) = self.segments.back_mut()
            && last.state == State::Open
        {
            self.begun |= last.touched || !last.is_blank();
            last.state = State::Closed;
            if last.is_blank() && !last.touched {
                self.segments.pop_back();
            }
        }
        if boundary == Boundary::Break {
            self.stretch += 1;
            self.told.clear();
        }
        if self.segments.len() > MOST_WAITING {
            self.join_last();
        }
    }

    fn join_last(&mut self) {
        let Some(last) = self.segments.pop_back() else {
            return;
        };
        match self.segments.back_mut() {
            Some(before) if before.is_untouched() && last.is_untouched() => {
                before.push(GAP);
                before.push(last.rest());
                before.stretch = last.stretch;
            }
            _ => self.segments.push_back(last),
        }
    }

    /// The first segment's complete message is delivered.
    pub(super) fn advance(&mut self) {
        let Some(front) = self.segments.front_mut() else {
            return;
        };
        let behind = front.advance();
        if front.stretch == self.stretch {
            self.told.push_str(&behind);
        }
        if front.state == State::Closed && front.is_blank() {
            self.segments.pop_front();
        }
    }

    /// Forgets everything.
    pub(super) fn silence(&mut self) {
        self.segments.clear();
        self.told = String::new();
    }

    /// Everything that is left, said. `whole` makes one segment of each stretch.
    pub(super) fn into_rest(mut self, whole: bool) -> Vec<Segment> {
        self.close(Boundary::Break);
        let mut rest: Vec<Segment> = Vec::new();
        for segment in self.segments {
            match rest.last_mut() {
                Some(before)
                    if whole
                        && before.stretch == segment.stretch
                        && before.is_untouched()
                        && segment.is_untouched() =>
                {
                    before.push(GAP);
                    before.push(segment.rest());
                }
                _ => rest.push(segment),
            }
        }
        rest.retain(|segment| !segment.is_blank() || matches!(segment.shown, Shown::Message { .. }));
        rest
    }
}

/// What follows in `text` after the words of `said`, white space aside; nothing when it does not begin with them.
pub(super) fn after_words(text: &str, said: impl Iterator<Item = char>) -> Option<&str> {
    let mut rest = text.chars();
    for point in said.filter(|point| !point.is_whitespace()) {
        rest.find(|next| !next.is_whitespace())
            .filter(|next| *next == point)?;
    }
    Some(rest.as_str())
}
