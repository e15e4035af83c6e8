//! Attachments against real servers: what comes in, what must not, who sees the bearer, and what goes out.

mod bearer;
mod guarded;
mod incoming;
mod names;
mod outgoing;
#[cfg(feature = "dev")]
mod relay;
mod server;
