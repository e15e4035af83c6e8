//! Draft ids: each turn has a range of its own, so that a draft that people see names its turn.

use crate::adapter::chats::ChatId;

/// Draft ids that one turn may use, counted from its first.
pub(super) const DRAFT_IDS: u64 = 1024;

/// The first draft id of the turn that answers a journal row.
pub fn first_draft_id(row: u64) -> u64 {
    row.wrapping_mul(DRAFT_IDS)
}

/// A draft that is shown in a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownDraft {
    /// The chat that shows the draft.
    pub chat: ChatId,
    /// The draft's id in that chat.
    pub draft_id: u64,
}

impl ShownDraft {
    /// Whether the turn that answers this row in this chat shows it.
    pub fn is_of(&self, chat: &ChatId, row: u64) -> bool {
        let ids = first_draft_id(row)..=first_draft_id(row).saturating_add(DRAFT_IDS - 1);
        self.chat == *chat && ids.contains(&self.draft_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(id: &str) -> ChatId {
        ChatId {
            platform: "telegram".into(),
            chat: id.into(),
        }
    }

    #[test]
    fn a_draft_is_of_exactly_one_turn() {
        let other_platform = ChatId {
            platform: "discord".into(),
            ..chat("1")
        };
        let first = first_draft_id(7);
        let last = first + DRAFT_IDS - 1;
        for (draft_id, of, row, expected) in [
            (first, chat("1"), 7, true),
            (first + 5, chat("1"), 7, true),
            (last, chat("1"), 7, true),
            // The turns before and after it.
            (first, chat("1"), 6, false),
            (first, chat("1"), 8, false),
            (last, chat("1"), 8, false),
            (last + 1, chat("1"), 7, false),
            (first - 1, chat("1"), 7, false),
            // The same number elsewhere.
            (first, chat("2"), 7, false),
            (first, other_platform, 7, false),
            // Numbers that no turn has.
            (0, chat("1"), 7, false),
            (u64::MAX, chat("1"), 7, false),
        ] {
            let draft = ShownDraft {
                chat: chat("1"),
                draft_id,
            };
            assert_eq!(draft.is_of(&of, row), expected, "{draft:?} {of:?} {row}");
        }
    }
}
