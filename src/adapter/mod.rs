//! What may be said where, and how: the pure half of speaking to a chat. No I/O, no clock, no runtime.

mod chats;
mod envelope;
mod interaction;
mod manifest;
pub mod media;
pub mod prompt;
mod rate_limit;
mod relay_adapter;
pub mod split;
pub mod stream;
mod threads;

pub use chats::{ChatFacts, ChatId, ChatMemory};
pub use interaction::{interaction_event, prompt_token};
pub use manifest::{MANIFEST_PLATFORM, OfferedCommand, manifest};
pub use rate_limit::{Permit, PlatformRateLimit, RateLimitSettings, RateLimiter, TextWaits};
pub use relay_adapter::{Adapters, RelayAdapter};
pub use stream::ReplyStream;
pub use threads::{MAX_THREAD_NAME, ThreadRegistry, open_thread};
