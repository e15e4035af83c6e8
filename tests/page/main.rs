//! The page of `hermes-relay dev`: guarded, usable, and true, tried with the real binary in a real browser.

#[path = "../support/mod.rs"]
mod support;

mod accessibility;
mod bot_api;
mod browser;
mod chat;
mod deliveries;
mod faults;
mod guard;
mod jobs;
mod ops;
mod presence;
mod replay;
mod server;
mod wire;
