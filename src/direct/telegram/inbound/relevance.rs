//! Which messages are for the agent. With a connector, the connector decides this.

use super::update::Ignored;
use crate::direct::telegram::chat::ChatPlace;

/// Which messages of groups and channels are for the agent. In private chats all are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relevance {
    /// In groups, only messages that mention or reply to the bot count, and commands.
    pub require_mention: bool,
    /// Chats where every message counts: a chat's id, or `<chat>:<topic>`. Channels count only here.
    pub free_chats: Vec<String>,
    /// Messages of other bots count, where they mention the bot.
    pub allow_bots: bool,
}

impl Default for Relevance {
    fn default() -> Self {
        Self {
            require_mention: true,
            free_chats: Vec::new(),
            allow_bots: false,
        }
    }
}

/// The facts about a message that its relevance depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Addressing {
    pub(super) place: ChatPlace,
    pub(super) chat_id: i64,
    pub(super) thread_id: Option<i64>,
    /// The author is a bot.
    pub(super) by_bot: bool,
    /// The message mentions the bot, or is a command that names it.
    pub(super) is_mention: bool,
    /// The message replies to a message of the bot.
    pub(super) is_reply: bool,
    /// The message is a command that names no bot.
    pub(super) is_command: bool,
}

impl Relevance {
    /// `Ok` if a message is for the agent, else the reason for the log.
    pub(super) fn judge(&self, message: &Addressing) -> Result<(), Ignored> {
        if message.by_bot && !self.allow_bots {
            return Err("a message of another bot");
        }
        // Two bots that answer each other's answers would never stop: only a mention counts.
        if message.by_bot && message.place != ChatPlace::Private {
            return if message.is_mention {
                Ok(())
            } else {
                Err("a message of another bot that does not mention this one")
            };
        }
        match message.place {
            ChatPlace::Private => Ok(()),
            _ if self.is_free(message.chat_id, message.thread_id) => Ok(()),
            ChatPlace::Channel => Err("a post of a channel that is not a free-response channel"),
            ChatPlace::Group
                if !self.require_mention || message.is_mention || message.is_reply || message.is_command =>
            {
                Ok(())
            }
            ChatPlace::Group => Err("a group message that does not address the bot"),
        }
    }

    fn is_free(&self, chat_id: i64, thread_id: Option<i64>) -> bool {
        self.free_chats.iter().any(|free| {
            let (chat, topic) = match free.trim().split_once(':') {
                Some((chat, topic)) => (chat, Some(topic)),
                None => (free.trim(), None),
            };
            chat.parse() == Ok(chat_id)
                && topic.is_none_or(|topic| topic.parse().is_ok_and(|topic: i64| thread_id == Some(topic)))
        })
    }
}
