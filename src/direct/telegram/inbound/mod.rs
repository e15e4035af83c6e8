//! Telegram updates become the contract's events: polling, reading, relevance, albums, confirmation, and presses of buttons.

mod album;
mod content;
mod entity;
mod event;
mod poll;
mod press;
mod received;
mod relevance;
mod sender;
mod taken;
mod update;

pub use content::MAX_DOWNLOAD_BYTES;
pub use poll::{PollRetry, PollStep, PollTrouble, Polling};
pub use press::{PressAnswer, PressNext, Presses, after_press};
pub use received::{NextPoll, ReceivedUpdates};

/// The last messages of groups and their topics.
pub type RecentInTopics = crate::direct::RecentMessages<(i64, Option<i64>)>;
pub use relevance::Relevance;
pub use taken::TakenMessages;
pub use update::{ALLOWED_UPDATES, BatchReader, Incoming, IncomingMessage, UpdateMeaning, read_batch};

#[cfg(test)]
mod tests;
