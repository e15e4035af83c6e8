//! Name-value pairs in a line: `name=value`, `"name": "value"`, `Name: value`, `?name=value`, also with escaped quotes.

use std::ops::Range;

use memchr::memchr2_iter;

/// Maximum length of a name.
const MAX_NAME: usize = 128;
/// What begins a colour, before its numbers and an `m`.
const COLOUR: &[u8] = b"\x1b[";
/// Maximum length of the numbers of a colour.
const MAX_COLOUR: usize = 16;

/// What separates a name from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// `name=value`, or `"name": "value"`.
    Field,
    /// `name=value` in the query of a URL.
    Query,
    /// `name: value`, as in a header, or in a sentence with a colon.
    Colon,
}

/// A name with a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair<'l> {
    pub(super) name: &'l str,
    pub(super) separator: Separator,
    /// The position of the separator.
    pub(super) at: usize,
    line: &'l [u8],
    from: usize,
}

impl Pair<'_> {
    /// The range of the value: inside the quotes, or up to the next space. Ask only for names that matter and not again
    /// within a value: searching the end of each takes long in a long line.
    pub(super) fn value(&self) -> Range<usize> {
        value(self.line, self.from, self.separator)
    }

    /// Whether the value is a list.
    pub(super) fn is_list(&self) -> bool {
        self.line[self.from..].starts_with(b"[")
    }

    /// The ranges of the values of a list, or of the only value.
    pub(super) fn values(&self) -> Vec<Range<usize>> {
        let first = self.value();
        if !self.is_list() {
            return vec![first];
        }
        let mut found = Vec::new();
        let mut next = Some((self.from + 1, first));
        while let Some((from, range)) = next {
            let is_quoted = range.start > from;
            let end = range.end + if is_quoted { range.start - from } else { 0 };
            if is_quoted {
                found.push(range);
            } else {
                let mut from = range.start;
                for item in self.line[range].split(|byte| *byte == b',') {
                    found.push(from..from + item.len());
                    from += item.len() + 1;
                }
            }
            let rest = self.line.get(end..).unwrap_or_default();
            next = rest.strip_prefix(b",").map(|rest| {
                let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
                let from = end + 1 + spaces;
                (from, value(self.line, from, self.separator))
            });
        }
        found
    }
}

/// All pairs.
pub(super) fn pairs(line: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    memchr2_iter(b'=', b':', line).filter_map(|at| pair(line, at))
}

fn pair(line: &[u8], at: usize) -> Option<Pair<'_>> {
    let before = without_colour(&line[..at]);
    let unquoted = before
        .strip_suffix(br#"\""#)
        .or_else(|| before.strip_suffix(b"\""))
        .or_else(|| before.strip_suffix(b"'"));
    let quoted = unquoted.is_some();
    let before = unquoted.unwrap_or(before);
    let name_byte = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let length = before.iter().rev().take(MAX_NAME).take_while(name_byte).count();
    let mut start = before.len() - length;
    // The end of a colour is no part of the name.
    if before[..start].ends_with(COLOUR) {
        start += 1 + before[start..].iter().position(|byte| *byte == b'm')?;
    }
    let name = std::str::from_utf8(&before[start..])
        .ok()
        .filter(|name| !name.is_empty())?;
    let spaces = line[at + 1..].iter().take_while(|byte| **byte == b' ').count();
    let separator = match line[at] {
        b'=' if start > 0 && matches!(before[start - 1], b'?' | b'&') => Separator::Query,
        b'=' => Separator::Field,
        _ if quoted => Separator::Field,
        _ if spaces > 0 => Separator::Colon,
        _ => return None,
    };
    // `name = value` is prose or code as often as not.
    let skipped = if line[at] == b':' { spaces } else { 0 };
    Some(Pair {
        name,
        separator,
        at,
        line,
        from: at + 1 + skipped + colour_length(&line[at + 1 + skipped..]),
    })
}

/// The text before the colours at its end.
fn without_colour(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_suffix(b"m") {
        let digits = rest
            .iter()
            .rev()
            .take(MAX_COLOUR)
            .take_while(|byte| is_colour(**byte))
            .count();
        match rest[..rest.len() - digits].strip_suffix(COLOUR) {
            Some(before) => text = before,
            None => break,
        }
    }
    text
}

/// The length of the colour that a text begins with.
fn colour_length(text: &[u8]) -> usize {
    let Some(rest) = text.strip_prefix(COLOUR) else {
        return 0;
    };
    let digits = rest
        .iter()
        .take(MAX_COLOUR)
        .take_while(|byte| is_colour(**byte))
        .count();
    if rest.get(digits) == Some(&b'm') {
        COLOUR.len() + digits + 1
    } else {
        0
    }
}

fn is_colour(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b';'
}

fn value(line: &[u8], mut from: usize, separator: Separator) -> Range<usize> {
    // A list, or an `Option` in Rust's debug format.
    for wrapper in [b"Some(".as_slice(), b"["] {
        if line[from..].starts_with(wrapper) {
            from += wrapper.len();
        }
    }
    let rest = &line[from..];
    for quote in [br#"\""#.as_slice(), b"\"", b"'"] {
        if rest.starts_with(quote) {
            let start = from + quote.len();
            return start..start + quoted_length(&line[start..], quote);
        }
    }
    let ends = |byte: &u8| {
        byte.is_ascii_whitespace()
            || b"\"'\\<".contains(byte)
            || (separator == Separator::Query && b"&#".contains(byte))
    };
    let mut length = rest.iter().position(ends).unwrap_or(rest.len());
    while length > 0 && b",;)}].".contains(&rest[length - 1]) {
        length -= 1;
    }
    from..from + length
}

/// The distance to the closing quote, or to the end of the line if there is none.
fn quoted_length(rest: &[u8], quote: &[u8]) -> usize {
    if quote.len() > 1 {
        // Within escaped quotes, a quote of the value has more than one backslash.
        let mut ends = memchr::memmem::find_iter(rest, quote);
        let end = ends.find(|end| *end == 0 || rest[end - 1] != b'\\');
        return end.unwrap_or(rest.len());
    }
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote[0] => return at,
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<(&str, &str)> {
        let found = pairs(line.as_bytes());
        found
            .map(|pair| (pair.name, &line[pair.value()]))
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    #[test]
    fn every_notation_of_a_pair_is_read() {
        for (line, wanted) in [
            ("a NAME=value b", ("NAME", "value")),
            ("a name=\"two words\" b", ("name", "two words")),
            ("a name='two words' b", ("name", "two words")),
            (r#"a name="a \"b\" c" b"#, ("name", r#"a \"b\" c"#)),
            (r#"{"name":"value","#, ("name", "value")),
            (r#"{"name" : 1, "#, ("", "")),
            (
                r#"{\"name\": \"the \\\"value\\\"\"}"#,
                ("name", r#"the \\\"value\\\""#),
            ),
            ("Name-Of: value\r", ("Name-Of", "value")),
            (r#"S { name: Some("value"), }"#, ("name", "value")),
            (r#"name: ["value"]"#, ("name", "value")),
            ("(name=value),", ("name", "value")),
            ("a=?x b", ("a", "?x")),
            (
                "a \x1b[3mname\x1b[0m\x1b[2m=\x1b[0m\"two words\" b",
                ("name", "two words"),
            ),
            ("name=\"not closed", ("name", "not closed")),
            ("name=\"ends in \\", ("name", "ends in \\")),
        ] {
            let found = found(line);
            let wanted: &[_] = if wanted.0.is_empty() { &[] } else { &[wanted] };
            assert_eq!(found, wanted, "{line}");
        }
        assert_eq!(
            found("https://h/p?token=a%20b&x=1#end"),
            [("token", "a%20b"), ("x", "1")]
        );
        for none in ["a::b", "12:30:59", "=x", ": x", "name=", "name=\"\"", "name: "] {
            let found = found(none);
            assert!(found.is_empty(), "{none}: {found:?}");
        }
    }

    #[test]
    fn arbitrary_bytes_are_safe() {
        let noise: Vec<u8> = (0..20_000_u32)
            .map(|n| b"=:\"'\\[Some(ab \xff\x00&?"[(n.wrapping_mul(2_654_435_761) >> 24) as usize % 18])
            .collect();
        for start in 0..64 {
            for pair in pairs(&noise[start..]) {
                assert!(pair.value().end <= noise.len() - start);
            }
        }
    }
}
