//! What may be said where, and how: the pure half of speaking to a chat.

pub mod split;
