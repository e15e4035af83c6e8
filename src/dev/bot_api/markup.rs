//! Formatted text as the server keeps it: parsed from HTML or given with entities, cleaned, and counted in characters.

use serde_json::{Map, Value, json};

use super::html;

/// Entities of one message; further ones are dropped without a word.
const MAX_ENTITIES: usize = 100;
/// Bytes of text that are read; what follows is cut off.
const MAX_SOURCE_BYTES: usize = 35_000;
/// Endings that make a word with a dot a link.
const LINKED_ENDINGS: [&str; 16] = [
    "com", "org", "net", "io", "rs", "md", "sh", "py", "de", "ru", "uk", "dev", "ai", "app", "me", "example",
];

/// A text and its formatting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiText {
    pub chars: Vec<char>,
    pub spans: Vec<ApiSpan>,
}

/// One formatted part, in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSpan {
    pub start: usize,
    pub end: usize,
    /// The type of the entity.
    pub kind: String,
    /// The entity's other fields.
    pub extra: Map<String, Value>,
}

impl ApiSpan {
    fn is_code(&self) -> bool {
        self.kind == "code" || self.kind == "pre"
    }

    fn is_quote(&self) -> bool {
        self.kind.ends_with("blockquote")
    }

    fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

impl ApiText {
    /// Text as it is, with what the server finds in it.
    pub fn plain(text: &str) -> Self {
        Self {
            chars: cut(text).chars().collect(),
            spans: Vec::new(),
        }
        .finished()
    }

    /// Text with the entities of a request.
    pub fn with_entities(text: &str, entities: &Value) -> Self {
        let text = cut(text);
        let chars: Vec<char> = text.chars().collect();
        let mut spans = Vec::new();
        for entity in entities.as_array().into_iter().flatten() {
            let number = |name: &str| {
                entity[name]
                    .as_u64()
                    .and_then(|value| usize::try_from(value).ok())
            };
            let (Some(offset), Some(length), Some(kind)) =
                (number("offset"), number("length"), entity["type"].as_str())
            else {
                continue;
            };
            let mut extra = entity.as_object().cloned().unwrap_or_default();
            for known in ["offset", "length", "type"] {
                extra.remove(known);
            }
            spans.push(ApiSpan {
                start: char_at(&chars, offset),
                end: char_at(&chars, offset.saturating_add(length)),
                kind: kind.to_owned(),
                extra,
            });
        }
        Self { chars, spans }.finished()
    }

    /// Text in HTML. An error is what the server says of it.
    pub fn html(source: &str) -> Result<Self, String> {
        Ok(html::read(cut(source))?.finished())
    }

    /// The text.
    pub fn text(&self) -> String {
        self.chars.iter().collect()
    }

    /// How long the server finds it: in characters.
    pub fn length(&self) -> usize {
        self.chars.len()
    }

    /// The entities, with offsets in UTF-16 units.
    pub fn entities(&self) -> Vec<Value> {
        let mut units = Vec::with_capacity(self.chars.len() + 1);
        let mut unit = 0;
        for c in &self.chars {
            units.push(unit);
            unit += c.len_utf16();
        }
        units.push(unit);
        let spans = self.spans.iter().map(|span| {
            let mut entity = span.extra.clone();
            entity.insert("type".to_owned(), json!(span.kind));
            entity.insert("offset".to_owned(), json!(units[span.start]));
            entity.insert("length".to_owned(), json!(units[span.end] - units[span.start]));
            Value::Object(entity)
        });
        spans.collect()
    }

    /// The text in pieces of one formatting each: `text`, `style` (types of entities), and perhaps `url`.
    pub fn runs(&self) -> Vec<Value> {
        let mut edges: Vec<usize> = self
            .spans
            .iter()
            .flat_map(|span| [span.start, span.end])
            .chain([0, self.chars.len()])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut runs = Vec::new();
        for pair in edges.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            let over: Vec<&ApiSpan> = self
                .spans
                .iter()
                .filter(|span| span.start <= start && end <= span.end)
                .collect();
            let text: String = self.chars[start..end].iter().collect();
            let style: Vec<&str> = over.iter().map(|span| span.kind.as_str()).collect();
            let url = over.iter().find_map(|span| span.extra.get("url"));
            runs.push(json!({ "text": text, "style": style, "url": url }));
        }
        runs
    }

    /// Clean, trimmed, with detected entities, and with those dropped that cannot be together.
    fn finished(mut self) -> Self {
        self.clean();
        self.separate();
        self.detect();
        self.spans.retain(|span| span.start < span.end);
        self.spans
            .sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
        self.spans.truncate(MAX_ENTITIES);
        self
    }

    /// Drops characters that the server drops, and the white space at the ends.
    fn clean(&mut self) {
        let mut kept = Vec::with_capacity(self.chars.len());
        // The new place of each character, and of the end.
        let mut places = Vec::with_capacity(self.chars.len() + 1);
        for c in &self.chars {
            places.push(kept.len());
            match c {
                '\r' | '\u{2028}'..='\u{202e}' => {}
                '\n' => kept.push('\n'),
                '\0'..=' ' => kept.push(' '),
                _ => kept.push(*c),
            }
        }
        places.push(kept.len());
        let lead = kept.iter().take_while(|c| c.is_whitespace()).count();
        let trail = kept.iter().rev().take_while(|c| c.is_whitespace()).count();
        let end = kept.len().saturating_sub(trail).max(lead);
        self.chars = kept[lead..end].to_vec();
        let length = self.chars.len();
        for span in &mut self.spans {
            let moved = |at: usize| places[at.min(places.len() - 1)].saturating_sub(lead).min(length);
            (span.start, span.end) = (moved(span.start), moved(span.end));
        }
    }

    /// Keeps other formatting out of code, and quotes out of quotes.
    fn separate(&mut self) {
        let spans = std::mem::take(&mut self.spans);
        let mut code: Vec<ApiSpan> = Vec::new();
        for kind in ["pre", "code"] {
            for span in spans.iter().filter(|span| span.kind == kind) {
                if !code.iter().any(|known| known.meets(span)) {
                    code.push(span.clone());
                }
            }
        }
        let mut kept = Vec::new();
        for span in spans.into_iter().filter(|span| !span.is_code()) {
            if span.is_quote() {
                if !kept
                    .iter()
                    .any(|known: &ApiSpan| known.is_quote() && known.meets(&span))
                {
                    kept.push(span);
                }
                continue;
            }
            let mut pieces = vec![(span.start, span.end)];
            for hole in &code {
                pieces = pieces
                    .into_iter()
                    .flat_map(|(start, end)| {
                        if hole.start < end && start < hole.end {
                            [(start, hole.start), (hole.end, end)]
                        } else {
                            [(start, end), (end, end)]
                        }
                    })
                    .filter(|(start, end)| start < end)
                    .collect();
            }
            kept.extend(pieces.into_iter().map(|(start, end)| ApiSpan {
                start,
                end,
                ..span.clone()
            }));
        }
        kept.extend(code);
        self.spans = kept;
    }

    /// Finds commands, names, tags, addresses and links.
    fn detect(&mut self) {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.chars.len() {
            let before = at.checked_sub(1).map(|before| self.chars[before]);
            let begins = before.is_none_or(|c| !is_word(c) && !"/@#.-:".contains(c));
            match begins.then(|| token_at(&self.chars, at)).flatten() {
                Some((kind, end)) => {
                    found.push(ApiSpan {
                        start: at,
                        end,
                        kind: kind.to_owned(),
                        extra: Map::new(),
                    });
                    at = end;
                }
                None => at += 1,
            }
        }
        found.retain(|span| {
            let blocks = |other: &&ApiSpan| other.is_code() || other.kind.starts_with("text_");
            !self.spans.iter().filter(blocks).any(|other| other.meets(span))
        });
        self.spans.extend(found);
    }
}

fn cut(text: &str) -> &str {
    crate::text::truncate_bytes(text, MAX_SOURCE_BYTES)
}

/// The character that this UTF-16 unit is in.
fn char_at(chars: &[char], unit: usize) -> usize {
    let mut passed = 0;
    for (at, c) in chars.iter().enumerate() {
        if passed >= unit {
            return at;
        }
        passed += c.len_utf16();
    }
    chars.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// How many characters from here are as wanted.
fn run(chars: &[char], at: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars.iter().skip(at).take_while(|c| wanted(**c)).count()
}

/// The entity that begins here, and where it ends.
fn token_at(chars: &[char], at: usize) -> Option<(&'static str, usize)> {
    match chars[at] {
        '/' => {
            let name = run(chars, at + 1, is_name);
            let mut end = at + 1 + name;
            if chars.get(end) == Some(&'@') {
                let of = run(chars, end + 1, is_name);
                if (3..=32).contains(&of) {
                    end += 1 + of;
                }
            }
            let ends = chars.get(end).is_none_or(|c| *c != '/' && !is_word(*c));
            ((1..=64).contains(&name) && ends).then_some(("bot_command", end))
        }
        '@' => {
            let name = run(chars, at + 1, is_name);
            (3..=32).contains(&name).then_some(("mention", at + 1 + name))
        }
        '#' => {
            let name = run(chars, at + 1, is_word);
            let letters = chars[at + 1..at + 1 + name].iter().any(|c| !c.is_numeric());
            (name > 0 && letters).then_some(("hashtag", at + 1 + name))
        }
        c if c.is_alphanumeric() => {
            let mut end = at + run(chars, at, |c| !c.is_whitespace() && !"<>\"".contains(c));
            while end > at && ".,;:!?)'".contains(chars[end - 1]) {
                end -= 1;
            }
            let word: String = chars[at..end].iter().collect();
            let is_link = word.starts_with("http://") || word.starts_with("https://");
            let host = word.split(['/', '?', '#']).next().unwrap_or_default();
            let (user, host) = host.rsplit_once('@').map_or((None, host), |(u, h)| (Some(u), h));
            let ending = host.rsplit_once('.').filter(|(name, _)| !name.is_empty());
            let is_known = ending.is_some_and(|(_, ending)| LINKED_ENDINGS.contains(&ending));
            match user {
                _ if is_link => Some(("url", end)),
                Some(user) if is_known && !user.is_empty() => Some(("email", end)),
                None if is_known => Some(("url", end)),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entities(html: &str) -> Vec<(String, u64, u64)> {
        let text = ApiText::html(html).unwrap();
        let entities = text.entities();
        let parts = entities.iter().map(|entity| {
            let number = |name: &str| entity[name].as_u64().unwrap();
            (
                entity["type"].as_str().unwrap().to_owned(),
                number("offset"),
                number("length"),
            )
        });
        parts.collect()
    }

    #[test]
    fn html_is_parsed_or_refused_with_the_reason() {
        let text = ApiText::html("👍 <b>bold <i>both</i></b> &lt;x&gt; &amp;nbsp; &nbsp; &#65;").unwrap();
        assert_eq!(text.text(), "👍 bold both <x> &nbsp; &nbsp; A");
        assert_eq!(
            entities("👍 <b>bold <i>both</i></b>"),
            [("bold".to_owned(), 3, 9), ("italic".to_owned(), 8, 4)]
        );
        for (html, says) in [
            ("<foo>x</foo>", "Unsupported start tag \"foo\" at byte offset 0"),
            ("a <b>x", "Can't find end tag corresponding to start tag \"b\""),
            ("a </b>", "Unexpected end tag at byte offset 2"),
            (
                "<b><i>x</b></i>",
                "Unmatched end tag at byte offset 7, expected \"</i>\", found \"</b>\"",
            ),
            ("1 < 2", "Unsupported start tag \"\" at byte offset 2"),
            ("1 <2", "Unclosed start tag at byte offset 2"),
            ("1 <2>", "Unsupported start tag \"2\" at byte offset 2"),
            ("<span>x</span>", "Tag \"span\" must have class"),
            ("<a href=\"x", "Unclosed start tag"),
            ("<b>x</b", "Unclosed end tag"),
            ("<details>x</details>", "Unsupported start tag"),
        ] {
            let error = ApiText::html(html).unwrap_err();
            assert!(error.contains(says), "{html}: {error}");
        }
    }

    #[test]
    fn code_has_its_language_and_nothing_else_inside() {
        let text = ApiText::html("<pre><code class=\"language-rust\">fn a() {}</code></pre>").unwrap();
        assert_eq!(
            text.entities(),
            [json!({ "type": "pre", "offset": 0, "length": 9, "language": "rust" })]
        );
        let text = ApiText::html("<b>a <code>/x @name</code> c</b>").unwrap();
        let kinds: Vec<_> = text
            .entities()
            .iter()
            .map(|entity| entity["type"].clone())
            .collect();
        assert_eq!(kinds, ["bold", "code", "bold"]);
        assert_eq!(entities("<pre><code>x</code></pre>"), [("pre".to_owned(), 0, 1)]);
    }

    #[test]
    fn what_the_server_finds_by_itself_is_an_entity() {
        let kinds = |text: &str| -> Vec<(String, String)> {
            let parsed = ApiText::plain(text);
            let chars: Vec<u16> = parsed.text().encode_utf16().collect();
            let slice = |entity: &Value| {
                let number = |name: &str| usize::try_from(entity[name].as_u64().unwrap()).unwrap();
                String::from_utf16(&chars[number("offset")..number("offset") + number("length")]).unwrap()
            };
            let entities = parsed.entities();
            let pairs = entities
                .iter()
                .map(|entity| (entity["type"].as_str().unwrap().to_owned(), slice(entity)));
            pairs.collect()
        };
        let pair = |kind: &str, text: &str| (kind.to_owned(), text.to_owned());
        assert_eq!(
            kinds("/new@OurBot x 😀 @someone, see main.rs and https://a.example/b?c. #tag a@b.com 1/2 a/b"),
            [
                pair("bot_command", "/new@OurBot"),
                pair("mention", "@someone"),
                pair("url", "main.rs"),
                pair("url", "https://a.example/b?c"),
                pair("hashtag", "#tag"),
                pair("email", "a@b.com"),
            ]
        );
    }

    #[test]
    fn text_is_cleaned_and_counted_in_characters() {
        let text = ApiText::html("  a\tb\r\n<b> c </b>\u{202e} ").unwrap();
        assert_eq!(text.text(), "a b\n c");
        assert_eq!(
            text.entities(),
            [json!({ "type": "bold", "offset": 4, "length": 2 })]
        );
        assert_eq!(ApiText::plain(&"😀".repeat(4096)).length(), 4096);
        let given = json!([{ "type": "bold", "offset": 2, "length": 2 }]);
        let text = ApiText::with_entities("😀ab", &given);
        assert_eq!(text.runs().len(), 2);
    }

    #[test]
    fn a_link_has_its_target() {
        let text = ApiText::html("<a href=\"https://a.example/?x=1&amp;y=%22\">here</a>").unwrap();
        assert_eq!(text.entities()[0]["url"], "https://a.example/?x=1&y=%22");
        assert_eq!(
            ApiText::html("<a href=\"javascript:x\">a</a>")
                .unwrap()
                .entities(),
            Vec::<Value>::new()
        );
    }
}
