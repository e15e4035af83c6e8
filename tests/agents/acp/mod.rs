//! Agents that speak ACP: the backend against a small agent that behaves, and misbehaves, as it is told.

mod asking;
pub(crate) mod example;
mod processes;
mod restoring;
mod rig;
mod stopping;
mod talking;
