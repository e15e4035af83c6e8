//! Threads that messages in groups start: which messages wait for their thread, and which thread each of them got.
//!
//! A message waits outside the journal and is not acknowledged meanwhile, so that it has one session from the first commit on.
//! Whatever is about the same message later, an edit or another delivery, follows it. All of it is forgotten with the process.

use std::collections::HashMap;
use std::sync::Arc;

use crate::adapter::ChatId;
use crate::collections::BoundedCache;
use crate::relay::effects::HeldMessage;
use crate::wire::{MessageEvent, Scalar};

/// Messages that may wait for threads; further ones are answered in the group.
const MAX_WAITING: usize = 256;
/// Deliveries of one message that wait with it.
const MAX_REPEATS: usize = 16;
/// Messages whose thread is remembered.
const MAX_OPENED: usize = 10_000;

/// Where a message belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadPlace {
    /// Where it was written.
    AsWritten,
    /// In this thread, which was opened for it.
    Thread(String),
    /// In a thread that is being opened for it.
    Awaited(Arc<str>),
    /// A thread may be opened for it, under this key.
    Unknown(Arc<str>),
}

/// The threads of messages in groups.
pub struct GroupThreads {
    is_on: bool,
    waiting: HashMap<Arc<str>, Vec<HeldMessage>>,
    /// The thread of each message; none where it could not be opened.
    opened: BoundedCache<Arc<str>, Option<String>>,
    /// The group that each thread was opened in.
    parents: BoundedCache<ChatId, String>,
}

impl GroupThreads {
    pub fn new(is_on: bool) -> Self {
        Self {
            is_on,
            waiting: HashMap::new(),
            opened: BoundedCache::new(MAX_OPENED),
            parents: BoundedCache::new(MAX_OPENED),
        }
    }

    /// Messages that wait.
    pub fn outstanding(&self) -> usize {
        self.waiting.len()
    }

    /// Where a message belongs, or what is about one.
    pub fn place(&self, event: &MessageEvent) -> ThreadPlace {
        let Some(key) = self.is_on.then(|| message_key(event)).flatten() else {
            return ThreadPlace::AsWritten;
        };
        if let Some(thread) = self.opened.peek(&key) {
            return thread.clone().map_or(ThreadPlace::AsWritten, ThreadPlace::Thread);
        }
        match self.waiting.get(&key) {
            Some(waiting) if waiting.len() < MAX_REPEATS => ThreadPlace::Awaited(key),
            None if self.waiting.len() < MAX_WAITING => ThreadPlace::Unknown(key),
            Some(_) | None => ThreadPlace::AsWritten,
        }
    }

    /// Holds a message until its thread is there.
    pub fn hold(&mut self, key: Arc<str>, message: HeldMessage) {
        self.waiting.entry(key).or_default().push(message);
    }

    /// How many messages wait that count under the same limits: those of the same author or, for a bot's, those of bots in its group.
    pub fn alike(&self, event: &MessageEvent) -> u64 {
        let (own, by) = (&event.source, event.source.user_id.as_ref());
        let is_alike = |held: &&HeldMessage| {
            let source = &held.event.source;
            let is_theirs = by.is_some() && source.user_id.as_ref() == by;
            let are_bots = own.is_bot && source.is_bot && source.chat_id == own.chat_id;
            source.platform == own.platform && (is_theirs || are_bots)
        };
        let first = self.waiting.values().filter_map(|waiting| waiting.first());
        first.filter(is_alike).count() as u64
    }

    /// The message that a thread is opened for.
    pub fn first(&self, key: &str) -> Option<&MessageEvent> {
        self.waiting.get(key)?.first().map(|held| &*held.event)
    }

    /// The thread of a message is there, or cannot be opened; returns what waits for it.
    pub fn opened(&mut self, key: Arc<str>, thread: Option<String>) -> Vec<HeldMessage> {
        let held = self.waiting.remove(&key).unwrap_or_default();
        if let (Some(thread), Some(first)) = (&thread, held.first()) {
            let ChatId { platform, chat } = ChatId::from_source(&first.event.source);
            let thread = thread.clone();
            self.parents.insert(
                ChatId {
                    platform,
                    chat: thread.into(),
                },
                chat.into(),
            );
        }
        self.opened.insert(key, thread);
        held
    }

    /// The group that a thread was opened in, if it was opened here.
    pub fn parent(&self, platform: &str, thread: &str) -> Option<&str> {
        let id = ChatId {
            platform: platform.into(),
            chat: thread.into(),
        };
        self.parents.peek(&id).map(String::as_str)
    }
}

/// What names a message in a group, outside threads.
fn message_key(event: &MessageEvent) -> Option<Arc<str>> {
    let source = &event.source;
    let chat_type = source.chat_type.as_ref().map(Scalar::as_str);
    let is_outside = source.thread().is_none() && source.prospective_thread().is_none();
    let id = event.message_id.as_ref().map(Scalar::as_str)?;
    let is_named = matches!(chat_type, Some("group" | "channel")) && is_outside && !id.is_empty();
    is_named.then(|| format!("{}\0{id}", ChatId::from_source(source).key()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(chat_type: &str, id: &str, thread: Option<&str>) -> MessageEvent {
        let event = json!({
            "text": "hi", "message_id": id,
            "source": {"platform": "discord", "chat_id": "c", "chat_type": chat_type, "thread_id": thread},
        });
        MessageEvent::from_value(&event).unwrap()
    }

    #[test]
    fn only_messages_of_groups_outside_threads_may_get_one() {
        let threads = GroupThreads::new(true);
        for (chat_type, id, thread, may) in [
            ("group", "1", None, true),
            ("channel", "1", None, true),
            ("group", "", None, false),
            ("group", "1", Some("t"), false),
            ("group", "1", Some(""), true),
            ("thread", "1", None, false),
            ("dm", "1", None, false),
        ] {
            let event = event(chat_type, id, thread);
            let place = threads.place(&event);
            assert_eq!(matches!(place, ThreadPlace::Unknown(_)), may, "{chat_type} {id}");
            assert_eq!(GroupThreads::new(false).place(&event), ThreadPlace::AsWritten);
        }
    }

    #[test]
    fn a_message_has_one_thread_or_none() {
        let mut threads = GroupThreads::new(true);
        for (id, thread, place) in [
            ("1", Some("t"), ThreadPlace::Thread("t".to_owned())),
            ("2", None, ThreadPlace::AsWritten),
        ] {
            let event = event("group", id, None);
            let ThreadPlace::Unknown(key) = threads.place(&event) else {
                panic!("it is new");
            };
            threads.opened(key, thread.map(str::to_owned));
            assert_eq!(threads.place(&event), place);
        }
    }
}
