//! Platforms that the relay serves itself, without a connector: platform updates become the contract's events, and ops become
//! calls of the platform's API. Pure: `relay::transport` makes the calls.
//!
//! A platform is a room with three sub-rooms: `inbound` (updates become events), `outbound` (ops become calls, and what an
//! answer means) and `text` (Markdown becomes the platform's formatting). The files beside the platforms know none of them.

mod chat_backoff;
pub mod discord;
mod field;
pub mod flood;
mod latest_reaction;
mod recent;
mod repeat;
pub mod telegram;
pub mod text;

pub use chat_backoff::ChatBackoff;
pub use latest_reaction::LatestReactions;
pub use recent::RecentMessages;
pub use repeat::{is_recorded, wait_to_repeat};
