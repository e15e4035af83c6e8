//! Where a text may be cut: at a line break, at a space, and never inside a grapheme cluster that fits. The cost is
//! bounded by the length of one part.

use crate::wire::LenUnit;
use unicode_segmentation::GraphemeCursor;

/// The longest head of a text that stays within a budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Where the head ends, in bytes.
    end: usize,
    /// How many code points the window spans.
    points: usize,
    /// Whether the head is the whole text.
    pub(super) whole: bool,
}

/// The longest head of `text` that measures at most `budget`.
pub(super) fn window(text: &str, budget: usize, unit: LenUnit) -> Window {
    let mut left = budget;
    let mut points = 0;
    for (at, point) in text.char_indices() {
        let Some(after) = left.checked_sub(unit.width(point)) else {
            return Window {
                end: at,
                points,
                whole: false,
            };
        };
        left = after;
        points += 1;
    }
    // In code points the window is as wide as its budget even where the text is shorter.
    let points = if unit == LenUnit::Chars { budget } else { points };
    Window {
        end: text.len(),
        points,
        whole: true,
    }
}

impl Window {
    /// The last line break in the window, when it is past the middle.
    fn line_break(&self, text: &str) -> Option<usize> {
        let at = text[..self.end].rfind('\n')?;
        (text[..at].chars().count() >= self.points / 2).then_some(at)
    }
}

/// Where a plain cut of `text` falls: on a line break past the middle, else where the window ends.
pub(super) fn plain_cut(text: &str, limit: usize, unit: LenUnit) -> usize {
    let view = window(text, limit, unit);
    // Where code points count twice, the line break right behind the window is still among the first `limit`.
    if view.points < limit && text[view.end..].starts_with('\n') {
        return view.end;
    }
    view.line_break(text).filter(|&at| at > 0).unwrap_or(view.end)
}

/// Where to cut `text` so that the head measures at most `budget`, or is one code point.
pub(super) fn natural_cut(text: &str, budget: usize, unit: LenUnit) -> usize {
    let view = window(text, budget, unit);
    let head = &text[..view.end];
    let cut = view
        .line_break(text)
        .or_else(|| head.rfind(' '))
        .filter(|&at| at > 0)
        .unwrap_or(view.end);
    before_inline_code(&text[..cut], view.points).unwrap_or(cut)
}

/// Where to cut `text` that follows other text in the same message; at its start rather than inside its first word.
pub(super) fn following_cut(text: &str, budget: usize, unit: LenUnit) -> usize {
    let cut = natural_cut(text, budget, unit);
    let (head, tail) = text.split_at(cut);
    let is_one_word = !head.trim_start_matches(is_space).contains(is_space) && !tail.starts_with(is_space);
    if text.starts_with(is_space) && is_one_word {
        0
    } else {
        cut
    }
}

/// Where to cut instead when `head` ends inside inline code that starts far enough into the window.
fn before_inline_code(head: &str, points: usize) -> Option<usize> {
    let bytes = head.as_bytes();
    let is_tick = |&at: &usize| bytes[at] == b'`' && (at == 0 || bytes[at - 1] != b'\\');
    let mut ticks = (0..bytes.len()).filter(is_tick);
    let last = ticks.next_back()?;
    if ticks.count() % 2 == 1 {
        return None;
    }
    let at = head[..last].rfind([' ', '\n'])?;
    (head[..at].chars().count() > points / 4).then_some(at)
}

/// `cut`, or the nearest place that leaves whole a grapheme cluster of at most `limit`. Never 0 for a text.
pub(super) fn clear_of_clusters(text: &str, cut: usize, limit: usize, unit: LenUnit) -> usize {
    let cut = if cut == 0 {
        text.chars().next().map_or(0, char::len_utf8)
    } else {
        cut
    };
    if is_boundary(text, cut) {
        return cut;
    }
    let start = GraphemeCursor::new(cut, text.len(), true)
        .prev_boundary(text, 0)
        .ok()
        .flatten()
        .unwrap_or(0);
    let cluster = &text[start..];
    // One code point past the limit is enough to see that a cluster is too long.
    let fits = window(cluster, limit, unit);
    let next = cluster[fits.end..].chars().next().map_or(0, char::len_utf8);
    let cluster = &cluster[..fits.end + next];
    let end = GraphemeCursor::new(0, cluster.len(), true)
        .next_boundary(cluster, 0)
        .ok()
        .flatten()
        .unwrap_or(0);
    match (end <= fits.end, start) {
        (false, _) => cut,
        (true, 0) => end,
        (true, _) => start,
    }
}

/// The text without the white space it starts with, save what carries a combining mark.
pub(in crate::adapter) fn trim_leading_space(text: &str) -> &str {
    let trimmed = text.trim_start_matches(is_space);
    let at = text.len() - trimmed.len();
    if is_boundary(text, at) {
        return trimmed;
    }
    let carrier = text[..at].chars().next_back().map_or(0, char::len_utf8);
    &text[at - carrier..]
}

/// White space as the contract's peers strip it: Unicode's, and the four information separators.
pub(super) fn is_space(point: char) -> bool {
    point.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&point)
}

fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true)
        .is_boundary(text, 0)
        .unwrap_or(true)
}
