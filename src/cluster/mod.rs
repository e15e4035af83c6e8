//! Several relays for the same gateway, of which one is active: who that is, and what it may still do.
//!
//! The members share a lease and a stream. The lease chooses the active member: whoever has it, renews it, and stops by its own clock
//! before it can run out. The stream decides: every commit is one record in it, appended with the number of the last record that its
//! author knows, so that a member that is no longer active cannot append. What is here does no I/O and reads no clock; the driver in
//! `relay` sends what [`Member`] asks for.
//!
//! Invariants (`tests`):
//!
//! - At no time may two members send.
//! - What the stream took stays, in order and once, whoever becomes active.
//! - While the server can be reached, somebody becomes active.

mod member;
mod tail;
#[cfg(test)]
mod tests;

pub use member::{LeaseTiming, Member, MemberAction, MemberEvent, MemberRole};
pub use tail::{Append, Tail};
