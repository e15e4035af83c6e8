//! What looks like a secret although nobody knows it: by the name before it, by where it stands in a URL, by its form.

use std::ops::Range;

use memchr::memmem;

use super::pairs::{Joint, pairs};
use super::redactor::{Kind, Mark};
use crate::cli::logging::{is_secret_name, run, schemes, tokens, words};
use crate::config::settings::HIDDEN;

/// Shorter values are no secrets worth the name.
const MIN_VALUE: usize = 4;
/// After a colon stand sentences too; a secret is one long word, or has digits in it.
const MIN_AFTER_COLON: usize = 8;
const LONG_WORD: usize = 20;

/// Starts of keys that are known by their form, and how long such a key is at least.
const FORMS: &[(&str, usize)] = &[
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
/// A signed token of the web: three parts, the first of which begins an object.
const JWT: (&str, usize) = ("eyJ", 40);
/// A Telegram bot's token: the bot's number, a colon, and this many more.
const BOT_TOKEN: usize = 35;
/// Names in a query that are secrets there although elsewhere they may be anything.
const IN_QUERY: &[&str] = &["KEY", "SIG", "SIGNATURE", "CODE", "AUTH", "PASS", "PWD"];

/// Everything in a line that looks like a secret.
pub(super) fn marks(line: &[u8], found: &mut Vec<Mark>) {
    let mark = |kind| move |place| Mark { place, kind };
    found.extend(tokens(line).map(mark(Kind::Token)));
    found.extend(schemes(line).map(mark(Kind::Bearer)));
    found.extend(logins(line).map(mark(Kind::Login)));
    found.extend(forms(line).into_iter().map(mark(Kind::Form)));
    let mut done = 0;
    for pair in pairs(line).filter(|pair| is_named(pair.name, pair.joint)) {
        if pair.at < done {
            continue;
        }
        let place = pair.value();
        if is_plausible(&line[place.clone()], pair.joint) {
            done = place.end;
            let kind = match pair.joint {
                Joint::Query => Kind::Query,
                Joint::Field | Joint::Colon => Kind::Named,
            };
            found.push(Mark { place, kind });
        }
    }
}

fn is_named(name: &str, joint: Joint) -> bool {
    let last = || words(name).pop().unwrap_or_default();
    is_secret_name(name) || (joint == Joint::Query && IN_QUERY.contains(&last().as_str()))
}

fn is_plausible(value: &[u8], joint: Joint) -> bool {
    let digits = value.iter().any(u8::is_ascii_digit);
    let plain = value
        .iter()
        .all(|byte| byte.is_ascii_digit() || b".,-+_".contains(byte));
    let word = [b"true".as_slice(), b"false", b"null", b"none", b"None"].contains(&value);
    let hidden = value.starts_with(HIDDEN.as_bytes());
    let enough = match joint {
        Joint::Colon => (value.len() >= MIN_AFTER_COLON && digits) || value.len() >= LONG_WORD,
        Joint::Field | Joint::Query => value.len() >= MIN_VALUE,
    };
    enough && !plain && !word && !hidden
}

/// Logins before the host of a URL.
fn logins(line: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(line, b"://").filter_map(|at| {
        let place = run(line, at + 3, |byte| {
            byte.is_ascii_graphic() && !b"@/?#\"'<>\\`".contains(&byte)
        });
        let login = line.get(place.end) == Some(&b'@') && &line[place.clone()] != HIDDEN.as_bytes();
        (login && !place.is_empty()).then_some(place)
    })
}

/// Keys that are known by their form.
fn forms(line: &[u8]) -> Vec<Range<usize>> {
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
        let begins =
            |(start, least): &(&str, usize)| text.len() >= *least && text.starts_with(start.as_bytes());
        let three_parts = || text.split(|byte| *byte == b'.').count() == 3;
        if FORMS.iter().any(begins) || (begins(&JWT) && three_parts()) {
            found.push(word);
        } else {
            found.extend(bot_token(line, word));
        }
    }
    found
}

/// A bot's token that begins with this word.
fn bot_token(line: &[u8], word: Range<usize>) -> Option<Range<usize>> {
    let text = &line[word.clone()];
    // In the address of the bot's interface it stands right behind `bot`.
    let number = text.strip_prefix(b"bot").unwrap_or(text);
    let fits = (8..=10).contains(&number.len()) && number.iter().all(u8::is_ascii_digit);
    if !fits || line.get(word.end) != Some(&b':') {
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
    use crate::wire::UpgradeToken;

    fn found(line: &str) -> Vec<(Kind, &str)> {
        let mut found = Vec::new();
        marks(line.as_bytes(), &mut found);
        let mut found: Vec<_> = found
            .into_iter()
            .map(|mark| (mark.kind, &line[mark.place]))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn what_looks_like_a_secret_is_found() {
        let token = UpgradeToken::mint("gw-1", &"s".into(), 300, 0);
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl";
        let bot = format!("12345678:{}", "Aa0_-".repeat(7));
        for (line, kind, secret) in [
            (format!("with {}", token.expose()), Kind::Token, token.expose()),
            ("x Bearer abcdef012345, y".into(), Kind::Bearer, "abcdef012345"),
            ("OPENAI_API_KEY=abcd".into(), Kind::Named, "abcd"),
            (r#"{"client_secret":"a b, c"}"#.into(), Kind::Named, "a b, c"),
            ("X-Api-Key: abc123def".into(), Kind::Named, "abc123def"),
            ("via http://me:pass@proxy:3128/".into(), Kind::Login, "me:pass"),
            ("GET /x?a=1&key=abcd&b=2".into(), Kind::Query, "abcd"),
            (format!("id {jwt}."), Kind::Form, jwt),
            (
                "a sk-abcdefghijklmnopqrst.".into(),
                Kind::Form,
                "sk-abcdefghijklmnopqrst",
            ),
            (format!("POST /bot{bot}/send"), Kind::Form, &bot),
            (format!("with {bot}"), Kind::Form, &bot),
        ] {
            assert_eq!(found(&line), [(kind, secret)], "{line}");
        }
    }

    #[test]
    fn ordinary_lines_stay_as_they_are() {
        for line in [
            "2026-11-15T09:00:00Z  WARN lost the connector why=\"the socket broke\" retry_ms=1200",
            "could not read the secret: permission denied",
            "the bearer of the token: nobody",
            "session=agent:main:discord:dm:1 tokens=512 max_tokens=4096 token_type=bearer",
            "gateway.idp.token_url is configured; see https://connector.example/relay?a=b",
            "secret=<hidden> http://<hidden>@host/",
            "session_key=agent:main key=connector.secret",
            "hermes_relay::wire::token: 3 tests",
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
            let mut marked = Vec::new();
            marks(part.repeat(200_000 / part.len()).as_bytes(), &mut marked);
        }
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    }
}
