//! The page of `hermes-relay dev`: guarded, usable, and true, tried with the real binary in a real browser.

#[path = "../support/mod.rs"]
mod support;

mod browser;
mod faults;
mod guard;
mod looks;
mod ops;
mod replay;
mod stage;
mod talk;
