//! What agents changed in the last turn of each conversation, in memory: `/diff` sends it.

use crate::adapter::TurnDiff;
use crate::collections::BoundedCache;
use crate::wire::SessionKey;

/// Conversations whose last changes are remembered; a diff has at most 256 KiB.
const MAX_CONVERSATIONS: usize = 64;

/// The diffs of the last turns.
#[derive(Debug)]
pub struct Changes {
    last: BoundedCache<SessionKey, TurnDiff>,
}

impl Changes {
    pub fn new() -> Self {
        Self {
            last: BoundedCache::new(MAX_CONVERSATIONS),
        }
    }

    /// A turn of a conversation has ended.
    pub fn turn_ended(&mut self, conversation: SessionKey, diff: TurnDiff) {
        self.last.insert(conversation, diff);
    }

    /// What the last turn of a conversation changed; `None` if none is remembered.
    pub fn last(&mut self, conversation: &SessionKey) -> Option<TurnDiff> {
        self.last.get(conversation).cloned()
    }
}
