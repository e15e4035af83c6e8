//! What may be said where, and how: the pure half of speaking to a chat. No I/O, no clock, no runtime.

mod chats;
mod interaction;
pub mod media;
mod reply;
pub mod split;

pub use chats::{ChatFacts, ChatId, ChatMemory, egress_platform};
pub use interaction::{interaction_event, prompt_token};
pub use reply::reply;
