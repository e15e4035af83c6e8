//! What every agent keeps to, whatever is behind it: one suite of cases, run for each backend.
//!
//! A backend joins with a module of its own that implements [`suite::Fixture`] — how to make its scripted peer do each
//! thing — and one test that calls [`suite::conform`]. A case that a backend cannot be brought to is named there as not
//! applicable, so that none goes missing unseen.

mod acp;
mod builtin;
mod cases;
mod command;
mod harness;
mod hermes;
mod http_peer;
mod openai;
mod robust;
mod stopping;
mod suite;
