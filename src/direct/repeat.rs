//! Which ops are repeated, and which applied ops are recorded so that a restart after a kill does not repeat them. Knows no
//! platform. The relay sends a question, the removal of its buttons and a file only once: this module decides on further
//! attempts. All other ops are repeated by the relay.

use std::time::Duration;

use crate::wire::{Action, Outcome};

/// Attempts of one op.
const MAX_ATTEMPTS: u32 = 4;
/// Longest wait between two attempts.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The wait before the next attempt at an op, after this many attempts; `None` if there is no further attempt. `has_buttons`
/// says whether the message that an edit names has buttons.
pub fn wait_to_repeat(
    action: &Action,
    has_buttons: bool,
    outcome: &Outcome,
    attempts: u32,
) -> Option<Duration> {
    let is_end_of_buttons = has_buttons && matches!(action, Action::Edit { .. });
    let is_sent_once =
        is_end_of_buttons || matches!(action, Action::Prompt { .. } | Action::SendMedia { .. });
    if !is_sent_once || attempts >= MAX_ATTEMPTS {
        return None;
    }
    match outcome {
        Outcome::Unknown => Some(Duration::ZERO),
        // The relay itself holds questions and files while a chat is limited.
        Outcome::Refused { result, .. } if is_end_of_buttons => {
            let wait = result.rate_limited()?;
            Some(wait.unwrap_or_default().min(MAX_WAIT))
        }
        Outcome::Refused { .. } | Outcome::Applied(_) => None,
    }
}

/// Whether people would see a repeated op. Platforms know no op ids, so the bot records such an op once it is applied.
pub fn is_recorded(action: &Action) -> bool {
    matches!(
        action,
        Action::Send { .. } | Action::Edit { .. } | Action::Draft { .. } | Action::SendMedia { .. }
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::OpResult;

    fn action(op: serde_json::Value) -> Action {
        serde_json::from_value(op).unwrap()
    }

    #[test]
    fn only_ops_that_the_relay_sends_once_are_repeated() {
        let edit = action(json!({"op": "edit", "chat_id": "1", "message_id": "2", "content": "x"}));
        let send = action(json!({"op": "send", "chat_id": "1", "content": "x"}));
        let prompt = action(
            json!({"op": "prompt", "chat_id": "1", "content": "x", "prompt_kind": "approval",
            "prompt_id": "p", "options": []}),
        );
        let file = action(
            json!({"op": "send_media", "chat_id": "1", "media_kind": "document",
            "source_url": "u", "content": ""}),
        );
        let limited = || {
            let retry_after = Some("90".into());
            Outcome::from(OpResult {
                retry_after,
                ..OpResult::default()
            })
        };
        let zero = Some(Duration::ZERO);
        for (action, has_buttons, unknown, limit) in [
            (&send, false, None, None),
            (&edit, false, None, None),
            (&edit, true, zero, Some(MAX_WAIT)),
            (&prompt, false, zero, None),
            (&file, false, zero, None),
        ] {
            let wait = |outcome: &Outcome, attempts| wait_to_repeat(action, has_buttons, outcome, attempts);
            assert_eq!(wait(&Outcome::Unknown, 1), unknown, "{action:?}");
            assert_eq!(wait(&limited(), 1), limit, "{action:?}");
            assert_eq!(wait(&Outcome::Unknown, MAX_ATTEMPTS), None, "{action:?}");
            assert_eq!(wait(&Outcome::from(OpResult::default()), 1), None, "{action:?}");
        }
    }

    #[test]
    fn ops_that_would_show_twice_are_recorded() {
        for (op, recorded) in [
            (json!({"op": "send", "chat_id": "1", "content": "x"}), true),
            (
                json!({"op": "edit", "chat_id": "1", "message_id": "2", "content": "x"}),
                true,
            ),
            (
                json!({"op": "draft", "chat_id": "1", "draft_id": 3, "content": "x", "final": true}),
                true,
            ),
            (
                json!({"op": "send_media", "chat_id": "1", "media_kind": "document", "source_url": "u", "content": ""}),
                true,
            ),
            (json!({"op": "typing", "chat_id": "1"}), false),
            (json!({"op": "delete", "chat_id": "1", "message_id": "2"}), false),
            (
                json!({"op": "react", "chat_id": "1", "message_id": "2", "emoji": "👍", "remove": false}),
                false,
            ),
        ] {
            assert_eq!(is_recorded(&action(op.clone())), recorded, "{op}");
        }
    }
}
