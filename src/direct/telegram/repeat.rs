//! Ops that are repeated, and ops that must not be. A question, the end of its buttons and a file the relay sends once only:
//! whether one is made again is decided here. All others the relay repeats by itself.

use std::time::Duration;

use crate::wire::{Action, Outcome};

/// Attempts of one op.
const MAX_ATTEMPTS: u32 = 4;
/// Longest wait between two.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How long to wait before an op is made again after this many attempts; `None` if it is not. `has_buttons` says whether the
/// message that an edit names has buttons.
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
        // Questions and files are held by the relay.
        Outcome::Refused { result, .. } if is_end_of_buttons => {
            let wait = result.rate_limited()?;
            Some(wait.unwrap_or_default().min(MAX_WAIT))
        }
        Outcome::Refused { .. } | Outcome::Applied(_) => None,
    }
}

/// Whether a repetition of an op would be seen: the bot notes such an op once it was applied, because Telegram knows no op ids.
pub fn is_noted(action: &Action) -> bool {
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
    fn only_what_the_relay_sends_once_is_made_again() {
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
    fn what_a_repetition_would_show_twice_is_noted() {
        for (op, noted) in [
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
            assert_eq!(is_noted(&action(op.clone())), noted, "{op}");
        }
    }
}
