//! `hermes-relay doctor` against set-ups that are broken in one way each: the real binary must name the cause and what
//! to do, blame nothing else, and skip what hangs on it. And one that is not broken.
#![cfg(feature = "dev")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[path = "../support/relay_process.rs"]
mod relay_process;
#[path = "../support/tls_front.rs"]
mod tls_front;

mod here;
mod rig;
mod talk;
mod way;
