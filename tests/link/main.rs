//! The relay as a process, dialling a connector: the real binary against the embedded connector, over real
//! sockets, with real signals. Nothing here reaches into the relay.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../support/http_stub.rs"]
mod http_stub;
#[path = "../support/relay_process.rs"]
mod relay_process;
#[path = "../support/tls_front.rs"]
mod tls_front;

mod boot;
mod clock;
mod framing;
mod handshake;
mod large;
mod measured;
mod poison;
mod provision;
mod refusals;
mod reload;
mod secrets;
mod secure;
mod shutdown;
mod trouble;
