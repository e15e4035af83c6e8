//! What messages tell about the channels and people of Discord, for interactions that leave it out.
//!
//! Kept in memory only: the next message brings it again.

use hashbrown::Equivalent;
use smol_str::SmolStr;

use crate::collections::BoundedCache;
use crate::text::truncate;
use crate::wire::{Platform, Scalar, SessionSource};

/// Channels, and people, that are remembered.
const MAX_LABELS: usize = 2048;
/// Longest text of a label, in characters.
const MAX_LABEL: usize = 1024;

/// What was last told about channels and people.
#[derive(Debug)]
pub struct LabelMemory {
    channels: BoundedCache<LabelKey, ChannelLabels>,
    people: BoundedCache<LabelKey, SmolStr>,
}

/// A guild, and a channel or a person in it.
type LabelKey = (SmolStr, SmolStr);

/// What is known about a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelLabels {
    pub(super) name: Option<String>,
    pub(super) topic: Option<String>,
    /// The channel that a thread belongs to.
    pub(super) parent: Option<String>,
}

impl ChannelLabels {
    fn learn(&mut self, source: &SessionSource) {
        update(&mut self.topic, label(source.chat_topic.as_ref()));
        let told = [
            (&mut self.name, &source.chat_name),
            (&mut self.parent, &source.parent_chat_id),
        ];
        for (known, told) in told {
            if let Some(told) = label(told.as_ref()) {
                update(known, Some(told));
            }
        }
    }
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
    /// Learns from a message or an interaction. A missing topic was removed; any other missing field keeps its value.
    pub fn learn(&mut self, source: &SessionSource) {
        if source.platform != Platform::DISCORD {
            return;
        }
        let scope = label(source.scope_id.as_ref()).unwrap_or_default();
        if let Some(channel) = label(source.chat_id.as_ref()) {
            let key = LabelRef(scope, channel);
            if let Some(labels) = self.channels.get_mut(&key) {
                labels.learn(source);
            } else {
                let mut labels = ChannelLabels::default();
                labels.learn(source);
                self.channels.insert(key.into(), labels);
            }
        }
        if let (Some(person), Some(name)) = (label(source.user_id.as_ref()), label(source.user_name.as_ref()))
        {
            let key = LabelRef(scope, person);
            match self.people.get_mut(&key) {
                Some(known) if known == name => {}
                Some(known) => *known = name.into(),
                None => {
                    self.people.insert(key.into(), name.into());
                }
            }
        }
    }

    /// What is known about a channel.
    pub(super) fn channel(&self, scope: &str, channel: &str) -> ChannelLabels {
        let known = self.channels.peek(&LabelRef(scope, channel));
        known.cloned().unwrap_or_default()
    }

    /// The name of a person in a guild.
    pub(super) fn person(&self, scope: &str, person: &str) -> Option<&str> {
        let known = self.people.peek(&LabelRef(scope, person));
        known.map(SmolStr::as_str)
    }
}

/// A label in a message, if it has one.
fn label(field: Option<&Scalar>) -> Option<&str> {
    let text = field.map(|text| truncate(text.as_str(), MAX_LABEL));
    text.filter(|text| !text.is_empty())
}

fn update(known: &mut Option<String>, told: Option<&str>) {
    if known.as_deref() != told {
        *known = told.map(str::to_owned);
    }
}

/// A key that is looked for. It has the hash of the key that it is equal to.
#[derive(Hash)]
struct LabelRef<'a>(&'a str, &'a str);

impl Equivalent<LabelKey> for LabelRef<'_> {
    fn equivalent(&self, key: &LabelKey) -> bool {
        key.0 == self.0 && key.1 == self.1
    }
}

impl From<LabelRef<'_>> for LabelKey {
    fn from(key: LabelRef<'_>) -> Self {
        (key.0.into(), key.1.into())
    }
}
