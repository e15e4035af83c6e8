//! The parser of Hermes' `.env`, in the dialect of python-dotenv.
//!
//! An invalid line is skipped and its number kept. The process environment comes in as a closure. The file contains
//! secrets: its text and all values are wiped when they are dropped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use zeroize::{Zeroize as _, Zeroizing};

use super::file::open;
use super::{env as variables, secret};

/// Maximum size of the file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Maximum size of all expanded values; further bindings are skipped as invalid.
const MAX_EXPANDED_BYTES: usize = 4 * 1024 * 1024;

/// Values by key.
type Values = BTreeMap<String, Option<Zeroizing<String>>>;

/// The assignments of one `.env` file. `Debug` names the keys and hides every value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    values: Values,
    skipped: Vec<usize>,
    unread_rule: Option<usize>,
}

impl Dotenv {
    /// Reads the file at `path`; `None` if it does not exist.
    pub fn read(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> io::Result<Option<Self>> {
        let Some(file) = open(path)? else {
            return Ok(None);
        };
        let bytes = secret::read_all(file, MAX_FILE_BYTES)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let text = format!("larger than {MAX_FILE_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let mut text = decode(&bytes);
        let read = Self::parse(&text, env);
        if let Cow::Owned(text) = &mut text {
            text.zeroize();
        }
        Ok(Some(read))
    }

    /// Parses text; `env` resolves names that the file does not define.
    pub fn parse(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let text = Zeroizing::new(text.replace("\r\n", "\n"));
        let text = Zeroizing::new(text.replace('\r', "\n"));
        let mut read = Self::default();
        let mut room = MAX_EXPANDED_BYTES;
        for binding in bindings(&text) {
            let (has_value, is_skipped) = match binding.kind {
                BindingKind::Assignment { key, value: None } => {
                    read.values.insert(key.to_owned(), None);
                    (false, false)
                }
                BindingKind::Assignment {
                    key,
                    value: Some(mut raw),
                } => {
                    let value = expand(&raw, &read.values, env, room);
                    if let Cow::Owned(raw) = &mut raw {
                        raw.zeroize();
                    }
                    let has_value = value.is_some();
                    if let Some(value) = value {
                        room -= value.len();
                        read.values.insert(key.to_owned(), Some(value));
                    }
                    (has_value, !has_value)
                }
                BindingKind::Invalid => (false, true),
            };
            let (start, statement) = (binding.span.start, &text[binding.span]);
            if is_skipped {
                read.skipped.push(line_at(&text, start));
            }
            if !has_value && read.unread_rule.is_none() && variables::names_rule(statement) {
                read.unread_rule = Some(line_at(&text, start));
            }
        }
        read
    }

    /// The value of `key`; `None` if it is missing or has no `=`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key)?.as_ref().map(|value| value.as_str())
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Numbers of the lines where an invalid statement starts.
    pub fn skipped_lines(&self) -> &[usize] {
        &self.skipped
    }

    /// Number of the first line that names a variable about who may write, and sets nothing.
    pub fn unread_rule(&self) -> Option<usize> {
        self.unread_rule
    }
}

impl std::fmt::Debug for Dotenv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dotenv")
            .field("keys", &self.values.keys().collect::<Vec<_>>())
            .field("skipped", &self.skipped)
            .field("unread_rule", &self.unread_rule)
            .finish()
    }
}

/// A statement and its range.
#[derive(Debug)]
pub(super) struct Binding<'t> {
    /// From its first character to the end of its line.
    pub(super) span: Range<usize>,
    pub(super) kind: BindingKind<'t>,
}

/// The kind of a statement.
#[derive(Debug)]
pub(super) enum BindingKind<'t> {
    Assignment {
        key: &'t str,
        value: Option<Cow<'t, str>>,
    },
    Invalid,
}

/// The statements of `text` without comments, before `${NAME}` is expanded.
pub(super) fn bindings(text: &str) -> impl Iterator<Item = Binding<'_>> {
    let at = if text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    let mut scanner = Scanner { text, at };
    std::iter::from_fn(move || {
        loop {
            scanner.skip(is_space);
            let start = scanner.at;
            if scanner.rest().is_empty() {
                return None;
            }
            let kind = match scanner.statement() {
                Some(Statement::Comment) => continue,
                Some(Statement::Assignment(key, value)) => BindingKind::Assignment { key, value },
                None => {
                    scanner.skip(|c| !is_newline(c));
                    scanner.line_end();
                    BindingKind::Invalid
                }
            };
            return Some(Binding {
                span: start..scanner.at,
                kind,
            });
        }
    })
}

/// Decodes UTF-8, else Latin-1, as Hermes does.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// White space in Python, which has four more control characters than Unicode.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

enum Statement<'t> {
    Comment,
    Assignment(&'t str, Option<Cow<'t, str>>),
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn starts(&self, c: char) -> bool {
        self.rest().starts_with(c)
    }

    fn skip(&mut self, matches: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !matches(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn blank(&mut self) -> &'t str {
        self.skip(|c| is_space(c) && !is_newline(c))
    }

    fn line_end(&mut self) {
        let rest = self.rest();
        if rest.starts_with("\r\n") {
            self.at += 2;
        } else if rest.starts_with(is_newline) {
            self.at += 1;
        }
    }

    /// Parses one statement; `None` leaves the position where parsing failed.
    fn statement(&mut self) -> Option<Statement<'t>> {
        if self.starts('#') {
            self.skip(|c| !is_newline(c));
            return Some(Statement::Comment);
        }
        if let Some(after) = self.rest().strip_prefix("export")
            && after.starts_with(|c| is_space(c) && !is_newline(c))
        {
            self.at += "export".len();
            self.blank();
        }
        let key = self.key()?;
        self.blank();
        let value = if self.starts('=') {
            self.at += 1;
            let gap = self.blank();
            Some(if !gap.is_empty() && self.starts('#') {
                Cow::Borrowed("")
            } else {
                self.value()?
            })
        } else {
            None
        };
        self.blank();
        if self.starts('#') {
            self.skip(|c| !is_newline(c));
        }
        if !self.rest().is_empty() && !self.rest().starts_with(is_newline) {
            return None;
        }
        self.line_end();
        Some(Statement::Assignment(key, value))
    }

    fn key(&mut self) -> Option<&'t str> {
        let key = if let Some(inner) = self.rest().strip_prefix('\'') {
            let key = &inner[..inner.find('\'')?];
            if !key.is_empty() {
                self.at += key.len() + 2;
            }
            key
        } else {
            self.skip(|c| c != '=' && c != '#' && !is_space(c))
        };
        (!key.is_empty()).then_some(key)
    }

    fn value(&mut self) -> Option<Cow<'t, str>> {
        if let Some(quote @ ('\'' | '"')) = self.rest().chars().next() {
            let inner = &self.rest()[1..];
            let end = closing_quote(inner, quote)?;
            self.at += end + 2;
            return Some(unescape(&inner[..end], quote));
        }
        let line = self.skip(|c| !is_newline(c));
        Some(Cow::Borrowed(without_comment(line).trim_end_matches(is_space)))
    }
}

/// The text before a `#` that follows white space.
fn without_comment(line: &str) -> &str {
    let mut gap = None;
    for (at, c) in line.char_indices() {
        match gap {
            Some(start) if c == '#' => return &line[..start],
            None if is_space(c) => gap = Some(at),
            Some(_) if !is_space(c) => gap = None,
            _ => {}
        }
    }
    line
}

fn closing_quote(inner: &str, quote: char) -> Option<usize> {
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some(at);
        }
        if c == '\\' {
            chars.next()?;
        }
    }
    None
}

fn unescape(inner: &str, quote: char) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = (c == '\\')
            .then(|| chars.peek().and_then(|next| escape(*next, quote)))
            .flatten();
        if escaped.is_some() {
            chars.next();
        }
        plain.push(escaped.unwrap_or(c));
    }
    Cow::Owned(plain)
}

/// The meaning of `\c` in such quotes; `None` for a literal backslash.
fn escape(c: char, quote: char) -> Option<char> {
    Some(match (c, quote) {
        ('\\' | '\'', _) | ('"', '"') => c,
        ('a', '"') => '\u{7}',
        ('b', '"') => '\u{8}',
        ('f', '"') => '\u{c}',
        ('n', '"') => '\n',
        ('r', '"') => '\r',
        ('t', '"') => '\t',
        ('v', '"') => '\u{b}',
        _ => return None,
    })
}

/// Expands `${NAME}` and `${NAME:-default}`; `None` if the result exceeds `room`.
fn expand(
    raw: &str,
    values: &Values,
    env: &dyn Fn(&str) -> Option<String>,
    room: usize,
) -> Option<Zeroizing<String>> {
    let mut out = Zeroizing::new(String::with_capacity(raw.len()));
    let mut rest = raw;
    while let Some(start) = rest.find("${") {
        let body = &rest[start + 2..];
        let Some(stop) = body.find(['}', ':']) else { break };
        let (name, tail) = body.split_at(stop);
        let (default, after) = if let Some(tail) = tail.strip_prefix(":-") {
            let Some(end) = tail.find('}') else { break };
            (&tail[..end], &tail[end + 1..])
        } else if let Some(after) = tail.strip_prefix('}') {
            ("", after)
        } else {
            let kept = start + 2 + stop;
            out.push_str(&rest[..kept]);
            rest = &rest[kept..];
            continue;
        };
        out.push_str(&rest[..start]);
        match values.get(name) {
            Some(inner) => out.push_str(inner.as_ref().map_or("", |inner| inner.as_str())),
            None if name.is_empty() => out.push_str(default),
            None => out.push_str(
                env(name)
                    .map(Zeroizing::new)
                    .as_ref()
                    .map_or(default, |value| value.as_str()),
            ),
        }
        rest = after;
        if out.len() > room {
            return None;
        }
    }
    out.push_str(rest);
    (out.len() <= room).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        matches!(name, "FROM_ENV" | "BOTH").then(|| "outer".to_owned())
    }

    #[test]
    fn reads_what_python_dotenv_reads() {
        let cases: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/vectors/dotenv.json")).unwrap();
        let cases = cases.as_array().unwrap();
        assert!(cases.len() > 50);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let wanted: BTreeMap<String, Option<String>> =
                serde_json::from_value(case["values"].clone()).unwrap();
            let read = Dotenv::parse(text, &env);
            let plain = |value: &Option<Zeroizing<String>>| value.as_ref().map(|value| value.to_string());
            let values: BTreeMap<_, _> = read
                .values
                .iter()
                .map(|(key, value)| (key.clone(), plain(value)))
                .collect();
            assert_eq!(values, wanted, "reading {text:?}");
        }
    }

    #[test]
    fn an_unterminated_quote_invalidates_only_its_line() {
        let read = Dotenv::parse("A=1\nB=\"open\nC=3\n", &env);
        assert_eq!(read.value("C"), Some("3"));
        assert_eq!(read.value("B"), None);
        assert_eq!(read.skipped_lines(), [2]);
    }

    #[test]
    fn a_rule_that_sets_nothing_is_found() {
        let unread = |text: &str| Dotenv::parse(text, &env).unread_rule();
        for text in [
            "A=1\nTELEGRAM_ALLOWED_USERS: 123\n",
            "A=1\nTELEGRAM_ALLOWED_USERS:123\n",
            "A=1\nexport GATEWAY_ALLOW_ALL_USERS\n",
            "A=1\nSLACK_ALLOW_BOTS=\"open\n",
            "A=1\nB=\"x\nSLACK_ALLOWED_USERS=1\nC=\"y\n",
        ] {
            assert_eq!(unread(text), Some(2), "{text}");
        }
        for text in [
            "TELEGRAM_ALLOWED_USERS=123\n",
            "# TELEGRAM_ALLOWED_USERS: 123\n",
            "TELEGRAM_ALLOWED_USERS=\n",
            "A: 1\n",
        ] {
            assert_eq!(unread(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_latin1() {
        let read = Dotenv::parse(&decode(b"# caf\xe9\nA=\xe9\n"), &env);
        assert_eq!(read.value("A"), Some("\u{e9}"));
    }

    #[test]
    fn expansion_is_bounded() {
        let mut text = String::from("V0=xxxxxxxxxxxxxxxx\n");
        for n in 1..200 {
            use std::fmt::Write as _;
            writeln!(text, "V{n}=${{V{}}}${{V{}}}", n - 1, n - 1).unwrap();
        }
        let read = Dotenv::parse(&text, &env);
        let size: usize = read.values.values().flatten().map(|value| value.len()).sum();
        assert!(size <= MAX_EXPANDED_BYTES);
        assert!(!read.skipped_lines().is_empty());
    }

    #[test]
    fn debug_hides_values() {
        let shown = format!("{:?}", Dotenv::parse("A=hunter2\n", &env));
        assert!(shown.contains('A') && !shown.contains("hunter2"), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "[\\PC\n\r\t=#'\"\\\\${}:\\- A]{0,80}") {
            Dotenv::parse(&text, &env);
        }
    }
}
