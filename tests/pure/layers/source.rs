//! Rust source as the rules see it: paths made absolute, without test code.
//!
//! Not a parser: it knows just enough to tell code from tests and to resolve the paths that name modules.

use crate::layers::lexer::{Kind, Token, tokens};

/// A path that code names, made absolute where it starts at `crate`, `self`, `super` or the crate's own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The segments; those of our own crate start with `crate`.
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// The name after `as`.
    pub(crate) renamed: Option<String>,
    /// Whether it stands in a `use` or `extern crate` declaration.
    pub(crate) import: bool,
}

impl Path {
    pub(crate) fn starts_with(&self, prefix: &str) -> bool {
        let mut own = self.segments.iter();
        prefix
            .split("::")
            .all(|want| own.next().is_some_and(|own| own == want))
    }

    /// Whether the two segments stand next to each other.
    pub(crate) fn has_pair(&self, first: &str, second: &str) -> bool {
        self.segments
            .windows(2)
            .any(|pair| pair[0] == first && pair[1] == second)
    }

    pub(crate) fn shown(&self) -> String {
        self.segments.join("::")
    }
}

/// Code without comments, literals' content and everything under `#[cfg(test)]`.
pub(crate) fn code(source: &str) -> Vec<Token> {
    without_tests(&tokens(source))
}

/// The modules that exist only in tests: declared as `#[cfg(test)] mod name;`.
pub(crate) fn test_modules(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let mut names = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let Some(after) = test_attribute(&tokens, at) else {
            at += 1;
            continue;
        };
        let end = item_end(&tokens, after);
        let item = &tokens[after..end];
        let name = item.iter().position(|token| token.is_word("mod"));
        if let Some(name) = name.and_then(|at| item.get(at + 1))
            && item.last().is_some_and(|token| token.is_mark(';'))
            && let Kind::Word(name) = &name.kind
        {
            names.push(name.clone());
        }
        at = end;
    }
    names
}

/// Every path of `tokens`, use trees unfolded. `module` is where the file stands, such as `["wire", "url"]`.
pub(crate) fn paths(tokens: &[Token], module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut inline: Vec<(String, usize)> = Vec::new();
    let (mut at, mut depth, mut import) = (0, 0usize, false);
    while at < tokens.len() {
        match &tokens[at].kind {
            Kind::Mark(';') => import = false,
            Kind::Mark('{') => depth += 1,
            Kind::Mark('}') => {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, opened)| *opened <= depth);
            }
            Kind::Word(word) if word == "mod" => {
                if let (Some(name), Some(open)) = (tokens.get(at + 1), tokens.get(at + 2))
                    && let (Kind::Word(name), true) = (&name.kind, open.is_mark('{'))
                {
                    inline.push((name.clone(), depth + 1));
                    at += 2;
                    continue;
                }
            }
            Kind::Word(word) if word == "use" => {
                import = tokens.get(at + 1).is_some_and(|next| !next.is_mark('<'));
            }
            Kind::Word(word) if word == "extern" => {
                import = tokens.get(at + 1).is_some_and(|next| next.is_word("crate"));
                at += usize::from(import);
            }
            Kind::Word(_) => {
                let here: Vec<String> = module
                    .iter()
                    .chain(inline.iter().map(|(name, _)| name))
                    .cloned()
                    .collect();
                let start = found.len();
                at = tree(tokens, at, &[], &mut found);
                for path in &mut found[start..] {
                    path.import = import;
                    path.segments = absolute(std::mem::take(&mut path.segments), &here);
                }
                continue;
            }
            Kind::PathSep | Kind::Mark(_) | Kind::Literal => {}
        }
        at += 1;
    }
    found
}

/// Reads one path or use tree that starts at a word; gives the place after it.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens[at].line;
    loop {
        match tokens.get(at).map(|token| &token.kind) {
            Some(Kind::Word(word)) => segments.push(word.clone()),
            Some(Kind::Mark('*')) => segments.push("*".to_owned()),
            Some(Kind::Mark('{')) => {
                at += 1;
                while let Some(token) = tokens.get(at) {
                    match token.kind {
                        Kind::Mark('}') => return at + 1,
                        Kind::Word(_) | Kind::Mark('*' | '{') => at = tree(tokens, at, &segments, found),
                        Kind::PathSep | Kind::Mark(_) | Kind::Literal => at += 1,
                    }
                }
                return at;
            }
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token.kind != Kind::PathSep) {
            break;
        }
        at += 1;
    }
    let mut renamed = None;
    if tokens.get(at).is_some_and(|token| token.is_word("as"))
        && let Some(Kind::Word(name)) = tokens.get(at + 1).map(|token| &token.kind)
    {
        renamed = Some(name.clone());
        at += 2;
    }
    found.push(Path {
        segments,
        line,
        renamed,
        import: false,
    });
    at
}

fn absolute(segments: Vec<String>, here: &[String]) -> Vec<String> {
    let mut rest = segments.as_slice();
    let mut place = match rest.first().map(String::as_str) {
        Some("crate" | "hermes_relay") if segments.len() > 1 => Vec::new(),
        Some("self") if segments.len() > 1 => here.to_vec(),
        Some("super") => here[..here.len().saturating_sub(1)].to_vec(),
        _ => return segments,
    };
    rest = &rest[1..];
    while let [first, after @ ..] = rest
        && first == "super"
    {
        place.pop();
        rest = after;
    }
    std::iter::once("crate".to_owned())
        .chain(place)
        .chain(rest.iter().filter(|segment| *segment != "self").cloned())
        .collect()
}

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match test_attribute(tokens, at) {
            // `#![cfg(test)]` is about the whole file.
            Some(_) if tokens[at + 1].is_mark('!') => return Vec::new(),
            Some(after) => at = item_end(tokens, after),
            None => {
                kept.push(tokens[at].clone());
                at += 1;
            }
        }
    }
    kept
}

/// The place after a `#[cfg(test)]` or `#[cfg(all(test, ..))]` that starts at `at`.
fn test_attribute(tokens: &[Token], at: usize) -> Option<usize> {
    if !tokens[at].is_mark('#') {
        return None;
    }
    let open = at + 1 + usize::from(tokens.get(at + 1)?.is_mark('!'));
    let end = bracketed(tokens, open, '[', ']')?;
    let inside = &tokens[open + 1..end - 1];
    let says = |word: &str| inside.iter().any(|token| token.is_word(word));
    (inside.first()?.is_word("cfg") && says("test") && !says("not") && !says("any")).then_some(end)
}

/// The place after the item, field or arm that starts at `at`, its attributes included.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| token.is_mark('#')) {
        at = bracketed(tokens, at + 1, '[', ']').unwrap_or(tokens.len());
    }
    let keyword = tokens[at..].iter().find(|token| {
        !["pub", "crate", "super", "in", "self"]
            .iter()
            .any(|word| token.is_word(word))
            && !token.is_mark('(')
            && !token.is_mark(')')
    });
    let import = keyword.is_some_and(|token| token.is_word("use"));
    let is_item = tokens.get(at).is_some_and(|token| {
        const ITEMS: &[&str] = &[
            "pub",
            "mod",
            "fn",
            "use",
            "impl",
            "struct",
            "enum",
            "const",
            "static",
            "type",
            "trait",
            "async",
            "unsafe",
            "extern",
            "macro_rules",
            "let",
        ];
        ITEMS.iter().any(|word| token.is_word(word))
    });
    while at < tokens.len() {
        match tokens[at].kind {
            Kind::Mark('{') => {
                at = bracketed(tokens, at, '{', '}').unwrap_or(tokens.len());
                if !import {
                    return at;
                }
            }
            Kind::Mark('(') => at = bracketed(tokens, at, '(', ')').unwrap_or(tokens.len()),
            Kind::Mark('[') => at = bracketed(tokens, at, '[', ']').unwrap_or(tokens.len()),
            Kind::Mark(';') => return at + 1,
            Kind::Mark(',') if !is_item => return at + 1,
            Kind::Mark('}' | ')' | ']') => return at,
            _ => at += 1,
        }
    }
    at
}

/// The place after the bracket that closes the one at `open`.
pub(crate) fn bracketed(tokens: &[Token], open: usize, left: char, right: char) -> Option<usize> {
    if !tokens.get(open)?.is_mark(left) {
        return None;
    }
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.is_mark(left) {
            depth += 1;
        } else if token.is_mark(right) {
            depth -= 1;
            if depth == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}
