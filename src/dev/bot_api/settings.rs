//! How a fake Bot API behaves.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};

use crate::dev::connector::random_token;

/// The settings of a [`BotApi`](super::BotApi).
#[derive(Clone, Debug)]
pub struct BotApiSettings {
    /// Port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// The bot's token; the digits before the colon are its id.
    pub token: SecretString,
    /// The bot's name after the `@`.
    pub username: String,
    /// The bot's first name.
    pub first_name: String,
    /// Whether the bot reads every message of its groups (privacy mode is off).
    pub reads_all_group_messages: bool,
    /// Whether the bot has topics in private chats.
    pub has_topics: bool,
    /// Whether the server knows `sendMessageDraft`. An older one answers 404.
    pub drafts: bool,
    /// Whether the server knows `sendRichMessage`, and `rich_message` in an edit. An older one answers 404.
    pub rich_messages: bool,
    /// The id of the first update.
    pub first_update_id: i64,
    /// Whether a poll that repeats its offset at once is slowed down, as the server does.
    pub hot_loop_guard: bool,
    /// How long a press can be answered.
    pub press_deadline: Duration,
    /// Calls that are kept on record; the oldest go first.
    pub call_limit: usize,
    /// Messages that are kept per chat; the oldest go first.
    pub message_limit: usize,
}

impl Default for BotApiSettings {
    fn default() -> Self {
        Self {
            port: 0,
            token: format!("7000000001:{}", &random_token()[..35]).into(),
            username: "relay_dev_bot".to_owned(),
            first_name: "Relay".to_owned(),
            reads_all_group_messages: true,
            has_topics: false,
            drafts: true,
            rich_messages: true,
            first_update_id: 500_000_001,
            hot_loop_guard: true,
            press_deadline: Duration::from_secs(15),
            call_limit: 10_000,
            message_limit: 1_000,
        }
    }
}

impl BotApiSettings {
    /// The bot's id: the digits of its token.
    pub(super) fn bot_id(&self) -> i64 {
        let token = self.token.expose_secret();
        let digits = token.split(':').next().unwrap_or_default();
        digits.parse().unwrap_or(7_000_000_001)
    }
}
