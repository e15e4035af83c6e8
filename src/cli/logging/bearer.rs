//! Bearers in a line: tokens in the form in which the relay mints them, and what follows `Bearer` or `Basic`.
//!
//! A token is minted anew for every use, so its value is not known beforehand; its form is.

use std::ops::Range;

use memchr::memchr2_iter;

use crate::wire::UpgradeToken;

/// Shorter words after `Bearer` are words.
const MIN_BEARER: usize = 12;
/// Names of schemes and what stands between them and what follows.
const NAMES: [&[u8]; 6] = [
    b"bearer ",
    b"basic ",
    b"bearer%20",
    b"basic%20",
    b"bearer+",
    b"basic+",
];
/// What may stand in what follows, beside letters and digits.
const MARKS: &[u8] = b"-_.~+/=";
/// Shorter runs cannot be a token: its signature alone takes more.
const MIN_TOKEN: usize = 88;
/// Longer runs are no token, and are not decoded to find that out.
const MAX_TOKEN: usize = 4096;

/// Where bearers stand.
pub(in crate::cli) fn bearers(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    tokens(line).chain(schemes(line))
}

/// Where tokens of the relay's own form stand.
pub(in crate::cli) fn tokens(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < line.len() {
            let run = run(line, at, |byte| {
                byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
            });
            at = run.end.max(at) + 1;
            let found = token_in(line, run);
            if found.is_some() {
                return found;
            }
        }
        None
    })
}

/// A token that a run of its letters is, or ends with: before it may stand what is left of an escape, as in `\nTOKEN`
/// and `%3DTOKEN`.
fn token_in(line: &[u8], run: Range<usize>) -> Option<Range<usize>> {
    let escaped = match line[..run.start].last() {
        Some(b'\\') => 1,
        Some(b'%') => 2,
        _ => 0,
    };
    let has_form = |place: &Range<usize>| {
        (MIN_TOKEN..=MAX_TOKEN).contains(&place.len())
            && std::str::from_utf8(&line[place.clone()]).is_ok_and(UpgradeToken::has_form)
    };
    [run.start + escaped, run.start]
        .map(|start| start..run.end)
        .into_iter()
        .find(has_form)
}

/// Where what follows the name of an authentication scheme stands.
pub(in crate::cli) fn schemes(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr2_iter(b'B', b'b', line).filter_map(|at| {
        let rest = &line[at..];
        let named = |name: &[u8]| {
            rest.get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let name = NAMES.into_iter().find(|name| named(name))?;
        let is_encoded = name.ends_with(b"%20");
        let place = run(line, at + name.len(), |byte| {
            byte.is_ascii_alphanumeric() || MARKS.contains(&byte) || (is_encoded && byte == b'%')
        });
        (place.len() >= MIN_BEARER && !is_word(&line[place.clone()])).then_some(place)
    })
}

/// Whether this is a word that people write after the name of a scheme, and nothing that opens a door: letters alone,
/// capitals at its start or throughout. A full stop ends a sentence.
fn is_word(text: &[u8]) -> bool {
    let text = text.strip_suffix(b".").unwrap_or(text);
    let inner = text.get(1..).unwrap_or_default();
    let one_case = inner.iter().all(u8::is_ascii_lowercase) || text.iter().all(u8::is_ascii_uppercase);
    text.iter().all(u8::is_ascii_alphabetic) && one_case
}

/// The longest run from a place on in which every byte fits.
pub(in crate::cli) fn run(line: &[u8], from: usize, fits: impl Fn(u8) -> bool) -> Range<usize> {
    let length = line[from..].iter().take_while(|byte| fits(**byte)).count();
    from..from + length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<&str> {
        bearers(line.as_bytes()).map(|place| &line[place]).collect()
    }

    #[test]
    fn a_minted_token_is_found_by_its_form() {
        let token = UpgradeToken::mint("gw-1", &"s".into(), 300, 1_700_000_000);
        let line = format!("dial with {}, then wait", token.expose());
        assert_eq!(found(&line), [token.expose()]);
        // The same alphabet and length, and no token.
        let other = "a".repeat(token.expose().len());
        assert!(found(&format!("dial with {other}")).is_empty());
    }

    #[test]
    fn what_follows_a_scheme_is_found_and_words_are_not() {
        assert_eq!(
            found("Authorization: Bearer abc.def-ghi_jkl=\r"),
            ["abc.def-ghi_jkl="]
        );
        assert_eq!(
            found("authorization: basic dXNlcjpwYXNzd29yZA=="),
            ["dXNlcjpwYXNzd29yZA=="]
        );
        for words in [
            "the bearer goes to",
            "bearer",
            "Bearer ",
            "a basic rule",
            "basic authentication",
            "bearer authentication required",
            "Basic Authentication.",
            "BASIC AUTHENTICATION",
        ] {
            assert!(found(words).is_empty(), "{words}");
        }
    }

    #[test]
    fn what_is_encoded_or_stands_after_an_escape_is_found_too() {
        assert_eq!(found("h=Bearer%20abcd%2Fefgh1&x"), ["abcd%2Fefgh1"]);
        assert_eq!(found("h=Basic+dXNlcjpwYXNz&x"), ["dXNlcjpwYXNz"]);
        assert_eq!(found("Bearer abcdefGhijkl"), ["abcdefGhijkl"], "a capital within");
        let token = UpgradeToken::mint("gw-1", &"s".into(), 300, 1_700_000_000);
        for before in ["\\n", "\\t", "%3D", "%20", "\\\\"] {
            let line = format!("sent{before}{}", token.expose());
            assert_eq!(found(&line), [token.expose()], "{before}");
        }
    }
}
