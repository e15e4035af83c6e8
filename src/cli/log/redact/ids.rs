//! Ids of chats and people and their pseudonyms: the same id gets the same pseudonym for the life of the process.
//!
//! An id is recognised by its context: in a session key, after a name such as `chat_id`, before WhatsApp's domains. From
//! then on it is recognised anywhere as a separate word.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;

use super::names::words;
use super::pairs::{Separator, pairs};
use super::run;

/// Maximum number of pseudonyms; later ids share one.
const MAX_PSEUDONYMS: usize = 65_536;
/// Shorter ids, and ids without a digit, are not searched for as words: they may be ordinary words.
const MIN_WORD: usize = 6;
/// Parts of a session key before its ids: `agent`, profile, platform, kind of chat.
const SESSION_KEY_PREFIX: usize = 4;

/// Names whose values are ids, with or without `id` after them.
const OWNERS: &[&str] = &[
    "AUTHOR",
    "CHANNEL",
    "CHAT",
    "GUILD",
    "JID",
    "PHONE",
    "RECIPIENT",
    "SCOPE",
    "SENDER",
    "THREAD",
    "USER",
    "USERNAME",
];
/// Domains of WhatsApp ids.
const DOMAINS: &[&[u8]] = &[b"@s.whatsapp.net", b"@g.us", b"@c.us", b"@lid"];

/// Pseudonyms by id.
#[derive(Default)]
pub(super) struct Pseudonyms(HashMap<Vec<u8>, usize>);

impl Pseudonyms {
    /// The pseudonym of an id.
    pub(super) fn name(&mut self, id: &[u8]) -> String {
        let id = bare(id);
        let next = self.0.len() + 1;
        if let Some(number) = self.0.get(id) {
            return format!("<id-{number}>");
        }
        if next > MAX_PSEUDONYMS {
            return "<id>".to_owned();
        }
        self.0.insert(id.to_owned(), next);
        format!("<id-{next}>")
    }

    /// The ranges of all ids.
    pub(super) fn find(&self, line: &[u8]) -> Vec<Range<usize>> {
        let mut found = session_keys(line);
        found.extend(jids(line));
        let mut done = 0;
        for pair in pairs(line).filter(|pair| pair.separator != Separator::Colon && is_id_name(pair.name)) {
            if pair.at >= done {
                let range = unsigned(line, pair.value());
                done = range.end;
                found.extend(is_id(&line[range.clone()]).then_some(range));
            }
        }
        found.extend(self.seen_ids(line));
        found
    }

    /// Ids seen before, as words.
    fn seen_ids(&self, line: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = if self.0.is_empty() { line.len() } else { 0 };
        while at < line.len() {
            let word = run(line, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            at = word.end + 1;
            let text = &line[word.clone()];
            if text.len() >= MIN_WORD && text.iter().any(u8::is_ascii_digit) && self.0.contains_key(text) {
                found.push(word);
            }
        }
        found
    }
}

/// The id without its domain: WhatsApp writes it with and without.
fn bare(id: &[u8]) -> &[u8] {
    id.split(|byte| *byte == b'@').next().unwrap_or(id)
}

fn is_id_name(name: &str) -> bool {
    let words = words(name);
    let owner = match words.as_slice() {
        [.., owner, id] if id == "ID" => owner,
        [.., owner] => owner,
        [] => return false,
    };
    OWNERS.contains(&owner.as_str())
}

/// An id is one word; a value with spaces is a title or a sentence.
fn is_id(value: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_graphic() && !b"<>{}\"".contains(byte);
    !value.is_empty() && value.iter().all(fits) && value != b"null" && value != b"None"
}

/// The range without a sign: Telegram groups have negative ids.
fn unsigned(line: &[u8], range: Range<usize>) -> Range<usize> {
    let is_signed = matches!(line.get(range.start), Some(b'-' | b'+')) && range.len() > 1;
    range.start + usize::from(is_signed)..range.end
}

/// Ids in session keys.
fn session_keys(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    for start in memmem::find_iter(line, b"agent:") {
        let is_inside_word =
            start > 0 && (line[start - 1].is_ascii_alphanumeric() || line[start - 1] == b'_');
        if start < done || is_inside_word {
            continue;
        }
        let key = run(line, start, |byte| {
            byte.is_ascii_graphic() && !b"\"'\\,;()[]{}<>`".contains(&byte)
        });
        let mut from = start;
        for (number, part) in line[key.clone()].split(|byte| *byte == b':').enumerate() {
            let range = from..from + part.len();
            from = range.end + 1;
            if number >= SESSION_KEY_PREFIX && !part.is_empty() {
                found.push(unsigned(line, range));
                done = key.end;
            }
        }
    }
    found
}

/// WhatsApp ids.
fn jids(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for at in memchr::memchr_iter(b'@', line) {
        let Some(domain) = DOMAINS.iter().find(|domain| line[at..].starts_with(domain)) else {
            continue;
        };
        let digits = |byte: &&u8| byte.is_ascii_digit() || b":-".contains(byte);
        let length = line[..at].iter().rev().take(64).take_while(digits).count();
        if length > 0 {
            found.push(at - length..at + domain.len());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &mut Pseudonyms, line: &str) -> String {
        let mut ranges = names.find(line.as_bytes());
        ranges.sort_by_key(|range| (range.start, usize::MAX - range.end));
        let (mut shown, mut end) = (String::new(), 0);
        for range in ranges {
            if range.start >= end {
                shown.push_str(&line[end..range.start]);
                shown.push_str(&names.name(&line.as_bytes()[range.clone()]));
                end = range.end;
            }
        }
        shown + &line[end..]
    }

    #[test]
    fn an_id_has_the_same_pseudonym_everywhere() {
        let mut names = Pseudonyms::default();
        for (line, wanted) in [
            (
                "session=agent:main:discord:group:123456:987654 state=running",
                "session=agent:main:discord:group:<id-1>:<id-2> state=running",
            ),
            (
                "session=\"agent:main:telegram:group:-100777\"",
                "session=\"agent:main:telegram:group:-<id-3>\"",
            ),
            ("chat_id=-100777 user=123456", "chat_id=-<id-3> user=<id-1>"),
            (r#"{"userId":"987654"}"#, r#"{"userId":"<id-2>"}"#),
            ("it was 987654, not 9876540", "it was <id-2>, not 9876540"),
            (
                "from 49170123:2@s.whatsapp.net, again 49170123:2@s.whatsapp.net",
                "from <id-4>, again <id-4>",
            ),
        ] {
            assert_eq!(named(&mut names, line), wanted);
        }
    }

    #[test]
    fn other_values_are_kept() {
        let mut names = Pseudonyms::default();
        for line in [
            "agent=code agent:main agent:main:discord:dm",
            "user_agent=hermes-relay/0.1 title=\"user name\" chat=\"a room with a view\"",
            "the user: nobody",
            "mail me@example.org",
            "reagent:a:b:c:d:e",
        ] {
            assert_eq!(named(&mut names, line), line);
        }
    }

    #[test]
    fn pseudonyms_are_bounded() {
        let mut names = Pseudonyms::default();
        for id in 0..MAX_PSEUDONYMS + 5 {
            names.name(id.to_string().as_bytes());
        }
        assert_eq!(names.0.len(), MAX_PSEUDONYMS);
        assert_eq!(names.name(b"another"), "<id>");
        assert_eq!(names.name(b"0"), "<id-1>");
    }
}
