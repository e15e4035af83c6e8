//! The embedded connector, spoken to by a bare WebSocket client that shares no code with the relay's link.

mod client;
mod delivery;
mod faults;
mod handshake;
mod ops;
mod routes;
mod rules;
