//! The embedded connector, spoken to by a bare WebSocket client that shares no code with the relay's link.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod client;
mod delivery;
mod faults;
mod handshake;
mod ops;
mod routes;
