//! Writes parsed Markdown anew so that every parser reads it the same way.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Tag, TagEnd};

use super::escape::{fence_for, push_address, push_reference_text, push_text};
use super::folds::{FoldPiece, FoldTag, fold_pieces};
use crate::direct::text::{clean_into, is_web_address, language};

/// Most bytes of a rich message that are written.
const MAX_BYTES: usize = 256 * 1024;
/// Spaces that a tab in code becomes.
const TAB: &str = "    ";
/// The text of an image that has none.
const IMAGE: &str = "image";

/// The place of the next text or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RichCursor {
    /// At the beginning of a block: nothing has to be written before it.
    Fresh,
    /// In a block that has begun.
    Open,
    /// After a block that has ended.
    Ended,
}

/// A link that is open.
#[derive(Debug)]
struct OpenLink {
    url: String,
    /// The start of the link's text; `None` within another link, which wins.
    start: Option<usize>,
    is_image: bool,
}

/// Writes the Markdown of a rich message.
#[derive(Debug)]
pub(super) struct RichWriter {
    out: String,
    /// The prefix of a line in each open container.
    prefixes: Vec<String>,
    cursor: RichCursor,
    /// The start of the line's text.
    line: usize,
    /// The next number of each list that is open; none for bullets.
    lists: Vec<Option<u64>>,
    links: Vec<OpenLink>,
    /// The block of code that is open: its language and its text.
    code: Option<(String, String)>,
    html: Option<String>,
    columns: Vec<Alignment>,
    in_table: bool,
    in_heading: bool,
    keeps_folds: bool,
    keeps_math: bool,
    /// Whether a piece cannot be written so that every parser reads it the same way.
    is_ambiguous: bool,
}

impl RichWriter {
    /// A writer that keeps the tags of folded sections, or shows them; and the same for mathematics within a line.
    pub(super) fn new(keeps_folds: bool, keeps_math: bool) -> Self {
        Self {
            out: String::new(),
            prefixes: Vec::new(),
            cursor: RichCursor::Fresh,
            line: 0,
            lists: Vec::new(),
            links: Vec::new(),
            code: None,
            html: None,
            columns: Vec::new(),
            in_table: false,
            in_heading: false,
            keeps_folds,
            keeps_math,
            is_ambiguous: false,
        }
    }

    /// The Markdown of these events; `None` if it is ambiguous or far too long.
    pub(super) fn write(mut self, events: &[Event<'_>]) -> Option<String> {
        for event in events {
            self.event(event);
            if self.is_ambiguous || self.out.len() > MAX_BYTES {
                return None;
            }
        }
        Some(self.out)
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(*tag),
            Event::Text(text) if self.code.is_some() => {
                if let Some((_, code)) = &mut self.code {
                    clean_into(&text.replace('\t', TAB), code);
                }
            }
            Event::Html(html) if self.html.is_some() => {
                if let Some(block) = &mut self.html {
                    block.push_str(html);
                }
            }
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::FootnoteReference(text) => self.text(text),
            Event::Code(code) => self.inline_code(code),
            Event::InlineMath(math) if self.keeps_math => self.math(math, "$"),
            Event::InlineMath(math) => self.text(&format!("${math}$")),
            Event::DisplayMath(math) => self.math(math, "$$"),
            Event::SoftBreak | Event::HardBreak => self.break_line(),
            Event::Rule => {
                self.begin_block();
                self.out.push_str("***");
                self.cursor = RichCursor::Ended;
            }
            Event::TaskListMarker(done) => {
                self.begin_inline();
                self.out.push_str(if *done { "[x] " } else { "[ ] " });
                self.line = self.out.len();
                self.cursor = RichCursor::Fresh;
            }
        }
    }

    fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Paragraph => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.out.push_str(&"#".repeat(*level as usize));
                self.out.push(' ');
                self.line = self.out.len();
                self.in_heading = true;
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.enter("> ", "> ");
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => language(info),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((language.unwrap_or_default(), String::new()));
            }
            Tag::HtmlBlock => self.html = Some(String::new()),
            Tag::List(number) => {
                if self.cursor != RichCursor::Fresh && !self.lists.is_empty() {
                    self.new_line();
                    self.cursor = RichCursor::Fresh;
                } else {
                    self.begin_block();
                }
                self.lists.push(*number);
            }
            Tag::Item => self.begin_item(),
            Tag::Table(columns) => {
                self.begin_block();
                self.columns.clone_from(columns);
                self.in_table = true;
            }
            Tag::TableHead => self.out.push('|'),
            Tag::TableRow => {
                self.new_line();
                self.out.push('|');
            }
            Tag::TableCell => {
                self.out.push(' ');
                self.cursor = RichCursor::Open;
            }
            Tag::Emphasis => self.mark("*"),
            Tag::Strong => self.mark("**"),
            Tag::Strikethrough => self.mark("~~"),
            Tag::Link { dest_url, .. } => self.open_link(dest_url, false),
            Tag::Image { dest_url, .. } => self.open_link(dest_url, true),
            // The other tags are not in the dialect that is read.
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.in_heading = false;
                self.cursor = RichCursor::Ended;
            }
            TagEnd::Paragraph => self.cursor = RichCursor::Ended,
            TagEnd::BlockQuote(_) | TagEnd::Item => self.leave(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.cursor = RichCursor::Ended;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::HtmlBlock => self.end_html(),
            TagEnd::TableCell => self.out.push_str(" |"),
            TagEnd::TableHead => self.rule_of_table(),
            TagEnd::Table => {
                self.in_table = false;
                self.cursor = RichCursor::Ended;
            }
            TagEnd::Emphasis => self.mark("*"),
            TagEnd::Strong => self.mark("**"),
            TagEnd::Strikethrough => self.mark("~~"),
            TagEnd::Link | TagEnd::Image => self.close_link(),
            // Nothing to do for the end of a row; the other tags are not in the dialect that is read.
            _ => {}
        }
    }

    /// Begins a block: after a blank line, unless nothing is before it in its container.
    fn begin_block(&mut self) {
        if self.cursor != RichCursor::Fresh {
            self.out.push('\n');
            let blank = self.prefixes.concat();
            self.out.push_str(blank.trim_end());
            self.new_line();
        }
        self.cursor = RichCursor::Fresh;
    }

    /// Text begins or goes on.
    fn begin_inline(&mut self) {
        if self.cursor == RichCursor::Ended {
            self.begin_block();
        }
        self.cursor = RichCursor::Open;
    }

    fn new_line(&mut self) {
        self.out.push('\n');
        for prefix in &self.prefixes {
            self.out.push_str(prefix);
        }
        self.line = self.out.len();
    }

    /// Begins a container: what its first line begins with, and the others.
    fn enter(&mut self, first: &str, others: &str) {
        self.out.push_str(first);
        self.prefixes.push(others.to_owned());
        self.cursor = RichCursor::Fresh;
        self.line = self.out.len();
    }

    fn leave(&mut self) {
        self.prefixes.pop();
        self.cursor = RichCursor::Ended;
    }

    fn begin_item(&mut self) {
        if self.cursor != RichCursor::Fresh {
            self.new_line();
        }
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            Some(None) | None => "- ".to_owned(),
        };
        self.enter(&mark, &" ".repeat(mark.len()));
    }

    fn break_line(&mut self) {
        if self.in_table || self.in_heading {
            return self.out.push(' ');
        }
        self.out.push_str("  ");
        self.new_line();
    }

    fn mark(&mut self, mark: &str) {
        self.begin_inline();
        self.out.push_str(mark);
    }

    fn text(&mut self, text: &str) {
        self.begin_inline();
        let mut clean = String::new();
        clean_into(text, &mut clean);
        for (number, line) in clean.split('\n').enumerate() {
            if number > 0 {
                self.break_line();
            }
            push_text(line, self.line, &mut self.out);
        }
    }

    fn inline_code(&mut self, code: &str) {
        self.begin_inline();
        let mut clean = String::new();
        clean_into(code, &mut clean);
        let mut code = clean.replace('\n', " ");
        if self.in_table {
            code = code.replace('|', "\\|");
        }
        let fence = fence_for(&code, 1);
        let is_edged = code.starts_with(['`', ' ']) || code.ends_with(['`', ' ']);
        let pad = if is_edged && !code.trim().is_empty() {
            " "
        } else {
            ""
        };
        for piece in [fence.as_str(), pad, code.as_str(), pad, fence.as_str()] {
            self.out.push_str(piece);
        }
    }

    fn math(&mut self, math: &str, delimiter: &str) {
        self.begin_inline();
        if math.contains(['`', '$']) || (self.in_table && math.contains(['|', '\n'])) {
            self.is_ambiguous = true;
            return;
        }
        let mut clean = String::new();
        clean_into(math, &mut clean);
        // Signs of HTML have names in mathematics.
        let clean = clean.replace('<', "\\lt ").replace('>', "\\gt ");
        self.out.push_str(delimiter);
        for (number, line) in clean.split('\n').enumerate() {
            if number > 0 {
                self.new_line();
            }
            self.out.push_str(line);
        }
        self.out.push_str(delimiter);
    }

    fn open_link(&mut self, url: &str, is_image: bool) {
        self.begin_inline();
        let is_inner = self.links.iter().any(|link| link.start.is_some());
        let is_link = !is_inner && is_web_address(url);
        if is_link {
            // After an exclamation mark it would be an image.
            if self.out.ends_with('!') {
                self.out.pop();
                self.out.push_str("\\!");
            }
            self.out.push('[');
        }
        self.links.push(OpenLink {
            url: url.to_owned(),
            start: is_link.then_some(self.out.len()),
            is_image,
        });
    }

    fn close_link(&mut self) {
        let Some(link) = self.links.pop() else {
            return;
        };
        if let Some(start) = link.start {
            if self.out.len() == start {
                push_text(if link.is_image { IMAGE } else { &link.url }, 0, &mut self.out);
            }
            self.out.push_str("](");
            push_address(&link.url, &mut self.out);
            self.out.push(')');
        } else if !link.url.is_empty() && !self.links.iter().any(|outer| outer.start.is_some()) {
            // No client opens it: the address is shown beside the text.
            let url = link.url.strip_prefix("mailto:").unwrap_or(&link.url);
            let mut shown = String::new();
            push_text(url, 0, &mut shown);
            if !self.out.ends_with(&shown) {
                self.text(&format!(" ({url})"));
            }
        }
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else {
            return;
        };
        let fence = fence_for(&code, 3);
        self.out.push_str(&fence);
        self.out.push_str(&language);
        for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
            self.new_line();
            self.out.push_str(line);
        }
        self.new_line();
        self.out.push_str(&fence);
        self.cursor = RichCursor::Ended;
    }

    /// HTML is shown as it was written, except folded sections.
    fn end_html(&mut self) {
        let html = self.html.take().unwrap_or_default();
        if !self.keeps_folds {
            return self.html_text(&html);
        }
        let mut in_summary = false;
        for piece in fold_pieces(&html) {
            match piece {
                FoldPiece::Tag(FoldTag::Open) => {
                    self.begin_block();
                    self.out.push_str("<details>");
                }
                FoldPiece::Tag(FoldTag::OpenSummary) => {
                    in_summary = true;
                    self.out.push_str("<summary>");
                }
                FoldPiece::Text(text) if in_summary => {
                    let mut clean = String::new();
                    clean_into(text, &mut clean);
                    push_reference_text(&clean.replace('\n', " "), &mut self.out);
                }
                FoldPiece::Tag(FoldTag::CloseSummary) => {
                    in_summary = false;
                    self.out.push_str("</summary>");
                    self.cursor = RichCursor::Ended;
                }
                FoldPiece::Tag(FoldTag::Close) => {
                    self.begin_block();
                    self.out.push_str("</details>");
                    self.cursor = RichCursor::Ended;
                }
                FoldPiece::Text(text) => self.html_text(text),
            }
        }
    }

    fn html_text(&mut self, text: &str) {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            self.begin_block();
            self.text(&text);
            self.cursor = RichCursor::Ended;
        }
    }

    fn rule_of_table(&mut self) {
        self.new_line();
        self.out.push('|');
        for column in &self.columns {
            self.out.push_str(match column {
                Alignment::None => " --- |",
                Alignment::Left => " :-- |",
                Alignment::Center => " :-: |",
                Alignment::Right => " --: |",
            });
        }
    }
}
