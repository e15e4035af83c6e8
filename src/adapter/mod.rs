//! What may be said where, and how. Pure: no I/O, no clock, no runtime.

mod interaction;

pub use interaction::{interaction_event, prompt_token};
