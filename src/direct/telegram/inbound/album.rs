//! Albums: messages that belong together and become one event. Only the key of an album and Telegram's limit of items are
//! about Telegram.

use std::time::Duration;

use serde_json::{Value, json};

use super::update::IncomingMessage;

/// Items of an album; Telegram's own limit.
pub(super) const MAX_ITEMS: usize = 10;

/// Names an album: its chat, and its id there.
pub(super) type AlbumKey = (i64, String);

/// An album that may get further items.
#[derive(Clone, Debug)]
pub(super) struct OpenAlbum {
    pub(super) key: AlbumKey,
    pub(super) sender: Option<i64>,
    /// Update ids and messages, in order.
    pub(super) items: Vec<(i64, IncomingMessage)>,
    /// When the first item came.
    pub(super) first: Duration,
    /// When the latest item came.
    pub(super) latest: Duration,
}

impl OpenAlbum {
    /// Whether one of the items is for the agent; then all are.
    pub(super) fn is_relevant(&self) -> bool {
        self.items.iter().any(|(_, item)| item.is_relevant)
    }

    /// Whether this message is one of the items.
    pub(super) fn has(&self, message_id: i64) -> bool {
        self.items.iter().any(|(_, item)| item.message_id == message_id)
    }

    /// The update ids of the items, in order.
    pub(super) fn ids(&self) -> Vec<i64> {
        self.items.iter().map(|(id, _)| *id).collect()
    }

    /// All items as one message: the files and captions of all items, what any of them replies to and what was said before, and
    /// everything else from the first.
    ///
    /// The id names the first and the last item, so that an album that comes again with more items than were committed
    /// is not a duplicate; a reply goes to the first item.
    pub(super) fn merge(mut self) -> Option<IncomingMessage> {
        self.items.sort_by_key(|(id, _)| *id);
        let is_relevant = self.is_relevant();
        let items: Vec<IncomingMessage> = self.items.into_iter().map(|(_, item)| item).collect();
        let event = merged_event(&items);
        let first = items.into_iter().next()?;
        Some(IncomingMessage {
            event,
            is_relevant,
            ..first
        })
    }
}

pub(super) fn merged_event(items: &[IncomingMessage]) -> Value {
    let mut event = items.first().map(|item| item.event.clone()).unwrap_or_default();
    if items.len() < 2 {
        return event;
    }
    // Only a command at the start of the text is one.
    let is_command = |item: &&IncomingMessage| item.event["message_type"] == "command";
    let (commands, others): (Vec<_>, Vec<_>) = items.iter().partition(is_command);
    let mut texts: Vec<&str> = Vec::new();
    for item in commands.iter().chain(&others) {
        let text = item.event["text"].as_str().unwrap_or_default();
        if !text.is_empty() && !texts.contains(&text) {
            texts.push(text);
        }
    }
    event["text"] = texts.join("\n").into();
    if !commands.is_empty() {
        event["message_type"] = "command".into();
    }
    for key in ["media_urls", "media"] {
        let all: Vec<&Value> = items
            .iter()
            .filter_map(|item| item.event[key].as_array())
            .flatten()
            .collect();
        if !all.is_empty() {
            event[key] = json!(all);
        }
    }
    for key in ["reply_to", "reply_to_message_id", "context"] {
        let known = items.iter().find_map(|item| item.event.get(key));
        if let (None, Some(known)) = (event.get(key), known) {
            event[key] = known.clone();
        }
    }
    if let [first, .., last] = items
        && first.message_id != 0
        && last.message_id != 0
    {
        event["message_id"] = format!("{}-{}", first.message_id, last.message_id).into();
    }
    event
}
