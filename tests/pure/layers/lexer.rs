//! Rust source as tokens, without comments and without the content of literals.

/// A word or mark of code, with the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Word(String),
    /// `::`.
    PathSep,
    /// Any other single character.
    Mark(char),
    /// A literal, without its content.
    Literal,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }
}

/// The tokens of `source`.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(c) = rest.chars().next() {
        let (taken, kind) = token(rest, c);
        if let Some(kind) = kind {
            found.push(Token { kind, line });
        }
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    found
}

/// The length of what `rest` starts with, and what it is unless it is no code.
fn token(rest: &str, c: char) -> (usize, Option<Kind>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if let Some(length) = text_literal(rest) {
        return (length, Some(Kind::Literal));
    }
    if c == '\'' {
        return quote(rest);
    }
    if c == '_' || c.is_alphabetic() {
        let word = rest.strip_prefix("r#").unwrap_or(rest);
        let length = word
            .find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(word.len());
        return (
            rest.len() - word.len() + length,
            Some(Kind::Word(word[..length].to_owned())),
        );
    }
    if c.is_ascii_digit() {
        let length = rest
            .find(|c: char| c != '_' && !c.is_alphanumeric())
            .unwrap_or(rest.len());
        return (length, Some(Kind::Literal));
    }
    if rest.starts_with("::") {
        return (2, Some(Kind::PathSep));
    }
    (c.len_utf8(), (!c.is_whitespace()).then_some(Kind::Mark(c)))
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of the string literal that `rest` starts with: plain, raw, byte or C.
fn text_literal(rest: &str) -> Option<usize> {
    let prefix = ["", "r", "b", "br", "c", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|after| {
            after.starts_with('"')
                || (prefix.ends_with('r') && after.trim_start_matches('#').starts_with('"'))
        })
    })?;
    let after = &rest[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = after.len() - after.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let body = &after[hashes + 1..];
        let length = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(prefix.len() + hashes + 1 + length);
    }
    let mut escaped = false;
    for (at, c) in after.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// A character literal, or the tick of a lifetime or label.
fn quote(rest: &str) -> (usize, Option<Kind>) {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), _) => {
            let end = rest[3..].find('\'').map_or(rest.len(), |at| at + 4);
            (end, Some(Kind::Literal))
        }
        (Some(_), Some((end, '\''))) => (end + 1, Some(Kind::Literal)),
        _ => {
            let name = rest[1..]
                .find(|c: char| c != '_' && !c.is_alphanumeric())
                .unwrap_or(rest.len() - 1);
            (1 + name, None)
        }
    }
}
