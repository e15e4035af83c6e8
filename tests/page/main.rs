//! The page of `hermes-relay dev`: guarded, usable, and true, tried with the real binary in a real browser.

mod browser;
mod faults;
mod guard;
mod looks;
mod ops;
mod replay;
#[path = "../support/skip.rs"]
mod skip;
mod stage;
mod talk;
