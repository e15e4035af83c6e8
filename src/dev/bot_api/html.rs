//! HTML as the server reads it: few tags, all closed, in order.

use serde_json::{Map, Value, json};

use super::markup::{ApiSpan, ApiText};

/// Text in HTML, before it is cleaned. An error is what the server says of it.
pub(super) fn read(source: &str) -> Result<ApiText, String> {
    let reader = HtmlReader {
        source,
        at: 0,
        out: ApiText::default(),
        open: Vec::new(),
    };
    reader.run()
}

/// What was read so far, and what is open.
struct HtmlReader<'a> {
    source: &'a str,
    at: usize,
    out: ApiText,
    open: Vec<OpenTag>,
}

struct OpenTag {
    name: String,
    argument: String,
    start: usize,
}

const TAGS: [&str; 17] = [
    "a",
    "b",
    "strong",
    "i",
    "em",
    "s",
    "strike",
    "del",
    "u",
    "ins",
    "tg-spoiler",
    "tg-emoji",
    "tg-time",
    "span",
    "pre",
    "code",
    "blockquote",
];

impl<'a> HtmlReader<'a> {
    /// The byte here, or 0 at the end.
    fn byte(&self) -> u8 {
        self.source.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.at >= self.source.len()
    }

    fn skip_space(&mut self) {
        while self.byte().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn skip_to(&mut self, end: impl Fn(u8) -> bool) -> &'a str {
        let from = self.at;
        while !self.is_over() && !end(self.byte()) {
            self.at += 1;
        }
        &self.source[from..self.at]
    }

    fn run(mut self) -> Result<ApiText, String> {
        while !self.is_over() {
            if self.byte() == b'<' {
                self.tag()?;
                continue;
            }
            let c = self.character();
            self.out.chars.push(c);
        }
        match self.open.last() {
            Some(tag) => Err(format!(
                "Can't find end tag corresponding to start tag \"{}\"",
                tag.name
            )),
            None => Ok(self.out),
        }
    }

    /// The next character, decoded.
    fn character(&mut self) -> char {
        if let Some((c, length)) = decode_entity(&self.source[self.at..]) {
            self.at += length;
            return c;
        }
        let c = self.source[self.at..].chars().next().unwrap_or(' ');
        self.at += c.len_utf8();
        c
    }

    fn tag(&mut self) -> Result<(), String> {
        let begin = self.at;
        self.at += 1;
        if self.byte() == b'/' {
            self.at += 1;
            return self.end_tag(begin);
        }
        let name = self.skip_to(|byte| byte.is_ascii_whitespace() || byte == b'>');
        if self.is_over() {
            return Err(format!("Unclosed start tag at byte offset {begin}"));
        }
        let name = name.to_ascii_lowercase();
        if !TAGS.contains(&name.as_str()) {
            return Err(format!("Unsupported start tag \"{name}\" at byte offset {begin}"));
        }
        let argument = self.attributes(&name, begin)?;
        if name == "span" && argument != "spoiler" {
            return Err(format!(
                "Tag \"span\" must have class \"tg-spoiler\" at byte offset {begin}"
            ));
        }
        let start = self.out.chars.len();
        self.open.push(OpenTag {
            name,
            argument,
            start,
        });
        Ok(())
    }

    /// Reads up to and with the `>`; returns the attribute that counts.
    fn attributes(&mut self, tag: &str, begin: usize) -> Result<String, String> {
        let unclosed = || Err(format!("Unclosed start tag \"{tag}\" at byte offset {begin}"));
        let mut argument = String::new();
        loop {
            self.skip_space();
            if self.is_over() {
                return unclosed();
            }
            if self.byte() == b'>' {
                self.at += 1;
                return Ok(argument);
            }
            let name = self.skip_to(|byte| byte.is_ascii_whitespace() || byte == b'=' || byte == b'>');
            if name.is_empty() {
                return Err(format!(
                    "Empty attribute name in the tag \"{tag}\" at byte offset {begin}"
                ));
            }
            self.skip_space();
            if self.byte() != b'=' {
                if tag == "blockquote" && name == "expandable" {
                    "1".clone_into(&mut argument);
                }
                continue;
            }
            self.at += 1;
            self.skip_space();
            if self.is_over() {
                return unclosed();
            }
            let value = self.attribute_value()?;
            if self.is_over() {
                return unclosed();
            }
            let counts = match (tag, name) {
                ("a", "href") | ("tg-emoji", "emoji-id") | ("tg-time", "unix") => Some(value),
                ("code", "class") => value.strip_prefix("language-").map(str::to_owned),
                ("span", "class") => value.strip_prefix("tg-").map(str::to_owned),
                ("blockquote", "expandable") => Some("1".to_owned()),
                _ => None,
            };
            argument = counts.unwrap_or(argument);
        }
    }

    fn attribute_value(&mut self) -> Result<String, String> {
        let quote = self.byte();
        if quote != b'\'' && quote != b'"' {
            let begin = self.at;
            let value = self.skip_to(|byte| !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-'));
            if !self.byte().is_ascii_whitespace() && self.byte() != b'>' {
                return Err(format!("Unexpected end of name token at byte offset {begin}"));
            }
            return Ok(value.to_ascii_lowercase());
        }
        self.at += 1;
        let mut value = String::new();
        while !self.is_over() && self.byte() != quote {
            value.push(self.character());
        }
        if !self.is_over() {
            self.at += 1;
        }
        Ok(value)
    }

    fn end_tag(&mut self, begin: usize) -> Result<(), String> {
        let Some(tag) = self.open.pop() else {
            return Err(format!("Unexpected end tag at byte offset {begin}"));
        };
        let found = self.skip_to(|byte| byte.is_ascii_whitespace() || byte == b'>');
        self.skip_space();
        if self.byte() != b'>' {
            return Err(format!("Unclosed end tag at byte offset {begin}"));
        }
        self.at += 1;
        if !found.is_empty() && found != tag.name {
            return Err(format!(
                "Unmatched end tag at byte offset {begin}, expected \"</{}>\", found \"</{found}>\"",
                tag.name
            ));
        }
        self.close(&tag);
        Ok(())
    }

    fn close(&mut self, tag: &OpenTag) {
        let (start, end) = (tag.start, self.out.chars.len());
        if start == end {
            return;
        }
        let mut extra = Map::new();
        let kind = match tag.name.as_str() {
            "b" | "strong" => "bold",
            "i" | "em" => "italic",
            "u" | "ins" => "underline",
            "s" | "strike" | "del" => "strikethrough",
            "tg-spoiler" | "span" => "spoiler",
            "blockquote" if tag.argument.is_empty() => "blockquote",
            "blockquote" => "expandable_blockquote",
            "tg-emoji" => {
                extra.insert("custom_emoji_id".to_owned(), json!(tag.argument));
                "custom_emoji"
            }
            "tg-time" => "date_time",
            "a" => match link(&tag.argument, &self.out.chars[start..end]) {
                Some((kind, name, value)) => {
                    extra.insert(name.to_owned(), value);
                    kind
                }
                None => return,
            },
            "pre" => {
                let language = self.out.spans.last_mut().filter(|last| {
                    last.kind == "code" && (last.start, last.end) == (start, end) && !last.extra.is_empty()
                });
                if let Some(code) = language {
                    "pre".clone_into(&mut code.kind);
                    return;
                }
                "pre"
            }
            _ => {
                if !tag.argument.is_empty() && self.open.last().is_some_and(|outer| outer.name == "pre") {
                    extra.insert("language".to_owned(), json!(tag.argument));
                }
                "code"
            }
        };
        self.out.spans.push(ApiSpan {
            start,
            end,
            kind: kind.to_owned(),
            extra,
        });
    }
}

/// The entity of a link: its type, and the field that says where it leads.
fn link(argument: &str, shown: &[char]) -> Option<(&'static str, &'static str, Value)> {
    let target = if argument.is_empty() {
        shown.iter().collect()
    } else {
        argument.to_owned()
    };
    if let Some(id) = target.strip_prefix("tg://user?id=") {
        let id: i64 = id.parse().ok()?;
        return Some((
            "text_mention",
            "user",
            json!({ "id": id, "is_bot": false, "first_name": "" }),
        ));
    }
    let target = if target.contains("://") || target.starts_with("mailto:") {
        target
    } else {
        format!("http://{target}")
    };
    let parsed = url::Url::parse(&target).ok()?;
    let known = matches!(parsed.scheme(), "http" | "https" | "tg" | "mailto" | "ton");
    known.then(|| ("text_link", "url", json!(parsed.as_str())))
}

/// The character that an entity of HTML at the start stands for, and its length.
fn decode_entity(text: &str) -> Option<(char, usize)> {
    let body = text.strip_prefix('&')?;
    let (c, length) = if let Some(number) = body.strip_prefix('#') {
        let (digits, base, skipped) = match number.strip_prefix(['x', 'X']) {
            Some(hex) => (hex, 16, 2),
            None => (number, 10, 1),
        };
        let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count().min(8);
        let length = digits[..length]
            .bytes()
            .take_while(|byte| char::from(*byte).is_digit(base))
            .count();
        let code = u32::from_str_radix(&digits[..length], base).ok()?;
        (char::from_u32(code).filter(|c| *c != '\0')?, skipped + length)
    } else {
        let length = body.bytes().take_while(u8::is_ascii_alphabetic).count();
        let c = match &body[..length] {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            _ => return None,
        };
        (c, length)
    };
    let length = 1 + length;
    Some((c, length + usize::from(text[length..].starts_with(';'))))
}
