//! Scale to zero, new secrets and the end of an enrolment: what a relay does when nothing happens, and how it comes
//! back. Over a real socket against the embedded connector, as the real binary, and in memory for what is a race.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../support/http_stub.rs"]
mod http_stub;
#[path = "../support/memory_relay.rs"]
mod memory_relay;
#[path = "../support/relay_process.rs"]
mod relay_process;

mod dormant;
mod process;
mod races;
mod secrets;
mod unenroll;
