//! Tables, for a platform without any: a narrow one as aligned code, a wide one as a block of lines per row.

use pulldown_cmark::Alignment;
use unicode_width::UnicodeWidthStr as _;

use super::styled::{Styled, TextStyle};

/// Columns of characters that a phone shows in one line of code.
const NARROW: usize = 36;

/// The cells of a table while it is read.
#[derive(Debug, Default)]
pub(super) struct TableCells {
    pub(super) aligned: Vec<Alignment>,
    pub(super) head: Vec<Styled>,
    pub(super) rows: Vec<Vec<Styled>>,
}

impl TableCells {
    /// The table as text.
    pub(super) fn layout(self) -> Styled {
        let columns = self.head.len();
        let mut widths = vec![0; columns];
        let mut has_links = false;
        for row in std::iter::once(&self.head).chain(&self.rows) {
            for (cell, width) in row.iter().zip(&mut widths) {
                *width = (*width).max(cell.text.width());
                has_links |= cell
                    .spans
                    .iter()
                    .any(|span| matches!(span.style, TextStyle::Link(_)));
            }
        }
        let total = widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1);
        if total <= NARROW && !has_links {
            self.aligned(&widths)
        } else {
            self.stacked()
        }
    }

    /// Columns padded to their width, as code.
    fn aligned(&self, widths: &[usize]) -> Styled {
        let mut text = String::new();
        self.line(&self.head, widths, &mut text);
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        text.push('\n');
        text.push_str(&rule.join("-+-"));
        for row in &self.rows {
            text.push('\n');
            self.line(row, widths, &mut text);
        }
        let mut styled = Styled {
            text,
            ..Styled::default()
        };
        styled.mark(0, styled.text.len(), TextStyle::Pre(None));
        styled
    }

    fn line(&self, row: &[Styled], widths: &[usize], text: &mut String) {
        let from = text.len();
        for (column, width) in widths.iter().enumerate() {
            if column > 0 {
                text.push_str(" | ");
            }
            let cell = row.get(column).map_or("", |cell| cell.text.as_str());
            let room = width.saturating_sub(cell.width());
            let left = match self.aligned.get(column) {
                Some(Alignment::Right) => room,
                Some(Alignment::Center) => room / 2,
                Some(Alignment::Left | Alignment::None) | None => 0,
            };
            text.extend(std::iter::repeat_n(' ', left));
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', room - left));
        }
        let kept = text[from..].trim_end().len();
        text.truncate(from + kept);
    }

    /// A block per row, with a line per column that names it.
    fn stacked(self) -> Styled {
        let mut styled = Styled::default();
        if self.rows.is_empty() {
            for cell in self.head {
                if !styled.text.is_empty() {
                    styled.text.push_str(" | ");
                }
                styled.append(cell);
            }
            return styled;
        }
        for row in self.rows {
            let mut begun = false;
            for (column, cell) in row.into_iter().enumerate() {
                if cell.is_blank() {
                    continue;
                }
                if !styled.text.is_empty() {
                    styled.text.push_str(if begun { "\n" } else { "\n\n" });
                }
                if !begun {
                    styled.blocks.push(styled.text.len());
                }
                begun = true;
                if let Some(head) = self.head.get(column).filter(|head| !head.is_blank()) {
                    styled.text.push_str(&head.text);
                    styled.text.push_str(": ");
                }
                styled.append(cell);
            }
        }
        styled
    }
}
