//! Secrets by their looks: tokens in the relay's own format, values after `Bearer`, bot tokens in paths of Telegram's Bot API,
//! pairing codes, values of names that sound like a secret, logins and queries of URLs, keys in well-known formats.

use std::ops::Range;

use memchr::{memchr2_iter, memmem};

use super::names::{is_secret_name, words};
use super::pairs::{Separator, pairs};
use super::{Match, MatchKind, run};
use crate::access::has_code_form;
use crate::config::settings::HIDDEN;
use crate::wire::UpgradeToken;

/// Shorter values after `Bearer` are ordinary words.
const MIN_BEARER: usize = 12;
/// Authentication schemes with the separator that follows them.
const SCHEMES: [&[u8]; 6] = [
    b"bearer ",
    b"basic ",
    b"bearer%20",
    b"basic%20",
    b"bearer+",
    b"basic+",
];
/// Bytes of a bearer besides letters and digits.
const BEARER_PUNCTUATION: &[u8] = b"-_.~+/=";
/// Minimum length of a token: its signature alone takes this much.
const MIN_TOKEN: usize = 88;
/// Maximum length of a token; longer runs are not decoded.
const MAX_TOKEN: usize = 4096;
/// Minimum length of a named value.
const MIN_VALUE: usize = 4;
/// A value after a colon may be a sentence: it counts if it has digits and this length, or is one long word.
const MIN_AFTER_COLON: usize = 8;
const LONG_WORD: usize = 20;

/// Prefixes of keys in well-known formats, with the minimum length of such a key.
const KEY_FORMATS: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_live_", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xapp-", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghs_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("hf_", 30),
    ("AIza", 35),
    ("AKIA", 20),
];
/// A JSON web token: three parts, the first of which starts an object.
const JWT: (&str, usize) = ("eyJ", 40);
/// Length of a Telegram bot token after the bot's number and a colon.
const BOT_TOKEN: usize = 35;
/// What precedes the token in a path of the Bot API.
const BOT_PATH: &[u8] = b"/bot";
/// Words before a pairing code: of the commands that take one, and its name.
const BEFORE_CODE: &[&[u8]] = &[b"approve", b"code", b"ignore"];
/// Names that are secrets in a query only.
const QUERY_SECRETS: &[&str] = &["KEY", "SIG", "SIGNATURE", "CODE", "AUTH", "PASS", "PWD"];

/// Finds tokens, bearers and the tokens in paths of the Bot API, which are certain.
pub(super) fn credentials(line: &[u8], found: &mut Vec<Match>) {
    let to_match = |kind| move |range| Match { range, kind };
    found.extend(tokens(line).map(to_match(MatchKind::Token)));
    found.extend(bearers(line).map(to_match(MatchKind::Bearer)));
    found.extend(bot_paths(line).map(to_match(MatchKind::KeyFormat)));
}

/// Finds everything else that looks like a secret.
pub(super) fn likely_secrets(line: &[u8], found: &mut Vec<Match>) {
    let to_match = |kind| move |range| Match { range, kind };
    found.extend(logins(line).map(to_match(MatchKind::Login)));
    found.extend(keys(line).into_iter().map(to_match(MatchKind::KeyFormat)));
    found.extend(codes(line).map(to_match(MatchKind::Code)));
    let mut done = 0;
    for pair in pairs(line).filter(|pair| sounds_secret(pair.name, pair.separator)) {
        if pair.at < done {
            continue;
        }
        let range = pair.value();
        if is_plausible(&line[range.clone()], pair.separator) {
            done = range.end;
            let kind = match pair.separator {
                Separator::Query => MatchKind::Query,
                Separator::Field | Separator::Colon => MatchKind::Named,
            };
            found.push(Match { range, kind });
        }
    }
}

/// Tokens in the relay's own format. They are minted for each use, so their format is known and their value is not.
fn tokens(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
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

/// The token that a run is or ends with: the rest of an escape may precede it, as in `\nTOKEN` and `%3DTOKEN`.
fn token_in(line: &[u8], run: Range<usize>) -> Option<Range<usize>> {
    let escaped = match line[..run.start].last() {
        Some(b'\\') => 1,
        Some(b'%') => 2,
        _ => 0,
    };
    let is_token = |range: &Range<usize>| {
        (MIN_TOKEN..=MAX_TOKEN).contains(&range.len())
            && std::str::from_utf8(&line[range.clone()]).is_ok_and(UpgradeToken::has_form)
    };
    [run.start + escaped, run.start]
        .map(|start| start..run.end)
        .into_iter()
        .find(is_token)
}

/// Values after an authentication scheme.
fn bearers(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr2_iter(b'B', b'b', line).filter_map(|at| {
        let rest = &line[at..];
        let starts_with = |scheme: &[u8]| {
            rest.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        let scheme = SCHEMES.into_iter().find(|scheme| starts_with(scheme))?;
        let is_encoded = scheme.ends_with(b"%20");
        let range = run(line, at + scheme.len(), |byte| {
            byte.is_ascii_alphanumeric() || BEARER_PUNCTUATION.contains(&byte) || (is_encoded && byte == b'%')
        });
        (range.len() >= MIN_BEARER && !is_word(&line[range.clone()])).then_some(range)
    })
}

/// Whether this is a word that people write after a scheme: letters only, capitals at its start or throughout.
fn is_word(text: &[u8]) -> bool {
    let text = text.strip_suffix(b".").unwrap_or(text);
    let inner = text.get(1..).unwrap_or_default();
    let one_case = inner.iter().all(u8::is_ascii_lowercase) || text.iter().all(u8::is_ascii_uppercase);
    text.iter().all(u8::is_ascii_alphabetic) && one_case
}

fn sounds_secret(name: &str, separator: Separator) -> bool {
    let last = || words(name).pop().unwrap_or_default();
    is_secret_name(name) || (separator == Separator::Query && QUERY_SECRETS.contains(&last().as_str()))
}

fn is_plausible(value: &[u8], separator: Separator) -> bool {
    let has_digits = value.iter().any(u8::is_ascii_digit);
    let is_number = value
        .iter()
        .all(|byte| byte.is_ascii_digit() || b".,-+_".contains(byte));
    let is_constant = [b"true".as_slice(), b"false", b"null", b"none", b"None"].contains(&value);
    let is_hidden = value.starts_with(HIDDEN.as_bytes());
    let is_long_enough = match separator {
        Separator::Colon => (value.len() >= MIN_AFTER_COLON && has_digits) || value.len() >= LONG_WORD,
        Separator::Field | Separator::Query => value.len() >= MIN_VALUE,
    };
    is_long_enough && !is_number && !is_constant && !is_hidden
}

/// Pairing codes. Words of capitals have their form too, so what precedes them decides.
fn codes(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    let mut follows = false;
    std::iter::from_fn(move || {
        while at < line.len() {
            let word = run(line, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            at = word.end + 1;
            if word.is_empty() {
                continue;
            }
            let text = &line[word.clone()];
            let is_code = follows && std::str::from_utf8(text).is_ok_and(has_code_form);
            follows = BEFORE_CODE.iter().any(|before| text.eq_ignore_ascii_case(before));
            if is_code {
                return Some(word);
            }
        }
        None
    })
}

/// Logins before the host of a URL.
fn logins(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(line, b"://").filter_map(|at| {
        let range = run(line, at + 3, |byte| {
            byte.is_ascii_graphic() && !b"@/?#\"'<>\\`".contains(&byte)
        });
        let is_login = line.get(range.end) == Some(&b'@') && &line[range.clone()] != HIDDEN.as_bytes();
        (is_login && !range.is_empty()).then_some(range)
    })
}

/// Keys in well-known formats.
fn keys(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let mut word = run(line, at, |byte| {
            byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
        });
        at = word.end + 1;
        while word.end > word.start && line[word.end - 1] == b'.' {
            word.end -= 1;
        }
        let text = &line[word.clone()];
        let has_format =
            |(prefix, min): &(&str, usize)| text.len() >= *min && text.starts_with(prefix.as_bytes());
        let has_three_parts = || text.split(|byte| *byte == b'.').count() == 3;
        if KEY_FORMATS.iter().any(has_format) || (has_format(&JWT) && has_three_parts()) {
            found.push(word);
        } else {
            found.extend(bot_token(line, word));
        }
    }
    found
}

/// Tokens in paths of Telegram's Bot API, `/bot<number>:<secret>/`, of any length.
fn bot_paths(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(line, BOT_PATH).filter_map(|at| {
        let number = run(line, at + BOT_PATH.len(), |byte| byte.is_ascii_digit());
        let colon = [b":".as_slice(), b"%3A", b"%3a"]
            .into_iter()
            .find(|colon| !number.is_empty() && line[number.end..].starts_with(colon))?;
        let secret = run(line, number.end + colon.len(), |byte| {
            byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
        });
        (!secret.is_empty()).then_some(number.start..secret.end)
    })
}

/// The bot token that starts with this word.
fn bot_token(line: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let text = &line[word.clone()];
    if line[..word.start].ends_with(b"/") && text.starts_with(b"bot") {
        // Found by its path.
        return None;
    }
    // In what is left of a URL of the Bot API it follows `bot` directly.
    let number = text.strip_prefix(b"bot").unwrap_or(text);
    let is_number = (8..=10).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
    if !is_number || line.get(word.end) != Some(&b':') {
        return None;
    }
    let rest = run(line, word.end + 1, |byte| {
        byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
    });
    (rest.len() == BOT_TOKEN).then(|| word.end - number.len()..rest.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<(MatchKind, &str)> {
        let mut found = Vec::new();
        credentials(line.as_bytes(), &mut found);
        likely_secrets(line.as_bytes(), &mut found);
        let found = found.into_iter();
        let mut found: Vec<_> = found.map(|found| (found.kind, &line[found.range])).collect();
        found.sort();
        found
    }

    fn token() -> String {
        UpgradeToken::mint("gw-1", &"s".into(), 300, 1_700_000_000)
            .expose()
            .to_owned()
    }

    #[test]
    fn secrets_are_found_by_their_looks() {
        let token = token();
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl";
        let bot = format!("12345678:{}", "Aa0_-".repeat(7));
        for (line, kind, secret) in [
            (format!("with {token}, then"), MatchKind::Token, &*token),
            (
                "x Bearer abcdef012345, y".into(),
                MatchKind::Bearer,
                "abcdef012345",
            ),
            (
                "h=Bearer%20abcd%2Fefgh1&x".into(),
                MatchKind::Bearer,
                "abcd%2Fefgh1",
            ),
            ("h=Basic+dXNlcjpwYXNz&x".into(), MatchKind::Bearer, "dXNlcjpwYXNz"),
            ("Bearer abcdefGhijkl".into(), MatchKind::Bearer, "abcdefGhijkl"),
            (
                "Bearer abc.def-ghi_jkl=\r".into(),
                MatchKind::Bearer,
                "abc.def-ghi_jkl=",
            ),
            ("OPENAI_API_KEY=abcd".into(), MatchKind::Named, "abcd"),
            (r#"{"client_secret":"a b, c"}"#.into(), MatchKind::Named, "a b, c"),
            ("X-Api-Key: abc123def".into(), MatchKind::Named, "abc123def"),
            (
                "via http://me:pass@proxy:3128/".into(),
                MatchKind::Login,
                "me:pass",
            ),
            ("GET /x?a=1&key=abcd&b=2".into(), MatchKind::Query, "abcd"),
            (format!("id {jwt}."), MatchKind::KeyFormat, jwt),
            (
                "a sk-abcdefghijklmnopqrst.".into(),
                MatchKind::KeyFormat,
                "sk-abcdefghijklmnopqrst",
            ),
            (format!("POST /bot{bot}/send"), MatchKind::KeyFormat, &bot),
            (format!("with {bot}"), MatchKind::KeyFormat, &bot),
            (format!("to bot{bot}/x"), MatchKind::KeyFormat, &bot),
            (
                "let them in: hermes-relay access approve 7CT682DX --role owner".into(),
                MatchKind::Code,
                "7CT682DX",
            ),
            ("{\"code\":\"WXYZABCD\"}".into(), MatchKind::Code, "WXYZABCD"),
            ("GET /bot7:Ab_-9/getMe".into(), MatchKind::KeyFormat, "7:Ab_-9"),
            (
                "https://a/file/bot123%3Ax/p".into(),
                MatchKind::KeyFormat,
                "123%3Ax",
            ),
        ] {
            assert_eq!(found(&line), [(kind, secret)], "{line}");
        }
        for before in ["\\n", "\\t", "%3D", "%20", "\\\\"] {
            let line = format!("sent{before}{token}");
            assert_eq!(found(&line), [(MatchKind::Token, &*token)], "{before}");
        }
    }

    #[test]
    fn ordinary_lines_have_no_secret() {
        let no_token = "a".repeat(token().len());
        for line in [
            "2026-11-15T09:00:00Z  WARN lost the connector why=\"the socket broke\" retry_ms=1200",
            "could not read the secret: permission denied",
            "the bearer of the token: nobody",
            "the bearer goes to",
            "Bearer ",
            "a basic rule",
            "bearer authentication required",
            "Basic Authentication.",
            "BASIC AUTHENTICATION",
            "session=agent:main:discord:dm:1 tokens=512 max_tokens=4096 token_type=bearer",
            "gateway.idp.token_url is configured; see https://connector.example/relay?a=b",
            "secret=<hidden> http://<hidden>@host/",
            "session_key=agent:main key=connector.secret",
            "hermes_relay::wire::token: 3 tests",
            "see /bot, /bots/1:2 and /bot7: none",
            "access approve CODE --role owner; close code 4000, code=Some(\"forbidden\") and STRANGER",
            &no_token,
        ] {
            assert!(found(line).is_empty(), "{line}: {:?}", found(line));
        }
    }

    #[test]
    fn a_long_line_takes_no_long_time() {
        let began = std::time::Instant::now();
        for part in [
            "token=",
            "bearer ",
            "://",
            "agent:",
            "sk-",
            "a=",
            "token: ",
            "12345678:",
        ] {
            let line = part.repeat(200_000 / part.len());
            let mut found = Vec::new();
            credentials(line.as_bytes(), &mut found);
            likely_secrets(line.as_bytes(), &mut found);
        }
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }
}
