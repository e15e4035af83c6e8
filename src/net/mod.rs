//! Dialling out: TLS, proxies, the WebSocket to the connector, the connector's HTTP routes, and agents behind HTTP.
//!
//! The only module that names the WebSocket and HTTP crates. It never listens, never spawns, never
//! retries, and never reads the process environment: what it needs comes in as an argument. A redirect is
//! followed only where [`media`] asks anybody for a file, and without a credential. A bearer goes to the origin it
//! is meant for and nowhere else, and everything that waits for the network has a deadline.
//!
//! From the wire up: `connect` resolves names and races addresses, [`proxy`] says whether a proxy
//! stands in between and `tunnel` gets through it, [`tls`] holds the trust, and [`socket`] puts them
//! together into one dial of the connector's WebSocket.

pub mod agent_http;
mod answer;
mod connect;
pub mod connector_http;
mod dial_error;
pub mod http;
pub mod identity;
mod json_store;
pub mod machine;
pub mod media;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod portal_login;
pub mod proxy;
pub mod socket;
pub mod steps;
pub(crate) mod timestamp;
pub mod tls;
mod tunnel;
pub mod ws_io;
