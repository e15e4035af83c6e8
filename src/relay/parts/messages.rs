//! Messages that wait or are being answered, for those that are edited or deleted and for `/queue`; and the last message of each
//! person that had its turn, for `/retry`. All of it is forgotten with the process, except which messages its end interrupts.

use std::sync::Arc;

use std::hash::BuildHasher as _;

use smol_str::SmolStr;

use crate::access::{Author, PersonId};
use crate::adapter::{Chat, ChatId};
use crate::collections::BoundedCache;
use crate::store::{InboxKind, InboxSeq};
use crate::text::one_line;
use crate::wire::{MessageEvent, Scalar, SessionKey};

/// Messages that are remembered.
const MAX_MESSAGES: usize = 10_000;
/// People whose last message is remembered.
const MAX_LAST: usize = 1000;
/// Messages whose authors see that an answer is coming.
const MAX_AWAITED: usize = 1000;
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

/// Who wrote a message, in which chat, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatWriter(u64);

impl MessageKey {
    /// Whether the message has an id in its chat.
    pub fn is_known_by_id(self) -> bool {
        self.id.is_some()
    }

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
    /// Set if it waits.
    waiting: Option<WaitingMessage>,
}

/// What people are told of a message that waits.
#[derive(Debug)]
pub struct WaitingMessage {
    /// What it is about, in a few words.
    gist: String,
    by: Option<ChatWriter>,
}

/// A message as it came.
#[derive(Clone, Debug)]
pub struct MessageLine {
    pub kind: InboxKind,
    pub line: Arc<[u8]>,
}

/// The last message of a person that had its turn.
#[derive(Debug)]
struct LastMessage {
    chat: ChatId,
    /// None if it is too long to be remembered.
    message: Option<MessageLine>,
    id: Option<u64>,
    /// The newest row of their messages that had their turns.
    row: InboxSeq,
    /// The one before, in case this one is withdrawn before its agent runs.
    before: Option<(Option<MessageLine>, Option<u64>)>,
}

/// The messages that came lately.
#[derive(Debug)]
pub struct Messages {
    hasher: foldhash::quality::RandomState,
    known: BoundedCache<u64, KnownMessage>,
    rows: BoundedCache<InboxSeq, MessageRow>,
    last: BoundedCache<(SessionKey, SmolStr), LastMessage>,
    /// The platform and the id of each message that its author sees an answer coming to.
    awaited: BoundedCache<InboxSeq, (SmolStr, SmolStr)>,
    /// Messages whose turns the shutdown interrupted.
    interrupted: Vec<InboxSeq>,
}

impl Messages {
    pub fn new() -> Self {
        Self {
            hasher: foldhash::quality::RandomState::default(),
            known: BoundedCache::new(MAX_MESSAGES),
            rows: BoundedCache::new(MAX_MESSAGES),
            last: BoundedCache::new(MAX_LAST),
            awaited: BoundedCache::new(MAX_AWAITED),
            interrupted: Vec::new(),
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

    /// What is remembered of a message if it waits.
    pub fn waiting(&self, event: &MessageEvent) -> WaitingMessage {
        let source = &event.source;
        let chat = source.chat_id.as_ref().map_or("", Scalar::as_str);
        let user = source.user_id.as_ref().map(Scalar::as_str);
        WaitingMessage {
            gist: one_line(event.text(), GIST_CHARS),
            by: self.writer(source.platform.as_str(), chat, user),
        }
    }

    fn writer(&self, platform: &str, chat: &str, user: Option<&str>) -> Option<ChatWriter> {
        let user = user.filter(|user| !user.is_empty())?;
        Some(ChatWriter(self.hasher.hash_one((platform, chat, user))))
    }

    /// Whoever wrote the message that a chat's facts are of.
    pub fn writer_in(&self, Chat { id, facts }: &Chat) -> Option<ChatWriter> {
        self.writer(&id.platform, &id.chat, facts.user_id.as_deref())
    }

    /// Whether a message that waits was written by them, in their chat.
    pub fn is_by(&self, row: InboxSeq, writer: ChatWriter) -> bool {
        let waiting = self.rows.peek(&row).and_then(|row| row.waiting.as_ref());
        waiting.is_some_and(|message| message.by == Some(writer))
    }

    /// A message of an agent is committed as this row, and may wait.
    pub fn learn(
        &mut self,
        key: MessageKey,
        session: &SessionKey,
        row: InboxSeq,
        waiting: Option<WaitingMessage>,
    ) {
        let MessageKey { id, text } = key;
        if let Some(id) = id {
            let session = session.clone();
            self.known.insert(id, KnownMessage { session, row, text });
        }
        self.rows.insert(row, MessageRow { id, waiting });
    }

    /// What a row that waits is about, where nothing is known of it but its text: a handed-over item.
    pub fn learn_gist(&mut self, row: InboxSeq, text: &str) {
        if self.rows.peek(&row).is_none() {
            let gist = one_line(text, GIST_CHARS);
            let waiting = Some(WaitingMessage { gist, by: None });
            self.rows.insert(row, MessageRow { id: None, waiting });
        }
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

    /// A message of this kind has a row. Whoever sent an interaction sees that an answer is coming, until the row ends.
    pub fn await_answer(&mut self, row: InboxSeq, kind: InboxKind, chat: &Chat) {
        if let (InboxKind::Forward, Some(message)) = (kind, &chat.facts.message_id) {
            let platform = chat.id.platform.clone();
            self.awaited.insert(row, (platform, message.clone()));
        }
    }

    /// A row ends, or its message is answered by something else. Returns the platform and the id of its message, if its author sees
    /// that an answer is coming.
    pub fn settle(&mut self, row: InboxSeq) -> Option<(SmolStr, SmolStr)> {
        self.awaited.remove(&row)
    }

    /// The message that an edit or a deletion is about.
    pub fn find(&self, key: MessageKey) -> Option<&KnownMessage> {
        self.known.peek(&key.id?)
    }

    /// Whether it is known what a row is: a message, or a handed-over item that waited.
    pub fn knows(&self, row: InboxSeq) -> bool {
        self.rows.peek(&row).is_some()
    }

    /// What a waiting message is about.
    pub fn gist(&self, row: InboxSeq) -> Option<&str> {
        let waiting = self.rows.peek(&row)?.waiting.as_ref();
        waiting.map(|message| message.gist.as_str())
    }

    /// A message has its turn, or was handed to the one that runs: it is the last of its author, unless it had its turn before and a
    /// later one had it since.
    pub fn set_last(
        &mut self,
        session: &SessionKey,
        (chat, author): (&ChatId, &Author),
        key: MessageKey,
        (row, attempt): (InboxSeq, u32),
        message: MessageLine,
    ) {
        let person = self.person(session, author);
        let Some(last) = self.last.get_mut(&person) else {
            let last = LastMessage {
                chat: chat.clone(),
                message: remembered(message),
                id: key.id,
                row,
                before: None,
            };
            self.last.insert(person, last);
            return;
        };
        if attempt > 1 && last.row >= row {
            return;
        }
        let before = (last.message.take(), last.id);
        if before.1.is_none() || before.1 != key.id {
            last.before = Some(before);
        }
        if last.chat != *chat {
            last.chat = chat.clone();
        }
        (last.message, last.id, last.row) = (remembered(message), key.id, last.row.max(row));
    }

    /// The message of a row was withdrawn before its agent ran: the last one is the one before.
    pub fn unset_last(&mut self, session: &SessionKey, author: &Author, row: InboxSeq) {
        let id = self.rows.peek(&row).and_then(|row| row.id);
        let person = self.person(session, author);
        if let Some(last) = self.last.get_mut(&person)
            && id.is_some()
            && last.id == id
        {
            (last.message, last.id) = last.before.take().unwrap_or_default();
        }
    }

    /// A message was edited: it is the last one as it says now, if it was that before.
    pub fn edit_last(
        &mut self,
        session: &SessionKey,
        author: &Author,
        key: MessageKey,
        message: MessageLine,
    ) {
        let person = self.person(session, author);
        if let Some(last) = self.last.get_mut(&person)
            && last.id.is_some()
            && last.id == key.id
        {
            last.message = remembered(message);
        }
    }

    /// The shutdown interrupted the turn of a message; returns all of them.
    pub fn interrupted(&mut self, row: InboxSeq) -> impl Iterator<Item = InboxSeq> {
        self.interrupted.push(row);
        self.interrupted.iter().copied()
    }

    /// The last message of a person in a session.
    pub fn last(&mut self, session: &SessionKey, author: &Author) -> Option<MessageLine> {
        let person = self.person(session, author);
        self.last.get(&person)?.message.clone()
    }

    /// What the last message of a person is remembered by: the id of theirs that the newest one has, else the one that they write with.
    fn person(&self, session: &SessionKey, author: &Author) -> (SessionKey, SmolStr) {
        let key = |person: &PersonId| (session.clone(), SmolStr::from(person.user()));
        match author.people() {
            [] => (session.clone(), SmolStr::default()),
            [only] => key(only),
            people => {
                let row = |key: &(SessionKey, SmolStr)| self.last.peek(key).map(|last| last.row);
                let known = people.iter().map(key).filter(|key| row(key).is_some());
                known.max_by_key(row).unwrap_or_else(|| key(&people[0]))
            }
        }
    }

    /// The last message of a person in any session of the chat.
    pub fn last_in(&self, chat: &ChatId, author: &Author) -> Option<MessageLine> {
        let is_theirs = |by: &str| author.people().iter().any(|person| person.user() == by);
        let theirs = self.last.recent_keys().filter(|(_, by)| is_theirs(by));
        let theirs = theirs.filter_map(|person| self.last.peek(person));
        let is_there =
            |last: &&LastMessage| last.chat == *chat && (last.message.is_some() || last.id.is_some());
        let newest = theirs.filter(is_there).max_by_key(|last| last.row)?;
        newest.message.clone()
    }
}

fn remembered(message: MessageLine) -> Option<MessageLine> {
    (message.line.len() <= MAX_LAST_BYTES).then_some(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::access::Ann;
    use crate::wire::{NoAliases, OwnPlatforms, Platform, WhatsAppAliases};

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
        messages.learn(
            edit,
            &session,
            InboxSeq(9),
            Some(messages.waiting(&event("1", "b"))),
        );
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
    fn a_row_is_known_by_its_text_unless_more_is_known_of_it() {
        let mut messages = Messages::new();
        let key = messages.key(&event("1", "a"));
        messages.learn(
            key,
            &SessionKey::from_text("s"),
            InboxSeq(1),
            Some(messages.waiting(&event("1", "a"))),
        );
        messages.learn_gist(InboxSeq(1), "other");
        messages.learn_gist(InboxSeq(2), "do\nthis");
        let gists = [1, 2, 3].map(|row| messages.gist(InboxSeq(row)));
        assert_eq!(gists, [Some("a"), Some("do this"), None]);
    }

    /// The author of a message on a platform.
    fn on(platform: &str, user: &str, aliases: &dyn WhatsAppAliases) -> Author {
        let platform = Platform::named(platform, &OwnPlatforms::default());
        Author::new(&platform, [user.into()], [], false, aliases)
    }

    fn author(user: &str) -> Author {
        on("discord", user, &NoAliases)
    }

    fn chat(id: &str) -> ChatId {
        ChatId {
            platform: "discord".into(),
            chat: id.into(),
        }
    }

    fn line(text: &str) -> MessageLine {
        MessageLine {
            kind: InboxKind::Inbound,
            line: text.as_bytes().into(),
        }
    }

    #[test]
    fn the_last_message_is_that_of_the_person_unless_it_is_too_long() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let key = messages.key(&event("1", "a"));
        let long = "x".repeat(MAX_LAST_BYTES + 1);
        for (row, text, last) in [
            (1, "line", Some("line")),
            (2, &long, None),
            (3, "more", Some("more")),
        ] {
            messages.set_last(
                &session,
                (&chat("c"), &author("u")),
                key,
                (InboxSeq(row), 1),
                line(text),
            );
            let found = messages.last(&session, &author("u")).map(|last| last.line);
            assert_eq!(found.as_deref(), last.map(str::as_bytes));
        }
        assert!(messages.last(&session, &author("v")).is_none());
        assert!(messages.last(&SessionKey::from_text("t"), &author("u")).is_none());
    }

    #[test]
    fn the_last_message_is_that_of_the_person_whichever_of_their_ids_they_write_with() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let people = Ann::SPELLINGS.map(|id| on("whatsapp", id, &Ann));
        // Each was also somebody of their own before they were known to be one person.
        let before = ["491701111", "9000@lid"].map(|id| on("whatsapp", id, &NoAliases));
        for (row, writer) in (1..).zip(before.iter().chain(&people).chain(people.iter().rev())) {
            let key = messages.key(&event(&row.to_string(), "a"));
            let text = row.to_string();
            messages.set_last(
                &session,
                (&chat("c"), writer),
                key,
                (InboxSeq(row), 1),
                line(&text),
            );
            for reader in people.iter().filter(|_| row > 1) {
                let last = messages.last(&session, reader).unwrap().line;
                assert_eq!(*last, *text.as_bytes(), "{writer:?} {reader:?}");
            }
        }
        let other = on("whatsapp", "9000", &NoAliases);
        assert!(messages.last(&session, &other).is_none());
    }

    #[test]
    fn an_older_message_that_has_its_turn_again_is_not_the_last_and_one_that_waited_longer_is() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let keys = ["1", "2", "3"].map(|id| messages.key(&event(id, "a")));
        // Rows, how often each had its turn, and the last message after that.
        for (id, row, attempt, last) in [
            (0, 1, 2, 0),
            (1, 5, 1, 1),
            (0, 1, 3, 1),
            (2, 4, 1, 2),
            (1, 5, 2, 2),
            (0, 9, 2, 0),
        ] {
            let text = id.to_string();
            messages.set_last(
                &session,
                (&chat("c"), &author("u")),
                keys[id],
                (InboxSeq(row), attempt),
                line(&text),
            );
            let found = messages.last(&session, &author("u")).unwrap().line;
            assert_eq!(*found, *last.to_string().as_bytes(), "{id} {row} {attempt}");
        }
    }

    #[test]
    fn a_message_that_is_withdrawn_before_it_runs_leaves_the_one_before_as_the_last() {
        let mut messages = Messages::new();
        let session = SessionKey::from_text("s");
        let keys = ["1", "2", "2"].map(|id| messages.key(&event(id, "a")));
        for (row, key) in (1..).zip(keys) {
            messages.learn(key, &session, InboxSeq(row), None);
            let turn = (InboxSeq(row), 1);
            messages.set_last(
                &session,
                (&chat("c"), &author("u")),
                key,
                turn,
                line(&row.to_string()),
            );
        }
        let mut last = |row| {
            messages.unset_last(&session, &author("u"), InboxSeq(row));
            messages
                .last(&session, &author("u"))
                .map(|last| last.line.to_vec())
        };
        assert_eq!(last(9).as_deref(), Some(&b"3"[..]), "it is not known");
        assert_eq!(last(3).as_deref(), Some(&b"1"[..]));
        assert_eq!(last(1), None);
    }

    #[test]
    fn the_last_message_in_a_chat_is_the_newest_of_that_person_in_any_session() {
        let mut messages = Messages::new();
        let long = "x".repeat(MAX_LAST_BYTES + 1);
        let key = |messages: &Messages, row: i64| messages.key(&event(&row.to_string(), "a"));
        for (row, session, place, user, text, last) in [
            (3, "s3", "c", "u", "third", Some("third")),
            (1, "s1", "c", "u", "first", Some("third")),
            (4, "s4", "c", "v", "of another", Some("third")),
            (5, "s5", "elsewhere", "u", "there", Some("third")),
            (6, "s6", "c", "u", &long, None),
            (7, "s7", "c", "u", "seventh", Some("seventh")),
        ] {
            let (session, key) = (SessionKey::from_text(session), key(&messages, row));
            messages.learn(key, &session, InboxSeq(row), None);
            let at = (&chat(place), &author(user));
            messages.set_last(&session, at, key, (InboxSeq(row), 1), line(text));
            let found = messages.last_in(&chat("c"), &author("u")).map(|last| last.line);
            assert_eq!(found.as_deref(), last.map(str::as_bytes), "{row}");
            if row == 6 {
                messages.unset_last(&session, &author(user), InboxSeq(row));
                let found = messages.last_in(&chat("c"), &author("u")).unwrap().line;
                assert_eq!(*found, *b"third", "that one was withdrawn");
            }
        }
    }

    #[test]
    fn only_whoever_sent_an_interaction_sees_that_an_answer_is_coming() {
        let mut messages = Messages::new();
        let mut chat = Chat::from(chat("c"));
        chat.facts.message_id = Some("7".into());
        messages.await_answer(InboxSeq(1), InboxKind::Forward, &chat);
        messages.await_answer(InboxSeq(2), InboxKind::Inbound, &chat);
        assert_eq!(messages.settle(InboxSeq(1)), Some(("discord".into(), "7".into())));
        assert_eq!(
            (messages.settle(InboxSeq(1)), messages.settle(InboxSeq(2))),
            (None, None)
        );
    }

    #[test]
    fn an_edit_changes_the_last_message_and_makes_no_other_the_last() {
        let mut messages = Messages::new();
        let (session, nameless) = (SessionKey::from_text("s"), messages.key(&event("", "a")));
        let key = messages.key(&event("2", "a"));
        for (last, edited, is_changed) in [
            (key, messages.key(&event("2", "b")), true),
            (key, messages.key(&event("1", "b")), false),
            (nameless, nameless, false),
        ] {
            messages.set_last(
                &session,
                (&chat("c"), &author("u")),
                last,
                (InboxSeq(1), 1),
                line("a"),
            );
            messages.edit_last(&session, &author("v"), edited, line("c"));
            messages.edit_last(&session, &author("u"), edited, line("b"));
            let found = messages.last(&session, &author("u")).unwrap().line;
            assert_eq!(*found, *(if is_changed { b"b" } else { b"a" }));
        }
    }
}
