//! Folded sections (`<details>`): the only HTML of agents that keeps its meaning, and only where it is sound.

/// A tag of a folded section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldTag {
    Open,
    Close,
    OpenSummary,
    CloseSummary,
}

/// The spellings of each tag. A tag with other attributes is text.
const TAGS: [(&str, FoldTag); 5] = [
    ("<details>", FoldTag::Open),
    ("<details open>", FoldTag::Open),
    ("</details>", FoldTag::Close),
    ("<summary>", FoldTag::OpenSummary),
    ("</summary>", FoldTag::CloseSummary),
];

/// A piece of HTML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldPiece<'h> {
    Tag(FoldTag),
    /// Text, or HTML that is no tag of a folded section.
    Text(&'h str),
}

/// The tags in a piece of HTML, and what is between them.
pub(super) fn fold_pieces(html: &str) -> Vec<FoldPiece<'_>> {
    let mut pieces = Vec::new();
    let mut begun = 0;
    let mut at = 0;
    while let Some(found) = html[at..].find('<') {
        let here = at + found;
        let tag = TAGS.iter().find(|(name, _)| {
            let head = html.get(here..here + name.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(name))
        });
        at = here + 1;
        if let Some((name, tag)) = tag {
            pieces.push(FoldPiece::Text(&html[begun..here]));
            pieces.push(FoldPiece::Tag(*tag));
            at = here + name.len();
            begun = at;
        }
    }
    pieces.push(FoldPiece::Text(&html[begun..]));
    pieces.retain(|piece| !matches!(piece, FoldPiece::Text(text) if text.trim().is_empty()));
    pieces
}

/// Whether the folded sections of a text are sound: each begins with its summary and ends where it began.
#[derive(Debug, Default)]
pub(super) struct FoldReader {
    /// The nesting of blocks in which each open section began.
    open: Vec<usize>,
    /// The piece that has to come next.
    next: FoldNext,
    count: usize,
    is_broken: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum FoldNext {
    #[default]
    Anything,
    Summary,
    /// The summary has begun; so many pieces of text are in it.
    SummaryText(usize),
}

impl FoldReader {
    /// HTML at this nesting of blocks.
    pub(super) fn html(&mut self, html: &str, level: usize) {
        for piece in fold_pieces(html) {
            self.next = match (piece, &self.next) {
                (FoldPiece::Tag(FoldTag::Open), FoldNext::Anything) => {
                    self.open.push(level);
                    self.count += 1;
                    FoldNext::Summary
                }
                (FoldPiece::Tag(FoldTag::OpenSummary), FoldNext::Summary) => FoldNext::SummaryText(0),
                (FoldPiece::Text(_), FoldNext::SummaryText(0)) => FoldNext::SummaryText(1),
                (FoldPiece::Tag(FoldTag::Close), FoldNext::Anything) => {
                    self.is_broken |= self.open.pop() != Some(level);
                    FoldNext::Anything
                }
                (FoldPiece::Tag(FoldTag::CloseSummary), FoldNext::SummaryText(1))
                | (FoldPiece::Text(_), FoldNext::Anything) => FoldNext::Anything,
                _ => {
                    self.is_broken = true;
                    FoldNext::Anything
                }
            };
        }
    }

    /// Sections that are open.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Sections that have begun so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether all of them are sound, at the end of the text.
    pub(super) fn are_sound(&self) -> bool {
        !self.is_broken && self.open.is_empty() && self.next == FoldNext::Anything
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sections_with_a_summary_are_sound() {
        let sound = [
            "<details><summary>x</summary>\ny\n</details>",
            "<DETAILS open>\n<summary>a <b> c</summary>\n</Details>",
            "<details><summary>x</summary><details><summary>y</summary></details></details>",
            "no section <b>",
        ];
        let broken = [
            "<details>",
            "</details>",
            "<details>text</details>",
            "<details><summary>x</summary>",
            "<details><summary></summary></details>",
            "<details><summary>x</details></summary>",
            "<details><summary><details></summary></details>",
            "<summary>x</summary>",
        ];
        for html in sound {
            let mut reader = FoldReader::default();
            reader.html(html, 0);
            assert!(reader.are_sound(), "{html}");
        }
        for html in broken {
            let mut reader = FoldReader::default();
            reader.html(html, 0);
            assert!(!reader.are_sound(), "{html}");
        }
        // One that begins in a quote and ends outside of it.
        let mut reader = FoldReader::default();
        reader.html("<details><summary>x</summary>", 1);
        reader.html("</details>", 0);
        assert!(!reader.are_sound());
    }

    #[test]
    fn a_tag_with_other_attributes_is_text() {
        let html = "<details onclick=x><summary class=\"a\"><details";
        assert_eq!(fold_pieces(html), [FoldPiece::Text(html)]);
        assert_eq!(fold_pieces(" \n"), []);
    }
}
