//! Slack: where replies go, and which messages are sessions of their own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::chats::{Chat, ChatId};
use crate::setting::section;
use crate::wire::Platform;

/// Where replies go in a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlackReplyMode {
    /// Into the chat itself.
    Channel,
    /// Into a thread under the message.
    Thread,
}

section! {
    /// Slack.
    #[derive(PartialEq, Eq)]
    pub struct SlackConfig {
        /// Reply in a thread under the message. If not, replies in direct messages go into the chat itself.
        pub reply_in_thread: bool = true;
        /// A message outside a thread starts a new session, where replies go into threads.
        pub dm_top_level_threads_as_sessions: bool = true;
        /// Chats that differ from `reply_in_thread`, by id: `channel` (replies go into the chat itself) or `thread`.
        pub channel_reply_modes: BTreeMap<String, SlackReplyMode>;
        /// Commands for `/hermes <name>`.
        pub command_map: BTreeMap<String, String>;
    }
}

impl SlackConfig {
    /// Whether the reply to a message outside a thread names that message. Only a direct message is flat by the switch alone.
    pub(super) fn anchors(&self, Chat { id, facts }: &Chat) -> bool {
        match self.channel_reply_modes.get(id.chat.as_str()) {
            Some(mode) => *mode == SlackReplyMode::Thread,
            None => self.reply_in_thread || !facts.is_direct(),
        }
    }

    /// Whether a message outside a thread is a session of its own.
    pub(super) fn separates(&self, chat: &str) -> bool {
        let threads = match self.channel_reply_modes.get(chat) {
            Some(mode) => *mode == SlackReplyMode::Thread,
            None => self.reply_in_thread,
        };
        threads && self.dm_top_level_threads_as_sessions
    }
}

/// Whether the chat is on Slack.
pub(super) fn is_slack(chat: &ChatId) -> bool {
    chat.platform == Platform::SLACK.as_str()
}

/// Whether a text has a link that an earlier one has not, or not whole: Slack previews links only when a message is posted.
pub(super) fn has_new_link(text: &str, before: &str) -> bool {
    let known: Vec<&str> = links(before).collect();
    links(text).any(|link| !known.contains(&link))
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends =
        |c: char| c.is_whitespace() || matches!(c, '<' | '>' | '|' | '(' | ')' | '[' | ']' | '"' | '`');
    let words = text.split(ends);
    words.filter(|word| {
        let rest = word
            .strip_prefix("https://")
            .or_else(|| word.strip_prefix("http://"));
        rest.is_some_and(|rest| !rest.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_has_its_own_mode_else_that_of_the_switch() {
        let config = |reply_in_thread| SlackConfig {
            reply_in_thread,
            channel_reply_modes: [
                ("C_FLAT".to_owned(), SlackReplyMode::Channel),
                ("D_THREAD".to_owned(), SlackReplyMode::Thread),
            ]
            .into(),
            ..SlackConfig::default()
        };
        // Switch, chat, type, anchored, a session of its own.
        for (switch, chat, chat_type, anchored, separate) in [
            (true, "D1", "dm", true, true),
            (true, "C1", "channel", true, true),
            (true, "C_FLAT", "channel", false, false),
            (true, "D_THREAD", "dm", true, true),
            (false, "D1", "dm", false, false),
            (false, "C1", "channel", true, false),
            (false, "C_FLAT", "channel", false, false),
            (false, "D_THREAD", "dm", true, true),
        ] {
            let slack = config(switch);
            let id = ChatId {
                platform: "slack".into(),
                chat: chat.into(),
            };
            let mut known = Chat::from(id);
            known.facts.chat_type = Some(chat_type.into());
            assert_eq!(
                (slack.anchors(&known), slack.separates(chat)),
                (anchored, separate),
                "{switch} {chat}"
            );
            let shared = SlackConfig {
                dm_top_level_threads_as_sessions: false,
                ..slack
            };
            assert!(!shared.separates(chat));
        }
    }

    #[test]
    fn a_link_is_new_unless_it_stood_there_whole() {
        for (text, before, new) in [
            ("see https://a.example/x", "see", true),
            ("see https://a.example/x", "see https://a.exam", true),
            ("see https://a.example/x now", "see https://a.example/x", false),
            ("<https://a.example|here>", "(https://a.example)", false),
            (
                "https://a.example and http://b.example",
                "https://a.example",
                true,
            ),
            ("no link: https:// or a.example", "", false),
        ] {
            assert_eq!(has_new_link(text, before), new, "{text:?} after {before:?}");
        }
    }
}
