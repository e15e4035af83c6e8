//! What may be said where, and how: the pure half of speaking to a chat. No I/O, no clock, no runtime.

mod budget;
mod chats;
mod envelope;
mod interaction;
mod manifest;
pub mod media;
pub mod prompt;
mod reply;
pub mod speech;
pub mod split;
mod threads;

pub use budget::{BudgetSettings, Budgets, Leave, PlatformBudget, TextWaits};
pub use chats::{ChatFacts, ChatId, ChatMemory, egress_platform};
pub use interaction::{interaction_event, prompt_token};
pub use manifest::{MANIFEST_PLATFORM, OfferedCommand, manifest};
pub use reply::reply;
pub use speech::Speech;
pub use threads::{MAX_THREAD_NAME, OwnThreads, open_thread};
