//! Splits a long text into messages that fit the platform's limit, without dropping a word or cutting a character.
//!
//! [`split`] keeps code fences whole on both sides of a cut and numbers the parts; [`split_continuation`] cuts plainly, for
//! text that follows a message that is already shown.
//!
//! [`split`] tries a list of layouts and takes the first whose parts all fit. The first one is the layout of the
//! contract's golden vectors; it fits in every ordinary case. The others give up, in this order, the vectors' spacing,
//! the numbering, and the fences, because the platform refuses a part over the limit and then shows nothing at all.

mod cut;

pub(super) use cut::trim_leading_space;
use cut::{clear_of_clusters, following_cut, is_space, natural_cut, plain_cut, window};

use crate::wire::LenUnit;

/// Splits `content` into parts of at most `max_length`, measured in `unit`.
///
/// A text that fits comes back unchanged. Otherwise every part ends in ` (i/n)`, a code fence open at a cut is
/// closed there and opened again in the next part, and the white space around a cut is dropped.
///
/// A part is longer than the limit only where one code point alone is. Where the limit leaves no room for them,
/// the numbering goes first and the fences go next. A grapheme cluster is cut only when it is itself longer than
/// the limit.
pub fn split(content: &str, max_length: usize, unit: LenUnit) -> Vec<String> {
    if fits(content, max_length, unit) {
        return vec![content.to_owned()];
    }
    let text = Text {
        content,
        limit: max_length,
        unit,
    };
    text.numbered()
        .or_else(|_| text.lay_out(&Layout::UNNUMBERED))
        .or_else(|_| text.lay_out(&Layout::BARE))
        .unwrap_or_else(|_| vec![content.to_owned()])
}

/// Whether `content` is one message.
pub(super) fn fits(content: &str, max_length: usize, unit: LenUnit) -> bool {
    // No unit counts more than the bytes do.
    content.len() <= max_length || window(content, max_length, unit).whole
}

/// Splits `content` without numbering and without regard to code fences.
///
/// A cut falls on the last line break of the window when that is past its middle, and else where the window ends;
/// the line breaks after a cut are dropped. The limit holds as it does for [`split`].
pub fn split_continuation(content: &str, limit: usize, unit: LenUnit) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = content;
    loop {
        if window(rest, limit, unit).whole {
            if !rest.is_empty() || parts.is_empty() {
                parts.push(rest.to_owned());
            }
            return parts;
        }
        let cut = clear_of_clusters(rest, plain_cut(rest, limit, unit), limit, unit);
        parts.push(rest[..cut].to_owned());
        rest = &rest[cut..];
        while let Some(after) = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')) {
            rest = after;
        }
    }
}

/// The first message of a growing text, without numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FirstMessage {
    /// The text of the message.
    pub part: String,
    /// Bytes of the text that it takes, including the white space after the cut.
    pub taken: usize,
    /// The start of the next message: the fence that was open at the cut, or nothing.
    pub opening: String,
}

/// The first message of `rest`, which starts with `opening`: that of the message before, or nothing.
///
/// The limit holds, and fences are kept, as they are by [`split`]; what fits is taken whole. The first `kept` bytes of
/// `rest`, which are already shown, stay in this message if they fit with the end of a fence.
pub(super) fn first_message(
    opening: &str,
    rest: &str,
    kept: usize,
    limit: usize,
    unit: LenUnit,
) -> FirstMessage {
    let text = Text {
        content: rest,
        limit,
        unit,
    };
    let layout = &Layout::UNNUMBERED;
    if layout.suits(limit)
        && let Ok((part, fence, left)) = text.part(
            layout,
            Fence::opened_by(opening),
            opening.to_owned(),
            (rest, kept),
        )
    {
        return FirstMessage {
            part,
            taken: rest.len() - left.len(),
            opening: layout.reopening(fence, limit, unit),
        };
    }
    let bare = text.part(&Layout::BARE, Fence::Closed, String::new(), (rest, kept));
    let (part, _, left) = bare.unwrap_or_else(|_| (rest.to_owned(), Fence::Closed, ""));
    FirstMessage {
        part,
        taken: rest.len() - left.len(),
        opening: String::new(),
    }
}

/// The start of a message that continues `shown`.
pub(super) fn reopening_after(shown: &str, limit: usize, unit: LenUnit) -> String {
    if !Layout::UNNUMBERED.suits(limit) {
        return String::new();
    }
    Layout::UNNUMBERED.reopening(Fence::Closed.after(shown), limit, unit)
}

/// The length that [`first_message`] needs to close a fence, at the limits where it keeps fences.
pub(super) fn closing_room(limit: usize) -> usize {
    if Layout::UNNUMBERED.suits(limit) {
        CLOSE.len()
    } else {
        0
    }
}

/// What opens and closes a code fence.
const MARK: &str = "```";

/// What closes a fence at the end of a part.
const CLOSE: &str = "\n```";

/// What opens a fence at the start of a part.
fn fence_opening(language: &str) -> String {
    format!("{MARK}{language}\n")
}

/// Whether a text is inside a code fence between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence<'a> {
    /// Outside of code.
    Closed,
    /// Inside a code fence.
    Open {
        /// The first word after the opening marks; empty when there is none.
        language: &'a str,
    },
}

impl<'a> Fence<'a> {
    /// The state after a part that starts with `opening`: the result of [`fence_opening`], or nothing.
    fn opened_by(opening: &'a str) -> Self {
        match opening.strip_prefix(MARK) {
            Some(language) => Self::Open {
                language: language.trim_end_matches('\n'),
            },
            None => Self::Closed,
        }
    }

    /// The state after `body`. Every line that starts with the marks opens or closes a fence.
    fn after(self, body: &'a str) -> Self {
        let mut fence = self;
        for line in body.split('\n') {
            let Some(info) = line.trim_start_matches(is_space).strip_prefix(MARK) else {
                continue;
            };
            fence = match fence {
                Self::Open { .. } => Self::Closed,
                Self::Closed => {
                    let language = info.split(is_space).find(|word| !word.is_empty()).unwrap_or("");
                    Self::Open { language }
                }
            };
        }
        fence
    }
}

/// What a part contains besides its text, and what happens when there is no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Room kept for the numbering; none means the parts are not numbered.
    numbering: usize,
    /// Whether a fence open at a cut is closed and opened again.
    fences: bool,
    /// What happens to a part over the limit.
    strict: Strictness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strictness {
    /// Half the limit is used where the room is gone; a part over the limit discards the layout.
    Contract,
    /// Nothing is placed that might not fit; a part over the limit discards the layout.
    Fitting,
    /// The last resort: what does not fit is sent as small as it gets.
    Accepting,
}

/// Room for the numbering in the contract's layout: enough for ` (999/999)`.
const NUMBERING_ROOM: usize = 10;
/// A longer word than this after a fence is no language name.
const LANGUAGE_POINTS: usize = 32;

impl Layout {
    const CONTRACT: Self = Self {
        numbering: NUMBERING_ROOM,
        fences: true,
        strict: Strictness::Contract,
    };
    const UNNUMBERED: Self = Self {
        numbering: 0,
        fences: true,
        strict: Strictness::Fitting,
    };
    const BARE: Self = Self {
        numbering: 0,
        fences: false,
        strict: Strictness::Accepting,
    };

    /// The contract's layout with this room for the numbering, and never over the limit.
    fn fitting(numbering: usize) -> Self {
        Self {
            numbering,
            fences: true,
            strict: Strictness::Fitting,
        }
    }

    fn closing(&self) -> usize {
        if self.fences { CLOSE.len() } else { 0 }
    }

    /// Whether a part has as much room for text as for what surrounds it.
    fn suits(&self, limit: usize) -> bool {
        self.strict != Strictness::Fitting || (self.numbering + 2 * CLOSE.len()) * 2 <= limit
    }

    /// The text that opens `fence` again. A word too long to be a language must not eat the part.
    fn reopening(&self, fence: Fence<'_>, limit: usize, unit: LenUnit) -> String {
        let Fence::Open { language } = fence else {
            return String::new();
        };
        let opening = fence_opening(language);
        let length = unit.measure(&opening);
        let excessive = if self.strict == Strictness::Contract {
            let room = limit.saturating_sub(self.numbering + self.closing());
            length > fence_opening("").len() + LANGUAGE_POINTS && length > room - room / 4
        } else {
            length > limit / 4
        };
        if excessive { fence_opening("") } else { opening }
    }

    /// The length of text that fits besides `around`; `None` when the layout has no room for any.
    fn budget(&self, limit: usize, around: usize) -> Option<usize> {
        match limit.saturating_sub(around) {
            0 if self.strict == Strictness::Fitting => None,
            0 => Some((limit / 2).max(1)),
            room => Some(room),
        }
    }
}

/// Why a layout was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misfit {
    /// A part was over the limit by itself.
    Part,
    /// A part was over the limit with its number.
    Numbering {
        /// The longest number's length: the room that would have been needed.
        width: usize,
    },
}

fn number(index: usize, total: usize) -> String {
    format!(" ({index}/{total})")
}

/// A text to be split.
struct Text<'a> {
    content: &'a str,
    limit: usize,
    unit: LenUnit,
}

impl Text<'_> {
    /// The contract's layout, or the one nearest to it that fits with its numbering.
    fn numbered(&self) -> Result<Vec<String>, Misfit> {
        let mut room = NUMBERING_ROOM;
        let mut laid_out = self
            .lay_out(&Layout::CONTRACT)
            .or_else(|_| self.lay_out(&Layout::fitting(room)));
        while let Err(Misfit::Numbering { width }) = laid_out
            && width > room
        {
            room = width;
            laid_out = self.lay_out(&Layout::fitting(room));
        }
        laid_out
    }

    /// The parts under one layout, or why one of them would be over the limit.
    fn lay_out(&self, layout: &Layout) -> Result<Vec<String>, Misfit> {
        if !layout.suits(self.limit) {
            return Err(Misfit::Part);
        }
        let mut parts = Vec::new();
        let mut fence = Fence::Closed;
        let mut rest = self.content;
        while !rest.is_empty() {
            let opening = layout.reopening(fence, self.limit, self.unit);
            let (part, after, left) = self.part(layout, fence, opening, (rest, 0))?;
            (fence, rest) = (after, left);
            parts.push(part);
        }
        if layout.numbering == 0 || parts.len() < 2 {
            return Ok(parts);
        }
        let total = parts.len();
        let width = number(total, total).len();
        for (index, part) in parts.iter_mut().enumerate() {
            part.push_str(&number(index + 1, total));
            if !self.accepts(layout, part) {
                return Err(Misfit::Numbering { width });
            }
        }
        Ok(parts)
    }

    /// The part that starts with `opening` and takes from `rest`, where the text stands after it, and what is left.
    /// The first `kept` bytes are not cut where they fit.
    fn part<'b>(
        &self,
        layout: &Layout,
        fence: Fence<'b>,
        opening: String,
        (rest, kept): (&'b str, usize),
    ) -> Result<(String, Fence<'b>, &'b str), Misfit> {
        let mut part = opening;
        let before = self.unit.measure(&part);
        let (mut after, mut left) = (fence, "");
        if let Some(end) = self.ending(layout, fence, before, rest) {
            part.push_str(rest);
            part.push_str(end);
        } else {
            let budget = layout
                .budget(self.limit, layout.numbering + before + layout.closing())
                .ok_or(Misfit::Part)?;
            let cut = match budget.checked_sub(self.unit.measure(&rest[..kept])) {
                Some(budget) if kept > 0 => kept + following_cut(&rest[kept..], budget, self.unit),
                _ => natural_cut(rest, budget, self.unit),
            };
            let cut = clear_of_clusters(rest, cut, self.limit, self.unit);
            part.push_str(&rest[..cut]);
            if layout.fences {
                after = fence.after(&rest[..cut]);
                if after != Fence::Closed {
                    part.push_str(CLOSE);
                }
            }
            left = trim_leading_space(&rest[cut..]);
        }
        if !self.accepts(layout, &part) {
            return Err(Misfit::Part);
        }
        Ok((part, after, left))
    }

    /// What closes the text when all of `rest` fits in the part that starts with `before`; nothing when it does not.
    fn ending(&self, layout: &Layout, fence: Fence<'_>, before: usize, rest: &str) -> Option<&'static str> {
        let room = self.limit.checked_sub(layout.numbering + before)?;
        if !window(rest, room, self.unit).whole {
            return None;
        }
        // A fence that the text itself opens here and never closes stays as it was written.
        if fence == Fence::Closed || fence.after(rest) == Fence::Closed {
            return Some("");
        }
        let closed = layout.strict == Strictness::Contract
            || room
                .checked_sub(CLOSE.len())
                .is_some_and(|room| window(rest, room, self.unit).whole);
        closed.then_some(CLOSE)
    }

    fn accepts(&self, layout: &Layout, part: &str) -> bool {
        layout.strict == Strictness::Accepting || window(part, self.limit, self.unit).whole
    }
}
