//! What needs no socket: the contract's vectors, decoding, splitting, fuzzing, and the rules of the source tree.

#[path = "../support/mod.rs"]
mod support;

mod decode;
mod dependencies;
mod fuzz;
mod layers;
mod split;
mod stores;
mod vectors;
mod wire_page;
