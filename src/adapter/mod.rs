//! What is sent to platforms, and how: [`RelayAdapter`] and its parts. Pure: no I/O, no clock, no runtime.

mod action_builder;
mod answer_shaper;
mod changes;
mod chat_settings;
mod chats;
mod discord;
mod labels;
mod list;
mod long_code;
pub mod media;
pub mod prompt;
mod rate_limit;
mod relay_adapter;
mod session_names;
mod slack;
pub mod split;
pub mod stream;
mod tables;
mod threads;

pub use answer_shaper::AnswerShaper;
pub use changes::{TurnChanges, TurnDiff};
pub use chat_settings::{ChatSettings, NoHours, QuietHours};
pub use chats::{Chat, ChatFacts, ChatId, ChatMemory};
pub use discord::{
    MANIFEST_PLATFORM, OfferedCommand, interaction_event, labelled_interaction, manifest, prompt_token,
};
pub use labels::LabelMemory;
pub use list::{ListButton, ListMessage};
pub use long_code::{CodeFile, CodeShaper};
pub use rate_limit::{Permit, PlatformRateLimit, RateLimitSettings, RateLimiter, TextWaits};
pub use relay_adapter::{Adapters, RelayAdapter};
pub use session_names::SessionNames;
pub use slack::{SlackConfig, SlackReplyMode};
pub use stream::ReplyStream;
pub use tables::TableShaper;
pub use threads::{ThreadRegistry, move_to_thread};
