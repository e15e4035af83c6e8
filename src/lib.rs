//! `hermes-relay`: the dial-out half of the Hermes relay contract.

pub mod adapter;
pub mod agent;
pub mod config;
#[cfg(feature = "dev")]
pub mod dev;
pub mod net;
pub mod store;
pub mod wire;
