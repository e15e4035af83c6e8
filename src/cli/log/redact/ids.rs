//! Ids and names of chats and people and their pseudonyms: the same id gets the same pseudonym for the life of the process.
//!
//! An id is recognised by its context: in a session key, after a name such as `chat_id` or `person`, after a platform as in
//! `telegram:123456`, before WhatsApp's domains; and by its format, if only ids have it. From then on it is recognised
//! anywhere as a separate word.

use std::collections::HashMap;
use std::ops::Range;

use memchr::memmem;

use super::names::words;
use super::pairs::{Pair, Separator, pairs};
use super::run;

/// Maximum number of pseudonyms; later ids share one.
const MAX_PSEUDONYMS: usize = 65_536;
/// Shorter ids, and ids without a digit, are not searched for as words: they may be ordinary words.
const MIN_WORD: usize = 6;
/// Parts of a session key before its ids: `agent`, profile, platform, kind of chat.
const SESSION_KEY_PREFIX: usize = 4;
/// Minimum length of an id whose context does not prove that it is one.
const MIN_LIKELY: usize = 4;
/// Lengths of Discord's ids.
const SNOWFLAKE: std::ops::RangeInclusive<usize> = 17..=20;
/// Lengths of Slack's ids.
const SLACK_ID: std::ops::RangeInclusive<usize> = 9..=13;

/// Names whose values are ids or names, with or without `id`, `key` or `name` after them.
const OWNERS: &[&str] = &[
    "AUTHOR",
    "CHANNEL",
    "CHAT",
    "CONTACT",
    "EMAIL",
    "GUILD",
    "JID",
    "MEMBER",
    "NICK",
    "NICKNAME",
    "OWNER",
    "PEOPLE",
    "PERSON",
    "PHONE",
    "RECIPIENT",
    "ROOM",
    "SCOPE",
    "SENDER",
    "THREAD",
    "USER",
    "USERNAME",
];
/// Words before `name` that make it the name of a person.
const NAME_PARTS: &[&str] = &["DISPLAY", "FIRST", "FULL", "LAST", "REAL"];
/// Names whose values are ids if they look like one.
const LIKELY_OWNERS: &[&str] = &["BY", "FROM", "SESSION", "TO"];
/// Platforms as they are written before an id.
const PLATFORMS: &[&[u8]] = &[
    b"bluebubbles",
    b"discord",
    b"matrix",
    b"mattermost",
    b"signal",
    b"slack",
    b"teams",
    b"telegram",
    b"whatsapp",
    b"whatsapp_cloud",
];
/// The spans of the relay: JSON lines have them as `name`.
const SPANS: &[&[u8]] = &[b"link", b"op", b"session", b"turn"];
/// Values that name nobody.
const CONSTANTS: &[&[u8]] = &[b"null", b"None", b"none", b"true", b"false"];
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
        found.extend(addresses(line));
        found.extend(by_format(line));
        let mut done = 0;
        for pair in pairs(line) {
            let Some(kind) = IdContext::of(&pair).filter(|_| pair.at >= done) else {
                continue;
            };
            for value in pair.values() {
                done = value.end;
                found.extend(kind.ids(line, value));
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
    let without = |domain: &&[u8]| id.strip_suffix(*domain);
    DOMAINS.iter().find_map(without).unwrap_or(id)
}

/// What a name says about its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdContext {
    /// An id or a name.
    Id,
    /// A person, as `PLATFORM:ID`.
    Person,
    /// The name of a person, or of a span.
    Name,
    /// An id, or a number of them.
    Ids,
    /// An id if it looks like one.
    Likely,
}

impl IdContext {
    fn of(pair: &Pair<'_>) -> Option<Self> {
        let mut parts = pair.name.rsplit('.');
        let (last, before) = (parts.next()?, parts.next());
        let kind = Self::of_name(last).filter(|kind| *kind != Self::Name || before.is_none());
        // The values of a map or a list, as in `home_channels.telegram` and `chats.0`.
        let kind = kind.or_else(|| Self::of_name(before?).filter(|kind| *kind == Self::Ids))?;
        // After a colon may be a sentence.
        let is_prose = pair.separator == Separator::Colon && !pair.is_list();
        Some(if is_prose { Self::Likely } else { kind })
    }

    fn of_name(name: &str) -> Option<Self> {
        let words = words(name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let owner = match words.as_slice() {
            ["NAME"] => return Some(Self::Name),
            ["GUILD", "ROLE" | "ROLES"] => return Some(Self::Id),
            [.., part, "NAME"] if NAME_PARTS.contains(part) => return Some(Self::Id),
            [.., owner, "ID" | "IDS" | "KEY" | "NAME"] | [.., owner] => owner,
            [] => return None,
        };
        let is_plural = |owner: &str| owner.strip_suffix('S').is_some_and(|one| OWNERS.contains(&one));
        match *owner {
            "PERSON" => Some(Self::Person),
            owner if OWNERS.contains(&owner) && words.last() != Some(&"IDS") => Some(Self::Id),
            owner if OWNERS.contains(&owner) || is_plural(owner) => Some(Self::Ids),
            owner if LIKELY_OWNERS.contains(&owner) => Some(Self::Likely),
            _ => None,
        }
    }

    /// The ids in a value.
    fn ids(self, line: &[u8], mut value: Range<usize>) -> Vec<Range<usize>> {
        let is_quoted = value.start > 0 && b"\"'".contains(&line[value.start - 1]);
        if !is_quoted {
            // The objects around it end too.
            value = run(&line[..value.end], value.start, |byte| !b"{}[]".contains(&byte));
        }
        let text = &line[value.clone()];
        let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let is_one_word = text.iter().all(u8::is_ascii_graphic);
        let is_kept = match self {
            Self::Id | Self::Person => false,
            Self::Name => SPANS.contains(&text),
            Self::Ids => is_number && matches!(line[..value.start].last(), Some(b'=' | b':')),
            Self::Likely => !is_one_word || !looks_like_id(text),
        };
        // Session keys have a rule of their own.
        if is_kept || CONSTANTS.contains(&text) || text.starts_with(b"agent:") {
            return Vec::new();
        }
        if !is_one_word || self == Self::Name {
            let is_replaced = text.is_empty() || is_pseudonym(text);
            return if is_replaced { Vec::new() } else { vec![value] };
        }
        parts(line, value, self == Self::Person)
    }
}

/// The parts of an id, without the platform before them.
fn parts(line: &[u8], id: Range<usize>, has_platform: bool) -> Vec<Range<usize>> {
    let text = &line[id.clone()];
    let mut found = Vec::new();
    let mut from = id.start;
    for (number, part) in text.split(|byte| *byte == b':').enumerate() {
        let range = from..from + part.len();
        from = range.end + 1;
        let is_word = part.first().is_some_and(u8::is_ascii_lowercase);
        let is_platform =
            number == 0 && range.end < id.end && (PLATFORMS.contains(&part) || (has_platform && is_word));
        let range = unsigned(line, range);
        let part = &line[range.clone()];
        // A pseudonym may follow a sign.
        let is_replaced = matches!(part, b"" | b"-" | b"+") || is_pseudonym(part);
        if !is_platform && !is_replaced {
            found.push(range);
        }
    }
    found
}

/// Whether this is a pseudonym, or was hidden.
fn is_pseudonym(text: &[u8]) -> bool {
    let Some(inner) = text.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">")) else {
        return false;
    };
    inner == b"hidden"
        || (inner.starts_with(b"id")
            && inner[2..]
                .iter()
                .all(|byte| byte.is_ascii_digit() || *byte == b'-'))
}

/// Whether this is a number with the length of an id, or a word with digits and nothing of a path, an address or a time.
fn looks_like_id(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-@".contains(byte);
    let is_date = text.contains(&b'-') && !text.iter().any(u8::is_ascii_alphabetic);
    text.len() >= MIN_LIKELY && text.iter().all(fits) && text.iter().any(u8::is_ascii_digit) && !is_date
}

/// Ids after a platform, as in `telegram:123456`, anywhere in the text.
fn addresses(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut done = 0;
    for colon in memchr::memchr_iter(b':', line) {
        let is_name = |byte: &&u8| byte.is_ascii_lowercase() || **byte == b'_';
        let length = line[..colon].iter().rev().take(32).take_while(is_name).count();
        let start = colon - length;
        // In a session key the kind of chat follows.
        let is_inside =
            start > 0 && (line[start - 1].is_ascii_alphanumeric() || b":.-/".contains(&line[start - 1]));
        if colon < done || is_inside || !PLATFORMS.contains(&&line[start..colon]) {
            continue;
        }
        let mut id = run(line, colon + 1, |byte| {
            byte.is_ascii_graphic() && !b"\"'\\,;()[]{}<>`".contains(&byte)
        });
        while id.end > id.start && b".:!?".contains(&line[id.end - 1]) {
            id.end -= 1;
        }
        done = id.end;
        if line[id.clone()].iter().any(u8::is_ascii_digit) {
            found.extend(parts(line, id, false));
        }
    }
    found
}

/// Ids in the formats of Discord and Slack.
fn by_format(line: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let word = run(line, at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
        at = word.end + 1;
        let text = &line[word.clone()];
        let is_snowflake = SNOWFLAKE.contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
        let is_slack = SLACK_ID.contains(&text.len())
            && b"CDGUW".contains(&text[0])
            && text
                .iter()
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            && text.iter().any(u8::is_ascii_digit);
        if is_snowflake || is_slack {
            found.push(word);
        }
    }
    found
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
    fn people_and_their_names_are_found_in_every_notation() {
        for (line, wanted) in [
            (
                r#"person="discord:123456789012345678" chat="4711" person=slack:U0AB12CD3 person=telegram:4711"#,
                r#"person="discord:<id-1>" chat="<id-2>" person=slack:<id-3> person=telegram:<id-2>"#,
            ),
            (
                r#"{"person":"telegram:555666777","name":"Some \"One\", Jr.","chat":-100777,"span":{"name":"turn"}}"#,
                r#"{"person":"telegram:<id-1>","name":"<id-2>","chat":-<id-3>,"span":{"name":"turn"}}"#,
            ),
            (
                r#"{\"person\":\"irc:ann\",\"user_name\":\"Ann B\"} name=Ann name="Zoë 2" chat="a room with a view""#,
                r#"{\"person\":\"irc:<id-1>\",\"user_name\":\"<id-2>\"} name=<id-3> name="<id-4>" chat="<id-5>""#,
            ),
            (
                r#"[{"chat":4711},{"user":42}] {"people":[{"id":7}]}"#,
                r#"[{"chat":<id-1>},{"user":<id-2>}] {"people":[{"id":7}]}"#,
            ),
            (
                "author=ann sender=bob owner=cay display_name=Dan user=@eve username=@fay",
                "author=<id-1> sender=<id-2> owner=<id-3> display_name=<id-4> user=<id-5> username=<id-6>",
            ),
            (
                "a group became a supergroup; using its new id from=-4711 to=-100123456",
                "a group became a supergroup; using its new id from=-<id-1> to=-<id-2>",
            ),
            (
                "telegram:555666777, who made it, is denied: telegram:-100777:17.",
                "telegram:<id-1>, who made it, is denied: telegram:-<id-2>:<id-3>.",
            ),
            (
                "session=\"3f2a-77\" session=cron_ab12 slack.channel_reply_modes.C0123456789: channel",
                "session=\"<id-1>\" session=<id-2> slack.channel_reply_modes.<id-3>: channel",
            ),
            (
                r#"access.people: [{"platform":"telegram","user":"42","guild_role":"77","chats":["a1","b2"]}]"#,
                r#"access.people: [{"platform":"telegram","user":"<id-1>","guild_role":"<id-2>","chats":["<id-3>","<id-4>"]}]"#,
            ),
            (
                "cron.home_channels.telegram: 4711  (x) free_response_channels: [\"12\", \"34\"] chats=[5,6]",
                "cron.home_channels.telegram: <id-1>  (x) free_response_channels: [\"<id-2>\", \"<id-3>\"] chats=[<id-4>,<id-5>]",
            ),
            (
                "cannot send to 987654321098765432 or U0AB12CD3: 987654321098765432 is gone",
                "cannot send to <id-1> or <id-2>: <id-1> is gone",
            ),
        ] {
            let shown = named(&mut Pseudonyms::default(), line);
            assert_eq!(shown, wanted);
            let again = Pseudonyms::default().find(shown.as_bytes());
            assert!(again.is_empty(), "{shown}: {again:?}");
        }
    }

    #[test]
    fn other_values_are_kept() {
        let mut names = Pseudonyms::default();
        for line in [
            "agent=code agent:main agent:main:discord:dm",
            "user_agent=hermes-relay/0.1 title=\"user name\" agents.0.name=\"echo\"",
            "the user: nobody",
            "mail me@example.org",
            "access.has_owner=false chats=12 users=3 chats_known=40 sessions.total=12345",
            "from=2026-11-18 to=127.0.0.1:8080 by=nobody user=null",
            r#"{"chats":12,"x":1}"#,
            r#"[{"username":null},{"bot_id":"","username":null}]"#,
            r#"{"span":{"name":"turn"},"person":"discord:","chat":""}"#,
            "platform=\"discord\" see telegram: 12345, discord:general and https://discord:443/",
            "hermes-relay access owner PLATFORM:ID, EADBEEF12 1794974505049",
            "chat=-<id-1> person=\"telegram:<id-2>\" name=\"<id-3>\" user=\"<hidden>\"",
            "reagent:a:b:c:d:e",
        ] {
            assert_eq!(named(&mut names, line), line);
        }
    }

    #[test]
    fn a_long_line_takes_no_long_time() {
        let began = std::time::Instant::now();
        for part in [
            "user=",
            "user=1 ",
            "user: ",
            "chats=[",
            "chat=[\"a\",",
            "chat={",
            "telegram:",
        ] {
            Pseudonyms::default().find(part.repeat(400_000 / part.len()).as_bytes());
        }
        assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
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
