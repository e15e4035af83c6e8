//! Agent backends: each protocol against a scripted peer, the conformance suite, and the real Hermes and OpenCode; and the
//! substrates that hand something to an agent; and bot libraries from their registry against the fake Bot API and the fake
//! Discord.

#[path = "../support/mod.rs"]
mod support;

mod acp;
mod bot_library;
mod conformance;
mod connectors;
mod discord_library;
mod http_agents;
mod real_hermes;
mod real_opencode;
mod registry;
