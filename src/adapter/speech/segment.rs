//! One segment of an answer: a text that grows, cut into messages as they fill up.
//!
//! Adding text costs what is added; cutting costs one message. It never forgets text that was not delivered.

use super::story::after_words;
use crate::adapter::split::{Rolled, roll, without_leading_space};
use crate::wire::LenUnit;

/// What the chat shows of the message that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing.
    Nothing,
    /// A draft: a preview, or a stream that is not sealed.
    Stream {
        /// Its text, or what it was last asked to be.
        text: String,
    },
    /// A message, as the connector acknowledged it last.
    Message {
        /// Its id; without one it cannot be edited.
        id: Option<String>,
        /// Its text.
        text: String,
        /// What else is on the screen.
        trail: Trail,
    },
    /// Perhaps a message: a send whose fate is not known.
    Unsure,
}

/// What a shown message has besides the text that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trail {
    /// Nothing.
    Clean,
    /// The cursor.
    Cursor,
    /// Perhaps a later text: an edit's fate is not known.
    Blurred,
}

/// Whether more can be said in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may grow.
    Open,
    /// It is said.
    Closed,
}

/// Texts are looked at this far when their visible characters are counted anew.
const LOOK_AHEAD: usize = 4096;
/// Text that was delivered is let go in pieces of at least this.
const LET_GO_BYTES: usize = 64 * 1024;

/// One segment of an answer.
#[derive(Debug)]
pub(super) struct Segment {
    /// The text; what is before `start` is delivered.
    text: String,
    start: usize,
    /// What the current message opens with.
    opening: String,
    /// The length of the opening and of the text from `start` on.
    length: usize,
    /// Visible characters from `start` on; exact while there are few.
    visible: usize,
    /// Length that was said since the last op.
    pub(super) fresh: usize,
    pub(super) state: State,
    /// Which stretch between two breaks it belongs to.
    pub(super) stretch: u64,
    /// The current message when it is full or the segment is said.
    head: Option<Rolled>,
    pub(super) shown: Shown,
    /// Whether a message of it was completed.
    rolled: bool,
    /// Whether an op has been made of it.
    pub(super) touched: bool,
    /// Whether blank lines before the current message's first word are dropped.
    trims: bool,
    unit: LenUnit,
}

impl Segment {
    /// `trims` is for every segment but the first: its leading blank lines only separate.
    pub(super) fn new(stretch: u64, trims: bool, unit: LenUnit) -> Self {
        Self {
            text: String::new(),
            start: 0,
            opening: String::new(),
            length: 0,
            visible: 0,
            fresh: 0,
            state: State::Open,
            stretch,
            head: None,
            shown: Shown::Nothing,
            rolled: false,
            touched: false,
            trims,
            unit,
        }
    }

    /// Adds text.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        let (length, visible) = (self.unit.measure(text), visible_in(text));
        let was_blank = self.visible == 0;
        self.length += length;
        self.fresh = self.fresh.saturating_add(length);
        self.visible += visible;
        // Only a line break or a first word can leave a blank line to drop.
        if was_blank && self.trims && (visible > 0 || text.contains('\n')) {
            self.trim_lead();
        }
    }

    /// Drops the blank lines before the current message's first word.
    fn trim_lead(&mut self) {
        let rest = &self.text[self.start..];
        let lead = rest.len() - rest.trim_start().len();
        let Some(line) = rest[..lead].rfind('\n') else {
            return;
        };
        let dropped = self.start..=self.start + line;
        self.length -= self.unit.measure(&self.text[dropped.clone()]);
        self.text.replace_range(dropped, "");
    }

    /// Takes another text for what is not delivered yet. `goes_on` says that it follows what was.
    pub(super) fn rewrite(&mut self, text: &str, goes_on: bool) {
        let head = self.head.take().filter(|_| goes_on);
        let head = head.map(|head| (self.rest()[..head.taken].to_owned(), head));
        self.text.clear();
        self.start = 0;
        if !goes_on {
            self.opening.clear();
        }
        self.length = self.unit.measure(&self.opening);
        self.visible = 0;
        self.push(text);
        self.fresh = usize::MAX;
        // A message that is full stays as it is, and may be out, when the text still begins with it.
        if let Some((behind, mut head)) = head
            && let Some(beyond) = after_words(self.rest(), behind.chars())
        {
            head.taken = self.rest().len() - beyond.len();
            self.head = Some(head);
        }
    }

    /// What is not delivered yet.
    pub(super) fn rest(&self) -> &str {
        &self.text[self.start..]
    }

    /// What the current message opens with.
    pub(super) fn opening(&self) -> &str {
        &self.opening
    }

    /// The current message as far as it is said.
    pub(super) fn body(&self) -> String {
        [&self.opening, self.rest()].concat()
    }

    pub(super) fn visible(&self) -> usize {
        self.visible
    }

    pub(super) fn is_blank(&self) -> bool {
        self.visible == 0 && self.rest().trim().is_empty()
    }

    /// Whether the current message can take no more: the segment is said, or the message is full.
    pub(super) fn is_complete(&self, room: usize) -> bool {
        self.state == State::Closed || self.head.is_some() || self.length > room
    }

    /// The current message, which is complete. Once told it stays the same, whatever is said later.
    pub(super) fn head(&mut self, room: usize, limit: usize) -> &Rolled {
        let limit = if self.state == State::Closed { limit } else { room };
        if self.head.is_none() {
            self.head = Some(roll(&self.opening, self.rest(), self.kept(), limit, self.unit));
        }
        self.head.as_ref().expect("it was made")
    }

    /// How many bytes of the rest are on the screen. A message does not get shorter than it was.
    fn kept(&self) -> usize {
        let (Shown::Message { text, .. } | Shown::Stream { text }) = &self.shown else {
            return 0;
        };
        let shown = text.strip_prefix(&self.opening);
        let beyond = shown.and_then(|shown| after_words(self.rest(), shown.chars()));
        beyond.map_or(0, |beyond| self.rest().len() - beyond.len())
    }

    /// Whether `text` is the current message, complete.
    pub(super) fn is_head(&self, text: &str) -> bool {
        self.head.as_ref().is_some_and(|head| head.part == text)
    }

    /// The complete message is delivered: begins the next. Returns the text that is behind it.
    pub(super) fn advance(&mut self) -> String {
        let Some(head) = self.head.take() else {
            return String::new();
        };
        let behind = self.text[self.start..self.start + head.taken].to_owned();
        self.length -= self.unit.measure(&behind) + self.unit.measure(&self.opening);
        self.length += self.unit.measure(&head.opening);
        self.start += head.taken;
        self.opening = head.opening;
        // More may have been said since the cut was made.
        let space = self.rest().len() - without_leading_space(self.rest()).len();
        self.length -= self.unit.measure(&self.rest()[..space]);
        self.start += space;
        if self.start > LET_GO_BYTES && self.start > self.text.len() / 2 {
            self.text.drain(..self.start);
            self.start = 0;
        }
        let ahead = self.rest().chars().take(LOOK_AHEAD);
        self.visible = ahead.filter(|point| !point.is_whitespace()).count();
        self.shown = Shown::Nothing;
        self.fresh = self.length;
        self.trims = true;
        self.rolled = true;
        behind
    }

    /// Whether no message of it was completed yet.
    pub(super) fn is_whole(&self) -> bool {
        !self.rolled
    }

    /// Whether nothing of it has gone out or was cut.
    pub(super) fn is_untouched(&self) -> bool {
        !self.touched && !self.rolled
    }
}

/// How many characters of a text are not white space.
fn visible_in(text: &str) -> usize {
    if text.is_ascii() {
        let is_blank = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
        return text.bytes().filter(|byte| !is_blank(byte)).count();
    }
    text.chars().filter(|point| !point.is_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_the_same_in_plain_text() {
        for byte in 0..0x80_u8 {
            let point = char::from(byte);
            let counted = visible_in(&format!("a{point}b{point}"));
            assert_eq!(counted, 2 + 2 * usize::from(!point.is_whitespace()), "{byte:#x}");
        }
        assert_eq!(visible_in("\u{a0}é\u{3000}"), 1);
    }
}
