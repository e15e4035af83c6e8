//! The reactions that Telegram allows bots, and their replacements for other emoji.

/// What a bot may react with. Variation selectors are left out, as in Telegram's own list.
pub const ALLOWED_REACTIONS: [&str; 73] = [
    "❤",
    "👍",
    "👎",
    "🔥",
    "🥰",
    "👏",
    "😁",
    "🤔",
    "🤯",
    "😱",
    "🤬",
    "😢",
    "🎉",
    "🤩",
    "🤮",
    "💩",
    "🙏",
    "👌",
    "🕊",
    "🤡",
    "🥱",
    "🥴",
    "😍",
    "🐳",
    "❤\u{200d}🔥",
    "🌚",
    "🌭",
    "💯",
    "🤣",
    "⚡",
    "🍌",
    "🏆",
    "💔",
    "🤨",
    "😐",
    "🍓",
    "🍾",
    "💋",
    "🖕",
    "😈",
    "😴",
    "😭",
    "🤓",
    "👻",
    "👨\u{200d}💻",
    "👀",
    "🎃",
    "🙈",
    "😇",
    "😨",
    "🤝",
    "✍",
    "🤗",
    "🫡",
    "🎅",
    "🎄",
    "☃",
    "💅",
    "🤪",
    "🗿",
    "🆒",
    "💘",
    "🙉",
    "🦄",
    "😘",
    "💊",
    "🙊",
    "😎",
    "👾",
    "🤷\u{200d}♂",
    "🤷",
    "🤷\u{200d}♀",
    "😡",
];

/// Reactions that other platforms have, and what is nearest to them.
const NEAREST: &[(&str, &str)] = &[
    ("✅", "👍"),
    ("☑", "👍"),
    ("✔", "👍"),
    ("🆗", "👌"),
    ("❌", "👎"),
    ("❎", "👎"),
    ("✖", "👎"),
    ("🚫", "👎"),
    ("⛔", "👎"),
    ("🛑", "👎"),
    ("⏳", "👀"),
    ("⌛", "👀"),
    ("🔄", "👀"),
    ("⚙", "👀"),
    ("🛠", "👨\u{200d}💻"),
    ("⚠", "🤔"),
    ("❓", "🤔"),
    ("💭", "🤔"),
    ("🚀", "🔥"),
    ("✨", "🎉"),
    ("🥳", "🎉"),
    ("😂", "🤣"),
    ("😀", "😁"),
    ("😃", "😁"),
    ("😄", "😁"),
    ("🙂", "😁"),
    ("😊", "🥰"),
    ("☹", "😢"),
    ("🙁", "😢"),
    ("🧡", "❤"),
    ("💙", "❤"),
    ("💚", "❤"),
    ("💜", "❤"),
];

/// The reaction that marks a running turn.
pub(super) const RUNNING: &str = "👀";

/// The allowed reaction that is, or is nearest to, an emoji; `None` if none is near.
pub fn allowed_reaction(emoji: &str) -> Option<&'static str> {
    if emoji.len() > 64 {
        return None;
    }
    // Without variation selectors and skin tones, which the list does not have.
    let bare: String = emoji
        .trim()
        .chars()
        .filter(|c| !matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}'))
        .collect();
    let known = |name: &str| ALLOWED_REACTIONS.into_iter().find(|allowed| *allowed == name);
    known(&bare).or_else(|| {
        let (_, nearest) = NEAREST.iter().find(|(other, _)| *other == bare)?;
        known(nearest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn all_73_reactions_are_allowed_with_and_without_a_variation_selector() {
        assert_eq!(ALLOWED_REACTIONS.iter().collect::<HashSet<_>>().len(), 73);
        for emoji in ALLOWED_REACTIONS {
            assert!(!emoji.contains('\u{fe0f}'), "{emoji}");
            assert_eq!(allowed_reaction(emoji), Some(emoji));
            assert_eq!(allowed_reaction(&format!("{emoji}\u{fe0f}")), Some(emoji));
        }
        assert_eq!(allowed_reaction("❤\u{fe0f}\u{200d}🔥"), Some("❤\u{200d}🔥"));
        assert_eq!(allowed_reaction("🤷🏽\u{200d}♀\u{fe0f}"), Some("🤷\u{200d}♀"));
        assert_eq!(allowed_reaction("👍🏿"), Some("👍"));
    }

    #[test]
    fn others_are_replaced_by_the_nearest_one_or_refused() {
        for (emoji, nearest) in NEAREST {
            assert!(!ALLOWED_REACTIONS.contains(emoji), "{emoji} needs no replacement");
            assert!(ALLOWED_REACTIONS.contains(nearest), "{nearest} is not allowed");
            assert_eq!(allowed_reaction(emoji), Some(*nearest));
        }
        assert_eq!(allowed_reaction("✅"), Some("👍"));
        assert_eq!(allowed_reaction("❌"), Some("👎"));
        assert_eq!(allowed_reaction("⏳"), Some("👀"));
        assert!(ALLOWED_REACTIONS.contains(&RUNNING));
        for other in ["", "🍕", "thumbsup", "👍👍", &"👍".repeat(1000)] {
            assert_eq!(allowed_reaction(other), None, "{other}");
        }
    }
}
