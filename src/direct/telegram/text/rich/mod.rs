//! Rich messages: which answers become rich messages, and their Markdown.
//!
//! The server parses the Markdown of a rich message itself, so an agent's text never reaches it as it is: the text is parsed
//! here and written anew. HTML is shown as it was written, images become links and are never fetched, and single line breaks
//! stay. Several clients of Telegram cannot show or copy rich messages, so only an answer that gains by it becomes one: an
//! answer with a table, a task list, a block of mathematics, or a folded section.

mod escape;
mod folds;
mod writer;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::{Deserialize, Serialize};

use self::folds::FoldReader;
use self::writer::RichWriter;
use crate::direct::text::{DIALECT, nests_too_deep};

/// Longest rich message, in characters of its Markdown.
const MAX_CHARS: usize = 32_768;
/// Blocks of a rich message; rows and list items count.
const MAX_BLOCKS: usize = 500;
/// Deepest nesting of the blocks.
const MAX_LEVELS: usize = 16;
/// Columns of a table.
const MAX_COLUMNS: usize = 20;

/// Which answers are sent as rich messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RichMessages {
    /// No answers.
    #[default]
    Never,
    /// Answers with a table, a task list, a block of mathematics, or a section that is folded.
    Tables,
}

/// The Markdown of a rich message; `None` for a text that gains nothing by being one, or is beyond its limits.
pub fn rich_markdown(source: &str) -> Option<String> {
    if source.chars().count() > MAX_CHARS || nests_too_deep(source) {
        return None;
    }
    let events: Vec<Event<'_>> = Parser::new_ext(source, DIALECT | Options::ENABLE_MATH).collect();
    let survey = Survey::of(&events);
    if !survey.gains() || !survey.is_within_limits() {
        return None;
    }
    let markdown = RichWriter::new(survey.folds.are_sound(), survey.has_math).write(&events)?;
    (markdown.chars().count() <= MAX_CHARS).then_some(markdown)
}

/// The counts and features of a text that decide whether it becomes a rich message.
#[derive(Debug, Default)]
struct Survey {
    blocks: usize,
    level: usize,
    deepest: usize,
    columns: usize,
    has_table: bool,
    has_tasks: bool,
    has_math: bool,
    folds: FoldReader,
    /// Whether a folded section has mathematics, which has crashed a client.
    has_folded_math: bool,
}

impl Survey {
    fn of(events: &[Event<'_>]) -> Self {
        let mut survey = Self::default();
        for event in events {
            survey.event(event);
        }
        survey
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Table(columns)) => {
                self.has_table = true;
                self.columns = self.columns.max(columns.len());
                self.blocks += 1;
            }
            Event::Start(Tag::BlockQuote(_) | Tag::List(_) | Tag::Item) => {
                self.blocks += 1;
                self.level += 1;
                self.deepest = self.deepest.max(self.level);
            }
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item) => {
                self.level = self.level.saturating_sub(1);
            }
            Event::Start(
                Tag::Paragraph
                | Tag::Heading { .. }
                | Tag::CodeBlock(_)
                | Tag::HtmlBlock
                | Tag::TableHead
                | Tag::TableRow,
            )
            | Event::Rule => self.blocks += 1,
            Event::Html(html) => {
                self.folds.html(html, self.level);
                self.deepest = self.deepest.max(self.level + self.folds.open());
            }
            Event::TaskListMarker(_) => self.has_tasks = true,
            Event::DisplayMath(_) => {
                self.has_math = true;
                self.has_folded_math |= self.folds.open() > 0;
            }
            Event::InlineMath(_) => self.has_folded_math |= self.folds.open() > 0,
            _ => {}
        }
    }

    fn gains(&self) -> bool {
        let folds = self.folds.count() > 0 && self.folds.are_sound();
        self.has_table || self.has_tasks || self.has_math || folds
    }

    fn is_within_limits(&self) -> bool {
        self.blocks <= MAX_BLOCKS
            && self.deepest <= MAX_LEVELS
            && self.columns <= MAX_COLUMNS
            && !self.has_folded_math
    }
}

#[cfg(test)]
mod tests;
