//! Messages by their ids on the platform, for those that are edited or deleted later; what waits, in a few words; and the last
//! message of each person, for `/retry`. All of it is forgotten with the process.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::adapter::{ChatFacts, ChatId};
use crate::collections::BoundedCache;
use crate::store::{InboxKind, InboxSeq};
use crate::text::one_line;
use crate::wire::{MessageEvent, Scalar, SessionKey};

/// Messages that are remembered.
const MAX_MESSAGES: usize = 10_000;
/// People whose last message is remembered.
const MAX_LAST: usize = 1000;
/// The longest last message that is remembered, in bytes.
const MAX_LAST_BYTES: usize = 64 * 1024;
/// Characters that show what a message is about.
const GIST_CHARS: usize = 60;

/// A message, as far as an edit of it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    pub session: SessionKey,
    /// Its row, or that of its last edit.
    pub row: InboxSeq,
    /// Its text, as a number.
    text: u64,
}

/// The last message of a person.
#[derive(Clone, Debug)]
pub struct LastMessage {
    pub kind: InboxKind,
    pub line: Vec<u8>,
}

/// The messages that came lately.
#[derive(Debug)]
pub struct Messages {
    known: BoundedCache<String, KnownMessage>,
    gists: BoundedCache<InboxSeq, String>,
    last: BoundedCache<(SessionKey, String), LastMessage>,
}

impl Messages {
    pub fn new() -> Self {
        Self {
            known: BoundedCache::new(MAX_MESSAGES),
            gists: BoundedCache::new(MAX_MESSAGES),
            last: BoundedCache::new(MAX_LAST),
        }
    }

    /// A message of an agent is committed as this row.
    pub fn learn(&mut self, key: MessageKey, session: &SessionKey, row: InboxSeq) {
        self.gists.insert(row, key.gist);
        if let Some(id) = key.id {
            let known = KnownMessage {
                session: session.clone(),
                row,
                text: key.text,
            };
            self.known.insert(id, known);
        }
    }

    /// The message that an edit or a deletion is about.
    pub fn find(&self, key: &MessageKey) -> Option<&KnownMessage> {
        self.known.peek(key.id.as_deref()?)
    }

    /// What a waiting message is about.
    pub fn gist(&self, row: InboxSeq) -> Option<&str> {
        self.gists.peek(&row).map(String::as_str)
    }

    /// Somebody wrote a message for the agent.
    pub fn set_last(&mut self, session: &SessionKey, facts: &ChatFacts, kind: InboxKind, line: &[u8]) {
        if line.len() <= MAX_LAST_BYTES {
            let last = LastMessage {
                kind,
                line: line.to_vec(),
            };
            self.last.insert(person(session, facts), last);
        }
    }

    /// The last message of the person who wrote last in a chat.
    pub fn last(&mut self, session: &SessionKey, facts: &ChatFacts) -> Option<LastMessage> {
        self.last.get(&person(session, facts)).cloned()
    }
}

fn person(session: &SessionKey, facts: &ChatFacts) -> (SessionKey, String) {
    (session.clone(), facts.user_id.clone().unwrap_or_default())
}

/// What a message is known by.
#[derive(Clone, Debug)]
pub struct MessageKey {
    /// Its id in its chat, if it has one.
    id: Option<String>,
    text: u64,
    gist: String,
}

impl MessageKey {
    pub fn of(event: &MessageEvent) -> Self {
        let message = event.message_id.as_ref().map(Scalar::as_str);
        let message = message.filter(|id| !id.is_empty());
        let mut hasher = DefaultHasher::new();
        event.text().hash(&mut hasher);
        Self {
            id: message.map(|id| format!("{}\0{id}", ChatId::from_source(&event.source).key())),
            text: hasher.finish(),
            gist: one_line(event.text(), GIST_CHARS),
        }
    }

    /// Whether an edit changes what a message says.
    pub fn changes(&self, known: &KnownMessage) -> bool {
        self.text != known.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(id: &str, text: &str) -> MessageEvent {
        let event = json!({
            "text": text, "message_id": id, "source": {"platform": "discord", "chat_id": "c", "user_id": "u"},
        });
        MessageEvent::from_value(&event).unwrap()
    }

    #[test]
    fn an_edit_finds_the_newest_row_of_its_message() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let (first, edit) = (MessageKey::of(&event("1", "a")), MessageKey::of(&event("1", "b")));
        assert_eq!(messages.find(&edit), None);
        messages.learn(first.clone(), &session, InboxSeq(7));
        let known = messages.find(&edit).unwrap();
        assert!(known.row == InboxSeq(7) && edit.changes(known) && !first.changes(known));
        messages.learn(edit.clone(), &session, InboxSeq(9));
        assert_eq!(messages.find(&first).unwrap().row, InboxSeq(9));
        assert_eq!(messages.gist(InboxSeq(9)), Some("b"));
        assert_eq!(messages.find(&MessageKey::of(&event("", "b"))), None);
    }

    #[test]
    fn the_last_message_is_that_of_the_person() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let facts = |user: &str| ChatFacts {
            user_id: Some(user.to_owned()),
            ..ChatFacts::default()
        };
        messages.set_last(&session, &facts("u"), InboxKind::Inbound, b"line");
        messages.set_last(
            &session,
            &facts("u"),
            InboxKind::Inbound,
            &vec![b'x'; MAX_LAST_BYTES + 1],
        );
        assert_eq!(messages.last(&session, &facts("u")).unwrap().line, b"line");
        assert!(messages.last(&session, &facts("v")).is_none());
    }
}
