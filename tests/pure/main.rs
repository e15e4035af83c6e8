//! What needs no socket: the contract's vectors, decoding, splitting, fuzzing, and the rules of the source tree.

mod decode;
mod dependencies;
mod fuzz;
mod layers;
#[path = "../support/skip.rs"]
mod skip;
mod split;
mod vectors;
