//! What may be said where, and how: the pure half of speaking to a chat. No I/O, no clock, no runtime.

mod interaction;
pub mod split;

pub use interaction::{interaction_event, prompt_token};
