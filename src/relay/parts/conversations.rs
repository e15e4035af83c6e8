//! The conversations of people: which one a chat is in, what they are called, and how an earlier one goes on.
//!
//! A conversation has a session of its own at its agent, under a key that it keeps wherever it goes on; the first one of a chat has
//! the chat's own. They belong to a person, or to a chat that several people share: nobody is ever shown, or moves, anybody
//! else's. What is known of them is one row of the journal for each owner.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::ListedSession;
use crate::collections::BoundedCache;
use crate::relay::effects::{Effects, OwnerKey};
use crate::store::Command;
use crate::text::one_line;
use crate::wire::SessionKey;
use crate::words::{ChatPhrase, Language, PhraseKey};

/// Owners whose conversations are cached; others are read from the journal again.
const MAX_CACHED: usize = 4096;
/// Conversations of an owner; the one that was unused for longest is forgotten.
const MAX_KEPT: usize = 30;
/// Conversations in a list.
pub const MAX_LISTED: usize = 10;
/// Length of a title.
const MAX_TITLE_CHARS: usize = 60;

/// One conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its number, which no other of its owner has had.
    pub number: u64,
    /// The key of its session at the agent.
    key: String,
    /// The agent that answered in it; none before its first message.
    agent: Option<String>,
    /// Where that agent works, if the settings say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workdir: Option<String>,
    #[serde(default)]
    title: String,
    /// Whether a person gave it its title.
    #[serde(default)]
    named: bool,
    /// Where it was last: the platform and what kind of chat.
    place: String,
    /// The chat that is in it now, by its session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// When it was used last, in Unix milliseconds.
    used_ms: i64,
}

/// The conversations of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Book {
    last: u64,
    conversations: Vec<Conversation>,
}

/// What a turn says about its conversation.
#[derive(Clone, Copy, Debug)]
pub struct Use<'u> {
    pub session: &'u SessionKey,
    pub agent: &'u str,
    pub workdir: Option<&'u str>,
    /// The message, whose first words are a title until there is a better one; empty for what is no message.
    pub text: &'u str,
    pub place: &'u str,
    pub now_ms: i64,
}

/// The conversation that a chat is in now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// The key of its session at the agent.
    pub key: SessionKey,
    /// Whether nobody has written in it yet.
    pub is_new: bool,
    /// The key of one that has to be forgotten for it.
    pub dropped: Option<SessionKey>,
}

/// The conversations that are known.
#[derive(Debug)]
pub struct Conversations {
    books: BoundedCache<OwnerKey, Book>,
}

impl Conversations {
    pub fn new() -> Self {
        Self {
            books: BoundedCache::new(MAX_CACHED),
        }
    }

    /// Whether the conversations of an owner are known.
    pub fn knows(&self, owner: &OwnerKey) -> bool {
        self.books.peek(owner).is_some()
    }

    /// What the journal knows; something newer may be known already.
    pub fn learn(&mut self, owner: &OwnerKey, saved: Option<Vec<u8>>) {
        if !self.knows(owner) {
            let book = saved.and_then(|saved| serde_json::from_slice(&saved).ok());
            self.books.insert(Arc::clone(owner), book.unwrap_or_default());
        }
    }

    /// A turn begins: the conversation that it belongs to, which begins with it unless there is one.
    pub fn begin(&mut self, owner: &OwnerKey, used: Use<'_>, effects: &mut Effects) -> Entered {
        let book = self.book(owner);
        let at = match book.current(used.session) {
            Some(at) => at,
            None => book.add(used.session, used.now_ms),
        };
        let conversation = &mut book.conversations[at];
        // One that was only chosen a model for has no title yet.
        let is_new = conversation.agent.is_none() || conversation.title.is_empty();
        conversation.agent = Some(used.agent.to_owned());
        conversation.workdir = used.workdir.map(str::to_owned);
        used.place.clone_into(&mut conversation.place);
        conversation.used_ms = used.now_ms;
        if conversation.title.is_empty() {
            conversation.title = title(used.text);
        }
        let key = SessionKey::from_text(conversation.key.clone());
        let dropped = book.drop_oldest(&key);
        self.save(owner, used.now_ms, effects);
        Entered { key, is_new, dropped }
    }

    /// The agent gave the conversation of a chat a title.
    pub fn entitle(
        &mut self,
        owner: &OwnerKey,
        session: &SessionKey,
        text: &str,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        let book = self.book(owner);
        let Some(at) = book.current(session) else { return };
        let conversation = &mut book.conversations[at];
        let text = title(text);
        if !conversation.named && !text.is_empty() && conversation.title != text {
            conversation.title = text;
            self.save(owner, now_ms, effects);
        }
    }

    /// A chat leaves its conversation, which is kept; returns whether it had one. With a title, the next one is begun with it.
    pub fn leave(
        &mut self,
        owner: &OwnerKey,
        session: &SessionKey,
        name: &str,
        now_ms: i64,
        effects: &mut Effects,
    ) -> bool {
        let book = self.book(owner);
        let current = book.current(session);
        if let Some(at) = current {
            let conversation = &mut book.conversations[at];
            conversation.session = None;
            if conversation.agent.is_none() {
                // Nothing was said in it.
                book.conversations.remove(at);
            }
        }
        let name = title(name);
        if !name.is_empty() {
            let at = book.add(session, now_ms);
            let conversation = &mut book.conversations[at];
            (conversation.title, conversation.named) = (name, true);
        }
        self.save(owner, now_ms, effects);
        current.is_some()
    }

    /// The last conversations of an agent in a directory, the latest first.
    pub fn recent(&mut self, owner: &OwnerKey, agent: &str, workdir: Option<&str>) -> Vec<Conversation> {
        let fits = |conversation: &&Conversation| {
            conversation.agent.as_deref() == Some(agent) && conversation.workdir.as_deref() == workdir
        };
        let mut found: Vec<Conversation> = self
            .book(owner)
            .conversations
            .iter()
            .filter(fits)
            .cloned()
            .collect();
        found.sort_by_key(|conversation| std::cmp::Reverse(conversation.used_ms));
        found.truncate(MAX_LISTED);
        found
    }

    /// A chat goes on with a conversation of its owner; another chat that was in it begins anew.
    pub fn resume(
        &mut self,
        owner: &OwnerKey,
        session: &SessionKey,
        number: u64,
        now_ms: i64,
        effects: &mut Effects,
    ) {
        self.leave(owner, session, "", now_ms, effects);
        let book = self.book(owner);
        let mut conversations = book.conversations.iter_mut();
        if let Some(conversation) = conversations.find(|conversation| conversation.number == number) {
            conversation.session = Some(session.as_str().to_owned());
            conversation.used_ms = now_ms;
        }
        self.save(owner, now_ms, effects);
    }

    /// A chat goes on with a session that its agent listed: the conversation that it becomes.
    pub fn adopt(&mut self, owner: &OwnerKey, used: Use<'_>, effects: &mut Effects) -> Entered {
        self.leave(owner, used.session, "", used.now_ms, effects);
        let book = self.book(owner);
        let at = book.add(used.session, used.now_ms);
        let number = book.last;
        let conversation = &mut book.conversations[at];
        // A key that no conversation has had: whatever an agent knows under another one is not of this session.
        conversation.key = format!("{}#{number}", used.session.as_str());
        conversation.agent = Some(used.agent.to_owned());
        conversation.workdir = used.workdir.map(str::to_owned);
        used.place.clone_into(&mut conversation.place);
        conversation.title = title(used.text);
        let key = SessionKey::from_text(conversation.key.clone());
        let dropped = book.drop_oldest(&key);
        self.save(owner, used.now_ms, effects);
        Entered {
            key,
            is_new: true,
            dropped,
        }
    }

    fn book(&mut self, owner: &OwnerKey) -> &mut Book {
        if !self.knows(owner) {
            self.books.insert(Arc::clone(owner), Book::default());
        }
        self.books.get_mut(owner).expect("it was inserted")
    }

    fn save(&mut self, owner: &OwnerKey, now_ms: i64, effects: &mut Effects) {
        let blob = serde_json::to_vec(self.book(owner)).unwrap_or_default();
        effects.write(Command::SetResume {
            session: book_key(owner),
            blob,
            now_ms,
        });
    }
}

impl Book {
    /// The conversation that a chat is in.
    fn current(&self, session: &SessionKey) -> Option<usize> {
        let is_there =
            |conversation: &Conversation| conversation.session.as_deref() == Some(session.as_str());
        self.conversations.iter().position(is_there)
    }

    /// Begins one in a chat, under the key of the chat's session if no other one has it: what an agent kept before there were
    /// several goes on.
    fn add(&mut self, session: &SessionKey, now_ms: i64) -> usize {
        self.last += 1;
        let is_taken = self
            .conversations
            .iter()
            .any(|known| known.key == session.as_str());
        let key = if is_taken {
            format!("{}#{}", session.as_str(), self.last)
        } else {
            session.as_str().to_owned()
        };
        self.conversations.push(Conversation {
            number: self.last,
            key,
            agent: None,
            workdir: None,
            title: String::new(),
            named: false,
            place: String::new(),
            session: Some(session.as_str().to_owned()),
            used_ms: now_ms,
        });
        self.conversations.len() - 1
    }

    /// Drops the one that was unused for longest and is in no chat, when there are too many.
    fn drop_oldest(&mut self, except: &SessionKey) -> Option<SessionKey> {
        if self.conversations.len() <= MAX_KEPT {
            return None;
        }
        let idle = self.conversations.iter().enumerate();
        let idle = idle.filter(|(_, conversation)| conversation.key != except.as_str());
        let (at, _) =
            idle.min_by_key(|(_, conversation)| (conversation.session.is_some(), conversation.used_ms))?;
        Some(SessionKey::from_text(self.conversations.remove(at).key))
    }
}

impl Conversation {
    /// Whether it is the one that this chat is in.
    pub fn is_in(&self, session: &SessionKey) -> bool {
        self.session.as_deref() == Some(session.as_str())
    }

    /// The chat that is in it.
    pub fn session(&self) -> Option<SessionKey> {
        self.session.clone().map(SessionKey::from_text)
    }

    /// Its title, for people.
    pub fn title(&self, language: Language) -> &str {
        if self.title.is_empty() {
            language.plain(PhraseKey::Untitled)
        } else {
            &self.title
        }
    }

    /// A line of a list: what it is called, how old it is, and where it was.
    pub fn describe(&self, session: &SessionKey, language: Language, now_ms: i64) -> String {
        let age = age(now_ms - self.used_ms, language);
        let (title, age, place) = (self.title(language), age.as_str(), self.place.as_str());
        language.say(if self.is_in(session) {
            ChatPhrase::ConversationLineHere { title, age, place }
        } else {
            ChatPhrase::ConversationLine { title, age, place }
        })
    }
}

/// A line of a list: a session that an agent listed.
pub fn describe_listed(session: &ListedSession, language: Language, now_ms: i64) -> String {
    let (title, place) = (
        listed_title(session, language),
        language.plain(PhraseKey::InTerminal),
    );
    match session.used_ms {
        Some(used_ms) => language.say(ChatPhrase::ConversationLine {
            title,
            age: &age(now_ms - used_ms, language),
            place,
        }),
        None => format!("{title}, {place}"),
    }
}

/// The title of a session that an agent listed, for people.
pub fn listed_title(session: &ListedSession, language: Language) -> &str {
    match session.title.as_str() {
        "" => language.plain(PhraseKey::Untitled),
        title => title,
    }
}

/// Where the journal keeps the conversations of an owner.
pub fn book_key(owner: &OwnerKey) -> Arc<str> {
    format!("{owner}#conversations").into()
}

/// The first words of a text.
fn title(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let short = one_line(line, MAX_TITLE_CHARS);
    match short.rsplit_once(' ') {
        Some((words, _)) if line.chars().count() > MAX_TITLE_CHARS => format!("{words}..."),
        _ => short,
    }
}

fn age(ms: i64, language: Language) -> String {
    let minutes = ms.max(0).unsigned_abs() / 60_000;
    language.say(match minutes {
        0 => ChatPhrase::JustNow,
        1..60 => ChatPhrase::MinutesAgo { count: minutes },
        60..1440 => ChatPhrase::HoursAgo { count: minutes / 60 },
        _ => ChatPhrase::DaysAgo {
            count: minutes / 1440,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used<'u>(session: &'u SessionKey, text: &'u str, now_ms: i64) -> Use<'u> {
        Use {
            session,
            agent: "code",
            workdir: None,
            text,
            place: "discord dm",
            now_ms,
        }
    }

    #[test]
    fn the_first_conversation_has_the_key_of_its_chat_and_each_new_one_its_own() {
        let (mut all, mut effects) = (Conversations::new(), Effects::default());
        let (owner, chat): (OwnerKey, _) = ("ann".into(), SessionKey::from_text("c"));
        let first = all
            .begin(&owner, used(&chat, "fix the tests please", 1), &mut effects)
            .key;
        assert_eq!(first, chat);
        let is_new = |all: &mut Conversations, effects: &mut Effects, text| {
            all.begin(&owner, used(&chat, text, 1), effects).is_new
        };
        assert!(!is_new(&mut all, &mut effects, "more"));
        assert_eq!(all.begin(&owner, used(&chat, "more", 2), &mut effects).key, first);
        assert!(all.leave(&owner, &chat, "", 3, &mut effects));
        assert!(!all.leave(&owner, &chat, "Release", 3, &mut effects));
        let second = all.begin(&owner, used(&chat, "hello", 4), &mut effects).key;
        assert_ne!(second, first);
        let titles: Vec<String> = (all.recent(&owner, "code", None).iter())
            .map(|conversation| conversation.describe(&chat, Language::En, 60_004))
            .collect();
        assert_eq!(
            titles,
            [
                "Release, 1 min ago, discord dm, here now",
                "fix the tests please, 1 min ago, discord dm"
            ]
        );
        assert!(all.recent(&owner, "other", None).is_empty());
        assert!(all.recent(&owner, "code", Some("/srv")).is_empty());
        all.resume(&owner, &chat, 1, 5, &mut effects);
        assert_eq!(
            all.begin(&owner, used(&chat, "again", 6), &mut effects).key,
            first
        );
    }

    #[test]
    fn an_owner_keeps_so_many_and_the_oldest_is_forgotten() {
        let (mut all, mut effects) = (Conversations::new(), Effects::default());
        let (owner, chat): (OwnerKey, _) = ("ann".into(), SessionKey::from_text("c"));
        for now in 0..30 {
            assert_eq!(
                all.begin(&owner, used(&chat, "x", now), &mut effects).dropped,
                None,
                "{now}"
            );
            all.leave(&owner, &chat, "", now, &mut effects);
        }
        let dropped = all.begin(&owner, used(&chat, "x", 30), &mut effects).dropped;
        assert_eq!(dropped, Some(chat.clone()));
        assert_eq!(all.book(&owner).conversations.len(), MAX_KEPT);
    }

    #[test]
    fn a_title_of_the_agent_replaces_first_words_and_no_name() {
        let (mut all, mut effects) = (Conversations::new(), Effects::default());
        let (owner, chat): (OwnerKey, _) = ("ann".into(), SessionKey::from_text("c"));
        all.begin(&owner, used(&chat, "first words", 1), &mut effects);
        all.entitle(&owner, &chat, "Of mice", 2, &mut effects);
        assert_eq!(all.recent(&owner, "code", None)[0].title(Language::En), "Of mice");
        all.leave(&owner, &chat, "Mine", 3, &mut effects);
        all.begin(&owner, used(&chat, "x", 4), &mut effects);
        all.entitle(&owner, &chat, "Of men", 5, &mut effects);
        assert_eq!(all.recent(&owner, "code", None)[0].title(Language::En), "Mine");
    }

    #[test]
    fn a_session_of_the_agent_becomes_a_conversation_under_a_key_of_its_own() {
        let (mut all, mut effects) = (Conversations::new(), Effects::default());
        let (owner, chat): (OwnerKey, _) = ("ann".into(), SessionKey::from_text("c"));
        let listed = ListedSession {
            id: "s".to_owned(),
            title: "Of mice".to_owned(),
            used_ms: Some(0),
            state: Vec::new(),
        };
        let line = describe_listed(&listed, Language::En, 120_000);
        assert_eq!(line, "Of mice, 2 min ago, terminal");
        let Entered { key, dropped, .. } = all.adopt(&owner, used(&chat, &listed.title, 1), &mut effects);
        assert_eq!((key.as_str(), dropped), ("c#1", None));
        assert_eq!(all.begin(&owner, used(&chat, "more", 2), &mut effects).key, key);
        assert_eq!(all.recent(&owner, "code", None)[0].title(Language::En), "Of mice");
        all.leave(&owner, &chat, "", 3, &mut effects);
        assert_eq!(all.begin(&owner, used(&chat, "x", 4), &mut effects).key, chat);
    }

    #[test]
    fn titles_are_cut_between_words() {
        assert_eq!(title("\n  one two \nthree"), "one two");
        let long = title(&"word ".repeat(40));
        assert!(
            long.ends_with("word...") && long.chars().count() <= MAX_TITLE_CHARS + 3,
            "{long}"
        );
    }
}
