//! Whether a text ends inside a fenced code block, and how such a block is closed and opened again.
//!
//! It never changes the text it reads.

use super::cut::is_space;

const MARK: &str = "```";

/// What closes a fence at the end of a part.
pub(super) const CLOSE: &str = "\n```";

/// What opens a fence at the start of a part.
pub(super) fn opening(language: &str) -> String {
    format!("{MARK}{language}\n")
}

/// Where the text stands between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fence<'a> {
    /// In ordinary text.
    Closed,
    /// In a code block.
    Open {
        /// The first word after the opening marks; empty when there is none.
        language: &'a str,
    },
}

impl<'a> Fence<'a> {
    /// Where the text stands after what [`opening`] gave, or after nothing.
    pub(super) fn opened_by(opening: &'a str) -> Self {
        match opening.strip_prefix(MARK) {
            Some(language) => Self::Open {
                language: language.trim_end_matches('\n'),
            },
            None => Self::Closed,
        }
    }

    /// Where the text stands after `body`. Every line that starts with the marks opens or closes.
    pub(super) fn after(self, body: &'a str) -> Self {
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
