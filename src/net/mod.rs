//! Dialling out: TLS, proxies, the WebSocket to the connector, and the connector's HTTP routes.
//!
//! The only module that names the WebSocket and HTTP crates. It never listens, never retries, never
//! follows a redirect, and never reads the process environment: what it needs comes in as an argument.
//! The bearer goes to the connector's own origin and nowhere else.

pub mod connector_http;
pub mod http;
pub mod identity;
mod json_store;
pub mod portal_login;
pub mod proxy;
mod timestamp;
pub mod tls;
