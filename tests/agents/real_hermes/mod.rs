//! Conversations with the real Hermes, as it is published: installed from its registry, with a made-up model behind it.
//!
//! The real relay, the real agent, real processes; only the connector and the model are ours, and both are on loopback.
//! Nothing is sent to anyone. Where Hermes cannot be installed, the tests say so loudly and are skipped.

mod acp;
mod conversation;
mod home;
mod install;
mod model;
mod processes;
mod reference;
mod runs;
