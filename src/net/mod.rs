//! Outgoing connections: TLS, proxies, the WebSocket to the connector, and HTTP.
//!
//! The only module that uses the WebSocket and HTTP crates. It never listens, spawns, retries or reads the process
//! environment. Redirects are followed only for downloads from third parties ([`media`]), without credentials. A
//! credential goes to its own origin and nowhere else, and everything that waits for the network has a timeout.
//!
//! From the bottom up: `connect` resolves names and races addresses, [`proxy`] selects a proxy and `tunnel` goes through
//! it, [`tls`] holds the certificates, [`socket`] dials the connector's WebSocket, and [`http`] sends everything else.

pub mod chronos;
mod connect;
pub mod connector_http;
pub mod discord;
pub mod http;
pub mod identity;
pub mod jwks;
pub mod machine;
pub mod media;
pub(crate) mod metered;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "nats")]
pub mod nats_cluster;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod portal_login;
pub mod proxy;
mod self_signed;
pub mod send_lease;
pub mod socket;
pub mod speech;
pub mod steps;
pub mod telegram;
pub mod tls;
mod tunnel;
pub mod ws_io;
