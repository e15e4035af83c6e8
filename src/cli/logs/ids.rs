//! Ids of chats and people, and the other names they get: the same id, the same name, as long as this runs.
//!
//! An id is known by where it stands: in a session's key, after a name such as `chat_id`, before WhatsApp's domains. From
//! then on it is known anywhere, as a word of its own.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;

use super::pairs::{Joint, pairs};
use crate::cli::logging::{run, words};

/// Ids that get a name of their own; later ones share one.
const MOST: usize = 65_536;
/// Shorter ids, and those without a digit, are not looked for as words: they may be words.
const MIN_WORD: usize = 6;
/// The parts of a session's key before its ids: `agent`, the profile, the platform, the kind of chat.
const BEFORE_IDS: usize = 4;

/// Names whose values are ids, with or without `id` behind them.
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
/// The domains of WhatsApp's ids.
const DOMAINS: &[&[u8]] = &[b"@s.whatsapp.net", b"@g.us", b"@c.us", b"@lid"];

/// The names that were given.
#[derive(Default)]
pub(super) struct Names(HashMap<Vec<u8>, usize>);

impl Names {
    /// The name of an id.
    pub(super) fn name(&mut self, id: &[u8]) -> String {
        let id = bare(id);
        let next = self.0.len() + 1;
        if let Some(number) = self.0.get(id) {
            return format!("<id-{number}>");
        }
        if next > MOST {
            return "<id>".to_owned();
        }
        self.0.insert(id.to_owned(), next);
        format!("<id-{next}>")
    }

    /// Where ids stand.
    pub(super) fn places(&self, line: &[u8]) -> Vec<Range<usize>> {
        let mut found = session_keys(line);
        found.extend(jids(line));
        let mut done = 0;
        for pair in pairs(line).filter(|pair| pair.joint != Joint::Colon && is_id_name(pair.name)) {
            if pair.at >= done {
                let place = unsigned(line, pair.value());
                done = place.end;
                found.extend(is_id(&line[place.clone()]).then_some(place));
            }
        }
        found.extend(self.words(line));
        found
    }

    /// Ids that were seen before, as words.
    fn words(&self, line: &[u8]) -> Vec<Range<usize>> {
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

/// WhatsApp writes one id with and without the device and the domain.
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

/// One word: what has gaps is a title or a sentence.
fn is_id(value: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_graphic() && !b"<>{}\"".contains(byte);
    !value.is_empty() && value.iter().all(fits) && value != b"null" && value != b"None"
}

/// Without a sign: Telegram's groups have negative ids.
fn unsigned(line: &[u8], place: Range<usize>) -> Range<usize> {
    let signed = matches!(line.get(place.start), Some(b'-' | b'+')) && place.len() > 1;
    place.start + usize::from(signed)..place.end
}

/// The ids in keys of sessions.
fn session_keys(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    for start in memmem::find_iter(line, b"agent:") {
        let within_a_word = start > 0 && (line[start - 1].is_ascii_alphanumeric() || line[start - 1] == b'_');
        if start < done || within_a_word {
            continue;
        }
        let key = run(line, start, |byte| {
            byte.is_ascii_graphic() && !b"\"'\\,;()[]{}<>`".contains(&byte)
        });
        let mut from = start;
        for (number, part) in line[key.clone()].split(|byte| *byte == b':').enumerate() {
            let place = from..from + part.len();
            from = place.end + 1;
            if number >= BEFORE_IDS && !part.is_empty() {
                found.push(unsigned(line, place));
                done = key.end;
            }
        }
    }
    found
}

/// WhatsApp's ids.
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

    fn named(names: &mut Names, line: &str) -> String {
        let mut places = names.places(line.as_bytes());
        places.sort_by_key(|place| (place.start, usize::MAX - place.end));
        let (mut shown, mut end) = (String::new(), 0);
        for place in places {
            if place.start >= end {
                shown.push_str(&line[end..place.start]);
                shown.push_str(&names.name(&line.as_bytes()[place.clone()]));
                end = place.end;
            }
        }
        shown + &line[end..]
    }

    #[test]
    fn the_same_id_has_the_same_name_wherever_it_stands() {
        let mut names = Names::default();
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
    fn what_is_no_id_keeps_its_name() {
        let mut names = Names::default();
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
    fn names_run_out_and_memory_does_not() {
        let mut names = Names::default();
        for id in 0..MOST + 5 {
            names.name(id.to_string().as_bytes());
        }
        assert_eq!(names.0.len(), MOST);
        assert_eq!(names.name(b"another"), "<id>");
        assert_eq!(names.name(b"0"), "<id-1>");
    }
}
