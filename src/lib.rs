//! `hermes-relay`: the dial-out half of the Hermes relay contract.
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod adapter;
pub mod agent;
pub mod cli;
pub mod config;
pub mod link;
pub mod net;
pub mod relay;
pub mod session;
pub mod store;
pub mod wire;
