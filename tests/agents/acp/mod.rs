//! Agents that speak ACP: the backend against a small agent that behaves, and misbehaves, as it is told.

mod approvals;
mod interrupt;
mod processes;
mod restore;
mod rig;
mod turns;

/// The scripted peer (`peer/main.rs`), a program of its own.
pub(crate) const PEER: &str = env!("CARGO_BIN_EXE_acp_peer");
