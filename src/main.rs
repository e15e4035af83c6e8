//! The `hermes-relay` binary.

fn main() {}
