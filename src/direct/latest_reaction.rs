//! Which reaction to a message counts: a bot has one reaction per message, and ops may overtake each other. Knows no platform.

use smol_str::SmolStr;

use crate::collections::BoundedCache;
use crate::wire::{Action, OpId};

/// Messages whose latest reaction is remembered.
const MAX_MESSAGES: usize = 1024;

/// The latest op that reacts to each message, by chat and message id.
#[derive(Debug)]
pub struct LatestReactions {
    ops: BoundedCache<(SmolStr, SmolStr), OpId>,
}

impl Default for LatestReactions {
    fn default() -> Self {
        Self {
            ops: BoundedCache::new(MAX_MESSAGES),
        }
    }
}

impl LatestReactions {
    /// An op was submitted.
    pub fn submitted(&mut self, op: OpId, action: &Action) {
        if let Some(message) = reacted_to(action) {
            self.ops.insert(message, op);
        }
    }

    /// Whether an op would undo a later one that reacts to the same message.
    pub fn is_superseded(&mut self, op: OpId, action: &Action) -> bool {
        let last = reacted_to(action).and_then(|message| self.ops.get(&message).copied());
        last.is_some_and(|last| last != op)
    }
}

/// The message that an op reacts to.
fn reacted_to(action: &Action) -> Option<(SmolStr, SmolStr)> {
    match action {
        Action::React {
            chat_id, message_id, ..
        } => Some((chat_id.clone(), message_id.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::OpIds;

    fn react(chat: &str, message: &str, emoji: &str, remove: bool) -> Action {
        let op =
            json!({"op": "react", "chat_id": chat, "message_id": message, "emoji": emoji, "remove": remove});
        serde_json::from_value(op).unwrap()
    }

    #[test]
    fn only_the_last_reaction_to_a_message_counts() {
        let mut ids = OpIds::new(1);
        let typing: Action = serde_json::from_value(json!({"op": "typing", "chat_id": "1"})).unwrap();
        let ops = [
            (react("1", "7", "👀", false), true),
            (react("1", "8", "👀", false), false),
            (react("2", "7", "👀", false), false),
            (react("1", "7", "👀", true), true),
            (react("1", "7", "👍", false), false),
            (typing.clone(), false),
            (typing, false),
        ];
        let mut reactions = LatestReactions::default();
        let submitted: Vec<_> = ops
            .iter()
            .map(|(action, superseded)| {
                let id = ids.next();
                reactions.submitted(id, action);
                (id, action, superseded)
            })
            .collect();
        for (id, action, superseded) in submitted {
            assert_eq!(reactions.is_superseded(id, action), *superseded, "{action:?}");
        }
    }

    #[test]
    fn a_reaction_that_was_forgotten_goes_out() {
        let mut ids = OpIds::new(1);
        let mut reactions = LatestReactions::default();
        let first = (ids.next(), react("1", "0", "👀", false));
        reactions.submitted(first.0, &first.1);
        for message in 1..=MAX_MESSAGES {
            reactions.submitted(ids.next(), &react("1", &message.to_string(), "👀", false));
        }
        assert!(!reactions.is_superseded(first.0, &first.1));
    }
}
