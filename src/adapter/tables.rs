//! Tables for platforms without any: a Markdown table becomes an aligned code block, or, where it is too wide for that, a list
//! with a block of lines for each row. Everything else passes as it comes.

use std::borrow::Cow;

use smallvec::SmallVec;
use unicode_width::UnicodeWidthStr as _;

/// Longest table that is held back, in bytes; a longer one passes as it is.
const MAX_TABLE_BYTES: usize = 64 * 1024;

/// Rewrites the tables of a text that comes in pieces. Only lines that begin with `|` are held back, until they end.
#[derive(Debug)]
pub struct TableShaper {
    width: usize,
    /// Lines that may be a table, the last one perhaps incomplete.
    held: String,
    /// The current line, as far as it decides whether it is a fence.
    line: SmallVec<[char; 8]>,
    in_fence: bool,
}

impl TableShaper {
    /// For tables of at most `width` columns of characters.
    pub fn new(width: usize) -> Self {
        Self {
            width,
            held: String::new(),
            line: SmallVec::new(),
            in_fence: false,
        }
    }

    /// The whole of a text.
    pub fn shape(mut self, text: &str) -> String {
        let mut whole = self.push(text).into_owned();
        whole.push_str(&self.finish());
        whole
    }

    /// Takes more of the text; returns what can be shown.
    pub fn push<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if self.passes(text) {
            let tail = match memchr::memrchr(b'\n', text.as_bytes()) {
                Some(end) => {
                    self.line.clear();
                    &text[end + 1..]
                }
                None => text,
            };
            self.begin_line(tail);
            return text.into();
        }
        let mut ready = String::with_capacity(text.len());
        for piece in text.split_inclusive('\n') {
            self.take(piece, &mut ready);
        }
        ready.into()
    }

    /// Whether a text has nothing of a table or a fence, nor ends one.
    fn passes(&self, text: &str) -> bool {
        self.held.is_empty()
            && !is_fence(&self.line)
            && memchr::memchr3(b'|', b'`', b'~', text.as_bytes()).is_none()
    }

    /// The text is over, or something else comes: returns what was held back.
    pub fn finish(&mut self) -> String {
        self.line.clear();
        self.release()
    }

    /// Takes a piece of one line.
    fn take(&mut self, piece: &str, ready: &mut String) {
        let ends = piece.ends_with('\n');
        let is_held = self.held.ends_with(|last| last != '\n') && !self.held.is_empty();
        let starts_row =
            self.line.iter().all(|point| point.is_whitespace()) && piece.trim_start().starts_with('|');
        if !self.in_fence && (is_held || starts_row) && self.held.len() + piece.len() <= MAX_TABLE_BYTES {
            self.held.push_str(piece);
            if ends {
                self.line.clear();
            }
            return;
        }
        if !piece.is_empty() {
            ready.push_str(&self.release());
        }
        ready.push_str(piece);
        self.begin_line(piece);
        if ends {
            self.in_fence ^= is_fence(&self.line);
            self.line.clear();
        }
    }

    /// Keeps the beginning of the current line.
    fn begin_line(&mut self, piece: &str) {
        let room = self.line.inline_size().saturating_sub(self.line.len());
        self.line.extend(piece.chars().take(room));
    }

    /// What was held back, as a table if it is one.
    fn release(&mut self) -> String {
        if self.held.is_empty() {
            return String::new();
        }
        let held = std::mem::take(&mut self.held);
        match Table::parse(&held) {
            Some(table) => table.layout(self.width),
            None => held,
        }
    }
}

/// Whether a line begins or ends a block of code.
fn is_fence(line: &[char]) -> bool {
    let start = line.iter().position(|point| !point.is_whitespace());
    let line = &line[start.unwrap_or(line.len())..];
    line.starts_with(&['`'; 3]) || line.starts_with(&['~'; 3])
}

/// A table's cells.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Whether a column is aligned to the right.
    right: Vec<bool>,
    /// Whether the last line ended.
    ends: bool,
}

impl Table {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let head = cells(lines.next()?);
        let rule = cells(lines.next()?);
        let is_rule = |cell: &String| {
            let dashes = cell.trim_matches(':');
            !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
        };
        if rule.len() != head.len() || !rule.iter().all(is_rule) {
            return None;
        }
        let columns = head.len();
        let row = |line: &str| {
            let mut row = cells(line);
            row.resize(columns, String::new());
            row
        };
        Some(Self {
            right: (rule.iter())
                .map(|cell| cell.ends_with(':') && !cell.starts_with(':'))
                .collect(),
            rows: lines.map(row).collect(),
            head,
            ends: text.ends_with('\n'),
        })
    }

    fn layout(&self, width: usize) -> String {
        let mut widths = vec![0; self.head.len()];
        for row in std::iter::once(&self.head).chain(&self.rows) {
            for (cell, width) in row.iter().zip(&mut widths) {
                *width = (*width).max(cell.width());
            }
        }
        let total = widths.iter().sum::<usize>() + 3 * widths.len().saturating_sub(1);
        let mut text = if total <= width {
            self.aligned(&widths)
        } else {
            self.listed()
        };
        if self.ends {
            text.push('\n');
        }
        text
    }

    fn aligned(&self, widths: &[usize]) -> String {
        let line = |row: &[String]| {
            let cells = row.iter().zip(widths).zip(&self.right);
            let cells = cells.map(|((cell, width), right)| {
                let room = " ".repeat(width.saturating_sub(cell.width()));
                if *right {
                    [room.as_str(), cell].concat()
                } else {
                    [cell, room.as_str()].concat()
                }
            });
            let line = cells.collect::<Vec<_>>().join(" | ");
            line.trim_end().to_owned()
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let lines: Vec<String> = [line(&self.head), rule.join("-+-")]
            .into_iter()
            .chain(self.rows.iter().map(|row| line(row)))
            .collect();
        format!("```\n{}\n```", lines.join("\n"))
    }

    fn listed(&self) -> String {
        let row = |row: &Vec<String>| {
            let named = self.head.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            let lines = named.map(|(head, cell)| {
                if head.is_empty() {
                    cell.clone()
                } else {
                    format!("{head}: {cell}")
                }
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        let rows: Vec<String> = self.rows.iter().map(row).collect();
        rows.join("\n\n")
    }
}

/// The cells of a row. A `\|` is part of a cell.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut points = line.chars().peekable();
    while let Some(point) = points.next() {
        match point {
            '\\' if points.peek() == Some(&'|') => {
                points.next();
                if let Some(cell) = cells.last_mut() {
                    cell.push('|');
                }
            }
            '|' => cells.push(String::new()),
            point => {
                if let Some(cell) = cells.last_mut() {
                    cell.push(point);
                }
            }
        }
    }
    if cells.len() > 1 && cells.last().is_some_and(|cell| cell.trim().is_empty()) {
        cells.pop();
    }
    // Marks of emphasis and code would be shown as they are.
    let plain = |cell: String| cell.trim().replace("**", "").replace('`', "");
    cells.into_iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Look:\n\n| Name | Count |\n|:--|--:|\n| **a** | 1 |\n| b\\|c | 200 |\n\nDone.";
    const SHAPED: &str = "Look:\n\n```\nName | Count\n-----+------\na    |     1\nb|c  |   200\n```\n\nDone.";

    #[test]
    fn a_table_becomes_an_aligned_code_block() {
        assert_eq!(TableShaper::new(80).shape(TABLE), SHAPED);
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_a_text_comes() {
        for size in 1..TABLE.len() {
            let mut shaper = TableShaper::new(80);
            let bytes: Vec<&str> = TABLE
                .as_bytes()
                .chunks(size)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            let mut whole: String = bytes.iter().map(|piece| shaper.push(piece)).collect();
            whole.push_str(&shaper.finish());
            assert_eq!(whole, SHAPED, "in pieces of {size}");
        }
    }

    #[test]
    fn a_table_that_is_too_wide_becomes_a_list() {
        let shaped = TableShaper::new(10).shape("| Name | Text |\n|---|---|\n| a | some words |\n| | more |");
        assert_eq!(shaped, "Name: a\nText: some words\n\nText: more");
    }

    #[test]
    fn what_is_no_table_stays_as_it_is() {
        for text in [
            "",
            "plain\ntext | with a bar",
            "| a quotation |\n| of bars |",
            "|",
            "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\nend",
            "  | x\nnext",
            "| a | b |\n|---|\n| 1 | 2 |",
        ] {
            assert_eq!(TableShaper::new(80).shape(text), text, "{text}");
        }
        let long = format!("| a |\n|---|\n{}", "| x |\n".repeat(20_000));
        assert!(TableShaper::new(80).shape(&long).len() >= long.len() / 2);
    }

    #[test]
    fn text_before_and_after_a_table_is_not_held_back() {
        let mut shaper = TableShaper::new(80);
        assert_eq!(shaper.push("Hel"), "Hel");
        assert_eq!(shaper.push("lo\n| a |\n|--"), "lo\n");
        assert_eq!(shaper.push("-|\n| b |\n"), "");
        assert_eq!(shaper.push("x"), "```\na\n-\nb\n```\nx");
    }
}
