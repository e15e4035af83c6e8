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
//! - While the server can be reached, somebody becomes active, unless another member may be going on alone.
//!
//! With [`WithoutServer::Continue`] an active member writes into the stream that the role is its own without a limit of time. Nobody
//! else becomes active then, however long it is silent, until it gives the role back or a person says that it is gone.

mod alone;
mod member;
mod tail;
#[cfg(test)]
mod tests;

pub use alone::{Beginning, Hold, WithoutServer};
pub use member::{LeaseTiming, Member, MemberAction, MemberEvent, MemberRole};
pub use tail::{Append, Tail};
