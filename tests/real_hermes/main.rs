//! Conversations with the real Hermes, as it is published: installed from its registry, with a made-up model behind it.
//!
//! The real relay, the real agent, real processes; only the connector and the model are ours, and both are on loopback.
//! Nothing is sent to anyone. Where Hermes cannot be installed, the tests say so loudly and are skipped.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../support/http_stub.rs"]
mod http_stub;
#[path = "../support/relay_process.rs"]
mod relay_process;

mod acp;
mod conversation;
mod home;
mod install;
mod model;
mod processes;
mod reference;
mod runs;
