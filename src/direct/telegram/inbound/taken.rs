//! Messages that were for the agent: an edit of one is for the agent too, whatever it says now. An album is one message, so an edit of
//! one of its items is an edit of all of it. All of it is forgotten with the process.

use super::album::{AlbumKey, MAX_ITEMS, merged_event};
use super::update::IncomingMessage;
use crate::collections::BoundedCache;

/// Messages that are remembered.
const MAX_MESSAGES: usize = 10_000;
/// Albums whose items are remembered.
const MAX_ALBUMS: usize = 64;

/// The messages that came lately, as far as an edit of them matters.
#[derive(Debug)]
pub struct TakenMessages {
    /// Chat and id of each message for the agent.
    messages: BoundedCache<(i64, i64), ()>,
    /// The items of albums, in order.
    albums: BoundedCache<AlbumKey, Vec<IncomingMessage>>,
}

impl Default for TakenMessages {
    fn default() -> Self {
        Self {
            messages: BoundedCache::new(MAX_MESSAGES),
            albums: BoundedCache::new(MAX_ALBUMS),
        }
    }
}

impl TakenMessages {
    /// A message came, perhaps not for the first time.
    pub(super) fn note(&mut self, message: &IncomingMessage) {
        let Some(album) = &message.album else {
            self.messages.insert((message.chat_id, message.message_id), ());
            return;
        };
        let key = (message.chat_id, album.clone());
        if self.albums.get(&key).is_none() {
            self.albums.insert(key.clone(), Vec::new());
        }
        if let Some(items) = self.albums.get_mut(&key)
            && items.len() < MAX_ITEMS
            && items.iter().all(|item| item.message_id != message.message_id)
        {
            items.push(message.clone());
        }
    }

    /// Whether a message, or one of the items of its album, was for the agent.
    pub(super) fn is_taken(&self, chat_id: i64, message_id: i64, album: Option<&str>) -> bool {
        let Some(album) = album else {
            return self.messages.peek(&(chat_id, message_id)).is_some();
        };
        let items = self.albums.peek(&(chat_id, album.to_owned()));
        items.is_some_and(|items| items.iter().any(|item| item.is_relevant))
    }

    /// The whole album of an item that was edited; the item alone if it is in none that is known.
    pub(super) fn edited(&mut self, mut item: IncomingMessage) -> IncomingMessage {
        let Some(album) = item.album.take() else {
            return item;
        };
        if let Some(items) = self.albums.get_mut(&(item.chat_id, album))
            && let Some(known) = items.iter_mut().find(|known| known.message_id == item.message_id)
        {
            known.event.clone_from(&item.event);
            item.event = merged_event(items);
        }
        item
    }
}
