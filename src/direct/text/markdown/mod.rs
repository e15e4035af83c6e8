//! Renders the Markdown of agents as text with styles.
//!
//! Headings become bold lines, lists have bullets by level, tables become aligned code or blocks of lines, and images become
//! links. HTML is shown as it was written. A text that is nested too deep for a reader is shown as it was written, too; that
//! bounds the time for hostile texts.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::styled::{Styled, TextStyle, clean_into, escape_html};
use super::table::TableCells;

/// The extensions of Markdown that are read.
pub(in crate::direct) const DIALECT: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS);
/// Deepest nesting of quotes and lists.
const MAX_DEPTH: usize = 24;
/// List levels that are indented.
const MAX_INDENT: usize = 6;
/// Columns of a table.
const MAX_COLUMNS: usize = 64;
/// The factor by which a text may become longer than its source.
const MAX_GROWTH: usize = 4;
/// A quote of more lines is folded.
const QUOTE_LINES: usize = 8;
/// Longest address of a link in HTML, in bytes; a longer one is shown as text.
pub(super) const MAX_URL_BYTES: usize = 2_000;
/// Longest name of a language.
const MAX_LANGUAGE: usize = 32;
/// Columns between two stops of a tab in code.
const TAB_STOP: usize = 4;
/// Indentation of one level of a list: spaces that no client removes.
const INDENT: &str = "\u{2007}\u{2007}";
/// A thematic break.
const RULE: &str = "——————————";

/// Renders Markdown. The result is blank only for a blank text.
pub fn render(source: &str) -> Styled {
    if nests_too_deep(source) {
        return Styled::plain(source);
    }
    let mut writer = StyledWriter::default();
    let most = source.len().saturating_mul(MAX_GROWTH).saturating_add(4096);
    for event in Parser::new_ext(source, DIALECT) {
        writer.event(event);
        if writer.out.text.len() > most {
            return Styled::plain(source);
        }
    }
    let mut styled = writer.out;
    styled.sort();
    styled.clamp();
    styled.trim();
    if styled.is_blank() {
        return Styled::plain(source);
    }
    styled
}

/// Whether a line begins with too many marks of quotes and lists, or is the head of too wide a table.
pub(in crate::direct) fn nests_too_deep(source: &str) -> bool {
    source.lines().any(|line| {
        let mut depth = 0;
        for word in line.split_whitespace() {
            let rest = word.trim_start_matches('>');
            depth += word.len() - rest.len();
            if !is_list_mark(rest) {
                break;
            }
            depth += usize::from(!rest.is_empty());
        }
        let columns = line.bytes().filter(|byte| *byte == b'|').count();
        let wide = columns > MAX_COLUMNS && line.bytes().all(|byte| b"|-: \t>".contains(&byte));
        wide || (depth > MAX_DEPTH && !is_rule(line))
    })
}

/// Whether a word is empty or the mark of a list item.
fn is_list_mark(word: &str) -> bool {
    let number = word.trim_start_matches(|c: char| c.is_ascii_digit());
    matches!(word, "" | "-" | "*" | "+") || (number.len() < word.len() && matches!(number, "." | ")"))
}

/// Whether a line is a thematic break, however long.
fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| !c.is_whitespace());
    let first = marks.next();
    matches!(first, Some('-' | '*')) && marks.all(|c| Some(c) == first)
}

/// A list that is being written.
#[derive(Debug)]
struct ListLevel {
    /// The next number; none for bullets.
    number: Option<u64>,
}

/// A style that began and has not ended, with its start; no style where it would have no effect.
type OpenStyle = (Option<TextStyle>, usize);

/// Writes the events of a Markdown parser as styled text.
#[derive(Debug, Default)]
struct StyledWriter {
    out: Styled,
    styles: Vec<OpenStyle>,
    lists: Vec<ListLevel>,
    /// The start of an item's mark, as long as nothing follows the mark.
    item: Option<usize>,
    /// The start of the outermost quote, and the number of open quotes.
    quote: Option<usize>,
    quotes: usize,
    /// The language and the start of the code block.
    code: Option<(Option<String>, usize)>,
    table: Option<TableCells>,
    /// The text and styles before the current table cell.
    outside: Option<(Styled, Vec<OpenStyle>)>,
}

impl StyledWriter {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.code.is_some() => self.code_text(&text),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => self.text(&text),
            Event::Code(code) => self.inline_code(&code),
            Event::SoftBreak | Event::HardBreak => self.new_line(),
            Event::Rule => {
                self.begin_block();
                self.text(RULE);
            }
            Event::TaskListMarker(done) => {
                if let Some(mark) = self.item {
                    self.out.text.truncate(mark);
                }
                self.out.text.push_str(if done { "☑ " } else { "☐ " });
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { .. } => {
                self.begin_block();
                self.open(Some(TextStyle::Bold));
            }
            Tag::BlockQuote(_) => {
                // A quote within a quote adds nothing: Telegram's quotes do not nest.
                if self.quotes == 0 {
                    self.begin_own_lines();
                    self.quote = Some(self.out.text.len());
                }
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.begin_own_lines();
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => language(info),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((language, self.out.text.len()));
            }
            Tag::List(number) => {
                if self.lists.is_empty() {
                    self.begin_block();
                }
                self.lists.push(ListLevel { number });
            }
            Tag::Item => self.begin_item(),
            Tag::Table(aligned) => {
                self.begin_own_lines();
                self.table = Some(TableCells {
                    aligned,
                    ..TableCells::default()
                });
            }
            Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                let outside = (std::mem::take(&mut self.out), std::mem::take(&mut self.styles));
                self.outside = Some(outside);
            }
            Tag::Emphasis => self.open(Some(TextStyle::Italic)),
            Tag::Strong => self.open(Some(TextStyle::Bold)),
            Tag::Strikethrough => self.open(Some(TextStyle::Strike)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.open(Some(TextStyle::Link(dest_url.into_string())));
            }
            // Nothing to do for the head of a table; the other tags are not in [`DIALECT`].
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::HtmlBlock => self.trim_from(self.quote.unwrap_or(0)),
            TagEnd::Heading(_)
            | TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Link
            | TagEnd::Image => self.close(),
            TagEnd::BlockQuote(_) => self.end_quote(),
            TagEnd::CodeBlock => {
                if let Some((language, start)) = self.code.take() {
                    let kept = self.out.text.trim_end_matches('\n').len().max(start);
                    self.out.text.truncate(kept);
                    self.out.mark(start, kept, TextStyle::Pre(language));
                }
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.item = None;
            }
            TagEnd::Item => self.item = None,
            TagEnd::TableCell => self.end_cell(),
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.out.append(table.layout());
                }
            }
            // Nothing to do for the ends of paragraphs and rows; the other tags are not in [`DIALECT`].
            _ => {}
        }
    }

    /// A block begins: after a blank line, in a list on a line of its own, or right after the mark of an item.
    fn begin_block(&mut self) {
        if self.item.is_some() || self.is_at_start() {
            return;
        }
        if self.lists.is_empty() {
            self.out.text.push_str("\n\n");
            if self.quotes == 0 {
                self.out.blocks.push(self.out.text.len());
            }
        } else {
            self.new_line();
        }
    }

    /// A block begins that stands on lines of its own, without indentation.
    fn begin_own_lines(&mut self) {
        if self.lists.is_empty() {
            return self.begin_block();
        }
        self.item = None;
        if !self.is_at_start() {
            self.out.text.push('\n');
        }
    }

    fn begin_item(&mut self) {
        if !self.is_at_start() && !self.out.text.ends_with('\n') {
            self.out.text.push('\n');
        }
        let level = self.lists.len().saturating_sub(1);
        for _ in 0..level.min(MAX_INDENT) {
            self.out.text.push_str(INDENT);
        }
        self.item = Some(self.out.text.len());
        match self.lists.last_mut().and_then(|list| list.number.as_mut()) {
            Some(number) => {
                self.out.text.push_str(&number.to_string());
                self.out.text.push_str(". ");
                *number = number.saturating_add(1);
            }
            None => self.out.text.push_str(["• ", "◦ ", "▪ "][level % 3]),
        }
    }

    /// Whether nothing was written yet, in the whole text or in the quote.
    fn is_at_start(&self) -> bool {
        self.out.text.is_empty() || self.quote == Some(self.out.text.len())
    }

    fn new_line(&mut self) {
        if self.table.is_some() {
            return self.out.text.push(' ');
        }
        self.out.text.push('\n');
        for _ in 0..self.lists.len().min(MAX_INDENT) {
            self.out.text.push_str(INDENT);
        }
    }

    fn end_quote(&mut self) {
        self.quotes = self.quotes.saturating_sub(1);
        if self.quotes > 0 {
            return;
        }
        if let Some(start) = self.quote.take() {
            self.trim_from(start);
            let end = self.out.text.len();
            let lines = self.out.text[start.min(end)..].lines().count();
            let expandable = lines > QUOTE_LINES;
            self.out.mark(start, end, TextStyle::Quote { expandable });
        }
    }

    fn end_cell(&mut self) {
        let Some((outside, styles)) = self.outside.take() else {
            return;
        };
        let mut cell = std::mem::replace(&mut self.out, outside);
        self.styles = styles;
        cell.sort();
        cell.trim();
        cell.blocks.clear();
        if let Some(table) = &mut self.table {
            match table.rows.last_mut() {
                Some(row) => row.push(cell),
                None => table.head.push(cell),
            }
        }
    }

    /// Removes white space at the end, but nothing before `start`.
    fn trim_from(&mut self, start: usize) {
        let start = start.min(self.out.text.len());
        let kept = self.out.text[start..].trim_end().len();
        self.out.cut_at(start + kept);
    }

    fn text(&mut self, text: &str) {
        self.item = None;
        clean_into(text, &mut self.out.text);
    }

    /// Text of a code block, with tabs as spaces.
    fn code_text(&mut self, text: &str) {
        let line = self.out.text.rfind('\n').map_or(0, |at| at + 1);
        let start = self.code.as_ref().map_or(line, |(_, start)| line.max(*start));
        let mut column = self.out.text[start..].chars().count();
        for piece in text.split_inclusive(['\t', '\n']) {
            let (body, ending) = match piece.as_bytes().last() {
                Some(b'\t') => (&piece[..piece.len() - 1], '\t'),
                Some(b'\n') => (&piece[..piece.len() - 1], '\n'),
                _ => (piece, ' '),
            };
            let before = self.out.text.len();
            clean_into(body, &mut self.out.text);
            column += self.out.text[before..].chars().count();
            match ending {
                '\t' => {
                    let room = TAB_STOP - column % TAB_STOP;
                    self.out.text.extend(std::iter::repeat_n(' ', room));
                    column += room;
                }
                '\n' => {
                    self.out.text.push('\n');
                    column = 0;
                }
                _ => {}
            }
        }
    }

    /// Code within a line. Other styles end before it and begin again after it; in a link, the link wins.
    fn inline_code(&mut self, code: &str) {
        self.item = None;
        let start = self.out.text.len();
        clean_into(code, &mut self.out.text);
        if self
            .styles
            .iter()
            .any(|(style, _)| matches!(style, Some(TextStyle::Link(_))))
        {
            return;
        }
        let end = self.out.text.len();
        for (style, from) in &mut self.styles {
            if let Some(style) = style {
                self.out.mark(*from, start, style.clone());
            }
            *from = end;
        }
        self.out.mark(start, end, TextStyle::Code);
    }

    fn open(&mut self, style: Option<TextStyle>) {
        self.item = None;
        let is_open = |style: &TextStyle| {
            self.styles.iter().any(|(open, _)| match (open, style) {
                (Some(TextStyle::Link(_)), TextStyle::Link(_)) => true,
                (open, style) => open.as_ref() == Some(style),
            })
        };
        let style = style.filter(|style| !is_open(style));
        self.styles.push((style, self.out.text.len()));
    }

    fn close(&mut self) {
        let Some((Some(style), start)) = self.styles.pop() else {
            return;
        };
        let end = self.out.text.len();
        let TextStyle::Link(url) = style else {
            return self.out.mark(start, end, style);
        };
        let shown = self.out.text[start..].trim();
        if is_web_address(&url) {
            if shown.is_empty() {
                clean_into(&url, &mut self.out.text);
            }
            let end = self.out.text.len();
            return self.out.mark(start, end, TextStyle::Link(url));
        }
        // Telegram makes no link of it: the address is shown beside the text.
        let url = url.strip_prefix("mailto:").unwrap_or(&url).to_owned();
        if shown.is_empty() {
            clean_into(&url, &mut self.out.text);
        } else if shown != url && !url.is_empty() {
            self.out.text.push_str(" (");
            clean_into(&url, &mut self.out.text);
            self.out.text.push(')');
        }
    }
}

/// Whether Telegram makes a link of an address: only of the web, and only of one that is not too long.
pub(in crate::direct) fn is_web_address(url: &str) -> bool {
    let has_scheme = |scheme: &str| {
        let head = url.get(..scheme.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(scheme)) && url.len() > scheme.len()
    };
    if !(has_scheme("https://") || has_scheme("http://")) || url.contains(char::is_whitespace) {
        return false;
    }
    url.len() <= MAX_URL_BYTES && url_bytes(url) <= MAX_URL_BYTES && !url.contains(char::is_control)
}

/// Bytes of an address in HTML.
pub(super) fn url_bytes(url: &str) -> usize {
    let mut html = String::new();
    escape_html(url, &mut html);
    html.len()
}

/// The language of a fenced block: the first word of its info string, if it looks like a name.
pub(in crate::direct) fn language(info: &str) -> Option<String> {
    let word = info.split([' ', ',', '\t', '{']).next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '#' | '.' | '-');
    let fits = !word.is_empty() && word.len() <= MAX_LANGUAGE && word.chars().all(is_name);
    fits.then(|| word.to_owned())
}

#[cfg(test)]
mod tests;
