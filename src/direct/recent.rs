//! The last messages of groups that were not for the bot: what the agent gets as context when somebody calls it in.

use std::collections::VecDeque;
use std::hash::Hash;

use serde_json::{Value, json};

use crate::collections::BoundedCache;
use crate::text::truncate;

/// Groups and topics whose messages are remembered.
const MAX_GROUPS: usize = 256;
/// Characters of a message that are remembered.
const MAX_TEXT: usize = 500;

/// The last messages of groups and topics, up to a number of each. `G` names a group or topic.
#[derive(Debug)]
pub struct RecentMessages<G> {
    per_group: usize,
    groups: BoundedCache<G, VecDeque<RecentMessage>>,
}

#[derive(Debug)]
struct RecentMessage {
    id: i64,
    author: String,
    text: String,
}

impl<G: Clone + Eq + Hash> RecentMessages<G> {
    /// Remembers so many messages of each group; none with 0.
    pub fn new(per_group: usize) -> Self {
        Self {
            per_group,
            groups: BoundedCache::new(MAX_GROUPS),
        }
    }

    /// A message that was not for the bot. One that comes again is known.
    pub(super) fn note(&mut self, group: &G, id: i64, author: &str, text: &str) {
        if self.per_group == 0 || text.trim().is_empty() {
            return;
        }
        if self.groups.get(group).is_none() {
            self.groups.insert(group.clone(), VecDeque::new());
        }
        let Some(messages) = self.groups.get_mut(group) else {
            return;
        };
        if messages.iter().any(|known| known.id == id) {
            return;
        }
        messages.push_back(RecentMessage {
            id,
            author: author.to_owned(),
            text: truncate(text, MAX_TEXT).to_owned(),
        });
        while messages.len() > self.per_group {
            messages.pop_front();
        }
    }

    /// A message was edited: if it is known, it says this now.
    pub(super) fn edited(&mut self, group: &G, id: i64, text: &str) {
        if text.trim().is_empty() {
            return self.deleted(group, id);
        }
        let messages = self.groups.get_mut(group).into_iter().flatten();
        for known in messages.filter(|known| known.id == id) {
            truncate(text, MAX_TEXT).clone_into(&mut known.text);
        }
    }

    /// A message was deleted.
    pub(super) fn deleted(&mut self, group: &G, id: i64) {
        if let Some(messages) = self.groups.get_mut(group) {
            messages.retain(|known| known.id != id);
            if messages.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    /// The messages before one that is for the bot, oldest first, as the contract has them; each is given once.
    pub(super) fn take(&mut self, group: &G) -> Option<Value> {
        let messages = self.groups.remove(group)?;
        let context = messages
            .into_iter()
            .map(|message| json!({ "text": message.text, "source": { "user_name": message.author } }));
        Some(context.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_message_is_given_as_it_says_now_and_a_deleted_one_is_not() {
        let mut recent = RecentMessages::new(5);
        for (id, text) in [(1, "one"), (2, "two"), (3, "three"), (4, "four")] {
            recent.note(&-1_i64, id, "Ann", text);
        }
        recent.edited(&-1, 1, "uno");
        recent.edited(&-1, 2, " ");
        recent.edited(&-1, 9, "never noted");
        recent.edited(&-2, 1, "elsewhere");
        recent.deleted(&-1, 4);
        let texts = |context: Value| {
            context
                .as_array()
                .unwrap()
                .iter()
                .map(|said| said["text"].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(recent.take(&-1).unwrap()), ["uno", "three"]);
        recent.note(&-1, 5, "Ann", "five");
        recent.deleted(&-1, 5);
        assert_eq!((recent.take(&-1), recent.take(&-2)), (None, None));
    }

    #[test]
    fn the_last_messages_of_a_group_are_given_once() {
        let mut recent = RecentMessages::new(2);
        for (id, text) in [(1, "one"), (2, "two"), (2, "two"), (3, "three"), (4, " ")] {
            recent.note(&(-1, None), id, "Ann", text);
        }
        recent.note(&(-1, Some(9_i64)), 5, "Bob", "elsewhere");
        let context = recent.take(&(-1, None)).unwrap();
        assert_eq!(
            context,
            json!([
                { "text": "two", "source": { "user_name": "Ann" } },
                { "text": "three", "source": { "user_name": "Ann" } },
            ])
        );
        assert_eq!(recent.take(&(-1, None)), None);
        let mut none = RecentMessages::new(0);
        none.note(&-1_i64, 1, "Ann", "one");
        assert_eq!(none.take(&-1_i64), None);
    }
}
