//! Conversations with the real Hermes, as it is published: installed from its registry, with a made-up model behind it.
//!
//! The real relay, the real agent, real processes; only the connector and the model are ours, and both are on loopback.
//! Nothing is sent to anyone. Where Hermes cannot be installed, the tests say so loudly and are skipped.

mod acp;
pub(crate) mod conversation;
pub(crate) mod home;
mod install;
pub(crate) mod model;
pub(crate) mod processes;
mod reference;
mod runs;
