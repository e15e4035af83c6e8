//! Messages that wait or are being answered, for those that are edited or deleted and for `/queue`; and the last message of each
//! person, for `/retry`. All of it is forgotten with the process.

use std::sync::Arc;

use std::hash::BuildHasher as _;

use smol_str::SmolStr;

use crate::adapter::ChatFacts;
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

/// What a message is known by.
#[derive(Clone, Copy, Debug)]
pub struct MessageKey {
    /// Its chat and its id there, as a number, if it has one.
    id: Option<u64>,
    /// Its text, as a number.
    text: u64,
}

impl MessageKey {
    /// Whether an edit changes what a message says.
    pub fn changes(self, known: &KnownMessage) -> bool {
        self.text != known.text
    }
}

/// A message, as far as an edit of it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    pub session: SessionKey,
    /// Its row, or that of its last edit.
    pub row: InboxSeq,
    text: u64,
}

/// The row of a message.
#[derive(Debug)]
struct MessageRow {
    id: Option<u64>,
    /// What it is about, if it waits.
    gist: Option<String>,
}

/// What a waiting message is about, in a few words.
pub fn gist(event: &MessageEvent) -> String {
    one_line(event.text(), GIST_CHARS)
}

/// The last message of a person.
#[derive(Clone, Debug)]
pub struct LastMessage {
    pub kind: InboxKind,
    pub line: Arc<[u8]>,
}

/// The messages that came lately.
#[derive(Debug)]
pub struct Messages {
    hasher: foldhash::quality::RandomState,
    known: BoundedCache<u64, KnownMessage>,
    rows: BoundedCache<InboxSeq, MessageRow>,
    last: BoundedCache<(SessionKey, SmolStr), LastMessage>,
}

impl Messages {
    pub fn new() -> Self {
        Self {
            hasher: foldhash::quality::RandomState::default(),
            known: BoundedCache::new(MAX_MESSAGES),
            rows: BoundedCache::new(MAX_MESSAGES),
            last: BoundedCache::new(MAX_LAST),
        }
    }

    /// What a message is known by here.
    pub fn key(&self, event: &MessageEvent) -> MessageKey {
        let message = event.message_id.as_ref().map(Scalar::as_str);
        let source = &event.source;
        let chat = source.chat_id.as_ref().map_or("", Scalar::as_str);
        MessageKey {
            id: message
                .filter(|id| !id.is_empty())
                .map(|id| self.hasher.hash_one((source.platform.as_str(), chat, id))),
            text: self.hasher.hash_one(event.text()),
        }
    }

    /// A message of an agent is committed as this row; `gist` is what it is about, if it waits.
    pub fn learn(&mut self, key: MessageKey, session: &SessionKey, row: InboxSeq, gist: Option<String>) {
        let MessageKey { id, text } = key;
        if let Some(id) = id {
            let session = session.clone();
            self.known.insert(id, KnownMessage { session, row, text });
        }
        self.rows.insert(row, MessageRow { id, gist });
    }

    /// A row is over: an edit of its message changes nothing any more.
    pub fn forget(&mut self, row: InboxSeq) {
        let ended = self.rows.remove(&row);
        if let Some(id) = ended.and_then(|row| row.id)
            && self.known.peek(&id).is_some_and(|known| known.row == row)
        {
            self.known.remove(&id);
        }
    }

    /// The message that an edit or a deletion is about.
    pub fn find(&self, key: MessageKey) -> Option<&KnownMessage> {
        self.known.peek(&key.id?)
    }

    /// What a waiting message is about.
    pub fn gist(&self, row: InboxSeq) -> Option<&str> {
        self.rows.peek(&row)?.gist.as_deref()
    }

    /// Somebody wrote a message for the agent.
    pub fn set_last(&mut self, session: &SessionKey, facts: &ChatFacts, kind: InboxKind, line: &Arc<[u8]>) {
        if line.len() > MAX_LAST_BYTES {
            return;
        }
        let person = person(session, facts);
        if let Some(last) = self.last.get_mut(&person) {
            last.kind = kind;
            last.line = Arc::clone(line);
        } else {
            let line = Arc::clone(line);
            self.last.insert(person, LastMessage { kind, line });
        }
    }

    /// The last message of the person who wrote last in a chat.
    pub fn last(&mut self, session: &SessionKey, facts: &ChatFacts) -> Option<LastMessage> {
        self.last.get(&person(session, facts)).cloned()
    }
}

fn person(session: &SessionKey, facts: &ChatFacts) -> (SessionKey, SmolStr) {
    (session.clone(), facts.user_id.clone().unwrap_or_default())
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
    fn an_edit_finds_the_newest_row_of_its_message_until_that_is_over() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let (first, edit) = (messages.key(&event("1", "a")), messages.key(&event("1", "b")));
        assert_eq!(messages.find(edit), None);
        messages.learn(first, &session, InboxSeq(7), None);
        let known = messages.find(edit).unwrap();
        assert!(known.row == InboxSeq(7) && edit.changes(known) && !first.changes(known));
        messages.learn(edit, &session, InboxSeq(9), Some(gist(&event("1", "b"))));
        assert_eq!(messages.find(first).unwrap().row, InboxSeq(9));
        assert_eq!(
            (messages.gist(InboxSeq(7)), messages.gist(InboxSeq(9))),
            (None, Some("b"))
        );
        assert_eq!(messages.find(messages.key(&event("", "b"))), None);
        assert_eq!(messages.find(messages.key(&event("2", "b"))), None);
        messages.forget(InboxSeq(7));
        assert_eq!(messages.find(first).unwrap().row, InboxSeq(9));
        messages.forget(InboxSeq(9));
        assert_eq!((messages.find(first), messages.gist(InboxSeq(9))), (None, None));
        assert!(messages.known.is_empty() && messages.rows.is_empty());
    }

    #[test]
    fn the_last_message_is_that_of_the_person() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let facts = |user: &str| ChatFacts {
            user_id: Some(user.into()),
            ..ChatFacts::default()
        };
        messages.set_last(&session, &facts("u"), InboxKind::Inbound, &b"line"[..].into());
        messages.set_last(
            &session,
            &facts("u"),
            InboxKind::Inbound,
            &vec![b'x'; MAX_LAST_BYTES + 1].into(),
        );
        assert_eq!(
            messages.last(&session, &facts("u")).unwrap().line[..],
            b"line"[..]
        );
        assert!(messages.last(&session, &facts("v")).is_none());
    }
}
