//! Text with its styles, and as the HTML that Telegram reads.
//!
//! The length of a message is that of the text, in code points, without any markup. Styles are ranges of the text that
//! nest; code has no styles in it or around it, but for quotes.

use std::cmp::Reverse;

/// The style of a range of text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TextStyle {
    /// A quote; a long one is shown folded.
    Quote {
        /// Whether the quote is folded.
        expandable: bool,
    },
    /// A link to this address.
    Link(String),
    /// Bold text.
    Bold,
    /// Italic text.
    Italic,
    /// Struck-through text.
    Strike,
    /// Code within a line.
    Code,
    /// A block of code, and its language.
    Pre(Option<String>),
}

impl TextStyle {
    /// Of two styles of the same range, the one with the lower rank is outside.
    fn rank(&self) -> u8 {
        match self {
            Self::Quote { .. } => 0,
            Self::Link(_) => 1,
            Self::Bold => 2,
            Self::Italic => 3,
            Self::Strike => 4,
            Self::Code | Self::Pre(_) => 5,
        }
    }

    fn open(&self, html: &mut String) {
        match self {
            Self::Quote { expandable: false } => html.push_str("<blockquote>"),
            Self::Quote { expandable: true } => html.push_str("<blockquote expandable>"),
            Self::Link(url) => {
                html.push_str("<a href=\"");
                escape_html(url, html);
                html.push_str("\">");
            }
            Self::Bold => html.push_str("<b>"),
            Self::Italic => html.push_str("<i>"),
            Self::Strike => html.push_str("<s>"),
            Self::Code => html.push_str("<code>"),
            Self::Pre(None) => html.push_str("<pre>"),
            Self::Pre(Some(language)) => {
                html.push_str("<pre><code class=\"language-");
                escape_html(language, html);
                html.push_str("\">");
            }
        }
    }

    fn close(&self) -> &'static str {
        match self {
            Self::Quote { .. } => "</blockquote>",
            Self::Link(_) => "</a>",
            Self::Bold => "</b>",
            Self::Italic => "</i>",
            Self::Strike => "</s>",
            Self::Code => "</code>",
            Self::Pre(None) => "</pre>",
            Self::Pre(Some(_)) => "</code></pre>",
        }
    }
}

/// A style and the bytes of the text that have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextSpan {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
    /// The style of these bytes.
    pub style: TextStyle,
}

/// Text with its styles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Styled {
    /// The text as it is read.
    pub text: String,
    /// The styles, outer ones first; any two are apart, or one contains the other.
    pub spans: Vec<TextSpan>,
    /// The starts of blocks: the best places for a cut.
    pub(super) blocks: Vec<usize>,
}

impl Styled {
    /// Text without styles.
    pub fn plain(text: &str) -> Self {
        let mut styled = Self::default();
        clean_into(text, &mut styled.text);
        styled.trim();
        styled
    }

    /// The length of the text, as the server counts it.
    pub fn chars(&self) -> usize {
        self.text.chars().count()
    }

    /// Whether a reader would see nothing.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Appends a text with its styles.
    pub(super) fn append(&mut self, other: Self) {
        let at = self.text.len();
        self.text.push_str(&other.text);
        self.spans.extend(other.spans.into_iter().map(|span| TextSpan {
            start: span.start + at,
            end: span.end + at,
            ..span
        }));
        self.blocks
            .extend(other.blocks.into_iter().map(|block| block + at));
    }

    /// Adds a style, unless the range is empty.
    pub(super) fn mark(&mut self, start: usize, end: usize, style: TextStyle) {
        if start < end {
            self.spans.push(TextSpan { start, end, style });
        }
    }

    /// Puts the spans in order, outer ones first.
    pub(super) fn sort(&mut self) {
        self.spans
            .sort_by_key(|span| (span.start, Reverse(span.end), span.style.rank()));
    }

    /// Removes white space at both ends, which the server would remove, too.
    pub(super) fn trim(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        self.clamp();
        let len = self.text.len();
        self.blocks.retain(|block| *block < len);
        let start = self.text.len() - self.text.trim_start_matches(['\n', ' ']).len();
        let code = self
            .spans
            .iter()
            .filter(|span| matches!(span.style, TextStyle::Pre(_)));
        // The indentation of code stays, as it does on the server.
        let start = code.map(|span| span.start).min().unwrap_or(start).min(start);
        if start > 0 {
            self.text.drain(..start);
            for span in &mut self.spans {
                span.start = span.start.saturating_sub(start);
                span.end = span.end.saturating_sub(start);
            }
            self.spans.retain(|span| span.start < span.end);
            self.blocks.retain_mut(|block| {
                *block = block.saturating_sub(start);
                *block > 0
            });
        }
    }

    /// Removes everything from this byte on. Only for a text that is being written: its last spans must be those that end last.
    pub(super) fn cut_at(&mut self, end: usize) {
        if end >= self.text.len() {
            return;
        }
        self.text.truncate(end);
        while self.spans.pop_if(|span| span.start >= end).is_some() {}
        for span in self.spans.iter_mut().rev().take_while(|span| span.end > end) {
            span.end = end;
        }
        while self.blocks.pop_if(|block| *block >= end).is_some() {}
    }

    /// Makes every span end with the text.
    pub(super) fn clamp(&mut self) {
        let end = self.text.len();
        for span in &mut self.spans {
            span.end = span.end.min(end);
        }
        self.spans.retain(|span| span.start < span.end);
    }

    /// The text as Telegram's HTML.
    pub fn html(&self) -> String {
        let mut html = String::with_capacity(self.text.len() + 16 * self.spans.len());
        let mut open: Vec<&TextSpan> = Vec::new();
        let mut at = 0;
        let close = |html: &mut String, span: &TextSpan, at: &mut usize| {
            escape_html(&self.text[*at..span.end], html);
            *at = span.end;
            html.push_str(span.style.close());
        };
        for span in &self.spans {
            while let Some(done) = open.pop_if(|last| last.end <= span.start) {
                close(&mut html, done, &mut at);
            }
            escape_html(&self.text[at..span.start], &mut html);
            at = span.start;
            span.style.open(&mut html);
            open.push(span);
        }
        while let Some(done) = open.pop() {
            close(&mut html, done, &mut at);
        }
        escape_html(&self.text[at..], &mut html);
        html
    }

    /// The text without markup, with the addresses of its links where there is room for them.
    pub fn plain_text(&self, limit: usize) -> String {
        let mut text = String::with_capacity(self.text.len());
        let mut at = 0;
        for span in &self.spans {
            if let TextStyle::Link(url) = &span.style
                && span.end >= at
                && self.text[span.start..span.end] != **url
            {
                text.push_str(&self.text[at..span.end]);
                text.push_str(" (");
                text.push_str(url);
                text.push(')');
                at = span.end;
            }
        }
        text.push_str(&self.text[at..]);
        if text.chars().count() <= limit {
            text
        } else {
            self.text.clone()
        }
    }
}

/// Escapes the characters that have a meaning in HTML.
pub(super) fn escape_html(text: &str, html: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>', '"']) {
        html.push_str(&rest[..at]);
        html.push_str(match rest.as_bytes()[at] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            _ => "&quot;",
        });
        rest = &rest[at + 1..];
    }
    html.push_str(rest);
}

/// Appends a text without the characters that the server removes: control characters, and those that reorder lines. A tab
/// becomes a space.
pub(in crate::direct) fn clean_into(text: &str, clean: &mut String) {
    for c in text.chars() {
        match c {
            '\n' => clean.push('\n'),
            '\t' => clean.push(' '),
            '\u{2028}'..='\u{202e}' => {}
            c if c.is_control() => {}
            c => clean.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, end: usize, style: TextStyle) -> TextSpan {
        TextSpan { start, end, style }
    }

    #[test]
    fn spans_of_one_range_nest_by_rank_and_text_is_escaped() {
        let mut styled = Styled {
            text: "a <b> & \"c\"".to_owned(),
            spans: vec![
                span(2, 5, TextStyle::Pre(None)),
                span(2, 5, TextStyle::Quote { expandable: false }),
                span(0, 11, TextStyle::Italic),
                span(0, 11, TextStyle::Bold),
            ],
            blocks: Vec::new(),
        };
        styled.sort();
        assert_eq!(
            styled.html(),
            "<b><i>a <blockquote><pre>&lt;b&gt;</pre></blockquote> &amp; &quot;c&quot;</i></b>"
        );
    }

    #[test]
    fn trimming_moves_the_spans() {
        let mut styled = Styled {
            text: "\n  ab \n".to_owned(),
            spans: vec![span(0, 4, TextStyle::Bold), span(5, 7, TextStyle::Code)],
            blocks: vec![3],
        };
        styled.trim();
        assert_eq!(
            (styled.text.as_str(), styled.html().as_str()),
            ("ab", "<b>a</b>b")
        );
        assert!(styled.blocks.is_empty());
    }

    #[test]
    fn plain_text_names_the_addresses_of_links_where_they_fit() {
        let styled = Styled {
            text: "see here or http://a.b".to_owned(),
            spans: vec![
                span(4, 8, TextStyle::Link("http://x.y".to_owned())),
                span(12, 22, TextStyle::Link("http://a.b".to_owned())),
            ],
            blocks: Vec::new(),
        };
        assert_eq!(styled.plain_text(99), "see here (http://x.y) or http://a.b");
        assert_eq!(styled.plain_text(30), "see here or http://a.b");
    }

    #[test]
    fn what_the_server_would_remove_is_not_counted() {
        assert_eq!(Styled::plain(" a\r\n\tb\u{202e}\u{7}\0 ").text, "a\n b");
        assert_eq!(Styled::plain("😀é").chars(), 2);
    }
}
