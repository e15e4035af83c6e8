//! What may be said where, and how: the pure half of speaking to a chat. No I/O, no clock, no runtime.

mod chats;
mod envelope;
mod interaction;
mod reply;
pub mod speech;
pub mod split;

pub use chats::{ChatFacts, ChatId, ChatMemory, egress_platform};
pub use interaction::{interaction_event, prompt_token};
pub use reply::reply;
pub use speech::Speech;
