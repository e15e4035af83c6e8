//! Scale to zero, new secrets and the end of an enrolment: what a relay does when nothing happens, and how it comes
//! back. Over a real socket against the embedded connector, as the real binary, and in memory for what is a race.

mod dormant;
mod process;
mod races;
mod secrets;
mod unenroll;
