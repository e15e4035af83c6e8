//! The text of a turn that is not delivered yet, in order.
//!
//! A row of segments: the first is being delivered, the last is being written; often they are the same. A segment is a
//! text that grows and is cut into messages as they fill up. Adding text costs what is added; cutting costs one
//! message. Text is kept until it is delivered.

use smallvec::SmallVec;

use crate::adapter::split::{FirstMessage, first_message, trim_leading_space};
use crate::wire::LenUnit;

/// Maximum pending segments; beyond it, the newest ones are merged.
const MAX_SEGMENTS: usize = 16;
/// Separates merged segments.
const GAP: &str = "\n\n";

/// What ends a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boundary {
    /// A tool call: the answer continues after it.
    Tool,
    /// The agent starts a new message.
    Break,
}

/// Segments in their order: one for most answers.
pub(super) type Segments = SmallVec<[Segment; 1]>;

/// The text that is not delivered yet.
#[derive(Debug)]
pub(super) struct PendingText {
    segments: Segments,
    /// Text delivered since the last break, to recognize it in a replacement.
    delivered: String,
    /// Number of breaks so far.
    breaks: u64,
    /// Whether there was any text yet.
    begun: bool,
    /// Visible characters that a message begins with.
    first_chars: usize,
    unit: LenUnit,
}

impl PendingText {
    pub(super) fn new(first_chars: usize, unit: LenUnit) -> Self {
        Self {
            segments: Segments::new(),
            delivered: String::new(),
            breaks: 0,
            begun: false,
            first_chars: first_chars.max(1),
            unit,
        }
    }

    pub(super) fn front(&self) -> Option<&Segment> {
        self.segments.first()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Segment> {
        self.segments.first_mut()
    }

    /// Number of breaks so far.
    pub(super) fn breaks(&self) -> u64 {
        self.breaks
    }

    fn open(&mut self) -> &mut Segment {
        let open = self
            .segments
            .last()
            .is_some_and(|last| last.state == SegmentState::Open);
        if !open {
            let segment = Segment::new(self.breaks, self.begun, self.first_chars, self.unit);
            self.segments.push(segment);
        }
        self.segments.last_mut().expect("one was pushed")
    }

    pub(super) fn push(&mut self, text: &str) {
        if !text.is_empty() {
            self.open().push(text);
        }
    }

    /// Replaces everything since the last break. Complete messages stay; their text is not sent again when `text`
    /// begins with it.
    pub(super) fn replace(&mut self, text: &str) {
        let open = self.open();
        let (touched, current) = (open.touched, self.segments.len() - 1);
        let closed = self.segments.iter().take(current);
        let closed = closed.filter(|segment| segment.breaks == self.breaks);
        let before = std::iter::once(self.delivered.as_str()).chain(closed.map(Segment::rest));
        let rest = after_prefix(text, before.flat_map(str::chars));
        let (rest, continues) = rest.map_or((text, false), |rest| (rest, true));
        if !continues {
            let breaks = self.breaks;
            self.segments.retain(|segment| {
                segment.breaks != breaks || segment.state == SegmentState::Open || !segment.is_untouched()
            });
        }
        // A message that is shown cannot become empty.
        if !(touched && rest.trim().is_empty()) {
            self.open().rewrite(rest, continues);
        }
    }

    /// Ends the segment that is being written.
    pub(super) fn close(&mut self, boundary: Boundary) {
        if let Some(last) = self.segments.last_mut()
            && last.state == SegmentState::Open
        {
            self.begun |= last.touched || !last.is_blank();
            last.state = SegmentState::Closed;
            if last.is_blank() && !last.touched {
                self.segments.pop();
            }
        }
        if boundary == Boundary::Break {
            self.breaks += 1;
            self.delivered.clear();
        }
        if self.segments.len() > MAX_SEGMENTS {
            self.join_last();
        }
    }

    fn join_last(&mut self) {
        let Some(last) = self.segments.pop() else {
            return;
        };
        match self.segments.last_mut() {
            Some(before) if before.is_untouched() && last.is_untouched() => {
                before.push(GAP);
                before.push(last.rest());
                before.breaks = last.breaks;
            }
            _ => self.segments.push(last),
        }
    }

    /// The first segment's complete message is delivered.
    pub(super) fn advance(&mut self) {
        let Some(front) = self.segments.first_mut() else {
            return;
        };
        let behind = front.advance();
        if front.breaks == self.breaks {
            self.delivered.push_str(&behind);
        }
        if front.state == SegmentState::Closed && front.is_blank() {
            self.segments.remove(0);
        }
    }

    /// Discards everything.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.delivered = String::new();
    }

    /// All remaining segments, closed. `whole` merges those between two breaks.
    pub(super) fn take_rest(&mut self, whole: bool) -> Segments {
        self.close(Boundary::Break);
        let mut rest = std::mem::take(&mut self.segments);
        if whole && rest.len() > 1 {
            rest = rest.into_iter().fold(Segments::new(), merged);
        }
        rest.retain(|segment| !segment.is_blank() || matches!(segment.shown, Shown::Message { .. }));
        rest
    }
}

/// Adds a segment to those before it: to the last one, if no break is between them and neither was sent.
fn merged(mut before: Segments, segment: Segment) -> Segments {
    match before.last_mut() {
        Some(last) if last.breaks == segment.breaks && last.is_untouched() && segment.is_untouched() => {
            last.push(GAP);
            last.push(segment.rest());
        }
        _ => before.push(segment),
    }
    before
}

/// The rest of `text` after the words of `prefix`, ignoring white space; `None` when it does not begin with them.
pub(super) fn after_prefix(text: &str, prefix: impl Iterator<Item = char>) -> Option<&str> {
    let mut rest = text.chars();
    for point in prefix.filter(|point| !point.is_whitespace()) {
        rest.find(|next| !next.is_whitespace())
            .filter(|next| *next == point)?;
    }
    Some(rest.as_str())
}

/// What the chat shows of the message that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shown {
    /// No message yet.
    Nothing,
    /// A draft: a preview, or a stream that is not sealed.
    Stream {
        /// The text of the draft, or the last text sent to it.
        text: String,
    },
    /// A message, as last acknowledged by the connector.
    Message {
        /// The message's id; without one it cannot be edited.
        id: Option<String>,
        /// The acknowledged text.
        text: String,
        /// What the message shows besides that text.
        trail: Trail,
    },
    /// Possibly a message: the outcome of its send is unknown.
    Unsure,
}

/// What a message shows besides the acknowledged text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trail {
    /// Only the acknowledged text.
    Clean,
    /// A cursor that marks a growing text.
    Cursor,
    /// Possibly a later text: the outcome of an edit is unknown.
    Unknown,
}

/// Whether a segment can grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// More text may follow.
    Open,
    /// The segment is complete.
    Closed,
}

/// Delivered text is freed in pieces of at least this size.
const FREE_BYTES: usize = 64 * 1024;

/// One segment of an answer.
#[derive(Debug)]
pub(super) struct Segment {
    /// The text; everything before `start` is delivered.
    text: String,
    start: usize,
    /// The start of the current message: a fence that is opened again.
    opening: String,
    /// Length of the opening and of the text from `start` on.
    length: usize,
    /// Visible characters from `start` on, counted up to `first_chars`.
    visible: usize,
    first_chars: usize,
    /// Length added since the last op.
    pub(super) fresh: usize,
    pub(super) state: SegmentState,
    /// Number of breaks before it.
    pub(super) breaks: u64,
    /// The current message once it is full or the segment is closed.
    head: Option<FirstMessage>,
    pub(super) shown: Shown,
    /// The text that the current message was posted with, where that matters.
    pub(super) posted: String,
    /// Whether a message of it was delivered.
    advanced: bool,
    /// Whether an op showed any of it.
    pub(super) touched: bool,
    /// Whether blank lines before the current message's first word are dropped.
    trims: bool,
    unit: LenUnit,
}

impl Segment {
    /// `trims` is for every segment but the first, whose leading blank lines only separate.
    pub(super) fn new(breaks: u64, trims: bool, first_chars: usize, unit: LenUnit) -> Self {
        Self {
            text: String::new(),
            start: 0,
            opening: String::new(),
            length: 0,
            visible: 0,
            first_chars,
            fresh: 0,
            state: SegmentState::Open,
            breaks,
            head: None,
            shown: Shown::Nothing,
            posted: String::new(),
            advanced: false,
            touched: false,
            trims,
            unit,
        }
    }

    /// Appends text.
    pub(super) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        let length = self.unit.measure(text);
        let visible = visible_in(text, self.first_chars - self.visible);
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

    /// Replaces the text that is not delivered yet. `continues`: it follows the delivered text.
    pub(super) fn rewrite(&mut self, text: &str, continues: bool) {
        let head = self.head.take().filter(|_| continues);
        let head = head.map(|head| (self.rest()[..head.taken].to_owned(), head));
        self.text.clear();
        self.start = 0;
        if !continues {
            self.opening.clear();
        }
        self.length = self.unit.measure(&self.opening);
        self.visible = 0;
        self.push(text);
        self.fresh = usize::MAX;
        // A full message may be in flight: it stays when the text still begins with it.
        if let Some((behind, mut head)) = head
            && let Some(beyond) = after_prefix(self.rest(), behind.chars())
        {
            head.taken = self.rest().len() - beyond.len();
            self.head = Some(head);
        }
    }

    /// The text that is not delivered yet.
    pub(super) fn rest(&self) -> &str {
        &self.text[self.start..]
    }

    /// The text that is not delivered yet, which the segment has no longer.
    pub(super) fn take_text(&mut self) -> String {
        self.text.drain(..self.start);
        std::mem::take(&mut self.text)
    }

    /// The start of the current message.
    pub(super) fn opening(&self) -> &str {
        &self.opening
    }

    /// The current message so far.
    pub(super) fn body(&self) -> String {
        [&self.opening, self.rest()].concat()
    }

    /// Whether there is enough of it for a message to begin with.
    pub(super) fn begins(&self) -> bool {
        self.visible == self.first_chars
    }

    pub(super) fn is_blank(&self) -> bool {
        self.visible == 0
    }

    /// Whether the current message cannot grow: the segment is closed, or the message is full.
    pub(super) fn is_complete(&self, room: usize) -> bool {
        self.state == SegmentState::Closed || self.head.is_some() || self.length > room
    }

    /// The current message, which is complete. It stays the same whatever is added later.
    pub(super) fn head(&mut self, room: usize, limit: usize) -> &FirstMessage {
        let limit = if self.state == SegmentState::Closed {
            limit
        } else {
            room
        };
        if self.head.is_none() {
            self.head = Some(first_message(
                &self.opening,
                self.rest(),
                self.kept(),
                limit,
                self.unit,
            ));
        }
        self.head.as_ref().expect("it was made")
    }

    /// Bytes of the rest that are shown. A message does not get shorter than it was.
    fn kept(&self) -> usize {
        let (Shown::Message { text, .. } | Shown::Stream { text }) = &self.shown else {
            return 0;
        };
        let shown = text.strip_prefix(&self.opening);
        let beyond = shown.and_then(|shown| after_prefix(self.rest(), shown.chars()));
        beyond.map_or(0, |beyond| self.rest().len() - beyond.len())
    }

    /// Whether `text` is the current message, complete.
    pub(super) fn is_head(&self, text: &str) -> bool {
        self.head.as_ref().is_some_and(|head| head.part == text)
    }

    /// The complete message is delivered: starts the next. Returns the delivered text.
    pub(super) fn advance(&mut self) -> String {
        let Some(head) = self.head.take() else {
            return String::new();
        };
        let behind = self.text[self.start..self.start + head.taken].to_owned();
        self.length -= self.unit.measure(&behind) + self.unit.measure(&self.opening);
        self.length += self.unit.measure(&head.opening);
        self.start += head.taken;
        self.opening = head.opening;
        // More may have been added since the cut.
        let space = self.rest().len() - trim_leading_space(self.rest()).len();
        self.length -= self.unit.measure(&self.rest()[..space]);
        self.start += space;
        if self.start > FREE_BYTES && self.start > self.text.len() / 2 {
            self.text.drain(..self.start);
            self.start = 0;
        }
        self.visible = visible_in(self.rest(), self.first_chars);
        self.shown = Shown::Nothing;
        self.posted.clear();
        self.fresh = self.length;
        self.trims = true;
        self.advanced = true;
        behind
    }

    /// Whether no message of it was delivered yet.
    pub(super) fn is_whole(&self) -> bool {
        !self.advanced
    }

    /// Whether nothing of it was sent or cut.
    pub(super) fn is_untouched(&self) -> bool {
        !self.touched && !self.advanced
    }
}

/// Number of characters that are not white space, up to so many.
fn visible_in(text: &str, most: usize) -> usize {
    let visible = text.chars().filter(|point| !point.is_whitespace());
    visible.take(most).count()
}
