//! Agent backends: each protocol against a scripted peer, the conformance suite, and the real Hermes.

#[path = "../support/mod.rs"]
mod support;

mod acp;
mod conformance;
mod http_agents;
mod real_hermes;
