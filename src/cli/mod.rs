//! The command line: one file per verb, from what was typed to what is printed and the exit code.
//!
//! A verb never ends the process and never reads the environment by itself: both belong to the binary.

pub mod enroll;
pub mod prompt;
