//! Splits a rendered text into messages, by the length that readers see: code points without markup. The limits on
//! styles and addresses are Telegram's, which no other platform undercuts.
//!
//! A cut is made between blocks if it can be, else between lines, sentences or words, and never within a character as
//! people see it or within a link. Styles that a cut goes through end before it and begin again after it; so does a
//! block of code, with its language.

use unicode_segmentation::GraphemeCursor;

use super::markdown::url_bytes;
use super::styled::{Styled, TextSpan, TextStyle};

/// Styles of one message; the server silently drops further ones.
pub const MAX_ENTITIES: usize = 100;
/// Bytes of all addresses of one message. The server refuses more than about 9,000, and reads about 35,000 bytes of HTML.
const MAX_URLS: usize = 6_000;

impl Styled {
    /// The messages of a text, each with at most `limit` code points; none for a blank text.
    pub fn split(self, limit: usize) -> Vec<Self> {
        let limit = limit.max(1);
        let mut splitter = Splitter {
            whole: &self,
            next_span: 0,
            carried: Vec::new(),
        };
        let mut parts = Vec::new();
        let mut at = 0;
        while at < self.text.len() {
            let (part, next) = splitter.part(at, limit);
            if !part.is_blank() {
                parts.push(part);
            }
            at = next;
        }
        parts
    }

    /// Whether the text fits in one message or caption.
    pub(in crate::direct) fn fits(&self, limit: usize) -> bool {
        let urls: usize = self.spans.iter().map(|span| url_cost(&span.style)).sum();
        self.spans.len() <= MAX_ENTITIES && urls <= MAX_URLS && self.chars() <= limit
    }
}

fn url_cost(style: &TextStyle) -> usize {
    match style {
        TextStyle::Link(url) => url_bytes(url),
        _ => 0,
    }
}

struct Splitter<'t> {
    whole: &'t Styled,
    /// The first span that begins after the last cut.
    next_span: usize,
    /// Spans that the last cut went through, outer ones first.
    carried: Vec<TextSpan>,
}

impl Splitter<'_> {
    /// The part that begins at `at`, and where the next one begins.
    fn part(&mut self, at: usize, limit: usize) -> (Styled, usize) {
        let text = &self.whole.text;
        let end = self.longest(at, limit);
        let cut = if end == text.len() {
            end
        } else {
            self.best_cut(at, end)
        };
        let in_code = self.is_in_code(cut);
        let rest = &text[cut..];
        let next = if in_code {
            cut + usize::from(rest.starts_with('\n'))
        } else {
            text.len() - rest.trim_start_matches(['\n', ' ']).len()
        };
        let part = self.take(at, cut, next);
        (part, next)
    }

    /// The furthest end of a message from `at` on, by its length, its styles and its addresses.
    fn longest(&self, at: usize, limit: usize) -> usize {
        let text = &self.whole.text;
        let by_length = text[at..]
            .char_indices()
            .nth(limit)
            .map_or(text.len(), |(end, _)| at + end);
        let mut entities = self.carried.len();
        let mut urls: usize = self.carried.iter().map(|span| url_cost(&span.style)).sum();
        for span in &self.whole.spans[self.next_span..] {
            if span.start >= by_length {
                break;
            }
            entities += 1;
            urls += url_cost(&span.style);
            if (entities > MAX_ENTITIES || urls > MAX_URLS) && span.start > at {
                return span.start;
            }
        }
        by_length
    }

    /// The best place for a cut in the second half of what fits.
    fn best_cut(&self, at: usize, end: usize) -> usize {
        let text = &self.whole.text;
        let mut half = at + (end - at) / 2;
        while !text.is_char_boundary(half) {
            half += 1;
        }
        let blocks = &self.whole.blocks;
        let block = blocks[..blocks.partition_point(|block| *block <= end)].last();
        if let Some(block) = block.filter(|block| **block > half) {
            return *block;
        }
        let window = &text[half..end];
        // A line that ends exactly here is the best one.
        if text[end..].starts_with('\n') {
            return end;
        }
        if let Some(line) = window.rfind('\n') {
            return half + line + 1;
        }
        let sentence = window
            .rmatch_indices([' ', '\u{3000}'])
            .find(|(space, _)| window[..*space].ends_with(['.', '!', '?', ':', ';']))
            .map(|(space, _)| half + space + 1);
        let asian = window
            .rfind(['。', '！', '？'])
            .map(|stop| half + stop + '。'.len_utf8());
        let word = if text[end..].starts_with(' ') {
            Some(end)
        } else {
            window.rfind(' ').map(|space| half + space + 1)
        };
        let cut = sentence
            .max(asian)
            .or(word)
            .unwrap_or_else(|| self.character(at, end));
        self.outside_link(at, cut)
    }

    /// The last boundary between characters as people see them; `end` if there is none.
    fn character(&self, at: usize, end: usize) -> usize {
        let text = &self.whole.text;
        let mut cursor = GraphemeCursor::new(end, text.len(), true);
        if cursor.is_boundary(text, 0) == Ok(true) {
            return end;
        }
        match cursor.prev_boundary(text, 0) {
            Ok(Some(boundary)) if boundary > at => boundary,
            _ => end,
        }
    }

    /// A cut within a link moves before it, unless the part would be empty.
    fn outside_link(&self, at: usize, cut: usize) -> usize {
        let spans = &self.whole.spans[self.next_span..];
        let link = spans
            .iter()
            .take_while(|span| span.start < cut)
            .find(|span| matches!(span.style, TextStyle::Link(_)) && span.end > cut);
        link.map_or(cut, |link| if link.start > at { link.start } else { cut })
    }

    fn is_in_code(&self, at: usize) -> bool {
        let spans = self.whole.spans[self.next_span..]
            .iter()
            .take_while(|span| span.start < at);
        self.carried
            .iter()
            .chain(spans)
            .any(|span| matches!(span.style, TextStyle::Pre(_)) && span.start < at && at < span.end)
    }

    /// The text from `at` to `cut`, with its styles; styles that reach beyond `next` are carried on.
    fn take(&mut self, at: usize, cut: usize, next: usize) -> Styled {
        let mut part = Styled {
            text: self.whole.text[at..cut].to_owned(),
            ..Styled::default()
        };
        let fresh = self.whole.spans[self.next_span..]
            .iter()
            .take_while(|span| span.start < next);
        let fresh: Vec<TextSpan> = fresh.cloned().collect();
        self.next_span += fresh.len();
        let mut spans = std::mem::take(&mut self.carried);
        spans.extend(fresh);
        for span in &spans {
            let (start, end) = (span.start.clamp(at, cut), span.end.clamp(at, cut));
            part.mark(start - at, end - at, span.style.clone());
        }
        spans.retain(|span| span.end > next);
        self.carried = spans;
        part.trim();
        part
    }
}

#[cfg(test)]
mod tests;
