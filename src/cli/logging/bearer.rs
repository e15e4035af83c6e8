//! Bearers in a line: tokens in the form in which the relay mints them, and what follows `Bearer` or `Basic`.
//!
//! A token is minted anew for every use, so its value is not known beforehand; its form is.

use std::ops::Range;

use memchr::memchr2_iter;

use crate::wire::UpgradeToken;

/// Shorter words after `Bearer` are words.
const MIN_BEARER: usize = 12;
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
            if (MIN_TOKEN..=MAX_TOKEN).contains(&run.len())
                && std::str::from_utf8(&line[run.clone()]).is_ok_and(UpgradeToken::has_form)
            {
                return Some(run);
            }
        }
        None
    })
}

/// Where what follows the name of an authentication scheme stands.
pub(in crate::cli) fn schemes(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr2_iter(b'B', b'b', line).filter_map(|at| {
        let rest = &line[at..];
        let named = |name: &[u8]| {
            rest.get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let name = [b"bearer ".as_slice(), b"basic "]
            .into_iter()
            .find(|name| named(name))?;
        let place = run(line, at + name.len(), |byte| {
            byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte)
        });
        (place.len() >= MIN_BEARER).then_some(place)
    })
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
        for words in ["the bearer goes to", "bearer", "Bearer ", "a basic rule"] {
            assert!(found(words).is_empty(), "{words}");
        }
    }
}
