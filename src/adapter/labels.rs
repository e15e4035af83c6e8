//! What messages tell about the channels and people of Discord, for interactions that leave it out.
//!
//! Kept in memory only: the next message brings it again.

use crate::collections::BoundedCache;
use crate::text::truncate;
use crate::wire::{Platform, Scalar, SessionSource};

/// Channels, and people, that are remembered.
const MAX_LABELS: usize = 2048;
/// Longest text of a label, in characters.
const MAX_LABEL: usize = 1024;

/// A guild, and a channel or a person in it.
type LabelKey = (String, String);

/// What was last told about channels and people.
#[derive(Debug)]
pub struct LabelMemory {
    channels: BoundedCache<LabelKey, ChannelLabels>,
    people: BoundedCache<LabelKey, String>,
}

/// What is known about a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelLabels {
    pub(super) name: Option<String>,
    pub(super) topic: Option<String>,
    /// The channel that a thread belongs to.
    pub(super) parent: Option<String>,
}

impl Default for LabelMemory {
    fn default() -> Self {
        Self {
            channels: BoundedCache::new(MAX_LABELS),
            people: BoundedCache::new(MAX_LABELS),
        }
    }
}

impl LabelMemory {
    /// Learns from a message or an interaction. A topic that is not there any more was removed; anything else that is missing
    /// was only not told.
    pub fn learn(&mut self, source: &SessionSource) {
        if source.platform != Platform::DISCORD {
            return;
        }
        let text = |field: &Option<Scalar>| {
            let text = field
                .as_ref()
                .map(|text| truncate(text.as_str(), MAX_LABEL).to_owned());
            text.filter(|text| !text.is_empty())
        };
        let scope = text(&source.scope_id).unwrap_or_default();
        if let Some(channel) = text(&source.chat_id) {
            let key = (scope.clone(), channel);
            let known = self.channels.remove(&key).unwrap_or_default();
            let labels = ChannelLabels {
                name: text(&source.chat_name).or(known.name),
                topic: text(&source.chat_topic),
                parent: text(&source.parent_chat_id).or(known.parent),
            };
            self.channels.insert(key, labels);
        }
        if let (Some(person), Some(name)) = (text(&source.user_id), text(&source.user_name)) {
            self.people.insert((scope, person), name);
        }
    }

    /// What is known about a channel.
    pub(super) fn channel(&self, scope: &str, channel: &str) -> ChannelLabels {
        let known = self.channels.peek(&(scope.to_owned(), channel.to_owned()));
        known.cloned().unwrap_or_default()
    }

    /// The name of a person in a guild.
    pub(super) fn person(&self, scope: &str, person: &str) -> Option<&str> {
        let known = self.people.peek(&(scope.to_owned(), person.to_owned()));
        known.map(String::as_str)
    }
}
