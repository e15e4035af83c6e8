//! Agents that speak ACP: the backend against a small agent that behaves, and misbehaves, as it is told.

mod approvals;
pub(crate) mod example;
mod interrupt;
mod processes;
mod restore;
mod rig;
mod turns;
