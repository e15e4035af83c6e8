//! Threads that the connector opened by itself. Only those are renamed, and only once: a thread that a person opened or
//! named keeps its name.

use serde_json::{Map, Value};

use super::chats::{ChatFacts, ChatId};
use crate::collections::BoundedCache;
use crate::text::truncate;
use crate::wire::{Action, MessageEvent, Platform, Scalar, SessionSource};

/// Longest name of a thread, in characters.
const MAX_THREAD_NAME: usize = 100;

#[derive(Clone, Debug)]
struct ThreadEntry {
    /// The chat that it was opened in.
    parent: String,
    /// The name that the connector gave it, if known.
    name: Option<String>,
    renamed: bool,
}

/// Threads that the connector opened, by platform and thread id. Bounded: the least recently used one is dropped first.
#[derive(Debug)]
pub struct ThreadRegistry(BoundedCache<ChatId, ThreadEntry>);

impl ThreadRegistry {
    /// Remembers up to `capacity` threads.
    pub fn new(capacity: usize) -> Self {
        Self(BoundedCache::new(capacity))
    }

    /// Registers a message's thread if the connector opened it.
    pub fn learn(&mut self, source: &SessionSource) {
        let text = |field: &Option<Scalar>| field.as_ref().map(|text| text.as_str().to_owned());
        let Some(thread) = source.thread().filter(|_| source.auto_thread_created) else {
            return;
        };
        let parent = text(&source.parent_chat_id)
            .or_else(|| text(&source.chat_id))
            .unwrap_or_default();
        let name = text(&source.auto_thread_initial_name);
        self.opened(source.platform.as_str(), thread.as_str().to_owned(), parent, name);
    }

    /// Registers a thread that the connector opened for an op.
    pub fn opened(&mut self, platform: &str, thread: String, parent: String, name: Option<String>) {
        let id = ChatId {
            platform: platform.into(),
            chat: thread.into(),
        };
        if self.0.get(&id).is_none() {
            let renamed = false;
            self.0.insert(
                id,
                ThreadEntry {
                    parent,
                    name,
                    renamed,
                },
            );
        }
    }

    /// The op that renames a thread: the first time, if the connector opened it.
    pub(super) fn rename(&mut self, chat: &ChatId, facts: &ChatFacts, title: &str) -> Option<Action> {
        let thread_id = facts.thread_id.clone()?;
        let id = ChatId {
            platform: chat.platform.clone(),
            chat: thread_id.clone(),
        };
        let thread = self.0.get_mut(&id).filter(|thread| !thread.renamed)?;
        let thread_name = thread_name(title).filter(|name| thread.name.as_deref() != Some(name))?;
        thread.renamed = true;
        let chat_id = if thread.parent.is_empty() {
            thread_id.as_str()
        } else {
            &thread.parent
        };
        Some(Action::ThreadRename {
            chat_id: chat_id.into(),
            message_id: thread_id.clone(),
            thread_name,
            metadata: facts.tags(),
            only_if_connector_created: thread.name.is_none().then_some(true),
            only_if_current_name: thread.name.clone(),
        })
    }
}

/// The op that opens a thread for a message; `unnamed` is its name when nothing of the message can be. A project comes first.
pub(super) fn open_thread(event: &MessageEvent, project: Option<&str>, unnamed: &str) -> Action {
    let text = |field: &Option<Scalar>| {
        field
            .as_ref()
            .map(|text| text.as_str().to_owned())
            .unwrap_or_default()
    };
    let name = thread_name(event.text()).or_else(|| thread_name(&text(&event.source.user_name)));
    let name = name.unwrap_or_else(|| unnamed.to_owned());
    let name = match project {
        Some(project) => thread_name(&format!("{project}: {name}")).unwrap_or(name),
        None => name,
    };
    Action::ThreadCreate {
        chat_id: text(&event.source.chat_id).into(),
        thread_name: name,
        metadata: ChatFacts::from_source(&event.source).tags(),
        message_id: event.message_id.as_ref().map(Scalar::to_smolstr),
    }
}

/// Makes the source of a message in a group that of one in a thread of the group. On Discord a thread is a chat of its own.
pub fn move_to_thread(source: &mut Map<String, Value>, platform: &Platform, thread: &str) {
    source.insert("thread_id".to_owned(), thread.into());
    if *platform == Platform::DISCORD {
        let group = source.insert("chat_id".to_owned(), thread.into());
        source.insert("parent_chat_id".to_owned(), group.unwrap_or_default());
        source.insert("chat_type".to_owned(), "thread".into());
    }
}

/// A text as a thread's name: one line, truncated; `None` when it is blank.
fn thread_name(text: &str) -> Option<String> {
    let words: Vec<&str> = text
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let name = words.join(" ");
    let name = truncate(&name, MAX_THREAD_NAME).trim_end();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat() -> ChatId {
        ChatId {
            platform: "discord".into(),
            chat: "c1".into(),
        }
    }

    fn facts(thread: &str) -> ChatFacts {
        ChatFacts {
            thread_id: Some(thread.into()),
            scope_id: Some("g1".into()),
            ..ChatFacts::default()
        }
    }

    #[test]
    fn only_threads_of_the_connector_are_renamed_and_only_once() {
        let mut threads = ThreadRegistry::new(8);
        assert_eq!(threads.rename(&chat(), &facts("t1"), "Plans"), None);
        threads.opened(
            "discord",
            "t1".to_owned(),
            "c1".to_owned(),
            Some("hello there".to_owned()),
        );
        threads.opened("discord", "t2".to_owned(), "c1".to_owned(), None);
        let renamed = threads.rename(&chat(), &facts("t1"), " Plans\n\tfor\u{7} May ");
        assert_eq!(
            serde_json::to_value(renamed).unwrap(),
            serde_json::json!({
                "op": "thread_rename", "chat_id": "c1", "message_id": "t1", "thread_name": "Plans for May",
                "metadata": {"scope_id": "g1", "thread_id": "t1"}, "only_if_current_name": "hello there",
            })
        );
        assert_eq!(threads.rename(&chat(), &facts("t1"), "More"), None);
        let sibling = threads.rename(&chat(), &facts("t2"), &"x".repeat(300));
        let sibling = serde_json::to_value(sibling).unwrap();
        assert_eq!(sibling["only_if_connector_created"], true);
        assert_eq!(sibling["thread_name"].as_str().unwrap().len(), MAX_THREAD_NAME);
    }

    #[test]
    fn the_least_recently_used_thread_is_dropped_first() {
        let mut threads = ThreadRegistry::new(2);
        for thread in ["a", "b", "c"] {
            threads.opened("discord", thread.to_owned(), "c1".to_owned(), None);
        }
        assert!(threads.rename(&chat(), &facts("a"), "x").is_none());
        assert!(threads.rename(&chat(), &facts("c"), "x").is_some());
    }
}
